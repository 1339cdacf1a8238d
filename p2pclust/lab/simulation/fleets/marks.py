"""What a random run meets: it is counted, and some of it is made to happen at the steps that matter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.lab.simulation.world.world import Observer, World
from p2pclust.peer.core.effects import Effect, Send
from p2pclust.peer.core.messages import Relay
from p2pclust.peer.core.reports import JobFinished, JobRefused, JobSubmitted, Report
from p2pclust.peer.core.round_reports import Deposed, PhaseBegun
from p2pclust.peer.core.rounds.election import Role
from p2pclust.peer.core.rounds.job import AggregatedJob

#: What a report means, by its verb.
_NAMES: Final = {
    "blob-corrupt": "wrong blob noticed", "catches-up": "candidate caught up", "deposed": "aggregator deposed",
    "elected": "aggregator elected", "fenced": "deposed aggregator's late message", "keys-renewed": "keys renewed",
    "late-answer": "late answer", "left-out": "peer left out", "link-broken": "broken link noticed",
    "link-mended": "link used again", "not-checked": "state not checked",
    "out-of-reach": "peer out of reach", "outside": "began without this peer", "proposer": "proposer replaced",
    "pulling": "blob pulled", "refuses-pads": "pads refused", "refuted": "refuted", "refutes-state": "state refuted",
    "relayed": "silent peer asked through others", "roster": "newer roster taken", "stands-still": "aggregator stood still",
    "store-forgot": "older store noticed", "took": "state of another epoch taken", "waiting": "minority waited",
    "without": "contributed without",
}  # fmt: skip


def aggregates(peer: Peer, job_id: str) -> bool:
    """Return whether a peer is the aggregator of a job, in its own view."""
    job = None if peer.core is None else peer.core.jobs.jobs.get(job_id)
    return isinstance(job, AggregatedJob) and job.election.role is Role.AGGREGATOR


def votes(peers: Mapping[str, Peer]) -> Iterator[tuple[str, str]]:
    """Yield the candidates that ask for votes, each with a peer that has voted for it; the reply may be on its way."""
    for peer in peers.values():
        for job_id, asks in [] if peer.core is None else list(peer.core.jobs.jobs.items()):
            if not isinstance(asks, AggregatedJob) or asks.election.role is not Role.CANDIDATE:
                continue
            for other in peers.values():
                job = None if other is peer or other.core is None else other.core.jobs.jobs.get(job_id)
                given = (asks.ledger.term, peer.name)
                if isinstance(job, AggregatedJob) and (job.ledger.term, job.ledger.voted_for) == given:
                    yield peer.name, other.name


class Marks(Observer):
    """Counts what happened, so that a run can show that it met what it claims to meet."""

    watches = (Report, Send)

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.job = ""
        self.refused = ""  # why no peer took the job, until one did
        self.finished: dict[str, bytes] = {}
        self._within: dict[str, None] = {}  # jobs within jobs

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        if isinstance(effect, Send):
            if effect.via:
                self.counts["message relayed through others"] += 1
            elif isinstance(effect.message, Relay):
                self.counts["message carried for others"] += 1
            return
        assert isinstance(effect, Report)
        if effect.verb in _NAMES:
            self.counts[_NAMES[effect.verb]] += 1
        if effect.verb == "job" and "within" in effect.fields:
            self._within[str(effect.fields["job"])] = None
        elif effect.verb in ("elected", "finished") and effect.fields["job"] in self._within:
            self.counts["another aggregator within"] += effect.verb == "elected" and int(effect.fields["term"]) > 1
            self.counts["finished within"] += effect.verb == "finished"
        if isinstance(effect, JobSubmitted):
            self.job, self.refused = effect.job, ""
        elif isinstance(effect, JobRefused) and not self.job:
            self.refused = effect.reason
        elif isinstance(effect, JobFinished):
            self.finished[peer.name] = bytes.fromhex(effect.digest)
        elif isinstance(effect, Deposed):
            others = (one for one in world.peers.values() if one is not peer)
            self.counts["two aggregators met"] += any(aggregates(other, effect.job) for other in others)

    def crashed(self, world: World, peer: Peer, lost_writes: int) -> None:
        self.counts["crash"] += 1
        if lost_writes:
            self.counts["crash with lost writes"] += 1
            peer.counters["lost_writes"] = 1

    def started(self, world: World, peer: Peer) -> None:
        if peer.life > 1:
            self.counts["restart"] += 1
            self.counts["restart with lost writes"] += peer.counters.pop("lost_writes", 0)


class PhaseCrashes:
    """Crashes the peer that is the k-th to reach a phase, a few effects later."""

    def __init__(self, crashes: tuple[tuple[str, int, int], ...], marks: Marks) -> None:
        self._waiting = {phase: (k, after) for phase, k, after in crashes}
        self._marks = marks
        self._armed: dict[str, tuple[str, int]] = {}
        self.crashed: list[str] = []
        self.active = True

    def __call__(self, peer: Peer, effect: Effect) -> bool:
        if not self.active:
            return False
        if isinstance(effect, PhaseBegun) and (phase := effect.phase) in self._waiting:
            k, after = self._waiting[phase]
            if k > 1:
                self._waiting[phase] = (k - 1, after)
            else:
                del self._waiting[phase]
                self._armed[peer.name] = (phase, after)
        if peer.name in self._armed:
            phase, after = self._armed[peer.name]
            if after > 0:
                self._armed[peer.name] = (phase, after - 1)
                return False
            del self._armed[peer.name]
            who = "peer crashed while adopting" if phase == "adopting" else f"aggregator crashed while {phase}"
            self._marks.counts[who] += 1
            self.crashed.append(peer.name)
            return True
        return False
