"""Starts peer processes through a fork server: the client of :mod:`p2pclust.lab.testbed.processes.fork_server`."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from p2pclust.errors import FleetError

_MAX_LINE = 64 * 1024 * 1024  # of a report
_LOG = "fork-server.log"
_SERVER = "p2pclust.lab.testbed.processes.fork_server"
#: A library that starts threads on import could not be forked safely, and bits must not depend on the number of threads.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Forked:
    """One forked peer. When its input ends, it leaves."""

    pid: int
    stdin: asyncio.WriteTransport
    stdout: asyncio.StreamReader
    exit_code: asyncio.Future[int]

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self.exit_code.result() if self.exit_code.done() else None

    async def wait(self) -> int:
        code = await asyncio.shield(self.exit_code)
        self.stdin.close()
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


class ForkServer:
    """The fork server of one fleet, whose log is in `directory`.

    `preload` are modules that it imports before the first fork, besides those of every peer.
    """

    def __init__(self, directory: Path, preload: Sequence[str] = ()) -> None:
        self._log = directory / _LOG
        self._preload = tuple(preload)
        self._process: asyncio.subprocess.Process | None = None
        self._requests: socket.socket
        self._reader: asyncio.Task[None]
        self._unborn: deque[asyncio.Future[tuple[int, asyncio.Future[int]]]] = deque()  # in the order of the requests
        self._ends: dict[int, asyncio.Future[int]] = {}

    async def start(self) -> None:
        """Start the server; requests wait while it imports."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._requests, theirs = socket.socketpair()
        with contextlib.ExitStack() as failed, theirs, self._log.open("ab") as log:
            failed.callback(self._requests.close)
            # -P: not what lies in the working folder, which may be a checkout without the compiled kernels.
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", _SERVER, str(theirs.fileno()), *self._preload,
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=log, pass_fds=(theirs.fileno(),),
                env={**os.environ, **_ONE_THREAD},
                start_new_session=True,  # Ctrl-C at the terminal goes to this process only
            )  # fmt: skip
            failed.pop_all()
        self._reader = asyncio.get_running_loop().create_task(self._read(self._process))

    async def fork(self, config: Path, log: Path) -> Forked:
        """Start a peer with this configuration; its standard error is appended to the log.

        Raise FleetError if the server has ended.
        """
        loop = asyncio.get_running_loop()
        theirs_in, ours_in = _pipe()
        ours_out, theirs_out = _pipe()
        with theirs_in, theirs_out, log.open("ab") as stderr:
            stdout = asyncio.StreamReader(limit=_MAX_LINE)
            heard, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdout), ours_out)
            stdin, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, ours_in)
            born: asyncio.Future[tuple[int, asyncio.Future[int]]] = loop.create_future()
            self._unborn.append(born)
            try:
                descriptors = [file.fileno() for file in (theirs_in, theirs_out, stderr)]
                socket.send_fds(self._requests, [os.fsencode(config) + b"\n"], descriptors)
                pid, exit_code = await born
            except BaseException as error:
                heard.close()
                stdin.close()
                if isinstance(error, OSError):
                    raise FleetError(f"the fork server ended: {last_line(self._log)}") from None
                raise
        return Forked(pid, stdin, stdout, exit_code)

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        loop = asyncio.get_running_loop()
        while line := await process.stdout.readline():
            report = json.loads(line)
            if "code" in report:
                self._ends.pop(report["pid"]).set_result(report["code"])
            else:
                self._ends[report["pid"]] = loop.create_future()
                born = self._unborn.popleft()
                if not born.done():  # otherwise the request was cancelled: the peer finds its input closed and leaves
                    born.set_result((report["pid"], self._ends[report["pid"]]))
        await process.wait()
        for born in self._unborn:
            if not born.done():
                born.set_exception(FleetError(f"the fork server ended: {last_line(self._log)}"))
        for end in self._ends.values():  # the peers were killed with the server
            end.set_result(-signal.SIGKILL)

    async def close(self) -> None:
        """Kill the server, and on Linux the peers that are left; a second call does nothing."""
        if self._process is not None:
            self._requests.close()
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()  # it may be importing for seconds before it would notice anything else
            await self._reader


def last_line(log: Path) -> str:
    """Return why a process ended: the last line of its log."""
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("error: ") if lines else "its log is empty"


def _pipe() -> tuple[io.FileIO, io.FileIO]:
    reading, writing = os.pipe()
    return io.FileIO(reading, "rb"), io.FileIO(writing, "wb")
