"""Measure the papers' tables and figures again: set-ups, published numbers, comparison, claims.

A *table* has the rows that are shown, the published numbers and the claims. An *experiment* produces the numbers;
several tables may share one experiment, which is then run once. The frame repeats it, on all cores, with seeds derived
from one number.
"""

from __future__ import annotations

from p2pclust.tools.lazy import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    frame="Plan measure table table_ids",
    model="Claim Experiment Findings Setup Table published",
    peers="Peers",
    report="comparison",
)

__all__ = __dir__()  # noqa: PLE0605
