"""The fleet roster in a fleet that runs: who is enrolled, who is revoked, and what a peer believes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from harness import Net, toy

from p2pclust.lab.simulation.world.peer import paper_roster, read_paper
from p2pclust.peer.core.effects import CheckRoster, Connect, Disconnect, Persist, Send, TakeRoster
from p2pclust.peer.core.events import Arrived, Expired, Hinted, RosterRead, Submit, Woken
from p2pclust.peer.core.job_messages import Adopted, Open, VoteReply
from p2pclust.peer.core.messages import (
    FactDelta,
    FactDigest,
    Gossip,
    Message,
    Ping,
    Relay,
    RosterCopy,
    RosterOffer,
    RosterRequest,
)
from p2pclust.peer.core.reports import Report

pytestmark = pytest.mark.usefixtures("any_key")

FIRST = ("p1", "p2", "p3")
ALL = ("p1", "p2", "p3", "p4", "p5")


def fleet(n: int = 3, *, serial: int = 1, links: str = "", **options: object) -> Net:
    """A fleet on a roster, in which everybody has met everybody."""
    net = Net(n, links=links, **options)  # type: ignore[arg-type]
    net.give(paper_roster(serial, net.names), *net.names)
    net.meet()
    return net


def serials(net: Net) -> dict[str, int]:
    return {name: net.core(name)._ctx.serial for name, peer in net.peers.items() if peer.core is not None}


def members(net: Net, name: str) -> set[str]:
    return set(net.core(name).membership.members)


# -- spreading --------------------------------------------------------------------------------------------------------


def test_a_roster_that_one_was_given_reaches_everybody() -> None:
    net = fleet(5)
    net.give(paper_roster(2, [*ALL, "p6"]), "p1")
    net.until(lambda: set(serials(net).values()) == {2})
    assert all("p6" in members(net, name) for name in net.names)
    told = net.verbs("roster")
    assert {name for name, _ in told} == set(net.names)
    assert told[0][1]["enrolled"] == ["p6"]


def test_a_roster_that_several_peers_offer_is_asked_for_once() -> None:
    net = fleet(5)
    net.give(paper_roster(2, [*ALL, "p6"]), "p1", "p2", "p3", "p4")
    net.until(lambda: set(serials(net).values()) == {2})
    net.advance(20.0)
    asked = [
        packet.target for packet in net.sent if packet.source == "p5" and isinstance(packet.message, RosterRequest)
    ]
    assert len(asked) == 1


def test_on_a_line_it_goes_from_neighbour_to_neighbour() -> None:
    net = fleet(4, links="12 23 34")
    net.give(paper_roster(5, net.names), "p4")
    net.until(lambda: set(serials(net).values()) == {5})


def test_who_was_away_hears_of_it_on_return() -> None:
    net = fleet()
    net.crash("p3")
    net.give(paper_roster(2, [*FIRST, "p9"]), "p1")
    net.advance(1.0)
    net.start("p3")
    net.until(lambda: serials(net) == {"p1": 2, "p2": 2, "p3": 2})


def test_two_halves_with_different_rosters_agree_on_the_higher_one() -> None:
    net = fleet(4)
    net.lost = lambda packet: (packet.source in ("p1", "p2")) != (packet.target in ("p1", "p2"))
    net.give(paper_roster(2, [*net.names, "x"]), "p1")
    net.give(paper_roster(3, [*net.names, "y"]), "p4")
    net.advance(5.0)
    assert serials(net) == {"p1": 2, "p2": 2, "p3": 3, "p4": 3}
    net.lost = lambda packet: False
    net.until(lambda: set(serials(net).values()) == {3})
    assert all("y" in members(net, name) and "x" not in members(net, name) for name in net.names)


def test_without_rosters_nothing_is_said_of_them() -> None:
    net = Net(3)
    net.meet()
    net.advance(30.0)
    assert not [p for p in net.sent if isinstance(p.message, RosterOffer | RosterRequest | RosterCopy)]


def test_while_all_have_the_same_roster_nothing_more_is_said_than_its_serial() -> None:
    net = fleet()
    net.advance(30.0)
    assert not [p for p in net.sent if isinstance(p.message, RosterOffer | RosterRequest | RosterCopy)]
    assert all(p.message.serial == 1 for p in net.sent if isinstance(p.message, FactDigest))


def test_it_is_on_disk_before_it_counts_and_there_after_a_restart() -> None:
    net = fleet()
    before = len(net.peers["p1"].effects)
    net.give(paper_roster(2, ["p1", "p2"]), "p1")
    effects = net.peers["p1"].effects[before:]
    taken = effects.index(TakeRoster(paper_roster(2, ["p1", "p2"])))
    *before_it, last, told = effects[:taken]
    assert all(isinstance(effect, Persist) for effect in (*before_it, last))
    assert last.sync, "the rows before it are on the disk with it"
    assert isinstance(told, Send), "to the revoked device"
    assert Disconnect("p3") in effects
    net.crash("p1")
    net.start("p1")
    assert serials(net)["p1"] == 2
    assert members(net, "p1") == {"p2"}


# -- what is not believed ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("serial", [3, 4])
def test_a_roster_that_is_no_newer_changes_nothing(serial: int) -> None:
    net = fleet(serial=4)
    net.give(paper_roster(serial, ["p1"]), "p1")
    assert serials(net)["p1"] == 4
    assert members(net, "p1") == {"p2", "p3"}


def test_a_forged_one_changes_nothing_and_is_not_asked_for_again() -> None:
    net = fleet()
    forged = paper_roster(9, ["p1"], signed=False)
    asked = net.arrive("p2", "p1", RosterOffer(9))
    assert [e.message for e in asked if isinstance(e, Send)] == [RosterRequest(1)]
    net.arrive("p2", "p1", RosterCopy((forged,)))
    assert serials(net)["p1"] == 1
    assert members(net, "p1") == {"p2", "p3"}
    assert [fields["peer"] for name, fields in net.verbs("roster-refused") if name == "p1"] == ["p2"]
    assert not [e for e in net.arrive("p2", "p1", RosterOffer(9)) if isinstance(e, Send)]
    assert [e.message for e in net.arrive("p3", "p1", RosterOffer(9)) if isinstance(e, Send)] == [RosterRequest(1)]


def test_of_two_copies_in_a_row_one_is_verified() -> None:
    net = fleet()
    net.arrive("p2", "p1", RosterOffer(3))
    core, copy = net.core("p1"), RosterCopy((paper_roster(3, ["p1", "p2"]),))
    effects = [effect for _ in range(2) for effect in core.step(net.now, Arrived("p2", copy))]
    assert len([effect for effect in effects if isinstance(effect, CheckRoster)]) == 1


def test_a_peer_that_is_revoked_while_a_hint_to_it_is_tried() -> None:
    """The hint's time was over, and its member gone: the peer ended with a KeyError."""
    net = Net(4)
    net.give(paper_roster(1, net.names), *net.names)
    net.start("p1", "p2", "p3")
    net.advance(3.0)
    net.step("p1", Hinted("p4", "10.9.9.9:7000"))
    net.give(paper_roster(2, net.names[:3]), "p1")
    net.advance(10.0)
    assert members(net, "p1") == {"p2", "p3"}


def test_who_promises_a_roster_and_sends_none_is_not_waited_for() -> None:
    net = fleet(manual=lambda message: isinstance(message, RosterRequest))
    net.arrive("p2", "p1", RosterOffer(7))
    net.arrive("p3", "p1", RosterOffer(6))
    net.advance(10 * net.timing.retry_s)
    assert {packet.target for packet in net.flight} >= {"p2", "p3"}


def test_an_old_roster_in_place_of_the_promised_one_is_distrusted() -> None:
    net = fleet(serial=2)
    net.arrive("p2", "p1", RosterOffer(9))
    net.arrive("p2", "p1", RosterCopy((paper_roster(3, ["p1", "p2", "p3", "x"]),)))
    assert serials(net)["p1"] == 3  # it is newer, and signed
    assert [fields["peer"] for name, fields in net.verbs("roster-refused") if name == "p1"] == ["p2"]


# -- enrolling --------------------------------------------------------------------------------------------------------


def test_a_device_that_was_enrolled_joins_a_fleet_that_runs() -> None:
    net = Net(4)
    net.give(paper_roster(1, FIRST), *FIRST)
    net.start(*FIRST)
    net.until(lambda: all(net.core(name).membership.all_here() for name in FIRST))
    newer = paper_roster(2, net.names)
    net.give(newer, "p4")
    net.start("p4")
    net.advance(3.0)
    assert all("p4" not in members(net, name) for name in FIRST)  # nobody lets it in yet
    net.give(newer, "p2")
    net.until(lambda: all(net.core(name).membership.all_here() and len(members(net, name)) == 3 for name in net.names))
    job = net.submit("p1")
    net.until(lambda: net.finished(job) == list(net.names))


def test_on_an_overlay_whom_it_links_to_links_back() -> None:
    """Nobody's map has a newcomer, and no configuration names it as a neighbour."""
    net = Net(4, links="12 23")
    net.give(paper_roster(1, FIRST), *FIRST)
    net.start(*FIRST)
    net.until(lambda: all(net.core(name).membership.all_here() for name in FIRST))
    assert net.overlay is not None
    newer = paper_roster(2, net.names)
    net.give(newer, "p4")
    net.overlay = net._configured = net.overlay | {"p3": ("p2", "p4"), "p4": ("p3",)}
    net._known = False  # it knows its own neighbours only
    net.start("p4")
    net.give(newer, "p1")
    net.until(lambda: all(net.core(name).membership.all_here() and len(members(net, name)) == 3 for name in net.names))
    assert net.core("p3").routing.own == ("p2", "p4")
    net.until(lambda: net.core("p1").routing.hop("p4") == "p2")
    job = net.submit("p1")
    net.until(lambda: net.finished(job) == list(net.names))


def test_a_job_that_runs_keeps_its_roster() -> None:
    net = fleet(3, manual=lambda message: isinstance(message, Adopted))
    job = net.submit("p1")
    net.give(paper_roster(2, [*FIRST, "p4"]), "p1")
    net.manual = lambda message: False
    net.deliver()
    net.until(lambda: net.finished(job) == list(FIRST))
    assert net.job("p1", job).document.roster == FIRST


def test_new_keys_open_a_new_link() -> None:
    net = fleet()
    keys = dict.fromkeys(FIRST, "") | {"p3": "other"}
    read = replace(read_paper("", paper_roster(2, FIRST)), peers=keys)
    before = len(net.peers["p1"].effects)
    net.step("p1", read)
    effects = net.peers["p1"].effects[before:]
    assert [e for e in effects if isinstance(e, Connect | Disconnect)] == [Disconnect("p3"), Connect("p3", "p3:1")]
    assert members(net, "p1") == {"p2", "p3"}


# -- revoking ---------------------------------------------------------------------------------------------------------


def revoke(net: Net, name: str, *at: str) -> None:
    """Take a name off the roster, at one or more peers."""
    net.give(paper_roster(2, [other for other in net.names if other != name]), *at)


@pytest.mark.parametrize(
    "message",
    [Ping(1, ()), Gossip(()), RosterRequest(0), FactDigest(False, (), (), ()), Relay("p3", "p2", b"", (b"x",))],
    ids=lambda message: message.kind,
)
def test_a_revoked_peer_is_not_heard_and_not_spoken_to(message: Message) -> None:
    net = fleet()
    revoke(net, "p3", "p1", "p2")
    assert net.arrive("p3", "p1", message) == []
    sent = len(net.sent)
    net.advance(30.0)
    assert not [p for p in net.sent[sent:] if p.source != "p3" and p.target == "p3"]
    assert net.core("p1").membership.status("p3") == "revoked"


def test_nor_is_what_others_carry_for_it() -> None:
    net = fleet()
    revoke(net, "p3", "p1", "p2")
    assert net.arrive("p2", "p1", Relay("p3", "p2", b"", (b"x",))) == []  # not carried on
    assert net.arrive("p3", "p1", Ping(1, ()), via="p2") == []  # not heard
    assert net.arrive("p2", "p1", Ping(1, ()), via="p3") == []  # what it carries itself neither


def test_its_vote_is_taken_back() -> None:
    net = fleet(5, manual=lambda message: isinstance(message, VoteReply))
    job = net.submit("p1")
    net.until(lambda: len(net.flight) >= 4)
    candidate = net.flight[0].target
    first, second, *_ = [p.source for p in net.flight if p.target == candidate]
    net.deliver(lambda packet: packet.source == first and packet.target == candidate)
    assert len(net.job(candidate, job).election._votes) == 2
    revoke(net, first, candidate)
    assert len(net.job(candidate, job).election._votes) == 1
    net.deliver(lambda packet: packet.source == second and packet.target == candidate)
    assert net.aggregator(job) == ""  # two of five: what was told is no majority any more


def test_its_acknowledgement_is_taken_back_but_it_stays_in_the_denominator() -> None:
    net = fleet(5, manual=lambda message: isinstance(message, Adopted))
    job = net.submit("p1")
    net.until(lambda: len(net.flight) >= 4)
    leader = net.aggregator(job)
    first, second, third, fourth = [p.source for p in net.flight]
    net.deliver(lambda packet: packet.source in (first, second))
    opened = net.job(leader, job).term._round  # type: ignore[union-attr]
    assert opened is not None
    assert opened.adopted_by_majority
    revoke(net, first, leader)
    assert not opened.adopted_by_majority
    assert ALL.index(first) not in opened.adopted
    assert net.states(job)[leader] == "s0"  # two of five have it
    net.manual = lambda message: False
    net.deliver(lambda packet: packet.source in (third, fourth))
    net.until(lambda: len(net.finished(job)) == 4)
    combined = [fields["contributors"] for _, fields in net.verbs("combined")]
    assert combined[0] == sorted(set(ALL) - {first})


def test_its_part_of_a_sum_that_came_up_a_tree_is_taken_back() -> None:
    """The sum cannot be taken apart: all others in it are asked themselves, and those between answer themselves too."""
    net = fleet(5, links="12 23 34 45")
    net.advance(2)
    net.hold_work = lambda name, effect: name == "p1" and effect.task.kind == "contribute"
    job = net.submit("p1", toy(1), aggregator="p1", collect="tree")
    net.until(lambda: net.job("p1", job).term._round.peers[4].answered)  # type: ignore[union-attr]
    revoke(net, "p5", "p1")
    net.hold_work = lambda name, effect: False
    net.do_work()
    net.until(lambda: set(net.finished(job)) >= {"p1", "p2", "p3", "p4"})
    assert [fields["contributors"] for _, fields in net.verbs("combined")] == [["p1", "p2", "p3", "p4"]]


def test_a_job_that_waits_for_all_ends_when_it_lacks_the_answer_of_a_revoked_one() -> None:
    net = fleet(4)
    net.lost = lambda packet: packet.source == "p4" and isinstance(packet.message, Adopted)
    job = net.submit("p1", missing="all", patience_s=60.0, aggregator="p1")
    net.advance(2.0)
    revoke(net, "p4", "p1", "p2", "p3")
    net.until(lambda: set(net.finished(job)) >= {"p1", "p2", "p3"})
    (told,) = {fields["by"] for _, fields in net.verbs("cancelling")}
    assert told == "the revocation of p4, which missing = 'all' would wait for"
    assert len({net.states(job)[name] for name in ("p1", "p2", "p3")}) == 1


def test_an_election_that_it_won_ends() -> None:
    net = fleet(5, manual=lambda message: isinstance(message, Adopted))
    job = net.submit("p1", patience_s=2.0)
    net.until(lambda: len(net.flight) >= 4)
    leader = net.aggregator(job)
    others = [name for name in net.names if name != leader]
    net.drop()
    revoke(net, leader, *others)
    net.manual = lambda message: False
    assert all(net.job(name, job).election.aggregator != leader for name in others)
    net.until(lambda: sorted(net.finished(job)) == others)
    elected = [name for name, fields in net.verbs("elected") if fields["job"] == job]
    assert elected[0] == leader
    assert leader not in elected[1:]
    left_out = {tuple(fields["contributors"]) for _, fields in net.verbs("combined")}
    assert left_out == {tuple(others)}


def test_what_it_handed_in_is_told_by_others() -> None:
    net = fleet(4)
    net.crash("p4")
    job = net.submit("p3", roster=net.names)
    net.until(lambda: job in net.core("p1").jobs.jobs)
    revoke(net, "p3", "p1", "p2")
    net.crash("p3")
    net.give(paper_roster(2, ["p1", "p2", "p4"]), "p4")
    net.start("p4")
    net.until(lambda: "p4" in net.finished(job))


def test_a_job_is_not_handed_in_with_it() -> None:
    net = fleet()
    revoke(net, "p3", "p1", "p2")
    net.step("p1", Submit(b"job", roster=FIRST))
    (refused,) = net.verbs("refused")
    assert "p3" in refused[1]["reason"]


def test_who_is_enrolled_again_is_welcome() -> None:
    net = fleet()
    revoke(net, "p3", "p1", "p2")
    net.advance(2.0)
    net.give(paper_roster(3, FIRST), "p1", "p2", "p3")
    net.until(lambda: all(net.core(name).membership.all_here() and len(members(net, name)) == 2 for name in FIRST))
    assert [net.core(name)._ctx.barred for name in FIRST] == [{}, {}, {}]


def test_an_expired_key_is_as_good_as_revoked() -> None:
    net = fleet()
    net.step("p1", Expired(("p3", "nobody")))
    assert members(net, "p1") == {"p2"}
    assert [fields["member"] for _, fields in net.verbs("expired")] == ["p3"]
    assert net.arrive("p3", "p1", Ping(1, ())) == []


def test_a_roster_without_this_peer_is_taken_and_the_shell_ends_it() -> None:
    net = fleet()
    before = len(net.peers["p3"].effects)
    net.step("p3", read_paper("", paper_roster(2, ["p1", "p2"])))
    assert TakeRoster(paper_roster(2, ["p1", "p2"])) in net.peers["p3"].effects[before:]


def test_open_messages_of_a_revoked_aggregator_are_refused() -> None:
    net = fleet()
    job = net.submit("p1")
    net.until(lambda: len(net.finished(job)) == 3)
    revoke(net, "p3", "p1", "p2")
    state = b"s9"
    message = Open(job, 99, 9, b"\0" * 32, len(state), False, -1, (state,))
    assert net.arrive("p3", "p1", message) == []


# -- signed facts -------------------------------------------------------------------------------------------------------


def published(net: Net, name: str, key: str) -> None:
    net.core(name).facts.publish(key, b"x")
    net.step(name, Woken())


@pytest.mark.parametrize("signs_facts", [True, False])
def test_signed_facts_of_a_peer_with_new_keys_are_forgotten(signs_facts: bool) -> None:
    """Its old key signed them, so a peer with the new roster would refuse them."""
    net = Net(3, signs_facts=signs_facts)
    net.give(paper_roster(1, FIRST), *FIRST)
    net.meet()
    published(net, "p3", "a")
    net.lost = lambda packet: isinstance(packet.message, FactDelta)
    paper = read_paper("", paper_roster(2, FIRST))
    net.step("p1", replace(paper, peers={**paper.peers, "p3": "new"}))
    assert (net.core("p1").facts.get("p3", "a") is None) is signs_facts


def excused(net: Net, source: str, serial: int) -> bool:
    return net.core("p1").enrolment.excuses(source, serial)


def test_a_peer_with_another_roster_is_excused_for_a_minute_for_facts_that_are_refused() -> None:
    """Other keys may have signed them."""
    net = fleet(serial=1)
    net.give(paper_roster(2, FIRST), "p1")
    net.advance(30.0)
    assert excused(net, "p2", 1)
    assert not excused(net, "p2", 2), "it has the same roster"
    assert excused(net, "p2", 3)
    net.advance(61.0)
    assert not excused(net, "p2", 1)
    assert not excused(net, "p2", 3), "a roster that it never sends"
    assert excused(net, "p3", 3)
    net.give(paper_roster(4, FIRST), "p1")
    assert excused(net, "p2", 1), "this one is new here"
    assert excused(net, "p2", 5)


@pytest.mark.slow
def test_a_peer_that_comes_back_with_an_older_roster_is_excused_for_a_minute() -> None:
    net = fleet(serial=1)
    net.crash("p3")
    net.until(lambda: net.core("p1").membership.gone("p3"))
    net.give(paper_roster(2, FIRST), "p1", "p2")
    net.advance(600.0)
    assert not excused(net, "p3", 1)
    net.start("p3")
    net.until(lambda: net.core("p1").membership.present("p3"))
    assert excused(net, "p3", 1)
    net.advance(61.0)
    assert not excused(net, "p3", 1)


def test_a_fact_of_a_peer_with_a_newer_roster_makes_this_one_ask_for_it() -> None:
    net = fleet(serial=1)
    net.advance(1.0)
    sent = net.arrive("p2", "p1", FactDelta("p3", 0, (), (), (), (), 2))
    assert [effect.message for effect in sent if isinstance(effect, Send)] == [RosterRequest(1)]


def test_a_device_that_is_revoked_or_gets_new_keys_hears_why_before_its_link_ends() -> None:
    net = fleet(4)
    keys = {**net.core("p1").enrolment._peers, "p3": "another key"}
    del keys["p4"]
    effects = net.core("p1").step(net.now, RosterRead("", b"signed", True, 2, keys))
    told = [effect.to for effect in effects if isinstance(effect, Send) and isinstance(effect.message, RosterCopy)]
    assert told == ["p4", "p3"]
    kinds = [effect.message.kind if isinstance(effect, Send) else type(effect).__name__ for effect in effects]
    assert [kind for kind in kinds[:9] if kind != "Persist"][:3] == ["roster-copy", "roster-copy", "TakeRoster"]
    assert "Disconnect" in kinds[kinds.index("TakeRoster") :]


@pytest.mark.slow
def test_a_copy_that_was_not_asked_for_is_checked_once_a_minute_from_each_peer() -> None:
    """It may be the one that revokes this device; a peer that sends many costs no more than that."""
    net = fleet(4)
    net.advance(100.0)
    copy = RosterCopy((paper_roster(2, ("p2", "p3", "p4")),))
    checks = [net.core("p1").step(net.now, Arrived(source, copy)) for source in ("p2", "p2", "p3")]
    assert [[e for e in effects if isinstance(e, CheckRoster)] != [] for effects in checks] == [True, False, True]
    forged = net.core("p1").step(net.now, RosterRead("p3", b"", False, reason="the fleet did not sign it"))
    assert [report.verb for report in forged if isinstance(report, Report)] == ["roster-refused"]


def test_all_revoked_peers_are_barred_before_the_end_of_the_first_makes_this_peer_speak(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = fleet(5)
    core = net.core("p1")
    barred: list[list[str]] = []
    revoked = core.jobs.revoked

    def look(name: str) -> None:
        barred.append(sorted(core.barred))
        revoked(name)

    monkeypatch.setattr(core.jobs, "revoked", look)
    core.enrolment.read(read_paper("", paper_roster(2, FIRST)))
    assert barred == [["p4", "p5"], ["p4", "p5"]]
