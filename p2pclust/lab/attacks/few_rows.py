"""Few rows: solve for a peer's rows from its fuzzy sums over the rounds.

A round of fuzzy c-means shows C weights and C x F sums, all of them functions of the peer's rows and of public centers. The
privacy gate counts these equations in one round; T rounds give up to T times as many. With more equations than unknowns,
nonlinear least squares from random starts finds the rows, their number tried out from the smallest that is possible. A try
that explains all that was shown has all rows; otherwise the best try counts, in which single rows may be right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from p2pclust.lab.attacks.findings import Floats
from p2pclust.lab.attacks.sights import Sight

#: A solution explains what was shown to so many digits of it.
_EXPLAINED = 1e-9
_TRIES_IN_TURN = 3
#: Peers with more are passed over: each try takes longer, and fewer of their rows come back.
_MOST_UNKNOWNS = 40


@dataclass(frozen=True)
class SeenFuzzySums:
    """What one peer showed over the rounds, in working coordinates: T rounds, C clusters, F features.

    Several starts side by side count as so many rounds.
    """

    centers: Floats  # (T, C, F)
    weights: Floats  # (T, C)
    sums: Floats  # (T, C, F)
    fuzzifier: float
    fewest: int  # rows that the peer holds at least
    low: Floats  # (F,): the box that all rows lie in
    high: Floats

    @property
    def shown(self) -> Floats:
        """Weights and sums side by side, shape (T, C, F + 1)."""
        return np.concatenate([self.weights[:, :, np.newaxis], self.sums], axis=2)

    def explained_by(self, rows: Floats) -> Floats:
        """Return what rows, shape (n, F), would have shown, shape (T, C, F + 1)."""
        apart = ((rows[np.newaxis, :, np.newaxis] - self.centers[:, np.newaxis]) ** 2).sum(axis=3) + 1e-300
        power = apart ** (-1.0 / (self.fuzzifier - 1.0))
        memberships = (power / power.sum(axis=2, keepdims=True)) ** self.fuzzifier
        sums = np.einsum("tnc,nf->tcf", memberships, rows)
        return np.concatenate([memberships.sum(axis=1)[:, :, np.newaxis], sums], axis=2)


def fuzzy_sums_in(sights: Sequence[Sight], fuzzifier: float) -> SeenFuzzySums | None:
    """Return what sights of one peer show of fuzzy c-means; None if they are too few or of another protocol."""
    rounds = [sight for sight in sights if {"weights", "sums"} <= set(sight.shown) and "centers" in sight.state]
    each: list[tuple[Floats, Floats, Floats]] = []  # centers, weights and sums of each start
    for sight in rounds:
        weights, sums = sight.shown["weights"], sight.shown["sums"]
        if weights.ndim == 1:
            each.append((sight.state["centers"], weights, sums))
        elif len(starts := sight.state["starts"]) == len(weights):  # none of several starts has converged
            each += zip(starts, weights, sums, strict=True)
    if len(each) < 2:
        return None
    public = rounds[-1].state
    ranges = [sight.state for sight in sights if "lo" in sight.state]
    centers, weights, sums = (np.array(parts) for parts in zip(*each, strict=True))
    if ranges:
        low, high = ((ranges[-1][name] - public["origin"]) / public["scale"] for name in ("lo", "hi"))
    else:
        # Without a range, centers of many rounds show where rows lie; the box is only where the tries begin.
        low, high = centers.min(axis=(0, 1)), centers.max(axis=(0, 1))
        low, high = low - (high - low) / 2, high + (high - low) / 2
    # Memberships to the power m add up to between C**(1 - m) and 1 for a row.
    fewest = max(1, int(np.ceil(weights.sum(axis=1).max() - 1e-6)))
    return SeenFuzzySums(centers, weights, sums, fuzzifier, fewest, low, high)


def rows_solved_for(seen: SeenFuzzySums, rng: np.random.Generator, expired: Callable[[], bool]) -> Floats:
    """Return the rows that best explain what a peer showed, shape (n, F), in working coordinates; none if it has too many.

    `rng` draws where the tries begin; `expired` says, after each try, whether to give up.
    """
    from scipy.optimize import least_squares  # noqa: PLC0415 - slow to import

    shown, scale = seen.shown, max(1.0, float(np.abs(seen.shown).max()))
    features, clusters = seen.sums.shape[2], seen.weights.shape[1]
    # Each row weighs at least C**(1 - m) and at most 1 in a round, which bounds their number from both sides.
    most = int(seen.weights[0].sum() * clusters ** (seen.fuzzifier - 1.0) + 1e-6)
    numbers = range(
        seen.fewest, min(most, seen.weights.size * (features + 1) // features, _MOST_UNKNOWNS // features) + 1
    )

    def unexplained(flat: Floats) -> Floats:
        return np.asarray((seen.explained_by(flat.reshape(-1, features)) - shown).ravel())

    best, least = np.zeros((0, features)), np.inf
    while numbers:
        for n_rows in numbers:
            for _ in range(_TRIES_IN_TURN):
                start = seen.low + rng.random((n_rows, features)) * (seen.high - seen.low)
                found = least_squares(unexplained, start.ravel(), max_nfev=200, xtol=1e-15, ftol=1e-15, gtol=1e-15)
                left = float(np.abs(found.fun).max()) / scale
                if left < least:
                    best, least = np.asarray(found.x.reshape(start.shape)), left
                if least < _EXPLAINED or expired():
                    return best
    return best
