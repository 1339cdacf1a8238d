"""A fleet in virtual time: the same cores in the simulator, from one seed. Faults are carried out at the same phases."""

from __future__ import annotations

import time
from typing import Any

import msgpack
import numpy as np

from p2pclust.errors import FleetError
from p2pclust.fleet.faults import joins
from p2pclust.fleet.record import JobRecord, Record, needs
from p2pclust.fleet.simulated.devices import VirtualDevices
from p2pclust.fleet.simulated.faults import VirtualMisfortunes
from p2pclust.fleet.spec import FleetResult, FleetSpec, JobRequest, OnEvent
from p2pclust.peer.core.effects import Effect, Report
from p2pclust.peer.core.events import Submit
from p2pclust.peer.core.timing import Limits, preset
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.simulation.checks.invariants import Invariants
from p2pclust.simulation.world.network import Conditions, Network
from p2pclust.simulation.world.observer import Observer
from p2pclust.simulation.world.peer import Peer
from p2pclust.simulation.world.world import World

__all__ = ["carry_out"]

_LINK_S = 60.0
_LAN_S = 0.001  # the latency of a device whose link is not stated
_NOTICE_S = 1.0  # how long it waits until good-byes are heard
_JOIN_S = 10.0  # how long the next job waits until late ones are known


def carry_out(spec: FleetSpec, on_event: OnEvent) -> FleetResult:
    """Run the spec in virtual time.

    Raises
    ------
    FleetError
        If the peers do not find each other.
    UsageError
        If a job is not meant for so many peers.
    """
    spec.refuse_floods()
    return _SimulatedFleet(spec, on_event).run()


class _Reporter(Observer):
    """Turns reports into events."""

    def __init__(self, record: Record) -> None:
        self._record = record

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        if isinstance(effect, Report):
            self._record.take(world.now, peer.name, effect.verb, effect.fields)
            if effect.verb == "combined" and "within" not in effect.fields:
                self._record.load(world.now, {name: other.counters for name, other in world.peers.items()})

    def crashed(self, world: World, peer: Peer, lost_writes: int) -> None:
        self._record.take(world.now, peer.name, "exited", {"code": -9})

    def started(self, world: World, peer: Peer) -> None:
        self._record.take(world.now, peer.name, "started", {"life": peer.life})


class _SimulatedFleet:
    def __init__(self, spec: FleetSpec, on_event: OnEvent) -> None:
        self._spec = spec
        self._began = time.monotonic()
        self._record = Record(on_event)
        self._timing = preset(spec.timing).allowing(spec.quiet_s)
        network = Network(
            Conditions((0.0001, 0.0005)), np.random.default_rng([spec.seed, 2]),
            {peer.name: (_LAN_S, 0.0) for peer in spec.peers if peer.link is None},
        )  # fmt: skip
        self._world = World(
            {peer.name: peer.local() for peer in spec.peers}, network, self._timing, Limits(),
            np.random.default_rng([spec.seed, 3]), (_Reporter(self._record), Invariants()),
            {peer.name: peer.fitness for peer in spec.peers}, spec.overlay, partial_view=spec.partial_view,
        )  # fmt: skip
        self._devices = VirtualDevices(spec, self._record, self._world)
        self._misfortunes = VirtualMisfortunes(spec, self._record, self._world)
        self._misfortunes.empties = self._devices.drain

    def run(self) -> FleetResult:
        """Start the peers, hand in one job after the other, and return what came of them.

        Raises
        ------
        FleetError
            If the peers do not find each other.
        """
        world, failure = self._world, ""
        for name in world.peers:
            if name not in self._misfortunes.late:
                world.start(name)
        if not world.run_until(_LINK_S, self._all_linked):
            raise FleetError(f"the peers did not find each other within {_LINK_S:.0f} virtual seconds")
        for number, request in enumerate(self._spec.jobs):
            self._misfortunes.before_job(number)
            world.run_until(world.now + _NOTICE_S, self._good_byes_heard)
            if joins(self._spec.faults):  # late ones are in the job if the others know them by then
                world.run_until(world.now + _JOIN_S, self._all_linked)
            try:
                job = self._submit(request)
            except FleetError as error:
                if number == 0:
                    raise
                failure = str(error)  # what came of the jobs before is worth telling
                break
            if number == 0:
                self._misfortunes.plan()
                self._devices.plan()
            failure = self._finish(job, request.job)
            if failure:
                break
        return self._result(failure)

    def _all_linked(self) -> bool:
        """Whether all that were started and still run see each other."""
        if joins(self._spec.faults):
            return self._here_linked()
        # Asked after every event: the first that does not see all settles it.
        own = (peer for name, peer in self._world.peers.items() if self._misfortunes.belongs(name))
        return all(peer.core is not None and peer.core.membership.all_here() for peer in own)

    def _here_linked(self) -> bool:
        peers = self._world.peers
        started = (name for name, peer in peers.items() if peer.core is not None)
        # A peer that nothing resumes never hears of the others: waiting for it would take until the fleet is given up.
        here = [n for n in started if self._misfortunes.belongs(n) and not self._misfortunes.still(n)]
        seen = [core.membership for name in here if (core := peers[name].core) is not None]
        return all(membership.present(name) for membership in seen for name in here)

    def _good_byes_heard(self) -> bool:
        left = self._misfortunes.left
        cores = [peer.core for peer in self._world.peers.values() if left and peer.core is not None]
        return not any(core.membership.present(name) for core in cores for name in left)

    def _submit(self, request: JobRequest) -> JobRecord:
        before = set(self._record.jobs)
        by = self._hand_in(request, before)
        taken = bool(set(self._record.jobs) - before)
        # It may have ended before it answered; and while a majority is on its way back, the job is refused.
        if not taken and (by.core is None or (self._record.refused and self._returning())):
            self._world.run_until(self._world.now + self._spec.give_up_s, lambda: not self._returning())
            self._record.refused = ""
            by = self._hand_in(request, before)
        new = [job for job_id, job in self._record.jobs.items() if job_id not in before]
        if not new:
            why = f"refused the job: {self._record.refused}" if self._record.refused else "does not answer"
            raise FleetError(f"{by.name} {why}")
        new[0].tolerance, new[0].missing = request.tolerance or None, request.missing
        return new[0]

    def _hand_in(self, request: JobRequest, before: set[str]) -> Peer:
        """Hand in a job at the first peer that is awake, and wait for its answer."""
        if self._misfortunes.returning and all(peer.core is None for peer in self._world.peers.values()):
            # The first two that are back could be a majority, and take the job without the others.
            self._world.run_until(self._world.now + self._spec.give_up_s, lambda: not self._returning())
        by = self._devices.awake_one(self._misfortunes.belongs)
        data = msgpack.packb(request.job.to_dict())
        event = Submit(
            data, missing=request.missing, patience_s=request.patience_s, deadline_s=request.deadline_s,
            aggregator=request.aggregator, collect=request.collect, tolerance=request.tolerance, mixing=request.mixing,
            ticks=request.ticks,
        )  # fmt: skip
        life = by.core
        self._world.step(by, event)
        if not self._answered(before):  # it asks first who everybody is
            self._world.run_until(
                self._world.now + self._spec.give_up_s, lambda: self._answered(before) or by.core is not life
            )
        return by

    def _returning(self) -> bool:
        """Whether somebody is being started again, or is back and not yet known to the others."""
        return bool(self._misfortunes.returning) or not self._here_linked()

    def _answered(self, before: set[str]) -> bool:
        """Whether the peer that a job was handed in at has taken it, or refused it."""
        return bool(set(self._record.jobs) - before or self._record.refused)

    def _finish(self, job: JobRecord, mathematics: Job) -> str:
        """Let time pass until everybody who lives has finished; returns why that cannot be, or nothing."""
        world = self._world
        patience_s = max(self._timing.patience_s, *(r.patience_s for r in self._spec.jobs))
        while not self._finished(job) and not self._rest_cut_off(job):
            world.run_until(world.now + 0.5, lambda: self._finished(job))
            silent_s = world.now - self._record.progress_at
            lost = [name for name in job.roster if not self._counts(name)]
            failure = self._record.stuck(job, lost)
            if failure and silent_s > patience_s and not job.digests:
                return failure
            if silent_s > self._spec.give_up_s:
                why = needs(lost, self._misfortunes.links(job.roster))
                return f"no progress for {silent_s:.0f} virtual seconds at round {job.round}{why}"
        name = next(name for name in sorted(job.digests) if world.peers[name].core is not None)
        job.state = JobState.decode(self._final_state(world.peers[name], job.job_id))
        for name in sorted(job.digests):
            core = world.peers[name].core
            if core is not None and (note := core.jobs.jobs[job.job_id].workspace.note):
                job.notes[name] = Arrays.decode(note)
        for digest in engine.results(mathematics, job.state):
            found = (b"".join(world.peers[name].disk.blob(digest)) for name in sorted(job.digests))
            job.blobs[digest] = next((data for data in found if data), b"")
        if job.state.status == "done":
            for name, kept in job.notes.items():
                for digest in engine.own_results(mathematics, job.state, kept):
                    if data := b"".join(world.peers[name].disk.blob(digest)):
                        job.blobs[digest] = data
        return ""

    @staticmethod
    def _final_state(peer: Peer, job_id: str) -> bytes:
        assert peer.core is not None
        ref = peer.core.jobs.jobs[job_id].ledger.register.ref
        assert ref is not None
        return ref.payload if ref.payload is not None else b"".join(peer.disk.blob(ref.digest))

    def _finished(self, job: JobRecord) -> bool:
        # Asked after every event: the first that has not finished settles it.
        if not all(name in job.digests or not self._counts(name) for name in job.roster):
            return False
        return any(self._world.peers[name].core is not None for name in job.digests)

    def _rest_cut_off(self, job: JobRecord) -> bool:
        """Whether whoever has not finished never will, for no way leads to it any more."""
        done = [name for name in job.digests if self._world.peers[name].core is not None]
        rest = [name for name in job.roster if name not in job.digests and self._counts(name)]
        return bool(done) and all(self._misfortunes.cut_off(name, done) for name in rest)

    def _counts(self, name: str) -> bool:
        """Whether the peer is there, or will be back or awake."""
        return self._misfortunes.counts(name) and not self._devices.gone(name)

    # -- the result ---------------------------------------------------------------------------------------------------

    def _result(self, failure: str) -> FleetResult:
        jobs = tuple(job.result() for job in self._record.jobs.values())
        peers: dict[str, dict[str, Any]] = {}
        for name, peer in self._world.peers.items():
            gone = peer.core is None or self._devices.gone(name)
            lost = gone and name not in self._misfortunes.left
            finished = bool(jobs) and name in jobs[-1].digests
            peers[name] = {"finished": finished, "lost": lost, "max_rss_mb": None, "dropped": {}} | peer.counters
            peers[name] |= self._devices.told(name)
        unfired = self._misfortunes.unfired()
        wall_s = time.monotonic() - self._began
        events = tuple(self._record.events)
        links = self._world.traffic.links()
        return FleetResult(
            jobs, peers, wall_s, self._world.now, failure, unfired, len(events), events, links,
            tuple(self._misfortunes.damage),
        )  # fmt: skip
