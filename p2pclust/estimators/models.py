"""Clusterings by generative models: a row belongs to the model under which it is likeliest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from p2pclust.clustering.flows import log_likelihoods
from p2pclust.clustering.stacks import refuse_device, require_torch
from p2pclust.estimators.base import LabellingEstimator
from p2pclust.estimators.inputs import Floats, Rows
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.models.uifca import UIFCAProtocol, working_rows


@dataclass(eq=False, repr=False)
class UIFCA(LabellingEstimator):
    """UIFCA: one normalizing flow (RealNVP) per cluster, trained by federated averaging on the rows that it explains best.

    J. Chung, K. Lee, K. Ramchandran: Federated Unsupervised Clustering with Generative Models; models and defaults as in
    FedCRef's comparison with it. With the defaults and images of 784 pixels a run is far beyond a processor of two cores;
    ``cluster_rounds=5, communication_rounds=4, local_steps=25, couplings=4, hidden=(64, 64, 64), learning_rate=1e-3``
    takes minutes. It needs torch. Densities want features of about unit size: give pixels as numbers from 0 to 1, and scale
    what has other units. It has no centers. Parameters and attributes that are not listed: see :class:`LosslessCMeans`.

    Parameters
    ----------
    cluster_rounds, communication_rounds, local_steps : int, default 20, 40, 100
        The paper's T, tau and M: how often rows are assigned; how often, for each assignment, models are averaged; and how
        many steps of Adam a peer takes for each average.
    couplings : int, default 6
        Of each model.
    hidden : sequence of int, default (512, 512, 512)
        Widths of the hidden layers of each coupling's network.
    image_width : int, optional
        Pixels in a row of the image that a row of data is, for the checkerboard of couplings. By default the square root of
        the number of features if that is whole, else the features alternate as they come.
    batch : int, default 64
        Rows of a minibatch.
    decay : float, default 1e-4
        L2.
    start : {"random", "peers"}, default "random"
        From random models and the rows that each explains best; or all rows of a peer begin with one model, which each
        peer draws.
    min_cluster_size : int, default 2
        Models of fewer rows of a peer are not sent.
    device : str, default "cpu"
        Where every peer computes; with "cuda" the same bits are not promised.

    Attributes
    ----------
    labels_ : list of int64 arrays, or one array
        The likeliest model of each row.
    models_ : float32 array of shape (n_clusters, P)
        The models' weights; see :class:`p2pclust.clustering.flows.FlowArchitecture`.
    suppressed_ : int
        Models that were not sent, over all rounds, and ranges of peers of one or two rows.

    Examples
    --------
    >>> rng = np.random.Generator(np.random.PCG64(0))
    >>> peers = [rng.normal(at, 0.2, (60, 2)) for at in (-1.0, 1.0, -1.0, 1.0)]
    >>> short = {"cluster_rounds": 3, "communication_rounds": 2, "local_steps": 30, "couplings": 2, "hidden": (8,)}
    >>> model = UIFCA(n_clusters=2, start="peers", learning_rate=1e-2, random_state=3, **short).fit(peers)
    >>> [sorted(set(labels.tolist())) for labels in model.labels_]
    [[1], [0], [1], [0]]
    """

    protocol_id = "uifca"

    n_clusters: int = 8
    _: KW_ONLY
    cluster_rounds: int = 20
    communication_rounds: int = 40
    local_steps: int = 100
    couplings: int = 6
    hidden: Sequence[int] = (512, 512, 512)
    image_width: int | None = None
    batch: int = 64
    learning_rate: float = 1e-4
    decay: float = 1e-4
    start: str = "random"
    min_cluster_size: int = 2
    device: str = "cpu"
    participation: float = 1.0
    scaling: str = "none"
    bounds: tuple[Sequence[float], Sequence[float]] | None = None

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the likeliest model of each row, shape (n,)."""
        found: NDArray[np.int64] = self._likely(X).argmax(axis=1).astype(np.int64)
        return found

    def log_likelihoods(self, X: ArrayLike) -> Floats:
        """Return the logarithm of each row's density under each model, shape (n, n_clusters), in the data's units."""
        # A density per working unit is one per scale of the data's.
        return np.asarray(self._likely(X) - np.log(self.scale_).sum(), dtype=np.float64)

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Return the rows' mean log-likelihood under their likeliest models: greater is better."""
        return float(self.log_likelihoods(X).max(axis=1).mean())

    def _check(self, arrays: list[Floats]) -> None:
        super()._check(arrays)
        require_torch()  # Said here, once, and not by every peer that abstains.
        refuse_device(self.device)

    def _learn(self, job: Job, state: JobState, locals: list[Local], parts: list[Rows] | None) -> None:
        super()._learn(job, state, locals, parts)
        protocol = job.protocols[-1]
        assert isinstance(protocol, UIFCAProtocol), "the job was made for it"
        # Those of the job: a parameter that is set after the fit is for the next one.
        self._architecture, self._device = protocol.architecture(self.n_features_in_), protocol.device
        self.models_ = np.array(state.arrays["models"])

    def _likely(self, X: ArrayLike) -> Floats:
        check_is_fitted(self)
        rows = working_rows(self._fitting(X), self.origin_, self.scale_)
        return log_likelihoods(self._architecture, self.models_, rows, device=self._device).astype(np.float64)
