"""FedAvg: peers train one autoencoder on rows that stay where they are.

H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas: Communication-Efficient Learning of Deep Networks
from Decentralized Data, Algorithm 1, with every peer in every round. Adam begins anew in every round, at every peer:
its moments belong to weights that were averaged, or mixed, since.

With :class:`FedAvgProtocol` some peers train on some of their rows. FedCRef runs one such job for each community, all
at the same time, each with an aggregator of its own. Which of its rows a peer trains on follows from its own note, the
labels that it keeps for itself, and from ``clusters``. State and contributions hold the weights as they are sent, in
every backend, so that what is lost by a short encoding is the same everywhere.

With :class:`ModelAverageProtocol` every peer trains on all its rows, and sends sums (docs/protocols/model-average.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering import autoencoders
from p2pclust.clustering.autoencoders import Architecture, Encoding, ModelStack
from p2pclust.clustering.points import Floats
from p2pclust.clustering.stacks import train
from p2pclust.errors import UsageError, WireError
from p2pclust.protocols.engine import checks, random_streams
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Abstain, Additive, Protocol, Slot, WithWorkspace
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.workspace import DIGEST_BYTES, Fetch, Wants, Workspace

ENCODINGS = ("float32", "float16", "int8")
_MAX_ROWS = 2**53
_MAX_LABEL = 2**31
_MAX_WIDTH = 2**20


def architecture_of(where: str, n_features: int, hidden: Sequence[int], output: str) -> Architecture:
    """Return the architecture that a job's parameters describe, or raise UsageError."""
    if not isinstance(hidden, list | tuple) or not 1 <= len(hidden) <= 32:
        raise UsageError(f"{where}: hidden: expected 1 to 32 widths of layers")
    widths = tuple(checks.whole(f"{where}: hidden", width, least=1, most=_MAX_WIDTH) for width in hidden)
    checks.one_of(f"{where}: output", output, ("sigmoid", "linear", "relu"))
    return Architecture(checks.whole(f"{where}: n_features", n_features, least=1, most=_MAX_WIDTH), widths, output)  # type: ignore[arg-type]


def refuse_beyond(X: Floats, output: str) -> None:
    """Abstain with rows that a sigmoid cannot reach; never with a value of theirs: the whole roster reads the reason."""
    # As they are trained on: in float32.
    if output == "sigmoid" and X.size and (np.float32(X.min()) < 0 or np.float32(X.max()) > 1):
        raise Abstain(
            "failed: rows beyond [0, 1], but the models end in a sigmoid: scale them (minmax), or output = 'linear'"
        )


@dataclass(frozen=True)
class TrainedTogether(Protocol):
    """Rounds in which peers train one autoencoder on rows that stay where they are."""

    imports: ClassVar[tuple[str, ...]] = ("torch",)

    # hidden, output: the architecture; see :class:`p2pclust.clustering.autoencoders.Architecture`.
    hidden: tuple[int, ...] = (100, 64, 32, 64, 100)
    output: str = "sigmoid"
    rounds: int = 15
    epochs: int = 1  # of each peer in each round
    batch: int = 64
    learning_rate: float = 1e-3  # Adam's
    device: str = "cpu"

    allowed = checks.by_name(
        rounds=checks.between(1, 10**6), epochs=checks.between(1, 10**6), batch=checks.between(1, 2**20),
        learning_rate=checks.above(0.0),
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "hidden", architecture_of(self.id, 1, self.hidden, self.output).hidden)

    @property
    def round_limit(self) -> int:
        return 2 * self.rounds + 10

    def finished(self, previous: State, state: State, rounds: int) -> bool:
        return rounds >= self.rounds

    def trained(self, first: ModelStack, rows: Floats, rng: np.random.Generator) -> ModelStack:
        """Return the model after this peer's epochs on its rows."""
        return train(
            first, [rows], rngs=[rng], epochs=self.epochs, batch=self.batch, learning_rate=self.learning_rate,
            device=self.device,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class FedAvgProtocol(TrainedTogether, WithWorkspace):
    """FedAvg of one autoencoder.

    >>> FedAvgProtocol(n_features=64, clusters=[[0], [2]]).rounds
    15
    """

    id: ClassVar[str] = "fedavg"
    holds: ClassVar[str] = "int64: stream; uint8 w: weights"
    works_on: ClassVar[tuple[str, ...]] = ("stream", "weights")

    n_features: int
    # For each peer of the roster, in order, the labels in its note whose rows it trains on.
    clusters: Sequence[Sequence[int]]
    encoding: Encoding = "float32"
    # The digest of the encoded weights to start from, in hexadecimal; empty: random ones, the same at every peer.
    start: str = ""

    allowed = checks.by_name(n_features=checks.between(1, _MAX_WIDTH), encoding=checks.among(*ENCODINGS))

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.clusters, list | tuple) or not all(
            isinstance(own, list | tuple) for own in self.clusters
        ):
            raise UsageError("fedavg: clusters: expected a list of labels for each peer")
        whole = [[checks.whole("fedavg: clusters", q, least=0, most=_MAX_LABEL) for q in own] for own in self.clusters]
        object.__setattr__(self, "clusters", tuple(tuple(own) for own in whole))
        if not isinstance(self.start, str) or (self.start and len(self.start) != 2 * DIGEST_BYTES):
            raise UsageError("fedavg: start: expected a digest in hexadecimal, or nothing")
        try:
            bytes.fromhex(self.start)
        except ValueError:
            raise UsageError("fedavg: start: expected a digest in hexadecimal, or nothing") from None

    @cached_property
    def architecture(self) -> Architecture:
        return architecture_of(self.id, self.n_features, self.hidden, self.output)

    @property
    def model_bytes(self) -> int:
        return autoencoders.encoded_size(self.architecture.n_parameters, self.encoding)

    def open(self, state: State, rng: np.random.Generator) -> State:
        return Arrays(stream=np.int64(rng.integers(random_streams.MAX_SEED)), weights=np.empty(0, np.uint8))

    def expects(self, state: State) -> Mapping[str, Slot]:
        return {"weights": Slot((self.model_bytes,), "uint8"), "rows": Slot((), "int64")}

    def wants(self, state: State, workspace: Workspace) -> Wants:
        if state["weights"].size or not self.start:
            return Wants()
        return Wants((Fetch(bytes.fromhex(self.start), self.model_bytes, tuple(range(len(self.clusters)))),))

    def contribute_with(
        self, state: State, local: Local, rng: np.random.Generator, workspace: Workspace
    ) -> Contribution:
        note = workspace.note
        own = np.isin(note["labels"], self.clusters[workspace.peer]) if "labels" in note else np.zeros(0, np.bool_)
        rows = local.points(note).X[own] if own.size == local.n_samples and own.any() else np.empty((0, 0))
        if len(rows) == 0:
            raise Abstain("no rows in this community")
        refuse_beyond(rows, self.output)
        # The state's model, or before the first round what the job starts from.
        data: bytes | None = state["weights"].tobytes()
        if not data and self.start:
            data = workspace.read(bytes.fromhex(self.start))
            if not data:
                raise Abstain("failed: the model to start from could not be had")
        if data:
            first = ModelStack.decode(self.architecture, [data], self.encoding)
        else:
            first = ModelStack.random(self.architecture, [random_streams.aggregating(int(state["stream"]), 0)])
        # All that this peer reveals.
        weights = np.frombuffer(self.trained(first, rows, rng).encode(self.encoding)[0], np.uint8)
        return Arrays(weights=weights, rows=np.int64(len(rows)))

    def problem_with_part(self, part: Contribution, state: State) -> str:
        if not 1 <= int(part["rows"]) <= _MAX_ROWS:
            return "failed: its number of rows is out of range"
        try:
            self._weights(part)
        except WireError as error:
            return f"failed: {error}"
        return ""

    def _weights(self, part: Contribution) -> NDArray[np.float32]:
        return autoencoders.decode_weights(part["weights"].tobytes(), self.architecture.n_parameters, self.encoding)

    def combine(self, state: State, contributions: Any) -> State:
        sizes = [int(part["rows"]) for _, part in contributions]
        average = autoencoders.federated_average(np.stack([self._weights(part) for _, part in contributions]), sizes)
        return state.replace(weights=np.frombuffer(autoencoders.encode_weights(average, self.encoding), np.uint8))

    def problem_with_state(self, state: State, *, done: bool) -> str:
        if not state["weights"].size:
            return "fedavg: it ended without a model" if done else ""
        try:
            self._weights(state)
        except WireError as error:
            return f"fedavg: {error}"
        return ""


@dataclass(frozen=True)
class ModelAverageProtocol(TrainedTogether, Additive):
    """FedAvg of one autoencoder, by sums."""

    id: ClassVar[str] = "model-average"
    holds: ClassVar[str] = "float32 W: model"
    works_on: ClassVar[tuple[str, ...]] = ("origin", "scale", "model")
    units = Additive.ones

    def architecture(self, state: State) -> Architecture:
        """Return the architecture for rows of these columns."""
        return architecture_of(self.id, int(state["origin"].size), self.hidden, self.output)

    def open(self, state: State, rng: np.random.Generator) -> State:
        if "origin" not in state:
            raise UsageError("model-average: put range and scaling stages before it")
        return state.replace(model=self._weights(ModelStack.random(self.architecture(state), [rng])))

    @staticmethod
    def _weights(model: ModelStack) -> NDArray[np.float32]:
        return np.frombuffer(model.encode("float32")[0], "<f4").astype(np.float32, copy=False)

    def expects(self, state: State) -> Mapping[str, Slot]:
        return {"weights": Slot((self.architecture(state).n_parameters,)), "rows": Slot(())}

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        if local.n_samples == 0:
            raise Abstain("no rows")
        rows = local.points(state).X
        refuse_beyond(rows, self.output)
        first = ModelStack.decode(
            self.architecture(state), [autoencoders.encode_weights(state["model"], "float32")], "float32"
        )
        trained = self.trained(first, rows, rng)
        # All that this peer reveals.
        return Arrays(weights=self._weights(trained).astype(np.float64) * len(rows), rows=float(len(rows)))

    def combine(self, state: State, total: Any) -> State:
        rows = float(total["rows"])
        if not rows > 0:  # no peer near this one has any
            return state
        return state.replace(model=(total["weights"] / rows).astype(np.float32))

    def settles(self, state: State, rounds: int) -> bool:
        """Only the last round: before it each peer may continue from a model of its own."""
        return rounds + 1 >= self.rounds

    def problem_with_state(self, state: State, *, done: bool) -> str:
        wanted = self.architecture(state).n_parameters
        return "" if state["model"].shape == (wanted,) else f"model-average: no model of {wanted} weights"
