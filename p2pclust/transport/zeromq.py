"""Links over ZeroMQ: one connection for each pair of peers and lane, from the DEALER of one to the ROUTER of the other.

CURVE identifies the peer at the other end: by the key that we require when we dial, or the key that libzmq attaches to
each message at the ROUTER, looked up on the current roster. A routing id only names a connection, and only locally.
"""

from __future__ import annotations

import asyncio
import errno
import socket as plain
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import zmq

from p2pclust.errors import UsageError
from p2pclust.transport import channel as channels
from p2pclust.transport.arrivals import Arrivals, HalfOpen, end_connections, origin
from p2pclust.transport.bundle import Bundle, check_enrolled
from p2pclust.transport.links import (
    Counters,
    ImposedLink,
    Lane,
    Links,
    Receive,
    parse_address,
    problem_with_frames,
    tcp_endpoint,
)
from p2pclust.transport.roster import Roster
from p2pclust.transport.zap import DOMAIN, ZapHandler, guard

_BULK_IDLE_S = 30.0


@dataclass(slots=True)
class _Link:
    address: str
    control: channels.Channel
    bulk: channels.Channel | None = None
    bulk_used_at: float = 0.0
    bulk_timer: asyncio.TimerHandle | None = None

    def close_bulk(self, linger_ms: int = 0) -> None:
        if self.bulk_timer is not None:
            self.bulk_timer.cancel()
            self.bulk_timer = None
        if self.bulk is not None:
            self.bulk.close(linger_ms)
            self.bulk = None


class ZmqLinks:
    """Links of one peer to other peers of its fleet; follows `p2pclust.transport.links.Links`.

    Port 0 in `listen` takes a free port. A bulk connection that was given nothing for `bulk_idle_s` is closed.
    Raise UsageError when our key is not on the roster, or the address cannot be listened on.
    """

    def __init__(
        self, bundle: Bundle, roster: Roster, listen: str, receive: Receive, loop: asyncio.AbstractEventLoop | None = None,
        *, bulk_idle_s: float = _BULK_IDLE_S,
    ) -> None:  # fmt: skip
        check_enrolled(bundle, roster)
        host, port = parse_address(listen)
        self.counters = Counters()
        self._bundle = bundle
        self.roster = roster
        self._receive = receive
        self._loop = asyncio.get_running_loop() if loop is None else loop
        self._bulk_idle_s = bulk_idle_s
        self._links: dict[str, _Link] = {}
        self._arrivals = Arrivals()
        #: A testbed's own link between this peer and the network, through which all messages pass; None costs nothing.
        self.own: ImposedLink | None = None
        self._closed = False
        #: For further sockets of this peer: those with CURVE ask the same ZAP handler.
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.context.set(zmq.MAX_SOCKETS, 4096)
        #: Called with the key (Z85) of a connection that is refused because the key is not on the roster.
        self.on_stranger: Callable[[bytes], None] = lambda curve_public: None
        #: Called with the sender of a message that was dropped because it breaks the limits, and the reason.
        self.on_malformed: Callable[[str, str], None] = lambda name, reason: None
        #: Called with the number of connections that were ended because strangers took too many of the open files.
        self.on_crowd: Callable[[int], None] = lambda n_connections: None
        #: Called if no handler decides on handshakes now: libzmq then refuses all of them, and only a restart helps.
        self.on_unguarded: Callable[[], None] = lambda: None
        self._zap = ZapHandler(
            self.context, self._loop, self._admits, self._admits_operator,
            lambda: self.on_unguarded(),  # noqa: PLW0108 - it may be replaced later
        )  # fmt: skip
        self._router = self.context.socket(zmq.ROUTER)
        channels.set_common_options(self._router)
        channels.set_limits(self._router)
        self._router.set(zmq.BACKLOG, 1024)
        self._router.set(zmq.ROUTER_MANDATORY, 1)  # sending on a connection that has ended is an error
        guard(self._router, bundle.curve_secret, DOMAIN)
        try:
            self.address = bind(self._router, host, port)
        except UsageError:
            self._router.close(linger=0)
            self._zap.close()
            self.context.term()
            raise
        drain = channels.Drain(self._loop, self._router, self._receive_one, *channels.BURST)
        self._dialler = channels.Dialler(
            self.context, self._loop, bundle, self.counters, self._router, drain, self._receive_dialled
        )
        #: What keeps connections of strangers from using up the open files; also for further sockets of this peer.
        self.half_open = HalfOpen(self._loop, self._arrivals, self._crowded)
        self.half_open.watch(self.address)

    def problem_with(self, peer: str) -> str:
        link = self._links.get(peer)
        if link is None:
            return "its address is not known" if self.roster.curve_key(peer) else "not on the fleet roster"
        return "" if link.control.up else f"no connection to {link.address}"

    def set_roster(self, roster: Roster) -> None:
        """Replace the roster: close links to peers that left it or changed their key, and refuse their messages."""
        # Connections that they opened end as well: known ones soon, at the latest with the first message on them.
        before, self.roster = self.roster, roster
        for peer in [peer for peer in self._arrivals.of if roster.curve_key(peer) != before.curve_key(peer)]:
            self._loop.call_later(channels.LAST_WORD_MS / 1000, self._arrivals.forget(peer))
        for peer in [peer for peer, link in self._links.items() if roster.curve_key(peer) != link.control.their_key]:
            self.disconnect(peer, channels.LAST_WORD_MS)

    def connect(self, peer: str, address: str) -> None:
        link = self._links.get(peer)
        if self._closed or (link is not None and link.address == address):
            return
        their_key = self.roster.curve_key(peer)
        if their_key is None or peer == self._bundle.name:
            self.counters.drop("not connected: not on the roster" if their_key is None else "not connected: ourselves")
            return
        try:
            host, port = parse_address(address)
        except UsageError:
            self.counters.drop("not connected: bad address")
            return
        self.disconnect(peer)
        route = self._arrivals.routes.get((peer, Lane.CONTROL))
        control = channels.Channel(self._dialler, peer, tcp_endpoint(host, port), their_key, route=route)
        self._links[peer] = _Link(address, control)

    def disconnect(self, peer: str, linger_ms: int = 0) -> None:
        """Close a link; see `Links.disconnect`. What was sent has `linger_ms` to go."""
        link = self._links.pop(peer, None)
        if link is not None:
            link.control.close(linger_ms)
            link.close_bulk(linger_ms)

    def send(self, peer: str, frames: Sequence[bytes], lane: Lane) -> bool:
        link = self._links.get(peer)
        reason = "no such link" if link is None else problem_with_frames(frames, lane)
        if link is None or reason:
            self.counters.drop(f"not sent: {reason}")
            return False
        if self.own is not None:
            return self.own.send(peer, list(frames), lane)
        return self._put(link, frames, lane)

    def _put(self, link: _Link, frames: Sequence[bytes], lane: Lane) -> bool:
        channel = link.control if lane == Lane.CONTROL else self._bulk(link)
        return channel.send([channels.MARKS[lane] + frames[0], *frames[1:]])

    def _bulk(self, link: _Link) -> channels.Channel:
        link.bulk_used_at = self._loop.time()
        if link.bulk is None:
            one = link.control
            route = self._arrivals.routes.get((one.peer, Lane.BULK))
            link.bulk = channels.Channel(self._dialler, one.peer, one.endpoint, one.their_key, one, route)
            link.bulk_timer = self._loop.call_later(self._bulk_idle_s, self._close_idle_bulk, link)
        return link.bulk

    def leaves(self, peer: str, frames: Sequence[bytes], lane: Lane) -> None:
        """Send a message that has passed the imposed link."""
        link = self._links.get(peer)
        if link is None:
            self.counters.drop("not sent: no such link")
        else:
            self._put(link, frames, lane)

    def arrives(self, peer: str, frames: list[bytes], lane: Lane) -> None:
        """Hand on a message that has arrived."""
        self.counters.messages_received += 1
        self.counters.bytes_received += sum(map(len, frames))
        self._receive(peer, frames, lane)

    async def refused(self, peer: str, timeout_s: float) -> bool:
        link = self._links.get(peer)
        if link is None:
            return False
        if self.own is not None:
            await self.own.there_and_back()
        host, port = parse_address(link.address)
        try:
            with plain.socket(plain.AF_INET6 if ":" in host else plain.AF_INET) as probe:
                probe.setblocking(False)
                async with asyncio.timeout(timeout_s):
                    await self._loop.sock_connect(probe, (host, port))
                # On one machine, a free port may be given to the probe itself, which then connects to itself.
                return bool(probe.getsockname() == probe.getpeername())
        except ConnectionRefusedError:
            # It may be a peer that others cannot reach, and that dials them, perhaps for the first time just now.
            return link.control.ever_up and not link.control.up
        except OSError:  # also a timeout, and a lack of descriptors
            return False

    def close(self, linger_s: float = 0.0) -> None:
        """Close every link and the listening socket; messages queued on connections that are up have `linger_s` to go."""
        if self._closed:
            return
        self._closed = True
        if self.own is not None:
            self.own.close(flush=linger_s > 0)
        for link in self._links.values():
            link.control.close(round(linger_s * 1000))
            link.close_bulk(round(linger_s * 1000))
        self._links.clear()
        self._dialler.close()
        self.half_open.close()
        self._dialler.drain.close()
        self._router.close(linger=round(linger_s * 1000))
        self._zap.close()
        self.context.term()

    def _close_idle_bulk(self, link: _Link) -> None:
        due = link.bulk_used_at + self._bulk_idle_s
        if self._loop.time() < due:
            link.bulk_timer = self._loop.call_at(due, self._close_idle_bulk, link)
        else:
            link.close_bulk()

    def _admits(self, curve_public: bytes) -> bool:
        admitted = self.roster.name_of(curve_public) is not None
        if not admitted:
            self.counters.drop("not admitted: stranger")
            self.on_stranger(curve_public)
        return admitted

    def _crowded(self, n_connections: int) -> None:
        self.counters.drop("not admitted: too many connections", n_connections)
        self.on_crowd(n_connections)

    def _admits_operator(self, curve_public: bytes) -> bool:
        known = curve_public in self.roster.by_key
        if not known:
            self.on_stranger(curve_public)
        return known

    def _receive_one(self) -> int:
        try:
            incoming = channels.read(self._router, routed=True)
        except zmq.Again:
            return 0
        name, lane, route = self._sender(incoming.head), incoming.lane, incoming.head.bytes
        if name is not None:
            if lane is not None:
                if route not in self._arrivals.of.get(name, ()):
                    self._arrivals.note(name, lane, incoming.head)
                link = self._links.get(name)
                channel = None if link is None else link.control if lane == Lane.CONTROL else link.bulk
                if channel is not None and channel.route != route:  # the peer answers where it was asked last
                    channel.adopt(route)
            self._hand_on(name, incoming)
        return len(route) + incoming.n_bytes

    def _receive_dialled(self, name: str, incoming: channels.Incoming) -> None:
        link = self._links.get(name)
        if link is not None and incoming.lane == Lane.BULK:
            bulk = self._bulk(link)
            if not incoming.frames:  # the other peer asks for this connection
                bulk.send([channels.MARKS[Lane.BULK]])
        self._hand_on(name, incoming)

    def _hand_on(self, name: str, incoming: channels.Incoming) -> None:
        _, lane, frames, n_frames, n_bytes = incoming
        reason = "" if lane is None or not frames else problem_with_frames(frames, lane)
        if lane is None or reason:
            self.counters.drop(f"not received: {reason or 'malformed'}")
            self.on_malformed(name, f"{reason or 'no lane'}: {n_frames} frames of {n_bytes} bytes together")
        elif frames:
            (self.arrives if self.own is None else self.own.take_in)(name, frames, lane)

    def _sender(self, head: zmq.Frame) -> str | None:
        # On the current roster: its handshake may be older than the roster.
        try:
            name = self.roster.name_of(str(head.get("User-Id")).encode())
        except zmq.ZMQError:  # no such metadata: cannot happen while every handshake passes our handler
            name = None
        if name is None or name == self._bundle.name:
            self.counters.drop("not received: stranger" if name is None else "not received: our own name")
            if name is None:
                end_connections(origin(head))
            return None
        return name


if TYPE_CHECKING:
    _follows_the_interface: type[Links] = ZmqLinks


def bind(router: zmq.Socket[bytes], host: str, port: int) -> str:
    """Listen at an address, or raise UsageError; return it, with the port that was chosen for port 0."""
    where = tcp_endpoint(host, port).removeprefix("tcp://")
    try:
        if ":" in host:
            router.ipv6 = True
        else:
            host = plain.gethostbyname(host)  # libzmq listens on numbers and interfaces, not on names
        router.bind(tcp_endpoint(host, port))
    except OSError as error:  # of gethostbyname: zmq.ZMQError is not an OSError
        raise UsageError(
            f"cannot listen on {where}: the host name is unknown; give an address of this machine"
        ) from error
    except zmq.ZMQError as error:
        if error.errno == errno.EADDRINUSE:
            raise UsageError(
                f"cannot listen on {where}: the port is in use; choose another, or stop the program that uses it"
            ) from None
        raise UsageError(f"cannot listen on {where}: {error.strerror}; give an address of this machine") from None
    return channels.bound_to(router)
