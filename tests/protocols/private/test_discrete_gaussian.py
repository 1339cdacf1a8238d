"""The sampler: its probabilities, its moments, and that the same bytes give the same numbers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2, kstest, norm

from p2pclust.protocols.private.discrete_gaussian import _discrete_laplace, _exp_minus, _Words, discrete_gaussians

N = 20_000


def entropy(seed: int) -> object:
    return np.random.default_rng(seed).bytes


def chi_square(found: np.ndarray, weight: object) -> float:
    """Return the probability of a worse agreement, over all numbers that are expected at least ten times."""
    values = np.arange(-400, 401)
    expected = np.array([weight(int(x)) for x in values])  # type: ignore[operator]
    expected *= len(found) / expected.sum()
    counts = np.array([np.count_nonzero(found == x) for x in values])
    often = expected >= 10
    rest, rest_found = expected[~often].sum(), counts[~often].sum()
    statistic = ((counts[often] - expected[often]) ** 2 / expected[often]).sum() + (rest_found - rest) ** 2 / rest
    return float(chi2.sf(statistic, np.count_nonzero(often)))


@pytest.mark.slow
@pytest.mark.parametrize("variance", [Fraction(1, 5), Fraction(1), Fraction(7, 3), Fraction(900)])
def test_its_probabilities_are_those_of_the_discrete_gaussian(variance: Fraction) -> None:
    found = discrete_gaussians(variance, N, entropy(1))
    assert chi_square(found, lambda x: math.exp(-x * x / (2.0 * float(variance)))) > 0.01


def test_the_chi_square_test_sees_a_wrong_variance() -> None:
    found = discrete_gaussians(Fraction(10), N, entropy(1))
    assert chi_square(found, lambda x: math.exp(-x * x / (2.0 * 10.5))) < 0.01


@pytest.mark.parametrize("variance", [Fraction(25), Fraction(2**54, 7), Fraction(2**100)])
def test_its_moments_are_those_of_the_variance(variance: Fraction) -> None:
    found = discrete_gaussians(variance, N, entropy(2)) / math.sqrt(variance)
    assert abs(found.mean()) < 4 / math.sqrt(N)
    assert abs((found**2).mean() - 1) < 4 * math.sqrt(2 / N)
    assert abs((found**4).mean() - 3) < 4 * math.sqrt(96 / N)
    if variance > 100:
        assert kstest(found, norm.cdf).pvalue > 0.01


@pytest.mark.parametrize(("p", "q"), [(0, 1), (1, 3), (1, 1), (7, 2), (10**30, 3 * 10**30)])
def test_an_event_has_its_probability(p: int, q: int) -> None:
    words = _Words(np.random.default_rng(3).bytes)
    wanted = math.exp(-p / q)
    share = np.mean([_exp_minus(words, p, q) for _ in range(N)])
    assert abs(share - wanted) <= 4 * math.sqrt(wanted * (1 - wanted) / N)


def test_the_discrete_laplace() -> None:
    words = _Words(np.random.default_rng(4).bytes)
    found = np.array([_discrete_laplace(words, 5) for _ in range(N)])
    assert chi_square(found, lambda x: math.exp(-abs(x) / 5)) > 0.01


@pytest.mark.parametrize("n", [1, 2, 3, 1000, 2**64, 2**64 + 1, 3 * 2**70])
def test_numbers_below_a_bound(n: int) -> None:
    words = _Words(np.random.default_rng(5).bytes)
    found = [words.below(n) for _ in range(2000)]
    assert all(0 <= value < n for value in found)
    assert abs(np.mean([value / n for value in found]) - (0.5 if n > 1000 else (n - 1) / (2 * n))) < 0.03


def test_events_are_decided_beyond_the_first_word() -> None:
    # The first word is that of 1/3 exactly, so the second one decides.
    third = (2**64 // 3).to_bytes(8, "little")
    for second, wanted in ((bytes(8), True), (b"\xff" * 8, False)):
        words = _Words(lambda n, second=second: bytes(n - 16) + second + third)
        assert words.happens(1, 3) is wanted


@pytest.mark.slow
@given(seed=st.integers(0, 2**32), size=st.integers(0, 40), variance=st.fractions(Fraction(1, 10), 1000))
def test_the_same_bytes_give_the_same_numbers(seed: int, size: int, variance: Fraction) -> None:
    one, other = (discrete_gaussians(variance, size, entropy(seed)) for _ in range(2))
    assert one.tolist() == other.tolist()
    assert (one.shape, one.dtype) == ((size,), np.int64)


@pytest.mark.parametrize("variance", [Fraction(0), Fraction(-1), Fraction(2**111)])
def test_variances_out_of_range(variance: Fraction) -> None:
    with pytest.raises(ValueError, match="variance"):
        discrete_gaussians(variance, 1, entropy(0))
