"""What each peer showed in a job: its contributions round by round, as the peer that adds them up reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Additive, WithWorkspace
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.round_log import RoundRecord
from p2pclust.protocols.engine.runner import Later, replayed, rows_at
from p2pclust.protocols.engine.sums import added_up, floats_of

__all__ = ["Sight", "of_single_peers", "of_totals"]


@dataclass(frozen=True)
class Sight:
    """What was shown in one round, beside the state, which every peer has.

    Parameters
    ----------
    peers : tuple of int
        The roster indices of the peers whose contributions are added up in it; one, if it is of a single peer.
    round, stage : int
    state : State
        The arrays that the contributions were computed from.
    shown : Arrays
        The contribution or the sum, as floats.
    """

    peers: tuple[int, ...]
    round: int
    stage: int
    state: State
    shown: Arrays


def of_single_peers(
    job: Job, locals: Sequence[Local], log: Sequence[RoundRecord], later: Later = ()
) -> Iterator[Sight]:
    """Yield what each contributor showed in each round of a job that is replayed."""
    for state, record, given in _rounds(job, locals, log, later):
        for peer, contribution in given:
            yield Sight((peer,), state.round, record.stage, state.arrays, _floats(job, state, contribution))


def of_totals(job: Job, locals: Sequence[Local], log: Sequence[RoundRecord], later: Later = ()) -> Iterator[Sight]:
    """Yield the total of each additive round of a job that is replayed: what is left to see with secure sums."""
    for state, record, given in _rounds(job, locals, log, later):
        if isinstance(job.protocols[state.stage], Additive):
            total, peers = added_up(given, len(locals))
            if total is not None:
                yield Sight(peers, state.round, record.stage, state.arrays, _floats(job, state, total))


def _rounds(
    job: Job, locals: Sequence[Local], log: Sequence[RoundRecord], later: Later
) -> Iterator[tuple[JobState, RoundRecord, list[tuple[int, Contribution]]]]:
    """Yield the state, the record and the contributions of each round."""
    for state, record in zip(replayed(job, locals, log, later), log, strict=False):
        if isinstance(job.protocols[state.stage], WithWorkspace):
            continue  # its contributions are no sums of rows
        rows = rows_at(locals, later, state.round)
        yield state, record, [(i, engine.contribution(job, state, rows[i], i, len(rows))) for i in record.contributors]


def _floats(job: Job, state: JobState, contribution: Contribution) -> Arrays:
    protocol = job.protocols[state.stage]
    return floats_of(protocol, state.arrays, contribution) if isinstance(protocol, Additive) else contribution
