"""Rows are checked once, referred to and not copied, and centred block by block."""

from __future__ import annotations

import numpy as np
import pytest

from p2pclust.clustering import Points, fuzzy_sums, nearest
from p2pclust.errors import DataError, UsageError


def test_float64_rows_are_not_copied_and_stay_writable():
    X = np.arange(12.0).reshape(4, 3)
    points = Points(X)
    assert points.X is X
    assert X.flags.writeable


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8", "bool"])
def test_any_real_dtype_is_worked_on_in_float64(dtype):
    X = np.array([[0, 1], [1, 0], [1, 1]], dtype=dtype)
    points = Points(X)
    assert points.X.dtype == np.float64
    assert points.X.tolist() == X.tolist()


def test_views_with_strides_are_taken():
    X = np.arange(24.0).reshape(4, 6)
    assert nearest(Points(X[:, ::2]), X[:, ::2]).tolist() == [0, 1, 2, 3]
    assert nearest(Points(X.T), X.T).tolist() == [0, 1, 2, 3, 4, 5]


def test_shift_defaults_to_the_mean_and_can_be_given():
    X = [[0.0, 10.0], [4.0, 30.0]]
    assert Points(X).shift.tolist() == [2.0, 20.0]
    assert Points(X, shift=[1.0, 2.0]).shift.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("n", [1, 7, 2048, 8191, 8192, 8193, 20000])
@pytest.mark.parametrize("n_features", [1, 33])
def test_blocks_cover_the_centred_rows_in_order(n, n_features):
    X = np.random.default_rng(n).normal(size=(n, n_features))
    points = Points(X)
    stop = 0
    for block in points.blocks():
        assert block.start == stop
        assert block.stop - block.start <= points.block_rows
        np.testing.assert_array_equal(block.rows, X[block.start : block.stop] - points.shift)
        np.testing.assert_allclose(block.squares, (block.rows**2).sum(axis=1), rtol=1e-14)
        stop = block.stop
    assert stop == n == len(points)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (np.nan, r"row 2, column 1 of the data is NaN \(1 such row\(s\) of 3\)"),
        (np.inf, "row 2, column 1 of the data is infinite"),
        (-np.inf, "row 2, column 1 of the data is infinite"),
        (1e200, "row 2 of the data are so large"),
    ],
)
@pytest.mark.parametrize("shift", [None, [0.0, 0.0], [1.0, 1.0]])
def test_rows_that_spoil_sums_are_named(bad, said, shift):
    if bad == 1e200 and shift is None:
        said = "row 0 of the data are so large"  # the mean itself is far from every row
    with pytest.raises(DataError, match=said) as caught:
        Points([[0.0, 0.0], [1.0, 1.0], [2.0, bad]], shift=shift)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "X", [np.zeros((0, 3)), np.zeros((3, 0)), np.zeros(3), np.zeros((2, 2, 2)), [["a", "b"]], [[1j]]]
)
def test_what_is_no_matrix_of_numbers_is_refused(X):
    with pytest.raises(DataError):
        Points(X)


@pytest.mark.parametrize("shift", [[1.0], [[1.0, 2.0]], [np.nan, 0.0]])
def test_a_shift_that_does_not_fit_is_refused(shift):
    with pytest.raises(UsageError, match="2 finite numbers"):
        Points([[0.0, 1.0]], shift=shift)


@pytest.mark.parametrize(
    "centers", [[[0.0]], [0.0, 1.0], np.zeros((0, 2)), [[0.0, np.nan]], [[np.inf, 0.0]], [[1e200, 0.0]]]
)
def test_centers_that_do_not_fit_are_refused(centers):
    with pytest.raises(UsageError):
        Points([[0.0, 1.0]]).centred(centers)


def test_repr_is_short():
    assert repr(Points(np.zeros((3, 2)))) == "Points(n_samples=3, n_features=2)"


@pytest.mark.parametrize(("n", "n_features"), [(1, 1), (8193, 3), (2049, 40)])
def test_points_from_an_origin_have_the_bits_of_the_matrix_that_they_stand_for(n, n_features):
    rng = np.random.default_rng(1)
    X, origin, centers = rng.normal(size=(n, n_features)), rng.normal(size=n_features), rng.normal(size=(3, n_features))
    given, made = Points(X, origin=origin), Points(X - origin, shift=np.zeros(n_features))
    assert np.array_equal(given.X, made.X)
    assert not given.shift.any()
    assert np.array_equal(nearest(given, centers), nearest(made, centers))
    for one, other in zip(fuzzy_sums(given, centers, 2.0), fuzzy_sums(made, centers, 2.0), strict=True):
        assert one.tobytes() == other.tobytes()


def test_points_have_a_shift_or_an_origin():
    with pytest.raises(UsageError, match="leave one of the two out"):
        Points([[0.0]], shift=[0.0], origin=[1.0])


def test_an_origin_that_does_not_fit_is_refused():
    with pytest.raises(UsageError, match="the origin must be 1 finite numbers"):
        Points([[0.0]], origin=[np.nan])
