"""The state of a run, from its events: every peer, job, term, round and fault, and the events that matter in a line each.

The terminal and the live page show it while events arrive; pictures and tables of a report are made of its last state.
"""

from __future__ import annotations

import itertools
import math
import signal
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from p2pclust.hosts.events import Combined
from p2pclust.lab.run import events
from p2pclust.lab.run.events import RunEvent
from p2pclust.lab.run.views import AWAY, GroupView, JobView, Mark, PeerView, RoundView, Span, Term, TermEnd
from p2pclust.peer.core import reports, round_reports

# Of a run that is watched the oldest are forgotten.
_MOST_LINES: Final = 40
_MOST_MARKS: Final = 400
_MOST_ROUNDS: Final = 2_000

#: By verb, what an event that has a line is on the time line.
_MARKS: Final[Mapping[str, str]] = {
    "elected": "election", "fault": "fault", "drained": "fault", "exited": "death", "failed": "death", "member": "death",
    "started": "return", "resumed": "return", "waiting": "wait", "finished": "end", "ended": "end",
}  # fmt: skip

#: Lines that need only the fields of their event; `at` is the peer at which it happened.
_LINES: Final[Mapping[str, str]] = {
    "drained": "the battery of {at} is empty",
    "failed": "{at} failed: {what.reason}",
    "data-refused": "{at} cannot use its data: {what.reason}",
    "refused": "{at} refuses the job: {what.reason}",
    "store-damaged": "{at} found its store damaged and begins with an empty one; the old one is kept",
    "left-out": "round {what.round} continues without {what.peer}, which stays silent",
    "out-of-reach": "{what.peer} does not answer the aggregator in round {what.round}: another peer may take over",
    "stands-still": "{at} aggregates, but has made no progress for {what.seconds:.0f} s: another peer may take over",
    "proposer": "{what.proposer} is asked in place of a peer that is gone",
}

ASLEEP: Final = "asleep"


class _Fault(NamedTuple):
    """What a fault does, in words, and why its victim aggregates no longer; empty if that may continue."""

    done: str
    why: str
    kind: str = ""  # goes: away, back, or in trouble until another moment or for good
    status: str = ""  # of the victim from then on, if that changes


_FAULTS: Final[Mapping[str, _Fault]] = {
    "kill": _Fault("killed", "was killed", "away", "lost"),
    "drain": _Fault("has an empty battery", "has an empty battery", "away", "lost"),
    "restart": _Fault("killed, to come back", "was killed", "away", "down"),
    "pause": _Fault("paused", "was paused", "away", "paused"),
    "resume": _Fault("resumed", "", "back", "alive"),
    "join": _Fault("joins", "", "back"),
    "leave": _Fault("leaves", "leaves", "away"),
    "revoke": _Fault("is revoked", "is revoked", "away", "lost"),
    "cut": _Fault("cut off", "was cut off", "trouble"),
    "heal": _Fault("no longer cut off", ""),
    "slow": _Fault("slowed down", "was slowed down", "trouble"),
    "drop": _Fault("loses messages", "loses messages", "trouble"),
    "corrupt-data": _Fault("works with damaged rows", "works with damaged rows", "trouble"),
    "lie": _Fault("lies about its rows", "lies about its rows", "trouble"),
}

Link = tuple[str, str]


class RunState:
    """The state of a run, updated by one event at a time.

    Events at other peers than `names` count, but these peers are not shown. `stages` has the protocols of each job that
    is expected, in the order of submission; `groups` each peer's device class, by default one for all; `links` those of
    the overlay at the start, None for a full mesh. `strangers` are not on the fleet roster. If it is `bounded`, only
    the newest rounds, marks and lines are kept, as of a fleet that is watched for days.

    >>> run = RunState(["a", "b", "c"], [["llf-cm"]])
    >>> run.take(RunEvent(0.1, "a", "submitted", events.JobAppeared("j", ["a", "b", "c"])))
    'job 1 of 1 handed in at a: llf-cm, 3 peers'
    >>> run.take(RunEvent(0.2, "b", "elected", round_reports.Elected("j", None, term=1, round=0, votes=2, of=3)))
    'b aggregates term 1 (2 of 3 votes)'
    >>> run.take(RunEvent(2.0, "b", "fault", events.FaultStruck("kill"))), run.terms[0].end
    ('b killed', 2.0)
    """

    def __init__(
        self, names: Sequence[str], stages: Sequence[Sequence[str]] = (), groups: Mapping[str, str] | None = None,
        links: Iterable[Link] | None = None, *, strangers: Collection[str] = (), bounded: bool = False,
    ) -> None:  # fmt: skip
        self.peers = {name: PeerView(name, (groups or {}).get(name, "")) for name in names}
        self.strangers = strangers
        self.jobs = [JobView(tuple(of_job)) for of_job in stages]
        self.by_id: dict[str, JobView] = {}
        self.t = 0.0
        #: The newest counts of what the peers have sent.
        self.load: events.Load | None = None
        self.lines: deque[Mark] = deque(maxlen=_MOST_LINES if bounded else None)
        self.marks: deque[Mark] = deque(maxlen=_MOST_MARKS if bounded else None)
        self.rounds: deque[RoundView] = deque(maxlen=_MOST_ROUNDS if bounded else None)
        #: When a majority was missing.
        self.waits: list[Span] = []
        #: The links that exist, None in a full mesh; and when each existed, as far as links changed.
        self.links: set[Link] | None = None
        self.linked: dict[Link, list[Span]] = {}
        self._set_links(links)
        #: By peer, when it first reported that it refused a stranger.
        self.refusals: dict[str, float] = {}
        self._terms: dict[str, list[Term]] = {}  # by job
        self._short: dict[str, str] = {}  # by job: how many peers were in reach since the last election
        self._sees: dict[str, set[str]] = {name: set() for name in names}
        self._all_linked = False
        self._waiting: set[str] = set()
        self._strangers: set[str] = set()
        self._roster_serial = 0

    @classmethod
    def of(cls, events: Iterable[RunEvent], names: Sequence[str], **how: Any) -> RunState:
        """Return the last state of a run that is over."""
        run = cls(names, **how)
        for event in events:
            run.take(event)
        return run.closed()

    def closed(self) -> RunState:
        """End all spans and terms that are open; nothing happens after it."""
        of_peers = [spans for peer in self.peers.values() for spans in (peer.away, peer.troubled)]
        for spans in (*of_peers, *self.linked.values(), self.waits):
            _end(spans, self.t)
        for job in self._terms:
            self._end_term(job, self.t)
        return self

    @property
    def terms(self) -> list[Term]:
        found = [term for of_job in self._terms.values() for term in of_job]
        return sorted(found, key=lambda term: (term.start, term.job))

    @property
    def job(self) -> JobView | None:
        """The current job, or the last one."""
        return next(reversed(self.by_id.values())) if self.by_id else None

    @property
    def job_number(self) -> int:
        """Its number, from 1; 0 before the first."""
        return len(self.by_id)

    @property
    def groups(self) -> list[GroupView]:
        found = []
        for name in dict.fromkeys(peer.group for peer in self.peers.values()):
            own = [peer.status for peer in self.peers.values() if peer.group == name]
            finished, away = own.count("finished"), sum(status in AWAY for status in own)
            found.append(GroupView(name, len(own), own.count("alive"), away, finished))
        return found

    def here(self, name: str) -> Span:
        """Return the time from a peer's start until it left, or until the end."""
        peer = self.peers[name]
        return Span(peer.began or 0.0, self.t if peer.gone is None else peer.gone)

    def steady(self, spans: Sequence[Span]) -> bool:
        """Whether these spans are one that covers the whole run."""
        return len(spans) == 1 and spans[0].start <= 0.0 and spans[0].end >= self.t

    def later_terms(self, job: str = "") -> list[tuple[int, str]]:
        """Return the round in which each term after the first began, and its name; by default of all jobs."""
        own = self._terms.get(job, []) if job else [term for term in self.terms if not term.within]
        return [(term.round, f"term {term.number}") for term in own[1:]]

    @property
    def strikes(self) -> list[Mark]:
        """The faults that struck, batteries that were empty among them."""
        return [mark for mark in self.marks if mark.verb in ("fault", "drained")]

    @property
    def finished(self) -> dict[Link, float]:
        """When each peer finished each job, by job and peer."""
        return {(job.id, peer): t for job in self.by_id.values() for peer, t in job.finished.items()}

    def waited_for(self) -> tuple[str, ...]:
        """Return the peers that the current round waits for.

        They are those that the aggregator names, if it has; else those of the roster that were silent when it asked, or
        are away and were not reported dead.
        """
        job = self.job
        if job is None or job.finished or job.over or job.failed:
            return ()
        if job.waits_for is not None:
            return job.waits_for
        own = (self.peers[name] for name in job.roster if name in self.peers)
        away = ("paused", "down", "lost", "suspect")
        return tuple(peer.name for peer in own if peer.silent or (peer.status in away and not peer.noticed))

    def take(self, event: RunEvent) -> str:
        """Follow one event; return a line about it, or an empty string if it needs none."""
        self.t = max(self.t, event.t)
        follow = None if event.what is None else getattr(self, f"_on_{event.verb.replace('-', '_')}", None)
        line = _LINES.get(event.verb) if follow is None else follow(event, event.what)
        if not line:
            return ""
        if follow is None:
            line = line.format(at=event.peer, what=event.what)
        if event.verb != "waiting":
            self._waiting.clear()
        alive = getattr(event.what, "status", "") == "alive"
        kind = "" if event.within or alive else _MARKS.get(event.verb, "")
        mark = Mark(event.t, kind, event.subject, line, event.verb, getattr(event.what, "do", ""))
        self.lines.append(mark)
        if kind:
            self.marks.append(mark)
        return line

    # -- peers ------------------------------------------------------------------------------------------------------

    def _peer(self, name: str) -> PeerView:
        """Return the view of a peer; that of a peer outside of the fleet is not shown."""
        return self.peers.get(name) or PeerView(name)

    def _on_started(self, event: RunEvent, _: events.DeviceNews) -> str:
        peer = self._peer(event.peer)
        peer.lives += 1
        peer.status, peer.noticed, peer.silent = "alive", False, False
        peer.began, peer.gone = event.t if peer.began is None else peer.began, None
        _end(peer.away[-1:], event.t)
        return "" if peer.lives == 1 else f"{peer.name} is back, from its disk"

    def _on_left(self, event: RunEvent, _: events.DeviceNews) -> None:
        peer = self._peer(event.peer)
        peer.gone = event.t if peer.gone is None else peer.gone

    def _on_exited(self, event: RunEvent, told: events.DeviceNews) -> str:
        peer = self._peer(event.peer)
        if told.code == 0:
            peer.status = "left" if peer.status != "finished" else "finished"
            peer.gone = event.t if peer.gone is None else peer.gone
            return ""
        self._goes(peer, event.t, "ended")
        self._stopped(event, f"the process of {peer.name} ended (exit code {told.code})")
        if peer.status in ("lost", "down"):
            return ""
        peer.status = "lost"
        how = f"by {signal.Signals(-told.code).name}" if told.code < 0 else f"with exit code {told.code}"
        return f"{peer.name} ended {how}"

    def _on_member(self, event: RunEvent, told: reports.MemberChanged) -> str:
        reporter, member, status = event.peer, told.member, told.status
        if reporter in self._sees:
            if status == "alive":
                self._sees[reporter].add(member)
            elif status in ("dead", "left"):
                self._sees[reporter].discard(member)
        peer = self.peers.get(member)
        if status == "dead" and peer is not None and not peer.noticed:
            peer.noticed, peer.silent = True, False
            if peer.status in ("alive", "starting", "suspect"):
                peer.status = "lost"
            return f"{reporter} reports that {member} is dead"
        if status == "suspect" and peer is not None and peer.status == "alive":
            peer.status = "suspect"
        if status == "alive" and peer is not None:
            if peer.status in ("starting", "lost", "suspect"):
                peer.status = "alive"
            peer.noticed = False
        others = len(self.peers) - 1
        if self._all_linked or not others or any(len(seen) < others for seen in self._sees.values()):
            return ""
        self._all_linked = True
        return f"{len(self.peers)} peers linked to each other"

    def _on_fault(self, event: RunEvent, told: events.FaultStruck) -> str:
        fault = _FAULTS.get(told.do, _Fault(told.do, told.do))
        peer, who = self._peer(event.peer), list(told.who) or [event.peer]
        peer.status = fault.status or peer.status
        if fault.kind == "away":
            self._goes(peer, event.t, fault.done)
        elif fault.kind == "back":
            _end(peer.away[-1:], event.t)
        again = ", and started again later" if told.do == "restart" else ""
        for name in who:
            troubled = self._peer(name).troubled
            if told.do == "heal":
                _relieve(troubled, "cut", event.t)
            elif fault.kind == "trouble" and not any(one.what == fault.done and one.end > event.t for one in troubled):
                troubled.append(Span(event.t, what=fault.done))
            if fault.why:
                self._stopped(event, f"{name} {fault.why}{told.moment}{again}", name)
        return f"{', '.join(who)} {fault.done}{told.moment}"

    def _on_recovered(self, event: RunEvent, told: events.DeviceNews) -> None:
        # Only one of the peers that were cut off together is named.
        for peer in self.peers.values() if told.reason == "cut" else [self._peer(event.peer)]:
            _relieve(peer.troubled, told.reason, event.t)

    def _on_asleep(self, event: RunEvent, told: events.DeviceNews) -> None:
        peer = self._peer(event.peer)  # sleep is part of a device's day and needs no line
        if peer.status in ("alive", "asleep"):
            peer.status = "asleep"
        self._goes(peer, event.t, f"{ASLEEP}: {told.reason}")
        self._stopped(event, f"{peer.name} went to sleep: {told.reason}")

    def _on_awake(self, event: RunEvent, _: events.DeviceNews) -> None:
        peer = self._peer(event.peer)
        if peer.status in ("alive", "asleep"):
            peer.status = "alive"
        # A device's plan continues after its peer has died.
        if peer.away and peer.away[-1].what.startswith(ASLEEP):
            _end(peer.away[-1:], event.t)

    def _on_resumed(self, event: RunEvent, _: events.DeviceNews) -> str:
        peer = self._peer(event.peer)
        peer.status = "alive"
        _end(peer.away[-1:], event.t)
        return f"{event.peer} resumed"

    def _goes(self, peer: PeerView, t: float, what: str) -> None:
        """Begin a span without a peer; a dead aggregator's term ends, that of a paused or sleeping one may continue."""
        asleep = what.startswith(ASLEEP)
        if not asleep and peer.away and peer.away[-1].what.startswith(ASLEEP):
            _end(peer.away[-1:], t)  # it failed while asleep: the sleep ends here
        if not peer.away or peer.away[-1].end <= t:
            peer.away.append(Span(t, what=what))
        if not asleep and what != _FAULTS["pause"].done:
            for job in self._terms:
                self._end_term(job, t, peer.name)

    def _on_enrolled(self, event: RunEvent, _: events.DeviceNews) -> None:
        self.peers.setdefault(event.peer, PeerView(event.peer))
        self._sees.setdefault(event.peer, set())

    def _on_load(self, _: RunEvent, told: events.Load) -> None:
        self.load = told
        for name, sent in (told.sent or {}).items():
            self._peer(name).bytes_sent = int(sent)

    def _on_sent(self, event: RunEvent, told: events.Sent) -> None:
        self._peer(event.peer).bytes_sent = told.n_bytes

    def _on_energy(self, _: RunEvent, told: events.Energy) -> None:
        for name, used in told.used_j.items():
            peer = self._peer(name)
            peer.energy_j, peer.battery = float(used), told.left.get(name)

    def _on_refused_stranger(self, event: RunEvent, told: events.Stranger) -> str:
        self.refusals.setdefault(event.peer, event.t)
        first = told.print not in self._strangers
        self._strangers.add(told.print)
        return f"{event.peer} refuses a stranger with the key {told.print}: {told.hint}" if first else ""

    def _on_roster(self, event: RunEvent, told: reports.RosterTaken) -> str:
        first = told.serial > self._roster_serial  # each fleet roster is shown once
        self._roster_serial = max(told.serial, self._roster_serial)
        gone = f", {', '.join(told.revoked)} is not on it" if told.revoked else ""
        return f"{event.peer} has fleet roster {told.serial}{gone}" if first else ""

    # -- links ------------------------------------------------------------------------------------------------------

    def _set_links(self, links: Iterable[Link] | None) -> None:
        self.links = None if links is None else {_pair(a, b) for a, b in links}
        self.linked = {link: [Span(0.0)] for link in sorted(self.links or ())}

    def _on_overlay(self, _: RunEvent, told: events.LinksKnown) -> None:
        self._set_links(told.links)

    def _on_link(self, event: RunEvent, told: events.LinkChanged) -> str:
        link = _pair(event.peer, told.to)
        spans = self.linked.get(link, [])
        if not told.up:
            _end(spans[-1:], event.t)
        elif not spans or spans[-1].end <= event.t:
            self.linked[link] = [*spans, Span(event.t)]
        if self.links is not None:
            self.links = self.links | {link} if told.up else self.links - {link}
        return f"{event.peer} and {told.to} {'are linked now' if told.up else 'have lost their link'}"

    # -- jobs -------------------------------------------------------------------------------------------------------

    def _job(self, named: str) -> JobView:
        """Return the view of a job; that of a job that was not submitted is not shown."""
        return self.by_id.get(named) or JobView(())

    def _on_submitted(self, event: RunEvent, told: events.JobAppeared) -> str:
        if told.job in self.by_id:
            return ""
        if len(self.by_id) == len(self.jobs):
            self.jobs.append(JobView(tuple(told.stages)))
        job = self.jobs[len(self.by_id)]
        self.by_id[told.job] = job
        job.id, job.submitted, job.roster = told.job, event.t, tuple(told.roster)
        job.stage = job.stages[0] if job.stages else ""
        for peer in self.peers.values():
            peer.term = peer.round = None
            peer.silent = False
            if peer.status in ("starting", "finished"):
                peer.status = "alive"
        at = f" at {event.peer}" if event.peer else ""
        return f"job {self.job_number} of {len(self.jobs)} handed in{at}: {job.protocol}, {job.n_peers} peers"

    def _on_elected(self, event: RunEvent, told: round_reports.Elected) -> str:
        terms = self._terms.setdefault(told.job, [])
        for before in terms[-1:]:
            before.until = event.t
        self._end_term(told.job, event.t)
        short = self._short.pop(told.job, "")
        terms.append(Term(told.job, told.term, event.peer, event.t, within=event.within, round=told.round, short=short))
        job = self.by_id.get(told.job)
        if job is None:
            return ""
        for peer in self.peers.values():
            peer.term = told.term if peer.name == event.peer else None
        job.term, job.aggregator, job.terms[told.term] = told.term, event.peer, event.peer
        job.waits_for, job.waiting = None, ""
        job.tried.setdefault(event.peer, "")
        votes = f" ({told.votes} of {told.of} votes)" if told.of else ""
        return f"{event.peer} aggregates term {told.term}{votes}"

    def _end_term(self, job: str, t: float, peer: str = "") -> None:
        """End the open term of a job, if there is one; with `peer`, only if that one aggregates."""
        for term in self._terms.get(job, ())[-1:]:
            if term.end == math.inf and peer in ("", term.peer):
                term.end = max(t, term.start)

    def _stopped(self, event: RunEvent, why: str, name: str = "", job: str = "") -> None:
        """Note why a peer aggregates no longer, in the terms that it could have gone on with."""
        for term in [one for of_job, terms in self._terms.items() if job in ("", of_job) for one in terms[-2:]]:
            if term.peer == (name or event.peer) and not term.why and term.start <= event.t <= term.until:
                term.why, term.stopped = why, event.t

    def _on_deposed(self, event: RunEvent, told: round_reports.Deposed) -> None:
        why = f"{event.peer} was deposed: term {told.term} had begun while it aggregated"
        self._stopped(event, why, job=told.job)

    def _on_unable(self, event: RunEvent, told: round_reports.Unable) -> str:
        self._stopped(event, f"{event.peer} could not continue: {told.reason}", job=told.job)
        self._job(told.job).tried[event.peer] = told.reason
        return f"{event.peer} cannot continue with the job: {told.reason}"

    def _on_phase(self, event: RunEvent, told: round_reports.PhaseBegun) -> None:
        self._peer(event.peer).round = told.round
        job = self._job(told.job)
        job.opened = max(job.opened, told.round)

    def _on_averaged(self, _: RunEvent, told: round_reports.Averaged) -> None:
        job = self._job(told.job)
        job.reached = max(job.reached or 0.0, told.reached)
        job.ticks[told.round] = told.ticks

    def _on_combined(self, event: RunEvent, told: Combined) -> str:
        _end(self.waits[-1:], event.t)
        for term in self._terms.get(told.job, ())[-2:]:  # a deposed aggregator may close a round late
            if term.number == told.term and told.round > term.last:
                term.rounds, term.last = term.rounds + 1, told.round
        job = self.by_id.get(told.job)
        present = len(told.contributors)
        if not event.within:
            self.rounds.append(RoundView(event.t, told.round, present, present if job is None else job.n_peers))
        if job is None:
            return ""
        before = job.stage
        job.stage = job.stages[min(told.stage, len(job.stages) - 1)] if job.stages else ""
        # A new aggregator repeats this round, and later ones, of an earlier one.
        job.shift_of = {number: shift for number, shift in job.shift_of.items() if number < told.round}
        job.objective_of = {number: value for number, value in job.objective_of.items() if number < told.round}
        job.waits_for, job.waiting = None, ""
        job.tried.clear()
        job.round, job.contributors, job.phase = told.round, tuple(told.contributors), told.phase or ""
        for peer in self.peers.values():
            peer.silent = False
        for name in job.contributors:
            self._peer(name).round = told.round
        line = f"round {told.round}: {present} of {job.n_peers} contributed" + job.associate(told)
        if told.shift is not None:
            job.shift_of[told.round] = float(told.shift)
            line += f", the {told.moved} moved by {told.shift:.3g}"
        if told.shifts is not None:
            job.shift_of = dict(told.shifts)
        if told.cells is not None:
            line += f"; there are {told.cells} cells now"
        if told.objective is not None:
            job.objective_of[told.round] = float(told.objective)
            line += f", the objective is {told.objective:.6g}"
        if told.status == "failed":
            job.failed = True
            return line + "; the job failed"
        if told.status == "running" and before != job.stage:
            line += f"; next is {job.stage}"
        return line

    def _on_finished(self, event: RunEvent, told: reports.JobFinished) -> str:
        _end(self.waits[-1:], event.t)
        self._end_term(told.job, event.t, event.peer)
        job = self.by_id.get(told.job)
        if job is None:
            return ""
        first = not job.finished
        job.finished.setdefault(event.peer, event.t)
        job.ended = event.t
        job.digests[event.peer] = told.digest
        self._peer(event.peer).status = "finished"
        return f"job {self.job_number} is finished: a majority holds the final state" if first else ""

    def _on_ended(self, event: RunEvent, told: events.JobOver) -> str:
        job = self.by_id.get(told.job)
        if job is None:
            return ""
        job.over, job.failed, job.waits_for, job.waiting = True, told.outcome != "done", None, ""
        for name in () if job.failed else job.roster:
            if name in self.peers and self.peers[name].status not in AWAY:
                job.finished.setdefault(name, event.t)
        return f"job {self.job_number} is {told.outcome}" + (f": {told.reason}" if told.reason else "")

    def _on_waiting(self, event: RunEvent, told: round_reports.WaitsForMajority) -> str:
        """Show each count once until another event comes: the parts of a fleet that was cut wait with different counts."""
        why = f"only {told.present} of {told.of} peers were in reach, fewer than a majority: {event.peer} stepped down"
        self._stopped(event, why, job=told.job)
        most = told.of // 2 + 1
        self._short[told.job] = f"{told.present} of {told.of} peers were in reach, and {most} are a majority"
        peers = "peers of a job within the job" if event.within else "peers"
        line = f"waiting: {told.present} of {told.of} {peers} are here"
        if not event.within:  # a job within the job waits for its own peers only; the fleet continues
            if not self.waits or self.waits[-1].end <= event.t:
                self.waits.append(Span(event.t, what=f"waiting: {told.present} of {told.of} are here"))
            if self.job is not None:
                self.job.waiting = line
        said = line in self._waiting
        self._waiting.add(line)
        return "" if said else f"{line}, as {event.peer} sees it"

    def _on_circle(self, event: RunEvent, told: round_reports.EpochBegun) -> str:
        job = self.by_id.get(told.job)
        return "" if job is None else f"{event.peer} begins the round anew, with {len(told.members)} of {job.n_peers}"

    def _on_relayed(self, _: RunEvent, told: round_reports.Relayed) -> str:
        self._peer(told.peer).silent = True
        through = f": asked through {', '.join(told.via)}" if told.via else ""
        return f"{told.peer} stays silent in round {told.round}{through}"

    def _on_waits(self, _: RunEvent, told: events.Awaited) -> None:
        self._job(told.job).waits_for = tuple(told.peers)

    def _on_centers(self, _: RunEvent, told: events.CentersShown) -> None:
        self._job(told.job).show_centers(told.round, told.centers)

    def ends_of(self, job: str, *, done: bool) -> list[TermEnd]:
        """Return every term of a job with the reason why it ended, also terms that no peer won; `done`: it has a result."""
        found: list[TermEnd] = []
        before = 0
        own = self._terms.get(job, [])
        for term, later in itertools.zip_longest(own, own[1:]):
            if before + 1 < term.number:
                first, last = before + 1, term.number - 1
                split = "no candidate had the votes of a majority: the votes were split, or too few peers answered"
                why = f"no peer was elected: {term.short}" if term.short else split
                found.append(TermEnd(str(first) if first == last else f"{first} to {last}", why=why))
            won, end, why = later is None and done, min(term.until, self.t), "the run was over"
            if won:
                end = min(self.by_id[job].finished.values(), default=end) if job in self.by_id else end
                why = "the job was finished: a majority held the final state"
            elif term.why:
                end, why = term.stopped, term.why
            elif later is not None:
                why = f"{later.peer} did not hear from it in time and was elected"
            found.append(TermEnd(str(term.number), term.peer, term.start, end, term.rounds, won, why))
            before = term.number
        if own and not done and (short := self._short.get(job)):
            found.append(TermEnd(f"after {before}", why=f"no peer could be elected: {short}"))
        return found


def _end(spans: Iterable[Span], t: float) -> None:
    for span in spans:
        span.end = min(span.end, t)


def _relieve(troubled: Sequence[Span], do: str, t: float) -> None:
    _end([span for span in troubled if do in _FAULTS and span.what == _FAULTS[do].done], t)


def _pair(a: str, b: str) -> Link:
    return (a, b) if a < b else (b, a)
