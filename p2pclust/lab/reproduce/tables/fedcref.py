"""Tables 3 to 12 of FedCRef, and its Figures 7 to 10: curves over K and over iterations.

Every run is one repetition of one set-up: a world, and one method in it. Tables share them, and those of one world are
drawn alike, so methods are compared on the same peers, rows and starts. The paper has EMNIST Digits; where it is not
in the cache directory MNIST is taken, and rows are called so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from p2pclust.data.registry import available
from p2pclust.lab.pictures.curves import mean_curves
from p2pclust.lab.reproduce.fedcref_runs import PeerWorld, Setting, central_dec, run, uifca
from p2pclust.lab.reproduce.model import (
    Claim,
    Experiment,
    Findings,
    Setup,
    Source,
    Table,
    Values,
    about_means,
    published,
    rising,
)
from p2pclust.lab.reproduce.peers import Peers

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
    # MNIST has only 400 rows of each class for 40 peers.
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
    settings = {f"{method}, {label}, {what}": Setting(world, method, parameters.get(method, {})) for method in methods}
    drawn_as = f"{label}, {draws or what}"
    return [Setup(name, partial(_run, name, setting), world.data, drawn_as) for name, setting in settings.items()]


def _setups() -> list[Setup]:
    label, data = digits()
    found: list[Setup] = []
    # The paper trains longer on Fashion-MNIST, with a stricter test; the refined mode has one setting for all data.
    longer: dict[str, Any] = {"paper": {"epochs": 30, "theta": 0.15}, "perfect": {"epochs": 30}}
    for of, source, own in ((label, data, {}), ("KMNIST", "kmnist", {}), ("Fashion-MNIST", "fashion_mnist", longer)):
        for dirt in DIRT:
            found += _runs(of, f"dirtiness {dirt}", PeerWorld(source, dirtiness=dirt), **own)
    for alpha, theta in GRID[1:]:
        # In the worlds of the usual parameters: only these differ.
        found += _runs(
            label, f"α {alpha}, θ {theta}", PeerWorld(data), ["paper"], draws="dirtiness 0.3",
            paper={"alpha": float(alpha), "theta": theta},
        )  # fmt: skip
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
    id: str, claims: Callable[[Findings], Iterable[Claim]],
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
        _draw_bars(figure, shown, rows, panels, published(id))

    return Table(
        id, FEDCREF, claims, draw or draw_bars, wanted, lambda name: wanted(name, quick or what[:1], ()), summary,
        repeats=5, quick_repeats=1, interval=True,
    )  # fmt: skip


def _draw_bars(figure: Figure, shown: Findings, rows: Sequence[str], panels: Sequence[str], source: Source) -> None:
    """Draw a panel for each measure: a bar for each row, from the top, and the paper's number as a diamond."""
    rows = [row for row in rows if shown.has(row, panels[0])][::-1]
    figure.set_size_inches(3.2 * len(panels) + 3.5, 0.32 * len(rows) + 1.4)
    colours = [_COLOURS.get(row.partition(", ")[0], "#9c9c9c") for row in rows]
    numbers = source.numbers
    for axes, measure in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        spreads = np.nan_to_num([shown.ci(row, measure) for row in rows])
        means = [shown.mean(row, measure) for row in rows]
        axes.barh(range(len(rows)), means, xerr=spreads, color=colours, height=0.7)
        known = [(y, numbers[row, measure].mean) for y, row in enumerate(rows) if (row, measure) in numbers]
        axes.plot([x for _, x in known], [y for y, _ in known], "kD", markersize=5, label="the paper")
        axes.set_yticks(range(len(rows)), rows if axes is figure.axes[0] else [], fontsize=8)
        axes.set_xlabel(source.measures[measure])
        axes.set_xlim(left=0)
    if rows:
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper right", fontsize=8)


_FOUND = ("communities", "wrong", "isolated")
_STARTS = ("DEC start", "k-means start", "mixture start")
_BY_DIRT = tuple(f"dirtiness {dirt}" for dirt in DIRT)
_BY_GRID = {(75, 0.2): "dirtiness 0.3", **{(alpha, theta): f"α {alpha}, θ {theta}" for alpha, theta in GRID[1:]}}
#: The worlds of the overlaps, by their names in tables.
_OVERLAP_WORLDS = {"overlap 0.0": "dirtiness 0.3", **{f"overlap {share}": f"overlap {share}" for share in OVERLAPS[1:]}}
_BY_OVERLAP = tuple(_OVERLAP_WORLDS.values())
_MORE_DATA = ("KMNIST", "Fashion-MNIST")

_claim = partial(about_means, digits=3)


def _claims_of_table_3(found: Findings) -> Iterable[Claim]:
    others = {"DEC of all rows at its best K": ("central DEC", "best K"), "UIFCA": ("UIFCA", "K 10 given")}
    for method in TWO:
        for name, other in others.items():
            rows = [row_of(*other), row_of(method, "DEC start")]
            yield rising(found, f"{method} from DEC above {name}", rows, "acc")


def _claims_of_table_4(found: Findings) -> Iterable[Claim]:
    for start in _STARTS:
        row = row_of("refined", start)
        yield _claim(found, f"refined, {start}: ACC at least 0.93", [row], "acc", lambda acc: acc >= 0.93)
        yield _claim(found, f"refined, {start}: at most 2 isolated clusters", [row], "isolated", lambda n: n <= 2)
    what = "paper, DEC start: the end above the start"
    yield _claim(found, what, [row_of("paper", "DEC start")], "improvement", lambda percent: percent >= 1e-9)


def _claims_of_table_5(found: Findings) -> Iterable[Claim]:
    row = row_of("paper", "dirtiness 0.3")
    yield _claim(found, "paper, 0.3: 9 to 11 communities", [row], "communities", lambda n: 9 <= n <= 11)
    yield _claim(found, "paper, 0.3: at most 5 % wrong associations", [row], "wrong", lambda percent: percent <= 5)
    for dirt in (0.3, 0.5):
        row, name = row_of("refined", f"dirtiness {dirt}"), f"refined, {dirt}"
        yield _claim(found, f"{name}: at most 2 isolated clusters", [row], "isolated", lambda n: n <= 2)
        yield _claim(found, f"{name}: 10 communities within 0.5", [row], "communities", lambda n: 9.5 <= n <= 10.5)


def _claims_of_table_6(found: Findings) -> Iterable[Claim]:
    label = digits()[0]
    for method, data, dirt, least, paper in (
        ("paper", label, 0.3, 0.87, 0.879), ("refined", label, 0.3, 0.945, 0.879), ("refined", label, 0.5, 0.93, 0.711),
        ("refined", "Fashion-MNIST", 0.3, 0.85, 0.787),
    ):  # fmt: skip
        what = f"{method}, {data}, {dirt}: ACC at least {least} (paper {paper})"
        row = f"{method}, {data}, dirtiness {dirt}"
        yield _claim(found, what, [row], "acc", lambda acc, least=least: bool(acc >= least))
    for data in (label, *_MORE_DATA):
        rows = [f"paper, {data}, {dirt}" for dirt in reversed(_BY_DIRT)]
        yield rising(found, f"paper, {data}: the cleaner the start, the better the end", rows, "acc")


def _claims_of_table_7(found: Findings) -> Iterable[Claim]:
    rows = {f"{alpha}/{theta}": row_of("paper", world) for (alpha, theta), world in _BY_GRID.items()}
    for other in ("75/0.1", "75/0.3", "85/0.2", "90/0.2"):
        yield rising(found, f"ACC: 75/0.2 above {other}", [rows[other], rows["75/0.2"]], "acc")
    strict = [rows[name] for name in ("75/0.2", "85/0.2", "75/0.1", "90/0.2")]
    yield rising(found, "isolated at the end: 75/0.2 < 85/0.2 < 75/0.1 < 90/0.2", strict, "isolated")
    yield rising(found, "wrong associations: 75/0.2 < 75/0.3", [rows["75/0.2"], rows["75/0.3"]], "wrong")


def _by_peers(method: str) -> list[str]:
    return [row_of(method, n_label(number)) for number in PEERS]


def _over_peers(
    id: str, claims: Callable[[Findings], Iterable[Claim]],
    *, panels: Sequence[str] = ("acc",), methods: Sequence[str] = TWO,
) -> Table:  # fmt: skip
    """Return a table by the number of peers, which its picture has on the x axis."""

    def draw(figure: Figure, found: Findings) -> None:
        figure.set_size_inches(5.5 * len(panels) + 1, 4.5)
        for measure, axes in zip(panels, figure.subplots(1, len(panels), squeeze=False)[0], strict=True):
            for method in methods:
                rows = dict(zip(map(float, PEERS), _by_peers(method), strict=True))
                numbers, means, spreads = found.points(rows, measure, "ci")
                if numbers:
                    axes.errorbar(numbers, means, spreads, marker="o", capsize=3, label=method)
            axes.set(xlabel="peers", ylabel=published(id).measures[measure], xticks=list(PEERS))
            axes.legend()

    worlds = [f"N {number}" for number in PEERS]
    return over_worlds(id, claims, what=worlds, methods=methods, panels=panels, draw=draw)


_STEP_PANELS: Mapping[str, str] = {
    "communities by step": "communities", "acc by step": "ACC", "wrong by step": "wrong associations (%)",
    "isolated by step": "isolated clusters", "active by step": "active peers",
}  # fmt: skip


def _draw_figure_7(figure: Figure, found: Findings) -> None:
    axes = figure.add_subplot()
    rows = [row for row in found.rows if " K " in row and not row.endswith("best K")]
    numbers, means, spreads = found.points({int(row.rpartition(" ")[2]): row for row in rows}, "acc", "ci")
    axes.errorbar(numbers, means, spreads, marker="o", capsize=3)
    axes.set(xlabel="K", ylabel="ACC", title="centralised DEC")


def _claims_of_figure_8(found: Findings) -> Iterable[Claim]:
    row, what = row_of("paper", "DEC start"), "paper: the number of active peers never rises"
    if not found.has(row, "active by step"):
        return [Claim(what)]
    rises = int((np.diff(found.curves(row, "active by step"), axis=1) > 0).sum())
    return [Claim(what, f"{rises} rises", rises == 0, always=True)]


def _draws_steps(
    panels: Sequence[str], lines: Callable[[str], Mapping[str, str]]
) -> Callable[[Figure, Findings], None]:
    """Return what draws curves over iterations, a row of panels for each mode; `lines` of a mode are label to row."""

    def draw(figure: Figure, found: Findings) -> None:
        figure.set_size_inches(3.4 * len(panels), 3.2 * len(TWO))
        for method, line in zip(TWO, figure.subplots(len(TWO), len(panels)), strict=True):
            for measure, axes in zip(panels, line, strict=True):
                mean_curves(axes, found.all_curves(lines(method), measure), first=0)
                if axes.lines and _STEP_PANELS[measure] != "ACC":
                    # Numbers of things: one that stays is a flat line, not a scale.
                    axes.set_ylim(0, max(1.0, 1.05 * axes.dataLim.y1))
                axes.set_title(f"{_STEP_PANELS[measure]}, {method}", fontsize=10)
                axes.set_xlabel("iteration" if method == "paper" else "refinement", fontsize=9)
                if axes is line[0] and axes.lines and len(lines(method)) > 1:
                    axes.legend(fontsize=8)

    return draw


TABLES = (
    over_worlds("004-table3", _claims_of_table_3, what=_STARTS, methods=(*TWO, "central DEC", "UIFCA")),
    over_worlds("004-table4", _claims_of_table_4, what=_STARTS, panels=("acc", "communities", "isolated")),
    over_worlds(
        "004-table5", _claims_of_table_5, what=_BY_DIRT, labels=_MORE_DATA, quick=("dirtiness 0.3",), panels=_FOUND,
    ),
    over_worlds(
        "004-table6", _claims_of_table_6, what=_BY_DIRT, methods=ALL, labels=_MORE_DATA, quick=("dirtiness 0.3",),
    ),
    over_worlds(
        "004-table7", _claims_of_table_7, what=tuple(_BY_GRID.values()), methods=("paper",),
        quick=("dirtiness 0.3", "α 75, θ 0.3"), called={"dirtiness 0.3": "α 75, θ 0.2"}, panels=("acc", *_FOUND),
    ),
    over_worlds(
        "004-table8",
        lambda found: [
            rising(found, "paper: the more overlap, the fewer isolated clusters",
                   [row_of("paper", world) for world in reversed(_BY_OVERLAP)], "isolated")
        ],
        what=_BY_OVERLAP, called={"dirtiness 0.3": "overlap 0.0"}, panels=_FOUND,
    ),
    over_worlds(
        "004-table9",
        lambda found: [
            rising(found, f"{method}: the more overlap, the better", [row_of(method, w) for w in _BY_OVERLAP], "acc")
            for method in ("paper", "perfect")
        ],
        what=_BY_OVERLAP, methods=ALL, called={"dirtiness 0.3": "overlap 0.0"},
    ),
    _over_peers(
        "004-table10",
        lambda found: [
            rising(found, "the more peers, the more clusters to begin with", _by_peers("paper"), "isolated start")
        ],
        panels=_FOUND,
    ),
    _over_peers(
        "004-table11", lambda found: [rising(found, "perfect: the more peers, the better", _by_peers("perfect"), "acc")],
        methods=ALL,
    ),
    _over_peers(
        "004-table12",
        lambda found: [
            rising(found, "paper: the more peers, the longer it takes", _by_peers("paper"), "minutes"),
            *(
                _claim(found, f"refined, N {row.rpartition('N ')[2]}: at most 2 minutes", [row], "minutes",
                       lambda minutes: minutes <= 2)
                for row in _by_peers("refined")
            ),
        ],
        panels=("iterations", "minutes"),
    ),
    over_worlds(
        "004-figure7", lambda found: [
            _claim(found, "the best K lies between 7 and 12 (paper: 9)", [row_of("central DEC", "best K")], "communities",
                   lambda best: 7 <= best <= 12)
        ],
        what=(), methods=("central DEC",), draw=_draw_figure_7,
    ),
    over_worlds(
        "004-figure8", _claims_of_figure_8, what=("DEC start",),
        draw=_draws_steps(tuple(_STEP_PANELS), lambda method: {method: row_of(method, "DEC start")}),
    ),
    over_worlds(
        "004-figure9", lambda found: (), what=_BY_OVERLAP,
        draw=_draws_steps(
            ("communities by step", "acc by step", "isolated by step"),
            lambda method: {label: row_of(method, world) for label, world in _OVERLAP_WORLDS.items()},
        ),
    ),
    over_worlds(
        "004-figure10", lambda found: (), what=[f"N {number}" for number in PEERS],
        draw=_draws_steps(
            ("communities by step", "acc by step", "wrong by step", "isolated by step"),
            lambda method: {f"{number} peers": row_of(method, n_label(number)) for number in PEERS},
        ),
    ),
)  # fmt: skip
