"""c-means of rows with missing cells as the papers write it: plain NumPy, all rows and centers at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def partial_distances(X: Floats, centers: Floats) -> Floats:
    """Return the squared distances (n, C) over the cells that are there."""
    return np.nansum((X[:, np.newaxis] - centers) ** 2, axis=2)


def raised(X: Floats, centers: Floats, fuzzifier: float | None) -> Floats:
    """Return the memberships to the power of the fuzzifier (n, C); without one, 1 for the nearest center."""
    squared = partial_distances(X, centers)
    if fuzzifier is None:
        return np.eye(len(centers))[squared.argmin(axis=1)]
    with np.errstate(all="ignore"):
        ratios = (squared.min(axis=1, keepdims=True) / squared) ** (1 / (fuzzifier - 1))
    on_center = squared.min(axis=1) == 0
    ratios[on_center] = squared[on_center] == 0
    return (ratios / ratios.sum(axis=1, keepdims=True)) ** fuzzifier


def sums(X: Floats, centers: Floats, fuzzifier: float | None) -> tuple[Floats, Floats]:
    """Return weights and sums (C, F) over the rows that have the column."""
    u = raised(X, centers, fuzzifier)
    there = ~np.isnan(X)
    return u.T @ there, u.T @ np.where(there, X, 0.0)


def step(X: Floats, centers: Floats, fuzzifier: float | None = None) -> Floats:
    """Return the next centers; one without weight in a column keeps its value there."""
    weights, totals = sums(X, centers, fuzzifier)
    return np.where(weights > 0, totals / np.where(weights > 0, weights, 1.0), centers)


def objective(X: Floats, centers: Floats, fuzzifier: float | None = None) -> float:
    return float((raised(X, centers, fuzzifier) * partial_distances(X, centers)).sum())


def with_gaps(rng: np.random.Generator, X: Floats, share: float) -> Floats:
    """Return rows in which this share of the cells is missing at random; every row keeps a number."""
    gone = rng.random(X.shape) < share
    gone[np.arange(len(X)), rng.integers(X.shape[1], size=len(X))] = False
    return np.where(gone, np.nan, X)
