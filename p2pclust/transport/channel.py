"""Connections with other peers, for both directions: how they are opened, a few at a time, and read and written."""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import zmq

from p2pclust.transport.bundle import Bundle
from p2pclust.transport.links import Counters, Lane
from p2pclust.transport.wire import MAX_FRAME_BYTES, MAX_FRAMES

CURVE_OVERHEAD = 64
"""What CURVE and our lane mark add to a frame on the wire, rounded up from 34 bytes."""

# Plain numbers: the enum's own arithmetic is slow.
_NOBLOCK, _MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)
_IN, _OUT = int(zmq.POLLIN), int(zmq.POLLOUT)
_QUEUE = {Lane.CONTROL: 64, Lane.BULK: 8}
_PATIENCE_S = 3.0  # how long messages wait for a connection; not less than a handshake may take
_RECONNECT_MS, _RECONNECT_MAX_MS = 50, 3000  # libzmq doubles the first up to the second
LAST_WORD_MS = 1000  # for messages on a connection that ends because of another, or of the roster
BURST = 256, 512 * 1024  # messages, and bytes, which are eight chunks of blobs: timers must not wait longer
# The first byte of a message's first frame names the lane: this is cheaper than a separate frame.
MARKS = {Lane.CONTROL: b"\x00", Lane.BULK: b"\x01"}
_LANES = {mark: lane for lane, mark in MARKS.items()}


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


def set_limits(socket: zmq.Socket[bytes], lane: Lane = Lane.CONTROL) -> None:
    """Limit the messages that wait in a socket that carries those of peers, and their frames."""
    socket.sndhwm = _QUEUE[lane]
    socket.rcvhwm = _QUEUE[Lane.CONTROL]
    socket.set(zmq.MAXMSGSIZE, MAX_FRAME_BYTES + CURVE_OVERHEAD)


def bound_to(socket: zmq.Socket[bytes]) -> str:
    """Return the address at which a socket listens, with the port that was chosen for port 0."""
    return bytes(socket.get(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode().removeprefix("tcp://")


class Incoming(NamedTuple):
    """One message: its first part, with libzmq's metadata, its lane, and its frames, the first ten of them.

    A message that is empty but for the lane only shows that a connection is there, or asks for one: it has no frames.
    """

    head: zmq.Frame
    lane: Lane | None
    frames: list[bytes]
    n_frames: int
    n_bytes: int


def read(socket: zmq.Socket[bytes], *, routed: bool = False) -> Incoming:
    """Receive one message, which begins with a routing id if the socket is `routed`, or raise zmq.Again."""
    head = part = socket.recv(_NOBLOCK, copy=False)
    frames, n_frames, n_bytes = ([], 0, 0) if routed else ([head.bytes], 1, len(head))
    while part.more:  # asking the socket for RCVMORE says the same and costs as much as receiving
        part = socket.recv(_NOBLOCK, copy=False)
        n_frames += 1
        n_bytes += len(part)
        if len(frames) <= 1 + MAX_FRAMES:
            frames.append(part.bytes)
    # Libzmq sends an empty message first on each connection that a control channel dials.
    lane = Lane.CONTROL if frames == [b""] else _LANES.get(frames[0][:1]) if frames else None
    if lane is not None:
        frames = [frames[0][1:], *frames[1:]] if n_bytes > 1 else []
    return Incoming(head, lane, frames, n_frames, n_bytes)


@dataclass(eq=False)
class Channel:
    """The connection with one peer on one lane; messages leave in order.

    It is one that the other peer has opened, which `route` names at our ROUTER, or else a DEALER of ours. A message that
    it does not take waits in a short queue. If it has taken nothing for a while, the queue and the next message are
    dropped, and it is opened anew. Until the dialler opens it, messages wait without a time limit, because every
    connection has its turn.
    """

    dialler: Dialler
    peer: str
    endpoint: str
    their_key: bytes  # CURVE, in Z85: only its owner can answer at the endpoint
    control: Channel | None = None  # for the bulk lane: the channel of the other lane
    route: bytes | None = None

    def __post_init__(self) -> None:
        self._loop = self.dialler.loop
        self._lane = Lane.CONTROL if self.control is None else Lane.BULK
        self._queue: deque[list[bytes]] = deque()
        self._waits_since: float | None = None  # if no message was taken since
        self._socket: zmq.Socket[bytes] | None = None  # until it is dialled
        self._drain: Drain
        self._begun_at: float | None = None  # when the connection was dialled, asked for or adopted
        self._was_up = self.route is not None  # since then
        self.ever_up = self._was_up
        if self.route is None:
            self._seek()

    def send(self, parts: list[bytes]) -> bool:
        """Hand one message to the socket, or queue it; False when neither is possible."""
        # Waiting messages go first, and asking the socket is cheap.
        if (not self._queue or self._flush()) and self._push(parts):
            return True
        if self._hopeless:
            self.dialler.counters.drop("not sent: not connected")
            if not self.up:  # libzmq does not retry an address that refused the handshake
                self._seek()
            return False
        # A ROUTER does not say when one of its connections takes messages again: its own queue is enough.
        if self.route is not None or len(self._queue) >= _QUEUE[self._lane]:
            self.dialler.counters.drop("not sent: queue full")
            return False
        self._queue.append(parts)
        if self._waits_since is None:
            self._waits_since = self._loop.time()
        return True

    @property
    def up(self) -> bool:
        """Whether the connection takes messages now."""
        if self._socket is None:
            return self._push([MARKS[Lane.CONTROL]])  # an empty one; that a connection has ended shows only so
        self._drain.soon()  # asking has cleared the event that the loop waits for
        up = bool(int(self._socket.get(zmq.EVENTS)) & _OUT)
        self.ever_up |= up  # it may end before the loop has its next turn
        return up

    def adopt(self, route: bytes) -> None:
        """Use a connection that the other peer has opened, and end our own.

        If both have opened one, the one that the later peer in the alphabet dialled is kept: both ends decide alike.
        """
        if self.peer < self.dialler.bundle.name and self._socket is not None and self.up:
            return
        self._hang_up(LAST_WORD_MS)
        self.route, self._begun_at, self._was_up, self.ever_up = route, self._loop.time(), True, True
        self._flush()

    def close(self, linger_ms: int = 0) -> None:
        """End our own connection: its messages are sent within `linger_ms`, those in our own queue are dropped."""
        if linger_ms:
            self._flush()
        self._forget()
        self._hang_up(linger_ms)

    def _seek(self) -> None:
        """Get another connection: dial, or ask the other peer for one if we use one that it opened."""
        self._hang_up(linger_ms=0)
        self.route = self._begun_at = self._waits_since = None
        self._was_up = False
        if self.control is not None and self.control.route is not None:
            self._begun_at = self._loop.time()
            self.control.send([MARKS[self._lane]])
        else:
            self.dialler.ask(self, hurried=self._lane == Lane.BULK)

    def dial(self) -> bool:
        """Begin to connect; return False if that is impossible now, for want of a descriptor."""
        dialler = self.dialler
        try:
            socket = dialler.context.socket(zmq.DEALER)
        except zmq.ZMQError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            dialler.counters.drop("not connected: too many open files")
            return False
        set_common_options(socket)
        set_limits(socket, self._lane)
        socket.set(zmq.IMMEDIATE, 1)
        # The other peer must know the connection before it can use it; libzmq greets also after it has reconnected.
        socket.set(zmq.PROBE_ROUTER, int(self._lane == Lane.CONTROL))
        socket.set(zmq.RECONNECT_IVL, _RECONNECT_MS)
        socket.set(zmq.RECONNECT_IVL_MAX, _RECONNECT_MAX_MS)
        socket.set(zmq.CONNECT_TIMEOUT, 3000)
        socket.curve_serverkey = self.their_key
        socket.curve_publickey = dialler.bundle.curve_public
        socket.curve_secretkey = dialler.bundle.curve_secret
        if "[" in self.endpoint:
            socket.ipv6 = True
        socket.connect(self.endpoint)
        self._socket = socket
        self._begun_at = self._loop.time()
        self._drain = Drain(self._loop, socket, self._receive, *BURST)
        return True

    def _receive(self) -> int:
        assert self._socket is not None
        try:
            incoming = read(self._socket)
        except zmq.Again:
            events = int(self._socket.get(zmq.EVENTS))
            if events & _OUT:
                if not self._was_up:
                    self._was_up = self.ever_up = True
                    self.dialler.up(self, self._loop.time() - (self._begun_at or 0.0))
                self._flush()
            if events & _IN:
                self._drain.soon()
            return 0
        self.dialler.take(self.peer, incoming)
        return 1 + incoming.n_bytes

    def _hang_up(self, linger_ms: int) -> None:
        if self._socket is not None:
            self._drain.close()
            self._socket.close(linger=linger_ms)
            self._socket = None
        self.dialler.done(self)

    def _push(self, parts: list[bytes]) -> bool:
        if self._socket is not None:
            socket, drain, whole = self._socket, self._drain, parts
        elif self.route is not None:
            socket, drain, whole = self.dialler.router, self.dialler.drain, [self.route, *parts]
        else:
            return False
        taken, last = True, len(whole) - 1
        for index, part in enumerate(whole):
            try:
                socket.send(part, _NOBLOCK if index == last else _MORE)
            except zmq.Again:
                # If the connection broke within the message, libzmq drops the following parts up to the last one, which
                # must therefore be handed over as well.
                taken = False
                if index == 0:
                    break
            except zmq.ZMQError as error:
                if error.errno != errno.EHOSTUNREACH:
                    raise
                self._seek()  # the connection of the other peer has ended
                taken = False
                break
        # The descriptor is edge-triggered, and sending may have cleared the event that the loop waits for.
        if int(socket.get(zmq.EVENTS)) & (_IN if taken and self._was_up else _IN | _OUT):
            drain.soon()
        if taken:
            self._waits_since = None
            n_bytes = sum(map(len, parts)) - 1  # less the lane mark
            if n_bytes:
                self.dialler.counters.messages_sent += 1
                self.dialler.counters.bytes_sent += n_bytes
        return taken

    def _flush(self) -> bool:
        if self._hopeless:
            self._forget()
        while self._queue and self._push(self._queue[0]):
            self._queue.popleft()
        return not self._queue

    @property
    def _hopeless(self) -> bool:
        """Whether no message has been taken for so long that those that wait are to be dropped."""
        if self._waits_since is None or self._begun_at is None:
            return False
        return self._loop.time() >= max(self._waits_since, self._begun_at) + _PATIENCE_S

    def _forget(self) -> None:
        if self._queue:
            self.dialler.counters.drop("not sent: not connected", len(self._queue))
            self._queue.clear()


_AT_ONCE: Final = 4  # handshakes
#: After this time, or `_USUAL` times what the last ones took, a connection that is not up continues by itself, and the next
#: begins. So many absent peers cannot hold up the others.
_DIAL_PATIENCE_S: Final = 0.5
_USUAL: Final = 3.0
_LONGEST_S: Final = 5.0
_AGAIN_S: Final = 0.5  # after an attempt that could not begin
#: A peer waits this long for the other one to dial, which may not know its address, and then dials.
_TURN_S: Final = 0.2
_GAIN: Final = 0.25  # the weight of the newest connection in what is usual


@dataclass
class Dialler:
    """Opens the connections of one peer a few at a time, and holds what its channels share.

    Other peers connect at the socket `router`, which `drain` reads. Of two peers, the later in the alphabet dials; the
    other one dials too if no connection has come soon.

    A handshake costs a millisecond of processor time. If a peer of a large fleet began all of its handshakes at once, each
    would take as long as all together, on a small device longer than libzmq allows one: then none would ever end.
    Connections in a hurry are first: those for something large. The others go down the alphabet from this peer's own
    name, so that not all peers of a fleet begin with the same one, and the two of a pair rarely dial at once.
    """

    context: zmq.Context[zmq.Socket[bytes]]
    loop: asyncio.AbstractEventLoop
    bundle: Bundle
    counters: Counters
    router: zmq.Socket[bytes]
    drain: Drain
    take: Callable[[str, Incoming], None]  # called with each message on a connection that this peer has dialled
    _waiting: dict[Channel, bool] = field(default_factory=dict)  # whether each is in a hurry
    _begun: dict[Channel, asyncio.TimerHandle] = field(default_factory=dict)
    _later: dict[Channel, asyncio.TimerHandle] = field(default_factory=dict)  # those that others are to dial
    _soon: asyncio.Handle | None = None
    _usual_s: float = 0.0

    def ask(self, connection: Channel, *, hurried: bool = False) -> None:
        """Open the connection when it is its turn; at the earliest when this turn of the loop is over."""
        if hurried or connection.peer < self.bundle.name:
            self._waiting[connection] = hurried
            self._look()
        else:
            self._later[connection] = self.loop.call_later(_TURN_S, self._again, connection, hurried)

    def up(self, connection: Channel, after_s: float) -> None:
        """Take note that a connection is up, so long after it began."""
        self._usual_s += _GAIN * (after_s - self._usual_s)
        self.done(connection)

    def done(self, connection: Channel) -> None:
        """Open the next connection: this one is up, has taken long, or is no longer wanted."""
        self._waiting.pop(connection, None)
        for timers in (self._begun, self._later):
            if connection in timers:
                timers.pop(connection).cancel()
        self._look()

    def close(self) -> None:
        """Open no more connections."""
        self._waiting.clear()
        for timer in (*self._begun.values(), *self._later.values()):
            timer.cancel()
        self._begun.clear()
        self._later.clear()
        if self._soon is not None:
            self._soon.cancel()

    def _look(self) -> None:
        if self._soon is None and self._waiting and len(self._begun) < _AT_ONCE:
            self._soon = self.loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._soon = None
        patience_s = min(max(_DIAL_PATIENCE_S, _USUAL * self._usual_s), _LONGEST_S)
        while self._waiting and len(self._begun) < _AT_ONCE:
            hurried = (one for one, hurries in self._waiting.items() if hurries)
            # Peers before this one in the alphabet are first, from it on backwards; then those after it, from the last on.
            connection = next(hurried, None) or max(
                self._waiting, key=lambda one: (one.peer < self.bundle.name, one.peer)
            )
            hurries = self._waiting.pop(connection)
            self._begun[connection] = self.loop.call_later(patience_s, self.done, connection)
            if not connection.dial():
                self._begun[connection].cancel()
                self._begun[connection] = self.loop.call_later(_AGAIN_S, self._again, connection, hurries)

    def _again(self, connection: Channel, hurries: bool) -> None:
        self._waiting[connection] = hurries
        self._begun.pop(connection, None)
        self._later.pop(connection, None)
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
