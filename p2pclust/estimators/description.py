"""``p2pclust.describe``: the description of the table that the parts of several peers make together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from numpy.typing import ArrayLike

from p2pclust.errors import DataError
from p2pclust.estimators import categories, inputs
from p2pclust.estimators.running import has_links, run_job
from p2pclust.jobs.secured import decided, secured_fields
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.exclusions import refuse
from p2pclust.protocols.engine.job import Job
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.measuring.description import Description


def describe(
    X: Sequence[ArrayLike] | Mapping[str, ArrayLike], *, min_cell: int = 5, quantiles: Sequence[float] = (), bins: int = 10,
    levels: Sequence[int] = (), fleet: Any = None, secure: bool | Mapping[str, Any] | None = None,
) -> Description:  # fmt: skip
    """Describe the table of all peers: counts, means, deviations, quantiles, histograms, correlations.

    Parameters
    ----------
    X : sequence or dict of array_like of shape (n_m, F)
        One array or table per peer; NaN is a missing value. Columns of text, categories or flags are counted by value.
    min_cell : int
        What fewer rows are behind is hidden or merged; 0 shows everything.
    quantiles : sequence of float
        Further ones besides the quartiles, from 0 to 1; no more than rows / min_cell in all.
    bins : int
        The cells of each histogram.
    levels : sequence of int
        For each column the number of values of a category, whose values are 0, 1, 2, ...; 0 for numbers. Default: all are
        numbers.
    fleet : None, str or backend
        None runs in this process; the name of a backend starts a fleet; the numbers are the same.
    secure : bool or mapping, optional
        As of :class:`~p2pclust.LosslessCMeans`.

    Raises
    ------
    DataError
        For an empty peer, an infinite value, or peers with different columns.
    UsageError
        For a parameter out of range.
    FleetError
        If the job failed, for example because there are too few rows.

    Examples
    --------
    >>> import numpy as np
    >>> parts = [np.arange(40.0).reshape(-1, 1), np.arange(40.0, 100.0).reshape(-1, 1)]
    >>> column = describe(parts).columns[0]
    >>> column.rows, column.mean, column.smallest, column.largest, column.quantiles[1]
    (100, 49.5, 5.0, 94.0, FoundQuantile(share=0.5, value=49.0))
    """
    X, _ = inputs.named_peers(X)
    if not isinstance(X, list | tuple) or not X:
        raise DataError("X: expected a list with one array per peer")
    schema = None if levels else categories.schema_of(X)
    arrays = inputs.matrices(X, None, keeps_gaps=True, numbers=partial(categories.encoded, schema=schema))
    named = next((names for rows in X if (names := inputs.column_names(rows))), [])
    refuse({"in_process": not has_links(fleet), "secure": bool(secure) or isinstance(secure, Mapping)})
    asked = secure if has_links(fleet) else False
    options: dict[str, Any] = {"min_cell": min_cell, "quantiles": list(quantiles), "bins": bins}
    options |= {"levels": list(levels)} if levels else {}

    def make(secured: Mapping[str, Any]) -> Job:
        return cluster_job("describe", secure=bool(secured), schema=schema, **options).here()

    job = decided("describe", asked, len(arrays), make)
    state, _ = run_job(job, [Local(rows) for rows in arrays], fleet, secured_fields("describe", asked, len(arrays)))
    return Description.of(job, state, named)
