"""What holds for ZeroMQ's links beyond the common contract: strangers, hostile bytes, revival."""

from __future__ import annotations

import contextlib
import os
import socket as plain
from dataclasses import replace

import pytest
import zmq
from tests.throwaway import throwaway_fleet
from zmq.utils.monitor import recv_monitor_message

from p2pclust.errors import UsageError
from p2pclust.transport import channel as channel_module
from p2pclust.transport import zap as zap_module
from p2pclust.transport import zeromq as zeromq_module
from p2pclust.transport.channel import set_common_options
from p2pclust.transport.links import Lane
from p2pclust.transport.roster import OPERATOR, Roster
from p2pclust.transport.wire import MAX_CONTROL_BYTES, MAX_FRAME_BYTES
from p2pclust.transport.zeromq import ZmqLinks

CONTROL, BULK = b"\x00", b"\x01"
REFUSALS = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_DISCONNECTED


@contextlib.contextmanager
def dealer(bundle, address, their_key, **options):
    """A DEALER of our own making, with a monitor: what an attacker would write."""
    with zmq.Context() as context:
        sender = context.socket(zmq.DEALER)
        sender.linger = 0
        for name, value in options.items():
            setattr(sender, name, value)
        if bundle is not None:
            sender.curve_publickey, sender.curve_secretkey = bundle.curve_public, bundle.curve_secret
            sender.curve_serverkey = their_key
        monitor = sender.get_monitor_socket(REFUSALS | zmq.EVENT_HANDSHAKE_SUCCEEDED)
        sender.connect(f"tcp://{address}")
        try:
            yield sender, monitor
        finally:
            sender.disable_monitor()
            monitor.close(linger=0)
            sender.close(linger=0)


def knock(sender):
    """Send without waiting: libzmq ends the connection of a refused socket at times before it has spoken."""
    with contextlib.suppress(zmq.Again):
        sender.send_multipart([CONTROL + b"let me in"], zmq.NOBLOCK)


async def friend_is_served(net, a, b):
    """A message from one enrolled peer to another still arrives."""
    before = len(net.inbox["b"])
    a.connect("b", b.address)
    await net.send(a, "b", [b"friend"])
    await net.until(lambda: net.inbox["b"][before:] == [("a", [b"friend"], Lane.CONTROL)])


async def next_event(net, monitor):
    await net.until(lambda: monitor.poll(0))
    return recv_monitor_message(monitor)["event"]


@pytest.mark.parametrize("how", ["another fleet's key", "no CURVE"])
def test_a_stranger_is_refused(net, how):
    _, strangers = throwaway_fleet(["a"])

    async def test():
        a, b = net.open("a"), net.open("b")
        bundle = strangers["a"] if how == "another fleet's key" else None
        with dealer(bundle, b.address, net.bundles["b"].curve_public, rcvhwm=1) as (sender, monitor):
            knock(sender)
            assert await next_event(net, monitor) & REFUSALS
            await friend_is_served(net, a, b)
        assert [source for source, _, _ in net.inbox["b"]] == ["a"]
        assert ("not admitted: stranger" in b.counters.dropped) == (bundle is not None)

    net.run(test())


def test_without_a_zap_handler_everybody_is_refused_and_that_is_noticed(net, monkeypatch):
    monkeypatch.setattr(zap_module, "_LOOK_S", 0.01)
    _, strangers = throwaway_fleet(["a"])

    async def test():
        b, noticed = net.open("b"), []
        b.on_unguarded = lambda: noticed.append(True)
        b._zap._drain.close()
        b._zap._socket.close(linger=0)  # as if it had died
        for bundle in (strangers["a"], net.bundles["a"]):
            with dealer(bundle, b.address, net.bundles["b"].curve_public) as (sender, monitor):
                knock(sender)
                assert await next_event(net, monitor) & REFUSALS
        assert not net.inbox["b"]
        await net.until(lambda: noticed)

    net.run(test())


def test_an_impostor_at_a_peers_address_hears_nothing(net):
    _, others = throwaway_fleet(["b"])

    async def test():
        a = net.open("a")
        with zmq.Context() as context, context.socket(zmq.ROUTER) as impostor:
            impostor.linger = 0
            impostor.curve_server = True
            impostor.curve_secretkey = others["b"].curve_secret
            port = impostor.bind_to_random_port("tcp://127.0.0.1")
            monitor = impostor.get_monitor_socket(REFUSALS | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
            a.connect("b", f"127.0.0.1:{port}")
            assert a.send("b", [b"secret"], Lane.CONTROL)
            await net.until(lambda: monitor.poll(0))
            assert not impostor.poll(0)
            impostor.disable_monitor()
            monitor.close(linger=0)

    net.run(test())


def without(roster, name):
    return Roster(roster.fleet_id, 9, tuple(p for p in roster.peers if p.name != name), b"")


def test_the_connections_of_a_key_that_left_the_roster_end(net):
    """And the handshake of the next one is refused, while friends are heard as before."""

    async def test():
        a, b, c = net.open("a"), net.open("b"), net.open("c")
        a.connect("b", b.address)
        c.connect("b", b.address)
        await net.send(a, "b", [b"before"])
        await net.send(a, "b", [b"before, bulk"], Lane.BULK)
        await net.send(c, "b", [b"friend"])
        await net.until(lambda: len(net.inbox["b"]) == 3)
        b.connect("a", a.address)
        left = without(net.roster, "a")
        b.set_roster(left)
        assert b.roster is left
        await net.until(lambda: b.counters.dropped.get("not admitted: stranger", 0) >= 2)  # both lanes connected again
        await net.send(c, "b", [b"friend"])
        await net.until(lambda: len(net.inbox["b"]) == 4)
        assert net.inbox["b"][-1][0] == "c"
        assert not b.send("a", [b"x"], Lane.CONTROL)  # our own link to it is closed as well
        assert c.counters.dropped == {}

    net.run(test())


def test_an_operators_key_is_none_of_a_peers(net):
    """It is good at the control address, where `ZmqLinks` admits it by another domain."""

    async def test():
        a, b = net.open("a"), net.open("b")
        entries = [replace(p, role=OPERATOR) if p.name == "a" else p for p in net.roster.peers]
        b.set_roster(Roster(net.roster.fleet_id, 9, tuple(entries), b""))
        a.connect("b", b.address)
        a.send("b", [b"hello"], Lane.CONTROL)
        await net.until(lambda: b.counters.dropped.get("not admitted: stranger"))
        key = net.bundles["a"].curve_public
        assert b._admits_operator(key)
        assert not b._admits_operator(b"0" * 40)

    net.run(test())


def test_a_message_on_a_connection_that_is_not_known_is_refused_and_ends_it(net, monkeypatch):
    async def test():
        a, b = net.open("a"), net.open("b")
        monkeypatch.setattr(b._arrivals, "forget", lambda name: bool)  # as if it had been overlooked
        a.connect("b", b.address)
        await net.send(a, "b", [b"before"])
        await net.until(lambda: net.inbox["b"])
        b.set_roster(without(net.roster, "a"))
        assert a.send("b", [b"after"], Lane.CONTROL)
        await net.until(lambda: b.counters.dropped.get("not received: stranger"))
        await net.until(lambda: b.counters.dropped.get("not admitted: stranger"))
        assert len(net.inbox["b"]) == 1

    net.run(test())


@pytest.mark.slow
def test_who_is_enrolled_while_it_knocks_is_let_in(net, monkeypatch):
    """A refused connection is tried again; nobody has to be started anew."""
    monkeypatch.setattr(channel_module, "_PATIENCE_S", 0.6)

    async def test():
        a, b = net.open("a"), net.open("b")
        b.set_roster(without(net.roster, "a"))
        a.connect("b", b.address)
        await net.until(lambda: b.counters.dropped.get("not admitted: stranger"))
        b.set_roster(net.roster)
        await net.until(lambda: a.send("b", [b"at last"], Lane.CONTROL) and net.inbox["b"])

    net.run(test())


def test_two_processes_with_one_bundle_are_both_heard(net):
    # With routing ids as identities, the second would be mute (or would take over the messages meant for the first).
    async def test():
        b = net.open("b")
        key = net.bundles["b"].curve_public
        with (
            dealer(net.bundles["a"], b.address, key) as (first, _),
            dealer(net.bundles["a"], b.address, key) as (second, _),
        ):
            first.send_multipart([CONTROL + b"1"])
            second.send_multipart([CONTROL + b"2"])
            await net.until(lambda: len(net.inbox["b"]) == 2)
            first.send_multipart([CONTROL + b"3"])
            await net.until(lambda: len(net.inbox["b"]) == 3)
        assert {source for source, _, _ in net.inbox["b"]} == {"a"}
        assert sorted(frames[0] for _, frames, _ in net.inbox["b"]) == [b"1", b"2", b"3"]

    net.run(test())


def test_messages_under_our_own_name_are_dropped(net):
    async def test():
        a, b = net.open("a"), net.open("b")
        with dealer(net.bundles["b"], b.address, net.bundles["b"].curve_public) as (sender, _):
            sender.send_multipart([CONTROL + b"I am you"])
            await net.until(lambda: b.counters.dropped)
        assert b.counters.dropped == {"not received: our own name": 1}
        await friend_is_served(net, a, b)

    net.run(test())


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([CONTROL + b"x"] + [b"y"] * 9, "too many frames"),
        ([BULK] + [b"y"] * 2000, "too many frames"),
        ([CONTROL, bytes(MAX_CONTROL_BYTES + 1)], "too large"),
        ([CONTROL + b"x", *[bytes(MAX_CONTROL_BYTES // 4)] * 4], "too large"),
        ([BULK + bytes(MAX_FRAME_BYTES + 1)], "too large"),
        ([b"", b""], "malformed"),
        ([b"\x02x"], "malformed"),
        ([b"", CONTROL], "malformed"),
    ],
)
def test_an_enrolled_peers_hostile_message_is_dropped_counted_and_named(net, frames, reason):
    async def test():
        a, b = net.open("a"), net.open("b")
        told = []
        b.on_malformed = lambda *who: told.append(who)
        with dealer(net.bundles["c"], b.address, net.bundles["b"].curve_public, sndhwm=0) as (sender, _):
            sender.send_multipart(frames)
            await net.until(lambda: b.counters.dropped)
            assert b.counters.dropped == {f"not received: {reason}": 1}
            what = "no lane" if reason == "malformed" else reason
            size = sum(map(len, frames))
            assert told == [("c", f"{what}: {len(frames)} frames of {size} bytes together")]
            sender.send_multipart([CONTROL + b"well-formed"])
            await net.until(lambda: net.inbox["b"])
        await friend_is_served(net, a, b)
        assert [source for source, _, _ in net.inbox["b"]] == ["c", "a"]

    net.run(test())


def test_a_frame_beyond_the_limit_of_the_socket_ends_only_its_own_connection(net):
    async def test():
        a, b = net.open("a"), net.open("b")
        with dealer(net.bundles["c"], b.address, net.bundles["b"].curve_public) as (sender, monitor):
            assert await next_event(net, monitor) == zmq.EVENT_HANDSHAKE_SUCCEEDED
            sender.send_multipart([BULK + bytes(4 * MAX_FRAME_BYTES)])
            assert await next_event(net, monitor) == zmq.EVENT_DISCONNECTED
        await friend_is_served(net, a, b)

    net.run(test())


@pytest.mark.parametrize("greeting", [b"", b"\xff" + bytes(8) + b"\x7f\x03", b"GET / HTTP/1.1\r\n\r\n", bytes(64)])
def test_garbage_and_half_open_connections_leave_it_serving(net, greeting):
    async def test():
        a, b = net.open("a"), net.open("b")
        host, port = b.address.rsplit(":", 1)
        with contextlib.ExitStack() as stack:
            for number in range(20):
                raw = stack.enter_context(plain.create_connection((host, int(port))))
                with contextlib.suppress(ConnectionError):  # the listener may hang up at the first bad byte
                    raw.sendall(greeting + (os.urandom(number * 100) if greeting else b""))
            await friend_is_served(net, a, b)

    net.run(test())


def test_an_exception_in_the_receiver_loses_no_other_message(net):
    heard = []

    def receive(source, frames, lane):
        heard.append(frames[0])
        if frames[0] == b"bad":
            raise ArithmeticError("a bug above the transport")

    async def test():
        a, b = net.open("a"), net.open("b", receive=receive)
        a.connect("b", b.address)
        for frame in (b"1", b"bad", b"2", b"bad", b"3"):
            await net.send(a, "b", [frame])
        await net.until(lambda: heard == [b"1", b"bad", b"2", b"bad", b"3"])
        await net.until(lambda: len(net.failures) == 2)
        assert all(isinstance(failure["exception"], ArithmeticError) for failure in net.failures)
        net.failures.clear()

    net.run(test())


@pytest.mark.parametrize("bound", [(1, 2**20), (256, 1)])
def test_what_a_bounded_burst_leaves_is_received_next(net, bound, monkeypatch):
    monkeypatch.setattr(channel_module, "BURST", bound)

    async def test():
        a, b = net.open("a"), net.open("b")
        a.connect("b", b.address)
        for number in range(60):
            await net.send(a, "b", [number.to_bytes(4, "big")])
        await net.until(lambda: len(net.inbox["b"]) == 60)

    net.run(test())


def test_a_receiver_may_close_the_links_from_within(net):
    async def test():
        a = net.open("a")
        b = net.open("b", receive=lambda *message: b.close())
        a.connect("b", b.address)
        for _ in range(10):
            a.send("b", [b"x"], Lane.CONTROL)
        await net.until(lambda: b._closed)
        assert b.counters.messages_received == 1

    net.run(test())


def test_an_idle_bulk_connection_is_closed_and_opened_again_when_needed(net):
    async def test():
        a, b = net.open("a", bulk_idle_s=0.05), net.open("b")
        a.connect("b", b.address)
        link = a._links["b"]
        assert link.bulk is None

        def arrived(before):
            if (
                link.bulk is None
            ):  # it is also closed, with what it held, where a handshake takes longer than it may idle
                a.send("b", [b"chunk"], Lane.BULK)
                assert link.bulk is not None
            return len(net.inbox["b"]) > before

        for _ in range(2):
            before = len(net.inbox["b"])
            await net.until(lambda before=before: arrived(before))
            await net.until(lambda: link.bulk is None)

    net.run(test())


def test_a_peer_that_comes_back_after_a_while_is_reconnected_to_when_it_speaks(net, monkeypatch):
    # As if it had been away for long: by itself, libzmq would not try again while this test lasts.
    monkeypatch.setattr(channel_module, "_RECONNECT_MS", 60_000)
    monkeypatch.setattr(channel_module, "_RECONNECT_MAX_MS", 0)

    async def test():
        a, b = net.open("a"), net.open("b")
        a.connect("b", b.address)
        await net.send(a, "b", [b"x"])
        await net.until(lambda: net.inbox["b"])
        b.close()
        await net.until(lambda: not a.send("b", [b"x"], Lane.CONTROL))
        b = net.open("b", b.address)
        b.connect("a", a.address)
        await net.send(b, "a", [b"I am back"])
        await net.until(lambda: net.inbox["a"])
        await net.send(a, "b", [b"welcome"])
        await net.until(lambda: net.inbox["b"][-1] == ("a", [b"welcome"], Lane.CONTROL))

    net.run(test())


def test_a_polite_close_delivers_what_was_queued(net):
    async def test():
        a, b = net.open("a"), net.open("b")
        a.connect("b", b.address)
        await net.send(a, "b", [b"x"])
        await net.until(lambda: net.inbox["b"])
        for number in range(50):
            assert a.send("b", [number.to_bytes(4, "big")], Lane.CONTROL)
        a.close(linger_s=1.0)
        await net.until(lambda: len(net.inbox["b"]) == 51)

    net.run(test())


def test_silence_is_not_refusal(net):
    async def test():
        a = net.open("a")
        with plain.create_server(("127.0.0.1", 0), backlog=1) as silent:
            # As with a stopped process: the kernel still accepts, and once its queue is full says nothing at all.
            a.connect("b", f"127.0.0.1:{silent.getsockname()[1]}")
            assert not await a.refused("b", 5.0)
            with contextlib.ExitStack() as stack:
                for _ in range(4):
                    filler = stack.enter_context(plain.socket())
                    filler.setblocking(False)
                    filler.connect_ex(silent.getsockname())
                assert not await a.refused("b", 0.05)

    net.run(test())


def test_an_address_that_cannot_be_listened_on_is_a_usage_error(net, monkeypatch):
    def unknown(host):
        raise plain.gaierror("no such name")

    async def test():
        a = net.open("a")
        with pytest.raises(UsageError, match=f"cannot listen on {a.address}: the port is in use"):
            net.open("b", a.address)
        with pytest.raises(UsageError, match="give an address of this machine"):
            net.open("b", "203.0.113.1:5001")
        with monkeypatch.context() as patch:
            patch.setattr(zeromq_module.plain, "gethostbyname", unknown)
            with pytest.raises(UsageError, match=r"cannot listen on nowhere:5001: the host name is unknown"):
                net.open("b", "nowhere:5001")
        with pytest.raises(UsageError, match="is not HOST:PORT"):
            net.open("b", "5001")
        b = net.open("b", "localhost:0")
        assert b.address.startswith("127.0.0.1:")
        await friend_is_served(net, a, b)

    net.run(test())


def test_ipv6_loopback_works_where_there_is_one(net):
    try:
        plain.create_server(("::1", 0), family=plain.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")

    async def test():
        a, b = net.open("a"), net.open("b", "[::1]:0")
        await friend_is_served(net, a, b)
        assert not await a.refused("b", 5.0)

    net.run(test())


def test_a_bundle_that_is_not_on_the_roster_is_a_usage_error(net):
    _, others = throwaway_fleet(["a"])

    async def test():
        with pytest.raises(UsageError, match="the key of peer 'a' is not on the fleet roster"):
            ZmqLinks(others["a"], net.roster, "127.0.0.1:0", lambda *message: None)

    net.run(test())


def test_the_kernel_ends_dead_connections_and_no_heartbeat_of_libzmq_does():
    """libzmq 4.3.5 calls abort() if a heartbeat is due on a connection that broke while its receiver was slow."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        set_common_options(socket)
        assert socket.get(zmq.HEARTBEAT_IVL) == 0
        assert socket.get(zmq.TCP_MAXRT) == 15000
        assert socket.get(zmq.TCP_KEEPALIVE) == 1
        assert [socket.get(option) for option in (zmq.TCP_KEEPALIVE_IDLE, zmq.TCP_KEEPALIVE_INTVL)] == [5, 5]


def test_nothing_is_left_behind(net):
    async def test():
        before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
        for _ in range(3):
            a, b = net.open("a"), net.open("b")
            a.connect("b", b.address)
            await net.send(a, "b", [b"x"])
            await net.send(a, "b", [b"x"], Lane.BULK)
            a.close()
            b.close()
        assert (len(os.listdir("/proc/self/fd")) if before else 0) == before

    net.run(test())
