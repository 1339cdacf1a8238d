"""FFCM: its averages by hand, its equality with pooled fuzzy c-means where there is one, its privacy gate."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.errors import UsageError
from p2pclust.protocols import Arrays, Local, cluster_job, pooled, pooled_run, run_in_process
from p2pclust.protocols.engine import engine, summaries
from p2pclust.protocols.engine.job import Job, JobState


def run(peers: list[Any], **options: Any) -> tuple[Job, list[Local], JobState]:
    job = cluster_job("ffcm", **options)
    locals_ = [Local(X) for X in peers]
    return job, locals_, run_in_process(job, locals_)


def blobs(*middles: float, n: int = 30, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(middle, 0.3, (n, 2)) for middle in middles])


class TestByHand:
    init = ([0.0], [9.0])
    crisp: ClassVar[dict[str, Any]] = {
        "n_clusters": 2,
        "init": init,
        "fuzzifier": 1.02,
        "privacy_gate": False,
        "tol": 0.0,
    }

    def test_avg_1_weighs_the_local_centers(self) -> None:
        # Nearly crisp: 3 rows around 1 and 1 around 2 near the first center; 2 rows each near the second.
        peers = [[[0.9], [1.0], [1.1], [9.0], [9.0]], [[2.0], [8.0], [8.0]]]
        _, _, state = run(peers, max_rounds=1, **self.crisp)
        assert summaries.raw_centers(state) == pytest.approx(np.array([[(3 * 1.0 + 2.0) / 4], [8.5]]), abs=1e-6)

    def test_avg_2_does_not(self) -> None:
        peers = [[[0.9], [1.0], [1.1], [9.0], [9.0]], [[2.0], [8.0], [8.0]]]
        _, _, state = run(peers, max_rounds=1, averaging="kmeans", **self.crisp)
        assert sorted(summaries.raw_centers(state).ravel()) == pytest.approx([1.5, 8.5], abs=1e-6)

    def test_the_weights_sum_powers_or_memberships(self) -> None:
        # One row of each peer in the middle of two centers: u = 1/2 for both, u^2 = 1/4.
        options = {"n_clusters": 2, "init": [[-1.0], [1.0]], "local_iterations": 1, "privacy_gate": False}
        for support, weight in (("u^m", 0.25), ("u", 0.5)):
            job = cluster_job("ffcm", support=support, bounds=([-9.0], [9.0]), **options)
            part = engine.contribution(job, engine.begin(job), Local([[0.0]]), 0, 2)
            assert part["weights"].tolist() == [weight, weight]
            assert part["centers"].tolist() == [[0.0], [0.0]]

    def test_all_that_a_peer_reveals(self) -> None:
        for averaging, names in (("weighted", ["centers", "weights"]), ("kmeans", ["centers"])):
            job = cluster_job("ffcm", averaging=averaging, bounds=([0.0], [9.0]), **self.crisp)
            assert list(engine.contribution(job, engine.begin(job), Local([[1.0], [2.0]]), 0, 2)) == names


class TestAgainstPooled:
    @pytest.mark.slow
    @given(
        st.integers(0, 10**6), st.integers(1, 5), st.sampled_from([1.1, 2.0, 4.0]), st.sampled_from([0.0, 1e6]),
        st.sampled_from([0.4, 1.0]),
    )  # fmt: skip
    def test_avg_1_with_one_local_step_is_pooled_fuzzy_c_means(
        self, seed: int, n_peers: int, fuzzifier: float, offset: float, participation: float
    ) -> None:
        rng = np.random.default_rng(seed)
        peers = [offset + rng.normal(size=(int(rng.integers(3, 20)), 2)) * [1.0, 100.0] for _ in range(n_peers)]
        job, locals_, state = run(
            peers, n_clusters=3, init="uniform", fuzzifier=fuzzifier, local_iterations=1, privacy_gate=False,
            scaling="minmax", tol=0.0, max_rounds=3, participation=participation, seed=seed,
        )  # fmt: skip
        assert job.protocols[-1].lossless  # type: ignore[attr-defined]
        ranges = np.ptp(np.concatenate(peers), axis=0)
        assert np.abs((summaries.raw_centers(state) - pooled(job, locals_, state.log)) / ranges).max() <= 1e-9

    @pytest.mark.parametrize("options", [{}, {"averaging": "kmeans", "local_iterations": 1}, {"support": "u"}])
    def test_otherwise_no_equality_is_promised_but_a_gap_measured(self, options: dict[str, Any]) -> None:
        peers = [blobs(0.0, 5.0), blobs(0.0, 5.0, seed=1)]
        job, locals_, state = run(peers, n_clusters=2, init=[[0.0, 0.0], [5.0, 5.0]], **options)
        with pytest.raises(UsageError, match="does not go round by round as pooled fuzzy c-means"):
            pooled(job, locals_, state.log)
        found = pooled_run(job, locals_, state.log)
        assert found.converged
        assert np.abs(np.sort(found.centers, axis=0) - np.sort(summaries.raw_centers(state), axis=0)).max() < 0.1

    def test_the_pooled_run_keeps_to_the_contributors_and_the_first_centers(self) -> None:
        job, locals_, state = run([blobs(0.0, 5.0), [[99.0, 99.0]]], n_clusters=2, init=[[0.0, 0.0], [5.0, 5.0]])
        assert state.log[-1].abstained[1].startswith("privacy gate: C (F + 1) / F = 3 rows or fewer")
        assert pooled_run(job, locals_, state.log).centers.max() < 6.0


class TestAvg2:
    peers = (blobs(0.0, 5.0), blobs(5.0, 10.0, seed=1), blobs(0.0, 10.0, seed=2))

    def test_finds_what_no_peer_holds_wholly(self) -> None:
        _, _, state = run(list(self.peers), n_clusters=3, averaging="kmeans", init="uniform", seed=3)
        assert state.converged
        assert np.sort(summaries.raw_centers(state)[:, 0]) == pytest.approx([0.0, 5.0, 10.0], abs=0.5)

    def test_any_aggregator_gets_the_same_bits(self) -> None:
        job = cluster_job("ffcm", n_clusters=3, averaging="kmeans", init="uniform", bounds=([-3.0] * 2, [13.0] * 2))
        state = engine.begin(job)
        given = [(peer, engine.contribution(job, state, Local(X), peer, 3)) for peer, X in enumerate(self.peers)]
        states = [engine.advance(job, state, given, {}, n_peers=3) for _ in range(2)]
        assert states[0].encode() == states[1].encode()
        other = cluster_job(
            "ffcm", n_clusters=3, averaging="kmeans", init="uniform", bounds=([-3.0] * 2, [13.0] * 2), seed=1
        )
        assert engine.begin(other).arrays["stream"] != state.arrays["stream"]

    def test_later_rounds_keep_every_center_at_its_place(self) -> None:
        options = {"n_clusters": 3, "averaging": "kmeans", "init": "uniform", "tol": 0.0}
        _, _, state = run(list(self.peers), max_rounds=2, **options)
        _, _, longer = run(list(self.peers), max_rounds=6, **options)
        assert np.abs(longer.arrays["centers"] - state.arrays["centers"]).max() < 0.5

    def test_repeated_centers_are_filled_up_with_first_ones(self) -> None:
        # Both peers hold one value only: all their local centers but the far ones coincide.
        peers = [np.full((9, 1), 2.0), np.full((9, 1), 2.0)]
        _, _, state = run(
            peers, n_clusters=3, averaging="kmeans", init=[[2.0], [2.0], [2.0]], bounds=([0.0], [4.0]), max_rounds=3
        )
        assert (state.status, summaries.raw_centers(state).tolist()) == ("done", [[2.0]] * 3)


class TestPrivacy:
    def test_few_rows_abstain_and_are_counted(self) -> None:
        _, _, state = run(
            [blobs(0.0, 5.0), [[1.0, 1.0], [2.0, 2.0]]], n_clusters=2, init="uniform", max_rounds=2, tol=0.0
        )
        assert summaries.suppressed(state) == 3  # its range, and two rounds
        assert state.log[-1].contributors == (0,)

    def test_without_the_gate_the_centers_of_two_rows_are_these_rows(self) -> None:
        job = cluster_job(
            "ffcm", n_clusters=2, init=[[0.0, 0.0], [9.0, 9.0]], bounds=([0.0] * 2, [9.0] * 2), privacy_gate=False
        )
        rows = np.array([[1.0, 2.0], [7.0, 5.0]])
        part = engine.contribution(job, engine.begin(job), Local(rows), 0, 2)
        assert part["centers"] + 4.5 == pytest.approx(rows, abs=1e-3)


class TestHostile:
    @pytest.mark.parametrize(
        ("bad", "reason"),
        [
            ({"centers": [[2.0**500], [0.0]]}, "it sends no centers"),
            ({"weights": [-1.0, 1.0]}, "its weights are malformed"),
            ({"weights": [1e300, 1.0]}, "its weights are malformed"),
        ],
    )
    def test_impossible_contributions_are_left_out_by_name(self, bad: dict[str, Any], reason: str) -> None:
        job = cluster_job("ffcm", n_clusters=2, init=[[0.0], [9.0]], bounds=([0.0], [9.0]), privacy_gate=False)
        state = engine.begin(job)
        good = engine.contribution(job, state, Local([[0.0], [1.0], [9.0]]), 0, 2)
        after = engine.advance(job, state, [(0, good), (1, Arrays({**good, **bad}))], {}, n_peers=2)
        assert after.log[-1].contributors == (0,)
        assert after.log[-1].abstained == {1: f"failed: {reason}"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"averaging": "median"}, "ffcm: averaging = 'median': expected one of weighted, kmeans"),
        ({"support": "u2"}, "ffcm: support = 'u2'"),
        ({"local_iterations": 0}, "ffcm: local_iterations = 0: expected a whole number from 1 to 1000"),
        ({"fuzzifier": 1.0}, "ffcm: fuzzifier = 1.0"),
    ],
)
def test_bad_parameters(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        cluster_job("ffcm", n_clusters=2, **options)
