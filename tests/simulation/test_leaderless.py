"""Jobs without an aggregator on simulated peers: the bits of one process, and whom a death, a return or a cut costs what."""

from __future__ import annotations

from collections.abc import Sequence

import msgpack
import networkx as nx
import numpy as np
import pytest

from p2pclust.jobs.request import JobRequest
from p2pclust.lab.links.shaping import Shape
from p2pclust.lab.simulation.checks.invariants import Invariants
from p2pclust.lab.simulation.fleets.run import run
from p2pclust.lab.simulation.world.network import Conditions, Network
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.lab.simulation.world.world import Observer, World
from p2pclust.lab.testbed import backend
from p2pclust.lab.testbed.faults import Fault
from p2pclust.lab.testbed.spec import FleetResult, FleetSpec, PeerSpec
from p2pclust.peer.core.effects import Effect
from p2pclust.peer.core.events import Submit
from p2pclust.peer.core.reports import Report
from p2pclust.peer.core.timing import Limits, preset
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine import summaries
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import pooled

pytestmark = pytest.mark.slow

GRAPHS = {
    "ring": nx.cycle_graph(7),
    "line": nx.path_graph(7),
    "star": nx.star_graph(6),
    "grid": nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 3)),
    "full": nx.complete_graph(7),
}
TOLERANCE = 1e-3


def spec_of(
    kind: str, *faults: Fault, loss: float = 0.0, protocol: str = "llf-fcm", give_up_s: float = 60.0
) -> FleetSpec:
    rng = np.random.default_rng(0)
    link = Shape.of(latency_ms=1.0, loss=loss)
    graph = GRAPHS[kind]
    names = [f"p{i:02d}" for i in graph]
    peers = tuple(
        PeerSpec(name, rng.normal(size=(20, 2)) + 6 * rng.integers(0, 3, (20, 1)), link=link) for name in names
    )
    job = cluster_job(protocol, n_clusters=3, max_rounds=3, tol=0.0, seed=0)
    overlay = None if kind == "full" else {names[i]: tuple(sorted(names[j] for j in graph[i])) for i in graph}
    request = JobRequest(job, Treatment(collect="gossip", gossip_tolerance=TOLERANCE))
    return FleetSpec(peers, (request,), faults=faults, timing="fast", overlay=overlay, give_up_s=give_up_s)


def carry_out(spec: FleetSpec, name: str = "simulated") -> FleetResult:
    return backend(name).carry_out(spec, lambda event: None)


def assert_kept(spec: FleetSpec, result: FleetResult, *, gone: Sequence[str] = ()) -> JobState:
    assert (result.failure, result.unfired_faults) == ("", ())
    (job,) = result.jobs
    assert set(job.digests) >= {peer.name for peer in spec.peers} - set(gone)
    assert len(set(job.digests.values())) == 1
    state = job.state
    assert state is not None
    assert state.status == "done", state.reason
    wanted = pooled(spec.jobs[0].job, [peer.local() for peer in spec.peers], state.log)
    assert float(np.abs(summaries.raw_centers(state) - wanted).max()) < 30 * TOLERANCE
    assert job.tolerance == TOLERANCE
    assert job.reached is not None
    assert job.reached <= TOLERANCE
    return state


@pytest.mark.parametrize("kind", GRAPHS)
def test_the_bits_of_one_process(kind: str) -> None:
    spec = spec_of(kind)
    found, wanted = carry_out(spec), carry_out(spec, "in-process")
    state, exact = assert_kept(spec, found), assert_kept(spec, wanted)
    assert state.encode() == exact.encode()
    assert found.jobs[0].ticks == wanted.jobs[0].ticks
    assert found.jobs[0].reached == wanted.jobs[0].reached
    assert found.jobs[0].terms == ()


@pytest.mark.long
def test_loss_costs_time_only() -> None:
    found, wanted = carry_out(spec_of("grid", loss=0.1)), carry_out(spec_of("grid"), "in-process")
    assert found.jobs[0].state is not None
    assert wanted.jobs[0].state is not None
    assert found.jobs[0].state.encode() == wanted.jobs[0].state.encode()


@pytest.mark.parametrize("phase", ["adopting", "combining", "closing"])
@pytest.mark.parametrize(("kind", "who"), [("ring", "p05"), ("grid", "p00")])
def test_a_death_is_survived(kind: str, who: str, phase: str) -> None:
    spec = spec_of(kind, Fault("kill", (who,), round=3, phase=phase))
    state = assert_kept(spec, carry_out(spec), gone=[who])
    dead = int(who[1:])
    if phase == "adopting":
        assert dead not in state.log[-1].contributors
        assert state.log[-1].abstained == {dead: "left out: out of reach"}
    if phase == "closing":
        assert dead in state.log[-1].contributors


@pytest.mark.parametrize("phase", ["adopting", "combining", "closing"])
@pytest.mark.parametrize(
    ("kind", "who"),
    [
        ("ring", "p00"),
        pytest.param("grid", "p05", marks=pytest.mark.long),
        ("star", "p00"),
        pytest.param("line", "p06", marks=pytest.mark.long),
    ],
)
def test_a_restart_costs_a_round_that_is_repeated(kind: str, who: str, phase: str) -> None:
    spec = spec_of(kind, Fault("restart", (who,), round=3, phase=phase, for_s=0.3))
    assert_kept(spec, carry_out(spec))


def test_the_death_of_a_cut_vertex_leaves_a_minority_waiting() -> None:
    spec = spec_of("line", Fault("kill", ("p02",), round=2, phase="adopting"), give_up_s=15.0)
    result = carry_out(spec)
    (job,) = result.jobs
    assert set(job.digests) == {"p03", "p04", "p05", "p06"}, "those behind it hold a majority, and finish"
    waiting = [event for event in result.events if event["verb"] == "waiting"]
    assert {event["peer"] for event in waiting} <= {"p00", "p01"}
    assert {(event["present"], event["of"]) for event in waiting} == {(2, 7)}


def test_without_the_middle_of_a_star_nobody_finishes() -> None:
    result = carry_out(spec_of("star", Fault("kill", ("p00",), round=2, phase="adopting"), give_up_s=15.0))
    assert result.jobs[0].state is None
    assert "p00 is gone" in result.failure


class Watch(Observer):
    """What was reported, and when."""

    def __init__(self) -> None:
        self.reports: list[tuple[float, str, str, dict[str, object]]] = []

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        if isinstance(effect, Report):
            self.reports.append((world.now, peer.name, effect.verb, dict(effect.fields)))

    def who(self, verb: str) -> set[str]:
        return {name for _, name, told, _ in self.reports if told == verb}


def a_world(n: int) -> tuple[World, Network, Watch, list[str]]:
    """A ring, with a job handed in."""
    rng = np.random.default_rng(1)
    names = [f"p{i}" for i in range(n)]
    locals_ = {name: Local(rng.normal(size=(12, 2)) + 6 * rng.integers(0, 3, (12, 1))) for name in names}
    network, watch = Network(Conditions((0.001, 0.003)), np.random.default_rng(2)), Watch()
    overlay = {name: tuple(sorted((names[i - 1], names[(i + 1) % n]))) for i, name in enumerate(names)}
    world = World(
        locals_, network, preset("fast"), Limits(), np.random.default_rng(3), (Invariants(), watch), None, overlay
    )
    for name in names:
        world.start(name)
    peers = world.peers.values()
    assert world.run_until(30.0, lambda: all(p.core is not None and len(p.core.membership.alive()) == n for p in peers))
    job = cluster_job("llf-fcm", n_clusters=3, max_rounds=12, tol=0.0, seed=0)
    world.step(
        world.peers[names[0]],
        Submit(msgpack.packb(job.to_dict()), treatment=Treatment(collect="gossip", gossip_tolerance=1e-6)),
    )
    assert world.run_until(world.now + 30.0, lambda: "combined" in [verb for _, _, verb, _ in watch.reports])
    return world, network, watch, names


def cut(network: Network, ones: Sequence[str], others: Sequence[str], *, heal: bool = False) -> None:
    for a in ones:
        for b in others:
            for way in ((a, b), (b, a)):
                (network.heal if heal else network.cut)(*way)


def test_a_minority_waits_and_is_given_the_result_when_the_cut_heals() -> None:
    world, network, watch, names = a_world(7)
    few, many = names[:3], names[3:]
    cut(network, few, many)
    assert world.run_until(world.now + 60.0, lambda: watch.who("finished") == set(many))
    assert watch.who("waiting") == set(few)
    assert {(f["present"], f["of"]) for _, _, verb, f in watch.reports if verb == "waiting"} <= {(3, 7), (2, 7), (1, 7)}
    cut(network, few, many, heal=True)
    assert world.run_until(world.now + 30.0, lambda: watch.who("finished") == set(names))
    assert len({f["digest"] for _, _, verb, f in watch.reports if verb == "finished"}) == 1


def test_two_halves_both_wait_and_go_on_together() -> None:
    world, network, watch, names = a_world(6)
    cut(network, names[:3], names[3:])
    world.run_until(world.now + 30.0)
    assert watch.who("finished") == set()
    assert watch.who("waiting") == set(names)
    cut(network, names[:3], names[3:], heal=True)
    assert world.run_until(world.now + 60.0, lambda: watch.who("finished") == set(names))
    (log,) = {f["digest"] for _, _, verb, f in watch.reports if verb == "finished"}
    assert log


def test_all_restart_and_go_on() -> None:
    world, _, watch, names = a_world(5)
    rounds = max(int(str(f["round"])) for _, _, verb, f in watch.reports if verb == "combined")
    for name in names:
        world.crash(name)
    for name in names:
        world.start(name)
    assert world.run_until(world.now + 60.0, lambda: watch.who("finished") == set(names))
    again = [int(str(f["round"])) for at, _, verb, f in watch.reports if verb == "combined"]
    assert again.count(rounds - 1) <= 1, "what was on disk was not done again"


@pytest.mark.swarms
def test_seeds_break_no_promise() -> None:
    n_seeds, finished = 40, 0
    for seed in range(n_seeds):
        outcome = run(seed, "leaderless", "sparse" if seed % 4 else "")
        assert not outcome.failure, f"seed {seed}: {outcome.failure}"
        finished += outcome.counts["finished"]
    assert finished > 3 * n_seeds / 4
