"""Stallmann, Wilbik: Towards Federated Clustering: A Federated Fuzzy c-Means Algorithm (FFCM), all four test cases.

In each repetition new data are drawn, and pooled fuzzy c-means and FFCM with both averages start from the same first
centers, drawn uniformly within the range of the data. The pooled algorithm and every local run stop when the memberships
are stable (``||dU||_F < 1e-4``), the rounds when the centers do (``||dC||_F < 1e-4``). avg_1 weighs by sums of u, as the
authors' code does; their equation 7 prints u^m.

The paper does not say what several of its numbers are; what follows reproduces them, and nothing else that was tried does:
"SSE" are plain distances, not squared ones; the gap of Table 4 is a mean over clusters and divided by sqrt(d), that of
Table 3 is the plain sum, and that of Table 5 is divided by sqrt(d). Case 1 has a standard deviation of 0.5, and its first
two peers hold the same rows, which count once in the pooled data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering import Points, local_fuzzy_c_means
from p2pclust.data.generate import absent_clusters, g2, hidden_clusters, unequal_clusters
from p2pclust.data.partition import split
from p2pclust.metrics import knowledge_gap, outside_sse, within_sse
from p2pclust.protocols.engine import summaries
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.reproduce.model import Claim, Experiment, Findings, Setup, Table, Value, Values
from p2pclust.reproduce.peers import Peers, seed_of
from p2pclust.reproduce.published import published

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "Cases",
    "FfcmFigure4",
    "FfcmTable2",
    "FfcmTable3",
    "FfcmTable4",
    "FfcmTable5",
    "G2Sets",
]

Floats = NDArray[np.float64]
Normalised = bool | Literal["per-cluster"]

METHODS = ("pooled", "avg_1", "avg_2")
_AVERAGING = {"avg_1": "weighted", "avg_2": "kmeans"}
_CASE_3 = ((100, 1000, 100), (100, 1000, 1000), (1000, 100, 100), (1000, 1000, 1000))
_DIMENSIONS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_DEVIATIONS = tuple(range(10, 101, 10))
_G2_PEERS = 10


def compared(
    X: Floats,
    arrays: Sequence[Floats],
    true: Floats,
    rng: np.random.Generator,
    peers: Peers,
    *,
    fuzzifier: float,
    normalised: Normalised,
) -> dict[str, dict[str, Value]]:
    """Run pooled fuzzy c-means and FFCM with both averages, and measure each.

    Parameters
    ----------
    X : ndarray of shape (n, F)
        The pooled rows, on which everything is measured.
    arrays : sequence of ndarray
        The rows of each peer.
    true : ndarray of shape (C, F)
        The centers that the data were drawn around.
    rng, peers
    fuzzifier : float
        The paper's m.
    normalised : bool or "per-cluster"
        How the gap is divided, see `p2pclust.metrics.knowledge_gap`.

    Returns
    -------
    dict
        By method, then by measure.
    """
    lo, hi = X.min(axis=0), X.max(axis=0)
    first = lo + rng.random(true.shape) * (hi - lo)
    seed = seed_of(rng)
    points = Points(X)
    centers = {"pooled": local_fuzzy_c_means(points, first, fuzzifier, tol=1e-4, max_steps=1000).centers}
    for name, averaging in _AVERAGING.items():
        options: dict[str, Any] = {"support": "u"} if name == "avg_1" else {}
        job = cluster_job(
            "ffcm", n_clusters=len(true), init=first, fuzzifier=fuzzifier, averaging=averaging, seed=seed, **options
        )
        centers[name] = summaries.raw_centers(peers.run(job, arrays))
    return {
        name: {
            "gap": knowledge_gap(true, found, normalised=normalised),
            "wsse": within_sse(points, found),
            "osse": outside_sse(points, found),
        }
        for name, found in centers.items()
    }


class Cases(Experiment):
    """Cases 1, 2 and 3: data by peer as the paper deals them."""

    id = "ffcm-cases"

    def setups(self) -> Sequence[Setup]:
        made = [Setup("case 1", options={"fuzzifier": 2.0}), Setup("case 2", options={"fuzzifier": 1.1})]
        return made + [Setup(_rows_name(rows), options={"fuzzifier": 2.0, "rows": rows}) for rows in _CASE_3]

    def repeat(self, setup: Setup, rng: np.random.Generator, peers: Peers, *, quick: bool) -> Values:
        data_seed = int(rng.integers(2**31))
        normalised: Normalised = False
        if setup.name == "case 1":
            data, true = unequal_clusters(seed=data_seed), [[-2.0, -2.0], [0.0, 0.0], [2.0, 2.0]]
        elif setup.name == "case 2":
            data, true = hidden_clusters(seed=data_seed), [[5.0, 0.0], [5.0, 10.0], [10.0, 10.0]]
        else:
            rows: tuple[int, ...] = setup.options["rows"]
            data = absent_clusters(rows=rows, seed=data_seed)
            true, normalised = [[0.0, 0.0], [0.0, 10.0], [10.0, 10.0], [10.0, 0.0]], "per-cluster"
        assert data.group is not None
        arrays = [data.X[data.group == peer] for peer in range(int(data.group.max()) + 1)]
        X = data.X
        if setup.name == "case 1":
            # "Client 1 and client 2 have the same data", and the union of all data holds each row once.
            arrays[1] = arrays[0]
            X = np.concatenate([arrays[0], arrays[2]])
        fuzzifier: float = setup.options["fuzzifier"]
        found = compared(X, arrays, np.array(true), rng, peers, fuzzifier=fuzzifier, normalised=normalised)
        # Cases 1 and 2 are one table each, and their rows are the methods alone.
        suffix = f", {setup.name}" if "rows" in setup.options else f" ({setup.name})"
        return {name + suffix: values for name, values in found.items()}


def _rows_name(rows: Iterable[int]) -> str:
    return "+".join(map(str, rows))


class G2Sets(Experiment):
    """Case 4: a hundred sets, rows dealt evenly to ten peers."""

    id = "ffcm-g2"

    def setups(self) -> Sequence[Setup]:
        return [
            Setup(f"d {dimension}, σ {sd}", options={"dimension": dimension, "sd": float(sd)})
            for dimension in _DIMENSIONS
            for sd in _DEVIATIONS
        ]

    def repeat(self, setup: Setup, rng: np.random.Generator, peers: Peers, *, quick: bool) -> Values:
        options: dict[str, Any] = dict(setup.options)
        # One set, as in the papers' repository: what is repeated is the dealing and the first centers.
        data = g2(**options, seed=0)
        if quick:
            data = data.take(np.arange(0, 2048, 4))
        dimension: int = options["dimension"]
        true = np.array([np.full(dimension, 500.0), np.full(dimension, 600.0)])
        parts = split(None, data.n_rows, _G2_PEERS, "iid", rng)
        arrays = [data.X[rows] for rows in parts]
        found = compared(data.X, arrays, true, rng, peers, fuzzifier=2.0, normalised=True)
        return {f"{name}, {setup.name}": values for name, values in found.items()}


class _OneCase(Table):
    """A table over one of the first two cases: its rows are the methods."""

    case: ClassVar[str]
    experiment = Cases()

    def setups(self, *, quick: bool) -> Sequence[Setup]:
        return [setup for setup in self.experiment.setups() if setup.name == self.case]

    def row(self, method: str) -> str:
        """Return the row of a method."""
        return f"{method} ({self.case})"

    def draw(self, figure: Figure, found: Findings) -> None:
        for number, (measure, title) in enumerate(self.measures.items(), start=1):
            axes = figure.add_subplot(1, len(self.measures), number)
            rows = [self.row(method) for method in METHODS]
            axes.boxplot([found.samples(row, measure) for row in rows])
            axes.set_xticks(range(1, len(METHODS) + 1), METHODS)
            for place, row in enumerate(rows, start=1):
                axes.plot([place], [published(self.id).numbers[row, measure].mean], "k*")
            axes.set_title(f"{title} (star: the paper)")


class FfcmTable2(_OneCase):
    """Case 1: three clusters, one of which a peer lacks."""

    id = "001-table2"
    shows = "ffcm, case 1: within and outside SSE where one peer lacks a cluster"
    time = "2 s"
    case = "case 1"
    measures: ClassVar[Mapping[str, str]] = {"wsse": "within SSE", "osse": "outside SSE"}

    def claims(self, found: Findings) -> Iterable[Claim]:
        for method in ("pooled", "avg_2"):
            for measure in self.measures:
                yield near(found, self.row(method), measure, published(self.id).numbers[self.row(method), measure].mean)


class FfcmTable3(_OneCase):
    """Case 2: a cluster that only shows when the data are seen together."""

    id = "001-table3"
    shows = "ffcm, case 2: distance to the true centers where a cluster is hidden"
    time = "2 s"
    case = "case 2"
    measures: ClassVar[Mapping[str, str]] = {"gap": "gap", "wsse": "within SSE", "osse": "outside SSE"}

    def claims(self, found: Findings) -> Iterable[Claim]:
        what = "the median gap of avg_2 is below that of the pooled algorithm and of avg_1"
        if not all(found.has(self.row(method), "gap") for method in METHODS):
            yield Claim(what, "not measured", None)
            return
        medians = {method: found.median(self.row(method), "gap") for method in METHODS}
        values = ", ".join(f"{method} {median:.2f}" for method, median in medians.items())
        yield Claim(what, values, medians["avg_2"] < min(medians["pooled"], medians["avg_1"]))


class FfcmTable4(Table):
    """Case 3: each of three peers has two of four clusters."""

    id = "001-table4"
    shows = "ffcm, case 3: distance to the true centers where clusters are locally absent"
    time = "40 s"
    experiment = Cases()
    measures: ClassVar[Mapping[str, str]] = {"gap": "gap / (K √d)", "wsse": "within SSE", "osse": "outside SSE"}

    def setups(self, *, quick: bool) -> Sequence[Setup]:
        wanted = [setup for setup in self.experiment.setups() if "rows" in setup.options]
        return wanted[:1] if quick else wanted

    def claims(self, found: Findings) -> Iterable[Claim]:
        for rows in map(_rows_name, _CASE_3):
            what = f"{rows}: the gap of avg_2 is below 0.15, and below that of avg_1"
            if not found.has(f"avg_2, {rows}", "gap"):
                yield Claim(what, "not measured", None)
                continue
            second, first = (found.mean(f"{method}, {rows}", "gap") for method in ("avg_2", "avg_1"))
            yield Claim(what, f"{second:.4f}, {first:.4f}", second < 0.15 and second < first)

    def draw(self, figure: Figure, found: Findings) -> None:
        axes = figure.add_subplot()
        names = [name for name in map(_rows_name, _CASE_3) if found.has(f"avg_2, {name}", "gap")]
        for place, method in enumerate(METHODS):
            rows = [f"{method}, {name}" for name in names]
            means, spreads = ([getattr(found, what)(row, "gap") for row in rows] for what in ("mean", "sd"))
            places = [number + (place - 1) * 0.27 for number in range(len(names))]
            axes.bar(places, means, 0.27, yerr=np.nan_to_num(spreads), label=method)
        axes.set_xticks(range(len(names)), names)
        axes.set(yscale="log", ylabel="gap / (K √d)", xlabel="rows of each peer")
        axes.legend()


class _OverG2(Table):
    """What Table 5 and Figure 4 share: the hundred sets, of which a quick run takes a few small ones."""

    experiment = G2Sets()

    def setups(self, *, quick: bool) -> Sequence[Setup]:
        return [
            setup
            for setup in self.experiment.setups()
            if not quick or (setup.options["dimension"] in (2, 16) and setup.options["sd"] in (10.0, 50.0))
        ]


def gap_statistics(found: Findings, method: str, measure: str = "gap") -> dict[str, float]:
    """Return Table 5's statistics of a method over the sets; of each set, the mean over its repetitions."""
    rows = [row for row in found.rows if row.startswith(f"{method}, d ")]
    gaps = np.array([found.mean(row, measure) for row in rows])
    if not gaps.size:
        return {}
    quarters = np.quantile(gaps, [0.25, 0.5, 0.75])
    names = ("25 % quantile", "median", "75 % quantile")
    return dict(zip(names, quarters.tolist(), strict=True)) | {
        "least": float(gaps.min()),
        "greatest": float(gaps.max()),
    }


class FfcmTable5(_OverG2):
    """Statistics of the gap over the hundred sets."""

    id = "001-table5"
    shows = "ffcm, case 4: distance to the true centers over a hundred G2 sets"
    time = "4 min"
    measures: ClassVar[Mapping[str, str]] = {
        name: name for name in ("25 % quantile", "median", "75 % quantile", "least", "greatest")
    }

    def summary(self, found: Findings) -> Findings:
        together = Findings()
        for method in METHODS:
            together.add(0, {method: dict(gap_statistics(found, method))})
        return together

    def claims(self, found: Findings) -> Iterable[Claim]:
        for method in METHODS:
            what = f"{method}: the median over the 100 sets within 0.15 of 9.0"
            statistics = gap_statistics(found, method)
            n_sets = sum(row.startswith(f"{method}, d ") for row in found.rows)
            if n_sets < len(_DIMENSIONS) * len(_DEVIATIONS):
                yield Claim(what, "not measured", None)
                continue
            yield Claim(what, f"{statistics['median']:.3f}", abs(statistics["median"] - 9.0) <= 0.15)

    def draw(self, figure: Figure, found: Findings) -> None:
        axes = figure.add_subplot()
        for method in METHODS:
            gaps = sorted(found.mean(row, "gap") for row in found.rows if row.startswith(f"{method}, d "))
            axes.step(gaps, np.arange(1, len(gaps) + 1) / len(gaps), where="post", label=method)
        axes.set(xscale="log", xlabel="gap / √d", ylabel="share of the sets", title="gap over the G2 sets")
        axes.legend()


class FfcmFigure4(_OverG2):
    """Gap by standard deviation, outside SSE by dimension."""

    id = "001-figure4"
    shows = "ffcm, case 4: gap by standard deviation, outside SSE by dimension"
    time = "4 min"
    measures: ClassVar[Mapping[str, str]] = {"gap": "gap / √d", "osse": "outside SSE"}

    def summary(self, found: Findings) -> Findings:
        together = Findings()
        for method in METHODS:
            for part, measure in (("σ", "gap"), ("d", "osse")):
                for value, mean in self._means(found, method, part, measure).items():
                    together.add(0, {f"{method}, {part} {value}": {measure: mean}})
        return together

    def claims(self, found: Findings) -> Iterable[Claim]:
        for method in METHODS:
            gaps = self._means(found, method, "σ", "gap")
            outside = self._means(found, method, "d", "osse")
            what = f"{method}: the gap grows from σ = 10 to 100, outside SSE falls from dimension 2 to 1024"
            if 100 not in gaps or 1024 not in outside:
                yield Claim(what, "not measured", None)
                continue
            values = f"{gaps[10]:.2f} to {gaps[100]:.2f}, {outside[2]:.1f} to {outside[1024]:.1f}"
            yield Claim(what, values, gaps[100] > gaps[10] and outside[1024] < outside[2])

    def draw(self, figure: Figure, found: Findings) -> None:
        for number, (part, measure, label) in enumerate(
            (("σ", "gap", "gap / √d"), ("d", "osse", "outside SSE")), start=1
        ):
            axes = figure.add_subplot(1, 2, number)
            for method in METHODS:
                means = self._means(found, method, part, measure)
                axes.plot(list(means), list(means.values()), marker="o", label=method)
            axes.set(xlabel="standard deviation" if part == "σ" else "dimension", ylabel=label)
            if part == "d":
                axes.set_xscale("log", base=2)
            axes.legend()

    @staticmethod
    def _means(found: Findings, method: str, part: str, measure: str) -> dict[int, float]:
        """Return the mean of a measure for each standard deviation (σ) or dimension (d)."""
        grouped: dict[int, list[float]] = {}
        for row in found.rows:
            if not row.startswith(f"{method}, d "):
                continue
            _, dimension, deviation = row.split(", ")
            value = int((deviation if part == "σ" else dimension).split()[1])
            grouped.setdefault(value, []).append(found.mean(row, measure))
        return {value: float(np.mean(means)) for value, means in sorted(grouped.items())}


def near(found: Findings, row: str, measure: str, paper: float, within: float = 0.02) -> Claim:
    """Claim that a mean is as near to the paper's number as this."""
    what = f"{row}: {measure} within {within:g} of {paper:g}"
    if not found.has(row, measure):
        return Claim(what, "not measured", None)
    mean, sd = found.mean(row, measure), found.sd(row, measure)
    return Claim(what, f"{mean:.4f} ± {sd:.4f}", abs(mean - paper) <= within)
