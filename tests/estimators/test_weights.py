"""`sample_weight`: a row of weight w counts as w equal rows, in all sums and in no privacy rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pclust.errors import DataError, FleetError, UsageError
from p2pclust.estimators import LosslessCMeans, LosslessFuzzyCMeans
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import pooled, run_in_process

OPEN: dict[type, dict[str, Any]] = {
    LosslessCMeans: {"suppress_singletons": False},
    LosslessFuzzyCMeans: {"privacy_gate": False},
}
KINDS = list(OPEN)


def rows(seed: int, n_rows: int) -> np.ndarray:
    """Rows around three corners, on a grid of quarters, so that many sums have no rounding."""
    rng = np.random.default_rng(seed)
    at = np.array([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0]])[np.arange(n_rows) % 3]
    return at + rng.integers(-6, 7, (n_rows, 2)) / 4


@pytest.mark.slow
@given(
    seed=st.integers(0, 2**16),
    counts=st.lists(st.lists(st.integers(0, 4), min_size=6, max_size=15), min_size=1, max_size=3),
    kind=st.sampled_from(KINDS),
    scaling=st.sampled_from(["none", "minmax", "zscore"]),
)
@settings(max_examples=25, deadline=None)
def test_whole_weights_are_repeated_rows(
    seed: int, counts: list[list[int]], kind: type[LosslessCMeans], scaling: str
) -> None:
    counts = [[3, 2, 1, *own] for own in counts]  # every peer counts, and all three corners do
    X = [rows(seed + peer, len(own)) for peer, own in enumerate(counts)]
    how = {**OPEN[kind], "scaling": scaling, "random_state": 1, "init": [[1.0, 1.0], [6.0, 1.0], [1.0, 6.0]]}
    weighted = kind(3, **how).fit(X, sample_weight=counts)
    repeated = kind(3, **how).fit([np.repeat(own, often, axis=0) for own, often in zip(X, counts, strict=True)])
    np.testing.assert_allclose(weighted.cluster_centers_, repeated.cluster_centers_, rtol=1e-12, atol=1e-12)
    value = "inertia_" if kind is LosslessCMeans else "objective_"
    assert getattr(weighted, value) == pytest.approx(getattr(repeated, value), rel=1e-10, abs=1e-10)
    assert [len(own) for own in weighted.labels_] == [len(own) for own in X]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"n_init": 2}, {"accelerate": True}], ids=str)
def test_split_merge_counts_weights(kind: type[LosslessCMeans], options: dict[str, Any]) -> None:
    X = [rows(peer, 40) for peer in range(2)]
    counts = [np.random.default_rng(peer).integers(0, 5, 40) for peer in range(2)]
    how = {**OPEN[kind], **options, "random_state": 3}
    weighted = kind(3, **how).fit(X, sample_weight=counts)
    repeated = kind(3, **how).fit([np.repeat(own, often, axis=0) for own, often in zip(X, counts, strict=True)])
    np.testing.assert_allclose(weighted.cluster_centers_, repeated.cluster_centers_, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_one_are_no_weights_to_the_bit(kind: type[LosslessCMeans]) -> None:
    X = rows(5, 60)
    plain = kind(3, n_peers=3, random_state=0).fit(X)
    weighted = kind(3, n_peers=3, random_state=0).fit(X, sample_weight=np.ones(60))
    assert weighted.cluster_centers_.tobytes() == plain.cluster_centers_.tobytes()
    assert weighted.labels_.tolist() == plain.labels_.tolist()


def test_a_case_by_hand() -> None:
    X = [[[0.0], [1.0], [9.0]], [[2.0], [8.0], [100.0]]]
    model = LosslessCMeans(2, init=[[0.0], [9.0]], suppress_singletons=False)
    model.fit(X, sample_weight=[[1.0, 2.0, 0.5], [1.0, 1.5, 0.0]])
    # (0 + 2 * 1 + 2) / 4, and (4.5 + 12) / 2
    assert model.cluster_centers_.tolist() == [[1.0], [8.25]]
    # 1 + 0 + 1, and 0.5 * 0.75 ** 2 + 1.5 * 0.25 ** 2
    assert model.inertia_ == 2.375
    assert [own.tolist() for own in model.labels_] == [[0, 0, 1], [0, 1, 1]]


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_proportions_of_weights_matter_to_the_centers(kind: type[LosslessCMeans]) -> None:
    X, weights = rows(1, 50), np.random.default_rng(0).uniform(0.1, 1.0, 50)
    large, small = (kind(3, random_state=0).fit(X, sample_weight=weights * factor) for factor in (1.0, 2.0**-40))
    assert large.cluster_centers_.tobytes() == small.cluster_centers_.tobytes()


def test_privacy_rules_count_rows() -> None:
    X = [np.array([[0.0], [1.0], [9.0]]), np.array([[0.0], [1.0], [8.0], [9.0]])]
    model = LosslessCMeans(2, init=[[0.0], [9.0]], bounds=(0, 10), max_rounds=1, tol=0.0)
    model.fit(X, sample_weight=[[1, 1, 5], [1, 1, 1, 1]])
    assert model.suppressed_ == 1
    assert model.cluster_centers_.tolist() == [[0.5], [8.5]]
    gated = LosslessFuzzyCMeans(2, init=[[0.0], [9.0]], bounds=(0, 10))
    with pytest.raises(FleetError, match="privacy gate"):
        gated.fit(X, sample_weight=[[10, 10, 10], [10, 10, 10, 10]])


def test_a_peer_whose_weights_are_all_0_is_absent() -> None:
    X = [rows(0, 12), rows(1, 12)]
    model = LosslessCMeans(3, random_state=0).fit(X, sample_weight=[np.zeros(12), np.ones(12)])
    alone = LosslessCMeans(3, random_state=0).fit([X[1]])
    np.testing.assert_allclose(model.cluster_centers_, alone.cluster_centers_, rtol=1e-12)
    assert model.abstained_ == {0: "no data"}
    assert [len(own) for own in model.labels_] == [12, 12]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([[1.0] * 4, [1.0, -2.0, 1.0]], "sample_weight: peer 1, row 1 is -2.0: expected a finite number, 0 or more"),
        ([[1, 1, 1, np.nan], [1, 1, 1]], "sample_weight: peer 0, row 3 is nan: expected a finite number, 0 or more"),
        ([[1, 1, 1, 1], [1, 1, np.inf]], "sample_weight: peer 1, row 2 is inf: expected a finite number, 0 or more"),
        ([[1, 1, 1], [1, 1, 1]], "sample_weight: peer 0: has shape (3,), but there are 4 rows: expected one weight each"),
        ([[1, 1, 1, "x"], [1, 1, 1]], "sample_weight: peer 0: expected one number for each row"),
        ([[1, 1, 1, 1]], "sample_weight: expected a list of 2 arrays, one per peer, as X is one"),
        ([[0] * 4, [0] * 3], "sample_weight: every weight is zero: expected at least one row that counts"),
        ([[1, 1e12, 1, 1], [1, 1, 1]], "sample_weight: the weights add up to 1e+12, and the smallest one is 1: expected no "
         "more than 3.44e+10 times the smallest one, or in all"),
        ([[1, 5e-324, 1, 1], [1, 1, 1]], "sample_weight: the weights add up to 6, and the smallest one is 4.94e-324: "
         "expected no more than 3.44e+10 times the smallest one, or in all"),
        ([[1, 0, 0, 0], [0, 0, 0]], "n_clusters = 2, but all peers together hold n_samples = 1 rows: ask for at most 1"),
    ],
)  # fmt: skip
def test_weights_that_cannot_be_meant(weights: Any, message: str) -> None:
    with pytest.raises(DataError) as error:
        LosslessCMeans(2).fit([rows(0, 4), rows(1, 3)], sample_weight=weights)
    assert str(error.value) == message


def test_what_takes_no_weights_says_so() -> None:
    X = rows(0, 12)
    with pytest.raises(
        UsageError, match=r"^sample_weight excludes init: it does not count weights: set init = 'split-merge', or"
    ):
        LosslessCMeans(2, init="careful").fit(X, sample_weight=np.ones(12))
    with pytest.raises(
        UsageError, match=r"^sample_weight needs a run in one process: peers do not have the weights: leave fleet out$"
    ):
        LosslessCMeans(2, fleet="simulated").fit(X, sample_weight=np.ones(12))
    with pytest.raises(DataError, match=r"^sample_weight: row 2 is -1\.0: expected a finite number, 0 or more$"):
        LosslessCMeans(2).fit(X, sample_weight=[1, 1, -1, *[1] * 9])
    locals = [Local(X, weights=np.ones(12))]
    with pytest.raises(UsageError, match=r"^k-fed cannot count rows by their weights: leave the weights out$"):
        run_in_process(cluster_job("k-fed", n_clusters=2), locals)
    job = cluster_job("llf-cm", n_clusters=2)
    state = run_in_process(job, locals)
    with pytest.raises(UsageError, match=r"^weights: the pooled algorithm counts every row once"):
        pooled(job, locals, state.log)
