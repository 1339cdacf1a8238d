"""Drawings: marks in the units of the data, with axes and a legend, as an SVG element of a page.

The colours are the page's variables, so a drawing is readable on a dark page, on a light one and in print; its letters have
the page's font; marks have descriptions, so that the page can explain, highlight or hide them.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from p2pclust.lab.pictures.palette import INK, LINK, VARIABLES

Floats = NDArray[np.float64]
Shape = Literal["line", "boxes", "text", "image", "o", "s", "D", "h", "p", "^", "v", ">", "x"]

#: By a shape of dots, the corners of a polygon and the direction of the first one in degrees.
_POLYGONS: Final = {"s": (4, 45), "D": (4, 0), "h": (6, 0), "p": (5, 90), "^": (3, 90), "v": (3, -90), ">": (3, 0)}
_ANCHORS: Final = {"left": "start", "center": "middle", "right": "end"}
_RAISED: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_LETTER: Final = 0.58  # the usual width of a letter, as a part of the size of the letters
_TITLE: Final = 13.5  # pixels
_LABEL: Final = 12.0
_TICK: Final = 11.0


def short_name(name: str, most: int = 14) -> str:
    """Return a name in at most this number of letters."""
    return name if len(name) <= most else name[: most - 1] + "…"


@dataclass
class Axis:
    """One axis of a drawing. `ends` that are NaN follow from the marks, and `ticks` that are None from the ends."""

    label: str = ""
    ends: tuple[float, float] = (math.nan, math.nan)  # left and right, or bottom and top
    ticks: Sequence[tuple[float, str]] | None = None
    most: int = 6  # about how many ticks
    whole: bool = False  # whether ticks are at whole numbers only
    log: bool = False
    grid: bool = False
    line: bool = True
    letters: float = _TICK  # the size of the ticks' letters, in pixels
    turned: int = 0  # by how many degrees they are turned

    @classmethod
    def hidden(cls, first: float, last: float) -> Axis:
        return cls(ends=(first, last), ticks=(), line=False)

    @property
    def longest(self) -> float:
        """The width of the longest text at the given ticks, in pixels."""
        return max((len(text) for _, text in self.ticks or ()), default=0) * _LETTER * self.letters

    def fitted(self, values: Floats) -> Axis:
        """Return the axis with ends around these values, and with ticks."""
        known = values[np.isfinite(values) & (values > 0 if self.log else True)]
        low, high = (float(known.min()), float(known.max())) if len(known) else (1.0, 1.0)
        if self.log:
            room = (high / low) ** 0.05 if high > low else 2.0
            low, high = low / room, high * room
        else:
            room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
            low, high = low - room, high + room
        start, end = self.ends
        ends = (low if math.isnan(start) else start, high if math.isnan(end) else end)
        ticks = self.ticks
        if ticks is None:
            ticks = _powers(*ends) if self.log else _steps(min(ends), max(ends), self.most, whole=self.whole)
        return replace(self, ends=ends, ticks=ticks)

    def on(self, values: Floats, start: float, end: float) -> Floats:
        """Return values as pixels between `start` and `end`, where the axis has its ends; infinite ones are at the ends."""
        first, last = self.ends
        values = np.nan_to_num(values, nan=math.nan, posinf=last, neginf=first)
        if self.log:
            first, last = math.log10(first), math.log10(last)
            with np.errstate(all="ignore"):
                values = np.where(values > 0, np.log10(values), np.nan)
        return start + (end - start) * (values - first) / (last - first)


def _steps(low: float, high: float, most: int, *, whole: bool) -> list[tuple[float, str]]:
    """Return ticks at multiples of 1, 2 or 5 times a power of ten.

    >>> [text for _, text in _steps(0.0, 1.2, 4, whole=False)], [text for _, text in _steps(0.5, 3.0, 6, whole=True)]
    (['0.0', '0.5', '1.0'], ['1', '2', '3'])
    """
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(by * power for by in (1, 2, 5, 10) if by * power >= 0.999 * rough)
    step = max(1.0, step) if whole else step
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    numbers = range(math.ceil(low / step - 1e-6), math.floor(high / step + 1e-6) + 1)
    form = "g" if step >= 1e5 or digits > 8 else f".{digits}f"
    return [(number * step, f"{number * step:{form}}") for number in numbers]


def _powers(low: float, high: float) -> list[tuple[float, str]]:
    """Return ticks at powers of ten, where these are few also at twice and five times each.

    >>> [text for _, text in _powers(0.00005, 0.02)], [text for _, text in _powers(0.3, 4)]
    (['10⁻⁴', '0.001', '0.01'], ['0.5', '1', '2'])
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    by, step = ((1, 2, 5), 1) if high / low < 100 else ((1,), -(-(last - first) // 7))
    made = [(many, power) for power in range(first, last + 1, step) for many in by]
    return [
        (many * 10.0**power, f"{many * 10.0**power:g}" if -4 < power < 4 else _power(many, power))
        for many, power in made
        if low <= many * 10.0**power <= high
    ]


def _power(many: int, power: int) -> str:
    return ("" if many == 1 else f"{many}·") + "10" + str(power).translate(_RAISED)


@dataclass(frozen=True, eq=False)
class DrawnMark:
    """A part of a drawing in one colour: a line, boxes, dots of one shape, a text, or an image."""

    shape: Shape
    at: Floats  # places, shape (n, 2); of boxes and images two opposite corners each
    colour: str
    size: float = 0.0  # the width of a line, the diameter of dots, the height of letters, in pixels
    alpha: float = 1.0
    dash: str = ""
    edge: str = ""  # of boxes and dots
    edge_width: float = 1.0
    text: str = ""  # what is written; of an image its address
    ha: str = "center"
    va: str = "center"
    dx: float = 0.0  # pixels to the right of its place
    dy: float = 0.0  # pixels below its place
    turned: int = 0  # degrees against the clock
    kind: str = ""  # a class name for the page's style
    peer: str = ""  # pointing at the mark highlights this peer on the whole page
    tip: str = ""  # shown to a reader who points at it
    #: Where the page shows a single moment, the mark is shown only in these spans of time.
    when: Sequence[tuple[float, float]] | None = None

    @property
    def _plain(self) -> bool:
        """Whether it is many round dots without edges, which lines of length 0 with round ends write in the fewest bytes."""
        return self.shape == "o" and not self.edge and len(self.at) > 1

    def element(self, places: Floats) -> str:
        """Return the mark as SVG at these places, in pixels."""
        places = np.round(places, 1)
        if self.shape == "text":
            drawn = self._text(*(places[0] + (self.dx, self.dy)).tolist())
        elif self.shape == "image":
            (x, y), (width, height) = places.min(axis=0), np.ptp(places, axis=0)
            drawn = (
                f'<image x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" preserveAspectRatio="none" '
                f'style="image-rendering:pixelated" href="{self.text}"/>'
            )
        else:
            drawn = f'<path d="{self._path(places)}"{self._style()}/>'
        spans = "" if self.when is None else " ".join(f"{start:.4g}:{end:.4g}" for start, end in self.when) or "-"
        pairs = (("class", self.kind), ("data-peer", self.peer), ("data-when", spans))
        attributes = "".join(f' {name}="{escape(value)}"' for name, value in pairs if value)
        title = f"<title>{escape(self.tip)}</title>" if self.tip else ""
        return f"<g{attributes}>{title}{drawn}</g>" if attributes or title else drawn

    def _text(self, x: float, y: float) -> str:
        lines = self.text.split("\n")
        first = {"top": 0.8, "center": 0.35 - 0.6 * (len(lines) - 1), "bottom": -0.2 - 1.2 * (len(lines) - 1)}[self.va]
        how = f' text-anchor="{_ANCHORS[self.ha]}" font-size="{self.size:g}"'
        how += "" if self.colour == INK else f' fill="{_paint(self.colour)}"'
        turned = f' transform="rotate({-self.turned} {x:g} {y:g})"' if self.turned else ""
        return "".join(
            f'<text x="{x:g}" y="{y + (first + 1.2 * number) * self.size:.1f}"{how}{turned}>{escape(line)}</text>'
            for number, line in enumerate(lines)
        )

    def _path(self, places: Floats) -> str:
        if self.shape == "line":
            parts, pen = [], "M"
            for x, y in places.tolist():
                known = not (math.isnan(x) or math.isnan(y))
                parts.append(f"{pen}{x:g} {y:g}" if known else "")
                pen = "L" if known else "M"
            return "".join(parts)
        if self.shape == "boxes":
            corners = np.concatenate([places[::2], places[1::2] - places[::2]], axis=1).round(1).tolist()
            return "".join(f"M{x:g} {y:g}h{width:g}v{height:g}h{-width:g}z" for x, y, width, height in corners)
        r = round(self.size / 2, 1)  # as it is written: a chord must not be shorter than the diameter of its arc
        if self._plain:
            outline = "h0"
        elif self.shape == "o":
            outline = f"m{-r:.1f} 0a{r:.1f} {r:.1f} 0 1 0 {2 * r:.1f} 0a{r:.1f} {r:.1f} 0 1 0 {-2 * r:.1f} 0z"
        elif self.shape == "x":
            outline = f"m{-r:.1f} {-r:.1f}l{2 * r:.1f} {2 * r:.1f}m0 {-2 * r:.1f}l{-2 * r:.1f} {2 * r:.1f}"
        else:
            number, first = _POLYGONS[self.shape]
            angles = np.radians(first + 360 / number * np.arange(number))
            corners = 1.2 * r * np.stack([np.cos(angles), -np.sin(angles)], axis=1)
            steps = np.diff(corners, axis=0, prepend=[[0.0, 0.0]])
            outline = "".join(f"{'l' if n else 'm'}{x:.1f} {y:.1f}" for n, (x, y) in enumerate(steps.tolist())) + "z"
        return "".join(f"M{x:g} {y:g}{outline}" for x, y in places.tolist())

    def _style(self) -> str:
        if self.shape in ("line", "x") or self._plain:
            fill, stroke, width = "none", self.colour, self.edge_width if self.shape == "x" else self.size
        else:
            fill, stroke, width = self.colour, self.edge, self.edge_width
        pairs = {
            "fill": _paint(fill), "stroke": _paint(stroke), "stroke-width": f"{width:g}" if stroke else "",
            "stroke-dasharray": self.dash, "stroke-linecap": "round" if self._plain else "",
            "opacity": "" if self.alpha == 1 else f"{self.alpha:.3g}",
        }  # fmt: skip
        return "".join(f' {name}="{value}"' for name, value in pairs.items() if value)


def _paint(colour: str) -> str:
    return f"var(--{VARIABLES[colour]})" if colour in VARIABLES else colour


@dataclass
class Drawing:
    """A drawing of this size in pixels, title and ticks included; without a height, both axes have equal units."""

    width: int
    height: int
    title: str = ""
    x: Axis = field(default_factory=Axis)
    y: Axis = field(default_factory=Axis)
    marks: list[DrawnMark] = field(default_factory=list, repr=False)
    keys: list[DrawnMark] = field(default_factory=list, repr=False)  # of the legend

    # -- marks --------------------------------------------------------------------------------------------------------

    def line(self, points: ArrayLike, colour: str, width: float = 2.0, **how: Any) -> None:
        """Draw a line through points, shape (n, 2), with gaps where they are NaN; infinite ones are at the edge.

        `how` has the other fields of a :class:`DrawnMark`.
        """
        self._add("line", points, colour, width, how)

    def lines(self, lines: Iterable[ArrayLike], colour: str, width: float = 2.0, **how: Any) -> None:
        """Draw several lines as one mark."""
        self.line(_joined(lines), colour, width, **how)

    def dots(self, points: ArrayLike, colour: str, size: float, shape: Shape = "o", **how: Any) -> None:
        self._add(shape, points, colour, size, how)

    def boxes(self, boxes: ArrayLike, colour: str, **how: Any) -> None:
        """Draw boxes, shape (n, 4): the place of a corner, and the opposite corner's distance from it."""
        x, y, width, height = np.asarray(boxes, np.float64).reshape(-1, 4).T
        self._add("boxes", np.stack([x, y, x + width, y + height], axis=1), colour, 0.0, how)

    def text(self, place: ArrayLike, text: str, size: float = 10.5, colour: str = INK, **how: Any) -> None:
        self._add("text", place, colour, size, {"text": text, **how})

    def image(self, box: tuple[float, float, float, float], grey: Floats) -> None:
        """Draw an image with values from 0, black, to 1, white; its first row is at the box's corner."""
        x, y, width, height = box
        address = f"data:image/png;base64,{base64.b64encode(_png(grey)).decode('ascii')}"
        self._add("image", (x, y, x + width, y + height), "none", 0.0, {"text": address})

    def _add(self, shape: Shape, at: ArrayLike, colour: str, size: float, how: Mapping[str, Any]) -> None:
        self.marks.append(DrawnMark(shape, np.asarray(at, np.float64).reshape(-1, 2), colour, size, **how))

    def limit(self, height: float, text: str, colour: str = INK, *, left: bool = False) -> None:
        """Draw a dashed line across, with a text at one end."""
        self.line([(-math.inf, height), (math.inf, height)], colour, 1.3, dash="5 3")
        ha, edge, dx = ("left", -math.inf, 5) if left else ("right", math.inf, -3)
        self.text((edge, height), text, ha=ha, va="bottom", dx=dx, dy=-2)

    def lanes(self, names: Sequence[str], letters: float = _LABEL) -> None:
        """Make the upward axis one of lanes, from the top, with these names, which take half of the width at most."""
        shown = [short_name(name, int(self.width / 2 / (_LETTER * letters))) for name in names]
        self.y = Axis("", (len(names) - 0.4, -0.6), list(enumerate(shown)), line=False, letters=letters)

    def key(
        self, text: str, colour: str, shape: Shape = "boxes", size: float = 10.0, *, there: object = True, **how: Any
    ) -> None:  # fmt: skip
        """Add an entry to the legend, a mark as in the drawing and its meaning, if the drawing has such a mark."""
        at = {"line": [(-9.0, 0.0), (9.0, 0.0)], "boxes": [(-8.0, -5.0), (8.0, 5.0)]}.get(shape, [(0.0, 0.0)])
        if there:
            self.keys.append(DrawnMark(shape, np.array(at), colour, size, text=text, **how))

    def fitted_axes(self) -> tuple[Axis, Axis]:
        """Return the axes with ends around the marks, and with ticks."""
        places = np.concatenate([np.empty((0, 2)), *(mark.at for mark in self.marks)])
        return self.x.fitted(places[:, 0]), self.y.fitted(places[:, 1])

    # -- as elements of a page ----------------------------------------------------------------------------------------

    def element(self, label: str) -> str:
        """Return it as an SVG element, with its legend as a list below."""
        return self.svg(label) + self.legend()

    def svg(self, label: str) -> str:
        """Return it as an SVG element; `label` describes it in words."""
        across, up = self.fitted_axes()
        slanted = across.longest * math.sin(math.radians(across.turned))
        left = 3.0 + (up.longest + 6 if up.ticks else 0) + (17 if up.label else 0)
        left = max(left, across.longest * 0.5) if 0 < across.turned < 90 else left
        right = self.width - (12.0 if across.ticks else 3.0)
        top = 24.0 if self.title else 5.0
        below = (max(slanted, across.letters) + 8 if across.ticks else 3.0) + (17 if across.label else 0)
        height = self.height
        if not height:
            units = abs((up.ends[1] - up.ends[0]) / (across.ends[1] - across.ends[0]))
            height = round(top + below + (right - left) * units)
        bottom = height - below
        parts = [self._axes(across, up, left, top, right, bottom, height)]
        for mark in self.marks:
            x, y = across.on(mark.at[:, 0], left, right), up.on(mark.at[:, 1], bottom, top)
            parts.append(mark.element(np.stack([x, y], axis=1)))
        return (
            f'<svg class="drawing" role="img" aria-label="{escape(label)}" viewBox="0 0 {self.width} {height}" '
            f'style="width:{self.width}px">{"".join(parts)}</svg>'
        )

    def _axes(self, across: Axis, up: Axis, left: float, top: float, right: float, bottom: float, height: float) -> str:
        """Return the title, lines, ticks and labels."""
        xs = across.on(np.array([value for value, _ in across.ticks or ()]), left, right).tolist()
        ys = up.on(np.array([value for value, _ in up.ticks or ()]), bottom, top).tolist()
        grid = [((x, bottom), (x, top)) for x in xs if across.grid] + [((left, y), (right, y)) for y in ys if up.grid]
        lines = [((left, bottom), (right, bottom))] * across.line + [((left, bottom), (left, top))] * up.line
        lines += [((x, bottom), (x, bottom + 4)) for x in xs if across.line]
        lines += [((left - 4, y), (left, y)) for y in ys if up.line]
        marks = [DrawnMark("line", _joined(grid), LINK, 1.0, alpha=0.25), DrawnMark("line", _joined(lines), INK, 1.0)]

        def write(x: float, y: float, text: str, size: float, **how: Any) -> None:
            marks.append(DrawnMark("text", np.array([(x, y)]), INK, size, text=text, **how))

        for x, (_, text) in zip(xs, across.ticks or (), strict=True):
            half = len(text) * _LETTER * across.letters / 2
            ha = "left" if x - half < 0 else "right" if x + half > self.width or across.turned else "center"
            va = "center" if across.turned else "top"
            write(x, bottom + 7, text, across.letters, ha=ha, va=va, turned=across.turned)
        for y, (_, text) in zip(ys, up.ticks or (), strict=True):
            write(left - 6, y, text, up.letters, ha="right")
        if self.title:
            write(min(left, 40), 4, self.title, _TITLE, ha="left", va="top")
        if across.label:
            write((left + right) / 2, height - 3, across.label, _LABEL, va="bottom")
        if up.label:
            write(9, (top + bottom) / 2, up.label, _LABEL, turned=90)
        return "".join(mark.element(mark.at) for mark in marks if len(mark.at))

    def legend(self) -> str:
        """Return the legend as a list, or an empty string if there is none."""
        entries = "".join(
            f'<li><svg viewBox="-9 -7 18 14" aria-hidden="true">{key.element(key.at)}</svg>{escape(key.text)}</li>'
            for key in self.keys
        )
        return f'<ul class="keys">{entries}</ul>' if entries else ""


def _joined(lines: Iterable[ArrayLike]) -> Floats:
    """Return lines as one, with a gap after each."""
    return np.concatenate([np.empty((0, 2)), *(np.vstack([np.asarray(line), [np.nan, np.nan]]) for line in lines)])


def _png(grey: Floats) -> bytes:
    """Return an image as PNG, one byte a pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width = grey.shape
    pixels = np.zeros((height, width + 1), np.uint8)  # each row begins with a byte 0: it is not filtered
    pixels[:, 1:] = (255 * np.clip(grey, 0.0, 1.0)).round()
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(pixels.tobytes(), 9)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts
