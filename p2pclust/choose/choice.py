"""From the final states of all trials to a choice: a table, a recommendation with its reason, a plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from p2pclust.errors import FleetError
from p2pclust.protocols.engine import summaries
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.measuring.choose import recommend
from p2pclust.protocols.measuring.measure import MeasuredIndices
from p2pclust.tools.laboratory import laboratory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ChoiceOfClusters:
    """The measures for each number of clusters, and the recommended number.

    Attributes
    ----------
    recommended : int
    reason : str
        In sentences; it says so where the measures disagree.
    votes : mapping of str to int or None
        The number at which each measure is best; None if it does not decide.
    agreed : bool
        Whether more than half of the measures are best at the recommended number.
    table : tuple of MeasuredIndices
        One for each number of clusters, ascending, from its best restart.
    centers : mapping of int to ndarray of shape (C, F)
        Of these restarts, in the data's own units.
    seeds : mapping of int to int
        Of these restarts: a job with this seed and number of clusters gives these centers again.
    notes : tuple of str
        The peers whose rows were not measured, and why.
    """

    recommended: int
    reason: str
    votes: Mapping[str, int | None]
    agreed: bool
    table: tuple[MeasuredIndices, ...] = field(repr=False)
    centers: Mapping[int, Floats] = field(repr=False)
    seeds: Mapping[int, int] = field(repr=False)
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; infinite measures are infinite floats."""
        rows = [
            asdict(row) | {"seed": self.seeds[row.clusters], "centers": self.centers[row.clusters].tolist()}
            for row in self.table
        ]
        own = {name: getattr(self, name) for name in ("recommended", "reason", "agreed")}
        return own | {"votes": dict(self.votes), "notes": list(self.notes), "table": rows}

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw each measure over the number of clusters, with its own best and the recommended number marked.

        Parameters
        ----------
        path : str or Path, optional
            Where to save it; the ending says as what (png, pdf, svg, ...).

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        UsageError
            If matplotlib is not installed, or the file cannot be written.
        """
        return cast("Figure", laboratory("pictures.estimators", "the plot of a choice").choice_figure(self, path))


def choice(jobs: Sequence[Job], states: Sequence[JobState], names: Sequence[str] = ()) -> ChoiceOfClusters:
    """Make the choice from the final states of all trials, in the order of the jobs; raise FleetError if one failed.

    `names` are those of the peers, in roster order; without them a peer has a number.
    """
    best: dict[int, tuple[float, MeasuredIndices, int, JobState]] = {}
    notes: dict[str, None] = {}
    for job, state in zip(jobs, states, strict=True):
        if state.status != "done":
            wanted = job.stages[job.main].parameters["n_clusters"]
            reason = summaries.with_names(state.reason, names)
            raise FleetError(f"{wanted} clusters: {reason or f'the job ended as {state.status!r}'}")
        found = MeasuredIndices.of(state)
        for peer, why in state.log[-1].abstained.items():
            notes[summaries.with_names(f"peer {peer} was not measured: {why}", names)] = None
        # The algorithm's own objective per row: peers that were lost meanwhile are not measured.
        loss = (found.objective if hasattr(job.protocols[job.main], "fuzzifier") else found.inertia) / found.rows
        if found.clusters not in best or loss < best[found.clusters][0]:
            best[found.clusters] = (loss, found, job.seed, state)
    kept = [best[clusters] for clusters in sorted(best)]
    rows = sorted({found.rows for _, found, _, _ in kept})
    if len(rows) > 1:
        notes[f"not every number of clusters was measured over the same rows: {rows[0]} to {rows[-1]} of them"] = None
    table = tuple(found for _, found, _, _ in kept)
    advice = recommend(table)
    return ChoiceOfClusters(
        recommended=advice.clusters,
        reason=advice.reason,
        votes=advice.votes,
        agreed=advice.agreed,
        table=table,
        centers={found.clusters: summaries.raw_centers(state) for _, found, _, state in kept},
        seeds={found.clusters: seed for _, found, seed, _ in kept},
        notes=tuple(notes),
    )
