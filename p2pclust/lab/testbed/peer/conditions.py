"""Conditions that a testbed imposes on a running peer: broken links, a slow processor, damaged rows.

They have one form: in a request of the testbed while the peer runs, in the configuration when it starts, and in a planned
fault that the peer carries out itself. A key that is absent changes nothing.

deaf, mute   peers from which nothing arrives, and to which nothing gets through: lists of names
loss         the probability that a message from or to this peer is lost
slowness     how many times as long as usual a task takes
lies         {"how": one of `p2pclust.lab.testbed.peer.lies.LIES`, "number": of the fault}
rows         {"file": an NPY file with the rows to use from now on, "number": of the fault}
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from p2pclust.errors import DataError
from p2pclust.lab.links.breaking import BreakableLinks
from p2pclust.lab.testbed.peer.changed_rows import FirstUse
from p2pclust.lab.testbed.peer.lies import lie_called
from p2pclust.lab.testbed.peer.planned_faults import PlannedFault, PlannedFaults
from p2pclust.peer.shell.compute import Worker
from p2pclust.peer.shell.shell import Shell
from p2pclust.peer.work.rows import read_array


class ImposedConditions:
    """The conditions of one peer: those of its configuration at first, later those of requests and planned faults."""

    def __init__(
        self, links: BreakableLinks, worker: Worker, shell: Shell, rows: FirstUse, planned: PlannedFaults,
        conditions: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self._links = links
        self._worker = worker
        self._shell = shell
        self._rows = rows
        planned.strike = self.strike
        self.take(conditions)

    def take(self, conditions: Mapping[str, Any]) -> None:
        """Impose these conditions from now on."""
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
