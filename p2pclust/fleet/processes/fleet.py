"""A fleet of real peer processes on this machine: CURVE on loopback, one state directory each, real signals as faults."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgpack

from p2pclust.errors import FleetError
from p2pclust.fleet.faults import joins
from p2pclust.fleet.processes import folders
from p2pclust.fleet.processes.children import Child, ReservedPorts
from p2pclust.fleet.processes.counters import Loads
from p2pclust.fleet.processes.devices import ProcessDevices
from p2pclust.fleet.processes.faults import Misfortunes
from p2pclust.fleet.processes.forking import ForkServer
from p2pclust.fleet.record import JobRecord, Record, needs
from p2pclust.fleet.run_async import run_to_the_end
from p2pclust.fleet.spec import FleetResult, FleetSpec, JobRequest, OnEvent, PeerSpec
from p2pclust.peer.core.timing import preset
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.job import Job, JobState

__all__ = ["ProcessFleet", "carry_out", "preload"]

_START_S = 60.0  # forty peers on two cores take some ten seconds, beside much other work a multiple of that
_START_EACH_S = 2.0
_ANSWER_S = 10.0
_LEAVE_S = 5.0
_JOIN_S = 10.0  # how long the next job waits until late ones are known


def carry_out(spec: FleetSpec, on_event: OnEvent) -> FleetResult:
    """Run the spec on real processes; whatever happens, no process and no port is left behind.

    Raises
    ------
    FleetError
        If the fleet did not even start.
    UsageError
        If a job is not meant for so many peers.
    """
    spec.refuse_floods()
    with contextlib.ExitStack() as stack:
        directory = spec.directory
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="p2pclust-")))
        return run_to_the_end(ProcessFleet(spec, directory, on_event).run())


def preload(jobs: Sequence[JobRequest]) -> tuple[str, ...]:
    """Modules that the peers of these jobs would each import late, and may share instead."""
    protocols = [protocol for request in jobs for protocol in request.job.protocols]
    return tuple(dict.fromkeys(module for protocol in protocols for module in protocol.imports))


class ProcessFleet:
    """One run. Also used by benchmarks, which drive the steps themselves."""

    def __init__(self, spec: FleetSpec, directory: Path, on_event: OnEvent) -> None:
        self.spec = spec
        self.record = Record(on_event)
        self._directory = directory
        self._began = time.monotonic()
        self._changed = asyncio.Event()
        self._sees: dict[str, dict[str, None]] = {}
        self._counters: dict[str, dict[str, Any]] = {}
        self._loads = Loads(self.record, lambda: self.now)
        self._states: dict[tuple[str, str], bytes] = {}
        self._notes: dict[tuple[str, str], bytes] = {}
        self._blobs: dict[bytes, bytes] = {}
        self._ended = False
        self._failed: list[str] = []
        self._strangers = dict.fromkeys(peer.name for peer in spec.peers if not peer.enrolled)
        self._ports: ReservedPorts | None = None
        self._server = ForkServer(directory, preload(spec.jobs))
        self.children: dict[str, Child] = {}
        self.misfortunes = Misfortunes(spec, self.record, directory, self.children, lambda: self.now, self._until)
        self.devices = ProcessDevices(
            spec, self.record, self.children, lambda: self.now, lambda name: name in self.misfortunes.paused
        )
        self.misfortunes.empties = self.devices.drain

    @property
    def now(self) -> float:
        """Seconds since the fleet was made."""
        return time.monotonic() - self._began

    async def run(self) -> FleetResult:
        """Everything from the first process to the last."""
        failure = ""
        try:
            await self.start()
            for number, request in enumerate(self.spec.jobs):
                await self.prepare(number)
                try:
                    job = await self.submit(request)
                except FleetError as error:
                    if number == 0:
                        raise
                    failure = str(error)  # what came of the jobs before is worth telling
                    break
                failure = await self.finish(job, request.job)
                if failure:
                    break
            self.devices.rouse()
            await self.counters()
        finally:
            await self.stop()
        return self._result(failure)

    # -- life of the fleet --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start all peers and wait until everybody sees everybody."""
        await self._server.start()
        names = sorted(peer.name for peer in self.spec.peers)
        keys = self._directory / "keys"
        self.misfortunes.keys = folders.write_keys(self.spec, keys)
        addresses = self._addresses(names)
        for peer in sorted(self.spec.peers, key=lambda peer: peer.name):
            self._sees[peer.name] = {}
            config = self._config(peer, keys, addresses)
            self.children[peer.name] = Child(
                peer.name, self._directory / peer.name, config, self._server, self._on_line, self._on_exit
            )
        late_ones = self.misfortunes.late
        await asyncio.gather(*(child.start() for name, child in self.children.items() if name not in late_ones))
        start_s = _START_S + _START_EACH_S * len(names)
        await self._until(lambda: self._all_linked() or bool(self._failed), start_s)
        if self._failed:
            raise FleetError(f"{self._failed[0]} did not start: {self.children[self._failed[0]].why()}")
        if not self._all_linked():
            whom = "everybody" if self.spec.overlay is None else "all their neighbours"
            raise FleetError(f"{', '.join(self._apart())} not linked to {whom} after {start_s:.0f} s")

    def _addresses(self, names: Sequence[str]) -> dict[str, str]:
        self._ports = ReservedPorts(len(names))
        return {name: f"127.0.0.1:{port}" for name, port in zip(names, self._ports.numbers, strict=True)}

    def _config(self, peer: PeerSpec, keys: Path, addresses: dict[str, str]) -> dict[str, Any]:
        """What the process of this peer is told; other backends tell more."""
        directory = self._directory / peer.name
        directory.mkdir(parents=True, exist_ok=True)
        return folders.settle_in(self.spec, peer, directory, keys, addresses, self.misfortunes.armed(peer.name))

    def _all_linked(self) -> bool:
        return not self._apart()

    def _apart(self) -> list[str]:
        """Who runs and has not heard of all its neighbours that run; on a full mesh these are all."""
        overlay, running = self.spec.overlay, {name for name in self._sees if self._runs(name)}
        near = {name: running - {name} if overlay is None else running & {*overlay[name]} for name in running}
        return [name for name, seen in self._sees.items() if name in running and near[name] - set(seen)]

    def _runs(self, name: str) -> bool:
        """Whether it was started; at the beginning also one that is about to be, or that ended at once."""
        if name in self.misfortunes.late or not self._belongs(name) or self.misfortunes.still(name):
            return False
        return not self.record.jobs or self.children[name].alive or name in self.misfortunes.joining

    async def stop(self) -> None:
        """End every process; a second time does nothing."""
        self._ended = True
        self.misfortunes.cancel()
        self.devices.cancel()
        ends = await asyncio.gather(*(child.end(_LEAVE_S) for child in self.children.values()), return_exceptions=True)
        await self._server.close()
        if self._ports is not None:
            self._ports.release()
        for error in ends:  # only now: whatever one child's end raised, every other one has ended too
            if isinstance(error, BaseException):
                raise error

    # -- jobs ---------------------------------------------------------------------------------------------------------

    async def prepare(self, number: int) -> None:
        """Let happen what is planned before a job; who joined late is in it if the others know it by then."""
        await self.misfortunes.before_job(number)
        if joins(self.spec.faults):
            await self._until(self._all_linked, _JOIN_S)

    async def submit(self, request: JobRequest) -> JobRecord:
        """Hand in a job at the first peer and wait until a majority has synced it."""
        before = set(self.record.jobs)

        def taken() -> bool:
            return bool(set(self.record.jobs) - before)

        by = await self._hand_in(request)
        ends = by.ends
        if not before:
            self.misfortunes.plan()
            self.devices.plan()
        await self._until(lambda: taken() or bool(self.record.refused) or by.ends > ends, _ANSWER_S)
        # It may have ended before it answered; and while a majority is on its way back, the job is refused.
        if not taken() and (by.ends > ends or (self.record.refused and self._returning())):
            await self._until(lambda: not self._returning(), self.spec.give_up_s)
            self.record.refused = ""
            by = await self._hand_in(request)
            await self._until(lambda: taken() or bool(self.record.refused), _ANSWER_S)
        new = [job for job_id, job in self.record.jobs.items() if job_id not in before]
        if not new:
            why = f"refused the job: {self.record.refused}" if self.record.refused else "does not answer"
            raise FleetError(f"{by.name} {why}")
        new[0].tolerance, new[0].missing = request.tolerance or None, request.missing
        # A fault may strike meanwhile: then whoever waits for the end of the job finds out what became of it.
        await self._until(lambda: new[0].accepted or bool(new[0].terms), _ANSWER_S)
        return new[0]

    def _returning(self) -> bool:
        """Whether somebody is being started again, or is back and not yet known to the others."""
        return bool(self.misfortunes.returning) or not self._all_linked()

    async def _hand_in(self, request: JobRequest) -> Child:
        """Hand in a job at the first peer that answers.

        Where all are being started again, all of them are waited for; where all are away or asleep, one of them.
        """
        own = [name for name in self.children if self._belongs(name)]
        if self.misfortunes.returning and not any(map(self._answers, own)):
            # The first two that are back could be a majority, and take the job without the others.
            await self._until(lambda: not self._returning(), self.spec.give_up_s)
        await self._until(lambda: any(map(self._answers, own)) or not any(map(self._counts, own)), self.spec.give_up_s)
        by = next((self.children[name] for name in own if self._answers(name)), None)
        if by is None:
            raise FleetError("no peer is awake to hand the job to")
        by.tell(
            {
                "do": "submit",
                "job": base64.b64encode(msgpack.packb(request.job.to_dict())).decode(),
                "roster": [],
                "missing": request.missing,
                "patience_s": request.patience_s,
                "deadline_s": request.deadline_s,
                "aggregator": request.aggregator,
                "collect": request.collect,
                "tolerance": request.tolerance,
                "mixing": request.mixing,
                "ticks": request.ticks,
            }
        )
        return by

    async def finish(self, job: JobRecord, mathematics: Job | None = None) -> str:
        """Wait until everybody who lives has finished; returns why that cannot be, or nothing."""
        timing = preset(self.spec.timing)
        patience_s = max(timing.patience_s, *(r.patience_s for r in self.spec.jobs), 2 * timing.election_max_s)
        while not self._finished(job):
            came = await self._until(lambda: self._finished(job), 0.5)
            if came:
                break
            silent_s = self.now - self.record.progress_at
            lost = [name for name in job.roster if not self._counts(name)]
            failure = self.record.stuck(job, lost)
            if failure and silent_s > patience_s and not job.digests:
                return failure
            if silent_s > self.spec.give_up_s:
                why = needs(lost, self.misfortunes.links(job.roster))
                return f"no progress for {silent_s:.0f} s at round {job.round}{why}"
        sleeps = any(self.children[name].asleep for name in job.digests)
        await self._until(lambda: any(map(self._answers, job.digests)), self.spec.give_up_s if sleeps else 0.0)
        child = next((self.children[n] for n in sorted(job.digests) if self._answers(n)), None)
        if child is None:
            return "every peer that had finished is gone"
        name = child.name
        child.tell({"do": "state", "job": job.job_id, "file": str(self._directory / f"{job.job_id}.state")})
        if not await self._until(lambda: (name, job.job_id) in self._states, _ANSWER_S):
            return f"{name} does not tell its final state"
        job.state = JobState.decode(self._states[name, job.job_id])
        if mathematics is not None and mathematics.has_workspace:
            await self._collect_notes(job)
            await self._collect_blobs(job, engine.results(mathematics, job.state), sorted(job.digests))
            if job.state.status == "done":
                for name, note in sorted(job.notes.items()):
                    await self._collect_blobs(job, engine.own_results(mathematics, job.state, note), [name])
        return ""

    async def _collect_notes(self, job: JobRecord) -> None:
        """Ask every peer that finished what it kept for itself: its part of the result."""
        asked = [name for name in sorted(job.digests) if self._will_answer(name)]
        for name in asked:
            file = self._directory / name / f"{job.job_id}.note"
            self.children[name].tell({"do": "note", "job": job.job_id, "file": str(file)})
        answer_s = _ANSWER_S + self.spec.quiet_s
        await self._until(lambda: all((name, job.job_id) in self._notes for name in asked), answer_s)
        for name in asked:
            if note := self._notes.get((name, job.job_id)):
                job.notes[name] = Arrays.decode(note)

    async def _collect_blobs(self, job: JobRecord, digests: tuple[bytes, ...], names: list[str]) -> None:
        """Ask these peers, which finished, for blobs, one after the other until one has it."""
        for digest in digests:
            for name in names:
                if digest in job.blobs or not self._will_answer(name):
                    continue
                file = self._directory / name / f"{digest.hex()[:16]}.blob"
                self._blobs.pop(digest, None)
                self.children[name].tell({"do": "blob", "digest": digest.hex(), "file": str(file)})
                await self._until(lambda digest=digest: digest in self._blobs, _ANSWER_S)  # type: ignore[misc]
                if data := self._blobs.get(digest):
                    job.blobs[digest] = data

    def _finished(self, job: JobRecord) -> bool:
        expected = [name for name in job.roster if name not in job.digests and self._counts(name)]
        return bool(job.digests) and all(self.misfortunes.cut_off(name, list(job.digests)) for name in expected)

    async def counters(self) -> dict[str, dict[str, Any]]:
        """What every peer that answers has sent, received and used."""
        asked = self._look()
        await self._until(lambda: not self._loads.silent(asked), _ANSWER_S)
        self._counters = self._loads.of(n for n in self.children if n in asked or self.devices.meters(n))
        return self._counters

    def _counts(self, name: str) -> bool:
        """Whether the peer is there, or will be back or awake."""
        return self.misfortunes.counts(name) and not self.devices.gone(name)

    def _belongs(self, name: str) -> bool:
        """Whether the device is on the fleet roster."""
        return name not in self._strangers and name not in self.misfortunes.revoked

    def _answers(self, name: str) -> bool:
        return self._will_answer(name) and not self.children[name].asleep

    def _will_answer(self, name: str) -> bool:
        """Whether the peer answers now, or when it wakes up."""
        return self.children[name].alive and name not in self.misfortunes.paused and not self.devices.gone(name)

    # -- what children say --------------------------------------------------------------------------------------------

    def _on_line(self, child: Child, fields: dict[str, Any]) -> None:
        verb = fields.pop("verb")
        if verb == "counters":
            self._loads.heard(child.name, fields)
            self.devices.heard(child.name, fields)
        elif verb == "suffers":
            self.misfortunes.heard(child.name, verb, fields)
        elif verb == "blob":
            self._blobs[bytes.fromhex(fields["digest"])] = Path(fields["file"]).read_bytes()
        elif verb == "note":
            self._notes[child.name, fields["job"]] = Path(fields["file"]).read_bytes()
        elif verb == "state":
            told = Path(fields["file"]).read_bytes() if "file" in fields else base64.b64decode(fields["state"])
            self._states[child.name, fields["job"]] = told
        else:
            self._event(child.name, verb, fields)
        self._changed.set()

    def _event(self, name: str, verb: str, fields: dict[str, Any]) -> None:
        t = fields.pop("t") - self._began
        if verb == "started":
            self._sees[name] = {}
            self.devices.started(name)
        elif verb == "member":
            if fields["status"] == "alive":
                self._sees[name][fields["member"]] = None
            elif fields["status"] in ("dead", "left"):
                self._sees[name].pop(fields["member"], None)
        self.record.take(t, name, verb, fields)
        if verb == "combined" and "within" not in fields and self._loads.due:
            self._look()
        if verb == "fault":
            self.misfortunes.told(name, fields)
        elif verb == "damaged":
            self.misfortunes.heard(name, verb, fields)

    def _look(self) -> dict[str, Child]:
        """Ask all that can answer what they have sent so far; on the way nobody waits for them."""
        return self._loads.ask({name: child for name, child in self.children.items() if self._answers(name)})

    def _on_exit(self, child: Child, code: int) -> None:
        self.record.take(self.now, child.name, "exited", {"code": code})
        if not self._ended and code not in (0, -signal.SIGKILL):
            self._failed.append(child.name)
        self._changed.set()

    async def _until(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        """Wait for a condition on what children said; returns whether it came about."""
        deadline = time.monotonic() + timeout_s
        while not holds():
            if self.misfortunes.flaw is not None:
                raise self.misfortunes.flaw
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            self._changed.clear()
            # Not wait_for: before Python 3.12 it can lose a Ctrl-C that comes together with a change.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._changed.wait()
        return True

    # -- the result ---------------------------------------------------------------------------------------------------

    def _result(self, failure: str) -> FleetResult:
        jobs = tuple(job.result() for job in self.record.jobs.values())
        last = jobs[-1] if jobs else None
        peers = {}
        for name, child in self.children.items():
            counters = self._counters.get(name, {})
            lost = child.process is None or child.process.returncode != 0
            finished = last is not None and name in last.digests
            kept = ("messages_sent", "messages_received", "bytes_sent", "bytes_received", "max_rss_mb", "dropped")
            lost = lost or self.devices.gone(name)
            peers[name] = {"finished": finished, "lost": lost} | {key: counters.get(key) for key in kept}
            peers[name] |= self.devices.told(name)
        unfired = self.misfortunes.unfired()
        for name in self._failed:
            why = f"{name} ended by itself: {self.children[name].why()}"
            peers[name]["failure"] = why
            if last is None or last.state is None:
                failure = failure or why
        events, damage = tuple(self.record.events), tuple(self.misfortunes.damage)
        return FleetResult(jobs, peers, self.now, None, failure, unfired, len(events), events, damage=damage)
