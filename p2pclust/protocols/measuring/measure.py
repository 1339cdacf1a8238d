"""How good a clustering is, measured by the fleet: sums over every peer's rows, in one round after the clustering.

One row could be located by a peer's sums: the distance to a center is a sphere around it, and C + 1 spheres meet in a
point. Two rules stand before that (docs/protocols/measure.md), a gate and the suppression of singletons. With a fuzzifier
near 1 the weighted sums come close to sums over the rows of one cluster, be it a single one: 2 mixes them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering import nearest
from p2pclust.errors import UsageError
from p2pclust.metrics.rows import crisp_sums, davies_bouldin_of, fuzzy_spreads, weighted_scatters, xie_beni_of
from p2pclust.protocols.engine import checks
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Abstain, Slot, WithGaps, never
from p2pclust.protocols.engine.fixed_point import farthest, power_of_two_above
from p2pclust.protocols.engine.job import Job, JobState, Stage
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.measuring.doubts import objective_of
from p2pclust.protocols.measuring.objective import Evaluation

_TOTALS = ("inertia", "objective", "within", "outside", "silhouette")


@dataclass(frozen=True)
class Measure(Evaluation, WithGaps):
    """Measure the centers that the stage before left; one round that asks every peer.

    >>> Measure(compare_up_to=10).rows_needed(n_clusters=3, n_features=4)
    22
    """

    id: ClassVar[str] = "measure"
    holds: ClassVar[str] = (
        "int64: measured_rows measured_hidden measured_cells; "
        "float64: measured_inertia measured_objective measured_within measured_outside measured_silhouette; "
        "float64 C: measured_weights measured_spreads; int64 C: measured_counts"
    )
    works_on: ClassVar[tuple[str, ...]] = ("origin", "scale", "unit", "centers")

    fuzzifier: float = 2.0  # of the memberships in the fuzzy measures; above 1
    privacy_gate: bool = True  # abstain with too few rows; see the module
    suppress_singletons: bool = True  # send a cluster with one of the peer's rows as empty
    compare_up_to: int = 1  # the gate counts with this number of clusters if it is larger than this job's

    allowed = checks.by_name(
        fuzzifier=checks.FUZZIFIER, privacy_gate=checks.flag, suppress_singletons=checks.flag,
        compare_up_to=checks.CLUSTERS,
    )  # fmt: skip

    def rows_needed(self, n_clusters: int, n_features: int) -> int:
        """Return the smallest number of rows with which a peer passes the gate."""
        equations = max(n_clusters, self.compare_up_to) * (n_features + 4) + 5
        return equations // n_features + 1

    def open(self, state: State, rng: np.random.Generator) -> State:
        if any(name not in state for name in self.works_on):
            raise UsageError("measure: put a clustering of peers with different rows before it")
        return state.without(*(name for name in state if name.startswith("measured_")))

    withholds_below = never  # its fuzzy sums are over all rows, and with a fuzzifier near 1 those of one cluster

    def expects(self, state: State) -> Mapping[str, Slot]:
        per_cluster = Slot((len(state["centers"]),))
        slots = {"rows": Slot(()), "hidden": Slot(())} | dict.fromkeys(_TOTALS, Slot(()))
        slots |= dict.fromkeys(("counts", "weights", "spreads"), per_cluster)
        return slots | ({"cells": Slot(())} if self.keeps_gaps else {})

    def units(self, state: State) -> Mapping[str, NDArray[Any] | float]:
        C = len(state["centers"])
        far = farthest(state["unit"], state["centers"])
        squares = {"inertia": far * far, "objective": far * far}
        distances = {"within": far, "outside": far * float(power_of_two_above(C)), "spreads": far}
        ones = ("rows", "hidden", "cells", "silhouette", "counts", "weights")
        units = squares | distances | dict.fromkeys(ones, 1.0)
        return {name: units[name] for name in self.expects(state)}

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        C, F = state["centers"].shape
        needed = self.rows_needed(C, F)
        if self.privacy_gate and (local.n_samples < needed or local.observed.sum() < needed * F):
            # The argument rests on the number of rows being unknown, so the reason names the limit only.
            most = max(C, self.compare_up_to)
            raise Abstain(f"privacy gate: fewer than {needed} rows, which measuring up to {most} clusters needs")
        centers, points = state["centers"], local.points(state)
        parts, labels = [part for part, _ in points.parts()], nearest(points, centers)
        counts = np.bincount(labels[labels >= 0], minlength=C).astype(np.float64)
        few = (counts > 0) & (counts < local.least_cell(2 if self.suppress_singletons else 1))
        counts[few] = 0.0
        crisp = [crisp_sums(part, part.centred(centers)) for part in parts]
        fuzzy = [fuzzy_spreads(part, part.centred(centers), self.fuzzifier) for part in parts]
        # All that this peer reveals.
        shown = Arrays(
            rows=float(local.n_observed), hidden=float(np.count_nonzero(few)), inertia=sum(one.inertia for one in crisp),
            objective=sum(one.objective for one in fuzzy), within=sum(one.within for one in crisp),
            outside=sum(one.outside for one in crisp), silhouette=sum(one.silhouette for one in crisp), counts=counts,
            weights=np.sum([one.weights for one in fuzzy], axis=0), spreads=np.sum([one.spreads for one in fuzzy], axis=0),
        )  # fmt: skip
        return shown.replace(cells=float(local.observed.sum())) if self.keeps_gaps else shown

    def combine(self, state: State, total: Any) -> State:
        """Keep the totals: the measures follow from them, and some of these are infinite, which no state may hold."""
        names = [name for name in ("rows", "hidden", "counts", "cells") if name in total]
        whole = {name: np.asarray(np.rint(total[name]), dtype=np.int64) for name in names}
        real = {name: total[name] for name in (*_TOTALS, "weights", "spreads")}
        return state.replace(**{f"measured_{name}": value for name, value in (whole | real).items()})

    def problem_with_step(self, previous: State, state: State) -> str:
        """Fail where totals cannot be of rows: they are divided by, and one peer's false number can spoil them."""
        rows = int(state["measured_rows"])
        return f"measure: {rows} rows were measured: the sums of some peer are impossible" if rows < 1 else ""

    def problem_with_state(self, state: State, *, done: bool) -> str:
        if not done:
            return ""
        names = ("rows", "hidden", "counts", *_TOTALS, "weights", "spreads")
        if any(f"measured_{name}" not in state for name in names):
            return "not all that is measured"
        if self.keeps_gaps and ("measured_cells" not in state or state["measured_cells"] < 1):
            return "measures of no cell"
        return "measures of no row" if state["measured_rows"] < 1 else ""


@dataclass(frozen=True)
class MeasuredIndices:
    """What a fleet measured of one clustering, over all rows of those that contributed."""

    clusters: int
    rows: int  # how many rows were measured
    counts: tuple[int, ...]  # rows per cluster, without the hidden ones; a row belongs to its nearest center
    hidden: int  # how many rows were kept out of the counts, each being its peer's only one in its cluster
    # As the functions of the same names in :mod:`p2pclust.metrics`, in working coordinates; the objective is that of fuzzy
    # c-means. With one cluster Xie–Beni and soft Davies–Bouldin are infinite.
    inertia: float
    objective: float
    within_sse: float
    outside_sse: float
    xie_beni: float
    soft_davies_bouldin: float
    simplified_silhouette: float
    bic: float | None = None  # of a mixture: the Bayesian information criterion, in working coordinates

    @classmethod
    def of(cls, state: JobState) -> MeasuredIndices:
        """Return the measures of a job that ended with a ``measure`` stage; raise UsageError if it measured nothing."""
        arrays = state.arrays
        if "measured_rows" not in arrays:
            raise UsageError(f"the job has measured nothing: {state.reason or 'put a measure stage at its end'}")
        centers = np.asarray(arrays["centers"])
        rows = int(arrays["measured_rows"])
        cells = int(arrays.get("measured_cells", rows * centers.shape[1]))
        total = {name: float(arrays[f"measured_{name}"]) for name in _TOTALS}
        # Centers that lie next to each other, or numbers that a peer made up, may give infinite measures: as they should.
        with np.errstate(all="ignore"):
            scatters = weighted_scatters(arrays["measured_weights"], arrays["measured_spreads"])
            return cls(
                clusters=len(centers), rows=rows, counts=tuple(int(count) for count in arrays["measured_counts"]),
                hidden=int(arrays["measured_hidden"]), inertia=total["inertia"], objective=total["objective"],
                within_sse=total["within"] / cells, outside_sse=total["outside"] / cells,
                xie_beni=xie_beni_of(total["objective"], rows, centers),
                soft_davies_bouldin=davies_bouldin_of(scatters, centers) if len(centers) > 1 else math.inf,
                simplified_silhouette=total["silhouette"] / rows, bic=_bic(arrays),
            )  # fmt: skip


def _bic(arrays: State) -> float | None:
    """Return the Bayesian information criterion of a mixture, of the rows whose likelihood was added up; else None."""
    likelihood = objective_of(arrays)
    if "covariances" not in arrays or likelihood is None:
        return None
    C, F = arrays["centers"].shape
    free = C - 1 + C * F + arrays["covariances"][0].size
    return float(free * np.log(arrays["masses"].sum()) + 2 * likelihood)


def measured(job: Job, **parameters: Any) -> Job:
    """Return the job with a ``measure`` stage at its end; the fuzzifier is the clustering's own, if it has one.

    It adds up the objective as well, so an ``objective`` stage of one start, which has nothing to choose, is left out.
    The parameters are those of :class:`Measure`.
    """
    own = {name: getattr(job.protocols[job.main], name, None) for name in ("fuzzifier", "missing_values")}
    given = {name: value for name, value in own.items() if value not in (None, "error")} | parameters
    kept = [stage for stage in job.stages if stage.protocol != "objective" or stage.parameters.get("n_init", 1) > 1]
    return replace(job, stages=(*kept, Stage("measure", given)))
