"""FedCRef as an estimator: communities of clusters over peers, and a model of each."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from p2pclust.clustering.autoencoders import Architecture, Encoding, ModelStack
from p2pclust.clustering.stacks import reconstruction_errors, refuse_device
from p2pclust.errors import DataError, UsageError
from p2pclust.estimators.base import LabellingEstimator, in_order
from p2pclust.estimators.inputs import Floats, Rows, is_whole
from p2pclust.estimators.running import Course, done, result_of
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.compose import require_extras
from p2pclust.protocols.engine.job import Job
from p2pclust.protocols.engine.local import Local, in_working_coordinates
from p2pclust.protocols.engine.runner import Workspaces, one_thread, run_in_process
from p2pclust.protocols.models.fedcref import FedCRefProtocol
from p2pclust.protocols.models.fedcref_agreed import HISTORY, Agreed
from p2pclust.protocols.models.fedcref_note import UNASSIGNED, own_clusters_of, without_gaps
from p2pclust.tools.platforms import n_cores

_NO_PEER: Final = -1  # the number of a peer that is not known


@dataclass(eq=False, repr=False, kw_only=True)
class FedCRef(LabellingEstimator):
    """FedCRef: peers train an autoencoder per cluster, find which clusters are the same, and train these together.

    The number of communities is found, not given. After M. Nardi, L. Valerio, A. Passarella: Federated Clustering: An
    Unsupervised Cluster-Wise Training for Decentralized Data Distributions. It needs torch.
    Parameters and attributes that are not listed: see :class:`LosslessCMeans`; this estimator has no centers.

    Parameters
    ----------
    mode : {"refined", "paper"}, default "refined"
        As the paper has it, or with a better association and federated expectation-maximisation.
    initial : {"mixture", "kmeans", "dec"} or list of arrays, default "mixture"
        Each peer's first partition: principal components and a mixture of Gaussians, or k-means; DEC; or labels that are
        given, one array per peer, or one array where the rows are in one (-1 is a cluster like any other).
    n_local_clusters : int or list of int, optional
        How many clusters each peer has. By default as many as its given labels, or what its rows look like by silhouette.
    alpha, theta, tau, normalisation, links, max_iterations
        Of mode "paper" only; 75, 0.2, 0.8, "pair", "all" and 20 there.
    max_refinements, settled
        Of mode "refined" only; 6 and 0.01 there.
    hidden : sequence of int, default (100, 64, 32, 64, 100)
        Widths of the autoencoders' hidden layers.
    output : {"sigmoid", "linear"}, default "sigmoid"
        Output of the autoencoders; a sigmoid needs rows in [0, 1] after `scaling`.
    epochs, batch : int, optional
        Of the training of each local cluster's model. 20 and 64 in mode "paper". In mode "refined" they follow from the
        peer's number of rows for each of its clusters, so that there are at least 120 gradient steps: 20 and 64 from 384
        rows on, 60 and 16 for 24 rows.
    rounds, local_epochs, federated_rate : int, int, float, optional
        Of FedAvg in each community; 15, 1 and 1e-3 in mode "paper", 2, 3 and 2e-3 in mode "refined", where fewer rows have
        more local epochs.
    encoding : {"float32", "float16", "int8"}, default "float32"
        As what models are sent.
    precision : {"float32", "bfloat16"}, default "float32"
        What models are tried on rows in. "bfloat16" is faster where the CPU multiplies such numbers fast, and labels a few
        rows otherwise. `predict` uses float32.
    min_rows : int, default 10
        A cluster of fewer rows has no model, which would reveal its rows.
    most_local_clusters : int, default 10
        Up to which the silhouette looks.
    device : str, default "cpu"
        Where every peer computes; with "cuda" the same bits are not promised.
    bounds : pair of numbers, or of sequences of one number per feature, optional
        Declared bounds of the features. For images declare one pair for all pixels, such as (0, 255).

    Attributes
    ----------
    labels_ : list of int64 arrays, or one array
        Numbered 0, 1, 2, ... over all peers. Below ``len(communities_)``: the community, with the same meaning at every
        peer. From there on: a cluster of one peer that belongs to no community, see `own_clusters_`. -1: a row of a cluster
        that was too small, and not yet assigned.
    communities_ : tuple of tuples of (peer, cluster)
        Which of the peers' clusters were found to be the same, in the last exchange; communities that no row belongs to in
        the end are not among them.
    isolated_ : tuple of (peer, cluster)
        Clusters of that exchange that belong to no community.
    own_clusters_ : tuple of (peer, cluster)
        The clusters of one peer, in the order of the labels from ``len(communities_)`` on, if they have rows in the end. The
        cluster is numbered as in the last exchange; -1 for one of an earlier exchange.
    association_graph_ : networkx.Graph
        Of that exchange: nodes (peer, cluster).
    models_ : ModelStack
        The autoencoders that are left: of communities and of peers' own clusters, in the order of labels.
    model_labels_ : int64 array
        Which label each model is of. A cluster that only one peer has may have two models: each has seen one half of its
        rows. In mode "paper" peers that came to rest have models of their own of their clusters in a community.
    history_ : list of dict
        One per refinement: groups, isolated clusters, links, rows that changed, of how many.

    Examples
    --------
    Three peers, each of which sees two of three kinds of rows.

    >>> rng = np.random.Generator(np.random.PCG64(0))
    >>> kinds = np.array([[0.9, 0.1, 0.1, 0.5], [0.1, 0.9, 0.1, 0.5], [0.1, 0.1, 0.9, 0.5]])
    >>> peers = [np.repeat(kinds[[a, b]], 40, axis=0) + 0.05 * rng.normal(size=(80, 4)) for a, b in [(0, 1), (1, 2), (2, 0)]]
    >>> model = FedCRef(n_local_clusters=2, hidden=(3, 2, 3), epochs=60, batch=8, learning_rate=0.02, random_state=0)
    >>> model = model.fit(peers)
    >>> len(model.communities_), [sorted(set(labels.tolist())) for labels in model.labels_]
    (3, [[0, 1], [0, 2], [1, 2]])
    """

    protocol_id = "fedcref"

    mode: str = "refined"
    initial: Any = "mixture"
    n_local_clusters: int | Sequence[int] | None = None
    alpha: float | None = None
    theta: float | None = None
    tau: float | None = None
    normalisation: str | None = None
    links: str | None = None
    max_iterations: int | None = None
    max_refinements: int | None = None
    settled: float | None = None
    hidden: Sequence[int] = (100, 64, 32, 64, 100)
    output: str = "sigmoid"
    epochs: int | None = None
    batch: int | None = None
    learning_rate: float = 1e-3
    rounds: int | None = None
    local_epochs: int | None = None
    federated_rate: float | None = None
    encoding: str = "float32"
    precision: str = "float32"
    min_rows: int = 10
    most_local_clusters: int = 10
    device: str = "cpu"
    scaling: str = "minmax"
    bounds: tuple[Any, Any] | None = None

    def predict(self, X: ArrayLike, peer: int | None = None) -> NDArray[np.int64]:
        """Return the label of each row, shape (n,): the model with the least error; -1 without a model.

        Parameters
        ----------
        X : array_like of shape (n, F)
        peer : int, optional
            The peer that holds these rows, as its place in the list that was fitted. A peer judges by the models of the
            communities and own clusters that it has rows of. By default a row that the fit saw is judged as the peer that
            held it judges, and any other row by all models, those of clusters that only one peer has among them.
        """
        check_is_fitted(self)
        errors, rows = self.reconstruction_errors(X), self._fitting(X)
        n_peers = len(self._judges.of_peer)
        if peer is not None and (not is_whole(peer) or not 0 <= peer < n_peers):
            expected = f"expected a whole number from 0 to {n_peers - 1}: the fit had {n_peers} peers"
            raise UsageError(f"peer = {peer!r}: {expected}")
        holders = self._judges.holders_of(rows) if peer is None else np.full(len(rows), peer, np.int64)
        return self._judges.call(errors, holders)

    def reconstruction_errors(self, X: ArrayLike) -> Floats:
        """Return the mean squared error of each row under each model of `models_`, shape (n, M), in working units."""
        check_is_fitted(self)
        rows = in_working_coordinates(np.ascontiguousarray(self._fitting(X)), self.origin_, self.scale_).X
        if not len(self.models_):
            return np.empty((len(rows), 0))
        return reconstruction_errors(self.models_, rows, device=self._device).astype(np.float64)

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Return the negative mean error of the rows under their best models: greater is better, -inf without a model."""
        return -float(self.reconstruction_errors(X).min(axis=1, initial=np.inf).mean())

    def _options(self) -> dict[str, Any]:
        options = {name: value for name, value in super()._options().items() if value is not None}
        if not isinstance(self.initial, str):
            options["initial"] = "given"
        elif self.initial == "given":
            raise UsageError("initial = 'given': give the labels themselves, as a list with one array per peer")
        number = options.pop("n_local_clusters", None)
        return options | ({"n_local_clusters": int(number)} if is_whole(number) else {})

    def _job(self, seed: int, n_features: int, n_peers: int) -> Job:
        job = super()._job(seed, n_features, n_peers)
        require_extras([job])
        return job

    def _peers(self, arrays: list[Floats], parts: list[Rows] | None) -> list[Local]:
        n = len(arrays)
        labels: list[Any] = [None] * n
        if not isinstance(self.initial, str):
            sizes = [len(rows) for rows in arrays]
            if parts is None:
                given = [np.asarray(own) for own in self.initial]
                if [own.shape for own in given] != [(size,) for size in sizes]:
                    counts = [len(own) if own.ndim else 0 for own in given]
                    raise DataError(f"initial: labels for {counts} rows, but the peers hold {sizes}")
            else:
                together = np.asarray(self.initial)
                if together.shape != (sum(sizes),):
                    raise DataError(f"initial: expected one label for each of the {sum(sizes)} rows of X")
                given = [together[rows] for rows in parts]
            # Numbered from 0, because backends carry whole numbers only.
            labels = [np.unique(own, return_inverse=True)[1].astype(np.int64) for own in given]
        numbers: list[int | None] = [None] * n
        if not (self.n_local_clusters is None or is_whole(self.n_local_clusters)):
            each: Any = self.n_local_clusters
            if np.ndim(each) == 0:
                expected = f"a whole number, one for each of the {n} peers, or None: what the rows look like"
                raise UsageError(f"n_local_clusters = {each!r}: expected {expected}")
            if len(each) != n or not all(is_whole(number) and number >= 1 for number in each):
                raise UsageError(f"n_local_clusters: expected one number from 1 on for each of the {n} peers")
            numbers = [int(number) for number in each]
        return [Local(rows, labels=own, n_clusters=k) for rows, own, k in zip(arrays, labels, numbers, strict=True)]

    def _check(self, arrays: list[Floats]) -> None:
        """Refuse a sigmoid without min-max scaling, which alone gives rows in [0, 1], before every peer abstains."""
        refuse_device(self.device)
        if self.output == "sigmoid" and self.scaling != "minmax":
            raise UsageError(
                f"scaling = {self.scaling!r} puts rows beyond [0, 1], but the models end in a sigmoid: scaling = 'minmax' "
                "(of rows in [0, 1] already, with bounds = (0, 1)), or output = 'linear'"
            )

    def _run(self, job: Job, locals: list[Local], parts: list[Rows] | None) -> None:
        blobs: Mapping[bytes, bytes]  # the models of groups, by digest
        if self.fleet is None:
            workspaces, self._course = Workspaces(n_cores()), Course()
            state = done(run_in_process(job, locals, None, workspaces))
            spaces, blobs = [workspaces.of(peer) for peer in range(len(locals))], workspaces.blobs
        else:
            result, self._course = result_of(job, locals, self.fleet)
            state, blobs = done(result.state), result.blobs
            spaces = [result.workspace(name) for name in result.roster]
        self._learn_rounds(job, state)
        agreed = Agreed.of(state.arrays)
        association, nodes = agreed.association, agreed.association.clusters.nodes
        groups = [association.groups[group] for group in agreed.alive.tolist()]
        self.communities_ = tuple(tuple(nodes[m] for m in members) for members in groups)
        self.isolated_ = tuple(nodes[m] for m in association.isolated)
        self.association_graph_ = association.graph()
        self.history_ = [dict(zip(HISTORY, (int(x) for x in row), strict=True)) for row in agreed.history]
        self.n_iterations_ = agreed.iteration
        with one_thread():
            own = [engine.conclude(job, state, local, space) for local, space in zip(locals, spaces, strict=True)]
        ends = without_gaps(len(groups), own)
        protocol = job.protocols[-1]
        assert isinstance(protocol, FedCRefProtocol), "the job was made for it"
        alone = sorted((one.label, peer, one.cluster) for peer, end in enumerate(ends) for one in own_clusters_of(end))
        self.own_clusters_ = tuple((peer, cluster) for label, peer, cluster in alone if label >= len(groups))
        communities, arrays = [agreed.group_model(g) for g in agreed.alive.tolist()], [local.X for local in locals]
        architecture = protocol.architecture(state.arrays)
        self._judges = Judges.of(architecture, protocol.encoding, communities, ends, blobs, arrays)
        self.models_, self.model_labels_ = self._judges.models, self._judges.labels[self._judges.judge]
        # That of the job: a parameter that is set after the fit is for the next one.
        self._device = protocol.device
        found = [np.array(end["labels"]) for end in ends]
        self.labels_: list[Rows] | Rows = found if parts is None else in_order(parts, found)


@dataclass(frozen=True, eq=False)
class Judges:
    """The models that are left in the end, and which peer judges by which.

    A peer calls its rows by the models of the communities and own clusters that it has rows of, not by all that there are.
    So what a row is called depends on which peer holds it. A row that the fit saw is known by a digest of its values, and
    is judged as its peer judges; a row that no peer held is judged by all models.
    """

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
        whose model is not there has no say. `ends` are the peers' conclusions, and `arrays` their rows.
        """
        every: list[tuple[int, int, tuple[bytes, ...]]] = [
            (n, _NO_PEER, (model,)) for n, model in enumerate(communities)
        ]
        every += [(own.label, peer, own.models) for peer, end in enumerate(ends) for own in own_clusters_of(end)]
        judges = sorted((label, peer, models) for label, peer, models in every if set(models) & set(blobs))
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
        communities = self.owners == _NO_PEER
        for peer in np.unique(peers).tolist():
            own = np.zeros(len(self.labels), np.bool_)
            if peer != _NO_PEER:
                own = (self.owners == peer) | (communities & np.isin(self.labels, self.of_peer[peer]))
            # Where no peer is known, each community and own cluster judges once.
            columns = np.flatnonzero(own if own.any() else communities | (self.labels >= self.n_communities))
            rows = np.flatnonzero(peers == peer)
            found[rows] = self.labels[columns[table[np.ix_(rows, columns)].argmin(axis=1)]]
        return found


def digests_of_rows(X: Floats) -> NDArray[np.uint64]:
    """Return a hash of 64 bits for each row, shape (n,).

    >>> one, other, again = digests_of_rows(np.array([[0.0, 1.0], [1.0, 0.0], [-0.0, 1.0]])).tolist()
    >>> one == again, one == other
    (True, False)
    """
    rows = np.ascontiguousarray(X, np.float64) + 0.0  # minus zero is zero
    made = b"".join(hashlib.blake2b(row.data, digest_size=8).digest() for row in rows)
    return np.frombuffer(made, np.uint64)
