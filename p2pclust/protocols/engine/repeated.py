"""Jobs that are done again on data that grow: the next one begins where the last one ended."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from p2pclust.errors import UsageError
from p2pclust.protocols.engine import summaries
from p2pclust.protocols.engine.base import SideBySide
from p2pclust.protocols.engine.job import Job, JobState, Stage
from p2pclust.protocols.engine.registry import protocol_class

__all__ = ["continued"]

#: Stages that make first centers, in whose place the last ones can be given.
_SEEDING: Final = ("seeding", "split-merge", "careful", "shared-k-means++")


def continued(job: Job, state: JobState) -> Job:
    """Return the next job of a series: the same one, from the centers that the last one ended with.

    They are given in the data's own units, so that new rows may change the scaling. A job that failed, or that has no
    stage for first centers, is done again as it was.

    Parameters
    ----------
    job, state : Job, JobState
        The last one, and its final state.

    Examples
    --------
    >>> from p2pclust.protocols.engine.compose import cluster_job
    >>> from p2pclust.protocols.engine.local import Local
    >>> from p2pclust.protocols.engine.runner import run_in_process
    >>> job = cluster_job("llf-cm", n_clusters=2, init=[[0.0], [9.0]], suppress_singletons=False)
    >>> state = run_in_process(job, [Local([[0.0], [1.0], [8.0]])])
    >>> [stage.parameters["centers"] for stage in continued(job, state).stages if stage.protocol == "seeding"]
    [[[0.5], [8.0]]]
    """
    if state.status != "done" or "centers" not in state.arrays or "origin" not in state.arrays:
        return job
    centers = summaries.raw_centers(state).tolist()
    given = Stage("seeding", {"n_clusters": len(centers), "init": "given", "centers": centers})
    try:
        return replace(
            job, stages=tuple(given if stage.protocol in _SEEDING else _of_one_start(stage) for stage in job.stages)
        )
    except UsageError:  # a center beyond what can be given
        return job


def _of_one_start(stage: Stage) -> Stage:
    """Return the stage with the one start that given centers are, if it had several."""
    kind = protocol_class(stage.protocol)
    several = stage.protocol == "objective" or issubclass(kind, SideBySide)
    return (
        Stage(stage.protocol, {**stage.parameters, "n_init": 1}) if several and "n_init" in stage.parameters else stage
    )
