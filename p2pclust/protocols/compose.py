"""From what a person asks for to the stages of a job: the one place that every door uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from p2pclust.errors import UsageError
from p2pclust.protocols import checks
from p2pclust.protocols.job import Job, Stage
from p2pclust.protocols.registry import CLUSTERING, protocol_class
from p2pclust.protocols.streams import MAX_SEED

__all__ = ["INIT_NAMES", "SCALINGS", "cluster_job"]

SCALINGS = ("none", "minmax", "zscore")
INIT_NAMES = ("k-means++", "random", "uniform")


def cluster_job(
    protocol: str,
    *,
    n_clusters: int,
    scaling: str = "none",
    bounds: tuple[Sequence[float], Sequence[float]] | None = None,
    init: str | ArrayLike = "k-means++",
    tol: float = 5e-3,
    max_rounds: int = 30,
    participation: float = 1.0,
    seed: int = 0,
    **parameters: Any,
) -> Job:
    """Return a job: range, scaling, first centers, clustering.

    Parameters
    ----------
    protocol : {"llf-cm", "llf-fcm"}
    n_clusters : int
        At least 1.
    scaling : {"none", "minmax", "zscore"}
        By the federation; see :mod:`p2pclust.protocols.scaling`.
    bounds : pair of sequences (lo, hi), optional
        Declared bounds of the features; they spare the round that finds the ranges.
    init : {"k-means++", "random", "uniform"} or array_like of shape (n_clusters, F)
        First centers; an array is in the data's own units.
    tol : float
        Stop when the centers move by less (Frobenius norm, in working coordinates); 0 runs exactly ``max_rounds``.
    max_rounds : int
        Of the clustering stage; at least 1.
    participation : float
        The papers' gamma, in (0, 1]: the share of peers drawn for each clustering round.
    seed : int
        0 to 2**63 - 1.
    **parameters
        The protocol's own: ``suppress_singletons`` (llf-cm), ``fuzzifier``, ``privacy_gate`` (llf-fcm).

    Raises
    ------
    UsageError
        For anything unknown or out of range, in one line.

    Examples
    --------
    >>> job = cluster_job("llf-fcm", n_clusters=3, scaling="minmax", fuzzifier=1.5, seed=7)
    >>> [stage.protocol for stage in job.stages]
    ['range', 'minmax', 'seeding', 'llf-fcm']
    """
    protocol_class(protocol, among=CLUSTERING)
    n_clusters = checks.whole("n_clusters", n_clusters, least=1, most=2**20)
    checks.one_of("scaling", scaling, SCALINGS)
    ranges: dict[str, Any] = {"rows_needed": n_clusters}
    if bounds is not None:
        if not isinstance(bounds, list | tuple) or len(bounds) != 2:
            raise UsageError("bounds: expected a pair (lo, hi) of lists with one number per feature")
        ranges["lo"], ranges["hi"] = (_plain("bounds", bound, ndim=1) for bound in bounds)
    seeding: dict[str, Any] = {"n_clusters": n_clusters}
    if isinstance(init, str):
        seeding["init"] = checks.one_of("init", init, INIT_NAMES)
    else:
        seeding["init"], seeding["centers"] = "given", _plain("init", init, ndim=2)
        _agree(seeding["centers"], n_clusters, ranges)
    parameters = {"n_clusters": n_clusters, "tol": tol, "max_rounds": max_rounds, **parameters}
    stages = (
        Stage("range", ranges),
        Stage(scaling),
        Stage("seeding", seeding),
        Stage(protocol, {name: _scalar(value) for name, value in parameters.items()}),
    )
    return Job(stages, checks.whole("seed", seed, least=0, most=MAX_SEED), _scalar(participation))


def _plain(where: str, value: ArrayLike, *, ndim: int) -> list[Any]:
    """Return an array as nested lists, which a job document can carry."""
    try:
        array: NDArray[np.float64] = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise UsageError(f"{where}: expected numbers in rows of equal length") from None
    if array.ndim != ndim or array.size == 0:
        shape = "a list of numbers" if ndim == 1 else "an array of shape (n_clusters, features)"
        raise UsageError(f"{where}: expected {shape}, got shape {array.shape}")
    plain: list[Any] = array.tolist()
    return plain


def _agree(centers: list[list[float]], n_clusters: int, ranges: dict[str, Any]) -> None:
    if len(centers) != n_clusters:
        raise UsageError(f"init: {len(centers)} centers were given for n_clusters = {n_clusters}")
    if "lo" in ranges and len(ranges["lo"]) != len(centers[0]):
        raise UsageError(f"init: {len(centers[0])} columns were given, but bounds for {len(ranges['lo'])} features")


def _scalar(value: Any) -> Any:
    """Return a NumPy scalar as Python's own, which a job document can carry."""
    return value.item() if isinstance(value, np.generic) else value
