"""FedCRef's tables: what the method finds, from which starts, with which parameters, overlaps and numbers of peers.

Every run is one repetition of one set-up: a world, and one method in it. Tables share them, and those of one world are
drawn alike, so methods are compared on the same peers, rows and starts. The paper has EMNIST Digits; where it is not
in the cache directory MNIST is taken, and rows are called so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from p2pclust.clustering.dec import DecSettings, deep_embedded_clustering, pretrained
from p2pclust.data.registry import available
from p2pclust.lab.reproduce.fedcref_runs import QUICK_DEC, PeerWorld, Setting, drawn, run
from p2pclust.lab.reproduce.model import Claim, Experiment, Findings, Printed, Setup, Table, Values, published
from p2pclust.lab.reproduce.peers import Peers, seed_of
from p2pclust.metrics import accuracy
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.compose import cluster_job

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DIRT: Final = (0.0, 0.3, 0.5)
OVERLAPS: Final = (0.0, 0.3, 0.5)
PEERS: Final = (20, 30, 40)
GRID: Final = ((75, 0.2), (75, 0.1), (75, 0.3), (85, 0.2), (90, 0.2))
ALL: Final = ("paper", "refined", "perfect")
TWO: Final = ("paper", "refined")
_COLOURS: Final = {"paper": "#4e79a7", "refined": "#59a14f", "perfect": "#edc948"}


def digits() -> tuple[str, str]:
    """Return the replacement of EMNIST Digits: its name in rows and in the cache directory."""
    return ("EMNIST", "emnist_digits") if "emnist_digits" in available() else ("MNIST for EMNIST", "mnist")


def row_of(method: str, what: str) -> str:
    """Return the row, which is also the set-up, of a method in a world of digits."""
    return f"{method}, {digits()[0]}, {what}"


def n_label(n_peers: int) -> str:
    """Return the name of the world of this many peers: MNIST has only 400 rows of each class for 40 of them."""
    return f"N {n_peers}, S 400" if n_peers == 40 and digits()[0] != "EMNIST" else f"N {n_peers}"


def _run(name: str, setting: Setting, rng: np.random.Generator, peers: Peers, *, quick: bool) -> Values:
    # What a world keeps is named by the repetition's stream, of which nothing was drawn yet.
    state = rng.bit_generator.state["state"]["state"]
    return {name: run(setting, rng, peers, quick=quick, name=f"{setting.world.data}-{state % 2**64:016x}")}


def _runs(
    label: str, what: str, world: PeerWorld, methods: Sequence[str] = ALL, *, draws: str = "",
    **parameters: Mapping[str, Any],
) -> list[Setup]:  # fmt: skip
    """Return one set-up for each method in a world; `parameters` are by method."""
    names = {method: f"{method}, {label}, {what}" for method in methods}
    return [
        Setup(
            name, partial(_run, name, Setting(world, method, parameters.get(method, {}))), world.data,
            f"{label}, {draws or what}",
        )
        for method, name in names.items()
    ]  # fmt: skip


def _setups() -> list[Setup]:
    label, data = digits()
    found: list[Setup] = []
    for dirt in DIRT:
        found += _runs(label, f"dirtiness {dirt}", PeerWorld(data, dirtiness=dirt))
    for dirt in DIRT:
        found += _runs("KMNIST", f"dirtiness {dirt}", PeerWorld("kmnist", dirtiness=dirt))
    for dirt in DIRT:
        # The paper trains longer on Fashion-MNIST, with a stricter test; the refined mode has one setting for all data.
        found += _runs(
            "Fashion-MNIST", f"dirtiness {dirt}", PeerWorld("fashion_mnist", dirtiness=dirt),
            paper={"epochs": 30, "theta": 0.15}, perfect={"epochs": 30},
        )  # fmt: skip
    for alpha, theta in GRID[1:]:
        # In the worlds of the usual parameters: only these differ.
        own = {"alpha": float(alpha), "theta": theta}
        found += _runs(label, f"α {alpha}, θ {theta}", PeerWorld(data), ["paper"], draws="dirtiness 0.3", paper=own)
    for overlap in OVERLAPS[1:]:
        found += _runs(label, f"overlap {overlap}", PeerWorld(data, overlap=overlap))
    for n_peers in PEERS:
        what = n_label(n_peers)
        found += _runs(label, what, PeerWorld(data, n_peers, 400 if "S 400" in what else 500))
    for start, name in (("dec", "DEC"), ("kmeans", "k-means"), ("mixture", "mixture")):
        found += _runs(label, f"{name} start", PeerWorld(data, start=start), TWO)
    # The rows of the same peers as are compared with.
    for name, repeat in ((f"central DEC, {label}", central_dec), (f"UIFCA, {label}", uifca)):
        found.append(Setup(name, partial(repeat, name, PeerWorld(data, start="kmeans")), data, f"{label}, DEC start"))
    return found


FEDCREF: Final = Experiment("fedcref", _setups, keeps=True)
_OTHERS: Final = {"central DEC": "best K", "UIFCA": "K 10 given"}


def over_worlds(
    id: str, shows: str, time: str, measures: Mapping[str, str], claims: Callable[[Findings], Iterable[Claim]],
    *, what: Sequence[str], methods: Sequence[str] = TWO, labels: Sequence[str] = (), quick: Sequence[str] = (),
    called: Mapping[str, str] | None = None, panels: Sequence[str] = ("acc",),
    draw: Callable[[Figure, Findings], None] | None = None,
) -> Table:  # fmt: skip
    """Return a table over worlds, see `Table`; by default the measures in `panels` are drawn as bars.

    `what` are the worlds, `methods` those of FedCRef or what it is compared with, `labels` the data sets besides digits,
    `quick` the worlds of a quick run, with digits, by default the first. `called` has the worlds that the table calls
    otherwise than they are called elsewhere.
    """
    names = called or {}

    def wanted(name: str, in_what: Sequence[str] = what, in_labels: Sequence[str] = labels) -> bool:
        method, label, *world = name.split(", ", 2)
        known = not world or world[0].removesuffix(", S 400") in in_what
        return method in methods and label in (digits()[0], *in_labels) and known

    def row(name: str) -> str:
        method, label, *world = name.split(", ", 2)
        return f"{method}, {label}, {names.get(world[0], world[0]) if world else _OTHERS[method]}"

    def summary(found: Findings) -> Findings:
        return found.renamed({name: row(name) for name in found.rows})

    def draw_bars(figure: Figure, found: Findings) -> None:
        shown = summary(found)
        rows = [row(setup.name) for setup in _setups() if wanted(setup.name)]
        _draw_bars(figure, shown, rows, {panel: measures[panel] for panel in panels}, published(id).numbers)

    return Table(
        id, shows, time, FEDCREF, measures, claims, draw or draw_bars, wanted,
        lambda name: wanted(name, quick or what[:1], ()), summary,
        repeats=5, quick_repeats=1, interval=True,
    )  # fmt: skip


def _draw_bars(
    figure: Figure, shown: Findings, rows: Sequence[str], panels: Mapping[str, str],
    numbers: Mapping[tuple[str, str], Printed],
) -> None:  # fmt: skip
    """Draw a panel for each measure: a bar for each row, from the top, and the paper's number as a diamond."""
    rows = [row for row in rows if shown.has(row, next(iter(panels)))][::-1]
    figure.set_size_inches(3.2 * len(panels) + 3.5, 0.32 * len(rows) + 1.4)
    colours = [_COLOURS.get(row.partition(", ")[0], "#9c9c9c") for row in rows]
    for axes, (measure, title) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        spreads = np.nan_to_num([shown.ci(row, measure) for row in rows])
        means = [shown.mean(row, measure) for row in rows]
        axes.barh(range(len(rows)), means, xerr=spreads, color=colours, height=0.7)
        known = [(y, numbers[row, measure].mean) for y, row in enumerate(rows) if (row, measure) in numbers]
        axes.plot([x for _, x in known], [y for y, _ in known], "kD", markersize=5, label="the paper")
        axes.set_yticks(range(len(rows)), rows if axes is figure.axes[0] else [], fontsize=8)
        axes.set_xlabel(title)
        axes.set_xlim(left=0)
    if rows:
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper right", fontsize=8)


KS: Final = (6, 7, 8, 9, 10, 11, 12, 14)
"""The numbers of clusters that centralised DEC is tried with; the paper does not say which it tried."""

MOST_ROWS: Final = 10_000
"""Of the pooled rows, drawn at random: DEC on all of them, some 43 000, would take hours for each repetition."""

_CENTRAL: Final = DecSettings(max_updates=20)

REDUCED: Final[Mapping[str, Any]] = {
    "cluster_rounds": 5, "communication_rounds": 4, "local_steps": 25, "couplings": 4, "hidden": [64, 64, 64],
    "learning_rate": 1e-3,
}  # fmt: skip
"""UIFCA's parameters here. Those of its paper take 50 hours of 100 GFLOP/s a repetition; see docs/protocols/uifca.md."""

_QUICK: Final = {"cluster_rounds": 2, "communication_rounds": 1, "local_steps": 4, "couplings": 2, "hidden": [8]}


def central_dec(name: str, world: PeerWorld, rng: np.random.Generator, peers: Peers, *, quick: bool) -> Values:
    """Cluster the pooled rows of all peers by DEC with every K of :data:`KS`, after one pretraining.

    Returns the ``acc`` of ``NAME, K 6`` and so on, and of ``NAME, best K`` the best of them and, as ``communities``, its K.
    """
    locals_ = drawn(world, rng, quick=quick)
    X = np.concatenate([local.X for local in locals_]).astype(np.float32)
    truth = np.concatenate([local.truth for local in locals_])
    kept = np.sort(rng.permutation(len(X))[: 400 if quick else MOST_ROWS])
    settings = QUICK_DEC if quick else _CENTRAL
    model = pretrained(X[kept], settings, rng, "cpu")
    scores: dict[int, float] = {}
    for number in KS[:: 4 if quick else 1]:
        labels = deep_embedded_clustering(X[kept], number, rng, settings=settings, model=model).labels
        scores[number] = accuracy(truth[kept], labels)
    best = max(scores, key=lambda number: scores[number])
    found: Values = {f"{name}, K {number}": {"acc": score} for number, score in scores.items()}
    return found | {f"{name}, best K": {"acc": scores[best], "communities": float(best)}}


def uifca(name: str, world: PeerWorld, rng: np.random.Generator, peers: Peers, *, quick: bool) -> Values:
    """Run UIFCA in its reduced setting, with the true number of classes given; ``acc`` is the mean over peers."""
    locals_ = drawn(world, rng, quick=quick)
    n_classes = len(np.unique(np.concatenate([local.truth for local in locals_])))
    parameters = _QUICK if quick else REDUCED
    job = cluster_job("uifca", n_clusters=n_classes, seed=seed_of(rng), **parameters)
    state = peers.run(job, [local.X for local in locals_])
    scores = [accuracy(local.truth, engine.conclude(job, state, local)["labels"]) for local in locals_]
    return {f"{name}, K 10 given": {"acc": float(np.mean(scores))}}
