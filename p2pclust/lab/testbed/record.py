"""The record of a run, kept from its events: terms, ends, lost peers, seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from p2pclust.jobs.request import JobResult
from p2pclust.lab.testbed.faults import Fault
from p2pclust.lab.testbed.spec import Event, OnEvent
from p2pclust.overlay.routes import Ways, mutual
from p2pclust.peer.core.document import majority
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.job import JobState

_MOST_COUNTED: Final = 200  # peers whose traffic is recorded one by one


def needs(lost: Sequence[str], overlay: Mapping[str, Sequence[str]] | None = None) -> str:
    """Explain what a job waits for that makes no progress although a majority is there.

    `lost` peers are gone for good. Without an overlay, which has each peer's neighbours, all are linked.

    Examples
    --------
    >>> needs(["meter-02"]), needs([])
    (': meter-02 is gone, and this job needs all peers', '')
    >>> needs([], {"a": ["b"], "b": ["a"], "c": []})
    ': c has no path to the others'
    >>> needs(["b"], {"a": ["b"], "b": ["a", "c"], "c": ["b", "d"], "d": ["c"]})
    ': b is gone, and without it a has no path to the others'
    """
    cut_off = _cut_off(lost, overlay) if overlay else []
    has = "has" if len(cut_off) == 1 else "have"
    if not lost:
        return f": {', '.join(cut_off)} {has} no path to the others" if cut_off else ""
    gone = f": {', '.join(lost)} {'is' if len(lost) == 1 else 'are'} gone, and"
    if not cut_off:
        return f"{gone} this job needs all peers"
    it = "it" if len(lost) == 1 else "them"
    return f"{gone} without {it} {', '.join(cut_off)} {has} no path to the others"


def _cut_off(lost: Sequence[str], overlay: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the peers outside the largest part whose peers still reach each other, sorted."""
    ways = Ways(mutual(overlay), lost)
    parts = [sorted(ways.distances(name)) for name in sorted(overlay) if name not in lost]
    most = max(parts, key=len, default=[])
    return sorted(name for name in overlay if name not in lost and name not in most)


@dataclass
class JobRecord:
    """One job, as its events describe it."""

    job_id: str
    roster: tuple[str, ...]
    began_at: float
    terms: dict[int, str] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    ended_at: float = 0.0
    round: int = 0
    state: JobState | None = None
    notes: dict[str, Arrays] = field(default_factory=dict)
    blobs: dict[bytes, bytes] = field(default_factory=dict)
    tolerance: float | None = None
    missing: str = ""  # as requested: all | wait | drop
    reached: float | None = None
    ticks: dict[int, int] = field(default_factory=dict)
    #: The aggregators since the last closed round, each with the reason why it could not compute, or an empty string.
    tried: dict[str, str] = field(default_factory=dict)

    def broken(self) -> str:
        """Return the last reason of an aggregator that could not compute; empty if two or more gave none."""
        found = [f": {name} could not go on: {reason}" for name, reason in self.tried.items() if reason]
        return found[-1] if found and len(found) >= len(self.tried) - 1 else ""

    def stuck(self, lost: Sequence[str]) -> str:
        """Explain why the job can never end without the lost peers; empty if it can."""
        n_roster, needed = len(self.roster), majority(len(self.roster))
        present = n_roster - len(lost)
        if present < needed:
            return f"the fleet lost its majority: waiting: {present} of {n_roster} peers, {needed} are needed"
        return f"the job stopped at round {self.round}{needs(lost)}" if lost and self.missing == "all" else ""

    def result(self) -> JobResult:
        """Return the result."""
        seconds = max(0.0, self.ended_at - self.began_at)
        terms = tuple(sorted(self.terms.items()))
        digests, notes = dict(sorted(self.digests.items())), dict(sorted(self.notes.items()))
        ticks = tuple(count for _, count in sorted(self.ticks.items()))
        return JobResult(
            self.job_id, self.roster, self.state, terms, digests, seconds, notes, self.blobs, self.tolerance, self.reached,
            ticks,
        )  # fmt: skip


class Record:
    """Collects the events of a run and passes them to `on_event`."""

    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
        self.events: list[Event] = []
        self.jobs: dict[str, JobRecord] = {}
        self.refused = ""
        self.progress_at = 0.0

    def take(self, t: float, peer: str, verb: str, fields: Mapping[str, Any]) -> None:
        """Record an event at `peer`."""
        event: dict[str, Any] = {"t": round(t, 6), "peer": peer, "verb": verb, **fields}
        if "peer" in fields:
            event["by"] = peer  # it reports on another one
        self.events.append(event)
        # Events of child jobs count as progress only.
        match "" if "within" in event else verb:
            case "submitted":
                self.jobs[event["job"]] = JobRecord(event["job"], tuple(event["roster"]), t)
            case "refused":
                self.refused = event["reason"]
            case "elected":
                job = self.jobs[event["job"]]
                job.terms[event["term"]] = peer
                job.tried.setdefault(peer, "")
            case "unable":
                self.jobs[event["job"]].tried[peer] = event["reason"]
            case "combined":
                self.jobs[event["job"]].tried.clear()
            case "phase":
                self.jobs[event["job"]].round = max(self.jobs[event["job"]].round, event["round"])
            case "averaged":
                job = self.jobs[event["job"]]
                job.reached = max(job.reached or 0.0, event["reached"])
                job.ticks[event["round"]] = event["ticks"]
            case "finished":
                self.jobs[event["job"]].digests[peer] = event["digest"]
                self.jobs[event["job"]].ended_at = t
        if verb in ("submitted", "accepted", "mixing", "combined", "circle", "finished", "started"):
            self.progress_at = t  # an election alone is not progress
        self._on_event(event)

    def planned(self, t: float, number: int, fault: Fault) -> None:
        """Record a drawn instant in advance."""
        if fault.drawn:
            victim = fault.who[0] if fault.who else ""
            self.take(t, victim, "planned", {"number": number, **fault.fields(), "seconds": fault.seconds})

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
        terms = [job.terms for job in self.jobs.values() if job.terms]
        return (terms[-1][max(terms[-1])],) if terms else ()
