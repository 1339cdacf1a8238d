"""The large attack on a real peer: thousands of connections of strangers, one after the other and at once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from tests.fuzz.live import MOST_GROWTH_MB, SERVED_S, Target, at_once, in_sequence

__all__ = ["AT_ONCE", "IN_SEQUENCE", "Outcome", "attacked"]

IN_SEQUENCE: Final = 2000
AT_ONCE: Final = 500


@dataclass(frozen=True)
class Outcome:
    """What a peer withstood: how many connections, how soon a friend was served afterwards, and what memory it took."""

    in_sequence: int
    at_once: int
    served_s: tuple[float, ...]
    growth_mb: float

    def __str__(self) -> str:
        served = ", ".join(f"{seconds:.2f}" for seconds in self.served_s)
        return (
            f"{self.in_sequence:,} connections in sequence, {self.at_once:,} at once: a friend was served within {served} s "
            f"(at most {SERVED_S:g}), the peer grew by {self.growth_mb:.1f} MB (at most {MOST_GROWTH_MB:g})"
        )

    @property
    def failure(self) -> str:
        """What of this is too much, or an empty string."""
        return f"it grew by {self.growth_mb:.1f} MB" if self.growth_mb >= MOST_GROWTH_MB else ""


def attacked(
    home: Path, seed: int, n_in_sequence: int = IN_SEQUENCE, n_at_once: int = AT_ONCE, within_s: float = SERVED_S
) -> Outcome:  # fmt: skip
    """Attack a peer, and have a friend served after each part: after the first, during the second, and at the end.

    Raises
    ------
    TimeoutError
        If the friend is not served in time.
    """
    rng = np.random.default_rng(seed)
    with Target(home) as target:
        before, served = target.memory_mb, []
        n_made = in_sequence(target, n_in_sequence, rng)
        served.append(asyncio.run(target.friend.served(within_s)))
        with at_once(target, n_at_once, rng) as connections:
            served.append(asyncio.run(target.friend.served(within_s)))
        served.append(asyncio.run(target.friend.served(within_s)))
        assert target.process.poll() is None, "the peer has ended"
        return Outcome(n_made, len(connections), tuple(served), max(0.0, target.memory_mb - before))
