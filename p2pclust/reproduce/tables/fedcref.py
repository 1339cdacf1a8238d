"""FedCRef's tables: what the method finds, from which starts, with which parameters, overlaps and numbers of peers.

Every run is one repetition of one set-up: a world, and one method in it. Tables share them, and those of one world are
drawn alike, so methods are compared on the same peers, rows and starts. The paper has EMNIST Digits; where it is not
in the cache directory MNIST is taken, and rows are called so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from p2pclust.reproduce.model import Claim, Experiment, Findings, Setup, Table, Values
from p2pclust.reproduce.peers import Peers
from p2pclust.reproduce.published import published

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FedCRefExperiment", "FedCRefTable", "digits", "setups_of"]

DIRT: Final = (0.0, 0.3, 0.5)
OVERLAPS: Final = (0.0, 0.3, 0.5)
GRID: Final = ((75, 0.2), (75, 0.1), (75, 0.3), (85, 0.2), (90, 0.2))
_COLOURS: Final = {"paper": "#4e79a7", "refined": "#59a14f", "perfect": "#edc948"}
_FASHION: Final[dict[str, Any]] = {"epochs": 30}


def digits() -> tuple[str, str]:
    """Return the replacement of EMNIST Digits: its name in rows and in the cache directory."""
    from p2pclust.data.registry import available  # noqa: PLC0415 - so that listing the tables stays light

    return ("EMNIST", "emnist_digits") if "emnist_digits" in available() else ("MNIST for EMNIST", "mnist")


def _runs(
    label: str, data: str, what: str, methods: Sequence[str], own: Mapping[str, Mapping[str, Any]] | None = None,
    **world: Any,
) -> list[Setup]:  # fmt: skip
    """Return one set-up for each method in a world; `own`: a method's parameters."""
    place = {"data": data, **world}
    return [
        Setup(
            f"{method}, {label}, {what}", needs=data, draws=f"{label}, {what}",
            options={"kind": "run", "method": method, "world": place, "parameters": (own or {}).get(method, {})},
        )
        for method in methods
    ]  # fmt: skip


_ALL: Final = ("paper", "refined", "perfect")
_TWO: Final = ("paper", "refined")


def n_label(n_peers: int, label: str) -> str:
    """Return the name of the world of this many peers: MNIST has only 400 rows of each class for 40 of them."""
    return f"N {n_peers}, S 400" if n_peers == 40 and label != "EMNIST" else f"N {n_peers}"


def _worlds() -> Iterable[Setup]:
    label, data = digits()
    for dirt in DIRT:
        yield from _runs(label, data, f"dirtiness {dirt}", _ALL, dirtiness=dirt)
    for name, other in (("KMNIST", "kmnist"), ("Fashion-MNIST", "fashion_mnist")):
        # The paper trains longer on Fashion-MNIST, with a stricter test; the refined mode has one setting for all data.
        own: dict[str, dict[str, Any]] = {}
        if other == "fashion_mnist":
            own = {"paper": {**_FASHION, "theta": 0.15}, "perfect": _FASHION}
        for dirt in DIRT:
            yield from _runs(name, other, f"dirtiness {dirt}", _ALL, own, dirtiness=dirt)
    for alpha, theta in GRID[1:]:
        own = {"paper": {"alpha": float(alpha), "theta": theta}}
        for setup in _runs(label, data, f"α {alpha}, θ {theta}", ("paper",), own):
            # In the worlds of the usual parameters: only these differ.
            yield Setup(setup.name, setup.needs, setup.options, draws=f"{label}, dirtiness 0.3")
    for overlap in OVERLAPS[1:]:
        yield from _runs(label, data, f"overlap {overlap}", _ALL, overlap=overlap)
    for n_peers in (20, 30, 40):
        what = n_label(n_peers, label)
        rows = 400 if "S 400" in what else 500
        yield from _runs(label, data, what, _ALL, n_peers=n_peers, rows_per_class=rows)
    yield from _runs(label, data, "DEC start", _TWO, start="dec")
    yield from _runs(label, data, "k-means start", _TWO, start="kmeans")
    yield from _runs(label, data, "mixture start", _TWO, start="mixture")
    for kind, name in (("central", "central DEC"), ("uifca", "UIFCA")):
        options = {"kind": kind, "world": {"data": data, "start": "kmeans"}, "row": f"{name}, {label}"}
        # The rows of the same peers as are compared with.
        yield Setup(f"{name}, {label}", data, options, draws=f"{label}, DEC start")


class FedCRefExperiment(Experiment):
    """All runs of FedCRef and of the methods it is compared with."""

    id = "fedcref"
    keeps = True

    def setups(self) -> Sequence[Setup]:
        return list(_worlds())

    def repeat(self, setup: Setup, rng: np.random.Generator, peers: Peers, *, quick: bool) -> Values:
        from p2pclust.reproduce import fedcref_baselines as baselines  # noqa: PLC0415 - torch is an extra
        from p2pclust.reproduce.fedcref_runs import Setting, World, run  # noqa: PLC0415

        world = World(**setup.options["world"])
        if setup.options["kind"] == "run":
            setting = Setting(world, setup.options["method"], setup.options["parameters"])
            return {setup.name: run(setting, rng, peers, quick=quick, name=_file_name(setup, rng))}
        if setup.options["kind"] == "central":
            found = baselines.central_dec(world, rng, quick=quick)
        else:
            found = baselines.uifca(world, rng, peers, quick=quick)
        return {f"{setup.options['row']}, {row}": values for row, values in found.items()}


def _file_name(setup: Setup, rng: np.random.Generator) -> str:
    """Name what a world keeps: by the world, and by the repetition's stream, of which nothing was drawn yet."""
    state = rng.bit_generator.state["state"]["state"]
    return f"{setup.options['world']['data']}-{state % 2**64:016x}"


def setups_of(*what: str, methods: Sequence[str] = _ALL, labels: Sequence[str] = ()) -> list[Setup]:
    """Return the set-ups of some methods in the worlds that are called so; by default where digits are."""
    wanted = [f"{m}, {label}, {w}" for label in labels or (digits()[0],) for w in what for m in methods]
    by_name = {setup.name: setup for setup in FedCRefExperiment().setups()}
    return [by_name[name] for name in wanted]


class FedCRefTable(Table):
    """A table over worlds: which of them, and what they are called here."""

    experiment = FedCRefExperiment()
    repeats = 5
    quick_repeats = 1
    interval = True
    what: ClassVar[Sequence[str]] = ()
    methods: ClassVar[Sequence[str]] = _ALL
    called: ClassVar[Mapping[str, str]] = {}
    """Where a table calls a world otherwise than it is called elsewhere."""
    panels: ClassVar[Sequence[str]] = ("acc",)

    def labels(self) -> Sequence[str]:
        """Return its data sets."""
        return (digits()[0],)

    def setups(self, *, quick: bool) -> Sequence[Setup]:
        what = self.what[:1] if quick else self.what
        labels = self.labels()[:1] if quick else self.labels()
        return setups_of(*what, methods=self.methods, labels=labels)

    def summary(self, found: Findings) -> Findings:
        return found.renamed({row: self.row(*row.split(", ", 2)) for row in found.rows})

    def row(self, method: str, label: str, what: str) -> str:
        """Return the name of a row in this table."""
        return f"{method}, {label}, {self.called.get(what, what)}"

    def draw(self, figure: Figure, found: Findings) -> None:
        shown, numbers = self.summary(found), published(self.id).numbers
        rows = [row for row in self.drawn(shown) if shown.has(row, self.panels[0])][::-1]
        figure.set_size_inches(3.2 * len(self.panels) + 3.5, 0.32 * len(rows) + 1.4)
        colours = [_COLOURS.get(row.partition(", ")[0], "#9c9c9c") for row in rows]
        for place, measure in enumerate(self.panels, start=1):
            axes = figure.add_subplot(1, len(self.panels), place)
            spreads = np.nan_to_num([shown.ci(row, measure) for row in rows])
            axes.barh(
                range(len(rows)), [shown.mean(row, measure) for row in rows], xerr=spreads, color=colours, height=0.7
            )
            known = [(y, numbers[row, measure].mean) for y, row in enumerate(rows) if (row, measure) in numbers]
            axes.plot([x for _, x in known], [y for y, _ in known], "kD", markersize=5, label="the paper")
            axes.set_yticks(range(len(rows)), rows if place == 1 else [], fontsize=8)
            axes.set_xlabel(self.measures[measure])
            axes.set_xlim(left=0)
        if rows:
            figure.legend(*axes.get_legend_handles_labels(), loc="outside upper right", fontsize=8)

    def drawn(self, shown: Findings) -> Sequence[str]:
        """Return the rows of the picture, from the top."""
        runs = [setup for setup in self.setups(quick=False) if setup.options["kind"] == "run"]
        names = [self.row(*setup.name.split(", ", 2)) for setup in runs]
        return [row for row in names if row in shown.rows]

    # -- what must hold ---------------------------------------------------------------------------------------------------

    def mean_claim(
        self, found: Findings, what: str, row: str, measure: str, *, least: float = -math.inf, most: float = math.inf
    ) -> Claim:
        """Claim that a mean lies within bounds."""
        if not found.has(row, measure):
            return Claim(what, "not measured", None)
        value = found.mean(row, measure)
        return Claim(what, f"{value:.3f}", least <= value <= most)

    def order_claim(self, found: Findings, what: str, rows: Sequence[str], measure: str) -> Claim:
        """Claim that the means of rows ascend strictly."""
        if not all(found.has(row, measure) for row in rows):
            return Claim(what, "not measured", None)
        means = [found.mean(row, measure) for row in rows]
        held = all(a < b for a, b in pairwise(means))
        return Claim(what, " < ".join(f"{value:.3f}" for value in means), held)
