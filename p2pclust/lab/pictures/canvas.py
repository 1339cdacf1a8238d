"""Figures of Matplotlib: empty ones, the axes that drawings are drawn on, and files of images."""

from __future__ import annotations

import base64
import importlib.util
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from p2pclust.errors import DataError, UsageError
from p2pclust.lab.pictures.drawing import Axis, Drawing, DrawnMark
from p2pclust.lab.pictures.palette import INK, LINK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.text import Text

#: Text stays text, so that it can be searched and read aloud. Without a salt the names in an SVG are random.
_SVG: Final[dict[Any, Any]] = {"svg.fonttype": "none", "svg.hashsalt": "p2pclust"}
#: Without it images contain the date or a version.
_UNDATED: Final = {"svg": {"Date": None}, "png": {"Software": None}, "pdf": {"CreationDate": None}}

#: Said where a picture was asked for.
NO_MATPLOTLIB: Final = "a picture needs matplotlib, which is not installed: pip install 'p2pclust[plots]'"
#: Said where a page has no pictures.
INSTALL: Final = "no pictures, because matplotlib is not installed: pip install 'p2pclust[plots]'"


def can_draw() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def require() -> None:
    """Raise UsageError if matplotlib is not installed."""
    if not can_draw():
        raise UsageError(NO_MATPLOTLIB)


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure, in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def shown_axes(width: float, height: float) -> Axes:
    """Return the axes of a new figure of pyplot, which notebooks show; the size is in inches."""
    require()
    from matplotlib import pyplot

    axes: Axes = pyplot.subplots(figsize=(width, height), layout="constrained")[1]
    return axes


def whole_numbers(axes: Axes, axis: str = "x", most: int | Literal["auto"] = "auto", **how: Any) -> None:
    """Put at most this number of ticks, at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    getattr(axes, f"{axis}axis").set_major_locator(MaxNLocator(integer=True, nbins=most, **how))


def logarithmic(axes: Axes, axis: str) -> None:
    """Make an axis logarithmic; where few powers of ten are visible, halves and fifths get numbers too."""
    from matplotlib.ticker import LogFormatter, NullFormatter

    getattr(axes, f"set_{axis}scale")("log")
    shown = getattr(axes, f"{axis}axis")
    low, high = shown.get_view_interval()
    narrow = high / max(low, 1e-300) < 300
    shown.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(4, 1)) if narrow else NullFormatter())
    shown.set_tick_params(which="minor", labelsize=7)


def write(axes: Axes, x: float, y: float, text: str, letters: float = 8, colour: str = INK, **how: Any) -> Text:
    """Write a text of this size in points, by default around a place."""
    return axes.text(x, y, text, **{"ha": "center", "va": "center", "fontsize": letters, "color": colour, **how})


def dot_key(label: str, colour: str, marker: str = "o", size: float = 9, **how: Any) -> Line2D:
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, linestyle="", marker=marker, markersize=size, color=colour, **how)


def image_bytes(figure: Figure, kind: str = "svg") -> bytes:
    """Return a figure as an image, such as "svg" or "png"; the same figure gives the same bytes."""
    from matplotlib import rc_context

    buffer = io.BytesIO()
    with rc_context(_SVG):
        figure.savefig(buffer, format=kind, dpi=150, metadata=_UNDATED.get(kind))
    return buffer.getvalue()


def save(figure: Figure, path: Path) -> None:
    """Write a figure, in a new folder if there is none; the suffix decides its format. Raise DataError if that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image_bytes(figure, path.suffix[1:].lower()))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be written ({error})") from error


def data_address(figure: Figure, kind: str = "png") -> str:
    """Return a figure as an image in a ``data:`` address, for the ``src`` of an image."""
    name = "svg+xml" if kind == "svg" else kind
    return f"data:image/{name};base64,{base64.b64encode(image_bytes(figure, kind)).decode('ascii')}"


def width_in_pixels(figure: Figure) -> int:
    """Return the width of a figure on a page at which its letters are about as large as the page's own."""
    return round(96 * float(figure.get_figwidth()))


_POINT: Final = 0.75  # a pixel of a drawing, in points


def draw_on(axes: Axes, drawing: Drawing) -> Axes:
    """Draw the lines, dots and texts of a drawing on axes of any size; return them."""
    axes.set_title(drawing.title, fontsize=10, color=INK, loc="left")
    both: tuple[tuple[Literal["x", "y"], Axis], ...] = (("x", drawing.x), ("y", drawing.y))
    for name, axis in both:
        getattr(axes, f"set_{name}label")(axis.label, fontsize=9, color=INK)
        if axis.log:
            getattr(axes, f"set_{name}scale")("log")
        if axis.whole:
            whole_numbers(axes, name, min_n_ticks=1)
        if axis.grid:
            axes.grid(axis=name, color=LINK, alpha=0.25)
        if np.isfinite(axis.ends).all():
            getattr(axes, f"set_{name}lim")(*axis.ends)
    axes.tick_params(which="both", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    if not drawing.x.line:
        axes.axis("off")
    if not drawing.height:
        axes.set_aspect("equal")
    for number, mark in enumerate(drawing.marks):
        _draw(axes, mark, 2 + number / len(drawing.marks))
    if drawing.keys:
        where = (0.5, -0.16 if axes.axison else 0.0)
        keys = [_key(mark) for mark in drawing.keys]
        axes.legend(handles=keys, loc="upper center", bbox_to_anchor=where, ncols=3, fontsize=8, frameon=False)
    return axes


def _draw(axes: Axes, mark: DrawnMark, zorder: float) -> None:
    from matplotlib.transforms import blended_transform_factory

    edges, place = [bool(np.isinf(values).any()) for values in mark.at.T], axes.transData
    if any(edges):  # an infinite coordinate is at the edge of the axes
        place = blended_transform_factory(*(axes.transAxes if edge else axes.transData for edge in edges))
    xs, ys = np.where(np.isinf(mark.at), mark.at > 0, mark.at).T
    how: dict[str, Any] = {"color": mark.colour, "alpha": mark.alpha, "zorder": zorder}
    if mark.shape == "line":
        dashes = (0, [float(part) for part in mark.dash.split()]) if mark.dash else "-"
        axes.plot(xs, ys, transform=place, linewidth=_POINT * mark.size, linestyle=dashes, **how)
    elif mark.shape == "text":
        axes.annotate(
            mark.text, (xs[0], ys[0]), (_POINT * mark.dx, -_POINT * mark.dy), xycoords=place, textcoords="offset points",
            ha=mark.ha, va=mark.va, rotation=mark.turned, fontsize=_POINT * mark.size, **how,
        )  # fmt: skip
    else:
        if mark.shape != "x":
            how |= {"facecolors": how.pop("color"), "edgecolors": mark.edge or "none"}
        axes.scatter(
            xs, ys, (_POINT * mark.size) ** 2, marker=mark.shape, linewidths=_POINT * mark.edge_width, transform=place,
            clip_on=not any(edges), **how,
        )  # fmt: skip


def _key(mark: DrawnMark) -> Line2D:
    if mark.shape == "line":
        from matplotlib.lines import Line2D

        return Line2D([], [], label=mark.text, color=mark.colour, linewidth=_POINT * mark.size, alpha=mark.alpha)
    edge = {"markeredgecolor": mark.edge or mark.colour, "markeredgewidth": _POINT * mark.edge_width}
    return dot_key(mark.text, mark.colour, mark.shape, _POINT * mark.size, **edge)
