"""A job with how the fleet is to treat it, and what comes of it: the same for every way to run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from p2pclust.errors import UsageError
from p2pclust.peer.core.treatment import TOLERANCE, Treatment
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.exclusions import refuse
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.secure_rounds import problem_with_job
from p2pclust.protocols.engine.workspace import Workspace


@dataclass(frozen=True)
class JobRequest:
    """A job and how the fleet is to treat it."""

    job: Job
    # Without `missing`: as the job needs it.
    treatment: Treatment = field(default_factory=lambda: Treatment(missing=""))
    all_to_all: bool = False  # whether each peer may send large objects to all others in a large fleet
    roster: tuple[str, ...] = ()  # the peers that take part; by default those that are alive

    def __post_init__(self) -> None:
        treatment = self.treatment
        missing = treatment.missing or ("all" if self.job.by_columns else "wait")
        refuse(self.job.fill_in({**treatment.options, "missing": missing}))
        if treatment.secure and (problem := problem_with_job(self.job, treatment.groups)):
            raise UsageError(problem)
        if not treatment.secure and (problem := self.job.problem_if_plain):
            raise UsageError(problem)
        tolerance = treatment.gossip_tolerance or (TOLERANCE if treatment.collect == "gossip" else 0.0)
        object.__setattr__(self, "treatment", replace(treatment, missing=missing, gossip_tolerance=tolerance))


@dataclass(frozen=True)
class JobResult:
    """The result of one job. `state` is None if no peer finished it."""

    job_id: str
    roster: tuple[str, ...]
    state: JobState | None
    terms: tuple[tuple[int, str], ...]  # every (term, aggregator) that was elected
    digests: Mapping[str, str]  # of the final state, by the peers that finished
    seconds: float  # from submission until the last peer finished
    notes: Mapping[str, Arrays] = field(default_factory=dict, repr=False)  # what each peer keeps for itself, by name
    #: By digest: blobs of the result, and those that only the peers with notes have.
    blobs: Mapping[bytes, bytes] = field(default_factory=dict, repr=False)
    # Without an aggregator:
    tolerance: float | None = None  # within which all estimates of each sum agreed before one was used
    reached: float | None = None  # the largest distance of any peer's estimate from the one used
    ticks: tuple[int, ...] = ()  # of each round

    def workspace(self, name: str) -> Workspace:
        return Workspace(self.roster.index(name), self.notes.get(name, Arrays()), self.blobs.get)
