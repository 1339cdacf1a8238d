"""Corcuera Bárcena, Marcelloni, Renda, Bechini: A federated fuzzy c-means clustering algorithm.

Section 5: 20 peers with roughly equal shares of the rows, fuzzifier 2, ε = 0.005, at most 30 rounds, participation γ in
{0.25, 0.5, 0.75, 1}; ten repetitions, in each the same first centers for the federated and the pooled algorithm.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from p2pclust.lab.pictures.bars import mean_bars
from p2pclust.lab.pictures.curves import mean_curves
from p2pclust.lab.reproduce.model import Claim, Findings, Table, Values, published
from p2pclust.lab.reproduce.peers import Peers
from p2pclust.lab.reproduce.tables.horizontal import GAMMAS, against_pooled, data_case, gamma_name, over_sets

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TOL = 5e-3
_PLATEAU_FROM = 7
_SETS = ("xclara", "s_set1", "pendigits", "waveform")
_MEASURES = {"ari": "ARI", "distance": "‖V − V pooled‖"}
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
    for axes, (measure, title) in zip(figure.subplots(1, 2), _MEASURES.items(), strict=True):
        mean_bars(axes, names, found.by_groups(rows, measure))
        axes.set_title(title)
    axes.legend()


def _claims_of_figure_1(found: Findings) -> Iterable[Claim]:
    if not all(found.has(row, "plateau") for row in _XCLARA.values()):
        yield Claim("the movement of the centers and their distance to the pooled ones")
        return
    plateaus, distances = ([found.mean(row, what) for row in _XCLARA.values()] for what in ("plateau", "distance"))
    yield Claim(
        "after seven rounds the centers move by more than ε = 0.005 at γ = 0.25 and 0.5, by less at 0.75 and 1",
        ", ".join(f"{plateau:.4f}" for plateau in plateaus),
        min(plateaus[:2]) > _TOL > max(plateaus[2:]),
    )
    falling = " > ".join(f"{distance:.4f}" for distance in distances)
    yield Claim("the distance to the pooled centers falls as γ grows", falling, distances == sorted(distances)[::-1])


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
        "000-table1",
        "federated fuzzy c-means on four data sets: agreement with the classes, distance to the pooled centers",
        "10 s", over_sets("federated-fcm", _SETS, partial(_repeat, tol=_TOL)), _MEASURES, _claims_of_table_1,
        _draw_table_1, quick=lambda name: name in ("xclara", "waveform"),
    ),
    Table(
        "000-figure1",
        "federated fuzzy c-means on xclara: movement of the centers by round, distance to the pooled centers by γ",
        # Always thirty rounds: what the movement of the centers does after the tolerance was met.
        "5 s", over_sets("federated-fcm-curves", ["xclara"], partial(_repeat, tol=0.0)),
        {"plateau": "movement, rounds 8-30", "distance": "‖V − V pooled‖"}, _claims_of_figure_1, _draw_figure_1,
    ),
)  # fmt: skip
