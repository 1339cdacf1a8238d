"""Run one cell in a worker, on this machine or through Dask on another; cell and result are lines of text."""

from __future__ import annotations

import json
from time import monotonic
from typing import Any

from p2pclust.errors import FleetError


def timed_work(text: str) -> tuple[str, float]:
    """Run the cell that a text describes; return its result as a line of JSON, and the seconds that it took.

    Floats are written so that reading them gives the same bits.
    """
    from p2pclust.lab.sweep.cells import Cell  # noqa: PLC0415 - loads NumPy, which reads its environment

    began = monotonic()
    return json.dumps(run_cell(Cell.decode(text)), allow_nan=False), monotonic() - began


def run_cell(cell: Any) -> dict[str, Any]:
    """Return the measure's columns of a `Cell`, found in this process with one thread of linear algebra, as everywhere."""
    from threadpoolctl import threadpool_limits  # noqa: PLC0415

    from p2pclust.lab.sweep import measures, places  # noqa: PLC0415 - the whole agent
    from p2pclust.lab.sweep.columns import MEASURES  # noqa: PLC0415

    by_name = {
        "job": measures.of_job, "recovery": measures.of_job, "facts": measures.of_facts, "mixing": measures.of_mixing,
    }  # fmt: skip
    with threadpool_limits(limits=1):
        overlay = cell.make_overlay()
        found = dict(places.measured(overlay))
        try:
            return found | by_name[cell.measure](cell, overlay)
        except FleetError:
            return found | dict.fromkeys(MEASURES[cell.measure].columns)
