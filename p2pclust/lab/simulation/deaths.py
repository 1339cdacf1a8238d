"""One death in each phase of a job: whether the others end it, and which peers its result lists as exposed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgpack
import numpy as np

from p2pclust.lab.simulation.fleets.marks import aggregates
from p2pclust.lab.simulation.world.network import Conditions, Network
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.lab.simulation.world.world import World
from p2pclust.peer.core.events import Submit
from p2pclust.peer.core.rounds.job import AggregatedJob
from p2pclust.peer.core.timing import Limits, preset
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine import secure_rounds
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.local import Local

#: The phases of a job, in its order. A plain job exchanges no keys.
PHASES: Final = ("keys", "first centers", "a round is open", "contributions under way", "between rounds", "the end")
_KEYS, _CENTERS, _OPEN, _UNDER_WAY, _BETWEEN, _END = PHASES
_ROWS: Final = 40
_ROUNDS: Final = 5
_MEET_S: Final = 30.0
#: How long the others have. Every wait of the agent is over by then, some of them twice.
_ENDS_WITHIN_S: Final = 300.0


@dataclass(frozen=True)
class Death:
    """The outcome of one run."""

    phase: str
    stalled: bool  # the others have not ended the job
    exposed: bool  # the result lists the dead peer as exposed
    others_exposed: bool  # or another one
    lost: bool  # the job failed


class _Fleet:
    """A fleet with keys, and a job with default options that it has accepted; all of it follows from the seed."""

    def __init__(self, seed: int, n_peers: int, *, secure: bool) -> None:
        rng = np.random.default_rng([seed, n_peers])
        self.names = [f"p{index:02d}" for index in range(n_peers)]
        rows = {name: Local(rng.normal(20 * rng.integers(0, 3, (_ROWS, 1)), 5.0, (_ROWS, 2))) for name in self.names}
        network = Network(Conditions(delay_s=(0.001, 0.02)), np.random.default_rng([seed, 1]))
        self.world = World(rows, network, preset("fast"), Limits(), np.random.default_rng([seed, 2]), keyed=True)
        self.world.workers.task_s = (0.001, 0.02)
        for name in self.names:
            self.world.start(name)
        assert self.world.run_until(_MEET_S, self._all_see_all), "the peers did not find each other"
        self.job = cluster_job("llf-cm", n_clusters=3, tol=0.0, max_rounds=_ROUNDS, seed=seed, secure=secure)
        submit = Submit(bytes(msgpack.packb(self.job.to_dict())), treatment=Treatment(secure=secure))
        self.world.step(self.world.peers[str(rng.choice(self.names))], submit)
        self._states: dict[bytes, JobState] = {}

    def _all_see_all(self) -> bool:
        cores = (peer.core for peer in self.world.peers.values())
        return all(core is not None and core.membership.all_here() for core in cores)

    def jobs(self) -> Iterator[tuple[Peer, AggregatedJob]]:
        """Yield the peers that run and know the job, and the job there."""
        for peer in self.world.peers.values():
            for job in () if peer.core is None else peer.core.jobs.jobs.values():
                assert isinstance(job, AggregatedJob)
                yield peer, job

    def ended(self) -> bool:
        """Return whether all peers that run have ended the job."""
        running = sum(peer.core is not None for peer in self.world.peers.values())
        return sum(job.ledger.finished for _, job in self.jobs()) == running

    def state(self, peer: Peer, job: AggregatedJob) -> JobState:
        """Return the state in a register, which is not empty."""
        ref = job.ledger.register.ref
        assert ref is not None
        if ref.digest not in self._states:
            self._states[ref.digest] = JobState.decode(peer.bytes_of(ref))
        return self._states[ref.digest]

    def phase(self) -> str:
        """Return the phase of the job at its aggregator; empty where there is none, or before the first state."""
        for peer, job in self.jobs():
            term = job.term
            if term is None or not aggregates(peer, job.id) or term.phase == "describing":
                continue
            if term.phase == "closing":
                return _END
            state = self.state(peer, job)
            if state.secured is not None and state.secured.wants_keys:
                return _KEYS
            if self.job.stages[state.stage].protocol != "llf-cm":
                return _CENTERS
            if term.phase == "combining":
                return _BETWEEN
            return _OPEN if len(term.waits_for()) == len(self.names) else _UNDER_WAY
        return ""


def deaths(seed: int, n_peers: int, *, secure: bool) -> Iterator[Death]:
    """Run a job once to learn its events; then, for each phase, again until one of these, at which a peer dies for good."""
    fleet = _Fleet(seed, n_peers, secure=secure)
    events: dict[str, list[int]] = {}

    def look() -> bool:
        if phase := fleet.phase():
            events.setdefault(phase, []).append(fleet.world.n_events)
        return fleet.ended()

    assert fleet.world.run_until(fleet.world.now + _ENDS_WITHIN_S, look), "the job did not end although all peers lived"
    rng = np.random.default_rng([seed, n_peers, 3])
    for phase in PHASES:
        if phase not in events:
            continue
        at = int(rng.choice(list(dict.fromkeys(events[phase]))))
        fleet = _Fleet(seed, n_peers, secure=secure)
        fleet.world.run_until(fleet.world.now + _ENDS_WITHIN_S, partial(_happened, fleet.world, at))
        dead = int(rng.integers(n_peers))
        fleet.world.crash(fleet.names[dead])
        stalled = not fleet.world.run_until(fleet.world.now + _ENDS_WITHIN_S, fleet.ended)
        finals = [fleet.state(peer, job) for peer, job in fleet.jobs() if job.ledger.finished]
        exposed = {peer for state in finals if state.secured for peer in secure_rounds.exposed_peers(state)}
        failed = not stalled and any(state.status != "done" for state in finals)
        yield Death(phase, stalled, dead in exposed, bool(exposed - {dead}), failed)


def _happened(world: World, event: int) -> bool:
    return world.n_events >= event
