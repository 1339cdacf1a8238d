"""The accounting: closed forms, values of another program, and probabilities of whole numbers added up one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from p2pclust.errors import UsageError
from p2pclust.protocols.private.accounting import ROUNDING, delta_of, epsilon_of, log_gap, mu_for

EPSILONS = st.floats(0.01, 50.0)
DELTAS = st.floats(1e-12, 0.4)


# GaussianPrivacyLoss(standard deviation).get_delta_for_epsilon(epsilon) of dp-accounting 0.6.0
@pytest.mark.parametrize(
    ("deviation", "epsilon", "delta"),
    [
        (1.0, 1.0, 0.12693673750664392),
        (2.0, 0.5, 0.05244032328766968),
        (5.0, 0.1, 0.04148168846071831),
        (0.5, 4.0, 0.08495331867107113),
        (10.0, 0.5, 6.856582455838601e-09),
    ],
)
def test_delta_is_that_of_another_program(deviation: float, epsilon: float, delta: float) -> None:
    assert delta_of(epsilon, 1.0 / deviation) == pytest.approx(delta, rel=1e-9)


# 1 / GaussianPrivacyLoss.from_privacy_guarantee((epsilon, delta)).standard_deviation of dp-accounting 0.6.0, which bisects
@pytest.mark.parametrize(
    ("epsilon", "delta", "mu"),
    [
        (8.0, 1e-6, 1.531545035393288),
        (2.0, 1e-6, 0.44833473537032487),
        (1.0, 1e-6, 0.23670437838445021),
        (0.5, 1e-6, 0.12410614882242807),
        (0.1, 1e-9, 0.019916423404200682),
        (1.0, 0.1, 0.9209139260461087),
    ],
)
def test_mu_is_that_of_another_program(epsilon: float, delta: float, mu: float) -> None:
    assert mu_for(epsilon, delta) == pytest.approx(mu, rel=1e-6)


# self_compose of a PrivacyLossDistribution of dp-accounting 0.6.0, discretised by 1e-4, which rounds up
def test_composition_is_that_of_another_program() -> None:
    assert epsilon_of(1e-6, math.sqrt(24 * mu_for(2.0, 1e-6) ** 2)) == pytest.approx(12.322515707130119, rel=1e-5)
    five = math.sqrt(5 * 0.2**2)
    assert epsilon_of(1e-6, five) == pytest.approx(1.994526947919775, rel=1e-4)
    assert delta_of(1.0, five) == pytest.approx(0.0031850557708243896, rel=1e-3)


def test_values_in_closed_form() -> None:
    # At epsilon 0, delta is the total variation distance of two normal distributions, 2 Phi(mu / 2) - 1.
    for mu in (0.1, 1.0, 3.0):
        assert delta_of(0.0, mu) == pytest.approx(2.0 * norm.cdf(mu / 2.0) - 1.0, rel=1e-12)
    assert mu_for(0.0, 2.0 * norm.cdf(0.5) - 1.0) == pytest.approx(1.0)
    assert delta_of(3.0, 0.0) == epsilon_of(1e-9, 0.0) == 0.0


@pytest.mark.slow
@given(epsilon=EPSILONS, delta=DELTAS)
def test_the_inverses_are_on_the_safe_side_and_near(epsilon: float, delta: float) -> None:
    mu = mu_for(epsilon, delta)
    assert delta_of(epsilon, mu) <= delta < delta_of(epsilon, mu * (1 + 1e-9))
    found = epsilon_of(delta, mu)
    assert delta_of(found, mu) <= delta
    assert found == pytest.approx(epsilon, rel=1e-6)


@given(epsilon=EPSILONS, mu=st.floats(0.01, 5.0), more=st.floats(1.0, 2.0), gap=st.floats(0.0, 0.1))
def test_more_epsilon_less_mu_and_no_gap_need_less_delta(epsilon: float, mu: float, more: float, gap: float) -> None:
    assert delta_of(epsilon * more, mu) <= delta_of(epsilon, mu) <= delta_of(epsilon, mu * more)
    assert delta_of(epsilon, mu) <= delta_of(epsilon, mu, gap=gap)


@pytest.mark.parametrize(
    "call",
    [
        lambda: delta_of(-1.0, 1.0),
        lambda: delta_of(math.nan, 1.0),
        lambda: delta_of(1.0, math.inf),
        lambda: delta_of(501.0, 1.0),
        lambda: epsilon_of(0.0, 1.0),
        lambda: epsilon_of(1e-6, 1000.0),
        lambda: mu_for(1.0, 1.0),
        lambda: mu_for(1.0, math.nan),
        lambda: log_gap(0.1, 2, 1),
        lambda: log_gap(1.0, 0, 1),
    ],
)
def test_values_out_of_range_are_refused(call: object) -> None:
    with pytest.raises(UsageError, match=r"expected|above"):
        call()  # type: ignore[operator]


def discrete(variance: float, reach: int = 60) -> np.ndarray:
    weights = np.exp(-(np.arange(-reach, reach + 1, dtype=np.float64) ** 2) / (2.0 * variance))
    return weights / weights.sum()


@pytest.mark.parametrize("variance", [0.3, 0.5, 1.0])
@pytest.mark.parametrize("n_shares", [2, 3, 5])
def test_the_gap_bounds_sums_of_whole_numbers(variance: float, n_shares: int) -> None:
    total = discrete(variance)
    for _ in range(n_shares - 1):
        total = np.convolve(total, discrete(variance))
    middle = len(total) // 2
    single = discrete(n_shares * variance, middle)
    near = slice(middle - 8, middle + 9)
    apart = np.abs(np.log(total[near]) - np.log(single[near])).max()
    rounding = 5.0 * math.exp(-2.0 * math.pi**2 * ROUNDING)
    assert 1e-8 < apart < log_gap(variance, n_shares, 1) - rounding + 1e-12


@pytest.mark.parametrize(("variance", "shift", "epsilon"), [(20.0, 3, 0.5), (25.0, 10, 3.0), (17.0, 1, 0.05)])
def test_the_delta_of_whole_numbers_is_within_the_bound(variance: float, shift: int, epsilon: float) -> None:
    noise = discrete(variance, 200)
    with_row, without = np.append(np.zeros(shift), noise), np.append(noise, np.zeros(shift))
    exact = np.maximum(0.0, with_row - math.exp(epsilon) * without).sum()
    bound = delta_of(epsilon, shift / math.sqrt(variance - ROUNDING), gap=log_gap(variance, 1, 1))
    assert exact <= bound


def test_a_gap_is_within_epsilon_and_delta() -> None:
    assert delta_of(1.0, 1.0, gap=0.1) == pytest.approx(math.exp(0.1) * delta_of(0.8, 1.0))
    assert delta_of(0.1, 1.0, gap=0.1) == 1.0
    assert mu_for(1.0, 0.1, gap=0.01) < mu_for(1.0, 0.1)
    assert log_gap(2.0**24, 5000, 10**9) < 1e-120
