"""What is measured of a job that is done: against true labels, the pooled algorithm, and the replay of its record.

It needs all rows in one place. A scenario has them, because it dealt them out; no peer does. Where peers hold columns, no
peer has whole centers either; the scenario writes each peer's own columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering import kmeans_plusplus, objective, run_steps
from p2pclust.clustering.gaps import GappedPoints
from p2pclust.data import DataSet
from p2pclust.errors import PluginError, UsageError
from p2pclust.lab.attacks.findings import AttackResult
from p2pclust.lab.testbed.faults import Damage
from p2pclust.lab.testbed.peer.lies import lie_called
from p2pclust.metrics import accuracy, adjusted_rand_index, center_distance
from p2pclust.protocols.engine import engine, random_streams, runner, summaries
from p2pclust.protocols.engine.base import Clustering
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.tools.spelling import counted

if TYPE_CHECKING:
    pass

Floats = NDArray[np.float64]
_Measure = TypeVar("_Measure")
#: Of a feature's range: a lossless protocol promises no more.
_ROUNDING: Final = 1e-9
#: The number of pooled runs from k-means++ seeds.
STARTS: Final = 10
_TOL: Final = 1e-4
_ROUNDS: Final = 100
#: With a larger product of rows, columns and clusters, ten runs would take minutes.
_MOST: Final = 20_000_000
#: The relative difference from which on a run is clearly better.
_BETTER: Final = 0.01
_NAMED: Final = 5  # the most peers that are named


def contributed(job: Job, state: JobState) -> list[int]:
    """Return the peers that contributed to the clustering, by their places in the job roster."""
    stage, _ = runner.labelling_stage(job)
    return sorted({peer for record in state.log if record.stage == stage for peer in record.contributors})


@dataclass(eq=False)
class MeasuredEvidence:
    """What measuring a job finds and `result.json` does not hold: pictures are made from it."""

    centers: Floats | None = None  # the fleet's, in the data's units, shape (C, F)
    pooled: Floats | None = None  # the pooled centers, in the fleet's order, shape (C, F)
    trail: runner.Trail = field(default_factory=runner.Trail)  # the path of the fleet's centers
    failures: list[str] = field(default_factory=list)  # what could not be measured: the code of a plug-in failed

    def compare(self, centers: Floats, pooled: Floats, ranges: Floats) -> None:
        """Keep both, the pooled ones in the order that fits the fleet's best, with each feature in its range."""
        from scipy.optimize import linear_sum_assignment  # noqa: PLC0415 - slow to import

        with np.errstate(over="ignore", invalid="ignore"):
            apart = np.square((centers[:, np.newaxis] - pooled) / ranges).sum(axis=2)
        apart = np.nan_to_num(apart, nan=1e300, posinf=1e300)
        self.centers, self.pooled = centers, pooled[linear_sum_assignment(apart)[1]]


@dataclass(frozen=True)
class AuditedJob:
    """What the attacks on one job found; jobs are numbered from 1."""

    number: int
    protocol: str
    roster: Sequence[str]
    findings: Sequence[AttackResult]

    def most(self, finding: AttackResult) -> str:
        """Return the peers with the most rows that an attack found, with their number, in words."""
        ordered = sorted(finding.by_peer.items(), key=lambda item: -item[1])
        named = ", ".join(f"{self.roster[peer]} {rows}" for peer, rows in ordered[:_NAMED])
        return named + (f" and {len(ordered) - _NAMED} more" if len(ordered) > _NAMED else "")

    def to_dicts(self) -> list[dict[str, Any]]:
        return [{"job": self.number, **finding.to_dict(self.roster)} for finding in self.findings]


@dataclass(frozen=True, eq=False)
class Done:
    """A job that is done, with all that it is measured by."""

    job: Job
    state: JobState
    shares: Mapping[str, DataSet]  # every peer's rows, or columns, by name, in roster order
    given: Mapping[str, Floats]  # each peer's columns of the first centers, if peers that hold columns were given them
    damage: Sequence[Damage]  # rows that replaced those of peers, and lies, in the order of rounds
    evidence: MeasuredEvidence  # receives what measuring finds in addition to the entry
    tolerance: float | None = None  # how closely peers agreed on sums, if gossip approximates them

    @cached_property
    def locals_(self) -> list[Local]:
        if not self.job.by_columns:
            return [self.job.rows(Local(share.X)) for share in self.shares.values()]
        return [Local(share.X, ids=share.shared_ids, centers=self.given.get(n)) for n, share in self.shares.items()]

    @cached_property
    def later(self) -> runner.Later:
        """The data that replaced them, and liars: the round, the peer's place, and the rows."""
        now, found = list(self.locals_), []
        for one in self.damage:
            place = list(self.shares).index(one.peer)
            now[place] = (
                now[place].lying(lie_called(one.how)) if one.lie else self.job.rows(now[place].with_rows(one.X))
            )
            found.append((one.round, place, now[place]))
        return found

    @property
    def groups(self) -> tuple[int, ...]:
        """Of a job with secure sums: the sets of roster indices whose totals were revealed one by one."""
        return () if self.state.secured is None else self.state.secured.groups

    @property
    def liars(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one.peer for one in self.damage if one.lie))

    @property
    def replays(self) -> bool:
        """Whether the in-process replay of the recorded proposers and contributors has the same bits."""
        try:
            for step in runner.replayed(self.job, self.locals_, self.state.log, self.later, self.groups):
                if not self.job.by_columns:
                    self.evidence.trail.follow(step)
        except UsageError:
            return False  # the record does not belong to this job over these rows
        # A replay has the same rounds, and no keys.
        return step.encode() == self.state.plain().encode()

    def attempt(self, measure: Callable[[], _Measure]) -> _Measure | None:
        """Measure something; where the code of a plug-in fails, keep the reason as evidence and return None."""
        try:
            return measure()
        except PluginError as error:
            if str(error) not in self.evidence.failures:
                self.evidence.failures.append(str(error))
            return None


def measured(done: Done) -> dict[str, Any]:
    """Return the measures for the job's entry of ``jobs``."""
    if done.job.by_columns:
        return done.attempt(lambda: _of_columns(done)) or {}
    protocol, there = runner.labelling_stage(done.job)[1], contributed(done.job, done.state)
    shares, locals_ = list(done.shares.values()), done.locals_
    entry: dict[str, Any] = {
        "n_rows": sum(shares[peer].n_rows for peer in there),
        "metrics": done.attempt(lambda: _scores_of_rows(done, there)) or {},
        "replay_identical": None if done.job.mu_squared else done.replays,
    }
    if not isinstance(protocol, Clustering):
        return entry
    centers = summaries.raw_centers(done.state)
    entry["centers"] = centers.tolist()
    if done.job.levels:
        entry["features"] = list(done.job.center_columns(shares[0].feature_names))
    if done.job.mu_squared:
        return entry  # its noise cannot be drawn again, so there is nothing to compare it with but the labels
    # Over all rows that were used, also the damaged ones.
    ranges = _ranges([*locals_, *(rows for _, _, rows in done.later if not rows.problem)])
    entry["harm"] = done.attempt(lambda: _harm(done, centers)) if done.later else None
    entry |= done.attempt(lambda: _against_pooling(done, centers, ranges)) or {}
    best = done.attempt(lambda: best_pooled(done.job, done.state, [locals_[peer] for peer in there]))
    return entry | ({"best_pooled": best} if best else {})


def _of_columns(done: Done) -> dict[str, Any]:
    held = list(done.locals_)  # the data at the end, from which each peer computes its columns of the centers
    for _, peer, rows in done.later:
        held[peer] = rows
    concluded = [engine.conclude(done.job, done.state, local) for local in held]
    own = [found["centers"] for found in concluded]
    truth = next(iter(done.shares.values())).y
    entry: dict[str, Any] = {
        "n_rows": held[0].n_samples,
        "metrics": {} if truth is None else _scores([truth], [concluded[0]["labels"]]),
        "replay_identical": done.replays,
        "own_centers": {
            name: {"features": share.feature_names, "centers": part.tolist()}
            for (name, share), part in zip(done.shares.items(), own, strict=True)
        },
    }
    if any(begins > 0 for begins, _, _ in done.later):
        return entry  # the peers compute centers from the new rows, which no pooled algorithm does
    ranges = np.concatenate([_ranges([local]) for local in held])
    return entry | _against_pooling(done, np.concatenate(own, axis=1), ranges)


def _against_pooling(done: Done, centers: Floats, ranges: Floats) -> dict[str, Any]:
    """Compare with pooling: ``pooled`` of a lossless protocol, otherwise ``gap``, in units of the features' ranges."""
    job, log, evidence = done.job, done.state.log, done.evidence
    protocol = runner.clustering_stage(job)[1]
    if protocol.lossless:
        evidence.centers, evidence.pooled = centers, runner.pooled(job, done.locals_, log, done.later, done.groups)
        apart = np.abs(centers - evidence.pooled).max(axis=0)
        relative = float((apart / ranges).max())
        why = _why_apart(done) if not relative <= _ROUNDING else ""
        return {"pooled": {"max_abs_difference": float(apart.max()), "relative_difference": relative, "why": why}}
    found = runner.pooled_run(job, done.locals_, log, done.later, done.groups)
    evidence.compare(centers, found.centers, ranges)
    # With the best matching, because an aggregator that clusters centers may change their order.
    distance = center_distance(found.centers / ranges, centers / ranges)
    rounds = {"pooled_rounds": found.n_rounds, "pooled_converged": found.converged}
    return {"gap": {"to": f"pooled {protocol.pooled_name}", "center_distance": distance, **rounds}}


def _why_apart(done: Done) -> str:
    """Say why a lossless protocol did not find the centers of the pooled algorithm, as far as its record shows it."""
    arrays, found = done.state.arrays, []
    if (suppressed := int(arrays.get("suppressed", 0))) > 0:
        least = max((local.least_cell(2) for local in done.locals_), default=2)
        rows = "one row" if least == 2 else f"fewer than {least} rows"
        found.append(f"{counted(suppressed, 'sums')} of {rows} {'was' if suppressed == 1 else 'were'} suppressed")
    if (coarse := summaries.coarse(done.state)) > 0:
        found.append(f"{counted(coarse, 'centers')} lay too far from all rows for the grid of the sums")
    if done.tolerance is not None:
        found.append(f"gossip agrees on sums only within {done.tolerance:.1g}")
    return "; ".join(found)


def _scores_of_rows(done: Done, there: Sequence[int]) -> dict[str, float]:
    shares = list(done.shares.values())
    there = [peer for peer in there if list(done.shares)[peer] not in done.liars]
    truth = [y for peer in there if (y := shares[peer].y) is not None]
    if not truth or len(truth) < len(there):
        return {}
    ends = [engine.conclude(done.job, done.state, done.locals_[peer]) for peer in there]
    own = [end["labels"] for end in ends if "labels" in end]
    if len(own) < len(ends):
        return {}
    scores = _scores(truth, own)
    if not isinstance(runner.labelling_stage(done.job)[1], Clustering):
        # As in FedCRef's paper: each peer by itself, with its own best matching.
        scores["peer_accuracy"] = float(np.mean([accuracy(*pair) for pair in zip(truth, own, strict=True)]))
    return scores


def _scores(truth: Sequence[NDArray[Any]], own: Sequence[NDArray[Any]]) -> dict[str, float]:
    # The labels become text if one file has numbers and another has words.
    known, labels = np.concatenate(truth), np.concatenate(own)
    return {"ari": adjusted_rand_index(known, labels), "accuracy": accuracy(known, labels)}


def _harm(done: Done, centers: Floats) -> dict[str, Any] | None:
    run = (done.job, done.locals_, done.state.log, (), done.groups)
    lossless = runner.clustering_stage(done.job)[1].lossless
    try:
        sound = runner.pooled(*run) if lossless else runner.pooled_run(*run).centers
    except UsageError:
        return None  # with undamaged rows a peer that contributed would have abstained
    ranges = _ranges(done.locals_)
    return {"to": "the sound rows", "center_distance": center_distance(sound / ranges, centers / ranges)}


def _ranges(locals_: Sequence[Local]) -> Floats:
    """Return each feature's range over all rows; that of a constant feature is 1, as in min-max scaling."""
    low = np.min([local.range()[0] for local in locals_], axis=0)
    high = np.max([local.range()[1] for local in locals_], axis=0)
    return np.where(high > low, high - low, 1.0)


@dataclass(frozen=True)
class PooledStarts:
    """The comparison of the fleet's centers with the best of several pooled runs."""

    starts: int  # the number of runs
    objective: float  # of the best run, in squared working coordinates
    excess: float  # relative, of the objective of the fleet's centers over the same rows; negative if it is smaller

    @property
    def words(self) -> str:
        of = f"the best of {self.starts} pooled starts"
        if self.excess == float("inf"):
            return f"above {of}, which is 0"
        apart = 100 * abs(self.excess)
        return f"the same as {of}" if apart < 5e-3 else f"{apart:.2g} % {'above' if self.excess > 0 else 'below'} {of}"

    @property
    def doubt(self) -> str:
        """A warning if a pooled run is clearly better, else an empty string."""
        if self.excess <= _BETTER:
            return ""
        smaller = 100.0 if self.excess == float("inf") else 100 * self.excess / (1 + self.excess)
        return (
            f"the best of {self.starts} pooled starts has an objective {smaller:.3g} % smaller: try a larger n_init, or "
            "another init"
        )


def best_pooled(job: Job, state: JobState, locals_: Sequence[Local]) -> PooledStarts | None:
    """Cluster the pooled rows from ten k-means++ seeds, and compare the best result with the fleet's centers.

    `locals_` are the rows of the peers that contributed. None if peers hold columns, if rows came in batches, if the
    protocol minimises something else, or if there are too many numbers.
    """
    stage, protocol = runner.clustering_stage(job)
    C = protocol.n_clusters
    n_rows = sum(local.n_samples for local in locals_)
    other = job.by_columns or "batch" in state.arrays or not protocol.least_squares
    if other or not C <= n_rows <= _MOST / (C * locals_[0].n_features):
        return None
    fuzzifier: float | None = getattr(protocol, "fuzzifier", None)
    with runner.one_thread(), job.stages[stage].calling("pooled_step"):
        pool = protocol.pool(state.arrays, locals_)
        points = pool.points
        rngs = [random_streams.pooled_start(job.seed, start) for start in range(STARTS)]
        whole = points.filled() if isinstance(points, GappedPoints) else points
        firsts = [kmeans_plusplus(whole, C, rng) for rng in rngs]
        ends = [run_steps(protocol.pooled_step, points, first, tol=_TOL, max_rounds=_ROUNDS) for first in firsts]
        costs = [
            objective(points, centers, fuzzifier) for centers in (state.arrays["centers"], *(e.centers for e in ends))
        ]
    own, best = costs[0], min(costs[1:])
    excess = own / best - 1.0 if best > 0.0 else 0.0 if own == 0.0 else float("inf")
    return PooledStarts(STARTS, best, excess)
