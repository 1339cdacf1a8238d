"""The record of a run, kept from its events: terms, ends, lost peers, seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from p2pclust.jobs.request import JobResult
from p2pclust.lab.run.events import RunEvent
from p2pclust.lab.run.state import RunState
from p2pclust.lab.run.views import JobView
from p2pclust.lab.testbed.spec import LogLine, OnEvent
from p2pclust.overlay.routes import Ways, mutual
from p2pclust.peer.core.document import majority
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.job import JobState

_MOST_COUNTED: Final = 200  # peers whose traffic is recorded one by one
#: The events that say how a job goes; those of members are too many in a large fleet.
_FOLLOWED: Final = ("submitted", "elected", "unable", "combined", "phase", "averaged", "finished")
#: The events that are progress; an election is none.
_PROGRESS: Final = ("submitted", "accepted", "mixing", "combined", "circle", "finished", "started")


def needs(lost: Sequence[str], overlay: Mapping[str, Sequence[str]] | None = None) -> str:
    """Explain what a job waits for that makes no progress although a majority is there.

    `lost` peers are gone for good. Without an overlay, which has each peer's neighbours, all are linked.

    >>> needs(["meter-02"]), needs([])
    (': meter-02 is gone, and this job needs all peers', '')
    >>> needs([], {"a": ["b"], "b": ["a"], "c": []})
    ': c has no path to the others'
    >>> needs(["b"], {"a": ["b"], "b": ["a", "c"], "c": ["b", "d"], "d": ["c"]})
    ': b is gone, and without it a has no path to the others'
    """
    cut_off: list[str] = []  # the peers outside the largest part whose peers still reach each other, sorted
    if overlay:
        ways = Ways(mutual(overlay), lost)
        parts = [sorted(ways.distances(name)) for name in sorted(overlay) if name not in lost]
        most = max(parts, key=len, default=[])
        cut_off = sorted(name for name in overlay if name not in lost and name not in most)
    has = "has" if len(cut_off) == 1 else "have"
    if not lost:
        return f": {', '.join(cut_off)} {has} no path to the others" if cut_off else ""
    gone = f": {', '.join(lost)} {'is' if len(lost) == 1 else 'are'} gone, and"
    if not cut_off:
        return f"{gone} this job needs all peers"
    it = "it" if len(lost) == 1 else "them"
    return f"{gone} without {it} {', '.join(cut_off)} {has} no path to the others"


@dataclass
class JobRecord:
    """One job, as its events describe it, with what was asked for and what was read of its result."""

    seen: JobView
    tolerance: float | None = None
    missing: str = ""  # as requested: all | wait | drop
    state: JobState | None = None
    notes: dict[str, Arrays] = field(default_factory=dict)
    blobs: dict[bytes, bytes] = field(default_factory=dict)

    def broken(self) -> str:
        """Return the last reason of an aggregator that could not compute; empty if two or more gave none."""
        tried = self.seen.tried
        found = [f": {name} could not continue: {reason}" for name, reason in tried.items() if reason]
        return found[-1] if found and len(found) >= len(tried) - 1 else ""

    def stuck(self, lost: Sequence[str]) -> str:
        """Explain why the job can never end without the lost peers; empty if it can."""
        n_roster, needed = self.seen.n_peers, majority(self.seen.n_peers)
        present = n_roster - len(lost)
        if present < needed:
            return f"the fleet lost its majority: waiting: {present} of {n_roster} peers, {needed} are needed"
        return f"the job stopped at round {self.seen.opened}{needs(lost)}" if lost and self.missing == "all" else ""

    def result(self) -> JobResult:
        seen = self.seen
        digests, notes = dict(sorted(seen.digests.items())), dict(sorted(self.notes.items()))
        ticks = tuple(count for _, count in sorted(seen.ticks.items()))
        return JobResult(
            seen.id, seen.roster, self.state, tuple(sorted(seen.terms.items())), digests,
            max(0.0, seen.ended - seen.submitted), notes, self.blobs, self.tolerance, seen.reached, ticks,
        )  # fmt: skip


class Record:
    """Collects the events of a run and passes them to `on_event`."""

    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
        self._run = RunState(())
        self.events: list[LogLine] = []
        self.jobs: dict[str, JobRecord] = {}
        self.refused = ""
        self.progress_at = 0.0

    def take(self, t: float, peer: str, verb: str, fields: Mapping[str, Any]) -> None:
        event: dict[str, Any] = {"t": round(t, 6), "peer": peer, "verb": verb, **fields}
        if "peer" in fields:
            event["by"] = peer  # it reports on another one
        self.events.append(event)
        if verb in _FOLLOWED:
            self._run.take(RunEvent.of(event))
            for job_id in self._run.by_id.keys() - self.jobs.keys():
                self.jobs[job_id] = JobRecord(self._run.by_id[job_id])
        if verb == "refused":
            self.refused = fields["reason"]
        if verb in _PROGRESS:
            self.progress_at = t
        self._on_event(event)

    def load(self, t: float, counters: Mapping[str, Mapping[str, Any]]) -> None:
        """Record the traffic so far of the peers that reported it; `counters` is by name.

        In a fleet that is not large, what each peer has sent is recorded too.
        """
        if not counters:
            return
        busiest = max(sorted(counters), key=lambda name: int(counters[name]["bytes_sent"]))
        fields: dict[str, Any] = {
            f"{what}_sent": sum(int(own[f"{what}_sent"]) for own in counters.values()) for what in ("messages", "bytes")
        }
        fields |= {"busiest": busiest, "busiest_bytes": int(counters[busiest]["bytes_sent"])}
        if len(counters) <= _MOST_COUNTED:
            fields["sent"] = {name: int(own["bytes_sent"]) for name, own in counters.items()}
        self.take(t, "", "load", fields)

    def aggregators(self) -> tuple[str, ...]:
        """Return the newest aggregator of the newest job that has one, as a tuple; empty if there is none."""
        terms = [job.seen.terms for job in self.jobs.values() if job.seen.terms]
        return (terms[-1][max(terms[-1])],) if terms else ()
