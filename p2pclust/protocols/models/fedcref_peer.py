"""What one peer does in each phase of FedCRef, with its rows, its note, and the blobs of its workspace."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering.autoencoders import Architecture, ModelStack
from p2pclust.clustering.dec import deep_embedded_clustering
from p2pclust.clustering.local_starts import number_of_clusters, pca_kmeans, pca_mixture
from p2pclust.clustering.points import Floats
from p2pclust.clustering.stacks import reconstruction_errors, train
from p2pclust.errors import WireError
from p2pclust.protocols.engine import random_streams
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Abstain
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.reasons import HELD
from p2pclust.protocols.engine.workspace import Run, Workspace
from p2pclust.protocols.models import affinity, mutual_test
from p2pclust.protocols.models.fedavg import refuse_beyond
from p2pclust.protocols.models.fedcref_agreed import MOST_CLUSTERS, Agreed
from p2pclust.protocols.models.fedcref_note import UNASSIGNED, Halves, Note, concluded, digests
from p2pclust.protocols.models.fedcref_parameters import Pace
from p2pclust.protocols.models.refinement import agreement, competing, refine_by_best_models, refine_by_popularity

if TYPE_CHECKING:
    from p2pclust.protocols.models.fedcref import FedCRefProtocol

MOST_BYTES: Final = 64 * 2**20  # of errors that a peer remembers: a million rows under 16 models, or 10,000 under 1,600
# Models of others are decoded so many at a time: all of them would be some hundred megabytes.
_MODELS_AT_ONCE: Final = 16
_NO_ITERATION: Final = -1  # of a note before the first exchange

_MAX_SEED: Final = 2**62

Ints = NDArray[np.int64]


def generators(rng: np.random.Generator, count: int) -> list[np.random.Generator]:
    """Return so many generators, each of its own, that follow from this one."""
    return [np.random.Generator(np.random.PCG64(int(seed))) for seed in rng.integers(_MAX_SEED, size=count)]


class KnownErrors:
    """The errors of one peer's rows under the models that were asked for last, at most :data:`MOST_BYTES` of them.

    They are in memory only. A peer that restarts computes them again, with the same bits: always of all rows at once,
    because where a row stands may change the last bit.
    """

    def __init__(self) -> None:
        self._job: Hashable = None
        self._columns: dict[bytes, NDArray[np.float32]] = {}  # by model; the one that was asked for last comes last

    @staticmethod
    def holds(n_rows: int, n_models: int) -> bool:
        """Return whether the errors of so many rows under so many models can all be kept."""
        return n_rows * n_models * np.dtype(np.float32).itemsize <= MOST_BYTES

    def of(self, job: Hashable, models: Sequence[bytes], compute: Callable[[list[bytes]], Floats]) -> Floats:
        """Return the errors of all rows under these models, by digest, shape (n, M); the same may come twice.

        - `job`: all that errors depend on, except rows and models. What is known of another job is forgotten.
        - `compute`: returns the errors (n, m) under the models that are not known. They are float32 numbers. A column
          with one that is not finite is not kept: there may be a model later on.
        """
        if job != self._job:
            self.forget()
            self._job = job
        columns, wanted = dict(self._columns), list(dict.fromkeys(models))
        missing = [model for model in wanted if model not in columns]
        if missing:
            columns.update(zip(missing, compute(missing).T.astype(np.float32), strict=True))
        # What is finite and fits is kept, what was wanted last before all else.
        kept, left = [], MOST_BYTES
        for model in reversed([*(model for model in columns if model not in set(wanted)), *wanted]):
            if columns[model].nbytes <= left and np.isfinite(columns[model]).all():
                kept.append(model)
                left -= columns[model].nbytes
        self._columns = {model: columns[model] for model in reversed(kept)}
        return np.stack([columns[model] for model in models], axis=1).astype(np.float64) if models else compute([])

    def forget(self) -> None:
        self._job, self._columns = None, {}


@dataclass(frozen=True)
class AtWork:
    """One peer in one round."""

    job: FedCRefProtocol
    architecture: Architecture
    state: State
    agreed: Agreed
    local: Local
    workspace: Workspace

    # -- what the peer has ----------------------------------------------------------------------------------------------

    @cached_property
    def X(self) -> Floats:  # noqa: N802 - the usual name of rows
        """Its rows in working coordinates, shape (n, F)."""
        rows = self.local.points(self.state).X
        refuse_beyond(rows, self.job.output)
        return rows

    @property
    def _note(self) -> Note | None:
        """The peer's note; None before its first partition, and if it is of other rows."""
        note = Note.of(self.workspace.note)
        return None if note is None or note.labels.shape != (self.local.n_samples,) else note

    def _current(self, note: Note) -> bool:
        # A peer that was away when models were exchanged has an older one.
        return note.iteration == self.agreed.iteration

    def _begun(self, rng: np.random.Generator) -> Note:
        """Return the note that a peer begins with: labels, and K_i."""
        job, given = self.job, self.local.labels
        if job.initial == "given":
            if given is None:
                raise Abstain("failed: initial = 'given', but this peer was given no labels")
            wanted = self._wanted(rng, np.unique(given).size)
            found = given
        else:
            wanted = self._wanted(rng, None)
            if job.initial == "dec":
                found = deep_embedded_clustering(self.X, wanted, rng, device=job.device).labels
            else:
                found = (pca_kmeans if job.initial == "kmeans" else pca_mixture)(self.X, wanted, rng)
        labels = np.unique(found, return_inverse=True)[1].astype(np.int64)
        return Note(self.workspace.peer, labels, 0, _NO_ITERATION, wanted, len(self.agreed.history), labels)

    def _wanted(self, rng: np.random.Generator, found: int | None) -> int:
        """Return K_i: the job's, the device's, that of the labels it was given, or what the rows look like."""
        for number in (self.job.n_local_clusters, self.local.n_clusters, found):
            if number is not None:
                return number
        return number_of_clusters(self.X, range(2, self.job.most_local_clusters + 1), rng)

    def _keep(self, note: Note) -> None:
        self.workspace.keep(note.arrays(self.state))

    def pace(self, wanted: int) -> Pace:
        """How this peer trains models of its own, from its rows for each of the clusters that it is to have."""
        return self.job.pace(self.local.n_samples / max(1, wanted))

    def decoded(self, digest: bytes) -> ModelStack | None:
        """Return a model, or None if it could not be fetched or its bytes are not a model."""
        data = self.workspace.read(digest) if any(digest) else None
        if data is None:
            return None
        try:
            return ModelStack.decode(self.architecture, [data], self.job.encoding)
        except WireError:
            return None

    def errors(self, X: Floats, models: Sequence[bytes]) -> Floats:
        """Return the error of each row under each model, shape (n, M); infinite where there is no such model."""
        found = np.full((len(X), len(models)), np.inf)
        for start in range(0, len(models), _MODELS_AT_ONCE):
            stop = min(start + _MODELS_AT_ONCE, len(models))
            decoded = [(m, stack) for m in range(start, stop) if (stack := self.decoded(models[m])) is not None]
            if decoded and len(X):
                stack = ModelStack.concatenate([one for _, one in decoded])
                found[:, [m for m, _ in decoded]] = reconstruction_errors(
                    stack, X, device=self.job.device, precision=self.job.precision
                )
        return found

    def errors_of_all(self, models: Sequence[bytes]) -> Floats:
        """Return the same for all rows of the peer; what was computed before is not computed again."""
        known = self.local.once(KnownErrors, KnownErrors)
        job, scaling = self.job, (self.state["origin"].tobytes(), self.state["scale"].tobytes())
        one = (self.agreed.stream, *scaling, self.architecture, job.encoding, job.precision, job.device)
        found = known.of(one, models, lambda missing: self.errors(self.X, missing))
        # A model that is gone has no say, whether its errors are known or not: a peer that restarted would not know them.
        found[:, [m for m, digest in enumerate(models) if self.workspace.read(digest) is None]] = np.inf
        return found

    # -- own models of isolated clusters --------------------------------------------------------------------------------

    @cached_property
    def _sides(self) -> Ints:
        """Which half each row of the peer is in, the same in all rounds of a job.

        Drawn: rows often come in some order, and every second row may be of one kind.
        """
        drawn = random_streams.halving(self.agreed.stream, self.workspace.peer)
        return drawn.permutation(self.local.n_samples) % 2

    def train_halves(
        self, known: Halves, rows: Mapping[int, Ints], rng: np.random.Generator, *, pace: Pace, epochs: int, rate: float
    ) -> Halves:
        """Train two models of each of these own clusters that no other peer has, from the known ones or random weights.

        A model that has seen a row serves it better than one that has not: a single model of an isolated cluster would
        keep the rows that it was trained on indefinitely, though a community may be what they belong to. So each is
        trained on one half of the rows, and judges the other. Clusters whose training diverged are not among those
        returned. The models are not sent.
        """
        names = [(q, half) for q in sorted(rows) for half in (0, 1)]
        if not names:
            return {}
        rngs = generators(rng, len(names))
        starts, parts = [], []
        for (q, half), own in zip(names, rngs, strict=True):
            before = self.decoded(known[q][half]) if q in known else None
            starts.append(ModelStack.random(self.architecture, [own]) if before is None else before)
            parts.append(self.X[rows[q][self._sides[rows[q]] == half]])
        trained = train(
            ModelStack.concatenate(starts), parts, rngs=rngs, epochs=epochs, batch=pace.batch, learning_rate=rate,
            device=self.job.device,
        )  # fmt: skip
        found = {}
        for number, q in enumerate(sorted(rows)):
            pair = trained[[2 * number, 2 * number + 1]]
            if pair.finite.all():
                one, other = (self.workspace.publish(data) for data in pair.encode(self.job.encoding))
                found[q] = (one, other)
        return found

    def train_clusters(self, rng: np.random.Generator) -> Contribution:
        """Phase 1: a model of each cluster (lines 7 to 9)."""
        note = self._note or self._begun(rng)
        # Models of an earlier iteration, if they are all here still.
        kept = [self.workspace.read(digest) for digest in note.models] if note.trained else []
        if kept and None not in kept:
            return self._entered(note, note.labels, kept)
        labels = note.labels
        # Communities of the last iteration and own clusters alike are clusters now, numbered without gaps.
        names = [name for name in np.unique(labels).tolist() if name != UNASSIGNED]
        members = [rows for name in names if len(rows := np.flatnonzero(labels == name)) >= self.job.min_rows]
        if not members:
            raise Abstain(f"{HELD}: no cluster has the {self.job.min_rows} rows that a model needs (min_rows)")
        rngs, pace = generators(rng, len(members)), self.pace(note.wanted)
        trained = train(
            ModelStack.random(self.architecture, rngs), [self.X[rows] for rows in members], rngs=rngs,
            epochs=pace.epochs, batch=pace.batch, learning_rate=self.job.learning_rate, device=self.job.device,
        )  # fmt: skip
        sound = np.flatnonzero(trained.finite).tolist()
        if not sound:
            raise Abstain("failed: the training of every model diverged: lower the learning rate")
        clusters = np.full(len(labels), UNASSIGNED, np.int64)
        for q, m in enumerate(sound):
            clusters[members[m]] = q
        return self._entered(note, clusters, trained[sound].encode(self.job.encoding))

    def _entered(self, note: Note, clusters: Ints, data: Sequence[bytes | None]) -> Contribution:
        """Keep this partition, publish its models, and return what the peer enters the next exchange with."""
        models = [self.workspace.publish(model) for model in data if model is not None]
        entered = replace(
            note, labels=clusters, n_groups=0, iteration=self.agreed.iteration + 1, models=models, halves={}, trained=True,
            refinements=len(self.agreed.history), entered=clusters,
        )  # fmt: skip
        self._keep(entered)
        rows = np.bincount(clusters[clusters != UNASSIGNED], minlength=len(models)).astype(np.int64)
        return Arrays(rows=rows, models=digests(models))

    def judge(self) -> Contribution:
        """Phase 2: how the models of others do on the rows of each cluster (lines 11 to 17)."""
        clusters, peer, note = self.agreed.clusters, self.workspace.peer, self._note
        if note is None or peer >= len(clusters.counts) or not clusters.counts[peer]:
            raise Abstain("has no clusters in this iteration")
        job = self.job
        own = [np.flatnonzero(note.labels == q) for q in range(clusters.counts[peer])]
        if job.mode == "refined":
            own = [rows[affinity.spread_rows(len(rows))] for rows in own]
        # All errors of the models that the test looks at; else infinite.
        asked = np.arange(clusters.total) if job.mode == "paper" else np.flatnonzero(clusters.owners != peer)
        models = [self.agreed.model(m) for m in asked.tolist()]
        table = np.full((self.local.n_samples, clusters.total), np.inf)
        if KnownErrors.holds(self.local.n_samples, len(models)):
            # The refinement will ask for the other rows.
            table[:, asked] = self.errors_of_all(models)
        else:
            rows = np.concatenate(own)
            table[np.ix_(rows, asked)] = self.errors(self.X[rows], models)
        parts = [table[rows] for rows in own]
        if job.mode == "refined":
            return affinity.verdicts(clusters, peer, parts, n_features=self.local.n_features)
        assert job.alpha is not None
        assert job.theta is not None
        assert job.normalisation is not None
        return mutual_test.verdicts(
            clusters, peer, parts, alpha=job.alpha, theta=job.theta, normalisation=job.normalisation
        )

    def hand_in(self, runs: Sequence[tuple[int, Run]], rng: np.random.Generator) -> Contribution:
        """Phase 3: the models that this peer's communities came to (line 23)."""
        groups, models = [], []
        for group, run in runs:
            state = self.workspace.result(run.name)
            if state is not None:
                groups.append(group)
                models.append(self.workspace.publish(state.arrays["weights"].tobytes()))
        note = self._note if self.job.mode == "refined" else None
        if note is not None and self._current(note) and note.n_groups == self.agreed.n_groups:
            # Continue training the models of own clusters that no other peer has.
            rows = {q: np.flatnonzero(note.labels == note.n_groups + q) for q in note.halves}
            rows = {q: own for q, own in rows.items() if len(own) >= self.job.min_rows}
            if rows:
                assert self.job.rounds is not None
                assert self.job.federated_rate is not None
                pace, seen = self.pace(note.wanted), len(self.agreed.history)
                epochs, rate = self.job.rounds * pace.local_epochs, self.job.federated_rate
                after = self.train_halves(note.halves, rows, rng, pace=pace, epochs=epochs, rate=rate)
                self._keep(replace(note, trained=False, refinements=seen, halves={**note.halves, **after}))
        return Arrays(groups=np.array(groups, np.int64), models=digests(models))

    def refine(self, rng: np.random.Generator) -> Contribution:
        """Phase 4: a new partition by the models of groups and own ones (lines 27 to 31, Algorithm 2)."""
        agreed, job = self.agreed, self.job
        before = self._note or self._begun(rng)
        halves = before.halves
        if job.mode == "refined" and agreed.refinement == 0 and self._current(before):
            alone = {q: np.flatnonzero(before.labels == q) for q in self._competing(before.models)}
            pace = self.pace(before.wanted)
            halves = self.train_halves(halves, alone, rng, pace=pace, epochs=pace.epochs, rate=job.learning_rate)
        rests = self.workspace.peer < len(agreed.resting) and agreed.resting[self.workspace.peer]
        found = None if rests else self._refined(before.models, halves, before.wanted)
        after = replace(before, halves=halves, refinements=len(agreed.history) + 1)
        # Without a new partition the old one stays, and so does what its numbers mean.
        if found is not None:
            after = replace(after, labels=found, n_groups=agreed.n_groups, iteration=agreed.iteration)
        if before.iteration == _NO_ITERATION:
            after = replace(after, iteration=agreed.iteration, entered=after.labels)
        moved = before.labels != after.labels
        comparable = self._current(before) and before.n_groups == after.n_groups == agreed.n_groups
        kept = float(np.mean(~moved)) if comparable else agreement(before.labels, after.labels)
        same = before.n_groups == after.n_groups and not moved.any()
        self._keep(replace(after, trained=before.trained and same))
        # In mode "refined" they are trained next: rows that still have the numbers of the exchange are not.
        count = job.mode == "paper" or after.n_groups == agreed.n_groups
        members = after.members(agreed) if count else np.zeros(agreed.n_groups, np.int64)
        # All that this peer reveals.
        return Arrays(
            changed=np.int64(round((1.0 - kept) * len(moved))), rows=np.int64(len(moved)),
            stable=np.bool_(job.tau is not None and agreement(before.labels, after.labels) >= job.tau), members=members,
            alone=np.int64(min(int((after.communities(agreed) < 0).sum()), MOST_CLUSTERS)),
        )  # fmt: skip

    def conclude(self, rng: np.random.Generator) -> Arrays:
        """Return what this peer has in the end; see :func:`p2pclust.protocols.models.fedcref_note.concluded`.

        A peer that missed the last refinement partitions its rows now: the models of the communities are part of the result.
        """
        agreed, note, given, seen = self.agreed, self._note, self.local.labels, len(self.agreed.history)
        if note is None or note.refinements != seen:
            models, halves = (note.models, note.halves) if note and self._current(note) else ((), {})
            found = None
            with suppress(Abstain):
                if not self.local.problem_in(self.state):
                    given_size = None if given is None else np.unique(given).size
                    found = self._refined(models, halves, note.wanted if note else self._wanted(rng, given_size))
            if found is not None:
                peer = self.workspace.peer
                note = Note(peer, found, agreed.n_groups, agreed.iteration, 0, seen, found, models, halves)
        self.local.once(KnownErrors, KnownErrors).forget()
        if note is None:
            return Arrays(labels=np.full(self.local.n_samples, UNASSIGNED, np.int64))
        return concluded(agreed, note)

    def _refined(self, models: Sequence[bytes], halves: Halves, wanted: int) -> Ints | None:
        """Return labels: communities first, then own clusters; None without any model that could be had."""
        agreed, paper = self.agreed, self.job.mode == "paper"
        own = self._competing(models) if paper else sorted(halves)
        groups = {group: digest for group in range(agreed.n_groups) if (digest := agreed.group_model(group))}
        if not groups:
            return None
        if paper:
            by_own = self.errors_of_all([models[q] for q in own])
        else:  # each row's error under the model of the cluster that has not seen it
            by_own = np.full((self.local.n_samples, len(own)), np.inf)
            for column, q in enumerate(own):
                for half, digest in enumerate(halves[q]):
                    judged = np.flatnonzero(self._sides != half)
                    by_own[judged, column] = self.errors(self.X[judged], [digest])[:, 0]
        if paper or agreed.refinement > 0:
            by_groups = self.errors_of_all(list(groups.values()))
        else:
            by_groups = self._typical_errors(list(groups))
        # Line 4: local models first, then those of groups; equal errors go to the first. Otherwise to the groups.
        table = np.concatenate([by_own, by_groups] if paper else [by_groups, by_own], axis=1)
        mine = [agreed.n_groups + q for q in own]
        columns = [*mine, *groups] if paper else [*groups, *mine]
        if not np.isfinite(table).all(axis=0).any():
            return None
        refine = refine_by_popularity if paper else refine_by_best_models
        return np.asarray(np.array(columns, np.int64)[refine(table, wanted)[0]])

    def _typical_errors(self, groups: Sequence[int]) -> Floats:
        """Return the median of each row's errors under a group's models of other peers, shape (n, G).

        Own models are left out: they have seen the row. A model that is not here has no say.
        """
        clusters, association = self.agreed.clusters, self.agreed.association
        foreign = [
            [m for m in association.groups[group] if clusters.owners[m] != self.workspace.peer] for group in groups
        ]
        asked = sorted(m for members in foreign for m in members)
        errors = dict(zip(asked, self.errors_of_all([self.agreed.model(m) for m in asked]).T, strict=True))
        found = np.full((len(self.X), len(groups)), np.inf)
        for column, members in enumerate(foreign):
            usable = [errors[m] for m in members if np.isfinite(errors[m]).all()]
            if usable:
                found[:, column] = np.median(np.stack(usable, axis=1), axis=1)
        return found

    def _competing(self, models: Sequence[bytes]) -> tuple[int, ...]:
        """Which of the own clusters compete with groups: all as published, isolated ones otherwise."""
        agreed, peer = self.agreed, self.workspace.peer
        if peer >= len(agreed.clusters.counts) or agreed.clusters.counts[peer] != len(models):
            return ()
        return competing(agreed.association, peer, twins=self.job.mode == "paper")
