"""Which devices a job left exposed: what its rounds showed may give their rows or sums away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from p2pclust.protocols.centers.alternating import Alternating
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.secure_rounds import exposed_peers


def exposed_in(job: Job, state: JobState, roster: Sequence[str], rows: Mapping[str, int]) -> dict[str, str]:
    """Return the exposed devices of a job, by name, and why.

    With secure sums these are the peers of small classes (docs/secure-sums.md). Without, the peers of ``llf-cm`` and
    ``llf-fcm`` whose sums over all rounds and starts are at least as many equations as their rows have values: N rows of F
    values against C (F + 1) for each.

    Parameters
    ----------
    job, state : Job, JobState
        The last state.
    roster : sequence of str
    rows : mapping of str to int
        How many rows each device has.
    """
    if state.secured is not None:
        why = f"sums of fewer than {state.secured.cohort} devices with it can be computed"
        return {roster[peer]: why for peer in exposed_peers(state)}
    protocol = job.protocols[job.main]
    if not isinstance(protocol, Alternating) or "centers" not in state.arrays:
        return {}
    n_clusters, n_features = state.arrays["centers"].shape
    told = dict.fromkeys(range(len(roster)), 0)
    for record in state.log:
        if record.stage == job.main:
            for peer in record.contributors:
                told[peer] += 1
    equations = protocol.n_init * n_clusters * (n_features + 1)
    return {
        roster[peer]: f"it has {rows[roster[peer]]} rows, and the sums of {rounds} rounds are as many equations"
        for peer, rounds in told.items()
        if rounds and rows.get(roster[peer], 0) * n_features <= rounds * equations
    }
