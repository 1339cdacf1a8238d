"""What a job would take of a device's memory: refused when it is submitted, and when its document comes, before any task."""

from __future__ import annotations

from typing import Final

from p2pclust.errors import UsageError, WireError
from p2pclust.peer.work.states import job_of
from p2pclust.protocols.engine.base import Additive
from p2pclust.protocols.engine.job import Job

#: Of a device's memory, for the state and contributions of one job: the rest is for rows, and for the process itself.
_SHARE: Final = 0.5
_NUMBER_BYTES: Final = 8
#: A state is held as it came, as numbers, and as the next one is made, beside the contributions of the peers.
_COPIES: Final = 4


def bytes_of(job: Job, n_peers: int, n_columns: int) -> int:
    """Return about how many bytes the largest state of a job takes with the contributions of all peers.

    Parameters
    ----------
    n_columns : int
        Of the device's own rows, 0 if they are not known; a job that declares bounds names its own number.

    Examples
    --------
    >>> from p2pclust.protocols.engine.compose import cluster_job
    >>> job = cluster_job("llf-cm", n_clusters=2**20, n_init=100, init="uniform", bounds=([0.0], [1.0]))
    >>> bytes_of(job, n_peers=3, n_columns=1) // 10**9
    23
    """
    declared = [len(lo) for stage in job.protocols if isinstance(lo := getattr(stage, "lo", None), tuple)]
    columns = max([1, n_columns, *declared])
    most = 0
    for stage in job.protocols:
        sets, starts = getattr(stage, "n_clusters", None), getattr(stage, "n_init", 1)
        if isinstance(sets, int):
            limbs = stage.limbs if isinstance(stage, Additive) else 1
            most = max(most, sets * starts * (columns + 1) * limbs)
    return _NUMBER_BYTES * most * (n_peers + _COPIES)


def size_flaw(job: bytes, n_peers: int, n_columns: int, memory_bytes: float) -> str:
    """Return why a job is too large for a device with so much memory, or an empty string.

    What is no job here is not judged: other checks refuse it.
    """
    try:
        taken = bytes_of(job_of(job), n_peers, n_columns)
    except (UsageError, WireError):
        return ""
    if taken <= _SHARE * memory_bytes:
        return ""
    return (
        f"the job is too large for this device: states and contributions of {n_peers} peers take about "
        f"{taken / 1e6:,.0f} MB, and half of its memory is {_SHARE * memory_bytes / 1e6:,.0f} MB: fewer clusters, starts "
        "(n_init) or peers"
    )
