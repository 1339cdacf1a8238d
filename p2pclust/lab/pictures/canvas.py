"""Figures of Matplotlib: empty ones, the axes that drawings are drawn on, and files of images."""

from __future__ import annotations

import importlib.util
import io
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from p2pclust.errors import DataError, UsageError
from p2pclust.lab.pictures.drawing import Axis, Drawing, DrawnMark
from p2pclust.lab.pictures.palette import INK, LINK, PAPER

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


def whole_numbers(axes: Axes, axis: str = "x", **how: Any) -> None:
    """Put ticks at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    getattr(axes, f"{axis}axis").set_major_locator(MaxNLocator(integer=True, nbins="auto", **how))


def write(axes: Axes, x: float, y: float, text: str, letters: float = 8, colour: str = INK, **how: Any) -> Text:
    """Write a text of this size in points, by default around a place."""
    return axes.text(x, y, text, **{"ha": "center", "va": "center", "fontsize": letters, "color": colour, **how})


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


_INCH: Final = 96  # pixels of a drawing
_POINT: Final = 0.75  # a pixel of a drawing, in points


def figure_of(drawing: Drawing) -> Figure:
    """Return a drawing as a figure of its own, as large as on a page, with the legend below."""
    across, up = drawing.fitted_axes()
    height = drawing.height + 24.0 * -(-len(drawing.keys) // 3)
    if not drawing.height:
        height += 24 + drawing.width * abs((up.ends[1] - up.ends[0]) / (across.ends[1] - across.ends[0]))
    figure = new_figure(drawing.width / _INCH, height / _INCH)
    draw_on(figure.add_subplot(), replace(drawing, x=across, y=up, keys=[]))
    if drawing.keys:
        keys = [_key(mark) for mark in drawing.keys]
        figure.legend(handles=keys, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return figure


def draw_on(axes: Axes, drawing: Drawing) -> Axes:
    """Draw the lines, boxes, dots and texts of a drawing on axes of any size; return them."""
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
        if axis.ticks:
            places, texts = zip(*axis.ticks, strict=True)
            how = {"rotation": axis.turned, "ha": "right"} if axis.turned else {}
            getattr(axes, f"set_{name}ticks")(places, texts, **how)
            getattr(axes, f"set_{name}ticks")([], minor=True)
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
    from matplotlib.patheffects import withStroke
    from matplotlib.transforms import blended_transform_factory

    edges, place = [bool(np.isinf(values).any()) for values in mark.at.T], axes.transData
    if any(edges):  # an infinite coordinate is at the edge of the axes
        place = blended_transform_factory(*(axes.transAxes if edge else axes.transData for edge in edges))
    xs, ys = np.where(np.isinf(mark.at), mark.at > 0, mark.at).T
    how: dict[str, Any] = {"color": mark.colour, "alpha": mark.alpha, "zorder": zorder}
    if mark.kind == "halo":
        how["path_effects"] = [withStroke(linewidth=2.5, foreground=PAPER)]
    if mark.shape == "line":
        axes.plot(xs, ys, transform=place, linewidth=_POINT * mark.size, linestyle=_dashes(mark), **how)
    elif mark.shape == "boxes":
        (left, right), (bottom, top) = xs.reshape(-1, 2).T, ys.reshape(-1, 2).T
        axes.bar(left, top - bottom, right - left, bottom, align="edge", **how)
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
    from matplotlib.lines import Line2D

    how: dict[str, Any] = {"label": mark.text, "color": mark.colour, "alpha": mark.alpha}
    if mark.shape == "line":
        return Line2D([], [], linewidth=_POINT * mark.size, linestyle=_dashes(mark), **how)
    how |= {"markeredgecolor": mark.edge or mark.colour, "markeredgewidth": _POINT * mark.edge_width}
    marker = "s" if mark.shape == "boxes" else mark.shape
    return Line2D([], [], linestyle="", marker=marker, markersize=_POINT * mark.size, **how)


def _dashes(mark: DrawnMark) -> Any:
    return (0, [float(part) for part in mark.dash.split()]) if mark.dash else "-"
