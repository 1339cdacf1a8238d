"""Rows with missing cells: computed by hand, equal to the formulas, and without gaps the bits of other rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.clustering import gaps_oracle as oracle

from p2pclust.clustering import (
    Points,
    cell_moments,
    fuzzy_step,
    fuzzy_sums,
    gaps,
    lloyd_step,
    nearest,
    weighted_sums_and_counts,
)
from p2pclust.clustering.gaps import GappedPoints
from p2pclust.clustering.kernels import C1, NUMPY, Kernel, installed, instruction_sets
from p2pclust.errors import DataError

NAN = np.nan
kernels = pytest.mark.parametrize("kernel", [Kernel(name) for name in installed()], ids=lambda one: one.name)
drawn = given(
    st.integers(2, 700), st.integers(1, 19), st.integers(1, 13), st.sampled_from([0.0, 0.1, 0.4, 0.8]),
    st.integers(0, 2**32 - 1),
)  # fmt: skip


def _drawn(n: int, n_columns: int, n_clusters: int, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(scale=3.0, size=(n, n_columns)).round(int(rng.integers(0, 12)))
    centers = X[rng.integers(n, size=n_clusters)] + rng.choice([0.0, 1.0]) * rng.normal(size=(n_clusters, n_columns))
    return oracle.with_gaps(rng, X, share), centers


@kernels
def test_hand_computed(kernel: Kernel) -> None:
    # Squared distances over the cells that are there: the first row 0 and 13, the second 1 and 4, the third 4 and 0.
    X = [[0.0, 1.0], [1.0, NAN], [NAN, 3.0], [NAN, NAN]]
    centers = np.array([[0.0, 1.0], [3.0, 3.0]])
    points = GappedPoints(X, shift=[0.0, 0.0], kernel=kernel)
    assert gaps.nearest(points, centers).tolist() == [0, 0, 1, -1]
    sums, masses, counts = gaps.crisp_sums(points, centers, np.array([1.0, 3.0, 2.0, 9.0]))
    assert sums.tolist() == [[3.0, 1.0], [0.0, 6.0]]
    assert (masses.tolist(), counts.tolist()) == ([[4.0, 1.0], [0.0, 2.0]], [[2.0, 1.0], [0.0, 1.0]])
    # The second cluster has no number in the first column: it keeps 3.
    assert lloyd_step(points, centers).tolist() == [[0.5, 1.0], [3.0, 3.0]]
    assert gaps.objective_and_weights(points, centers)[0] == 1.0
    # Memberships with a fuzzifier of 2: (1, 0), (4/5, 1/5) and (0, 1), without any number (0, 0).
    np.testing.assert_allclose(gaps.memberships(points, centers, 2.0), [[1, 0], [0.8, 0.2], [0, 1], [0, 0]], atol=1e-15)
    weights, sums = gaps.fuzzy_sums(points, centers, 2.0)
    np.testing.assert_allclose(weights, [[1.64, 1.0], [0.04, 1.0]], rtol=1e-15)
    np.testing.assert_allclose(sums, [[0.64, 1.0], [0.04, 3.0]], rtol=1e-15)
    value, of_rows, _ = gaps.objective_and_weights(points, centers, 2.0)
    np.testing.assert_allclose([value, *of_rows], [0.64 * 1 + 0.04 * 4, 1.64, 1.04], rtol=1e-15)


@kernels
@drawn
def test_sums_and_steps_are_those_of_the_formulas(
    kernel: Kernel, n: int, n_columns: int, n_clusters: int, share: float, seed: int
) -> None:
    X, centers = _drawn(n, n_columns, n_clusters, share, seed)
    # Rows as near to one center as to another one belong to either, by the rounding of their distances.
    squared = np.sort(oracle.partial_distances(X, centers), axis=1)
    X = X[(squared[:, 1:2] - squared[:, :1] > 1e-9).all(axis=1)]
    assume(len(X))
    points = GappedPoints(X, kernel=kernel)
    shift = points.shift
    for fuzzifier in (None, 1.5, 1.7, 2.0, 3.0):
        wanted, total = oracle.sums(X, centers, fuzzifier)
        if fuzzifier is None:
            sums, found, _ = gaps.crisp_sums(points, centers)
        else:
            found, sums = gaps.fuzzy_sums(points, centers, fuzzifier)
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(sums + found * shift, total, rtol=1e-9, atol=1e-9 * (1 + np.abs(total).max()))
        value = gaps.objective_and_weights(points, centers, fuzzifier)[0]
        np.testing.assert_allclose(value, oracle.objective(X, centers, fuzzifier), rtol=1e-9, atol=1e-9)
    around = gaps.cell_moments(points, centers)
    apart = X - centers[gaps.nearest(points, centers)]
    u = oracle.raised(X, centers, None)
    np.testing.assert_allclose(around.sums, u.T @ np.nan_to_num(apart), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(around.squares, u.T @ np.nan_to_num(apart) ** 2, rtol=1e-9, atol=1e-9)
    assert around.row_counts.tolist() == u.sum(axis=0).tolist()


@pytest.mark.skipif(C1 not in installed(), reason="the C extension was not compiled")
@drawn
def test_all_instruction_sets_and_threads_have_the_same_bits(
    n: int, n_columns: int, n_clusters: int, share: float, seed: int
) -> None:
    X, centers = _drawn(n, n_columns, n_clusters, share, seed)
    weights = np.random.default_rng(seed).integers(1, 5, n).astype(float)
    digests = set()
    for kernel in (*(Kernel(C1, instruction_set=name) for name in instruction_sets()), Kernel(C1, threads=3)):
        points = GappedPoints(X, kernel=kernel)
        found = [*gaps.crisp_sums(points, centers, weights), gaps.nearest(points, centers)]
        found += [part for m in (1.5, 2.0, 3.0) for part in gaps.fuzzy_sums(points, centers, m, weights)]
        found += [gaps.cell_moments(points, centers, weights).squares]
        found += [np.array(gaps.objective_and_weights(points, centers, m, weights)[0]) for m in (None, 2.0)]
        digests.add(b"".join(np.ascontiguousarray(one).tobytes() for one in found))
    assert len(digests) == 1


@kernels
@drawn
def test_without_a_gap_all_bits_are_those_of_points(
    kernel: Kernel, n: int, n_columns: int, n_clusters: int, share: float, seed: int
) -> None:
    X, centers = _drawn(n, n_columns, n_clusters, 0.0, seed)
    points, gapped = Points(X, kernel=kernel), GappedPoints(X, shift=Points(X).shift, kernel=kernel)
    sums, _, counts = weighted_sums_and_counts(points, centers, None)
    found = gaps.crisp_sums(gapped, centers)
    assert (found[0] == sums).all()
    assert (found[2] == counts[:, np.newaxis]).all()
    weights, sums = fuzzy_sums(points, centers, 2.0)
    found = gaps.fuzzy_sums(gapped, centers, 2.0)
    assert (found[0] == weights[:, np.newaxis]).all()
    assert (found[1] == sums).all()
    assert (lloyd_step(gapped, centers) == lloyd_step(points, centers)).all()
    assert (gaps.nearest(gapped, centers) == nearest(points, centers)).all()
    assert (gaps.cell_moments(gapped, centers).squares == cell_moments(points, centers)[3]).all()


@kernels
@pytest.mark.parametrize("fuzzifier", [None, 2.0])
def test_the_objective_never_rises_and_a_fixed_point_is_one_of_filling_in(
    kernel: Kernel, fuzzifier: float | None
) -> None:
    rng = np.random.default_rng(5)
    blobs = np.repeat([[0.0, 0.0, 0.0], [6.0, 6.0, 0.0], [0.0, 6.0, 6.0]], 80, axis=0)
    X = oracle.with_gaps(rng, blobs + rng.normal(size=blobs.shape), 0.3)
    points, centers, values = GappedPoints(X, kernel=kernel), np.array(blobs[[0, 80, 160]]) + 1.0, []
    for _ in range(400):
        values.append(gaps.objective_and_weights(points, centers, fuzzifier)[0])
        after = lloyd_step(points, centers) if fuzzifier is None else fuzzy_step(points, centers, fuzzifier)
        if (still := np.abs(after - centers).max()) < 1e-13:
            break
        centers = after
    assert still < 1e-13
    assert (np.diff(values) <= 1e-9 * values[0]).all()
    if fuzzifier is None:
        filled = np.where(np.isnan(X), centers[gaps.nearest(points, centers)], X)
        np.testing.assert_allclose(lloyd_step(Points(filled), centers), centers, atol=1e-9)


def test_a_fixed_point_of_filling_in_need_not_be_one_of_the_cells_that_are_there() -> None:
    # Filled in with its first center the first row is (1, 0), which stays. By its only cell the second center is nearer.
    X, centers = np.array([[1.0, NAN], [-1.0, 0.0], [0.5, 10.0]]), np.array([[0.0, 0.0], [0.5, 10.0]])
    filled = np.where(np.isnan(X), 0.0, X)
    assert lloyd_step(Points(filled, shift=[0.0, 0.0]), centers).tolist() == centers.tolist()
    assert gaps.nearest(GappedPoints(X), centers).tolist() == [1, 0, 1]


@kernels
def test_rows_far_from_the_origin_lose_no_digits(kernel: Kernel) -> None:
    rng = np.random.default_rng(0)
    X = oracle.with_gaps(rng, rng.normal(size=(500, 3)), 0.3)
    centers = rng.normal(size=(4, 3))
    near, far = (GappedPoints(X + offset, kernel=kernel) for offset in (0.0, 2.0**26))
    for fuzzifier in (1.5, 2.0):
        ours, theirs = (gaps.fuzzy_sums(p, centers + o, fuzzifier)[0] for p, o in ((near, 0.0), (far, 2.0**26)))
        np.testing.assert_allclose(theirs, ours, rtol=1e-6)
    assert (gaps.nearest(near, centers) == gaps.nearest(far, centers + 2.0**26)).all()


@kernels
def test_exact_ties_go_to_the_lowest_index(kernel: Kernel) -> None:
    points = GappedPoints([[1.0, NAN], [NAN, 5.0]], kernel=kernel)
    assert gaps.nearest(points, [[2.0, 5.0], [0.0, 5.0], [2.0, 0.0]]).tolist() == [0, 0]


def test_a_column_that_no_row_has_keeps_its_value() -> None:
    points = GappedPoints([[0.0, NAN], [4.0, NAN]])
    assert lloyd_step(points, np.array([[1.0, 7.0]])).tolist() == [[2.0, 7.0]]
    assert fuzzy_step(points, np.array([[1.0, 7.0]]), 2.0).tolist() == [[2.0, 7.0]]


def test_rows_without_any_number_have_no_label() -> None:
    points = GappedPoints([[NAN, NAN], [NAN, NAN]])
    assert gaps.nearest(points, [[0.0, 1.0]]).tolist() == [-1, -1]
    assert gaps.memberships(points, [[0.0, 1.0]], 2.0).tolist() == [[0.0], [0.0]]
    assert lloyd_step(points, np.array([[0.0, 1.0]])).tolist() == [[0.0, 1.0]]


def test_rows_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(DataError, match="row 1, column 0 of the data is infinite"):
        GappedPoints([[NAN, 0.0], [np.inf, NAN]])
    with pytest.raises(DataError, match="matrix"):
        GappedPoints(np.zeros(3))
    with pytest.raises(DataError, match="overflow"):
        GappedPoints([[1e200, NAN], [0.0, 0.0]], shift=[0.0, 0.0], kernel=Kernel(NUMPY))
