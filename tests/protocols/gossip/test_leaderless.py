"""Jobs without an aggregator, in process: the pooled result up to the tolerance, by the engine's own rules."""

from __future__ import annotations

import numpy as np
import pytest
from overlays import grid, line, links_of, ring, star

from p2pclust.errors import UsageError
from p2pclust.protocols.engine import engine, summaries
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.base import Additive
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.reasons import NOT_ASKED
from p2pclust.protocols.engine.runner import run_in_process
from p2pclust.protocols.gossip.averaging import Answer
from p2pclust.protocols.gossip.leaderless import next_state, offer, proposer_of, run_leaderless
from p2pclust.protocols.gossip.push_sum import GossipLinks
from p2pclust.protocols.measuring.measure import MeasuredIndices, measured

N = 12


def locals_(n: int = N, rows: int = 20) -> list[Local]:
    rng = np.random.default_rng(3)
    return [Local(rng.normal(size=(rows, 2)) + 6 * rng.integers(0, 3, (rows, 1))) for _ in range(n)]


def difference(a: JobState, b: JobState) -> float:
    return float(np.abs(summaries.raw_centers(a) - summaries.raw_centers(b)).max())


@pytest.mark.slow
@pytest.mark.parametrize("links", [ring(9), line(7), star(N), grid(3, 4)], ids=["ring", "line", "star", "grid"])
@pytest.mark.parametrize("protocol", ["llf-cm", "llf-fcm"])
def test_the_pooled_result_up_to_the_tolerance(links: GossipLinks, protocol: str) -> None:
    job = cluster_job(protocol, n_clusters=3, max_rounds=4, tol=0.0, seed=0, scaling="zscore")
    reached: list[float] = []
    rows = locals_(len(links.members))
    state = run_leaderless(job, rows, links, on_round=lambda state, ticks, far: reached.append(far))
    exact = run_in_process(job, rows)
    assert (state.status, state.log) == (exact.status, exact.log)
    assert difference(state, exact) < 1e-9 * 20
    assert max(reached) <= 1e-9


@pytest.mark.parametrize("protocol", ["ffcm", "c2f-fcm", "gdf-fcm", "fkm", "k-fed"])
def test_protocols_that_do_not_add_up_have_the_bits_of_a_star(protocol: str) -> None:
    options = {} if protocol in ("fkm", "k-fed") else {"privacy_gate": False}
    more = {} if protocol == "k-fed" else {"max_rounds": 3}
    job = cluster_job(protocol, n_clusters=3, seed=0, **options, **more)
    state, exact = run_leaderless(job, locals_(5, 30), ring(5)), run_in_process(job, locals_(5, 30))
    if not any(isinstance(p, Additive) for p in job.protocols):
        assert state.encode() == exact.encode()
    assert difference(state, exact) < 1e-6


@pytest.mark.slow
def test_participation_draws_the_same_peers() -> None:
    job = cluster_job("llf-fcm", n_clusters=3, max_rounds=4, tol=0.0, seed=0, participation=0.5)
    state, exact = run_leaderless(job, locals_(), ring(N)), run_in_process(job, locals_())
    assert state.log == exact.log
    assert difference(state, exact) < 1e-8


def test_a_peer_that_abstains_weighs_nothing_and_is_named() -> None:
    rows = locals_(4)
    rows[2] = Local(rows[2].X[:1])
    job = cluster_job("llf-fcm", n_clusters=3, max_rounds=4, tol=0.0, seed=0)
    state, exact = run_leaderless(job, rows, line(4)), run_in_process(job, rows)
    assert state.log == exact.log
    assert "privacy gate" in [record for record in state.log if record.stage == job.main][-1].abstained[2]
    assert difference(state, exact) < 1e-8


def test_the_job_fails_where_it_would_fail_anywhere() -> None:
    rows = [Local(x.X[:1]) for x in locals_(4)]
    job = cluster_job("llf-fcm", n_clusters=3, max_rounds=4, seed=0)
    state, exact = run_leaderless(job, rows, ring(4)), run_in_process(job, rows)
    assert state.encode() == exact.encode()
    assert state.status == "failed"


@pytest.mark.slow
def test_counts_are_whole_numbers() -> None:
    job = measured(cluster_job("llf-cm", n_clusters=3, max_rounds=4, seed=0))
    state, exact = run_leaderless(job, locals_(7), line(7)), run_in_process(job, locals_(7))
    found, wanted = MeasuredIndices.of(state), MeasuredIndices.of(exact)
    assert (found.rows, found.counts, found.hidden) == (wanted.rows, wanted.counts, wanted.hidden)
    assert found.inertia == pytest.approx(wanted.inertia, rel=1e-7)


def test_who_is_out_of_reach_is_left_out_by_name_and_the_next_proposes() -> None:
    job = cluster_job("llf-fcm", n_clusters=3, init="k-means++", max_rounds=2, seed=0, scaling="none")
    rows, state = locals_(4), engine.begin(job)
    members = (0, 1, 3)
    offers = [offer(job, state, rows[p], p, 4, -1) for p in members]
    state = next_state(job, state, {o.answer.peer: o.answer for o in offers}, None, n_peers=4, tolerance=1e-9)
    assert state.log[0].contributors == members
    assert state.log[0].abstained == {2: "left out: out of reach"}
    order = engine.asked(job, state, 4)
    without = tuple(p for p in range(4) if p != order[0])
    second = proposer_of(job, state, without, 4)
    assert second == order[1]
    made = [offer(job, state, rows[p], p, 4, second) for p in without]
    assert [o.answer.abstains for o in made if o.answer.peer != second] == [NOT_ASKED] * 2
    state = next_state(job, state, {o.answer.peer: o.answer for o in made}, None, n_peers=4, tolerance=1e-9)
    assert state.log[1].contributors == (second,)
    assert state.log[1].abstained == {order[0]: "left out: out of reach"}


def test_a_contribution_that_is_none_is_named() -> None:
    job = cluster_job("llf-fcm", n_clusters=3, init="k-means++", max_rounds=2, seed=0, scaling="none")
    state = engine.begin(job)
    answers = {0: offer(job, state, locals_(2)[0], 0, 2, -1).answer, 1: Answer(1, payload=b"nonsense")}
    after = next_state(job, state, answers, None, n_peers=2, tolerance=1e-9)
    assert after.log[0].contributors == (0,)
    assert after.log[0].abstained[1].startswith("malformed")


def test_jobs_that_need_an_aggregator_are_refused() -> None:
    vertical = cluster_job("vertical-cm", n_clusters=2, max_rounds=2)
    with pytest.raises(UsageError, match="a protocol over columns excludes collect = 'gossip'"):
        run_leaderless(vertical, locals_(2), line(2))
    job = cluster_job("llf-cm", n_clusters=2)
    with pytest.raises(UsageError, match="tolerance"):
        run_leaderless(job, locals_(2), line(2), tolerance=1e-20)
    with pytest.raises(UsageError, match="connect"):
        run_leaderless(job, locals_(3), links_of(3, [(0, 1)]))


def test_closing_asks_for_a_stage_that_adds_up() -> None:
    job = cluster_job("llf-cm", n_clusters=2)
    with pytest.raises(ValueError, match="additive"):
        engine.close(job, engine.begin(job), Arrays(), (), {}, n_peers=2)
