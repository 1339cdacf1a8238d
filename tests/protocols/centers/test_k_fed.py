from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from p2pclust.errors import UsageError
from p2pclust.protocols import Arrays, Local, cluster_job, pooled_run, run_in_process
from p2pclust.protocols.engine import engine, summaries
from p2pclust.protocols.engine.job import Job
from p2pclust.protocols.measuring.doubts import doubts


def advanced(*centers: list[float], n_clusters: int, seed: int = 0) -> list[float]:
    """What the aggregator makes of these local centers, one list per peer."""
    job = cluster_job("k-fed", n_clusters=n_clusters, bounds=([-100.0], [100.0]), seed=seed)
    parts = [(p, Arrays(centers=np.array(c)[:, np.newaxis], suppressed=0)) for p, c in enumerate(centers)]
    after = engine.advance(job, engine.begin(job), parts, {}, n_peers=len(parts))
    assert (after.status, after.converged) == ("done", True)
    found: list[float] = summaries.raw_centers(after).ravel().tolist()
    return found


class TestAlgorithm2ByHand:
    def test_the_farthest_join_those_of_the_first_device(self) -> None:
        # 0 and 10 are the first device's; 31 is farthest from them; then one round of Lloyd over all.
        assert advanced([0.0, 10.0], [2.0, 29.0], [31.0, 12.0], n_clusters=3) == pytest.approx([1.0, 11.0, 30.0])

    def test_local_centers_count_once_each(self) -> None:
        assert advanced([0.0, 50.0], [0.0], [9.0], n_clusters=2) == pytest.approx([3.0, 50.0])

    def test_repeated_centers_are_filled_up_with_drawn_ones(self) -> None:
        found = advanced([5.0], [5.0], n_clusters=3)
        assert found[0] == pytest.approx(5.0)
        assert len(set(found)) == 3


class TestDoubt:
    def test_local_centers_of_one_peer_in_one_cluster_are_counted(self) -> None:
        job = cluster_job("k-fed", n_clusters=2, bounds=([0.0], [9.0]))
        parts = [[0.0, 8.0], [0.5, 1.0], [7.0]]
        told = [Arrays(centers=np.array(part)[:, np.newaxis], suppressed=0) for part in parts]
        arrays = engine.advance(job, engine.begin(job), list(enumerate(told)), {}, n_peers=3).arrays
        # The centers are 0.5 and 7.5: the second peer's two fell into the first of them.
        assert (int(arrays["further"]), int(arrays["merged"])) == (2, 1)

    def test_peers_of_one_cluster_each_are_doubted_unless_they_look_for_one(self) -> None:
        peers = [Local(groups(middle, seed=int(middle))) for middle in (0.0, 10.0, 20.0, 30.0)]
        split = run_in_process(cluster_job("k-fed", n_clusters=4), peers)
        (doubt,) = doubts(split.arrays)
        assert doubt.startswith("peers split clusters, and the parts may stand in the place of others: ")
        assert doubt.endswith("(1 if it holds one)")
        whole = run_in_process(cluster_job("k-fed", n_clusters=4, n_local_clusters=1), peers)
        assert doubts(whole.arrays) == ()
        assert sorted(summaries.raw_centers(whole)[:, 0]) == pytest.approx([0.0, 10.0, 20.0, 30.0], abs=0.5)

    def test_peers_of_all_clusters_are_not_doubted(self) -> None:
        peers = [Local(groups(0.0, 10.0, 20.0, seed=seed)) for seed in range(3)]
        assert doubts(run_in_process(cluster_job("k-fed", n_clusters=3), peers).arrays) == ()


def groups(*middles: float, n: int = 30, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(middle, 0.5, (n, 2)) for middle in middles])


class TestRuns:
    peers = (groups(0.0, 10.0), groups(10.0, 20.0, seed=1), groups(20.0, 30.0, seed=2))

    @pytest.mark.parametrize("n_local", [2, "search"])
    def test_one_round_finds_what_is_apart(self, n_local: int | str) -> None:
        locals_ = [Local(X) for X in self.peers]
        job = cluster_job("k-fed", n_clusters=4, n_local_clusters=n_local, seed=3)
        state = run_in_process(job, locals_)
        assert [job.stages[record.stage].protocol for record in state.log] == ["range", "k-fed"]
        assert np.sort(summaries.raw_centers(state)[:, 0]) == pytest.approx([0.0, 10.0, 20.0, 30.0], abs=0.3)
        assert pooled_run(job, locals_, state.log).centers == pytest.approx(summaries.raw_centers(state), abs=0.3)
        labels = engine.conclude(job, state, locals_[0])["labels"]
        assert len(set(labels[:30].tolist())) == len(set(labels[30:].tolist())) == 1

    def test_search_needs_no_labels_and_two_clusters_at_least(self) -> None:
        job = cluster_job("k-fed", n_clusters=4, n_local_clusters="search", bounds=([0.0], [9.0]))
        state = engine.begin(job)
        assert len(engine.contribution(job, state, Local([[1.0], [1.5], [8.0], [8.5]]), 0, 2)["centers"]) == 2
        assert engine.contribution(job, state, Local([[1.0], [2.0]]), 0, 2)["centers"] + 4.5 == pytest.approx(1.5)


def test_small_clusters_are_withheld_and_counted() -> None:
    job = cluster_job("k-fed", n_clusters=2, bounds=([0.0], [9.0]))
    part = engine.contribution(job, engine.begin(job), Local([[0.0], [1.0], [9.0]]), 0, 1)
    assert (part["centers"] + 4.5).tolist() == [[0.5]]
    assert part["suppressed"] == 1
    state = run_in_process(job, [Local([[0.0], [9.0]]), Local([[0.0], [1.0], [9.0]])])
    assert state.log[-1].abstained[0].startswith("privacy gate: none of its clusters holds 2 rows or more: ")
    assert summaries.suppressed(state) == 2


def test_a_hostile_contribution_is_left_out() -> None:
    job = cluster_job("k-fed", n_clusters=2, bounds=([0.0], [9.0]))
    good, none = Arrays(centers=[[0.0], [1.0]], suppressed=0), Arrays(centers=np.zeros((0, 1)), suppressed=0)
    many = Arrays(centers=[[0.0]], suppressed=3)
    after = engine.advance(job, engine.begin(job), [(0, none), (1, good), (2, many)], {}, n_peers=3)
    assert after.log[-1].contributors == (1,)
    assert after.log[-1].abstained == {
        0: "failed: it sends no centers", 2: "failed: it suppressed an impossible number of clusters"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_local_clusters": 0}, "k-fed: n_local_clusters = 0: expected a whole number from 1 to 4"),
        ({"n_local_clusters": 5}, "k-fed: n_local_clusters = 5"),
        ({"n_local_clusters": "elbow"}, "k-fed: n_local_clusters = 'elbow': expected a whole number, or \"search\""),
        ({"min_cluster_size": 0}, "k-fed: min_cluster_size = 0"),
        ({"tol": 1e-3}, "k-fed: unknown parameter 'tol'"),
        ({"init": "random"}, "init = 'random': expected one of own"),
        ({"init": [[0.0]] * 4}, "init: k-fed makes its own first centers: leave init out"),
    ],
)
def test_bad_parameters(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        cluster_job("k-fed", n_clusters=4, **options)


def test_the_document_says_all() -> None:
    job = cluster_job("k-fed", n_clusters=4, n_local_clusters="search")
    assert Job.from_dict(job.to_dict()) == job
