"""Corcuera Bárcena, Marcelloni, Renda, Bechini: A federated fuzzy c-means clustering algorithm.

Section 5: 20 peers with roughly equal shares of the rows, fuzzifier 2, ε = 0.005, at most 30 rounds, participation γ in
{0.25, 0.5, 0.75, 1}; ten repetitions, in each the same first centers for the federated and the pooled algorithm.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from p2pclust.reproduce.drawing import bars, curves
from p2pclust.reproduce.model import Claim, Experiment, Findings, Setup, Table, Values
from p2pclust.reproduce.peers import Peers
from p2pclust.reproduce.published import published
from p2pclust.reproduce.tables.horizontal import GAMMAS, Federated, Pooled, data_case, gamma_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FederatedFcm", "FederatedFcmCurves", "FederatedFcmFigure1", "FederatedFcmTable1", "equals_pooled"]

_TOL = 5e-3
_PLATEAU_FROM = 7
_SETS = ("xclara", "s_set1", "pendigits", "waveform")


class FederatedFcm(Experiment):
    """LLF-FCM at four participations, against pooled fuzzy c-means from the same first centers."""

    id = "federated-fcm"

    def setups(self) -> Sequence[Setup]:
        return [Setup(name, needs=name) for name in _SETS]

    def repeat(self, setup: Setup, rng: np.random.Generator, peers: Peers, *, quick: bool) -> Values:
        case = data_case(setup.name, quick=quick)
        federated = Federated(case, rng, tol=_TOL)
        pooled = Pooled.of(case, federated.first, tol=_TOL, max_rounds=30)
        return {
            f"{setup.name}, {gamma_name(gamma)}": federated.measured(federated.run(peers, "llf-fcm", gamma), pooled)
            for gamma in GAMMAS
        }


class FederatedFcmTable1(Table):
    """ARI to the classes, and distance to the pooled centers."""

    id = "000-table1"
    shows = "federated fuzzy c-means on four data sets: agreement with the classes, distance to the pooled centers"
    time = "10 s"
    experiment = FederatedFcm()
    measures: ClassVar[Mapping[str, str]] = {"ari": "ARI", "distance": "‖V − V pooled‖"}

    def setups(self, *, quick: bool) -> Sequence[Setup]:
        return [setup for setup in self.experiment.setups() if not quick or setup.name in ("xclara", "waveform")]

    def claims(self, found: Findings) -> Iterable[Claim]:
        yield from equals_pooled(found, [f"{name}, {gamma_name(1.0)}" for name in _SETS])
        row = f"xclara, {gamma_name(1.0)}"
        if found.has(row, "ari"):
            paper = published(self.id).numbers[row, "ari"].mean
            mean = found.mean(row, "ari")
            yield Claim(f"xclara: ARI within 0.001 of {paper}", f"{mean:.5f}", abs(mean - paper) <= 1e-3)

    def draw(self, figure: Figure, found: Findings) -> None:
        names = [name for name in _SETS if found.has(f"{name}, {gamma_name(1.0)}", "ari")]
        for number, (measure, title) in enumerate(self.measures.items(), start=1):
            axes = figure.add_subplot(1, 2, number)
            bars(axes, found, names, [gamma_name(gamma) for gamma in GAMMAS], measure)
            axes.set_title(title)
        axes.legend()


class FederatedFcmCurves(Experiment):
    """The same on xclara, always thirty rounds: what the movement of the centers does after the tolerance was met."""

    id = "federated-fcm-curves"

    def setups(self) -> Sequence[Setup]:
        return [Setup("xclara", needs="xclara")]

    def repeat(self, setup: Setup, rng: np.random.Generator, peers: Peers, *, quick: bool) -> Values:
        case = data_case(setup.name, quick=quick)
        federated = Federated(case, rng)
        pooled = Pooled.of(case, federated.first, tol=0.0, max_rounds=30)
        values: Values = {}
        for gamma in GAMMAS:
            found = federated.measured(federated.run(peers, "llf-fcm", gamma), pooled)
            shifts = found["shifts"]
            assert isinstance(shifts, list)
            found["plateau"] = float(np.mean(shifts[_PLATEAU_FROM:]))
            values[f"{setup.name}, {gamma_name(gamma)}"] = found
        return values


class FederatedFcmFigure1(Table):
    """Movement of the centers per round, and distance to the pooled centers, on xclara."""

    id = "000-figure1"
    shows = "federated fuzzy c-means on xclara: movement of the centers by round, distance to the pooled centers by γ"
    time = "5 s"
    experiment = FederatedFcmCurves()
    measures: ClassVar[Mapping[str, str]] = {"plateau": "movement, rounds 8-30", "distance": "‖V − V pooled‖"}

    def claims(self, found: Findings) -> Iterable[Claim]:
        rows = [f"xclara, {gamma_name(gamma)}" for gamma in GAMMAS]
        if not all(found.has(row, "plateau") for row in rows):
            yield Claim("the movement of the centers and their distance to the pooled ones", "not measured", None)
            return
        plateaus = [found.mean(row, "plateau") for row in rows]
        yield Claim(
            "after seven rounds the centers move by more than ε = 0.005 at γ = 0.25 and 0.5, by less at 0.75 and 1",
            ", ".join(f"{plateau:.4f}" for plateau in plateaus),
            min(plateaus[:2]) > _TOL > max(plateaus[2:]),
        )
        distances = [found.mean(row, "distance") for row in rows]
        falling = " > ".join(f"{distance:.4f}" for distance in distances)
        yield Claim(
            "the distance to the pooled centers falls as γ grows", falling, distances == sorted(distances)[::-1]
        )

    def draw(self, figure: Figure, found: Findings) -> None:
        rows = {gamma_name(gamma): f"xclara, {gamma_name(gamma)}" for gamma in GAMMAS}
        axes = figure.add_subplot(1, 2, 1)
        curves(axes, found, rows, "shifts", log=True)
        axes.axhline(_TOL, color="grey", linewidth=0.8, linestyle=":")
        axes.set(xlabel="round", ylabel="‖V(t+1) − V(t)‖", title="movement of the centers", ylim=(1e-6, None))
        axes.legend()
        axes = figure.add_subplot(1, 2, 2)
        bars(axes, found, ["xclara"], list(rows), "distance")
        axes.set(title="distance to the pooled centers")


def equals_pooled(found: Findings, rows: Iterable[str]) -> Iterable[Claim]:
    """Claim that these rows' centers and labels are the pooled ones, in every repetition."""
    for row in rows:
        what = f"{row}: the pooled centers within 1e-9, and ARI to the pooled labels exactly 1"
        if not found.has(row, "distance", "ari to pooled"):
            yield Claim(what, "not measured", None, always=True)
            continue
        furthest = float(found.samples(row, "distance").max())
        least = float(found.samples(row, "ari to pooled").min())
        yield Claim(what, f"{furthest:.1e}, {least:g}", furthest <= 1e-9 and least == 1.0, always=True)
