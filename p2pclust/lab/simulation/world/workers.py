"""The workers of simulated peers: when each task ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np


@dataclass(eq=False)
class _Task:
    """A task that runs; what is left of it is counted on a device that has one processor for itself."""

    left_s: float
    done: Callable[[], None]
    since: float = 0.0
    ends_at: float = 0.0


@dataclass
class Workers:
    """All workers of a world. What a task brings is computed when it ends: what it reads may be gone by then."""

    now: Callable[[], float]  # the virtual time
    at: Callable[[float, Callable[[], None]], None]  # plans an action for an instant
    rng: np.random.Generator  # draws how long each task takes
    task_s: tuple[float, float] = (0.0005, 0.002)  # how long a task takes, uniform
    hung: dict[str, None] = field(default_factory=dict)  # peers whose worker begins no task, and so ends none
    #: Of devices that have less than one processor for their mathematics.
    cpu_share: dict[str, float] = field(default_factory=dict)
    _slowness: dict[str, float] = field(default_factory=dict)
    _running: dict[str, list[_Task]] = field(default_factory=dict)

    def submit(self, name: str, done: Callable[[], None]) -> None:
        """Begin a task of a peer; `done` is called when it ends."""
        if name in self.hung:
            return
        low_s, high_s = self.task_s
        task = _Task(low_s + (high_s - low_s) * float(self.rng.random()), done)
        self._running.setdefault(name, []).append(task)
        self._plan(name, task)

    def slow(self, name: str, times: float) -> None:
        """From now on a peer's tasks take so many times as long; what is left of those that run, too."""
        before = self._times(name)
        self._slowness[name] = times
        if self._times(name) != before:
            for task in self._running.get(name, ()):
                task.left_s -= (self.now() - task.since) / before
                self._plan(name, task)

    def _times(self, name: str) -> float:
        return self._slowness.get(name, 1.0) / self.cpu_share.get(name, 1.0)

    def _plan(self, name: str, task: _Task) -> None:
        task.since = self.now()
        task.ends_at = ends_at = task.since + task.left_s * self._times(name)
        self.at(ends_at, lambda: self._end(name, task) if task.ends_at == ends_at else None)

    def _end(self, name: str, task: _Task) -> None:
        self._running[name].remove(task)
        task.done()
