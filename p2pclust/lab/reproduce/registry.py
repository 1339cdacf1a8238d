"""Tables and experiments by id."""

from __future__ import annotations

from p2pclust.errors import UsageError
from p2pclust.lab.reproduce.model import Experiment, Table
from p2pclust.lab.reproduce.tables import (
    fedcref_figures,
    fedcref_tables,
    federated_fcm,
    ffcm,
    fkm,
    lossless,
    vertical,
)
from p2pclust.tools.spelling import did_you_mean

_PAPERS = (federated_fcm, ffcm, lossless, vertical, fkm, fedcref_tables, fedcref_figures)
_TABLES: dict[str, Table] = {table.id: table for paper in _PAPERS for table in paper.TABLES}
_EXPERIMENTS: dict[str, Experiment] = {table.experiment.id: table.experiment for table in _TABLES.values()}


def table_ids() -> tuple[str, ...]:
    """Return all tables, in the order of the papers."""
    return tuple(_TABLES)


def table(table_id: str) -> Table:
    """Return a table by its id.

    Raises
    ------
    UsageError
        If there is none; the message suggests the nearest.

    Examples
    --------
    >>> table("000-tabel1")
    Traceback (most recent call last):
    p2pclust.errors.UsageError: unknown table '000-tabel1' (did you mean '000-table1'?)
    """
    if table_id not in _TABLES:
        hint = did_you_mean(table_id, _TABLES, f" (known: {', '.join(_TABLES)})")
        raise UsageError(f"unknown table {table_id[:60]!r}{hint}")
    return _TABLES[table_id]


def experiment(experiment_id: str) -> Experiment:
    """Return an experiment by its id, which comes from a table and is known."""
    return _EXPERIMENTS[experiment_id]
