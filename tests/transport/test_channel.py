"""When messages wait and when they are given up, on a clock of the test's own."""

from __future__ import annotations

import pytest
import zmq
from tests.throwaway import throwaway_fleet
from tests.transport.clock import Clock

from p2pclust.transport.channel import Channel, Dialler
from p2pclust.transport.links import Counters, Lane


class AtOnce(Dialler):
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

    def send(socket, part, flags):
        takes[0] -= 1
        if takes[0] < 0:
            raise zmq.Again

    monkeypatch.setattr(zmq.Socket, "send", send)
    _, bundles = throwaway_fleet(["a", "b"])
    with zmq.Context() as context:
        counters = Counters()
        dialler = AtOnce(context, clock, bundles["a"], counters, None, None, None)
        given = (dialler, "b", "tcp://127.0.0.1:9", bundles["b"].curve_public)
        control = Channel(*given)
        channel = control if request.param == Lane.CONTROL else Channel(*given, control=control)

        def take(count):
            takes[0] = count

        yield channel, take, counters, 64 if request.param == Lane.CONTROL else 8
        channel.close()
        control.close()
        assert not clock.timers
        assert not clock.watched


def test_messages_wait_for_a_new_connection_until_patience_ends(channel, clock):
    channel, take, counters, room = channel
    assert all(channel.send([b"%d" % number]) for number in range(room))
    assert not channel.send([b"one too many"])
    assert counters.dropped == {"not sent: queue full": 1}
    clock.advance(2.9)
    assert not channel.send([b"one too many"])
    assert counters.dropped == {"not sent: queue full": 2}
    clock.advance(0.2)
    assert not channel.send([b"dropped with the others"])
    assert counters.dropped == {"not sent: queue full": 2, "not sent: not connected": room + 1}
    take(1)
    assert channel.send([b"taken"])
    assert channel.send([b"waits again"])


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
    take(10**6)
    assert channel.send([b"last"])
    assert counters.dropped == {}


def test_closing_forgets_what_waits(channel, clock):
    channel, _, counters, _ = channel
    channel.send([b"x"])
    channel.close()
    assert counters.dropped == {"not sent: not connected": 1}


def test_a_connection_that_was_refused_is_dialled_again_as_long_as_there_is_something_to_send(
    channel, clock, monkeypatch
):
    """But not too often: where processors are short, handshakes take long, and one that is ended never succeeds."""
    channel, _, _, _ = channel
    dialled = []
    dial = Channel.dial
    monkeypatch.setattr(Channel, "dial", lambda self: (dialled.append(clock.now), dial(self)))
    began = clock.now
    for _ in range(40):
        clock.advance(0.25)
        channel.send([b"x"])
    assert [at - began for at in dialled] == [3.25, 6.5, 9.75]
