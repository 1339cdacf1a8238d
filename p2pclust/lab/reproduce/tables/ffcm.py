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

import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from p2pclust.clustering import Points, local_fuzzy_c_means
from p2pclust.data.generate import absent_clusters, g2, hidden_clusters, unequal_clusters
from p2pclust.data.partition import split
from p2pclust.lab.pictures.bars import mean_bars
from p2pclust.lab.reproduce.model import Claim, Experiment, Findings, Setup, Table, Values, about_means, published
from p2pclust.lab.reproduce.peers import Floats, Peers, seed_of
from p2pclust.metrics import knowledge_gap, outside_sse, within_sse
from p2pclust.protocols.engine import summaries
from p2pclust.protocols.engine.compose import cluster_job

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_METHODS = ("pooled", "avg_1", "avg_2")
_AVERAGING = {"avg_1": "weighted", "avg_2": "kmeans"}
_CASE_3 = {"+".join(map(str, rows)): rows for rows in (
    (100, 1000, 100), (100, 1000, 1000), (1000, 100, 100), (1000, 1000, 1000),
)}  # fmt: skip
_G2 = {f"d {2**power}, σ {sd}": (2**power, sd) for power in range(1, 11) for sd in range(10, 101, 10)}
_G2_PEERS = 10
_QUANTILES = {"25 % quantile": 0.25, "median": 0.5, "75 % quantile": 0.75, "least": 0.0, "greatest": 1.0}


def _compared(
    row: str, X: Floats, arrays: Sequence[Floats], true: Floats, rng: np.random.Generator, peers: Peers,
    *, fuzzifier: float = 2.0, normalised: bool | Literal["per-cluster"] = False,
) -> Values:  # fmt: skip
    """Run pooled fuzzy c-means and FFCM with both averages, and measure each on the pooled rows, X of shape (n, F).

    `row` is the name of a row, with {} for the method. `arrays` are the rows of each peer, `true` the centers that the data
    were drawn around, shape (C, F), `fuzzifier` is the paper's m, and `normalised` says how the gap is divided, see
    `p2pclust.metrics.knowledge_gap`.
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
        row.format(name): {
            "gap": knowledge_gap(true, found, normalised=normalised),
            "wsse": within_sse(points, found),
            "osse": outside_sse(points, found),
        }
        for name, found in centers.items()
    }


def _case_1(rng: np.random.Generator, peers: Peers, *, quick: bool) -> Values:
    first, _, third = (peer.X for peer in unequal_clusters(seed=int(rng.integers(2**31))).by_group())
    true = np.array([[-2.0, -2.0], [0.0, 0.0], [2.0, 2.0]])
    # "Client 1 and client 2 have the same data", and the union of all data holds each row once.
    return _compared("{} (case 1)", np.concatenate([first, third]), [first, first, third], true, rng, peers)


def _case_2(rng: np.random.Generator, peers: Peers, *, quick: bool) -> Values:
    data, true = hidden_clusters(seed=int(rng.integers(2**31))), np.array([[5.0, 0.0], [5.0, 10.0], [10.0, 10.0]])
    arrays = [peer.X for peer in data.by_group()]
    return _compared("{} (case 2)", data.X, arrays, true, rng, peers, fuzzifier=1.1)


def _case_3(setup: str, rng: np.random.Generator, peers: Peers, *, quick: bool) -> Values:
    data = absent_clusters(rows=_CASE_3[setup], seed=int(rng.integers(2**31)))
    true = np.array([[0.0, 0.0], [0.0, 10.0], [10.0, 10.0], [10.0, 0.0]])
    arrays = [peer.X for peer in data.by_group()]
    return _compared(f"{{}}, {setup}", data.X, arrays, true, rng, peers, normalised="per-cluster")


def _case_4(setup: str, rng: np.random.Generator, peers: Peers, *, quick: bool) -> Values:
    dimension, sd = _G2[setup]
    # One set, as in the papers' repository: what is repeated is the dealing and the first centers.
    data = g2(dimension=dimension, sd=float(sd), seed=0)
    if quick:
        data = data.take(np.arange(0, 2048, 4))
    true = np.array([np.full(dimension, 500.0), np.full(dimension, 600.0)])
    arrays = [data.X[rows] for rows in split(None, data.n_rows, _G2_PEERS, "iid", rng)]
    return _compared(f"{{}}, {setup}", data.X, arrays, true, rng, peers, normalised=True)


_CASES = Experiment(
    "ffcm-cases",
    lambda: [
        Setup("case 1", _case_1), Setup("case 2", _case_2), *(Setup(rows, partial(_case_3, rows)) for rows in _CASE_3),
    ],
)  # fmt: skip
_G2_SETS = Experiment("ffcm-g2", lambda: [Setup(name, partial(_case_4, name)) for name in _G2])


def _one_case(id: str, case: str, claims: Callable[[Findings], Iterable[Claim]]) -> Table:
    """Return a table of methods; its picture has a box for each, and the paper's number as a star."""

    def draw(figure: Figure, found: Findings) -> None:
        rows, source = [f"{method} ({case})" for method in _METHODS], published(id)
        for axes, (measure, title) in zip(
            figure.subplots(1, len(source.measures)), source.measures.items(), strict=True
        ):
            axes.boxplot([found.samples(row, measure) for row in rows])
            axes.set_xticks(range(1, len(_METHODS) + 1), _METHODS)
            for place, row in enumerate(rows, start=1):
                axes.plot([place], [source.numbers[row, measure].mean], "k*")
            axes.set_title(f"{title} (star: the paper)")

    return Table(id, _CASES, claims, draw, wanted=lambda name: name == case)


def _claims_of_table_2(found: Findings) -> Iterable[Claim]:
    for row, measure in itertools.product(("pooled (case 1)", "avg_2 (case 1)"), ("wsse", "osse")):
        paper = published("001-table2").numbers[row, measure].mean
        what = f"{row}: {measure} within 0.02 of {paper:g}"
        if found.has(row, measure):
            mean, sd = found.mean(row, measure), found.sd(row, measure)
            yield Claim(what, f"{mean:.4f} ± {sd:.4f}", abs(mean - paper) <= 0.02)
        else:
            yield Claim(what)


def _claims_of_table_3(found: Findings) -> Iterable[Claim]:
    what = "the median gap of avg_2 is below that of the pooled algorithm and of avg_1"
    if not all(found.has(f"{method} (case 2)", "gap") for method in _METHODS):
        return [Claim(what)]
    medians = {method: found.median(f"{method} (case 2)", "gap") for method in _METHODS}
    values = ", ".join(f"{method} {median:.2f}" for method, median in medians.items())
    return [Claim(what, values, medians["avg_2"] < min(medians["pooled"], medians["avg_1"]))]


def _claims_of_table_4(found: Findings) -> Iterable[Claim]:
    for rows in _CASE_3:
        what = f"{rows}: the gap of avg_2 is below 0.15, and below that of avg_1"
        both = [f"avg_2, {rows}", f"avg_1, {rows}"]
        yield about_means(found, what, both, "gap", lambda second, first: second < min(0.15, first))


def _draw_table_4(figure: Figure, found: Findings) -> None:
    axes = figure.add_subplot()
    names = [name for name in _CASE_3 if found.has(f"avg_2, {name}", "gap")]
    rows = {method: [f"{method}, {name}" for name in names] for method in _METHODS}
    mean_bars(axes, names, found.by_groups(rows, "gap"))
    axes.set(yscale="log", ylabel="gap / (K √d)", xlabel="rows of each peer")
    axes.legend()


def _gaps(found: Findings, method: str) -> list[float]:
    """Return the gap of each G2 set that was measured: the mean over its repetitions."""
    return [found.mean(f"{method}, {name}", "gap") for name in _G2 if found.has(f"{method}, {name}", "gap")]


def _summary_of_table_5(found: Findings) -> Findings:
    together = Findings()
    for method in _METHODS:
        if gaps := _gaps(found, method):
            together.add(0, {method: {name: float(np.quantile(gaps, at)) for name, at in _QUANTILES.items()}})
    return together


def _claims_of_table_5(found: Findings) -> Iterable[Claim]:
    for method in _METHODS:
        what = f"{method}: the median over the 100 sets within 0.15 of 9.0"
        gaps = _gaps(found, method)
        if len(gaps) < len(_G2):
            yield Claim(what)
            continue
        median = float(np.median(gaps))
        yield Claim(what, f"{median:.3f}", abs(median - 9.0) <= 0.15)


def _draw_table_5(figure: Figure, found: Findings) -> None:
    axes = figure.add_subplot()
    for method in _METHODS:
        gaps = sorted(_gaps(found, method))
        axes.step(gaps, np.arange(1, len(gaps) + 1) / len(gaps), where="post", label=method)
    axes.set(xscale="log", xlabel="gap / √d", ylabel="share of the sets", title="gap over the G2 sets")
    axes.legend()


def _means(found: Findings, method: str, measure: str) -> dict[int, float]:
    """Return the mean gap for each standard deviation, or the mean of another measure for each dimension."""
    grouped: dict[int, list[float]] = {}
    for name, (dimension, sd) in _G2.items():
        if found.has(f"{method}, {name}", measure):
            value = sd if measure == "gap" else dimension
            grouped.setdefault(value, []).append(found.mean(f"{method}, {name}", measure))
    return {value: float(np.mean(means)) for value, means in sorted(grouped.items())}


def _summary_of_figure_4(found: Findings) -> Findings:
    together = Findings()
    for method in _METHODS:
        for part, measure in (("σ", "gap"), ("d", "osse")):
            for value, mean in _means(found, method, measure).items():
                together.add(0, {f"{method}, {part} {value}": {measure: mean}})
    return together


def _claims_of_figure_4(found: Findings) -> Iterable[Claim]:
    for method in _METHODS:
        gaps, outside = _means(found, method, "gap"), _means(found, method, "osse")
        what = f"{method}: the gap grows from σ = 10 to 100, outside SSE falls from dimension 2 to 1024"
        if 100 not in gaps or 1024 not in outside:
            yield Claim(what)
            continue
        values = f"{gaps[10]:.2f} to {gaps[100]:.2f}, {outside[2]:.1f} to {outside[1024]:.1f}"
        yield Claim(what, values, gaps[100] > gaps[10] and outside[1024] < outside[2])


def _draw_figure_4(figure: Figure, found: Findings) -> None:
    shown = (("gap", "gap / √d", "standard deviation"), ("osse", "outside SSE", "dimension"))
    for axes, (measure, ylabel, xlabel) in zip(figure.subplots(1, 2), shown, strict=True):
        for method in _METHODS:
            means = _means(found, method, measure)
            axes.plot(list(means), list(means.values()), marker="o", label=method)
        axes.set(xlabel=xlabel, ylabel=ylabel)
        if xlabel == "dimension":
            axes.set_xscale("log", base=2)
        axes.legend()


_SMALL_G2 = ("d 2, σ 10", "d 2, σ 50", "d 16, σ 10", "d 16, σ 50")

TABLES = (
    _one_case("001-table2", "case 1", _claims_of_table_2),
    _one_case("001-table3", "case 2", _claims_of_table_3),
    Table(
        "001-table4", _CASES, _claims_of_table_4, _draw_table_4, wanted=lambda name: name in _CASE_3,
        quick=lambda name: name == "100+1000+100",
    ),
    Table(
        "001-table5", _G2_SETS, _claims_of_table_5, _draw_table_5, quick=lambda name: name in _SMALL_G2,
        summary=_summary_of_table_5,
    ),
    Table(
        "001-figure4", _G2_SETS, _claims_of_figure_4, _draw_figure_4, quick=lambda name: name in _SMALL_G2,
        summary=_summary_of_figure_4,
    ),
)  # fmt: skip
