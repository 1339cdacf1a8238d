"""Empty figures, the entries of their legends, and figures as images for a page."""

from __future__ import annotations

import base64
import importlib.util
import io
from typing import TYPE_CHECKING, Any, Final

from p2pclust.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

#: Said where a page has no pictures.
INSTALL: Final = "no pictures, because matplotlib is not installed: pip install 'p2pclust[plots]'"
#: Said where a plot was asked for.
NO_MATPLOTLIB: Final = "a plot needs matplotlib, which is not installed: pip install 'p2pclust[plots]'"


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure, in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def shown_axes(width: float, height: float) -> Axes:
    """Return the axes of a new figure of pyplot, which notebooks show; the size is in inches.

    Raises
    ------
    UsageError
        If matplotlib is not installed.
    """
    if not can_draw():
        raise UsageError(NO_MATPLOTLIB)
    from matplotlib import pyplot

    axes: Axes = pyplot.subplots(figsize=(width, height), layout="constrained")[1]
    return axes


def line_key(label: str, **how: Any) -> Line2D:
    """Return the entry of a legend that shows a line."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **how)


def dot_key(label: str, colour: str, marker: str = "o", size: float = 9, **how: Any) -> Line2D:
    """Return the entry of a legend that shows a marker."""
    return line_key(label, linestyle="", marker=marker, markersize=size, color=colour, **how)


def area_key(label: str, colour: str, **how: Any) -> Patch:
    """Return the entry of a legend that shows an area."""
    from matplotlib.patches import Patch

    return Patch(facecolor=colour, label=label, **how)


def image_bytes(figure: Figure, kind: str = "svg") -> bytes:
    """Return a figure as an image; the same figure gives the same bytes.

    Parameters
    ----------
    figure : Figure
    kind : {"svg", "png"}
    """
    from matplotlib import rc_context

    buffer = io.BytesIO()
    # Without a salt the names in an SVG are random; without `metadata` images contain the date or a version.
    with rc_context({"svg.hashsalt": "p2pclust"}):
        figure.savefig(buffer, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else {"Software": None})
    return buffer.getvalue()


def data_address(figure: Figure) -> str:
    """Return a figure as a PNG image in a ``data:`` address, for the ``src`` of an image."""
    return f"data:image/png;base64,{base64.b64encode(image_bytes(figure, 'png')).decode('ascii')}"


def width_in_pixels(figure: Figure) -> int:
    """Return the width of a figure on a page at which its letters are about as large as the page's own."""
    return round(96 * float(figure.get_figwidth()))
