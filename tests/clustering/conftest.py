"""Deliberately dumb versions: direct differences, one row at a time, in the order of the papers' pseudocode."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import numpy.typing as npt
import pytest

Floats = npt.NDArray[np.float64]


def _memberships(X: Floats, centers: Floats, fuzzifier: float) -> Floats:
    u = np.zeros((len(X), len(centers)))
    for j, x in enumerate(X):
        squared = np.array([((x - v) ** 2).sum() for v in centers])
        on = squared == 0.0
        if on.any():
            u[j] = on / on.sum()
            continue
        # In logarithms, so that even this version survives a fuzzifier near 1.
        logs = -np.log(squared) / (fuzzifier - 1.0)
        powers = np.exp(logs - logs.max())
        u[j] = powers / powers.sum()
    return u


def _fuzzy_sums(X: Floats, centers: Floats, fuzzifier: float) -> tuple[Floats, Floats]:
    raised = _memberships(X, centers, fuzzifier) ** fuzzifier
    return raised.sum(axis=0), raised.T @ X


def _fuzzy_objective(X: Floats, centers: Floats, fuzzifier: float) -> float:
    raised = _memberships(X, centers, fuzzifier) ** fuzzifier
    return float(sum(raised[j, c] * ((X[j] - v) ** 2).sum() for j in range(len(X)) for c, v in enumerate(centers)))


def _nearest(X: Floats, centers: Floats) -> list[int]:
    return [int(np.argmin([((x - v) ** 2).sum() for v in centers])) for x in X]


@pytest.fixture(scope="session")
def dumb() -> SimpleNamespace:
    """The dumb versions by name."""
    return SimpleNamespace(
        memberships=_memberships, fuzzy_sums=_fuzzy_sums, fuzzy_objective=_fuzzy_objective, nearest=_nearest
    )


@pytest.fixture(scope="session")
def mixture() -> Callable[..., tuple[Floats, Floats]]:
    """Make rows of a mixture of clouds on a coarse dyadic grid, so that adding an offset loses nothing, and centers."""

    def make(n: int = 300, n_features: int = 4, n_clusters: int = 5, seed: int = 0) -> tuple[Floats, Floats]:
        rng = np.random.default_rng(seed)
        middles = rng.normal(scale=4.0, size=(n_clusters, n_features))
        X = middles[rng.integers(n_clusters, size=n)] + rng.normal(size=(n, n_features))
        centers = middles + rng.normal(scale=0.5, size=middles.shape)
        return np.round(X * 2**16) / 2**16, np.round(centers * 2**16) / 2**16

    return make
