"""Decides when a planned fault strikes and which peers it strikes; a fleet's `Actions` carry it out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.lab.data.damage import damaged
from p2pclust.lab.testbed.actions import Actions
from p2pclust.lab.testbed.devices import Devices
from p2pclust.lab.testbed.faults import Cuts, Damage, Do, Fault, late
from p2pclust.lab.testbed.spec import FleetSpec
from p2pclust.overlay.routes import Ways
from p2pclust.overlay.traces import LinkChange
from p2pclust.peer.core.timing import preset

#: The conditions of a peer after a fault that ended by itself.
_NORMAL: Final[Mapping[str, Mapping[str, Any]]] = {"slow": {"slowness": 1.0}, "drop": {"loss": 0.0}}


def conditions_of(spec: FleetSpec, number: int, name: str) -> dict[str, Any]:
    """Return what fault `number` changes in a peer, as `p2pclust.lab.testbed.peer.conditions` has it.

    But "rows" holds them as an array "X", not yet the name of their file.
    """
    fault = spec.faults[number]
    match fault.do:
        case "cut":
            cuts = Cuts([peer.name for peer in spec.peers])
            pairs = cuts.pairs(fault.who or (name,), fault.apart_from, one_way=fault.one_way)
            deaf = [source for source, target in pairs if target == name]
            return {"deaf": deaf, "mute": [target for source, target in pairs if source == name]}
        case "slow":
            return {"slowness": fault.factor}
        case "drop":
            return {"loss": fault.probability}
        case "corrupt-data":
            return {"rows": {"X": _rows_used(spec, number, name), "number": number}}
        case "lie":
            return {"lies": {"how": fault.how, "number": number}}
    return {}


def _rows_used(spec: FleetSpec, number: int, name: str) -> NDArray[np.float64]:
    """Return the rows that a device uses because of a fault; a liar uses its own."""
    fault, X = spec.faults[number], next(peer.X for peer in spec.peers if peer.name == name)
    return X if fault.do == "lie" else damaged(X, fault.how, (spec.seed, number, *name.encode()))


class FaultEngine:
    """The faults and the trace of a spec."""

    def __init__(self, fleet: Actions, devices: Devices) -> None:
        spec = self._spec = fleet.spec
        self._fleet = fleet
        self._devices = devices
        self.struck: dict[int, None] = {}  # the numbers of the faults that have struck
        self._enrolled = dict.fromkeys(peer.name for peer in spec.peers if peer.enrolled)
        self._cuts = Cuts([peer.name for peer in spec.peers])
        self._cuts_to_end = 0  # that will end by themselves
        self._latest: dict[tuple[str, str], int] = {}  # the newest fault of each kind on each device
        #: Devices on the fleet roster that have not started yet, and peers that are down and will be started again.
        self.late = dict.fromkeys(late(spec.faults))
        self.returning: dict[str, None] = {}
        self._revoked: dict[str, None] = {}
        #: Rows that were used in the place of others, and lies.
        self.damage: list[Damage] = []

    # -- when, and which peers -----------------------------------------------------------------------------------------

    def plan(self) -> None:
        """Start the clock of faults by second and of the trace."""
        for number, fault in enumerate(self._spec.faults):
            if fault.seconds is not None:
                if fault.drawn:  # an instant that was drawn is recorded in advance
                    planned = {"number": number, **fault.fields(), "seconds": fault.seconds}
                    self._fleet.report(fault.who[0] if fault.who else "", "planned", planned)
                self._fleet.at(fault.seconds, partial(self._strike_all, number, fault, {"seconds": fault.seconds}))
        for change in self._spec.trace:
            self._fleet.at(change.seconds, partial(self._relink, change))

    def before_job(self, job: int) -> None:
        for number, fault in enumerate(self._spec.faults):
            if fault.job == job:
                self._strike_all(number, fault, {"job_number": job})

    def _strike_all(self, number: int, fault: Fault, moment: Mapping[str, object]) -> None:
        # A fault before a job names its victims.
        victims = fault.who or self._fleet.record.aggregators()
        for name in victims[:1] if fault.do in ("cut", "heal") else victims:
            self.struck[number] = None
            self._fleet.report(name, "fault", {"number": number, **fault.fields(), **moment})
            self._strike(number, fault, name)

    def reached(self, name: str, phase: str, round_: int, *, aggregates: bool, within: bool) -> None:
        """Record and carry out the fault by round that strikes a peer here, if there is one.

        A fault at round r strikes at the first opportunity from r on: the round itself may have been another peer's.
        """
        for number, fault in enumerate(self._spec.faults):
            if number in self.struck or fault.round is None or fault.phase != phase or fault.within != within:
                continue
            early = round_ < fault.round and phase != "closing"
            if not early and (name in fault.who if fault.who else aggregates):
                fields = {"number": number, **fault.fields(), "phase": phase, "planned": fault.round, "round": round_}
                self._fleet.report(name, "fault", fields)
                self.met(number, name)
                return

    def met(self, number: int, name: str) -> None:
        """Carry out a fault by round: this peer, already recorded as its victim, has reached the round."""
        self.struck[number] = None
        self._strike(number, self._spec.faults[number], name, by_round=True)

    # -- what ---------------------------------------------------------------------------------------------------------

    def _strike(self, number: int, fault: Fault, name: str, *, by_round: bool = False) -> None:
        fleet = self._fleet
        match fault.do:
            case "kill" | "drain":
                if fault.do == "kill" or not self._devices.drain(name):
                    fleet.kill(name)
            case "restart":
                if name not in self.returning:
                    down_s = fault.for_s if fault.for_s is not None else 2 * preset(self._spec.timing).election_max_s
                    self.returning[name] = None
                    fleet.at(down_s, partial(self._start, name))
                fleet.kill(name)
            case "pause":
                fleet.pause(name, fault.for_s)
            case "resume":
                fleet.resume(name)
            case "leave":
                fleet.leave(name, by_round=by_round)
            case "join":
                self._start(name)
            case "cut" | "heal":
                self._cut(fault, name)
            case "revoke":
                fleet.after_step(partial(self._revoke, name))
            case "slow" | "drop" | "corrupt-data" | "lie":
                self._latest[fault.do, name] = number
                fleet.impose(name, conditions_of(self._spec, number, name))
                if fault.for_s is not None and fault.do in _NORMAL:
                    fleet.at(fault.for_s, partial(self._repair, number, fault.do, name))

    def _start(self, name: str) -> None:
        self.returning.pop(name, None)
        self.late.pop(name, None)
        self._fleet.bring_up(name)

    def _repair(self, number: int, do: Do, name: str) -> None:
        if self._latest[do, name] == number:  # no newer fault of its kind took its place
            self._fleet.impose(name, _NORMAL[do])
            self._fleet.report(name, "recovered", {"from": do})

    def _cut(self, fault: Fault, name: str) -> None:
        heals = fault.do == "heal"
        pairs = self._cuts.pairs(fault.who or (name,), fault.apart_from, one_way=fault.one_way, within=heals)

        def end() -> None:
            self._cuts_to_end -= 1
            self._cuts.end(pairs)
            self._fleet.cut(self._cuts, pairs)
            self._fleet.report(name, "recovered", {"from": "cut"})

        if heals:
            self._cuts.heal(pairs)
        else:
            self._cuts.add(pairs)
            if fault.for_s is not None:
                self._cuts_to_end += 1
                self._fleet.at(fault.for_s, end)
        self._fleet.cut(self._cuts, pairs)

    def _revoke(self, name: str) -> None:
        self._revoked[name] = None
        self._fleet.revoke(name, tuple(self._revoked))

    def _relink(self, change: LinkChange) -> None:
        self._fleet.report(change.a, "link", {"to": change.b, "up": change.up})
        self._fleet.relink(change.a, change.b, up=change.up)

    def note_damage(self, name: str, fields: Mapping[str, Any]) -> None:
        """Note that a peer used damaged rows, or lied; `fields` are those of its event ``damaged``."""
        how, rows = self._spec.faults[fields["number"]].how, _rows_used(self._spec, fields["number"], name)
        self.damage.append(Damage(name, how, fields["job"], fields["round"], rows))

    # -- which peers are left -----------------------------------------------------------------------------------------

    def belongs(self, name: str) -> bool:
        """Whether the device is on the fleet roster."""
        return name in self._enrolled and name not in self._revoked

    def counts(self, name: str) -> bool:
        """Whether a peer runs, or will run or wake again."""
        return self._up(name) and not self._devices.gone(name)

    def _up(self, name: str) -> bool:
        if name in self._revoked or self.still(name):
            return False
        return self._fleet.alive(name) or name in self.returning or self._will(name, "join", "restart")

    def still(self, name: str) -> bool:
        """Whether a peer is stopped and nothing will resume it."""
        return self._fleet.stopped_for_good(name) and not self._will(name, "resume", "restart")

    def _will(self, name: str, *do: Do) -> bool:
        """Whether one of these faults is still to strike a device by second."""
        return any(fault.seconds is not None and fault.do in do and name in fault.who for fault in self._to_come())

    def _to_come(self) -> Iterator[Fault]:
        return (fault for number, fault in enumerate(self._spec.faults) if number not in self.struck)

    def cut_off(self, name: str, finished: Sequence[str]) -> bool:
        """Whether a peer can never hear from those that finished: no path is left, and none will appear again."""
        heals = any(fault.do == "heal" and fault.job is None for fault in self._to_come())
        if self._cuts_to_end or self._spec.trace or heals:
            return False
        links = self._cuts.links(self._fleet.neighbours())
        reached = Ways(links, [other for other in links if not self._up(other)]).distances(name)
        return not any(other in reached for other in finished)

    def links(self, roster: Sequence[str]) -> Mapping[str, Sequence[str]] | None:
        """Return the open links between peers that run or are on the roster; None if all peers are linked."""
        links = self._cuts.links(self._fleet.neighbours())
        if self._spec.overlay is None and all(len(near) == len(links) - 1 for near in links.values()):
            return None
        here = [name for name in links if name not in self.late and (name in roster or self._up(name))]
        return {name: [other for other in links[name] if other in here] for name in here}
