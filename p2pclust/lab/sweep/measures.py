"""The measures of a sweep: each returns the columns of a cell; and the peers at the places that a sweep names."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np
from threadpoolctl import threadpool_limits

from p2pclust.errors import FleetError
from p2pclust.jobs.request import JobResult
from p2pclust.lab.scenario.file.load import load_data, make_job
from p2pclust.lab.scenario.outcome.evaluate import job_entry
from p2pclust.lab.scenario.run import CheckedRun, fleet_spec
from p2pclust.lab.simulation.world.network import Conditions, LinkTraffic, Network
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.lab.simulation.world.world import Observer, World
from p2pclust.lab.sweep.cells import Cell, scenario_of
from p2pclust.lab.sweep.columns import MEASURES
from p2pclust.lab.testbed import backend
from p2pclust.lab.testbed.faults import Fault
from p2pclust.lab.testbed.in_process import links_between
from p2pclust.lab.testbed.spec import FleetResult
from p2pclust.lab.topology import measures as of_overlays
from p2pclust.lab.topology.matrices import betweenness, closeness, hops
from p2pclust.overlay.overlay import Overlay
from p2pclust.peer.core.core import Core
from p2pclust.peer.core.events import Woken
from p2pclust.peer.core.timing import Limits, preset
from p2pclust.protocols.engine import random_streams
from p2pclust.protocols.engine.job import Job
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import labelling_stage
from p2pclust.protocols.gossip.push_sum import GossipLinks, mixing_matrix, second_eigenvalue

#: Kinds of messages that a fleet at rest sends, too.
_AT_REST: Final = frozenset(
    ("ping", "ack", "ping-request", "gossip", "member-sync", "refusal", "fact-digest", "fact-delta")
)
_BLOBS: Final = frozenset(("blob-request", "blob-chunk", "blob-missing"))
# The second number of a stream's name, beside the one that draws an overlay's gossip.
_PLACES: Final = 7

Links = Mapping[tuple[str, str], LinkTraffic]


def peer_at(overlay: Overlay, place: str, rng: np.random.Generator) -> str:
    """Return the peer at a place; empty if the overlay has no such place.

    ``central`` and ``peripheral`` are the peers with the greatest, or least, betweenness, then closeness. ``cut-vertex`` is
    the cut vertex with the greatest betweenness. ``betweenness:K`` and ``closeness:K`` are the K-th in falling order, or
    the last. ``random`` is drawn by `rng`.

    >>> line = Overlay(("a", "b", "c", "d", "e"), [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")])
    >>> rng = np.random.default_rng(0)
    >>> [peer_at(line, place, rng) for place in ("central", "peripheral", "cut-vertex", "closeness:2")]
    ['c', 'a', 'c', 'b']
    """
    if place == "random":
        return overlay.names[int(rng.integers(overlay.n_peers))]
    through, near = betweenness(overlay), closeness(overlay)
    # Rounded, so that peers that are equal by symmetry stay equal in any order of summation.
    rank = {name: (round(through[name], 9), round(near[name], 9)) for name in overlay.names}
    falling = sorted(overlay.names, key=lambda name: (-rank[name][0], -rank[name][1], name))
    if place == "central":
        return falling[0]
    if place == "peripheral":
        return min(overlay.names, key=lambda name: (*rank[name], name))
    if place == "cut-vertex":
        cuts = of_overlays.cut_vertices(overlay)
        return next((name for name in falling if name in cuts), "")
    by, _, which = place.partition(":")
    if by == "closeness":
        falling = sorted(overlay.names, key=lambda name: (-rank[name][1], -rank[name][0], name))
    place_of = overlay.n_peers if which == "last" else int(which)
    return falling[place_of - 1] if place_of <= overlay.n_peers else ""


@lru_cache(maxsize=64)
def measured(overlay: Overlay) -> dict[str, Any]:
    """Return the overlay's columns of the table; not to be changed.

    Rounded to 12 digits: the last bits of an eigenvalue depend on the machine's linear algebra, and tables are compared.
    """
    away = hops(overlay)
    n_peers = overlay.n_peers
    return {
        "links": overlay.n_links,
        "degree_mean": float(overlay.degrees.mean()),
        "degree_greatest": int(overlay.degrees.max()),
        "diameter": int(away.max()),
        "average_path": float(away.sum() / (n_peers * (n_peers - 1))),
        "spectral_gap": round(1.0 - of_overlays.second_eigenvalue(overlay), 12),
        "cut_vertices": len(of_overlays.cut_vertices(overlay)),
        "log2_peers": float(np.log2(n_peers)),
    }


def run_cell(cell: Cell) -> dict[str, Any]:
    """Return the measure's columns of a cell, found in this process with one thread of linear algebra, as everywhere."""
    measure = {"facts": of_facts, "mixing": of_mixing}.get(cell.measure, of_job)
    with threadpool_limits(limits=1):
        overlay = cell.make_overlay()
        found = dict(measured(overlay))
        try:
            return found | measure(cell, overlay)
        except FleetError:
            return found | dict.fromkeys(MEASURES[cell.measure].columns)


def of_job(cell: Cell, overlay: Overlay) -> dict[str, Any]:
    """Measures "job" and "recovery": what a job on a simulated fleet cost on each link, and whether it is exact."""
    scenario = scenario_of(cell)
    shares = load_data(scenario)
    rows = next(iter(shares.values()))
    job = make_job(scenario, 0, rows.n_features, rows.schema)
    spec = fleet_spec(CheckedRun(scenario, shares, [job], {}))
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

    Stages before clustering may have contributions that cannot be added up. None without an aggregator.
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


# -- facts -------------------------------------------------------------------------------------------------------------


_KEY, _VALUE = "cancel/news", b"a fact for all peers"  # of a kind that peers keep
_MEET_S = 120.0
_SPREAD_S = 600.0
#: What every message takes, beside its devices' own latency.
_DELAY_S = (0.0001, 0.0005)


@dataclass(eq=False)
class _FirstTimes(Observer):
    """Record when something first holds of each peer."""

    n_peers: int
    holds: Callable[[Core], bool]
    times: dict[str, float] = field(default_factory=dict)

    def stepped(self, world: World, peer: Peer) -> None:
        if peer.name not in self.times and peer.core is not None and self.holds(peer.core):
            self.times[peer.name] = world.now

    def complete(self) -> bool:
        return len(self.times) == self.n_peers


def of_facts(cell: Cell, overlay: Overlay) -> dict[str, Any]:
    """Measure "facts": when each peer of an idle fleet has a fact that one of them publishes."""
    timing = preset(cell.fixed["fleet"]["timing"])
    latency_s, loss = cell.axis("latency_ms") / 1000, cell.axis("loss")
    rng = random_streams.gossiping(cell.seed)
    publisher = overlay.names[int(rng.integers(overlay.n_peers))]
    meeting = _FirstTimes(overlay.n_peers, lambda core: core.membership.all_here())
    ears = _FirstTimes(overlay.n_peers, lambda core: core.facts.get(publisher, _KEY) is not None)
    network = Network(Conditions(_DELAY_S), rng.spawn(1)[0], dict.fromkeys(overlay.names, (latency_s, loss)))
    near = None if cell.kind == "full" else {name: overlay.neighbours(name) for name in overlay.names}
    rows = {name: Local(np.zeros((1, 1))) for name in overlay.names}
    world = World(rows, network, timing, Limits(), rng.spawn(1)[0], (meeting,), overlay=near)
    for name in world.peers:
        world.start(name)
    if not world.run_until(_MEET_S, meeting.complete):
        raise FleetError(f"the peers did not find each other within {_MEET_S:.0f} virtual seconds")
    # Peers that joined late still receive old facts; an idle fleet sends only periodic comparisons.
    world.run_until(world.now + timing.sync_period_s)
    deltas_before = _deltas(world)
    began, peer = world.now, world.peers[publisher]
    world.watch(ears)
    assert peer.core is not None
    peer.core.facts.publish(_KEY, _VALUE)
    world.step(peer, Woken())
    all_informed = world.run_until(began + _SPREAD_S, ears.complete)
    heard = sorted(at - began for at in ears.times.values())
    seconds = heard[-1] if all_informed else None
    half = heard[overlay.n_peers // 2 - 1] if len(heard) >= overlay.n_peers // 2 else None
    one_link_s = sum(_DELAY_S) / 2 + 2 * latency_s
    return {
        "publisher": publisher,
        "eccentricity": int(hops(overlay)[overlay.names.index(publisher)].max()),
        "informed": len(heard),
        "seconds": _quotient(seconds, 1.0),
        "seconds_half": _quotient(half, 1.0),
        "gossip_periods": _quotient(seconds, timing.gossip_period_s),
        "link_delays": _quotient(seconds, one_link_s),
        "deltas": _deltas(world) - deltas_before,
    }


def _quotient(seconds: float | None, unit_s: float) -> float | None:
    return None if seconds is None else round(seconds / unit_s, 9)


def _deltas(world: World) -> int:
    return sum(link.messages.get("fact-delta", 0) for link in world.traffic.links().values())


# -- mixing ------------------------------------------------------------------------------------------------------------


_MOST_TICKS = 1_000_000


def links_of(overlay: Overlay, mixing: str) -> GossipLinks:
    """Return an overlay as `collect = "gossip"` sees it."""
    return links_between(overlay.names, {name: overlay.neighbours(name) for name in overlay.names}, mixing)


def ticks_to_agree(links: GossipLinks, tolerance: float, rng: np.random.Generator) -> int | None:
    """Return after how many ticks no estimate is farther from the mean than `tolerance` times the start's farthest.

    The values at the start are drawn by `rng`. None if it takes more than a million ticks.

    >>> ticks_to_agree(GossipLinks([[1], [0]]), 1e-9, np.random.default_rng(0))
    1
    """
    matrix = mixing_matrix(links)
    start = rng.standard_normal(len(links.members))
    # Shares of one mass add up to it, so the mean taken off at the start stays off; the weight says how much came here.
    apart, weight = start - start.mean(), np.ones(len(start))
    wanted = tolerance * np.abs(apart).max()
    for tick in range(1, _MOST_TICKS + 1):
        apart, weight = matrix @ apart, matrix @ weight
        if np.abs(apart / weight).max() <= wanted:
            return tick
    return None


def of_mixing(cell: Cell, overlay: Overlay) -> dict[str, Any]:
    """Measure "mixing": how many ticks averaging over an overlay takes, against what its spectrum predicts."""
    tolerance = float(cell.fixed["tolerance"])
    links = links_of(overlay, cell.axis("mixing"))
    ticks = ticks_to_agree(links, tolerance, random_streams.gossiping(cell.seed))
    second = second_eigenvalue(links)
    predicted = 1.0 if second < tolerance else math.log(tolerance) / math.log(second)
    return {
        "predicted": round(predicted, 9),
        "ticks": ticks,
        "ratio": None if ticks is None else round(ticks / predicted, 9),
        "tick_messages": 2 * overlay.n_links,
    }
