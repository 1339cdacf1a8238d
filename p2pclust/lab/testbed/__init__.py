"""Running jobs in this process, in virtual time, or on real processes, with the same bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from p2pclust.errors import FleetError, UsageError
from p2pclust.protocols.engine.exclusions import refuse
from p2pclust.tools.platforms import require_unix

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from p2pclust.jobs.request import JobResult
    from p2pclust.lab.testbed.spec import FleetResult, FleetSpec, OnEvent
    from p2pclust.peer.core.treatment import Treatment
    from p2pclust.protocols.engine.job import Job, JobState
    from p2pclust.protocols.engine.local import Local

    OnRun = Callable[[FleetSpec, FleetResult], None]

__all__ = ["BACKENDS", "Backend", "backend"]

BACKENDS = {
    "processes": "processes.fleet", "namespaces": "processes.namespaces", "simulated": "simulated",
    "in-process": "in_process",
}  # fmt: skip


@dataclass(frozen=True)
class Backend:
    """One way to run a fleet."""

    name: str

    def carry_out(self, spec: FleetSpec, on_event: OnEvent) -> FleetResult:
        """Run a spec; `on_event` receives each event as it happens. Raise UsageError where this system cannot run it."""
        self.check()
        found: FleetResult = import_module(f"p2pclust.lab.testbed.{BACKENDS[self.name]}").carry_out(spec, on_event)
        return found

    def check(self) -> None:
        """Check that this system has what the backend needs; raise UsageError if not."""
        if self.name in ("processes", "namespaces"):
            require_unix(
                f"backend {self.name}, whose peers are forks of one process,",
                "choose simulated, which has the same bits, or in-process",
            )

    def run(
        self, job: Job, arrays: Sequence[NDArray[np.float64]], centers: Sequence[NDArray[np.float64]] | None = None,
        treatment: Treatment | None = None, *, on_run: OnRun | None = None,
    ) -> JobState:  # fmt: skip
        """Run one job over these arrays, one peer each, without faults.

        With `centers`, each peer gets its own columns of the first centers, which no job has where peers hold columns. With
        `treatment`, the fleet treats the job so. `on_run` receives the specification and the result of the run.

        Raise FleetError if the fleet could not finish.
        """
        from p2pclust.protocols.engine.local import Local  # noqa: PLC0415

        given = [None] * len(arrays) if centers is None else list(centers)
        locals_ = [Local(X, centers=own) for X, own in zip(arrays, given, strict=True)]
        state = self.result(job, locals_, treatment, on_run=on_run).state
        assert state is not None, "`result` raises if there is no state"
        return state

    def result(
        self, job: Job, locals: Sequence[Local], treatment: Treatment | None = None, *, on_run: OnRun | None = None
    ) -> JobResult:
        """Run one job with these peers, in this order, without faults; `on_run` receives what ran and what came of it.

        Raise FleetError if the fleet could not finish; UsageError if this backend cannot treat the job so.
        """
        if treatment is not None:
            refuse({**treatment.options, "in_process": self.name == "in-process"})
        from p2pclust.jobs.request import JobRequest  # noqa: PLC0415
        from p2pclust.lab.testbed.spec import FleetSpec, PeerSpec  # noqa: PLC0415

        width, shared = len(str(len(locals))), ("ids", "centers", "labels", "n_clusters")
        peers = tuple(
            PeerSpec(f"peer-{number:0{width}d}", local.X, **{name: getattr(local, name) for name in shared})
            for number, local in enumerate(locals)
        )
        spec = FleetSpec(peers, (JobRequest(job) if treatment is None else JobRequest(job, treatment),))
        result = self.carry_out(spec, lambda event: None)
        if on_run is not None:
            on_run(spec, result)
        if not result.jobs or result.jobs[0].state is None:
            raise FleetError(result.failure or "no peer finished the job")
        return result.jobs[0]


def backend(name: str) -> Backend:
    """Return the backend with this name.

    Raises
    ------
    UsageError
        If there is no such backend.

    Examples
    --------
    >>> backend("in-process").name
    'in-process'
    """
    if name not in BACKENDS:
        raise UsageError(f"backend = {name!r}: expected one of {', '.join(BACKENDS)}")
    return Backend(name)
