"""The classes of a reproduction: set-up, experiment, findings, claim, table; and the numbers that the papers print."""

from __future__ import annotations

import itertools
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from p2pclust.peer.core.structs import Struct

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The result of one repetition: a number, or one number per round.
Value = float | list[float]
#: By row, then by measure.
Values = dict[str, dict[str, Value]]


class Setup(Struct):
    """One configuration that is repeated."""

    name: str  # also part of the name of its random stream: a set-up draws the same numbers independently of others
    #: Does one repetition: ``repeat(rng, peers, quick=...)``, where `rng` is a Generator, the only source of randomness,
    #: `peers` a `Peers`, and `quick` means fewer rows, rounds or peers.
    repeat: Callable[..., Values]
    needs: str = ""  # the registered data set without which it is skipped; empty if its data are generated
    #: The name of its random stream, where that is not its own: set-ups that share one draw the same data and peers, so
    #: that they can be compared pair by pair.
    draws: str = ""


class Experiment(Struct):
    """A source of numbers, which several tables may share."""

    id: str
    setups: Callable[[], Sequence[Setup]]
    #: One repetition takes so long that it is kept in the output directory, and found there by a later run.
    keeps: bool = False


class Findings:
    """The results of all repetitions.

    Examples
    --------
    >>> found = Findings()
    >>> for repetition, ari in enumerate([0.8, 1.0]):
    ...     found.add(repetition, {"xclara": {"ari": ari}})
    >>> found.mean("xclara", "ari"), round(found.sd("xclara", "ari"), 3)
    (0.9, 0.141)
    """

    def __init__(self) -> None:
        self._samples: dict[str, dict[str, dict[int, Value]]] = {}

    def add(self, repetition: int, values: Values) -> None:
        """Add the values of one repetition; repetitions may come in any order."""
        for row, measures in values.items():
            for measure, value in measures.items():
                self._samples.setdefault(row, {}).setdefault(measure, {})[repetition] = value

    def has(self, row: str, *measures: str) -> bool:
        """Whether all of these were measured."""
        return all(measure in self._samples.get(row, {}) for measure in measures)

    @property
    def rows(self) -> tuple[str, ...]:
        """The rows that were measured, in alphabetical order, numbers in theirs."""
        return tuple(sorted(self._samples, key=_natural))

    def renamed(self, rows: Mapping[str, str]) -> Findings:
        """Return only these rows, under other names, because two tables may name the same row differently.

        Examples
        --------
        >>> found = Findings()
        >>> found.add(0, {"usual": {"acc": 0.9}})
        >>> found.renamed({"usual": "α 75"}).mean("α 75", "acc")
        0.9
        """
        other = Findings()
        other._samples = {name: self._samples[row] for row, name in rows.items() if row in self._samples}
        return other

    def measures(self, row: str) -> tuple[str, ...]:
        """What was measured of a row, in alphabetical order."""
        return tuple(sorted(self._samples.get(row, {})))

    def ci(self, row: str, measure: str) -> float:
        """Return half the 95 % confidence interval of the mean (Student's t), NaN if there is only one repetition."""
        from scipy.stats import t  # noqa: PLC0415 - so that listing the tables stays light

        count = self.samples(row, measure).size
        if count < 2:
            return math.nan
        return float(t.ppf(0.975, count - 1)) * self.sd(row, measure) / math.sqrt(count)

    def samples(self, row: str, measure: str) -> NDArray[np.float64]:
        """Return one number per repetition, in their order."""
        return np.array([value for _, value in sorted(self._samples[row][measure].items())], dtype=np.float64)

    def points(
        self, rows: Mapping[int, str] | Mapping[float, str], measure: str, spread: str = "sd"
    ) -> list[list[float]]:
        """Return three lists: the key, the mean and the spread ("sd" or "ci") of each row that was measured."""
        known = {key: row for key, row in rows.items() if self.has(row, measure)}
        spreads = [getattr(self, spread)(row, measure) for row in known.values()]
        return [list(known), [self.mean(row, measure) for row in known.values()], spreads]

    def curves(self, row: str, measure: str) -> NDArray[np.float64]:
        """Return curves as a matrix, one row per repetition; those that ended early are filled up with NaN."""
        by_repetition = self._samples[row][measure]
        curves = [np.atleast_1d(np.array(by_repetition[n], dtype=np.float64)) for n in sorted(by_repetition)]
        longest = max(curve.size for curve in curves)
        return np.array([np.concatenate([curve, np.full(longest - curve.size, np.nan)]) for curve in curves])

    def all_curves(self, rows: Mapping[str, str], measure: str) -> dict[str, NDArray[np.float64]]:
        """Return the curves of each row that has them, by its label."""
        return {label: self.curves(row, measure) for label, row in rows.items() if self.has(row, measure)}

    def by_groups(self, series: Mapping[str, Sequence[str]], measure: str) -> dict[str, dict[int, tuple[float, float]]]:
        """Return mean and deviation of the rows of each series that are finite, by their place in the series."""
        return {
            name: {
                place: (self.mean(row, measure), self.sd(row, measure))
                for place, row in enumerate(rows)
                if self.has(row, measure) and np.isfinite(self.samples(row, measure)).all()
            }
            for name, rows in series.items()
        }

    def is_curve(self, row: str, measure: str) -> bool:
        """Whether there is one number per round."""
        return any(isinstance(value, list) for value in self._samples[row][measure].values())

    def mean(self, row: str, measure: str) -> float:
        return float(self.samples(row, measure).mean())

    def median(self, row: str, measure: str) -> float:
        return float(np.median(self.samples(row, measure)))

    def sd(self, row: str, measure: str) -> float:
        """Return the standard deviation of one repetition (dividing by n - 1), NaN if there is only one."""
        samples = self.samples(row, measure)
        if samples.size < 2 or not np.isfinite(samples).all():
            return math.nan
        return float(samples.std(ddof=1))


def _natural(name: str) -> list[tuple[str, float]]:
    """Split a name into pairs of text and the number that follows it, so that "d 16" comes before "d 128"."""
    parts = [*re.split(r"(\d+(?:\.\d+)?)", name), "0"]
    return [(text, float(number)) for text, number in zip(parts[0::2], parts[1::2], strict=True)]


class Claim(Struct):
    """Something that must hold; with `what` alone, one whose rows were not measured."""

    what: str  # in one line, with the bound
    value: str = "not measured"
    held: bool | None = None
    always: bool = False  # whether it must hold however little was measured: a quick run decides only these


class Table(Struct):
    """A published table or figure; what it shows, with which headings, stands beside its numbers: see `published`."""

    id: str
    experiment: Experiment
    claims: Callable[[Findings], Iterable[Claim]]
    draw: Callable[[Figure, Findings], None]
    wanted: Callable[[str], bool] = lambda name: True  # whether the table needs a set-up, by its name
    quick: Callable[[str], bool] = lambda name: True  # whether a quick run does one of these, too
    #: Makes the rows that are shown, if they are other than those that are measured.
    summary: Callable[[Findings], Findings] = lambda found: found
    repeats: int = 10  # as in the paper
    quick_repeats: int = 2
    #: Whether the paper's spreads are 95 % confidence intervals of means; else they are standard deviations of one
    #: repetition. So are those shown next to them.
    interval: bool = False

    @property
    def source(self) -> Source:
        return published(self.id)

    def setups(self, *, quick: bool) -> Sequence[Setup]:
        """Return the set-ups that the table needs; in a quick run, a part of them."""
        wanted = [setup for setup in self.experiment.setups() if self.wanted(setup.name)]
        return [setup for setup in wanted if self.quick(setup.name)] if quick else wanted


def about_means(
    found: Findings, what: str, rows: Sequence[str], measure: str, holds: Callable[..., bool],
    *, digits: int = 4, between: str = ", ",
) -> Claim:  # fmt: skip
    """Claim that `holds` is true of the means of these rows; undecided if one of them was not measured.

    >>> found = Findings()
    >>> found.add(0, {"fkm": {"ari": 0.9}, "k-fed": {"ari": 0.5}})
    >>> about_means(found, "fkm above k-fed", ["fkm", "k-fed"], "ari", lambda a, b: a > b)
    Claim(what='fkm above k-fed', value='0.9000, 0.5000', held=True, always=False)
    """
    if not all(found.has(row, measure) for row in rows):
        return Claim(what)
    means = [found.mean(row, measure) for row in rows]
    return Claim(what, between.join(f"{mean:.{digits}f}" for mean in means), holds(*means))


def rising(found: Findings, what: str, rows: Sequence[str], measure: str) -> Claim:
    """Claim that the means of rows rise strictly."""

    def holds(*means: float) -> bool:
        return all(a < b for a, b in itertools.pairwise(means))

    return about_means(found, what, rows, measure, holds, digits=3, between=" < ")


class Printed(Struct):
    """One number of a paper, and its standard deviation, or 95 % confidence interval, where that is known."""

    mean: float
    sd: float = math.nan
    ci: float = math.nan


class Source(Struct):
    """What is known of one table."""

    where: str  # it is printed: paper and place
    shows: str  # one line
    time: str  # that a full run takes on one core
    #: The measures that the table shows of each row, with their headings; curves are for the figure and the CSV only.
    measures: Mapping[str, str]
    numbers: Mapping[tuple[str, str], Printed]  # by row and measure


@cache
def published(table_id: str) -> Source:
    """Return what is known of a table, and its published numbers.

    A file holds blocks of one measure each, or of rows by measure: the name of a row is ``of`` (the algorithm), the key,
    and the column, with commas between. ``of`` may be a list: the number then belongs to each of these rows. Blocks
    without columns have those of the file. ``sd`` and ``ci`` hold spreads by key. A number that cannot be read in the
    paper's text is ``nan`` there, and left out here. A file that is ``like`` another has its numbers.

    Examples
    --------
    >>> published("000-table1").numbers["xclara, γ 0.25", "distance"].mean
    0.00893
    """
    text = resources.files(__package__).joinpath("published", f"{table_id}.toml").read_text(encoding="utf-8")
    document = tomllib.loads(text)
    numbers = dict(published(document["like"]).numbers) if "like" in document else {}
    for block in document.get("block", ()):
        of = block.get("of", "")
        columns, by_measure = block.get("columns") or document["columns"], block.get("by_measure")
        for measure, rows in (by_measure or {block.get("measure", ""): block["rows"]}).items():
            for key, (number, column) in itertools.product(rows, enumerate(columns)):
                mean = float(rows[key][number])
                if math.isnan(mean):
                    continue
                spreads = (block.get(name, {}).get(key) for name in ("sd", "ci"))
                sd, ci = (math.nan if own is None else float(own[number]) for own in spreads)
                for algorithm in of if isinstance(of, list) else [of]:
                    # Where a block has no measure, its columns are the measures.
                    row = (algorithm, key, column) if measure else (algorithm, key)
                    numbers[", ".join(filter(None, row)), measure or column] = Printed(mean, sd, ci)
    measures = MappingProxyType(document.get("measures", {}))
    return Source(document["where"], document["shows"], document["time"], measures, MappingProxyType(numbers))
