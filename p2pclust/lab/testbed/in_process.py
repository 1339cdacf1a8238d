"""The reference backend: runs jobs in this process, through the same engine and on the same grid."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from p2pclust.jobs.request import JobRequest, JobResult
from p2pclust.lab.testbed.peer.round_views import centers_in
from p2pclust.lab.testbed.record import Record
from p2pclust.lab.testbed.spec import FleetResult, FleetSpec, OnEvent
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.runner import Workspaces, run_in_process
from p2pclust.protocols.engine.workspace import digest_of
from p2pclust.protocols.gossip.leaderless import run_leaderless
from p2pclust.protocols.gossip.push_sum import GossipLinks, usual_mixing
from p2pclust.tools.platforms import n_cores


def carry_out(spec: FleetSpec, on_event: OnEvent) -> FleetResult:
    """Run all jobs of the spec one after another, without peers and without faults."""
    began = time.monotonic()
    record = Record(on_event)
    peers = tuple(sorted(spec.peers, key=lambda peer: peer.name))
    spec = replace(spec, peers=peers)

    def report(verb: str, fields: Mapping[str, Any]) -> None:
        record.take(time.monotonic() - began, "", verb, fields)

    results = [_run(spec, request, f"job-{number}", report) for number, request in enumerate(spec.jobs)]
    nothing = {"messages_sent": 0, "messages_received": 0, "bytes_sent": 0, "bytes_received": 0, "max_rss_mb": None}
    outcomes = {peer.name: {"finished": True, "lost": False, **nothing} for peer in peers}
    return FleetResult(tuple(results), outcomes, time.monotonic() - began, events=tuple(record.events))


def _run(
    spec: FleetSpec, request: JobRequest, job_id: str, report: Callable[[str, Mapping[str, Any]], None]
) -> JobResult:
    """Run one job, and report each of its rounds as an aggregator would."""
    start, job, treatment = time.monotonic(), request.job, request.treatment
    names = tuple(peer.name for peer in spec.peers)
    report("submitted", {"job": job_id, "roster": names})
    before = engine.begin(job)
    ticks: list[int] = []  # of the rounds without an aggregator
    reached: float | None = None  # the largest disagreement of these

    def combined(state: JobState) -> None:
        nonlocal before
        fields: dict[str, Any] = {"job": job_id, "term": 0, "round": state.round - 1, "stage": state.stage}
        fields |= {"status": state.status, "contributors": [names[index] for index in state.log[-1].contributors]}
        fields |= engine.news(job, before, state)
        if abstained := state.log[-1].abstained:
            fields["abstained"] = {names[index]: reason for index, reason in abstained.items()}
        report("combined", fields | engine.shift(job, before, state))
        before = state
        if (centers := centers_in(state)) is not None:
            report("centers", {"job": job_id, **centers})

    def mixed(state: JobState, n_ticks: int, apart: float) -> None:
        nonlocal reached
        ticks.append(n_ticks)
        reached = max(reached or 0.0, apart)
        combined(state)

    workspaces, rows = Workspaces(n_cores()), [peer.local() for peer in spec.peers]
    if treatment.collect == "gossip":
        links = links_between(names, spec.overlay, treatment.mixing or usual_mixing(treatment.ticks))
        tolerance = treatment.gossip_tolerance
        state = run_leaderless(job, rows, links, tolerance=tolerance, ticks=treatment.ticks, on_round=mixed)
    else:
        state = run_in_process(job, rows, combined, workspaces)
    notes = {names[index]: note for index, note in sorted(workspaces.notes.items())}
    own = [digest for note in notes.values() for digest in engine.own_results(job, state, note)]
    wanted = (*engine.results(job, state), *(own if state.status == "done" else ()))
    return JobResult(
        job_id, names, state, (), dict.fromkeys(names, digest_of(state.encode()).hex()), time.monotonic() - start, notes,
        {digest: workspaces.blobs[digest] for digest in wanted}, treatment.gossip_tolerance or None, reached,
        tuple(ticks),
    )  # fmt: skip


def links_between(names: Sequence[str], overlay: Mapping[str, Sequence[str]] | None, mixing: str) -> GossipLinks:
    """Return the links over which peers average without an aggregator; by default a full mesh."""
    place = {name: number for number, name in enumerate(names)}
    claims = {name: [other for other in names if other != name] for name in names} if overlay is None else overlay
    return GossipLinks([[place[other] for other in claims[name] if other in place] for name in names], mixing)
