"""Peer processes by way of a fork server (:mod:`p2pclust.fleet.processes.fork_server`): this is the side that asks."""

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
from pathlib import Path

from p2pclust.errors import FleetError

__all__ = ["ForkServer", "Forked"]

_MAX_LINE = 64 * 1024 * 1024  # a final state on one line
_LOG = "fork-server.log"
#: A library that started threads when it is imported could not be forked safely; and bits must not depend on them.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Forked:
    """One forked peer.

    Attributes
    ----------
    pid : int
    stdin : asyncio.WriteTransport
        Its input, whose end is its order to leave.
    stdout : asyncio.StreamReader
        What it writes.
    """

    def __init__(
        self, pid: int, stdin: asyncio.WriteTransport, stdout: asyncio.StreamReader, exit_code: asyncio.Future[int]
    ) -> None:
        self.pid = pid
        self.stdin = stdin
        self.stdout = stdout
        self._exit_code = exit_code

    @property
    def returncode(self) -> int | None:
        """How it ended, a negative number being a signal; None while it runs."""
        return self._exit_code.result() if self._exit_code.done() else None

    async def wait(self) -> int:
        """Return how it ended, once it has."""
        code = await asyncio.shield(self._exit_code)
        self.stdin.close()
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


class ForkServer:
    """A fork server of one fleet.

    Parameters
    ----------
    directory : pathlib.Path
        Where it keeps its log.
    preload : sequence of str
        Modules that it imports before the first fork, besides those of every peer.
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
        """Start it; it imports while others go on, and requests wait for it."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._requests, theirs = socket.socketpair()
        with contextlib.ExitStack() as failed, theirs, self._log.open("ab") as log:
            failed.callback(self._requests.close)
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "p2pclust.fleet.processes.fork_server", str(theirs.fileno()), *self._preload,
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=log, pass_fds=(theirs.fileno(),),
                env={**os.environ, **_ONE_THREAD},
                start_new_session=True,  # a Ctrl-C at the terminal is ours to handle
            )  # fmt: skip
            failed.pop_all()
        self._reader = asyncio.get_running_loop().create_task(self._read(self._process))

    async def fork(self, config: Path, log: Path) -> Forked:
        """Begin a peer.

        Parameters
        ----------
        config : pathlib.Path
            Its configuration.
        log : pathlib.Path
            Where its standard error goes, after what is there.

        Raises
        ------
        FleetError
            If the server has ended.
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
                    raise FleetError(f"the fork server ended: {self._why()}") from None
                raise
        return Forked(pid, stdin, stdout, exit_code)

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        loop = asyncio.get_running_loop()
        while line := await process.stdout.readline():
            told = json.loads(line)
            if "code" in told:
                self._ends.pop(told["pid"]).set_result(told["code"])
            else:
                self._ends[told["pid"]] = loop.create_future()
                born = self._unborn.popleft()
                if not born.done():  # nobody may want it any more; it finds its input at its end, and leaves
                    born.set_result((told["pid"], self._ends[told["pid"]]))
        await process.wait()
        for born in self._unborn:
            if not born.done():
                born.set_exception(FleetError(f"the fork server ended: {self._why()}"))
        for end in self._ends.values():  # they were killed with it
            end.set_result(-signal.SIGKILL)

    def _why(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    async def close(self) -> None:
        """End it, on Linux with whatever peers are left; a second time does nothing."""
        if self._process is not None:
            self._requests.close()
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()  # it holds nothing, and may be importing for seconds before it would listen
            await self._reader


def _pipe() -> tuple[io.FileIO, io.FileIO]:
    """Both ends of a pipe: where it is read and where it is written."""
    reading, writing = os.pipe()
    return io.FileIO(reading, "rb"), io.FileIO(writing, "wb")
