"""Aggregators that depart from the rules of secure sums: after a total they open the same numbers again, without one peer.

The one that has both totals goes on as if the second one had never been, so no state names the set of that one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.rounds.job import AggregatedJob
from p2pclust.peer.core.tasks import Outcome, StateMade
from p2pclust.peer.work.secure_tasks import SecureRound
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.secure.secured import Maker
from p2pclust.tools.bit_sets import members_of

if TYPE_CHECKING:
    from p2pclust.lab.simulation.swarms.swarm import Swarm

_SEEDS_WITH_LIARS = 0.25
_OFTEN = 0.5


def let_them_repeat(swarm: Swarm) -> bool:
    """In some seeds, let all aggregators open siblings of padded states; return whether this is one of them."""
    rng = np.random.default_rng([swarm.plan.seed, 8])
    if rng.random() >= _SEEDS_WITH_LIARS:
        return False

    siblings: dict[bytes, JobState] = {}  # by digest: the state that follows from the first total

    def falsify(peer: Peer, outcome: Outcome) -> Outcome:
        if not isinstance(outcome, StateMade) or peer.core is None:
            return outcome
        job = peer.core.jobs.jobs[swarm.marks.job]
        register = job.ledger.register
        if register.ref is None:
            return outcome
        before, after = (JobState.decode(peer.bytes_of(ref)) for ref in (register.ref, outcome.ref))
        if after.round == before.round:
            return outcome  # no total came before it
        maker = Maker(job.document.index(peer.name), job.ledger.term, register.round + 1)
        if register.ref.digest in siblings:
            return _made(peer, swarm, job.document, _by(siblings[register.ref.digest], maker))
        if after.status != "running" or rng.random() >= _OFTEN:
            return outcome
        swarm.marks.counts["total asked for again"] += 1
        made = _made(peer, swarm, job.document, _without_one(_by(before, maker), rng))
        siblings[made.ref.digest] = after
        return made

    swarm.world.falsify = falsify
    return True


def _by(state: JobState, maker: Maker) -> JobState:
    part = state.secured
    assert part is not None
    return state if part.wants_keys else replace(state, secured=replace(part, maker=maker))


def _without_one(state: JobState, rng: np.random.Generator) -> JobState:
    part = state.secured
    assert part is not None
    others = [peer for peer in members_of(part.asked) if peer != part.maker.index]
    victim = others[int(rng.integers(len(others)))]
    absent = {**part.absent, victim: "left out: late"}
    return replace(state, secured=replace(part, asked=part.asked & ~(1 << victim), absent=absent))


def _made(peer: Peer, swarm: Swarm, document: Document, state: JobState) -> StateMade:
    """Return the state as the worker would; the liar's own core must be able to go on with it."""
    assert peer.core is not None
    assert peer.working.secrets is not None
    job = peer.core.jobs.jobs[document.id]
    assert isinstance(job, AggregatedJob)
    assert job.keys is not None
    at = SecureRound(swarm.job, state, len(document.roster), job.keys, peer.working.secrets)
    return StateMade(peer.keep(state.encode(), swarm.plan.limits), at.info())
