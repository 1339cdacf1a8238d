"""Damage the rows of a device, for tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

#: How rows may be damaged, and what happened.
HOWS = {
    "nan": "a value is missing in one row of ten, and in one at least",
    "scale": "every value is a thousand times too large, as after a mistaken unit",
    "shuffle": "the columns are in another order, none in its own place",
    "constant": "every row is the same one, as of a sensor that is stuck",
}
_TOO_LARGE = 1000.0


def damaged(X: NDArray[np.float64], how: str, seed: int | Sequence[int]) -> NDArray[np.float64]:
    """Return a copy of the rows (n_samples, n_features) after a damage, see `HOWS`.

    The seed decides which values are missing, the order of columns, and the row from which a sensor is stuck. Rows of a
    single column have no other order.

    >>> rows = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> damaged(rows, "shuffle", 0).tolist()
    [[2.0, 1.0], [4.0, 3.0]]
    >>> int(np.isnan(damaged(rows, "nan", 0)).sum())
    1
    """
    rng = np.random.default_rng(seed)
    n_samples, n_features = X.shape
    rows = np.array(X, dtype=np.float64)
    if X.size == 0:
        return rows
    if how == "nan":
        hit = rng.choice(n_samples, size=max(1, n_samples // 10), replace=False)
        rows[hit, rng.integers(n_features, size=len(hit))] = np.nan
    elif how == "scale":
        rows *= _TOO_LARGE
    elif how == "shuffle":
        rows = np.roll(rows, int(rng.integers(1, max(n_features, 2))), axis=1)
    elif how == "constant":
        rows[:] = rows[int(rng.integers(n_samples))]
    else:
        raise ValueError(f"unknown damage {how!r}")
    return rows
