"""Tables 3 to 12 of FedCRef."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from p2pclust.reproduce.model import Claim, Findings, Setup
from p2pclust.reproduce.tables.fedcref import DIRT, GRID, OVERLAPS, FedCRefTable, digits, n_label, setups_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "FedCRefTable3", "FedCRefTable4", "FedCRefTable5", "FedCRefTable6", "FedCRefTable7", "FedCRefTable8", "FedCRefTable9",
    "FedCRefTable10", "FedCRefTable11", "FedCRefTable12",
]  # fmt: skip

_OUTCOMES: Mapping[str, str] = {
    "communities": "communities", "wrong": "wrong associations (%)", "isolated start": "isolated, start",
    "isolated": "isolated, end", "wrong pairs": "wrong pairs in communities (%)",
}  # fmt: skip
_SCORES: Mapping[str, str] = {"acc init": "ACC, start", "acc": "ACC, end", "improvement": "improvement (%)"}
_STARTS = ("DEC start", "k-means start", "mixture start")


class FedCRefTable3(FedCRefTable):
    """FedCRef, centralised DEC and UIFCA."""

    id = "004-table3"
    shows = "FedCRef from local DEC, DEC of the pooled rows at its best K, and UIFCA (reduced), on digits"
    time = "7 h"
    methods = ("paper", "refined")
    what = _STARTS
    measures: ClassVar[Mapping[str, str]] = {"acc": "ACC", "communities": "communities, or best K"}

    def setups(self, *, quick: bool) -> Sequence[Setup]:
        others = [setup for setup in self.experiment.setups() if setup.options["kind"] != "run"]
        return [*super().setups(quick=quick), *others]

    def claims(self, found: Findings) -> Iterable[Claim]:
        label = digits()[0]
        others = {"DEC of all rows at its best K": "central DEC, {}, best K", "UIFCA": "UIFCA, {}, K 10 given"}
        for method in self.methods:
            row = f"{method}, {label}, DEC start"
            for name, other in others.items():
                yield self.order_claim(found, f"{method} from DEC above {name}", [other.format(label), row], "acc")

    def drawn(self, shown: Findings) -> Sequence[str]:
        label = digits()[0]
        others = [f"central DEC, {label}, best K", f"UIFCA, {label}, K 10 given"]
        return [*super().drawn(shown), *(row for row in others if row in shown.rows)]


class FedCRefTable4(FedCRefTable):
    """FedCRef from local DEC."""

    id = "004-table4"
    shows = "FedCRef from local DEC, k-means and mixtures of Gaussians: accuracy, communities, isolated clusters"
    time = "4 h"
    methods = ("paper", "refined")
    what = _STARTS
    measures: ClassVar[Mapping[str, str]] = {**_SCORES, **_OUTCOMES}
    panels = ("acc", "communities", "isolated")

    def claims(self, found: Findings) -> Iterable[Claim]:
        label = digits()[0]
        for start in _STARTS:
            row = f"refined, {label}, {start}"
            yield self.mean_claim(found, f"refined, {start}: ACC at least 0.93", row, "acc", least=0.93)
            yield self.mean_claim(found, f"refined, {start}: at most 2 isolated clusters", row, "isolated", most=2)
        row = f"paper, {label}, DEC start"
        what = "paper, DEC start: the end above the start"
        yield self.mean_claim(found, what, row, "improvement", least=1e-9)


class _ByDirt(FedCRefTable):
    what = tuple(f"dirtiness {dirt}" for dirt in DIRT)

    def labels(self) -> Sequence[str]:
        return (digits()[0], "KMNIST", "Fashion-MNIST")

    def setups(self, *, quick: bool) -> Sequence[Setup]:
        if quick:
            return setups_of("dirtiness 0.3", methods=self.methods)
        return super().setups(quick=quick)


class FedCRefTable5(_ByDirt):
    """What is found, by dirtiness."""

    id = "004-table5"
    shows = "communities, wrong associations and isolated clusters by dirtiness, on three data sets"
    time = "5 h"
    methods = ("paper", "refined")
    measures: ClassVar[Mapping[str, str]] = _OUTCOMES
    panels = ("communities", "wrong", "isolated")

    def claims(self, found: Findings) -> Iterable[Claim]:
        label = digits()[0]
        row = f"paper, {label}, dirtiness 0.3"
        yield self.mean_claim(found, "paper, 0.3: 9 to 11 communities", row, "communities", least=9, most=11)
        yield self.mean_claim(found, "paper, 0.3: at most 5 % wrong associations", row, "wrong", most=5)
        for dirt in (0.3, 0.5):
            row, name = f"refined, {label}, dirtiness {dirt}", f"refined, {dirt}"
            yield self.mean_claim(found, f"{name}: at most 2 isolated clusters", row, "isolated", most=2)
            yield self.mean_claim(found, f"{name}: 10 communities within 0.5", row, "communities", least=9.5, most=10.5)


class FedCRefTable6(_ByDirt):
    """Accuracy, by dirtiness."""

    id = "004-table6"
    shows = "accuracy by dirtiness, and with perfect associations, on three data sets"
    time = "7 h"
    measures: ClassVar[Mapping[str, str]] = _SCORES

    def claims(self, found: Findings) -> Iterable[Claim]:
        label = digits()[0]
        for method, data, dirt, least, paper in (
            ("paper", label, 0.3, 0.87, 0.879), ("refined", label, 0.3, 0.945, 0.879), ("refined", label, 0.5, 0.93, 0.711),
            ("refined", "Fashion-MNIST", 0.3, 0.85, 0.787),
        ):  # fmt: skip
            what = f"{method}, {data}, {dirt}: ACC at least {least} (paper {paper})"
            row = f"{method}, {data}, dirtiness {dirt}"
            yield self.mean_claim(found, what, row, "acc", least=least)
        for data in self.labels():
            rows = [f"paper, {data}, dirtiness {dirt}" for dirt in reversed(DIRT)]
            yield self.order_claim(found, f"paper, {data}: the cleaner the start, the better the end", rows, "acc")


class FedCRefTable7(FedCRefTable):
    """The association's two parameters."""

    id = "004-table7"
    shows = "mode paper by α and θ, at dirtiness 0.3 on digits"
    time = "3 h"
    methods = ("paper",)
    what = ("dirtiness 0.3", *(f"α {alpha}, θ {theta}" for alpha, theta in GRID[1:]))
    called: ClassVar[Mapping[str, str]] = {"dirtiness 0.3": f"α {GRID[0][0]}, θ {GRID[0][1]}"}
    measures: ClassVar[Mapping[str, str]] = {"acc": "ACC", **_OUTCOMES}
    panels = ("acc", "communities", "wrong", "isolated")

    def setups(self, *, quick: bool) -> Sequence[Setup]:
        chosen = super().setups(quick=False)
        return [chosen[0], chosen[2]] if quick else chosen

    def claims(self, found: Findings) -> Iterable[Claim]:
        shown = self.summary(found)
        rows = {f"{alpha}/{theta}": f"paper, {digits()[0]}, α {alpha}, θ {theta}" for alpha, theta in GRID}
        usual = rows["75/0.2"]
        for other in ("75/0.1", "75/0.3", "85/0.2", "90/0.2"):
            yield self.order_claim(shown, f"ACC: 75/0.2 above {other}", [rows[other], usual], "acc")
        strict = [rows[name] for name in ("75/0.2", "85/0.2", "75/0.1", "90/0.2")]
        yield self.order_claim(shown, "isolated at the end: 75/0.2 < 85/0.2 < 75/0.1 < 90/0.2", strict, "isolated")
        wrong = [usual, rows["75/0.3"]]
        yield self.order_claim(shown, "wrong associations: 75/0.2 < 75/0.3", wrong, "wrong")


class _ByOverlap(FedCRefTable):
    what = ("dirtiness 0.3", *(f"overlap {overlap}" for overlap in OVERLAPS[1:]))
    called: ClassVar[Mapping[str, str]] = {"dirtiness 0.3": "overlap 0.0"}

    def rows(self, method: str) -> list[str]:
        """Return a method's rows by overlap."""
        return [f"{method}, {digits()[0]}, overlap {overlap}" for overlap in OVERLAPS]


class FedCRefTable8(_ByOverlap):
    """What is found, by overlap."""

    id = "004-table8"
    shows = "communities, wrong associations and isolated clusters by overlap, at dirtiness 0.3 on digits"
    time = "2 h"
    methods = ("paper", "refined")
    measures: ClassVar[Mapping[str, str]] = _OUTCOMES
    panels = ("communities", "wrong", "isolated")

    def claims(self, found: Findings) -> Iterable[Claim]:
        rows = self.rows("paper")[::-1]
        what = "paper: the more overlap, the fewer isolated clusters"
        yield self.order_claim(self.summary(found), what, rows, "isolated")


class FedCRefTable9(_ByOverlap):
    """Accuracy, by overlap."""

    id = "004-table9"
    shows = "accuracy by overlap, and with perfect associations, at dirtiness 0.3 on digits"
    time = "3 h"
    measures: ClassVar[Mapping[str, str]] = _SCORES

    def claims(self, found: Findings) -> Iterable[Claim]:
        shown = self.summary(found)
        for method in ("paper", "perfect"):
            what = f"{method}: the more overlap, the better"
            yield self.order_claim(shown, what, self.rows(method), "acc")


class _ByPeers(FedCRefTable):
    numbers: ClassVar[Sequence[int]] = (20, 30, 40)

    def _named(self) -> list[str]:
        return [n_label(number, digits()[0]) for number in self.numbers]

    def setups(self, *, quick: bool) -> Sequence[Setup]:
        return setups_of(*self._named()[: 1 if quick else None], methods=self.methods)

    def rows(self, method: str) -> list[str]:
        """Return a method's rows by the number of peers."""
        return [f"{method}, {digits()[0]}, {name}" for name in self._named()]

    def draw(self, figure: Figure, found: Findings) -> None:
        figure.set_size_inches(5.5 * len(self.panels) + 1, 4.5)
        for place, measure in enumerate(self.panels, start=1):
            axes = figure.add_subplot(1, len(self.panels), place)
            for method in self.methods:
                known = [
                    (n, found, row)
                    for n, row in zip(self.numbers, self.rows(method), strict=True)
                    if found.has(row, measure)
                ]
                if known:
                    x, y = [n for n, _, _ in known], [f.mean(row, measure) for _, f, row in known]
                    axes.errorbar(
                        x, y, [f.ci(row, measure) for _, f, row in known], marker="o", capsize=3, label=method
                    )
            axes.set(xlabel="peers", ylabel=self.measures[measure], xticks=list(self.numbers))
            axes.legend()


class FedCRefTable10(_ByPeers):
    """What is found, by the number of peers."""

    id = "004-table10"
    shows = "communities, wrong associations and isolated clusters by the number of peers (20, 30, 40), on digits"
    time = "4 h"
    methods = ("paper", "refined")
    measures: ClassVar[Mapping[str, str]] = _OUTCOMES
    panels = ("communities", "wrong", "isolated")

    def claims(self, found: Findings) -> Iterable[Claim]:
        what = "the more peers, the more clusters to begin with"
        yield self.order_claim(found, what, self.rows("paper"), "isolated start")


class FedCRefTable11(_ByPeers):
    """Accuracy, by the number of peers."""

    id = "004-table11"
    shows = "accuracy by the number of peers (20, 30, 40), and with perfect associations, on digits"
    time = "6 h"
    measures: ClassVar[Mapping[str, str]] = _SCORES

    def claims(self, found: Findings) -> Iterable[Claim]:
        yield self.order_claim(found, "perfect: the more peers, the better", self.rows("perfect"), "acc")


class FedCRefTable12(_ByPeers):
    """Iterations and minutes, by the number of peers."""

    id = "004-table12"
    shows = "iterations and minutes by the number of peers (20, 30, 40), on digits"
    time = "4 h"
    methods = ("paper", "refined")
    measures: ClassVar[Mapping[str, str]] = {"iterations": "iterations, or refinements", "minutes": "minutes"}
    panels = ("iterations", "minutes")

    def claims(self, found: Findings) -> Iterable[Claim]:
        yield self.order_claim(found, "paper: the more peers, the longer it takes", self.rows("paper"), "minutes")
        for row in self.rows("refined"):
            number = row.rpartition("N ")[2]
            what = f"refined, N {number}: at most 2 minutes"
            yield self.mean_claim(found, what, row, "minutes", most=2)
