"""Every pure rule of the core, row by row."""

from __future__ import annotations

from dataclasses import fields
from math import log
from typing import Any

import msgpack
import pytest

from p2pclust.errors import UsageError, WireError
from p2pclust.peer.core.document import Document, Turn, has_majority, majority, roster_for
from p2pclust.peer.core.fleet_roster import FleetRoster, HeldRosters, RosterName
from p2pclust.peer.core.timing import PRESETS, Timing, preset
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.secure.parameters import SecureSums

ROSTER = ("a", "b", "c", "d", "e")


@pytest.mark.parametrize(
    ("n_peers", "expected"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4), (100, 51), (101, 51)]
)
def test_majority(n_peers: int, expected: int) -> None:
    assert majority(n_peers) == expected
    assert 2 * expected > n_peers  # any two majorities share a peer
    assert 2 * (expected - 1) <= n_peers  # and none is larger than it need be


@pytest.mark.parametrize(
    ("names", "roster", "expected"),
    [
        pytest.param([], ROSTER, False, id="nobody"),
        pytest.param(["a", "b"], ROSTER, False, id="one-too-few"),
        pytest.param(["a", "b", "e"], ROSTER, True, id="just-enough"),
        pytest.param(["a", "a", "a"], ROSTER, False, id="one-peer-thrice"),
        pytest.param(["a", "b", "z"], ROSTER, False, id="a-stranger-does-not-count"),
        pytest.param(["a", "b"], ("a", "b", "c", "d"), False, id="an-even-half-is-none"),
        pytest.param(["a"], ("a",), True, id="alone"),
        pytest.param([], (), False, id="an-empty-roster-has-none"),
    ],
)
def test_has_majority(names: list[str], roster: tuple[str, ...], expected: bool) -> None:
    assert has_majority(names, roster) is expected


# -- durations --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "n_members", "expected_s"),
    [
        ("default", 2, 3.0),
        ("default", 10, 3.0),  # below ten members the logarithm is held at one
        ("default", 100, 6.0),
        ("default", 1000, 9.0),
        ("wan", 100, 20.0),
        ("fast", 10, 0.75),
    ],
)
def test_suspicion_lasts_longer_in_larger_fleets(name: str, n_members: int, expected_s: float) -> None:
    assert preset(name).suspicion_s(n_members) == pytest.approx(expected_s)


def lifeguard_factor(confirmations: int, expected: int) -> float:
    """The formula of the Lifeguard paper, section IV-B, with max = 4 min: the independent second opinion of a test."""
    return max(1.0, 4.0 - (4.0 - 1.0) * log(confirmations + 1) / log(expected + 1))


@pytest.mark.parametrize(("confirmations", "factor"), [(0, 4.0), (1, 2.5), (2, 1.6226), (3, 1.0)])
def test_lifeguard_formula(confirmations: int, factor: float) -> None:
    assert lifeguard_factor(confirmations, 3) == pytest.approx(factor, abs=1e-4)


@pytest.mark.parametrize("timing", PRESETS.values(), ids=PRESETS.keys())
def test_presets_are_consistent(timing: Timing) -> None:
    assert timing.probe_timeout_s < 0.9 * timing.probe_period_s, "helpers must have time before the verdict"
    assert timing.heartbeat_s * 3 <= timing.election_min_s, "two lost heartbeats must not cause an election"
    assert timing.election_min_s < timing.election_max_s, "or two candidates tie indefinitely"
    assert timing.hurry_s <= timing.election_min_s
    assert timing.heartbeat_s < timing.retry_s < timing.patience_s
    assert timing.gossip_period_s < timing.probe_period_s < timing.sync_period_s
    assert all(value > 0 for name, value in vars(timing).items() if name != "quiet_s")


def test_an_unknown_preset_is_named_together_with_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"timing = 'slow': expected one of default, wan, fast"):
        preset("slow")


# -- the job document -------------------------------------------------------------------------------------------------

GOOD: dict[str, Any] = {
    "mathematics": b"mathematics", "roster": ("a", "b", "c"), "store_ids": ("sa", "sb", "sc"), "missing": "wait",
    "patience_s": 5.0, "compute_limit_s": 60.0, "deadline_s": 0.0,
    "aggregator": "", "submitter": "a", "nonce": "1", "collect": "star",
}  # fmt: skip


def _document(**changed: Any) -> Document:
    given = GOOD | changed
    treatment = Treatment(**{field.name: given.pop(field.name) for field in fields(Treatment) if field.name in given})
    return Document(treatment=treatment, **given)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        pytest.param({"missing": "ignore"}, "missing = 'ignore': expected one of all, wait, drop", id="missing"),
        pytest.param({"roster": (), "store_ids": ()}, "roster: expected different names, sorted", id="no-roster"),
        pytest.param({"roster": ("b", "a", "c")}, "roster: expected different names, sorted", id="unsorted"),
        pytest.param({"roster": ("a", "a", "c")}, "roster: expected different names, sorted", id="twice"),
        pytest.param(
            {"roster": tuple(f"{i:05}" for i in range(4097)), "store_ids": ("s",) * 4097},
            "roster: expected different names, sorted",
            id="too-many",
        ),
        pytest.param({"store_ids": ("sa", "sb")}, "store_ids: expected one for each roster peer", id="store-ids"),
        pytest.param({"aggregator": "z"}, "aggregator = 'z' is not on the roster", id="aggregator"),
        pytest.param({"patience_s": 0.0}, "the first two above 0", id="no-patience"),
        pytest.param({"patience_s": -1.0}, "the first two above 0", id="negative-patience"),
        pytest.param(
            {"patience_s": float("nan")},
            "patience_s, compute_limit_s and deadline_s: expected seconds",
            id="nan-patience",
        ),
        pytest.param(
            {"patience_s": float("inf")},
            "patience_s, compute_limit_s and deadline_s: expected seconds",
            id="endless-patience",
        ),
        pytest.param(
            {"patience_s": 5},
            "patience_s, compute_limit_s and deadline_s: expected seconds",
            id="a-whole-number-of-seconds",
        ),
        pytest.param({"compute_limit_s": 0.0}, "the first two above 0", id="no-compute-limit"),
        pytest.param(
            {"deadline_s": -1.0}, "patience_s, compute_limit_s and deadline_s: expected seconds", id="negative-deadline"
        ),
        pytest.param(
            {"deadline_s": float("nan")},
            "patience_s, compute_limit_s and deadline_s: expected seconds",
            id="nan-deadline",
        ),
        pytest.param({"missing": "drop"}, "missing = 'drop' needs deadline_s: ", id="drop-without-deadline"),
    ],
)
def test_a_document_refuses(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        _document(**changed)


def test_a_document_survives_its_encoding() -> None:
    document = _document()
    assert Document.decode(document.encode()) == document
    assert Document.decode(document.encode()).id == document.id


@pytest.mark.parametrize("field", sorted(GOOD))
def test_the_id_depends_on_every_field(field: str) -> None:
    other = {
        "mathematics": b"other", "roster": ("a", "b", "d"), "store_ids": ("sa", "sb", "sd"), "missing": "all",
        "patience_s": 6.0, "compute_limit_s": 61.0, "deadline_s": 1.0,
        "aggregator": "b", "submitter": "b", "nonce": "2", "collect": "tree",
    }[field]  # fmt: skip
    fits = {"missing": "drop", "deadline_s": 2.0} if field == "deadline_s" else {}
    assert _document(**fits | {field: other}).id != _document(**fits).id


NAMED = RosterName(4, bytes(range(32)))
ROSTERS = HeldRosters(FleetRoster(NAMED, {name: name.encode() * 32 for name in "abcdefghi"}))
SECURE: dict[str, Any] = {
    "secure": True, "keepers": 2, "cohort": 3, "burnt": "record", "leave": "groups", "colluders": 1,
    "fleet_roster": NAMED,
}  # fmt: skip


@pytest.mark.parametrize(
    "changed",
    [
        {}, {"collect": "tree"}, {"every_s": 9.0, "turn": Turn("series-1", 4, fixed=True)},
        {"collect": "gossip", "gossip_tolerance": 0.1, "mixing": "metropolis-hastings"},
    ],
)  # fmt: skip
def test_the_fleet_roster_that_a_plain_job_names_survives_its_encoding(changed: dict[str, Any]) -> None:
    document = _document(fleet_roster=NAMED, **changed)
    assert Document.decode(document.encode()) == document
    assert document.fleet_roster == NAMED
    assert (
        len({document.id, _document(**changed).id, _document(fleet_roster=RosterName(5, bytes(32)), **changed).id}) == 3
    )
    assert document.keys(ROSTERS) is None


@pytest.mark.parametrize(
    "named", [[-1, bytes(32)], [1, bytes(31)], [1.0, bytes(32)], [True, bytes(32)], [1, "x"], [1], []]
)
def test_a_hostile_name_of_a_fleet_roster_is_a_wire_error(named: list[Any]) -> None:
    fields = msgpack.unpackb(_document().encode())
    with pytest.raises(WireError, match="document"):
        Document.decode(msgpack.packb([*fields, named]))


@pytest.mark.parametrize(
    "changed", [{}, {"collect": "tree"}, {"every_s": 9.0, "turn": Turn("series-1", 4, fixed=True)}]
)
def test_the_document_of_a_job_with_secure_sums_survives_its_encoding(changed: dict[str, Any]) -> None:
    document = _document(**SECURE | changed)
    assert Document.decode(document.encode()) == document
    keys = document.keys(ROSTERS, ["b"])
    assert keys is not None
    assert (keys.job_id, keys.fleet_roster_digest) == (document.id, NAMED.digest)
    assert keys.secure == SecureSums(2, 3, "record", "groups", colluders=1)
    assert (keys.devices, keys.barred) == ((b"a" * 32, b"b" * 32, b"c" * 32), 0b10)
    assert _document().keys(ROSTERS) is None


def test_the_groups_of_secure_sums_survive_too() -> None:
    nine = tuple("abcdefghi")
    fields = {**SECURE, "roster": nine, "store_ids": nine}
    document = _document(**fields, groups=3)
    assert Document.decode(document.encode()) == document
    keys = document.keys(ROSTERS)
    assert keys is not None
    assert keys.secure == SecureSums(2, 3, "record", "groups", 3, 1)
    assert document.id != _document(**fields).id
    for changed, message in (
        ({"groups": 4}, r"groups = 4: expected 3 to 3, so that each of 9 peers has 2 others in its group"),
        ({"groups": 2}, "groups = 2: expected 3 to 3"),
        ({"groups": 3, "cohort": 4}, "9 peers make 2 groups of at least 4"),
        ({"groups": 3, "collect": "tree"}, "groups excludes collect = 'tree'"),
        ({"groups": 3, "verify": "all"}, "not of groups"),
    ):
        with pytest.raises(UsageError, match=message):
            _document(**fields | changed)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"keepers": 4}, "keepers = 4"),
        ({"keepers": 1}, "keepers = 1"),
        ({"cohort": 4}, "cohort = 4"),
        ({"burnt": ""}, "burnt = ''"),
        ({"leave": "together"}, "leave = 'together'"),
        ({"fleet_roster": None}, "secure, verify: for fleets with keys"),
        ({"secure": False}, "keepers needs secure"),
        ({"secure": 1}, "expected true or false"),
        ({"cohort": 3.0}, "expected true or false, and whole numbers"),
        ({"collect": "gossip"}, "secure sums need an aggregator"),
    ],
)
def test_the_document_of_a_job_with_secure_sums_refuses(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        _document(**SECURE | changed)


@pytest.mark.parametrize(
    "secure",
    [
        b"", b"\xc1", b"\x91" * 300, msgpack.packb([2, 3, "record"]), msgpack.packb(7), msgpack.packb(None),
        msgpack.packb([2, 3, "record", "groups", 0]), msgpack.packb([2.0, 3, "record", "groups"]),
        msgpack.packb([True, 3, "record", "groups"]), msgpack.packb([2, 3, b"record", "groups"]),
        msgpack.packb([2**63, 3, "record", "groups"]), msgpack.packb({"keepers": 2}),
    ],
)  # fmt: skip
def test_a_hostile_secured_part_of_a_document_is_a_wire_error(secure: bytes) -> None:
    fields = msgpack.unpackb(_document(**SECURE).encode())
    with pytest.raises(WireError, match="document"):
        Document.decode(msgpack.packb([*fields[:-2], secure, fields[-1]]))


@pytest.mark.parametrize("secure", [False, True])
def test_the_document_of_a_job_with_verify_survives_its_encoding(secure: bool) -> None:
    document = _document(**(SECURE if secure else {"fleet_roster": NAMED}) | {"verify": "all"})
    assert Document.decode(document.encode()) == document
    keys = document.keys(ROSTERS)
    assert keys is not None
    assert keys.verify
    assert (keys.secure is not None) is secure
    assert document.id != _document(**SECURE).id


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"verify": "some"}, "verify = 'some': expected 'all'"),
        ({"collect": "tree"}, "verify excludes collect = 'tree'"),
        ({"every_s": 9.0, "turn": Turn("series-1", 4, fixed=True)}, "verify excludes every"),
        ({"fleet_roster": None}, "secure, verify: for fleets with keys"),
        ({"keepers": 2}, "keepers needs secure"),
    ],
)
def test_the_document_of_a_job_with_verify_refuses(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        _document(**{"fleet_roster": NAMED, "verify": "all"} | changed)


@pytest.mark.parametrize(
    "keyed",
    [
        [0, 0, "", "", "all", 0], [0, 0, "", "", b"all", False], [0, 0, "", "", "none", False],
        [0, 0, "", "", "all"], [2, 0, "", "", "all", False], [0, 0, "", "", "all", False, 1],
    ],
)  # fmt: skip
def test_a_hostile_verified_part_of_a_document_is_a_wire_error(keyed: list[Any]) -> None:
    fields = msgpack.unpackb(_document(fleet_roster=NAMED, verify="all").encode())
    with pytest.raises(WireError, match="document"):
        Document.decode(msgpack.packb([*fields[:-2], msgpack.packb(keyed), fields[-1]]))


def test_a_document_names_the_fleet_roster_in_force_and_no_peer_that_is_not_on_it() -> None:
    assert roster_for(ROSTERS, Treatment(secure=True), ("a", "b")) == NAMED
    assert roster_for(ROSTERS, Treatment(), ("a", "b")) == NAMED
    with pytest.raises(UsageError, match="not on the fleet roster of this peer: x"):
        roster_for(ROSTERS, Treatment(), ("a", "b", "x"))
    assert roster_for(HeldRosters(), Treatment(), ("a", "b")) is None
    with pytest.raises(UsageError, match="secure: this fleet has no keys"):
        roster_for(HeldRosters(), Treatment(secure=True), ("a", "b"))
    with pytest.raises(UsageError, match="verify: this fleet has no keys"):
        roster_for(HeldRosters(), Treatment(verify="all"), ("a", "b"))


def test_a_document_too_large_to_be_a_fact_is_refused() -> None:
    with pytest.raises(UsageError, match="at most 57344 are possible"):
        _document(mathematics=bytes(58_000)).encode()


def _fields(**changed: Any) -> bytes:
    plain = {**GOOD, "roster": ["a", "b", "c"], "store_ids": ["sa", "sb", "sc"], **changed}
    return bytes(msgpack.packb(list(plain.values())))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\xc1", id="not-msgpack"),
        pytest.param(bytes(msgpack.packb({"job": 1})), id="a-map"),
        pytest.param(bytes(msgpack.packb([1, 2, 3])), id="three-fields"),
        pytest.param(_fields(job="text"), id="job-is-text"),
        pytest.param(_fields(roster=["a", 2, "c"]), id="a-number-on-the-roster"),
        pytest.param(_fields(roster=7), id="roster-is-a-number"),
        pytest.param(_fields(store_ids=None), id="no-store-ids"),
        pytest.param(_fields(missing=b"wait"), id="missing-is-bytes"),
        pytest.param(_fields(patience_s="soon"), id="patience-is-text"),
        pytest.param(_fields(patience_s=[]), id="patience-is-a-list"),
        pytest.param(_fields(patience_s=0), id="no-patience"),
        pytest.param(_fields(patience_s=5), id="patience-is-a-whole-number"),
        pytest.param(_fields(patience_s=float("nan")), id="patience-is-nan"),
        pytest.param(_fields(patience_s=float("inf")), id="patience-is-endless"),
        pytest.param(_fields(deadline_s=float("inf")), id="deadline-is-endless"),
        pytest.param(_fields(deadline_s="0.0"), id="deadline-is-text"),
        pytest.param(_fields(aggregator="z"), id="aggregator-off-the-roster"),
        pytest.param(_fields(roster=["c", "b", "a"]), id="unsorted"),
        pytest.param(_fields(job=bytes(58_000)), id="too-large"),
        pytest.param(_fields() + b"\x00", id="something-behind-it"),
        pytest.param(b"\x91" * 30_000, id="deeply-nested"),
    ],
)
def test_a_hostile_document_is_a_wire_error(data: bytes) -> None:
    with pytest.raises(WireError, match="document"):
        Document.decode(data)


@pytest.mark.parametrize(
    ("name", "store_id", "expected"),
    [
        pytest.param("b", "sb", True, id="intact"),
        pytest.param("b", "sb2", False, id="another-store-than-at-submission"),
        pytest.param("b", "sa", False, id="somebody-elses-store"),
        pytest.param("z", "sb", False, id="not-on-the-roster"),
    ],
)
def test_whose_word_counts(name: str, store_id: str, expected: bool) -> None:
    assert _document().counts(name, store_id) is expected
