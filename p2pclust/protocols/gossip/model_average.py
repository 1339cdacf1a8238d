"""FedAvg of one autoencoder over all rows of every peer, as sums: with an aggregator or without one.

H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas: Communication-Efficient Learning of Deep Networks
from Decentralized Data, Algorithm 1, with every peer in every round. Without an aggregator, and with a fixed number of ticks
per round, it is decentralised FedAvg: T. Sun, D. Li, B. Wang: Decentralized Federated Averaging, 2021, Algorithm 1 without
momentum. Each peer trains, mixes what it has with its neighbours' by Metropolis-Hastings weights, and continues from its
own mixture.

Departures, and why
-------------------
- A peer sends its weights times its number of rows, and that number: the mean over rows is a ratio of two sums, as for
  centers, and right also where peers have different numbers of rows, or none. The second paper counts every peer alike.
- In the last round all peers agree on one model (:meth:`ModelAverageProtocol.settles`), so that the job has one result.
  The second paper ends with a model for each.
- Adam begins anew in every round, at every peer: its moments belong to weights that were mixed since.

What a peer reveals
-------------------
A model after some epochs on its rows, and their number: to the aggregator, or to its neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering.autoencoders import Architecture, ModelStack
from p2pclust.clustering.encodings import encode_weights
from p2pclust.errors import UsageError
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Abstain, Additive, Slot
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.models.fedavg import TrainedTogether, architecture_of, refuse_beyond


@dataclass(frozen=True)
class ModelAverageProtocol(TrainedTogether, Additive):
    """FedAvg of one autoencoder, by sums."""

    id: ClassVar[str] = "model-average"
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
        first = ModelStack.decode(self.architecture(state), [encode_weights(state["model"], "float32")], "float32")
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

    def flaw(self, state: State, *, done: bool) -> str:
        wanted = self.architecture(state).n_parameters
        return "" if state["model"].shape == (wanted,) else f"model-average: no model of {wanted} weights"
