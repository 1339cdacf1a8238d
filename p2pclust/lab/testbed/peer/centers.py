"""The centers of a round, for testbeds, which may show how clusters move: real devices never log values."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from p2pclust.peer.core.core import Core
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.summaries import raw_centers

_MOST_NUMBERS: Final = 1_000  # of all coordinates; larger centers are not reported


def centers_of(core: Core | None, job_id: str) -> dict[str, Any] | None:
    """Return the fields of the event ``centers`` for the state that a peer holds of a job; None if it has no such state."""
    job = None if core is None else core.jobs.jobs.get(job_id)
    ref = None if job is None else job.ledger.register.ref
    return None if ref is None or ref.payload is None else centers_in(JobState.decode(ref.payload))


def centers_in(state: JobState) -> dict[str, Any] | None:
    """Return the fields of a testbed's event ``centers``; None if a state has none, too many coordinates, or infinite ones.

    ``round`` is that of the state, ``centers`` has a list for each, in the data's own units, with five digits.
    """
    arrays = state.arrays
    if "centers" not in arrays or arrays["centers"].ndim != 2 or not 0 < arrays["centers"].size <= _MOST_NUMBERS:
        return None
    found = raw_centers(state) if "origin" in arrays and "scale" in arrays else arrays["centers"]
    if not np.isfinite(found).all():
        return None
    return {"round": state.round, "centers": [[float(f"{value:.5g}") for value in row] for row in found.tolist()]}
