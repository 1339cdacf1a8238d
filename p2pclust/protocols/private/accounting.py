"""How much Gaussian noise a promise of epsilon and delta takes, in closed form.

A mechanism is *mu-Gaussian private* if two neighbouring data sets are as hard to distinguish by its result as normal
distributions of variance 1 whose means differ by mu [1]_. Adding normal noise of standard deviation s to a
vector that one row changes by at most D (Euclidean norm) gives mu = D / s. Several such results together, each of which may
depend on the ones before it, have the sum of their mu**2. Such a mechanism is (epsilon, delta)-differentially private
exactly if [2]_

    delta >= Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu).

Whole numbers instead of normal ones
------------------------------------
Noise here is a sum of m independent *discrete Gaussians* N_Z(0, v) of variance parameter v, one from each peer: whole
numbers x of probability proportional to exp(-x**2 / 2v). Two steps lead from there to the formula above. Both bound how much
the logarithm of any probability changes, for each number that is released; :func:`log_gap` adds the bounds up.

1. The sum of k + 1 discrete Gaussians against one of variance (k + 1) v. Completing the square leaves, for every x, a sum of
   exp(-(z - c)**2 / 2s) over whole z, with s = v k/(k + 1) and c depending on x. By Poisson's summation formula it lies
   within the factors 1 +- e(s) of sqrt(2 pi s), e(s) = 2 (exp(-2 pi**2 s) + exp(-2 pi**2 4 s) + ...). For s >= 1/8 the
   logarithm of the ratio of two such sums is below 5 exp(-2 pi**2 s). Adding one peer after the other gives
   5 (exp(-2 pi**2 v 1/2) + exp(-2 pi**2 v 2/3) + ...), m - 1 terms. This is the argument of [3]_, where the bound is stated
   with 10 in the place of 5; this module uses 10.
2. One discrete Gaussian of variance V against a normal number of variance V - r that is rounded at random: to the whole
   number y with probability proportional to exp(-(y - g)**2 / 2r), where g is the normal number. With f the normal density
   of variance V, the rounded one has y with a probability between f(y) / (1 + e(r)) and f(y) / (1 - e(r)), the discrete one
   between f(y) / (1 + e(V)) and f(y). For V > r the logarithms differ by less than 5 exp(-2 pi**2 r). Adding a whole number
   before this rounding, or after it, is the same. So the rounded mechanism reveals no more than the normal one, whose mu is
   D / sqrt(V - r). :data:`ROUNDING` is r.

If the logarithms of all probabilities of a job change by at most g in total, then it is (epsilon, delta)-private with

    delta = exp(g) delta_of(epsilon - 2 g, mu).

.. [1] J. Dong, A. Roth, W. J. Su: Gaussian differential privacy. arXiv 1905.02383.
.. [2] B. Balle, Y.-X. Wang: Improving the Gaussian mechanism for differential privacy. ICML 2018, arXiv 1805.06530.
.. [3] P. Kairouz, Z. Liu, T. Steinke: The distributed discrete Gaussian mechanism for federated learning with secure
   aggregation. ICML 2021, arXiv 2102.06387.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from p2pclust.errors import UsageError

ROUNDING: Final = 16  # the variance, in whole numbers, that is given away to random rounding in step 2
_STEPS: Final = 200
_MOST_EPSILON: Final = 500.0
_MOST_TERMS: Final = 64


def delta_of(epsilon: float, mu: float, *, gap: float = 0.0) -> float:
    """Return the smallest delta for which a mu-Gaussian private mechanism is (epsilon, delta)-private.

    The relative error is below 1e-8 for an epsilon up to 100 and a delta from 1e-100. `gap` is how much the logarithm of
    each probability may differ from those of the exact Gaussian mechanism. Raises UsageError for a value out of range.

    >>> round(delta_of(1.0, 1.0), 6)
    0.126937
    >>> delta_of(1.0, 0.0)
    0.0
    """
    if not (0.0 <= epsilon <= _MOST_EPSILON and 0.0 <= mu < math.inf and 0.0 <= gap < math.inf):
        raise UsageError(
            f"epsilon = {epsilon}, mu = {mu}, gap = {gap}: expected 0 to {_MOST_EPSILON:g}, and at least 0"
        )
    less = epsilon - 2.0 * gap
    if less < 0.0:
        return 1.0
    if mu == 0.0:
        return 0.0
    below = _upper_tail(less / mu - mu / 2.0) - math.exp(less) * _upper_tail(less / mu + mu / 2.0)
    return min(1.0, math.exp(gap) * max(0.0, below))


def epsilon_of(delta: float, mu: float) -> float:
    """Return the smallest epsilon, rounded up, for which a mu-Gaussian private mechanism is (epsilon, delta)-private.

    Raises UsageError for a value out of range, and if epsilon is above 500.
    """
    _check_delta(delta)
    if delta_of(0.0, mu) <= delta:
        return 0.0
    if delta_of(_MOST_EPSILON, mu) > delta:
        raise UsageError(f"mu = {mu:g}, delta = {delta:g}: epsilon would be above {_MOST_EPSILON:g}")
    return _bisected(lambda epsilon: delta_of(epsilon, mu) <= delta, _MOST_EPSILON, 0.0)


def mu_for(epsilon: float, delta: float, *, gap: float = 0.0) -> float:
    """Return the largest mu, rounded down, whose mechanisms are (epsilon, delta)-private; 0 if there is none.

    Takes a `gap`, and raises UsageError, as :func:`delta_of` does.
    """
    _check_delta(delta)
    above = 1.0
    while delta_of(epsilon, above, gap=gap) <= delta:
        above *= 2.0
    return _bisected(lambda mu: delta_of(epsilon, mu, gap=gap) <= delta, 0.0, above)


def log_gap(share: float, n_shares: int, numbers: int) -> float:
    """Return how much the logarithm of the probability of so many released numbers differs from that of rounded normal ones.

    `share` is the variance parameter of the noise of each of `n_shares` peers, in whole numbers; UsageError below 1/4.

    >>> log_gap(1.0, 2, 1) < 6e-4
    True
    >>> log_gap(2.0**40, 14, 10**6) < 1e-100
    True
    """
    if not (share >= 0.25 and n_shares >= 1 and numbers >= 0):
        raise UsageError(f"noise of variance {share:g} from {n_shares} peers: expected at least 1/4, from one peer")
    whole = 2.0 * math.pi**2
    first = min(n_shares - 1, _MOST_TERMS)
    terms = [math.exp(-whole * share * k / (k + 1)) for k in range(1, first + 1)]
    # The terms fall, so that the last one bounds all that follow.
    rest = max(0, n_shares - 1 - first) * (terms[-1] if terms else 0.0)
    return numbers * (10.0 * (math.fsum(terms) + rest) + 5.0 * math.exp(-whole * ROUNDING))


def _upper_tail(x: float) -> float:
    """Return the probability that a normal number of variance 1 is above x."""
    return 0.5 * math.erfc(x / math.sqrt(2.0))


def _check_delta(delta: float) -> None:
    if not 0.0 < delta < 1.0:
        raise UsageError(f"delta = {delta}: expected a number above 0, below 1")


def _bisected(holds: Callable[[float], bool], good: float, bad: float) -> float:
    """Return the last number found between one for which it holds and one for which it does not; it holds for it."""
    for _ in range(_STEPS):
        middle = (good + bad) / 2.0
        if middle in (good, bad):
            break
        if holds(middle):
            good = middle
        else:
            bad = middle
    return good
