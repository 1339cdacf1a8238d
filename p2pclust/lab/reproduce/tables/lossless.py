"""Corcuera Bárcena, Marcelloni, Renda, Bechini, Ducange: Federated c-means and fuzzy c-means.

Section VI: 20 peers, fuzzifier 2, exactly thirty rounds, participation γ in {0.25, 0.5, 0.75, 1}, ten repetitions, in
each the same first centers for LLF-FCM, GDF-FCM and the pooled algorithm. GDF-FCM with learning rate 0.005 and ten local
iterations. Table IV deals the classes by Dirichlet(0.5); Table V seeds carefully.

Section VI-E deals columns in five ways: pendigits, 16 features scaled to [0, 1], ten clusters, fuzzifier 2, thirty rounds.
Each peer draws its columns of the first centers within their ranges, and a column's draw does not depend on who holds it:
so all splits start from the same centers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from p2pclust.clustering import Points, nearest
from p2pclust.lab.pictures.bars import mean_bars
from p2pclust.lab.pictures.curves import mean_curves
from p2pclust.lab.reproduce.model import (
    Claim,
    Experiment,
    Findings,
    Setup,
    Table,
    Values,
    about_means,
    published,
    rising,
)
from p2pclust.lab.reproduce.peers import Peers, seed_of
from p2pclust.lab.reproduce.tables.federated_fcm import (
    GAMMAS,
    against_pooled,
    data_case,
    equals_pooled,
    gamma_name,
    over_sets,
)
from p2pclust.metrics import adjusted_rand_index, center_distance
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import pooled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SETS = ("xclara", "s_set1", "s_set2", "pendigits", "waveform", "phoneme", "rice", "satellite")
_GRADIENT = {"learning_rate": 0.005, "local_iterations": 10}
_WITHIN_A_SD = {
    "ari": ("xclara", "s_set1", "s_set2", "waveform", "phoneme", "rice", "satellite"),
    "xie-beni": ("xclara", "s_set1", "s_set2", "phoneme", "rice", "satellite"),
}


def _repeat(name: str, rng: np.random.Generator, peers: Peers, *, quick: bool, **options: Any) -> Values:
    found = against_pooled(data_case(name, quick=quick), rng, peers, **options)
    return {
        f"{protocol}, {name}" + (f", {gamma_name(gamma)}" if "gammas" not in options else ""): values
        for (protocol, gamma), values in found.items()
    }


# The privacy gate would keep back peers that got very few rows, and equality with the pooled algorithm with them.
_GATELESS = {"llf-fcm": {"privacy_gate": False}, "gdf-fcm": {**_GRADIENT, "privacy_gate": False}}
_LOSSLESS = over_sets("lossless", _SETS, partial(_repeat, runs={"llf-fcm": {}, "gdf-fcm": _GRADIENT}))


def _claims_of_table_2(found: Findings) -> Iterable[Claim]:
    rows = [f"llf-fcm, {name}, {gamma_name(1.0)}" for name in _SETS]
    rows = [row for row in rows if found.has(row, "shifts")]
    what = "llf-fcm, γ = 1: the centers move less after round 10 than in any of the first three, on every data set"
    if not rows:
        return [Claim(what)]
    means = {row: np.nanmean(found.curves(row, "shifts"), axis=0) for row in rows}
    late = [row for row, mean in means.items() if not mean[10:].max() < mean[:3].min()]
    return [Claim(what, "not on " + "; ".join(late) if late else f"{len(rows)} data sets", not late)]


def _draw_table_2(figure: Figure, found: Findings) -> None:
    figure.set_size_inches(16, 8)
    for name, axes in zip(_SETS, figure.subplots(2, 4).flat, strict=True):
        for protocol in ("llf-fcm", "gdf-fcm"):
            rows = {f"{protocol}, {gamma_name(g)}": f"{protocol}, {name}, {gamma_name(g)}" for g in GAMMAS}
            mean_curves(axes, found.all_curves(rows, "shifts"), log=True)
        axes.set(title=name, xlabel="round", ylim=(1e-5, None))
    if found.rows:
        figure.axes[0].legend(fontsize="xx-small")


def _claims_of_table_3(found: Findings) -> Iterable[Claim]:
    yield from equals_pooled(found, [f"llf-fcm, {name}, {gamma_name(1.0)}" for name in _SETS])
    source = published("002-table3")
    for measure, name in ((measure, name) for measure, sets in _WITHIN_A_SD.items() for name in sets):
        row = f"llf-fcm, {name}, {gamma_name(1.0)}"
        paper = source.numbers[row, measure].mean
        what = f"{row}: {source.measures[measure]} within one standard deviation of {paper:g}"
        if found.has(row, measure) and found.samples(row, measure).size > 1:
            mean, sd = found.mean(row, measure), found.sd(row, measure)
            # The paper prints two digits.
            yield Claim(what, f"{mean:.4f} ± {sd:.4f}", abs(mean - paper) <= sd + 0.005)
        else:
            yield Claim(what)


def _claims_of_table_4(found: Findings) -> Iterable[Claim]:
    yield from equals_pooled(found, [f"llf-fcm, {name}" for name in _SETS])
    for name in ("pendigits", "satellite"):
        what = f"{name}: gdf-fcm agrees less with the pooled labels than llf-fcm"
        yield rising(found, what, [f"gdf-fcm, {name}", f"llf-fcm, {name}"], "ari to pooled")


def _draw_table_4(figure: Figure, found: Findings) -> None:
    for measure, axes in zip(("ari", "ari to pooled"), figure.subplots(1, 2), strict=True):
        names = [name for name in _SETS if found.has(f"llf-fcm, {name}", measure)]
        rows = {protocol: [f"{protocol}, {name}" for name in names] for protocol in ("llf-fcm", "gdf-fcm")}
        mean_bars(axes, names, found.by_groups(rows, measure))
        axes.set_xticks(range(len(names)), names, rotation=30)
        axes.set_title(published("002-table4").measures[measure])
    figure.axes[0].legend()


def _claims_of_table_5(found: Findings) -> Iterable[Claim]:
    for name, least in (("s_set1", 0.99), ("s_set2", 0.95), ("pendigits", 0.55)):
        row = f"llf-fcm, {name}, {gamma_name(1.0)}"
        what = f"{row}: ARI to the classes at least {least}"
        yield about_means(found, what, [row], "ari", lambda ari, least=least: bool(ari >= least))


def _draws(*protocols: str) -> Callable[[Figure, Findings], None]:
    """Return what draws two measures for each protocol: groups are data sets, bars are participations."""

    def draw(figure: Figure, found: Findings) -> None:
        figure.set_size_inches(16, 8)
        for protocol, line in zip(protocols, figure.subplots(len(protocols), 2), strict=True):
            groups = [f"{protocol}, {name}" for name in _SETS]
            groups = [group for group in groups if found.has(f"{group}, {gamma_name(1.0)}", "ari")]
            for measure, axes in zip(("distance", "ari"), line, strict=True):
                rows = {name: [f"{group}, {name}" for group in groups] for name in map(gamma_name, GAMMAS)}
                mean_bars(axes, groups, found.by_groups(rows, measure))
                axes.set_xticks(range(len(groups)), [group.split(", ")[1] for group in groups])
                axes.set_title(f"{protocol}: {published('002-table3').measures[measure]}")
        figure.axes[0].legend()

    return draw


_SPLITS: Mapping[str, Sequence[int]] = {
    "16 x 1": (1,) * 16,
    "8 x 2": (2,) * 8,
    "4 x 4": (4,) * 4,
    "2 x 8": (8,) * 2,
    "1+2+3+4+6": (1, 2, 3, 4, 6),
}


def _repeat_splits(rng: np.random.Generator, peers: Peers, *, quick: bool) -> Values:
    case = data_case("pendigits", quick=quick)
    rounds = 10 if quick else 30
    job = cluster_job(
        "vertical-fcm", n_clusters=case.n_clusters, scaling="minmax", init="random", tol=0.0, max_rounds=rounds,
        seed=seed_of(rng),
    )  # fmt: skip
    values: Values = {}
    for name, widths in _SPLITS.items():
        edges = np.cumsum(widths)[:-1]
        parts = [np.ascontiguousarray(part) for part in np.split(case.X, edges, axis=1)]
        state = peers.run(job, parts)
        locals_ = [Local(part) for part in parts]
        kept = [engine.conclude(job, state, local) for local in locals_]
        ours = (np.concatenate([part["centers"] for part in kept], axis=1) - case.lo) / case.width
        reference = (pooled(job, locals_, state.log) - case.lo) / case.width
        shifts = state.arrays["shifts"]
        values[name] = {
            "shifts": shifts[shifts >= 0].tolist(),  # the first distances have no change
            "ari": adjusted_rand_index(case.y, kept[0]["labels"]),
            "ari to pooled": adjusted_rand_index(nearest(Points(case.scaled), reference), kept[0]["labels"]),
            "distance": center_distance(reference, ours),
        }
    return values


def _claims_of_figure_6(found: Findings) -> Iterable[Claim]:
    what = "all splits have the same curve (within 1e-9 of its values) and the pooled centers (within 1e-9)"
    rows = [name for name in _SPLITS if found.has(name, "shifts")]
    if len(rows) < len(_SPLITS):
        return [Claim(what, always=True)]
    reference = found.curves(rows[0], "shifts")
    apart = max(float(np.abs(found.curves(row, "shifts") / reference - 1).max()) for row in rows)
    furthest = max(float(found.samples(row, "distance").max()) for row in rows)
    return [Claim(what, f"{apart:.1e}, {furthest:.1e}", apart <= 1e-9 and furthest <= 1e-9, always=True)]


def _draw_figure_6(figure: Figure, found: Findings) -> None:
    axes = figure.add_subplot()
    mean_curves(axes, found.all_curves({name: name for name in _SPLITS}, "shifts"), log=True, first=2)
    axes.set(xlabel="round", ylabel="‖D(t+1) − D(t)‖", title="change of the distances, pendigits")
    axes.legend()


_table = partial(Table, quick=lambda name: name in ("xclara", "rice"))

TABLES = (
    _table("002-table2", _LOSSLESS, _claims_of_table_2, _draw_table_2),
    _table("002-table3", _LOSSLESS, _claims_of_table_3, _draws("llf-fcm", "gdf-fcm")),
    _table(
        "002-table4", over_sets("lossless-dirichlet", _SETS, partial(_repeat, runs=_GATELESS, gammas=(1.0,), beta=0.5)),
        _claims_of_table_4, _draw_table_4,
    ),
    _table(
        "002-table5",
        over_sets("lossless-seeded", _SETS, partial(_repeat, runs={"llf-fcm": {}, "c2f-fcm": {}}, careful=True)),
        _claims_of_table_5, _draws("llf-fcm", "c2f-fcm"),
    ),
    Table(
        "002-figure6", Experiment("vertical", lambda: [Setup("pendigits", _repeat_splits, "pendigits")]),
        _claims_of_figure_6, _draw_figure_6, quick_repeats=1,
    ),
)  # fmt: skip
