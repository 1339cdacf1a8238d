"""Conditions that a testbed imposes on a running peer: broken links, a slow processor, damaged rows.

They have one form: in a request of the testbed while the peer runs, in the configuration when it starts, and in a planned
fault that the peer carries out itself. A key that is absent changes nothing.

deaf, mute   peers from which nothing arrives, and to which nothing gets through: lists of names
loss         the probability that a message from or to this peer is lost
slowness     how many times as long as usual a task takes
rows         {"file": an NPY file with the rows to use from now on, "number": of the fault}
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import numpy as np

from p2pclust.peer.shell.compute import Worker
from p2pclust.peer.shell.planned_faults import PlannedFault, PlannedFaults
from p2pclust.peer.shell.shell import Shell
from p2pclust.transport.breaking import BreakableLinks

__all__ = ["ImposedConditions"]


class ImposedConditions:
    """The conditions of one peer: those of its configuration at first, later those of requests and planned faults."""

    def __init__(
        self, links: BreakableLinks, worker: Worker, shell: Shell, planned: PlannedFaults, conditions: Mapping[str, Any]
    ) -> None:
        self._links = links
        self._worker = worker
        self._shell = shell
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
        if conditions.get("rows"):
            self._worker.replace(np.load(conditions["rows"]["file"], allow_pickle=False))
            self._shell.rows.replaced(conditions["rows"]["number"])

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
