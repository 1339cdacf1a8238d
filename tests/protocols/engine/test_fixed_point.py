from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

from p2pclust.protocols.engine.fixed_point import (
    MAX_PEERS,
    GridError,
    dequantise_all,
    fits,
    grid,
    power_of_two_above,
    quantise_all,
)


def quantise(values: ArrayLike, unit: ArrayLike, *, n_peers: int, limbs: int = 2) -> NDArray[np.int64]:
    """Round one array."""
    return quantise_all({"": np.asarray(values, dtype=np.float64)}, {"": unit}, n_peers=n_peers, limbs=limbs)[""]


def dequantise(total: NDArray[np.int64], unit: ArrayLike) -> NDArray[np.float64]:
    return dequantise_all({"": total}, {"": unit})[""]


values = st.floats(min_value=-1e9, max_value=1e9, allow_nan=False)
terms = st.lists(values, min_size=1, max_size=12)


def exact(limbs: np.ndarray) -> Fraction:
    return sum((Fraction(int(limb)) / 2 ** (24 + 48 * k) for k, limb in enumerate(limbs)), Fraction(0))


def test_one_half_by_hand() -> None:
    assert quantise(0.5, 1.0, n_peers=1).tolist() == [2**23, 0]


def test_a_value_below_the_first_limb_by_hand() -> None:
    assert quantise(2.0**-30, 1.0, n_peers=1).tolist() == [0, 2**42]


def test_a_negative_value_by_hand() -> None:
    assert quantise(-(1.0 + 2.0**-30), 1.0, n_peers=1).tolist() == [-(2**24), -(2**42)]


def test_half_a_grid_step_is_rounded_to_even() -> None:
    assert quantise(2.0**-73, 1.0, n_peers=1).tolist() == [0, 0]
    assert quantise(3 * 2.0**-73, 1.0, n_peers=1).tolist() == [0, 2]


def test_the_unit_broadcasts_over_columns() -> None:
    limbs = quantise([[1.0, 4.0], [2.0, 8.0]], [1.0, 4.0], n_peers=1)
    assert (limbs[0] / 2.0**24).tolist() == [[1.0, 1.0], [2.0, 2.0]]


@pytest.mark.slow
@given(terms, st.randoms(use_true_random=False))
def test_every_order_and_every_tree_gives_the_same_bits(xs: list[float], random) -> None:
    limbs = [quantise(x, 1.0, n_peers=16) for x in xs]
    reference = dequantise(sum(limbs[1:], limbs[0]), 1.0)
    while len(limbs) > 1:  # Add two at random until one is left: a random tree over a random order.
        random.shuffle(limbs)
        limbs.append(limbs.pop() + limbs.pop())
    assert dequantise(limbs[0], 1.0).tobytes() == reference.tobytes()


@pytest.mark.slow
@given(terms, st.integers(2, 8), st.integers(-60, 60))
def test_the_error_is_half_a_grid_step_per_term_and_one_rounding_at_the_end(
    xs: list[float], limbs: int, exponent: int
) -> None:
    unit = 2.0**exponent
    total = sum(quantise(x * unit, unit, n_peers=16, limbs=limbs) for x in xs)
    truth = sum((Fraction(x * unit) for x in xs), Fraction(0))
    on_grid = exact(total) * Fraction(unit)
    assert abs(on_grid - truth) <= len(xs) * Fraction(grid(limbs)) * Fraction(unit) / 2
    found = float(dequantise(total, unit))
    assert abs(Fraction(found) - on_grid) <= Fraction(4 * np.spacing(abs(found) or unit * grid(limbs)))


@given(st.floats(-1e9, 1e9), st.integers(2, 8))
def test_one_term_comes_back_within_its_last_bit(x: float, limbs: int) -> None:
    back = float(dequantise(quantise(x, 1.0, n_peers=1, limbs=limbs), 1.0))
    assert abs(back - x) <= max(2 * np.spacing(abs(x)), grid(limbs) / 2)


def test_one_total_has_one_value_however_its_limbs_carry() -> None:
    carried = np.array([1, 0], dtype=np.int64)
    uncarried = np.array([0, 2**48], dtype=np.int64)
    assert dequantise(carried, 1.0) == dequantise(uncarried, 1.0) == 2.0**-24


def test_sums_of_many_peers_at_the_limit_do_not_overflow() -> None:
    largest = math.nextafter(2.0**38 / MAX_PEERS, 0.0)
    limbs = quantise(largest, 1.0, n_peers=MAX_PEERS)
    assert float(dequantise(limbs * MAX_PEERS, 1.0)) == largest * MAX_PEERS
    assert fits(limbs, n_peers=MAX_PEERS)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2.0**38, -(2.0**38), 1e300])
def test_what_the_grid_cannot_hold_is_refused(bad: float) -> None:
    with pytest.raises(GridError):
        quantise([0.0, bad], 1.0, n_peers=1)


def test_the_capacity_is_shared_among_the_peers() -> None:
    quantise(2.0**37, 1.0, n_peers=1)
    with pytest.raises(GridError, match="2 peers"):
        quantise(2.0**37, 1.0, n_peers=2)


@pytest.mark.parametrize("n_peers", [0, MAX_PEERS + 1])
def test_too_many_peers_are_refused(n_peers: int) -> None:
    with pytest.raises(GridError, match="peers"):
        quantise(1.0, 1.0, n_peers=n_peers)


@pytest.mark.parametrize("unit", [0.0, -1.0, 3.0, np.inf, np.nan])
def test_a_unit_is_a_positive_power_of_two(unit: float) -> None:
    with pytest.raises(ValueError, match="power of two"):
        quantise(1.0, unit, n_peers=1)


def test_hostile_limbs_do_not_fit() -> None:
    lowest = np.array([np.iinfo(np.int64).min, 0])
    assert not fits(lowest, n_peers=1)
    assert not fits(np.array([0, 2**48 + 1]), n_peers=1)
    assert fits(np.array([0, 2**49]), n_peers=2, summed=2)
    assert not fits(np.array([2**61 + 1, 0]), n_peers=2)


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_power_of_two_above(x: float) -> None:
    power = float(power_of_two_above(x))
    assert power / 2 < x <= power
    assert math.frexp(power)[0] == 0.5


def test_power_of_two_above_zero_is_one() -> None:
    assert power_of_two_above([0.0, 1.0]).tolist() == [1.0, 1.0]


@pytest.mark.slow
@given(st.lists(values, min_size=1, max_size=5), st.lists(values, max_size=5), st.integers(2, 4))
def test_several_arrays_at_once_are_each_as_if_alone(xs: list[float], ys: list[float], limbs: int) -> None:
    arrays = {"x": np.array(xs), "y": np.array([ys, ys]), "z": np.array(xs[0])}
    units = {"x": 4.0, "y": np.full(len(ys), 0.5), "z": 1.0}
    together = quantise_all(arrays, units, n_peers=3, limbs=limbs)
    for name, array in arrays.items():
        alone = quantise(array, units[name], n_peers=3, limbs=limbs)
        assert together[name].shape == alone.shape
        assert together[name].tolist() == alone.tolist()
    back = dequantise_all(together, units)
    for name, array in arrays.items():
        assert back[name].shape == array.shape
        assert back[name].tobytes() == dequantise(together[name], units[name]).tobytes()


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=2), st.integers(1, MAX_PEERS))
def test_what_fits_is_what_lies_within_the_bounds_of_both_limbs(pair: list[int], n_peers: int) -> None:
    first, other = 2**62 // n_peers, 2**48
    expected = abs(pair[0]) <= first and abs(pair[1]) <= other
    assert fits(np.array([[pair[0]], [pair[1]]]), n_peers=n_peers) == expected
    assert fits(np.array([[0, pair[0]], [0, pair[1]]]), n_peers=n_peers) == expected
    assert fits(np.array(pair), n_peers=n_peers) == expected
