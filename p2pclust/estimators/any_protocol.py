"""An estimator for every protocol that ends with centers, those of plug-ins included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import ArrayLike

from p2pclust.clustering.kernels import AUTO
from p2pclust.errors import UsageError
from p2pclust.estimators.base import FederatedEstimator
from p2pclust.estimators.inputs import bounds_of_each
from p2pclust.protocols.engine.base import ByColumns, Clustering
from p2pclust.protocols.engine.compose import cluster_job, clustering_class
from p2pclust.protocols.engine.job import Job


class FederatedClustering(FederatedEstimator):
    """A clustering by any protocol over peers that hold different rows: one of p2pclust's, or of an installed plug-in.

    Parameters
    ----------
    protocol : str, default "llf-cm"
        Its id; see ``p2pclust protocols``. It has to end with centers.
    n_clusters : int, default 8
    parameters : mapping of str to value, optional
        The protocol's own parameters, by name.
    init, tol, max_rounds
        By default the protocol's own; see :class:`LosslessCMeans`.
    participation, scaling, bounds, random_state, n_peers, partition, fleet, kernel, threads
        See :class:`LosslessCMeans`.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, F)
        In the data's own units.
    labels_, n_rounds_, converged_, history_, contributors_, abstained_
        See :class:`LosslessCMeans`.

    Examples
    --------
    >>> model = FederatedClustering("llf-cm", 2, init=[[0.0], [9.0]], parameters={"suppress_singletons": False})
    >>> model.fit([[[0.0], [1.0]], [[8.0], [9.0]]]).cluster_centers_.tolist()
    [[0.5], [8.5]]
    """

    def __init__(
        self,
        protocol: str = "llf-cm",
        n_clusters: int = 8,
        *,
        parameters: Mapping[str, Any] | None = None,
        init: str | ArrayLike | None = None,
        tol: float | None = None,
        max_rounds: int | None = None,
        participation: float = 1.0,
        scaling: str = "none",
        bounds: tuple[Sequence[float], Sequence[float]] | None = None,
        random_state: Any = None,
        n_peers: int | None = None,
        partition: str | Mapping[str, Any] = "iid",
        fleet: Any = None,
        kernel: str = AUTO,
        threads: int = 1,
    ) -> None:
        self.protocol = protocol
        self.n_clusters = n_clusters
        self.parameters = parameters
        self.init = init
        self.tol = tol
        self.max_rounds = max_rounds
        self.participation = participation
        self.scaling = scaling
        self.bounds = bounds
        self.random_state = random_state
        self.n_peers = n_peers
        self.partition = partition
        self.fleet = fleet
        self.kernel = kernel
        self.threads = threads

    def _stages(self, seed: int, n_features: int) -> Job:
        kind = clustering_class(self.protocol)
        if not issubclass(kind, Clustering) or issubclass(kind, ByColumns):
            raise UsageError(
                f"protocol = {self.protocol!r}: it does not end with the centers of rows: use its own class"
            )
        return cluster_job(
            self.protocol, n_clusters=self.n_clusters, scaling=self.scaling, bounds=bounds_of_each(self.bounds, n_features),
            init=self.init, tol=self.tol, max_rounds=self.max_rounds, participation=self.participation, seed=seed,
            **(self.parameters or {}),
        )  # fmt: skip
