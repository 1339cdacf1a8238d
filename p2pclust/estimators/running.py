"""Running the job of an estimator, in this process or on a fleet, and how it went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from p2pclust.errors import FleetError, UsageError
from p2pclust.jobs.request import JobResult
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import Trail, run_in_process
from p2pclust.tools.distribution import has_laboratory, laboratory


def has_links(fleet: Any) -> bool:
    """Return whether peers of this fleet exchange messages, which secure sums can protect."""
    return getattr(fleet, "name", fleet) not in (None, "in-process")


@dataclass
class Course:
    """How a job went, as far as it is known: in this process the path of the centers, of a fleet what its peers reported."""

    trail: Trail = field(default_factory=Trail)
    fleet: Any = None  # a `p2pclust.lab.pictures.estimators.FleetRun`

    def keep(self, spec: Any, result: Any) -> None:
        """Keep the specification of a fleet and what it reported."""
        self.fleet = laboratory("pictures.estimators", "fleet").FleetRun.of(spec, result)


def run_job(job: Job, locals: list[Local], fleet: Any, secured: Mapping[str, Any]) -> tuple[JobState, Course]:
    """Run a job with these peers and return its last state and how it went; raise FleetError if the job was not done.

    The fleet is None for the pure functions in this process, the name of a backend, or any object with
    ``run(job, arrays)``; where peers were given their columns of the first centers, it takes these as a third argument, and
    for secure sums, the default of some protocols, the treatment of the job as ``treatment``. Only p2pclust's own backends
    say how it went.
    """
    course = Course()
    if fleet is None:
        return done(run_in_process(job, locals, course.trail.follow)), course
    columns = [local.centers for local in locals if local.centers is not None]
    to, more = _watched(fleet, course)
    if secured:
        more["treatment"] = Treatment(missing="", **secured)
    return done(to.run(job, [local.X for local in locals], *([columns] if columns else []), **more)), course


def result_of(job: Job, locals: list[Local], fleet: Any) -> tuple[JobResult, Course]:
    """Run a job on a fleet and return its whole result and how it went."""
    course = Course()
    to, more = _watched(fleet, course)
    return to.result(job, locals, **more), course


def done(state: JobState | None) -> JobState:
    """Return the last state of a job that was done; raise FleetError for any other."""
    if state is None:
        raise FleetError("no peer finished the job")
    if state.status != "done":
        raise FleetError(state.reason or f"the job ended as {state.status!r}")
    return state


def _watched(fleet: Any, course: Course) -> tuple[Any, dict[str, Any]]:
    """Return the backend that an estimator was given, by its name or itself, and how to let it say how the job went."""
    if isinstance(fleet, str):
        testbed = laboratory("testbed", f"fleet = {fleet!r}")
        if fleet not in testbed.BACKENDS:
            raise UsageError(f"fleet = {fleet!r}: expected None, a backend, or one of {', '.join(testbed.BACKENDS)}")
        fleet = testbed.backend(fleet)
    elif not hasattr(fleet, "run"):
        raise UsageError(f"fleet = {fleet!r}: expected None, the name of a backend, or a backend")
    # Another kind of backend comes without the laboratory, perhaps, and takes no such argument.
    own = has_laboratory() and isinstance(fleet, laboratory("testbed", "fleet").Backend)
    return fleet, {"on_run": course.keep} if own else {}
