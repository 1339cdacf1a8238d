"""Our own shaped link on the event loop: a message comes out when its `Line` says so; no thread, one timer per line."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from p2pclust.lab.links.shaping import Line, Shape, pair_of_lines
from p2pclust.transport.links import Counters, Lane

if TYPE_CHECKING:  # bytes move without NumPy
    import numpy as np

    from p2pclust.transport.zeromq import ZmqLinks

Release = Callable[[str, list[bytes], Lane], object]
"""Called with the peer, the frames and the lane of each message that comes out."""

_LEARNING = 0.1  # weight of the last wake-up's lateness
_MOST_LATE_S = 0.01  # more than that was a pause, and does not predict the next wake-up


@dataclass
class Delayed:
    """One direction of our own link.

    The loop's timers count in whole milliseconds and round up, and a busy loop is later still. This class learns the usual
    lateness and sets its timers earlier by that: so the mean of a measured latency is the stated one. `release` gets each
    message that comes out, `on_lost` the numbers of messages and bytes that were lost.
    """

    loop: asyncio.AbstractEventLoop
    line: Line[tuple[str, list[bytes], Lane]]
    counters: Counters
    release: Release
    on_lost: Callable[[int, int], None] = lambda messages, n_bytes: None
    _timer: asyncio.TimerHandle | None = None
    _due: float = math.inf  # the instant of the timer
    _late_s: float = 0.0005
    _lost: tuple[int, int] = (0, 0)

    def push(self, n_bytes: int, lane: Lane, peer: str, frames: list[bytes], rate_before: float) -> bool:
        """Put a message onto the line; return False if its queue is full."""
        taken = self.line.push(self.loop.time(), n_bytes, lane, peer, (peer, frames, lane), rate_before)
        if not taken:
            self.counters.drop("lost: the queue of the shaped link is full")
        self._plan()
        return taken

    def close(self, *, flush: bool) -> None:
        """Drop everything, or with `flush` let it out at once: this peer ends, and would lose its last messages."""
        self._stop()
        for message in self.line.flush():
            if flush:
                self.release(*message)

    def _plan(self) -> None:
        at = self.line.next_at
        if at != self._due:
            self._stop()
            self._due = at
            if at < math.inf:
                self._timer = self.loop.call_at(at - self._late_s, self._look)

    def _stop(self) -> None:
        self._due = math.inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        now, due = self.loop.time(), self._due
        assert self._timer is not None
        late_s = now - self._timer.when()
        if late_s < _MOST_LATE_S:
            self._late_s += _LEARNING * (late_s - self._late_s)
        self._timer, self._due = None, math.inf
        arrived = self.line.pop(max(now, due))
        if self.line.lost > self._lost[0]:
            messages, n_bytes = self.line.lost - self._lost[0], self.line.lost_bytes - self._lost[1]
            self._lost = (self.line.lost, self.line.lost_bytes)
            self.counters.drop("lost: on the shaped link", messages)
            self.on_lost(messages, n_bytes)
        self._plan()
        for message in arrived:
            self.release(*message)


class OwnLink:
    """Both directions of our link, shaped like that of another device; for testbeds.

    `rates` are the bytes per second of others' up-links, if they are limited: a message may still arrive while its first
    bytes are on our down-link. `leaves` and `arrives` get each message at the far end of our up-link, and of our down-link.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, counters: Counters, shape: Shape, rng: np.random.Generator,
        rates: Mapping[str, float], leaves: Release, arrives: Release,
    ) -> None:  # fmt: skip
        def sent(messages: int, n_bytes: int) -> None:  # sent, but lost
            counters.messages_sent += messages
            counters.bytes_sent += n_bytes

        up, down = pair_of_lines(shape, rng)
        self._up = Delayed(loop, up, counters, leaves, sent)
        self._down = Delayed(loop, down, counters, arrives)
        self._loop = loop
        self._rates = rates

    def send(self, peer: str, frames: list[bytes], lane: Lane) -> bool:
        """Put a message onto the up-link; return False if its queue is full."""
        return self._up.push(sum(map(len, frames)), lane, peer, frames, math.inf)

    def take_in(self, peer: str, frames: list[bytes], lane: Lane) -> None:
        """Put a received message onto the down-link."""
        self._down.push(sum(map(len, frames)), lane, peer, frames, self._rates.get(peer, math.inf))

    async def there_and_back(self) -> None:
        """Wait for the latency of a message and its answer on our half of the way."""
        waited: asyncio.Future[None] = self._loop.create_future()
        timer = self._loop.call_later(
            self._up.line.way.latency_s + self._down.line.way.latency_s, waited.set_result, None
        )
        try:
            await waited
        finally:
            timer.cancel()

    def close(self, *, flush: bool) -> None:
        """Drop what has not come out; with `flush`, send the messages of the up-link at once."""
        self._down.close(flush=False)
        self._up.close(flush=flush)


def shape_own(links: ZmqLinks, shape: Shape, rng: np.random.Generator, rates: Mapping[str, float]) -> None:
    """Shape a peer's own link like that of another device from now on; see `OwnLink`."""
    loop = asyncio.get_running_loop()
    links.own = OwnLink(loop, links.counters, shape, rng, rates, links.leaves, links.arrives)
