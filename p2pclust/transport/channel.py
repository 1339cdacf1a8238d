"""Outgoing connections: DEALER sockets, each with a short queue, opened a few at a time; and how the loop reads a socket."""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import zmq

from p2pclust.transport.bundle import Bundle
from p2pclust.transport.links import Counters, Lane

CURVE_OVERHEAD = 64
"""What CURVE and our lane mark add to a frame on the wire, rounded up from 34 bytes."""

_LAST, _MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)  # plain numbers: the enum's own arithmetic is slow
_QUEUE = {Lane.CONTROL: 64, Lane.BULK: 8}
_FIRST_PATIENCE_S = 2.0  # how long messages wait for a new connection
_PATIENCE_S = {Lane.CONTROL: 1.0, Lane.BULK: 2.0}  # how long they wait when a connection that was up takes none
_RECONNECT_MS, _RECONNECT_MAX_MS = 50, 3000  # libzmq doubles the first up to the second
_REVIVAL_AGE_S = 0.5  # a younger connection is still trying at short intervals
_REVIVALS = 4  # in a row without success, each of them waits twice as long as the one before
_RENEWAL_AGE_S = 3.0  # libzmq does not retry an address that refused the handshake; we do, after this time
_MAX_ANSWER_BYTES = 1024  # the listening side sends nothing but the frames of the handshake


def set_common_options(socket: zmq.Socket[bytes]) -> None:
    """Set the options of every socket of a peer: no lingering, short handshakes, detection of dead connections."""
    socket.linger = 0
    socket.sndtimeo = 0
    socket.set(zmq.HANDSHAKE_IVL, 3000)
    # These only free dead TCP connections. Membership decides whether a peer is alive. ZMTP's own heartbeats would do the
    # same, but libzmq 4.3.5 ends the process if one is due on a connection that broke while its receiver was slow
    # (docs/decisions/0035-no-zmtp-heartbeats.md).
    socket.set(zmq.TCP_MAXRT, 15000)
    socket.set(zmq.TCP_KEEPALIVE, 1)
    socket.set(zmq.TCP_KEEPALIVE_IDLE, 5)
    socket.set(zmq.TCP_KEEPALIVE_INTVL, 5)
    socket.set(zmq.TCP_KEEPALIVE_CNT, 3)


def bound_to(socket: zmq.Socket[bytes]) -> str:
    """Return the address at which a socket listens, with the port that was chosen for port 0."""
    return bytes(socket.get(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode().removeprefix("tcp://")


@dataclass(eq=False)
class Channel:
    """Sends messages to one peer on one lane, in order.

    A message that the socket does not take waits in a short queue. If the socket has taken nothing for a while, the queue
    is dropped and further messages are refused at once, until one gets through again. Until the dialler opens the
    connection, messages wait without a time limit, because every connection has its turn.
    """

    context: zmq.Context[zmq.Socket[bytes]]
    loop: asyncio.AbstractEventLoop
    bundle: Bundle
    endpoint: str
    their_key: bytes  # CURVE, in Z85: only its owner can answer at the endpoint
    lane: Lane
    counters: Counters
    dialler: Dialler
    peer: str

    def __post_init__(self) -> None:
        self._queue: deque[list[bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._gave_up = False
        self._socket: zmq.Socket[bytes] | None = None  # until it is dialled
        self._watched = self._was_up = False
        self._opened_at = self.loop.time()
        self._revivals = 0  # since it was up
        self.dialler.ask(self, hurried=self.lane == Lane.BULK)

    def send(self, parts: list[bytes]) -> bool:
        """Hand one message to the socket, or queue it; False when neither is possible."""
        if self._gave_up and self.loop.time() - self._opened_at >= _RENEWAL_AGE_S:
            self.revive()
        # Waiting messages go first, and asking the socket is cheap.
        if (not self._queue or self._flush()) and self._push(parts):
            self._gave_up = False
            return True
        if self._gave_up or len(self._queue) >= _QUEUE[self.lane]:
            self.counters.drop("not sent: not connected" if self._gave_up else "not sent: queue full")
            return False
        self._queue.append(parts)
        self._wait()
        return True

    @property
    def up(self) -> bool:
        """Whether the connection is up and takes messages now."""
        ready = self._ready()
        if ready and self._watched:
            self.loop.call_soon(self._on_event)  # asking has cleared the event that is waited for
        return ready

    def _ready(self) -> bool:
        return self._socket is not None and bool(int(self._socket.get(zmq.EVENTS)) & zmq.POLLOUT)

    def revive(self) -> None:
        """Connect again unless the socket can send: the peer has just sent on a new connection of its own."""
        # libzmq tries an absent peer only every few seconds; this reaches a restarted one at once. Where processors are
        # short, a handshake may take long: each revival in a row waits twice as long before it ends a connection that may be
        # about to succeed, so that one of them does.
        if self._socket is None:
            self.dialler.hurry(self)
            return
        patience_s = _REVIVAL_AGE_S * 2**self._revivals
        if self.loop.time() - self._opened_at < patience_s or self.up:
            return
        self._revivals = min(self._revivals + 1, _REVIVALS)
        self._stop_waiting()
        self._hang_up(linger_ms=0)
        self._gave_up = False
        self.dialler.ask(self, hurried=True)

    def close(self, linger_ms: int = 0) -> None:
        """Close the socket: its messages are sent within `linger_ms`, those in our own queue are dropped."""
        if linger_ms and self._queue:
            self._flush()
        self._stop_waiting()
        self._forget()
        self._hang_up(linger_ms)

    def dial(self) -> bool:
        """Begin to connect; return False if that is impossible now, for want of a descriptor."""
        try:
            socket = self.context.socket(zmq.DEALER)
        except zmq.ZMQError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            self.counters.drop("not connected: too many open files")
            return False
        set_common_options(socket)
        socket.set(zmq.IMMEDIATE, 1)
        socket.sndhwm = _QUEUE[self.lane]
        socket.rcvhwm = 1
        socket.set(zmq.MAXMSGSIZE, _MAX_ANSWER_BYTES)
        socket.set(zmq.RECONNECT_IVL, _RECONNECT_MS)
        socket.set(zmq.RECONNECT_IVL_MAX, _RECONNECT_MAX_MS)
        socket.set(zmq.CONNECT_TIMEOUT, 3000)
        socket.curve_serverkey = self.their_key
        socket.curve_publickey = self.bundle.curve_public
        socket.curve_secretkey = self.bundle.curve_secret
        if "[" in self.endpoint:
            socket.ipv6 = True
        socket.connect(self.endpoint)
        self._socket = socket
        self._fd = int(socket.get(zmq.FD))
        self._opened_at = self.loop.time()
        self._was_up = False
        if self._queue:
            self._wait()
        else:
            self._watch()
        return True

    def _hang_up(self, linger_ms: int) -> None:
        self._unwatch()
        if self._socket is not None:
            self._socket.close(linger=linger_ms)
            self._socket = None
        self.dialler.done(self)

    def _push(self, parts: Sequence[bytes]) -> bool:
        if self._socket is None:
            return False
        send, last = self._socket.send, len(parts) - 1
        taken = True
        for index, part in enumerate(parts):
            try:
                send(part, _LAST if index == last else _MORE)
            except zmq.Again:
                if index == 0:
                    return False
                # The connection broke within the message: libzmq drops the following parts up to the last one, which
                # must therefore be handed over as well.
                taken = False
        if taken:
            if not self._was_up:
                self._connected()
            self.counters.messages_sent += 1
            self.counters.bytes_sent += sum(map(len, parts)) - 1  # less the lane mark
        return taken

    def _flush(self) -> bool:
        queue, waiting = self._queue, len(self._queue)
        while queue and self._push(queue[0]):
            queue.popleft()
        if len(queue) < waiting:
            self._stop_waiting()
            if queue:  # something was taken, so patience starts again
                self._wait()
        return not queue

    def _connected(self) -> None:
        self._was_up = True
        self._revivals = 0
        self.dialler.up(self, self.loop.time() - self._opened_at)
        if self._timer is None:
            self._unwatch()

    def _wait(self) -> None:
        if self._socket is None:
            return
        if self._timer is None:
            now = self.loop.time()
            until = now + _PATIENCE_S[self.lane]
            if not self._was_up:
                until = max(until, self._opened_at + _FIRST_PATIENCE_S)
            self._timer = self.loop.call_at(until, self._lose_patience)
        self._watch()

    def _watch(self) -> None:
        if not self._watched:
            self._watched = True
            self.loop.add_reader(self._fd, self._on_event)
        # The descriptor is edge-triggered: the events must be read after every send, or a wake-up may be lost. They are
        # acted upon later, since the caller may be about to send more.
        if self._ready():
            self.loop.call_soon(self._on_event)

    def _unwatch(self) -> None:
        if self._watched:
            self._watched = False
            self.loop.remove_reader(self._fd)

    def _on_event(self) -> None:
        if self._watched and self._ready():
            if not self._was_up:
                self._connected()
            if self._queue:
                self._flush()

    def _lose_patience(self) -> None:
        self._timer = None
        self._unwatch()
        self._gave_up = True
        self._forget()

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._unwatch()

    def _forget(self) -> None:
        if self._queue:
            self.counters.drop("not sent: not connected", len(self._queue))
            self._queue.clear()


_AT_ONCE: Final = 4  # handshakes
#: After this time, or `_USUAL` times what the last ones took, a connection that is not up continues by itself, and the next
#: begins. So many absent peers cannot hold up the others.
_DIAL_PATIENCE_S: Final = 0.5
_USUAL: Final = 3.0
_LONGEST_S: Final = 5.0
_AGAIN_S: Final = 0.5  # after an attempt that could not begin
_GAIN: Final = 0.25  # the weight of the newest connection in what is usual


@dataclass
class Dialler:
    """Opens the connections of the peer `me` a few at a time.

    A handshake costs a millisecond of processor time. If a peer of a large fleet began all of its handshakes at once, each
    would take as long as all together, on a small device longer than libzmq allows one: then none would ever end.
    Connections in a hurry are first: to a peer that has just connected to this one, or with something large to send. The
    others go down the alphabet from this peer's own name, so that not all peers of a fleet begin with the same one.
    """

    _loop: asyncio.AbstractEventLoop
    _me: str
    _waiting: dict[Channel, bool] = field(default_factory=dict)  # whether each is in a hurry
    _begun: dict[Channel, asyncio.TimerHandle] = field(default_factory=dict)
    _soon: asyncio.Handle | None = None
    _usual_s: float = 0.0

    def ask(self, connection: Channel, *, hurried: bool = False) -> None:
        """Open the connection when it is its turn; at the earliest when this turn of the loop is over."""
        self._waiting[connection] = hurried
        self._look()

    def hurry(self, connection: Channel) -> None:
        """Open a waiting connection before the others."""
        if connection in self._waiting:
            self._waiting[connection] = True

    def up(self, connection: Channel, after_s: float) -> None:
        """Take note that a connection is up, so long after it began."""
        self._usual_s += _GAIN * (after_s - self._usual_s)
        self.done(connection)

    def done(self, connection: Channel) -> None:
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
        patience_s = min(max(_DIAL_PATIENCE_S, _USUAL * self._usual_s), _LONGEST_S)
        while self._waiting and len(self._begun) < _AT_ONCE:
            hurried = (one for one, hurries in self._waiting.items() if hurries)
            # Peers before this one in the alphabet are first, from it on backwards; then those after it, from the last on.
            connection = next(hurried, None) or max(self._waiting, key=lambda one: (one.peer < self._me, one.peer))
            hurries = self._waiting.pop(connection)
            self._begun[connection] = self._loop.call_later(patience_s, self.done, connection)
            if not connection.dial():
                self._begun[connection].cancel()
                self._begun[connection] = self._loop.call_later(_AGAIN_S, self._again, connection, hurries)

    def _again(self, connection: Channel, hurries: bool) -> None:
        self._waiting[connection] = hurries
        del self._begun[connection]
        self._look()


class Drain:
    """Call `take` for each message that a socket has, in bursts, so that timers and other sockets get their turn.

    `take` receives one message and returns its size in bytes, or 0 if there was none. A burst has at most `most` messages,
    and ends with the one that makes it larger than `most_bytes`.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, socket: zmq.Socket[bytes], take: Callable[[], int], most: int,
        most_bytes: float = float("inf"),
    ) -> None:  # fmt: skip
        self._loop = loop
        self._take = take
        self._most, self._most_bytes = most, most_bytes
        self._again: asyncio.Handle | None = None
        self._closed = False
        self._fd = int(socket.get(zmq.FD))
        loop.add_reader(self._fd, self._run)
        self.soon()

    def soon(self) -> None:
        """Look at the socket in the next turn of the loop."""
        if self._again is None:
            self._again = self._loop.call_soon(self._run)

    def close(self) -> None:
        """Stop reading; to be called before the socket is closed. Closing twice does nothing."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._fd)
            if self._again is not None:
                self._again.cancel()

    def _run(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
        emptied, taken = False, 0
        try:
            for _ in range(self._most):
                size = 0 if self._closed else self._take()
                if not size:
                    emptied = True
                    return
                taken += size
                if taken > self._most_bytes:
                    return
        finally:  # the descriptor is edge-triggered: for what is left the loop would not wake up
            if not emptied and not self._closed:
                self.soon()
