"""The performer signs a peer's own facts as they leave, and lets no forged fact through to the core."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.throwaway import throwaway_fleet

from p2pclust.peer.core.codec import decode, encode
from p2pclust.peer.core.effects import Effect, Send
from p2pclust.peer.core.messages import FactDelta, Relay
from p2pclust.peer.core.reports import ForgedFact, Report
from p2pclust.peer.core.spread.facts import Fact, facts_of
from p2pclust.peer.shell.performer import Performer
from p2pclust.peer.shell.signing import RosterSigner
from p2pclust.transport.links import Lane

NAMES = ("a", "b", "c")
PLAIN = FactDelta("a", 0, ("links", "fitness", "job/1"), (1, 2, 3), (b"x", b"50", b"document"))


@dataclass
class Device:
    """Links and agent of one peer."""

    sent: list[tuple[str, FactDelta | Relay]] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    holds: dict[tuple[str, str], int] = field(default_factory=dict)
    excused: tuple[int, ...] = ()  # serials of fleet rosters

    def send(self, peer: str, frames: list[bytes], lane: Lane) -> bool:
        message = decode(frames)
        assert isinstance(message, FactDelta | Relay)
        self.sent.append((peer, message))
        return True

    def before(self, effect: Effect) -> None:
        pass

    def report(self, effect: Report) -> None:
        self.reports.append(effect)

    def held(self, owner: str, key: str) -> int:
        return self.holds.get((owner, key), 0)

    def excuses(self, source: str, serial: int) -> bool:
        return serial in self.excused


class Fleet:
    """Performers with real keys; by default all peers sign their facts."""

    def __init__(self, *, signs_facts: bool = True) -> None:
        roster, bundles = throwaway_fleet(NAMES)
        roster = replace(roster, signs_facts=signs_facts)
        self.devices = {name: Device() for name in NAMES}
        self.signers = {name: RosterSigner(bundle, roster) for name, bundle in bundles.items()}
        self.performers = {name: self._performer(name) for name in NAMES}

    def _performer(self, name: str) -> Performer:
        device: Any = self.devices[name]
        return Performer(name, device, device, device, self.signers[name], lambda effect: None, device)

    def sent(self, name: str, message: FactDelta, *via: str) -> FactDelta | Relay:
        """What a peer puts on the wire for another."""
        self.performers[name].perform_all([Send("c", message, via=via)])
        return self.devices[name].sent[-1][1]

    def signed(self) -> FactDelta:
        made = self.sent("a", PLAIN)
        assert isinstance(made, FactDelta)
        return made

    def arrived(self, at: str, source: str, message: FactDelta | Relay) -> FactDelta:
        event = self.performers[at].arrived(source, encode(message))
        assert isinstance(event.message, FactDelta)
        return event.message

    def forgeries(self, at: str) -> list[ForgedFact]:
        return [report for report in self.devices[at].reports if isinstance(report, ForgedFact)]


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def test_facts_leave_with_their_owners_signatures_and_pass_whichever_peer_brings_them(fleet: Fleet) -> None:
    signed = fleet.signed()
    assert [len(signature) for signature in signed.signatures] == [64] * 3
    assert fleet.arrived("c", "a", signed) == signed
    assert fleet.arrived("c", "b", signed) == signed
    assert not fleet.forgeries("c")


def test_what_another_peer_owns_is_passed_on_as_it_came(fleet: Fleet) -> None:
    signed = fleet.signed()
    assert fleet.sent("b", signed) == signed
    assert fleet.sent("b", PLAIN) == PLAIN


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda fleet, fact: replace(fact, value=b"forged"), "the signature is not its owner's"),
        (lambda fleet, fact: replace(fact, version=9), "the signature is not its owner's"),
        (
            lambda fleet, fact: replace(fact, signature=fleet.signers["b"].sign_fact(fact)),
            "the signature is not its owner's",
        ),
        (lambda fleet, fact: replace(fact, signature=b""), "it is not signed"),
    ],
    ids=["value", "version", "signed-by-the-forger", "unsigned"],
)
def test_nothing_passes_from_the_first_forged_fact_on(fleet: Fleet, number: int, change: Any, reason: str) -> None:
    """A peer that took what follows would not ask for what is missing."""
    facts = list(facts_of(fleet.signed()))
    facts[number] = change(fleet, facts[number])
    delta = replace(
        PLAIN,
        versions=tuple(fact.version for fact in facts),
        values=tuple(fact.value for fact in facts),
        signatures=tuple(fact.signature for fact in facts),
    )
    assert facts_of(fleet.arrived("c", "b", delta)) == tuple(facts[:number])
    assert fleet.forgeries("c") == [ForgedFact("b", "a", PLAIN.keys[number], reason)]


def test_facts_without_signatures_do_not_pass_even_from_their_owner(fleet: Fleet) -> None:
    """Otherwise a peer that passes them on would be taken for the forger."""
    assert facts_of(fleet.arrived("c", "a", PLAIN)) == ()
    assert fleet.forgeries("c") == [ForgedFact("a", "a", "links", "it is not signed")]


def test_an_owner_is_reminded_of_what_it_signed_and_of_nothing_else(fleet: Fleet) -> None:
    signed = fleet.signed()
    assert fleet.arrived("a", "b", signed) == signed
    forged = replace(PLAIN, keys=("cancel/1",), versions=(9,), values=(b"b",))
    assert facts_of(fleet.arrived("a", "b", forged)) == ()


def test_relayed_facts_are_checked_as_well(fleet: Fleet) -> None:
    fleet.sent("b", PLAIN, "a")
    relay = fleet.devices["b"].sent[-1][1]
    assert isinstance(relay, Relay)
    assert facts_of(fleet.arrived("c", "a", relay)) == ()
    assert fleet.forgeries("c")[0].peer == "b"


def test_what_is_held_is_not_checked_again(fleet: Fleet) -> None:
    """The core does not take it."""
    fleet.devices["c"].holds = {("a", "links"): 1, ("a", "fitness"): 5, ("a", "job/1"): 3}
    assert fleet.arrived("c", "b", PLAIN) == PLAIN
    assert not fleet.forgeries("c")


def test_the_owner_of_a_fact_must_be_on_the_roster(fleet: Fleet) -> None:
    """The sender may have another roster: that is not called a lie."""
    assert facts_of(fleet.arrived("c", "b", replace(PLAIN, owner="d"))) == ()
    assert not fleet.forgeries("c")


def test_lists_of_different_lengths_hold_no_facts(fleet: Fleet) -> None:
    assert facts_of(replace(PLAIN, signatures=(bytes(64),))) == ()
    assert facts_of(replace(PLAIN, values=(b"x",))) == ()


def test_a_fleet_whose_roster_does_not_say_so_signs_nothing_and_sends_what_it_sent_before() -> None:
    fleet = Fleet(signs_facts=False)
    assert fleet.sent("a", PLAIN) == PLAIN
    assert b"signatures" not in encode(PLAIN)[0]
    assert fleet.arrived("c", "b", PLAIN) == PLAIN
    assert facts_of(PLAIN)[0] == Fact("a", "links", 1, b"x", b"")


@pytest.mark.parametrize(
    ("serial", "forgeries"),
    [pytest.param(1, 0, id="from-a-peer-with-the-older-roster"), pytest.param(2, 1, id="from-a-peer-with-this-roster")],
)
def test_a_fact_signed_with_the_key_before_is_refused_and_no_forgery_of_who_lacks_the_roster(
    fleet: Fleet, serial: int, forgeries: int
) -> None:
    before = replace(fleet.signed(), serial=serial)
    rotated, _ = throwaway_fleet(NAMES)
    fleet.signers["c"].set_roster(replace(rotated, signs_facts=True))
    fleet.devices["c"].excused = (1,)
    assert facts_of(fleet.arrived("c", "b", before)) == ()
    assert len(fleet.forgeries("c")) == forgeries


def test_a_fact_signed_with_a_newer_key_is_refused_and_no_forgery_while_the_roster_is_on_its_way(fleet: Fleet) -> None:
    theirs = Fleet()
    newer = replace(theirs.signed(), serial=3)
    fleet.devices["c"].excused = (3,)
    assert facts_of(fleet.arrived("c", "b", newer)) == ()
    assert not fleet.forgeries("c")
    assert facts_of(fleet.arrived("c", "b", replace(newer, serial=2))) == ()
    assert len(fleet.forgeries("c")) == 1
