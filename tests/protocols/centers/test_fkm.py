"""FKM: Algorithm 1 by hand, its privacy rule, its cold starts, and peers that lack clusters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from p2pclust.errors import UsageError
from p2pclust.protocols import Arrays, Local, cluster_job, pooled_run, run_in_process
from p2pclust.protocols.engine import engine, summaries
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.wire import decode_state


def run(peers: list[Any], **options: Any) -> tuple[Job, list[Local], JobState]:
    job = cluster_job("fkm", **options)
    locals_ = [Local(X) for X in peers]
    return job, locals_, run_in_process(job, locals_)


def told(X: Any, **options: Any) -> Arrays:
    job = cluster_job("fkm", bounds=([0.0], [100.0]), **options)
    part = engine.contribution(job, engine.begin(job), Local(X), 0, 2)
    return Arrays({**part, "centers": part["centers"] + 50.0})


class TestAPeer:
    def test_lines_14_to_18_by_hand(self) -> None:
        # 40 gets no row and is dropped; the mean of 0, 2, 4 is 2; the mean of 11, 90, 91 is 64, which 11 leaves again.
        part = told([[0.0], [2.0], [4.0], [90.0], [91.0], [96.0]], n_clusters=3, init=[[0.0], [40.0], [90.0]])
        assert part["centers"].ravel().tolist() == pytest.approx([2.0, 277 / 3])
        assert part["sizes"].tolist() == [3, 3]
        assert part["suppressed"] == 0

    def test_sizes_are_counted_after_the_step(self) -> None:
        # 0 and 29 make the mean 14.5, and 31 twice makes 31, to which 29 then is nearer.
        part = told([[0.0], [29.0], [31.0], [31.0]], n_clusters=2, init=[[0.0], [60.0]], min_cluster_size=1)
        assert part["centers"].ravel().tolist() == pytest.approx([14.5, 31.0])
        assert part["sizes"].tolist() == [1, 3]
        part = told([[0.0], [29.0], [31.0], [31.0]], n_clusters=2, init=[[0.0], [60.0]])
        assert (part["sizes"].tolist(), int(part["suppressed"])) == ([3], 1)

    def test_small_clusters_are_withheld_and_counted(self) -> None:
        part = told([[0.0], [2.0], [90.0]], n_clusters=2, init=[[0.0], [90.0]])
        assert part["centers"].ravel().tolist() == pytest.approx([1.0])
        assert (part["sizes"].tolist(), int(part["suppressed"])) == ([2], 1)
        part = told([[0.0], [2.0], [90.0]], n_clusters=2, init=[[0.0], [90.0]], min_cluster_size=1)
        assert (part["sizes"].tolist(), int(part["suppressed"])) == ([2, 1], 0)

    def test_a_mean_of_one_row_is_withheld_even_if_others_join_it(self) -> None:
        # 40 alone makes the second mean (60 was given), and then 21 (mean of the first: 7) is nearer to it.
        part = told([[0.0], [0.0], [0.0], [28.0], [40.0]], n_clusters=2, init=[[0.0], [60.0]])
        assert 40.0 not in part["centers"].ravel().tolist()
        assert int(part["suppressed"]) == 1

    def test_first_means_come_from_its_own_rows_and_are_no_rows(self) -> None:
        rows = np.array([[0.0], [1.0], [50.0], [53.0], [97.0], [100.0]])
        part = told(rows, n_clusters=3)
        assert set(part["centers"].ravel().round(9)) <= {0.5, 51.5, 98.5, 17.0, 25.75, 34.0, 75.0, 76.5, 66.3, 25.5}
        assert (part["sizes"] >= 2).all()

    def test_fewer_rows_than_clusters(self) -> None:
        part = told([[1.0], [1.0], [9.0]], n_clusters=16)
        assert (part["centers"].ravel().tolist(), part["sizes"].tolist()) == (pytest.approx([1.0]), [2])


class TestAnAggregator:
    options = {"n_clusters": 2, "init": [[0.0], [90.0]], "bounds": ([0.0], [100.0]), "max_rounds": 1}  # noqa: RUF012

    def test_weighs_by_sizes(self) -> None:
        _, _, state = run([[[0.0]] * 6 + [[90.0]] * 2, [[3.0]] * 3 + [[92.0]] * 2], **self.options)
        assert summaries.raw_centers(state).ravel().tolist() == pytest.approx([1.0, 91.0])

    def test_numbers_clusters_as_before(self) -> None:
        for seed in range(8):
            _, _, state = run([[[0.0]] * 6 + [[90.0]] * 2, [[3.0]] * 3 + [[92.0]] * 2], seed=seed, **self.options)
            assert np.argsort(state.arrays["centers"].ravel()).tolist() == [0, 1]

    def test_any_aggregator_gets_the_same_bits(self) -> None:
        rng = np.random.default_rng(0)
        job = cluster_job("fkm", n_clusters=4, bounds=([-9.0] * 2, [9.0] * 2))
        state = engine.begin(job)
        assert decode_state(job, state.encode()) == state
        given = [(p, engine.contribution(job, state, Local(rng.normal(size=(50, 2))), p, 3)) for p in range(3)]
        states = [engine.advance(job, state, given, {}, n_peers=3) for _ in range(2)]
        assert states[0].encode() == states[1].encode()

    def test_fewer_means_than_clusters_keep_previous_centers(self) -> None:
        _, _, state = run([[[1.0]] * 3, [[1.0]] * 4], n_clusters=3, bounds=([0.0], [9.0]), max_rounds=4)
        assert state.status == "done"
        assert 1.0 in summaries.raw_centers(state).ravel().round(9)
        assert len(np.unique(summaries.raw_centers(state))) == 3


def grid(seed: int, noise: float = 1.0) -> tuple[list[np.ndarray], np.ndarray]:
    """Sixteen groups; each of four peers holds a quarter of the field, one more only ten points."""
    rng = np.random.default_rng(seed)
    middles = np.array([[x, y] for x in (-7.5, -2.5, 2.5, 7.5) for y in (-7.5, -2.5, 2.5, 7.5)])
    X = np.concatenate([rng.normal(middle, noise / 3, (50, 2)) for middle in middles])
    owner = (X[:, 0] > 0) * 2 + (X[:, 1] > 0)
    owner[:10] = 4
    return [X[owner == peer] for peer in range(5)], middles


def test_peers_with_different_clusters_find_all_of_them() -> None:
    peers, middles = grid(0)
    job, locals_, state = run(peers, n_clusters=16, seed=1)
    assert [stage.protocol for stage in job.stages] == ["range", "none", "fkm"]
    assert np.linalg.norm(summaries.raw_centers(state)[:, np.newaxis] - middles, axis=2).min(axis=0).max() < 0.3
    found = pooled_run(job, locals_, state.log)
    assert found.converged
    assert np.linalg.norm(summaries.raw_centers(state) - found.centers) < 0.3, (
        "numbered as the centers that it began with"
    )


def test_a_peer_that_may_send_nothing_abstains_and_is_counted() -> None:
    _, _, state = run([[[0.0], [9.0]], [[0.0], [1.0], [8.0], [9.0]]], n_clusters=2, tol=0.0, max_rounds=3, seed=0)
    assert state.log[-1].abstained == {
        0: "privacy gate: none of its clusters holds 2 rows or more: add rows, ask for fewer clusters, or set "
        "min_cluster_size = 1 (single rows may then be sent)"
    }
    assert summaries.suppressed(state) >= 3


def test_if_nobody_may_send_anything_the_job_fails() -> None:
    _, _, state = run([[[0.0], [9.0]], [[4.0]]], n_clusters=3, bounds=([0.0], [9.0]))
    assert state.status == "failed"
    assert state.reason.startswith("fkm: no peer can contribute (peer 0, peer 1: privacy gate: none of its clusters")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"sizes": [0, 2]}, "its sizes are malformed"),
        ({"sizes": [1]}, "its sizes are malformed"),
        ({"sizes": [2**60, 2]}, "its sizes are malformed"),
        ({"suppressed": -1}, "it suppressed an impossible number of clusters"),
        ({"centers": np.zeros((0, 1)), "sizes": np.zeros(0, dtype=np.int64)}, "it sends no centers"),
        ({"centers": np.zeros((3, 1)), "sizes": [1, 1, 1]}, "it sends no centers"),
    ],
)
def test_impossible_contributions_are_left_out_by_name(bad: dict[str, Any], reason: str) -> None:
    job = cluster_job("fkm", n_clusters=2, bounds=([0.0], [9.0]), init=[[0.0], [9.0]])
    state = engine.begin(job)
    good = engine.contribution(job, state, Local([[0.0], [1.0], [8.0], [9.0]]), 0, 2)
    after = engine.advance(job, state, [(0, good), (1, Arrays({**good, **bad}))], {}, n_peers=2)
    assert after.log[-1].contributors == (0,)
    assert after.log[-1].abstained == {1: f"failed: {reason}"}


@pytest.mark.parametrize("options", [{"min_cluster_size": 0}, {"n_init": 0}])
def test_bad_parameters(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"fkm: {next(iter(options))} = 0: expected a whole number from 1"):
        cluster_job("fkm", n_clusters=2, **options)


def test_who_lets_single_rows_be_told_lets_small_peers_tell_their_range() -> None:
    for size, rows in ((2, 3), (1, 1)):
        job = cluster_job("fkm", n_clusters=2, min_cluster_size=size)
        assert job.protocols[0].min_rows == rows  # type: ignore[attr-defined]
