"""What every estimator shares: from arrays to a job, and from the job's last state to learned attributes."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from p2pclust.clustering import Points, memberships, nearest, objective
from p2pclust.clustering.kernels import AUTO, Kernel, named
from p2pclust.errors import DataError, LeftOutWarning, SuspectResultWarning, UsageError
from p2pclust.estimators import inputs
from p2pclust.estimators.inputs import Floats, Rows
from p2pclust.estimators.pictures import Pictures
from p2pclust.estimators.running import has_links, run_job
from p2pclust.jobs.secured import decided, secured_fields
from p2pclust.protocols.centers.robust import limited_peers
from p2pclust.protocols.engine import checks, summaries
from p2pclust.protocols.engine.base import ByColumns, Clustering
from p2pclust.protocols.engine.compose import cluster_job, clustering_class
from p2pclust.protocols.engine.exclusions import refuse
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local, in_working_coordinates
from p2pclust.protocols.engine.reasons import NO_DATA
from p2pclust.protocols.engine.runner import conclude, run_in_process
from p2pclust.protocols.engine.secure_rounds import exposed_peers
from p2pclust.protocols.engine.summaries import suspects_of_log, with_columns
from p2pclust.protocols.measuring.doubts import doubts, objective_of
from p2pclust.tools.distribution import laboratory

_PACKAGE = str(Path(__file__).parents[1])
# Parameters for the data and the backend; every other parameter of an estimator belongs to the job.
_ALONE = "each of its clusters has one row, which is sent as zeros (suppress_singletons)"
_AROUND = ("n_peers", "partition", "fleet", "random_state", "secure", "kernel", "threads")


@dataclass(eq=False, repr=False, kw_only=True)
class LabellingEstimator(
    Pictures,
    ClusterMixin,  # type: ignore[misc] # scikit-learn has no types
    BaseEstimator,  # type: ignore[misc]
):
    """An estimator that labels the rows of peers by a job of the protocol ``protocol_id``."""

    protocol_id: ClassVar[str] = ""
    _usual_partition: ClassVar[str] = "iid"

    random_state: Any = None
    n_peers: int | None = None
    partition: Any = "iid"
    fleet: Any = None
    kernel: str = AUTO
    threads: int = 1

    def fit(self, X: Any, y: Any = None) -> Self:
        """Run the federated job.

        Parameters
        ----------
        X : list or dict of array_like, or one array_like
            A list holds one array of shape (n_m, F) per peer; a dict also has the names of the peers, ``peer_names_``, in
            the order of all lists of results. One array of shape (n, F) is split over ``n_peers``.
        y : array_like of shape (n,), optional
            Labels or groups for the partition of one array. The clustering never sees them.

        Raises
        ------
        DataError
            For an empty peer, a value that is not finite, peers with different columns, or fewer rows than clusters.
        UsageError
            For a parameter out of range.
        FleetError
            If the job failed, for example because the privacy gate held every peer.
        """
        self._run(*self._prepared(X, y))
        return self

    def _prepared(self, X: Any, y: Any) -> tuple[Job, list[Local], list[Rows] | None]:
        """Return the job, the peers' rows, and which rows of one array each peer has, if one was given."""
        seed = inputs.seed_from(self.random_state)
        arrays, parts = self._held(X, y, seed)
        job = self._job(seed, arrays[0].shape[1], len(arrays))
        self._check(arrays)
        return job, self._locals(arrays, parts), parts

    def _locals(self, arrays: list[Floats], parts: list[Rows] | None) -> list[Local]:
        locals = self._peers(arrays, parts)
        for local in locals:
            local.threads = self.threads
        return locals

    def _peers(self, arrays: list[Floats], parts: list[Rows] | None) -> list[Local]:
        return [Local(rows) for rows in arrays]

    def _run(self, job: Job, locals: list[Local], parts: list[Rows] | None) -> None:
        self._learn(job, self._run_job(job, locals), locals, parts)
        self._warn_of_no_end(job)

    def _run_job(self, job: Job, locals: list[Local]) -> JobState:
        """Run the job, keep how it went for pictures, and return its last state."""
        secured = secured_fields(self._options()["protocol"], self._asked_secure(), len(locals))
        state, self._course = run_job(job, locals, self.fleet, secured)
        return state

    def _job(self, seed: int, n_features: int, n_peers: int) -> Job:
        options, secure = self._options(), self._asked_secure()
        if "bounds" in options:
            options["bounds"] = inputs.bounds_of_each(options["bounds"], n_features)

        def make(secured: Mapping[str, Any]) -> Job:
            sums = {"secure": True, "groups": secured.get("groups", 0)} if secured else {}
            return cluster_job(seed=seed, **options, **sums).here(Kernel(named(self.kernel), self.threads).name)

        return decided(options["protocol"], secure, n_peers, make)

    def _options(self) -> dict[str, Any]:
        own = {name: value for name, value in self.get_params(deep=False).items() if name not in _AROUND}
        return {"protocol": self.protocol_id, **own}

    def _asked_secure(self) -> Any:
        """Return `secure` as it was asked for; None if the job's protocol and peers decide."""
        asked = getattr(self, "secure", False)
        refuse({"in_process": self.fleet is None, "secure": bool(asked) or isinstance(asked, Mapping)})
        return False if asked is None and not has_links(self.fleet) else asked

    def _held(self, X: Any, y: Any, seed: int) -> tuple[list[Floats], list[Rows] | None]:
        """Return each peer's rows and, if one array was split, their indices in it."""
        asked = self._options().get("missing_values", "error")
        keeps_gaps = checks.one_of("missing_values", asked, ("error", "keep")) == "keep"
        X = self._list_of(X)
        if inputs.is_list_of_peers(X):
            self._refuse_partition(X)
            self._learn_schema(X)
            arrays = inputs.matrices(X, self.n_peers, keeps_gaps=keeps_gaps, numbers=self._numbers)
            named = next((rows for rows in X if hasattr(rows, "columns")), X[0])
            validate_data(self, inputs.without_fields(named), skip_check_array=True)  # names and number of the columns
            self._named = inputs.column_names(named)
            return arrays, None
        self._learn_schema([X])
        together = inputs.matrix(self._numbers(X, "X"), "X", keeps_gaps=keeps_gaps)
        if isinstance(X, list | tuple) and self.n_peers is None:
            _warn(inputs.ONE_ARRAY, UserWarning)
        validate_data(self, inputs.without_fields(X), skip_check_array=True)  # names and number of the columns
        self._named = inputs.column_names(X)
        parts = inputs.dealt(together, y, self.n_peers, self.partition, seed)
        return [together] if len(parts) == 1 else [together[rows] for rows in parts], parts

    def _list_of(self, X: Any) -> Any:
        """Return a dict of tables as a list, and store its names."""
        X, names = inputs.named_peers(X)
        if names:
            self.peer_names_ = names
        elif hasattr(self, "peer_names_"):
            del self.peer_names_  # of an earlier fit
        return X

    def _learn_schema(self, tables: Sequence[Any]) -> None:
        """Note which columns of these tables are categories, of an estimator that takes them."""

    def _numbers(self, rows: Any, where: str) -> Any:
        """Return rows with numbers in the place of words, of an estimator that takes them; `where` names them in errors."""
        return rows

    def _refuse_partition(self, X: Any) -> None:
        if not (isinstance(self.partition, str) and self.partition == self._usual_partition):
            raise UsageError(f"partition = {self.partition!r}, but a list of {len(X)} arrays was given: leave it out")

    def _check(self, arrays: list[Floats]) -> None:
        """Check parameters given per feature or per row against the data, before any peer starts."""
        n_samples, n_clusters = sum(len(rows) for rows in arrays), getattr(self, "n_clusters", 1)
        if n_clusters > n_samples:
            held = f"all peers together hold n_samples = {n_samples} rows: ask for at most {n_samples}"
            raise DataError(f"n_clusters = {n_clusters}, but {held}")
        n_features, init, bounds = arrays[0].shape[1], getattr(self, "init", ""), getattr(self, "bounds", None)
        if not (init is None or isinstance(init, str)) and np.asarray(init).shape[1] != n_features:
            raise UsageError(f"init has {np.asarray(init).shape[1]} columns, but the data have {n_features}")
        if bounds is not None and (size := len(inputs.bounds_of_each(bounds, n_features)[0])) != n_features:
            raise UsageError(f"bounds are given for {size} features, but the data have {n_features}")

    def _learn(self, job: Job, state: JobState, locals: list[Local], parts: list[Rows] | None) -> None:
        nothing = np.zeros(0, dtype=np.int64)  # of a peer without rows, where there may be one
        labels = [np.array(kept.get("labels", nothing)) for kept in conclude(job, state, locals)]
        self._learn_rounds(job, state, labels)
        self.labels_: list[Rows] | Rows = labels if parts is None else in_order(parts, labels)
        if empty := sum(local.n_samples - local.n_observed for local in locals):
            _warn(f"{empty} row{'s have' if empty > 1 else ' has'} no value, and the label -1", LeftOutWarning)

    def _learn_rounds(self, job: Job, state: JobState, labels: Sequence[Rows] = ()) -> None:
        protocol, rounds = job.protocols[job.main], [record for record in state.log if record.stage == job.main]
        self._clustered = [n for n, one in enumerate(state.log) if one.stage == job.main and one.contributors]
        # Those of the job: a parameter that is set after the fit is for the next one.
        self._tol = float(getattr(protocol, "tol", 0.0) or 0.0)
        self._moves = str(getattr(protocol, "moves", "centers"))
        self._fuzzifier: float | None = getattr(protocol, "fuzzifier", None)
        self._keeps_gaps, self._levels = protocol.keeps_gaps, job.levels
        self.seed_ = job.seed
        self.n_rounds_ = self.n_iter_ = len(rounds)
        self.converged_ = state.converged
        self.history_ = state.arrays["shifts"].tolist() if "shifts" in state.arrays else []
        self.contributors_ = [record.contributors for record in rounds]
        self.abstained_ = {peer: why for record in state.log for peer, why in record.abstained.items()}
        self.suppressed_ = summaries.suppressed(state)
        self.coarse_ = summaries.coarse(state)
        names = tuple(getattr(self, "feature_names_in_", ()))
        self.doubts_ = doubts(state.arrays, job.center_columns(names) if names else (), labels, job.levels)
        self.suspects_ = tuple((one["peer"], one["round"], one["reason"]) for one in suspects_of_log(state))
        self.limited_ = limited_peers(state.arrays)
        self.exposed_ = () if state.secured is None else exposed_peers(state)
        if "origin" in state.arrays:
            self.origin_, self.scale_ = np.array(state.arrays["origin"]), np.array(state.arrays["scale"])
        if "deviations" in state.arrays:
            self.center_deviations_ = np.array(state.arrays["deviations"]) * self.scale_
        took_part = {peer for record in rounds for peer in record.contributors}
        absent = {peer: why for peer, why in self.abstained_.items() if peer not in took_part and why != NO_DATA}
        if getattr(protocol, "suppress_singletons", False):
            alone = [peer for peer, own in enumerate(labels) if len(own) and len(np.unique(own)) == len(own)]
            absent |= {peer: _ALONE for peer in alone if peer not in absent}
        if absent:
            named = getattr(self, "_named", ())  # other names for each peer where peers hold columns
            called = getattr(self, "peer_names_", ())
            reasons = "; ".join(
                f"{', '.join(called[peer] if called else f'peer {peer}' for peer in peers)}: {with_columns(why, named)}"
                for why, peers in summaries.by_reason(dict(sorted(absent.items())[:3])).items()
            )
            more = f"; and {len(absent) - 3} more" if len(absent) > 3 else ""
            whose = "a peer" if len(absent) == 1 else f"{len(absent)} peers"
            _warn(f"the result is without the rows of {whose} ({reasons}{more})", LeftOutWarning)
        for doubt in self.doubts_:
            _warn(doubt, SuspectResultWarning)

    def _warn_of_no_end(self, job: Job) -> None:
        """Warn that max_rounds was reached; with ``tol=0`` that is intended."""
        most = getattr(job.protocols[job.main], "max_rounds", None)
        if most is not None and self._tol > 0 and not self.converged_:
            text = f"did not converge in max_rounds = {most} rounds: give it more, or a larger tol"
            _warn(f"{type(self).__name__} {text}", ConvergenceWarning)

    def _fitting(self, X: ArrayLike) -> Floats:
        """Return rows of the columns that the estimator was fitted on."""
        if isinstance(X, list | tuple) and X and all(len(getattr(item, "shape", ())) == 2 for item in X):
            raise DataError(f"X is a list of {len(X)} arrays: give one at a time, or np.concatenate(X)")
        rows = inputs.matrix(self._numbers(X, "X"), "X", keeps_gaps=self._keeps_gaps)
        if rows.shape[1] != self.n_features_in_:
            wanted = f"{type(self).__name__} is expecting {self.n_features_in_} features as input"
            raise DataError(f"X has {rows.shape[1]} features, but {wanted}: give the columns that it was fitted on")
        validate_data(self, inputs.without_fields(X), reset=False, skip_check_array=True)  # names of the columns
        return rows


@dataclass(eq=False, repr=False)
class FederatedEstimator(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    LabellingEstimator,
):
    """An estimator with centers."""

    n_clusters: int = 8
    _: KW_ONLY
    scaling: str = "none"

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the nearest center of each row, shape (n,); -1 for a row without any value."""
        return nearest(self._points(X), self._centers)

    def transform(self, X: ArrayLike) -> Floats:
        """Return each row's distance to each center in working coordinates, shape (n, C).

        Where missing values are kept, over the values that are there.
        """
        rows = self._points(X).X
        return np.column_stack([np.sqrt(np.nansum((rows - center) ** 2, axis=1)) for center in self._centers])

    def objective(self, X: ArrayLike) -> float:
        """Return the objective of the algorithm on these rows, in working coordinates."""
        return float(objective(self._points(X), self._centers, self._fuzzifier))

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Return the negative :meth:`objective`: greater is better."""
        return -self.objective(X)

    @property
    def _n_features_out(self) -> int:
        return len(self._centers)

    def _learn(self, job: Job, state: JobState, locals: list[Local], parts: list[Rows] | None) -> None:
        super()._learn(job, state, locals, parts)
        self.cluster_centers_ = summaries.raw_centers(state)
        self._learn_objective(objective_of(state.arrays))
        self._centers = np.array(state.arrays["centers"])  # in working coordinates, with the bits of the run

    def _learn_objective(self, value: float | None) -> None:
        """Store the objective that the peers added up, if the protocol has one."""

    def _points(self, X: ArrayLike) -> Points:
        check_is_fitted(self)
        rows = Local(np.ascontiguousarray(self._fitting(X))).encoded(None, self._levels)
        if rows.problem and not self._keeps_gaps:
            raise DataError(f"X: {rows.problem}")
        return in_working_coordinates(rows.X, self.origin_, self.scale_)


@dataclass(eq=False, repr=False, kw_only=True)
class RowsEstimator(FederatedEstimator):
    """An estimator over peers that hold different rows."""

    participation: float = 1.0
    bounds: tuple[Sequence[float], Sequence[float]] | None = None
    secure: bool | Mapping[str, Any] | None = None


@dataclass(eq=False, repr=False, kw_only=True)
class FuzzyEstimator(FederatedEstimator):
    """An estimator whose rows belong to every cluster to some degree."""

    fuzzifier: float = 2.0

    def memberships(self, X: ArrayLike) -> Floats:
        """Return the membership of each row in each cluster, shape (n, C); rows sum to 1, and to 0 without any value."""
        points = self._points(X)
        assert self._fuzzifier is not None, "every fuzzy protocol has one"
        return memberships(points, self._centers, self._fuzzifier)

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return `memberships`, by the name that scikit-learn's tools ask for."""
        return self.memberships(X)


@dataclass(eq=False, repr=False)
class _WithProtocol:
    """The first parameter, before those of every estimator."""

    protocol: str = "llf-cm"


@dataclass(eq=False, repr=False)
class FederatedClustering(FederatedEstimator, _WithProtocol):
    """A clustering by any protocol over peers that hold different rows: one of p2pclust's, or of an installed plug-in.

    Parameters and attributes that are not listed: see :class:`LosslessCMeans`.

    Parameters
    ----------
    protocol : str, default "llf-cm"
        Its id; see ``p2pclust protocols``. It has to end with centers.
    parameters : mapping of str to value, optional
        The protocol's own parameters, by name.
    init, tol, max_rounds
        By default the protocol's own.

    Examples
    --------
    >>> model = FederatedClustering("llf-cm", 2, init=[[0.0], [9.0]], parameters={"suppress_singletons": False})
    >>> model.fit([[[0.0], [1.0]], [[8.0], [9.0]]]).cluster_centers_.tolist()
    [[0.5], [8.5]]
    """

    _: KW_ONLY
    parameters: Mapping[str, Any] | None = None
    init: str | ArrayLike | None = None
    tol: float | None = None
    max_rounds: int | None = None
    participation: float = 1.0
    bounds: tuple[Sequence[float], Sequence[float]] | None = None
    secure: bool | Mapping[str, Any] | None = None

    def _options(self) -> dict[str, Any]:
        kind = clustering_class(self.protocol)
        if not issubclass(kind, Clustering) or issubclass(kind, ByColumns):
            why = "it does not end with the centers of rows: use its own class"
            raise UsageError(f"protocol = {self.protocol!r}: {why}")
        options = super()._options()
        own = options.pop("parameters") or {}
        if twice := sorted(options.keys() & own.keys()):
            raise UsageError(f"parameters: {', '.join(twice)}: give it as an argument of its own")
        return options | own


def _warn(text: str, kind: type[Warning]) -> None:
    """Warn at the line that called an estimator."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, kind, stacklevel=level + 1)


def in_order(parts: list[Rows], labels: list[Rows]) -> Rows:
    """Return the peers' labels in the order of the rows of the one array that was split."""
    together = np.empty(sum(len(part) for part in parts), dtype=np.int64)
    for part, own in zip(parts, labels, strict=True):
        together[part] = own
    return together


def audit(estimator: LabellingEstimator, X: Any, y: Any = None, *, patience_s: float = 20.0) -> list[Any]:
    """Fit an estimator in this process, then do what a curious peer could do with the contributions that it got.

    For an estimator whose peers exchange models, a fifth of each peer's rows is withheld from the fit: how well a model
    recognises rows that it was trained on is measured with both.

    Parameters
    ----------
    estimator : LabellingEstimator
        With its parameters; it is copied and not fitted. `X` and `y` are as for ``fit``.
    patience_s : float
        How long to try to solve for the rows of one peer.

    Returns
    -------
    list of `p2pclust.lab.attacks.findings.AttackResult`
        One for each attack, with the number of rows that came back exactly.

    Examples
    --------
    >>> import numpy as np
    >>> from p2pclust import LosslessCMeans, audit
    >>> peers = [np.random.default_rng(n).normal(n / 2, 1.0, size=(30, 2)) for n in range(3)]
    >>> found = audit(LosslessCMeans(n_clusters=3, tol=0.0, random_state=1), peers)
    >>> [(one.attack, one.observer, one.rows) for one in found][0]
    ('rows that move alone', 'aggregator', 90)
    """
    attacks = laboratory("attacks.audit", "audit")
    job, locals_, _ = clone(estimator)._prepared(X, y)
    log = () if attacks.exchanges_models(job) else run_in_process(job, locals_).log
    return cast("list[Any]", attacks.audit_job(attacks.Audit(job, locals_, log, patience_s=patience_s)))
