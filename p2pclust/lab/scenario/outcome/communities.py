"""The first labels and the measures of protocols in which every peer has its own clusters.

A scenario has all rows with their true labels, which no peer has. Only the draw of the peers, the dirty start and the
measures use the labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering.local_starts import dirty_labels
from p2pclust.data import DataSet
from p2pclust.errors import UsageError
from p2pclust.jobs.request import JobResult
from p2pclust.lab.scenario.file.schema import ScenarioJob
from p2pclust.metrics import accuracy
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.job import Job
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.random_streams import dirt
from p2pclust.protocols.models.association import Association
from p2pclust.protocols.models.fedcref import FedCRefProtocol
from p2pclust.protocols.models.fedcref_agreed import HISTORY, Agreed
from p2pclust.protocols.models.fedcref_note import own_clusters_of, without_gaps

Ints = NDArray[np.int64]


def first_labels(spec: ScenarioJob, shares: Mapping[str, DataSet], seed: int) -> dict[str, Ints]:
    """Return each peer's first labels if the job asks for given ones: the true labels, some of them changed."""
    if spec.own.get("initial") != "given":
        return {}
    known = sorted(_known("initial = 'given'", shares).items())
    return {name: dirty_labels(y, spec.dirtiness or 0.0, dirt(seed, number)) for number, (name, y) in enumerate(known)}


def own_numbers(spec: ScenarioJob, shares: Mapping[str, DataSet]) -> dict[str, int]:
    """Return each peer's number of clusters if the job takes it from the labels."""
    if spec.n_local_clusters != "classes":
        return {}
    return {name: len(np.unique(y)) for name, y in _known("n_local_clusters = 'classes'", shares).items()}


def _known(what: str, shares: Mapping[str, DataSet]) -> dict[str, NDArray[Any]]:
    known = {name: share.y for name, share in shares.items() if share.y is not None}
    for name in shares:
        if name not in known:
            raise UsageError(f"{what} needs labels, and {name} has none: choose data with labels, or leave it out")
    return known


def measured_communities(job: Job, found: JobResult, shares: Mapping[str, DataSet]) -> dict[str, Any]:
    """Return the communities, and the quality of the peers' labels if true labels are known.

    ``communities`` are the members of each as [peer, cluster], ``isolated`` likewise; ``own_clusters`` the [peer,
    cluster] of each label after those of the communities; ``refinements`` their history; ``metrics`` the mean
    ``accuracy`` over peers, and ``wrong_links``, the share of links between clusters of different classes.
    """
    assert found.state is not None
    agreed = Agreed.of(found.state.arrays)
    association = agreed.association
    called = [[found.roster[peer], cluster] for peer, cluster in association.clusters.nodes]
    truth = {name: share.y for name, share in shares.items() if share.y is not None and name in found.digests}
    metrics: dict[str, float] = {}
    ends, alive = ends_of_peers(job, found, shares), agreed.alive.tolist()
    all_own = [(one.label, name, one.cluster) for name, end in ends.items() for one in own_clusters_of(end)]
    own = sorted(one for one in all_own if one[0] >= len(alive))
    if truth:
        metrics["accuracy"] = float(np.mean([accuracy(y, ends[name]["labels"]) for name, y in truth.items()]))
        metrics["wrong_links"] = wrong_links(association, cluster_classes(association, found, truth))
    return {
        "communities": [[called[m] for m in association.groups[group]] for group in alive],
        "isolated": [called[m] for m in association.isolated],
        "own_clusters": [[name, cluster] for _, name, cluster in own],
        "links": len(association.links),
        "refinements": [dict(zip(HISTORY, (int(x) for x in row), strict=True)) for row in agreed.history],
        "n_rows": sum(shares[name].n_rows for name in found.digests),
        "metrics": metrics,
        "note": "a community is found by its members' models; no peer holds centers",
    }


def labels_of_peers(job: Job, found: JobResult, shares: Mapping[str, DataSet]) -> dict[str, Ints]:
    """Return the labels of the peers that finished and have some, shape (n,) each, by name; see :func:`ends_of_peers`."""
    ends = ends_of_peers(job, found, shares).items()
    return {name: np.asarray(end["labels"]) for name, end in ends if end.get("labels") is not None}


def ends_of_peers(job: Job, found: JobResult, shares: Mapping[str, DataSet]) -> dict[str, Arrays]:
    """Return the final arrays of each peer that finished, by name; labels are numbered 0, 1, 2, ... over all peers.

    Where peers hold columns, all of them have the same labels: only the first one is asked.
    """
    assert found.state is not None
    ends = {}
    for name in sorted(found.digests)[: 1 if job.by_columns else None]:
        local = Local(shares[name].X, ids=shares[name].shared_ids)
        ends[name] = engine.conclude(job, found.state, local, found.workspace(name))
    if not isinstance(job.protocols[-1], FedCRefProtocol):
        return ends
    alive = len(Agreed.of(found.state.arrays).alive)
    return dict(zip(ends, without_gaps(alive, [*ends.values()]), strict=True))


def cluster_classes(association: Association, found: JobResult, truth: Mapping[str, NDArray[Any]]) -> list[Any]:
    """Return the class of most rows of each cluster of the last exchange; None if its peer has no true labels."""
    names = [found.roster[peer] for peer, _ in association.clusters.nodes]
    return [
        most_frequent(truth[name][found.notes[name]["entered"] == cluster])
        if name in truth and name in found.notes
        else None
        for name, (_, cluster) in zip(names, association.clusters.nodes, strict=True)
    ]


def most_frequent(kinds: NDArray[Any]) -> Any:
    """Return the most frequent of these classes; None if there are none."""
    names, counts = np.unique(kinds, return_counts=True)
    return names[counts.argmax()] if names.size else None


def wrong_links(association: Association, classes: Sequence[Any]) -> float:
    """Return the share of links between clusters of different classes, among links with known classes; 0 if there are none.

    >>> from p2pclust.protocols.models.association import Clusters
    >>> wrong_links(Association(Clusters((1, 1, 1)), [(0, 1), (1, 2)]), ["a", "a", "b"])
    0.5
    """
    pairs = [(classes[a], classes[b]) for a, b in association.links.tolist()]
    known = [one != other for one, other in pairs if one is not None and other is not None]
    return float(np.mean(known)) if known else 0.0
