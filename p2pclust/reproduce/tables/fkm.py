"""Garst, Reinders: Federated k-means clustering: the grid of sixteen Gaussians, and handwriting by writer.

Five peers, as in the authors' code (the text says four); a row that no peer sees goes to the nearest. In each repetition
new data are drawn (the authors repeated on one draw). ARI is the mean of the peers' own indices weighted by their numbers
of rows, as in the authors' code, and for the pooled algorithm that of all rows. FKM runs ten rounds; k-FED with K_l = K_g.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering import Points, nearest, weighted_kmeans
from p2pclust.data.dataset import DataSet
from p2pclust.data.generate import gaussian_grid, uneven_grid
from p2pclust.data.registry import load
from p2pclust.metrics import adjusted_rand_index, silhouette, simplified_silhouette
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import JobState
from p2pclust.reproduce.drawing import curves
from p2pclust.reproduce.model import Claim, Experiment, Findings, Setup, Table, Value, Values
from p2pclust.reproduce.peers import Peers, seed_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FkmFigure1", "FkmFigure3", "FkmFigure4", "FkmFigure5", "FkmFigure6", "Grid", "Uneven", "Writers"]

Floats = NDArray[np.float64]

METHODS = ("central", "fkm", "k-fed")
BETAS = (0.1, 1, 10)
NOISES = (1.0, 1.1, 1.2, 1.3, 1.4, 1.5)
POINTS = (50, 100, 200)
_K = 16
_ROUNDS = 10
_WRITERS, _WRITER_K = 10, 60


class ByPeer:
    """Rows and labels of each peer."""

    def __init__(self, data: DataSet) -> None:
        assert data.group is not None
        groups = [np.flatnonzero(data.group == peer) for peer in np.unique(data.group)]
        self.arrays: list[Floats] = [data.X[rows] for rows in groups]
        self.labels: list[NDArray[Any]] = [data.y[rows] for rows in groups] if data.y is not None else []

    def ari(self, centers: Floats) -> float:
        """Return the mean of the peers' indices, weighted by their rows; every row is with its nearest center."""
        total = 0.0
        for rows, labels in zip(self.arrays, self.labels, strict=True):
            total += len(rows) * adjusted_rand_index(labels, nearest(Points(rows), centers))
        return total / sum(map(len, self.arrays))


def centers_of(state: JobState) -> Floats:
    """Return a state's centers in the data's own units."""
    return np.asarray(state.arrays["origin"] + state.arrays["centers"] * state.arrays["scale"])


def central(X: Floats, n_clusters: int, rng: np.random.Generator) -> Floats:
    """Return the centers of pooled k-means: the best of ten runs from k-means++ seeds."""
    return weighted_kmeans(X, np.ones(len(X)), n_clusters, rng, n_init=10).centers


def fkm(data: ByPeer, n_clusters: int, seed: int, peers: Peers, rounds: int = _ROUNDS) -> list[Floats]:
    """Return the centers after each round of FKM."""
    seen: list[Floats] = []

    def see(state: JobState) -> None:
        if "centers" in state.arrays:
            seen.append(centers_of(state))

    job = cluster_job("fkm", n_clusters=n_clusters, tol=0.0, max_rounds=rounds, seed=seed)
    peers.run(job, data.arrays, see)
    return seen[-rounds:]


def k_fed(data: ByPeer, n_clusters: int, n_local: int, seed: int, peers: Peers) -> Floats:
    """Return the centers of k-FED."""
    job = cluster_job("k-fed", n_clusters=n_clusters, n_local_clusters=n_local, seed=seed)
    return centers_of(peers.run(job, data.arrays))


def on_a_grid(data: DataSet, rng: np.random.Generator, peers: Peers) -> dict[str, dict[str, Value]]:
    """Run the three methods, and measure each."""
    by_peer, seed = ByPeer(data), seed_of(rng)
    pooled = nearest(Points(data.X), central(data.X, _K, rng))
    scores = [by_peer.ari(centers) for centers in fkm(by_peer, _K, seed, peers)]
    assert data.y is not None
    found: dict[str, Value] = {
        "ari": scores[-1],
        "ari round 1": scores[0],
        "gain": scores[-1] - scores[0],
        "by round": scores,
    }
    return {
        "central": {"ari": adjusted_rand_index(data.y, pooled)},
        "fkm": found,
        "k-fed": {"ari": by_peer.ari(k_fed(by_peer, _K, _K, seed, peers))},
    }


class Grid(Experiment):
    """The regular grid, for every β, noise and number of points per cluster."""

    id = "fkm-grid"

    def setups(self) -> Sequence[Setup]:
        return [
            Setup(
                f"β {beta}, {points} points, noise {noise:.1f}",
                options={"beta": beta, "points": points, "noise": noise},
            )
            for points in POINTS
            for beta in BETAS
            for noise in NOISES
        ]

    def repeat(self, setup: Setup, rng: np.random.Generator, peers: Peers, *, quick: bool) -> Values:
        data = gaussian_grid(**setup.options, seed=int(rng.integers(2**31)))
        found = on_a_grid(data, rng, peers)
        if setup.options["noise"] == 1.0 and setup.options["points"] == POINTS[0]:
            # Figure 1's "informed" setting: the K_l that is best for the labels.
            by_peer, seed = ByPeer(data), seed_of(rng)
            tried = [by_peer.ari(k_fed(by_peer, _K, k, seed, peers)) for k in range(2, _K + 1, 7 if quick else 1)]
            found["k-fed informed"] = {
                "ari": max(tried),
                "K_l": float(2 + int(np.argmax(tried)) * (7 if quick else 1)),
            }
        return {f"{name}, {setup.name}": values for name, values in found.items()}


class Uneven(Experiment):
    """Peers with 16, 1, 3, 10 and 7 of the sixteen clusters."""

    id = "fkm-uneven"

    def setups(self) -> Sequence[Setup]:
        return [Setup("uneven")]

    def repeat(self, setup: Setup, rng: np.random.Generator, peers: Peers, *, quick: bool) -> Values:
        return dict(on_a_grid(uneven_grid(seed=int(rng.integers(2**31))), rng, peers))


class Writers(Experiment):
    """Ten writers of FEMNIST, sixty clusters."""

    id = "fkm-writers"

    def setups(self) -> Sequence[Setup]:
        return [Setup("femnist", needs="femnist")]

    def repeat(self, setup: Setup, rng: np.random.Generator, peers: Peers, *, quick: bool) -> Values:
        whole = load(setup.needs)
        assert whole.group is not None
        writers = rng.choice(np.unique(whole.group), size=_WRITERS, replace=False)
        data = whole.take(np.flatnonzero(np.isin(whole.group, writers)))
        by_peer, seed = ByPeer(data), seed_of(rng)
        centers = {
            "central": central(data.X, _WRITER_K, rng),
            "fkm": fkm(by_peer, _WRITER_K, seed, peers)[-1],
            "k-fed": k_fed(by_peer, _WRITER_K, _WRITER_K, seed, peers),
            "k-fed, K_l 21": k_fed(by_peer, _WRITER_K, 21, seed, peers),
        }
        return {
            name: {
                "silhouette": silhouette(data.X, nearest(Points(data.X), found)),
                "simplified silhouette": simplified_silhouette(data.X, found),
            }
            for name, found in centers.items()
        }


class _OnGrid(Table):
    """A figure over a part of the grid."""

    experiment = Grid()
    # The authors did 200: with ten, the spread of a mean is as wide as what is claimed.
    repeats = 40
    points: ClassVar[Sequence[int]] = POINTS[:1]
    noises: ClassVar[Sequence[float]] = NOISES

    def setups(self, *, quick: bool) -> Sequence[Setup]:
        noises = (self.noises[0], self.noises[-1]) if quick else self.noises
        points, betas = (self.points[:1], BETAS[:1]) if quick else (self.points, BETAS)
        return [
            setup
            for setup in self.experiment.setups()
            if setup.options["points"] in points and setup.options["noise"] in noises and setup.options["beta"] in betas
        ]


class FkmFigure1(_OnGrid):
    """ARI at noise 1 for three β."""

    id = "003-figure1"
    shows = "fkm, k-fed and pooled k-means on the grid, for β = 0.1, 1, 10"
    time = "1 min"
    noises = NOISES[:1]
    measures: ClassVar[Mapping[str, str]] = {"ari": "ARI", "K_l": "best K_l"}

    def claims(self, found: Findings) -> Iterable[Claim]:
        for beta in BETAS:
            ours, central_, theirs = (
                f"{method}, β {beta}, 50 points, noise 1.0" for method in ("fkm", "central", "k-fed")
            )
            yield less(
                found, ours, central_, f"β = {beta}: fkm within 0.01 of pooled k-means", lambda a, b: abs(a - b) <= 0.01
            )
            if beta == BETAS[0]:
                yield less(
                    found, ours, theirs, f"β = {beta}: fkm above k-fed by at least 0.1", lambda a, b: a - b >= 0.1
                )

    def draw(self, figure: Figure, found: Findings) -> None:
        axes = figure.add_subplot()
        for place, method in enumerate(("k-fed", "k-fed informed", "fkm", "central")):
            boxes(axes, found, [f"{method}, β {beta}, 50 points, noise 1.0" for beta in BETAS], place, 4, method)
        axes.set_xticks(range(len(BETAS)), [f"β = {beta}" for beta in BETAS])
        axes.set_ylabel("ARI")
        axes.legend()


class FkmFigure3(_OnGrid):
    """ARI by noise and by round, 50 points per cluster."""

    id = "003-figure3"
    shows = "fkm, k-fed and pooled k-means by noise, and fkm by round, for β = 0.1, 1, 10"
    time = "3 min"
    measures: ClassVar[Mapping[str, str]] = {"ari": "ARI", "ari round 1": "round 1", "gain": "gain 1 to 10"}

    def claims(self, found: Findings) -> Iterable[Claim]:
        for beta in BETAS:
            row = f"fkm, β {beta}, 50 points, noise 1.5"
            what = f"β = {beta}: the gain from round 1 to 10 at noise 1.5 at least 0.03"
            if not found.has(row, "gain"):
                yield Claim(what, "not measured", None)
                continue
            yield Claim(what, f"{found.mean(row, 'gain'):.4f}", found.mean(row, "gain") >= 0.03)

    def draw(self, figure: Figure, found: Findings) -> None:
        figure.set_size_inches(15, 9)
        for column, beta in enumerate(BETAS, start=1):
            axes = figure.add_subplot(2, 3, column)
            by_noise(axes, found, beta, POINTS[0])
            axes.set_title(f"β = {beta}")
            axes = figure.add_subplot(2, 3, 3 + column)
            rows = {f"noise {noise:.1f}": f"fkm, β {beta}, 50 points, noise {noise:.1f}" for noise in NOISES}
            curves(axes, found, rows, "by round")
            axes.set(xlabel="round", ylabel="ARI (fkm)")
            axes.legend(fontsize="small")


class FkmFigure4(Table):
    """ARI where peers have very different numbers of clusters."""

    id = "003-figure4"
    shows = "fkm, k-fed and pooled k-means where the peers have 16, 1, 3, 10 and 7 of the clusters"
    time = "10 s"
    experiment = Uneven()
    repeats = 40
    measures: ClassVar[Mapping[str, str]] = {"ari": "ARI", "ari round 1": "round 1"}

    def claims(self, found: Findings) -> Iterable[Claim]:
        yield less(found, "fkm", "k-fed", "fkm above k-fed (K_l = 16)", lambda a, b: a > b)

    def draw(self, figure: Figure, found: Findings) -> None:
        axes = figure.add_subplot()
        boxes(axes, found, list(METHODS), 0, 1, "")
        axes.set_xticks(range(len(METHODS)), METHODS)
        axes.set_ylabel("ARI")


class FkmFigure5(Table):
    """Silhouettes on handwriting by writer."""

    id = "003-figure5"
    shows = "fkm, k-fed and pooled k-means on ten writers of FEMNIST: silhouettes"
    time = "2 min"
    experiment = Writers()
    measures: ClassVar[Mapping[str, str]] = {
        "silhouette": "silhouette",
        "simplified silhouette": "simplified silhouette",
    }

    def claims(self, found: Findings) -> Iterable[Claim]:
        if found.rows:
            what = "fkm above k-fed in silhouette"
            yield less(found, "fkm", "k-fed", what, lambda a, b: a > b, measure="silhouette")

    def draw(self, figure: Figure, found: Findings) -> None:
        for number, measure in enumerate(self.measures, start=1):
            axes = figure.add_subplot(1, 2, number)
            boxes(axes, found, list(found.rows), 0, 1, "", measure=measure)
            axes.set_xticks(range(len(found.rows)), list(found.rows))
            axes.set_ylabel(measure)


class FkmFigure6(_OnGrid):
    """ARI by noise, for three numbers of points per cluster."""

    id = "003-figure6"
    shows = "fkm, k-fed and pooled k-means by noise, with 50, 100 and 200 points in each cluster"
    time = "2 min"
    points = POINTS
    repeats = 10
    measures: ClassVar[Mapping[str, str]] = {"ari": "ARI", "ari round 1": "round 1"}

    def claims(self, found: Findings) -> Iterable[Claim]:
        what = "fkm at noise 1: with 200 points within 0.03 of that with 50 points, for every β"
        rows = [[f"fkm, β {beta}, {points} points, noise 1.0" for points in (200, 50)] for beta in BETAS]
        if not all(found.has(row, "ari") for pair in rows for row in pair):
            yield Claim(what, "not measured", None)
            return
        apart = [abs(found.mean(many, "ari") - found.mean(few, "ari")) for many, few in rows]
        yield Claim(what, ", ".join(f"{value:.4f}" for value in apart), max(apart) <= 0.03)

    def draw(self, figure: Figure, found: Findings) -> None:
        figure.set_size_inches(15, 12)
        for line, points in enumerate(POINTS):
            for column, beta in enumerate(BETAS, start=1):
                axes = figure.add_subplot(3, 3, 3 * line + column)
                by_noise(axes, found, beta, points)
                axes.set_title(f"β = {beta}, {points} points")


def less(found: Findings, one: str, other: str, what: str, holds: Any, *, measure: str = "ari") -> Claim:
    """Claim something about the means of two rows."""
    if not (found.has(one, measure) and found.has(other, measure)):
        return Claim(what, "not measured", None)
    means = found.mean(one, measure), found.mean(other, measure)
    return Claim(what, f"{means[0]:.4f}, {means[1]:.4f}", bool(holds(*means)))


def by_noise(axes: Axes, found: Findings, beta: float, points: int) -> None:
    """Draw the three methods over the noise."""
    for method in METHODS:
        rows = {noise: f"{method}, β {beta}, {points} points, noise {noise:.1f}" for noise in NOISES}
        known = {noise: row for noise, row in rows.items() if found.has(row, "ari")}
        means, spreads = ([getattr(found, what)(row, "ari") for row in known.values()] for what in ("mean", "sd"))
        axes.errorbar(list(known), means, np.nan_to_num(spreads), marker="o", capsize=3, label=method)
    axes.set(xlabel="noise", ylabel="ARI")
    axes.legend(fontsize="small")


def boxes(
    axes: Axes, found: Findings, rows: Sequence[str], place: int, places: int, label: str, *, measure: str = "ari"
) -> None:
    """Draw one box for each row, the `place`-th at each tick."""
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
