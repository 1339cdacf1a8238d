"""Messages between neighbours, one per tick: a peer continues only with the messages of all neighbours.

The word of a tick is repeated to a neighbour until it shows that it has it: by saying so, or by a word of its own of a
later tick. A neighbour that shows less than before began a new life without its store. Neighbours are at most one tick
apart, so the last two words are kept. Loss, repeats and reordering cost time only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from p2pclust.peer.core.context import Context
from p2pclust.transport.wire import MAX_FRAME_BYTES, MAX_FRAMES

#: Round and tick.
Position = tuple[int, int]
Frames = tuple[bytes, ...]

NEVER: Final[Position] = (-1, -1)

_KEPT: Final = 2
_SILENT: Final = 2  # repeats
_SLOWER: Final = 2.0  # how many times as long as usual a neighbour may take before the word is repeated


class Ticks:
    """Exchanges ticks with the neighbours. `tell` sends one a tick, or without frames only this peer's position."""

    def __init__(self, context: Context, tell: Callable[[str, Position, Frames], None]) -> None:
        self._ctx = context
        self._tell = tell
        self._usual_s: dict[str, float] = {}  # until they show that they have a word
        self.enter((), NEVER)

    def enter(self, near: Sequence[str], at: Position, *, again: bool = False) -> None:
        """Begin again with these neighbours; `again`: in the same epoch, with another state."""
        if not again:
            self._highest = NEVER  # the last word of this peer in this circle
        self.at, self._near = at, tuple(near)  # the words of which tick are wanted, and whose
        self._said: list[tuple[Position, Frames, float]] = []
        self._came: dict[str, dict[Position, Frames]] = {name: {} for name in near}
        self._passed = NEVER  # the last tick of which all words came
        self._asked_at = dict.fromkeys(near, self._ctx.now)
        self._shown = dict.fromkeys(near, NEVER)  # the last word that they have shown to have
        self._sent_at: dict[tuple[str, Position], float] = {}

    def heard(self, name: str) -> Position:
        """Return the tick up to which all messages of a neighbour are here."""
        came = self._came.get(name, {})
        return max(came) if self.at in came else self._passed

    def expect(self, at: Position) -> None:
        """Accept messages of a tick before this peer sends its own."""
        if at > self.at:
            self._passed = self.at
        self.at = at
        for name, came in self._came.items():
            self._asked_at[name] = self._ctx.now
            for old in [position for position in came if position < at]:
                del came[old]

    def say(self, at: Position, word: bytes) -> None:
        self.expect(at)
        self._highest = max(self._highest, at)
        frames = tuple(word[start : start + MAX_FRAME_BYTES] for start in range(0, len(word), MAX_FRAME_BYTES))
        assert len(frames) <= MAX_FRAMES, f"a word of {len(word)} bytes"
        self._said = [*self._said, (at, frames, self._ctx.now)][-_KEPT:]
        kept = {position for position, _, _ in self._said}
        self._sent_at = {key: sent for key, sent in self._sent_at.items() if key[1] in kept}
        for name in self._near:
            self._send(name, at, frames)

    def _send(self, name: str, at: Position, frames: Frames) -> None:
        self._sent_at[name, at] = self._ctx.now
        self._tell(name, at, frames)

    def said(self, shown: Position) -> bool:
        """Return whether this life of the peer sent a message; a former life, whose store is lost, may have."""
        return shown <= self._highest

    def hear(self, name: str, at: Position, shown: Position, frames: Frames) -> None:
        """Take a neighbour's message, and the position of the last message that it has of this peer."""
        if name not in self._came:
            return
        if frames:
            # The sender has all messages of the tick before.
            shown = max([shown, *[position for position, _, _ in self._said if position < at]])
        elif shown < self._shown[name]:
            # It asks for words that its former life had, whose store is lost: they are repeated. An older message that
            # was overtaken asks for nothing new, but a repeat does no harm.
            self._shown[name] = shown
        if shown > self._shown[name]:
            self._shown[name] = shown
            for said_at in [said_at for position, _, said_at in self._said if position == shown]:
                took_s = self._ctx.now - said_at
                self._usual_s[name] = 0.8 * self._usual_s.get(name, took_s) + 0.2 * took_s
        if not frames:
            return
        came = self._came[name]
        if at < self.at or at in came:
            self._tell(name, self.at, ())  # it does not know that we have it
        elif at in (self.at, (self.at[0], self.at[1] + 1), (self.at[0] + 1, 0)):
            came[at] = frames

    def words(self) -> dict[str, bytes] | None:
        """Return all neighbours' messages of the present tick; None if one is missing, or this peer's own is not sent."""
        if not self._said or self._said[-1][0] != self.at:
            return None
        if not all(self.at in self._came[name] for name in self._near):
            return None
        return {name: b"".join(self._came[name][self.at]) for name in self._near}

    def waits_for(self) -> list[str]:
        return [name for name in self._near if self.at not in self._came[name]]

    def refuse(self, name: str) -> None:
        self._came[name].pop(self.at, None)

    def repeat(self) -> None:
        """Send again what a neighbour has not acknowledged; send this peer's position to a silent neighbour that has it all.

        A silent neighbour may have gone on without this peer, or have finished: then it answers so.
        """
        timing = self._ctx.timing
        for name in self._near:
            usual_s = _SLOWER * self._usual_s.get(name, 0.0)
            pause_s = min(max(usual_s, timing.heartbeat_s), timing.retry_s)
            for at, frames, _ in self._said:
                if at > self._shown[name] and self._ctx.now - self._sent_at[name, at] >= pause_s:
                    self._send(name, at, frames)
            if self.at not in self._came[name] and self._ctx.now - self._asked_at[name] >= _SILENT * timing.retry_s:
                self._asked_at[name] = self._ctx.now
                self._tell(name, self.at, ())
