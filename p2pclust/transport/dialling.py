"""Open the connections of a peer a few at a time.

A handshake costs a millisecond of processor time. If a peer of a large fleet began all of its handshakes at once, each would
take as long as all together, on a small device or on a machine with many peers longer than libzmq allows one: then all would
be given up and begin again, and none would ever end.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final, Protocol

_AT_ONCE: Final = 4
#: After this time, or `_USUAL` times what the last ones took, a connection that is not up continues by itself, and the next
#: begins. So many absent peers cannot hold up the others.
_PATIENCE_S: Final = 0.5
_USUAL: Final = 3.0
_LONGEST_S: Final = 5.0
_AGAIN_S: Final = 0.5  # after an attempt that could not begin
_GAIN: Final = 0.25  # the weight of the newest connection in what is usual


class Dialled(Protocol):
    """A connection that waits to be opened."""

    def dial(self) -> bool:
        """Begin to connect; `Dialler.up` is called once this has succeeded.

        Return False if it cannot begin now, for want of a descriptor: then it is called again later.
        """


@dataclass(slots=True, eq=False)
class _Waiting:
    hurried: bool
    peer: str


class Dialler:
    """Opens connections, at most `_AT_ONCE` at the same time; `me` is the name of this peer.

    Connections in a hurry are first, in the order in which they came: to a peer that has just connected to this one, or
    with something large to send. The others go down the alphabet from this peer's own name, so that the peers of a fleet
    that starts do not all begin with the same one.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, me: str) -> None:
        self._loop = loop
        self._me = me
        self._waiting: dict[Dialled, _Waiting] = {}
        self._begun: dict[Dialled, asyncio.TimerHandle] = {}
        self._soon: asyncio.Handle | None = None
        self._usual_s = 0.0

    def ask(self, connection: Dialled, peer: str, *, hurried: bool = False) -> None:
        """Open the connection when it is its turn; at the earliest when this turn of the loop is over."""
        self._waiting[connection] = _Waiting(hurried, peer)
        self._look()

    def hurry(self, connection: Dialled) -> None:
        """Open a waiting connection before the others."""
        if connection in self._waiting:
            self._waiting[connection].hurried = True

    def up(self, connection: Dialled, after_s: float) -> None:
        """Take note that a connection is up, so long after it began."""
        self._usual_s += _GAIN * (after_s - self._usual_s)
        self.done(connection)

    def done(self, connection: Dialled) -> None:
        """Open the next connection: this one is up, has taken long, or is no longer wanted."""
        self._waiting.pop(connection, None)
        timer = self._begun.pop(connection, None)
        if timer is not None:
            timer.cancel()
        self._look()

    def close(self) -> None:
        """Open no more connections."""
        self._waiting.clear()
        for timer in self._begun.values():
            timer.cancel()
        self._begun.clear()
        if self._soon is not None:
            self._soon.cancel()

    def _look(self) -> None:
        if self._soon is None and self._waiting and len(self._begun) < _AT_ONCE:
            self._soon = self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._soon = None
        patience_s = min(max(_PATIENCE_S, _USUAL * self._usual_s), _LONGEST_S)
        while self._waiting and len(self._begun) < _AT_ONCE:
            hurried = (one for one, waiting in self._waiting.items() if waiting.hurried)
            # Peers before this one in the alphabet are first, from it on backwards; then those after it, from the last on.
            connection = next(hurried, None) or max(
                self._waiting, key=lambda one: ((peer := self._waiting[one].peer) < self._me, peer)
            )
            waiting = self._waiting.pop(connection)
            self._begun[connection] = self._loop.call_later(patience_s, self.done, connection)
            if not connection.dial():
                self._begun[connection].cancel()
                self._begun[connection] = self._loop.call_later(_AGAIN_S, self._again, connection, waiting)

    def _again(self, connection: Dialled, waiting: _Waiting) -> None:
        self._waiting[connection] = waiting
        del self._begun[connection]
        self._look()
