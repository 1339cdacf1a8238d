"""What follows when a round is closed: the same stage again, the next one, or the end of the job.

Pure functions, which the engine calls for every round, however its contributions were combined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from p2pclust.errors import UsageError
from p2pclust.protocols.engine import random_streams
from p2pclust.protocols.engine.arrays import State
from p2pclust.protocols.engine.base import ByColumns, Protocol
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.reasons import HELD, LEFT_OUT, MAX_REASON, NOT_DRAWN
from p2pclust.protocols.engine.round_log import RoundRecord
from p2pclust.protocols.engine.summaries import by_reason

MAX_EMPTY_ROUNDS: Final = 10  # so many rounds in a row without any contribution fail the job
_MOST_REASONS: Final = 4
_MOST_PEERS: Final = 3


def closed(
    job: Job, state: JobState, arrays: State | None, contributors: tuple[int, ...], abstained: Mapping[int, str],
    n_peers: int, *, forgot: bool = False,
) -> JobState:  # fmt: skip
    """Return what follows from a round's arrays (None after an empty one)."""
    protocol = job.protocols[state.stage]
    reasons = {peer: reason[:MAX_REASON] for peer, reason in abstained.items() if reason != NOT_DRAWN}
    if not all(0 <= peer < n_peers for peer in reasons) or set(reasons) & set(contributors):
        raise ValueError(f"peers {sorted(reasons)} cannot abstain beside contributors {contributors} of {n_peers}")
    after = replace(
        state,
        round=state.round + 1,
        stage_round=state.stage_round + 1,
        empty_rounds=0 if contributors else state.empty_rounds + 1,
        log=(*state.log, RoundRecord(state.stage, contributors, reasons, forgot)),
    )
    if arrays is None:
        return _after_empty(job, after, n_peers)
    if not arrays.sound():
        # Such a state could not even be sent.
        return replace(after, status="failed", reason=f"{protocol.id}: the contributions do not give finite numbers")
    stepped = replace(after, arrays=arrays)
    if hopeless := protocol.hopeless(state.arrays, arrays):
        return replace(stepped, status="failed", reason=hopeless)
    # Peers that a privacy gate holds in this stage may contribute to a later one.
    held = any(reason.startswith(HELD) for reason in reasons.values())
    if len(contributors) + len(reasons) == n_peers and not held and (objection := protocol.objection(arrays)):
        return replace(stepped, status="failed", reason=objection)
    steps = sum(1 for record in stepped.log if record.stage == state.stage and record.contributors)
    if protocol.finished(state.arrays, arrays, steps):
        return opened(job, replace(stepped, converged=state.converged or not protocol.evaluates), state.stage + 1)
    return _within_limit(job, stepped)


def _after_empty(job: Job, state: JobState, n_peers: int) -> JobState:
    protocol = job.protocols[state.stage]
    if isinstance(protocol, ByColumns):
        gone = state.log[-1].abstained
        return replace(
            state, status="failed", reason=_none_contributed(protocol, gone, "every peer's columns are needed")
        )
    whole_stage = protocol.asks == "one"
    gone = abstained_in(state, whole_stage=whole_stage)
    if len(by_themselves(gone)) == n_peers:
        instead = protocol.all_abstained(state.arrays, random_streams.opening(job.seed, job.stream(state.stage)))
        if instead is not None:
            return opened(job, replace(state, arrays=instead), state.stage + 1)
        return replace(state, status="failed", reason=_none_contributed(protocol, gone, "no peer can contribute"))
    # Where one is asked per round, a round in which another peer abstained came closer to a peer that can propose.
    came_closer = whole_stage and bool(by_themselves(state.log[-1].abstained))
    if state.empty_rounds >= MAX_EMPTY_ROUNDS and not came_closer:
        story = f"no peer contributed for {state.empty_rounds} rounds in a row"
        return replace(state, status="failed", reason=_none_contributed(protocol, gone, story))
    return _within_limit(job, state)


def _within_limit(job: Job, state: JobState) -> JobState:
    limit = job.protocols[state.stage].round_limit
    if limit is not None and state.stage_round >= limit:
        return opened(job, replace(state, converged=False), state.stage + 1)
    return state


def opened(job: Job, state: JobState, stage: int) -> JobState:
    """Open a stage and those after it that need no round; past the last one the job is done."""
    while stage < len(job.protocols):
        protocol = job.protocols[stage]
        before = state.converged and protocol.evaluates
        fresh = replace(state, stage=stage, stage_round=0, empty_rounds=0, converged=before)
        try:
            fresh = replace(
                fresh, arrays=protocol.open(state.arrays, random_streams.opening(job.seed, job.stream(stage)))
            )
        except UsageError as error:
            return replace(fresh, status="failed", reason=str(error)[:MAX_REASON])
        if not fresh.arrays.sound():
            reason = f"{protocol.id}: cannot begin with numbers that are not finite: are the units of the data odd?"
            return replace(fresh, arrays=state.arrays, status="failed", reason=reason)
        if protocol.needs_rounds(fresh.arrays):
            return fresh
        state, stage = replace(fresh, converged=True), stage + 1
    return replace(state, status="done")


def abstained_in(state: JobState, *, whole_stage: bool) -> dict[int, str]:
    """Return the peers that abstained in this stage, or only in the present run of empty rounds, with reasons."""
    first = 0 if whole_stage else len(state.log) - state.empty_rounds
    gone: dict[int, str] = {}
    for record in state.log[first:]:
        if record.stage == state.stage:
            gone.update(record.abstained)
    return gone


def by_themselves(abstained: Mapping[int, str]) -> dict[int, str]:
    """Return the peers that abstained without being left out."""
    return {peer: reason for peer, reason in abstained.items() if not reason.startswith(LEFT_OUT)}


def _none_contributed(protocol: Protocol, gone: Mapping[int, str], story: str) -> str:
    """Return the story with the reasons, the most common first, and the peers that gave each."""
    ranked = sorted(by_reason(dict(sorted(gone.items()))).items(), key=lambda item: -len(item[1]))
    reasons = [f"{_named(peers)}: {reason}" for reason, peers in ranked[:_MOST_REASONS]]
    if more := sum(len(peers) for _, peers in ranked[_MOST_REASONS:]):
        reasons.append(f"and {more} more")
    return f"{protocol.id}: {story}" + (f" ({'; '.join(reasons)})" if reasons else "")


def _named(peers: Sequence[int]) -> str:
    """Name peers, as :func:`summaries.with_names` finds them.

    >>> _named([4]), _named([0, 1, 3]), _named(range(7))
    ('peer 4', 'peer 0, peer 1, peer 3', 'peer 0, peer 1, peer 2 and 4 more')
    """
    shown = len(peers) if len(peers) <= _MOST_PEERS + 1 else _MOST_PEERS  # a name is as short as "and 1 more"
    names = ", ".join(f"peer {peer}" for peer in peers[:shown])
    return names + (f" and {len(peers) - shown} more" if len(peers) > shown else "")
