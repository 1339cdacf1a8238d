"""The results of jobs over peers that hold different columns.

No peer holds whole centers. A scenario has the data of all peers, because it dealt them out, so it can measure whole
centers; it writes each peer's own columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pclust.data import DataSet
from p2pclust.metrics import accuracy, adjusted_rand_index, center_distance
from p2pclust.protocols.columns.vertical_stages import warnings_of
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import Later, clustering_stage, pooled, pooled_run, replay
from p2pclust.scenario.outcome.evidence import Evidence

__all__ = ["NOTE", "measured", "warnings_by_name"]

Floats = NDArray[np.float64]

NOTE = "no peer holds whole centers: each peer has its own columns of them, in centers-PEER.csv"


def measured(
    job: Job, state: JobState, shares: Mapping[str, DataSet], locals_: Sequence[Local], later: Later = (),
    evidence: Evidence | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return what is measured of a job that is done, for its entry of ``jobs``.

    Parameters
    ----------
    job, state : Job, JobState
    shares : mapping of str to DataSet
        Every peer's columns, by name, in roster order.
    locals_ : sequence of Local
        The same data as the protocols have them.
    later : sequence of (int, int, Local)
        Data that replaced them; see `p2pclust.protocols.engine.runner.replay`.
    evidence : Evidence, optional
        Receives the whole centers, which no peer holds.
    """
    evidence = evidence or Evidence()
    protocol = clustering_stage(job)[1]
    held = list(locals_)  # the data at the end, from which each peer computes its columns of the centers
    for _, peer, rows in later:
        held[peer] = rows
    concluded = [engine.conclude(job, state, local) for local in held]
    own = [found["centers"] for found in concluded]
    centers = np.concatenate(own, axis=1)
    spread = np.concatenate([np.ptp(local.X, axis=0) for local in held])
    ranges = np.where(spread > 0, spread, 1.0)  # a constant column counts as 1, as it does in min-max scaling
    entry: dict[str, Any] = {
        "n_rows": locals_[0].n_samples,
        "metrics": _metrics(concluded[0]["labels"], next(iter(shares.values()))),
        "replay_identical": replay(job, locals_, state.log, later).encode() == state.encode(),
        "own_centers": {
            name: {"features": share.feature_names, "centers": part.tolist()}
            for (name, share), part in zip(shares.items(), own, strict=True)
        },
    }
    if any(begins > 0 for begins, _, _ in later):
        return entry  # the peers compute centers from the new rows, which no pooled algorithm does
    if protocol.lossless:
        evidence.centers, evidence.pooled = centers, pooled(job, locals_, state.log, later)
        apart = np.abs(centers - evidence.pooled).max(axis=0)
        relative = float((apart / ranges).max())
        return entry | {"pooled": {"max_abs_difference": float(apart.max()), "relative_difference": relative}}
    found = pooled_run(job, locals_, state.log, later)
    evidence.compare(centers, found.centers, ranges)
    distance = center_distance(found.centers / ranges, centers / ranges)
    gap = {"to": f"pooled {protocol.pooled_name}", "center_distance": distance}
    return entry | {"gap": gap | {"pooled_rounds": found.n_rounds, "pooled_converged": found.converged}}


def warnings_by_name(job: Job, state: JobState, roster: Sequence[str]) -> dict[str, str]:
    """Return what the distances of peers with few columns reveal, by name."""
    warnings = warnings_of(state.arrays, clustering_stage(job)[1].n_clusters)
    return {roster[peer]: warning for peer, warning in warnings.items()}


def _metrics(labels: NDArray[np.int64], share: DataSet) -> dict[str, float]:
    """Score the labels of the rows, which all peers share, where true labels are known."""
    if share.y is None:
        return {}
    return {"ari": adjusted_rand_index(share.y, labels), "accuracy": accuracy(share.y, labels)}
