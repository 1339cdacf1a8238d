"""Peer processes of one machine: starting them, talking with them, and never leaving one behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from p2pclust.errors import FleetError
from p2pclust.fleet.processes.forking import Forked, ForkServer

__all__ = ["Child", "ReservedPorts"]

#: Below the range from which Linux takes the local ports of outgoing connections, so that none takes a peer's port
#: while the peer is down.
_FIRST_PORT, _LAST_PORT = 20_000, 32_000


class ReservedPorts:
    """Ports of the loopback address that belong to one fleet until they are released.

    Each is held by a socket that is bound but does not listen: a peer may listen on it, also after a restart, while
    no other fleet can reserve it.

    Parameters
    ----------
    count : int

    Attributes
    ----------
    numbers : tuple of int

    Raises
    ------
    FleetError
        If fewer than ``count`` ports are free.
    """

    def __init__(self, count: int) -> None:
        span = _LAST_PORT - _FIRST_PORT
        # Fleets that start at the same time, in one process or in several, begin to look at different places.
        start = int.from_bytes(os.urandom(4), "little") % span
        self._held: list[socket.socket] = []
        for offset in range(span):
            if len(self._held) == count:
                break
            self._hold(_FIRST_PORT + (start + offset) % span)
        self.numbers: tuple[int, ...] = tuple(holder.getsockname()[1] for holder in self._held)
        if len(self.numbers) < count:
            self.release()
            found = f"only {len(self.numbers)} of {count} ports"
            raise FleetError(f"{found} between {_FIRST_PORT} and {_LAST_PORT} are free")

    def _hold(self, port: int) -> None:
        holder = socket.socket()
        try:
            holder.bind(("127.0.0.1", port))
        except OSError:
            holder.close()
            return
        # Only after it was bound: it had to be refused where another socket holds the port, and from now on it must
        # not stand in the way of the peer, whose socket is bound with the same option.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.append(holder)

    def release(self) -> None:
        """Leave the ports to others; a second time does nothing."""
        for holder in self._held:
            holder.close()
        self._held.clear()


class Child:
    """One peer process, over all its lives. `on_line` gets what it writes, `on_exit` its exit code."""

    def __init__(
        self, name: str, directory: Path, config: Mapping[str, Any], server: ForkServer,
        on_line: Callable[[Child, dict[str, Any]], None], on_exit: Callable[[Child, int], None],
    ) -> None:  # fmt: skip
        self.name = name
        self.directory = directory
        self._server = server
        self._on_line = on_line
        self._on_exit = on_exit
        directory.mkdir(parents=True, exist_ok=True)
        self._config = directory / "peer.json"
        self._settings = dict(config)
        self.configure({})
        self.process: Forked | None = None
        self._reader: asyncio.Task[None] | None = None
        self.lives = 0
        #: How many of these have ended, with all that they wrote handed on.
        self.ends = 0
        #: Whether the device sleeps: a stopped process, whatever else stops or resumes it.
        self.asleep = False

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Change what the next life is configured with."""
        self._settings |= settings
        self._config.write_text(json.dumps(self._settings, indent=1))

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.process is not None and self.process.returncode is None

    async def start(self) -> None:
        """Begin a life."""
        self.lives += 1
        self.process = await self._server.fork(self._config, self.directory / "peer.log")
        self._reader = asyncio.get_running_loop().create_task(self._read(self.process))

    async def _read(self, process: Forked) -> None:
        while line := await process.stdout.readline():
            if line.endswith(b"\n"):  # a killed process may leave half a line
                self._on_line(self, json.loads(line))
        code = await process.wait()
        self.ends += 1
        self._on_exit(self, code)

    def send(self, request: Mapping[str, Any]) -> None:
        """Write one request; a process that is gone does not hear it."""
        if self.process is not None and self.alive and not self.process.stdin.is_closing():
            self.process.stdin.write(json.dumps(request).encode() + b"\n")

    def sleep(self) -> None:
        """Let the device sleep until it is woken."""
        self.asleep = True
        self.signal(signal.SIGSTOP)

    def wake(self, *, stays_stopped: bool = False) -> None:
        """Wake the device; with `stays_stopped` its process stands still for another reason."""
        self.asleep = False
        if not stays_stopped:
            self.signal(signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to a process that runs; that of a device that sleeps is not resumed."""
        if self.process is not None and not (self.asleep and number == signal.SIGCONT):
            self.process.send_signal(number)

    async def end(self, timeout_s: float) -> None:
        """Ask the process to leave, then make it."""
        if self.alive:
            self.wake()
            self.send({"do": "leave"})
        if self._reader is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await asyncio.shield(self._reader)
            self.signal(signal.SIGKILL)
            await self._reader

    def why(self) -> str:
        """The last line of its log."""
        lines = (self.directory / "peer.log").read_text(errors="replace").strip().splitlines()
        return lines[-1].removeprefix("error: ") if lines else "it said nothing"
