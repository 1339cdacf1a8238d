"""Which of FedCRef's models a row is judged by once the job is over, and what it is called then.

A peer calls its rows by the models of the communities and own clusters that it has rows of, not by all that there are. So
what a row is called depends on which peer holds it. A row that the fit saw is known by a digest of its values, and is judged
as its peer judges; a row that no peer held is judged by all models.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering.autoencoders import Architecture, Encoding, ModelStack
from p2pclust.estimators.inputs import Floats, Rows
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.models.fedcref_note import UNASSIGNED, own_clusters_of

#: The number of a peer that is not known.
_NO_PEER: Final = -1


@dataclass(frozen=True, eq=False)
class Judges:
    """The models that are left in the end, and which peer judges by which."""

    models: ModelStack  # M models: of communities, and of the peers' own clusters
    #: Shape (M,): which judge each model belongs to, ascending. One with two models, each of which has seen one half
    #: of the rows, takes the mean of both.
    judge: Rows
    #: `labels`, `owners`: shape (J,): for each judge what the rows are called that it judges best, and whose it is;
    #: -1: a community's
    labels: Rows
    owners: Rows
    n_communities: int
    of_peer: Sequence[Rows]  # for each peer the communities whose models have rows of it
    #: `digests`, `holders`: shape (N,): of each different row of the fit, ascending: a digest of its values, and the
    #: first peer that holds it
    digests: NDArray[np.uint64] = field(repr=False)
    holders: Rows = field(repr=False)

    @classmethod
    def of(
        cls, architecture: Architecture, encoding: Encoding, communities: Sequence[bytes], ends: Sequence[Arrays],
        blobs: Mapping[bytes, bytes], arrays: Sequence[Floats],
    ) -> Judges:  # fmt: skip
        """Return the judges after a job whose models are of this architecture and encoding.

        `communities` has the digest of each community's model, and `blobs` the models by digest; a community or cluster
        whose model is not there has no say. `ends` are the peers' conclusions, see
        :func:`p2pclust.protocols.models.fedcref_note.concluded`, and `arrays` their rows.
        """
        all_judges: list[tuple[int, int, tuple[bytes, ...]]]
        all_judges = [(label, _NO_PEER, (digest,)) for label, digest in enumerate(communities)]
        all_judges += [(own.label, peer, own.models) for peer, end in enumerate(ends) for own in own_clusters_of(end)]
        judges = sorted((label, peer, models) for label, peer, models in all_judges if set(models) & set(blobs))
        named = [(j, digest) for j, (_, _, models) in enumerate(judges) for digest in models if digest in blobs]
        models = ModelStack.decode(architecture, [blobs[digest] for _, digest in named], encoding)
        judge = np.array([j for j, _ in named], np.int64)
        labels, owners = np.array([one[:2] for one in judges], np.int64).reshape(-1, 2).T
        of_peer = [np.array(end["shared"]) if "shared" in end else np.empty(0, np.int64) for end in ends]
        digests, first = np.unique(np.concatenate([digests_of_rows(X) for X in arrays]), return_index=True)
        holders = np.repeat(np.arange(len(arrays)), [len(X) for X in arrays])[first]
        return cls(models, judge, labels, owners, len(communities), of_peer, digests, holders)

    def holders_of(self, X: Floats) -> Rows:
        """Return for each row the first peer that held it in the fit, shape (n,); -1 for a row that no peer held."""
        found = np.full(len(X), _NO_PEER, np.int64)
        if len(self.digests) and len(X):
            digests = digests_of_rows(X)
            places = np.minimum(np.searchsorted(self.digests, digests), len(self.digests) - 1)
            known = self.digests[places] == digests
            found[known] = self.holders[places[known]]
        return found

    def call(self, errors: Floats, peers: Rows) -> Rows:
        """Return the label of each row, shape (n,), from its errors under each model (n, M); -1 without a model.

        `peers` (n,) says whose rows they are; -1 where that is not known.
        """
        if not self.labels.size:
            return np.full(len(errors), UNASSIGNED, np.int64)
        table = np.column_stack([errors[:, self.judge == j].mean(axis=1) for j in range(len(self.labels))])
        found = np.empty(len(errors), np.int64)
        for peer in np.unique(peers).tolist():
            rows, columns = np.flatnonzero(peers == peer), self._columns(peer)
            found[rows] = self.labels[columns[table[np.ix_(rows, columns)].argmin(axis=1)]]
        return found

    def _columns(self, peer: int) -> Rows:
        """Return the judges of a peer's rows, or where no peer is known each community and own cluster once."""
        shared = (self.owners == _NO_PEER) | (self.labels >= self.n_communities)
        own = np.zeros(len(self.labels), np.bool_)
        if peer != _NO_PEER:
            own = (self.owners == peer) | ((self.owners == _NO_PEER) & np.isin(self.labels, self.of_peer[peer]))
        return np.flatnonzero(own if own.any() else shared)


def digests_of_rows(X: Floats) -> NDArray[np.uint64]:
    """Return a hash of 64 bits for each row, shape (n,).

    >>> one, other, again = digests_of_rows(np.array([[0.0, 1.0], [1.0, 0.0], [-0.0, 1.0]])).tolist()
    >>> one == again, one == other
    (True, False)
    """
    rows = np.ascontiguousarray(X, np.float64) + 0.0  # minus zero is zero
    made = b"".join(hashlib.blake2b(row.data, digest_size=8).digest() for row in rows)
    return np.frombuffer(made, np.uint64)
