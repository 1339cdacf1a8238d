"""Figures: empty ones, entries of legends, images, and SVG elements of a page whose parts have descriptions.

Matplotlib writes an SVG as a separate document with fixed colours. Here it becomes an element: its colours become the
page's variables, so it is readable on a dark page, on a light one and in print; its letters have the page's font; and
the marked parts of a figure have attributes, so that the page can describe or hide them.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import io
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from p2pclust.errors import DataError, UsageError
from p2pclust.lab.pictures.palette import INK, LINK, VARIABLES

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.text import Text

_MARK: Final = "mark-"
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


def short_name(name: str, most: int = 14) -> str:
    """Return a name in at most this number of letters."""
    return name if len(name) <= most else name[: most - 1] + "…"


def write(axes: Axes, x: float, y: float, text: str, letters: float = 8, colour: str = INK, **how: Any) -> Text:
    """Write a text of this size in points, by default around a place."""
    return axes.text(x, y, text, **{"ha": "center", "va": "center", "fontsize": letters, "color": colour, **how})


def line_key(label: str, **how: Any) -> Line2D:
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **how)


def dot_key(label: str, colour: str, marker: str = "o", size: float = 9, **how: Any) -> Line2D:
    return line_key(label, linestyle="", marker=marker, markersize=size, color=colour, **how)


def area_key(label: str, colour: str, **how: Any) -> Patch:
    from matplotlib.patches import Patch

    return Patch(facecolor=colour, label=label, **how)


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


@dataclass
class Drawing:
    """A figure, or one of the axes of a figure, with descriptions of its parts."""

    axes: Axes
    alone: bool = True  # whether the figure has nothing else
    _marks: list[str] = field(default_factory=list, repr=False)  # the opening tags of the described parts

    @classmethod
    def new(
        cls, width: float, height: float, title: str = "", across: str = "", up: str = "", *,
        sides: Collection[str] = ("left", "bottom"), grid: Literal["", "x", "y", "both"] = "", letters: float = 9,
        on: Axes | None = None,
    ) -> Drawing:  # fmt: skip
        """Return a drawing with empty axes, of this size in inches, whose title and labels are given; or `on` these axes.

        `sides` are those of the frame that are drawn, `grid` says at which ticks lines are. `letters` is the size of the
        axes' labels in points; those of the ticks are one point smaller.
        """
        drawing = cls(new_figure(width, height).add_subplot() if on is None else on, on is None)
        axes = drawing.axes
        axes.set_title(title, fontsize=10, color=INK, loc="left")
        axes.set_xlabel(across, fontsize=letters, color=INK)
        axes.set_ylabel(up, fontsize=letters, color=INK)
        axes.tick_params(which="both", labelsize=letters - 1)
        for side, spine in axes.spines.items():
            spine.set_visible(side in sides)
        if grid:
            axes.grid(axis=grid, color=LINK, alpha=0.25)
            axes.set_axisbelow(True)
        return drawing

    @property
    def figure(self) -> Figure:
        return cast("Figure", self.axes.figure)

    def mark(
        self, artist: Any, *, kind: str = "", peer: str = "", when: Sequence[tuple[float, float]] | None = None,
        tip: str = "",
    ) -> None:  # fmt: skip
        """Describe an artist: a line, a patch, a text, or a collection; or the only one of those that were drawn.

        `kind` is a class name for the page's style. Pointing at it highlights `peer` on the whole page, and shows the
        text `tip`. Where the page shows a single moment, it is shown only in the spans of time `when`.
        """
        (artist,) = artist if isinstance(artist, Sequence) else (artist,)
        spans = "" if when is None else " ".join(f"{start:.4g}:{end:.4g}" for start, end in when) or "-"
        pairs = (("class", kind), ("data-peer", peer), ("data-when", spans))
        attributes = "".join(f' {name}="{escape(value)}"' for name, value in pairs if value)
        artist.set_gid(f"{_MARK}{len(self._marks)}")
        self._marks.append(f"<g{attributes}>" + (f"<title>{escape(tip)}</title>" if tip else ""))

    def limit(self, height: float, text: str, colour: str = INK, *, left: bool = False) -> None:
        """Draw a dashed line across the axes, with a text at one end."""
        self.axes.axhline(height, color=colour, linestyle="--", linewidth=1)
        self.axes.annotate(
            text, (0.0 if left else 1.0, height), (4 if left else -2, 3), xycoords=("axes fraction", "data"),
            textcoords="offset points", ha="left" if left else "right", fontsize=8, color=INK,
        )  # fmt: skip

    def lanes(self, names: Sequence[str], letters: float = 9) -> None:
        """Make the upward axis one of lanes, from the top, with these names."""
        self.axes.set_yticks(range(len(names)), names, fontsize=letters)
        self.axes.set_ylim(len(names) - 0.4, -0.6)
        self.axes.tick_params(axis="y", length=0)

    def legend(self, keys: Sequence[Artist] | None = None, columns: int = 3) -> None:
        """Write a legend below the axes: of these entries, or by default of the labelled artists."""
        how = {"ncols": columns, "fontsize": 9, "frameon": False}
        if self.alone:
            self.figure.legend(handles=keys, loc="outside lower center", **how)
            return
        shown = self.axes.get_legend_handles_labels()[0] if keys is None else keys
        self.axes.legend(
            handles=shown, loc="upper center", bbox_to_anchor=(0.5, -0.08 if self.axes.axison else 0.0), **how
        )

    def svg(self, label: str) -> str:
        """Return it as an SVG element of a page; `label` describes it in words. The same figure gives the same text."""
        from matplotlib import rc_context
        from matplotlib.backends.backend_svg import FigureCanvasSVG

        self.figure.patch.set_visible(False)
        for axes in self.figure.axes:
            axes.patch.set_visible(False)
        buffer = io.BytesIO()
        with rc_context(_SVG):  # `savefig` would draw the figure a second time for its layout
            FigureCanvasSVG(self.figure).print_svg(buffer, metadata=_UNDATED["svg"])  # type: ignore[no-untyped-call]
        text = buffer.getvalue().decode("utf-8")
        box = re.search(r'viewBox="([^"]*)"', text)
        assert box is not None, "matplotlib always writes a viewBox"
        body = text[text.index(">", text.index("<svg")) + 1 : text.rindex("</svg>")]
        body = re.sub(r"\s*<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
        body = re.sub(r"\s*<style.*?</style>", "", body, count=1, flags=re.DOTALL)

        def coloured(match: re.Match[str]) -> str:
            variable = VARIABLES.get(match[2])
            return match[0] if variable is None else f"{match[1]}:var(--{variable})"

        def group(match: re.Match[str]) -> str:
            return self._marks[int(match[1].removeprefix(_MARK))] if match[1].startswith(_MARK) else "<g>"

        body = re.sub(r"(fill|stroke):(#[0-9a-f]{6})", coloured, _shortened(body))
        # Names are made unique on the page, and only those are kept that are referred to.
        prefix = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:6]
        body = re.sub(r'<g id="([^"]*)">', group, body)
        body = re.sub(r' id="([^"]*)"', rf' id="{prefix}\1"', body)
        body = re.sub(r'(url\(|href=")#', rf"\1#{prefix}", body)
        shape = " ".join(f"{float(value):.5g}" for value in box[1].split())
        return (
            f'<svg class="drawing" role="img" aria-label="{escape(label)}" viewBox="{shape}" '
            f'style="width:{self.width}px">{body}</svg>'
        )

    @property
    def width(self) -> int:
        """The width on a page, in pixels."""
        return width_in_pixels(self.figure)


def _shortened(body: str) -> str:
    """Leave out what only takes space: digits that no screen shows, white space, lists of fonts, rotations by 0."""

    def attribute(match: re.Match[str]) -> str:
        value = re.sub(r"(\.\d{2})\d+", r"\1", match[2])
        if match[1] == "d":
            value = re.sub(r"\s*([A-Za-z])\s*", r"\1", value.replace("\n", " "))
        return f' {match[1]}="{value.strip()}"'

    body = re.sub(r' transform="rotate\(-0 [^"]*\)"', "", body)
    body = re.sub(r' (d|x|y|transform|points)="([^"]*)"', attribute, body)
    body = re.sub(r"font-family: [^;\"]*;? ?", "", body)
    body = re.sub(r"(font: [^\"]*?px) '[^;\"]*", r"\1 system-ui", body)
    body = re.sub(r'style="([^"]*)"', lambda match: f'style="{match[1].replace(": ", ":").replace("; ", ";")}"', body)
    body = body.replace("xlink:href=", "href=")
    return re.sub(r">\s+<", "><", body).strip()
