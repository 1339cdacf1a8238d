"""Figures 7 to 10 of FedCRef: curves over K and over iterations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from p2pclust.lab.pictures.curves import mean_curves
from p2pclust.lab.reproduce.model import Claim, Findings, about_means
from p2pclust.lab.reproduce.tables.fedcref import OVERLAPS, PEERS, TWO, n_label, over_worlds, row_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PANELS: Mapping[str, str] = {
    "communities by step": "communities", "acc by step": "ACC", "wrong by step": "wrong associations (%)",
    "isolated by step": "isolated clusters", "active by step": "active peers",
}  # fmt: skip
_MEASURES: Mapping[str, str] = {
    "acc init": "ACC, start", "acc": "ACC, end", "communities": "communities", "isolated": "isolated, end",
    "iterations": "iterations, or refinements",
}  # fmt: skip


def _claims_of_figure_7(found: Findings) -> Iterable[Claim]:
    what, row = "the best K lies between 7 and 12 (paper: 9)", row_of("central DEC", "best K")
    yield about_means(found, what, [row], "communities", lambda best: 7 <= best <= 12, digits=3)


def _draw_figure_7(figure: Figure, found: Findings) -> None:
    axes = figure.add_subplot()
    rows = [row for row in found.rows if " K " in row and not row.endswith("best K")]
    numbers = [int(row.rpartition(" ")[2]) for row in rows]
    means, spreads = [found.mean(row, "acc") for row in rows], [found.ci(row, "acc") for row in rows]
    axes.errorbar(numbers, means, spreads, marker="o", capsize=3)
    axes.set(xlabel="K", ylabel="ACC", title="centralised DEC")


def _claims_of_figure_8(found: Findings) -> Iterable[Claim]:
    row, what = row_of("paper", "DEC start"), "paper: the number of active peers never rises"
    if not found.has(row, "active by step"):
        yield Claim(what)
        return
    samples = found.curves(row, "active by step")
    rises = int((samples[:, 1:] > samples[:, :-1]).sum())
    yield Claim(what, f"{rises} rises", rises == 0, always=True)


def _draws(panels: Sequence[str], lines: Callable[[str], Mapping[str, str]]) -> Callable[[Figure, Findings], None]:
    """Return what draws curves over iterations, a row of panels for each mode; `lines` of a mode are label to row."""

    def draw(figure: Figure, found: Findings) -> None:
        figure.set_size_inches(3.4 * len(panels), 3.2 * len(TWO))
        for line, method in enumerate(TWO):
            for place, measure in enumerate(panels):
                axes = figure.add_subplot(len(TWO), len(panels), line * len(panels) + place + 1)
                mean_curves(axes, found.all_curves(lines(method), measure), first=0)
                if axes.lines and _PANELS[measure] != "ACC":
                    # Numbers of things: one that stays is a flat line, not a scale.
                    axes.set_ylim(0, max(1.0, 1.05 * axes.dataLim.y1))
                axes.set_title(f"{_PANELS[measure]}, {method}", fontsize=10)
                axes.set_xlabel("iteration" if method == "paper" else "refinement", fontsize=9)
                if place == 0 and axes.lines and len(lines(method)) > 1:
                    axes.legend(fontsize=8)

    return draw


_BY_OVERLAP = {f"overlap {overlap}": f"overlap {overlap}" for overlap in OVERLAPS} | {"overlap 0.0": "dirtiness 0.3"}

TABLES = (
    over_worlds(
        "004-figure7", "ACC of DEC where all rows are in one place (10 000 of them), over K", "3 h",
        {"acc": "ACC", "communities": "best K"}, _claims_of_figure_7, what=(), methods=("central DEC",),
        draw=_draw_figure_7,
    ),
    over_worlds(
        "004-figure8",
        "communities, ACC, wrong associations, isolated clusters and active peers over iterations, from local DEC",
        "4 h", _MEASURES, _claims_of_figure_8, what=("DEC start",),
        draw=_draws(tuple(_PANELS), lambda method: {method: row_of(method, "DEC start")}),
    ),
    over_worlds(
        "004-figure9", "communities, ACC and isolated clusters over iterations, by overlap", "2 h", _MEASURES,
        lambda found: (), what=tuple(_BY_OVERLAP.values()),
        draw=_draws(
            ("communities by step", "acc by step", "isolated by step"),
            lambda method: {label: row_of(method, world) for label, world in _BY_OVERLAP.items()},
        ),
    ),
    over_worlds(
        "004-figure10",
        "communities, ACC, wrong associations and isolated clusters over iterations, by the number of peers", "4 h",
        _MEASURES, lambda found: (), what=[f"N {number}" for number in PEERS],
        draw=_draws(
            ("communities by step", "acc by step", "wrong by step", "isolated by step"),
            lambda method: {f"{number} peers": row_of(method, n_label(number)) for number in PEERS},
        ),
    ),
)  # fmt: skip
