"""What a testbed makes a running peer suffer: broken links, a slow processor, damaged rows.

All of it is told in one form: by the door while the peer runs, in its configuration when a life begins, and in an armed
fault that it carries out itself. A key that is not there changes nothing.

deaf, mute   from whom nothing arrives, and to whom nothing gets through: lists of names
loss         the probability that a message from or to here is lost
slowness     how many times as long as its own time a task takes
rows         {"file": an NPY file with rows to work with from now on, "number": of the fault}
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import numpy as np

from p2pclust.peer.shell.compute import Worker
from p2pclust.peer.shell.planned_faults import Armed, ArmedFault
from p2pclust.peer.shell.shell import Shell
from p2pclust.transport.breaking import BreakableLinks

__all__ = ["Suffering"]


class Suffering:
    """One peer's: it begins with what its configuration tells, and its armed faults strike here too."""

    def __init__(
        self, links: BreakableLinks, worker: Worker, shell: Shell, armed: Armed, told: Mapping[str, Any]
    ) -> None:
        self._links = links
        self._worker = worker
        self._shell = shell
        armed.suffer = self.strike
        self.take(told)

    def take(self, told: Mapping[str, Any]) -> None:
        """Suffer this from now on."""
        if "deaf" in told:
            self._links.deaf, self._links.mute = frozenset(told["deaf"]), frozenset(told["mute"])
        if "loss" in told:
            self._links.loss = float(told["loss"])
        if "slowness" in told:
            self._worker.slowness = float(told["slowness"])
        if told.get("rows"):
            self._worker.replace(np.load(told["rows"]["file"], allow_pickle=False))
            self._shell.rows.replaced(told["rows"]["number"])

    def strike(self, fault: ArmedFault) -> None:
        """An armed fault met this peer: it begins to suffer right here, before its next effect."""
        if fault.do == "leave":
            asyncio.get_running_loop().call_soon(self._shell.leave)  # what it is about to do is done first
            return
        told = dict(fault.suffers)
        if "deaf" in told:  # beside what is cut already
            told["deaf"] = self._links.deaf | frozenset(told["deaf"])
            told["mute"] = self._links.mute | frozenset(told["mute"])
        self.take(told)
