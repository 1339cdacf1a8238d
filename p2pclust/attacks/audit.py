"""Do every attack on a job, and count the rows that come back exactly."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.attacks.copies import proposed_rows
from p2pclust.attacks.few_rows import fuzzy_sums_in, rows_solved_for
from p2pclust.attacks.moving_rows import rows_that_moved_alone
from p2pclust.attacks.sights import Sight, sights_of
from p2pclust.protocols.engine import random_streams
from p2pclust.protocols.engine.job import Job
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.round_log import RoundRecord
from p2pclust.protocols.engine.runner import Later, labelling_stage

__all__ = ["EXACTLY", "AttackResult", "audit_job", "recovered"]

Floats = NDArray[np.float64]

#: A row is recovered if each of its values is found to this share of the feature's range.
EXACTLY: Final = 1e-3


@dataclass(frozen=True)
class AttackResult:
    """What one attack brought to one kind of observer.

    Parameters
    ----------
    observer : str
        ``"aggregator"`` sees single peers' contributions, ``"totals"`` only their totals.
    attack : str
    rows : int
        Of all peers that were attacked.
    recovered : int
        How many of these came back exactly.
    seconds : float
    by_peer : mapping of int to int
        The rows that came back, by roster index; empty for totals.
    """

    observer: str
    attack: str
    rows: int
    recovered: int
    seconds: float
    by_peer: Mapping[int, int]

    def to_dict(self, roster: Sequence[str]) -> dict[str, Any]:
        """Return plain values, with the names of peers."""
        by_peer = {roster[peer]: rows for peer, rows in self.by_peer.items()}
        return {
            "observer": self.observer, "attack": self.attack, "rows": self.rows, "recovered": self.recovered,
            "seconds": self.seconds, "peers": by_peer,
        }  # fmt: skip


def audit_job(
    job: Job, locals: Sequence[Local], log: Sequence[RoundRecord], later: Later = (), *,
    observer: str = "aggregator", secured: bool = False, patience_s: float = 20.0,
    clock: Callable[[], float] = time.perf_counter,
) -> list[AttackResult]:  # fmt: skip
    """Attack a job that has ended, with what its rounds showed.

    Parameters
    ----------
    job : Job
    locals : sequence of Local
        The rows of each peer of the roster: what was shown is computed from them again, and what comes back is compared
        with them.
    log : sequence of RoundRecord
        Of the job's last state.
    later : sequence of (int, int, Local)
        Rows that took the place of others; see :func:`p2pclust.protocols.engine.runner.replay`.
    observer : str
        The peer that gets the contributions of single peers.
    secured : bool
        Whether it ran with secure sums.
    patience_s : float
        How long to try to solve for the rows of one peer.
    clock : callable
        Returns seconds.

    Returns
    -------
    list of AttackResult
    """
    ranges = _ranges(locals)
    sights = sights_of(job, locals, log, later, secured=secured)
    by_peer = dict(sorted(sights.by_peer.items()))
    fuzzifier = getattr(labelling_stage(job)[1], "fuzzifier", None)
    attacks: dict[str, Callable[[list[Sight]], Floats]] = {
        "rows that move alone": rows_that_moved_alone,
        "copies in centers": proposed_rows,
    }
    if fuzzifier is not None:
        attacks["least squares over the rounds"] = lambda seen: _solved(job, seen, fuzzifier, patience_s, clock)
    findings = []
    for attack, reads in attacks.items():
        began, found = clock(), {}
        for peer, seen in by_peer.items():
            if hits := recovered(reads(seen), locals[peer].X, ranges):
                found[peer] = hits
        rows = sum(locals[peer].n_samples for peer in by_peer)
        findings.append(AttackResult(observer, attack, rows, sum(found.values()), clock() - began, found))
    began = clock()
    everything = np.concatenate([locals[peer].X for peer in by_peer] or [np.zeros((0, 0))])
    read = rows_that_moved_alone(sights.totals)
    hits = recovered(read, everything, ranges)
    findings.append(AttackResult("totals", "rows that move alone", len(everything), hits, clock() - began, {}))
    return findings


def recovered(found: Floats, rows: Floats, ranges: Floats) -> int:
    """Return how many rows, shape (n, F), have a find within `EXACTLY` of each feature's range.

    Examples
    --------
    >>> recovered(np.array([[0.1], [0.1], [0.7]]), np.array([[0.1], [0.5]]), np.ones(1))
    1
    """
    if not found.size or not rows.size:
        return 0
    hit = np.zeros(len(rows), dtype=bool)
    for one in found:
        hit |= (np.abs(rows - one) <= EXACTLY * ranges).all(axis=1)
    return int(hit.sum())


def _ranges(locals: Sequence[Local]) -> Floats:
    rows = np.concatenate([local.X for local in locals if local.X.size])
    ranges = np.ptp(rows, axis=0)
    return np.where(ranges > 0, ranges, 1.0)


def _solved(
    job: Job, seen: Sequence[Sight], fuzzifier: float, patience_s: float, clock: Callable[[], float]
) -> Floats:  # fmt: skip
    sums = fuzzy_sums_in(seen, fuzzifier)
    if sums is None:
        return np.zeros((0, 0))
    until, public = clock() + patience_s, next(sight.state for sight in reversed(seen) if "origin" in sight.state)
    rng = random_streams.aggregating(job.seed, seen[0].peers[0])
    rows = rows_solved_for(sums, rng, lambda: clock() >= until)
    return np.asarray(public["origin"] + rows * public["scale"])
