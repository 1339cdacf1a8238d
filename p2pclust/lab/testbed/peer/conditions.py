"""What a testbed does to a running peer: conditions that it imposes, and faults at planned rounds.

Conditions are broken links, a slow processor, damaged rows. They have one form: in a request of the testbed while the peer
runs, in the configuration when it starts, and in a planned fault. A key that is absent changes nothing.

deaf, mute   peers from which nothing arrives, and to which nothing gets through: lists of names
loss         the probability that a message from or to this peer is lost
slowness     how many times as long as usual a task takes
lies         {"how": one of `p2pclust.lab.testbed.peer.lies.LIES`, "number": of the fault}
rows         {"file": an NPY file with the rows to use from now on, "number": of the fault}

Faults by round are carried out by the victim's own shell, between two effects, once in the fleet. To kill "the aggregator,
at round 3, while opening" from outside would always be too late. Here the peer finds the moment in its own effects and ends
itself there. If several peers could be the victim, it is the one that creates a file in the run's directory first.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from p2pclust.errors import DataError
from p2pclust.lab.links.breaking import BreakableLinks
from p2pclust.lab.testbed.peer.lies import FirstUse, lie_called
from p2pclust.peer.shell.compute import Worker
from p2pclust.peer.shell.shell import Shell
from p2pclust.peer.work.rows import read_array

_ENDS = ("kill", "restart")
# A drained peer stops until the testbed decides, by its battery, whether it sleeps or is gone.
_STOPS = ("pause", "drain")


@dataclass(frozen=True)
class PlannedFault:
    """One fault by round. The peer that creates the file `claim` is the victim."""

    number: int  # in the fleet's list of faults
    do: str  # one of _ENDS or _STOPS, or a fault during which the peer continues
    round: int
    phase: str
    who: tuple[str, ...]  # names; empty: the aggregator
    claim: str
    within: bool = False  # count the rounds of child jobs of the submitted one, not its own
    #: The conditions of the victim from then on; see `p2pclust.lab.testbed.peer.conditions`.
    suffers: Mapping[str, Any] = field(default_factory=dict)
    told: Mapping[str, Any] = field(default_factory=dict)  # further fields of its event

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> PlannedFault:
        return cls(**{**fields, "who": tuple(fields["who"])})


@dataclass(frozen=True)
class PlannedFaults:
    me: str
    faults: tuple[PlannedFault, ...]
    watch: Callable[[str, Mapping[str, Any]], None]
    strike: Callable[[PlannedFault], None]  # carries out a fault that neither ends nor stops the peer
    _aggregates: set[str] = field(default_factory=set, init=False)  # the jobs that this peer aggregates

    def take(self, verb: str, fields: Mapping[str, Any]) -> None:
        """Follow one report of the peer, and carry out what is planned for it."""
        if verb == "elected":
            self._aggregates.add(fields["job"])
        elif verb in ("deposed", "finished"):
            self._aggregates.discard(fields["job"])
        elif verb == "phase":
            aggregates = fields["job"] in self._aggregates
            self.check(fields["phase"], fields["round"], aggregates=aggregates, within="within" in fields)

    def check(self, phase: str, round_: int, *, aggregates: bool, within: bool) -> None:
        """Report and carry out the faults that are planned for this phase of this round.

        A fault at round r strikes at the first opportunity from r on: this peer may not have taken part in round r.
        """
        for fault in self.faults:
            if fault.phase != phase or fault.within != within or (round_ < fault.round and phase != "closing"):
                continue
            if not (self.me in fault.who if fault.who else aggregates):
                continue
            try:
                os.close(os.open(fault.claim, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            except FileExistsError:
                continue  # another peer is the victim
            when = {"phase": fault.phase, "planned": fault.round, "round": round_}
            report = partial(self.watch, "fault", {"number": fault.number, "do": fault.do, **fault.told, **when})
            if fault.do in _STOPS:
                _stop(report)
                continue
            report()
            if fault.do in _ENDS:
                os.kill(os.getpid(), signal.SIGKILL)
            else:
                self.strike(fault)


def _stop(report: Callable[[], None]) -> None:
    """Report the fault, and stop until this process is continued.

    The testbed may stop and continue this process as soon as it reads the report, before the process has stopped itself.
    Then it must no longer stop: it would not be continued again.
    """
    went_on: list[int] = []
    before = signal.signal(signal.SIGCONT, lambda number, frame: went_on.append(number))
    try:
        report()
        if not went_on:
            os.kill(os.getpid(), signal.SIGSTOP)
    finally:
        signal.signal(signal.SIGCONT, before)


class ImposedConditions:
    """The conditions of one peer: those of its configuration at first, later those of requests and planned faults."""

    def __init__(
        self, links: BreakableLinks, worker: Worker, shell: Shell, rows: FirstUse, conditions: Mapping[str, Any]
    ) -> None:
        self._links, self._worker, self._shell, self._rows = links, worker, shell, rows
        self.take(conditions)

    def take(self, conditions: Mapping[str, Any]) -> None:
        if "deaf" in conditions:
            self._links.deaf, self._links.mute = frozenset(conditions["deaf"]), frozenset(conditions["mute"])
        if "loss" in conditions:
            self._links.loss = float(conditions["loss"])
        if "slowness" in conditions:
            self._worker.slowness = float(conditions["slowness"])
        if rows := conditions.get("rows"):
            try:
                self._worker.replace(read_array(rows["file"]))
            except DataError as error:
                self._shell.failed(error)  # with its old rows, the run would not be the one that was asked for
            else:
                self._rows.replaced(rows["number"])
        if lies := conditions.get("lies"):
            self._worker.lie(lie_called(lies["how"]))
            self._rows.replaced(lies["number"])

    def strike(self, fault: PlannedFault) -> None:
        """Carry out a planned fault now, before the next effect."""
        if fault.do == "leave":
            asyncio.get_running_loop().call_soon(self._shell.leave)  # the current effects come first
            return
        conditions = dict(fault.suffers)
        if "deaf" in conditions:  # in addition to present cuts
            conditions["deaf"] = self._links.deaf | frozenset(conditions["deaf"])
            conditions["mute"] = self._links.mute | frozenset(conditions["mute"])
        self.take(conditions)
