"""The errors of a peer's rows under models that it has tried: so that no model is evaluated twice on the same rows.

Errors are kept by the digest of the model, in memory only, and belong to one job and one peer's rows. A peer that
restarts computes them again, with the same bits: always of all rows at once, because where a row stands may change the
last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

MOST_BYTES: Final = 64 * 2**20  # how much a peer remembers: a million rows under 16 models, or 10,000 under 1,600

Floats = NDArray[np.float64]


class KnownErrors:
    """The errors of one peer's rows under the models that were asked for last, at most :data:`MOST_BYTES` of them.

    >>> def errors(models):
    ...     print("computing", models)
    ...     return np.array([[len(model) for model in models]], dtype=np.float64)
    >>> known = KnownErrors()
    >>> known.of("a job", [b"x", b"yy"], errors).tolist(), known.of("a job", [b"yy", b"zzz"], errors).tolist()
    computing [b'x', b'yy']
    computing [b'zzz']
    ([[1.0, 2.0]], [[2.0, 3.0]])
    """

    def __init__(self) -> None:
        self._job: Hashable = None
        self._columns: dict[bytes, NDArray[np.float32]] = {}  # by model; the one that was asked for last comes last

    @staticmethod
    def holds(n_rows: int, n_models: int) -> bool:
        """Return whether the errors of so many rows under so many models can all be kept."""
        return n_rows * n_models * np.dtype(np.float32).itemsize <= MOST_BYTES

    def of(self, job: Hashable, models: Sequence[bytes], compute: Callable[[list[bytes]], Floats]) -> Floats:
        """Return the errors of all rows under these models, shape (n, M).

        - `job`: all that errors depend on, except rows and models. What is known of another job is forgotten.
        - `models`: digests; the same may come twice.
        - `compute`: returns the errors (n, m) under the models that are not known. They are float32 numbers. A column
          with one that is not finite is not kept: there may be a model later on.
        """
        if job != self._job:
            self.forget()
            self._job = job
        columns, wanted = dict(self._columns), list(dict.fromkeys(models))
        missing = [model for model in wanted if model not in columns]
        if missing:
            columns.update(zip(missing, compute(missing).T.astype(np.float32), strict=True))
        # What is finite and fits is kept, what was wanted last before all else.
        kept, left = [], MOST_BYTES
        for model in reversed([*(model for model in columns if model not in set(wanted)), *wanted]):
            if columns[model].nbytes <= left and np.isfinite(columns[model]).all():
                kept.append(model)
                left -= columns[model].nbytes
        self._columns = {model: columns[model] for model in reversed(kept)}
        return np.stack([columns[model] for model in models], axis=1).astype(np.float64) if models else compute([])

    def forget(self) -> None:
        """Forget everything."""
        self._job, self._columns = None, {}
