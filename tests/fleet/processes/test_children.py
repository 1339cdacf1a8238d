"""Ports, and single processes over their lives."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from p2pclust.errors import FleetError
from p2pclust.lab.testbed.processes import children
from p2pclust.lab.testbed.processes.children import Child, ForkServer, ReservedPorts


@pytest.fixture
def reserve() -> Iterator[Callable[[int], ReservedPorts]]:
    made: list[ReservedPorts] = []

    def make(count: int) -> ReservedPorts:
        made.append(ReservedPorts(count))
        return made[-1]

    yield make
    for ports in made:
        ports.release()


def listen(port: int) -> socket.socket:
    """As a peer does."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    return listener


@pytest.mark.xdist_group("alone")
def test_tests_of_a_group_stay_together(request: pytest.FixtureRequest) -> None:
    """A version of pytest for which pytest-xdist keeps no groups says nothing, and tests meet each other's ports."""
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("tests are told apart by groups with --dist loadgroup only")
    assert request.node.nodeid.endswith("@alone")


@pytest.mark.xdist_group("ports")  # two of them look at the same places on purpose
class TestReservedPorts:
    def test_are_different_and_a_peer_can_listen_again_and_again(self, reserve: Callable[[int], ReservedPorts]) -> None:
        ports = reserve(20).numbers
        assert len(set(ports)) == 20
        for _ in range(2):
            for port in ports:
                listen(port).close()

    def test_no_other_fleet_gets_them(
        self, reserve: Callable[[int], ReservedPorts], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "urandom", bytes)  # both look at the same places
        first, second = reserve(20), reserve(20)
        assert not set(first.numbers) & set(second.numbers)
        first.release()
        assert set(first.numbers) & set(reserve(40).numbers)  # not all: other tests reserve ports at the same time

    def test_none_is_taken_where_somebody_listens(
        self, reserve: Callable[[int], ReservedPorts], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "urandom", bytes)
        once = reserve(1)
        with listen(once.numbers[0]):
            once.release()
            assert once.numbers[0] not in reserve(20).numbers

    def test_lie_below_those_of_outgoing_connections(self, reserve: Callable[[int], ReservedPorts]) -> None:
        assert all(20_000 <= port < 32_000 for port in reserve(5).numbers)

    def test_too_many_and_none_is_held(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(children, "_LAST_PORT", 20_010)
        before = len(os.listdir("/dev/fd"))
        with pytest.raises(FleetError, match=r"^only \d+ of 11 ports between 20000 and 20010 are free$"):
            ReservedPorts(11)
        assert len(os.listdir("/dev/fd")) == before


@asynccontextmanager
async def a_server(home: Path) -> AsyncIterator[ForkServer]:
    server = ForkServer(home)
    await server.start()
    try:
        yield server
    finally:
        await server.close()


def nothing(child: Child, told: object) -> None:
    pass


@pytest.mark.processes
class TestChild:
    """With a configuration that no peer can use, or none that could be read."""

    def test_one_that_does_not_start_leaves_its_last_line(self, tmp_path: Path) -> None:
        lines: list[dict[str, Any]] = []
        codes: list[int] = []

        async def live() -> Child:
            async with a_server(tmp_path) as server:
                child = Child(
                    "a", tmp_path / "a", {"control": "", "name": "a", "timing": "hurried"}, server,
                    lambda child, line: lines.append(line), lambda child, code: codes.append(code),
                )  # fmt: skip
                assert not child.alive
                await child.start()
                async with asyncio.timeout(60):
                    await child.end(30.0)
                return child

        child = asyncio.run(live())
        assert (lines, codes) == ([], [2])
        assert not child.alive
        assert child.why() == "timing = 'hurried': expected one of default, wan, fast"

    def test_one_that_is_gone_hears_no_words_and_no_signals(self, tmp_path: Path) -> None:
        async def live() -> None:
            async with a_server(tmp_path) as server:
                os.mkfifo(tmp_path / "store.sqlite3", 0o600)  # read indefinitely: it has no writer
                config = {"control": "", "name": "a", "timing": "fast", "state_dir": str(tmp_path)}
                child = Child("a", tmp_path / "a", config, server, nothing, nothing)
                child.send({"do": "leave"})
                child.signal(signal.SIGKILL)
                await child.end(1.0)
                await child.start()
                child.signal(signal.SIGKILL)
                async with asyncio.timeout(60):
                    await child.end(30.0)
                child.send({"do": "leave"})
                child.signal(signal.SIGKILL)
                assert child.process is not None
                assert child.process.returncode == -signal.SIGKILL
                assert child.lives == 1

        asyncio.run(live())
