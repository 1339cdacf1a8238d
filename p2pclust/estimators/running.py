"""Running the job of an estimator: in this process, or on a fleet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from p2pclust.errors import FleetError, UsageError
from p2pclust.estimators.inputs import Floats
from p2pclust.estimators.trail import Trail
from p2pclust.jobs.request import JobResult
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import run_in_process
from p2pclust.tools.laboratory import has_laboratory, laboratory


class _Backend(Protocol):
    def run(
        self, job: Job, arrays: list[Floats], centers: list[Floats] | None = None, treatment: Treatment | None = None
    ) -> JobState:  # fmt: skip
        """Run the job with one peer per array and return its last state."""

    def result(self, job: Job, locals: list[Local]) -> JobResult:
        """Run the job with these peers and return its whole result; used where peers keep parts of it."""


@dataclass
class Course:
    """How a job went, as far as it is known: in this process the path of the centers, of a fleet what its peers reported."""

    trail: Trail = field(default_factory=Trail)
    fleet: Any = None  # a `p2pclust.lab.pictures.estimators.FleetRun`

    def keep(self, spec: Any, result: Any) -> None:
        """Keep the specification of a fleet and what it reported."""
        self.fleet = laboratory("pictures.estimators", "fleet").FleetRun.of(spec, result)


def run_job(
    job: Job, locals: list[Local], fleet: Any, secured: Mapping[str, Any], course: Course
) -> JobState:  # fmt: skip
    """Run a job with these peers and return its last state; raise FleetError if the job was not done.

    The fleet is None for the pure functions in this process, the name of a backend, or any object with
    ``run(job, arrays)``; where peers were given their columns of the first centers, it takes these as a third argument, and
    for secure sums the treatment of the job as ``treatment``. Only p2pclust's own backends say how it went.
    """
    if fleet is None:
        state = run_in_process(job, locals, course.trail.follow)
    else:
        columns = [local.centers for local in locals if local.centers is not None]
        given: tuple[Any, ...] = (columns,) if columns else ()
        to = backend_of(fleet)
        more = _watching(to, course)
        if secured:
            more["treatment"] = Treatment(missing="", **secured)
        state = to.run(job, [local.X for local in locals], *given, **more)
    if state.status != "done":
        raise FleetError(state.reason or f"the job ended as {state.status!r}")
    return state


def result_of(job: Job, locals: list[Local], fleet: Any, course: Course) -> JobResult:
    """Run a job on a fleet and return its whole result."""
    to = backend_of(fleet)
    return to.result(job, locals, **_watching(to, course))


def _watching(to: _Backend, course: Course) -> dict[str, Any]:
    # Another kind of backend comes without the laboratory, perhaps, and takes no such argument.
    own = has_laboratory() and isinstance(to, laboratory("testbed", "fleet").Backend)
    return {"on_run": course.keep} if own else {}


def backend_of(fleet: Any) -> _Backend:
    """Return the backend that an estimator was given, by its name or itself."""
    if isinstance(fleet, str):
        testbed = laboratory("testbed", f"fleet = {fleet!r}")
        if fleet not in testbed.BACKENDS:
            raise UsageError(f"fleet = {fleet!r}: expected None, a backend, or one of {', '.join(testbed.BACKENDS)}")
        return cast(_Backend, testbed.backend(fleet))
    if not hasattr(fleet, "run"):
        raise UsageError(f"fleet = {fleet!r}: expected None, the name of a backend, or a backend")
    return cast(_Backend, fleet)
