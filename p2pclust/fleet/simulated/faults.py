"""What goes wrong in a simulated fleet on purpose: the same faults at the same phases, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from p2pclust.fleet.faults import (
    PAIR,
    Cuts,
    Damage,
    Fault,
    comes,
    damage_of,
    goes_on,
    heals,
    late,
    reaches,
    revokes,
    unfired,
)
from p2pclust.fleet.record import Record
from p2pclust.fleet.spec import FleetSpec
from p2pclust.peer.core.effects import Effect, Report
from p2pclust.peer.core.rounds.changed_rows import FirstUse
from p2pclust.peer.core.timing import preset
from p2pclust.simulation.world.peer import Peer, paper_roster
from p2pclust.simulation.world.world import World
from p2pclust.topology.traces import LinkChange

__all__ = ["VirtualMisfortunes"]

_FOREVER_S = 1e6


class VirtualMisfortunes:
    """Carries out the faults and the trace of a spec in a simulated world.

    Parameters
    ----------
    spec : FleetSpec
    record : Record
        Is told what struck.
    world : World
        Its crash point is set: from now on faults by round strike.

    Attributes
    ----------
    late : dict of str to None
        Enrolled devices that have not started yet.
    left : dict of str to None
        Who said good-bye and has not come back.
    returning : dict of str to None
        Who is down but will be back.
    revoked : dict of str to None
        Who is no longer on the fleet roster.
    damage : list of Damage
        Rows that were used in the place of others.
    """

    def __init__(self, spec: FleetSpec, record: Record, world: World) -> None:
        self._spec = spec
        self._record = record
        self._world = world
        self._struck: dict[int, None] = {}
        self.returning: dict[str, None] = {}
        self._aggregating: dict[bool, str] = {}  # of a submitted job, and of one within it
        self._cuts = Cuts(list(world.peers))
        self._ends_of_cuts = 0  # that are still to come by themselves
        self._lasting: dict[tuple[str, str], int] = {}  # which fault of a kind a device suffers from
        self._uses: dict[str, FirstUse] = {name: FirstUse() for name in world.peers}
        self._rows = {peer.name: peer.X for peer in spec.peers}
        self.late = dict.fromkeys(late(spec.faults))
        self.left: dict[str, None] = {}
        self.damage: list[Damage] = []
        #: Empties a device's battery and does what follows from that; False if the device has none.
        self.empties: Callable[[str], bool] = lambda name: False
        self.revoked: dict[str, None] = {}
        self._enrolled = [peer.name for peer in spec.peers if peer.enrolled]
        self._give_rosters()
        world.crash_point = self._at_phase

    def plan(self) -> None:
        """Let the planned seconds pass from now on."""
        for number, fault in enumerate(self._spec.faults):
            if fault.seconds is not None:
                self._record.planned(self._world.now, number, fault)
                self._world.at(self._world.now + fault.seconds, partial(self._by_second, number, fault))
        for change in self._spec.trace:
            self._world.at(self._world.now + change.seconds, partial(self._relink, change))

    def before_job(self, job: int) -> None:
        """Let happen what is planned before a job is handed in."""
        for number, fault in enumerate(self._spec.faults):
            if fault.job == job:
                self._all(number, fault, fault.who, {"job_number": job})

    def counts(self, name: str) -> bool:
        """Whether the peer is there, or will be back."""
        if name in self.revoked or self.still(name):
            return False
        if self._world.peers[name].core is not None or name in self.returning:
            return True
        return comes(self._spec.faults, self._struck, name)

    def still(self, name: str) -> bool:
        """Whether it stands still for good: nothing will wake it up."""
        peer = self._world.peers[name]
        endless = peer.core is not None and peer.frozen_until > self._world.now + _FOREVER_S / 2
        return endless and not goes_on(self._spec.faults, self._struck, name)

    def belongs(self, name: str) -> bool:
        """Whether the device is on the fleet roster."""
        return name in self._enrolled and name not in self.revoked

    def cut_off(self, name: str, finished: Sequence[str]) -> bool:
        """Whether a peer can never hear of the end from those that finished: no way is left, and none will be again."""
        if self._ends_of_cuts or self._spec.trace or heals(self._spec.faults, self._struck):
            return False
        links = self._cuts.links(self._overlay())
        return not reaches({a: [b for b in near if self.counts(b)] for a, near in links.items()}, name, finished)

    def links(self, roster: Sequence[str]) -> Mapping[str, Sequence[str]] | None:
        """Return the neighbours of each peer that is there or on the roster, where they hear each other; None if all do."""
        links = self._cuts.links(self._overlay())
        if self._spec.overlay is None and all(len(near) == len(links) - 1 for near in links.values()):
            return None
        here = [name for name in links if name not in self.late and (name in roster or self.counts(name))]
        return {name: [other for other in links[name] if other in here] for name in here}

    def _overlay(self) -> Mapping[str, tuple[str, ...]] | None:
        names = self._world.peers
        return None if self._spec.overlay is None else {name: self._world.overlay.neighbours(name) for name in names}

    def unfired(self) -> tuple[str, ...]:
        """Return the faults that have not struck."""
        return unfired(self._spec.faults, self._struck)

    # -- when ---------------------------------------------------------------------------------------------------------

    def _by_second(self, number: int, fault: Fault) -> None:
        aggregator = tuple(self._aggregating[w] for w in (fault.within,) if w in self._aggregating)
        self._all(number, fault, fault.who or aggregator, {"seconds": fault.seconds})

    def _all(self, number: int, fault: Fault, victims: Sequence[str], moment: Mapping[str, object]) -> None:
        if victims:
            self._struck[number] = None
        for name in victims[:1] if fault.do in ("cut", "heal") else victims:
            self._record.take(self._world.now, name, "fault", {"number": number, **fault.told(), **moment})
            self._strike(number, fault, name)

    def _at_phase(self, peer: Peer, effect: Effect) -> bool:
        """Whether an armed fault ends this peer right here; a pause does not end it."""
        told = self._uses[peer.name].see(effect)
        if told is not None:
            self._note_damage(peer, told)
        if not isinstance(effect, Report):
            return False
        if effect.verb not in ("elected", "phase"):
            return False
        within = "within" in effect.fields
        if effect.verb == "elected":
            self._aggregating[within] = peer.name
            return False
        for number, fault in enumerate(self._spec.faults):
            if number in self._struck or fault.phase != effect.fields["phase"] or fault.round is None:
                continue
            early = effect.fields["round"] < fault.round and fault.phase != "closing"
            leads = peer.name == self._aggregating.get(within)
            if early or within != fault.within or not (peer.name in fault.who if fault.who else leads):
                continue
            self._struck[number] = None
            fields = {"number": number, **fault.told(), "phase": fault.phase, "planned": fault.round}
            fields["round"] = effect.fields["round"]
            self._record.take(self._world.now, peer.name, "fault", fields)
            return self._strike(number, fault, peer.name, from_inside=True)
        return False

    # -- what ---------------------------------------------------------------------------------------------------------

    def _strike(self, number: int, fault: Fault, name: str, *, from_inside: bool = False) -> bool:
        """Carry out a fault; returns whether the peer's present step must end as in a crash."""
        world = self._world
        match fault.do:
            case "pause":
                world.freeze(name, fault.for_s if fault.for_s is not None else _FOREVER_S)
            case "resume":
                world.thaw(name)
            case "leave" if from_inside:
                world.at(world.now, partial(self._leave, name))  # what it is about to do is done first
            case "leave":
                self._leave(name)
            case "join":
                self._start(name)
            case "cut" | "heal":
                self._cut(fault, name)
            case "revoke":
                world.at(world.now, partial(self._revoke, name))  # what it is about to do is done first
            case "slow":
                world.slowness[name] = fault.factor
                self._later(number, fault, name, lambda: world.slowness.pop(name, None))
            case "drop":
                world.network.lose(name, fault.probability)
                self._later(number, fault, name, lambda: world.network.lose(name, 0.0))
            case "corrupt-data":
                peer = world.peers[name]
                rows = damage_of(fault, number, self._rows[name], name, self._spec.seed)
                peer.local = peer.local.with_rows(rows)
                self._uses[name].replaced(number)
            case "drain" if self.empties(name):
                return world.peers[name].core is None
            case _:
                return self._end(fault, name, from_inside=from_inside)
        return False

    def _give_rosters(self) -> None:
        """Where rosters matter, each peer begins with one; a stranger with one on which it put itself."""
        strangers = [peer.name for peer in self._spec.peers if not peer.enrolled]
        if strangers or revokes(self._spec.faults):
            for name in self._world.peers:
                own = [name] if name in strangers else []
                self._world.give_roster(name, paper_roster(len(self._enrolled), [*self._enrolled, *own]))

    def _revoke(self, name: str) -> None:
        """As an administrator does it: a new roster, in the hands of one peer; the others hear of it from that one."""
        self.revoked[name] = None
        enrolled = [other for other in self._enrolled if other not in self.revoked]
        told = next((other for other in sorted(enrolled) if self._world.peers[other].core is not None), None)
        if told is not None:
            self._world.give_roster(told, paper_roster(len(self._enrolled) + len(self.revoked), enrolled))

    def _end(self, fault: Fault, name: str, *, from_inside: bool) -> bool:
        world = self._world
        if fault.do == "restart" and name not in self.returning:
            down_s = fault.for_s if fault.for_s is not None else 2 * preset(self._spec.timing).election_max_s
            self.returning[name] = None
            world.at(world.now + down_s, partial(self._start, name))
        if not from_inside:
            world.crash(name)
        return from_inside

    def _start(self, name: str) -> None:
        self.returning.pop(name, None)
        self.late.pop(name, None)
        self.left.pop(name, None)
        self._world.start(name)

    def _leave(self, name: str) -> None:
        if self._world.peers[name].core is not None:
            self._world.leave(name)
            self.left[name] = None
            self._record.take(self._world.now, name, "left", {})
            self._record.take(self._world.now, name, "exited", {"code": 0})

    def _cut(self, fault: Fault, name: str) -> None:
        who = fault.who or (name,)
        pairs = self._cuts.pairs(who, fault.apart_from, one_way=fault.one_way)
        if fault.do == "heal":
            pairs = self._cuts.about(who, fault.apart_from, one_way=fault.one_way)
            self._cuts.heal(pairs)
        else:
            self._cuts.add(pairs)
            if fault.for_s is not None:
                self._ends_of_cuts += 1
                self._world.at(self._world.now + fault.for_s, partial(self._end_cut, name, pairs))
        self._apply()

    def _end_cut(self, name: str, pairs: Sequence[PAIR]) -> None:
        self._ends_of_cuts -= 1
        self._cuts.end(pairs)
        self._apply()
        self._record.take(self._world.now, name, "recovered", {"from": "cut"})

    def _apply(self) -> None:
        """Let the network be as the cuts say."""
        network = self._world.network
        for source in self._world.peers:
            for target in self._world.peers:
                if network.reaches(source, target) != self._cuts.open(source, target):
                    (network.heal if self._cuts.open(source, target) else network.cut)(source, target)

    def _later(self, number: int, fault: Fault, name: str, action: Callable[[], object]) -> None:
        """Let a fault end by itself, if it does, and if no other one of its kind took its place."""
        self._lasting[fault.do, name] = number

        def over() -> None:
            if self._lasting.get((fault.do, name)) == number:
                action()
                self._record.take(self._world.now, name, "recovered", {"from": fault.do})

        if fault.for_s is not None:
            self._world.at(self._world.now + fault.for_s, over)

    def _note_damage(self, peer: Peer, told: Report) -> None:
        self._record.take(self._world.now, peer.name, told.verb, told.fields)
        how = self._spec.faults[told.fields["number"]].how
        self.damage.append(Damage(peer.name, how, told.fields["job"], told.fields["round"], peer.local.X))

    # -- links --------------------------------------------------------------------------------------------------------

    def _relink(self, change: LinkChange) -> None:
        self._record.take(self._world.now, change.a, "link", {"to": change.b, "up": change.up})
        self._world.relink(change.a, change.b, up=change.up)
