"""A fleet in virtual time: the same cores in the simulator, from one seed. Faults are carried out at the same phases."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import msgpack
import numpy as np

from p2pclust.errors import FleetError
from p2pclust.fleet.record import JobRecord, Record, needs
from p2pclust.fleet.spec import Fault, FleetResult, FleetSpec, JobRequest, OnEvent
from p2pclust.peer.effects import Effect, Report
from p2pclust.peer.events import Submit
from p2pclust.peer.timing import Limits, preset
from p2pclust.protocols import engine
from p2pclust.protocols.arrays import Arrays
from p2pclust.protocols.job import Job, JobState
from p2pclust.simulation.invariants import Invariants
from p2pclust.simulation.network import Conditions, Network
from p2pclust.simulation.world import Observer, Peer, World
from p2pclust.topology.traces import LinkChange

__all__ = ["carry_out"]

_LINK_S = 60.0
_FOREVER_S = 1e6


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

    def crashed(self, world: World, peer: Peer, lost_writes: int) -> None:
        self._record.take(world.now, peer.name, "exited", {"code": -9})

    def started(self, world: World, peer: Peer) -> None:
        self._record.take(world.now, peer.name, "started", {"life": peer.life})


class _SimulatedFleet:
    def __init__(self, spec: FleetSpec, on_event: OnEvent) -> None:
        self._spec = spec
        self._began = time.monotonic()
        self._record = Record(on_event)
        self._struck: list[int] = []
        self._returning: dict[str, None] = {}
        self._aggregating: dict[bool, str] = {}  # of a submitted job, and of one within it
        self._timing = preset(spec.timing)
        links = {peer.name: (peer.link.latency_ms / 1000, peer.link.loss) for peer in spec.peers}
        network = Network(Conditions((0.0001, 0.0005)), np.random.default_rng([spec.seed, 2]), links)
        self._world = World(
            {peer.name: peer.local() for peer in spec.peers}, network, self._timing, Limits(),
            np.random.default_rng([spec.seed, 3]), (_Reporter(self._record), Invariants()),
            {peer.name: peer.fitness for peer in spec.peers}, spec.overlay, partial_view=spec.partial_view,
        )  # fmt: skip
        self._world.crash_point = self._at_phase

    def run(self) -> FleetResult:
        """Start the peers, hand in one job after the other, and return what came of them.

        Raises
        ------
        FleetError
            If the peers do not find each other.
        """
        world, failure = self._world, ""
        for name in world.peers:
            world.start(name)
        if not world.run_until(_LINK_S, self._all_linked):
            raise FleetError(f"the peers did not find each other within {_LINK_S:.0f} virtual seconds")
        for number, request in enumerate(self._spec.jobs):
            job = self._submit(request)
            if number == 0:
                self._plan_faults()
                self._plan_trace()
            failure = self._finish(job, request.job)
            if failure:
                break
        return self._result(failure)

    def _all_linked(self) -> bool:
        return all(p.core is not None and p.core.membership.all_here() for p in self._world.peers.values())

    def _submit(self, request: JobRequest) -> JobRecord:
        before = set(self._record.jobs)
        by = next(peer for peer in self._world.peers.values() if peer.core is not None)
        data = msgpack.packb(request.job.to_dict())
        event = Submit(
            data, missing=request.missing, patience_s=request.patience_s, deadline_s=request.deadline_s,
            aggregator=request.aggregator, collect=request.collect, tolerance=request.tolerance, mixing=request.mixing,
            ticks=request.ticks,
        )  # fmt: skip
        self._world.step(by, event)
        if not self._answered(before):  # it asks first who everybody is
            self._world.run_until(self._world.now + self._spec.give_up_s, lambda: self._answered(before))
        new = [job for job_id, job in self._record.jobs.items() if job_id not in before]
        if not new:
            raise FleetError(f"{by.name} refused the job: {self._record.refused}")
        new[0].tolerance = request.tolerance or None
        return new[0]

    def _answered(self, before: set[str]) -> bool:
        """Whether the peer that a job was handed in at has taken it, or refused it."""
        return bool(set(self._record.jobs) - before or self._record.refused)

    def _finish(self, job: JobRecord, mathematics: Job) -> str:
        """Let time pass until everybody who lives has finished; returns why that cannot be, or nothing."""
        world = self._world
        patience_s = max(self._timing.patience_s, *(r.patience_s for r in self._spec.jobs))
        while not self._finished(job):
            world.run_until(world.now + 0.5, lambda: self._finished(job))
            silent_s = world.now - self._record.progress_at
            living = sum(self._counts(name) for name in job.roster)
            failure = self._record.minority(job, living)
            if failure and silent_s > patience_s and not job.digests:
                return failure
            if silent_s > self._spec.give_up_s:
                lost = [name for name in job.roster if not self._counts(name)]
                why = needs(lost, self._links())
                return f"no progress for {silent_s:.0f} virtual seconds at round {job.round}{why}"
        name = next(name for name in sorted(job.digests) if world.peers[name].core is not None)
        job.state = JobState.decode(self._final_state(world.peers[name], job.job_id))
        for name in sorted(job.digests):
            core = world.peers[name].core
            if core is not None and (note := core.jobs.jobs[job.job_id].desk.note):
                job.notes[name] = Arrays.decode(note)
        for digest in engine.results(mathematics, job.state):
            found = (b"".join(world.peers[name].disk.blob(digest)) for name in sorted(job.digests))
            job.blobs[digest] = next((data for data in found if data), b"")
        return ""

    @staticmethod
    def _final_state(peer: Peer, job_id: str) -> bytes:
        assert peer.core is not None
        ref = peer.core.jobs.jobs[job_id].ledger.register.ref
        assert ref is not None
        return ref.payload if ref.payload is not None else b"".join(peer.disk.blob(ref.digest))

    def _counts(self, name: str) -> bool:
        return self._world.peers[name].core is not None or name in self._returning

    def _finished(self, job: JobRecord) -> bool:
        # Asked after every event: the first that has not finished settles it.
        if not all(name in job.digests or not self._counts(name) for name in job.roster):
            return False
        return any(self._world.peers[name].core is not None for name in job.digests)

    # -- links ------------------------------------------------------------------------------------------------------

    def _plan_trace(self) -> None:
        for change in self._spec.trace:
            self._world.at(self._world.now + change.seconds, partial(self._relink, change))

    def _relink(self, change: LinkChange) -> None:
        self._record.take(self._world.now, change.a, "link", {"to": change.b, "up": change.up})
        self._world.relink(change.a, change.b, up=change.up)

    def _links(self) -> Mapping[str, tuple[str, ...]] | None:
        """Each peer's neighbours now; None on a full mesh."""
        names = self._world.peers
        return None if self._spec.overlay is None else {name: self._world.neighbours(name) for name in names}

    # -- faults -------------------------------------------------------------------------------------------------------

    def _plan_faults(self) -> None:
        for number, fault in enumerate(self._spec.faults):
            if fault.seconds is not None:
                self._world.at(self._world.now + fault.seconds, partial(self._by_second, number, fault))

    def _by_second(self, number: int, fault: Fault) -> None:
        victims = fault.who or tuple(self._aggregating[w] for w in (fault.within,) if w in self._aggregating)
        if victims:
            self._struck.append(number)
        for name in victims:
            self._record.take(
                self._world.now, name, "fault", {"number": number, "do": fault.do, "seconds": fault.seconds}
            )
            self._strike(fault, name)

    def _at_phase(self, peer: Peer, effect: Effect) -> bool:
        """Whether an armed fault ends this peer right here; a pause does not end it."""
        if not isinstance(effect, Report):
            return False
        if effect.verb not in ("elected", "phase"):
            return False
        within = "within" in effect.fields
        if effect.verb == "elected":
            self._aggregating[within] = peer.name
            return False
        for number, fault in enumerate(self._spec.faults):
            if number in self._struck or fault.phase != effect.fields["phase"] or fault.round is None:
                continue
            early = effect.fields["round"] < fault.round and fault.phase != "closing"
            leads = peer.name == self._aggregating.get(within)
            if early or within != fault.within or not (peer.name in fault.who if fault.who else leads):
                continue
            self._struck.append(number)
            fields = {"number": number, "do": fault.do, "phase": fault.phase, "planned": fault.round}
            fields["round"] = effect.fields["round"]
            self._record.take(self._world.now, peer.name, "fault", fields)
            return self._strike(fault, peer.name, from_inside=True)
        return False

    def _strike(self, fault: Fault, name: str, *, from_inside: bool = False) -> bool:
        """Carry out a fault; returns whether the peer's present step must end as in a crash."""
        world = self._world
        down_s = fault.for_s if fault.for_s is not None else 2 * self._timing.election_max_s
        if fault.do == "pause":
            world.freeze(name, fault.for_s if fault.for_s is not None else _FOREVER_S)
        elif fault.do == "resume":
            world.thaw(name)
        else:
            if fault.do == "restart":
                self._returning[name] = None
                world.at(world.now + down_s, partial(self._restart, name))
            if from_inside:
                return True
            world.crash(name)
        return False

    def _restart(self, name: str) -> None:
        self._returning.pop(name, None)
        self._world.start(name)

    # -- the result ---------------------------------------------------------------------------------------------------

    def _result(self, failure: str) -> FleetResult:
        jobs = tuple(job.result() for job in self._record.jobs.values())
        peers: dict[str, dict[str, Any]] = {}
        for name, peer in self._world.peers.items():
            lost = peer.core is None
            finished = bool(jobs) and name in jobs[-1].digests
            peers[name] = {"finished": finished, "lost": lost, "max_rss_mb": None, "dropped": {}} | peer.counters
        unfired = tuple(str(fault) for number, fault in enumerate(self._spec.faults) if number not in self._struck)
        wall_s = time.monotonic() - self._began
        events = tuple(self._record.events)
        links = self._world.traffic.links()
        return FleetResult(jobs, peers, wall_s, self._world.now, failure, unfired, len(events), events, links)
