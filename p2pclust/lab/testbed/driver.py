"""Runs the jobs of a spec, one after the other, on any fleet of peers: real processes or simulated ones."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from p2pclust.errors import FleetError
from p2pclust.jobs.request import JobRequest
from p2pclust.lab.simulation.world.network import LinkTraffic
from p2pclust.lab.testbed.actions import Actions
from p2pclust.lab.testbed.devices import Devices
from p2pclust.lab.testbed.fault_engine import FaultEngine
from p2pclust.lab.testbed.faults import unfired
from p2pclust.lab.testbed.record import JobRecord, Record, needs
from p2pclust.lab.testbed.spec import FleetResult, FleetSpec, OnEvent
from p2pclust.peer.core.timing import preset
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.job import Job, JobState

_JOIN_S = 10.0  # how long the next job waits until the others know a late peer

What = Literal["state", "note", "blob"]


class FleetPort(Actions):
    """A fleet with its faults and devices, and what the driver needs of it."""

    answer_s: float  # how long the answer to a job may take
    unit: str  # what its seconds are called in messages
    #: Whether the clock of faults starts when the first job is offered; else when a peer has taken it.
    faults_strike_submissions: bool = False

    def __init__(self, spec: FleetSpec, on_event: OnEvent) -> None:
        self.spec = spec
        self.names = tuple(sorted(peer.name for peer in spec.peers))  # in the order in which a job is offered to them
        self.record = Record(on_event)
        self.devices = Devices(self)
        self.faults = FaultEngine(self, self.devices)

    @abstractmethod
    async def start(self) -> None:
        """Start all peers that are not late, and wait until they are linked; raise FleetError if that takes too long."""

    async def stop(self) -> None:
        """End all peers; a second call does nothing."""

    @abstractmethod
    async def advance(self, until: Callable[[], bool], timeout_s: float) -> bool:
        """Let time pass until `until()` holds after some event; returns whether it does."""

    @abstractmethod
    async def settle(self) -> None:
        """Wait until the faults before a job have taken effect."""

    @abstractmethod
    def linked(self) -> bool:
        """Whether all peers that run know each other; on an overlay, their neighbours."""

    @abstractmethod
    def answers(self, name: str) -> bool:
        """Whether a peer runs and is neither paused nor asleep."""

    @abstractmethod
    def readable(self, name: str) -> bool:
        """Whether the result of a peer can be read now."""

    @abstractmethod
    def ends(self, name: str) -> int:
        """How many lives of a peer have ended."""

    @abstractmethod
    def submit(self, name: str, request: JobRequest) -> None:
        """Hand in a job at a peer."""

    @abstractmethod
    async def read(self, names: Sequence[str], what: What, key: str) -> dict[str, bytes]:
        """Return the ``state`` or the ``note`` of a job, or the ``blob`` with this digest in hex, of each of these peers.

        Peers that do not have it, or do not answer, are left out.
        """

    async def read_counters(self) -> None:
        """Read what the peers sent, received and used, after the last job, if it is not known already."""

    @abstractmethod
    def outcome(self, name: str) -> dict[str, Any]:
        """Return a peer's part of the result: ``lost``, its counters and its memory."""

    def failures(self) -> Mapping[str, str]:
        """Return why processes ended by themselves, by name."""
        return {}

    def links(self) -> Mapping[tuple[str, str], LinkTraffic]:
        """Return what crossed each link, where that is counted."""
        return {}

    def virtual_seconds(self) -> float | None:
        """Return how long the run took in virtual time; None where time is real."""
        return None


class Driver:
    """One run of a fleet. Benchmarks call the steps themselves."""

    def __init__(self, fleet: FleetPort) -> None:
        self._fleet, self._spec, self._record, self._faults = fleet, fleet.spec, fleet.record, fleet.faults
        self._began = time.monotonic()
        self._clock_runs = False

    async def run(self) -> FleetResult:
        """Start the fleet, run all jobs and stop it.

        Raise FleetError if the peers do not find each other, or do not take the first job.
        """
        failure = ""
        try:
            await self._fleet.start()
            for number, request in enumerate(self._spec.jobs):
                self._faults.before_job(number)
                await self._fleet.settle()
                if self._spec.plans("join"):  # a peer that joined is in the job if the others know it in time
                    await self._fleet.advance(self._fleet.linked, _JOIN_S)
                try:
                    job = await self.submit(request)
                except FleetError as error:
                    if number == 0:
                        raise
                    failure = str(error)  # the jobs before it have results
                    break
                failure = await self.finish(job, request.job)
                if failure:
                    break
            await self._fleet.read_counters()
        finally:
            await self._fleet.stop()
        return self._result(failure)

    # -- handing in ---------------------------------------------------------------------------------------------------

    async def submit(self, request: JobRequest) -> JobRecord:
        """Hand in a job; with the first one, the clock of faults and plans starts. Raise FleetError if no peer takes it."""
        record = self._record
        before = dict.fromkeys(record.jobs)
        name, ended = await self._offer(request)
        # The peer may have ended before it answered; and while a majority restarts, the job is refused.
        if len(record.jobs) == len(before) and (ended or (record.refused and self._returning())):
            await self._until(lambda: not self._returning(), self._spec.give_up_s)
            record.refused = ""
            name, _ = await self._offer(request)
        new = [job for job_id, job in record.jobs.items() if job_id not in before]
        if not new:
            why = f"refused the job: {record.refused}" if record.refused else "does not answer"
            raise FleetError(f"{name} {why}")
        new[0].tolerance, new[0].missing = request.treatment.gossip_tolerance or None, request.treatment.missing
        self._start_clock()
        return new[0]

    def _start_clock(self) -> None:
        if not self._clock_runs:
            self._clock_runs = True
            self._faults.plan()
            self._fleet.devices.begin()

    async def _offer(self, request: JobRequest) -> tuple[str, bool]:
        """Hand in a job at the first peer that answers; returns its name, and whether it ended before it answered.

        Where no peer answers, wait for one.
        """
        fleet, record = self._fleet, self._record
        own = [name for name in fleet.names if self._faults.belongs(name)]
        if self._faults.returning and not any(map(fleet.answers, own)):
            # The first two that are back could be a majority, and take the job without the others.
            await self._until(lambda: not self._returning(), self._spec.give_up_s)
        await self._until(
            lambda: any(map(fleet.answers, own)) or not any(map(self._faults.counts, own)), self._spec.give_up_s
        )
        name = next(filter(fleet.answers, own), None)
        if name is None:
            raise FleetError("no peer is awake to hand the job to")
        ends, n_jobs = fleet.ends(name), len(record.jobs)
        fleet.submit(name, request)
        if fleet.faults_strike_submissions:
            self._start_clock()
        await self._until(
            lambda: len(record.jobs) > n_jobs or bool(record.refused) or fleet.ends(name) > ends, fleet.answer_s
        )
        return name, fleet.ends(name) > ends

    async def _until(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        return holds() or await self._fleet.advance(holds, timeout_s)

    def _returning(self) -> bool:
        """Whether a peer is being started again, or the others do not know it yet."""
        return bool(self._faults.returning) or not self._fleet.linked()

    # -- the end of a job ---------------------------------------------------------------------------------------------

    async def finish(self, job: JobRecord, mathematics: Job) -> str:
        """Wait until all peers that live have finished, and read the result; returns why that is impossible, or ``""``."""
        fleet, give_up_s = self._fleet, self._spec.give_up_s
        timing = preset(self._spec.timing).allowing(self._spec.quiet_s)
        patience_s = max(timing.patience_s, *(request.treatment.patience_s for request in self._spec.jobs))
        while not self._finished(job):
            done = [name for name in job.seen.digests if fleet.alive(name)]
            rest = [name for name in job.seen.roster if name not in job.seen.digests and self._faults.counts(name)]
            if done and all(self._faults.cut_off(name, done) for name in rest):
                break  # no peer that has not finished can ever hear from those that have
            if await self._until(lambda: self._finished(job), 0.5):
                break
            silent_s = fleet.now - self._record.progress_at
            lost = [name for name in job.seen.roster if not self._faults.counts(name)]
            failure = job.stuck(lost)
            if failure and silent_s > patience_s and not job.seen.digests:
                return failure
            if silent_s > give_up_s:
                why = job.broken() or needs(lost, self._faults.links(job.seen.roster))
                return f"no progress for {silent_s:.0f} {fleet.unit} at round {job.seen.opened}{why}"
        names = sorted(job.seen.digests)
        comes_back = any(map(self._faults.counts, names))
        await self._until(lambda: any(map(fleet.readable, names)), give_up_s if comes_back else 0.0)
        name = next(filter(fleet.readable, names), None)
        if name is None:
            return "every peer that had finished is gone"
        states = await fleet.read([name], "state", job.seen.id)
        if not states:
            return f"{name} does not send its final state"
        state = job.state = JobState.decode(states[name])
        if mathematics.has_workspace:
            notes = await fleet.read(names, "note", job.seen.id)
            job.notes |= {name: Arrays.decode(note) for name, note in notes.items()}
            await self._collect_blobs(job, engine.results(mathematics, state), names)
            for name, note in job.notes.items() if state.status == "done" else ():
                await self._collect_blobs(job, engine.own_results(mathematics, state, note), [name])
        return ""

    def _finished(self, job: JobRecord) -> bool:
        # Evaluated after every event: the first peer that has not finished settles it.
        return bool(job.seen.digests) and all(
            name in job.seen.digests or not self._faults.counts(name) for name in job.seen.roster
        )

    async def _collect_blobs(self, job: JobRecord, digests: Sequence[bytes], names: Sequence[str]) -> None:
        for digest in digests:
            for name in names:
                if digest not in job.blobs and (found := await self._fleet.read([name], "blob", digest.hex())):
                    job.blobs[digest] = found[name]

    # -- the result ---------------------------------------------------------------------------------------------------

    def _result(self, failure: str) -> FleetResult:
        fleet = self._fleet
        jobs = tuple(job.result() for job in self._record.jobs.values())
        last = jobs[-1] if jobs else None
        peers: dict[str, dict[str, Any]] = {
            name: {"finished": last is not None and name in last.digests}
            | fleet.outcome(name)
            | fleet.devices.energy(name)
            for name in fleet.names
        }
        for name, why in fleet.failures().items():
            peers[name]["failure"] = why
            if last is None or last.state is None:
                failure = failure or why
        missed = unfired(self._spec.faults, self._faults.struck)
        return FleetResult(
            jobs, peers, time.monotonic() - self._began, fleet.virtual_seconds(), failure, missed,
            tuple(self._record.events), fleet.links(), tuple(self._faults.damage),
        )  # fmt: skip
