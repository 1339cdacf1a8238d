"""The fleet rosters that a peer holds: which documents it takes, and who is barred from a job."""

from __future__ import annotations

import pytest

from p2pclust.errors import UsageError
from p2pclust.peer.core.document import roster_for
from p2pclust.peer.core.fleet_roster import FleetRoster, HeldRosters, RosterName
from p2pclust.peer.core.treatment import Treatment

PEERS = ("a", "b")


def roster(serial: int, names: str = "abc", *, version: str = "") -> FleetRoster:
    devices = {name: f"{name}{version}".encode().ljust(32) for name in names}
    return FleetRoster(RosterName(serial, f"{serial} {names} {version}".encode().ljust(32)), devices)


def test_the_roster_in_force_and_the_one_before_are_taken() -> None:
    rosters = HeldRosters(roster(7), roster(6).name.digest, [roster(6), roster(5)])
    for serial in (6, 7):
        assert rosters.problem_with(roster(serial).name, PEERS, met=False) == ""
        assert rosters.has(roster(serial).name)
    assert (
        rosters.problem_with(roster(5).name, PEERS, met=False)
        == "it names fleet roster 5, which 7 has replaced long ago"
    )
    assert rosters.problem_with(roster(5).name, PEERS, met=True) == "", (
        "this peer met the document while roster 5 was in force"
    )


def test_of_rosters_that_were_missed_all_since_the_last_are_taken() -> None:
    rosters = HeldRosters(roster(3))
    rosters.take(roster(9))
    assert [rosters.problem_with(RosterName(serial, b"x" * 32), PEERS, met=False) == "" for serial in (2, 4, 8, 10)] == [
        False, True, True, True,
    ]  # fmt: skip
    assert not rosters.has(RosterName(4, b"x" * 32))
    assert HeldRosters(roster(9)).problem_with(RosterName(7, b"x" * 32), PEERS, met=False) != "", (
        "it knows of none before"
    )
    assert HeldRosters(roster(9)).problem_with(RosterName(8, b"x" * 32), PEERS, met=False) == ""


@pytest.mark.parametrize(
    ("named", "peers", "reason"),
    [
        (roster(7).name, ("a", "x"), "it names x, which is not on fleet roster 7"),
        (RosterName(7, b"x" * 32), PEERS, "fleet roster 7 is another one than it names"),
        (RosterName(8, roster(7).name.digest), PEERS, "fleet roster 8 is another one than it names"),
        (None, PEERS, "it names no fleet roster, and this fleet has keys"),
    ],
)
@pytest.mark.parametrize("met", [False, True])
def test_a_document_is_refused(named: RosterName | None, peers: tuple[str, ...], reason: str, met: bool) -> None:
    assert HeldRosters(roster(7)).problem_with(named, peers, met=met) == reason


def test_in_a_fleet_without_keys_documents_name_none() -> None:
    rosters = HeldRosters()
    assert rosters.problem_with(None, PEERS, met=False) == ""
    assert rosters.has(None)
    assert (
        rosters.problem_with(roster(1).name, PEERS, met=False) == "it names a fleet roster, and this fleet has no keys"
    )
    assert roster_for(rosters, Treatment(), ("a", "x")) is None
    with pytest.raises(UsageError, match="not on the fleet roster of this peer: x"):
        roster_for(HeldRosters(roster(1)), Treatment(), ("a", "x"))


def test_another_key_or_none_bars_a_peer_from_the_jobs_that_know_the_key_before() -> None:
    rosters, first = HeldRosters(roster(1)), roster(1).name
    assert not any(rosters.other_key(first, name) for name in "abc")
    rosters.take(
        FleetRoster(RosterName(2, b"2" * 32), {**roster(2, "a").devices, **roster(2, "b", version="new").devices})
    )
    assert [rosters.other_key(first, name) for name in "abc"] == [False, True, True]
    assert not any(rosters.other_key(RosterName(2, b"2" * 32), name) for name in "ab")
    rosters.take(roster(3))
    assert not any(rosters.other_key(first, name) for name in "abc"), "the keys of the job are in force again"


def test_only_what_is_needed_is_held() -> None:
    rosters = HeldRosters(roster(3), roster(2).name.digest, [roster(1), roster(2)])
    rosters.wanted[roster(0).name.digest] = ("a",)
    rosters.hold(roster(0))
    assert rosters.wanted == {}
    rosters.keep_only([roster(3).name.digest, roster(1).name.digest])
    assert [rosters.has(roster(serial).name) for serial in range(4)] == [False, True, False, True]


def test_a_device_signs_with_the_key_that_the_job_names_or_with_that_in_force() -> None:
    old, new = roster(6, "abc"), roster(7, "abd", version="2")
    rosters = HeldRosters(new, old.name.digest, [old])
    keys = rosters.keys_of(old.name, ("a", "c", "d", "e"))
    assert keys == (
        (old.devices["a"], new.devices["a"]), (old.devices["c"],), (new.devices["d"],), (),
    )  # fmt: skip
    assert rosters.keys_of(roster(5).name, ("a", "c")) == ((new.devices["a"],), ()), "a roster that is not here"
