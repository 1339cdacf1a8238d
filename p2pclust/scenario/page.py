"""``report.html``: one page with everything in it, to be opened, mailed or kept without anything beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from p2pclust.scenario.report import write_text

__all__ = ["Picture", "Section", "write_page"]

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 70rem; margin: 2rem auto;
       padding: 0 1rem }
h1 { font-size: 1.5rem; margin-bottom: 0.2rem } h2 { font-size: 1.15rem; margin: 2rem 0 0.3rem }
p { margin: 0.3rem 0; max-width: 52rem } .facts { color: #666 }
figure { margin: 0.8rem 0 1.6rem } img { max-width: 100%; height: auto; display: block }
figcaption { color: #444; font-size: 0.9rem; max-width: 52rem }
details { margin: 0.5rem 0 } summary { cursor: pointer; color: #225 }
.table { overflow-x: auto; margin: 0.6rem 0 } table { border-collapse: collapse; font-size: 0.85rem }
th, td { padding: 0.15rem 0.7rem 0.15rem 0; text-align: left; vertical-align: top; white-space: nowrap }
th { border-bottom: 1px solid #999; font-weight: 600 } tbody tr:nth-child(even) { background: #f6f6f6 }
"""


@dataclass(frozen=True)
class Picture:
    """A picture and what it shows.

    Parameters
    ----------
    source : str
        An address that holds the whole picture.
    caption : str
    alt : str
        In its place, for whoever cannot see it.
    width : int
        In pixels, where the page is that wide.
    """

    source: str
    caption: str
    alt: str
    width: int


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Parameters
    ----------
    heading : str
    text : str
    pictures : sequence of Picture
    folded : sequence of Picture
        Shown when somebody asks for them.
    fold : str
        What the folded ones are called.
    table, folded_table : sequence of rows of str
        The first row has the headings; the latter is shown when somebody asks for it.
    """

    heading: str
    text: str = ""
    pictures: Sequence[Picture] = ()
    folded: Sequence[Picture] = ()
    fold: str = "more"
    table: Sequence[Sequence[str]] = ()
    folded_table: Sequence[Sequence[str]] = ()


def write_page(directory: Path, title: str, facts: str, sections: Sequence[Section]) -> None:
    """Write ``report.html``.

    Parameters
    ----------
    directory : Path
    title : str
    facts : str
        One line below it.
    sections : sequence of Section
    """
    body = "".join(_section(section) for section in sections)
    write_text(
        directory / "report.html",
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>\n'
        f'<body><h1>{escape(title)}</h1>\n<p class="facts">{escape(facts)}</p>\n{body}</body></html>\n',
    )


def _section(section: Section) -> str:
    text = f"<p>{escape(section.text)}</p>\n" if section.text else ""
    text += "".join(_picture(picture) for picture in section.pictures)
    text += _table(section.table)
    if section.folded or section.folded_table:
        inner = "".join(_picture(picture) for picture in section.folded) + _table(section.folded_table)
        text += f"<details><summary>{escape(section.fold)}</summary>\n{inner}</details>\n"
    return f"<section><h2>{escape(section.heading)}</h2>\n{text}</section>\n"


def _picture(picture: Picture) -> str:
    return (
        f'<figure><img src="{escape(picture.source)}" alt="{escape(picture.alt)}" width="{picture.width}">'
        f"<figcaption>{escape(picture.caption)}</figcaption></figure>\n"
    )


def _table(rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>\n" for row in rows[1:])
    return f'<div class="table"><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>\n'
