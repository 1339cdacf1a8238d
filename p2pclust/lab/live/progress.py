"""Follow the events of a run: keep the state of every peer and job, and describe the events that matter in one line each.

`p2pclust.lab.commands.show.live` draws it on a terminal, the page of `p2pclust.lab.live.server` in a browser.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from p2pclust.lab.live.views import Event, EventLine, GroupView, JobView, Mark, PeerView, RoundView

_MOST_LINES: Final = 40
_MOST_MARKS: Final = 400  # on the time line; the oldest are forgotten
_MOST_ROUNDS: Final = 2_000

#: The statuses of peers that are absent.
_AWAY = ("starting", "asleep", "paused", "down", "lost", "left")
#: By verb, what an event that has a line is on the time line.
_MARKS: Final[Mapping[str, str]] = {
    "elected": "election", "fault": "fault", "drained": "fault", "exited": "death", "failed": "death", "member": "death",
    "started": "return", "resumed": "return", "waiting": "wait", "finished": "end",
    "ended": "end",
}  # fmt: skip

#: Lines that need only the fields of their event.
LINES: Final[Mapping[str, str]] = {
    "drained": "the battery of {peer} is empty",
    "failed": "{peer} failed: {reason}",
    "data-refused": "{peer} cannot use its data: {reason}",
    "refused": "{peer} refuses the job: {reason}",
    "store-damaged": "{peer} found its store damaged and begins with an empty one; the old one is kept",
    "left-out": "round {round} continues without {peer}, which stays silent",
    "out-of-reach": "{peer} does not answer the aggregator in round {round}: another peer may take over",
    "unable": "{peer} cannot go on with the job: {reason}",
    "stands-still": "{peer} aggregates, but has made no progress for {seconds:.0f} s: another peer may take over",
    "proposer": "{proposer} is asked in place of a peer that is gone",
}

#: What a fault does, in words, and the status of its victim from then on, if that changes.
FAULTS: Final[Mapping[str, tuple[str, str]]] = {
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


class Progress:
    """The state of a run, updated by one event at a time.

    `stages` has for each job, in the order of submission, the protocols of its stages; `groups` each peer's device class,
    by default one for all; `links` are those of the overlay at the start, None for a full mesh.

    `load` has the newest counts of what the peers have sent: ``messages_sent``, ``bytes_sent``,
    ``busiest`` (a name) and ``busiest_bytes``; it is empty before the first report.

    Beside the events of a testbed it follows those that `p2pclust.lab.live.ask` makes of the answers of a standing fleet:
    ``enrolled`` (a peer that was unknown), ``sent`` (its traffic), ``waits`` (the peers that the aggregator waits for),
    ``ended`` (a job, with its outcome), and ``submitted`` with the ``stages`` of a job that was unknown.

    Examples
    --------
    >>> progress = Progress(["a", "b", "c"], [["llf-cm"]])
    >>> progress.take({"t": 0.1, "peer": "a", "verb": "submitted", "job": "j", "roster": ["a", "b", "c"]})
    'job 1 of 1 handed in at a: llf-cm, 3 peers'
    >>> progress.take({"t": 0.2, "peer": "b", "verb": "elected", "job": "j", "term": 1, "votes": 2, "of": 3})
    'b aggregates term 1 (2 of 3 votes)'
    """

    def __init__(
        self, names: Sequence[str], stages: Sequence[Sequence[str]], groups: Mapping[str, str] | None = None,
        links: Iterable[tuple[str, str]] | None = None,
    ) -> None:  # fmt: skip
        self.peers = {name: PeerView(name, (groups or {}).get(name, "")) for name in names}
        self.load: Event = {}
        self.jobs = [JobView(tuple(of_job)) for of_job in stages]
        self.links = None if links is None else {_pair(a, b) for a, b in links}
        self.t = 0.0
        self.lines: deque[EventLine] = deque(maxlen=_MOST_LINES)
        self.marks: deque[Mark] = deque(maxlen=_MOST_MARKS)
        self.rounds: deque[RoundView] = deque(maxlen=_MOST_ROUNDS)
        self._sees: dict[str, set[str]] = {name: set() for name in names}
        self._linked = False
        self._waiting: set[str] = set()
        self._strangers: set[str] = set()
        self._roster_serial = 0
        self._by_id: dict[str, JobView] = {}
        self._verbs: dict[str, Callable[[Event], str]] = {
            "started": self._started, "member": self._member, "submitted": self._submitted, "phase": self._phase,
            "fault": self._fault, "resumed": self._resumed, "exited": self._exited, "waiting": self._wait,
            "relayed": self._relayed, "link": self._relinked, "load": self._loaded, "asleep": self._turns,
            "awake": self._turns, "refused-stranger": self._stranger, "roster": self._roster, "energy": self._energy,
            "sent": self._sent,
            "enrolled": self._enrolled, "overlay": self._overlay,
        }  # fmt: skip
        self._verbs_of_jobs: dict[str, Callable[[JobView, Event], str]] = {
            "elected": self._elected, "combined": self._combined, "finished": self._finished, "circle": _circle,
            "waits": _waits, "centers": _centers, "ended": self._ended,
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
            line = self._verbs[verb](event) if verb in self._verbs else LINES.get(verb, "").format_map(event)
        if line:
            if verb != "waiting":
                self._waiting.clear()
            self.lines.append(EventLine(float(event["t"]), verb, line))
            if verb in _MARKS and event.get("status") != "alive" and "within" not in event:
                self.marks.append(
                    Mark(float(event["t"]), _MARKS[verb], str(event.get("member") or event["peer"]), line)
                )
        return line

    def waited_for(self) -> tuple[str, ...]:
        """Return the peers that the current round waits for.

        They are those that the aggregator names, if it has; else those of the roster that were silent when it asked, or
        are away and were not reported dead.
        """
        job = self.job
        if job is None or job.finished or job.failed:
            return ()
        if job.waits_for is not None:
            return job.waits_for
        own = (self.peers[name] for name in job.roster if name in self.peers)
        away = ("paused", "down", "lost", "suspect")
        return tuple(peer.name for peer in own if peer.silent or (peer.status in away and not peer.noticed))

    # -- peers ------------------------------------------------------------------------------------------------------

    def _peer(self, event: Event) -> PeerView:
        """Return the view of an event's peer; that of a peer outside of the fleet is not shown."""
        return self.peers.get(event["peer"]) or PeerView(event["peer"])

    def _started(self, event: Event) -> str:
        peer = self._peer(event)
        peer.lives += 1
        peer.status, peer.noticed, peer.silent = "alive", False, False
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
            peer.noticed, peer.silent = True, False
            if peer.status in ("alive", "starting", "suspect"):
                peer.status = "lost"
            return f"{member} is noticed to be gone, by {reporter}"
        if status == "suspect" and peer is not None and peer.status == "alive":
            peer.status = "suspect"
        if status == "alive" and peer is not None:
            if peer.status in ("starting", "lost", "suspect"):
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
        done, status = FAULTS[event["do"]]
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
        return self._sent(event)

    def _sent(self, event: Event) -> str:
        for name, sent in event.get("sent", {}).items():
            if name in self.peers:
                self.peers[name].bytes_sent = int(sent)
        return ""

    def _energy(self, event: Event) -> str:
        for name, used in event["used_j"].items():
            if name in self.peers:
                self.peers[name].energy_j, self.peers[name].battery = float(used), event["left"].get(name)
        return ""

    def _enrolled(self, event: Event) -> str:
        """Show a peer of a standing fleet that was not known before."""
        self.peers.setdefault(event["peer"], PeerView(event["peer"], str(event.get("class", ""))))
        self._sees.setdefault(event["peer"], set())
        return ""

    def _overlay(self, event: Event) -> str:
        """Show the links that a peer of a standing fleet knows of; None is a full mesh."""
        links = event["links"]
        self.links = None if links is None else {_pair(a, b) for a, b in links}
        return ""

    def _relinked(self, event: Event) -> str:
        if self.links is not None:
            link = {_pair(event["peer"], event["to"])}
            self.links = self.links | link if event["up"] else self.links - link
        return relinked(event)

    def _relayed(self, event: Event) -> str:
        self._peer(event).silent = True
        return relayed(event)

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
        if len(self._by_id) == len(self.jobs) and "stages" in event:
            self.jobs.append(JobView(tuple(event["stages"]), stage=event["stages"][0]))
        if len(self._by_id) == len(self.jobs) or event["job"] in self._by_id:
            return ""
        job = self.jobs[len(self._by_id)]
        self._by_id[event["job"]] = job
        job.roster = tuple(event["roster"])
        job.n_peers = len(job.roster)
        for peer in self.peers.values():
            peer.term = peer.round = None
            peer.silent = False
            if peer.status in ("starting", "finished"):
                peer.status = "alive"
        at = f" at {event['peer']}" if event["peer"] else ""
        return f"job {self.job_number} of {len(self.jobs)} handed in{at}: {job.protocol}, {job.n_peers} peers"

    def _elected(self, job: JobView, event: Event) -> str:
        for peer in self.peers.values():
            peer.term = event["term"] if peer.name == event["peer"] else None
        job.term, job.aggregator = event["term"], event["peer"]
        job.waits_for, job.waiting = None, ""
        votes = f" ({event['votes']} of {event['of']} votes)" if "votes" in event else ""
        return f"{event['peer']} aggregates term {event['term']}{votes}"

    def _phase(self, event: Event) -> str:
        self._peer(event).round = event["round"]
        return ""

    def _combined(self, job: JobView, event: Event) -> str:
        before, job.stage = job.stage, job.stages[min(event["stage"], len(job.stages) - 1)]
        job.begin_round(event["round"])
        job.round, job.contributors = event["round"], tuple(event["contributors"])
        self.rounds.append(RoundView(float(event["t"]), event["round"], len(job.contributors), job.n_peers))
        for peer in self.peers.values():
            peer.silent = False
        for name in job.contributors:
            if name in self.peers:
                self.peers[name].round = event["round"]
        job.phase = str(event.get("phase", ""))
        line = f"round {event['round']}: {len(event['contributors'])} of {job.n_peers} contributed"
        line += job.associate(event)
        if event.get("shift") is not None:
            job.shift_of[event["round"]] = float(event["shift"])
            line += f", the {event.get('moved', 'centers')} moved by {event['shift']:.3g}"
        if "shifts" in event:  # of a standing fleet, all so far
            job.shift_of = dict(event["shifts"])
        if event.get("cells") is not None:
            line += f"; there are {event['cells']} cells now"
        if event.get("objective") is not None:
            job.objective_of[event["round"]] = float(event["objective"])
            line += f", the objective is {event['objective']:.6g}"
        if event["status"] == "failed":
            job.failed = True
            return line + "; the job failed"
        if event["status"] == "running" and before != job.stage:
            line += f"; next is {job.stage}"
        return line

    def _finished(self, job: JobView, event: Event) -> str:
        first = not job.finished
        job.finished.add(event["peer"])
        self._peer(event).status = "finished"
        return f"job {self.job_number} is finished: a majority holds the final state" if first else ""

    def _ended(self, job: JobView, event: Event) -> str:
        """Follow the end of a job of a standing fleet, as one peer reports it."""
        job.failed, job.waits_for, job.waiting = event["outcome"] != "done", None, ""
        if not job.failed:
            job.finished.update(
                name for name in job.roster if name in self.peers and self.peers[name].status not in _AWAY
            )
        return f"job {self.job_number} is {event['outcome']}" + (f": {event['reason']}" if event["reason"] else "")

    def _wait(self, event: Event) -> str:
        """Show each count once until another event comes: the parts of a fleet that was cut wait with different counts."""
        peers = "peers of a job within the job" if event.get("within") else "peers"
        line = f"waiting: {event['present']} of {event['of']} {peers} are here"
        if self.job is not None and not event.get("within"):
            self.job.waiting = line
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


def _waits(job: JobView, event: Event) -> str:
    job.waits_for = tuple(event["peers"])
    return ""


def _centers(job: JobView, event: Event) -> str:
    """Keep the centers of a round in two columns; those of later rounds are of an aggregator that is gone.

    The columns are those in which the first centers are farthest apart, so axes stay, and a long run takes little memory.
    """
    centers = event["centers"]
    while job.centers_of and next(reversed(job.centers_of)) >= event["round"]:
        job.centers_of.popitem()
    n_columns = len(centers[0])
    if n_columns < 2:
        return ""
    if not job.centers_of:
        apart = [
            max(center[at] for center in centers) - min(center[at] for center in centers) for at in range(n_columns)
        ]
        x, y = sorted(sorted(range(n_columns), key=lambda at: -apart[at])[:2])
        job.columns = (x, y)
    x, y = job.columns
    job.centers_of[event["round"]] = [(center[x], center[y]) for center in centers]
    return ""


def _pair(a: str, b: str) -> tuple[str, str]:
    return (a, b) if a < b else (b, a)


def relinked(event: Mapping[str, Any]) -> str:
    """Say that a link appeared or vanished."""
    return f"{event['peer']} and {event['to']} {'are linked now' if event['up'] else 'have lost their link'}"


def relayed(event: Mapping[str, Any]) -> str:
    """Say that a peer is asked through others."""
    through = f": asked through {', '.join(event['via'])}" if event["via"] else ""
    return f"{event['peer']} stays silent in round {event['round']}{through}"
