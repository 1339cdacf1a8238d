"""What the page of a run is made from: the run, and each of its jobs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, cast

from p2pclust.data import DataSet
from p2pclust.errors import PluginError
from p2pclust.jobs.request import JobResult
from p2pclust.lab.run.events import RunEvent
from p2pclust.lab.run.state import RunState
from p2pclust.lab.run.views import TermEnd
from p2pclust.lab.scenario.outcome.measures import AuditedJob, MeasuredEvidence, contributed
from p2pclust.lab.scenario.page.rows import JobRows, rows_of
from p2pclust.lab.testbed.spec import FleetResult
from p2pclust.overlay import Overlay
from p2pclust.protocols.engine.job import Job, JobState

#: The widths in pixels of a picture with lanes, and of its second copy for narrow pages.
WIDE: Final = 1056
NARROW: Final = 460


@dataclass(frozen=True)
class RunStory:
    """A run with everything that its page is made from."""

    result: Mapping[str, Any]  # the content of ``result.json``
    jobs: Sequence[Job]
    found: FleetResult
    shares: Mapping[str, DataSet]  # every peer's rows, by name
    groups: Mapping[str, str]  # each peer's device class
    strangers: Collection[str]  # the peers that are not on the fleet roster and only try to join
    overlay: Overlay | None  # at the start; None for a full mesh
    evidence: Sequence[MeasuredEvidence] = ()  # one for each job that was submitted
    events: Sequence[RunEvent] = field(default=(), repr=False)
    attacked: Sequence[AuditedJob] = ()  # one for each job, if the run was attacked

    @cached_property
    def names(self) -> list[str]:
        """All peers, by class, then by name."""
        order = {group: place for place, group in enumerate(dict.fromkeys(self.groups.values()))}
        return sorted(self.shares, key=lambda name: (order[self.groups[name]], name))

    @cached_property
    def run(self) -> RunState:
        links = None if self.overlay is None else self.overlay.links
        stages = [[stage.protocol for stage in job.stages] for job in self.jobs]
        return RunState.of(self.events, self.names, stages=stages, links=links, strangers=self.strangers)

    @property
    def linked(self) -> bool:
        """Whether there were links at all; the in-process backend has none."""
        return bool(self.result["backend"] != "in-process")

    @property
    def sent(self) -> int | None:
        """All bytes that were sent; 0 where several jobs share them, None if a peer was lost with its counters."""
        if len(self.jobs) > 1:
            return 0
        sent = sum(int(peer.get("bytes_sent") or 0) for peer in self.found.peers.values())
        return None if sent and not all(peer.get("finished") for peer in self.found.peers.values()) else sent


@dataclass(frozen=True)
class JobStory:
    """One job of a run, with its number from 0."""

    run: RunStory
    number: int

    @property
    def job(self) -> Job:
        return self.run.jobs[self.number]

    @property
    def entry(self) -> Mapping[str, Any]:
        return cast("Mapping[str, Any]", self.run.result["jobs"][self.number])

    @property
    def found(self) -> JobResult | None:
        return self.run.found.jobs[self.number] if self.number < len(self.run.found.jobs) else None

    @property
    def came(self) -> JobResult:
        """The result of a job that was submitted."""
        assert self.found is not None
        return self.found

    @property
    def state(self) -> JobState:
        assert self.came.state is not None
        return self.came.state

    @property
    def evidence(self) -> MeasuredEvidence:
        """What measuring the job found beside the result."""
        return self.run.evidence[self.number] if self.number < len(self.run.evidence) else MeasuredEvidence()

    @property
    def prefix(self) -> str:
        """Begins the heading of each of the job's sections, if the run has several jobs."""
        return f"Job {self.number + 1}: " if len(self.run.jobs) > 1 else ""

    @property
    def done(self) -> bool:
        return self.found is not None and self.found.state is not None and self.found.state.status == "done"

    @cached_property
    def rows(self) -> JobRows | None:
        """The rows with their clusters; None if there is no result, or the code of a plug-in fails."""
        with suppress(PluginError):  # which the result names
            return rows_of(self.job, self.came, self.run.shares) if self.done else None
        return None

    @cached_property
    def terms(self) -> list[TermEnd]:
        """How each term ended; empty for a job without an aggregator."""
        return [] if self.found is None else self.run.run.ends_of(self.found.job_id, done=self.done)

    @cached_property
    def absent(self) -> dict[str, str]:
        """The peers of the job roster whose rows had no part in the result, with the recorded reason if there is one."""
        if self.rows is None or self.job.by_columns:
            return {}
        there = set(self.rows.names)
        if not self.job.has_workspace:
            there |= {self.came.roster[peer] for peer in contributed(self.job, self.state)}
        why = {name: reason for of_round in self.entry["abstained"] for name, reason in of_round.items()}
        return {name: why.get(name, "") for name in self.came.roster if name not in there}
