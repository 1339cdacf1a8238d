"""The data of jobs over peers with different columns of the same rows: checks, and each peer's part of first centers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from p2pclust.data import DataSet
from p2pclust.errors import DataError
from p2pclust.scenario.file.schema import Scenario

__all__ = ["check_rows", "given_centers"]

Floats = NDArray[np.float64]


def check_rows(shares: Mapping[str, DataSet]) -> None:
    """Refuse files that cannot hold the same rows; the peers compare the rows' ids themselves.

    Raises
    ------
    DataError
        If the numbers of rows differ, or different rows were left out.
    """
    (first_name, first), *others = shares.items()
    for name, share in others:
        if share.n_rows != first.n_rows:
            raise DataError(
                f"{name}: {share.name}: {share.n_rows} rows, but {first.name} of {first_name} has {first.n_rows}: "
                "peers that hold columns need the same rows"
            )
        apart = share.row_numbers != first.row_numbers
        if (share.dropped or first.dropped) and apart.any():
            one, other = (int(rows.row_numbers[apart.argmax()]) for rows in (first, share))
            missing, where = (one, f"{name}: {share.name}") if one < other else (other, f"{first_name}: {first.name}")
            raise DataError(
                f"{where}: row {missing} of its rows (from 0) was left out for a missing value, and the other devices have "
                "it: peers that hold columns need the same rows: leave it out of all files"
            )


def given_centers(scenario: Scenario, shares: Mapping[str, DataSet]) -> dict[str, Floats]:
    """Return each peer's columns of the scenario's first centers; empty if it has none."""
    given = [job.init for job in scenario.jobs if job.by_columns and isinstance(job.init, tuple)]
    if not given:
        return {}
    whole, start, parts = np.array(given[0], dtype=np.float64), 0, {}
    for name, share in shares.items():
        parts[name] = np.ascontiguousarray(whole[:, start : start + share.n_features])
        start += share.n_features
    return parts
