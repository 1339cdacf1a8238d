"""In which order connections begin, and how many at once."""

from __future__ import annotations

from typing import Any

import pytest
from tests.throwaway import throwaway_fleet
from tests.transport.clock import Clock

from p2pclust.transport.channel import Dialler
from p2pclust.transport.links import Counters


class Connection:
    """Notes that it was dialled; cannot begin while its peer is `hindered`."""

    hindered: str = ""

    def __init__(self, peer: str, dialled: list[str]) -> None:
        self.peer = peer
        self._dialled = dialled

    def dial(self) -> bool:
        self._dialled.append(self.peer)
        return self.peer not in self.hindered


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def fleet(clock: Clock) -> tuple[Dialler, dict[str, Connection], list[str]]:
    """Peer "e" of ten, which has asked for connections to all others."""
    dialled: list[str] = []
    loop: Any = clock
    unused: Any = None
    dialler = Dialler(unused, loop, throwaway_fleet(["e"])[1]["e"], Counters(), unused, unused, unused)
    connections = {peer: Connection(peer, dialled) for peer in "abcdfghij"}
    for connection in connections.values():
        dialler.ask(connection)
    return dialler, connections, dialled


Fleet = tuple[Dialler, dict[str, Connection], list[str]]


def test_a_few_begin_and_each_makes_room_for_the_next(fleet: Fleet, clock: Clock) -> None:
    dialler, connections, dialled = fleet
    clock.advance(0.0)
    assert dialled == ["d", "c", "b", "a"]  # down the alphabet from its own name
    dialler.up(connections["c"], 0.1)
    dialler.done(connections["a"])
    clock.advance(0.1)
    assert dialled[4:] == []  # the others are to dial this peer
    clock.advance(0.15)
    clock.advance(0.0)
    assert dialled[4:] == ["j", "i"]  # but they have not: then from the last name on


def test_a_peer_that_has_connected_itself_is_not_dialled(fleet: Fleet, clock: Clock) -> None:
    dialler, connections, dialled = fleet
    for peer in "dcbaji":
        dialler.done(connections[peer])
    clock.advance(0.2)
    clock.advance(0.0)
    assert dialled == ["h", "g", "f"]


def test_a_connection_for_something_large_is_next(fleet: Fleet, clock: Clock) -> None:
    dialler, connections, dialled = fleet
    clock.advance(0.0)
    dialler.ask(Connection("f", dialled), hurried=True)
    dialler.done(connections["d"])
    clock.advance(0.0)
    assert dialled[4:] == ["f"]


def test_absent_peers_hold_up_the_others_for_a_short_time_only(fleet: Fleet, clock: Clock) -> None:
    _, connections, dialled = fleet
    for _ in range(2):
        clock.advance(0.0)
        clock.advance(0.6)
    clock.advance(0.0)
    assert sorted(dialled) == sorted(connections)


def test_where_handshakes_take_long_the_next_waits_longer(fleet: Fleet, clock: Clock) -> None:
    dialler, connections, dialled = fleet
    clock.advance(0.2)
    for peer in "dcba":
        dialler.up(connections[peer], 2.0)
    clock.advance(0.0)
    assert len(dialled) == 8
    clock.advance(3.0)
    assert len(dialled) == 8
    clock.advance(2.0)
    clock.advance(0.0)
    assert len(dialled) == 9


def test_what_is_closed_is_not_dialled(fleet: Fleet, clock: Clock) -> None:
    dialler, connections, dialled = fleet
    dialler.done(connections["d"])
    clock.advance(0.0)
    clock.advance(0.2)
    clock.advance(0.0)
    assert dialled == ["c", "b", "a", "j"]
    dialler.done(connections["c"])
    dialler.close()
    clock.advance(10.0)
    assert dialled == ["c", "b", "a", "j"]
    assert not clock.timers


def test_what_cannot_begin_is_tried_again_later(fleet: Fleet, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """No descriptor was free: a connection that was not tried again stayed down until the process ended."""
    dialler, connections, dialled = fleet
    monkeypatch.setattr(Connection, "hindered", "dc")
    clock.advance(0.0)
    assert dialled == ["d", "c", "b", "a"]
    dialler.done(connections["c"])  # closed meanwhile
    clock.advance(0.0)
    monkeypatch.setattr(Connection, "hindered", "")
    for _ in range(6):
        clock.advance(0.5)
        clock.advance(0.0)
    assert sorted(dialled) == sorted([*connections, "d"])


def test_all_of_a_mesh_get_through(net: Any) -> None:
    """Eight connections each, four at a time, on real sockets."""
    net = type(net)("abcdefghi")

    async def test() -> None:
        links = {name: net.open(name) for name in "abcdefghi"}
        pairs = [(name, other) for name in links for other in links if other != name]
        for name, other in pairs:
            links[name].connect(other, links[other].address)
        for name, other in pairs:
            await net.send(links[name], other, [b"hello"])
        await net.until(lambda: all(len({source for source, *_ in inbox}) == 8 for inbox in net.inbox.values()))

    net.run(test())
