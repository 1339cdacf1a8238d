"""A job with everything that its pictures are made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from p2pclust.data import DataSet
from p2pclust.fleet.spec import Event, JobResult
from p2pclust.protocols.engine.job import Job
from p2pclust.protocols.engine.runner import labelling_stage
from p2pclust.scenario.outcome.evidence import Evidence
from p2pclust.scenario.outcome.terms import TermEnd, ends_of
from p2pclust.scenario.page.page import Picture
from p2pclust.scenario.page.rows import JobRows, rows_of
from p2pclust.scenario.pictures.inline import Drawing

__all__ = ["LANES", "NARROW", "JobStory", "picture_of"]

LANES = 40
"""Peers that have a lane each; where there are more, some are chosen, and the page says so."""

NARROW = 4.8
"""Inches of a picture with lanes that is drawn once more for narrow pages."""


@dataclass(frozen=True)
class JobStory:
    """A job with everything that its pictures are made from.

    Parameters
    ----------
    job : Job
    entry : mapping
        What ``result.json`` says about it.
    found : JobResult or None
        None if it was not handed in.
    shares : mapping of str to DataSet
    groups : mapping of str to str
        Each peer's device class.
    names : sequence of str
        All peers, in the order in which they are drawn.
    events : sequence of Event
        Of the whole run.
    sent : int or None
        Bytes that the peers sent; 0 where nobody counted them for this job, None if a peer was lost with its counters.
    evidence : Evidence
    """

    job: Job
    entry: Mapping[str, Any]
    found: JobResult | None
    shares: Mapping[str, DataSet]
    groups: Mapping[str, str]
    names: Sequence[str]
    events: Sequence[Event]
    sent: int | None
    evidence: Evidence

    @property
    def done(self) -> bool:
        """Whether there is a result."""
        return self.found is not None and self.found.state is not None and self.found.state.status == "done"

    @cached_property
    def rows(self) -> JobRows | None:
        """The rows and what became of them."""
        if not self.done:
            return None
        assert self.found is not None
        return rows_of(self.job, self.found, self.shares, self.evidence)

    @cached_property
    def terms(self) -> list[TermEnd]:
        """How each term ended; empty for a job without an aggregator."""
        return [] if self.found is None else ends_of(self.events, self.found.job_id, done=self.done)

    @cached_property
    def absent(self) -> dict[str, str]:
        """Those of the roster whose rows had no share in the result, with why as far as the job's record tells."""
        if self.rows is None or self.job.by_columns:
            return {}
        assert self.found is not None
        there = set(self.rows.names)
        if not self.job.has_workspace:
            stage, _ = labelling_stage(self.job)
            told = zip(self.entry["stages"], self.entry["contributors"], strict=True)
            there |= {name for stage_, who in told if stage_ == self.job.stages[stage].protocol for name in who}
        why = {name: reason for of_round in self.entry["abstained"] for name, reason in of_round.items()}
        return {name: why.get(name, "") for name in self.found.roster if name not in there}


def picture_of(drawing: Drawing, alt: str, caption: str, narrow: Drawing | None = None) -> Picture:
    """Return a drawing as a picture of the page; `alt` is for readers that cannot see it, `narrow` for a phone."""
    return Picture(drawing.svg(alt), caption, alt, drawing.width, "" if narrow is None else narrow.svg(alt))
