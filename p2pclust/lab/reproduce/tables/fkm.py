"""Garst, Reinders: Federated k-means clustering: the grid of sixteen Gaussians, and handwriting by writer.

Five peers, as in the authors' code (the text says four); a row that no peer sees goes to the nearest. In each repetition
new data are drawn (the authors repeated on one draw). ARI is the mean of the peers' own indices weighted by their numbers
of rows, as in the authors' code, and for the pooled algorithm that of all rows. FKM runs ten rounds; k-FED with K_l = K_g.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from p2pclust.clustering import Points, nearest, weighted_kmeans
from p2pclust.data.dataset import DataSet
from p2pclust.data.generate import gaussian_grid, uneven_grid
from p2pclust.data.registry import load
from p2pclust.lab.pictures.curves import mean_curves
from p2pclust.lab.reproduce.model import Claim, Experiment, Findings, Setup, Table, Values, about_means, published
from p2pclust.lab.reproduce.peers import Floats, Peers, seed_of
from p2pclust.metrics import adjusted_rand_index, silhouette, simplified_silhouette
from p2pclust.protocols.engine import summaries
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import JobState

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_METHODS = ("central", "fkm", "k-fed")
_BETAS = (0.1, 1, 10)
_NOISES = (1.0, 1.1, 1.2, 1.3, 1.4, 1.5)
_POINTS = (50, 100, 200)
_K = 16
_ROUNDS = 10
_WRITERS, _WRITER_K = 10, 60


class _Cell(NamedTuple):
    points: int
    beta: float
    noise: float

    @property
    def name(self) -> str:
        return f"β {self.beta}, {self.points} points, noise {self.noise:.1f}"


_GRID = {cell.name: cell for p in _POINTS for beta in _BETAS for noise in _NOISES if (cell := _Cell(p, beta, noise))}


def _ari(data: DataSet, centers: Floats) -> float:
    """Return the mean of the peers' indices, weighted by their rows; every row is with its nearest center."""
    total = 0.0
    for peer in data.by_group():
        assert peer.y is not None
        total += peer.n_rows * adjusted_rand_index(peer.y, nearest(Points(peer.X), centers))
    return total / data.n_rows


def _central(X: Floats, n_clusters: int, rng: np.random.Generator) -> Floats:
    """Return the centers of pooled k-means: the best of ten runs from k-means++ seeds."""
    return weighted_kmeans(X, np.ones(len(X)), n_clusters, rng, n_init=10).centers


def _fkm(data: DataSet, n_clusters: int, seed: int, peers: Peers) -> list[Floats]:
    """Return the centers after each round of FKM."""
    seen: list[Floats] = []

    def see(state: JobState) -> None:
        if "centers" in state.arrays:
            seen.append(summaries.raw_centers(state))

    job = cluster_job("fkm", n_clusters=n_clusters, tol=0.0, max_rounds=_ROUNDS, seed=seed)
    peers.run(job, [peer.X for peer in data.by_group()], see)
    return seen[-_ROUNDS:]


def _k_fed(data: DataSet, n_clusters: int, n_local: int, seed: int, peers: Peers) -> Floats:
    job = cluster_job("k-fed", n_clusters=n_clusters, n_local_clusters=n_local, seed=seed)
    return summaries.raw_centers(peers.run(job, [peer.X for peer in data.by_group()]))


def _on_a_grid(data: DataSet, rng: np.random.Generator, peers: Peers) -> Values:
    seed = seed_of(rng)
    pooled = nearest(Points(data.X), _central(data.X, _K, rng))
    scores = [_ari(data, centers) for centers in _fkm(data, _K, seed, peers)]
    assert data.y is not None
    return {
        "central": {"ari": adjusted_rand_index(data.y, pooled)},
        "fkm": {"ari": scores[-1], "ari round 1": scores[0], "gain": scores[-1] - scores[0], "by round": scores},
        "k-fed": {"ari": _ari(data, _k_fed(data, _K, _K, seed, peers))},
    }


def _repeat_grid(name: str, rng: np.random.Generator, peers: Peers, *, quick: bool) -> Values:
    """Run a set-up of the grid, for Figure 1 also its "informed" k-FED: with the K_l that is best for the labels."""
    seed = int(rng.integers(2**31))
    if name == "uneven":
        return _on_a_grid(uneven_grid(seed=seed), rng, peers)
    cell = _GRID[name]
    data = gaussian_grid(**cell._asdict(), seed=seed)
    found = _on_a_grid(data, rng, peers)
    if cell.noise == _NOISES[0] and cell.points == _POINTS[0]:
        seed, numbers = seed_of(rng), range(2, _K + 1, 7 if quick else 1)
        tried = [_ari(data, _k_fed(data, _K, n_local, seed, peers)) for n_local in numbers]
        found["k-fed informed"] = {"ari": max(tried), "K_l": float(numbers[int(np.argmax(tried))])}
    return {f"{method}, {name}": values for method, values in found.items()}


def _repeat_writers(rng: np.random.Generator, peers: Peers, *, quick: bool) -> Values:
    whole = load("femnist")
    assert whole.group is not None
    writers = rng.choice(np.unique(whole.group), size=_WRITERS, replace=False)
    data = whole.take(np.flatnonzero(np.isin(whole.group, writers)))
    seed = seed_of(rng)
    centers = {
        "central": _central(data.X, _WRITER_K, rng),
        "fkm": _fkm(data, _WRITER_K, seed, peers)[-1],
        "k-fed": _k_fed(data, _WRITER_K, _WRITER_K, seed, peers),
        "k-fed, K_l 21": _k_fed(data, _WRITER_K, 21, seed, peers),
    }
    return {
        name: {
            "silhouette": silhouette(data.X, nearest(Points(data.X), found)),
            "simplified silhouette": simplified_silhouette(data.X, found),
        }
        for name, found in centers.items()
    }


def _claims_of_figure_1(found: Findings) -> Iterable[Claim]:
    for beta in _BETAS:
        ours, pooled, theirs = (f"{method}, {_Cell(50, beta, 1.0).name}" for method in ("fkm", "central", "k-fed"))
        what = f"β = {beta}: fkm within 0.01 of pooled k-means"
        yield about_means(found, what, [ours, pooled], "ari", lambda a, b: abs(a - b) <= 0.01)
        if beta == _BETAS[0]:
            what = f"β = {beta}: fkm above k-fed by at least 0.1"
            yield about_means(found, what, [ours, theirs], "ari", lambda a, b: a - b >= 0.1)


def _draw_figure_1(figure: Figure, found: Findings) -> None:
    axes = figure.add_subplot()
    for place, method in enumerate(("k-fed", "k-fed informed", "fkm", "central")):
        _boxes(axes, found, [f"{method}, {_Cell(50, beta, 1.0).name}" for beta in _BETAS], "ari", place, 4, method)
    axes.set_xticks(range(len(_BETAS)), [f"β = {beta}" for beta in _BETAS])
    axes.set_ylabel("ARI")
    axes.legend()


def _draw_figure_3(figure: Figure, found: Findings) -> None:
    figure.set_size_inches(15, 9)
    for beta, by_noise, axes in zip(_BETAS, *figure.subplots(2, 3), strict=True):
        _by_noise(by_noise, found, beta, _POINTS[0])
        by_noise.set_title(f"β = {beta}")
        rows = {f"noise {noise:.1f}": f"fkm, {_Cell(50, beta, noise).name}" for noise in _NOISES}
        mean_curves(axes, found.all_curves(rows, "by round"))
        axes.set(xlabel="round", ylabel="ARI (fkm)")
        axes.legend(fontsize="small")


def _fkm_above_k_fed(found: Findings, where: str, measure: str) -> Claim:
    return about_means(found, f"fkm above k-fed{where}", ["fkm", "k-fed"], measure, lambda a, b: a > b)


def _draw_rows(figure: Figure, found: Findings, *, of: str) -> None:
    measures = published(of).measures
    panels = figure.subplots(1, len(measures), squeeze=False)[0]
    for axes, (measure, label) in zip(panels, measures.items(), strict=True):
        _boxes(axes, found, found.rows, measure)
        axes.set_xticks(range(len(found.rows)), list(found.rows))
        axes.set_ylabel(label)


def _claims_of_figure_6(found: Findings) -> Iterable[Claim]:
    what = "fkm at noise 1: with 200 points within 0.03 of that with 50 points, for every β"
    rows = [[f"fkm, {_Cell(points, beta, 1.0).name}" for points in (200, 50)] for beta in _BETAS]
    if not all(found.has(row, "ari") for pair in rows for row in pair):
        return [Claim(what)]
    apart = [abs(found.mean(many, "ari") - found.mean(few, "ari")) for many, few in rows]
    return [Claim(what, ", ".join(f"{value:.4f}" for value in apart), max(apart) <= 0.03)]


def _draw_figure_6(figure: Figure, found: Findings) -> None:
    figure.set_size_inches(15, 12)
    for points, line in zip(_POINTS, figure.subplots(3, 3), strict=True):
        for beta, axes in zip(_BETAS, line, strict=True):
            _by_noise(axes, found, beta, points)
            axes.set_title(f"β = {beta}, {points} points")


def _by_noise(axes: Axes, found: Findings, beta: float, points: int) -> None:
    for method in _METHODS:
        rows = {noise: f"{method}, {_Cell(points, beta, noise).name}" for noise in _NOISES}
        noises, means, spreads = found.points(rows, "ari")
        axes.errorbar(noises, means, np.nan_to_num(spreads), marker="o", capsize=3, label=method)
    axes.set(xlabel="noise", ylabel="ARI")
    axes.legend(fontsize="small")


def _boxes(
    axes: Axes, found: Findings, rows: Sequence[str], measure: str, place: int = 0, places: int = 1, label: str = ""
) -> None:
    width = 0.8 / places
    known = [(number, row) for number, row in enumerate(rows) if found.has(row, measure)]
    if not known:
        return
    color = f"C{place}"
    axes.boxplot(
        [found.samples(row, measure) for _, row in known],
        positions=[number + (place - (places - 1) / 2) * width for number, _ in known],
        widths=0.8 * width,
        patch_artist=True,
        boxprops={"facecolor": color, "alpha": 0.5},
        manage_ticks=False,
    )
    if label:
        axes.plot([], [], color=color, label=label, linewidth=6, alpha=0.5)


# The authors did 200 repetitions: with ten, the spread of a mean is as wide as what is claimed.
_REPEATS = 40
_CORNERS = (_Cell(50, 0.1, 1.0).name, _Cell(50, 0.1, 1.5).name)
_GRIDS = Experiment("fkm-grid", lambda: [Setup(name, partial(_repeat_grid, name)) for name in _GRID])

TABLES = (
    Table(
        "003-figure1", _GRIDS, _claims_of_figure_1, _draw_figure_1,
        wanted=lambda name: _GRID[name].points == _POINTS[0] and _GRID[name].noise == _NOISES[0],
        quick=lambda name: _GRID[name].beta == _BETAS[0], repeats=_REPEATS,
    ),
    Table(
        "003-figure3", _GRIDS,
        lambda found: [
            about_means(
                found, f"β = {beta}: the gain from round 1 to 10 at noise 1.5 at least 0.03",
                [f"fkm, {_Cell(50, beta, 1.5).name}"], "gain", lambda gain: gain >= 0.03,
            )
            for beta in _BETAS
        ],
        _draw_figure_3,
        wanted=lambda name: _GRID[name].points == _POINTS[0], quick=lambda name: name in _CORNERS, repeats=_REPEATS,
    ),
    Table(
        "003-figure4", Experiment("fkm-uneven", lambda: [Setup("uneven", partial(_repeat_grid, "uneven"))]),
        lambda found: [_fkm_above_k_fed(found, " (K_l = 16)", "ari")],
        partial(_draw_rows, of="003-figure4"), repeats=_REPEATS,
    ),
    Table(
        "003-figure5", Experiment("fkm-writers", lambda: [Setup("femnist", _repeat_writers, "femnist")]),
        lambda found: [_fkm_above_k_fed(found, " in silhouette", "silhouette")] if found.rows else [],
        partial(_draw_rows, of="003-figure5"),
    ),
    Table(
        "003-figure6", _GRIDS, _claims_of_figure_6, _draw_figure_6,
        quick=lambda name: name in _CORNERS,
    ),
)  # fmt: skip
