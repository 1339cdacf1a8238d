"""The algorithms that approximate the result of the pooled rows."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import ArrayLike

from p2pclust.estimators.base import FuzzyEstimator, RowsEstimator


@dataclass(eq=False, repr=False, kw_only=True)
class FFCM(RowsEstimator, FuzzyEstimator):
    """FFCM: each peer runs fuzzy c-means from the global centers, and the local centers are averaged or clustered.

    M. Stallmann, A. Wilbik: Towards federated clustering: a federated fuzzy c-means algorithm (FFCM).

    Parameters and attributes that are not listed: see :class:`LosslessCMeans`.

    Parameters
    ----------
    fuzzifier : float, default 2.0
        The paper's m, above 1.
    averaging : {"weighted", "kmeans"}, default "weighted"
        The paper's avg_1, the weighted mean of the local centers with the same number, or avg_2, k-means of all local
        centers.
    local_iterations : int, optional
        Steps of local fuzzy c-means per round. None: until the memberships are stable, at most 1000. With 1 and
        "weighted" the algorithm is pooled fuzzy c-means.
    support : {"u^m", "u"}, default "u^m"
        The sum that weighs a local center, for "weighted": memberships to the power of the fuzzifier (the paper's Eq. 7)
        or themselves (the authors' code).
    privacy_gate : bool or "job", default True
        A peer with ``n_clusters * (F + 1) / F`` rows or fewer abstains: its centers would give its rows away; with
        ``"job"``, `max_rounds` times as many.

    Attributes
    ----------
    suppressed_ : int
        Contributions, and ranges of peers of one or two rows, that the privacy rule held back.

    Examples
    --------
    >>> peers = [[[0.0], [0.2], [9.0], [9.2], [0.1]], [[0.1], [0.3], [9.1], [9.3], [9.2]]]
    >>> model = FFCM(n_clusters=2, init=[[0.0], [9.0]], averaging="kmeans").fit(peers)
    >>> sorted(model.cluster_centers_.round(2).tolist())
    [[0.15], [9.15]]
    """

    protocol_id = "ffcm"

    averaging: str = "weighted"
    local_iterations: int | None = None
    init: str | ArrayLike = "uniform"
    tol: float = 1e-4
    max_rounds: int = 100
    support: str = "u^m"
    privacy_gate: bool | str = True


@dataclass(eq=False, repr=False, kw_only=True)
class GradientFuzzyCMeans(RowsEstimator, FuzzyEstimator):
    """GDF-FCM: each round is one gradient step of the fuzzy c-means objective, summed over the peers.

    Parameters and attributes that are not listed: see :class:`FFCM`.

    Parameters
    ----------
    learning_rate : float, default 0.005
        Of the step. The right size falls with the number of rows of the largest peers: a run that diverges fails and
        says so.
    local_iterations : int, default 10
        After how many local alternations of memberships and centers the gradient is taken.

    Examples
    --------
    >>> peers = [[[0.0], [0.2], [9.0], [9.2], [0.1]], [[0.1], [0.3], [9.1], [9.3], [9.2]]]
    >>> model = GradientFuzzyCMeans(n_clusters=2, init=[[0.0], [9.0]], learning_rate=0.05, max_rounds=100, tol=1e-4)
    >>> model.fit(peers).cluster_centers_.round(2).tolist()
    [[0.14], [9.16]]
    """

    protocol_id = "gdf-fcm"

    learning_rate: float = 0.005
    local_iterations: int = 10
    init: str | ArrayLike = "uniform"
    tol: float = 5e-3
    max_rounds: int = 30
    privacy_gate: bool | str = True


@dataclass(eq=False, repr=False, kw_only=True)
class ClusteredFuzzyCMeans(RowsEstimator, FuzzyEstimator):
    """C2F-FCM: each peer runs fuzzy c-means from the global centers, and the local centers are clustered.

    Parameters and attributes: see :class:`FFCM`.

    Examples
    --------
    >>> peers = [[[0.0], [0.2], [9.0], [9.2], [0.1]], [[0.1], [0.3], [9.1], [9.3], [9.2]]]
    >>> sorted(ClusteredFuzzyCMeans(n_clusters=2, random_state=0).fit(peers).cluster_centers_.round(1).tolist())
    [[0.1], [9.2]]
    """

    protocol_id = "c2f-fcm"

    local_iterations: int | None = None
    init: str | ArrayLike = "careful"
    tol: float = 5e-3
    max_rounds: int = 30
    privacy_gate: bool | str = True


@dataclass(eq=False, repr=False, kw_only=True)
class FederatedKMeans(RowsEstimator):
    """FKM: k-means for peers that hold different clusters; each sends the means of the clusters that it has.

    S. Garst, M. Reinders: Federated K-means clustering.

    Parameters and attributes that are not listed: see :class:`LosslessCMeans`.

    Parameters
    ----------
    init : {"own", "split-merge", "k-means++", "shared-k-means++", "careful", "random", "uniform"} or array (n_clusters, F)
        "own": as the paper has it, k-means++ and one step at every peer, clustered by the aggregator.
    min_cluster_size : int, default 2
        The paper's p: means of fewer rows are not sent.
    n_init : int, default 10
        How many seedings the aggregator's k-means tries.

    Attributes
    ----------
    suppressed_ : int
        Means that were not sent, over all rounds, and ranges of peers of one or two rows.

    Examples
    --------
    >>> peers = [[[0.0], [0.2], [0.1], [5.0], [5.2]], [[0.1], [0.3], [9.1], [9.3], [9.2]]]
    >>> sorted(FederatedKMeans(n_clusters=3, random_state=0).fit(peers).cluster_centers_.round(2).tolist())
    [[0.14], [5.1], [9.2]]
    """

    protocol_id = "fkm"

    init: str | ArrayLike = "own"
    tol: float = 5e-3
    max_rounds: int = 10
    min_cluster_size: int = 2
    n_init: int = 10


@dataclass(eq=False, repr=False, kw_only=True)
class KFed(RowsEstimator):
    """k-FED: every peer clusters its own rows, and the aggregator clusters their means; one round.

    D. Dennis, T. Li, V. Smith: Heterogeneity for the win: one-shot federated clustering.

    Parameters and attributes that are not listed: see :class:`LosslessCMeans`.

    Parameters
    ----------
    n_local_clusters : int or "search", optional
        How many clusters each peer has, 1 if each holds one cluster. None: as many as all have together; "search": each
        peer chooses from 2 on by silhouette. `doubts_` says where peers split clusters because it is too large.
    min_cluster_size : int, default 2
        Means of fewer rows are not sent.

    Attributes
    ----------
    suppressed_ : int
        Means that were not sent, and ranges of peers of one or two rows.

    Examples
    --------
    >>> peers = [[[0.0], [0.2], [0.1], [5.0], [5.2]], [[0.1], [0.3], [9.1], [9.3], [9.2]]]
    >>> model = KFed(n_clusters=3, n_local_clusters=2, random_state=0).fit(peers)
    >>> model.n_rounds_, sorted(model.cluster_centers_.round(2).tolist())
    (1, [[0.15], [5.1], [9.2]])
    """

    protocol_id = "k-fed"

    n_local_clusters: int | str | None = None
    min_cluster_size: int = 2
