"""What systemd is told, on a socket of the test's own."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from p2pclust.peer.operate.services import Notifier

Standing = list[tuple[bool, str]]


class Manager:
    """Stands in for systemd."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.setblocking(False)
        self.environment = {"NOTIFY_SOCKET": address}

    async def hear(self) -> dict[str, str]:
        async with asyncio.timeout(60):
            data = await asyncio.get_running_loop().sock_recv(self.socket, 4096)
        return dict(line.split("=", 1) for line in data.decode().split("\n"))


@pytest.fixture
def manager() -> Iterator[Manager]:
    # The path of a socket has at most 107 bytes.
    made = Manager(f"{tempfile.gettempdir()}/p2pclust-test-{os.getpid()}")
    yield made
    made.socket.close()
    Path(made.environment["NOTIFY_SOCKET"]).unlink()


def test_ready_once_it_has_joined_and_the_status_when_it_changes(manager: Manager) -> None:
    standing: Standing = [(False, "waiting: 1 of 5 peers are here")]

    async def live() -> None:
        notifier = Notifier(manager.environment, lambda: standing[-1], asyncio.get_running_loop())
        notifier._every_s = 0.01
        notifier.start()
        first = await manager.hear()
        assert first == {"EXTEND_TIMEOUT_USEC": "15000000", "STATUS": "waiting: 1 of 5 peers are here"}
        assert await manager.hear() == {"EXTEND_TIMEOUT_USEC": "15000000"}
        standing.append((True, "3 of 5 peers"))
        while (heard := await manager.hear()) == {"EXTEND_TIMEOUT_USEC": "15000000"}:
            pass
        assert heard == {"READY": "1", "STATUS": "3 of 5 peers"}
        standing.append((False, "waiting: 2 of 5\npeers are here"))  # one line in a datagram
        assert await manager.hear() == {"STATUS": "waiting: 2 of 5 peers are here"}, "ready once is ready"
        notifier.stopping()
        assert await manager.hear() == {"STOPPING": "1", "STATUS": "leaving"}

    asyncio.run(live())


def test_the_watchdog_is_fed_by_the_loop_three_times_as_often_as_it_must(manager: Manager) -> None:
    async def live() -> None:
        environment = manager.environment | {"WATCHDOG_USEC": "90000", "WATCHDOG_PID": str(os.getpid())}
        notifier = Notifier(environment, lambda: (True, "fine"), asyncio.get_running_loop())
        assert notifier._every_s == pytest.approx(0.03)
        notifier.start()
        assert await manager.hear() == {"READY": "1", "WATCHDOG": "1", "STATUS": "fine"}
        assert [await manager.hear() for _ in range(3)] == [{"WATCHDOG": "1"}] * 3
        notifier.stopping()

    asyncio.run(live())


def test_a_loop_that_hangs_feeds_nothing(manager: Manager) -> None:
    async def live() -> None:
        environment = manager.environment | {"WATCHDOG_USEC": "30000"}
        notifier = Notifier(environment, lambda: (True, ""), asyncio.get_running_loop())
        notifier.start()
        await manager.hear()
        select.select([], [], [], 0.1)  # the loop hangs for ten times as long as it takes to feed the watchdog once
        with pytest.raises(BlockingIOError):
            manager.socket.recv(4096)
        notifier.stopping()

    asyncio.run(live())


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"NOTIFY_SOCKET": "relative"},
        {"NOTIFY_SOCKET": "/nowhere/at/all", "WATCHDOG_USEC": "9", "WATCHDOG_PID": "1"},
    ],
)
def test_without_anybody_who_listens_a_peer_just_lives(environment: dict[str, str]) -> None:
    async def live() -> None:
        notifier = Notifier(environment, lambda: (True, "fine"), asyncio.get_running_loop())
        notifier.start()
        notifier.stopping()
        notifier.stopping()
        assert notifier._fed_s == 0.0

    asyncio.run(live())


@pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets are Linux's")
def test_a_socket_without_a_file() -> None:
    manager = Manager(f"@p2pclust-test-{os.getpid()}")

    async def live() -> None:
        notifier = Notifier(manager.environment, lambda: (True, "fine"), asyncio.get_running_loop())
        notifier.start()
        assert (await manager.hear())["READY"] == "1"
        notifier.stopping()

    asyncio.run(live())
    manager.socket.close()


def test_a_line_break_in_the_status_makes_no_word_of_its_own(manager: Manager) -> None:
    async def live() -> None:
        notifier = Notifier(
            manager.environment, lambda: (False, "2 of 5\nREADY=1\r\nSTOPPING=1"), asyncio.get_running_loop()
        )
        notifier.start()
        assert await manager.hear() == {"EXTEND_TIMEOUT_USEC": "15000000", "STATUS": "2 of 5 READY=1 STOPPING=1"}
        notifier.stopping()

    asyncio.run(live())
