"""The events of a run as spans of time: when each peer was away or aggregated, when rounds closed, when links existed.

Pictures are drawn from this. Events with an unknown verb are ignored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

Event = Mapping[str, Any]
Link = tuple[str, str]

#: By a fault's name, its effect in words.
DONE: Final[Mapping[str, str]] = {
    "kill": "killed", "restart": "killed, to come back", "pause": "paused", "resume": "resumed", "cut": "cut off",
    "heal": "linked again", "join": "joined", "leave": "left", "slow": "slowed down", "drop": "loses messages",
    "corrupt-data": "has corrupt data", "lie": "lies", "drain": "has an empty battery",
    "revoke": "is revoked",
}  # fmt: skip
#: The verbs of the events that a chronicle is made of.
VERBS: Final = frozenset((
    "started", "exited", "left", "fault", "recovered", "asleep", "awake", "resumed", "drained", "refused-stranger", "link",
    "submitted", "job", "elected", "combined", "finished", "waiting",
))  # fmt: skip
_AWAY: Final = ("kill", "restart", "pause", "leave", "drain", "revoke")
_TROUBLE: Final = ("cut", "slow", "drop", "corrupt-data", "lie")
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


def during(event: Event) -> str:
    """Return in which phase of which round a fault struck, in words; empty if it struck at another moment."""
    number = event.get("round", event.get("planned"))
    return f" while {event['phase']} round {number}" if event.get("phase") else ""


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
    #: The time of the last event.
    end: float = field(init=False, default=0.0)
    #: By peer: from its start until it left, or until the end.
    here: dict[str, Span] = field(init=False, default_factory=dict)
    #: By peer: when it was killed, paused or asleep; an :data:`ASLEEP` span gives the reason after the word.
    away: dict[str, list[Span]] = field(init=False, default_factory=dict)
    #: By peer: when it was running but cut off, slow, losing messages, lying, or had damaged rows.
    troubled: dict[str, list[Span]] = field(init=False, default_factory=dict)
    terms: list[Term] = field(init=False, default_factory=list)
    rounds: list[Round] = field(init=False, default_factory=list)
    strikes: list[Strike] = field(init=False, default_factory=list)
    #: The times without a majority.
    waits: list[Span] = field(init=False, default_factory=list)
    #: By job and peer.
    finished: dict[tuple[str, str], float] = field(init=False, default_factory=dict)
    #: When two peers were linked.
    linked: dict[Link, list[Span]] = field(init=False, default_factory=dict)
    #: By job, in order.
    submitted: dict[str, float] = field(init=False, default_factory=dict)
    #: When each peer first reported that it refused a stranger.
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
        for event in self.events:
            peer, job, t = str(event.get("peer") or ""), str(event.get("job") or ""), float(event["t"])
            self._take_of_peer(event, peer, t)
            self._take_of_job(event, peer, job, t)
        self._close()

    def _close(self) -> None:
        for peer in list(self._gone):
            self._returns(peer, self.end)
        for peer, do in list(self._in_trouble):
            self._relieve(peer, do, self.end)
        for job in list(self._open):
            self._end_term(job, self.end)
        self.terms.sort(key=lambda term: (term.start, term.job))
        self._wait_ends(self.end)
        for link in list(self._up):
            self._links(link, self.end, up=False)
        for name in self.names:
            self.here[name] = Span(self._began.get(name, 0.0), self._left.get(name, self.end))

    def steady(self, spans: Sequence[Span]) -> bool:
        """Whether these spans are one that covers the whole run."""
        return len(spans) == 1 and spans[0].start <= 0.0 and spans[0].end >= self.end

    # -- peers and links --------------------------------------------------------------------------------------------

    def _take_of_peer(self, event: Event, peer: str, t: float) -> None:
        match event["verb"]:
            case "started":
                self._began.setdefault(peer, t)
                self._left.pop(peer, None)
                self._returns(peer, t)
            case "exited" if event.get("code"):
                self._goes(peer, t, "ended")
            case "exited" | "left":
                self._left.setdefault(peer, t)
            case "fault":
                self._fault(event, peer, t)
            case "recovered":
                self._recovers(peer, str(event["from"]), t)
            case "asleep":
                self._goes(peer, t, f"{ASLEEP}: {event['why']}")
            case "awake":
                # A device's plan continues after its peer has died.
                if self._gone.get(peer, (t, ""))[1].startswith(ASLEEP):
                    self._returns(peer, t)
            case "resumed":
                self._returns(peer, t)
            case "drained":
                self.strikes.append(Strike(t, peer, "drain", f"{peer} {DONE['drain']}"))
            case "refused-stranger":
                self.refusals.setdefault(peer, t)
            case "link":
                self._links(_pair(peer, event["to"]), t, up=event["up"])

    def _links(self, link: Link, t: float, *, up: bool) -> None:
        if up:
            self._up.setdefault(link, t)
        elif link in self._up:
            self.linked.setdefault(link, []).append(Span(self._up.pop(link), t))

    def _returns(self, peer: str, t: float) -> None:
        if peer in self._gone:
            since, what = self._gone.pop(peer)
            self.away.setdefault(peer, []).append(Span(since, t, what))

    def _goes(self, peer: str, t: float, what: str) -> None:
        asleep = what.startswith(ASLEEP)
        if not asleep and self._gone.get(peer, (t, ""))[1].startswith(ASLEEP):
            self._returns(peer, t)  # it failed while asleep: the sleep ends here
        self._gone.setdefault(peer, (t, what))
        # A paused or sleeping aggregator may continue its term; a dead one does not.
        dead = what != DONE["pause"] and not asleep
        for job in [job for job, term in self._open.items() if term.peer == peer and dead]:
            self._end_term(job, t)

    def _fault(self, event: Event, peer: str, t: float) -> None:
        do = str(event["do"])
        done = DONE.get(do, do)
        who = [str(name) for name in event.get("who") or (peer,)]
        self.strikes.append(Strike(t, peer, do, f"{', '.join(who)} {done}{during(event)}".strip()))
        if do in _AWAY:
            self._goes(peer, t, done)
        elif do in BACK:
            self._returns(peer, t)
        for name in who:
            if do in _TROUBLE:
                self._in_trouble.setdefault((name, do), t)
            elif do == "heal":
                self._relieve(name, "cut", t)

    def _recovers(self, peer: str, do: str, t: float) -> None:
        # Only one of the peers that were cut off together is named.
        for name in [name for name, what in self._in_trouble if what == do and (do == "cut" or name == peer)]:
            self._relieve(name, do, t)

    def _relieve(self, peer: str, do: str, t: float) -> None:
        since = self._in_trouble.pop((peer, do), None)
        if since is not None:
            self.troubled.setdefault(peer, []).append(Span(since, t, DONE[do]))

    # -- jobs -------------------------------------------------------------------------------------------------------

    def _take_of_job(self, event: Event, peer: str, job: str, t: float) -> None:
        within = "within" in event
        match event["verb"]:
            case "submitted":
                self.submitted.setdefault(job, t)
                self._roster[job] = len(event["roster"])
            case "job":
                self._roster.setdefault(job, len(event["roster"]))
            case "elected":
                self._end_term(job, t)
                self._open[job] = Term(job, event["term"], peer, t, t, within)
            case "combined":
                self._wait_ends(t)
                if not within:
                    present = len(event.get("contributors", ()))
                    self.rounds.append(Round(t, job, event["round"], present, self._roster.get(job, present)))
            case "finished":
                self._wait_ends(t)
                if job in self._open and self._open[job].peer == peer:
                    self._end_term(job, t)
                if not within:
                    self.finished.setdefault((job, peer), t)
            case "waiting" if self._wait is None and not within:
                # A job within the job waits for its own peers only; the fleet continues.
                self._wait = (t, f"waiting: {event['present']} of {event['of']} are here")

    def _end_term(self, job: str, t: float) -> None:
        term = self._open.pop(job, None)
        if term is not None:
            self.terms.append(replace(term, end=max(t, term.start)))

    def _wait_ends(self, t: float) -> None:
        if self._wait is not None:
            since, what = self._wait
            self.waits.append(Span(since, t, what))
            self._wait = None


def _pair(a: str, b: str) -> Link:
    return (a, b) if a < b else (b, a)
