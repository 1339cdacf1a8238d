"""One peer's data, as the protocols see it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from p2pclust.clustering import Points
from p2pclust.protocols.arrays import State

__all__ = ["LARGEST", "Local", "first_bad_value"]

LARGEST = 2.0**400
"""Values beyond this (2.6e120) are refused: their squares and the sums of these must be finite."""


class Local:
    """The rows that one peer holds.

    Parameters
    ----------
    X : array_like of shape (n, F)
        Raw values. They may be unusable (no rows, NaN): the peer then abstains by name, and nobody else is stopped.
    ids : array_like of shape (n,), optional
        What each row is called, as whole numbers or text. Only peers that hold different columns of the same rows
        compare them; by default rows are called by their numbers.
    centers : array_like of shape (C, F), optional
        This peer's columns of given first centers, in the units of `X`, where nobody shall hold them whole.

    Attributes
    ----------
    X : ndarray of float64, shape (n, F)
    n_samples, n_features : int
    ids, centers : ndarray or None
    problem : str
        Why these rows cannot be used, with row and column, or an empty string.

    Examples
    --------
    >>> Local([[0.0, 1.0], [2.0, float("nan")]]).problem
    'row 1, column 1 is nan'
    """

    def __init__(self, X: ArrayLike, *, ids: ArrayLike | None = None, centers: ArrayLike | None = None) -> None:
        self.X: NDArray[np.float64] = np.ascontiguousarray(X, dtype=np.float64)
        if self.X.ndim != 2:
            raise ValueError(f"rows and columns expected, got {self.X.ndim} dimensions")
        self.n_samples, self.n_features = self.X.shape
        self.problem = "no data" if self.X.size == 0 else first_bad_value(self.X)
        self.ids = None if ids is None else np.asarray(ids)
        self.centers = None if centers is None else np.asarray(centers, dtype=np.float64)
        self._points: tuple[bytes, Points] | None = None
        self._once: dict[Hashable, Any] = {}
        self._bounds: tuple[bytes, str] | None = None

    def points(self, state: State) -> Points:
        """Return the rows in working coordinates, ``(X - origin) / scale``.

        Prepared once: the last origin and scale are remembered.
        """
        origin, scale = state["origin"], state["scale"]
        key = origin.tobytes() + scale.tobytes()
        if self._points is None or self._points[0] != key:
            self._points = (key, Points((self.X - origin) / scale, shift=np.zeros(self.n_features)))
        return self._points[1]

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return what a protocol prepared from these rows, and prepare it now if that was not done yet."""
        if key not in self._once:
            self._once[key] = make()
        return self._once[key]

    def refusal(self, state: State) -> str:
        """Say why these rows cannot take part in a job with this state, or return an empty string."""
        if self.problem:
            return self.problem
        for name in ("lo", "origin"):
            if name in state and state[name].shape != (self.n_features,):
                return f"has {self.n_features} columns where the fleet has {state[name].size}"
        if "declared" in state and state["declared"].all():
            return self._outside(state["lo"], state["hi"])
        return ""

    def _outside(self, lo: NDArray[np.float64], hi: NDArray[np.float64]) -> str:
        key = lo.tobytes() + hi.tobytes()
        if self._bounds is None or self._bounds[0] != key:
            outside = (lo > self.X) | (hi < self.X)
            reason = ""
            if outside.any():
                row, column = (int(i) for i in np.argwhere(outside)[0])
                # Never the value: the reason goes to the whole roster.
                reason = (
                    f"row {row}, column {column} is outside the declared bounds [{lo[column]:.6g}, {hi[column]:.6g}]"
                )
            self._bounds = (key, reason)
        return self._bounds[1]


def first_bad_value(X: NDArray[np.float64]) -> str:
    """Name the first value that cannot be clustered, by row and column, or return an empty string."""
    bad = ~(np.abs(X) <= LARGEST)
    if not bad.any():
        return ""
    row, column = (int(i) for i in np.argwhere(bad)[0])
    value = float(X[row, column])
    # A finite value is not told: what a peer says of its rows goes to the whole roster.
    return f"row {row}, column {column} is {'too large' if np.isfinite(value) else format(value)}"
