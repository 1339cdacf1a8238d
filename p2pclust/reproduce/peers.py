"""Where the jobs of a table run, and the random streams of its repetitions."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from p2pclust.errors import FleetError
from p2pclust.fleet import backend
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import run_in_process
from p2pclust.protocols.engine.workspaces import Workspaces

__all__ = ["JobFailedError", "Peers", "seed_of", "stream"]

Floats = NDArray[np.float64]


class JobFailedError(FleetError):
    """The fleet worked, but the job ended without a result, for example because it diverged."""


class Peers:
    """Runs jobs over arrays, one peer each, in this process, in virtual time or as real processes.

    Parameters
    ----------
    backend_name : {"in-process", "simulated", "processes"}
    threads : int
        How many peers of one process compute at once, where a protocol works with workspaces.
    keep : Path, optional
        Where an experiment may keep results that take long.
    """

    def __init__(self, backend_name: str = "in-process", *, threads: int = 1, keep: Path | None = None) -> None:
        self._backend = backend(backend_name)
        self._threads = threads
        self.keep = keep

    def run(self, job: Job, arrays: Sequence[Floats], see: Callable[[JobState], None] | None = None) -> JobState:
        """Run a job to its end.

        Parameters
        ----------
        job : Job
        arrays : sequence of ndarray
            One per peer.
        see : callable, optional
            Called with the state after every round. Real peers do not report these states, so the rounds are also run
            in this process, and the fleet must end with the same bits.

        Raises
        ------
        JobFailedError
            If the job failed.
        FleetError
            If the fleet did, or has other bits than one process.

        Examples
        --------
        >>> from p2pclust.protocols.engine.compose import cluster_job
        >>> job = cluster_job("llf-cm", n_clusters=2, init=[[0.0], [9.0]])
        >>> Peers().run(job, [np.array([[0.0], [1.0], [1.0]]), np.array([[8.0], [9.0], [9.0]])]).status
        'done'
        """
        if self._backend.name == "in-process":
            state = run_in_process(job, [Local(X) for X in arrays], see)
        else:
            state = self._backend.run(job, arrays)
            if see is not None:
                again = run_in_process(job, [Local(X) for X in arrays], see)
                if again.encode() != state.encode():
                    raise FleetError("the fleet's result has other bits than the same job in one process")
        return _done(state)

    def with_workspaces(
        self, job: Job, locals: Sequence[Local], see: Callable[[JobState, Workspaces], None], *, only_here: bool = False
    ) -> JobState:
        """Run a job whose peers keep notes; `see` is shown the state after every round, and the peers' workspaces.

        As with :meth:`run`, real peers do not report states between rounds, so the rounds are also run in this process, and
        the fleet must end with the same bits; unless the job can run `only_here`.

        Raises
        ------
        JobFailedError
            If the job failed.
        FleetError
            If the fleet did, or has other bits than one process.
        """
        workspaces = Workspaces(self._threads)
        state = run_in_process(job, locals, lambda state: see(state, workspaces), workspaces)
        if self._backend.name != "in-process" and not only_here:
            found = self._backend.result(job, locals).state
            if found is None or found.arrays.encode() != state.arrays.encode():
                raise FleetError("the fleet's result has other bits than the same job in one process")
        return _done(state)


def _done(state: JobState) -> JobState:
    if state.status != "done":
        raise JobFailedError(f"a job of the table failed: {state.reason}")
    return state


def stream(seed: int, name: str, repetition: int) -> np.random.Generator:
    """Return the random stream of one repetition of a set-up.

    Examples
    --------
    >>> bool(stream(0, "xclara", 3).random() == stream(0, "xclara", 3).random())
    True
    """
    name_number = zlib.crc32(name.encode())
    return np.random.default_rng(np.random.SeedSequence(entropy=seed, spawn_key=(name_number, repetition)))


def seed_of(rng: np.random.Generator) -> int:
    """Draw a job's seed."""
    return int(rng.integers(0, 2**62))
