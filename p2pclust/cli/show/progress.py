"""Follow the events of a run: keep the state of every peer and job, and describe the events that matter in one line each.

Drawing and printing is done by `p2pclust.cli.show.live`.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["GroupView", "JobView", "PeerView", "Progress", "counted"]

Event = Mapping[str, Any]

#: Lines that need only the fields of their event.
_LINES = {
    "drained": "the battery of {peer} is empty",
    "failed": "{peer} failed: {reason}",
    "data-refused": "{peer} cannot use its data: {reason}",
    "refused": "{peer} refuses the job: {reason}",
    "store-damaged": "{peer} found its store damaged and begins with an empty one; the old one is kept",
    "left-out": "round {round} goes on without {peer}, which stays silent",
    "out-of-reach": "{peer} does not answer the aggregator in round {round}: another one may take over",
    "unable": "{peer} cannot go on with the job: {reason}",
    "stands-still": "{peer} aggregates, but has made no progress for {seconds:.0f} s: another one may take over",
    "proposer": "{proposer} is asked in place of a peer that is gone",
}

#: What a fault does, in words, and the status of its victim from then on, if that changes.
_FAULTS = {
    "kill": ("killed", "lost"),
    "drain": ("has an empty battery", "lost"),
    "restart": ("killed, to come back", "down"),
    "pause": ("paused", "paused"),
    "resume": ("resumed", "alive"),
    "join": ("joins", ""),
    "leave": ("leaves", ""),
    "cut": ("cut off", ""),
    "heal": ("no longer cut off", ""),
    "slow": ("slowed down", ""),
    "drop": ("loses messages", ""),
    "corrupt-data": ("works with damaged rows", ""),
    "lie": ("lies about its rows", ""),
    "revoke": ("revoked", "lost"),
}

#: The statuses of peers that are absent.
_AWAY = ("starting", "asleep", "paused", "down", "lost", "left")


@dataclass
class PeerView:
    """One peer, as its events describe it. `status`: starting | alive | asleep | paused | down | lost | finished | left."""

    name: str
    group: str = ""  # its device class
    status: str = "starting"
    round: int | None = None
    lives: int = 0
    term: int | None = None  # of the current job, if it aggregates
    noticed: bool = False  # another peer reported its death


@dataclass(frozen=True)
class GroupView:
    """One class of devices: how many there are, and how many of them are alive, away and finished."""

    name: str
    total: int
    alive: int
    away: int
    finished: int


@dataclass
class JobView:
    """One job, as its events describe it. `stages` are the ids of its protocols, in order."""

    stages: tuple[str, ...]
    n_peers: int = 0
    stage: str = ""
    round: int | None = None
    term: int | None = None
    aggregator: str = ""
    shift_of: dict[int, float] = field(default_factory=dict)
    graph: dict[str, int] = field(default_factory=dict)  # counts of the association graph; FedCRef only
    phase: str = ""
    finished: set[str] = field(default_factory=set)

    @property
    def protocol(self) -> str:
        """The protocol of the job's main stage."""
        from p2pclust.protocols.engine.registry import main_stage  # noqa: PLC0415 - imports NumPy

        return self.stages[main_stage(self.stages)]

    @property
    def shifts(self) -> list[float]:
        """How far the centers moved in each round so far."""
        return list(self.shift_of.values())


class Progress:
    """The state of a run, updated by one event at a time.

    `stages` has for each job, in the order of submission, the protocols of its stages; `groups` each peer's device class,
    by default one for all. `load` has the newest counts of what the peers have sent: ``messages_sent``, ``bytes_sent``,
    ``busiest`` (a name) and ``busiest_bytes``; it is empty before the first report.

    Examples
    --------
    >>> progress = Progress(["a", "b", "c"], [["llf-cm"]])
    >>> progress.take({"t": 0.1, "peer": "a", "verb": "submitted", "job": "j", "roster": ["a", "b", "c"]})
    'job 1 of 1 handed in at a: llf-cm, 3 peers'
    >>> progress.take({"t": 0.2, "peer": "b", "verb": "elected", "job": "j", "term": 1, "votes": 2, "of": 3})
    'b aggregates term 1 (2 of 3 votes)'
    """

    def __init__(
        self, names: Sequence[str], stages: Sequence[Sequence[str]], groups: Mapping[str, str] | None = None
    ) -> None:  # fmt: skip
        self.peers = {name: PeerView(name, (groups or {}).get(name, "")) for name in names}
        self.load: Event = {}
        self.jobs = [JobView(tuple(of_job)) for of_job in stages]
        self.t = 0.0
        self._sees: dict[str, set[str]] = {name: set() for name in names}
        self._linked = False
        self._waiting: set[str] = set()
        self._strangers: set[str] = set()
        self._roster_serial = 0
        self._by_id: dict[str, JobView] = {}
        self._verbs: dict[str, Callable[[Event], str]] = {
            "started": self._started, "member": self._member, "submitted": self._submitted, "phase": self._phase,
            "fault": self._fault, "resumed": self._resumed, "exited": self._exited, "waiting": self._wait,
            "relayed": _relayed, "link": _relinked, "load": self._loaded, "asleep": self._turns, "awake": self._turns,
            "refused-stranger": self._stranger, "roster": self._roster,
        }  # fmt: skip
        self._verbs_of_jobs: dict[str, Callable[[JobView, Event], str]] = {
            "elected": self._elected, "combined": self._combined, "finished": self._finished, "circle": _circle,
        }  # fmt: skip

    @property
    def job(self) -> JobView | None:
        """The current job, or the last one."""
        return next(reversed(self._by_id.values())) if self._by_id else None

    @property
    def job_number(self) -> int:
        """Its number, from 1; 0 before the first."""
        return len(self._by_id)

    @property
    def groups(self) -> list[GroupView]:
        """Every class of devices, in the order of its first peer."""
        found = []
        for name in dict.fromkeys(peer.group for peer in self.peers.values()):
            own = [peer.status for peer in self.peers.values() if peer.group == name]
            finished, away = own.count("finished"), sum(status in _AWAY for status in own)
            found.append(GroupView(name, len(own), own.count("alive"), away, finished))
        return found

    def take(self, event: Event) -> str:
        """Follow one event; return a line about it, or an empty string if it needs none."""
        self.t = max(self.t, float(event.get("t", 0.0)))
        verb = event["verb"]
        if verb in self._verbs_of_jobs:
            job = self._by_id.get(event["job"])
            line = "" if job is None else self._verbs_of_jobs[verb](job, event)
        else:
            line = self._verbs[verb](event) if verb in self._verbs else _LINES.get(verb, "").format_map(event)
        if line and verb != "waiting":
            self._waiting.clear()
        return line

    # -- peers ------------------------------------------------------------------------------------------------------

    def _peer(self, event: Event) -> PeerView:
        """Return the view of an event's peer; that of a peer outside of the fleet is not shown."""
        return self.peers.get(event["peer"]) or PeerView(event["peer"])

    def _started(self, event: Event) -> str:
        peer = self._peer(event)
        peer.lives += 1
        peer.status, peer.noticed = "alive", False
        return "" if peer.lives == 1 else f"{peer.name} is back, from its disk"

    def _member(self, event: Event) -> str:
        reporter, member, status = event["peer"], event["member"], event["status"]
        if reporter in self._sees:
            if status == "alive":
                self._sees[reporter].add(member)
            elif status in ("dead", "left"):
                self._sees[reporter].discard(member)
        peer = self.peers.get(member)
        if status == "dead" and peer is not None and not peer.noticed:
            peer.noticed = True
            if peer.status in ("alive", "starting"):
                peer.status = "lost"
            return f"{member} is noticed to be gone, by {reporter}"
        if status == "alive" and peer is not None:
            if peer.status in ("starting", "lost"):
                peer.status = "alive"
            peer.noticed = False
        return self._link()

    def _link(self) -> str:
        others = len(self.peers) - 1
        if self._linked or not others or any(len(seen) < others for seen in self._sees.values()):
            return ""
        self._linked = True
        return f"{len(self.peers)} peers linked to each other"

    def _fault(self, event: Event) -> str:
        done, status = _FAULTS[event["do"]]
        peer = self._peer(event)
        peer.status = status or peer.status
        round_ = event.get("round", event.get("planned"))
        when = f" while {event['phase']} round {round_}" if event.get("phase") else ""
        return f"{', '.join(event.get('who', ())) or event['peer']} {done}{when}"

    def _turns(self, event: Event) -> str:
        """Follow the sleep of a device, which is part of its day and needs no line."""
        peer = self._peer(event)
        if peer.status in ("alive", "asleep"):
            peer.status = "asleep" if event["verb"] == "asleep" else "alive"
        return ""

    def _loaded(self, event: Event) -> str:
        self.load = event
        return ""

    def _resumed(self, event: Event) -> str:
        self.peers[event["peer"]].status = "alive"
        return f"{event['peer']} resumed"

    def _exited(self, event: Event) -> str:
        peer, code = self.peers[event["peer"]], int(event["code"])
        if code == 0:
            peer.status = "left" if peer.status != "finished" else "finished"
            return ""
        if peer.status in ("lost", "down"):
            return ""
        peer.status = "lost"
        return f"{peer.name} ended " + (f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}")

    # -- jobs -------------------------------------------------------------------------------------------------------

    def _submitted(self, event: Event) -> str:
        if len(self._by_id) == len(self.jobs):
            return ""
        job = self.jobs[len(self._by_id)]
        self._by_id[event["job"]] = job
        job.n_peers = len(event["roster"])
        for peer in self.peers.values():
            peer.term = peer.round = None
            if peer.status in ("starting", "finished"):
                peer.status = "alive"
        at = f" at {event['peer']}" if event["peer"] else ""
        return f"job {self.job_number} of {len(self.jobs)} handed in{at}: {job.protocol}, {job.n_peers} peers"

    def _elected(self, job: JobView, event: Event) -> str:
        for peer in self.peers.values():
            peer.term = event["term"] if peer.name == event["peer"] else None
        job.term, job.aggregator = event["term"], event["peer"]
        return f"{event['peer']} aggregates term {event['term']} ({event['votes']} of {event['of']} votes)"

    def _phase(self, event: Event) -> str:
        self._peer(event).round = event["round"]
        return ""

    def _combined(self, job: JobView, event: Event) -> str:
        before, job.stage = job.stage, job.stages[min(event["stage"], len(job.stages) - 1)]
        job.round = event["round"]
        for name in event["contributors"]:
            if name in self.peers:
                self.peers[name].round = event["round"]
        # A new aggregator repeats a round: drop what the old one reported of it.
        job.shift_of = {round_: shift for round_, shift in job.shift_of.items() if round_ < event["round"]}
        job.phase = str(event.get("phase", ""))
        line = f"round {event['round']}: {len(event['contributors'])} of {job.n_peers} contributed"
        line += _graph(job, event)
        if event.get("shift") is not None:
            job.shift_of[event["round"]] = float(event["shift"])
            line += f", the {event.get('moved', 'centers')} moved by {event['shift']:.3g}"
        if event.get("cells") is not None:
            line += f"; there are {event['cells']} cells now"
        if event.get("objective") is not None:
            line += f", the objective is {event['objective']:.6g}"
        if event["status"] == "failed":
            return line + "; the job failed"
        if event["status"] == "running" and before != job.stage:
            line += f"; next is {job.stage}"
        return line

    def _finished(self, job: JobView, event: Event) -> str:
        first = not job.finished
        job.finished.add(event["peer"])
        self._peer(event).status = "finished"
        return f"job {self.job_number} is finished: a majority holds the final state" if first else ""

    def _wait(self, event: Event) -> str:
        """Show each count once until another event comes: the parts of a fleet that was cut wait with different counts."""
        peers = "peers of a job within the job" if event.get("within") else "peers"
        line = f"waiting: {event['present']} of {event['of']} {peers} are here"
        said = line in self._waiting
        self._waiting.add(line)
        return "" if said else f"{line}, as {event['peer']} sees it"

    def _stranger(self, event: Event) -> str:
        first = event["print"] not in self._strangers
        self._strangers.add(event["print"])
        return f"{event['peer']} refuses a stranger with the key {event['print']}: {event['hint']}" if first else ""

    def _roster(self, event: Event) -> str:
        """Show each fleet roster once, at the first peer that has it."""
        first = event["serial"] > self._roster_serial
        self._roster_serial = max(event["serial"], self._roster_serial)
        gone = f", {', '.join(event['revoked'])} is not on it" if event["revoked"] else ""
        return f"{event['peer']} has fleet roster {event['serial']}{gone}" if first else ""


def _circle(job: JobView, event: Event) -> str:
    return f"{event['peer']} begins the round anew, with {len(event['members'])} of {job.n_peers}"


def _relinked(event: Event) -> str:
    return f"{event['peer']} and {event['to']} {'are linked now' if event['up'] else 'have lost their link'}"


def _relayed(event: Event) -> str:
    through = f": asked through {', '.join(event['via'])}" if event["via"] else ""
    return f"{event['peer']} stays silent in round {event['round']}{through}"


def counted(number: int, many: str) -> str:
    """Write a number with its word.

    Examples
    --------
    >>> counted(1, "communities"), counted(0, "clusters")
    ('1 community', '0 clusters')
    """
    one = many.removesuffix("ies") + "y" if many.endswith("ies") else many.removesuffix("s")
    return f"{number} {one if number == 1 else many}"


def _graph(job: JobView, event: Event) -> str:
    """Follow the association graph of a job that has one; return the part of a line that describes it."""
    count = {key: event[key] for key in ("groups", "isolated", "links") if key in event}
    if not count or "phase" not in event:
        return ""
    job.graph |= {key: len(value) if isinstance(value, list) else int(value) for key, value in count.items()}
    if isinstance(event.get("clusters"), list):
        job.graph["clusters"] = sum(event["clusters"])
    if "changed" in event:
        job.graph["changed"], job.graph["rows"] = event["changed"], event["rows"]
    groups, isolated = job.graph.get("groups", 0), job.graph.get("isolated", 0)
    line = f", {counted(groups, 'communities')}, {counted(isolated, 'clusters')} isolated"
    return line + (f", {event['changed']} of {event['rows']} rows changed" if "changed" in event else "")
