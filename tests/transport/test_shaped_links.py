"""ZeroMQ's links as another device has them: nothing is promised about time here, only about order, loss and ends."""

from __future__ import annotations

import numpy as np

from p2pclust.lab.links.delayed import shape_own
from p2pclust.lab.links.shaping import Shape
from p2pclust.transport.links import Lane


def shaped(net, name, seed=0, **link):
    links = net.open(name)
    shape_own(links, Shape.of(**link), np.random.default_rng(seed), {})
    return links


def test_messages_arrive_in_order_and_are_counted_where_they_end(net):
    async def test():
        a = shaped(net, "a", latency_ms=2, jitter_ms=2, up_mbit=50)
        b = shaped(net, "b", latency_ms=2, jitter_ms=2, down_mbit=50)
        a.connect("b", b.address)
        frames = [[b"%d" % number, b"x" * 1000] for number in range(8)]
        for message in frames:
            assert a.send("b", message, Lane.BULK)
        assert a.counters.messages_sent == 0
        await net.until(lambda: len(net.inbox["b"]) == 8)
        assert net.inbox["b"] == [("a", message, Lane.BULK) for message in frames]
        size = sum(len(frame) for message in frames for frame in message)
        assert (a.counters.messages_sent, a.counters.bytes_sent) == (8, size)
        assert (b.counters.messages_received, b.counters.bytes_received) == (8, size)

    net.run(test())


def test_a_transfer_takes_no_less_than_its_rate_allows(net):
    async def test():
        a, b = shaped(net, "a", up_mbit=4), net.open("b")
        a.connect("b", b.address)
        await net.send(a, "b", [b"hello"])
        await net.until(lambda: net.inbox["b"])
        began = a._loop.time()
        for _ in range(4):
            a.send("b", [b"x" * 25_000], Lane.BULK)
        await net.until(lambda: len(net.inbox["b"]) == 5)
        assert a._loop.time() - began >= 0.9 * 4 * 25_000 / 500_000

    net.run(test())


def test_what_is_lost_was_sent_and_is_counted(net):
    async def test():
        a, b = shaped(net, "a", seed=1, loss=0.5), net.open("b")
        a.connect("b", b.address)
        for _ in range(40):
            a.send("b", [b"12345"], Lane.CONTROL)
        await net.until(lambda: a.counters.messages_sent == 40)
        lost = a.counters.dropped["lost: on the shaped link"]
        assert 5 < lost < 35
        await net.until(lambda: len(net.inbox["b"]) == 40 - lost)
        assert a.counters.bytes_sent == 200

    net.run(test())


def test_last_words_leave_at_once(net):
    async def test():
        a, b = shaped(net, "a"), net.open("b")
        a.connect("b", b.address)
        await net.send(a, "b", [b"hello"])
        await net.until(lambda: net.inbox["b"])
        shape_own(a, Shape.of(latency_ms=60_000), np.random.default_rng(0), {})
        a.send("b", [b"good-bye"], Lane.CONTROL)
        a.close(1.0)
        await net.until(lambda: [frames for _, frames, _ in net.inbox["b"]] == [[b"hello"], [b"good-bye"]])

    net.run(test())


def test_a_full_queue_refuses(net):
    async def test():
        a, b = shaped(net, "a", up_mbit=0.001), net.open("b")
        a.connect("b", b.address)
        taken = [a.send("b", [b"x" * 1_000_000], Lane.BULK) for _ in range(6)]
        assert taken == [True] * 4 + [False] * 2
        assert a.counters.dropped == {"lost: the queue of the shaped link is full": 2}

    net.run(test())


def test_a_refused_port_is_seen_over_a_shaped_link_too(net):
    async def test():
        a, b = shaped(net, "a", latency_ms=1), net.open("b")
        a.connect("b", b.address)
        assert not await a.refused("b", 5.0)
        await net.until(lambda: not a.problem_with("b"))
        b.close()
        await net.until(lambda: a.problem_with("b"))
        assert await a.refused("b", 5.0)

    net.run(test())


def test_a_link_that_ended_as_soon_as_it_was_seen_had_worked(net):
    async def test():
        a, b = net.open("a"), net.open("b")
        a.connect("b", b.address)
        await net.until(lambda: a._links["b"].control._socket is not None)
        a._links["b"].control._drain.close()  # as if the loop had no turn for it
        await net.until(lambda: not a.problem_with("b"))
        b.close()
        await net.until(lambda: a.problem_with("b"))
        assert await a.refused("b", 5.0)

    net.run(test())
