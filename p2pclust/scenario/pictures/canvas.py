"""Empty figures, and figures as images for a page."""

from __future__ import annotations

import base64
import importlib.util
import io
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "INSTALL",
    "can_draw",
    "data_address",
    "image_bytes",
    "new_figure",
    "width_in_pixels",
]

#: Said where a page has no pictures.
INSTALL: Final = "no pictures, because matplotlib is not installed: pip install 'p2pclust[plots]'"


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure, in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - in the extra `plots`
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def image_bytes(figure: Figure, kind: str = "svg") -> bytes:
    """Return a figure as an image; the same figure gives the same bytes.

    Parameters
    ----------
    figure : Figure
    kind : {"svg", "png"}
    """
    from matplotlib import rc_context  # noqa: PLC0415 - in the extra `plots`

    buffer = io.BytesIO()
    # Without a salt the names in an SVG are random; without `metadata` images contain the date or a version.
    with rc_context({"svg.hashsalt": "p2pclust"}):
        figure.savefig(buffer, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else {"Software": None})
    return buffer.getvalue()


def data_address(figure: Figure, kind: str = "svg") -> str:
    """Return a figure as a ``data:`` address for the ``src`` of an image; see `image_bytes`."""
    mime = {"svg": "svg+xml", "png": "png"}[kind]
    return f"data:image/{mime};base64,{base64.b64encode(image_bytes(figure, kind)).decode('ascii')}"


def width_in_pixels(figure: Figure) -> int:
    """Return the width of a figure on a page at which its letters are about as large as the page's own."""
    return round(96 * float(figure.get_figwidth()))
