"""What one fuzzed input costs at most: memory beyond what was there before, and time of this process."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["MOST_BYTES", "MOST_S", "Cost", "Meter"]

#: What one input may cost: memory by tracemalloc, and time of this process.
MOST_BYTES: Final = 16 * 1024 * 1024
MOST_S: Final = 0.050


@dataclass
class Cost:
    """The dearest inputs of a kind."""

    n_timed: int = 0
    bytes: int = 0
    seconds: float = 0.0


@dataclass
class Meter:
    """Measures inputs, each time either its memory or its time: tracemalloc makes Python several times slower."""

    memory: bool = False  # which of the two is measured
    costs: dict[str, Cost] = field(default_factory=dict)
    last: tuple[int, float] = (0, 0.0)  # bytes and seconds of the last input

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        """Measure what is done within."""
        if self.memory:
            tracemalloc.start()
        began_s = time.process_time()
        try:
            yield
        finally:
            seconds = 0.0 if self.memory else time.process_time() - began_s
            grown = tracemalloc.get_traced_memory()[1] if self.memory else 0
            if self.memory:
                tracemalloc.stop()
            cost = self.costs.setdefault(what, Cost())
            cost.n_timed += not self.memory
            cost.bytes, cost.seconds = max(cost.bytes, grown), max(cost.seconds, seconds)
            self.last = (grown, seconds)

    def measured(self, what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, measured at each call."""

        def call(*args: Any, **named: Any) -> Any:
            with self.of(what):
                return function(*args, **named)

        return call

    def n(self, what: str) -> int:
        """How many inputs of that kind were measured."""
        return self.costs.get(what, Cost()).n_timed

    def told(self, what: str) -> str:
        """The largest figures of that kind, in words."""
        cost = self.costs.get(what, Cost())
        return (
            f"{cost.n_timed:,}; the largest took {cost.bytes / 2**20:.2f} MiB, the longest {1000 * cost.seconds:.1f} ms"
        )

    @property
    def dear(self) -> str:
        """What the last input cost too much of; empty if it did not."""
        grown, seconds = self.last
        if grown > MOST_BYTES:
            return f"{grown / 2**20:.1f} MiB for one message, at most {MOST_BYTES / 2**20:.0f} are allowed"
        if seconds > MOST_S:
            return f"{1000 * seconds:.0f} ms for one message, at most {1000 * MOST_S:.0f} are allowed"
        return ""

    @staticmethod
    def settle() -> None:
        """Keep what is there out of every collection of garbage, as a peer does when it starts."""
        gc.collect()
        gc.freeze()
