"""A fleet of real peer processes on this machine: CURVE on loopback, one state directory each, real signals as faults."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgpack

from p2pclust.errors import FleetError
from p2pclust.jobs.request import JobRequest
from p2pclust.lab.testbed.devices import Devices
from p2pclust.lab.testbed.driver import Driver, FleetPort, What
from p2pclust.lab.testbed.fault_engine import FaultEngine
from p2pclust.lab.testbed.power import Use
from p2pclust.lab.testbed.processes.actions import ProcessActions
from p2pclust.lab.testbed.processes.children import Child, ReservedPorts, settle_in, write_keys
from p2pclust.lab.testbed.processes.forking import ForkServer
from p2pclust.lab.testbed.record import Record
from p2pclust.lab.testbed.run_async import run_async
from p2pclust.lab.testbed.spec import FleetResult, FleetSpec, OnEvent
from p2pclust.tools.platforms import allow_files

_START_S = 60.0  # forty peers on two cores take some ten seconds, beside much other work a multiple of that
_START_EACH_S = 2.0
_ANSWER_S = 10.0
_LEAVE_S = 5.0
_FILES, _FILES_EACH = 32, 8  # that this process opens at most, in all and for each peer
_FILES_OF_PEER, _FILES_OF_LINK = 40, 5  # and a peer, with the bulk lane
_COUNTED = ("messages_sent", "messages_received", "bytes_sent", "bytes_received", "max_rss_mb", "dropped")


@dataclass(frozen=True)
class DeviceNetwork:
    """A network of a fleet's own: by peer, its address ("host:port") and the file of its network namespace."""

    addresses: Mapping[str, str]
    namespaces: Mapping[str, str]


def carry_out(
    spec: FleetSpec, on_event: OnEvent, network: contextlib.AbstractContextManager[DeviceNetwork] | None = None
) -> FleetResult:
    """Run the spec on real processes, by default on loopback; whatever happens, no process and no port is left behind.

    Raise FleetError if the fleet did not even start; UsageError if a job is not meant for so many peers.
    """
    spec.refuse_floods()
    n_peers = len(spec.peers)
    most = n_peers if spec.overlay is None else 1 + max(map(len, spec.overlay.values()), default=0)
    allow_files(
        max(_FILES + _FILES_EACH * n_peers, _FILES_OF_PEER + _FILES_OF_LINK * most), f"{n_peers} peers on this machine"
    )
    with contextlib.ExitStack() as stack:
        directory = spec.directory
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="p2pclust-")))
        own = None if network is None else stack.enter_context(network)
        return run_async(Driver(ProcessFleet(spec, directory, on_event, own)).run())


def preload(jobs: Sequence[JobRequest]) -> tuple[str, ...]:
    """Return modules that the peers of these jobs would each import late, and may share instead."""
    protocols = [protocol for request in jobs for protocol in request.job.protocols]
    return tuple(dict.fromkeys(module for protocol in protocols for module in protocol.imports))


class ProcessFleet(FleetPort):
    """The processes of one run. Peers keep their stores and logs in `directory`."""

    unit = "s"
    answer_s = _ANSWER_S
    faults_strike_submissions = True  # so a peer may be killed or restarted while it takes the first job

    def __init__(
        self, spec: FleetSpec, directory: Path, on_event: OnEvent, network: DeviceNetwork | None = None
    ) -> None:
        self.spec = spec
        self.names = tuple(sorted(peer.name for peer in spec.peers))
        self.record = Record(on_event)
        self._directory = directory
        self._began = time.monotonic()
        self._changed = asyncio.Event()
        self._sees: dict[str, dict[str, None]] = {}
        self._counters = FleetCounters(self.record, lambda: self.now)
        self._files: dict[str, bytes] = {}  # that peers have written on request, by path
        self._ended = False
        self._failed: list[str] = []
        self._network = network
        self._ports: ReservedPorts | None = None  # where no network was given
        self._server = ForkServer(directory, preload(spec.jobs))
        self.children: dict[str, Child] = {}
        self._actions = ProcessActions(spec, self.record, directory, self.children, lambda: self.now, self.advance)
        self.devices = Devices(spec, self.record, self._actions)
        self.faults = FaultEngine(spec, self.record, self._actions, self.devices)

    @property
    def now(self) -> float:
        return time.monotonic() - self._began

    # -- life of the fleet --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        await self._server.start()
        keys = self._directory / "keys"
        self._actions.keys = write_keys(self.spec, keys)
        network = self._network or self._loopback()
        for peer in sorted(self.spec.peers, key=lambda peer: peer.name):
            name, own = peer.name, self._directory / peer.name
            own.mkdir(parents=True, exist_ok=True)
            config = settle_in(self.spec, peer, own, keys, network.addresses, self._actions.armed(name))
            config["network_namespace"] = network.namespaces.get(name)
            self._sees[name] = {}
            self.children[name] = Child(name, own, config, self._server, self._on_line, self._on_exit)
        late = self.faults.late
        await asyncio.gather(*(child.start() for name, child in self.children.items() if name not in late))
        start_s = _START_S + _START_EACH_S * len(self.children)
        await self.advance(lambda: self.linked() or bool(self._failed), start_s)
        if self._failed:
            raise FleetError(f"{self._failed[0]} did not start: {self.children[self._failed[0]].why()}")
        if not self.linked():
            others = "all others" if self.spec.overlay is None else "all their neighbours"
            raise FleetError(f"{', '.join(self._apart())} not linked to {others} after {start_s:.0f} s")

    def _loopback(self) -> DeviceNetwork:
        self._ports = ReservedPorts(len(self.spec.peers))
        hosts = zip(self.names, self._ports.numbers, strict=True)
        return DeviceNetwork({name: f"127.0.0.1:{port}" for name, port in hosts}, {})

    def linked(self) -> bool:
        return not self._apart()

    def _apart(self) -> list[str]:
        """Return the running peers that have not heard of all their running neighbours."""
        overlay, running = self.spec.overlay, {name for name in self._sees if self._runs(name)}
        near = {name: running - {name} if overlay is None else running & {*overlay[name]} for name in running}
        return [name for name, seen in self._sees.items() if name in running and near[name] - set(seen)]

    def _runs(self, name: str) -> bool:
        """Return True if a peer runs, or (before the first job) is about to start or has already failed."""
        if name in self.faults.late or not self.faults.belongs(name) or self.faults.still(name):
            return False
        return not self.record.jobs or self._actions.alive(name)

    async def settle(self) -> None:
        await self._actions.settle()

    async def stop(self) -> None:
        self._ended = True
        self._actions.cancel()
        ends = await asyncio.gather(*(child.end(_LEAVE_S) for child in self.children.values()), return_exceptions=True)
        await self._server.close()
        if self._ports is not None:
            self._ports.release()
        for error in ends:  # only now: every other process has ended too
            if isinstance(error, BaseException):
                raise error

    async def advance(self, until: Callable[[], bool], timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not until():
            if self._actions.flaw is not None:
                raise self._actions.flaw
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            self._changed.clear()
            # Not wait_for: before Python 3.12 it can lose a Ctrl-C that comes together with a change.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._changed.wait()
        return True

    # -- single peers -------------------------------------------------------------------------------------------------

    def alive(self, name: str) -> bool:
        return self.children[name].alive

    def ends(self, name: str) -> int:
        return self.children[name].ends

    def answers(self, name: str) -> bool:
        return self._will_answer(name) and not self.children[name].asleep

    readable = answers

    def _will_answer(self, name: str) -> bool:
        """Whether the peer answers now, or when it wakes up."""
        return self.children[name].alive and not self._actions.paused(name) and not self.devices.gone(name)

    def submit(self, name: str, request: JobRequest) -> None:
        job = base64.b64encode(msgpack.packb(request.job.to_dict())).decode()
        self.children[name].send({"do": "submit", "job": job, "roster": [], "treatment": request.treatment.to_dict()})

    async def read(self, names: Sequence[str], what: What, key: str) -> dict[str, bytes]:
        files = {name: str(self._directory / name / f"{key}.{what}") for name in names if self._will_answer(name)}
        for name, file in files.items():
            self.children[name].send({"do": "read", "what": what, "key": key, "file": file})
        answer_s = _ANSWER_S + self.spec.quiet_s
        await self.advance(lambda: all(file in self._files for file in files.values()), answer_s)
        return {name: data for name, file in files.items() if (data := self._files.pop(file, b""))}

    async def read_counters(self) -> None:
        self._actions.cancel_timers()
        for name, child in self.children.items():
            if child.asleep and not self.devices.gone(name):
                self._actions.wake(name)
        self._ask_counters()
        await self.advance(self._counters.complete, _ANSWER_S)

    def _ask_counters(self) -> None:
        """Ask all peers that can answer what they have sent so far, without waiting for them."""
        self._counters.ask([child for name, child in self.children.items() if self.answers(name)])

    def outcome(self, name: str) -> dict[str, Any]:
        process = self.children[name].process
        lost = process is None or process.returncode != 0 or self.devices.gone(name)
        known = name in self.devices.metered or name in self._counters.asked
        counters = self._counters.last.get(name, {}) if known else {}
        return {"lost": lost} | {key: counters.get(key) for key in _COUNTED}

    def failures(self) -> Mapping[str, str]:
        return {name: f"{name} ended by itself: {self.children[name].why()}" for name in self._failed}

    # -- what processes write -----------------------------------------------------------------------------------------

    def _on_line(self, child: Child, fields: dict[str, Any]) -> None:
        verb, name = fields.pop("verb"), child.name
        match verb:
            case "counters":
                self._counters.take(name, fields)
                if name in self.devices.metered:
                    self.devices.read(name, Use(fields["bytes_sent"], fields["bytes_received"], fields["cpu_s"]))
            case "suffers":
                self._actions.confirmed(name, fields["number"])
            case "read":
                self._files[fields["file"]] = Path(fields["file"]).read_bytes()
            case _:
                self._on_event(name, verb, fields)
        self._changed.set()

    def _on_event(self, name: str, verb: str, fields: dict[str, Any]) -> None:
        t = fields.pop("t") - self._began
        if verb == "started":
            self.devices.restarted(name)
            if self.devices.asleep(name):
                self._actions.sleep(name)
        elif verb == "member":
            if fields["status"] == "alive":
                self._sees[name][fields["member"]] = None
            elif fields["status"] in ("dead", "left"):
                self._sees[name].pop(fields["member"], None)
        self.record.take(t, name, verb, fields)
        if verb == "combined" and "within" not in fields and self._counters.due and not self._ended:
            self._ask_counters()
        elif verb == "fault":
            self.faults.met(fields["number"], name)
        elif verb == "damaged":
            self.faults.note_damage(name, fields)

    def _on_exit(self, child: Child, code: int) -> None:
        self._sees[child.name] = {}
        self.record.take(self.now, child.name, "exited", {"code": code})
        if not self._ended and code not in (0, -signal.SIGKILL):
            self._failed.append(child.name)
        self._changed.set()


_APART_S: Final = 0.25  # between two requests, while rounds are closed


class FleetCounters:
    """Keeps the last counters of each peer, and records their sum when all peers have answered a request."""

    def __init__(self, record: Record, now: Callable[[], float]) -> None:
        self._record = record
        self._now = now
        self._asked_at = 0.0
        self.asked: dict[str, Child] = {}  # by the last request
        self._silent: dict[str, Child] = {}  # those of them that have not answered it
        self.last: dict[str, dict[str, Any]] = {}  # of peers that have answered once

    @property
    def due(self) -> bool:
        """Whether the last request was long enough ago."""
        return self._now() - self._asked_at >= _APART_S

    def ask(self, children: Sequence[Child]) -> None:
        """Ask these peers; stop waiting for answers to the request before."""
        self._asked_at, self.asked = self._now(), {child.name: child for child in children}
        self._silent = dict(self.asked)
        for child in children:
            child.send({"do": "counters"})

    def complete(self) -> bool:
        """Whether all peers that were asked, and still run, have answered."""
        return not any(child.alive for child in self._silent.values())

    def take(self, name: str, counters: dict[str, Any]) -> None:
        """Take the counters that a peer reported."""
        self.last[name] = counters
        if name in self._silent:
            del self._silent[name]
            if not self._silent:
                self._record.load(self._now(), self.last)
