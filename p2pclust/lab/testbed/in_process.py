"""The reference backend: runs jobs in this process, through the same engine and on the same grid."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from p2pclust.jobs.request import JobResult
from p2pclust.lab.testbed.peer.centers import centers_in
from p2pclust.lab.testbed.record import Record
from p2pclust.lab.testbed.spec import FleetResult, FleetSpec, OnEvent
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.runner import Workspaces, run_in_process
from p2pclust.protocols.engine.workspace import digest_of
from p2pclust.protocols.gossip.leaderless import run_leaderless
from p2pclust.protocols.gossip.push_sum import GossipLinks, usual_mixing
from p2pclust.tools.platforms import n_cores


def carry_out(spec: FleetSpec, on_event: OnEvent) -> FleetResult:
    """Run all jobs of the spec one after another, without peers and without faults."""
    began = time.monotonic()
    peers = sorted(spec.peers, key=lambda peer: peer.name)
    names = tuple(peer.name for peer in peers)
    record, results = Record(on_event), []
    for number, request in enumerate(spec.jobs):
        start, job_id = time.monotonic(), f"job-{number}"
        record.take(start - began, "", "submitted", {"job": job_id, "roster": names})
        rounds = _Rounds(
            request.job, job_id, names, lambda verb, fields: record.take(time.monotonic() - began, "", verb, fields)
        )
        workspaces, treatment = Workspaces(n_cores()), request.treatment
        rows = [peer.local() for peer in peers]
        if treatment.collect == "gossip":
            links = links_between(names, spec.overlay, treatment.mixing or usual_mixing(treatment.ticks))
            state = run_leaderless(
                request.job, rows, links, tolerance=treatment.gossip_tolerance, ticks=treatment.ticks,
                on_round=rounds.mixed,
            )  # fmt: skip
        else:
            state = run_in_process(request.job, rows, rounds.combined, workspaces)
        digests = dict.fromkeys(names, digest_of(state.encode()).hex())
        notes = {names[index]: note for index, note in sorted(workspaces.notes.items())}
        own = [digest for note in notes.values() for digest in engine.own_results(request.job, state, note)]
        wanted = (*engine.results(request.job, state), *(own if state.status == "done" else ()))
        blobs = {digest: workspaces.blobs[digest] for digest in wanted}
        results.append(
            JobResult(
                job_id, names, state, (), digests, time.monotonic() - start, notes, blobs,
                treatment.gossip_tolerance or None, rounds.reached, tuple(rounds.ticks),
            )
        )  # fmt: skip
    nothing = {"messages_sent": 0, "messages_received": 0, "bytes_sent": 0, "bytes_received": 0, "max_rss_mb": None}
    outcomes = {name: {"finished": True, "lost": False, **nothing} for name in names}
    return FleetResult(tuple(results), outcomes, time.monotonic() - began, events=tuple(record.events))


def links_between(names: Sequence[str], overlay: Mapping[str, Sequence[str]] | None, mixing: str) -> GossipLinks:
    """Return the links over which peers average without an aggregator; by default a full mesh."""
    place = {name: number for number, name in enumerate(names)}
    claims = {name: [other for other in names if other != name] for name in names} if overlay is None else overlay
    return GossipLinks([[place[other] for other in claims[name] if other in place] for name in names], mixing)


class _Rounds:
    """Reports each round as an aggregator would, and keeps the ticks of those without one."""

    def __init__(
        self, job: Job, job_id: str, names: tuple[str, ...], take: Callable[[str, Mapping[str, Any]], None]
    ) -> None:  # fmt: skip
        self._job = job
        self._job_id = job_id
        self._names = names
        self._take = take
        self._before = engine.begin(job)
        self.reached: float | None = None
        self.ticks: list[int] = []

    def mixed(self, state: JobState, ticks: int, reached: float) -> None:
        self.ticks.append(ticks)
        self.reached = max(self.reached or 0.0, reached)
        self.combined(state)

    def combined(self, state: JobState) -> None:
        before, self._before = self._before, state
        fields: dict[str, Any] = {"job": self._job_id, "term": 0, "round": state.round - 1, "stage": state.stage}
        fields |= {"status": state.status, "contributors": [self._names[i] for i in state.log[-1].contributors]}
        fields |= engine.news(self._job, before, state)
        if abstained := state.log[-1].abstained:
            fields["abstained"] = {self._names[index]: reason for index, reason in abstained.items()}
        fields |= engine.shift(self._job, before, state)
        self._take("combined", fields)
        if (centers := centers_in(state)) is not None:
            self._take("centers", {"job": self._job_id, **centers})
