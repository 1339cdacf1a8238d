"""Measures "job" and "recovery": a job on a simulated fleet, what it cost on each link, and whether it is exact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from p2pclust.errors import FleetError
from p2pclust.jobs.request import JobResult
from p2pclust.lab.scenario.file.load import load_data, make_job
from p2pclust.lab.scenario.outcome.evaluate import job_entry
from p2pclust.lab.scenario.run import fleet_spec
from p2pclust.lab.simulation.world.traffic import LinkTraffic
from p2pclust.lab.sweep.cells import Cell, scenario_of
from p2pclust.lab.sweep.columns import MEASURES
from p2pclust.lab.sweep.places import peer_at
from p2pclust.lab.testbed import backend
from p2pclust.lab.testbed.faults import Fault
from p2pclust.lab.testbed.spec import FleetResult
from p2pclust.lab.topology.matrices import betweenness, closeness
from p2pclust.overlay.overlay import Overlay
from p2pclust.protocols.engine import random_streams
from p2pclust.protocols.engine.job import Job
from p2pclust.protocols.engine.runner import labelling_stage

#: Kinds of messages that a fleet at rest sends, too.
_AT_REST: Final = frozenset(
    ("ping", "ack", "ping-request", "gossip", "member-sync", "refusal", "fact-digest", "fact-delta")
)
_BLOBS: Final = frozenset(("blob-request", "blob-chunk", "blob-missing"))
# The second number of a stream's name, beside the one that draws an overlay's gossip.
_PLACES: Final = 7

Links = Mapping[tuple[str, str], LinkTraffic]


def measure(cell: Cell, overlay: Overlay) -> dict[str, Any]:
    """Return the columns of a cell of this measure."""
    scenario = scenario_of(cell)
    shares = load_data(scenario)
    job = make_job(scenario, 0, next(iter(shares.values())).n_features)
    spec = fleet_spec(scenario, shares, [job])
    # Places are drawn in the order of the axes, each from its own part of one stream.
    aggregating, dying = random_streams.gossiping(cell.seed).spawn(_PLACES)[:2]
    named = "" if cell.axis("aggregator") == "elected" else peer_at(overlay, cell.axis("aggregator"), aggregating)
    who = dict(cell.axes).get("who", "nobody")
    victim = "" if who in ("nobody", "aggregator") else peer_at(overlay, who, dying)
    if who not in ("nobody", "aggregator") and not victim:
        return _nothing(cell, "no such peer")
    faults: tuple[Fault, ...] = ()
    if who != "nobody":
        fault, names = cell.fixed["fault"], (victim,) if victim else ()
        phase = "adopting" if names else "combining"
        faults = (Fault(fault["do"], names, fault["round"], phase, for_s=fault["for_s"]),)
    near = None if cell.kind == "full" else {name: overlay.neighbours(name) for name in sorted(overlay.names)}
    first = spec.jobs[0]
    request = replace(first, treatment=replace(first.treatment, aggregator=named))
    try:
        found = backend("simulated").carry_out(
            replace(spec, jobs=(request,), overlay=near, faults=faults), lambda event: None
        )
    except FleetError:
        return _nothing(cell, "unlinked")
    (done,) = found.jobs
    # How near the result is to the pooled one, and to true labels; None for what this job does not have.
    entry = {} if done.state is None else job_entry(job, done, shares)
    pooled, metrics = entry.get("pooled") or {}, entry.get("metrics", {})
    leader = done.terms[-1][1] if done.terms else None
    values = _ended(done, found) | _traffic(overlay, found, done, job)
    values |= {
        "relative_difference": pooled.get("relative_difference"),
        "why_different": pooled.get("why"),
        "gap": (entry.get("gap") or {}).get("center_distance"),
        "ari": metrics.get("ari"),
        "accuracy": metrics.get("accuracy"),
        "communities": len(entry["communities"]) if "communities" in entry else None,
        "led_by": leader,
        "led_betweenness": None if leader is None else round(betweenness(overlay)[leader], 12),
        "led_closeness": None if leader is None else round(closeness(overlay)[leader], 12),
    }
    if cell.measure == "recovery":
        struck = [event["peer"] for event in found.events if event["verb"] == "fault"]
        values["victim"] = struck[0] if struck else victim
    return {name: values[name] for name in MEASURES[cell.measure].columns}


def _nothing(cell: Cell, outcome: str) -> dict[str, Any]:
    return {**dict.fromkeys(MEASURES[cell.measure].columns), "outcome": outcome}


def _ended(done: JobResult, found: FleetResult) -> dict[str, Any]:
    state = done.state
    # A majority may have finished, and a minority behind a cut not know it.
    waits = any(not found.peers[name]["lost"] and name not in done.digests for name in done.roster)
    if not done.digests:
        outcome = "waiting"
    elif state is None or waits:
        outcome = "some wait"
    else:
        outcome = "finished" if state.status == "done" else "failed"
    return {
        "outcome": outcome,
        "finished": len(done.digests),
        "identical": len(dict.fromkeys(done.digests.values())) == 1 if done.digests else None,
        "rounds": None if state is None else state.round,
        "job_seconds": round(done.seconds, 6) if done.digests else None,
        "terms": len(done.terms),
    }


def _traffic(overlay: Overlay, found: FleetResult, done: JobResult, job: Job) -> dict[str, Any]:
    links = found.links
    by_link = {ends: _of_the_job(link.n_bytes) for ends, link in links.items()}
    sent = dict.fromkeys(overlay.names, 0)
    for (source, _), n_bytes in by_link.items():
        sent[source] += n_bytes
    total = sum(by_link.values())
    # Of equally hot links the first by name.
    hottest = max(by_link, key=lambda ends: (by_link[ends], *(tuple(-ord(c) for c in name) for name in ends)))
    return {
        "messages": sum(link.total_messages for link in links.values()),
        "bytes": sum(link.total_bytes for link in links.values()),
        "job_messages": sum(_of_the_job(link.messages) for link in links.values()),
        "job_bytes": total,
        "blob_bytes": sum(link.n_bytes.get(kind, 0) for link in links.values() for kind in sorted(_BLOBS)),
        "link_bytes_mean": total / (2 * overlay.n_links),
        "link_bytes_max": by_link[hottest],
        "hottest_link": " > ".join(hottest),
        "crossings": _crossings(links, done, job),
        "peer_load": round(max(sent.values()) * len(sent) / total, 9) if total else None,
    }


def _of_the_job(counts: Mapping[str, int]) -> int:
    return sum(count for kind, count in counts.items() if kind not in _AT_REST)


def _crossings(links: Links, done: JobResult, job: Job) -> float | None:
    """Return how many links the contributions of a round crossed: the mean over clustering rounds in which all contributed.

    Stages before clustering may have contributions that cannot be added up. None without an aggregator, where no
    contributions cross links.
    """
    if done.state is None:
        return None
    stage, n_peers = labelling_stage(job)[0], len(done.roster)
    log = enumerate(done.state.log)
    whole = [number for number, record in log if record.stage == stage and len(record.contributors) == n_peers]
    if not whole:
        return None
    crossed = sum(link.contributions.get((done.job_id, number), 0) for link in links.values() for number in whole)
    return crossed / len(whole) if crossed else None
