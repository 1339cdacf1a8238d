"""The description of a table for people and programs: what the last state of a job `describe` says of each column."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from p2pclust.errors import UsageError
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.measuring.describe import HIDDEN, QUARTILES, Describe

Table = list[list[str]]

_HIDDEN: Final = "-"
_DIGITS: Final = 6  # of a value for people
_OF_A_DEVIATION: Final = 3  # digits of the deviation that are shown, beside a large offset
_MOST_DIGITS: Final = 16


class HistogramCell(NamedTuple):
    """The rows between two values; the first and the last cell of a histogram also hold the rows beyond its ends."""

    low: float
    high: float
    rows: int


class CategoryCount(NamedTuple):
    """The rows with one value of a category; None if they are hidden."""

    value: str
    rows: int | None


class FoundQuantile(NamedTuple):
    """The value of a row below or at which this share of the rows lie; None if it is hidden."""

    share: float
    value: float | None


@dataclass(frozen=True)
class DescribedColumn:
    """One column of a table. None stands for what is hidden because fewer than ``min_cell`` rows are behind it.

    Attributes
    ----------
    name : str
    rows, missing : int
        The rows with a value in it, and those without.
    mean, standard_deviation : float or None
        Of a column of numbers; the deviation divides by the number of rows.
    smallest, largest : float or None
        After the ``min_cell`` most extreme rows at each end.
    quantiles : tuple of FoundQuantile
        The quartiles first; each is the value of a row, that of rank ceil(q n).
    histogram : tuple of HistogramCell
    values : tuple of CategoryCount
        Of a category: its values, as the job's schema has them, otherwise numbered from 0.
    other_values : int
        The rows of all hidden values together.
    """

    name: str
    rows: int
    missing: int
    mean: float | None = None
    standard_deviation: float | None = None
    smallest: float | None = None
    largest: float | None = None
    quantiles: tuple[FoundQuantile, ...] = ()
    histogram: tuple[HistogramCell, ...] = ()
    values: tuple[CategoryCount, ...] = ()
    other_values: int = 0


@dataclass(frozen=True)
class Description:
    """The description of a fleet's table.

    Attributes
    ----------
    rows : int
        Of all peers that contributed.
    min_cell : int
        What fewer rows are behind is hidden or merged with its neighbour.
    secured : bool
        Whether the job had secure sums: if not, the aggregator saw what each peer added.
    columns : tuple of DescribedColumn
    correlations : tuple of tuple of float or None
        Pearson's, of each two columns over the rows that have a value in both; None of a category, of a column that does
        not vary, and of fewer than ``min_cell`` rows.
    """

    rows: int
    min_cell: int
    secured: bool
    columns: tuple[DescribedColumn, ...]
    correlations: tuple[tuple[float | None, ...], ...]

    @classmethod
    def of(cls, job: Job, state: JobState, names: Sequence[str] = ()) -> Description:
        """Return the description that a job ended with; `names` are those of the columns of a job without
        a schema, by default x1, x2, ...

        Raises
        ------
        UsageError
            If the job is not one of the protocol `describe`, or is not done.
        """
        protocol, arrays = job.protocols[job.main], state.arrays
        if not isinstance(protocol, Describe) or state.status != "done":
            raise UsageError(f"the job has described nothing: {state.reason or 'submit the protocol describe'}")
        n_columns = arrays["present"].size
        names = names if job.schema is None else job.schema.names
        called = names if len(names) == n_columns else [f"x{number}" for number in range(1, n_columns + 1)]
        words = [()] * n_columns if job.schema is None else job.schema.words
        found = tuple(_column(protocol, state, number, name, words[number]) for number, name in enumerate(called))
        pairs = zip(arrays["correlations"].tolist(), arrays["correlated"].tolist(), strict=True)
        correlations = tuple(
            tuple(value if known else None for value, known in zip(*of_column, strict=True)) for of_column in pairs
        )
        return cls(int(arrays["rows"]), protocol.min_cell, state.secured is not None, found, correlations)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as ``--json`` prints them."""
        columns = [
            asdict(column)
            | {
                "quantiles": [one._asdict() for one in column.quantiles],
                "histogram": [cell._asdict() for cell in column.histogram],
                "values": [one._asdict() for one in column.values],
            }
            for column in self.columns
        ]
        return {**asdict(self), "columns": columns}

    @property
    def numbers(self) -> tuple[int, ...]:
        """The places of the columns of numbers."""
        return tuple(number for number, column in enumerate(self.columns) if not column.values)

    def summary_table(self) -> Table:
        """Return a line of text for each column of numbers, with headings first."""
        shares = [one.share for one in self.columns[self.numbers[0]].quantiles] if self.numbers else []
        order = sorted(range(len(shares)), key=lambda place: shares[place])
        named = [_share_in_words(shares[place]) for place in order]
        table = [["column", "rows", "missing", "mean", "deviation", "smallest", *named, "largest"]]
        for column in (self.columns[number] for number in self.numbers):
            quantiles = [column.quantiles[place].value for place in order]
            deviation = column.standard_deviation
            mean, *others = alike([column.mean, column.smallest, *quantiles, column.largest], deviation)
            shown = _HIDDEN if deviation is None else f"{deviation:.{_DIGITS}g}"
            table.append([column.name, str(column.rows), str(column.missing), mean, shown, *others])
        return table

    def categories_table(self) -> Table:
        """Return a line of text for each value of each category, with headings first; only these without categories."""
        table = [["column", "value", "rows", "share"]]
        for column in self.columns:
            counts = [(one.value, one.rows) for one in column.values if one.rows is not None]
            hidden = len(column.values) - len(counts)
            counts += [(f"{hidden} others", column.other_values)] if hidden else []
            counts += [("missing", column.missing)] if column.values else []
            share_of = max(column.rows + column.missing, 1)
            table += [[column.name, value, str(rows), f"{rows / share_of:.1%}"] for value, rows in counts]
        return table

    def correlations_table(self) -> Table:
        """Return the correlations of the columns of numbers as text, with headings first; only these of a single column."""
        names = [self.columns[number].name for number in self.numbers]
        rows = (
            [[self.correlations[one][other] for other in self.numbers] for one in self.numbers]
            if len(names) > 1
            else []
        )
        shown = [[_HIDDEN if value is None else f"{value:.2f}" for value in row] for row in rows]
        return [["correlation", *names], *([name, *row] for name, row in zip(names, shown, strict=False))]

    def long_table(self) -> Iterator[list[str]]:
        """Yield all that is shown as lines of a CSV file: column, what, where it applies, value; headings first."""
        yield ["column", "what", "of", "to", "value"]
        for number, column in enumerate(self.columns):
            whole: list[tuple[str, float | int | None]] = [("rows", column.rows), ("missing", column.missing)]
            if number in self.numbers:
                whole += [
                    (name, getattr(column, name)) for name in ("mean", "standard_deviation", "smallest", "largest")
                ]
            yield from ([column.name, what, "", "", _exact(value)] for what, value in whole)
            yield from ([column.name, "quantile", repr(one.share), "", _exact(one.value)] for one in column.quantiles)
            for cell in column.histogram:
                yield [column.name, "cell", _exact(cell.low), _exact(cell.high), str(cell.rows)]
            yield from ([column.name, "value", one.value, "", _exact(one.rows)] for one in column.values)
            if column.values:
                yield [column.name, "other values", "", "", str(column.other_values)]
            for other in self.numbers if number in self.numbers else ():
                if other != number:
                    named = self.columns[other].name
                    yield [column.name, "correlation", named, "", _exact(self.correlations[number][other])]

    def in_words(self) -> str:
        """Return who sees what, in one line."""
        rule = "min_cell is below 2, so that values of single rows are shown"
        if (least := self.min_cell) > 1:
            rule = (
                f"smallest and largest are after the {least} most extreme rows at each end, and cells with fewer than "
                f"{least} rows are merged or hidden"
            )
        seen = "the totals of all peers" if self.secured else "what each peer adds"
        return f"{rule}; the aggregator sees {seen} before that"


def _column(
    protocol: Describe, state: JobState, number: int, name: str, words: Sequence[str]
) -> DescribedColumn:  # fmt: skip
    arrays = state.arrays
    rows = int(arrays["present"][number])
    missing = int(arrays["rows"]) - rows
    if protocol.levels and (level := protocol.levels[number]):
        counts = arrays["value_counts"][number, :level].tolist()
        called = words or [str(value) for value in range(level)]
        shown = (None if count == HIDDEN else count for count in counts)
        values = tuple(CategoryCount(*one) for one in zip(called, shown, strict=True))
        return DescribedColumn(name, rows, missing, values=values, other_values=int(arrays["other_values"][number]))
    found = [
        value if rank else None
        for value, rank in zip(
            arrays["quantiles"][:, number].tolist(), arrays["ranks"][:, number].tolist(), strict=True
        )
    ]
    shares = (*QUARTILES, *protocol.quantiles)
    quantiles = tuple(FoundQuantile(share, value) for share, value in zip(shares, found[:-2], strict=True))
    edges, counts = arrays["cell_edges"][number].tolist(), arrays["cells"][number].tolist()
    used = int(arrays["n_cells"][number])
    histogram = tuple(HistogramCell(edges[one], edges[one + 1], counts[one]) for one in range(used))
    mean, deviation = (
        (float(arrays[name][number]) for name in ("means", "standard_deviations"))
        if arrays["described"][number]
        else (None, None)
    )
    return DescribedColumn(name, rows, missing, mean, deviation, found[-2], found[-1], quantiles, histogram)


def _share_in_words(share: float) -> str:
    return "median" if share == 0.5 else f"{100 * share:g} %"


def alike(values: Sequence[float | None], deviation: float | None) -> list[str]:
    """Return values with as many digits as show how they differ, but six at least.

    >>> alike([1e12, 1e12 + 2.5, None], 1.0)
    ['1000000000000', '1000000000002.5', '-']
    """
    offset = max([abs(value) for value in values if value is not None], default=0.0)
    lost = math.log10(offset / deviation) if deviation and offset > deviation else 0.0
    digits = min(max(_DIGITS, math.ceil(lost) + _OF_A_DEVIATION), _MOST_DIGITS)
    return [_HIDDEN if value is None else f"{value:.{digits}g}" for value in values]


def _exact(value: float | None) -> str:
    return "" if value is None else repr(value)
