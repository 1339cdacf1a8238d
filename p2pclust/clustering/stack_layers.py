"""The layers of stacked autoencoders, in torch: where weights lie, and the products forward and backward.

The models of a chunk lie below one another, one flat row each, in which every layer starts at a multiple of 64 bytes;
gradients and moments have the same layout. Each product is taken for all models in one call, and writes into views of
memory that is taken once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch

from p2pclust.clustering.autoencoders import Activation, Architecture

Floats32 = npt.NDArray[np.float32]
Views = list[tuple[torch.Tensor, torch.Tensor]]

_LINE = 16  # floats of a cache line


class WeightLayout:
    """Where the layers of a model, of these (units in, units out), lie in its row of `width` numbers."""

    def __init__(self, shapes: Sequence[tuple[int, int]]) -> None:
        self.shapes = tuple(shapes)
        self._lengths = [length for fan_in, fan_out in shapes for length in (fan_in * fan_out, fan_out)]
        starts, self.width = [], 0
        for fan_in, fan_out in self.shapes:
            bias = self.width + _aligned(fan_in * fan_out)
            starts.append((self.width, bias))
            self.width = bias + _aligned(fan_out)
        self._starts = tuple(starts)

    def rows(self, n_models: int, device: torch.device, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Take memory for so many models, (A, width): zeros."""
        return torch.zeros((n_models, self.width), device=device, dtype=dtype)

    def views(self, rows: torch.Tensor, n_models: int) -> Views:
        """Return each layer's matrices (A, units in, units out) and biases (A, 1, units out) of the first A models."""
        flat = rows[:n_models]
        return [
            (
                flat[:, start : start + fan_in * fan_out].view(n_models, fan_in, fan_out),
                flat[:, bias : bias + fan_out].unsqueeze(1),
            )
            for (fan_in, fan_out), (start, bias) in zip(self.shapes, self._starts, strict=True)
        ]

    def pack(self, weights: Floats32, into: Views) -> Views:
        """Copy dense rows (A, P) to where `into` views A models, and return it; what lies between stays as it is."""
        _copy(self._parts(torch.from_numpy(np.require(weights, requirements=["W"]))), into)
        return into

    def unpack(self, views: Views, into: Floats32) -> Floats32:
        """Copy what is viewed into dense rows (A, P), and return them."""
        _copy(views, self._parts(torch.from_numpy(into)))
        return into

    def _parts(self, dense: torch.Tensor) -> Views:
        """Return each layer's matrices and biases in dense rows."""
        parts = torch.split(dense, self._lengths, dim=1)
        return [
            (matrix.view(len(matrix), *shape), bias.unsqueeze(1))
            for matrix, bias, shape in zip(parts[::2], parts[1::2], self.shapes, strict=True)
        ]


class LayerStack:
    """The scratch of passes of up to A models with `rows` rows each; `backward`: going backward needs some too."""

    def __init__(
        self, architecture: Architecture, n_models: int, rows: int, device: torch.device, *, backward: bool = True,
        dtype: torch.dtype = torch.float32,
    ) -> None:  # fmt: skip
        self._kinds = architecture.activations
        sizes = [(n_models, rows, fan_out) for _, fan_out in architecture.shapes]
        self._outputs = [torch.empty(size, device=device, dtype=dtype) for size in sizes]
        self._slopes = [torch.empty(size, device=device) for size in sizes] if backward else self._outputs

    def bound(self, weights: Views, gradients: Views | None = None) -> Pass:
        """Return the passes of models with these weights; going backward fills in `gradients`."""
        layers = []
        for index, kind in enumerate(self._kinds):
            scratch = [part[index][: len(weights[index][0])] for part in (self._outputs, self._slopes)]
            layers.append(_Layer(kind, weights[index], (gradients or weights)[index], *scratch))
        return Pass(layers)


class Pass:
    """Forward and backward through layers whose memory stays where it is."""

    def __init__(self, layers: Sequence[_Layer]) -> None:
        self._layers = tuple(layers)
        # The loss's slope in the last outputs (A, rows, width), to be filled in before going backward.
        self.slope = layers[-1].slope

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Return the last layer's outputs, (A, rows, width), in scratch; X is (A, rows, d)."""
        self._X = X
        last = self._layers[-1]
        activate(last.kind, self.sums(X), last.output)
        return last.output

    def sums(self, X: torch.Tensor) -> torch.Tensor:
        """Return the last layer's outputs before their activation, (A, rows, width), in scratch."""
        hidden = X
        for layer in self._layers[:-1]:
            activate(layer.kind, layer.sums(hidden), layer.output)
            hidden = layer.output
        return self._layers[-1].sums(hidden)

    def backward(self) -> None:
        """Fill in the gradients of the last forward pass from `slope`, which is spent."""
        last = self._layers[-1]
        _descend(last.kind, last.slope, last.output)
        for below, layer in reversed(tuple(pairwise(self._layers))):
            layer.backward(below.output, below)
        self._layers[0].backward(self._X, None)


class _Layer:
    """One layer of a chunk: weights and gradients (matrix, bias), outputs and the loss's slope in them, all (A, ...)."""

    def __init__(
        self,
        kind: Activation,
        weights: tuple[torch.Tensor, torch.Tensor],
        gradients: tuple[torch.Tensor, torch.Tensor],
        output: torch.Tensor,
        slope: torch.Tensor,
    ) -> None:
        self.kind, self.output, self.slope = kind, output, slope
        self._matrix, self._bias = weights
        self._across = self._matrix.mT
        self._gradient, self._bias_gradient = gradients

    def sums(self, inputs: torch.Tensor) -> torch.Tensor:
        """Fill in the outputs before their activation, and return them."""
        return torch.baddbmm(self._bias, inputs, self._matrix, out=self.output)

    def backward(self, inputs: torch.Tensor, below: _Layer | None) -> None:
        """Fill in the gradients, and the slope in the layer below, before its activation."""
        torch.bmm(inputs.mT, self.slope, out=self._gradient)
        torch.sum(self.slope, 1, keepdim=True, out=self._bias_gradient)
        if below:
            torch.bmm(self.slope, self._across, out=below.slope)
            _descend(below.kind, below.slope, below.output)


def activate(kind: Activation, sums: torch.Tensor, output: torch.Tensor) -> None:
    """Write the activations of `sums` to `output`, which may be the same."""
    if kind == "relu":
        torch.clamp_min(sums, 0, out=output)
    elif kind == "sigmoid":
        torch.sigmoid(sums, out=output)
    elif sums is not output:
        output.copy_(sums)


def _descend(kind: Activation, slope: torch.Tensor, output: torch.Tensor) -> None:
    """Turn the slope after an activation into the one before it, in place, by torch's own kernels of one pass."""
    if kind == "relu":
        torch.ops.aten.threshold_backward.grad_input(slope, output, 0, grad_input=slope)
    elif kind == "sigmoid":
        torch.ops.aten.sigmoid_backward.grad_input(slope, output, grad_input=slope)


def _copy(views: Views, into: Views) -> None:
    """Copy each layer's matrices and biases."""
    for (matrix, bias), (matrix_there, bias_there) in zip(views, into, strict=True):
        matrix_there.copy_(matrix)
        bias_there.copy_(bias)


def _aligned(length: int) -> int:
    return -(-length // _LINE) * _LINE
