"""What goes wrong in a fleet of processes on purpose: real signals at planned instants, and links that come and go."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from p2pclust.fleet.children import Child
from p2pclust.fleet.record import Record
from p2pclust.fleet.spec import Fault, FleetSpec
from p2pclust.peer.timing import preset

__all__ = ["Misfortunes", "armed"]

_ENDS_S = 10.0  # how long a killed process may take to be gone


def armed(faults: Sequence[Fault], claims: Path) -> list[dict[str, Any]]:
    """Return the faults by round as each peer's configuration holds them; `claims` is where the victims are decided."""
    claims.mkdir(exist_ok=True)
    return [
        {
            "number": number,
            "do": fault.do,
            "round": fault.round,
            "phase": fault.phase,
            "who": fault.who,
            "within": fault.within,
            "claim": str(claims / str(number)),
        }
        for number, fault in enumerate(faults)
        if fault.round is not None
    ]


class Misfortunes:
    """Carries out the faults and the trace of a spec on the processes of a fleet.

    Parameters
    ----------
    spec : FleetSpec
    record : Record
        Is told what struck.
    children : mapping of str to Child
        By name; those that run.
    now : callable
        The seconds since the fleet was made.
    until : callable
        Waits for a condition on what children said, and for so many seconds at most.

    Attributes
    ----------
    returning, paused : dict of str to None
        Who is down but will be back, and who stands still.
    links : dict or None
        Each peer's neighbours now; None on a full mesh.
    """

    def __init__(
        self, spec: FleetSpec, record: Record, children: Mapping[str, Child], now: Callable[[], float],
        until: Callable[[Callable[[], bool], float], Awaitable[bool]],
    ) -> None:  # fmt: skip
        self._spec = spec
        self._record = record
        self._children = children
        self._now = now
        self._until = until
        self._tasks: list[asyncio.Task[None]] = []
        self.returning: dict[str, None] = {}
        self.paused: dict[str, None] = {}
        self.links = (
            None if spec.overlay is None else {name: dict.fromkeys(near) for name, near in spec.overlay.items()}
        )

    def plan(self) -> None:
        """Let the planned seconds pass from now on."""
        for number, fault in enumerate(self._spec.faults):
            if fault.seconds is not None:
                self._soon(self._later(number, fault, fault.seconds))
        if self._spec.trace:
            self._soon(self._follow_trace())

    def cancel(self) -> None:
        """Let nothing more happen."""
        for task in self._tasks:
            task.cancel()

    def told(self, name: str, fields: Mapping[str, Any]) -> None:
        """A peer told its last words: it ends or stops itself now; bringing it back is our part."""
        fault = self._spec.faults[fields["number"]]
        if fault.do == "restart":
            self.returning[name] = None
            self._soon(self._restart(name, self._down_s(fault)))
        elif fault.do == "pause":
            self.paused[name] = None
            if fault.for_s is not None:
                self._soon(self._resume(name, fault.for_s))

    def counts(self, name: str) -> bool:
        """Whether the peer is there, or will be back."""
        return self._children[name].alive or name in self.returning

    def unfired(self) -> tuple[str, ...]:
        """Return the faults that have not struck."""
        struck = {event["number"] for event in self._record.events if event["verb"] == "fault"}
        return tuple(str(fault) for number, fault in enumerate(self._spec.faults) if number not in struck)

    # -- faults -------------------------------------------------------------------------------------------------------

    async def _later(self, number: int, fault: Fault, delay_s: float) -> None:
        await _pass(delay_s)
        names = fault.who or self._aggregators()
        for name in names:
            self._record.take(self._now(), name, "fault", {"number": number, "do": fault.do, "seconds": fault.seconds})
            self._strike(fault, name)

    def _aggregators(self) -> tuple[str, ...]:
        terms = [job.terms for job in self._record.jobs.values() if job.terms]
        return (terms[-1][max(terms[-1])],) if terms else ()

    def _strike(self, fault: Fault, name: str) -> None:
        child = self._children[name]
        match fault.do:
            case "kill":
                child.signal(signal.SIGKILL)
            case "restart":
                self.returning[name] = None
                child.signal(signal.SIGKILL)
                self._soon(self._restart(name, self._down_s(fault)))
            case "pause":
                self.paused[name] = None
                child.signal(signal.SIGSTOP)
                if fault.for_s is not None:
                    self._soon(self._resume(name, fault.for_s))
            case "resume":
                self.paused.pop(name, None)
                child.signal(signal.SIGCONT)

    def _down_s(self, fault: Fault) -> float:
        return fault.for_s if fault.for_s is not None else 2 * preset(self._spec.timing).election_max_s

    def _soon(self, work: Any) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work))

    async def _restart(self, name: str, down_s: float) -> None:
        await _pass(down_s)
        child = self._children[name]
        await self._until(lambda: not child.alive, _ENDS_S)
        found = {} if self.links is None else dict(self.links[name])
        if self._spec.trace:
            child.configure({"links": sorted(found)})  # as a radio would find them
        await child.start()
        now = {} if self.links is None else self.links[name]
        for other in self._children:
            if (up := other in now) != (other in found):  # it changed since that was written
                child.tell({"do": "link", "peer": other, "up": up})
        self.returning.pop(name, None)

    async def _resume(self, name: str, for_s: float) -> None:
        await _pass(for_s)
        self.paused.pop(name, None)
        self._children[name].signal(signal.SIGCONT)
        self._record.take(self._now(), name, "resumed", {})

    # -- links --------------------------------------------------------------------------------------------------------

    async def _follow_trace(self) -> None:
        """Tell both ends of every link that appears or vanishes, when it does."""
        began = self._now()
        for change in self._spec.trace:
            wait_s = began + change.seconds - self._now()
            if wait_s > 0:
                await _pass(wait_s)
            assert self.links is not None, "a trace has an overlay to begin with"
            self._record.take(self._now(), change.a, "link", {"to": change.b, "up": change.up})
            for one, other in ((change.a, change.b), (change.b, change.a)):
                if change.up:
                    self.links[one][other] = None
                else:
                    self.links[one].pop(other, None)
                self._children[one].tell({"do": "link", "peer": other, "up": change.up})


async def _pass(delay_s: float) -> None:
    """Let a planned time pass: a testbed's faults are the one thing that really waits for the clock."""
    timer = asyncio.get_running_loop().create_future()
    handle = asyncio.get_running_loop().call_later(delay_s, timer.set_result, None)
    try:
        await timer
    finally:
        handle.cancel()
