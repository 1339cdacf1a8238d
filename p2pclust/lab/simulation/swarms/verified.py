"""The swarm of jobs with ``verify = "all"``: the same faults, and an aggregator that lies about what it adds up.

Of two seeds one has a job with secure sums. One peer lies, but not about its own contribution: whatever it opens that
does not follow from the signed answers must be adopted by no other peer, and the job must end with the honest bits.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from p2pclust.lab.simulation.swarms import secure
from p2pclust.lab.simulation.swarms.lies import LIES, Made, falsified
from p2pclust.lab.simulation.swarms.overlays import laid_out
from p2pclust.lab.simulation.swarms.plan import SwarmPlan, draw
from p2pclust.lab.simulation.swarms.swarm import DEADLINE_S, SeedResult, Swarm
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.peer.core.events import Submit
from p2pclust.peer.core.rounds.job import AggregatedJob
from p2pclust.peer.core.tasks import Outcome, StateMade
from p2pclust.peer.work.verified import Verifier
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.secure.proofs import Proof


class VerifiedSwarm(Swarm):
    """One run of a plain job with verify."""

    keyed = True
    #: An aggregator that lies is left after its first lie only, and may have to be elected to lie.
    deadline_s = 2 * DEADLINE_S

    def __init__(self, plan: SwarmPlan) -> None:
        super().__init__(plan)
        _let_one_lie(self)

    def _request(self, data: bytes, named: str) -> Submit:
        """With verify; in two of three seeds the first aggregator is the liar."""
        request = super()._request(data, named)
        named = request.treatment.aggregator if self.plan.seed % 3 == 0 else self.liar
        return replace(request, treatment=replace(request.treatment, verify="all", aggregator=named))

    def _may_wipe(self) -> bool:
        """A majority of peers that have intact stores and do not lie must be left."""
        wiped = sum(peer.wiped for peer in self.world.peers.values())
        return wiped + 2 <= (len(self.names) - 1) // 2


class VerifiedSecureSwarm(VerifiedSwarm, secure.SecureSwarm):
    """One run of a job with verify and secure sums."""

    may_repeat = False  # the liar lies in other ways

    deadline_s = secure.SecureSwarm.deadline_s


def _let_one_lie(swarm: Swarm) -> None:
    """Let one peer of a swarm falsify states that it makes, and watch what becomes of them."""
    rng = np.random.default_rng([swarm.plan.seed, 5])
    liar, refutations = swarm.liar, swarm.refutations
    kind = str(rng.choice([*LIES, "nothing"]))
    often = float(rng.choice([0.3, 1.0]))

    def falsify(peer: Peer, outcome: Outcome) -> Outcome:
        if peer.name != liar or not isinstance(outcome, StateMade) or kind == "nothing" or rng.random() >= often:
            return outcome
        made = _made(swarm, peer, outcome)
        lie = None if made is None else falsified(kind, made)
        if lie is None:
            return outcome
        state, info = lie
        ref = peer.keep(state.encode(), swarm.plan.limits)
        if kind != "called final":  # there the state itself is true
            refutations.lies[swarm.marks.job, ref.digest] = kind
        swarm.marks.counts[f"lie: {kind}"] += 1
        return StateMade(ref, info)

    swarm.world.falsify = falsify


def _made(swarm: Swarm, peer: Peer, outcome: StateMade) -> Made | None:
    """Return what a lie is made of, or None if the state is none that answers led to."""
    state = JobState.decode(peer.bytes_of(outcome.ref))
    assert peer.core is not None
    job = peer.core.jobs.jobs[swarm.marks.job]
    assert isinstance(job, AggregatedJob)
    document, keys = job.document, job.keys
    if not state.proof or not Proof.decode(state.proof).answers or state.status != "running":
        return None
    assert keys is not None
    assert peer.working.secrets is not None
    verifier = Verifier(swarm.job, len(document.roster), keys, peer.working.secrets)
    return Made(state, outcome.info, document.index(peer.name), verifier)


def run(seed: int, *, overlay: str | None = None) -> SeedResult[SwarmPlan]:
    """Run one seed, on a full mesh or an overlay that is ``sparse`` or ``moving``."""
    if seed % 3 == 2:
        plan = laid_out(secure.planned(seed), overlay)
        return VerifiedSecureSwarm(replace(plan, collect="star")).go()
    return VerifiedSwarm(replace(laid_out(draw(seed), overlay), collect="star")).go()
