"""The papers' tables and figures, measured again: set-ups, published numbers, comparison, claims.

A *table* says what is shown, beside which published numbers, and what must hold. An *experiment* says how the numbers
come about; several tables may read one experiment, which is then run once. The frame repeats it, on all cores, with
seeds that follow from one number.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "Claim": "model",
    "Experiment": "model",
    "Findings": "model",
    "Peers": "peers",
    "Plan": "frame",
    "Setup": "model",
    "Table": "model",
    "comparison": "report",
    "measure": "frame",
    "published": "published",
    "table": "registry",
    "table_ids": "registry",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
