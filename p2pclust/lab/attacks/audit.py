"""Do every attack on a job, and count the rows that come back exactly."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain

import numpy as np

from p2pclust.errors import UsageError
from p2pclust.lab.attacks.descriptions import attack_description
from p2pclust.lab.attacks.findings import AttackResult, Floats, ranges_of, recovered
from p2pclust.lab.attacks.models import attack_models, exchanges_models
from p2pclust.lab.attacks.rows import (
    SeenFuzzySums,
    SeenMixtureSums,
    differences,
    fuzzy_sums_in,
    mixture_sums_in,
    proposed_rows,
    rows_from_centers,
    rows_in_differences,
    rows_solved_for,
    rows_that_moved_alone,
    single_rows,
    values_of_single_rows,
)
from p2pclust.lab.attacks.sights import Sight, Sights, sights_of
from p2pclust.protocols.engine import random_streams
from p2pclust.protocols.engine.base import Additive
from p2pclust.protocols.engine.job import Job, RoundRecord
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import Later, labelling_stage, replayed, run_in_process
from p2pclust.protocols.measuring.describe import Describe
from p2pclust.protocols.measuring.description import Description

Solvable = SeenFuzzySums | SeenMixtureSums
#: A job is run again without each of at most so many devices, spread over the roster.
_AGAIN = 10


@dataclass(frozen=True)
class Audit:
    """A job that has ended, and how its peers sent their sums."""

    job: Job
    #: The rows of each peer of the roster: what was shown is computed from them again, and what comes back is compared
    #: with them.
    locals: Sequence[Local]
    log: Sequence[RoundRecord]  # of the job's last state
    later: Later = ()  # rows that took the place of others; see p2pclust.protocols.engine.runner.replay
    observer: str = "aggregator"  # the peer that gets what peers send
    #: The tree along which sums are added up: the parent of each peer, -1 for the aggregator. Empty: each peer sends its
    #: own to the observer.
    parents: Sequence[int] = ()
    secured: bool = False  # whether it ran with secure sums
    groups: Sequence[int] = ()  # the sets of peers whose totals these revealed one by one, as in the job's last state
    patience_s: float = 20.0  # how long to try to solve for the rows of one peer
    clock: Callable[[], float] = time.perf_counter  # returns seconds

    @cached_property
    def sights(self) -> Sights:
        return sights_of(
            self.job, self.locals, self.log, self.later, secured=self.secured, parents=self.parents, groups=self.groups
        )

    @cached_property
    def _ranges(self) -> Floats:
        return ranges_of(self.locals)

    def on_each(
        self, observer: str, attack: str, shown: Mapping[tuple[int, ...], list[Sight]],
        reads: Callable[[list[Sight]], Floats],
    ) -> AttackResult:  # fmt: skip
        """Attack what was shown of each peer, of each branch of the tree, or of each group."""
        began, found = self.clock(), dict.fromkeys(chain.from_iterable(shown), 0)
        for peers, seen in sorted(shown.items()):
            read = reads(seen)
            for peer in peers:
                found[peer] = max(found[peer], recovered(read, self.locals[peer].X, self._ranges))
        return self._result(observer, attack, sum(self.locals[peer].n_samples for peer in found), began, found)

    def on_all(self, observer: str, attack: str, reads: Callable[[], Floats]) -> AttackResult:
        began = self.clock()
        sent = sorted(set(chain.from_iterable(self.sights.sent)))
        read = reads()
        hits = sum(recovered(read, self.locals[peer].X, self._ranges) for peer in sent)
        rows = sum(self.locals[peer].n_samples for peer in sent)
        return AttackResult(observer, attack, rows, hits, self.clock() - began, {})

    def _result(self, observer: str, attack: str, rows: int, began: float, found: Mapping[int, int]) -> AttackResult:
        by_peer = {peer: hits for peer, hits in sorted(found.items()) if hits}
        return AttackResult(observer, attack, rows, sum(by_peer.values()), self.clock() - began, by_peer)

    def on_values(self, observer: str, fuzzifier: float | None) -> AttackResult:
        """Count the rows of each peer of which a category is known, because no other row of their cluster has the value."""
        began, found = self.clock(), dict.fromkeys(chain.from_iterable(self.sights.sent), 0)
        for peers, seen in self.sights.sent.items():
            if len(peers) == 1:  # of several peers it is not known whose row it is
                found[peers[0]] = max(values_of_single_rows(sight, self.job.levels, fuzzifier) for sight in seen)
        rows = sum(self.locals[peer].n_samples for peer in found)
        return self._result(observer, "values of single rows", rows, began, found)

    def solved(self, seen: Sequence[Sight], read: Callable[[Sequence[Sight]], Solvable | None]) -> Floats:
        sums = read(seen) if len(seen[0].peers) == 1 else None
        if sums is None:
            return np.zeros((0, 0))
        until = self.clock() + self.patience_s
        public = next(sight.state for sight in reversed(seen) if "origin" in sight.state)
        rng = random_streams.aggregating(self.job.seed, seen[0].peers[0])
        rows = rows_solved_for(sums, rng, lambda: self.clock() >= until)
        return np.asarray(public["origin"] + rows * public["scale"])

    def on_two_runs(
        self, observer: str, attack: str, changed: Callable[[Local], Local],
        seen: Callable[[Sights, int], list[Sight]], reads: Callable[[list[Sight]], Floats], *, whole: bool,
    ) -> AttackResult:  # fmt: skip
        """Run the job again with changed rows of each of some devices, and read what two runs show of it differently.

        All rows of the device are looked for, or (not `whole`) its last one, which only one of the runs has.
        """
        locals_ = list(self.locals)
        began, found, n_rows = self.clock(), {}, 0
        first = self._again(locals_)
        able = [
            n for n, one in enumerate(locals_) if one.n_samples >= (1 if whole else 2) and not self._problem_with(one)
        ]
        for place in np.unique(np.linspace(0, len(able) - 1, min(len(able), _AGAIN)).round()):
            peer = able[int(place)]
            other = self._again([*locals_[:peer], changed(locals_[peer]), *locals_[peer + 1 :]])
            rows = locals_[peer].X if whole else locals_[peer].X[-1:]
            found[peer] = recovered(reads(differences(seen(first, peer), seen(other, peer))), rows, self._ranges)
            n_rows += len(rows)
        return self._result(observer, attack, n_rows, began, found)

    def _problem_with(self, local: Local) -> str:
        return local.problem_if(keeps_gaps=labelling_stage(self.job)[1].keeps_gaps)

    def _again(self, locals_: Sequence[Local]) -> Sights:
        job, groups = self.job, self.groups
        return sights_of(job, locals_, run_in_process(job, locals_, groups=groups).log, groups=groups)


def audit_job(audit: Audit) -> list[AttackResult]:
    """Attack a job with what its rounds showed; refuse peers that hold columns, and noise that cannot be drawn again.

    >>> from p2pclust.protocols.engine.compose import cluster_job
    >>> peers = [Local([[0.0], [1.0]]), Local([[8.0], [9.0]])]
    >>> job = cluster_job("llf-cm", n_clusters=2, init=[[0.0], [9.0]])
    >>> found = audit_job(Audit(job, peers, run_in_process(job, peers).log, clock=lambda: 0.0))
    >>> found[0].observer, found[0].attack, found[0].recovered
    ('aggregator', 'rows that move alone', 0)
    """
    job = audit.job
    audit = replace(audit, locals=[job.rows(local) for local in audit.locals])
    if job.by_columns:
        raise UsageError(f"audit: the attacks are on rows; the peers of {job.protocols[job.main].id} hold columns")
    if job.mu_squared > 0.0:
        raise UsageError("audit: its noise cannot be drawn again: a private job promises epsilon and delta instead")
    if exchanges_models(job):
        return attack_models(job, audit.locals, clock=audit.clock)
    observer, main, sights = audit.observer, labelling_stage(job)[1], audit.sights
    if isinstance(main, Describe):
        *_, last = replayed(job, audit.locals, audit.log, audit.later, audit.groups)
        rows = {peer: audit.locals[peer].X for peer in audit.log[-1].contributors}
        described = Description.of(job, last)
        return attack_description(sights, rows, described, last.arrays["ranks"], audit.clock, observer)
    copies = audit.on_each(observer, "copies in centers", sights.sent, proposed_rows)
    if not isinstance(main, Additive):
        return [copies]  # it sends centers, and no sums of rows
    # Of a fuzzy job this reads the crisp sums of its start.
    found = [audit.on_each(observer, "rows that move alone", sights.sent, rows_that_moved_alone), copies]
    read: Callable[[Sequence[Sight]], Solvable | None] | None = None
    if (fuzzifier := getattr(main, "fuzzifier", None)) is not None:
        read = partial(fuzzy_sums_in, fuzzifier=fuzzifier)
    elif (covariances := getattr(main, "covariance_type", None)) is not None:
        read = partial(mixture_sums_in, covariance_type=covariances)
    if read is not None:
        solve = partial(audit.solved, read=read)
        found.append(audit.on_each(observer, "least squares over the rounds", sights.sent, solve))
    found += [
        audit.on_each(observer, "clusters of one row", sights.sent, single_rows),
        *([audit.on_values(observer, fuzzifier)] if job.levels else []),
        audit.on_all("totals", "rows that move alone", lambda: rows_that_moved_alone(sights.totals)),
    ]
    if groups := sights.groups:  # whose totals secure sums reveal one by one
        found.append(audit.on_each("group totals", "rows that move alone", groups, rows_that_moved_alone))
        found.append(audit.on_each("group totals", "clusters of one row", groups, single_rows))
    if read is None:
        found.append(audit.on_all("any peer", "rows between two centers", lambda: rows_from_centers(sights.states)))
    return [
        *found,
        # Without one device the totals differ by what it showed; with one row more its sums differ by that row.
        audit.on_two_runs(
            "two runs", "without one device", lambda local: local.refusing("is away"), _seen_of, rows_in_differences,
            whole=True,
        ),
        audit.on_two_runs(
            "two turns", "a new row", _without_the_last,
            _seen_of if audit.secured else lambda sights, peer: sights.sent.get((peer,), []),
            lambda sights: single_rows(sights[:1]), whole=False,
        ),
    ]  # fmt: skip


def _seen_of(sights: Sights, peer: int) -> list[Sight]:
    """Return the sums of several peers in which a peer's contributions are: of its group, or of all."""
    return next((seen for peers, seen in sights.groups.items() if peer in peers), sights.totals)


def _without_the_last(local: Local) -> Local:
    labels, weights = (None if array is None else array[:-1] for array in (local.labels, local.weights))
    other = Local(local.X[:-1], labels=labels, weights=weights, n_clusters=local.n_clusters)
    other.levels = local.levels
    return other
