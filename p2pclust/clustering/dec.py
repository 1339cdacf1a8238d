"""Deep Embedded Clustering (DEC) of one peer's rows, as FedCRef's realistic start.

J. Xie, R. Girshick, A. Farhadi: Unsupervised Deep Embedding for Clustering Analysis (2016). An autoencoder
d-500-500-2000-10 is pretrained; k-means in its code gives first centers; then encoder and centers are moved together
towards a target distribution that sharpens the present one, until hardly any row changes its cluster. Departures, and why:

- Adam instead of stochastic gradient descent with a falling rate, in pretraining, without dropout and weight decay: the
  paper's 50,000 steps per layer and 100,000 in the end are for 70,000 rows and a GPU; a peer has some thousand rows.
- ``pretraining="plain"`` trains the whole at once, and not layer by layer: cheaper, and a little worse.
- The target distribution is computed anew after every `update_interval` steps (140, as in the author's later code).

On four peers of 1000 to 2500 images of MNIST the mean accuracy was 0.836 with layer-wise pretraining (20 epochs), 0.809
with plain pretraining (50 epochs), at 25 to 60 seconds per peer; PCA then k-means had 0.831, at a quarter of a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Literal

import numpy as np
import numpy.typing as npt

from p2pclust.clustering.autoencoders import Activation, Architecture, ModelStack
from p2pclust.clustering.kmeans import weighted_kmeans
from p2pclust.clustering.points import Floats, Floats32, Labels, Points
from p2pclust.clustering.stacks import minibatches, require_torch, train
from p2pclust.errors import UsageError

_RESTARTS = 20  # the paper's number of k-means restarts in the code


@dataclass(frozen=True)
class DecSettings:
    """What DEC leaves to choose."""

    encoder: tuple[int, ...] = (500, 500, 2000, 10)  # widths of its layers after the input; the decoder mirrors them
    pretraining: Literal["plain", "layer-wise"] = "layer-wise"  # the whole at once, or first layer by layer
    pretraining_epochs: int = 20  # of the whole, and of each layer
    pretraining_rate: float = 1e-3  # of Adam
    batch: int = 256
    learning_rate: float = 0.01  # of the stochastic gradient descent that moves encoder and centers, as is the momentum
    momentum: float = 0.9
    update_interval: int = 140  # steps between two target distributions
    tol: float = 0.001  # stop when fewer than this share of the rows changed their cluster between two of these
    max_updates: int = 50  # stop after so many target distributions

    def __post_init__(self) -> None:
        if self.pretraining not in {"plain", "layer-wise"}:
            raise UsageError(f"DEC's pretraining is 'plain' or 'layer-wise', not {self.pretraining!r}")
        if not self.encoder or min(self.encoder) < 1 or self.batch < 1 or self.update_interval < 1:
            raise UsageError("DEC's layers, batch and update interval must be at least 1")

    def architecture(self, n_features: int) -> Architecture:
        """Return the autoencoder around the encoder; code and output are linear, as in the paper."""
        return Architecture(n_features, self.encoder + self.encoder[-2::-1], output="linear", code="linear")


@dataclass(frozen=True, eq=False)
class DecResult:
    """The end of DEC: labels (n,), the soft assignments q (n, K), and the number of target distributions."""

    labels: Labels
    memberships: Floats
    n_updates: int


def deep_embedded_clustering(
    X: npt.ArrayLike, n_clusters: int, rng: np.random.Generator, *, settings: DecSettings | None = None,
    model: ModelStack | None = None, device: str = "cpu",
) -> DecResult:  # fmt: skip
    """Cluster rows (n, d), best scaled to [0, 1], by DEC.

    Fewer clusters come out if there are fewer distinct rows. `model` is what :func:`pretrained` returned for these
    rows: pretraining does not look at `n_clusters`, so several numbers can be tried after one. Raises DataError as
    :class:`Points` does, and UsageError if `n_clusters` is below 1, or torch or the device is missing.
    """
    require_torch()
    from p2pclust.clustering.dec_network import Encoder  # noqa: PLC0415 - torch is an extra
    from p2pclust.clustering.stack_kernels import placed  # noqa: PLC0415

    chosen = settings or DecSettings()
    rows = Points(X).X.astype(np.float32)
    if n_clusters < 1:
        raise UsageError(f"the number of clusters must be at least 1, not {n_clusters}")
    model = pretrained(rows, chosen, rng, device) if model is None else model
    encoder = Encoder(model, len(chosen.encoder), placed(device))
    code = encoder.encode(rows)
    # Equal rows may have codes that differ in the last bit, so distinct rows are counted here.
    wanted = min(n_clusters, len(np.unique(rows, axis=0)))
    centers = weighted_kmeans(code, np.ones(len(code)), wanted, rng, n_init=_RESTARTS).centers
    encoder.start(centers)
    q, updates, changed = soft_assignments(code, centers), 0, np.inf
    while updates < chosen.max_updates and q.shape[1] > 1 and changed >= chosen.tol:
        batches = islice(minibatches(len(rows), chosen.batch, rng), chosen.update_interval)
        encoder.descend(rows, target_distribution(q), batches, chosen.learning_rate, chosen.momentum)
        before, q = q, soft_assignments(encoder.encode(rows), encoder.centers)
        changed, updates = float((q.argmax(axis=1) != before.argmax(axis=1)).mean()), updates + 1
    return DecResult(np.argmax(q, axis=1), q, updates)


def soft_assignments(code: npt.ArrayLike, centers: npt.ArrayLike) -> Floats:
    """Return q, DEC's equation 1: Student's t with one degree of freedom around each center, normalised, (n, K).

    >>> soft_assignments([[0.0]], [[0.0], [3.0]]).round(3).tolist()
    [[0.909, 0.091]]
    """
    differences = np.asarray(code, dtype=np.float64)[:, np.newaxis] - np.asarray(centers, dtype=np.float64)
    closeness = 1.0 / (1.0 + (differences**2).sum(axis=2))
    return np.asarray(closeness / closeness.sum(axis=1, keepdims=True))


def target_distribution(q: Floats) -> Floats:
    """Return p, DEC's equation 3: squares, relative to each cluster's size, normalised, shape (n, K).

    >>> target_distribution(np.array([[0.8, 0.2], [0.2, 0.8]])).round(3).tolist()
    [[0.941, 0.059], [0.059, 0.941]]
    """
    sharper = q**2 / q.sum(axis=0)
    return np.asarray(sharper / sharper.sum(axis=1, keepdims=True))


def pretrained(X: Floats32, settings: DecSettings, rng: np.random.Generator, device: str) -> ModelStack:
    """Return the pretrained autoencoder around the encoder, a stack of one, for rows (n, d)."""
    model = ModelStack.random(settings.architecture(X.shape[1]), [rng])
    fitted = partial(
        train, rngs=[rng], epochs=settings.pretraining_epochs, batch=settings.batch,
        learning_rate=settings.pretraining_rate, device=device,
    )  # fmt: skip
    if settings.pretraining == "plain":
        return fitted(model, [X])
    # Layer by layer, each with its mirror in the decoder, as an autoencoder of the layer before.
    whole = model.architecture.layers(model.weights[0].copy())
    inputs, depth = X, len(settings.encoder)
    for index, width in enumerate(settings.encoder):
        # Rectified on both sides, but for what reconstructs the rows themselves and for the code.
        output: Activation = "linear" if index == 0 else "relu"
        pair = Architecture(inputs.shape[1], (width,), output, "linear" if index == depth - 1 else "relu")
        encoding, whole[-1 - index] = pair.layers(fitted(ModelStack.random(pair, [rng]), [inputs]).weights[0])
        whole[index] = encoding
        outputs = inputs @ encoding[0] + encoding[1]
        inputs = np.maximum(outputs, 0.0) if index < depth - 1 else outputs
    flat = np.concatenate([part.ravel() for layer in whole for part in layer])
    return fitted(ModelStack(model.architecture, flat[np.newaxis]), [X])
