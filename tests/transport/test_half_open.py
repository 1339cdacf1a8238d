"""Strangers' connections do not use up the files that a process may have open, and peers' connections stay."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket as plain
import time

import pytest
from tests.transport.clock import Clock

from p2pclust.tools.platforms import allow_files
from p2pclust.transport import arrivals
from p2pclust.transport.links import Lane


@pytest.fixture
def few_files(monkeypatch):
    """As if this process might have 40 more files open than it has, the last ten of them a quarter of all."""
    free = os.dup(0)
    os.close(free)
    most = (free + 30) * 4 // 3
    monkeypatch.setattr(resource, "getrlimit", lambda what: (most, most))


def strangers(stack, address, n):
    """So many connections that say one byte."""
    host, port = address.rsplit(":", 1)
    for _ in range(n):
        stack.enter_context(plain.create_connection((host, int(port)))).sendall(b"\xff")


async def crowd(stack, address, told):
    """Let strangers come until the peer says so.

    From a thread, because libzmq may accept some before the loop looks; and for longer than the pause after a look that
    came before libzmq had accepted any.
    """
    end = time.monotonic() + 20.0
    for _ in range(6):
        await asyncio.to_thread(strangers, stack, address, 10)
    while not told:
        assert time.monotonic() < end, "the strangers were let in"
        with contextlib.ExitStack() as one:
            await asyncio.to_thread(strangers, one, address, 1)


def test_connections_without_a_message_are_ended_when_few_files_are_left(net, few_files):
    async def test():
        b, told = net.open("b"), []
        b.on_crowd = told.append
        a = net.open("a")
        a.connect("b", b.address)
        await net.send(a, "b", [b"before"])
        await net.until(lambda: net.inbox["b"])
        with contextlib.ExitStack() as stack:
            await crowd(stack, b.address, told)
            await net.send(a, "b", [b"after"])
            await net.until(lambda: len(net.inbox["b"]) == 2)
        assert b.counters.dropped["not admitted: too many connections"] == sum(told)
        assert a.counters.dropped == {}, "the connection of a peer was ended too"

    net.run(test())


def test_they_are_ended_also_when_no_descriptor_is_left(monkeypatch):
    """Then the list of open files cannot be read either: strangers that come at once kept all of them for three seconds."""
    told = []
    guard = arrivals.HalfOpen(Clock(), arrivals.Arrivals(), told.append)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(plain.create_server(("127.0.0.1", 0)))
        ours = [stack.enter_context(plain.create_connection(listening.getsockname())) for _ in range(3)]
        theirs = [stack.enter_context(listening.accept()[0]) for _ in ours]
        guard.watch(f"127.0.0.1:{listening.getsockname()[1]}")
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, most[1]))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, most)
        with pytest.raises(OSError, match="Too many open files"):
            os.listdir("/dev/fd")
        guard._incoming()
        assert told == [len(theirs)]
        assert [connection.recv(1) for connection in ours] == [b""] * len(ours)
        guard.close()


def test_a_connection_that_no_descriptor_was_left_for_is_opened_later(net):
    most = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def test():
        a, b = net.open("a"), net.open("b")
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, most[1]))
        try:
            a.connect("b", b.address)
            await net.until(lambda: "not connected: too many open files" in a.counters.dropped)
            assert not await a.refused("b", 5.0)  # not known
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, most)
        await net.send(a, "b", [b"x"])
        await net.until(lambda: net.inbox["b"])

    net.run(test())


def test_connections_are_left_alone_while_there_are_files(net):
    async def test():
        a, b, told = net.open("a"), net.open("b"), []
        b.on_crowd = told.append  # an exception would end in the loop's log
        with contextlib.ExitStack() as stack:
            strangers(stack, b.address, 20)
            a.connect("b", b.address)
            await net.send(a, "b", [b"x"])
            await net.until(lambda: net.inbox["b"])
        assert told == []

    net.run(test())


def test_a_large_fleet_is_not_looked_at_with_every_connection(net, monkeypatch):
    """Where all connections are those of peers, there is nothing to end."""
    looks = []
    sockets = arrivals._sockets

    def nothing():
        looks.append(1)
        return iter(())

    async def test():
        a, b, c = net.open("a"), net.open("b"), net.open("c")
        a.connect("b", b.address)
        await net.send(a, "b", [b"x"])
        await net.until(lambda: net.inbox["b"])
        monkeypatch.setattr(arrivals.HalfOpen, "_few_left", lambda self: True)
        monkeypatch.setattr(arrivals, "_sockets", nothing)
        for _ in range(20):
            b.half_open._incoming()
        assert len(looks) == 1
        monkeypatch.setattr(arrivals, "_sockets", sockets)
        c.connect("b", b.address)
        await net.send(c, "b", [b"y"])
        await net.until(lambda: len(net.inbox["b"]) == 2)

    net.run(test())


def test_a_pending_connection_does_not_keep_the_loop_awake(monkeypatch):
    """Until libzmq's thread accepts it, the listening socket stays readable: the loop must not turn around that."""
    clock = Clock()
    guard = arrivals.HalfOpen(clock, arrivals.Arrivals(), pytest.fail)
    with plain.create_server(("127.0.0.1", 0)) as listening:
        guard.watch(f"127.0.0.1:{listening.getsockname()[1]}")
        watched = {listening.fileno()}
        assert clock.watched == watched
        guard._incoming()
        assert not clock.watched
        clock.advance(0.1)
        assert clock.watched == watched
        guard._incoming()
        guard.close()
    assert not clock.timers


def test_the_limit_of_open_files_is_raised_as_far_as_it_goes(monkeypatch):
    limits = []
    monkeypatch.setattr(resource, "getrlimit", lambda what: (256, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda what, limit: limits.append((what, limit)))
    allow_files(1, "this", most=True)
    assert limits == [(resource.RLIMIT_NOFILE, (4096, 4096))]


def test_bulk_connections_are_known_as_well(net, few_files):
    async def test():
        a, b = net.open("a"), net.open("b")
        told = []
        b.on_crowd = told.append
        a.connect("b", b.address)
        for lane in (Lane.CONTROL, Lane.BULK):
            await net.send(a, "b", [b"x"], lane)
        await net.until(lambda: len(net.inbox["b"]) == 2)
        with contextlib.ExitStack() as stack:
            await crowd(stack, b.address, told)
            before = b._arrivals.origins
            await net.send(a, "b", [b"y"], Lane.BULK)
            await net.until(lambda: len(net.inbox["b"]) == 3)
        assert b._arrivals.origins == before

    net.run(test())
