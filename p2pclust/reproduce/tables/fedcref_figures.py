"""Figures 7 to 10 of FedCRef: curves over K and over iterations."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from p2pclust.reproduce.drawing import curves
from p2pclust.reproduce.model import Claim, Findings, Setup
from p2pclust.reproduce.tables.fedcref import OVERLAPS, FedCRefTable, digits, n_label, setups_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FedCRefFigure7", "FedCRefFigure8", "FedCRefFigure9", "FedCRefFigure10"]

_PANELS: Mapping[str, str] = {
    "communities by step": "communities", "acc by step": "ACC", "wrong by step": "wrong associations (%)",
    "isolated by step": "isolated clusters", "active by step": "active peers",
}  # fmt: skip


class FedCRefFigure7(FedCRefTable):
    """Centralised DEC over K."""

    id = "004-figure7"
    shows = "ACC of DEC where all rows are in one place (10 000 of them), over K"
    time = "3 h"
    measures: ClassVar[Mapping[str, str]] = {"acc": "ACC", "communities": "best K"}

    def setups(self, *, quick: bool) -> Sequence[Setup]:
        return [setup for setup in self.experiment.setups() if setup.options["kind"] == "central"]

    def summary(self, found: Findings) -> Findings:
        return found

    def claims(self, found: Findings) -> Iterable[Claim]:
        row = f"central DEC, {digits()[0]}, best K"
        what = "the best K lies between 7 and 12 (paper: 9)"
        yield self.mean_claim(found, what, row, "communities", least=7, most=12)

    def draw(self, figure: Figure, found: Findings) -> None:
        axes = figure.add_subplot()
        rows = [row for row in found.rows if " K " in row and not row.endswith("best K")]
        numbers = [int(row.rpartition(" ")[2]) for row in rows]
        means, spreads = [found.mean(row, "acc") for row in rows], [found.ci(row, "acc") for row in rows]
        axes.errorbar(numbers, means, spreads, marker="o", capsize=3)
        axes.set(xlabel="K", ylabel="ACC", title="centralised DEC")


class _Curves(FedCRefTable):
    """Curves over iterations, one row of panels for each mode."""

    methods = ("paper", "refined")
    shown: ClassVar[Sequence[str]] = tuple(_PANELS)
    measures: ClassVar[Mapping[str, str]] = {
        "acc init": "ACC, start", "acc": "ACC, end", "communities": "communities", "isolated": "isolated, end",
        "iterations": "iterations, or refinements",
    }  # fmt: skip

    @abstractmethod
    def lines(self, method: str) -> Mapping[str, str]:
        """Return the curves of a panel: label to row."""

    def draw(self, figure: Figure, found: Findings) -> None:
        figure.set_size_inches(3.4 * len(self.shown), 3.2 * len(self.methods))
        for line, method in enumerate(self.methods):
            for place, measure in enumerate(self.shown):
                axes = figure.add_subplot(len(self.methods), len(self.shown), line * len(self.shown) + place + 1)
                curves(axes, found, self.lines(method), measure, first=0)
                if (
                    axes.lines and _PANELS[measure] != "ACC"
                ):  # numbers of things: one that stays is a flat line, not a scale
                    axes.set_ylim(0, max(1.0, 1.05 * axes.dataLim.y1))
                axes.set_title(f"{_PANELS[measure]}, {method}", fontsize=10)
                axes.set_xlabel("iteration" if method == "paper" else "refinement", fontsize=9)
                if place == 0 and axes.lines and len(self.lines(method)) > 1:
                    axes.legend(fontsize=8)


class FedCRefFigure8(_Curves):
    """The five curves, from local DEC."""

    id = "004-figure8"
    shows = "communities, ACC, wrong associations, isolated clusters and active peers over iterations, from local DEC"
    time = "4 h"
    what = ("DEC start",)

    def lines(self, method: str) -> Mapping[str, str]:
        return {method: f"{method}, {digits()[0]}, DEC start"}

    def claims(self, found: Findings) -> Iterable[Claim]:
        row, what = self.lines("paper")["paper"], "paper: the number of active peers never rises"
        if not found.has(row, "active by step"):
            yield Claim(what, "not measured", None)
            return
        samples = found.curves(row, "active by step")
        rises = int((samples[:, 1:] > samples[:, :-1]).sum())
        yield Claim(what, f"{rises} rises", rises == 0, always=True)


class FedCRefFigure9(_Curves):
    """Curves by overlap."""

    id = "004-figure9"
    shows = "communities, ACC and isolated clusters over iterations, by overlap"
    time = "2 h"
    what = ("dirtiness 0.3", *(f"overlap {overlap}" for overlap in OVERLAPS[1:]))
    shown = ("communities by step", "acc by step", "isolated by step")

    def summary(self, found: Findings) -> Findings:
        return found

    def lines(self, method: str) -> Mapping[str, str]:
        return {
            f"overlap {overlap}": f"{method}, {digits()[0]}, {what}"
            for overlap, what in zip(OVERLAPS, self.what, strict=True)
        }


class FedCRefFigure10(_Curves):
    """Curves by the number of peers."""

    id = "004-figure10"
    shows = "communities, ACC, wrong associations and isolated clusters over iterations, by the number of peers"
    time = "4 h"
    shown = ("communities by step", "acc by step", "wrong by step", "isolated by step")

    def setups(self, *, quick: bool) -> Sequence[Setup]:
        names = [n_label(number, digits()[0]) for number in (20, 30, 40)]
        return setups_of(*names[: 1 if quick else None], methods=self.methods)

    def lines(self, method: str) -> Mapping[str, str]:
        return {
            f"{number} peers": f"{method}, {digits()[0]}, {n_label(number, digits()[0])}" for number in (20, 30, 40)
        }
