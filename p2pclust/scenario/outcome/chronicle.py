"""The events of a run as spans of time: when each peer was away or aggregated, when rounds closed, when links existed.

Pictures are drawn from this. Events with an unknown verb are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["ASLEEP", "BACK", "DONE", "Chronicle", "Round", "Span", "Strike", "Term"]

Event = Mapping[str, Any]
Link = tuple[str, str]

#: By a fault's name, its effect in words.
DONE: Final[Mapping[str, str]] = {
    "kill": "killed", "restart": "killed, to come back", "pause": "paused", "resume": "resumed", "cut": "cut off",
    "heal": "linked again", "join": "joined", "leave": "left", "slow": "slowed down", "drop": "loses messages",
    "corrupt-data": "has corrupt data", "drain": "has an empty battery",
    "revoke": "is revoked",
}  # fmt: skip
_AWAY: Final = ("kill", "restart", "pause", "leave", "drain", "revoke")
_TROUBLE: Final = ("cut", "slow", "drop", "corrupt-data")
ASLEEP: Final = "asleep"
BACK: Final = ("resume", "join")


@dataclass(frozen=True)
class Span:
    """A span of time and what it is."""

    start: float
    end: float
    what: str = ""


@dataclass(frozen=True)
class Term:
    """One peer's time as the aggregator of a job, or of a job within it."""

    job: str
    number: int
    peer: str
    start: float
    end: float
    within: bool = False


@dataclass(frozen=True)
class Strike:
    """A fault that struck; `words` describe it with its round."""

    t: float
    peer: str
    do: str
    words: str


@dataclass(frozen=True)
class Round:
    """A round of a job that was closed: `present` of the `roster` peers contributed."""

    t: float
    job: str
    number: int
    present: int
    roster: int


@dataclass
class Chronicle:
    """When things happened, in the run's own seconds.

    Parameters
    ----------
    events : sequence of mapping
        In order of time.
    names : sequence of str
        Of all peers.
    links : iterable of (str, str)
        The links at the start.
    strangers : collection of str
        The peers that are not on the fleet roster.

    Attributes
    ----------
    end : float
        The time of the last event.
    here : dict of str to Span
        From a peer's start until it left, or until the end.
    away : dict of str to list of Span
        When it was killed, paused or asleep; an :data:`ASLEEP` span gives the reason after the word.
    troubled : dict of str to list of Span
        When it was running but cut off, slow, losing messages, or had damaged rows.
    terms, rounds, strikes, waits : list
        In order; `waits` are the times without a majority.
    finished : dict of (str, str) to float
        By job and peer.
    linked : dict of (str, str) to list of Span
        When two peers were linked.
    submitted : dict of str to float
        When each job was submitted, in order.
    refusals : dict of str to float
        When each peer first reported that it refused a stranger.

    Examples
    --------
    >>> run = Chronicle([{"t": 0.0, "peer": "a", "verb": "started"}, {"t": 1.0, "peer": "a", "verb": "fault", "do": "kill"},
    ...                   {"t": 3.0, "peer": "a", "verb": "started"}, {"t": 4.0, "peer": "a", "verb": "left"}], ["a"])
    >>> run.away["a"], run.here["a"]
    ([Span(start=1.0, end=3.0, what='killed')], Span(start=0.0, end=4.0, what=''))
    """

    events: Sequence[Event]
    names: Sequence[str]
    links: Sequence[Link] = ()
    strangers: Collection[str] = ()
    end: float = field(init=False, default=0.0)
    here: dict[str, Span] = field(init=False, default_factory=dict)
    away: dict[str, list[Span]] = field(init=False, default_factory=dict)
    troubled: dict[str, list[Span]] = field(init=False, default_factory=dict)
    terms: list[Term] = field(init=False, default_factory=list)
    rounds: list[Round] = field(init=False, default_factory=list)
    strikes: list[Strike] = field(init=False, default_factory=list)
    waits: list[Span] = field(init=False, default_factory=list)
    finished: dict[tuple[str, str], float] = field(init=False, default_factory=dict)
    linked: dict[Link, list[Span]] = field(init=False, default_factory=dict)
    submitted: dict[str, float] = field(init=False, default_factory=dict)
    refusals: dict[str, float] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.end = max((float(event["t"]) for event in self.events), default=0.0)
        self._gone: dict[str, tuple[float, str]] = {}
        self._in_trouble: dict[tuple[str, str], float] = {}
        self._began: dict[str, float] = {}
        self._left: dict[str, float] = {}
        self._open: dict[str, Term] = {}
        self._wait: tuple[float, str] | None = None
        self._roster: dict[str, int] = {}
        self._up = {_pair(a, b): 0.0 for a, b in self.links}
        verbs: dict[str, Callable[[Event, float], None]] = {
            "started": self._started, "exited": self._exited, "left": self._leaves, "fault": self._fault,
            "resumed": self._resumed, "submitted": self._submitted, "job": self._job, "elected": self._elected,
            "combined": self._combined, "finished": self._finishes, "waiting": self._waiting, "link": self._link,
            "asleep": self._asleep, "awake": self._wakes, "drained": self._drained, "recovered": self._recovered,
            "refused-stranger": self._refused,
        }  # fmt: skip
        for event in self.events:
            known = verbs.get(event["verb"])
            if known is not None:
                known(event, float(event["t"]))
        self._close()

    def _close(self) -> None:
        for peer, (since, what) in self._gone.items():
            self._add_away(peer, since, self.end, what)
        for peer, do in list(self._in_trouble):
            self._relieve(peer, do, self.end)
        for term in self._open.values():
            self._end_term(term, self.end)
        self.terms.sort(key=lambda term: (term.start, term.job))
        if self._wait is not None:
            self.waits.append(Span(self._wait[0], self.end, self._wait[1]))
        for link, since in self._up.items():
            self.linked.setdefault(link, []).append(Span(since, self.end))
        for name in self.names:
            self.here[name] = Span(self._began.get(name, 0.0), self._left.get(name, self.end))

    def steady(self, spans: Sequence[Span]) -> bool:
        """Whether these spans are one that covers the whole run."""
        return len(spans) == 1 and spans[0].start <= 0.0 and spans[0].end >= self.end

    # -- peers ------------------------------------------------------------------------------------------------------

    def _started(self, event: Event, t: float) -> None:
        self._began.setdefault(event["peer"], t)
        self._left.pop(event["peer"], None)
        self._returns(event["peer"], t)

    def _returns(self, peer: str, t: float) -> None:
        if peer in self._gone:
            since, what = self._gone.pop(peer)
            self._add_away(peer, since, t, what)

    def _add_away(self, peer: str, start: float, end: float, what: str) -> None:
        self.away.setdefault(peer, []).append(Span(start, end, what))

    def _goes(self, peer: str, t: float, what: str) -> None:
        since, before = self._gone.get(peer, (t, what))
        if before.startswith(ASLEEP) and not what.startswith(ASLEEP):
            # It failed while asleep: the sleep ends here.
            self._add_away(peer, since, t, before)
            since, before = t, what
        self._gone[peer] = (since, before)
        # A paused or sleeping aggregator may continue its term; a dead one does not.
        dead = what != DONE["pause"] and not what.startswith(ASLEEP)
        for job in [job for job, term in self._open.items() if term.peer == peer and dead]:
            self._end_term(self._open.pop(job), t)

    def _exited(self, event: Event, t: float) -> None:
        if event.get("code"):
            self._goes(event["peer"], t, "ended")
        else:
            self._left.setdefault(event["peer"], t)

    def _leaves(self, event: Event, t: float) -> None:
        self._left.setdefault(event["peer"], t)

    def _fault(self, event: Event, t: float) -> None:
        peer, do = str(event.get("peer") or ""), str(event["do"])
        done = DONE.get(do, do)
        number = event.get("round", event.get("planned"))
        when = f" while {event['phase']} round {number}" if event.get("phase") else ""
        who = [str(name) for name in event.get("who") or (peer,)]
        self.strikes.append(Strike(t, peer, do, f"{', '.join(who)} {done}{when}".strip()))
        if do in _AWAY:
            self._goes(peer, t, done)
        elif do in BACK:
            self._returns(peer, t)
        for name in who if do in _TROUBLE else ():
            self._in_trouble.setdefault((name, do), t)
        for name in who if do == "heal" else ():
            self._relieve(name, "cut", t)

    def _recovered(self, event: Event, t: float) -> None:
        # Only one of the peers that were cut off together is named.
        do = str(event["from"])
        for name in [name for name, what in self._in_trouble if what == do and (do == "cut" or name == event["peer"])]:
            self._relieve(name, do, t)

    def _relieve(self, peer: str, do: str, t: float) -> None:
        since = self._in_trouble.pop((peer, do), None)
        if since is not None:
            self.troubled.setdefault(peer, []).append(Span(since, t, DONE[do]))

    def _asleep(self, event: Event, t: float) -> None:
        self._goes(event["peer"], t, f"{ASLEEP}: {event['why']}")

    def _wakes(self, event: Event, t: float) -> None:
        # A device's plan continues after its peer has died.
        if self._gone.get(event["peer"], (t, ""))[1].startswith(ASLEEP):
            self._returns(event["peer"], t)

    def _drained(self, event: Event, t: float) -> None:
        self.strikes.append(Strike(t, event["peer"], "drain", f"{event['peer']} {DONE['drain']}"))

    def _refused(self, event: Event, t: float) -> None:
        self.refusals.setdefault(event["peer"], t)

    def _resumed(self, event: Event, t: float) -> None:
        self._returns(event["peer"], t)

    # -- jobs -------------------------------------------------------------------------------------------------------

    def _submitted(self, event: Event, t: float) -> None:
        self.submitted.setdefault(event["job"], t)
        self._roster[event["job"]] = len(event["roster"])

    def _job(self, event: Event, t: float) -> None:
        self._roster.setdefault(event["job"], len(event["roster"]))

    def _elected(self, event: Event, t: float) -> None:
        before = self._open.pop(event["job"], None)
        if before is not None:
            self._end_term(before, t)
        self._open[event["job"]] = Term(event["job"], event["term"], event["peer"], t, t, "within" in event)

    def _end_term(self, term: Term, t: float) -> None:
        self.terms.append(Term(term.job, term.number, term.peer, term.start, max(t, term.start), term.within))

    def _combined(self, event: Event, t: float) -> None:
        self._wait_ends(t)
        if "within" not in event:
            job, present = event["job"], len(event.get("contributors", ()))
            self.rounds.append(Round(t, job, event["round"], present, self._roster.get(job, present)))

    def _finishes(self, event: Event, t: float) -> None:
        self._wait_ends(t)
        term = self._open.get(event["job"])
        if term is not None and term.peer == event["peer"]:
            self._end_term(self._open.pop(event["job"]), t)
        if "within" not in event:
            self.finished.setdefault((event["job"], event["peer"]), t)

    def _waiting(self, event: Event, t: float) -> None:
        words = f"waiting: {event['present']} of {event['of']} are here"
        # A job within the job waits for its own peers only; the fleet continues.
        if self._wait is None and "within" not in event:
            self._wait = (t, words)

    def _wait_ends(self, t: float) -> None:
        if self._wait is not None:
            self.waits.append(Span(self._wait[0], t, self._wait[1]))
            self._wait = None

    # -- links ------------------------------------------------------------------------------------------------------

    def _link(self, event: Event, t: float) -> None:
        link = _pair(event["peer"], event["to"])
        if event["up"]:
            self._up.setdefault(link, t)
        elif link in self._up:
            self.linked.setdefault(link, []).append(Span(self._up.pop(link), t))


def _pair(a: str, b: str) -> Link:
    return (a, b) if a < b else (b, a)
