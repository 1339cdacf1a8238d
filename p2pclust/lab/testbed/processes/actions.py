"""Faults and devices' plans on real processes: signals, broken links and bad rows, at planned instants.

A device that sleeps is a stopped process: the kernel accepts what arrives meanwhile, as an access point would, and the
process reads it when it continues.
"""

from __future__ import annotations

import asyncio
import math
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from p2pclust.lab.testbed.actions import Actions
from p2pclust.lab.testbed.fault_engine import conditions_of
from p2pclust.lab.testbed.faults import PAIR, Cuts
from p2pclust.lab.testbed.peer.conditions import PlannedFault
from p2pclust.lab.testbed.power import Use
from p2pclust.lab.testbed.processes.children import Child
from p2pclust.lab.testbed.record import Record
from p2pclust.lab.testbed.spec import FleetSpec
from p2pclust.transport.bundle import ROSTER
from p2pclust.transport.keys import Throwaway

_ENDS_S = 10.0  # how long a killed process may take to end, or a peer to confirm a fault


class ProcessActions(Actions):
    """What faults and plans do to the processes of a fleet.

    In `directory`, peers decide which of them a fault strikes, and damaged rows are kept. `until` waits for a condition on
    what the processes wrote, and for so many seconds at most.
    """

    def __init__(
        self, spec: FleetSpec, record: Record, directory: Path, children: Mapping[str, Child], now: Callable[[], float],
        until: Callable[[Callable[[], bool], float], Awaitable[bool]],
    ) -> None:  # fmt: skip
        self._spec = spec
        self._record = record
        self._directory = directory
        self._children = children
        self._now = now
        self._until = until
        self._timers: dict[asyncio.TimerHandle, None] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._paused_until: dict[str, float] = {}
        self._settings: dict[str, dict[str, Any]] = {peer.name: {} for peer in spec.peers}  # that faults gave each peer
        self._last_number = 0
        self._confirmed: dict[str, int] = {}
        self._starting: dict[str, None] = {}
        self._ending: dict[str, None] = {}  # peers that were killed, or asked to leave, and may still run
        self._links = (
            None if spec.overlay is None else {name: dict.fromkeys(near) for name, near in spec.overlay.items()}
        )
        self.keys: Throwaway | None = None  # sign rosters
        self.flaw: Exception | None = None  # what kept an action from being carried out: the fleet raises it

    # -- time ---------------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self._now()

    def at(self, delay_s: float, action: Callable[[], None]) -> None:
        def run() -> None:
            self._timers.pop(timer)
            try:
                action()
            except Exception as error:  # noqa: BLE001 - raised to the caller of the fleet
                self.flaw = self.flaw or error

        timer = asyncio.get_running_loop().call_later(delay_s, run)
        self._timers[timer] = None

    def after_step(self, action: Callable[[], None]) -> None:
        action()

    def cancel_timers(self) -> None:
        """Start no action any more."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def cancel(self) -> None:
        """Cancel everything that is planned or under way."""
        self.cancel_timers()
        for task in self._tasks:
            task.cancel()

    # -- lives --------------------------------------------------------------------------------------------------------

    def alive(self, name: str) -> bool:
        return self._children[name].alive or name in self._starting

    def bring_up(self, name: str) -> None:
        if not self._children[name].alive or name in self._ending:
            self._starting[name] = None
            task = asyncio.get_running_loop().create_task(self._start(name))
            task.add_done_callback(self._done)
            self._tasks.append(task)

    def _done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self.flaw = self.flaw or error

    async def _start(self, name: str) -> None:
        child, links = self._children[name], self._links
        await self._until(lambda: not child.alive, _ENDS_S)
        self._ending.pop(name, None)
        self._paused_until.pop(name, None)
        found = {} if links is None else dict(links[name])
        if self._spec.trace:
            child.configure({"links": sorted(found)})  # as a radio would find them
        await child.start()
        self._starting.pop(name, None)
        now = {} if links is None else links[name]
        for other in self._children:
            if (up := other in now) != (other in found):  # it changed since that was written
                child.send({"do": "link", "peer": other, "up": up})

    def kill(self, name: str) -> None:
        self._ending[name] = None
        self._children[name].signal(signal.SIGKILL)

    def leave(self, name: str, *, by_round: bool) -> None:
        if by_round:
            return  # the peer leaves by itself
        self._ending[name] = None
        child = self._children[name]
        child.signal(signal.SIGCONT)  # a stopped process could not leave
        child.send({"do": "counters"})  # they end with it
        child.send({"do": "leave"})

    def pause(self, name: str, for_s: float | None) -> None:
        ends = math.inf if for_s is None else self.now + for_s
        self._paused_until[name] = max(self._paused_until.get(name, 0.0), ends)
        self._children[name].signal(signal.SIGSTOP)
        if for_s is not None:
            self.at(for_s, partial(self._end_pause, name))

    def _end_pause(self, name: str) -> None:
        # It may be paused for longer by now, or run already.
        if self.now >= self._paused_until.get(name, math.inf) - 1e-3:
            self.resume(name)
            self._record.take(self.now, name, "resumed", {})

    def resume(self, name: str) -> None:
        self._paused_until.pop(name, None)
        self._children[name].signal(signal.SIGCONT)

    def paused(self, name: str) -> bool:
        """Whether a fault keeps a process stopped."""
        return name in self._paused_until

    def stopped_for_good(self, name: str) -> bool:
        endless = self._paused_until.get(name) == math.inf
        return endless and self._children[name].alive and name not in self._ending

    def sleep(self, name: str) -> None:
        self._children[name].sleep()

    def wake(self, name: str) -> None:
        self._children[name].wake(stays_stopped=self.paused(name))

    def measure(self, name: str) -> Use | None:
        if not self._children[name].asleep and not self.paused(name):
            self._children[name].send({"do": "counters"})
        return None

    # -- faults that a peer carries out itself ------------------------------------------------------------------------

    def armed(self, name: str) -> list[dict[str, Any]]:
        """Return the faults by round as the configuration of a peer holds them."""
        claims = self._directory / "faults"
        claims.mkdir(exist_ok=True)
        planned = [
            PlannedFault(
                number, fault.do, fault.round, fault.phase, fault.who, str(claims / str(number)), fault.within,
                self._on_disk(name, conditions_of(self._spec, number, name)), fault.fields(),
            )
            for number, fault in enumerate(self._spec.faults)
            if fault.round is not None and (not fault.who or name in fault.who)
        ]  # fmt: skip
        return [asdict(fault) for fault in planned]

    def _on_disk(self, name: str, conditions: Mapping[str, Any]) -> dict[str, Any]:
        """Return the conditions with the file of their rows in place of the rows."""
        if "rows" not in conditions:
            return dict(conditions)
        number = conditions["rows"]["number"]
        file = self._directory / name / f"damaged-{number}.npy"
        if not file.exists():  # written before its peer starts: later the peer may be reading it
            np.save(file, conditions["rows"]["X"], allow_pickle=False)
        return {"rows": {"file": str(file), "number": number}}

    def impose(self, name: str, conditions: Mapping[str, Any]) -> None:
        self._last_number += 1
        numbered = {**self._on_disk(name, conditions), "number": self._last_number}
        self._settings[name] |= numbered
        self._children[name].configure({"suffers": self._settings[name]})
        self._children[name].send({"do": "suffer", **numbered})

    def confirmed(self, name: str, number: int) -> None:
        """Note that a peer has applied the change of this number."""
        self._confirmed[name] = max(self._confirmed.get(name, 0), number)

    async def settle(self) -> None:
        """Wait until peers have applied their changes, and those that were ended are gone."""
        wanted = {name: settings["number"] for name, settings in self._settings.items() if "number" in settings}
        awake = [name for name in wanted if self._children[name].alive and not self._children[name].asleep]
        here = [name for name in awake if not self.paused(name)]
        await self._until(lambda: all(self._confirmed.get(name, 0) >= wanted[name] for name in here), _ENDS_S)
        await self._until(lambda: not any(self._children[name].alive for name in self._ending), _ENDS_S)

    def cut(self, cuts: Cuts, pairs: Sequence[PAIR]) -> None:
        for name in dict.fromkeys(end for pair in pairs for end in pair):
            self.impose(name, {"deaf": cuts.deaf(name), "mute": cuts.mute(name)})

    # -- rosters and links --------------------------------------------------------------------------------------------

    def revoke(self, name: str, revoked: Sequence[str]) -> None:
        assert self.keys is not None
        (self._directory / "keys" / ROSTER).write_bytes(self.keys.revoke(name).to_bytes())
        enrolled = (self._children[other] for other in self.keys.roster.names)
        first = next((child for child in enrolled if child.alive and not self.paused(child.name)), None)
        if first is not None:
            first.signal(signal.SIGHUP)

    def neighbours(self) -> Mapping[str, Sequence[str]] | None:
        return None if self._links is None else {name: list(near) for name, near in self._links.items()}

    def relink(self, a: str, b: str, *, up: bool) -> None:
        assert self._links is not None, "a trace has an overlay to begin with"
        for one, other in ((a, b), (b, a)):
            if up:
                self._links[one][other] = None
            else:
                self._links[one].pop(other, None)
            self._children[one].send({"do": "link", "peer": other, "up": up})
