"""The part of ``report.html`` that shows what a job `describe` found: tables, and a small picture of each column."""

from __future__ import annotations

from typing import Final

from p2pclust.lab.pictures.bars import Bar, value_bars
from p2pclust.lab.pictures.drawing import Axis, Drawing
from p2pclust.lab.pictures.palette import CURVE, PAPER
from p2pclust.lab.scenario.page.page import Picture, Section, picture_of
from p2pclust.lab.scenario.page.story import JobStory
from p2pclust.protocols.measuring.description import DescribedColumn, Description, alike

_PICTURED: Final = 40  # columns; of others the tables and description.csv have the numbers
_FOLDED_FROM: Final = 16  # a table of correlations with more columns is folded
_WIDTH: Final = 320
_HEIGHT: Final = 190
_LONG: Final = 9  # letters of a tick


def description_sections(story: JobStory) -> list[Section]:
    """Return the sections: the columns of numbers, the categories, and the correlations, as far as there are any."""
    features = next(iter(story.run.shares.values())).feature_names
    found = Description.of(story.job, story.state, features)
    pictures = [_picture(column) for column in found.columns[:_PICTURED]]
    text = f"{found.rows:,} rows. {found.in_words().capitalize()}."
    summary, categories, correlations = found.summary_table(), found.categories_table(), found.correlations_table()
    sections = [
        Section(
            f"{story.prefix}The table", text, [one for one in pictures if one is not None],
            table=summary if len(summary) > 1 else (),
        )
    ]  # fmt: skip
    if len(categories) > 1:
        sections.append(Section(f"{story.prefix}Categories", table=categories))
    if len(correlations) > 1:
        few = len(correlations) <= _FOLDED_FROM
        words = "Pearson's correlation of each two columns of numbers, over the rows that have a value in both."
        sections.append(
            Section(
                f"{story.prefix}Correlations", words, table=correlations if few else (),
                folded_table=() if few else correlations, fold="the correlations as a table",
            )
        )  # fmt: skip
    return sections


def _picture(column: DescribedColumn) -> Picture | None:
    drawing = _categories(column) if column.values else _histogram(column)
    return None if drawing is None else picture_of(drawing, f"the values of {column.name}", "")


def _histogram(column: DescribedColumn) -> Drawing | None:
    """Draw a box for each cell, whose area is its rows; None where there is no histogram, or all of it is one value."""
    widths = [cell.high - cell.low for cell in column.histogram]
    if not widths or not min(widths) > 0.0:
        return None
    narrowest = min(widths)
    heights = [cell.rows * narrowest / width for cell, width in zip(column.histogram, widths, strict=True)]
    low, high = column.histogram[0].low, column.histogram[-1].high
    ends = alike([low, high], column.standard_deviation)
    long = max(map(len, ends)) > _LONG  # beside a large offset: more ticks would overlap
    across = Axis("", (low, high), [(low, ends[0]), (high, ends[1])] if long else None, most=4)
    drawing = Drawing(
        _WIDTH, _HEIGHT, column.name, across, Axis("", (0.0, 1.08 * max(heights) or 1.0), most=3, grid=True)
    )
    for cell, width, height in zip(column.histogram, widths, heights, strict=True):
        tip = f"{cell.low:.4g} to {cell.high:.4g}: {cell.rows:,} rows"
        drawing.boxes((cell.low, 0.0, width, height), CURVE, edge=PAPER, tip=tip)
    return drawing


def _categories(column: DescribedColumn) -> Drawing:
    counts = [(one.value, one.rows) for one in column.values if one.rows is not None]
    counts += [("others", column.other_values)] if column.other_values else []
    bars = [Bar(name, rows, f"{rows:,}", f"{column.name} = {name}: {rows:,} rows", CURVE) for name, rows in counts]
    return value_bars(bars, title=column.name)
