"""What one peer does in each phase of FedCRef, with its rows, its note, and the blobs of its workspace.

The note, which is not sent, holds the peer's partition, and as ``entered`` that of the last exchange, whose cluster q
is the peer's cluster q in the association graph. A label below ``n_groups`` is a community: the row is served best by
its model. Label ``n_groups + q`` is the peer's own cluster q. UNASSIGNED rows wait for the next refinement.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering.autoencoders import Architecture, ModelStack
from p2pclust.clustering.dec import deep_embedded_clustering
from p2pclust.clustering.local_starts import number_of_clusters, pca_kmeans, pca_mixture
from p2pclust.clustering.stacks import reconstruction_errors, train
from p2pclust.errors import WireError
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Abstain
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.reasons import HELD
from p2pclust.protocols.engine.workspace import DIGEST_BYTES, Run, Workspace
from p2pclust.protocols.models import affinity, mutual_test
from p2pclust.protocols.models.fedavg import refuse_beyond
from p2pclust.protocols.models.fedcref_agreed import MOST_CLUSTERS, Agreed
from p2pclust.protocols.models.fedcref_alone import Halves, halves_of, packed, train_halves, unseen_errors
from p2pclust.protocols.models.fedcref_end import UNASSIGNED, Partition, concluded
from p2pclust.protocols.models.fedcref_pace import Pace
from p2pclust.protocols.models.refinement import competing, refine_by_best_models, refine_by_popularity
from p2pclust.protocols.models.stability import agreement

if TYPE_CHECKING:
    from p2pclust.protocols.models.fedcref import FedCRefProtocol

__all__ = ["AtWork", "kept_models"]

_MAX_SEED: Final = 2**62
# Models of others are decoded so many at a time: all of them would be some hundred megabytes.
_MODELS_AT_ONCE: Final = 16

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def kept_models(note: Arrays) -> list[bytes]:
    """Return the digests of the peer's own models, which it must not lose."""
    published = [digest.tobytes() for digest in note["models"]] if "models" in note else []
    return [*published, *(digest for pair in halves_of(note).values() for digest in pair)]


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
    def _models(self) -> list[bytes]:
        """The digests of the models of its clusters, as it published them; none without a note."""
        return [digest.tobytes() for digest in self.workspace.note["models"]] if self._known else []

    @property
    def _known(self) -> bool:
        """Whether the note has a partition of these rows."""
        note = self.workspace.note
        return "labels" in note and note["labels"].shape == (self.local.n_samples,)

    @property
    def _current(self) -> bool:
        """Whether the note is of this iteration: a peer that was away when models were exchanged has an older one."""
        return self._known and int(self.workspace.note["iteration"]) == self.agreed.iteration

    def _partition(self, rng: np.random.Generator) -> tuple[Ints, int, int]:
        """Return labels, the number of communities among them, and K_i; before the first exchange, where it begins."""
        if self._known:
            note = self.workspace.note
            return note["labels"], int(note["n_groups"]), int(note["wanted"])
        given = self.local.labels
        if self.job.initial == "given":
            if given is None:
                raise Abstain("failed: initial = 'given', but this peer was given no labels")
            labels = np.unique(given, return_inverse=True)[1].astype(np.int64)
            return labels, 0, self._wanted(rng, int(labels.max()) + 1)
        wanted = self._wanted(rng, None)
        if self.job.initial == "dec":
            found = deep_embedded_clustering(self.X, wanted, rng, device=self.job.device).labels
            return np.unique(found, return_inverse=True)[1].astype(np.int64), 0, wanted
        start = pca_kmeans if self.job.initial == "kmeans" else pca_mixture
        return start(self.X, wanted, rng), 0, wanted

    def _wanted(self, rng: np.random.Generator, found: int | None) -> int:
        """Return K_i: the job's, the device's, that of the labels it was given, or what the rows look like."""
        for number in (self.job.n_local_clusters, self.local.n_clusters, found):
            if number is not None:
                return number
        return number_of_clusters(self.X, range(2, self.job.most_local_clusters + 1), rng)

    def _note(
        self, labels: Ints, n_groups: int, wanted: int, models: Sequence[bytes], *, trained: bool, iteration: int,
        enters: bool = False, refines: bool = False, halves: Halves | None = None,
    ) -> None:  # fmt: skip
        """Keep the partition, the iteration that its numbers are of, how many refinements it has seen, and the own models.

        `trained`: the models are of this very partition.
        """
        entered = labels if enters or "entered" not in self.workspace.note else self.workspace.note["entered"]
        self.workspace.keep(
            Arrays(
                labels=labels,
                entered=entered,
                n_groups=np.int64(n_groups),
                wanted=np.int64(wanted),
                models=self._digests(models),
                halves=packed(halves or {}, len(models)),
                trained=np.bool_(trained),
                iteration=np.int64(iteration),
                refinements=np.int64(len(self.agreed.history) + refines),
                peer=np.int64(self.workspace.peer),
                origin=self.state["origin"],
                scale=self.state["scale"],
            )
        )

    def pace(self, wanted: int) -> Pace:
        """How this peer trains models of its own, from its rows for each of the clusters that it is to have."""
        return self.job.pace(self.local.n_samples / max(1, wanted))

    @staticmethod
    def _digests(models: Sequence[bytes]) -> NDArray[np.uint8]:
        return np.frombuffer(b"".join(models), np.uint8).reshape(-1, DIGEST_BYTES)

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
                found[:, [m for m, _ in decoded]] = reconstruction_errors(stack, X, device=self.job.device)
        return found

    # -- models -------------------------------------------------------------------------------------------------------

    def train_clusters(self, rng: np.random.Generator) -> Contribution:
        """Phase 1: a model of each cluster (lines 7 to 9)."""
        labels, _, wanted = self._partition(rng)
        if self._known and bool(self.workspace.note["trained"]):
            served = self._served(labels, wanted)
            if served is not None:
                return served
        # Communities of the last iteration and own clusters alike are clusters now, numbered without gaps.
        names = [name for name in np.unique(labels).tolist() if name != UNASSIGNED]
        members = [rows for name in names if len(rows := np.flatnonzero(labels == name)) >= self.job.min_rows]
        if not members:
            raise Abstain(f"{HELD}: no cluster has the {self.job.min_rows} rows that a model needs (min_rows)")
        rngs = [np.random.Generator(np.random.PCG64(int(seed))) for seed in rng.integers(_MAX_SEED, size=len(members))]
        pace = self.pace(wanted)
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
        models = [self.workspace.publish(data) for data in trained[sound].encode(self.job.encoding)]
        self._note(clusters, 0, wanted, models, trained=True, iteration=self.agreed.iteration + 1, enters=True)
        return self._entry(clusters, models)

    def _served(self, labels: Ints, wanted: int) -> Contribution | None:
        """The models of an earlier iteration, if the partition has not changed since and they are all here still."""
        models = self._models
        data = [self.workspace.read(digest) for digest in models]
        if not models or any(one is None for one in data):
            return None
        for one in data:
            assert one is not None
            self.workspace.publish(one)
        self._note(labels, 0, wanted, models, trained=True, iteration=self.agreed.iteration + 1, enters=True)
        return self._entry(labels, models)

    @staticmethod
    def _entry(clusters: Ints, models: Sequence[bytes]) -> Contribution:
        rows = np.bincount(clusters[clusters != UNASSIGNED], minlength=len(models)).astype(np.int64)
        return Arrays(rows=rows, models=AtWork._digests(models))

    # -- verdicts -----------------------------------------------------------------------------------------------------

    def judge(self) -> Contribution:
        """Phase 2: how the models of others do on the rows of each cluster (lines 11 to 17)."""
        clusters, peer = self.agreed.clusters, self.workspace.peer
        if not self._known or peer >= clusters.n_peers or not clusters.counts[peer]:
            raise Abstain("has no clusters in this iteration")
        job, labels = self.job, self.workspace.note["labels"]
        own = [np.flatnonzero(labels == q) for q in range(clusters.counts[peer])]
        if job.mode == "refined":
            own = [rows[affinity.spread_rows(len(rows))] for rows in own]
        table = self.errors(self.X[np.concatenate(own)], [self.agreed.model(m) for m in range(clusters.total)])
        parts = np.split(table, np.cumsum([len(rows) for rows in own])[:-1])
        if job.mode == "refined":
            return affinity.verdicts(clusters, peer, parts, n_features=self.local.n_features)
        assert job.alpha is not None
        assert job.theta is not None
        assert job.normalisation is not None
        return mutual_test.verdicts(
            clusters, peer, parts, alpha=job.alpha, theta=job.theta, normalisation=job.normalisation
        )

    # -- training -----------------------------------------------------------------------------------------------------

    def hand_in(self, runs: Sequence[tuple[int, Run]], rng: np.random.Generator) -> Contribution:
        """Phase 3: the models that this peer's communities came to (line 23)."""
        groups, models = [], []
        for group, run in runs:
            state = self.workspace.result(run.name)
            if state is not None:
                groups.append(group)
                models.append(self.workspace.publish(state.arrays["weights"].tobytes()))
        if self.job.mode == "refined":
            self._train_alone(rng)
        return Arrays(groups=np.array(groups, np.int64), models=self._digests(models))

    def _train_alone(self, rng: np.random.Generator) -> None:
        """Go on training the models of own clusters that no other peer has."""
        if not self._current or int(self.workspace.note["n_groups"]) != self.agreed.n_groups:
            return
        labels, n_groups, wanted = self._partition(rng)
        halves = halves_of(self.workspace.note)
        rows = {q: np.flatnonzero(labels == n_groups + q) for q in halves}
        rows = {q: own for q, own in rows.items() if len(own) >= self.job.min_rows}
        if not rows:
            return
        assert self.job.rounds is not None
        assert self.job.federated_rate is not None
        pace = self.pace(wanted)
        epochs, rate = self.job.rounds * pace.local_epochs, self.job.federated_rate
        after = {**halves, **train_halves(self, rows, rng, epochs=epochs, batch=pace.batch, learning_rate=rate)}
        self._note(
            labels, n_groups, wanted, self._models, trained=False, iteration=self.agreed.iteration, halves=after
        )  # fmt: skip

    # -- refinement ---------------------------------------------------------------------------------------------------

    def refine(self, rng: np.random.Generator) -> Contribution:
        """Phase 4: a new partition by the models of groups and own ones (lines 27 to 31, Algorithm 2)."""
        agreed, job = self.agreed, self.job
        before, n_before, wanted = self._partition(rng)
        models, halves = self._models, halves_of(self.workspace.note)
        if job.mode == "refined" and agreed.refinement == 0 and self._current:
            alone = {q: np.flatnonzero(before == q) for q in self._competing(models)}
            pace, rate = self.pace(wanted), job.learning_rate
            halves = train_halves(self, alone, rng, epochs=pace.epochs, batch=pace.batch, learning_rate=rate)
        found = None if self._rests else self._refined(models, halves, wanted)
        # Without a new partition the old one stays, and so does what its numbers mean.
        after, n_groups = (before, n_before) if found is None else (found, agreed.n_groups)
        iteration = int(self.workspace.note["iteration"]) if found is None and self._known else agreed.iteration
        comparable = self._current and n_before == n_groups == agreed.n_groups
        kept = float(np.mean(before == after)) if comparable else agreement(before, after)
        same = n_before == n_groups and bool((before == after).all())
        trained = self._known and bool(self.workspace.note["trained"]) and same
        self._note(
            after, n_groups, wanted, models, trained=trained, iteration=iteration, refines=True, halves=halves
        )  # fmt: skip
        partition = Partition(self.workspace.peer, after, n_groups, iteration)
        # In mode "refined" they are trained next: rows that still have the numbers of the exchange are not.
        count = job.mode == "paper" or n_groups == agreed.n_groups
        members = partition.members(agreed) if count else np.zeros(agreed.n_groups, np.int64)
        # All that this peer reveals.
        return Arrays(
            changed=np.int64(round((1.0 - kept) * len(after))), rows=np.int64(len(after)),
            stable=np.bool_(job.tau is not None and agreement(before, after) >= job.tau), members=members,
            alone=np.int64(min(partition.n_alone(agreed), MOST_CLUSTERS)),
        )  # fmt: skip

    @property
    def _rests(self) -> bool:
        resting = self.agreed.resting
        return self.workspace.peer < len(resting) and bool(resting[self.workspace.peer])

    def conclude(self, rng: np.random.Generator) -> Arrays:
        """Return what this peer has in the end; see :func:`p2pclust.protocols.models.fedcref_end.concluded`.

        A peer that missed the last refinement partitions its rows now: the models of the communities are part of the result.
        """
        note, agreed = self.workspace.note, self.agreed
        if not self._known or int(note["refinements"]) != len(agreed.history):
            note = self._afterwards(rng)
        if "labels" not in note:
            return Arrays(labels=np.full(self.local.n_samples, UNASSIGNED, np.int64))
        return concluded(agreed, note)

    def _afterwards(self, rng: np.random.Generator) -> Arrays:
        """Return the note of a refinement by what was agreed on at last; the note that there is, if there can be none."""
        note, agreed, given = self.workspace.note, self.agreed, self.local.labels
        models, halves = (self._models, halves_of(note)) if self._current else ([], {})
        found = None
        with suppress(Abstain):
            if not self.local.refusal(self.state):
                known = int(note["wanted"]) if self._known else None if given is None else np.unique(given).size
                found = self._refined(models, halves, self._wanted(rng, known))
        if found is None:
            return note if self._known else Arrays()
        now = {"n_groups": agreed.n_groups, "iteration": agreed.iteration, "peer": self.workspace.peer}
        return Arrays(labels=found, models=self._digests(models), halves=packed(halves, len(models)), **now)

    def _refined(self, models: Sequence[bytes], halves: Halves, wanted: int) -> Ints | None:
        """Return labels: communities first, then own clusters; None without any model that could be had."""
        agreed, paper = self.agreed, self.job.mode == "paper"
        own = self._competing(models) if paper else sorted(halves)
        groups = {group: digest for group in range(agreed.n_groups) if (digest := agreed.group_model(group))}
        if not groups:
            return None
        by_own = self.errors(self.X, [models[q] for q in own]) if paper else unseen_errors(self, halves)
        if not paper and agreed.refinement == 0:
            by_groups = self._typical_errors(list(groups))
        else:
            by_groups = self.errors(self.X, list(groups.values()))
        # Line 4: local models first, then those of groups; equal errors go to the first. Otherwise to the groups.
        table = np.concatenate([by_own, by_groups] if paper else [by_groups, by_own], axis=1)
        mine = [agreed.n_groups + q for q in own]
        columns = [*mine, *groups] if paper else [*groups, *mine]
        if not np.isfinite(table).all(axis=0).any():
            return None
        refine = refine_by_popularity if self.job.mode == "paper" else refine_by_best_models
        found: Ints = np.array(columns, np.int64)[refine(table, wanted).labels]
        return found

    def _typical_errors(self, groups: Sequence[int]) -> Floats:
        """Return the median of each row's errors under a group's models of other peers, shape (n, G).

        Own models are left out: they have seen the row. A model that is not here has no say.
        """
        clusters, association = self.agreed.clusters, self.agreed.association
        all_errors = self.errors(self.X, [self.agreed.model(m) for m in range(clusters.total)])
        usable = np.isfinite(all_errors).all(axis=0) & (clusters.owners != self.workspace.peer)
        found = np.full((len(self.X), len(groups)), np.inf)
        for column, group in enumerate(groups):
            members = [m for m in association.groups[group] if usable[m]]
            if members:
                found[:, column] = np.median(all_errors[:, members], axis=1)
        return found

    def _competing(self, models: Sequence[bytes]) -> tuple[int, ...]:
        """Which of the own clusters compete with groups: all as published, isolated ones otherwise."""
        agreed, peer = self.agreed, self.workspace.peer
        if peer >= agreed.clusters.n_peers or agreed.clusters.counts[peer] != len(models):
            return ()
        return competing(agreed.association, peer, twins=self.job.mode == "paper")
