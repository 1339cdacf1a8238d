"""The rows of a finished job: the peer, cluster, true class and membership of each.

Only a testbed has them, because it dealt the rows out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering import objective
from p2pclust.clustering.gaps import prepared
from p2pclust.data import DataSet
from p2pclust.jobs.request import JobResult
from p2pclust.lab.pictures.palette import cluster_hues
from p2pclust.lab.pictures.scatter import evenly
from p2pclust.lab.scenario.outcome.communities import labels_of_peers
from p2pclust.lab.scenario.outcome.measures import contributed
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.base import Clustering
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import labelling_stage, one_thread

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_NUMBERS: Final = 200_000_000  # with more values than this only the rows that are drawn are labelled


@dataclass(frozen=True, eq=False)
class JobRows:
    """Rows of one job; n of them, of which s are drawn."""

    names: tuple[str, ...]  # the peers that contributed, or for a job without centers those that finished
    #: The peer and the cluster of each row, shape (n,); the cluster is negative if it has none.
    peer: Ints
    labels: Ints
    y: NDArray[Any] | None  # true labels, shape (n,), where every one of these peers has them
    #: Of the rows that are drawn, in the data's own units, shape (s, F), missing values being NaN; and which of the n rows
    #: these are.
    X: Floats
    drawn: Ints
    features: tuple[str, ...]
    clusters: tuple[str, ...]  # their names
    sure: Floats | None = None  # the greatest membership of each row drawn, shape (s,), where memberships are fuzzy

    @cached_property
    def places(self) -> Floats:
        """The rows that are drawn, where they are drawn: a missing value is the mean of the others in its cluster."""
        places = np.array(self.X)
        for cluster in np.unique(self.labels[self.drawn]).tolist() if np.isnan(places).any() else ():
            own = places[self.labels[self.drawn] == cluster]
            there = ~np.isnan(own)
            means = np.where(there, own, 0.0).sum(axis=0) / np.maximum(there.sum(axis=0), 1)
            places[self.labels[self.drawn] == cluster] = np.where(there, own, means)
        return places

    @cached_property
    def classes(self) -> list[str]:
        return [] if self.y is None else [str(kind) for kind in np.unique(self.y).tolist()]

    @cached_property
    def kinds(self) -> Ints:
        """The place of each row's true class in `classes`, shape (n,)."""
        assert self.y is not None
        return np.unique(self.y, return_inverse=True)[1].astype(np.int64)

    @cached_property
    def hues(self) -> list[int]:
        """The number of each cluster's colour: that of the class of most of its rows, where that is unique."""
        n_clusters = len(self.clusters)
        if self.y is None or not n_clusters:
            return cluster_hues([None] * n_clusters)
        counts = self.confusion[:, :n_clusters]
        mostly = 2 * counts > counts.sum(axis=0)
        alike: list[int | None] = [None] * n_clusters
        for kind in np.flatnonzero(mostly.any(axis=1)).tolist():
            # If several clusters have mostly this class: the one with the most rows of it.
            alike[int(np.argmax(np.where(mostly[kind], counts[kind], -1)))] = kind
        return cluster_hues(alike, len(self.classes))

    @cached_property
    def _places(self) -> Ints:
        return np.where(self.labels < 0, len(self.clusters), self.labels)  # the last column is for no cluster

    @property
    def held(self) -> Ints:
        """How many rows of each cluster each peer has, shape (P, C + 1); the last column counts rows without a cluster."""
        return _counted(self.peer, self._places, len(self.names), len(self.clusters) + 1)

    @property
    def dealt(self) -> Ints:
        """How many rows of each class each peer has, shape (P, K)."""
        return _counted(self.peer, self.kinds, len(self.names), len(self.classes))

    @property
    def confusion(self) -> Ints:
        """How many rows of each class are in each cluster, shape (K, C + 1); the last column is for no cluster."""
        return _counted(self.kinds, self._places, len(self.classes), len(self.clusters) + 1)


def _counted(rows: Ints, columns: Ints, n_rows: int, n_columns: int) -> Ints:
    counts: Ints = np.bincount(rows * n_columns + columns, minlength=n_rows * n_columns).reshape(n_rows, n_columns)
    return counts


def rows_of(job: Job, found: JobResult, shares: Mapping[str, DataSet]) -> JobRows | None:
    """Return the rows of a job that is done, or None if its peers end without labels.

    `shares` has every peer's rows, or columns, by name. Raise PluginError if a protocol of the user fails.
    """
    state = found.state
    assert state is not None
    if job.by_columns:
        return _of_columns(job, state, [shares[name] for name in found.roster])
    if job.has_workspace:
        return _of_communities(job, found, shares)
    names = [found.roster[peer] for peer in contributed(job, state)]
    held = {name: shares[name] for name in names}
    if sum(share.X.size for share in held.values()) > _NUMBERS:
        held = _thinned(held, evenly(sum(share.n_rows for share in held.values())))
    with one_thread():
        labels = [engine.conclude(job, state, Local(share.X)).get("labels") for share in held.values()]
    known = [own for own in labels if own is not None]
    if not known or len(known) < len(labels):
        return None
    protocol = labelling_stage(job)[1]
    n_clusters = int(getattr(protocol, "n_clusters", 1 + max(int(own.max()) for own in known)))
    rows = _gathered(held, known, tuple(map(str, range(n_clusters))))
    local = job.rows(Local(rows.X))
    rows = replace(rows, X=local.X, features=job.center_columns(rows.features))  # as centers are
    with one_thread(), np.errstate(all="ignore"):
        of_rows = protocol.degrees(state.arrays, local) if isinstance(protocol, Clustering) else None
    return rows if of_rows is None else replace(rows, sure=of_rows.max(axis=1))


def worth_of(
    job: Job, state: JobState, rows: JobRows, centers: Sequence[Floats], peers: Sequence[Collection[str]] | None = None
) -> list[float]:
    """Return the objective over the rows that are drawn, for each of these sets of centers in the data's own units.

    With `peers`, only the rows of those peers count, for each set of centers. The values are then means over these rows,
    because sums over different rows cannot be compared; NaN if no row that is drawn belongs to such a peer.
    """
    origin, scale = state.arrays["origin"], state.arrays["scale"]
    fuzzifier = getattr(labelling_stage(job)[1], "fuzzifier", None)
    with one_thread(), np.errstate(all="ignore"):
        X = (rows.X - origin) / scale
        if peers is None:
            points = prepared(X)
            return [objective(points, (those - origin) / scale, fuzzifier) for those in centers]
        owner = rows.peer[rows.drawn]
        worth = []
        for those, there in zip(centers, peers, strict=True):
            own = X[np.isin(owner, [number for number, name in enumerate(rows.names) if name in there])]
            total = objective(prepared(own), (those - origin) / scale, fuzzifier) if len(own) else np.nan
            worth.append(total / max(len(own), 1))
        return worth


def _thinned(held: Mapping[str, DataSet], drawn: Ints) -> dict[str, DataSet]:
    thin, start = {}, 0
    for name, share in held.items():
        own = drawn[(drawn >= start) & (drawn < start + share.n_rows)] - start
        start += share.n_rows
        if own.size:
            thin[name] = share.take(own)
    return thin


def _gathered(held: Mapping[str, DataSet], labels: Sequence[Ints], clusters: tuple[str, ...]) -> JobRows:
    shares = list(held.values())
    drawn = evenly(sum(share.n_rows for share in shares))
    known = [share.y for share in shares if share.y is not None]
    # Without concatenating all rows.
    X = np.concatenate([share.X for share in _thinned(held, drawn).values()])
    return JobRows(
        tuple(held), np.repeat(np.arange(len(shares)), [share.n_rows for share in shares]),
        np.concatenate(labels).astype(np.int64), np.concatenate(known) if len(known) == len(shares) else None, X, drawn,
        shares[0].feature_names, clusters,
    )  # fmt: skip


def _of_columns(job: Job, state: JobState, held: Sequence[DataSet]) -> JobRows | None:
    """Return the rows where each peer has some columns of every row, so that no row belongs to one peer."""
    concluded = engine.conclude(job, state, Local(held[0].X, ids=held[0].shared_ids))
    if "labels" not in concluded:
        return None
    labels = np.asarray(concluded["labels"], dtype=np.int64)
    drawn = evenly(held[0].n_rows)
    arrays = state.arrays
    sure = np.asarray(arrays["memberships"], np.float64)[drawn].max(axis=1) if "memberships" in arrays else None
    n_clusters = int(getattr(labelling_stage(job)[1], "n_clusters", labels.max() + 1))
    features = tuple(name for share in held for name in share.feature_names)
    return JobRows(
        ("all",), np.zeros(len(labels), np.int64), labels, held[0].y,
        np.concatenate([share.X[drawn] for share in held], axis=1),
        drawn, features, tuple(map(str, range(n_clusters))), sure,
    )  # fmt: skip


def _of_communities(job: Job, found: JobResult, shares: Mapping[str, DataSet]) -> JobRows | None:
    """Return the rows where each peer labels its own; those outside all communities have no cluster."""
    from p2pclust.lab.pictures.graph import community_names  # noqa: PLC0415
    from p2pclust.protocols.models.fedcref_agreed import Agreed  # noqa: PLC0415 - of such jobs only

    assert found.state is not None
    agreed = Agreed.of(found.state.arrays)
    alive = agreed.alive.tolist()
    own = labels_of_peers(job, found, shares)
    if not own:
        return None
    held = {name: shares[name] for name in own}
    labels = [np.where(of_peer < len(alive), of_peer, -1) for of_peer in own.values()]
    return _gathered(held, labels, tuple(community_names(len(alive))))
