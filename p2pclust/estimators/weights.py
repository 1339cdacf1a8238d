"""Rows that count several times: what `fit` does with ``sample_weight``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from p2pclust.errors import DataError
from p2pclust.estimators.base import RowsEstimator
from p2pclust.estimators.inputs import Floats, Rows, is_list_of_peers, seed_from
from p2pclust.protocols.engine.exclusions import JobOptions, refuse
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.measuring.doubts import objective_of

_MOST = 2.0**36  # divided by the number of peers; the grid of the sums holds four times as much, see `fixed_point`


@dataclass(eq=False, repr=False, kw_only=True)
class WeighingEstimator(RowsEstimator):
    """An estimator whose protocol counts a row as many times as its weight says."""

    init: str | ArrayLike = "split-merge"
    n_init: int = 1
    tol: float = 5e-3
    max_rounds: int = 30
    accelerate: bool = False
    max_weight: float = 0.0
    robust: str = ""

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Run the federated job.

        Parameters
        ----------
        X, y
            As for :meth:`FederatedClustering.fit`.
        sample_weight : list of array_like, or one array_like, optional
            One weight for each row, in the form of X: a row of weight w counts as w equal rows in all sums, and a row of
            weight 0 is only labelled. Privacy rules count rows, not weights. It takes ``init="split-merge"`` or given
            centers, and runs in this process (``fleet=None``).

        Returns
        -------
        self

        Raises
        ------
        DataError, UsageError, FleetError
            As :meth:`FederatedClustering.fit`; also a DataError for a weight that is negative or not finite, or fewer rows
            of a positive weight than clusters.
        """
        if sample_weight is None:
            return super().fit(X, y)
        init = self.init if isinstance(self.init, str) and self.init != "split-merge" else ""
        refuse(JobOptions(weighted=True, in_process=self.fleet is None, init=init))
        seed = seed_from(self.random_state)
        arrays, parts = self._held(X, y, seed)
        weights = _weights_of_peers(sample_weight, arrays, parts, of_peers=is_list_of_peers(X))
        factor = _factor(weights)
        # A row of weight 0 is absent for every rule that counts rows as well.
        counted = self._with_threads(
            [Local(rows[own > 0], weights=own[own > 0] * factor) for rows, own in zip(arrays, weights, strict=True)]
        )
        job = self._job(seed, arrays[0].shape[1])
        self._check([local.X for local in counted])
        state = self._run_job(job, counted)
        self._learn(job, state, [Local(rows) for rows in arrays], parts)
        found = objective_of(state.arrays)
        self._learn_objective(None if found is None else found / factor)
        self._warn_of_no_end(job)
        return self


def _weights_of_peers(
    sample_weight: Any, arrays: list[Floats], parts: list[Rows] | None, *, of_peers: bool
) -> list[Floats]:
    """Return one checked weight for each row of each peer."""
    if not of_peers:
        assert parts is not None, "one array is dealt out"
        together = _checked(sample_weight, sum(len(rows) for rows in arrays), "")
        return [together[part] for part in parts]
    if not isinstance(sample_weight, list | tuple) or len(sample_weight) != len(arrays):
        raise DataError(f"sample_weight: expected a list of {len(arrays)} arrays, one per peer, as X is one")
    return [
        _checked(own, len(rows), f"peer {peer}, ")
        for peer, (own, rows) in enumerate(zip(sample_weight, arrays, strict=True))
    ]


def _checked(given: Any, n_rows: int, peer: str) -> Floats:
    where = f"sample_weight{': ' * bool(peer)}{peer.removesuffix(', ')}"
    try:
        weights: Floats = np.array(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{where}: expected one number for each row") from None
    if weights.shape != (n_rows,):
        raise DataError(f"{where}: has shape {weights.shape}, but there are {n_rows} rows: expected one weight each")
    bad = ~((weights >= 0) & np.isfinite(weights))
    if bad.any():
        row = int(bad.argmax())
        raise DataError(f"sample_weight: {peer}row {row} is {weights[row]}: expected a finite number, 0 or more")
    return weights


def _factor(weights: list[Floats]) -> float:
    """Return the power of two with which no positive weight is below 1: the centers stay, and no cell is thought empty.

    Examples
    --------
    >>> _factor([np.array([0.3, 5.0])]), _factor([np.array([0.0, 1.0])])
    (4.0, 1.0)
    """
    together = np.concatenate(weights)
    positive = together[together > 0]
    if not positive.size:
        raise DataError("sample_weight: every weight is zero: expected at least one row that counts")
    least, most = float(positive.min()), _MOST / len(weights)
    with np.errstate(over="ignore"):
        factor = 1.0 if least >= 1 else float(np.exp2(-np.floor(np.log2(least))))
        if not (total := float(positive.sum())) * factor <= most:
            raise DataError(
                f"sample_weight: the weights add up to {total:.3g}, and the smallest one is {least:.3g}: expected no more "
                f"than {most:.3g} times the smallest one, or in all"
            )
    return factor
