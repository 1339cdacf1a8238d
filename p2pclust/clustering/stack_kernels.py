"""The products of stacked autoencoders, in torch: forward, backward and Adam, written out, for many models at once.

Imported only by functions that train or evaluate, since torch is an extra. Nothing here loops over models: every
operation has the model as its first axis. The models of a chunk live in one flat matrix, one row each, in which every
layer starts at a multiple of 64 bytes; gradients and moments are matrices of the same layout, so that Adam is one fused
pass over all of them. Products write into views of these matrices: no copies and no allocations within a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch.optim.adam import adam

from p2pclust.clustering.autoencoders import Activation, Architecture
from p2pclust.errors import UsageError

__all__ = ["Adam", "Layout", "Network", "Schedule", "Trainer", "errors", "placed", "reconstruct"]

Floats32 = npt.NDArray[np.float32]

_LINE = 16  # floats of a cache line


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


class Layout:
    """Where the layers of a model lie in its aligned row."""

    def __init__(self, shapes: Sequence[tuple[int, int]]) -> None:
        self.shapes = tuple(shapes)
        starts, self.width = [], 0
        for fan_in, fan_out in self.shapes:
            bias = self.width + _aligned(fan_in * fan_out)
            starts.append((self.width, bias))
            self.width = bias + _aligned(fan_out)
        self.starts = tuple(starts)

    def views(self, flat: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return each layer's matrices (A, units in, units out) and biases (A, 1, units out) within the flat rows."""
        return [
            (
                flat[:, matrix : matrix + fan_in * fan_out].view(flat.shape[0], fan_in, fan_out),
                flat[:, bias : bias + fan_out].unsqueeze(1),
            )
            for (fan_in, fan_out), (matrix, bias) in zip(self.shapes, self.starts, strict=True)
        ]

    def pack(self, weights: Floats32, into: torch.Tensor) -> torch.Tensor:
        """Copy dense rows (A, P) into the first of aligned ones, and return `into`; what lies between stays as it is."""
        given = torch.from_numpy(np.require(weights, requirements=["W"]))
        for aligned, dense in self._spans():
            into[: len(weights), aligned] = given[:, dense].to(into.device)
        return into

    def packed(self, weights: Floats32, device: torch.device) -> torch.Tensor:
        """Return aligned rows of dense ones, with zeros in between."""
        return self.pack(weights, torch.zeros((len(weights), self.width), device=device))

    def unpack(self, flat: torch.Tensor) -> Floats32:
        """Copy aligned rows into dense ones."""
        return torch.cat([flat[:, aligned] for aligned, _ in self._spans()], dim=1).cpu().numpy()

    def _spans(self) -> list[tuple[slice, slice]]:
        spans, dense = [], 0
        for (fan_in, fan_out), starts in zip(self.shapes, self.starts, strict=True):
            for start, length in zip(starts, (fan_in * fan_out, fan_out), strict=True):
                spans.append((slice(start, start + length), slice(dense, dense + length)))
                dense += length
        return spans


class Network:
    """The scratch of one forward and backward pass of up to A models with `rows` rows each."""

    def __init__(self, layout: Layout, kinds: Sequence[Activation], n_models: int, rows: int, device: torch.device):
        self.kinds = tuple(kinds)
        widths = [fan_out for _, fan_out in layout.shapes]
        self.outputs = [torch.empty((n_models, rows, width), device=device) for width in widths]
        self.slopes = [torch.empty((n_models, rows, width), device=device) for width in widths]

    def forward(self, weights: list[tuple[torch.Tensor, torch.Tensor]], X: torch.Tensor) -> torch.Tensor:
        """Return the last layer's outputs, (A, rows, width), in scratch; X is (A, rows, d)."""
        hidden = X
        for (matrix, bias), kind, output in zip(weights, self.kinds, self.outputs, strict=True):
            hidden = torch.baddbmm(bias, hidden, matrix, out=output[: matrix.shape[0]])
            if kind == "relu":
                hidden.relu_()
            elif kind == "sigmoid":
                hidden.sigmoid_()
        return hidden

    def backward(
        self,
        weights: list[tuple[torch.Tensor, torch.Tensor]],
        gradients: list[tuple[torch.Tensor, torch.Tensor]],
        X: torch.Tensor,
    ) -> None:
        """Fill in the gradients of the weights; the last of `slopes` holds the loss's slope in the last outputs."""
        n_models = X.shape[0]
        for index in range(len(weights) - 1, -1, -1):
            slope, output = self.slopes[index][:n_models], self.outputs[index][:n_models]
            # Of the activations' outputs; in place, by torch's own kernels of one pass.
            if self.kinds[index] == "relu":
                torch.ops.aten.threshold_backward.grad_input(slope, output, 0, grad_input=slope)
            elif self.kinds[index] == "sigmoid":
                torch.ops.aten.sigmoid_backward.grad_input(slope, output, grad_input=slope)
            inputs = self.outputs[index - 1][:n_models] if index else X
            torch.bmm(inputs.mT, slope, out=gradients[index][0])
            torch.sum(slope, 1, keepdim=True, out=gradients[index][1])
            if index:
                torch.bmm(slope, weights[index][0].mT, out=self.slopes[index - 1][:n_models])


class Adam:
    """Adam over the flat rows of a chunk, one fused pass; all rows have taken the same number of steps."""

    def __init__(self, n_models: int, width: int, learning_rate: float, device: torch.device) -> None:
        self.learning_rate = learning_rate
        self.weights, self.gradients, self._first, self._second = torch.zeros((4, n_models, width), device=device)
        self._steps = torch.zeros((), device=device)

    def restart(self) -> None:
        """Forget all moments and steps."""
        for part in (self._first, self._second, self._steps):
            part.zero_()

    def step(self, n_models: int) -> None:
        """Move the first `n_models` rows; the others have taken their last step."""
        adam(
            [self.weights[:n_models]],
            [self.gradients[:n_models]],
            [self._first[:n_models]],
            [self._second[:n_models]],
            [],
            [self._steps],
            fused=True,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=self.learning_rate,
            weight_decay=0.0,
            eps=1e-8,
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
        self._layout, self._fewest = Layout(architecture.shapes), _fewest(architecture)
        height = max(height, self._fewest)
        self._adam = Adam(height, self._layout.width, learning_rate, device)
        self._network = Network(self._layout, architecture.activations, height, width, device)
        self._batch = torch.empty((height * width, self._features), device=device)
        self._rows = torch.empty((0, self._features), device=device)

    @torch.no_grad()
    def run(self, weights: Floats32, samples: Sequence[Floats32], schedule: Schedule) -> Floats32:
        """Take every step of the schedule; returns the new weights (A, P)."""
        self._load(samples)
        self._layout.pack(weights, self._adam.weights)
        self._adam.restart()
        n_models = max(len(weights), self._fewest)
        picks = self._on_device(schedule.picks, n_models)
        scales = self._on_device(_scales(schedule, self._features), n_models)
        active = 0
        for step, moving in enumerate((schedule.filled > 0).sum(axis=1).tolist()):
            count = max(moving, self._fewest)
            if count != active:
                active = count
                matrices = self._layout.views(self._adam.weights[:count])
                gradients = self._layout.views(self._adam.gradients[:count])
                taken = self._batch[: count * picks.shape[2]]
                X = taken.view(count, -1, self._features)
                slope = self._network.slopes[-1][:count]
            torch.index_select(self._rows, 0, picks[step, :count].flatten(), out=taken)
            torch.sub(self._network.forward(matrices, X), X, out=slope)
            slope.mul_(scales[step, :count])
            self._network.backward(matrices, gradients, X)
            self._adam.step(moving)
        return self._layout.unpack(self._adam.weights[: len(weights)])

    def _load(self, samples: Sequence[Floats32]) -> None:
        """Copy the samples one below the other."""
        total = sum(len(rows) for rows in samples)
        if total > self._rows.shape[0]:
            self._rows = torch.empty((total, self._features), device=self._device)
        start = 0
        for rows in samples:
            self._rows[start : start + len(rows)] = torch.from_numpy(rows).to(self._device)
            start += len(rows)

    def _on_device(self, plan: npt.NDArray[np.generic], n_models: int) -> torch.Tensor:
        """Move a plan (steps, A, ...) to the device; partners without rows of their own get zeros."""
        padding = [(0, 0)] * plan.ndim
        padding[1] = (0, n_models - plan.shape[1])
        return torch.from_numpy(np.pad(plan, padding)).to(self._device)


def _scales(schedule: Schedule, n_features: int) -> Floats32:
    """Return what each row's difference is multiplied by, (steps, A, width, 1): the mean's slope, or 0 for padding."""
    filled = schedule.filled[:, :, np.newaxis]
    counts = np.arange(schedule.picks.shape[2]) < filled
    scales = np.where(counts, 2.0 / (np.maximum(filled, 1) * n_features), 0.0)
    return scales[..., np.newaxis].astype(np.float32)


@torch.no_grad()
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
    flat = torch.zeros((max(min(height, n_models), fewest), layout.width), device=device)
    network = Network(layout, architecture.activations, len(flat), block, device)
    squares = torch.empty((len(flat), len(padded)), device=device)
    for first in range(0, n_models, height):
        chunk = weights[first : first + height]
        count = max(len(chunk), fewest)
        views = layout.views(layout.pack(chunk, flat)[:count])
        for start in range(0, len(padded), block):
            here = padded[start : start + block]
            output = network.forward(views, here.expand(count, -1, -1))
            squares[:count, start : start + block] = output.sub_(here).square_().sum(-1)
        found[:, first : first + height] = squares[: len(chunk), :n_rows].T.cpu().numpy()
    found /= np.float32(architecture.n_features)
    return found


@torch.no_grad()
def reconstruct(architecture: Architecture, weights: Floats32, X: Floats32, device: torch.device) -> Floats32:
    """Return all reconstructions (M, n, d) at once."""
    layout = Layout(architecture.shapes)
    network = Network(layout, architecture.activations, len(weights), len(X), device)
    rows = torch.from_numpy(X).to(device).expand(len(weights), -1, -1)
    output: Floats32 = network.forward(layout.views(layout.packed(weights, device)), rows).cpu().numpy()
    return output


def _fewest(architecture: Architecture) -> int:
    """Return how many models go through the products at least.

    Where a layer has a single unit, the library multiplies and sums a model that is alone in another way, with other
    bits, than one in company: such a model is given a partner.
    """
    return 2 if min(architecture.sizes) == 1 else 1


def _aligned(length: int) -> int:
    return -(-length // _LINE) * _LINE
