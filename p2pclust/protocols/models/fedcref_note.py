"""What a peer of FedCRef keeps for itself between rounds, and what it has in the end. A note is not sent.

A label below ``n_groups`` is a community: the row is served best by its model. Label ``n_groups + q`` is the peer's own
cluster q. UNASSIGNED rows wait for the next refinement.

In the end labels count communities first, 0, 1, 2, ..., and then the peers' own clusters that have rows, peer by peer.
So that every peer can number its own without asking, each refinement agrees on how many every peer has
(``Agreed.alone``). A peer that was away then may have more of them; the surplus gets numbers far above, which no other
peer has. Where all peers' labels are in one place (an estimator, a testbed), :func:`without_gaps` closes these gaps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.protocols.engine.arrays import Arrays, State
from p2pclust.protocols.engine.workspace import DIGEST_BYTES
from p2pclust.protocols.models.fedcref_agreed import MOST_CLUSTERS, Agreed

UNASSIGNED: Final = -1

Ints = NDArray[np.int64]
#: For a cluster the digests of the models of its rows in the one half and in the other; see :meth:`.AtWork.train_halves`.
Halves = Mapping[int, tuple[bytes, bytes]]


@dataclass(frozen=True)
class Note:
    """A peer's partition of its rows, what the numbers in it mean, and all else that it keeps."""

    peer: int
    labels: Ints = field(repr=False)  # (n,): below `n_groups` a community, from there on an own cluster, or UNASSIGNED
    n_groups: int  # 0 for the partition that the peer entered the exchange with
    iteration: int  # of which iteration the numbers are
    wanted: int  # K_i, of how many clusters the peer's rows are
    refinements: int  # how many refinements it has seen
    entered: Ints = field(repr=False)  # (n,): the partition of the last exchange, whose clusters are in the graph
    models: Sequence[bytes] = ()  # the digests of the models of its clusters, as it published them
    halves: Halves = field(default_factory=dict)  # its two models of each cluster that no other peer has
    trained: bool = False  # whether the models are of this very partition

    @property
    def names(self) -> Ints:
        """The labels that are there, ascending."""
        return np.unique(self.labels[self.labels != UNASSIGNED])

    def communities(self, agreed: Agreed) -> Ints:
        """Return for each of the names the community that it means in the end, -1 where it means none.

        The communities of an earlier iteration mean nothing in this one. A cluster that was entered is called after the
        community that it was found to be in, whether its rows were refined since or not: in mode "paper" its own model, the
        twin, may keep some of them.
        """
        names = self.names
        if self.iteration != agreed.iteration:
            return np.full(names.shape, -1, np.int64)
        groups = np.where(names < self.n_groups, names, -1)
        counts = agreed.clusters.counts
        if self.peer < len(counts):
            of_own, clusters = agreed.association.group_of[list(agreed.clusters.of(self.peer))], names - self.n_groups
            entered = (clusters >= 0) & (clusters < counts[self.peer])
            groups[entered] = of_own[clusters[entered]]
        return np.where(np.isin(groups, agreed.alive), groups, -1)

    def members(self, agreed: Agreed) -> Ints:
        """Return how many rows are in each of the communities, shape (G,)."""
        groups, found = self.communities(agreed), np.zeros(agreed.n_groups, np.int64)
        rows = np.unique(self.labels[self.labels != UNASSIGNED], return_counts=True)[1]
        np.add.at(found, groups[groups >= 0], rows[groups >= 0])
        return found

    def called(self, agreed: Agreed) -> Ints:
        """Return for each of the names what its rows are called in the end.

        Own clusters that are in no community have the numbers that were agreed on, then some that no other peer has.
        """
        groups = self.communities(agreed)
        called, alone = np.searchsorted(agreed.alive, groups), groups < 0
        before, reserved = agreed.alone[: self.peer].sum(), agreed.alone[self.peer : self.peer + 1].sum()
        beyond = agreed.alone.sum() + self.peer * MOST_CLUSTERS - reserved
        ranks = np.arange(np.count_nonzero(alone))
        called[alone] = len(agreed.alive) + ranks + np.where(ranks < reserved, before, beyond)
        return called

    @classmethod
    def of(cls, arrays: Arrays) -> Note | None:
        """Read a note, or return None if there is none yet."""
        if "labels" not in arrays:
            return None
        halves = enumerate(arrays["halves"])
        pairs = {q: (one.tobytes(), other.tobytes()) for q, (one, other) in halves if one.any()}
        return cls(
            int(arrays["peer"]), arrays["labels"], int(arrays["n_groups"]), int(arrays["iteration"]),
            int(arrays["wanted"]), int(arrays["refinements"]), arrays["entered"],
            [digest.tobytes() for digest in arrays["models"]], pairs, bool(arrays["trained"]),
        )  # fmt: skip

    def arrays(self, state: State) -> Arrays:
        """Return the note as it is stored, with the scaling of the state: FedAvg reads the rows by it."""
        pairs = np.zeros((len(self.models), 2, DIGEST_BYTES), np.uint8)
        for q, pair in self.halves.items():
            pairs[q] = digests(pair)
        return Arrays(
            labels=self.labels, entered=self.entered, n_groups=np.int64(self.n_groups), wanted=np.int64(self.wanted),
            models=digests(self.models), halves=pairs, trained=np.bool_(self.trained),
            iteration=np.int64(self.iteration), refinements=np.int64(self.refinements), peer=np.int64(self.peer),
            origin=state["origin"], scale=state["scale"],
        )  # fmt: skip

    @property
    def own_models(self) -> tuple[bytes, ...]:
        """The digests of all its models, which the peer must not lose."""
        return (*self.models, *(digest for pair in self.halves.values() for digest in pair))


def digests(models: Sequence[bytes]) -> NDArray[np.uint8]:
    """Return digests as an array of shape (K, 32)."""
    return np.frombuffer(b"".join(models), np.uint8).reshape(-1, DIGEST_BYTES)


@dataclass(frozen=True, slots=True)
class OwnCluster:
    """A cluster that one peer has rows of and judges by models of its own."""

    # What its rows are called: the community that it is in, else a number of its own behind those of the communities.
    label: int
    # Its number among the clusters that the peer entered in the last exchange; -1 for one of an earlier exchange.
    cluster: int
    # The digests of its models: two in mode "refined", of which each saw one half of the rows; else one; none if gone.
    models: tuple[bytes, ...]


def own_clusters(agreed: Agreed, note: Note) -> tuple[OwnCluster, ...]:
    """Return the own clusters of the peer whose note this is, in the order of its partition."""
    found = []
    for name, label in zip(note.names.tolist(), note.called(agreed).tolist(), strict=True):
        cluster = name - note.n_groups
        if cluster < 0 and label < len(agreed.alive):
            continue  # a community, judged by the community's model
        behind = note.halves.get(cluster) or tuple(note.models[cluster : cluster + 1] if cluster >= 0 else ())
        found.append(OwnCluster(label, max(cluster, -1) if note.iteration == agreed.iteration else -1, behind))
    return tuple(found)


def concluded(agreed: Agreed, note: Note) -> Arrays:
    """Return what the peer whose note this is has in the end.

    Returns ``labels`` (n,): communities, then own clusters; UNASSIGNED stays. ``own`` (K, 2): label and number of each
    own cluster that has rows. ``own_models`` (K, 2, 32): their models' digests, zeros where there is none. See
    :class:`OwnCluster` and :func:`own_clusters_of`. ``shared`` (S,): the communities whose models have rows here.
    """
    own, called = own_clusters(agreed, note), note.called(agreed)
    found = np.full(note.labels.shape, UNASSIGNED, np.int64)
    assigned = note.labels != UNASSIGNED
    found[assigned] = called[np.searchsorted(note.names, note.labels[assigned])]
    models = np.zeros((len(own), 2, DIGEST_BYTES), np.uint8)
    for row, one in zip(models, own, strict=True):
        for place, digest in zip(row, one.models, strict=False):
            place[:] = np.frombuffer(digest, np.uint8)
    pairs = np.array([(one.label, one.cluster) for one in own], np.int64).reshape(-1, 2)
    shared = called[(note.names < note.n_groups) & (called < len(agreed.alive))]
    return Arrays(labels=found, own=pairs, own_models=models, shared=shared)


def own_clusters_of(end: Arrays) -> tuple[OwnCluster, ...]:
    """Read the own clusters in what :func:`concluded` returned; none where the peer concluded labels only."""
    if "own" not in end:
        return ()
    return tuple(
        OwnCluster(label, cluster, tuple(digest.tobytes() for digest in pair if digest.any()))
        for (label, cluster), pair in zip(end["own"].tolist(), end["own_models"], strict=True)
    )


def without_gaps(n_communities: int, ends: Sequence[Arrays]) -> list[Arrays]:
    """Return what all peers concluded, their own clusters numbered without gaps behind the communities."""
    there = [end["labels"][end["labels"] >= n_communities] for end in ends]
    names = np.unique(np.concatenate(there)) if there else np.empty(0, np.int64)

    def renumbered(labels: Ints) -> Ints:
        return np.where(labels < n_communities, labels, n_communities + np.searchsorted(names, labels))

    made = []
    for end in ends:
        arrays = {"labels": renumbered(end["labels"])}
        if "own" in end:
            arrays["own"] = np.column_stack([renumbered(end["own"][:, 0]), end["own"][:, 1]])
        made.append(end.replace(**arrays))
    return made
