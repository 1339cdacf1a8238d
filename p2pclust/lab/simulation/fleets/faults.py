"""The kinds of faults of a random fleet: each is a generator that lets the fault begin, yields, and ends it.

A fault never leaves fewer than a majority of peers that are on the newest roster and have the store that they began with:
below that nothing is promised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

from p2pclust.lab.simulation.fleets.marks import votes
from p2pclust.lab.simulation.fleets.plan import FOR_EVER, RandomFault
from p2pclust.lab.simulation.world.network import Conditions
from p2pclust.lab.simulation.world.world import World
from p2pclust.transport.links import Lane

if TYPE_CHECKING:
    from p2pclust.lab.simulation.fleets.fleet import RandomFleet

Course = Callable[["RandomFleet", RandomFault, str], Iterator[None]]
#: States and contributions are larger.
_SMALL_BYTES: Final = 300
_FLAPS_EVERY_S: Final = 1.7
#: How long each message takes where all are late: longer than an election, with ``fast``.
_LATE_S: Final = (0.5, 3.0)
_SHARE: Final = 0.1  # of a processor, that each peer of a starved fleet has
#: An older image of a store waits so long, so many times, until all others have heard of a later life.
_STALE_AGAIN_S: Final = 0.5
_STALE_TRIES: Final = 10
#: A vote is looked for so often, so many times; it comes within so many seconds.
_VOTE_AGAIN_S: Final = 0.002
_VOTE_TRIES: Final = 2_000
_VOTE_WITHIN_S: Final = 0.01


@dataclass(frozen=True)
class FaultKind:
    """The course of a kind of fault, given its first peer. It is not continued where a fault lasts."""

    course: Course
    may_last: bool = False
    only_named: bool = False  # whether only swarms that name it draw it
    of_all: bool = False  # whether it is one of the whole fleet, of which the peer is only the one that is not healed


def break_(fleet: RandomFleet, fault: RandomFault) -> None:
    if fault.aimed:
        fault = replace(fault, peers=fleet.aim(fault.peers))
    some = ", ".join(fleet.names[peer] for peer in fault.peers[:4])
    fleet.invariants.tell(fleet.world.now, f"fault: {fault.kind} of {some}")
    fleet.marks.counts[f"fault: {fault.kind}"] += 1
    course = KINDS[fault.kind].course(fleet, fault, fleet.names[fault.peers[0]])
    next(course)
    if fault.for_s < FOR_EVER:
        fleet.world.at(fleet.world.now + fault.for_s, lambda: next(course, None))


def _away(fleet: RandomFleet, fault: RandomFault, name: str) -> Iterator[None]:
    """Let a peer leave or crash, without its store where that is wiped; or let all crash."""
    names = fleet.names if fault.kind == "blackout" else [name]
    for each in names:
        (fleet.world.leave if fault.kind == "leave" else fleet.world.crash)(each)
    if fault.kind == "wiped" and fleet.may_lose(name):
        fleet.marks.counts["wiped store"] += 1
        fleet.world.wipe(name)
        fleet.lose(name)
    if fault.for_s == FOR_EVER:
        fleet.down[name] = None
    yield
    for each in names:
        fleet.start(each)


def _impaired(fleet: RandomFleet, fault: RandomFault, name: str) -> Iterator[None]:
    """Impair a device or its link in one respect."""
    slowness = 1e6 if fault.for_s == FOR_EVER else 10.0 ** (1 + 2 * fault.amount)
    kinds: dict[str, tuple[Callable[[str, Any], None], Any, Any]] = {
        "slow-worker": (fleet.world.workers.slow, slowness, 1.0),
        "wrong-clock": (fleet.world.set_clock, 0.8 + 0.4 * fault.amount, 1.0),
        "lossy": (fleet.network.lose, 0.3 + 0.69 * fault.amount, 0.0),
        "large-lost": (fleet.network.lose_large, _SMALL_BYTES, inf),
        "bulk-lost": (fleet.network.lose_lane, Lane.BULK, None),
    }
    change, impaired, usual = kinds[fault.kind]
    change(name, impaired)
    yield
    change(name, usual)


def _at_once(fleet: RandomFleet, fault: RandomFault, name: str) -> Iterator[None]:
    """Do something that is not undone, or ends by itself."""
    match fault.kind:
        case "pause":
            fleet.world.freeze(name, min(fault.for_s, 1e6))
        case "clock-leap":
            fleet.world.set_clock(name, leap_s=100.0 * fault.amount)
        case "messages-late":
            fleet.network.conditions = Conditions(delay_s=_LATE_S)
        case "link" if not fleet.healed:  # it vanishes if it is there, or else appears
            other = fleet.names[fault.peers[1]]
            fleet.relink(name, other, up=not fleet.world.overlay.linked(name, other))
        case "revoked" if fleet.may_lose(name) and not fleet.plan.links:  # others might be connected by this peer alone
            fleet.lose(name)
            fleet.revoke(name)
        case "renewed" if fleet.may_lose(name):  # it contributes to none of the jobs that know the keys before
            fleet.lose(name)
            fleet.renew(name)
        case "enrolled":
            fleet.enrol(name)
        case "ghosts":
            fleet.ghosts.begin(fleet, name, fault.for_s)
    yield


def _stale(fleet: RandomFleet, fault: RandomFault, name: str) -> Iterator[None]:
    """Put an image of the store back that is some seconds and two lives old, once all others have heard of a later life.

    It may vote twice if the peers that it asks have not heard of that life: see docs/operations.md, Backup.
    """
    image = fleet.world.peers[name].disk.image()
    next_life = int(image.read_synced("self", "incarnation") or b"0") + 1

    def restore(tries: int = _STALE_TRIES) -> None:
        if fleet.healed or not fleet.may_lose(name):
            return
        if not fleet.have_heard(name, beyond=next_life):
            if tries:
                fleet.world.at(fleet.world.now + _STALE_AGAIN_S, partial(restore, tries - 1))
        else:
            fleet.world.crash(name)
            fleet.world.restore(name, image)
            fleet.lose(name)
            fleet.start(name)

    age_s = min(fault.for_s, 6.0)
    for part in (0.0, 0.5):
        fleet.world.at(fleet.world.now + part * age_s, partial(fleet.world.crash, name))
        fleet.world.at(fleet.world.now + (part + 0.25) * age_s, partial(fleet.start, name))
    fleet.world.at(fleet.world.now + age_s, restore)
    yield


def _look_in(fleet: RandomFleet, fault: RandomFault, name: str) -> Iterator[None]:
    """Leave politely, come back over a link that loses, long enough to hear of a job and too short to take part; leave."""
    visit_s, loss = 0.1 + 0.5 * fault.amount, (0.0, 0.5, 0.95)[int(3 * fault.amount)]

    def go() -> None:
        if not fleet.healed:
            fleet.world.leave(name)

    def visit() -> None:
        if not fleet.healed:
            fleet.network.lose(name, loss)
            fleet.start(name)
            fleet.world.at(fleet.world.now + visit_s, go)

    go()
    fleet.world.at(fleet.world.now + 0.5 * fault.for_s, visit)
    yield
    fleet.start(name)
    fleet.network.lose(name, 0.0)


def _hang(fleet: RandomFleet, fault: RandomFault, name: str) -> Iterator[None]:
    """Hang until a supervisor restarts the process, with which the tasks are lost."""
    fleet.world.workers.hung[name] = None
    yield
    fleet.world.workers.hung.pop(name, None)
    fleet.world.crash(name)
    fleet.start(name)


def _rot(fleet: RandomFleet, fault: RandomFault, name: str) -> Iterator[None]:
    fleet.world.rotten[name] = None
    yield
    fleet.world.rotten.pop(name, None)


def _cut(fleet: RandomFleet, fault: RandomFault, name: str) -> Iterator[None]:
    """Cut a peer off from those that the fault names besides, or from all; or part all that it names from the others."""
    named = [fleet.names[peer] for peer in fault.peers]
    side = named if fault.kind == "partition" else [name]
    others = [other for other in fleet.names if other not in side] if side == named else named[1:]
    pairs = [(one, other) for one in side for other in others]
    ways = [*(pairs if fault.kind != "cut-in" else ()), *((b, a) for a, b in pairs if fault.kind != "cut-out")]
    for way in ways:
        fleet.network.cut(*way)
    yield
    for way in ways:
        fleet.network.heal(*way)


def _flap(fleet: RandomFleet, fault: RandomFault, name: str) -> Iterator[None]:
    """Cut a peer off and heal it, again and again, until the fault is over."""
    until = fleet.world.now + fault.for_s
    ways = [way for other in fleet.names if other != name for way in ((name, other), (other, name))]

    def turn(up: bool) -> None:
        if up and (fleet.world.now >= until or (fleet.healed and fault.for_s < FOR_EVER)):
            return
        for way in ways:
            (fleet.network.cut if up else fleet.network.heal)(*way)
        fleet.world.at(fleet.world.now + _FLAPS_EVERY_S * (0.6 if up else 0.4), partial(turn, not up))

    turn(True)
    yield


def _starve(fleet: RandomFleet, fault: RandomFault, name: str) -> Iterator[None]:
    """Leave a tenth of a processor to each peer, until the end: most of the time its process is stopped."""
    period_s = 0.5 + 1.5 * fault.amount
    for each in fleet.names:
        if each not in fleet.world.workers.cpu_share:
            fleet.world.workers.cpu_share[each] = _SHARE
            starve(fleet.world, each, _SHARE * period_s, (1 - _SHARE) * period_s)
    yield


def starve(world: World, name: str, on_s: float, off_s: float) -> None:
    """From now on the process of a peer, whichever life of it, runs for `on_s`, then not for `off_s`, again and again."""
    world.freeze(name, off_s)
    world.at(world.now + off_s + on_s, partial(starve, world, name, on_s, off_s))


def _walk(fleet: RandomFleet, fault: RandomFault, name: str) -> Iterator[None]:
    """Go out of range of all peers, and come into the range of another."""
    for other in () if fleet.healed else fleet.world.overlay.neighbours(name):
        fleet.relink(name, other, up=False)
    yield
    if not fleet.healed:
        fleet.relink(name, fleet.names[fault.peers[1]], up=True)


def _revoke_voter(fleet: RandomFleet, fault: RandomFault, name: str) -> Iterator[None]:
    """Revoke a peer whose vote a candidate has, or is about to get: the candidate hears of it first."""

    def look(tries: int = _VOTE_TRIES) -> None:
        if fleet.healed or fleet.plan.links:
            return
        given = next(((to, by) for to, by in votes(fleet.world.peers) if fleet.may_lose(by)), None)
        if given is not None:
            fleet.world.at(fleet.world.now + fault.amount * _VOTE_WITHIN_S, partial(revoke, *given))
        elif tries:
            fleet.world.at(fleet.world.now + _VOTE_AGAIN_S, partial(look, tries - 1))

    def revoke(candidate: str, voter: str) -> None:
        if fleet.may_lose(voter) and fleet.world.peers[candidate].core is not None:
            fleet.lose(voter)
            fleet.revoke(voter, candidate)

    look()
    yield


def _forge(fleet: RandomFleet, fault: RandomFault, name: str) -> Iterator[None]:
    fleet.forger.names[name] = None
    fleet.published.forgers[name] = None
    yield
    fleet.forger.names.pop(name, None)


#: By name. A fault that may last is one that a majority survives without its end.
KINDS: Final[dict[str, FaultKind]] = {
    "crash": FaultKind(_away, may_last=True),
    "wiped": FaultKind(_away),
    "stale-store": FaultKind(_stale),
    "blackout": FaultKind(_away),
    "leave": FaultKind(_away, may_last=True),
    "pause": FaultKind(_at_once, may_last=True),
    "hung-worker": FaultKind(_hang, may_last=True),
    "slow-worker": FaultKind(_impaired, may_last=True),
    "wrong-clock": FaultKind(_impaired),
    "clock-leap": FaultKind(_at_once),
    "corrupt-chunks": FaultKind(_rot, may_last=True),
    "cut": FaultKind(_cut, may_last=True),
    "cut-out": FaultKind(_cut, may_last=True),
    "cut-in": FaultKind(_cut, may_last=True),
    "partition": FaultKind(_cut),
    "flapping": FaultKind(_flap, may_last=True),
    "lossy": FaultKind(_impaired, may_last=True),
    "large-lost": FaultKind(_impaired, may_last=True),
    "bulk-lost": FaultKind(_impaired, may_last=True),
    "revoked": FaultKind(_at_once),
    "voter-revoked": FaultKind(_revoke_voter, only_named=True),
    "renewed": FaultKind(_at_once, only_named=True),
    "ghosts": FaultKind(_at_once, only_named=True),
    "enrolled": FaultKind(_at_once),  # no fault, but as disturbing; until then the peer is not on the roster
    "forged-facts": FaultKind(_forge, only_named=True),
    "looks-in": FaultKind(_look_in, only_named=True),
    "link": FaultKind(_at_once, only_named=True),  # this and the next one are drawn where links change
    "walk": FaultKind(_walk, only_named=True),
    "messages-late": FaultKind(_at_once, only_named=True, of_all=True),
    "starved": FaultKind(_starve, only_named=True, of_all=True),
}
