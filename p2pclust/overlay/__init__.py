"""Overlays: which peers are linked. Make them, read them from files, and find routes over them.

Names are imported when they are first used. At module level there is only NumPy: NetworkX and SciPy are imported by the
functions that need them, so a running peer has neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from p2pclust.tools.lazy import lazy_names

if TYPE_CHECKING:
    from p2pclust.overlay.files import read_overlay, write_overlay
    from p2pclust.overlay.kinds import KINDS
    from p2pclust.overlay.mobility import Walk, make_trace, walk
    from p2pclust.overlay.overlay import Overlay, make_overlay
    from p2pclust.overlay.traces import LinkChange, read_trace, write_trace

__all__ = [
    "KINDS", "LinkChange", "Overlay", "Walk", "make_overlay", "make_trace", "read_overlay", "read_trace", "walk",
    "write_overlay", "write_trace",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(
    __name__,
    files="read_overlay write_overlay",
    kinds="KINDS",
    mobility="Walk make_trace walk",
    overlay="Overlay make_overlay",
    traces="LinkChange read_trace write_trace",
)
