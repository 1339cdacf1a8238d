"""The only caller of protocols: what to do when a round has all, some or none of its contributions.

Pure functions. The in-process runner, the simulator and the peers of a fleet all go through them, so all three have
the same bits. The rules, once:

- A round asks the peers of :func:`asked`. Where one peer is enough, exactly one is asked per round: the first of the
  list that is not dead. A peer that abstained in this stage is not asked again.
- A round without contributions is empty. It is not a step: the arrays stay as they are, and no stop rule is met except
  the limit of rounds.
- The job fails when every roster peer abstained by itself (in this stage where one is asked; in the present run of
  empty rounds otherwise), or after ten empty rounds in a row.
- Additive contributions are rounded once, by the peer that receives them, to integers on a grid that follows from the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering.kernels import NUMPY, Kernel, installed, using
from p2pclust.errors import P2PClustError, UsageError
from p2pclust.protocols.engine import random_streams, summaries
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State, all_finite
from p2pclust.protocols.engine.base import (
    Abstain,
    Additive,
    ByColumns,
    Clustering,
    Protocol,
    Remembering,
    WithWorkspace,
)
from p2pclust.protocols.engine.fixed_point import GridError, dequantise_all, in_units, quantise_all
from p2pclust.protocols.engine.job import Job, JobState, RoundRecord
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.reasons import (
    CANCELLED,
    HELD,
    IMPLAUSIBLE,
    LEFT_OUT,
    MAX_REASON,
    NOT_DRAWN,
    without_values,
)
from p2pclust.protocols.engine.wire import matches
from p2pclust.protocols.engine.workspace import Wants, Workspace

MAX_EMPTY_ROUNDS: Final = 10  # so many rounds in a row without any contribution fail the job
_MOST_REASONS: Final = 4
_MOST_PEERS: Final = 3

Peers = int | tuple[int, ...]  # a roster index, or several where their contributions were added up


class Group(tuple[int, ...]):
    """Peers whose total counts as one contribution in a stage that looks at what single peers contribute."""

    __slots__ = ()


@dataclass
class Memory:
    """What an aggregator remembers of a job beside its state: sent to no peer, and lost with its process.

    :func:`advance` reads and replaces the value. The caller keeps one such object per job, and only as long as it
    closes every round itself.
    """

    value: NDArray[Any] | None = None


@contextmanager
def _mathematics(job: Job, threads: int = 1) -> Iterator[None]:
    """Let the job's kernel be in force, and NumPy not warn of what is not finite: it is found, by name, where it matters.

    Where the kernel is not installed it is NumPy: such a device may still aggregate.
    """
    kernel = _kernel(job.kernel if job.kernel in installed() else NUMPY, threads)
    with using(kernel), np.errstate(all="ignore"):
        yield


_kernel = lru_cache(maxsize=8)(Kernel)


def begin(job: Job) -> JobState:
    """Return the state before the first round; stages that need no round are passed at once."""
    state = JobState(0, 0, 0, "running", "", False, 0, (), Arrays())
    with _mathematics(job):
        return _opened(job, state, 0)


def asked(job: Job, state: JobState, n_peers: int) -> tuple[int, ...]:
    """Return the peers that are asked in the coming round.

    Where the stage asks all: the drawn participants, sorted; every one of them is asked. Where it asks one: the seed's
    permutation without those that abstained in this stage; only the first alive of it is asked.
    """
    protocol = job.protocols[state.stage]
    if protocol.asks == "one":
        order = random_streams.proposers(job.seed, n_peers)
        gone = _abstained_in(state, whole_stage=True)
        # A peer that was silent once is asked again when no other peer is left.
        return tuple(p for p in order if p not in gone) or tuple(p for p in order if p not in by_themselves(gone))
    if not protocol.draws or job.participation == 1.0:
        return tuple(range(n_peers))
    return random_streams.participants(job.seed, state.round, n_peers, job.participation)


def settles(job: Job, state: JobState) -> bool:
    """Return whether the coming round of a job without an aggregator ends only when all estimates agree."""
    return job.protocols[state.stage].settles(state.arrays, _steps(state))


def _steps(state: JobState) -> int:
    """Count the rounds of the present stage that made a step."""
    return len([record for record in state.log if record.stage == state.stage and record.contributors])


def wants(job: Job, state: JobState, workspace: Workspace, n_peers: int) -> Wants:
    """Return what a peer needs in its workspace before it can contribute to the coming round; nothing if it is not asked."""
    protocol = job.protocols[state.stage]
    if not isinstance(protocol, WithWorkspace) or workspace.peer not in asked(job, state, n_peers):
        return Wants()
    return protocol.wants(state.arrays, workspace)


def contribution(
    job: Job, state: JobState, local: Local, peer: int, n_peers: int, workspace: Workspace | None = None,
    *, entropy: Callable[[int], bytes] | None = None,
) -> Contribution:  # fmt: skip
    """Return what a peer contributes to the coming round: a pure function of its arguments.

    If the stage is additive, these are int64 limbs of shape (limbs, ...) per array, which add up in any order. The
    workspace has what :func:`wants` asked for, as far as it could be fetched; a protocol without one ignores it.

    ``entropy`` returns as many secret random bytes as it is asked for. A stage that is private by noise needs it; the
    noise is in the contribution. Other stages ignore it. Raises Abstain if the peer was not drawn, has no usable data,
    or the protocol withholds its contribution.
    """
    protocol = job.protocols[state.stage]
    raw = _raw(job, state, local, peer, n_peers, workspace, noise=entropy is not None)
    if not isinstance(protocol, Additive):
        return raw
    try:
        limbs = quantise_all(raw, protocol.units(state.arrays), n_peers=n_peers, limbs=protocol.limbs)
    except GridError as error:
        raise _off_the_grid(raw, error) from None
    if protocol.noisy and entropy is not None:
        for name, noise in protocol.noise(state.arrays, n_peers, entropy).items():
            limbs[name][0] += noise
    return Arrays(limbs)


def sent(
    job: Job, state: JobState, local: Local, peer: int, n_peers: int, workspace: Workspace | None = None
) -> Contribution:  # fmt: skip
    """Return what a peer sends as its contribution, and abstain as :func:`contribution` does.

    Of an additive stage without noise these are float64, which have a third of the bytes; :class:`ContributionReader`
    returns the same limbs for them.
    """
    protocol = job.protocols[state.stage]
    if not isinstance(protocol, Additive) or protocol.noisy:
        return contribution(job, state, local, peer, n_peers, workspace)
    raw = _raw(job, state, local, peer, n_peers, workspace, noise=False)
    try:
        in_units(raw, protocol.units(state.arrays), n_peers=n_peers)
    except GridError as error:
        raise _off_the_grid(raw, error) from None
    others = {name: own.astype(np.float64) for name, own in raw.items() if own.dtype != np.float64}
    return raw.replace(**others) if others else raw


def _off_the_grid(raw: Contribution, error: GridError) -> Abstain:
    _refuse_infinite(raw)
    return Abstain(f"failed: {error}")


def _raw(
    job: Job, state: JobState, local: Local, peer: int, n_peers: int, workspace: Workspace | None, *, noise: bool
) -> Contribution:  # fmt: skip
    """Return what the protocol contributes, checked: of an additive one floats that are not yet rounded to the grid."""
    protocol = job.protocols[state.stage]
    if protocol.asks == "all" and peer not in asked(job, state, n_peers):
        raise Abstain(NOT_DRAWN)
    if job.kernel not in installed():
        raise Abstain(f"this device has no kernel {job.kernel}: install p2pclust on it where there is a C compiler")
    local = job.rows(local)
    refusal = local.refused or protocol.problem_with_rows(state.arrays, local)
    if refusal:
        raise Abstain(refusal)
    if isinstance(protocol, Additive) and protocol.noisy and not noise:
        raise Abstain(f"failed: {protocol.id} must add noise, and this run has no secret source of noise")
    rng = random_streams.lazily(random_streams.peer_round, job.seed, peer, state.round)
    # A value that overflows is caught below, by name, where it would leave the peer; a warning would not help.
    with _mathematics(job, local.threads):
        try:
            if isinstance(protocol, WithWorkspace):
                raw = protocol.contribute_with(state.arrays, local, rng, workspace or Workspace(peer))
            else:
                raw = protocol.contribute(state.arrays, local, rng)
        except P2PClustError as error:  # The mathematics refuses these rows: only this peer is stopped.
            raise Abstain(f"failed: {without_values(str(error))}") from None
    if local.lie is not None:
        raw = local.lie(local, state.arrays, raw)
    expected = protocol.expects(state.arrays)
    assert list(raw) == list(expected), f"{protocol.id} contributed {raw}, not {list(expected)}"
    for name, slot in expected.items():
        own = raw[name]
        assert own.shape == slot.shape or matches(own.shape, slot.shape), f"{protocol.id}: {name} has shape {own.shape}"
        assert isinstance(protocol, Additive) or own.dtype == slot.dtype, f"{protocol.id}: {name} is {own.dtype}"
    if not isinstance(protocol, Additive):
        _refuse_infinite(raw)
    return raw


def advance(
    job: Job, state: JobState, contributions: Iterable[tuple[Peers, Contribution]], abstained: Mapping[int, str], *,
    n_peers: int, memory: Memory | None = None,
) -> JobState:  # fmt: skip
    """Close a round of a running job and return the next state.

    - `contributions`: in roster order. Read once, and one by one if the stage is additive; then also sums, of the peers
      in a tuple, in any order. Where one peer is asked and several answered, the first of the permutation counts.
    - `abstained`: the peers that answered without contributing. Those that were not drawn are dropped from the record.
    - `n_peers`: size of the roster.
    - `memory`: of the round before; empty, or left out, if this aggregator did not close it.
    """
    if state.status != "running":
        raise ValueError(f"the job is {state.status}: it has no further round")
    memory = Memory() if memory is None else memory
    protocol = job.protocols[state.stage]
    forgot = isinstance(protocol, Remembering) and state.stage_round > 0 and memory.value is None
    # What is not finite in the end fails the job, with a reason; a warning would not help.
    with _mathematics(job):
        arrays, contributors, left_out = _combined(job, protocol, state, contributions, n_peers, memory)
        # Only now: a caller that reads the contributions lazily may have found a malformed one, and named its peer.
        abstained = {**abstained, **left_out}
        least = protocol.least_contributors(n_peers) if isinstance(protocol, Additive) else 0
        if 0 < len(contributors) < least:  # fewer peers added noise than its privacy counts on
            few = f"{protocol.id}: {len(contributors)} peers contributed, and the noise of {least} is needed"
            return replace(state, status="failed", reason=few)
        after = _closed(job, state, arrays, contributors, abstained, n_peers, forgot=forgot)
    if after.status != "running" or after.stage != state.stage:
        memory.value = None
    return after


def cancelled(state: JobState, by: str, *, alone: bool = False) -> JobState:
    """Return the final state of a cancelled job; keep the arrays so far.

    Where they are this peer's own (`alone`) they are left out, because all peers end with the same state.

    >>> from p2pclust.protocols.engine.compose import cluster_job
    >>> ended = cancelled(begin(cluster_job("llf-cm", n_clusters=2)), "meter-01")
    >>> ended.status, ended.reason
    ('failed', 'cancelled by meter-01')
    """
    reason = f"{CANCELLED}{by}"[:MAX_REASON]
    return replace(state, status="failed", reason=reason, arrays=Arrays() if alone else state.arrays)


def close(
    job: Job, state: JobState, total: Arrays, contributors: tuple[int, ...], abstained: Mapping[int, str], *,
    n_peers: int,
) -> JobState:  # fmt: skip
    """Close a round of an additive stage whose total was found in another way than by adding up integers.

    The total has the floats that the stage expects; it is ignored if no peer contributed. Return as :func:`advance`.
    """
    protocol = job.protocols[state.stage]
    if state.status != "running" or not isinstance(protocol, Additive):
        raise ValueError(f"the job is {state.status} in stage {state.stage}: expected a running, additive one")
    with _mathematics(job):
        arrays = protocol.combine(state.arrays, total) if contributors else None
        return _closed(job, state, arrays, contributors, abstained, n_peers)


def conclude(job: Job, state: JobState, local: Local, workspace: Workspace | None = None) -> Arrays:
    """Return what a peer keeps of a finished job: ``labels`` (n,) of its rows, or nothing if they do not fit.

    A protocol with a workspace concludes from its note, and from the blobs of :func:`results`.
    """
    protocol, local = job.protocols[state.stage], job.rows(local)
    if isinstance(protocol, WithWorkspace):
        assert workspace is not None
        rng = random_streams.lazily(random_streams.peer_round, job.seed, workspace.peer, state.round)
        return protocol.conclude_with(state.arrays, local, rng, workspace)
    usable = local.X.size and not local.problem_if(keeps_gaps=protocol.keeps_gaps)
    if usable and protocol.suits(state.arrays, local):
        with _mathematics(job, local.threads), job.stages[state.stage].calling("conclude"):
            return protocol.conclude(state.arrays, local)
    return Arrays()


def news(job: Job, before: JobState, after: JobState) -> dict[str, Any]:
    """Return what logs and reports may show of a round that was closed, in plain values."""
    if not after.log or not after.log[-1].contributors:
        return {}
    return dict(job.protocols[before.stage].news(before.arrays, after.arrays))


def shift(job: Job, before: JobState, after: JobState) -> dict[str, Any]:
    """Return how far a round that was closed moved what is clustered by, in plain values; nothing if it moved nothing.

    ``shift`` is the Frobenius norm in working coordinates; ``moved`` names what moved where it is not the centers.
    """
    if job.protocols[before.stage].evaluates:
        return {}
    if "centers" in before.arrays and "centers" in after.arrays:
        moved = after.arrays["centers"] - before.arrays["centers"]
        return {"shift": float((moved * moved).sum()) ** 0.5}
    protocol = job.protocols[before.stage]
    last = (summaries.shifts(after) or [None])[-1]
    if job.by_columns and isinstance(protocol, Clustering) and last is not None:
        return {"shift": last, "moved": protocol.moves}
    return {}


def results(job: Job, state: JobState) -> tuple[bytes, ...]:
    """Return the digests of the blobs that belong to the result of a finished job."""
    protocol = job.protocols[state.stage]
    return protocol.results(state.arrays) if isinstance(protocol, WithWorkspace) and state.status == "done" else ()


def own_results(job: Job, state: JobState, note: Arrays) -> tuple[bytes, ...]:
    """Return the digests of the blobs that the peer with this note needs to conclude and that no other peer has."""
    protocol = job.protocols[state.stage]
    return protocol.own_results(state.arrays, note) if isinstance(protocol, WithWorkspace) else ()


def _closed(
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
    if problem := protocol.problem_with_step(state.arrays, arrays):
        return replace(stepped, status="failed", reason=problem)
    # Peers that a privacy gate holds in this stage may contribute to a later one.
    held = any(reason.startswith(HELD) for reason in reasons.values())
    if len(contributors) + len(reasons) == n_peers and not held and (problem := protocol.problem_with_all_rows(arrays)):
        return replace(stepped, status="failed", reason=problem)
    if protocol.finished(state.arrays, arrays, _steps(stepped)):
        return _opened(job, replace(stepped, converged=state.converged or not protocol.evaluates), state.stage + 1)
    return _within_limit(job, stepped)


def _after_empty(job: Job, state: JobState, n_peers: int) -> JobState:
    protocol = job.protocols[state.stage]
    if isinstance(protocol, ByColumns):
        gone = state.log[-1].abstained
        story = f"{protocol.id}: every peer's columns are needed{reasons_of(gone)}"
        return replace(state, status="failed", reason=story)
    whole_stage = protocol.asks == "one"
    gone = _abstained_in(state, whole_stage=whole_stage)
    if len(by_themselves(gone)) == n_peers:
        instead = protocol.all_abstained(state.arrays, random_streams.opening(job.seed, job.stream(state.stage)))
        if instead is not None:
            return _opened(job, replace(state, arrays=instead), state.stage + 1)
        return replace(state, status="failed", reason=f"{protocol.id}: no peer can contribute{reasons_of(gone)}")
    # Where one is asked per round, a round in which another peer abstained came closer to a peer that can propose.
    came_closer = whole_stage and bool(by_themselves(state.log[-1].abstained))
    if state.empty_rounds >= MAX_EMPTY_ROUNDS and not came_closer:
        story = f"no peer contributed for {state.empty_rounds} rounds in a row"
        return replace(state, status="failed", reason=f"{protocol.id}: {story}{reasons_of(gone)}")
    return _within_limit(job, state)


def _within_limit(job: Job, state: JobState) -> JobState:
    protocol = job.protocols[state.stage]
    if protocol.round_limit is not None and state.stage_round >= protocol.round_limit:
        last = replace(state, arrays=protocol.at_limit(state.arrays), converged=False)
        return _opened(job, last, state.stage + 1)
    return state


def _opened(job: Job, state: JobState, stage: int) -> JobState:
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


def _abstained_in(state: JobState, *, whole_stage: bool) -> dict[int, str]:
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


def reasons_of(gone: Mapping[int, str]) -> str:
    """Return in brackets, after a space, why peers do not contribute, the most frequent reasons first; or an empty string.

    >>> reasons_of({0: "no data", 1: "too few rows", 2: "no data"})
    ' (peer 0, peer 2: no data; peer 1: too few rows)'
    """
    ranked = sorted(summaries.by_reason(dict(sorted(gone.items()))).items(), key=lambda item: -len(item[1]))
    reasons = [f"{_named(peers)}: {reason}" for reason, peers in ranked[:_MOST_REASONS]]
    if more := sum(len(peers) for _, peers in ranked[_MOST_REASONS:]):
        reasons.append(f"and {more} more")
    return f" ({'; '.join(reasons)})" if reasons else ""


def _named(peers: Sequence[int]) -> str:
    """Name peers, as :func:`summaries.with_names` finds them.

    >>> _named([4]), _named([0, 1, 3]), _named(range(7))
    ('peer 4', 'peer 0, peer 1, peer 3', 'peer 0, peer 1, peer 2 and 4 more')
    """
    shown = len(peers) if len(peers) <= _MOST_PEERS + 1 else _MOST_PEERS  # a name is as short as "and 1 more"
    names = ", ".join(f"peer {peer}" for peer in peers[:shown])
    return names + (f" and {len(peers) - shown} more" if len(peers) > shown else "")


def _combined(
    job: Job, protocol: Protocol, state: JobState, contributions: Iterable[tuple[Peers, Contribution]], n_peers: int,
    memory: Memory,
) -> tuple[State | None, tuple[int, ...], Mapping[int, str]]:  # fmt: skip
    """Return the arrays of the next state (None after an empty round), the contributors, and the peers left out."""
    if isinstance(protocol, Additive) and protocol.one_by_one:
        return _robustly_combined(protocol, state, contributions)
    if isinstance(protocol, Additive):
        total, peers = added_up(contributions, n_peers)
        if total is None or (isinstance(protocol, ByColumns) and len(peers) < n_peers):
            return None, peers, {}
        return protocol.combine(state.arrays, floats_of(protocol, state.arrays, total)), peers, {}
    given: list[tuple[int, Contribution]] = []
    for peer, part in contributions:
        if isinstance(peer, tuple) or not (given[-1][0] if given else -1) < peer < n_peers:
            raise ValueError(
                f"contribution of peer {peer} after {[before for before, _ in given]}: not in roster order"
            )
        given.append((peer, part))
    if protocol.asks == "one" and given:
        order = random_streams.proposers(job.seed, n_peers)
        given = [min(given, key=lambda item: order.index(item[0]))]
    left_out = protocol.problems_with_parts(state.arrays, given) if given else {}
    kept = [(peer, part) for peer, part in given if peer not in left_out]
    peers, parts = tuple(peer for peer, _ in kept), [part for _, part in kept]
    if not kept or (isinstance(protocol, ByColumns) and len(kept) < n_peers):
        return None, peers, left_out
    if isinstance(protocol, Remembering):
        # Gone if the step fails half way, for it may be changed in place.
        known, memory.value = memory.value if state.stage_round > 0 else None, None
        arrays, memory.value = protocol.combine_remembering(state.arrays, parts, known)
        return arrays, peers, left_out
    return protocol.combine(state.arrays, kept if isinstance(protocol, WithWorkspace) else parts), peers, left_out


def _robustly_combined(
    protocol: Additive, state: JobState, contributions: Iterable[tuple[Peers, Contribution]]
) -> tuple[State | None, tuple[int, ...], Mapping[int, str]]:
    """Return what :func:`_combined` does, of a stage that looks at single contributions."""
    given: dict[tuple[int, ...], Arrays] = {}
    for peer, part in contributions:
        senders = (peer,) if isinstance(peer, int) else tuple(peer)
        if not isinstance(peer, int | Group) or senders in given:
            raise ValueError(f"{protocol.id} needs the contribution of each peer by itself, and not a sum")
        given[senders] = floats_of(protocol, state.arrays, part)
    found = {peers: protocol.problem_with_addend(state.arrays, peers, part) for peers, part in sorted(given.items())}
    left_out = {
        peer: f"{IMPLAUSIBLE}{'the total of its group: ' if len(peers) > 1 else ''}{problem}"
        for peers, problem in found.items()
        for peer in (peers if problem else ())
    }
    kept = {peers: given[peers] for peers, problem in found.items() if not problem}
    if not kept:
        return None, (), left_out
    contributors = tuple(sorted(peer for peers in kept for peer in peers))
    return protocol.combine_each(state.arrays, kept), contributors, left_out


def added_up(
    contributions: Iterable[tuple[Peers, Contribution]], n_peers: int
) -> tuple[Contribution | None, tuple[int, ...]]:
    """Add up contributions of different peers to an additive stage, read one by one, in any order.

    Return the total, the same bits in whatever order and through whatever sums (None without any contribution), and the
    peers whose contributions are in it, in roster order.
    """
    first: Contribution | None = None
    total: dict[str, NDArray[np.int64]] = {}
    peers: dict[int, None] = {}
    for given, part in contributions:
        senders = given if isinstance(given, tuple) else (given,)
        if not peers.keys().isdisjoint(senders) or not 0 <= min(senders) <= max(senders) < n_peers:
            raise ValueError(f"contribution of peers {senders} after {list(peers)}: one counts twice, or is of no peer")
        peers.update(dict.fromkeys(senders))
        if first is None:
            first = part
            continue
        total = total or {name: np.array(limbs) for name, limbs in first.items()}
        for name, limbs in total.items():
            np.add(limbs, part[name], out=limbs)
    return (Arrays(total) if total else first), tuple(sorted(peers))


def floats_of(protocol: Additive, state: State, contribution: Contribution) -> Arrays:
    """Return the floats that the limbs of a contribution, or of a total, stand for."""
    return Arrays(dequantise_all(contribution, protocol.units(state)))


def _refuse_infinite(raw: Contribution) -> None:
    for name, array in raw.items():
        if not all_finite(array):
            raise Abstain(f"failed: {name} is not finite")
