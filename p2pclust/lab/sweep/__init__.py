"""Sweeps: the same measurement over a grid of overlays, sizes, seeds and ways of collecting, one run per cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from p2pclust.tools.lazy import lazy_names

if TYPE_CHECKING:
    from p2pclust.lab.sweep.cells import Cell, cells_of
    from p2pclust.lab.sweep.spec import Sweep, load_sweep
    from p2pclust.lab.sweep.sweeping import Sweeping, sweep_to

__all__ = ["Cell", "Sweep", "Sweeping", "cells_of", "load_sweep", "sweep_to"]

__getattr__, __dir__ = lazy_names(
    __name__, cells="Cell cells_of", spec="Sweep load_sweep", sweeping="Sweeping sweep_to"
)
