"""The behaviour of every transport, independent of what carries its bytes."""

from __future__ import annotations

import os

import pytest

from p2pclust.transport.links import Lane
from p2pclust.transport.wire import MAX_CONTROL_BYTES, MAX_FRAME_BYTES

LANES = list(Lane)


@pytest.fixture
def net(every_net):
    return every_net


def numbers(messages):
    return [int.from_bytes(frames[0], "big") for _, frames, _ in messages]


@pytest.mark.parametrize("lane", LANES)
def test_frames_arrive_unchanged_with_the_senders_name_and_lane(net, lane):
    frames = [b"header", b"", bytes(range(256)), os.urandom(60_000), b"\x00", b"\x01", b"\xff" * 7, b"h", b"i"]

    async def test():
        a, b = net.open("a"), net.open("b")
        a.connect("b", b.address)
        assert a.send("b", frames, lane)
        await net.until(lambda: net.inbox["b"])
        assert net.inbox["b"] == [("a", frames, lane)]
        assert all(type(frame) is bytes for frame in net.inbox["b"][0][1])
        assert not net.inbox["a"]

    net.run(test())


@pytest.mark.parametrize("lane", LANES)
def test_the_largest_messages_pass(net, lane):
    largest = [b"h", bytes(MAX_CONTROL_BYTES - 1)] if lane == Lane.CONTROL else [os.urandom(MAX_FRAME_BYTES)] * 2

    async def test():
        a, b = net.open("a"), net.open("b")
        a.connect("b", b.address)
        assert a.send("b", largest, lane)
        await net.until(lambda: net.inbox["b"])
        assert net.inbox["b"] == [("a", largest, lane)]

    net.run(test())


@pytest.mark.parametrize("lane", LANES)
def test_order_is_kept_per_link_and_lane_whatever_the_load(net, lane):
    async def test():
        a, b, c = net.open("a"), net.open("b"), net.open("c")
        a.connect("c", c.address)
        b.connect("c", c.address)
        for number in range(600):
            for links in (a, b):
                await net.send(links, "c", [number.to_bytes(4, "big"), bytes(1000)], lane)
        await net.until(lambda: len(net.inbox["c"]) == 1200)
        for source in ("a", "b"):
            assert numbers(message for message in net.inbox["c"] if message[0] == source) == list(range(600))

    net.run(test())


def test_messages_sent_before_the_receiver_listens_are_not_lost(net):
    async def test():
        a, b = net.open("a"), net.open("b")
        address = b.address
        b.close()
        a.connect("b", address)
        for number in range(20):
            assert a.send("b", [number.to_bytes(4, "big")], Lane.CONTROL)
        net.open("b", address)
        await net.until(lambda: len(net.inbox["b"]) == 20)
        assert numbers(net.inbox["b"]) == list(range(20))

    net.run(test())


def test_a_peer_without_a_link_is_not_sent_to(net):
    async def test():
        a, b = net.open("a"), net.open("b")
        assert not a.send("b", [b"x"], Lane.CONTROL)
        assert not a.send("nobody", [b"x"], Lane.BULK)
        a.connect("b", b.address)
        assert a.send("b", [b"x"], Lane.CONTROL)
        await net.until(lambda: net.inbox["b"])
        a.disconnect("b")
        a.disconnect("b")
        assert not a.send("b", [b"x"], Lane.CONTROL)
        assert a.counters.dropped == {"not sent: no such link": 3}
        assert not await a.refused("nobody", 1.0)

    net.run(test())


def test_a_peer_off_the_roster_and_an_unreadable_address_open_no_link(net):
    async def test():
        a = net.open("a")
        for peer, address in (("nobody", "127.0.0.1:5001"), ("a", a.address), ("b", "tcp://x;y"), ("b", "127.0.0.1")):
            a.connect(peer, address)
            assert not a.send(peer, [b"x"], Lane.CONTROL)
        assert a.counters.dropped == {
            "not connected: not on the roster": 1,
            "not connected: ourselves": 1,
            "not connected: bad address": 2,
            "not sent: no such link": 4,
        }

    net.run(test())


@pytest.mark.parametrize(
    ("frames", "lane", "reason"),
    [
        ([], Lane.CONTROL, "no frames"),
        ([b"x"] * 10, Lane.BULK, "too many frames"),
        ([b"x", bytes(MAX_CONTROL_BYTES)], Lane.CONTROL, "too large"),
        ([bytes(MAX_FRAME_BYTES + 1)], Lane.BULK, "too large"),
    ],
)
def test_a_message_beyond_the_limits_is_not_sent_and_counted(net, frames, lane, reason):
    async def test():
        a, b = net.open("a"), net.open("b")
        a.connect("b", b.address)
        assert not a.send("b", frames, lane)
        assert a.counters.dropped == {f"not sent: {reason}": 1}
        assert a.send("b", [b"after"], lane)
        await net.until(lambda: net.inbox["b"])
        assert net.inbox["b"] == [("a", [b"after"], lane)]

    net.run(test())


def test_connecting_again_changes_nothing_and_another_address_replaces_the_link(net):
    async def test():
        a, b = net.open("a"), net.open("b")
        a.connect("b", b.address)
        for number in range(50):
            a.connect("b", b.address)
            await net.send(a, "b", [number.to_bytes(4, "big")])
        await net.until(lambda: len(net.inbox["b"]) == 50)
        b.close()
        moved = net.open("b")
        assert moved.address != b.address
        a.connect("b", moved.address)
        assert a.send("b", [b"\x63"], Lane.CONTROL)
        await net.until(lambda: len(net.inbox["b"]) == 51)
        assert numbers(net.inbox["b"]) == [*range(50), 99]

    net.run(test())


@pytest.mark.parametrize("lane", LANES)
def test_a_restarted_receiver_is_reached_again(net, lane):
    async def test():
        a, b = net.open("a"), net.open("b")
        a.connect("b", b.address)
        await net.send(a, "b", [b"before"], lane)
        await net.until(lambda: net.inbox["b"])
        net.restart("b", b)

        def heard_again():
            a.send("b", [b"again"], lane)
            return ("a", [b"again"], lane) in net.inbox["b"]

        await net.until(heard_again)

    net.run(test())


def test_a_restarted_sender_is_heard_at_once(net):
    async def test():
        a, b = net.open("a"), net.open("b")
        for number in range(3):
            a.connect("b", b.address)
            assert a.send("b", [number.to_bytes(4, "big")], Lane.CONTROL)
            await net.until(lambda number=number: len(net.inbox["b"]) == number + 1)
            a = net.restart("a", a)
        assert numbers(net.inbox["b"]) == [0, 1, 2]

    net.run(test())


@pytest.mark.slow
@pytest.mark.parametrize("ever_up", [False, True])
def test_a_dead_link_says_so_soon(net, ever_up):
    async def test():
        a, b = net.open("a"), net.open("b")
        a.connect("b", b.address)
        if ever_up:
            await net.send(a, "b", [b"x"])
            await net.until(lambda: net.inbox["b"])
        b.close()
        sent = a.counters.messages_sent
        await net.until(
            lambda: not a.send("b", [b"x"], Lane.CONTROL) and "not sent: not connected" in a.counters.dropped
        )
        assert a.counters.messages_sent <= sent + 64

    net.run(test())


def test_refused_tells_a_dead_process_from_a_live_one(net):
    async def test():
        a, b = net.open("a"), net.open("b")
        a.connect("b", b.address)
        assert not await a.refused("b", 5.0)
        await net.until(lambda: not a.problem_with("b"))
        b.close()
        while not await a.refused("b", 5.0):
            await net.until(lambda: a.problem_with("b"))  # its connections end a moment later
        net.open("b", b.address)
        assert not await a.refused("b", 5.0)

    net.run(test())


def test_a_control_message_overtakes_a_bulk_backlog(net):
    n_bulk = 48

    async def test():
        a, b = net.open("a"), net.open("b")
        a.connect("b", b.address)
        chunk = os.urandom(MAX_FRAME_BYTES)
        sent = 0

        def pump():
            nonlocal sent
            while sent < n_bulk and a.send("b", [sent.to_bytes(4, "big"), chunk], Lane.BULK):
                sent += 1
            return net.inbox["b"]

        await net.until(lambda: not a.problem_with("b"))
        await net.until(pump)
        assert a.send("b", [b"probe"], Lane.CONTROL)
        await net.until(lambda: pump() and len(net.inbox["b"]) == n_bulk + 1)
        lanes = [lane for _, _, lane in net.inbox["b"]]
        assert lanes.index(Lane.CONTROL) < n_bulk
        assert numbers(message for message in net.inbox["b"] if message[2] == Lane.BULK) == list(range(n_bulk))

    net.run(test())


def test_counters_count_what_went_through(net):
    async def test():
        a, b = net.open("a"), net.open("b")
        a.connect("b", b.address)
        await net.send(a, "b", [b"12", b"345"])
        await net.send(a, "b", [b"6789"], Lane.BULK)
        await net.until(lambda: len(net.inbox["b"]) == 2)
        assert (a.counters.messages_sent, a.counters.bytes_sent) == (2, 9)
        assert (b.counters.messages_received, b.counters.bytes_received) == (2, 9)
        assert (a.counters.messages_received, b.counters.messages_sent) == (0, 0)
        assert not a.counters.dropped
        assert not b.counters.dropped

    net.run(test())


def test_closing_ends_everything_and_can_be_repeated(net):
    async def test():
        a, b = net.open("a"), net.open("b")
        a.connect("b", b.address)
        await net.send(a, "b", [b"x"])
        a.close()
        a.close()
        assert not a.send("b", [b"x"], Lane.CONTROL)
        a.connect("b", b.address)
        assert not a.send("b", [b"x"], Lane.CONTROL)

    net.run(test())
