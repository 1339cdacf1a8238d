"""Follow a standing fleet: ask one of its peers at short intervals, and another one if that does not answer.

The answers become the events of a run. A peer knows its own view only. Of a
state is read who contributed and how far centers moved: neither rows nor centers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from p2pclust.errors import P2PClustError
from p2pclust.hosts.client import Connection
from p2pclust.hosts.events import Combined
from p2pclust.hosts.submission import fetch
from p2pclust.lab.live.shown import FollowedRun
from p2pclust.lab.run.events import Awaited, DeviceNews, JobAppeared, JobOver, LinksKnown, RunEvent, Sent
from p2pclust.peer.core.document import majority
from p2pclust.peer.core.reports import MemberChanged
from p2pclust.peer.core.round_reports import Elected, WaitsForMajority
from p2pclust.peer.work.states import job_of
from p2pclust.protocols.engine import summaries
from p2pclust.protocols.engine.job import JobState

_OVER: Final = ("done", "failed", "cancelled")
_APART_S: Final = 0.5
_ANSWER_S: Final = 3.0
_AGAIN_S: Final = 20.0  # before a peer that did not answer is asked again for what only it knows
_MOST_STATE: Final = 1_000_000  # bytes; what a larger state says of its round is not read


@dataclass
class AnswerReader:
    """What was read so far, so that only changes become events. `job`: the only one that is shown; empty for any.

    >>> reader = AnswerReader()
    >>> answer = {"peer": "a", "members": [{"name": "b", "status": "alive"}], "jobs": []}
    >>> [event.verb for event in reader.events(1.0, answer)]
    ['enrolled', 'started', 'enrolled', 'member']
    >>> answer["members"][0]["status"] = "dead"
    >>> [(event.verb, event.what.status) for event in reader.events(2.0, answer)]
    [('member', 'dead')]
    """

    job: str = ""
    _statuses: dict[str, str] = field(default_factory=dict)
    _jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    _passed: set[str] = field(default_factory=set)  # jobs that had ended before
    _terms: dict[str, int] = field(default_factory=dict)  # the newest of each job that was an event
    _links: Any = ()  # of the last answer

    def events(self, t: float, answer: Mapping[str, Any]) -> Iterator[RunEvent]:
        """Return what is new in an answer to ``status``."""
        yield from self._of_members(t, answer)
        links = answer.get("links", self._links)  # older peers do not say
        if links != self._links:
            self._links = links
            yield RunEvent(t, "", "overlay", LinksKnown(links))
        yield from self._of_jobs(t, answer)
        yield from self.aside(t, answer)

    def aside(self, t: float, answer: Mapping[str, Any]) -> Iterator[RunEvent]:
        """Return what only that peer knows: what it has sent, and as an aggregator the peers that it waits for."""
        own = answer["peer"]
        if "counters" in answer:
            yield RunEvent(t, own, "sent", Sent(answer["counters"]["bytes_sent"]))
        for job in answer["jobs"]:
            if job["job"] in self._jobs and job["aggregator"] == own and job["phase"] not in _OVER:
                yield RunEvent(t, own, "waits", Awaited(job["job"], job["waits_for"]))

    def elections(self, t: float, job: str, terms: Iterable[tuple[int, str]]) -> Iterator[RunEvent]:
        """Return the elections that are new: of each term, its number and its aggregator."""
        for term, name in terms:
            if term > self._terms.get(job, -1):
                self._terms[job] = term
                yield RunEvent(t, name, "elected", Elected(job, None, term, round=0, votes=0, of=0))

    def _of_members(self, t: float, answer: Mapping[str, Any]) -> Iterator[RunEvent]:
        own = answer["peer"]
        for name, status in ((own, "alive"), *((one["name"], one["status"]) for one in answer["members"])):
            before = self._statuses.get(name)
            self._statuses[name] = status
            if before is None:
                yield RunEvent(t, name, "enrolled", DeviceNews())
            if status == before:
                continue
            if name == own or (status == "alive" and before in ("dead", "left")):
                yield RunEvent(t, name, "started", DeviceNews())
            elif status == "left":
                yield RunEvent(t, name, "exited", DeviceNews(code=0))
            elif status in ("alive", "suspect", "dead"):
                yield RunEvent(t, own, "member", MemberChanged(name, status, before or "", incarnation=0))

    def _of_jobs(self, t: float, answer: Mapping[str, Any]) -> Iterator[RunEvent]:
        listed = [job for job in answer["jobs"] if not job["within"]]
        if self.job:
            listed = [job for job in listed if job["job"] == self.job or self.job in (job["series"], job.get("name"))]
        if not self._jobs and listed:  # of those that were there before, only the one that matters most
            chosen = next((job for job in reversed(listed) if job["phase"] not in _OVER), listed[-1])
            self._passed = {job["job"] for job in listed if job is not chosen}
        for job in listed:
            if job["job"] not in self._passed:
                yield from self._of_job(t, answer["peer"], job)

    def _of_job(self, t: float, asked: str, job: dict[str, Any]) -> Iterator[RunEvent]:
        named, roster, before = job["job"], job["roster"], self._jobs.get(job["job"])
        if before is not None and before["phase"] in _OVER:
            return
        self._jobs[named] = job
        if before is None:
            yield RunEvent(t, job["submitter"], "submitted", JobAppeared(named, roster, [job["protocol"]]))
        leader = job["aggregator"]
        if leader:
            yield from self.elections(t, named, [(job["term"], leader)])
        if job["round"] > (0 if before is None else before["round"]):
            yield RunEvent(t, leader, "combined", Combined(named, job["round"] - 1, roster))
        if job["phase"] in _OVER:
            yield RunEvent(t, asked, "ended", JobOver(named, job["phase"], job["reason"]))
            return
        if leader != asked:  # it does not know whose answer is missing, but who is away
            yield RunEvent(t, asked, "waits", Awaited(named, job["absent"]))
        present, of = len(roster) - len(job["absent"]), len(roster)
        if present < majority(of):
            yield RunEvent(t, asked, "waiting", WaitsForMajority(named, None, present, of))


@dataclass
class FleetFollower:
    """Asks peers, one at a time, and gives what they answer to a page.

    The preferred one of `clients` is the first; all are closed at the end. `now` returns the time in seconds. With
    `job`, the id of a job or of its series, only that one is shown, else the newest.
    """

    clients: Sequence[Connection]
    shown: FollowedRun
    now: Callable[[], float]
    job: str = ""
    _at: int = 0  # which client is asked
    _turn: int = 0  # of the others
    _silent: dict[Connection, float] = field(default_factory=dict)  # those that did not answer, and when

    def __post_init__(self) -> None:
        self._reader, self._began = AnswerReader(self.job), self.now()

    def follow(self, stop: threading.Event) -> None:
        """Ask until `stop` is set."""
        try:
            while not stop.wait(_APART_S):
                self.ask()
                self.ask_another()
        finally:
            for client in self.clients:
                client.close()

    def ask(self) -> None:
        """Ask the peer that answered last, and if it does not, each of the others once."""
        why = ""
        for _ in self.clients:
            client = self.clients[self._at]
            try:
                answer = client.ask("status", within_s=_ANSWER_S)
                found = self._reader.events(self.now() - self._began, answer)
                events = [event for one in found for event in self._known(client, one)]
            except P2PClustError as error:
                why = why or str(error)
                client.close()
                self._at = (self._at + 1) % len(self.clients)
                continue
            self._take(events)
            self.shown.say(asked=str(answer["peer"]), trouble="")
            return
        self.shown.say(asked="", trouble=f"no peer answers: {why}")

    def ask_another(self) -> None:
        """Ask one of the other peers what only it knows; each in turn, and one that was silent not again for a while."""
        self._turn = (self._turn + 1) % len(self.clients)
        client, now = self.clients[self._turn], self.now()
        if self._turn == self._at or now - self._silent.get(client, -_AGAIN_S) < _AGAIN_S:
            return
        try:
            answer = client.ask("status", within_s=_ANSWER_S)
        except P2PClustError:
            client.close()
            self._silent[client] = now
            return
        self._take(self._reader.aside(now - self._began, answer))

    def _take(self, events: Iterable[RunEvent]) -> None:
        for event in events:
            with self.shown.changing() as run:
                run.take(event)

    def _known(self, client: Connection, event: RunEvent) -> list[RunEvent]:
        """Add to a round that was closed what the peer says of it: who contributed, how far the centers moved, elections."""
        if not isinstance(event.what, Combined):
            return [event]
        try:
            found = client.ask("job", within_s=_ANSWER_S, job=event.job)
            elected = list(self._reader.elections(event.t, event.job, found["terms"]))
            if not 0 < found["size_bytes"] <= _MOST_STATE:
                return [*elected, event]
            state, main = JobState.decode(fetch(client, event.job, "state")), job_of(found["mathematics"]).main
        except P2PClustError:  # the peer moved on, or cannot read it now: the round is shown without
            return [event]
        closed = event.what
        if state.log:
            there = [closed.contributors[index] for index in state.log[-1].contributors]
            closed = replace(closed, contributors=there, round=state.round - 1)
        if "objectives" in state.arrays:
            closed = replace(closed, objective=float(state.arrays["objectives"].min()))
        shifts = summaries.shifts(state)
        # Of the clustering, which may be over: the rounds of the stage after it come last.
        last = state.round - (0 if state.stage == main else state.stage_round)
        if history := {last - len(shifts) + at: shift for at, shift in enumerate(shifts) if shift is not None}:
            closed = replace(closed, shifts=history)
        return [*elected, replace(event, what=closed)]
