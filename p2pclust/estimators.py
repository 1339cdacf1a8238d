"""scikit-learn-style classes: give one array per peer, get the clustering that pooling all rows would have given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted

from p2pclust.clustering import Points, memberships, nearest, objective
from p2pclust.errors import DataError, FleetError, UsageError
from p2pclust.protocols import engine, streams
from p2pclust.protocols.compose import cluster_job
from p2pclust.protocols.job import Job, JobState
from p2pclust.protocols.local import Local, first_bad_value
from p2pclust.protocols.runner import run_in_process

__all__ = ["LosslessCMeans", "LosslessFuzzyCMeans"]

Floats = NDArray[np.float64]


class _Backend(Protocol):
    def run(self, job: Job, arrays: list[Floats]) -> JobState:
        """Run the job with one peer per array and return its last state."""


class _InProcess:
    def run(self, job: Job, arrays: list[Floats]) -> JobState:
        return run_in_process(job, [Local(X) for X in arrays])


class _LosslessEstimator(ClusterMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """What both classes share: from arrays to a job, and from its last state to learned attributes."""

    _protocol: ClassVar[str]
    _own: ClassVar[tuple[str, ...]]

    def fit(self, X: Any, y: object = None) -> Any:
        """Run the federated job.

        Parameters
        ----------
        X : list of array_like, or one array_like
            A list holds one array of shape (n_m, F) per peer. One array of shape (n, F) is split over ``n_peers``.
        y : ignored
            Here because scikit-learn's conventions have it.

        Returns
        -------
        self

        Raises
        ------
        DataError
            For an empty peer, a value that is not finite (its row and column are named), or peers with different
            columns.
        UsageError
            For a parameter out of range, or more clusters than rows.
        FleetError
            If the job failed, for example because the privacy gate held every peer.
        """
        seed = _seed(self.random_state)
        job = cluster_job(
            self._protocol,
            n_clusters=self.n_clusters,
            scaling=self.scaling,
            bounds=self.bounds,
            init=self.init,
            tol=self.tol,
            max_rounds=self.max_rounds,
            participation=self.participation,
            seed=seed,
            **{name: getattr(self, name) for name in self._own},
        )
        arrays, parts = _per_peer(X, self.n_peers, self.partition, seed)
        n_samples = sum(len(rows) for rows in arrays)
        if self.n_clusters > n_samples:
            raise UsageError(
                f"n_clusters = {self.n_clusters}, but all peers together hold {n_samples} rows: "
                f"ask for at most {n_samples}"
            )
        _check_given(self.init, self.bounds, arrays[0].shape[1])
        state = _backend(self.fleet).run(job, arrays)
        if state.status != "done":
            raise FleetError(state.reason or f"the job ended as {state.status!r}")
        self._learn(job, state, arrays, parts)
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the nearest center of each row, shape (n,)."""
        return nearest(self._points(X), self._centers)

    def transform(self, X: ArrayLike) -> Floats:
        """Return each row's distance to each center in working coordinates, shape (n, C)."""
        points = self._points(X)
        return np.stack([np.sqrt(((points.X - center) ** 2).sum(axis=1)) for center in self._centers], axis=1)

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Return the negative objective of the algorithm on these rows: greater is better."""
        return -float(objective(self._points(X), self._centers, self._fuzzifier()))

    def _fuzzifier(self) -> float | None:
        return None

    def _learn(self, job: Job, state: JobState, arrays: list[Floats], parts: list[NDArray[np.int64]] | None) -> None:
        rounds = [record for record in state.log if record.stage == state.stage]
        self.seed_ = job.seed
        self.n_features_in_ = arrays[0].shape[1]
        self.origin_ = np.array(state.arrays["origin"])
        self.scale_ = np.array(state.arrays["scale"])
        self.cluster_centers_ = engine.raw_centers(state)
        self._centers = np.array(state.arrays["centers"])  # in working coordinates, with the bits of the run
        self.n_rounds_ = len(rounds)
        self.converged_ = state.converged
        self.history_ = state.arrays["shifts"].tolist()
        self.contributors_ = [record.contributors for record in rounds]
        self.abstained_ = {peer: why for record in state.log for peer, why in record.abstained.items()}
        self.suppressed_ = engine.suppressed(state)
        labels = [np.array(engine.conclude(job, state, Local(X))["labels"]) for X in arrays]
        if parts is None:
            self.labels_: list[NDArray[np.int64]] | NDArray[np.int64] = labels
        else:
            together = np.empty(sum(len(part) for part in parts), dtype=np.int64)
            for part, own in zip(parts, labels, strict=True):
                together[part] = own
            self.labels_ = together

    def _points(self, X: ArrayLike) -> Points:
        check_is_fitted(self)
        rows = _matrix(X, "X")
        if rows.shape[1] != self.n_features_in_:
            raise DataError(f"X has {rows.shape[1]} columns, but the model was fitted on {self.n_features_in_}")
        return Points((rows - self.origin_) / self.scale_, shift=np.zeros(self.n_features_in_))


class LosslessCMeans(_LosslessEstimator):
    """LLF-CM: c-means (k-means) over peers that hold different rows, equal to pooled c-means.

    Parameters
    ----------
    n_clusters : int, default 8
    init : {"k-means++", "random", "uniform"} or array_like of shape (n_clusters, F), default "k-means++"
        First centers: proposed by one peer (means of five of its rows each, or drawn within the ranges), drawn from
        the seed, or given.
    tol : float, default 5e-3
        Stop when the centers move by less (Frobenius norm, in working coordinates). 0 runs exactly ``max_rounds``.
    max_rounds : int, default 30
    participation : float in (0, 1], default 1.0
        The share of peers that is drawn for each round.
    scaling : {"none", "minmax", "zscore"}, default "none"
        Working coordinates, found by the federation.
    bounds : pair of sequences (lo, hi), optional
        Declared bounds of the features, which spare the round that finds them. A peer with a value outside abstains.
    random_state : int, numpy Generator or RandomState, or None
        The job's seed, or where to draw it.
    suppress_singletons : bool, default True
        Send a local cluster of one row as zeros, so that no row leaves its peer. What is suppressed breaks the
        equality with pooled c-means; ``suppressed_`` counts it.
    n_peers : int, optional
        Over how many peers one array is split. None: one peer holds it.
    partition : {"iid"}, default "iid"
        How one array is split.
    fleet : None, str or backend, default None
        None runs in this process; "simulated" and "processes" run real peers, with the same bits.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, F)
        In the data's own units.
    labels_ : list of ndarray, one per peer; one ndarray in the order of the rows if one array was given
    n_rounds_ : int
        Rounds of clustering, empty ones included.
    converged_ : bool
        Whether ``tol`` was met.
    history_ : list of float
        How far the centers moved in each round.
    contributors_ : list of tuple of int
        The peers that contributed to each round of clustering.
    abstained_ : dict of int to str
        The peers that abstained in some round, and why.
    suppressed_ : int
        Local clusters sent as zeros, over all rounds.
    origin_, scale_ : ndarray of shape (F,)
        Working coordinates are ``(x - origin_) / scale_``.
    seed_ : int

    Examples
    --------
    >>> model = LosslessCMeans(n_clusters=2, init=[[0.0], [9.0]], random_state=0)
    >>> model = model.fit([[[0.0], [1.0], [8.0], [9.0]], [[0.5], [0.5], [8.5], [8.5]]])
    >>> model.cluster_centers_.tolist(), [labels.tolist() for labels in model.labels_]
    ([[0.5], [8.5]], [[0, 0, 1, 1], [0, 0, 1, 1]])
    """

    _protocol = "llf-cm"
    _own = ("suppress_singletons",)

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: str | ArrayLike = "k-means++",
        tol: float = 5e-3,
        max_rounds: int = 30,
        participation: float = 1.0,
        scaling: str = "none",
        bounds: tuple[Sequence[float], Sequence[float]] | None = None,
        random_state: Any = None,
        suppress_singletons: bool = True,
        n_peers: int | None = None,
        partition: str = "iid",
        fleet: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.tol = tol
        self.max_rounds = max_rounds
        self.participation = participation
        self.scaling = scaling
        self.bounds = bounds
        self.random_state = random_state
        self.suppress_singletons = suppress_singletons
        self.n_peers = n_peers
        self.partition = partition
        self.fleet = fleet


class LosslessFuzzyCMeans(_LosslessEstimator):
    """LLF-FCM (Federated FCM): fuzzy c-means over peers that hold different rows, equal to pooled fuzzy c-means.

    Parameters
    ----------
    n_clusters, init, tol, max_rounds, participation, scaling, bounds, random_state, n_peers, partition, fleet
        See :class:`LosslessCMeans`.
    fuzzifier : float, default 2.0
        The papers' lambda, above 1: near 1 memberships are crisp.
    privacy_gate : bool, default True
        A peer with ``n_clusters * (F + 1) / F`` rows or fewer abstains, because its sums could be solved for its rows.

    Attributes
    ----------
    cluster_centers_, labels_, n_rounds_, converged_, history_, contributors_, abstained_, origin_, scale_, seed_
        See :class:`LosslessCMeans`; a label is the cluster of the greatest membership.
    suppressed_ : int
        Contributions that the privacy gate held back, over all rounds.

    Examples
    --------
    >>> peers = [[[0.0], [0.2], [9.0], [9.2], [0.1]], [[0.1], [0.3], [9.1], [9.3], [9.2]]]
    >>> model = LosslessFuzzyCMeans(n_clusters=2, init=[[0.0], [9.0]]).fit(peers)
    >>> model.converged_, model.cluster_centers_.round(2).tolist()
    (True, [[0.14], [9.16]])
    """

    _protocol = "llf-fcm"
    _own = ("fuzzifier", "privacy_gate")

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        fuzzifier: float = 2.0,
        init: str | ArrayLike = "k-means++",
        tol: float = 5e-3,
        max_rounds: int = 30,
        participation: float = 1.0,
        scaling: str = "none",
        bounds: tuple[Sequence[float], Sequence[float]] | None = None,
        random_state: Any = None,
        privacy_gate: bool = True,
        n_peers: int | None = None,
        partition: str = "iid",
        fleet: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.fuzzifier = fuzzifier
        self.init = init
        self.tol = tol
        self.max_rounds = max_rounds
        self.participation = participation
        self.scaling = scaling
        self.bounds = bounds
        self.random_state = random_state
        self.privacy_gate = privacy_gate
        self.n_peers = n_peers
        self.partition = partition
        self.fleet = fleet

    def memberships(self, X: ArrayLike) -> Floats:
        """Return how much each row belongs to each cluster, shape (n, C); rows sum to 1."""
        return memberships(self._points(X), self._centers, self.fuzzifier)

    def _fuzzifier(self) -> float | None:
        return self.fuzzifier


def _backend(fleet: Any) -> _Backend:
    """Return what runs a job: this process, a backend by name, or a backend object as it is."""
    if fleet is None:
        return _InProcess()
    if isinstance(fleet, str):
        # Imported only when real peers are wanted: an in-process fit needs none of the network.
        from p2pclust.fleet import backend  # noqa: PLC0415

        return cast(_Backend, backend(fleet))
    if not hasattr(fleet, "run"):
        raise UsageError(f"fleet = {fleet!r}: expected None, the name of a backend, or a backend")
    return cast(_Backend, fleet)


def _seed(random_state: Any) -> int:
    if random_state is None:
        return streams.fresh_seed()
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(0, 2**31 - 1))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(0, streams.MAX_SEED))
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer):
        raise UsageError(f"random_state = {random_state!r}: expected a whole number, a numpy generator, or None")
    return int(random_state)


def _per_peer(
    X: Any, n_peers: int | None, partition: str, seed: int
) -> tuple[list[Floats], list[NDArray[np.int64]] | None]:
    """Return the peers' arrays and, if one array was split, the rows that each got."""
    if partition != "iid":
        raise UsageError(f"partition = {partition!r}: only 'iid' is known here; pass a list with one array per peer")
    if n_peers is not None and (isinstance(n_peers, bool) or not isinstance(n_peers, int | np.integer) or n_peers < 1):
        raise UsageError(f"n_peers = {n_peers!r}: expected a whole number of at least 1, or None")
    if _is_list_of_peers(X):
        if n_peers is not None and n_peers != len(X):
            raise UsageError(f"n_peers = {n_peers}, but a list of {len(X)} arrays was given: leave n_peers out")
        arrays = [_matrix(rows, f"peer {peer}") for peer, rows in enumerate(X)]
        for peer, rows in enumerate(arrays):
            if rows.shape[1] != arrays[0].shape[1]:
                raise DataError(f"peer {peer} has {rows.shape[1]} columns where peer 0 has {arrays[0].shape[1]}")
        return arrays, None
    together = _matrix(X, "X")
    count = 1 if n_peers is None else int(n_peers)
    if count > len(together):
        raise UsageError(f"n_peers = {count}, but X has {len(together)} rows: every peer needs at least one")
    order = streams.splitting(seed).permutation(len(together))
    parts = [np.sort(part) for part in np.array_split(order, count)]
    return [together[part] for part in parts], parts


def _is_list_of_peers(X: Any) -> bool:
    """Tell a list of matrices from one matrix that is written as a list of rows."""
    if not isinstance(X, list | tuple):
        return False
    if not X:
        raise DataError("no peers: expected a list with one array per peer, or one array")
    return any(_depth(item) != 1 for item in X)


def _depth(item: Any) -> int:
    """Return the number of dimensions without converting ragged lists; an empty list is an empty peer."""
    if hasattr(item, "ndim"):
        return int(item.ndim)
    if isinstance(item, list | tuple):
        return 1 + _depth(item[0]) if item else 2
    return 0


def _matrix(rows: Any, where: str) -> Floats:
    try:
        is_complex = np.iscomplexobj(rows)
    except (TypeError, ValueError):
        is_complex = False  # ragged: told below
    if is_complex:
        raise DataError(f"{where}: complex numbers cannot be clustered")
    try:
        matrix = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{where}: expected numbers in rows of equal length") from None
    if matrix.size == 0:
        raise DataError(f"{where} is empty: expected at least one row and one column")
    if matrix.ndim != 2:
        raise DataError(f"{where}: expected rows and columns, got {matrix.ndim} dimension(s)")
    problem = first_bad_value(matrix)
    if problem:
        raise DataError(f"{where}: {problem}: mend or leave out that row")
    return matrix


def _check_given(init: Any, bounds: Any, n_features: int) -> None:
    """Check what was given per feature against the data, before any peer starts."""
    if not isinstance(init, str) and np.asarray(init).shape[1] != n_features:
        raise UsageError(f"init has {np.asarray(init).shape[1]} columns, but the data have {n_features}")
    if bounds is not None and len(bounds[0]) != n_features:
        raise UsageError(f"bounds are given for {len(bounds[0])} features, but the data have {n_features}")
