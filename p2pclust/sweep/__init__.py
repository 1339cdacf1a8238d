"""Sweeps: the same measurement over a grid of overlays, sizes, seeds and ways of collecting, one run per cell.

Names are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from p2pclust.sweep.cells import Cell, cells_of
    from p2pclust.sweep.runner import Sweeping, sweep_to
    from p2pclust.sweep.spec import Sweep, load_sweep

__all__ = ["Cell", "Sweep", "Sweeping", "cells_of", "load_sweep", "sweep_to"]

_HOMES = {
    "Cell": "cells",
    "Sweep": "spec",
    "Sweeping": "runner",
    "cells_of": "cells",
    "load_sweep": "spec",
    "sweep_to": "runner",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
