"""Training and evaluating stacked autoencoders, in torch: the steps of many models at once; layers are `stack_layers`'.

Imported only by functions that train or evaluate, since torch is an extra. The weights of a chunk, their gradients and
their moments lie in memory that is taken once; every view of it is made once too, so that a step does nothing but
arithmetic. Nothing here is shared between calls or threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from p2pclust.clustering.autoencoders import Architecture
from p2pclust.clustering.stack_layers import Layout, Network
from p2pclust.errors import UsageError

__all__ = ["Adam", "Schedule", "Trainer", "errors", "placed", "reconstruct"]

Floats32 = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Schedule:
    """The minibatches of a chunk of models, which come longest first.

    Attributes
    ----------
    picks : int64 array, shape (steps, A, width)
        Rows of the chunk's samples, one model's after the other's.
    filled : int64 array, shape (steps, A)
        How many of `width` count; 0 where a model has taken all its steps.
    """

    picks: npt.NDArray[np.int64]
    filled: npt.NDArray[np.int64]


def placed(device: str) -> torch.device:
    """Return the device of that name, or say in one line why it cannot be used."""
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise UsageError(f"there is no device {device!r}; use 'cpu' or 'cuda'") from error
    if found.type not in {"cpu", "cuda"}:
        raise UsageError(f"autoencoders run on 'cpu' or 'cuda', not on {device!r}")
    if found.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"device {device!r} cannot be used: torch finds no CUDA device; use 'cpu'")
    return found


class Adam:
    """Adam over the rows of a chunk, in fused passes; all rows have taken the same number of steps.

    The matrices that lie apart are moved one by one, as soon as their gradients are there; all else, and everything
    where nothing lies apart, in one pass at the end of a step.
    """

    def __init__(self, layout: Layout, n_models: int, learning_rate: float, device: torch.device) -> None:
        self.learning_rate = learning_rate
        # The gradients of what lies apart are never in their place: that memory is taken, but not touched.
        self.weights, self.gradients, self._first, self._second = (layout.rows(n_models, device) for _ in range(4))
        self._steps = torch.zeros((), device=device)
        self._apart = {
            (index, m): [rows.apart[index][m] for rows in (self.weights, self._first, self._second)]
            for index in layout.apart
            for m in range(n_models)
        }

    def restart(self) -> None:
        """Forget all moments and steps."""
        for rows in (self._first, self._second):
            rows.zero_()
        self._steps.zero_()

    def begin(self) -> None:
        """Begin a step."""
        self._steps += 1

    def move_matrix(self, index: int, m: int, gradient: torch.Tensor) -> None:
        """Move what lies apart of one model's layer."""
        weights, first, second = self._apart[index, m]
        self._move(weights, gradient, first, second)

    def move_rest(self, n_models: int) -> None:
        """Move the first `n_models` rows; the others have taken their last step."""
        self._move(
            self.weights.flat[:n_models],
            self.gradients.flat[:n_models],
            self._first.flat[:n_models],
            self._second.flat[:n_models],
        )

    def _move(self, weights: torch.Tensor, gradient: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> None:
        torch._fused_adam_(
            [weights],
            [gradient],
            [first],
            [second],
            [],
            [self._steps],
            lr=self.learning_rate,
            beta1=0.9,
            beta2=0.999,
            weight_decay=0.0,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )


class Trainer:
    """Trains chunks of up to `height` models, one chunk after the other, in memory that is taken once.

    Parameters
    ----------
    architecture : Architecture
    height : int
    width : int
        Rows of a minibatch, padding included.
    learning_rate : float
    device : torch.device
    """

    def __init__(
        self, architecture: Architecture, height: int, width: int, learning_rate: float, device: torch.device
    ) -> None:
        self._features, self._device = architecture.n_features, device
        self._fewest = _fewest(architecture)
        height = max(height, self._fewest)
        self._network = Network(architecture.shapes, architecture.activations, height, width, device)
        self._layout = Layout(architecture.shapes, self._network.wide)
        self._adam = Adam(self._layout, height, learning_rate, device)
        self._batch = torch.empty((height, width, self._features), device=device)

    @torch.inference_mode()
    def run(self, weights: Floats32, samples: Sequence[Floats32], schedule: Schedule) -> Floats32:
        """Take every step of the schedule; returns the new weights (A, P)."""
        rows = [torch.from_numpy(each).to(self._device) for each in samples]
        together = rows[0] if len(rows) == 1 else torch.cat(rows)
        self._layout.pack(weights, self._adam.weights)
        self._adam.restart()
        padded = max(len(weights), self._fewest)
        picks = self._on_device(schedule.picks, padded)
        scales = self._on_device(_scales(schedule, self._features), padded)
        moving = (schedule.filled > 0).sum(axis=1)
        # Models leave the program when they have taken all their steps; between two that leave, nothing changes.
        changes = np.flatnonzero(np.diff(moving)) + 1
        for start, stop in zip([0, *changes.tolist()], [*changes.tolist(), len(moving)], strict=True):
            count = int(moving[start])
            active = max(count, self._fewest)
            self._steps(together, picks[start:stop, :active], scales[start:stop, :active], count)
        return self._layout.unpack(self._adam.weights, len(weights))

    def _steps(self, rows: torch.Tensor, picks: torch.Tensor, scales: torch.Tensor, moving: int) -> None:
        """Take steps in which the first `moving` models move; there may be a partner that does not."""
        n_models, adam = picks.shape[1], self._adam
        X = self._batch[:n_models]
        taken = X.view(-1, self._features)
        views = [self._layout.views(part, n_models) for part in (adam.weights, adam.gradients)]
        network = self._network.bound(*views)

        def move(index: int, m: int, gradient: torch.Tensor) -> None:
            if m < moving:
                adam.move_matrix(index, m, gradient)

        for pick, scale in zip(picks.flatten(1).unbind(), scales.unbind(), strict=True):
            torch.index_select(rows, 0, pick, out=taken)
            output = network.forward(X)
            # Twice the difference, times each row's scale.
            torch.ops.aten.mse_loss_backward.grad_input(scale, output, X, 2, grad_input=network.slope)
            adam.begin()
            network.backward(move)
            adam.move_rest(moving)

    def _on_device(self, plan: npt.NDArray[np.generic], n_models: int) -> torch.Tensor:
        """Move a plan (steps, A, ...) to the device; partners without rows of their own get zeros."""
        padding = [(0, 0)] * plan.ndim
        padding[1] = (0, n_models - plan.shape[1])
        return torch.from_numpy(np.pad(plan, padding)).to(self._device)


def _scales(schedule: Schedule, n_features: int) -> Floats32:
    """Return each row's share of the mean squared error's slope, (steps, A, width, 1): 0 for padding."""
    filled = schedule.filled[:, :, np.newaxis]
    counts = np.arange(schedule.picks.shape[2]) < filled
    scales = np.where(counts, 1.0 / (np.maximum(filled, 1) * n_features), 0.0)
    return scales[..., np.newaxis].astype(np.float32)


@torch.inference_mode()
def errors(
    architecture: Architecture, weights: Floats32, X: Floats32, height: int, block: int, device: torch.device
) -> Floats32:
    """Return the mean squared errors (n, M), in blocks of `block` rows and up to `height` models."""
    layout, fewest = Layout(architecture.shapes), _fewest(architecture)
    n_rows, n_models = len(X), len(weights)
    found = np.empty((n_rows, n_models), dtype=np.float32)
    if not found.size:
        return found
    padded = torch.zeros((-(-n_rows // block) * block, architecture.n_features), device=device)
    padded[:n_rows] = torch.from_numpy(X).to(device)
    height = max(min(height, n_models), fewest)
    packed = layout.rows(height, device)
    network = Network(architecture.shapes, architecture.activations, height, block, device, backward=False)
    squares = torch.empty((height, len(padded)), device=device)
    for first in range(0, n_models, height):
        chunk = weights[first : first + height]
        count = max(len(chunk), fewest)
        models = network.bound(layout.views(layout.pack(chunk, packed), count))
        for start in range(0, len(padded), block):
            here = padded[start : start + block].expand(count, -1, -1)
            output = models.forward(here)
            torch.ops.aten.mse_loss.out(output, here, 0, out=output)
            torch.sum(output, -1, out=squares[:count, start : start + block])
        found[:, first : first + height] = squares[: len(chunk), :n_rows].T.cpu().numpy()
    found /= np.float32(architecture.n_features)
    return found


@torch.inference_mode()
def reconstruct(architecture: Architecture, weights: Floats32, X: Floats32, device: torch.device) -> Floats32:
    """Return all reconstructions (M, n, d) at once."""
    layout, n_models = Layout(architecture.shapes), len(weights)
    network = Network(architecture.shapes, architecture.activations, n_models, len(X), device, backward=False)
    rows = torch.from_numpy(X).to(device).expand(n_models, -1, -1)
    models = network.bound(layout.views(layout.pack(weights, layout.rows(n_models, device)), n_models))
    output: Floats32 = models.forward(rows).cpu().numpy()
    return output


def _fewest(architecture: Architecture) -> int:
    """Return how many models go through the products at least.

    Where a layer has a single unit, the library multiplies and sums a model that is alone in another way, with other
    bits, than one in company: such a model is given a partner.
    """
    return 2 if min(architecture.sizes) == 1 else 1
