"""Peer processes of one machine: their folders, starting them through a fork server, requests, and their ends in every case.

Their server is `p2pclust.lab.testbed.processes.fork_server`.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import math
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from p2pclust.errors import FleetError, UsageError
from p2pclust.lab.testbed.spec import FleetSpec, PeerSpec
from p2pclust.transport.bundle import ROSTER, Bundle, check_name
from p2pclust.transport.key_files import exclusive, write
from p2pclust.transport.keys import generate, new_device
from p2pclust.transport.roster import Roster, RosterPeer, sign

#: Below the range from which Linux takes the local ports of outgoing connections: none takes the port of a peer that is
#: down.
_FIRST_PORT, _LAST_PORT = 20_000, 32_000
_MOST_NICE = 9  # the worker's own ten come on top
_MAX_LINE = 64 * 1024 * 1024  # of a report
_LOG = "fork-server.log"
_SERVER = "p2pclust.lab.testbed.processes.fork_server"
#: A library that starts threads on import could not be forked safely, and bits must not depend on the number of threads.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class ReservedPorts:
    """Ports of the loopback address that belong to one fleet until they are released.

    On Linux each is held by a socket that is bound but does not listen: a peer can listen on it, also after a restart, and
    no other fleet can reserve it. Elsewhere two sockets cannot be bound to one address even with SO_REUSEADDR, so ports are
    only looked for; two fleets that begin in the same instant rarely meet, as each searches from a port of its own.

    Raise FleetError if fewer than ``count`` ports are free.
    """

    def __init__(self, count: int) -> None:
        span = _LAST_PORT - _FIRST_PORT
        # Fleets that start at the same time, in one process or in several, search from different ports.
        start = int.from_bytes(os.urandom(4), "little") % span
        self._held: list[socket.socket] = []
        for offset in range(span):
            if len(self._held) == count:
                break
            holder = socket.socket()
            try:
                holder.bind(("127.0.0.1", _FIRST_PORT + (start + offset) % span))
            except OSError:
                holder.close()
                continue
            # Set only after binding: binding had to fail where another socket holds the port; from now on the peer, whose
            # socket has the same option, must be able to bind.
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._held.append(holder)
        self.numbers: tuple[int, ...] = tuple(holder.getsockname()[1] for holder in self._held)
        if len(self.numbers) < count:
            self.release()
            found = f"only {len(self.numbers)} of {count} ports"
            raise FleetError(f"{found} between {_FIRST_PORT} and {_LAST_PORT} are free")
        if sys.platform != "linux":
            self.release()

    def release(self) -> None:
        """Release the ports; a second call does nothing."""
        for holder in self._held:
            holder.close()
        self._held.clear()


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


class Child:
    """One peer process, over all its lives. `on_line` receives each object that it writes, `on_exit` its exit code."""

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
        #: Lives that have ended, with all of their output passed on.
        self.ends = 0
        #: Whether the device sleeps: its process stays stopped, even if a fault resumes it.
        self.asleep = False

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Change the configuration of the next life."""
        self._settings |= settings
        self._config.write_text(json.dumps(self._settings, indent=1))

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.returncode is None

    async def start(self) -> None:
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
        """Send one request, if the process runs."""
        if self.process is not None and self.alive and not self.process.stdin.is_closing():
            self.process.stdin.write(json.dumps(request).encode() + b"\n")

    def sleep(self) -> None:
        self.asleep = True
        self.signal(signal.SIGSTOP)

    def wake(self, *, stays_stopped: bool = False) -> None:
        """Wake the device; with `stays_stopped`, a fault keeps its process stopped."""
        self.asleep = False
        if not stays_stopped:
            self.signal(signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal if the process runs; SIGCONT only if the device is awake."""
        if self.process is not None and not (self.asleep and number == signal.SIGCONT):
            self.process.send_signal(number)

    async def end(self, timeout_s: float) -> None:
        """Ask the process to leave, and kill it after the timeout."""
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
        return last_line(self.directory / "peer.log")


class Throwaway:
    """A fleet in memory whose roster may change: this object keeps its signing key. Its peers do not sign facts.

    Examples
    --------
    >>> fleet = Throwaway(["ward-01", "ward-02"])
    >>> before = fleet.roster.serial
    >>> fleet.revoke("ward-02").names, fleet.roster.serial > before
    (('ward-01',), True)
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._key = generate()
        fleet_public = self._key.public_key().public_bytes_raw()
        peers: list[RosterPeer] = []
        self.bundles: dict[str, Bundle] = {}
        for name in names:
            if check_name(name) in self.bundles:
                raise UsageError(f"the peer name {name!r} is given twice: give every peer its own name")
            peer, self.bundles[name] = new_device(name, fleet_public)
            peers.append(peer)
        self.roster = sign(self._key, len(peers), peers)

    def revoke(self, name: str) -> Roster:
        """Remove a peer from the roster, and return the new one."""
        left = [peer for peer in self.roster.peers if peer.name != name]
        self.roster = sign(self._key, self.roster.serial + 1, left)
        return self.roster

    def claim(self, other: Roster) -> Roster:
        """Return a roster of this fleet that also lists the peers of another, as an impostor could make it."""
        return sign(self._key, other.serial, (*self.roster.peers, *other.peers))


def write_fleet(directory: Path | str, roster: Roster, bundles: Mapping[str, Bundle]) -> None:
    """Write the files of a fleet in memory without syncing them: they are for one run only."""
    directory = Path(directory)
    with exclusive(directory, create=True):
        write(directory / ROSTER, roster.to_bytes(), 0o644, durable=False)
        for name, bundle in bundles.items():
            write(directory / f"{name}.bundle", bundle.to_bytes(), 0o600, durable=False)


def write_keys(spec: FleetSpec, directory: Path) -> Throwaway:
    """Make the keys of a run; a stranger has the keys of its own fleet, on whose roster it put all other peers."""
    fleet = Throwaway(sorted(peer.name for peer in spec.peers if peer.enrolled))
    write_fleet(directory, fleet.roster, fleet.bundles)
    for peer in spec.peers:
        if not peer.enrolled:
            own = Throwaway([peer.name])
            write_fleet(directory / peer.name, own.claim(fleet.roster), own.bundles)
    return fleet


def settle_in(
    spec: FleetSpec, peer: PeerSpec, directory: Path, keys: Path, addresses: Mapping[str, str],
    faults: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:  # fmt: skip
    """Write a peer's data into its own directory, and return the configuration of its process.

    :func:`write_keys` wrote the directory `keys`. The peer carries out the faults, which are by round, itself.
    """
    if not peer.enrolled:
        keys /= peer.name
    np.save(directory / "data.npy", peer.X, allow_pickle=False)
    files = {}
    for what, values in (("ids", peer.ids), ("centers", peer.centers), ("labels", peer.labels)):
        if values is not None:
            np.save(directory / f"{what}.npy", values, allow_pickle=False)
            files[what] = str(directory / f"{what}.npy")
    config: dict[str, Any] = {
        "name": peer.name, "listen": addresses[peer.name], "stdio": True,
        "join": {other.name: addresses[other.name] for other in spec.peers if other.enrolled and other is not peer},
        "overlay": spec.overlay, "partial_view": spec.partial_view, "quiet_s": spec.quiet_s, "timing": spec.timing,
        "bundle": str(keys / f"{peer.name}.bundle"), "roster": str(keys / "roster.json"),
        "data": str(directory / "data.npy"), "state_dir": str(directory / "state"),
        "fitness": peer.fitness, "n_clusters": peer.n_clusters, "faults": list(faults), "link": None,
        # A small share also means a lower priority: each step of ``nice`` is worth a factor of 1.25 to Linux.
        "cpu_share": peer.cpu_share, "nice": min(_MOST_NICE, round(math.log(1 / peer.cpu_share, 1.25))),
        "memory_mb": peer.memory_mb,
    }  # fmt: skip
    if peer.link is not None:
        # With its own seed a link loses the same messages in every run of a scenario, if the messages are the same.
        seed = [spec.seed, 4, [other.name for other in spec.peers].index(peer.name)]
        rates = {other.name: other.link.up.rate for other in spec.peers if other.link is not None}
        limited = {name: rate for name, rate in rates.items() if math.isfinite(rate)}
        config["link"] = {"shape": peer.link.to_dict(), "seed": seed, "rates": limited}
    return config | files
