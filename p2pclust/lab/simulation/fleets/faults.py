"""The kinds of faults of a random fleet: what begins, and how it ends.

A fault never leaves fewer than a majority of peers that are on the newest roster and have the store that they began with:
below that nothing is promised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from p2pclust.lab.simulation.fleets.plan import FOR_EVER, RandomFault
from p2pclust.lab.simulation.swarms.marks import votes
from p2pclust.transport.links import Lane

if TYPE_CHECKING:
    from p2pclust.lab.simulation.fleets.fleet import RandomFleet

Change = Callable[["RandomFleet", RandomFault], None]
#: States and contributions are larger.
_SMALL_BYTES: Final = 300
_FLAPS_EVERY_S: Final = 1.7
#: An older image of a store waits so long, so many times, until all others have heard of a later life.
_STALE_AGAIN_S: Final = 0.5
_STALE_TRIES: Final = 10
#: A vote is looked for so often, so many times; it comes within so many seconds.
_VOTE_AGAIN_S: Final = 0.002
_VOTE_TRIES: Final = 2_000
_VOTE_WITHIN_S: Final = 0.01


@dataclass(frozen=True)
class FaultKind:
    """What a kind of fault does. `end` is not called for a fault that lasts."""

    begin: Change
    end: Change
    may_last: bool = False
    only_named: bool = False  # whether only swarms that name it draw it


def break_(fleet: RandomFleet, fault: RandomFault) -> None:
    """Let a fault begin, and plan its end."""
    if fault.aimed:
        fault = replace(fault, peers=fleet.aim(fault.peers))
    kind = KINDS[fault.kind]
    fleet.tell(f"fault: {fault.kind} of {', '.join(fleet.names[peer] for peer in fault.peers[:4])}")
    fleet.marks.counts[f"fault: {fault.kind}"] += 1
    kind.begin(fleet, fault)
    if fault.for_s < FOR_EVER:
        fleet.world.at(fleet.world.now + fault.for_s, partial(kind.end, fleet, fault))


def _name(fleet: RandomFleet, fault: RandomFault) -> str:
    return fleet.names[fault.peers[0]]


def _others(fleet: RandomFleet, fault: RandomFault) -> list[str]:
    """Return the other ends of a cut: the peers that the fault names besides, or all."""
    some = [fleet.names[peer] for peer in fault.peers[1:]]
    return some or [name for name in fleet.names if name != _name(fleet, fault)]


# -- processes and devices -----------------------------------------------------------------------------------------------


def _crash(fleet: RandomFleet, fault: RandomFault) -> None:
    fleet.world.crash(_name(fleet, fault))
    if fault.for_s == FOR_EVER:
        fleet.stays_down(_name(fleet, fault))


def _wiped(fleet: RandomFleet, fault: RandomFault) -> None:
    name = _name(fleet, fault)
    fleet.world.crash(name)
    if fleet.may_lose(name):
        fleet.marks.counts["wiped store"] += 1
        fleet.world.wipe(name)
        fleet.lose(name)


def _stale(fleet: RandomFleet, fault: RandomFault) -> None:
    """Put an image of the store back that is some seconds and two lives old, once all others have heard of a later life.

    It may vote twice if the peers that it asks have not heard of that life: see docs/operations.md, Backup.
    """
    name = _name(fleet, fault)
    peer = fleet.world.peers[name]
    image = peer.disk.image()

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


def _start(fleet: RandomFleet, fault: RandomFault) -> None:
    fleet.start(_name(fleet, fault))


def _blackout(fleet: RandomFleet, fault: RandomFault) -> None:
    for name in fleet.names:
        fleet.world.crash(name)


def _all_start(fleet: RandomFleet, fault: RandomFault) -> None:
    for name in fleet.names:
        fleet.start(name)


def _leave(fleet: RandomFleet, fault: RandomFault) -> None:
    fleet.world.leave(_name(fleet, fault))
    if fault.for_s == FOR_EVER:
        fleet.stays_down(_name(fleet, fault))


def _pause(fleet: RandomFleet, fault: RandomFault) -> None:
    fleet.world.freeze(_name(fleet, fault), min(fault.for_s, 1e6))


def _hang(fleet: RandomFleet, fault: RandomFault) -> None:
    fleet.world.workers.hung[_name(fleet, fault)] = None


def _unhang(fleet: RandomFleet, fault: RandomFault) -> None:
    """A supervisor restarts what hangs: the tasks are lost with the process."""
    name = _name(fleet, fault)
    fleet.world.workers.hung.pop(name, None)
    fleet.world.crash(name)
    fleet.start(name)


def _slow(fleet: RandomFleet, fault: RandomFault) -> None:
    fleet.world.workers.slow(_name(fleet, fault), 1e6 if fault.for_s == FOR_EVER else 10.0 ** (1 + 2 * fault.amount))


def _fast(fleet: RandomFleet, fault: RandomFault) -> None:
    fleet.world.workers.slow(_name(fleet, fault), 1.0)


def _wrong_clock(fleet: RandomFleet, fault: RandomFault) -> None:
    fleet.world.run_clock(_name(fleet, fault), 0.8 + 0.4 * fault.amount)


def _right_clock(fleet: RandomFleet, fault: RandomFault) -> None:
    fleet.world.run_clock(_name(fleet, fault), 1.0)


def _leap(fleet: RandomFleet, fault: RandomFault) -> None:
    fleet.world.leap_clock(_name(fleet, fault), 100.0 * fault.amount)


def _rot(fleet: RandomFleet, fault: RandomFault) -> None:
    fleet.world.rotten[_name(fleet, fault)] = None


def _unrot(fleet: RandomFleet, fault: RandomFault) -> None:
    fleet.world.rotten.pop(_name(fleet, fault), None)


def _nothing(fleet: RandomFleet, fault: RandomFault) -> None:
    """End by itself."""


# -- the network -----------------------------------------------------------------------------------------------------------


def _ways(fleet: RandomFleet, fault: RandomFault) -> list[tuple[str, str]]:
    name, others = _name(fleet, fault), _others(fleet, fault)
    out, into = [(name, other) for other in others], [(other, name) for other in others]
    return {"cut": out + into, "cut-out": out, "cut-in": into}[fault.kind]


def _cut(fleet: RandomFleet, fault: RandomFault) -> None:
    for way in _ways(fleet, fault):
        fleet.network.cut(*way)


def _heal(fleet: RandomFleet, fault: RandomFault) -> None:
    for way in _ways(fleet, fault):
        fleet.network.heal(*way)


def _sides(fleet: RandomFleet, fault: RandomFault) -> list[tuple[str, str]]:
    one = [fleet.names[peer] for peer in fault.peers]
    other = [name for name in fleet.names if name not in one]
    return [way for a in one for b in other for way in ((a, b), (b, a))]


def _part(fleet: RandomFleet, fault: RandomFault) -> None:
    for way in _sides(fleet, fault):
        fleet.network.cut(*way)


def _join(fleet: RandomFleet, fault: RandomFault) -> None:
    for way in _sides(fleet, fault):
        fleet.network.heal(*way)


def _flap(fleet: RandomFleet, fault: RandomFault) -> None:
    """Cut a peer off and heal it, again and again, until the fault is over."""
    until = fleet.world.now + fault.for_s
    name = _name(fleet, fault)
    ways = [way for other in fleet.names if other != name for way in ((name, other), (other, name))]

    def turn(up: bool) -> None:
        if up and (fleet.world.now >= until or (fleet.healed and fault.for_s < FOR_EVER)):
            return
        for way in ways:
            (fleet.network.cut if up else fleet.network.heal)(*way)
        fleet.world.at(fleet.world.now + _FLAPS_EVERY_S * (0.6 if up else 0.4), partial(turn, not up))

    turn(True)


def _lossy(fleet: RandomFleet, fault: RandomFault) -> None:
    fleet.network.lose(_name(fleet, fault), 0.3 + 0.69 * fault.amount)


def _lossless(fleet: RandomFleet, fault: RandomFault) -> None:
    fleet.network.lose(_name(fleet, fault), 0.0)


def _large_lost(fleet: RandomFleet, fault: RandomFault) -> None:
    fleet.network.lose_large(_name(fleet, fault), _SMALL_BYTES)


def _large_pass(fleet: RandomFleet, fault: RandomFault) -> None:
    fleet.network.pass_large(_name(fleet, fault))


def _dead_lane(fleet: RandomFleet, fault: RandomFault) -> None:
    fleet.network.lose_lane(_name(fleet, fault), Lane.BULK)


def _live_lane(fleet: RandomFleet, fault: RandomFault) -> None:
    fleet.network.lose_lane(_name(fleet, fault), None)


# -- the fleet roster ----------------------------------------------------------------------------------------------------


def _revoke(fleet: RandomFleet, fault: RandomFault) -> None:
    name = _name(fleet, fault)
    if fleet.may_lose(name) and not fleet.plan.links:  # others might be connected by this peer alone
        fleet.lose(name)
        fleet.revoke(name)


def _revoke_voter(fleet: RandomFleet, fault: RandomFault) -> None:
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


def _enrol(fleet: RandomFleet, fault: RandomFault) -> None:
    fleet.enrol(_name(fleet, fault))


def _renew(fleet: RandomFleet, fault: RandomFault) -> None:
    """A person gives a peer new keys: it contributes to none of the jobs that know the keys before."""
    name = _name(fleet, fault)
    if fleet.may_lose(name):
        fleet.lose(name)
        fleet.renew(name)


def _begin_ghosts(fleet: RandomFleet, fault: RandomFault) -> None:
    fleet.ghosts.begin(fleet, _name(fleet, fault), fault.for_s)


def _forge(fleet: RandomFleet, fault: RandomFault) -> None:
    fleet.forger.names[_name(fleet, fault)] = None
    fleet.published.forges(_name(fleet, fault))


def _forge_no_more(fleet: RandomFleet, fault: RandomFault) -> None:
    fleet.forger.names.pop(_name(fleet, fault), None)


#: By name. A fault that may last is one that a majority survives without its end.
KINDS: Final[dict[str, FaultKind]] = {
    "crash": FaultKind(_crash, _start, may_last=True),
    "wiped": FaultKind(_wiped, _start),
    "stale-store": FaultKind(_stale, _nothing),
    "blackout": FaultKind(_blackout, _all_start),
    "leave": FaultKind(_leave, _start, may_last=True),
    "pause": FaultKind(_pause, _nothing, may_last=True),
    "hung-worker": FaultKind(_hang, _unhang, may_last=True),
    "slow-worker": FaultKind(_slow, _fast, may_last=True),
    "wrong-clock": FaultKind(_wrong_clock, _right_clock),
    "clock-leap": FaultKind(_leap, _nothing),
    "corrupt-chunks": FaultKind(_rot, _unrot, may_last=True),
    "cut": FaultKind(_cut, _heal, may_last=True),
    "cut-out": FaultKind(_cut, _heal, may_last=True),
    "cut-in": FaultKind(_cut, _heal, may_last=True),
    "partition": FaultKind(_part, _join),
    "flapping": FaultKind(_flap, _nothing, may_last=True),
    "lossy": FaultKind(_lossy, _lossless, may_last=True),
    "large-lost": FaultKind(_large_lost, _large_pass, may_last=True),
    "bulk-lost": FaultKind(_dead_lane, _live_lane, may_last=True),
    "revoked": FaultKind(_revoke, _nothing),
    "voter-revoked": FaultKind(_revoke_voter, _nothing, only_named=True),
    "renewed": FaultKind(_renew, _nothing, only_named=True),
    "ghosts": FaultKind(_begin_ghosts, _nothing, only_named=True),
    "enrolled": FaultKind(_enrol, _nothing),  # no fault, but as disturbing; until then the peer is not on the roster
    "forged-facts": FaultKind(_forge, _forge_no_more, only_named=True),
}
