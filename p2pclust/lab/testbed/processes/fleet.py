"""A fleet of real peer processes on this machine: CURVE on loopback, one state directory each, real signals as faults.

A device that sleeps is a stopped process: the kernel accepts what arrives meanwhile, as an access point would, and the
process reads it when it continues.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import math
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import msgpack
import numpy as np

from p2pclust.errors import FleetError
from p2pclust.jobs.request import JobRequest
from p2pclust.lab.testbed.driver import Driver, FleetPort, What
from p2pclust.lab.testbed.fault_engine import conditions_of
from p2pclust.lab.testbed.faults import PAIR, Cuts
from p2pclust.lab.testbed.peer.conditions import PlannedFault
from p2pclust.lab.testbed.power import Use
from p2pclust.lab.testbed.processes.children import Child, ForkServer, ReservedPorts, Throwaway, settle_in, write_keys
from p2pclust.lab.testbed.record import Record
from p2pclust.lab.testbed.run_async import run_async
from p2pclust.lab.testbed.spec import FleetResult, FleetSpec, OnEvent
from p2pclust.tools.platforms import allow_files
from p2pclust.transport.bundle import ROSTER

_START_S = 60.0  # forty peers on two cores take some ten seconds, beside much other work a multiple of that
_START_EACH_S = 2.0
_ANSWER_S = 10.0
_LEAVE_S = 5.0
_ENDS_S = 10.0  # how long a killed process may take to end, or a peer to confirm a fault
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
    n_files = max(_FILES + _FILES_EACH * n_peers, _FILES_OF_PEER + _FILES_OF_LINK * most)
    allow_files(n_files, f"{n_peers} peers on this machine")
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
    """The processes of one run.

    In `directory`, peers keep their stores and logs, and decide which of them a fault strikes; damaged rows are kept there.
    """

    unit = "s"
    answer_s = _ANSWER_S
    faults_strike_submissions = True  # so a peer may be killed or restarted while it takes the first job

    def __init__(
        self, spec: FleetSpec, directory: Path, on_event: OnEvent, network: DeviceNetwork | None = None
    ) -> None:
        super().__init__(spec, on_event)
        self._directory = directory
        self._began = time.monotonic()
        self._changed = asyncio.Event()
        self._sees: dict[str, dict[str, None]] = {}
        self._counters = FleetCounters(self.record, lambda: self.now)
        self._files: dict[str, bytes] = {}  # that peers have written on request, by path
        self._stops = False
        self._failed: list[str] = []
        self._network = network
        self._ports: ReservedPorts | None = None  # where no network was given
        self._server = ForkServer(directory, preload(spec.jobs))
        self.children: dict[str, Child] = {}
        self._timers: dict[asyncio.TimerHandle, None] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._paused_until: dict[str, float] = {}
        self._settings: dict[str, dict[str, Any]] = {name: {} for name in self.names}  # that faults gave each peer
        self._last_number = 0  # of a change of settings
        self._confirmed: dict[str, int] = {}
        self._starting: dict[str, None] = {}
        self._ending: dict[str, None] = {}  # peers that were killed, or asked to leave, and may still run
        overlay = spec.overlay
        self._links = None if overlay is None else {name: dict.fromkeys(near) for name, near in overlay.items()}
        self._keys: Throwaway  # sign rosters
        self._flaw: Exception | None = None  # what kept an action from being carried out

    # -- life of the fleet --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        await self._server.start()
        keys = self._directory / "keys"
        self._keys = write_keys(self.spec, keys)
        network = self._network
        if network is None:
            self._ports = ReservedPorts(len(self.names))
            hosts = zip(self.names, self._ports.numbers, strict=True)
            network = DeviceNetwork({name: f"127.0.0.1:{port}" for name, port in hosts}, {})
        for peer in sorted(self.spec.peers, key=lambda peer: peer.name):
            name, own = peer.name, self._directory / peer.name
            own.mkdir(parents=True, exist_ok=True)
            config = settle_in(self.spec, peer, own, keys, network.addresses, self._armed(name))
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

    def linked(self) -> bool:
        return not self._apart()

    def _apart(self) -> list[str]:
        """Return the running peers that have not heard of all their running neighbours."""
        faults, overlay = self.faults, self.spec.overlay
        here = [name for name in self._sees if name not in faults.late and faults.belongs(name)]
        # Before the first job, a peer is about to start or has already failed.
        running = {name for name in here if not faults.still(name) and (not self.record.jobs or self.alive(name))}
        near = {name: running - {name} if overlay is None else running & {*overlay[name]} for name in running}
        return [name for name, seen in self._sees.items() if name in running and near[name] - set(seen)]

    async def settle(self) -> None:
        wanted = {name: settings["number"] for name, settings in self._settings.items() if "number" in settings}
        awake = [name for name in wanted if self.children[name].alive and not self.children[name].asleep]
        here = [name for name in awake if name not in self._paused_until]
        await self.advance(lambda: all(self._confirmed.get(name, 0) >= wanted[name] for name in here), _ENDS_S)
        await self.advance(lambda: not any(self.children[name].alive for name in self._ending), _ENDS_S)

    async def stop(self) -> None:
        self._stops = True
        self._cancel_timers()
        for task in self._tasks:
            task.cancel()
        ends = await asyncio.gather(*(child.end(_LEAVE_S) for child in self.children.values()), return_exceptions=True)
        await self._server.close()
        if self._ports is not None:
            self._ports.release()
        for error in ends:  # only now: every other process has ended too
            if isinstance(error, BaseException):
                raise error

    # -- time ---------------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return time.monotonic() - self._began

    async def advance(self, until: Callable[[], bool], timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not until():
            if self._flaw is not None:
                raise self._flaw
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            self._changed.clear()
            # Not wait_for: before Python 3.12 it can lose a Ctrl-C that comes together with a change.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._changed.wait()
        return True

    def at(self, delay_s: float, action: Callable[[], None]) -> None:
        def run() -> None:
            self._timers.pop(timer)
            try:
                action()
            except Exception as error:  # noqa: BLE001 - `advance` raises it
                self._flaw = self._flaw or error

        timer = asyncio.get_running_loop().call_later(delay_s, run)
        self._timers[timer] = None

    def _cancel_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    # -- single peers -------------------------------------------------------------------------------------------------

    def alive(self, name: str) -> bool:
        return self.children[name].alive or name in self._starting

    def ends(self, name: str) -> int:
        return self.children[name].ends

    def answers(self, name: str) -> bool:
        return self._will_answer(name) and not self.children[name].asleep

    readable = answers

    def _will_answer(self, name: str) -> bool:
        """Whether the peer answers now, or when it wakes up."""
        return self.children[name].alive and name not in self._paused_until and not self.devices.gone(name)

    def submit(self, name: str, request: JobRequest) -> None:
        job = base64.b64encode(msgpack.packb(request.job.to_dict())).decode()
        more = {"roster": request.roster, "treatment": request.treatment.to_dict()}
        self.children[name].send({"do": "submit", "job": job, **more})

    async def read(self, names: Sequence[str], what: What, key: str) -> dict[str, bytes]:
        files = {name: str(self._directory / name / f"{key}.{what}") for name in names if self._will_answer(name)}
        for name, file in files.items():
            self.children[name].send({"do": "read", "what": what, "key": key, "file": file})
        answer_s = _ANSWER_S + self.spec.quiet_s
        await self.advance(lambda: all(file in self._files for file in files.values()), answer_s)
        return {name: data for name, file in files.items() if (data := self._files.pop(file, b""))}

    async def read_counters(self) -> None:
        self._cancel_timers()
        for name, child in self.children.items():
            if child.asleep and not self.devices.gone(name):
                self.wake(name)
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

    # -- what faults and plans do to lives ----------------------------------------------------------------------------

    def bring_up(self, name: str) -> None:
        if not self.children[name].alive or name in self._ending:
            self._starting[name] = None
            self._tasks.append(asyncio.get_running_loop().create_task(self._start(name)))

    async def _start(self, name: str) -> None:
        child, links = self.children[name], self._links
        try:
            await self.advance(lambda: not child.alive, _ENDS_S)
            self._ending.pop(name, None)
            self._paused_until.pop(name, None)
            found = {} if links is None else dict(links[name])
            if self.spec.trace:
                child.configure({"links": sorted(found)})  # as a radio would find them
            await child.start()
            self._starting.pop(name, None)
            now = {} if links is None else links[name]
            for other in self.children:
                if (up := other in now) != (other in found):  # it changed since that was written
                    child.send({"do": "link", "peer": other, "up": up})
        except Exception as error:  # noqa: BLE001 - `advance` raises it
            self._flaw = self._flaw or error

    def kill(self, name: str) -> None:
        self._ending[name] = None
        self.children[name].signal(signal.SIGKILL)

    def leave(self, name: str, *, by_round: bool) -> None:
        if by_round:
            return  # the peer leaves by itself
        self._ending[name] = None
        child = self.children[name]
        child.signal(signal.SIGCONT)  # a stopped process could not leave
        child.send({"do": "counters"})  # they end with it
        child.send({"do": "leave"})

    def pause(self, name: str, for_s: float | None) -> None:
        def end() -> None:
            # It may be paused for longer by now, or run already.
            if self.now >= self._paused_until.get(name, math.inf) - 1e-3:
                self.resume(name)
                self.report(name, "resumed", {})

        ends = math.inf if for_s is None else self.now + for_s
        self._paused_until[name] = max(self._paused_until.get(name, 0.0), ends)
        self.children[name].signal(signal.SIGSTOP)
        if for_s is not None:
            self.at(for_s, end)

    def resume(self, name: str) -> None:
        self._paused_until.pop(name, None)
        self.children[name].signal(signal.SIGCONT)

    def stopped_for_good(self, name: str) -> bool:
        endless = self._paused_until.get(name) == math.inf
        return endless and self.children[name].alive and name not in self._ending

    def sleep(self, name: str) -> None:
        self.children[name].sleep()

    def wake(self, name: str) -> None:
        self.children[name].wake(stays_stopped=name in self._paused_until)

    def measure(self, name: str) -> Use | None:
        if not self.children[name].asleep and name not in self._paused_until:
            self.children[name].send({"do": "counters"})
        return None

    # -- faults that a peer carries out itself, and conditions --------------------------------------------------------

    def _armed(self, name: str) -> list[dict[str, Any]]:
        """Return the faults by round as the configuration of a peer holds them."""
        claims = self._directory / "faults"
        claims.mkdir(exist_ok=True)
        planned = [
            PlannedFault(
                number, fault.do, fault.round, fault.phase, fault.who, str(claims / str(number)), fault.within,
                self._on_disk(name, conditions_of(self.spec, number, name)), fault.fields(),
            )
            for number, fault in enumerate(self.spec.faults)
            if fault.round is not None and (not fault.who or name in fault.who)
        ]  # fmt: skip
        return [asdict(fault) for fault in planned]

    def _on_disk(self, name: str, conditions: Mapping[str, Any]) -> dict[str, Any]:
        """Return the conditions with the file of their rows in place of the rows."""
        if "rows" not in conditions:
            return dict(conditions)
        number = conditions["rows"]["number"]
        file = self._directory / name / f"damaged-{number}.npy"
        if not file.exists():  # written before its peer starts: later the peer may be reading it
            np.save(file, conditions["rows"]["X"], allow_pickle=False)
        return {"rows": {"file": str(file), "number": number}}

    def impose(self, name: str, conditions: Mapping[str, Any]) -> None:
        self._last_number += 1
        numbered = {**self._on_disk(name, conditions), "number": self._last_number}
        self._settings[name] |= numbered
        self.children[name].configure({"suffers": self._settings[name]})
        self.children[name].send({"do": "suffer", **numbered})

    def cut(self, cuts: Cuts, pairs: Sequence[PAIR]) -> None:
        for name in dict.fromkeys(end for pair in pairs for end in pair):
            self.impose(name, {"deaf": cuts.deaf(name), "mute": cuts.mute(name)})

    # -- rosters and links --------------------------------------------------------------------------------------------

    def revoke(self, name: str, revoked: Sequence[str]) -> None:
        (self._directory / "keys" / ROSTER).write_bytes(self._keys.revoke(name).to_bytes())
        enrolled = (self.children[other] for other in self._keys.roster.names)
        first = next((child for child in enrolled if child.alive and child.name not in self._paused_until), None)
        if first is not None:
            first.signal(signal.SIGHUP)

    def neighbours(self) -> Mapping[str, Sequence[str]] | None:
        return None if self._links is None else {name: list(near) for name, near in self._links.items()}

    def relink(self, a: str, b: str, *, up: bool) -> None:
        assert self._links is not None, "a trace has an overlay to begin with"
        for one, other in ((a, b), (b, a)):
            if up:
                self._links[one][other] = None
            else:
                self._links[one].pop(other, None)
            self.children[one].send({"do": "link", "peer": other, "up": up})

    # -- what processes write -----------------------------------------------------------------------------------------

    def _on_line(self, child: Child, fields: dict[str, Any]) -> None:
        verb, name = fields.pop("verb"), child.name
        match verb:
            case "counters":
                self._counters.take(name, fields)
                if name in self.devices.metered:
                    self.devices.read(name, Use(fields["bytes_sent"], fields["bytes_received"], fields["cpu_s"]))
            case "suffers":  # the peer has applied the change of this number
                self._confirmed[name] = max(self._confirmed.get(name, 0), fields["number"])
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
                self.sleep(name)
        elif verb == "member":
            if fields["status"] == "alive":
                self._sees[name][fields["member"]] = None
            elif fields["status"] in ("dead", "left"):
                self._sees[name].pop(fields["member"], None)
        self.record.take(t, name, verb, fields)
        if verb == "combined" and "within" not in fields and self._counters.due and not self._stops:
            self._ask_counters()
        elif verb == "fault":
            self.faults.met(fields["number"], name)
        elif verb == "damaged":
            self.faults.note_damage(name, fields)

    def _on_exit(self, child: Child, code: int) -> None:
        self._sees[child.name] = {}
        self.report(child.name, "exited", {"code": code})
        if not self._stops and code not in (0, -signal.SIGKILL):
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
        self.last[name] = counters
        if name in self._silent:
            del self._silent[name]
            if not self._silent:
                self._record.load(self._now(), self.last)
