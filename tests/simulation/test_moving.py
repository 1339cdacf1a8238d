"""Links that appear and vanish while a job runs: nothing wrong comes of it, and the bits are those of the full mesh."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from swarm_seeds import counted

from p2pclust.errors import UsageError
from p2pclust.jobs.request import JobRequest
from p2pclust.lab.links.shaping import Shape
from p2pclust.lab.testbed import backend
from p2pclust.lab.testbed.faults import Fault
from p2pclust.lab.testbed.spec import FleetResult, FleetSpec, PeerSpec
from p2pclust.overlay import LinkChange
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.compose import cluster_job

pytestmark = pytest.mark.slow

Links = Sequence[tuple[str, str]]
LINE = tuple(pairwise(("p1", "p2", "p3", "p4", "p5")))
RING = (*LINE, ("p1", "p5"))


def names(n: int) -> tuple[str, ...]:
    return tuple(f"p{number}" for number in range(1, n + 1))


def overlay_of(n: int, links: Iterable[tuple[str, str]]) -> Mapping[str, tuple[str, ...]]:
    both = [*links, *((b, a) for a, b in links)]
    return {name: tuple(sorted(b for a, b in both if a == name)) for name in names(n)}


def changes(*lines: str) -> tuple[LinkChange, ...]:
    """``"2.5 p1-p2 down"``."""
    split = [(*line.split()[:1], *line.split()[1].split("-"), line.split()[2]) for line in lines]
    return tuple(LinkChange(float(at), a, b, link == "up") for at, a, b, link in split)


def carried_out(
    n: int, links: Links | None, trace: tuple[LinkChange, ...] = (), *faults: Fault, rounds: int = 8, missing: str = "all",
    patience_s: float = 4.0, give_up_s: float = 60.0, latency_ms: float = 50.0,
) -> FleetResult:  # fmt: skip
    """A job whose rounds take a while, for links are slow."""
    rng = np.random.default_rng(0)
    peers = tuple(
        PeerSpec(name, rng.normal(size=(20, 2)) + 6 * rng.integers(0, 3, (20, 1)), link=Shape.of(latency_ms=latency_ms))
        for name in names(n)
    )
    job = cluster_job("llf-fcm", n_clusters=3, max_rounds=rounds, tol=0.0, seed=0)
    spec = FleetSpec(
        peers, (JobRequest(job, Treatment(missing, patience_s)),), faults=faults, timing="fast", trace=trace,
        overlay=None if links is None else overlay_of(n, links), give_up_s=give_up_s,
    )  # fmt: skip
    return backend("simulated").carry_out(spec, lambda event: None)


@cache
def on_the_mesh(n: int, rounds: int) -> bytes:
    state = carried_out(n, None, rounds=rounds).jobs[0].state
    assert state is not None
    return state.encode()


def of(result: FleetResult, verb: str) -> list[Mapping[str, object]]:
    return [event for event in result.events if event["verb"] == verb]


def ended_as_on_the_mesh(result: FleetResult, n: int, rounds: int = 8) -> None:
    assert result.failure == ""
    (job,) = result.jobs
    assert set(job.digests) == set(names(n))
    assert job.state is not None
    assert job.state.encode() == on_the_mesh(n, rounds)


def seconds_of_round(result: FleetResult, round_: int) -> float:
    """When a round was opened, after the job was handed in."""
    submitted = float(str(of(result, "submitted")[0]["t"]))
    at = next(event["t"] for event in of(result, "phase") if event["round"] == round_ and event["phase"] == "opening")
    return float(str(at)) - submitted


class TestALineWhoseMiddleLinkVanishes:
    def cut(self, missing: str, for_s: float) -> FleetResult:
        calm = carried_out(5, LINE, missing=missing)
        at = seconds_of_round(calm, 4) + 0.03  # on its way from neighbour to neighbour
        trace = changes(f"{at} p3-p4 down", f"{at + for_s} p3-p4 up")
        return carried_out(5, LINE, trace, missing=missing)

    @pytest.mark.parametrize("for_s", [0.02, 0.5, 3.0, 20.0])
    def test_with_all_needed_everybody_waits_and_the_bits_are_the_mesh_s(self, for_s: float) -> None:
        result = self.cut("all", for_s)
        ended_as_on_the_mesh(result, 5)
        assert [(event["peer"], event["to"], event["up"]) for event in of(result, "link")] == [
            ("p3", "p4", False), ("p3", "p4", True),
        ]  # fmt: skip

    def test_the_majority_loses_its_patience_and_goes_on_and_the_others_end_with_its_bits(self) -> None:
        result = self.cut("wait", 45.0)
        assert result.failure == ""
        (job,) = result.jobs
        assert set(job.digests) == set(names(5))
        assert len(set(job.digests.values())) == 1
        assert {str(event["peer"]) for event in of(result, "left-out")} == {"p4", "p5"}
        assert job.state is not None
        assert job.state.log[-1].contributors == (0, 1, 2)

    def test_nobody_is_held_dead(self) -> None:
        assert not [event for event in of(self.cut("all", 20.0), "member") if event["status"] == "dead"]

    def test_the_minority_says_so(self) -> None:
        said = of(self.cut("all", 20.0), "waiting")
        assert {(event["peer"], event["present"]) for event in said} >= {("p4", 2), ("p5", 2)}


def test_where_no_majority_is_left_nobody_finishes_and_it_is_said_why() -> None:
    trace = changes("0.4 p2-p3 down", "0.4 p3-p4 down")
    result = carried_out(5, LINE, trace, give_up_s=15.0)
    assert result.jobs[0].state is None
    assert result.failure.endswith("p3, p4, p5 have no path to the others")


def test_a_ring_becomes_a_line_then_another_line() -> None:
    trace = changes("0.3 p1-p5 down", "0.9 p1-p5 up", "0.9 p2-p3 down", "1.5 p3-p1 up", "1.5 p4-p5 down", "1.8 p2-p1 down",
                    "1.8 p2-p4 up")  # fmt: skip
    result = carried_out(5, RING, trace)
    ended_as_on_the_mesh(result, 5)
    assert len(of(result, "link")) == len(trace)


@pytest.mark.parametrize("gap_s", [-0.2, 0.0, 0.4])
def test_a_peer_that_walks_along_the_others(gap_s: float) -> None:
    """Its link moves from one to the next: the new one comes before the old one goes, in the same instant, or after."""
    hosts = ("p1", "p2", "p3", "p4", "p5", "p4", "p3", "p2", "p1")
    moves = []
    for number, (host, other) in enumerate(pairwise(hosts), start=1):
        at = 0.7 * number
        moves += [(at, f"{at} {host}-p6 down"), (at + gap_s, f"{at + gap_s} {other}-p6 up")]
    trace = changes(*(line for _, line in sorted(moves, key=lambda move: move[0])))
    result = carried_out(6, (*LINE, ("p1", "p6")), trace, rounds=20)
    ended_as_on_the_mesh(result, 6, rounds=20)
    assert len(of(result, "link")) == len(trace)
    assert not of(result, "left-out")


def test_the_walker_restarts_on_the_way_and_finds_the_links_that_there_are_then() -> None:
    trace = changes("0.5 p1-p6 down", "0.5 p2-p6 up", "1.5 p2-p6 down", "1.5 p4-p6 up", "4 p4-p6 down", "4 p1-p6 up")
    fault = Fault("restart", ("p6",), seconds=1.0, for_s=1.5)
    result = carried_out(6, (*LINE, ("p1", "p6")), trace, fault, rounds=30)
    ended_as_on_the_mesh(result, 6, rounds=30)


def test_a_trace_needs_links_to_begin_with() -> None:
    with pytest.raises(UsageError, match="trace"):
        carried_out(5, None, changes("1 p1-p2 down"))


@pytest.mark.swarms
@pytest.mark.parametrize(("protocol", "n_seeds"), [(None, 40), ("fedcref", 6)])
def test_seeds_on_moving_overlays_break_no_promise(protocol: str | None, n_seeds: int) -> None:
    if protocol == "fedcref":
        pytest.importorskip("torch", reason="autoencoders need torch: pip install 'p2pclust[models]'")
    vanished = counted(range(n_seeds), protocol, "moving")["link vanished"]
    assert vanished > 10 * n_seeds
