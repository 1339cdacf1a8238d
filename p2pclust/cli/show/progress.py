"""What the events of a run tell a person: the state of every peer and job, and one line for each event that matters.

No terminal is in sight here; `p2pclust.cli.show.live` draws it, or prints the lines.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["AWAY", "GroupView", "JobView", "PeerView", "Progress"]

Event = Mapping[str, Any]

#: What a fault does, in words, and what its victim is from then on, if that changes.
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
    "revoke": ("revoked", "lost"),
}


#: Statuses of those that are not here.
AWAY = ("starting", "asleep", "paused", "down", "lost", "left")


@dataclass
class PeerView:
    """One peer as it looks from outside. `status`: starting | alive | asleep | paused | down | lost | finished | left."""

    name: str
    group: str = ""  # its device class
    status: str = "starting"
    round: int | None = None
    lives: int = 0
    term: int | None = None  # of the current job, if it aggregates
    noticed: bool = False  # its death was


@dataclass(frozen=True)
class GroupView:
    """One class of devices: how many there are, and how many of them are here, away, and finished."""

    name: str
    total: int
    alive: int
    away: int
    finished: int


@dataclass
class JobView:
    """One job as it looks from outside. `stages` are the ids of its protocols, in order."""

    stages: tuple[str, ...]
    job_id: str = ""
    n_peers: int = 0
    stage: str = ""
    round: int | None = None
    term: int | None = None
    aggregator: str = ""
    shift_of: dict[int, float] = field(default_factory=dict)
    graph: dict[str, int] = field(default_factory=dict)  # of a job that finds out which clusters are the same
    phase: str = ""
    finished: dict[str, None] = field(default_factory=dict)

    @property
    def protocol(self) -> str:
        """What a person asked for: the protocol of the job's main stage."""
        from p2pclust.protocols.engine.registry import main_stage  # noqa: PLC0415 - imports NumPy

        return self.stages[main_stage(self.stages)]

    @property
    def shifts(self) -> list[float]:
        """How far the centers moved in each round so far."""
        return list(self.shift_of.values())


class Progress:
    """Follows a run.

    Parameters
    ----------
    names : sequence of str
        Of all peers.
    stages : sequence of sequences of str
        For each job, in the order in which they are handed in, the protocols of its stages.
    groups : mapping of str to str, optional
        Each peer's device class; by default all are of one.

    Attributes
    ----------
    load : mapping
        What the peers have sent so far, as far as it is known: ``messages_sent``, ``bytes_sent``, ``busiest`` (a name) and
        ``busiest_bytes``; empty before anybody told.

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
        self._sees: dict[str, dict[str, None]] = {name: {} for name in names}
        self._linked = False
        self._waiting: dict[str, None] = {}
        self._strangers: dict[str, None] = {}
        self._roster_serial = 0
        self._by_id: dict[str, JobView] = {}
        self._verbs: dict[str, Callable[[Event], str]] = {
            "started": self._started, "member": self._member, "submitted": self._submitted,
            "elected": self._elected, "phase": self._phase, "combined": self._combined, "finished": self._finished,
            "fault": self._fault, "resumed": self._resumed, "exited": self._exited, "waiting": self._wait,
            "circle": self._circle, "left-out": self._left_out, "out-of-reach": self._out_of_reach,
            "stands-still": self._stands_still, "relayed": self._relayed, "proposer": self._proposer,
            "refused": self._reason, "data-refused": self._reason, "store-damaged": self._damaged,
            "failed": self._reason, "link": self._relinked, "load": self._loaded, "asleep": self._sleeps,
            "awake": self._wakes, "drained": self._drained, "refused-stranger": self._stranger, "roster": self._roster,
        }  # fmt: skip

    @property
    def job(self) -> JobView | None:
        """The job that is under way, or was last."""
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
            finished, away = own.count("finished"), sum(status in AWAY for status in own)
            found.append(GroupView(name, len(own), own.count("alive"), away, finished))
        return found

    def take(self, event: Event) -> str:
        """Follow one event; return a line about it, or an empty string if people need not hear of it."""
        self.t = max(self.t, float(event.get("t", 0.0)))
        known = self._verbs.get(event["verb"])
        line = "" if known is None else known(event)
        if line and event["verb"] != "waiting":
            self._waiting.clear()
        return line

    # -- peers ------------------------------------------------------------------------------------------------------

    def _started(self, event: Event) -> str:
        peer = self.peers.get(event["peer"])
        if peer is None:
            return ""
        peer.lives += 1
        peer.status, peer.noticed = "alive", False
        return "" if peer.lives == 1 else f"{peer.name} is back, from its disk"

    def _member(self, event: Event) -> str:
        reporter, member, status = event["peer"], event["member"], event["status"]
        if reporter in self._sees:
            if status == "alive":
                self._sees[reporter][member] = None
            elif status in ("dead", "left"):
                self._sees[reporter].pop(member, None)
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
        peer = self.peers.get(event["peer"])
        done, status = _FAULTS[event["do"]]
        if peer is not None and status:
            peer.status = status
        round_ = event.get("round", event.get("planned"))
        when = f" while {event['phase']} round {round_}" if event.get("phase") else ""
        return f"{', '.join(event.get('who', ())) or event['peer']} {done}{when}"

    def _sleeps(self, event: Event) -> str:
        return self._turns(event["peer"], "asleep", "alive")

    def _wakes(self, event: Event) -> str:
        return self._turns(event["peer"], "alive", "asleep")

    def _turns(self, name: str, status: str, before: str) -> str:
        """Sleep is part of a device's day: it is shown, and needs no line."""
        peer = self.peers.get(name)
        if peer is not None and peer.status == before:
            peer.status = status
        return ""

    def _drained(self, event: Event) -> str:
        return f"the battery of {event['peer']} is empty"

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
        expected = peer.status in ("lost", "down")
        if not expected:
            peer.status = "lost"
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        return "" if expected else f"{peer.name} ended {how}"

    def _reason(self, event: Event) -> str:
        words = {"refused": "refuses the job", "data-refused": "cannot use its data", "failed": "failed"}
        return f"{event['peer']} {words[event['verb']]}: {event['reason']}"

    def _damaged(self, event: Event) -> str:
        return f"{event['peer']} found its store damaged and begins with an empty one; the old one is kept"

    # -- jobs -------------------------------------------------------------------------------------------------------

    def _view(self, event: Event) -> JobView | None:
        return self._by_id.get(event["job"])

    def _submitted(self, event: Event) -> str:
        if len(self._by_id) == len(self.jobs):
            return ""
        job = self.jobs[len(self._by_id)]
        self._by_id[event["job"]] = job
        job.job_id, job.n_peers = event["job"], len(event["roster"])
        for peer in self.peers.values():
            peer.term = peer.round = None
            if peer.status in ("starting", "finished"):
                peer.status = "alive"
        at = f" at {event['peer']}" if event["peer"] else ""
        return f"job {self.job_number} of {len(self.jobs)} handed in{at}: {job.protocol}, {job.n_peers} peers"

    def _elected(self, event: Event) -> str:
        job = self._view(event)
        if job is None:
            return ""
        for peer in self.peers.values():
            peer.term = event["term"] if peer.name == event["peer"] else None
        job.term, job.aggregator = event["term"], event["peer"]
        return f"{event['peer']} aggregates term {event['term']} ({event['votes']} of {event['of']} votes)"

    def _phase(self, event: Event) -> str:
        peer = self.peers.get(event["peer"])
        if peer is not None:
            peer.round = event["round"]
        return ""

    def _combined(self, event: Event) -> str:
        job = self._view(event)
        if job is None:
            return ""
        before, job.stage = job.stage, job.stages[min(event["stage"], len(job.stages) - 1)]
        job.round = event["round"]
        for name in event["contributors"]:
            if name in self.peers:
                self.peers[name].round = event["round"]
        # A round that is done again, by another aggregator, replaces what came of it before.
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

    def _finished(self, event: Event) -> str:
        job = self._view(event)
        if job is None:
            return ""
        first = not job.finished
        job.finished[event["peer"]] = None
        if event["peer"] in self.peers:
            self.peers[event["peer"]].status = "finished"
        return f"job {self.job_number} is finished: a majority holds the final state" if first else ""

    def _wait(self, event: Event) -> str:
        """Tell each number once, until something else happens: each part of a fleet that was cut has one of its own."""
        peers = "peers of a job within the job" if event.get("within") else "peers"
        line = f"waiting: {event['present']} of {event['of']} {peers} are here"
        said = line in self._waiting
        self._waiting[line] = None
        return "" if said else f"{line}, as {event['peer']} sees it"

    def _stranger(self, event: Event) -> str:
        first = event["print"] not in self._strangers
        self._strangers[event["print"]] = None
        return f"{event['peer']} refuses a stranger with the key {event['print']}: {event['hint']}" if first else ""

    def _roster(self, event: Event) -> str:
        """The others take it over from this one; of each roster that is told once."""
        first = event["serial"] > self._roster_serial
        self._roster_serial = max(event["serial"], self._roster_serial)
        gone = f", {', '.join(event['revoked'])} is not on it" if event["revoked"] else ""
        return f"{event['peer']} has fleet roster {event['serial']}{gone}" if first else ""

    def _relinked(self, event: Event) -> str:
        return f"{event['peer']} and {event['to']} {'are linked now' if event['up'] else 'have lost their link'}"

    def _circle(self, event: Event) -> str:
        job = self._view(event)
        return (
            ""
            if job is None
            else f"{event['peer']} begins the round anew, with {len(event['members'])} of {job.n_peers}"
        )

    def _left_out(self, event: Event) -> str:
        return f"round {event['round']} goes on without {event['peer']}, which stays silent"

    def _out_of_reach(self, event: Event) -> str:
        return f"{event['peer']} does not answer the aggregator in round {event['round']}: another one may take over"

    def _stands_still(self, event: Event) -> str:
        waited = f"{event['seconds']:.0f} s"
        return f"{event['peer']} aggregates, and nothing has come of it for {waited}: another one may take over"

    def _relayed(self, event: Event) -> str:
        through = f": asked through {', '.join(event['via'])}" if event["via"] else ""
        return f"{event['peer']} stays silent in round {event['round']}{through}"

    def _proposer(self, event: Event) -> str:
        return f"{event['proposer']} is asked in place of one that is gone"


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
    """Follow the association graph of a job that has one; return what a line says about it."""
    count = {key: event[key] for key in ("groups", "isolated", "links") if key in event}
    if not count or "phase" not in event:
        return ""
    job.graph |= {key: len(value) if isinstance(value, list) else int(value) for key, value in count.items()}
    if isinstance(event.get("clusters"), list):
        job.graph["clusters"] = sum(event["clusters"])
    if "changed" in event:
        job.graph["changed"], job.graph["rows"] = event["changed"], event["rows"]
    groups, isolated = job.graph.get("groups", 0), job.graph.get("isolated", 0)
    told = f", {counted(groups, 'communities')}, {counted(isolated, 'clusters')} isolated"
    return told + (f", {event['changed']} of {event['rows']} rows changed" if "changed" in event else "")
