"""What a peer has of FedCRef in the end: labels numbered without gaps over the whole fleet, and the models behind them.

Labels count communities first, 0, 1, 2, ..., and then the peers' own clusters that have rows, peer by peer. So that every
peer can number its own without asking, each refinement agrees on how many every peer has (``Agreed.alone``). A peer that was
away then may have more of them than was agreed on; the surplus gets numbers far above, which no other peer has. Where all
peers' labels are in one place (an estimator, a testbed), :func:`without_gaps` closes these gaps as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.workspace import DIGEST_BYTES
from p2pclust.protocols.models.fedcref_agreed import Agreed
from p2pclust.protocols.models.fedcref_note import UNASSIGNED, Note

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class OwnCluster:
    """A cluster that one peer has rows of and judges by models of its own.

    - `label`: what its rows are called: the community that it is in, else a number of its own behind those of the
      communities.
    - `cluster`: its number among the clusters that the peer entered in the last exchange; -1 for one of an earlier
      exchange.
    - `models`: the digests of its models: two in mode "refined", each of which has seen one half of the rows; one
      elsewhere; none if it is gone.
    """

    label: int
    cluster: int
    models: tuple[bytes, ...]


def own_clusters(agreed: Agreed, note: Note) -> tuple[OwnCluster, ...]:
    """Return the own clusters of the peer whose note this is, in the order of its partition."""
    found = []
    for name, label in zip(note.names.tolist(), note.called(agreed).tolist(), strict=True):
        cluster = name - note.n_groups
        if cluster < 0 and label < len(agreed.alive):
            continue  # a community, judged by the community's model
        behind = note.halves.get(cluster) or tuple(note.models[cluster : cluster + 1] if cluster >= 0 else ())
        number = cluster if note.iteration == agreed.iteration else -1
        found.append(OwnCluster(label, max(number, -1), behind))
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
    """Return what all peers concluded, their own clusters numbered without gaps behind the communities.

    - `ends`: what each peer concluded.

    >>> ends = [Arrays(labels=np.array([0, 7])), Arrays(labels=np.array([1, 40, -1]))]
    >>> [end["labels"].tolist() for end in without_gaps(2, ends)]
    [[0, 2], [1, 3, -1]]
    """
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
