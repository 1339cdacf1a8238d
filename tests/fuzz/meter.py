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

    n: int = 0
    bytes: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.n:,} measured, at most {self.bytes / 2**20:.2f} MiB and {1000 * self.seconds:.1f} ms each"


@dataclass
class Meter:
    """Measures inputs. Both measures at once would not do: tracemalloc makes Python several times slower.

    `memory` says which of the two is taken.
    """

    memory: bool = False
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
            cost.n += 1
            cost.bytes, cost.seconds = max(cost.bytes, grown), max(cost.seconds, seconds)
            self.last = (grown, seconds)

    def measured(self, what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, measured at each call."""

        def call(*args: Any, **named: Any) -> Any:
            with self.of(what):
                return function(*args, **named)

        return call

    def dear(self) -> str:
        """What the last input cost too much of; empty if it did not."""
        grown, seconds = self.last
        if grown > MOST_BYTES:
            return f"{grown / 2**20:.1f} MiB for one input, at most {MOST_BYTES / 2**20:.0f} are allowed"
        if seconds > MOST_S:
            return f"{1000 * seconds:.0f} ms for one input, at most {1000 * MOST_S:.0f} are allowed"
        return ""

    @staticmethod
    def settle() -> None:
        """Keep what is there from being looked at in every collection of garbage, as a peer does when it starts."""
        gc.collect()
        gc.freeze()
