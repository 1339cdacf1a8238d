"""Where the jobs of a table run, and the random streams of its repetitions."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from p2pclust.errors import FleetError
from p2pclust.lab.testbed import backend
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import Workspaces, run_in_process

Floats = NDArray[np.float64]


class JobFailedError(FleetError):
    """The fleet worked, but the job ended without a result, for example because it diverged."""


@dataclass(frozen=True)
class Peers:
    """Runs jobs over arrays, one peer each, in this process, in virtual time or as real processes."""

    backend_name: str = "in-process"
    threads: int = 1  # how many peers of one process compute at once, where a protocol works with workspaces
    keep: Path | None = None  # where an experiment may keep results that take long

    def run(
        self, job: Job, rows: Sequence[Floats | Local], see: Callable[[JobState], None] | None = None,
        *, workspaces: Workspaces | None = None, only_here: bool = False,
    ) -> JobState:  # fmt: skip
        """Run a job to its end over the rows of each peer.

        `see` is called with the state after every round. Real peers do not report these states, so the rounds are also
        run in this process, and the fleet must end with the same bits. `workspaces` are the notes of the peers of this
        process, which `see` may read; `only_here` says that the job needs what only this process has.

        Raise JobFailedError if the job failed; FleetError if the fleet did, or has other bits than one process.

        Examples
        --------
        >>> from p2pclust.protocols.engine.compose import cluster_job
        >>> job = cluster_job("llf-cm", n_clusters=2, init=[[0.0], [9.0]])
        >>> Peers().run(job, [np.array([[0.0], [1.0], [1.0]]), np.array([[8.0], [9.0], [9.0]])]).status
        'done'
        """
        locals_ = [own if isinstance(own, Local) else Local(own) for own in rows]
        here = only_here or self.backend_name == "in-process"
        state = run_in_process(job, locals_, see, workspaces) if here or see else None
        if not here:
            found = backend(self.backend_name).result(job, locals_).state
            assert found is not None, "`result` raises if there is no state"
            if state is not None and found.arrays.encode() != state.arrays.encode():
                raise FleetError("the fleet's result has other bits than the same job in one process")
            state = found
        assert state is not None
        if state.status != "done":
            raise JobFailedError(f"a job of the table failed: {state.reason}")
        return state


def stream(seed: int, name: str, repetition: int) -> np.random.Generator:
    """Return the random stream of one repetition of a set-up.

    >>> bool(stream(0, "xclara", 3).random() == stream(0, "xclara", 3).random())
    True
    """
    name_number = zlib.crc32(name.encode())
    return np.random.default_rng(np.random.SeedSequence(entropy=seed, spawn_key=(name_number, repetition)))


def seed_of(rng: np.random.Generator) -> int:
    return int(rng.integers(0, 2**62))
