"""The lossless algorithms: what they find is what pooling all rows would have found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from p2pclust.clustering import blocks
from p2pclust.errors import DataError
from p2pclust.estimators.base import FuzzyEstimator, RowsEstimator
from p2pclust.estimators.categories import decoded, encoded, schema_of
from p2pclust.estimators.inputs import Floats, Rows, seed_from
from p2pclust.protocols.engine.exclusions import refuse
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.measuring.doubts import objective_of

_MOST = 2.0**36  # divided by the number of peers; the grid of the sums holds four times as much, see `fixed_point`


@dataclass(eq=False, repr=False, kw_only=True)
class _LosslessEstimator(RowsEstimator):
    """An estimator whose protocol counts a row as many times as its weight says."""

    init: str | ArrayLike = "split-merge"
    n_init: int = 1
    tol: float = 5e-3
    max_rounds: int = 30
    accelerate: bool = False
    max_weight: float = 0.0
    robust: str = ""
    missing_values: str = "error"
    levels: Sequence[int] = ()
    weights: Sequence[float] = ()

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Run the federated job.

        Parameters
        ----------
        X, y
            As for :meth:`FederatedClustering.fit`.
        sample_weight : list of array_like, or one array_like, optional
            One weight for each row, in the form of X: a row of weight w counts as w equal rows in all sums, and a row of
            weight 0 is only labelled. Privacy rules count rows, not weights. It takes ``init="split-merge"`` or given
            centers, and runs in this process (``fleet=None``).
        """
        if sample_weight is None:
            return super().fit(X, y)
        init = self.init if isinstance(self.init, str) and self.init != "split-merge" else ""
        refuse({"weighted": True, "in_process": self.fleet is None, "init": init})
        seed = seed_from(self.random_state)
        arrays, parts = self._held(X, y, seed)
        if isinstance(sample_weight, Mapping):
            sample_weight = [sample_weight.get(name) for name in getattr(self, "peer_names_", ())]
        weights = _weights_of_peers(sample_weight, arrays, parts)
        factor = _factor(weights)
        # A row of weight 0 is absent for every rule that counts rows as well.
        counted = [
            Local(rows[own > 0], weights=own[own > 0] * factor) for rows, own in zip(arrays, weights, strict=True)
        ]
        for local in counted:
            local.threads = self.threads
        job = self._job(seed, arrays[0].shape[1], len(arrays))
        self._check([local.X for local in counted])
        state = self._run_job(job, counted)
        self._learn(job, state, [Local(rows) for rows in arrays], parts)
        found = objective_of(state.arrays)
        self._learn_objective(None if found is None else found / factor)
        self._warn_of_no_end(job)
        return self

    def _learn_schema(self, tables: Sequence[Any]) -> None:
        self.schema_ = schema_of(tables)

    def _numbers(self, rows: Any, where: str) -> Any:
        return encoded(rows, where, self.schema_)

    def _options(self) -> dict[str, Any]:
        options = super()._options()
        schema = getattr(self, "schema_", None)
        if schema is None:
            return options
        given = {name: value for name, value in options.items() if name not in ("levels", "weights") or len(value)}
        return {**given, "schema": schema}

    def _learn(self, job: Job, state: JobState, locals: list[Local], parts: list[Rows] | None) -> None:
        super()._learn(job, state, locals, parts)
        self.center_columns_ = job.center_columns(
            self._named or [f"x{number}" for number in range(self.n_features_in_)]
        )


@dataclass(eq=False, repr=False, kw_only=True)
class LosslessCMeans(_LosslessEstimator):
    """LLF-CM: c-means (k-means) over peers that hold different rows, equal to pooled c-means.

    Parameters
    ----------
    n_clusters : int, default 8
    init : {"split-merge", "k-means++", "careful", "shared-k-means++", "random", "uniform"} or array_like (n_clusters, F)
        First centers, default "split-merge": from sums of all peers over cells that are split and merged. Or: proposed
        by one peer (means of five of its rows each) or by all, picked by k-means++ over all peers, drawn within the
        ranges, or given.
    n_init : int, default 1
        How many sets of first centers are worked on side by side; the one with the smallest objective is kept. Rounds do
        not multiply, but work, bytes and the sums that a peer reveals do.
    tol : float, default 5e-3
        Stop when the centers move by less (Frobenius norm, in working coordinates). 0 runs exactly ``max_rounds``.
    max_rounds : int, default 30
    participation : float in (0, 1], default 1.0
        The share of peers that is drawn for each round.
    scaling : {"none", "minmax", "zscore"}, default "none"
        Working coordinates, found by the federation.
    bounds : pair (lo, hi) of numbers, or of sequences of one number per feature, optional
        Declared bounds of the features, which spare the round that finds them. A peer with a value outside abstains:
        see `abstained_`.
    random_state : int, numpy Generator or RandomState, or None
        The job's seed, or where to draw it.
    suppress_singletons : bool, default True
        Send a local cluster of one row as zeros, and let peers of one or two rows reveal no range, so that no row leaves
        its peer. What is suppressed breaks the equality with pooled c-means; ``suppressed_`` counts it.
    privacy : mapping, optional
        ``{"epsilon": 2, "delta": 1e-6}``: differential privacy for each row, with ``secure`` and ``bounds``. Of ``init``,
        ``tol`` and ``max_rounds`` the defaults are then those of a private job.
    accelerate : bool, default False
        Go further than each round's step as long as the objective falls: fewer rounds to the same fixed point, but no
        round by round equality with the pooled algorithm.
    max_weight : float, default 0.0
        At least 1: against a peer that lies, none weighs more than so many times the median peer. 0: no limit.
    robust : {"", "trim", "median"}, default ""
        Against a peer that lies: a center is the trimmed mean, or the median, of the peers' means of its cluster. Such
        rounds are not those of the pooled algorithm.
    missing_values : {"error", "keep"}, default "error"
        With "keep", NaN is a missing value: distances are over the values that are there, and each column of a center is the
        mean over the rows of its cluster that have a value in it. A row without any value has the label -1.
    levels : sequence of int, optional
        The number of values of each column, 0 for a number: a category is then the index of its value. Of a table of pandas,
        polars or Arrow they follow from its columns: text, categories, and true and false.
    weights : sequence of float, optional
        The squared distance of two different values of a category, for each column; 0: the mean variance of the number
        columns in working coordinates.
    n_peers : int, optional
        Over how many peers one array is split. None: one peer holds it.
    partition : str or mapping, default "iid"
        How one array is split: a scheme, or a mapping with ``scheme`` and its options, for example
        ``{"scheme": "dirichlet", "beta": 0.5}``; see :func:`p2pclust.data.split`. Schemes that look at labels or groups
        take them from ``y``.
    fleet : None, str or backend, default None
        None runs in this process; "simulated" and "processes" run real peers, with the same bits.
    kernel : {"auto", "numpy", "c1"}, default "auto"
        What does the passes over the rows: the C extension ("c1", which "auto" is where it is installed), with the same bits
        on every kind of CPU, or NumPy.
    threads : int, default 1
        How many threads may work on a peer's rows in this process, with "c1" and the same results for any number.
    secure : bool or mapping, optional
        Secure sums, on a fleet: no peer sees what a single other one contributes, and the centers have the same bits. By
        default on a fleet of four or more peers, and False switches them off; with ``fleet=None`` nothing crosses a link.
        True, or parameters: ``{"keepers": 4, "cohort": 5, "burnt": "groups", "leave": "alone", "colluders": 2}``. With
        ``max_weight`` or ``robust`` also ``groups``, for example 5: the totals of so many fixed groups are compared.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, F)
        In the data's own units. With categories each has a column for every value, the share of rows that have it.
    center_columns_ : tuple of str
        The names of the columns of ``cluster_centers_``, such as ``"age"`` and ``"ward=surgery"``.
    labels_ : list of ndarray, one per peer; one ndarray in the order of the rows if one array was given
    inertia_ : float
        The sum of all rows' squared distances to the nearest center in the last round, in working coordinates, each times
        the row's weight if there are weights. NaN if every peer abstained from that.
    doubts_ : tuple of str
        Why the result may be wrong, one sentence each; every one is a `SuspectResultWarning` as well.
    n_rounds_, n_iter_ : int
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
        Local clusters sent as zeros, over all rounds, and ranges and sums for scaling that peers of one or two rows
        kept back; the latter change the working coordinates, but not the equality with pooled c-means in them.
    exposed_ : tuple of int
        With secure sums: the peers about which sums of fewer than ``cohort`` peers can be computed, because others left or
        came in between.
    suspects_ : tuple of (int, int, str)
        With ``max_weight`` or ``robust``: the peers that sent what no rows can have led to, the first round (of all stages)
        in which they did, and why. They are not expelled: only those contributions were left out.
    limited_ : dict of int to int
        With ``max_weight``: the peers whose weight was limited, and in how many rounds. They are not suspects.
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

    protocol_id = "llf-cm"

    suppress_singletons: bool = True
    privacy: Mapping[str, float] | None = None

    def _options(self) -> dict[str, Any]:
        """Return the parameters of the job; of a private one, those that a person has set."""
        options = super()._options()
        if self.privacy is None:
            return options
        usual = {one.name: one.default for one in fields(self) if one.name in ("init", "tol", "max_rounds")}
        return {n: v for n, v in options.items() if n not in usual or isinstance(v, np.ndarray) or v != usual[n]}

    def _learn_objective(self, value: float | None) -> None:
        self.inertia_: float = float("nan") if value is None else value


@dataclass(eq=False, repr=False, kw_only=True)
class LosslessFuzzyCMeans(_LosslessEstimator, FuzzyEstimator):
    """LLF-FCM (Federated FCM): fuzzy c-means over peers that hold different rows, equal to pooled fuzzy c-means.

    Parameters and attributes that are not listed: see :class:`LosslessCMeans`. A label is that of the greatest membership.

    Parameters
    ----------
    fuzzifier : float, default 2.0
        The papers' lambda, above 1: near 1 memberships are crisp.
    privacy_gate : bool or "job", default True
        A peer with ``n_clusters * (F + 1) / F`` rows or fewer abstains, because its sums could be solved for its rows;
        with ``"job"`` `max_rounds` times as many, because those of all rounds together can be solved too. Peers of one or
        two rows reveal no range.
    suppress_values : bool, default True
        Send the value of a category as zeros if one row of the peer has it.

    Attributes
    ----------
    objective_ : float
        The sum of ``u^fuzzifier d^2`` in the last round, in working coordinates; NaN if every peer abstained from that.
    suppressed_ : int
        Contributions that the privacy gate held back, over all rounds, and ranges and sums for scaling that peers of
        one or two rows kept back.
    coarse_ : int
        Centers so far from all rows in the last round that the grid of the sums holds less than 34 bits of their weight:
        they may differ from those of pooled fuzzy c-means. Always 0 for c-means, whose counts and sums do not get small.

    Examples
    --------
    >>> peers = [[[0.0], [0.2], [9.0], [9.2], [0.1]], [[0.1], [0.3], [9.1], [9.3], [9.2]]]
    >>> model = LosslessFuzzyCMeans(n_clusters=2, init=[[0.0], [9.0]]).fit(peers)
    >>> model.converged_, model.cluster_centers_.round(2).tolist()
    (True, [[0.14], [9.16]])
    """

    protocol_id = "llf-fcm"

    privacy_gate: bool | str = True
    suppress_values: bool = True

    def _learn_objective(self, value: float | None) -> None:
        self.objective_: float = float("nan") if value is None else value


@dataclass(eq=False, repr=False, kw_only=True)
class LosslessKPrototypes(_LosslessEstimator):
    """k-prototypes over peers that hold different rows: numbers by their mean, categories by their mode.

    Z. Huang: Extensions to the k-means algorithm for clustering large data sets with categorical values (1998). Without
    number columns it is k-modes. Parameters and attributes that are not listed: see :class:`LosslessCMeans`.

    Parameters
    ----------
    init : {"split-merge", "random", "uniform"} or array_like (n_clusters, F)
        First centers; in an array a category is the index of its value.
    gamma : float, default 0.0
        The cost of two different values of a category, where `weights` has none. 0: half of the mean standard deviation of
        the number columns in working coordinates, as in the package kmodes 0.12; 1 without number columns.
    suppress_singletons : bool, default True
        Send a local cluster of one row as zeros, and of each cluster the values that one of its local rows has.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, F)
        Means of numbers and modes of categories: the values of a table with words, otherwise their indices.
    cost_ : float
        The sum over all rows of the squared distance of the numbers, in working coordinates, and of gamma for each category
        that differs. NaN if every peer abstained from that.
    gamma_ : float
        The cost of two different values, of the first category; NaN without one.

    Examples
    --------
    >>> peers = [[[1.0, 0.0], [1.2, 0.0], [9.0, 2.0], [9.4, 2.0]], [[1.1, 0.0], [1.3, 0.0], [9.2, 2.0], [9.4, 2.0]]]
    >>> model = LosslessKPrototypes(n_clusters=2, levels=(0, 3), gamma=0.5, random_state=0).fit(peers)
    >>> sorted(model.cluster_centers_.round(2).tolist())
    [[1.15, 0.0], [9.25, 2.0]]
    """

    protocol_id = "k-prototypes"

    gamma: float = 0.0
    suppress_singletons: bool = True

    def _learn(self, job: Job, state: JobState, locals: list[Local], parts: list[Rows] | None) -> None:
        super()._learn(job, state, locals, parts)
        if not job.levels:
            self.gamma_ = float("nan")
            return
        ones = blocks.in_block(job.levels)
        self.gamma_ = float(2.0 / self.scale_[ones][0] ** 2)
        centers = blocks.from_blocks(self.cluster_centers_, job.levels)
        self.cluster_centers_ = centers if self.schema_ is None else decoded(centers, self.schema_)  # type: ignore[assignment] # words
        self.center_columns_ = tuple(self._named) or tuple(f"x{number}" for number in range(len(job.levels)))

    def _learn_objective(self, value: float | None) -> None:
        self.cost_: float = float("nan") if value is None else value


def _weights_of_peers(sample_weight: Any, arrays: list[Floats], parts: list[Rows] | None) -> list[Floats]:
    """Return one checked weight for each row of each peer; `parts` are the rows of peers that were dealt out."""

    def checked(given: Any, n_rows: int, peer: str) -> Floats:
        where = f"sample_weight: {peer}".removesuffix(", ") if peer else "sample_weight"
        try:
            weights: Floats = np.array(given, dtype=np.float64)
        except (TypeError, ValueError):
            raise DataError(f"{where}: expected one number for each row") from None
        if weights.shape != (n_rows,):
            raise DataError(
                f"{where}: has shape {weights.shape}, but there are {n_rows} rows: expected one weight each"
            )
        bad = ~((weights >= 0) & np.isfinite(weights))
        if bad.any():
            row = int(bad.argmax())
            raise DataError(f"sample_weight: {peer}row {row} is {weights[row]}: expected a finite number, 0 or more")
        return weights

    if parts is not None:
        together = checked(sample_weight, sum(len(rows) for rows in arrays), "")
        return [together[part] for part in parts]
    if not isinstance(sample_weight, list | tuple) or len(sample_weight) != len(arrays):
        raise DataError(f"sample_weight: expected a list of {len(arrays)} arrays, one per peer, as X is one")
    given = zip(sample_weight, arrays, strict=True)
    return [checked(own, len(rows), f"peer {peer}, ") for peer, (own, rows) in enumerate(given)]


def _factor(weights: list[Floats]) -> float:
    """Return the power of two with which no positive weight is below 1: the centers stay, and no cell is thought empty.

    >>> _factor([np.array([0.3, 5.0])]), _factor([np.array([0.0, 1.0])])
    (4.0, 1.0)
    """
    together = np.concatenate(weights)
    positive = together[together > 0]
    if not positive.size:
        raise DataError("sample_weight: every weight is zero: expected at least one row that counts")
    least, most = float(positive.min()), _MOST / len(weights)
    with np.errstate(over="ignore"):
        factor = 1.0 if least >= 1 else float(np.exp2(-np.floor(np.log2(least))))
        if not (total := float(positive.sum())) * factor <= most:
            raise DataError(
                f"sample_weight: the weights add up to {total:.3g}, and the smallest one is {least:.3g}: expected no more "
                f"than {most:.3g} times the smallest one, or in all"
            )
    return factor
