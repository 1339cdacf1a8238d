"""``report.html``: one page that holds everything it shows, so it can be opened, mailed or kept by itself.

The classes here say what a page contains; how it is laid out is in ``templates/``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from p2pclust.lab.pictures.drawing import Drawing
from p2pclust.lab.pictures.palette import CROWN, CURVE, DARK, VARIABLES
from p2pclust.lab.scenario.outcome.folder import write_text

#: By a variable of the page, its colour on a light page and on a dark one. Other variables are in the style itself.
_LIGHT: Final = {name: colour for colour, name in VARIABLES.items() if name[-1].isdigit() or colour in (CROWN, CURVE)}
_DARK: Final = {VARIABLES[colour]: lighter for colour, lighter in DARK.items()}


@dataclass(frozen=True)
class Picture:
    """A picture and its caption."""

    source: str  # an SVG element with its description in words, and its legend
    caption: str
    width: int  # in pixels, where the page is that wide
    narrow: str = ""  # the same picture as another SVG element, for narrow pages; without it the one picture shrinks
    moment: float = 0.0  # if not 0, a slider shows the picture at any second up to this one


def picture_of(drawing: Drawing, alt: str, caption: str, narrow: Drawing | None = None) -> Picture:
    """Return a drawing as a picture of the page; `alt` describes it in words, `narrow` is drawn for narrow pages."""
    return Picture(drawing.element(alt), caption, drawing.width, "" if narrow is None else narrow.element(alt))


@dataclass(frozen=True)
class Tile:
    """One figure at the top of the page."""

    value: str
    label: str
    mood: Literal["good", "bad", ""] = ""


@dataclass(frozen=True)
class Verdict:
    """One expectation: whether it held, what was expected, and what was found."""

    held: bool
    what: str
    found: str


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    heading: str
    text: str = ""
    pictures: Sequence[Picture] = ()  # side by side as far as the page is wide enough
    #: Hidden until the reader opens the fold, whose label is `fold`; the same holds for `folded_table`.
    folded: Sequence[Picture] = ()
    fold: str = "more"
    table: Sequence[Sequence[str]] = ()  # rows of text; the first one has the headings
    folded_table: Sequence[Sequence[str]] = ()
    #: Shown one at a time and chosen by a slider with the label `step`, the last one first.
    steps: Sequence[Picture] = ()
    step: str = "step"
    verdicts: Sequence[Verdict] = ()
    half: bool = False  # whether it may be placed next to another such section where the page is wide enough


@dataclass(frozen=True)
class Page:
    title: str
    facts: str  # one line below the title
    sections: Sequence[Section]
    about: str = ""  # what kind of page this is
    tiles: Sequence[Tile] = ()
    alarm: str = ""  # a failure, shown above everything else


def write_page(file: Path, page: Page) -> None:
    """Write a page as one HTML file that refers to no other file."""
    # Imported here, because a running peer must not load it.
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415

    templates = Environment(
        loader=PackageLoader("p2pclust.lab.scenario.page"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    write_text(file, templates.get_template("page.html").render(page=page, light=_LIGHT, dark=_DARK))
