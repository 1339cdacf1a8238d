"""What goes wrong in a simulated fleet on purpose: the same faults at the same phases, in virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from p2pclust.fleet.record import Record
from p2pclust.fleet.spec import Fault, FleetSpec
from p2pclust.peer.effects import Effect, Report
from p2pclust.peer.timing import preset
from p2pclust.simulation.world import Peer, World
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
    """

    def __init__(self, spec: FleetSpec, record: Record, world: World) -> None:
        self._spec = spec
        self._record = record
        self._world = world
        self._struck: list[int] = []
        self._returning: dict[str, None] = {}
        self._aggregating: dict[bool, str] = {}  # of a submitted job, and of one within it
        world.crash_point = self._at_phase

    def plan(self) -> None:
        """Let the planned seconds pass from now on."""
        for number, fault in enumerate(self._spec.faults):
            if fault.seconds is not None:
                self._world.at(self._world.now + fault.seconds, partial(self._by_second, number, fault))
        for change in self._spec.trace:
            self._world.at(self._world.now + change.seconds, partial(self._relink, change))

    def counts(self, name: str) -> bool:
        """Whether the peer is there, or will be back."""
        return self._world.peers[name].core is not None or name in self._returning

    def links(self) -> Mapping[str, tuple[str, ...]] | None:
        """Return each peer's neighbours now; None on a full mesh."""
        names = self._world.peers
        return None if self._spec.overlay is None else {name: self._world.neighbours(name) for name in names}

    def unfired(self) -> tuple[str, ...]:
        """Return the faults that have not struck."""
        return tuple(str(fault) for number, fault in enumerate(self._spec.faults) if number not in self._struck)

    # -- faults -------------------------------------------------------------------------------------------------------

    def _by_second(self, number: int, fault: Fault) -> None:
        victims = fault.who or tuple(self._aggregating[w] for w in (fault.within,) if w in self._aggregating)
        if victims:
            self._struck.append(number)
        for name in victims:
            self._record.take(
                self._world.now, name, "fault", {"number": number, "do": fault.do, "seconds": fault.seconds}
            )
            self._strike(fault, name)

    def _at_phase(self, peer: Peer, effect: Effect) -> bool:
        """Whether an armed fault ends this peer right here; a pause does not end it."""
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
            self._struck.append(number)
            fields = {"number": number, "do": fault.do, "phase": fault.phase, "planned": fault.round}
            fields["round"] = effect.fields["round"]
            self._record.take(self._world.now, peer.name, "fault", fields)
            return self._strike(fault, peer.name, from_inside=True)
        return False

    def _strike(self, fault: Fault, name: str, *, from_inside: bool = False) -> bool:
        """Carry out a fault; returns whether the peer's present step must end as in a crash."""
        world = self._world
        down_s = fault.for_s if fault.for_s is not None else 2 * preset(self._spec.timing).election_max_s
        if fault.do == "pause":
            world.freeze(name, fault.for_s if fault.for_s is not None else _FOREVER_S)
        elif fault.do == "resume":
            world.thaw(name)
        else:
            if fault.do == "restart":
                self._returning[name] = None
                world.at(world.now + down_s, partial(self._restart, name))
            if from_inside:
                return True
            world.crash(name)
        return False

    def _restart(self, name: str) -> None:
        self._returning.pop(name, None)
        self._world.start(name)

    # -- links --------------------------------------------------------------------------------------------------------

    def _relink(self, change: LinkChange) -> None:
        self._record.take(self._world.now, change.a, "link", {"to": change.b, "up": change.up})
        self._world.relink(change.a, change.b, up=change.up)
