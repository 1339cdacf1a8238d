"""Tables and experiments by id; their modules are imported on first use."""

from __future__ import annotations

import importlib

from p2pclust.errors import UsageError
from p2pclust.reproduce.model import Experiment, Table
from p2pclust.tools.spelling import did_you_mean

__all__ = ["experiment", "table", "table_ids"]

_TABLES = {
    "000-table1": ("federated_fcm", "FederatedFcmTable1"),
    "000-figure1": ("federated_fcm", "FederatedFcmFigure1"),
    "001-table2": ("ffcm", "FfcmTable2"),
    "001-table3": ("ffcm", "FfcmTable3"),
    "001-table4": ("ffcm", "FfcmTable4"),
    "001-table5": ("ffcm", "FfcmTable5"),
    "001-figure4": ("ffcm", "FfcmFigure4"),
    "002-table2": ("lossless", "LosslessTable2"),
    "002-table3": ("lossless", "LosslessTable3"),
    "002-table4": ("lossless", "LosslessTable4"),
    "002-table5": ("lossless", "LosslessTable5"),
    "002-figure6": ("vertical", "VerticalFigure6"),
    "003-figure1": ("fkm", "FkmFigure1"),
    "003-figure3": ("fkm", "FkmFigure3"),
    "003-figure4": ("fkm", "FkmFigure4"),
    "003-figure5": ("fkm", "FkmFigure5"),
    "003-figure6": ("fkm", "FkmFigure6"),
    "004-table3": ("fedcref_tables", "FedCRefTable3"),
    "004-table4": ("fedcref_tables", "FedCRefTable4"),
    "004-table5": ("fedcref_tables", "FedCRefTable5"),
    "004-table6": ("fedcref_tables", "FedCRefTable6"),
    "004-table7": ("fedcref_tables", "FedCRefTable7"),
    "004-table8": ("fedcref_tables", "FedCRefTable8"),
    "004-table9": ("fedcref_tables", "FedCRefTable9"),
    "004-table10": ("fedcref_tables", "FedCRefTable10"),
    "004-table11": ("fedcref_tables", "FedCRefTable11"),
    "004-table12": ("fedcref_tables", "FedCRefTable12"),
    "004-figure7": ("fedcref_figures", "FedCRefFigure7"),
    "004-figure8": ("fedcref_figures", "FedCRefFigure8"),
    "004-figure9": ("fedcref_figures", "FedCRefFigure9"),
    "004-figure10": ("fedcref_figures", "FedCRefFigure10"),
}

_EXPERIMENTS = {
    "federated-fcm": ("federated_fcm", "FederatedFcm"),
    "federated-fcm-curves": ("federated_fcm", "FederatedFcmCurves"),
    "ffcm-cases": ("ffcm", "Cases"),
    "ffcm-g2": ("ffcm", "G2Sets"),
    "lossless": ("lossless", "Lossless"),
    "lossless-dirichlet": ("lossless", "LosslessDirichlet"),
    "lossless-seeded": ("lossless", "LosslessSeeded"),
    "vertical": ("vertical", "Vertical"),
    "fedcref": ("fedcref", "FedCRefExperiment"),
    "fkm-grid": ("fkm", "Grid"),
    "fkm-uneven": ("fkm", "Uneven"),
    "fkm-writers": ("fkm", "Writers"),
}


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
    made = _found(*_TABLES[table_id])()
    assert isinstance(made, Table)
    return made


def experiment(experiment_id: str) -> Experiment:
    """Return an experiment by its id, which comes from a table and is known."""
    made = _found(*_EXPERIMENTS[experiment_id])()
    assert isinstance(made, Experiment)
    return made


def _found(module: str, name: str) -> type[object]:
    found: type[object] = getattr(importlib.import_module(f"{__package__}.tables.{module}"), name)
    return found
