"""UIFCA: one generative model per cluster; every row belongs to the model under which it is likeliest.

J. Chung, K. Lee, K. Ramchandran: Federated Unsupervised Clustering with Generative Models (2022), which extends IFCA
(A. Ghosh, J. Chung, D. Yin, K. Ramchandran: An Efficient Framework for Clustered Federated Learning, 2020).
docs/protocols/uifca.md has the readings; this follows the account of it in FedCRef's Section 6.1.

A peer's assignment is neither sent nor stored: the models that made it stay in the state until the next cluster round,
so that a peer that comes back finds the same assignment again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering.autoencoders import federated_average
from p2pclust.clustering.flows import FlowArchitecture, log_likelihoods, random_flows, train_flows
from p2pclust.errors import UsageError
from p2pclust.protocols.engine import checks, random_streams
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Labelling, Slot, always
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.privacy import hold_small_clusters

Floats32 = NDArray[np.float32]
Labels = NDArray[np.int64]

_STEPS = checks.between(1, 10**6)
_UNITS = checks.between(1, 2**16)  # of a layer
_MAX_ROWS = 2**38
_MAX_BYTES = 2**32


@dataclass(frozen=True)
class UIFCAProtocol(Labelling):
    """UIFCA with RealNVP: one normalizing flow per cluster, trained over all peers; each row belongs to the likeliest.

    >>> UIFCAProtocol(n_clusters=10).round_limit
    800
    """

    id: ClassVar[str] = "uifca"
    holds: ClassVar[str] = "float32 C U: models assigning; int64: steps suppressed; uint8 S: salt"
    reveals: ClassVar[str] = (
        "each round, for each cluster that has some of its rows: how many, and the weights of the cluster's model "
        "after training on them (nothing of a cluster that has one)"
    )
    draws: ClassVar[bool] = True
    before: ClassVar[tuple[str, ...]] = ("range", "scaling")
    stops: ClassVar[str] = "all its rounds are done"
    works_on: ClassVar[tuple[str, ...]] = ("origin", "scale", "models", "steps", "suppressed")
    imports: ClassVar[tuple[str, ...]] = ("torch",)

    n_clusters: int  # the paper's K
    cluster_rounds: int = 20  # the paper's T: T tau rounds in all
    communication_rounds: int = 40  # tau
    local_steps: int = 100  # M
    couplings: int = 6  # of each model
    hidden: Sequence[int] = (512, 512, 512)  # widths of a conditioner's hidden layers
    image_width: int | None = None  # see :class:`~p2pclust.clustering.flows.FlowArchitecture`
    batch: int = 64  # rows of a minibatch
    learning_rate: float = 1e-4  # Adam's
    decay: float = 1e-4  # the footnote's lambda, of L2
    start: str = "random"  # as IFCA, literally; with "peers" models begin as different as peers are
    min_cluster_size: int = 2  # models of fewer rows are not sent. 1 sends all.
    device: str = "cpu"  # where each peer computes: "cpu", or "cuda", where bits are not promised

    allowed = checks.by_name(
        n_clusters=checks.between(1, 2**12), cluster_rounds=_STEPS, communication_rounds=_STEPS, local_steps=_STEPS,
        couplings=checks.between(1, 64), batch=_STEPS, min_cluster_size=checks.between(1, 2**31),
        image_width=checks.optional(_UNITS), learning_rate=checks.above(0.0), decay=checks.at_least(0.0),
        start=checks.among("random", "peers"),
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.hidden, list | tuple) or not 1 <= len(self.hidden) <= 16:
            raise UsageError(f"uifca: hidden = {str(self.hidden)[:40]}: expected a list of 1 to 16 widths of layers")
        object.__setattr__(self, "hidden", tuple(_UNITS("uifca: hidden", width) for width in self.hidden))
        if not isinstance(self.device, str) or len(self.device) > 20:
            raise UsageError(f"uifca: device = {str(self.device)[:40]!r}: expected 'cpu' or 'cuda'")

    @property
    def round_limit(self) -> int:
        return self.cluster_rounds * self.communication_rounds

    withholds_below = always

    def architecture(self, n_features: int) -> FlowArchitecture:
        """Return the models' layers for rows of so many features."""
        return FlowArchitecture(n_features, self.couplings, tuple(self.hidden), self.image_width)

    def open(self, state: State, rng: np.random.Generator) -> State:
        """Draw the first models; what only scaling needed is dropped from the messages."""
        if "origin" not in state:
            raise UsageError("uifca: put range and scaling stages before it")
        if not state["declared"].all():
            state = state.without("lo", "hi", "declared")
        architecture = self.architecture(state["origin"].size)
        if 4 * self.n_clusters * architecture.n_parameters > _MAX_BYTES:
            raise UsageError(
                f"uifca: {self.n_clusters} models of {architecture.n_parameters} weights are too large for a peer: "
                "ask for fewer or smaller layers"
            )
        models = random_flows(architecture, [rng] * self.n_clusters)
        models.setflags(write=False)
        state = state.without("rows", "unit", "moments")
        state = state.replace(models=models, assigning=models, steps=np.int64(0), suppressed=np.int64(0))
        return state if self.start == "random" else state.replace(salt=np.frombuffer(rng.bytes(16), np.uint8))

    def expects(self, state: State) -> Mapping[str, Slot]:
        weights = Slot((None, state["models"].shape[1]), "float32")
        return {"weights": weights, "sizes": Slot((self.n_clusters,), "int64"), "suppressed": Slot((), "int64")}

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        rows = self._rows(state, local)
        if self.start == "peers" and int(state["steps"]) < self.communication_rounds:
            # From the peer's own rows: a peer that is asked again draws the same.
            own = random_streams.of_column(state["salt"].tobytes(), local.X)
            labels = np.full(local.n_samples, own.integers(self.n_clusters), dtype=np.int64)
        else:
            # Remembered for this cluster round, in which the models that assign rows stay the same.
            digest = hashlib.blake2b(state["assigning"].data, digest_size=16)
            digest.update(repr((self.architecture(rows.shape[1]), self.device)).encode())
            digest.update(state["origin"].tobytes() + state["scale"].tobytes())
            last, key = local.once("uifca assignment", dict[bytes, Labels]), digest.digest()
            if key not in last:
                assigned = self.labels(state["assigning"], rows)
                last.clear()
                last[key] = assigned
            labels = last[key]
        sizes = np.bincount(labels, minlength=self.n_clusters).astype(np.int64)
        least = local.least_cell(self.min_cluster_size)
        withheld = (sizes > 0) & (sizes < least)
        sizes[withheld] = 0
        held = np.flatnonzero(sizes)
        hold_small_clusters(sizes > 0, least)
        # Each cluster has its own stream, whichever others the peer has.
        streams_of = rng.spawn(self.n_clusters)
        trained = train_flows(
            self.architecture(rows.shape[1]), state["models"][held], [rows[labels == cluster] for cluster in held],
            rngs=[streams_of[cluster] for cluster in held], steps=self.local_steps, batch=self.batch,
            learning_rate=self.learning_rate, decay=self.decay, device=self.device,
        )  # fmt: skip
        # All that this peer reveals.
        return Arrays(weights=trained, sizes=sizes, suppressed=np.int64(np.count_nonzero(withheld)))

    def problem_with_part(self, part: Contribution, state: State) -> str:
        sizes = part["sizes"]
        if not ((sizes >= 0) & (sizes <= _MAX_ROWS)).all() or not sizes.any():
            return "failed: its sizes are none"
        if len(part["weights"]) != np.count_nonzero(sizes):
            return "failed: it does not send one model for each cluster of its rows"
        if not 0 <= int(part["suppressed"]) <= self.n_clusters:
            return "failed: it suppressed an impossible number of clusters"
        return ""

    def combine(self, state: State, contributions: Any) -> State:
        models = np.array(state["models"])
        for cluster in range(self.n_clusters):
            # Where in a peer's weights this cluster's model is: behind those of its clusters before.
            found = [
                (part["weights"][np.count_nonzero(part["sizes"][:cluster])], part["sizes"][cluster])
                for part in contributions
                if part["sizes"][cluster] > 0
            ]
            if found:  # A model that no peer holds stays.
                models[cluster] = federated_average([weights for weights, _ in found], [size for _, size in found])
        models.setflags(write=False)
        steps = int(state["steps"]) + 1
        withheld = np.int64(sum(int(part["suppressed"]) for part in contributions))
        after = state.replace(models=models, steps=np.int64(steps), suppressed=state["suppressed"] + withheld)
        if steps == self.round_limit:
            return after.without("assigning")
        # Where the next cluster round begins, these models assign the rows for all its communication rounds.
        return after.replace(assigning=models) if steps % self.communication_rounds == 0 else after

    def finished(self, previous: State, state: State, rounds: int) -> bool:
        return int(state["steps"]) >= self.round_limit

    def problem_with_state(self, state: State, *, done: bool) -> str:
        architecture = self.architecture(state["origin"].size)
        if state["models"].shape != (self.n_clusters, architecture.n_parameters):
            return f"models of shape {list(state['models'].shape)} for {self.n_clusters} flows of the job's layers"
        # The last round may have been an empty one: then the job is done before its last step.
        if not 0 <= int(state["steps"]) < self.round_limit + done:
            return f"step {int(state['steps'])} of {self.round_limit}"
        if "assigning" not in state and not done:
            return "no models that assign rows"
        if ("salt" in state) != (self.start == "peers"):
            return "a salt where nothing is drawn with it, or none where something is"
        return ""

    def conclude(self, state: State, local: Local) -> Arrays:
        return Arrays(labels=self.labels(state["models"], self._rows(state, local)))

    def labels(self, models: Floats32, rows: Floats32) -> Labels:
        """Return each row's likeliest model, the first of equals; rows are in working coordinates."""
        likely = log_likelihoods(self.architecture(rows.shape[1]), models, rows, device=self.device)
        found: Labels = likely.argmax(axis=1).astype(np.int64)
        return found

    def _rows(self, state: State, local: Local) -> Floats32:
        key = ("uifca rows", state["origin"].tobytes(), state["scale"].tobytes())
        return local.once(key, lambda: working_rows(local.X, state["origin"], state["scale"]))


def working_rows(X: NDArray[np.float64], origin: NDArray[np.float64], scale: NDArray[np.float64]) -> Floats32:
    """Return rows in working coordinates, as models take them.

    >>> working_rows(np.array([[1.0], [5.0]]), np.array([1.0]), np.array([2.0])).tolist()
    [[0.0], [2.0]]
    """
    with np.errstate(over="ignore", invalid="ignore"):  # What is not finite is refused by row and column.
        return ((X - origin) / scale).astype(np.float32)
