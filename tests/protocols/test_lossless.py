"""The two clustering protocols: by hand, against the pooled algorithms, and against their own replay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pclust.errors import UsageError
from p2pclust.protocols.centers.llf_fcm import LosslessFuzzyCMeansProtocol
from p2pclust.protocols.engine import engine, summaries
from p2pclust.protocols.engine.base import Abstain
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job, JobState, RoundRecord
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import pooled, replay, run_in_process


def run(protocol: str, peers: list[object], **options: object) -> tuple[Job, list[Local], JobState]:
    job = cluster_job(protocol, **options)
    locals_ = [Local(X) for X in peers]
    return job, locals_, run_in_process(job, locals_)


def relative_difference(job: Job, locals_: list[Local], state: JobState) -> float:
    X = np.concatenate([local.X for local in locals_])
    spread = np.ptp(X, axis=0)
    difference = np.abs(summaries.raw_centers(state) - pooled(job, locals_, state.log)).max(axis=0)
    return float((difference / np.where(spread > 0, spread, 1.0)).max())


class TestByHand:
    def test_c_means(self) -> None:
        # Row 4 is nearer to 0 at first (4 < 5), and to the mean of {9, 8} = 8.5 never: 8.5 - 4 > 4 - 5/3.
        peers = [[[0.0], [1.0]], [[4.0], [4.0], [8.0], [9.0]]]
        _, _, state = run("llf-cm", peers, n_clusters=2, init=[[0.0], [9.0]], bounds=([0.0], [9.0]))
        assert summaries.raw_centers(state).tolist() == [[2.25], [8.5]]
        assert state.arrays["shifts"].tolist() == [pytest.approx(np.hypot(2.25, 0.5)), 0.0]
        assert state.converged
        assert summaries.suppressed(state) == 0

    def test_fuzzy_c_means(self) -> None:
        # Rows 0 and 3, centers 1 and 3, m = 2. Row 0: squares 1 and 9, memberships .9 and .1. Row 3 lies on center 1.
        # Center 0 becomes .81 * 0 / .81 = 0; center 1 becomes (.01 * 0 + 1 * 3) / 1.01.
        options = {"n_clusters": 2, "init": [[1.0], [3.0]], "max_rounds": 1, "privacy_gate": False}
        _, _, state = run("llf-fcm", [[[0.0]], [[3.0]]], **options)
        assert summaries.raw_centers(state) == pytest.approx(np.array([[0.0], [3.0 / 1.01]]), abs=1e-15)
        assert (state.status, state.converged) == ("done", False)

    def test_the_stop_rule_is_strict_and_measured_in_working_coordinates(self) -> None:
        peers = [[[0.0], [2.0]], [[8.0], [10.0]]]
        # Both centers move by 1, which is .1 of the range.
        options = {"n_clusters": 2, "init": [[0.0], [10.0]], "scaling": "minmax", "bounds": ([0.0], [10.0])}
        moved = float(np.sqrt(0.02))
        _, _, state = run("llf-cm", peers, tol=moved * 1.0001, **options)
        assert (state.arrays["shifts"].size, state.converged) == (1, True)
        _, _, state = run("llf-cm", peers, tol=moved * 0.9999, **options)
        assert (state.arrays["shifts"].size, state.converged) == (2, True)

    @pytest.mark.parametrize("max_rounds", [1, 7])
    def test_tol_zero_runs_exactly_max_rounds(self, max_rounds: int) -> None:
        peers = [[[0.0], [1.0], [2.0]]]
        _, _, state = run("llf-cm", peers, n_clusters=1, init=[[1.0]], tol=0.0, max_rounds=max_rounds)
        assert state.arrays["shifts"].tolist() == [0.0] * max_rounds
        assert (state.status, state.converged) == ("done", False)

    def test_a_cluster_that_nobody_contributes_to_keeps_its_center(self) -> None:
        peers = [[[0.0], [1.0], [2.0]], [[1.0], [1.0], [1.0]]]
        _, _, state = run("llf-cm", peers, n_clusters=2, init=[[1.5], [50.0]])
        assert summaries.raw_centers(state).tolist() == [[1.0], [50.0]]


class TestSingletonSuppression:
    peers = ([[0.0], [1.0], [9.0]], [[8.0], [9.0], [0.5]])
    options = {"n_clusters": 2, "init": [[0.0], [9.0]], "tol": 0.0, "max_rounds": 2}  # noqa: RUF012

    def test_a_cluster_of_one_local_row_is_sent_as_a_zero_vector(self) -> None:
        job = cluster_job("llf-cm", **self.options, bounds=([0.0], [9.0]))
        state = engine.begin(job)
        part = engine.contribution(job, state, Local(self.peers[0]), 0, 2)
        assert part["counts"][:, 1].tolist() == [0, 0]
        assert part["sums"][:, 1].tolist() == [[0], [0]]
        assert part["suppressed"][0] == 2**24

    def test_it_is_counted_over_rounds_and_changes_the_result(self) -> None:
        _, _, state = run("llf-cm", list(self.peers), **self.options)
        assert summaries.suppressed(state) == 4
        assert summaries.raw_centers(state).tolist() == [[0.5], [8.5]]

    def test_it_can_be_turned_off(self) -> None:
        job, locals_, state = run("llf-cm", list(self.peers), suppress_singletons=False, **self.options)
        assert summaries.suppressed(state) == 0
        assert summaries.raw_centers(state).ravel() == pytest.approx([0.5, 26 / 3])
        assert relative_difference(job, locals_, state) <= 1e-15

    def test_every_cluster_suppressed_moves_nothing(self) -> None:
        _, _, state = run("llf-cm", [[[0.0], [9.0]]], n_clusters=2, init=[[1.0], [8.0]], bounds=([0.0], [9.0]))
        assert summaries.raw_centers(state).tolist() == [[1.0], [8.0]]
        assert summaries.suppressed(state) == 2


class TestPrivacyGate:
    # C (F + 1) / F = 4 * 3 / 2 = 6: a peer needs more than six rows.
    init = ((0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0))

    held = (
        "privacy gate: C (F + 1) / F = 6 rows or fewer: add rows, ask for fewer clusters, or set privacy_gate = false (what "
        "it sends may then give its rows away)"
    )

    def contribution(self, n_samples: int, **options: object) -> object:
        job = cluster_job("llf-fcm", n_clusters=4, init=self.init, bounds=([0.0] * 2, [1.0] * 2), **options)
        X = np.random.default_rng(0).random((n_samples, 2))
        return engine.contribution(job, engine.begin(job), Local(X), 0, 1)

    @pytest.mark.parametrize("n_samples", [1, 5, 6])
    def test_up_to_the_limit_a_peer_abstains_and_does_not_say_how_many_rows_it_has(self, n_samples: int) -> None:
        with pytest.raises(Abstain) as caught:
            self.contribution(n_samples)
        assert caught.value.reason == self.held

    @pytest.mark.parametrize(("n_samples", "held"), [(6, True), (7, True), (18, True), (19, False)])
    def test_a_gate_of_the_job_counts_the_equations_of_all_rounds(self, n_samples: int, held: bool) -> None:
        options: dict[str, object] = {"privacy_gate": "job", "max_rounds": 3}
        if not held:
            assert self.contribution(n_samples, **options) is not None
            return
        with pytest.raises(Abstain) as caught:
            self.contribution(n_samples, **options)
        assert caught.value.reason == (
            "privacy gate: 3 rounds of C (F + 1) / F = 18 rows or fewer: add rows, ask for fewer clusters or rounds, or set "
            "privacy_gate = false (what it sends may then give its rows away)"
        )

    def test_who_was_held_by_it_is_not_in_the_objective_either(self) -> None:
        rng = np.random.default_rng(4)
        peers = [Local(rng.random((18, 2))), *(Local(rng.random((30, 2))) for _ in range(2))]
        job = cluster_job(
            "llf-fcm",
            n_clusters=4,
            init=self.init,
            bounds=([0.0] * 2, [1.0] * 2),
            privacy_gate="job",
            max_rounds=3,
            tol=0.0,
        )
        state = run_in_process(job, peers)
        alone = run_in_process(
            cluster_job("llf-fcm", n_clusters=4, init=self.init, bounds=([0.0] * 2, [1.0] * 2), max_rounds=3, tol=0.0),
            peers[1:],
        )
        assert [record.contributors for record in state.log[:3]] == [(1, 2)] * 3
        assert state.arrays["objectives"].tolist() == alone.arrays["objectives"].tolist()

    def test_one_row_more_passes(self) -> None:
        assert self.contribution(7)

    def test_it_can_be_turned_off(self) -> None:
        assert self.contribution(1, privacy_gate=False)

    def test_a_limit_that_is_no_whole_number_is_compared_exactly(self) -> None:
        job = cluster_job("llf-fcm", n_clusters=2, init=np.zeros((2, 3)), bounds=([0.0] * 3, [1.0] * 3))
        state = engine.begin(job)
        with pytest.raises(Abstain, match=r"= 2\.66667 rows or fewer"):
            engine.contribution(job, state, Local(np.zeros((2, 3))), 0, 1)
        assert engine.contribution(job, state, Local(np.zeros((3, 3))), 0, 1)

    def test_the_others_go_on_and_what_was_held_is_counted(self) -> None:
        rng = np.random.default_rng(1)
        peers = [rng.random((20, 2)), rng.random((6, 2)), rng.random((20, 2))]
        job, locals_, state = run("llf-fcm", peers, n_clusters=4, init=self.init, tol=0.0, max_rounds=3)
        assert [record.contributors for record in state.log if record.stage == 3] == [(0, 2)] * 3
        assert summaries.suppressed(state) == 3
        assert relative_difference(job, locals_, state) <= 1e-12

    def test_the_job_fails_if_it_holds_everybody(self) -> None:
        rng = np.random.default_rng(1)
        _, _, state = run("llf-fcm", [rng.random((5, 2)), rng.random((4, 2))], n_clusters=4, init=self.init)
        assert state.status == "failed"
        assert state.reason == f"llf-fcm: no peer can contribute (peer 0, peer 1: {self.held})"


class TestFewerRowsThanClusters:
    @pytest.mark.parametrize("bounds", [None, ([0.0], [2.0])])
    @pytest.mark.parametrize(
        ("protocol", "options"), [("llf-cm", {"suppress_singletons": False}), ("llf-fcm", {"privacy_gate": False})]
    )
    def test_the_job_fails_and_says_so(self, protocol: str, options: dict[str, bool], bounds: object) -> None:
        _, _, state = run(protocol, [[[0.0], [1.0]], [[2.0]]], n_clusters=4, init="uniform", bounds=bounds, **options)
        assert state.status == "failed"
        assert state.reason == "4 clusters were asked for, but the peers hold 3 rows: ask for at most 3"

    def test_where_few_rows_told_no_range_the_clustering_counts_them(self) -> None:
        peers = [[[0.0], [1.0], [2.0]], [[1.0], [5.0]]]
        _, _, state = run("llf-cm", peers, n_clusters=5, init="uniform")
        assert [list(record.abstained) for record in state.log[:2]] == [[1], []]
        assert state.status == "done"
        _, _, state = run("llf-cm", peers, n_clusters=6, init="uniform")
        assert state.reason == "6 clusters were asked for, but the peers hold 5 rows: ask for at most 5"

    def test_as_many_rows_as_clusters_will_do(self) -> None:
        _, _, state = run("llf-fcm", [[[0.0], [1.0]], [[2.0]]], n_clusters=3, init="uniform", privacy_gate=False)
        assert state.status == "done"

    def test_a_draw_of_few_rows_does_not_fail_the_job(self) -> None:
        peers = [[[0.0]], [[1.0]], [[2.0]], [[3.0]]]
        _, _, state = run("llf-cm", peers, n_clusters=3, init="uniform", participation=0.5, suppress_singletons=False)
        assert state.status == "done"


cases = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32 - 1),
        "n_peers": st.integers(2, 8),
        "n_clusters": st.integers(1, 5),
        "features": st.integers(1, 4),
        "offset": st.sampled_from([0.0, -3.5, 1e3, 1e6, -1e6]),
        "scaling": st.sampled_from(["none", "minmax", "zscore"]),
        "init": st.sampled_from(["k-means++", "shared-k-means++", "random", "uniform"]),
    }
)


def blobs(case: dict[str, object]) -> list[np.ndarray]:
    rng = np.random.default_rng(case["seed"])
    centers = rng.uniform(-10, 10, (5, case["features"]))
    return [
        case["offset"] + centers[rng.integers(0, 5, size)] + rng.standard_normal((size, case["features"]))
        for size in rng.integers(4, 40, case["n_peers"])
    ]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(cases, st.floats(1.1, 4.0))
def test_fuzzy_c_means_over_peers_equals_pooled_fuzzy_c_means(case: dict[str, object], fuzzifier: float) -> None:
    job, locals_, state = run(
        "llf-fcm",
        blobs(case),
        n_clusters=case["n_clusters"],
        scaling=case["scaling"],
        init=case["init"],
        seed=case["seed"],
        fuzzifier=fuzzifier,
        privacy_gate=False,
        tol=0.0,
        max_rounds=5,
    )
    assert state.status == "done"
    assert summaries.suppressed(state) == 0
    assert relative_difference(job, locals_, state) <= 1e-9


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(cases)
def test_c_means_over_peers_equals_pooled_c_means(case: dict[str, object]) -> None:
    job, locals_, state = run(
        "llf-cm",
        blobs(case),
        n_clusters=case["n_clusters"],
        scaling=case["scaling"],
        init=case["init"],
        seed=case["seed"],
        suppress_singletons=False,
        tol=0.0,
        max_rounds=5,
    )
    assert state.status == "done"
    assert relative_difference(job, locals_, state) <= 1e-9


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(cases, st.sampled_from(["llf-cm", "llf-fcm"]), st.sampled_from([0.3, 0.5, 1.0]))
def test_a_replay_has_the_bits_of_its_run(case: dict[str, object], protocol: str, participation: float) -> None:
    job, locals_, state = run(
        protocol, blobs(case), n_clusters=2, scaling=case["scaling"], init=case["init"], participation=participation
    )
    again = replay(Job.from_dict(job.to_dict()), [Local(local.X) for local in locals_], state.log)
    assert again == state
    assert again.encode() == state.encode()


def test_sharp_fuzzifiers_keep_the_weights_of_far_centers() -> None:
    # A center six times as far as the nearest one has weights near 6**-22 = 1e-17, below what two limbs resolve.
    rng = np.random.default_rng(5)
    peers = [rng.normal(0.0, 0.1, (20, 2)), rng.normal(1.0, 0.1, (20, 2))]
    init = [[0.1, 0.0], [1.1, 1.0], [6.0, 6.0]]
    job, locals_, state = run(
        "llf-fcm", peers, n_clusters=3, init=init, fuzzifier=1.1, privacy_gate=False, tol=0.0, max_rounds=1
    )
    assert summaries.raw_centers(state)[2].max() < 2.0, "it moved"
    assert relative_difference(job, locals_, state) <= 1e-9


class TestFarCenters:
    """A center r times as far as the nearest one has weights near r**-4 for a fuzzifier of 2, on a grid of 2**-120."""

    def run(self, far: float, **options: object) -> tuple[Job, list[Local], JobState]:
        rng = np.random.default_rng(5)
        peers = [rng.uniform(0.0, 1.0, (20, 1)) for _ in range(2)]
        return run("llf-fcm", peers, n_clusters=2, init=[[0.5], [far]], tol=0.0, **{"max_rounds": 1, **options})

    @pytest.mark.parametrize(("far", "coarse"), [(1e3, 0), (1e5, 0), (1e8, 1), (1e12, 1)])
    def test_a_center_whose_weight_lost_digits_is_counted(self, far: float, coarse: int) -> None:
        job, locals_, state = self.run(far)
        assert summaries.coarse(state) == coarse
        if not coarse:
            assert relative_difference(job, locals_, state) <= 1e-9

    def test_one_of_whose_weight_nothing_is_left_stays_and_is_counted(self) -> None:
        _, _, state = self.run(1e12)
        assert summaries.raw_centers(state)[1, 0] == pytest.approx(1e12)
        assert summaries.coarse(state) == 1

    def test_only_the_last_round_counts(self) -> None:
        _, _, state = self.run(1e8, max_rounds=2)
        assert summaries.raw_centers(state)[1, 0] < 2.0, "it came near in the first round"
        assert summaries.coarse(state) == 0

    def test_c_means_has_none(self) -> None:
        _, _, state = run("llf-cm", [[[0.0], [1.0], [2.0]]], n_clusters=1)
        assert summaries.coarse(state) == 0


@pytest.mark.parametrize(("fuzzifier", "limbs"), [(40.0, 3), (4.0, 3), (2.0, 3), (1.5, 4), (1.1, 8), (1.02, 8)])
def test_limbs_follow_from_the_fuzzifier(fuzzifier: float, limbs: int) -> None:
    assert LosslessFuzzyCMeansProtocol(n_clusters=2, fuzzifier=fuzzifier).limbs == limbs


def in_logarithms(X: np.ndarray, centers: np.ndarray, fuzzifier: float, rounds: int) -> np.ndarray:
    """Fuzzy c-means with the logarithms of all memberships, which no fuzzifier makes too small."""
    for _ in range(rounds):
        squared = np.maximum(((X[:, None] - centers) ** 2).sum(axis=2), 1e-300)
        logs = -np.log(squared) / (fuzzifier - 1)
        logs -= logs.max(axis=1, keepdims=True)
        logs = fuzzifier * (logs - np.log(np.exp(logs).sum(axis=1, keepdims=True)))
        weights = np.exp(logs - logs.max(axis=0))
        centers = weights.T @ X / weights.sum(axis=0)[:, None]
    return centers


@pytest.mark.parametrize(("n_clusters", "fuzzifier"), [(3, 54.0), (3, 30.0), (2, 80.0), (7, 25.0), (20, 19.5)])
def test_a_large_fuzzifier_gives_what_logarithms_give(n_clusters: int, fuzzifier: float) -> None:
    rng = np.random.default_rng(n_clusters)
    places = 9.0 * np.stack([np.arange(n_clusters) % 5, np.arange(n_clusters) // 5], axis=1)
    X = np.concatenate([place + rng.normal(0, 0.3, (30, 2)) for place in places])
    first = places + 0.5
    own: dict[str, object] = {"n_clusters": n_clusters, "fuzzifier": fuzzifier, "init": first, "tol": 0.0}
    _, _, state = run("llf-fcm", [X[::2], X[1::2]], max_rounds=12, **own)
    assert np.allclose(summaries.raw_centers(state), in_logarithms(X, first, fuzzifier, 12), rtol=0, atol=1e-8)
    assert np.abs(summaries.raw_centers(state) - first).max() > 0.1, "no center moved"


@pytest.mark.parametrize("protocol", ["llf-fcm", "ffcm", "gdf-fcm", "c2f-fcm", "stream-fcm", "vertical-fcm"])
@pytest.mark.parametrize(("n_clusters", "fuzzifier", "most"), [(3, 100.0, 54.2), (20, 20.0, 19.8), (1000, 9.0, 8.6)])
def test_a_fuzzifier_that_no_sum_can_hold_is_refused(
    protocol: str, n_clusters: int, fuzzifier: float, most: float
) -> None:
    with pytest.raises(UsageError) as refused:
        cluster_job(protocol, n_clusters=n_clusters, fuzzifier=fuzzifier)
    told = f"fuzzifier = {fuzzifier:g} with {n_clusters} clusters: expected at most {most} for so many; 2 is usual"
    assert str(refused.value) == f"{protocol}: {told}"
    assert cluster_job(protocol, n_clusters=n_clusters, fuzzifier=most).stages


def test_pooled_goes_by_the_recorded_contributors() -> None:
    rng = np.random.default_rng(2)
    peers = [rng.normal(m, 1.0, (30, 2)) for m in range(6)]
    options = {"n_clusters": 3, "init": "random", "tol": 0.0, "max_rounds": 8}
    job, locals_, state = run("llf-fcm", peers, participation=0.5, **options)
    assert len({record.contributors for record in state.log if record.stage == 3}) > 1
    assert relative_difference(job, locals_, state) <= 1e-12
    everybody = pooled(
        job, locals_, [replace(r, contributors=tuple(range(6))) if r.stage == 3 else r for r in state.log]
    )
    assert np.abs(summaries.raw_centers(state) - everybody).max() > 1e-3


def test_a_run_with_a_lost_peer_is_replayed_from_its_record() -> None:
    rng = np.random.default_rng(2)
    locals_ = [Local(rng.normal(m, 1.0, (30, 2))) for m in range(3)]
    job = cluster_job("llf-fcm", n_clusters=2, init="random", tol=0.0, max_rounds=4)
    state = engine.begin(job)
    while state.status == "running":
        alive = [0, 2] if state.round >= 3 else [0, 1, 2]
        alive = [peer for peer in engine.asked(job, state, 3) if peer in alive]
        if job.protocols[state.stage].asks == "one":
            alive = alive[:1]
        given = [(peer, engine.contribution(job, state, locals_[peer], peer, 3)) for peer in alive]
        state = engine.advance(job, JobState.decode(state.encode()), given, {}, n_peers=3)
    assert state.log[-1].contributors == (0, 2)
    assert replay(job, locals_, state.log) == state
    assert relative_difference(job, locals_, state) <= 1e-12


def test_a_record_of_another_job_is_refused() -> None:
    job, locals_, state = run("llf-cm", [[[0.0], [1.0], [2.0]], [[8.0], [9.0], [9.5]]], n_clusters=2)
    with pytest.raises(UsageError, match="round 2 of the log"):
        replay(job, locals_, (*state.log[:2], RoundRecord(1, (0,))))
    with pytest.raises(UsageError, match="beyond the 1 given"):
        replay(job, locals_[:1], state.log)
    with pytest.raises(UsageError, match="peer 1 contributed, but now it abstains: no data"):
        replay(job, [locals_[0], Local(np.empty((0, 1)))], state.log)
    with pytest.raises(UsageError, match="0 peers"):
        run_in_process(job, [])


def test_pooled_needs_a_clustering_that_began() -> None:
    job, locals_, _ = run("llf-cm", [[[0.0], [1.0]]], n_clusters=2)
    with pytest.raises(UsageError, match="did not reach"):
        pooled(job, locals_, [])
    with pytest.raises(UsageError, match="no clustering stage"):
        pooled(Job(job.stages[:2], seed=0), locals_, [])


def test_on_round_sees_every_state() -> None:
    seen: list[JobState] = []
    job = cluster_job("llf-cm", n_clusters=2)
    state = run_in_process(job, [Local([[0.0], [1.0]]), Local([[8.0], [9.0], [9.5]])], seen.append)
    assert state.status == "done"
    assert [s.round for s in seen] == list(range(1, state.round + 1))
    assert seen[-1] is state
    for step in seen:
        assert JobState.decode(step.encode()) == step
