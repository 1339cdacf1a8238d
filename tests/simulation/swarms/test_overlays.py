"""Peers that have links to their neighbours only: the bits of the full mesh, whatever the overlay and whoever dies."""

from __future__ import annotations

from functools import cache

import networkx as nx
import numpy as np
import pytest
from swarm_seeds import counted

from p2pclust.errors import UsageError
from p2pclust.jobs.request import JobRequest
from p2pclust.lab.scenario.file.load import load_data, make_job
from p2pclust.lab.scenario.file.schema import Scenario
from p2pclust.lab.scenario.run import CheckedRun, fleet_spec
from p2pclust.lab.simulation.world.network import Conditions, Network
from p2pclust.lab.simulation.world.world import World
from p2pclust.lab.testbed import backend
from p2pclust.lab.testbed.faults import Fault
from p2pclust.lab.testbed.spec import FleetResult, FleetSpec, PeerSpec
from p2pclust.overlay import make_overlay
from p2pclust.overlay.kinds import KINDS
from p2pclust.peer.core.spread.blobs import Blobs
from p2pclust.peer.core.timing import PRESETS, Limits
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job, JobState, Stage
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import run_in_process

pytestmark = pytest.mark.slow

N = 12
NAMES = tuple(f"p{i:02d}" for i in range(N))
GRAPHS = {
    "ring": nx.cycle_graph(N),
    "line": nx.path_graph(N),
    "star": nx.star_graph(N - 1),
    "grid": nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 4)),
    "tree": nx.balanced_tree(2, 3).subgraph(range(N)),
    "regular": nx.random_regular_graph(3, N, seed=1),
    "small-world": nx.connected_watts_strogatz_graph(N, 4, 0.3, seed=1),
    "scale-free": nx.barabasi_albert_graph(N, 2, seed=1),
}
TWO_CONNECTED = ("ring", "grid", "regular", "small-world")


def overlay_of(kind: str) -> dict[str, tuple[str, ...]]:
    graph = GRAPHS[kind]
    return {NAMES[i]: tuple(sorted(NAMES[j] for j in graph[i])) for i in graph}


def carried_out(kind: str, *faults: Fault, give_up_s: float = 60.0) -> FleetResult:
    rng = np.random.default_rng(0)
    peers = tuple(PeerSpec(name, rng.normal(size=(20, 2)) + 6 * rng.integers(0, 3, (20, 1))) for name in NAMES)
    job = cluster_job("llf-fcm", n_clusters=3, max_rounds=6, tol=0.0, seed=0)
    overlay = None if kind == "full" else overlay_of(kind)
    spec = FleetSpec(
        peers,
        (JobRequest(job, Treatment(patience_s=8.0)),),
        faults=faults,
        timing="fast",
        overlay=overlay,
        give_up_s=give_up_s,
    )
    return backend("simulated").carry_out(spec, lambda event: None)


@cache
def on_the_mesh() -> FleetResult:
    return carried_out("full")


@pytest.mark.parametrize("kind", GRAPHS)
def test_the_bits_of_the_full_mesh(kind: str) -> None:
    found, wanted = carried_out(kind), on_the_mesh()
    assert found.failure == ""
    state, mesh = found.jobs[0].state, wanted.jobs[0].state
    assert state is not None
    assert mesh is not None
    assert state.encode() == mesh.encode()
    assert set(found.jobs[0].digests) == set(NAMES)


@cache
def many(n: int) -> tuple[tuple[PeerSpec, ...], JobState]:
    """So many peers, and what one process makes of their rows."""
    rng = np.random.default_rng(0)
    rows = {f"p{i:03d}": rng.normal(size=(12, 2)) + 6 * rng.integers(0, 3, (12, 1)) for i in range(n)}
    peers = tuple(PeerSpec(name, X) for name, X in rows.items())
    return peers, run_in_process(MANY, [peer.local() for peer in peers])


MANY = cluster_job("llf-fcm", n_clusters=3, max_rounds=3, tol=0.0, seed=0)


@pytest.mark.parametrize("n", [24, pytest.param(100, marks=pytest.mark.swarms)])
@pytest.mark.parametrize("collect", ["star", "tree"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("full", "file", "mobility")])
def test_many_peers_have_the_bits_of_one_process(kind: str, collect: str, n: int) -> None:
    # A line is as long as messages may have to travel; a hypercube has a power of two.
    peers, wanted = many({("line", 24): 40, ("hypercube", 24): 16, ("hypercube", 100): 128}.get((kind, n), n))
    overlay = make_overlay(kind, [peer.name for peer in peers], np.random.default_rng(0))
    spec = FleetSpec(
        peers,
        (JobRequest(MANY, Treatment(collect=collect)),),
        timing="default",
        overlay={name: overlay.neighbours(name) for name in overlay.names},
    )
    found = backend("simulated").carry_out(spec, lambda event: None)
    assert found.failure == ""
    assert found.jobs[0].state is not None
    assert found.jobs[0].state.encode() == wanted.encode()
    assert len(found.jobs[0].digests) == len(peers)


@pytest.mark.parametrize("who", ["", "p05"])
@pytest.mark.parametrize("phase", ["opening", "adopting", "combining"])
@pytest.mark.parametrize("kind", TWO_CONNECTED)
def test_the_death_of_one_changes_nothing_for_the_others(kind: str, phase: str, who: str) -> None:
    if who and phase != "adopting":
        pytest.skip("a follower only adopts")
    result = carried_out(kind, Fault("kill", (who,) if who else (), round=3, phase=phase))
    assert (result.failure, result.unfired_faults) == ("", ())
    (job,) = result.jobs
    (dead,) = (event["peer"] for event in result.events if event["verb"] == "fault")
    assert set(job.digests) == set(NAMES) - {dead}
    assert len(set(job.digests.values())) == 1
    assert job.state is not None
    assert job.state.log[-1].contributors == tuple(i for i, name in enumerate(NAMES) if name != dead)


@pytest.mark.parametrize("kind", ["line", "star", "tree"])
def test_a_cut_vertex_that_comes_back_costs_time_only(kind: str) -> None:
    middle = {"line": "p06", "star": "p00", "tree": "p01"}[kind]
    result = carried_out(kind, Fault("restart", (middle,), round=2, phase="adopting", for_s=2.0))
    assert (result.failure, result.unfired_faults) == ("", ())
    (job,) = result.jobs
    assert set(job.digests) == set(NAMES)
    assert len(set(job.digests.values())) == 1


def test_without_a_cut_vertex_nobody_finishes_where_no_majority_is_left() -> None:
    result = carried_out("star", Fault("kill", ("p00",), round=2, phase="adopting"), give_up_s=20.0)
    assert result.jobs[0].state is None
    assert result.failure
    waiting = [event for event in result.events if event["verb"] == "waiting"]
    assert waiting, "the peers say so"


@pytest.mark.swarms
@pytest.mark.parametrize(("protocol", "n_seeds"), [(None, 40), ("fedcref", 8)])
def test_seeds_on_sparse_overlays_break_no_promise(protocol: str | None, n_seeds: int) -> None:
    if protocol == "fedcref":
        pytest.importorskip("torch", reason="autoencoders need torch: pip install 'p2pclust[models]'")
    relayed = counted(range(n_seeds), protocol, "sparse")["message relayed through others"]
    assert relayed > 1000


class TestPartialView:
    """Peers with six links each: whoever loses a neighbour gets another, and nobody is told to whom to link."""

    NAMES = tuple(f"p{i:02d}" for i in range(40))
    MORE = tuple(f"p{i:02d}" for i in range(80))

    def carried_out(self, *faults: Fault, collect: str = "") -> FleetResult:
        rng = np.random.default_rng(0)
        overlay = make_overlay("regular", self.NAMES, rng)
        peers = tuple(PeerSpec(name, rng.normal(size=(8, 2)) + 6 * rng.integers(0, 3, (8, 1))) for name in self.NAMES)
        links = {name: overlay.neighbours(name) for name in self.NAMES}
        job = cluster_job("llf-cm", n_clusters=3, max_rounds=60, tol=0.0, seed=0)
        request = JobRequest(job, Treatment(collect=collect))
        spec = FleetSpec(peers, (request,), timing="fast", overlay=links, partial_view=True, faults=faults)
        return backend("simulated").carry_out(spec, lambda event: None)

    def test_links_of_the_dead_are_replaced(self) -> None:
        victims = ("p07", "p21", "p30")
        result = self.carried_out(*(Fault("kill", (name,), seconds=0.3 * i) for i, name in enumerate(victims, 1)))
        assert (result.failure, result.unfired_faults) == ("", ())
        assert set(result.jobs[0].digests) == set(self.NAMES) - set(victims)
        assert len(set(result.jobs[0].digests.values())) == 1
        new = [(e["peer"], e["lost"], e["by"]) for e in result.events if e["verb"] == "replaced"]
        assert {lost for _, lost, _ in new} == set(victims)

    @pytest.mark.long
    def test_links_are_as_many_as_before_and_have_two_ends(self) -> None:
        overlay = make_overlay("regular", self.MORE, np.random.default_rng(0))
        links = {name: overlay.neighbours(name) for name in self.MORE}
        network = Network(Conditions(), np.random.default_rng(1))
        locals_ = {name: Local(np.zeros((1, 1))) for name in self.MORE}
        rng = np.random.default_rng(2)
        world = World(locals_, network, PRESETS["fast"], Limits(), rng, overlay=links, partial_view=True)
        for name in self.MORE:
            world.start(name)
        victims = ("p07", "p31", "p50", "p08", "p09")
        for i, name in enumerate(victims):
            world.run_until(2.0 + 0.2 * i)
            world.crash(name)
        world.run_until(12.0)
        own = {name: set(core.routing.own) - set(victims) for name, peer in world.peers.items() if (core := peer.core)}
        assert all(name in own[other] for name, near in own.items() for other in near)
        assert min(map(len, own.values())) >= 5
        assert max(map(len, own.values())) <= 7

    @pytest.mark.long
    def test_a_link_that_was_replaced_carries_the_sums(self) -> None:
        """Whatever is used of the new links, the bits are those of the same contributors."""
        job = self.carried_out(Fault("kill", ("p07",), seconds=0.2)).jobs[0]
        again = self.carried_out(Fault("kill", ("p07",), seconds=0.2), collect="star").jobs[0]
        assert job.state is not None
        assert again.state is not None
        assert job.state.status == again.state.status == "done"


def test_models_go_from_all_to_all_of_a_large_fleet_only_if_that_is_asked_for() -> None:
    peers = tuple(PeerSpec(f"p{i:02d}", np.zeros((4, 2))) for i in range(65))
    job = Job((Stage("range"), Stage("minmax"), Stage("fedcref")), seed=0)
    with pytest.raises(UsageError, match="all_to_all = true"):
        FleetSpec(peers, (JobRequest(job),)).refuse_floods()
    FleetSpec(peers, (JobRequest(job, all_to_all=True),)).refuse_floods()
    FleetSpec(peers[:64], (JobRequest(job),)).refuse_floods()


@pytest.mark.parametrize("kind", ["ring", pytest.param("line", marks=pytest.mark.long)])
def test_no_chunk_of_a_model_is_held_lost_on_links_that_lose_nothing(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Peers that fetch models through each other do not wait for each other: neither for what the other has not got
    itself, nor for room. With this seed each of them happened on a ring."""
    document = {
        "seed": 2,
        "data": {
            "source": "digits", "scaling": "minmax", "bounds": [[0.0, 16.0]],
            "partition": {"scheme": "by-class", "rows_per_class": 20, "classes_per_peer": [2, 4]},
        },
        "fleet": {"peers": 8, "timing": "fast", "overlay": {"kind": kind}},
        "jobs": [{"protocol": "fedcref", "n_local_clusters": "classes", "epochs": 2, "batch": 16}],
    }  # fmt: skip
    scenario = Scenario.model_validate(document)
    shares = load_data(scenario)
    lost: list[str] = []
    monkeypatch.setattr(Blobs, "fire", lambda self, key: lost.append(key[1]))
    found = backend("simulated").carry_out(
        fleet_spec(CheckedRun(scenario, shares, [make_job(scenario, 0, 64)], {})), lambda event: None
    )
    assert (found.failure, lost) == ("", [])
    assert len(found.jobs[0].digests) == 8
