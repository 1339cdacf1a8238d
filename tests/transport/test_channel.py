"""When messages wait and when they are given up, on a clock of the test's own."""

from __future__ import annotations

import asyncio

import pytest
import zmq

from p2pclust.transport.channel import Channel
from p2pclust.transport.keys import throwaway_fleet
from p2pclust.transport.links import Counters, Lane


class Clock:
    """As much of an event loop as a channel uses."""

    def __init__(self):
        self.now = 100.0
        self.timers = []
        self.watched = set()

    def time(self):
        return self.now

    def call_at(self, when, callback):
        handle = asyncio.TimerHandle(when, callback, (), self)
        self.timers.append(handle)
        return handle

    def _timer_handle_cancelled(self, handle):
        self.timers.remove(handle)

    def get_debug(self):
        return False

    def call_soon(self, callback):
        raise AssertionError("the socket of these tests never becomes writable")

    def add_reader(self, fd, callback):
        self.watched.add(fd)

    def remove_reader(self, fd):
        self.watched.remove(fd)

    def advance(self, seconds):
        self.now += seconds
        for handle in [handle for handle in self.timers if handle.when() <= self.now]:
            self.timers.remove(handle)
            handle._run()


class AtOnce:
    """A dialler without other connections."""

    def ask(self, connection, *, hurried=False):
        connection.dial()

    def up(self, connection, after_s):
        pass

    def done(self, connection):
        pass


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=list(Lane))
def channel(request, clock, monkeypatch):
    """A channel whose socket takes as many messages as the test says, and no more."""
    takes = [0]

    def push(self, parts):
        takes[0] -= 1
        return takes[0] >= 0

    monkeypatch.setattr(Channel, "_push", push)
    _, bundles = throwaway_fleet(["a", "b"])
    with zmq.Context() as context:
        their_key = bundles["b"].curve_public
        counters = Counters()
        endpoint = "tcp://127.0.0.1:9"
        channel = Channel(context, clock, bundles["a"], endpoint, their_key, request.param, counters, AtOnce(), "b")

        def take(count):
            takes[0] = count

        yield channel, take, counters, 64 if request.param == Lane.CONTROL else 8
        channel.close()


def test_messages_wait_for_a_new_connection_until_patience_ends(channel, clock):
    channel, take, counters, room = channel
    assert all(channel.send([b"%d" % number]) for number in range(room))
    assert not channel.send([b"one too many"])
    assert counters.dropped == {"not sent: queue full": 1}
    clock.advance(1.9)
    assert len(clock.watched) == 1
    clock.advance(1.0)
    assert not clock.watched
    assert not clock.timers
    assert counters.dropped == {"not sent: queue full": 1, "not sent: not connected": room}
    assert not channel.send([b"refused at once"])
    take(1)
    assert channel.send([b"taken"])
    assert channel.send([b"waits again"])
    assert len(clock.timers) == 1


def test_progress_renews_patience_and_keeps_the_order(channel, clock):
    channel, take, counters, room = channel
    for _ in range(room):
        assert channel.send([b"x"])
    clock.advance(1.5)
    for _ in range(20):
        take(1)
        assert channel.send([b"x"])  # one leaves the queue, and one joins it
        clock.advance(0.2)
    assert "not sent: not connected" not in counters.dropped
    take(1)
    assert not channel._flush()
    clock.advance(0.9)
    assert len(clock.timers) == len(clock.watched) == 1
    take(10**6)
    assert channel.send([b"last"])
    assert not clock.timers
    assert not clock.watched


def test_closing_forgets_what_waits(channel, clock):
    channel, _, counters, _ = channel
    channel.send([b"x"])
    channel.close()
    assert not clock.timers
    assert not clock.watched
    assert counters.dropped == {"not sent: not connected": 1}


def test_each_revival_waits_twice_as_long_as_the_one_before(channel, clock, monkeypatch):
    """Where processors are short, handshakes take long: ending them again and again would never let one succeed."""
    channel, _, _, _ = channel
    dialled = []
    dial = Channel.dial
    monkeypatch.setattr(Channel, "dial", lambda self: (dialled.append(clock.now), dial(self)))
    began = clock.now
    for _ in range(62):
        clock.advance(0.25)
        channel.revive()  # a connection of the peer has come
    assert [at - began for at in dialled] == [0.5, 1.5, 3.5, 7.5, 15.5]
