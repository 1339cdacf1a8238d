"""Ports, and single processes over their lives."""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from p2pclust.errors import FleetError
from p2pclust.fleet.children import Child, free_ports


class TestFreePorts:
    def test_are_different_and_free(self) -> None:
        ports = free_ports(20)
        assert len(set(ports)) == 20
        for port in ports:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # another fleet may just have closed it
                probe.bind(("127.0.0.1", port))

    def test_none_is_taken(self) -> None:
        with socket.socket() as holder:
            (port,) = free_ports(1)
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("127.0.0.1", port))
            holder.listen()
            assert port not in free_ports(20)

    def test_lie_below_those_of_outgoing_connections(self) -> None:
        assert all(20_000 <= port < 32_000 for port in free_ports(5))

    def test_too_many(self) -> None:
        with pytest.raises(FleetError, match=r"^only \d+ of 20000 ports between 20000 and 32000 are free$"):
            free_ports(20_000)


@pytest.mark.processes
class TestChild:
    """With a configuration that no peer can use, or none that could be read."""

    def test_one_that_does_not_start_leaves_its_last_line(self, tmp_path: Path) -> None:
        lines: list[dict[str, Any]] = []
        codes: list[int] = []

        async def live() -> Child:
            child = Child(
                "a", tmp_path / "a", {"control": "", "name": "a", "timing": "hurried"},
                lambda child, line: lines.append(line), lambda child, code: codes.append(code),
            )  # fmt: skip
            assert not child.alive
            await child.start()
            assert child.alive
            async with asyncio.timeout(30):
                await child.end(30.0)
            return child

        child = asyncio.run(live())
        assert (lines, codes) == ([], [2])
        assert not child.alive
        assert child.why() == "timing = 'hurried': expected one of default, wan, fast"

    def test_one_that_is_gone_hears_no_words_and_no_signals(self, tmp_path: Path) -> None:
        async def live() -> None:
            child = Child("a", tmp_path / "a", {}, lambda child, line: None, lambda child, code: None)
            child.tell({"do": "leave"})
            child.signal(signal.SIGKILL)
            await child.end(1.0)
            await child.start()
            child.signal(signal.SIGKILL)
            async with asyncio.timeout(30):
                await child.end(30.0)
            child.tell({"do": "leave"})
            child.signal(signal.SIGKILL)
            assert child.process is not None
            assert child.process.returncode == -signal.SIGKILL
            assert child.lives == 1

        asyncio.run(live())
