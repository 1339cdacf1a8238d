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

__all__ = ["Adam", "Layout", "Network", "Schedule", "errors", "placed", "reconstruct", "train_chunk"]

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
                flat[:, matrix : matrix + fan_in * fan_out].view(len(flat), fan_in, fan_out),
                flat[:, bias : bias + fan_out].unsqueeze(1),
            )
            for (fan_in, fan_out), (matrix, bias) in zip(self.shapes, self.starts, strict=True)
        ]

    def pack(self, weights: Floats32, device: torch.device, fewest: int = 1) -> torch.Tensor:
        """Copy dense rows (A, P) into at least `fewest` aligned ones; what lies between and below them is zero."""
        flat = np.zeros((max(len(weights), fewest), self.width), dtype=np.float32)
        for aligned, dense in self._spans():
            flat[: len(weights), aligned] = weights[:, dense]
        return torch.from_numpy(flat).to(device)

    def unpack(self, flat: torch.Tensor) -> Floats32:
        """Copy aligned rows into dense ones."""
        n_parameters = sum(fan_in * fan_out + fan_out for fan_in, fan_out in self.shapes)
        weights = np.empty((len(flat), n_parameters), dtype=np.float32)
        aligned_rows = flat.cpu().numpy()
        for aligned, dense in self._spans():
            weights[:, dense] = aligned_rows[:, aligned]
        return weights

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
            hidden = torch.baddbmm(bias, hidden, matrix, out=output[: len(matrix)])
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
        n_models = len(X)
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

    def __init__(self, weights: torch.Tensor, learning_rate: float) -> None:
        self.weights, self.learning_rate = weights, learning_rate
        self.gradients = torch.zeros_like(weights)
        self._first, self._second = torch.zeros_like(weights), torch.zeros_like(weights)
        self._steps = torch.zeros((), device=weights.device)

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


@torch.no_grad()
def train_chunk(
    architecture: Architecture,
    weights: Floats32,
    samples: Sequence[Floats32],
    schedule: Schedule,
    learning_rate: float,
    device: torch.device,
) -> Floats32:
    """Take every step of the schedule; returns the new weights (A, P)."""
    layout, fewest = Layout(architecture.shapes), _fewest(architecture)
    optimiser = Adam(layout.pack(weights, device, fewest), learning_rate)
    company = max(0, fewest - len(weights))
    picks = torch.from_numpy(np.pad(schedule.picks, ((0, 0), (0, company), (0, 0)))).to(device)
    scales = torch.from_numpy(
        np.pad(_scales(schedule, architecture.n_features), ((0, 0), (0, company), (0, 0), (0, 0)))
    )
    scales = scales.to(device)
    n_models, width = picks.shape[1:]
    network = Network(layout, architecture.activations, n_models, width, device)
    rows = torch.from_numpy(np.concatenate(samples)).to(device)
    batch = torch.empty((n_models * width, architecture.n_features), device=device)
    matrices, gradients = layout.views(optimiser.weights), layout.views(optimiser.gradients)
    for step, moving in enumerate((schedule.filled > 0).sum(axis=1).tolist()):
        count = max(moving, fewest)
        if count < len(matrices[0][0]):
            matrices, gradients = layout.views(optimiser.weights[:count]), layout.views(optimiser.gradients[:count])
        taken = torch.index_select(rows, 0, picks[step, :count].flatten(), out=batch[: count * width])
        X = taken.view(count, width, -1)
        output = network.forward(matrices, X)
        slope = torch.sub(output, X, out=network.slopes[-1][:count])
        slope.mul_(scales[step, :count])
        network.backward(matrices, gradients, X)
        optimiser.step(moving)
    return layout.unpack(optimiser.weights[: len(weights)])


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
    padded = np.zeros((-(-n_rows // block) * block, architecture.n_features), dtype=np.float32)
    padded[:n_rows] = X
    rows = torch.from_numpy(padded).to(device)
    network = Network(layout, architecture.activations, max(min(height, n_models), fewest), block, device)
    for first in range(0, n_models, height):
        views = layout.views(layout.pack(weights[first : first + height], device, fewest))
        count = len(views[0][0])
        parts = []
        for start in range(0, len(rows), block):
            here = rows[start : start + block]
            output = network.forward(views, here.expand(count, -1, -1))
            parts.append(output.sub_(here).square_().sum(-1))
        whole = torch.cat(parts, dim=1).div_(architecture.n_features)
        found[:, first : first + height] = whole.T[:n_rows, : n_models - first].cpu().numpy()
    return found


@torch.no_grad()
def reconstruct(architecture: Architecture, weights: Floats32, X: Floats32, device: torch.device) -> Floats32:
    """Return all reconstructions (M, n, d) at once."""
    layout = Layout(architecture.shapes)
    network = Network(layout, architecture.activations, len(weights), len(X), device)
    rows = torch.from_numpy(X).to(device).expand(len(weights), -1, -1)
    output: Floats32 = network.forward(layout.views(layout.pack(weights, device)), rows).cpu().numpy()
    return output


def _fewest(architecture: Architecture) -> int:
    """Return how many models go through the products at least.

    Where a layer has a single unit, the library multiplies and sums a model that is alone in another way, with other
    bits, than one in company: such a model is given a partner.
    """
    return 2 if min(architecture.sizes) == 1 else 1


def _aligned(length: int) -> int:
    return -(-length // _LINE) * _LINE
