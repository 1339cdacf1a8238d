"""Normalizing flows by the stack: RealNVP, which gives each row's exact likelihood.

L. Dinh, J. Sohl-Dickstein, S. Bengio: Density Estimation Using Real NVP (2017); here with the fully connected
conditioners of UIFCA as FedCRef's authors describe it (M. Nardi, L. Valerio, A. Passarella: Federated Clustering: An
Unsupervised Cluster-Wise Training for Decentralized Data Distributions, Section 6.1, footnote 3).

Each *coupling* leaves one half of the features as they are, and multiplies and shifts the other half by what a small
network, the conditioner, makes of the first: ``z_b = x_b exp(s(x_a)) + t(x_a)``; the halves change roles from coupling to
coupling. So ``log p(x) = log N(z; 0, I) + sum of all s``. The s end in tanh: no coupling scales by more than e, and the
likelihood is bounded even where a feature never varies. The halves are the two colours of a checkerboard; weights for the
masked colour would never be used, and are left out.

A stack is one flat row of float32 weights per model. Models are trained one after the other by torch's autograd, so a
model's bits do not depend on what else is in the stack; on a CPU they are the same in every run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from p2pclust.clustering.autoencoders import Weights, uniform_weights
from p2pclust.clustering.points import Floats32
from p2pclust.clustering.stacks import finite_rows, minibatches, require_torch
from p2pclust.errors import UsageError

Columns = npt.NDArray[np.int64]


@dataclass(frozen=True)
class FlowArchitecture:
    """The layers of a flow; the defaults are the footnote's.

    Raises UsageError if a number is below 1, or a hidden layer is missing.
    """

    n_features: int  # of the rows; d
    couplings: int = 6
    #: Widths of a conditioner's hidden layers, all rectified. Two layers follow on the last: s, through tanh, and t.
    hidden: tuple[int, ...] = (512, 512, 512)
    #: Pixels in a row of the image that a row of data is, for the checkerboard. By default the square root of
    #: `n_features` if that is whole, else the features alternate as they come.
    image_width: int | None = None

    def __post_init__(self) -> None:
        numbers = (self.n_features, self.couplings, *self.hidden, 1 if self.image_width is None else self.image_width)
        if not self.hidden or min(numbers) < 1:
            raise UsageError(
                f"a flow needs features, couplings and hidden layers of at least one unit, not {self.n_features}, "
                f"{self.couplings}, {self.hidden}, in an image of at least one column, not {self.image_width}"
            )

    @cached_property
    def halves(self) -> tuple[Columns, Columns]:
        """The features of either colour; the first coupling leaves the first half as it is."""
        root = math.isqrt(self.n_features)
        width = self.image_width or (root if root * root == self.n_features else self.n_features)
        feature = np.arange(self.n_features)
        colour = (feature // width + feature % width) % 2
        return np.flatnonzero(colour == 0), np.flatnonzero(colour == 1)

    @cached_property
    def coupling_shapes(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Of each coupling's weight matrices, (units in, units out): the hidden layers, then s and t."""
        first, second = (len(half) for half in self.halves)
        found = []
        for coupling in range(self.couplings):
            kept, moved = (first, second) if coupling % 2 == 0 else (second, first)
            last = (self.hidden[-1], moved)
            found.append((*pairwise((kept, *self.hidden)), last, last))
        return tuple(found)

    @cached_property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Of all weight matrices, coupling after coupling."""
        return tuple(shape for coupling in self.coupling_shapes for shape in coupling)

    @property
    def n_parameters(self) -> int:
        """P, the length of a model's row of weights: each layer's matrix before its bias."""
        return sum(fan_in * fan_out + fan_out for fan_in, fan_out in self.shapes)


def random_flows(architecture: FlowArchitecture, rngs: Sequence[np.random.Generator]) -> Weights:
    """Make one untrained model per generator, float32 array of shape (M, P).

    Weights and biases are uniform within 1 / sqrt(units in), which is what torch's linear layers start from; the units
    of a masked layer count with those that are masked.
    """
    layers = [(number, *shape) for shapes in architecture.coupling_shapes for number, shape in enumerate(shapes)]
    units = [fan_in if number else architecture.n_features for number, fan_in, _ in layers]
    return uniform_weights(architecture.shapes, units, rngs)


def log_likelihoods(
    architecture: FlowArchitecture, weights: npt.ArrayLike, X: npt.ArrayLike, *, device: str = "cpu"
) -> Floats32:
    """Return the logarithm of each row's density under each model, shape (n, M), for weights (M, P) and rows (n, d).

    Minus infinity where a model is broken (its weights, or what it makes of a row, are not finite), so that such a
    model is never the best. Raises DataError for rows that :func:`.finite_rows` refuses, and UsageError if torch or the
    device is missing, or the weights do not fit the architecture.
    """
    network, kernels, placed = _torch(device)
    rows = finite_rows(X, architecture.n_features, "the data")
    models = _fitting(weights, architecture)
    found = np.empty((len(rows), len(models)), dtype=np.float32)
    with kernels.one_thread():
        for m, model in enumerate(models):
            found[:, m] = network.log_likelihoods(architecture, model, rows, placed)
    np.copyto(found, -np.inf, where=~np.isfinite(found))
    return found


def generated_rows(
    architecture: FlowArchitecture, weights: npt.ArrayLike, Z: npt.ArrayLike, *, device: str = "cpu"
) -> Floats32:
    """Return the rows that each model maps to Z, shape (M, n, d), for weights (M, P) and Z (n, d), the flow inverted.

    If Z is drawn from a standard Gaussian, these are draws from the density that the model has learned. Raises as
    :func:`log_likelihoods` does.

    >>> still = FlowArchitecture(2, couplings=1, hidden=(1,))
    >>> generated_rows(still, np.zeros((1, still.n_parameters)), [[0.5, -1.0]]).tolist()
    [[[0.5, -1.0]]]
    """
    network, kernels, placed = _torch(device)
    codes = finite_rows(Z, architecture.n_features, "the codes")
    models = _fitting(weights, architecture)
    with kernels.one_thread():
        return np.stack([network.generated(architecture, model, codes, placed) for model in models])


def train_flows(
    architecture: FlowArchitecture, weights: npt.ArrayLike, samples: Sequence[npt.ArrayLike], *,
    rngs: Sequence[np.random.Generator], steps: int = 100, batch: int = 64, learning_rate: float = 1e-4,
    decay: float = 1e-4, device: str = "cpu",
) -> Weights:  # fmt: skip
    """Train each model on its own rows: mean negative log-likelihood, Adam from zero moments with its usual constants.

    `samples` are the rows (n_m, d) of each model's cluster; a model without rows comes back unchanged, and one whose
    training diverged holds NaN. All take so many steps, on minibatches of `batch` rows, or of all that a model has;
    each model's own generator draws the order of its rows, anew whenever all have been seen. `decay` times the weights
    is added to the gradient (L2). Raises as :func:`log_likelihoods` does, and UsageError if a number is out of range.
    """
    network, kernels, placed = _torch(device)
    models = _fitting(weights, architecture)
    if len(samples) != len(models) or len(rngs) != len(models):
        raise UsageError(f"{len(models)} models need as many clusters and generators: {len(samples)}, {len(rngs)}")
    if steps < 0 or batch < 1 or not learning_rate > 0 or not decay >= 0:
        raise UsageError(
            f"steps {steps}, batch {batch}, learning rate {learning_rate} and decay {decay} must be positive"
        )
    rows = [finite_rows(array, architecture.n_features, f"cluster {m}") for m, array in enumerate(samples)]
    trained = models.copy()
    with kernels.one_thread():
        for model, own, rng in zip(trained, rows, rngs, strict=True):
            if len(own):
                batches = islice(minibatches(len(own), batch, rng), steps)
                model[:] = network.trained(architecture, model, own, batches, learning_rate, decay, placed)
    return trained


def _torch(device: str) -> tuple[Any, Any, Any]:
    """Return the modules `flow_network` and `stack_kernels`, and the device; torch is an extra, imported here."""
    require_torch()
    from p2pclust.clustering import flow_network, stack_kernels  # noqa: PLC0415

    return flow_network, stack_kernels, stack_kernels.placed(device)


def _fitting(weights: npt.ArrayLike, architecture: FlowArchitecture) -> Weights:
    models = np.ascontiguousarray(weights, dtype=np.float32)
    if models.ndim != 2 or models.shape[1] != architecture.n_parameters:
        raise UsageError(
            f"flows of {architecture.couplings} couplings of {architecture.hidden} units for {architecture.n_features} "
            f"features have {architecture.n_parameters} weights each; theirs have shape {models.shape}"
        )
    return models
