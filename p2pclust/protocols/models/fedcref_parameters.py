"""What FedCRef leaves to choose: its parameters, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from p2pclust.clustering.encodings import Encoding
from p2pclust.clustering.stacks import PRECISIONS
from p2pclust.errors import UsageError
from p2pclust.protocols.engine import checks
from p2pclust.protocols.models import mutual_test
from p2pclust.protocols.models.fedavg import ENCODINGS, architecture_of
from p2pclust.protocols.models.fedcref_pace import AUTO, Pace, usual_pace

MODES = ("refined", "paper")
INITIALS = ("mixture", "kmeans", "dec", "given")
_OF_PAPER: Mapping[str, Any] = {
    "alpha": 75.0, "theta": 0.2, "tau": 0.8, "normalisation": "pair", "links": "all", "max_iterations": 20,
}  # fmt: skip
_OF_REFINED: Mapping[str, Any] = {"max_refinements": 6, "settled": 0.01}
_OF_BOTH: Mapping[str, Mapping[str, Any]] = {
    "paper": {"rounds": 15, "local_epochs": 1, "federated_rate": 1e-3},
    "refined": {"rounds": 2, "local_epochs": 3, "federated_rate": 2e-3},
}
_MOST = 2**20
PACED = ("epochs", "batch", "local_epochs")
"""The parameters that may follow from the number of rows."""
MOST_OF_A_PEER = 256


@dataclass(frozen=True)
class FedCRefParameters:
    """The parameters.

    - `mode` {"refined", "paper"}
    - `n_local_clusters`: K_i, the same for all peers. By default each peer's own: that which its device was given, or
      as many as its starting labels, or the best by silhouette from 2 to ``most_local_clusters``.
    - `initial` {"mixture", "kmeans", "dec", "given"}: where the first partition of a peer comes from: principal
      components and a mixture of Gaussians, or k-means; DEC; or the labels that the device was given.
    - `alpha`, `theta`, `normalisation`: of the paper's test; see :mod:`mutual_test`. Like ``links``, ``tau`` and
      ``max_iterations`` of mode "paper" only.
    - `links` {"all", "one"}: whether a cluster is linked to all clusters of a later peer that pass, or to the first, as
      in the authors' code.
    - `tau`: a peer rests when a refinement keeps at least this share of its rows.
    - `max_refinements`: how often models are trained and rows refined. Of mode "refined" only, like the next one.
    - `settled`: the refinements end when fewer than this share of all rows changed their cluster.
    - `hidden`, `output`: the autoencoders' architecture; see :class:`p2pclust.clustering.autoencoders.Architecture`.
    - `epochs`, `batch`, `learning_rate`: of the training of local clusters; the batch of FedAvg as well. In mode
      "refined" `epochs`, `batch` and `local_epochs` may be "auto": what
      :func:`p2pclust.protocols.models.fedcref_pace.usual_pace` says of the rows. A job document without them has 20, 64
      and 3.
    - `rounds`, `local_epochs`, `federated_rate`: of FedAvg: 15, 1 and 1e-3 in mode "paper"; 2, 3 and 2e-3 in mode
      "refined", whose groups never begin anew.
    - `encoding` {"float32", "float16", "int8"}: as what models are sent.
    - `precision` {"float32", "bfloat16"}: what the products are computed in when models are tried on rows, at every
      peer alike. Models are trained in float32.
    - `min_rows`: a cluster of fewer rows has no model.
    - `device`: "cpu", or a CUDA device.

    >>> FedCRefParameters(mode="paper").tau
    0.8
    >>> FedCRefParameters(tau=0.9)
    Traceback (most recent call last):
    p2pclust.errors.UsageError: fedcref: tau belongs to mode = 'paper'; this one is 'refined'
    """

    mode: str = "refined"
    n_local_clusters: int | None = None
    initial: str = "mixture"
    alpha: float | None = None
    theta: float | None = None
    tau: float | None = None
    normalisation: str | None = None
    links: str | None = None
    max_iterations: int | None = None
    max_refinements: int | None = None
    settled: float | None = None
    hidden: tuple[int, ...] = (100, 64, 32, 64, 100)
    output: str = "sigmoid"
    epochs: int | str = 20
    batch: int | str = 64
    learning_rate: float = 1e-3
    rounds: int | None = None
    local_epochs: int | str | None = None
    federated_rate: float | None = None
    encoding: Encoding = "float32"
    precision: str = "float32"
    min_rows: int = 10
    most_local_clusters: int = 10
    device: str = "cpu"

    def __post_init__(self) -> None:
        put = object.__setattr__
        checks.one_of("fedcref: mode", self.mode, MODES)
        checks.one_of("fedcref: initial", self.initial, INITIALS)
        own, other = (_OF_PAPER, _OF_REFINED) if self.mode == "paper" else (_OF_REFINED, _OF_PAPER)
        for name in other:
            if getattr(self, name) is not None:
                where = "paper" if name in _OF_PAPER else "refined"
                raise UsageError(f"fedcref: {name} belongs to mode = {where!r}; this one is {self.mode!r}")
        for name, usual in (*own.items(), *_OF_BOTH[self.mode].items()):
            put(self, name, usual if getattr(self, name) is None else getattr(self, name))
        if self.n_local_clusters is not None:
            checks.whole("fedcref: n_local_clusters", self.n_local_clusters, least=1, most=MOST_OF_A_PEER)
        if self.mode == "paper" and AUTO in (self.epochs, self.batch, self.local_epochs):
            raise UsageError(f"fedcref: {AUTO!r} belongs to mode = 'refined': mode = 'paper' trains as the paper does")
        for name in ("epochs", "batch", "rounds", "local_epochs", "min_rows"):
            if name in PACED and getattr(self, name) == AUTO:
                continue
            checks.whole(f"fedcref: {name}", getattr(self, name), least=1, most=_MOST)
        checks.whole("fedcref: most_local_clusters", self.most_local_clusters, least=2, most=MOST_OF_A_PEER)
        for name in ("learning_rate", "federated_rate"):
            put(self, name, checks.real(f"fedcref: {name}", getattr(self, name), above=0.0))
        checks.one_of("fedcref: encoding", self.encoding, ENCODINGS)
        checks.one_of("fedcref: precision", self.precision, PRECISIONS)
        put(self, "hidden", architecture_of("fedcref", 1, self.hidden, self.output).hidden)
        self._check_mode()

    def pace(self, rows: float) -> Pace:
        """Return how a model of so many rows is trained: what was given, and for the rest what the rows want.

        >>> FedCRefParameters(epochs="auto", batch=8).pace(24)
        Pace(batch=8, epochs=40, local_epochs=3)
        """
        given = [None if value == AUTO else value for value in (self.batch, self.epochs, self.local_epochs)]
        batch, epochs, local_epochs = (None if value is None else int(value) for value in given)
        usual = usual_pace(rows, batch)
        return Pace(usual.batch, epochs or usual.epochs, local_epochs or usual.local_epochs)

    @classmethod
    def spelled_out(cls, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a new job says where a person said nothing."""
        if parameters.get("mode", "refined") != "refined":
            return {}
        return {name: AUTO for name in PACED if parameters.get(name) is None}

    def _check_mode(self) -> None:
        put = object.__setattr__
        if self.mode == "refined":
            checks.whole("fedcref: max_refinements", self.max_refinements, least=1, most=_MOST)
            put(self, "settled", checks.real("fedcref: settled", self.settled, least=0.0))
            return
        checks.whole("fedcref: max_iterations", self.max_iterations, least=1, most=_MOST)
        put(self, "tau", checks.real("fedcref: tau", self.tau, least=0.0))
        put(self, "alpha", checks.real("fedcref: alpha", self.alpha, above=0.0))
        put(self, "theta", checks.real("fedcref: theta", self.theta, least=0.0))
        if self.alpha is not None and self.alpha > 100:
            raise UsageError(f"fedcref: alpha = {self.alpha:g}: expected percent, at most 100")
        checks.one_of("fedcref: normalisation", self.normalisation, mutual_test.NORMALISATIONS)
        checks.one_of("fedcref: links", self.links, mutual_test.LINKS)
