"""Corcuera Bárcena, Marcelloni, Renda, Bechini: A federated fuzzy c-means clustering algorithm.

Section 5: 20 peers with roughly equal shares of the rows, fuzzifier 2, ε = 0.005, at most 30 rounds, participation γ in
{0.25, 0.5, 0.75, 1}; ten repetitions, in each the same first centers for the federated and the pooled algorithm.

The second paper of the group (`lossless`) has the data, first centers, pooled result and measures of this one. All data
sets are scaled to [0, 1] per attribute over the whole set. The papers do not say so; with any other scaling the distances
between centers that they print are out of reach. First centers are drawn uniformly from the unit cube.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering import Points, fuzzy_step, nearest, run_steps, weighted_seeds
from p2pclust.data.partition import split
from p2pclust.data.registry import load
from p2pclust.lab.pictures.bars import mean_bars
from p2pclust.lab.pictures.curves import mean_curves
from p2pclust.lab.reproduce.model import Claim, Experiment, Findings, Setup, Table, Value, Values, published
from p2pclust.lab.reproduce.peers import Floats, JobFailedError, Peers, seed_of
from p2pclust.metrics import adjusted_rand_index, center_distance, xie_beni
from p2pclust.protocols.engine.compose import cluster_job

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GAMMAS = (0.25, 0.5, 0.75, 1.0)
_N_PEERS = 20
_ROUNDS = 30
_QUICK_ROWS = 800


def gamma_name(gamma: float) -> str:
    """Return the last part of a row's name."""
    return f"γ {gamma:.2f}"


@dataclass(frozen=True)
class DataCase:
    """A data set in its own units (X) and in [0, 1] (scaled), with its classes."""

    X: Floats  # (n, F)
    lo: Floats  # (F,): the least values
    width: Floats  # (F,): the ranges, 1 for a feature that does not vary
    scaled: Floats
    y: NDArray[np.int64]
    n_clusters: int


@lru_cache(maxsize=16)
def data_case(name: str, *, quick: bool) -> DataCase:
    """Load a data set; a quick run takes the same few of its rows each time."""
    data = load(name)
    assert data.y is not None
    X, y = data.X, np.unique(data.y, return_inverse=True)[1].astype(np.int64)
    if quick and len(X) > _QUICK_ROWS:
        rows = np.sort(np.random.default_rng(0).permutation(len(X))[:_QUICK_ROWS])
        X, y = X[rows], y[rows]
    lo, hi = X.min(axis=0), X.max(axis=0)
    width = np.where(hi > lo, hi - lo, 1.0)
    # The label set 0, 1, 3..14 of s-set1 has 15 classes: they are counted, not read off the greatest.
    return DataCase(np.ascontiguousarray(X), lo, width, (X - lo) / width, y, len(np.unique(y)))


def over_sets(id: str, names: Sequence[str], repeat: Callable[..., Values]) -> Experiment:
    """Return an experiment with one set-up for each of these data sets."""
    return Experiment(id, lambda: [Setup(name, partial(repeat, name), name) for name in names])


def against_pooled(
    case: DataCase, rng: np.random.Generator, peers: Peers, runs: Mapping[str, Mapping[str, Any]],
    *, gammas: tuple[float, ...] = GAMMAS, tol: float = 0.0, beta: float | None = None, careful: bool = False,
) -> dict[tuple[str, float], dict[str, Value]]:  # fmt: skip
    """Run protocols on 20 peers, and measure each against the pooled algorithm and the classes.

    `runs` are the parameters of each protocol, `gammas` the participations. `tol` holds for every run, the pooled one too.
    Rows are dealt evenly, or classes by Dirichlet(`beta`). All start from one draw of first centers; if `careful`,
    protocols seed carefully, and the pooled algorithm by greedy k-means++, as scikit-learn's (the paper leaves open which).

    Returns the measures by protocol and participation; a run that diverged has no others.
    """
    first, seed = rng.random((case.n_clusters, case.X.shape[1])), seed_of(rng)
    scheme, y = ("iid", None) if beta is None else ("dirichlet", case.y)
    arrays = [case.X[rows] for rows in split(y, len(case.X), _N_PEERS, scheme, rng, beta=beta)]
    points = Points(case.scaled)
    start = weighted_seeds(points, np.ones(len(case.scaled)), case.n_clusters, rng) if careful else first
    pooled = run_steps(partial(fuzzy_step, fuzzifier=2.0), points, start, tol=tol, max_rounds=_ROUNDS).centers
    pooled_labels = nearest(points, pooled)
    found: dict[tuple[str, float], dict[str, Value]] = {}
    for gamma in gammas:
        for protocol, parameters in runs.items():
            job = cluster_job(
                protocol, n_clusters=case.n_clusters, scaling="minmax",
                init="careful" if careful else case.lo + first * case.width, tol=tol, max_rounds=_ROUNDS,
                participation=gamma, seed=seed, **parameters,
            )  # fmt: skip
            try:
                state = peers.run(job, arrays)
            except JobFailedError:
                found[protocol, gamma] = {"diverged": 1.0}
                continue
            centers = state.arrays["centers"]
            labels = nearest(points, centers)
            found[protocol, gamma] = {
                "ari": adjusted_rand_index(case.y, labels),
                "ari to pooled": adjusted_rand_index(pooled_labels, labels),
                "distance": center_distance(pooled, centers),
                "xie-beni": xie_beni(points, centers),
                "shifts": state.arrays["shifts"].tolist(),
                "converged": float(state.converged),
            }
            if protocol == "gdf-fcm":  # the only one that may
                found[protocol, gamma]["diverged"] = 0.0
    return found


_TOL = 5e-3
_PLATEAU_FROM = 7
_SETS = ("xclara", "s_set1", "pendigits", "waveform")
_XCLARA = {gamma_name(gamma): f"xclara, {gamma_name(gamma)}" for gamma in GAMMAS}


def _repeat(name: str, rng: np.random.Generator, peers: Peers, *, quick: bool, tol: float) -> Values:
    values: Values = {}
    for (_, gamma), found in against_pooled(data_case(name, quick=quick), rng, peers, {"llf-fcm": {}}, tol=tol).items():
        shifts = found["shifts"]
        assert isinstance(shifts, list)
        if tol == 0.0:
            found["plateau"] = float(np.mean(shifts[_PLATEAU_FROM:]))
        values[f"{name}, {gamma_name(gamma)}"] = found
    return values


def _claims_of_table_1(found: Findings) -> Iterable[Claim]:
    yield from equals_pooled(found, [f"{name}, {gamma_name(1.0)}" for name in _SETS])
    row = _XCLARA[gamma_name(1.0)]
    if found.has(row, "ari"):
        paper, mean = published("000-table1").numbers[row, "ari"].mean, found.mean(row, "ari")
        yield Claim(f"xclara: ARI within 0.001 of {paper}", f"{mean:.5f}", abs(mean - paper) <= 1e-3)


def _draw_table_1(figure: Figure, found: Findings) -> None:
    names = [name for name in _SETS if found.has(f"{name}, {gamma_name(1.0)}", "ari")]
    rows = {gamma: [f"{name}, {gamma}" for name in names] for gamma in _XCLARA}
    for axes, (measure, title) in zip(figure.subplots(1, 2), published("000-table1").measures.items(), strict=True):
        mean_bars(axes, names, found.by_groups(rows, measure))
        axes.set_title(title)
    axes.legend()


def _claims_of_figure_1(found: Findings) -> Iterable[Claim]:
    if not all(found.has(row, "plateau") for row in _XCLARA.values()):
        return [Claim("the movement of the centers and their distance to the pooled ones")]
    plateaus, distances = ([found.mean(row, what) for row in _XCLARA.values()] for what in ("plateau", "distance"))
    moves, falls = ", ".join(f"{one:.4f}" for one in plateaus), " > ".join(f"{one:.4f}" for one in distances)
    what = "after seven rounds the centers move by more than ε = 0.005 at γ = 0.25 and 0.5, by less at 0.75 and 1"
    return [
        Claim(what, moves, min(plateaus[:2]) > _TOL > max(plateaus[2:])),
        Claim("the distance to the pooled centers falls as γ grows", falls, distances == sorted(distances)[::-1]),
    ]


def _draw_figure_1(figure: Figure, found: Findings) -> None:
    axes, right = figure.subplots(1, 2)
    mean_curves(axes, found.all_curves(_XCLARA, "shifts"), log=True)
    axes.axhline(_TOL, color="grey", linewidth=0.8, linestyle=":")
    axes.set(xlabel="round", ylabel="‖V(t+1) − V(t)‖", title="movement of the centers", ylim=(1e-6, None))
    axes.legend()
    mean_bars(right, ["xclara"], found.by_groups({gamma: [row] for gamma, row in _XCLARA.items()}, "distance"))
    right.set(title="distance to the pooled centers")


def equals_pooled(found: Findings, rows: Iterable[str]) -> Iterable[Claim]:
    """Claim that these rows' centers and labels are the pooled ones, in every repetition."""
    for row in rows:
        what = f"{row}: the pooled centers within 1e-9, and ARI to the pooled labels exactly 1"
        if not found.has(row, "distance", "ari to pooled"):
            yield Claim(what, always=True)
            continue
        furthest = float(found.samples(row, "distance").max())
        least = float(found.samples(row, "ari to pooled").min())
        yield Claim(what, f"{furthest:.1e}, {least:g}", furthest <= 1e-9 and least == 1.0, always=True)


TABLES = (
    Table(
        "000-table1", over_sets("federated-fcm", _SETS, partial(_repeat, tol=_TOL)), _claims_of_table_1, _draw_table_1,
        quick=lambda name: name in ("xclara", "waveform"),
    ),
    # Always thirty rounds: what the movement of the centers does after the tolerance was met.
    Table(
        "000-figure1", over_sets("federated-fcm-curves", ["xclara"], partial(_repeat, tol=0.0)), _claims_of_figure_1,
        _draw_figure_1,
    ),
)  # fmt: skip
