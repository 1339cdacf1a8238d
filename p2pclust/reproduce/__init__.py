"""The papers' tables and figures, measured again: set-ups, published numbers, comparison, claims.

A *table* says what is shown, beside which published numbers, and what must hold. An *experiment* says how the numbers
come about; several tables may read one experiment, which is then run once. The frame repeats it, on all cores, with
seeds that follow from one number.
"""

from __future__ import annotations

from p2pclust.tools.lazy import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    frame="Plan measure",
    model="Claim Experiment Findings Setup Table",
    peers="Peers",
    published="published",
    registry="table table_ids",
    report="comparison",
)

__all__ = __dir__()  # noqa: PLE0605
