"""``report.html``: one page with everything in it, to be opened, mailed or kept without anything beside it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

from p2pclust.scenario.outcome.folder import write_text
from p2pclust.scenario.page.page_style import SCRIPT, STYLE

__all__ = ["Picture", "Section", "Tile", "page_text", "write_page"]

_BROAD: Final = 640  # pixels
_WORDS: Final = ("value", "what", "why it ended")  # headings of columns of words


@dataclass(frozen=True)
class Picture:
    """A picture and what it shows.

    Parameters
    ----------
    source : str
        An address that holds the whole picture, or an SVG element.
    caption : str
    alt : str
        In its place, for whoever cannot see it; an SVG element says it itself.
    width : int
        In pixels, where the page is that wide.
    narrow : str
        The same picture drawn for a narrow page, which shows it in the place of the other; else the one picture shrinks.
    moment : float
        If not 0, the picture can be seen at any second up to this one.
    """

    source: str
    caption: str
    alt: str
    width: int
    narrow: str = ""
    moment: float = 0.0


@dataclass(frozen=True)
class Tile:
    """One figure at the top of the page.

    Parameters
    ----------
    value, label : str
    mood : str
        ``good``, ``bad``, or nothing.
    """

    value: str
    label: str
    mood: str = ""


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Parameters
    ----------
    heading : str
    text : str
    pictures : sequence of Picture
        Beside each other as far as there is room.
    folded : sequence of Picture
        Shown when somebody asks for them.
    fold : str
        What the folded ones are called.
    table, folded_table : sequence of rows of str
        The first row has the headings; the latter is shown when somebody asks for it.
    steps : sequence of Picture
        One at a time, chosen by a slider; the last one first.
    step : str
        What a step is called.
    verdicts : sequence of (bool, str, str)
        Whether something held, what, and what was found.
    half : bool
        Whether it stands beside another such part where the page is wide enough.
    """

    heading: str
    text: str = ""
    pictures: Sequence[Picture] = ()
    folded: Sequence[Picture] = ()
    fold: str = "more"
    table: Sequence[Sequence[str]] = ()
    folded_table: Sequence[Sequence[str]] = ()
    steps: Sequence[Picture] = ()
    step: str = "step"
    verdicts: Sequence[tuple[bool, str, str]] = ()
    half: bool = False


def write_page(
    directory: Path, title: str, facts: str, sections: Sequence[Section], *, about: str = "", tiles: Sequence[Tile] = (),
    alarm: str = "", name: str = "report.html", unfolded: bool = False,
) -> None:  # fmt: skip
    """Write ``report.html``.

    Parameters
    ----------
    directory : Path
    title : str
    facts : str
        One line below it.
    sections : sequence of Section
    about : str
        What the page is.
    tiles : sequence of Tile
    alarm : str
        What went so wrong that it stands above everything.
    name : str
        Of the file.
    unfolded : bool
        Whether what is otherwise shown when somebody asks for it stands open from the beginning: for a page that has
        little else.
    """
    text = page_text(title, facts, sections, about=about, tiles=tiles, alarm=alarm, unfolded=unfolded)
    write_text(directory / name, text)


def page_text(
    title: str, facts: str, sections: Sequence[Section], *, about: str = "", tiles: Sequence[Tile] = (),
    alarm: str = "", unfolded: bool = False,
) -> str:  # fmt: skip
    """Return the page itself; see :func:`write_page`."""
    body = "".join(_section(section, f"s{number}", unfolded) for number, section in enumerate(sections, start=1))
    # Neighbours that are half as wide as the page.
    half = r'(?:<section id="\w+" class="half">.*?</section>\n){2}'
    body = re.sub(half, r'<div class="pair">\g<0></div>\n', body, flags=re.DOTALL)
    links = "".join(f'<a href="#s{n}">{escape(section.heading)}</a> ' for n, section in enumerate(sections, start=1))
    top = f'<h1>{escape(title)}</h1>\n<p class="facts">{escape(facts)}</p>\n'
    if alarm:
        top += f'<p class="alarm" role="alert">{escape(alarm)}</p>\n'
    if tiles:
        top += f'<ul class="tiles">{"".join(map(_tile, tiles))}</ul>\n'
    if about:
        top += f'<p class="about">{escape(about)}</p>\n'
    if len(sections) > 3:
        top += f'<nav aria-label="parts of this page">{links}</nav>\n'
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">'
        f'<link rel="icon" href="data:,"><style>{STYLE}</style></head>\n'
        f"<body>{top}{body}<script>{SCRIPT}</script></body></html>\n"
    )


def _tile(tile: Tile) -> str:
    return f'<li class="{tile.mood}"><b>{escape(tile.value)}</b> <span>{escape(tile.label)}</span></li>'


def _section(section: Section, anchor: str, unfolded: bool) -> str:
    text = f"<p>{escape(section.text)}</p>\n" if section.text else ""
    text += _verdicts(section.verdicts)
    text += _figures(section.pictures)
    if section.steps:
        text += _steps(section)
    text += _table(section.table)
    if section.folded or section.folded_table:
        inner = _figures(section.folded) + _table(section.folded_table)
        opened = " open" if unfolded else ""
        text += f"<details{opened}><summary>{escape(section.fold)}</summary>\n{inner}</details>\n"
    kind = ' class="half"' if section.half else ""
    return f'<section id="{anchor}"{kind}><h2>{escape(section.heading)}</h2>\n{text}</section>\n'


def _figures(pictures: Sequence[Picture]) -> str:
    if not pictures:
        return ""
    return f'<div class="figures">{"".join(_picture(picture) for picture in pictures)}</div>\n'


def _picture(picture: Picture, more: str = "") -> str:
    if picture.source.startswith("<svg"):
        # Letters would vanish if a wide one shrank to the width of a phone: it scrolls in its own box.
        broad = " broad" if picture.width > _BROAD and not picture.narrow else ""
        shown = f'<div class="wide{broad}">{picture.source}</div>'
        if picture.narrow:
            shown = f'<div class="either">{shown}<div class="narrow">{picture.narrow}</div></div>'
    else:
        shown = f'<img src="{escape(picture.source)}" alt="{escape(picture.alt)}" width="{picture.width}">'
    if picture.moment:
        shown += (
            '<label class="slider"><span>a moment of the run</span>'
            f'<input type="range" class="moment" min="0" max="{picture.moment:.4f}" value="{picture.moment:.4f}" step="any">'
            "<output>the whole run</output></label>"
        )
    caption = f"<figcaption>{escape(picture.caption)}</figcaption>" if picture.caption else ""
    return f'<figure style="max-width:{picture.width}px"{more}>{shown}{caption}</figure>\n'


def _steps(section: Section) -> str:
    n = len(section.steps)
    shown = "".join(_picture(picture, ' class="step"') for picture in section.steps)
    if n == 1:
        return f'<div class="figures">{shown}</div>\n'
    return (
        f'<div class="steps"><label class="slider"><span>{escape(section.step)}</span>'
        f'<input type="range" class="choose" min="1" max="{n}" value="{n}" step="1"><output>{n} of {n}</output></label>'
        f"{shown}</div>\n"
    )


def _verdicts(verdicts: Sequence[tuple[bool, str, str]]) -> str:
    if not verdicts:
        return ""
    rows = "".join(
        f'<tr class="{"good" if held else "bad"}"><td>{"✓ held" if held else "✗ did not hold"}</td><td>{escape(what)}</td>'
        f"<td>{escape(found)}</td></tr>\n"
        for held, what, found in verdicts
    )
    head = "<thead><tr><th></th><th>expected</th><th>found</th></tr></thead>"
    return f'<div class="table verdicts"><table>{head}<tbody>{rows}</tbody></table></div>\n'


def _table(rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>\n" for row in rows[1:])
    # Words at the end of a row go on below; numbers stand beside each other and scroll.
    said = " said" if rows[0][-1] in _WORDS else ""
    return f'<div class="table{said}"><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>\n'
