"""A model of a device's link: latency, jitter, loss, and a limited number of bytes per second.

Each device shapes its own half of a way: its up-link when it sends, its down-link when it receives. So the way from a to b
takes a's latency and b's together, and passes as much as the slower of a's up-link and b's down-link.

    queues of both lanes  ->  the line, byte by byte at its rate  ->  latency and jitter, or loss  ->  out

This module has no clock, socket or random source: `now` and a Generator are arguments, and the owner of a `Line` asks when
to look again. The simulator and the real transport run the same code, each with its own clock.

- *Rate.* One message at a time is on the line. The control lane goes first, even in the middle of a bulk message, as packets
  of two connections would mix; the rest of that message follows. A down-link receives a message while the sender's up-link
  still sends it, so a message of n bytes takes n over the slower rate, not the sum of both times.
- *Jitter* is uniform on both sides of the latency. A message never overtakes another one of the same flow, which is one TCP
  connection: one peer and one lane.
- *Loss* means that a message does not arrive at all, after it used its time on the line. TCP would send it again, and loss
  would show as delay; here the peers' own repeats are tested.
- *Queues* are bounded: a message that finds `QUEUE_BYTES` of its lane waiting is refused, as a full buffer would.

Only the frames of messages count as bytes, not the few bytes that CURVE, ZeroMQ, TCP and IP add; connections are opened and
kept alive outside of the shaped link.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from p2pclust.transport.links import Lane

if TYPE_CHECKING:  # bytes move without NumPy
    import numpy as np

#: Of one lane, waiting to go onto the line.
QUEUE_BYTES: Final = 4 * 1024 * 1024
_MBIT: Final = 1e6 / 8  # bytes
_MOST_SPANS: Final = 256  # idle spans that a line remembers

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Way:
    """One direction of a device's link.

    >>> Way(latency_s=0.04, rate=125_000.0).seconds(12_500)
    0.14
    """

    latency_s: float = 0.0  # from the last byte on the line to the far end
    jitter_s: float = 0.0  # either side of the latency, uniform; at most the latency
    loss: float = 0.0  # probability that a message does not arrive
    rate: float = math.inf  # bytes per second; infinite if the line has no limit

    def seconds(self, n_bytes: int) -> float:
        """Return the mean time of a message of that size over an idle line."""
        return n_bytes / self.rate + self.latency_s


@dataclass(frozen=True, slots=True)
class Shape:
    """Both directions of a device's link.

    >>> meter = Shape.of(latency_ms=40, up_mbit=1, down_mbit=8)
    >>> meter.up.rate, meter.down.rate, meter.down.latency_s
    (125000.0, 1000000.0, 0.04)
    >>> Shape.from_dict(meter.to_dict()) == meter
    True
    """

    up: Way = Way()
    down: Way = Way()

    @classmethod
    def of(
        cls, *, latency_ms: float = 0.0, jitter_ms: float = 0.0, loss: float = 0.0,
        up_mbit: float = math.inf, down_mbit: float = math.inf,
    ) -> Shape:  # fmt: skip
        """Make a shape from milliseconds and megabits per second."""
        alike = (latency_ms / 1000, jitter_ms / 1000, loss)
        return cls(Way(*alike, up_mbit * _MBIT), Way(*alike, down_mbit * _MBIT))

    def to_dict(self) -> dict[str, dict[str, float | None]]:
        """Return plain values for a configuration; an unlimited rate is None."""
        plain = {"up": asdict(self.up), "down": asdict(self.down)}
        return {name: {**way, "rate": None if math.isinf(way["rate"]) else way["rate"]} for name, way in plain.items()}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Mapping[str, Any]]) -> Shape:
        """Make a shape from the values of `to_dict`."""

        def way(fields: Mapping[str, Any]) -> Way:
            return Way(**{**fields, "rate": math.inf if fields["rate"] is None else fields["rate"]})

        return cls(way(fields["up"]), way(fields["down"]))


@dataclass(slots=True)
class _Queued(Generic[T]):
    n_bytes: int
    left: float  # bytes that are not over the line yet
    flow: tuple[str, Lane]
    item: T


class Line(Generic[T]):
    """One direction of one device's link, with the messages that wait and travel on it.

    Losses and jitter are drawn from `rng`; `lost` and `lost_bytes` count what was lost so far.

    >>> import numpy as np
    >>> line = Line[str](Way(latency_s=0.5, rate=1000.0), np.random.default_rng(0))
    >>> line.push(0.0, 1000, Lane.BULK, "b", "a model"), line.push(0.25, 100, Lane.CONTROL, "b", "a probe")
    (True, True)
    >>> line.next_at, line.pop(0.85)
    (0.35, ['a probe'])
    >>> line.next_at, line.pop(1.6)
    (1.1, ['a model'])
    """

    def __init__(self, way: Way, rng: np.random.Generator) -> None:
        self.way = way
        self._rng = rng
        self._queues: dict[Lane, deque[_Queued[T]]] = {Lane.CONTROL: deque(), Lane.BULK: deque()}
        self._bytes = {Lane.CONTROL: 0, Lane.BULK: 0}
        self._free_since = -math.inf  # while nothing is on the line
        self._idle: deque[tuple[float, float]] = deque(maxlen=_MOST_SPANS)  # the latest spans without a message
        self._began = -math.inf  # when the message on the line started or continued
        self._travelling: list[tuple[float, int, T]] = []
        self._number = 0  # equal instants keep their order
        self._last: dict[tuple[str, Lane], float] = {}  # when the last message of each flow arrives
        self.lost = 0
        self.lost_bytes = 0

    def change(self, now: float, way: Way) -> None:
        """Change the line: the message on it continues at the new rate; messages that travel are not affected."""
        self._settle(now)
        self._stop_for_a_moment(now)
        self.way = way

    def push(
        self, now: float, n_bytes: int, lane: Lane, peer: str, item: T, rate_before: float = math.inf
    ) -> bool:  # fmt: skip
        """Put a message onto the line, or into its lane's queue; return False if that is full.

        `now` is not less than in the previous call. Messages of one peer and lane keep their order. `rate_before` is the
        bytes per second at which the message arrives here, if its first bytes may continue while the rest arrives.
        """
        self._settle(now)
        waiting = _Queued(n_bytes, float(n_bytes), (peer, lane), item)
        if self._on_the_line() is None:
            if self._free_since < now:
                self._idle.append((self._free_since, now))
            self._began = now
        elif self._bytes[lane] and self._bytes[lane] + n_bytes > QUEUE_BYTES:
            return False
        elif lane == Lane.CONTROL and not self._queues[lane]:
            self._stop_for_a_moment(now)
        if rate_before < math.inf and self.way.rate < math.inf:
            # While the line was idle it passed on the bytes that had arrived so far.
            took_s = self._claim(now - n_bytes / rate_before, n_bytes / self.way.rate)
            waiting.left = max(0.0, n_bytes - took_s * self.way.rate)
        self._queues[lane].append(waiting)
        self._bytes[lane] += n_bytes
        return True

    def pop(self, now: float) -> list[T]:
        """Return the messages that have come out by now, in order."""
        self._settle(now)
        arrived = []
        while self._travelling and self._travelling[0][0] <= now:
            arrived.append(heapq.heappop(self._travelling)[2])
        return arrived

    def flush(self) -> list[T]:
        """Return all messages that wait or travel, and empty the line: the sender ends now."""
        travelling = [item for _, _, item in sorted(self._travelling, key=lambda entry: entry[:2])]
        waiting = [entry.item for lane in Lane for entry in self._queues[lane]]
        self._travelling.clear()
        for lane in Lane:
            self._queues[lane].clear()
            self._bytes[lane] = 0
        return travelling + waiting

    @property
    def next_at(self) -> float:
        """When to look at the line again; infinite while it is empty."""
        head = self._on_the_line()
        ends = math.inf if head is None else self._began + head.left / self.way.rate
        return min(ends, self._travelling[0][0]) if self._travelling else ends

    def _on_the_line(self) -> _Queued[T] | None:
        for queue in self._queues.values():  # control first
            if queue:
                return queue[0]
        return None

    def _settle(self, now: float) -> None:
        while (head := self._on_the_line()) is not None:
            ends = self._began + head.left / self.way.rate
            if ends > now:
                return
            lane = head.flow[1]
            self._queues[lane].popleft()
            self._bytes[lane] -= head.n_bytes
            self._began = self._free_since = ends
            self._travel(ends, head)

    def _claim(self, since: float, most_s: float) -> float:
        """Use past idle time for a message that arrived slowly meanwhile; return how many seconds were used."""
        claimed_s = 0.0
        while self._idle and claimed_s < most_s and self._idle[-1][1] > since:
            began, ended = self._idle.pop()
            use_s = min(ended - max(began, since), most_s - claimed_s)
            claimed_s += use_s
            if began < ended - use_s:
                self._idle.append((began, ended - use_s))
        return claimed_s

    def _stop_for_a_moment(self, now: float) -> None:
        """Note how far the message on the line has come; it continues from there later."""
        head = self._on_the_line()
        if head is not None:
            head.left -= min(head.left, (now - self._began) * self.way.rate) if now > self._began else 0.0
            self._began = now

    def _travel(self, leaves: float, message: _Queued[T]) -> None:
        way = self.way
        if way.loss and self._rng.random() < way.loss:
            self.lost += 1
            self.lost_bytes += message.n_bytes
            return
        arrives = leaves + way.latency_s
        if way.jitter_s:
            arrives += way.jitter_s * (2 * float(self._rng.random()) - 1)
        arrives = self._last[message.flow] = max(arrives, self._last.get(message.flow, arrives))
        self._number += 1
        heapq.heappush(self._travelling, (arrives, self._number, message.item))


def pair_of_lines(shape: Shape, rng: np.random.Generator) -> tuple[Line[Any], Line[Any]]:
    """Return the up-link and the down-link of one device, each with a random stream of its own."""
    up, down = rng.spawn(2)
    return Line(shape.up, up), Line(shape.down, down)
