"""Corcuera Bárcena, Marcelloni, Renda, Bechini, Ducange: Federated c-means and fuzzy c-means, the horizontal tables.

Section VI: 20 peers, fuzzifier 2, exactly thirty rounds, participation γ in {0.25, 0.5, 0.75, 1}, ten repetitions, in
each the same first centers for LLF-FCM, GDF-FCM and the pooled algorithm. GDF-FCM with learning rate 0.005 and ten local
iterations. Table IV deals the classes by Dirichlet(0.5); Table V seeds carefully.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering import Points, weighted_seeds
from p2pclust.metrics import xie_beni
from p2pclust.reproduce.drawing import bars, curves
from p2pclust.reproduce.model import Claim, Experiment, Findings, Setup, Table, Value, Values
from p2pclust.reproduce.peers import JobFailedError, Peers
from p2pclust.reproduce.published import published
from p2pclust.reproduce.tables.federated_fcm import equals_pooled
from p2pclust.reproduce.tables.horizontal import GAMMAS, DataCase, Federated, Pooled, data_case, gamma_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "Lossless",
    "LosslessDirichlet",
    "LosslessSeeded",
    "LosslessTable2",
    "LosslessTable3",
    "LosslessTable4",
    "LosslessTable5",
]

_SETS = ("xclara", "s_set1", "s_set2", "pendigits", "waveform", "phoneme", "rice", "satellite")
_QUICK_SETS = ("xclara", "rice")
_GRADIENT = {"learning_rate": 0.005, "local_iterations": 10}
_MEASURES: Mapping[str, str] = {
    "distance": "‖V − V pooled‖",
    "ari to pooled": "ARI to pooled",
    "ari": "ARI to classes",
    "xie-beni": "Xie–Beni",
}


def _measured(
    federated: Federated, pooled: Pooled, peers: Peers, protocol: str, gamma: float, **parameters: Any
) -> dict[str, Value]:
    """Run a protocol and measure it; a run that diverged has no other measures."""
    try:
        state = federated.run(peers, protocol, gamma, **parameters)
    except JobFailedError:
        return {"diverged": 1.0}
    found = federated.measured(state, pooled)
    found["xie-beni"] = xie_beni(Points(federated.case.scaled), state.arrays["centers"])
    return found | {"diverged": 0.0} if protocol == "gdf-fcm" else found


class _OverSets(Experiment):
    """One set-up for each of the eight data sets."""

    def setups(self) -> Sequence[Setup]:
        return [Setup(name, needs=name) for name in _SETS]


class _QuickOnTwo(Table):
    """A table over the eight data sets, of which a quick run takes two small ones."""

    def setups(self, *, quick: bool) -> Sequence[Setup]:
        return [setup for setup in self.experiment.setups() if not quick or setup.name in _QUICK_SETS]


class Lossless(_OverSets):
    """LLF-FCM and GDF-FCM from the same first centers, rows dealt evenly."""

    id = "lossless"

    def repeat(self, setup: Setup, rng: np.random.Generator, peers: Peers, *, quick: bool) -> Values:
        federated = Federated(data_case(setup.name, quick=quick), rng)
        pooled = Pooled.of(federated.case, federated.first, tol=0.0, max_rounds=30)
        values: Values = {}
        for gamma in GAMMAS:
            for protocol, parameters in (("llf-fcm", {}), ("gdf-fcm", _GRADIENT)):
                found = _measured(federated, pooled, peers, protocol, gamma, **parameters)
                values[f"{protocol}, {setup.name}, {gamma_name(gamma)}"] = found
        return values


class LosslessDirichlet(_OverSets):
    """The same at γ = 1 with classes dealt unevenly."""

    id = "lossless-dirichlet"

    def repeat(self, setup: Setup, rng: np.random.Generator, peers: Peers, *, quick: bool) -> Values:
        federated = Federated(data_case(setup.name, quick=quick), rng, scheme="dirichlet", beta=0.5)
        pooled = Pooled.of(federated.case, federated.first, tol=0.0, max_rounds=30)
        # The gate would keep back peers that got very few rows, and equality with the pooled algorithm with them.
        gateless = {"privacy_gate": False}
        return {
            f"{protocol}, {setup.name}": _measured(federated, pooled, peers, protocol, 1.0, **parameters)
            for protocol, parameters in (("llf-fcm", gateless), ("gdf-fcm", _GRADIENT | gateless))
        }


class LosslessSeeded(_OverSets):
    """LLF-FCM and C2F-FCM from carefully seeded centers; the pooled algorithm from its own k-means++ centers."""

    id = "lossless-seeded"

    def repeat(self, setup: Setup, rng: np.random.Generator, peers: Peers, *, quick: bool) -> Values:
        federated = Federated(data_case(setup.name, quick=quick), rng)
        pooled = Pooled.of(federated.case, _pooled_seeds(federated.case, rng), tol=0.0, max_rounds=30)
        values: Values = {}
        for gamma in GAMMAS:
            for protocol in ("llf-fcm", "c2f-fcm"):
                found = _measured(federated, pooled, peers, protocol, gamma, init="careful")
                values[f"{protocol}, {setup.name}, {gamma_name(gamma)}"] = found
        return values


def _pooled_seeds(case: DataCase, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return first centers for the pooled algorithm: greedy k-means++, as scikit-learn's. The paper leaves open which."""
    return weighted_seeds(Points(case.scaled), np.ones(len(case.scaled)), case.n_clusters, rng)


class LosslessTable2(_QuickOnTwo):
    """Movement of the centers per round: the plots of Table II."""

    id = "002-table2"
    shows = "llf-fcm and gdf-fcm on eight data sets: movement of the centers by round (plots)"
    time = "2 min"
    experiment = Lossless()
    measures: ClassVar[Mapping[str, str]] = {}

    def claims(self, found: Findings) -> Iterable[Claim]:
        rows = [f"llf-fcm, {name}, {gamma_name(1.0)}" for name in _SETS]
        rows = [row for row in rows if found.has(row, "shifts")]
        what = "llf-fcm, γ = 1: the centers move less after round 10 than in any of the first three, on every data set"
        if not rows:
            yield Claim(what, "not measured", None)
            return
        means = {row: np.nanmean(found.curves(row, "shifts"), axis=0) for row in rows}
        late = [row for row, mean in means.items() if not mean[10:].max() < mean[:3].min()]
        yield Claim(what, "not on " + "; ".join(late) if late else f"{len(rows)} data sets", not late)

    def draw(self, figure: Figure, found: Findings) -> None:
        figure.set_size_inches(16, 8)
        for number, name in enumerate(_SETS):
            axes = figure.add_subplot(2, 4, number + 1)
            for protocol in ("llf-fcm", "gdf-fcm"):
                rows = {f"{protocol}, {gamma_name(g)}": f"{protocol}, {name}, {gamma_name(g)}" for g in GAMMAS}
                curves(axes, found, rows, "shifts", log=True)
            axes.set(title=name, xlabel="round", ylim=(1e-5, None))
        if found.rows:
            figure.axes[0].legend(fontsize="xx-small")


class LosslessTable3(_QuickOnTwo):
    """Distances, agreement and Xie–Beni at four participations."""

    id = "002-table3"
    shows = "llf-fcm and gdf-fcm on eight data sets: distance and agreement to pooled, to the classes, Xie–Beni"
    time = "2 min"
    experiment = Lossless()
    measures: ClassVar[Mapping[str, str]] = _MEASURES

    def claims(self, found: Findings) -> Iterable[Claim]:
        yield from equals_pooled(found, [f"llf-fcm, {name}, {gamma_name(1.0)}" for name in _SETS])
        for measure, sets in (("ari", _ARI_WITHIN), ("xie-beni", _XIE_BENI_WITHIN)):
            for name in sets:
                row = f"llf-fcm, {name}, {gamma_name(1.0)}"
                paper = published(self.id).numbers[row, measure].mean
                yield within_a_sd(found, row, measure, paper)

    def draw(self, figure: Figure, found: Findings) -> None:
        draw_table(figure, found, ("llf-fcm", "gdf-fcm"))


_ARI_WITHIN = ("xclara", "s_set1", "s_set2", "waveform", "phoneme", "rice", "satellite")
_XIE_BENI_WITHIN = ("xclara", "s_set1", "s_set2", "phoneme", "rice", "satellite")


class LosslessTable4(_QuickOnTwo):
    """Agreement with the classes where peers hold different classes."""

    id = "002-table4"
    shows = "llf-fcm and gdf-fcm with classes dealt by Dirichlet(0.5): llf-fcm is unmoved, gdf-fcm is not"
    time = "1 min"
    experiment = LosslessDirichlet()
    measures: ClassVar[Mapping[str, str]] = {name: _MEASURES[name] for name in ("ari", "ari to pooled", "distance")} | {
        "diverged": "diverged"
    }

    def claims(self, found: Findings) -> Iterable[Claim]:
        yield from equals_pooled(found, [f"llf-fcm, {name}" for name in _SETS])
        for name in ("pendigits", "satellite"):
            ours, theirs = f"llf-fcm, {name}", f"gdf-fcm, {name}"
            what = f"{name}: gdf-fcm agrees less with the pooled labels than llf-fcm"
            if not (found.has(ours, "ari to pooled") and found.has(theirs, "ari to pooled")):
                yield Claim(what, "not measured", None)
                continue
            means = found.mean(theirs, "ari to pooled"), found.mean(ours, "ari to pooled")
            yield Claim(what, f"{means[0]:.3f} < {means[1]:.3f}", means[0] < means[1])

    def draw(self, figure: Figure, found: Findings) -> None:
        for number, measure in enumerate(("ari", "ari to pooled"), start=1):
            axes = figure.add_subplot(1, 2, number)
            names = [name for name in _SETS if found.has(f"llf-fcm, {name}", measure)]
            for place, protocol in enumerate(("llf-fcm", "gdf-fcm")):
                rows = [f"{protocol}, {name}" for name in names]
                places = [index + 0.4 * place - 0.2 for index in range(len(rows))]
                means, spreads = ([getattr(found, what)(row, measure) for row in rows] for what in ("mean", "sd"))
                axes.bar(places, means, 0.4, yerr=np.nan_to_num(spreads), label=protocol)
            axes.set_xticks(range(len(names)), names, rotation=30)
            axes.set_title(_MEASURES[measure])
        figure.axes[0].legend()


class LosslessTable5(_QuickOnTwo):
    """The same as Table III with careful seeding."""

    id = "002-table5"
    shows = "llf-fcm and c2f-fcm with careful seeding on eight data sets: distance and agreement, Xie–Beni"
    time = "7 min"
    experiment = LosslessSeeded()
    measures: ClassVar[Mapping[str, str]] = _MEASURES

    def claims(self, found: Findings) -> Iterable[Claim]:
        for name, least in (("s_set1", 0.99), ("s_set2", 0.95), ("pendigits", 0.55)):
            row = f"llf-fcm, {name}, {gamma_name(1.0)}"
            what = f"{row}: ARI to the classes at least {least}"
            if not found.has(row, "ari"):
                yield Claim(what, "not measured", None)
                continue
            mean = found.mean(row, "ari")
            yield Claim(what, f"{mean:.4f}", mean >= least)

    def draw(self, figure: Figure, found: Findings) -> None:
        draw_table(figure, found, ("llf-fcm", "c2f-fcm"))


def within_a_sd(found: Findings, row: str, measure: str, paper: float) -> Claim:
    """Claim that the paper's number, printed with two digits, is within one standard deviation of the mean."""
    what = f"{row}: {_MEASURES[measure]} within one standard deviation of {paper:g}"
    if not found.has(row, measure) or found.samples(row, measure).size < 2:
        return Claim(what, "not measured", None)
    mean, sd = found.mean(row, measure), found.sd(row, measure)
    return Claim(what, f"{mean:.4f} ± {sd:.4f}", abs(mean - paper) <= sd + 0.005)


def draw_table(figure: Figure, found: Findings, protocols: Sequence[str]) -> None:
    """Draw two measures for each protocol: groups are data sets, bars are participations."""
    figure.set_size_inches(16, 8)
    for line, protocol in enumerate(protocols):
        groups = [f"{protocol}, {name}" for name in _SETS if found.has(f"{protocol}, {name}, {gamma_name(1.0)}", "ari")]
        for column, measure in enumerate(("distance", "ari")):
            axes = figure.add_subplot(len(protocols), 2, 2 * line + column + 1)
            bars(axes, found, groups, [gamma_name(gamma) for gamma in GAMMAS], measure)
            axes.set_xticks(range(len(groups)), [group.split(", ")[1] for group in groups])
            axes.set_title(f"{protocol}: {_MEASURES[measure]}")
    figure.axes[0].legend()
