"""The products of stacked flows, in torch: forward, backward and inverse, written out, for many models at once.

Imported only by functions that train or evaluate, since torch is an extra. Weights lie as `stack_layers` has them, and
Adam is `stack_kernels`'. Every operation has the model as its first axis, products write into memory that is taken once,
and the rows of data come as two matrices, one for each half of the features.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from p2pclust.clustering.flows import FlowArchitecture
from p2pclust.clustering.stack_kernels import Adam, one_thread, placed
from p2pclust.clustering.stack_layers import Layout, Views

__all__ = ["Flow", "FlowTrainer", "latent", "log_likelihoods", "one_thread", "placed", "restored"]

Floats32 = npt.NDArray[np.float32]
Columns = npt.NDArray[np.int64]
Layer = tuple[torch.Tensor, torch.Tensor]
Halves = list[torch.Tensor]


class Flow:
    """The scratch of one forward and backward pass of up to A models with `rows` rows each.

    Parameters
    ----------
    architecture : FlowArchitecture
    n_models, rows : int
    device : torch.device
    training : bool
        Whether there will be a backward pass; otherwise all couplings of one direction share their scratch.
    """

    def __init__(
        self, architecture: FlowArchitecture, n_models: int, rows: int, device: torch.device, *, training: bool
    ) -> None:
        def scratch(widths: Sequence[int]) -> Halves:
            return [torch.empty((n_models, rows, width), device=device) for width in widths]

        hidden, sizes = architecture.hidden, [len(half) for half in architecture.halves]
        self._couplings, self._depth = architecture.couplings, len(hidden) + 2
        # Where nothing is looked at again, all couplings that move the same half share their scratch.
        moved = [sizes[1 - coupling % 2] for coupling in range(architecture.couplings if training else 2)]
        self._hidden = [scratch(hidden) for _ in moved]
        # Of each coupling: s, e^s, the half times that, and the half that comes out.
        self._logs, self._scales, self._scaled, self._out = (scratch(moved) for _ in range(4))
        if training:
            self._slopes, self._second_slope = scratch(hidden), scratch(hidden[-1:])[0]
            self._halves, self._log_slopes, self._through = (scratch(sizes) for _ in range(3))

    def forward(self, weights: Views, halves: Halves, logs: torch.Tensor | None = None) -> Halves:
        """Return both halves of z, in scratch; the sum of all s of a row is added to `logs` (A, rows)."""
        at, count = list(halves), len(weights[0][0])
        for coupling in range(self._couplings):
            here, moved = coupling % len(self._out), 1 - coupling % 2
            hidden, into_s, into_t = self._conditioned(coupling, weights, at[1 - moved])
            s = _product(hidden, into_s, self._logs[here][:count]).tanh_()
            scale = torch.exp(s, out=self._scales[here][:count])
            # Before t takes the place of what came out two couplings ago.
            scaled = torch.mul(at[moved], scale, out=self._scaled[here][:count])
            at[moved] = _product(hidden, into_t, self._out[here][:count]).add_(scaled)
            if logs is not None:
                logs.add_(s.sum(-1))
        return at

    def inverse(self, weights: Views, halves: Halves) -> Halves:
        """Return both halves of the rows that are mapped to these."""
        at = list(halves)
        for coupling in range(self._couplings - 1, -1, -1):
            moved = 1 - coupling % 2
            hidden, (s_matrix, s_bias), (t_matrix, t_bias) = self._conditioned(coupling, weights, at[1 - moved])
            s, t = torch.baddbmm(s_bias, hidden, s_matrix).tanh_(), torch.baddbmm(t_bias, hidden, t_matrix)
            at[moved] = (at[moved] - t) * torch.exp(-s)
        return at

    def backward(self, weights: Views, gradients: Views, halves: Halves, z: Halves, share: torch.Tensor) -> None:
        """Fill in the gradients of ``share * (|z|^2 / 2 - sum of s)``, summed over rows, after their forward pass.

        Parameters
        ----------
        weights, gradients : views of the layout
        halves, z : list of two tensors
            What went into :meth:`forward`, and what came out.
        share : tensor, shape (A, rows, 1)
        """
        count = len(share)
        slopes = [torch.mul(z[half], share, out=self._halves[half][:count]) for half in range(2)]
        for coupling in range(self._couplings - 1, -1, -1):
            kept, moved = coupling % 2, 1 - coupling % 2
            log_slope = torch.mul(slopes[moved], self._scaled[coupling][:count], out=self._log_slopes[moved][:count])
            log_slope.sub_(share)
            torch.ops.aten.tanh_backward.grad_input(log_slope, self._logs[coupling][:count], grad_input=log_slope)
            # The half that this coupling kept is the one that the coupling before moved.
            entered = self._out[coupling - 1][:count] if coupling else halves[0]
            slope = self._into_conditioner(coupling, weights, gradients, entered, log_slope, slopes[moved])
            if coupling:
                matrix = weights[coupling * self._depth][0]
                slopes[kept].add_(torch.bmm(slope, matrix.mT, out=self._through[kept][:count]))
                slopes[moved].mul_(self._scales[coupling][:count])

    def _conditioned(self, coupling: int, weights: Views, kept: torch.Tensor) -> tuple[torch.Tensor, Layer, Layer]:
        """Return a conditioner's last hidden layer, in scratch, and the layers to s and t that follow it."""
        here, first = coupling % len(self._out), coupling * self._depth
        *layers, into_s, into_t = weights[first : first + self._depth]
        for layer, output in zip(layers, self._hidden[here], strict=True):
            kept = _product(kept, layer, output[: len(layer[0])]).relu_()
        return kept, into_s, into_t

    def _into_conditioner(
        self,
        coupling: int,
        weights: Views,
        gradients: Views,
        entered: torch.Tensor,
        log_slope: torch.Tensor,
        shift_slope: torch.Tensor,
    ) -> torch.Tensor:
        """Fill in the gradients of a conditioner, and return the slope in the first layer's sums."""
        count, first = len(entered), coupling * self._depth
        outputs = [output[:count] for output in self._hidden[coupling]]
        slopes = [slope[:count] for slope in self._slopes]
        last = first + len(outputs)
        for layer, given, out in ((last, log_slope, slopes[-1]), (last + 1, shift_slope, self._second_slope[:count])):
            _gradient(gradients[layer], outputs[-1], given)
            torch.bmm(given, weights[layer][0].mT, out=out)
        slopes[-1].add_(self._second_slope[:count])
        for number in range(len(outputs) - 1, -1, -1):
            slope = slopes[number]
            torch.ops.aten.threshold_backward.grad_input(slope, outputs[number], 0, grad_input=slope)
            _gradient(gradients[first + number], outputs[number - 1] if number else entered, slope)
            if number:
                torch.bmm(slope, weights[first + number][0].mT, out=slopes[number - 1])
        return slopes[0]


class FlowTrainer:
    """Trains chunks of up to `height` flows, one chunk after the other, in memory that is taken once.

    Parameters
    ----------
    architecture : FlowArchitecture
    height : int
    width : int
        Rows of a minibatch, padding included.
    learning_rate, decay : float
    device : torch.device
    """

    def __init__(
        self,
        architecture: FlowArchitecture,
        height: int,
        width: int,
        learning_rate: float,
        decay: float,
        device: torch.device,
    ) -> None:
        self._halves, self._device, self._width = architecture.halves, device, width
        self._layout, self._fewest = Layout(architecture.shapes), _fewest(architecture)
        height = max(height, self._fewest)
        self._adam, self._rate, self._decay = Adam(self._layout, height, device), learning_rate, decay
        self._flow = Flow(architecture, height, width, device, training=True)
        self._batches = [torch.empty((height * width, len(half)), device=device) for half in self._halves]

    @torch.no_grad()
    def run(self, weights: Floats32, samples: Sequence[Floats32], picks: Columns, filled: Columns) -> Floats32:
        """Take every step; returns the new weights (A, P).

        Parameters
        ----------
        weights : float32 array, shape (A, P)
        samples : sequence of A float32 arrays, shapes (n_m, d)
        picks : int64 array, shape (steps, A, width)
            Rows of the samples, one model's after the other's.
        filled : int64 array, shape (steps, A)
            How many of the width count.
        """
        rows = [
            torch.from_numpy(np.concatenate([X[:, half] for X in samples])).to(self._device) for half in self._halves
        ]
        own = self._layout.pack(weights, self._layout.views(self._adam.weights, len(weights)))
        self._adam.restart(self._rate, decay=self._decay)
        count = max(len(weights), self._fewest)
        views, gradients = (self._layout.views(part, count) for part in (self._adam.weights, self._adam.gradients))
        plan, shares = self._on_device(picks, count), self._on_device(_shares(filled, self._width), count)
        flat = [batch[: count * self._width] for batch in self._batches]
        halves = [batch.view(count, self._width, batch.shape[1]) for batch in flat]
        for step in range(len(picks)):
            for half, out in zip(rows, flat, strict=True):
                torch.index_select(half, 0, plan[step].flatten(), out=out)
            z = self._flow.forward(views, halves)
            self._flow.backward(views, gradients, halves, z, shares[step])
            self._adam.move_rest(len(weights))
        return self._layout.unpack(own, np.empty_like(weights))

    def _on_device(self, plan: npt.NDArray[np.generic], n_models: int) -> torch.Tensor:
        """Move a plan (steps, A, ...) to the device; partners without rows of their own get zeros."""
        padding = [(0, 0)] * plan.ndim
        padding[1] = (0, n_models - plan.shape[1])
        return torch.from_numpy(np.pad(plan, padding)).to(self._device)


def _shares(filled: Columns, width: int) -> Floats32:
    """Return what each row counts in its minibatch's mean, (steps, A, width, 1), or 0 for padding."""
    counts = np.arange(width) < filled[..., np.newaxis]
    return np.where(counts, 1.0 / np.maximum(filled[..., np.newaxis], 1), 0.0)[..., np.newaxis].astype(np.float32)


@torch.no_grad()
def log_likelihoods(
    architecture: FlowArchitecture, weights: Floats32, X: Floats32, height: int, block: int, device: torch.device
) -> Floats32:
    """Return the log-likelihoods (n, M), in blocks of `block` rows and up to `height` models."""
    layout, fewest = Layout(architecture.shapes), _fewest(architecture)
    n_rows, n_models = len(X), len(weights)
    found = np.empty((n_rows, n_models), dtype=np.float32)
    if not found.size:
        return found
    padded = np.zeros((-(-n_rows // block) * block, architecture.n_features), dtype=np.float32)
    padded[:n_rows] = X
    halves = [torch.from_numpy(padded[:, half]).to(device) for half in architecture.halves]
    height = max(min(height, n_models), fewest)
    packed = layout.rows(height, device)
    flow = Flow(architecture, height, block, device, training=False)
    logs = torch.empty((height, len(padded)), device=device)
    for first in range(0, n_models, height):
        chunk = weights[first : first + height]
        count = max(len(chunk), fewest)
        layout.pack(chunk, layout.views(packed, len(chunk)))
        views = layout.views(packed, count)
        logs.fill_(-0.5 * architecture.n_features * math.log(2.0 * math.pi))
        for start in range(0, len(padded), block):
            here = [half[start : start + block].expand(count, -1, -1) for half in halves]
            own = logs[:count, start : start + block]
            for half in flow.forward(views, here, own):
                own.sub_(half.square().sum(-1), alpha=0.5)
        found[:, first : first + height] = logs[: len(chunk), :n_rows].T.cpu().numpy()
    return found


@torch.no_grad()
def latent(architecture: FlowArchitecture, weights: Floats32, X: Floats32, device: torch.device) -> Floats32:
    """Return what each row is mapped to, (M, n, d), all at once."""
    flow, views, halves = _spread(architecture, weights, X, device)
    return _joined(architecture, flow.forward(views, halves))


@torch.no_grad()
def restored(architecture: FlowArchitecture, weights: Floats32, Z: Floats32, device: torch.device) -> Floats32:
    """Return what is mapped to each z, (M, n, d), all at once."""
    flow, views, halves = _spread(architecture, weights, Z, device)
    return _joined(architecture, flow.inverse(views, halves))


def _spread(
    architecture: FlowArchitecture, weights: Floats32, X: Floats32, device: torch.device
) -> tuple[Flow, Views, Halves]:
    layout = Layout(architecture.shapes)
    halves = [torch.from_numpy(X[:, half]).to(device).expand(len(weights), -1, -1) for half in architecture.halves]
    flow = Flow(architecture, len(weights), len(X), device, training=False)
    views = layout.views(layout.rows(len(weights), device), len(weights))
    return flow, layout.pack(weights, views), halves


def _joined(architecture: FlowArchitecture, halves: Halves) -> Floats32:
    together = np.empty((*halves[0].shape[:2], architecture.n_features), dtype=np.float32)
    for columns, half in zip(architecture.halves, halves, strict=True):
        together[:, :, columns] = half.cpu().numpy()
    return together


def _product(X: torch.Tensor, layer: Layer, out: torch.Tensor) -> torch.Tensor:
    matrix, bias = layer
    return torch.baddbmm(bias, X, matrix, out=out)


def _gradient(into: Layer, entered: torch.Tensor, slope: torch.Tensor) -> None:
    matrix, bias = into
    torch.bmm(entered.mT, slope, out=matrix)
    torch.sum(slope, 1, keepdim=True, out=bias)


def _fewest(architecture: FlowArchitecture) -> int:
    """Return how many models go through the products at least: a layer of one unit wants company, see `stack_kernels`."""
    return 2 if min(min(shape) for shape in architecture.shapes) <= 1 else 1
