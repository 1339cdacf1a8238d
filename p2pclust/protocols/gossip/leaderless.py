"""A round without an aggregator, at one peer: its offer, the next state, and the in-process reference.

The rules are the engine's, except where contributions come together by gossip
(:mod:`p2pclust.protocols.gossip.averaging`). A stage that adds up gets its total from push-sum, up to a tolerance; any
other one gets the list of all contributions, which every peer has, and every peer combines it. Both give the same bits at
every peer, so every peer decides alike: the stop rule, empty rounds, failures, the next stage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

import numpy as np

from p2pclust.clustering.points import Floats
from p2pclust.errors import UsageError, WireError
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.base import Abstain, Additive
from p2pclust.protocols.engine.engine import floats_of
from p2pclust.protocols.engine.exclusions import problems, refuse
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.padded import layout_of
from p2pclust.protocols.engine.reasons import LEFT_OUT, MAX_REASON, NOT_ASKED
from p2pclust.protocols.engine.wire import ContributionReader
from p2pclust.protocols.gossip.averaging import Answer, Averaging, problem_with_tolerance
from p2pclust.protocols.gossip.push_sum import GossipLinks, first_mass, total_of

MOST_BYTES: Final = 6 * 2**20  # of a peer's message in one tick: eight frames of a message hold more


@dataclass(frozen=True)
class Offer:
    """What a peer brings into a round: its answer, and its mass where the stage adds up."""

    answer: Answer
    mass: Floats | None


def proposer_of(job: Job, state: JobState, members: Sequence[int], n_peers: int) -> int:
    """Return the one peer asked in the coming round, the first of the permutation that takes part; -1 if all, or none."""
    if job.protocols[state.stage].asks != "one":
        return -1
    return next((peer for peer in engine.asked(job, state, n_peers) if peer in members), -1)


def offer(job: Job, state: JobState, local: Local, peer: int, n_peers: int, proposer: int) -> Offer:
    """Return what a peer brings into the coming round, given :func:`proposer_of`: a pure function of its arguments."""
    protocol = job.protocols[state.stage]
    mass = None
    try:
        if problem := next(problems(job.fill_in({"collect": "gossip"})), ""):
            raise Abstain(f"failed: {problem}")
        if isinstance(protocol, Additive):
            size = sum(map(math.prod, layout_of(job, state).shapes.values()))
            if 16 * size > MOST_BYTES:
                raise Abstain(f"failed: {size} numbers are more than a message carries to neighbours")
            mass = np.zeros(2 * size)
        if protocol.asks == "one" and peer != proposer:
            raise Abstain(NOT_ASKED)
        contribution = engine.contribution(job, state, local, peer, n_peers)
        if isinstance(protocol, Additive):
            floats = list(floats_of(protocol, state.arrays, contribution).values())
            whole = sum(1 << number for number, values in enumerate(floats) if (np.rint(values) == values).all())
            return Offer(Answer(peer, whole=whole), first_mass(np.concatenate([values.ravel() for values in floats])))
        payload = contribution.encode()
        if len(payload) * (1 if protocol.asks == "one" else n_peers) > MOST_BYTES:
            raise Abstain(f"failed: {len(payload)} bytes are more than a message carries to neighbours")
    except Abstain as abstention:
        return Offer(Answer(peer, abstention.reason[:MAX_REASON]), mass)
    return Offer(Answer(peer, payload=payload), None)


def next_state(
    job: Job, state: JobState, answers: Mapping[int, Answer], estimate: Floats | None, *, n_peers: int, tolerance: float
) -> JobState:
    """Close a round, as the engine does; every peer calls it with the same arguments, but for an estimate of its own.

    The answers are those of all peers that took part. Where the stage adds up, the estimate is the agreed one, or this
    peer's own with an infinite tolerance.
    """
    protocol = job.protocols[state.stage]
    abstained = {p: a.abstains for p, a in sorted(answers.items()) if a.abstains and a.abstains != NOT_ASKED}
    wanted = engine.asked(job, state, n_peers)
    if protocol.asks == "one":
        first = proposer_of(job, state, tuple(answers), n_peers)
        wanted = wanted[: wanted.index(first)] if first >= 0 else wanted
    abstained |= {peer: f"{LEFT_OUT}: out of reach" for peer in wanted if peer not in answers}
    given = [(peer, answer) for peer, answer in sorted(answers.items()) if not answer.abstains]
    if isinstance(protocol, Additive):
        total = Arrays()
        if estimate is not None:
            # A bit for each array of which all numbers of all peers are whole.
            whole = reduce(int.__and__, (answer.whole for _, answer in given), -1)
            shapes = layout_of(job, state).shapes
            sizes = [math.prod(shape) for shape in shapes.values()]
            flags = np.repeat([bool(whole >> number & 1) for number in range(len(sizes))], sizes)
            parts = np.split(total_of(estimate, len(answers), flags, tolerance), np.cumsum(sizes)[:-1])
            total = Arrays({name: part.reshape(shapes[name]) for name, part in zip(shapes, parts, strict=True)})
        return engine.close(job, state, total, tuple(peer for peer, _ in given), abstained, n_peers=n_peers)
    reader = ContributionReader(job, state, n_peers=n_peers)
    contributions = []
    for peer, answer in given:
        try:
            contributions.append((peer, reader.read(answer.payload)))
        except WireError as error:
            abstained[peer] = f"malformed: {error}"
    return engine.advance(job, state, contributions, abstained, n_peers=n_peers)


def run_leaderless(
    job: Job, locals: Sequence[Local], links: GossipLinks, *, tolerance: float = 1e-9, ticks: int = 0,
    on_round: Callable[[JobState, int, float], None] | None = None,
) -> JobState:  # fmt: skip
    """Run a job over these peers in this process, as a fleet without faults would, with the same bits.

    `on_round` is called after every round with the state, the ticks that the round took, and how far the estimate of any
    peer was from the agreed one. Raises UsageError if the job needs an aggregator, or the tolerance cannot be reached on
    this overlay.
    """
    refuse(job.fill_in({"collect": "gossip"}))
    if problem := problem_with_tolerance(tolerance, links.hops):
        raise UsageError(problem)
    if len(links.members) != len(locals) or not links.connected:
        raise UsageError("collect = 'gossip': expected links that connect all peers")
    from p2pclust.protocols.engine.runner import one_thread  # noqa: PLC0415 - no peer runs a whole job

    n_peers = len(locals)
    with one_thread():
        states = [engine.begin(job)] * n_peers
        while states[0].status == "running":
            proposer = proposer_of(job, states[0], links.members, n_peers)
            own_ticks = 0 if engine.settles(job, states[0]) else ticks
            offers = [offer(job, states[peer], local, peer, n_peers, proposer) for peer, local in enumerate(locals)]
            peers = [
                Averaging(links, peer, made.answer, made.mass, tolerance=tolerance, ticks=own_ticks)
                for peer, made in enumerate(offers)
            ]
            while not peers[0].ended:
                sent = [peer.message for peer in peers]
                for peer in peers:
                    peer.step({other: sent[other] for other in peer.neighbours})
            assert all(peer.ended for peer in peers)
            # Equal states and estimates give equal states: where all are, one is enough.
            alike = not own_ticks and all(other is states[0] for other in states)
            states = [
                next_state(
                    job, state, ended.answers, ended.estimate if ended.size else None, n_peers=n_peers,
                    tolerance=math.inf if own_ticks else tolerance,
                )
                for state, ended in list(zip(states, peers, strict=True))[: 1 if alike else None]
            ]  # fmt: skip
            if not own_ticks:
                assert all(other.encode() == states[0].encode() for other in states[1:]), "peers do not agree"
                states = [states[0]] * n_peers
            if on_round is not None:
                on_round(states[0], peers[0].tick, max(peer.reached for peer in peers))
    return states[0]
