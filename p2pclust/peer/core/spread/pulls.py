"""A blob on its way, and how fast blobs are asked for.

The fetching peer sets the pace, like a TCP sender: one chunk at first, one more with each that comes soon, half as many
when chunks are late, one after a time-out, and then more time for each. If it asked again too early, a slow link would
carry everything twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

#: Times the usual time-out: with more, a source that is gone would hold a blob up for long.
_SLOWEST: Final = 8
#: Of the usual time-out: within that, a link can carry more.
_SOON: Final = 0.5


@dataclass
class Pull:
    """One blob on its way here."""

    digest: bytes
    size_bytes: int
    n_chunks: int
    sources: list[str]
    missing: dict[int, None]  # chunks that are not in the store yet, in order
    asked: dict[int, tuple[str, float]] = field(default_factory=dict)  # the source, and when
    lacking: dict[str, None] = field(default_factory=dict)  # sources that did not have it when they were asked
    again: dict[int, None] = field(default_factory=dict)  # asked for more than once: what comes may answer either
    came_from: dict[str, None] = field(default_factory=dict)
    turn: int = 0
    begun: bool = False  # otherwise it waits for others to end
    silent: bool = False  # nothing came in time, and nothing has since
    doubtful: bool = False  # nothing has come yet, and its source was silent when it was asked last

    @property
    def apart(self) -> bool:
        """Whether it has room of its own, so that sources that answer do not wait for one that does not."""
        return self.silent or self.doubtful


@dataclass
class PullPace:
    """How much this peer asks for at once, over all blobs, and how long it waits for each source."""

    most: int
    chunks: int = 1
    usual: int = 1  # how many times the usual time-out a chunk is given, since sources that live have needed it
    slowness: dict[str, int] = field(default_factory=dict)  # the same for a source that was silent

    def patience(self, source: str) -> int:
        """Return how many times the usual time-out a source is given for a chunk."""
        return max(self.usual, self.slowness.get(source, 1))

    def doubts(self, source: str) -> bool:
        """Return whether a source was silent when it was asked last, and the others are not as slow."""
        return self.patience(source) > self.usual

    def came(self, source: str, time_outs: float) -> None:
        """Note a chunk that came that many usual time-outs after it was asked for, once."""
        if time_outs < _SOON:
            self.chunks = min(self.chunks + 1, self.most)
        elif time_outs > 1:
            self.chunks = max(1, self.chunks // 2)
        if 4 * time_outs < self.patience(source):
            self.usual = max(1, self.usual // 2)
            self.slowness[source] = max(1, self.slowness.get(source, 1) // 2)

    def timed_out(self, sources: Iterable[str]) -> None:
        """No chunk came from these sources in time."""
        self.chunks = 1
        for source in sources:
            self.slowness[source] = min(2 * self.patience(source), _SLOWEST)

    def late(self, source: str) -> None:
        """Note that a chunk came after all: not only that source, but perhaps our own link needs more time."""
        self.usual = self.patience(source)
