"""What FedCRef leaves to choose: its parameters, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from p2pclust.clustering.autoencoders import Encoding
from p2pclust.clustering.stacks import PRECISIONS
from p2pclust.errors import UsageError
from p2pclust.protocols.engine import checks
from p2pclust.protocols.models import mutual_test
from p2pclust.protocols.models.fedavg import ENCODINGS, architecture_of

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
PACED = ("epochs", "batch", "local_epochs")  # the parameters that may follow from the number of rows
MOST_OF_A_PEER = 256
_COUNT = checks.between(1, 2**20)


AUTO: Final = "auto"  # in a job in the place of a number: what :meth:`FedCRefParameters.pace` says

MANY_ROWS: Final = 384
LEAST_STEPS: Final = 120
_EPOCHS: Final = 20
_LOCAL_EPOCHS: Final = 3
_LEAST_LOCAL_STEPS: Final = 8
_BATCHES: Final = ((MANY_ROWS, 64), (MANY_ROWS // 2, 32), (0, 16))  # from so many rows on batches of so many


@dataclass(frozen=True, slots=True)
class Pace:
    """How a model is trained."""

    batch: int  # rows of a minibatch
    epochs: int  # of a model of one cluster of one peer
    local_epochs: int  # of each peer in each round of FedAvg


_ALLOWED: Final[Mapping[str, checks.Check]] = {
    "initial": checks.among(*INITIALS),
    "n_local_clusters": checks.optional(checks.between(1, MOST_OF_A_PEER)),
    **dict.fromkeys(PACED, lambda where, value: AUTO if value == AUTO else _COUNT(where, value)),
    **dict.fromkeys(("rounds", "min_rows", "max_iterations", "max_refinements"), _COUNT),
    "most_local_clusters": checks.between(2, MOST_OF_A_PEER),
    **dict.fromkeys(("learning_rate", "federated_rate"), checks.above(0.0)),
    **dict.fromkeys(("settled", "tau", "theta"), checks.at_least(0.0)),
    "alpha": mutual_test.percent,
    "encoding": checks.among(*ENCODINGS),
    "precision": checks.among(*PRECISIONS),
    "normalisation": checks.among(*mutual_test.NORMALISATIONS),
    "links": checks.among(*mutual_test.LINKS),
}


@dataclass(frozen=True)
class FedCRefParameters:
    """The parameters; docs/protocols/fedcref.md has their meaning.

    - `epochs`, `batch`, `local_epochs`: in mode "refined" they may be "auto": see :meth:`pace`. A job document without
      them has 20, 64 and 3.
    - `links` {"all", "one"}, of mode "paper": whether a cluster is linked to all clusters of a later peer that pass, or
      to the first, as in the authors' code.

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
        own, other = (_OF_PAPER, _OF_REFINED) if self.mode == "paper" else (_OF_REFINED, _OF_PAPER)
        for name in other:
            if getattr(self, name) is not None:
                where = "paper" if name in _OF_PAPER else "refined"
                raise UsageError(f"fedcref: {name} belongs to mode = {where!r}; this one is {self.mode!r}")
        for name, usual in (*own.items(), *_OF_BOTH[self.mode].items()):
            put(self, name, usual if getattr(self, name) is None else getattr(self, name))
        if self.mode == "paper" and AUTO in (self.epochs, self.batch, self.local_epochs):
            raise UsageError(f"fedcref: {AUTO!r} belongs to mode = 'refined': mode = 'paper' trains as the paper does")
        for name, check in _ALLOWED.items():
            if name not in other:
                put(self, name, check(f"fedcref: {name}", getattr(self, name)))
        put(self, "hidden", architecture_of("fedcref", 1, self.hidden, self.output).hidden)

    def pace(self, rows: float) -> Pace:
        """Return how a model of so many rows is trained: as was given, and for the rest by a rule that asks only how many.

        An epoch of few rows is few gradient steps: twenty epochs of twenty rows in batches of 64 are twenty steps, and the
        models have learned nothing yet. The rule makes batches smaller first and then epochs more, so that there are never
        fewer than ``LEAST_STEPS``. From ``MANY_ROWS`` rows on, such as the paper's 500 a cluster, it changes nothing.
        """
        batch, epochs, local_epochs = self.batch, self.epochs, self.local_epochs
        size = batch if isinstance(batch, int) else next(of for least, of in _BATCHES if rows >= least)
        steps = max(1, -(-int(rows) // size)) if rows < MANY_ROWS else LEAST_STEPS
        return Pace(
            size,
            epochs if isinstance(epochs, int) else max(_EPOCHS, -(-LEAST_STEPS // steps)),
            local_epochs if isinstance(local_epochs, int) else max(_LOCAL_EPOCHS, -(-_LEAST_LOCAL_STEPS // steps)),
        )

    @classmethod
    def spelled_out(cls, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a new job says where a person said nothing."""
        if parameters.get("mode", "refined") != "refined":
            return {}
        return {name: AUTO for name in PACED if parameters.get(name) is None}
