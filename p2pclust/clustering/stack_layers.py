"""The layers of stacked autoencoders, in torch: where weights lie, and the products forward and backward.

The models of a chunk lie below one another, one flat row each, in which every layer starts at a multiple of 64 bytes;
gradients and moments have the same layout. Products write into views of memory that is taken once.

Small products are taken for all models in one call. Large ones, those of *wide* layers, go to oneDNN one model at a
time: where processors have AVX-512 it multiplies up to twice as fast as the library behind torch's own products, but its
calls take a dozen microseconds to begin, one matrix each, and return new memory. Which layers are wide depends on their
shapes and on the processor alone, so a model's bits do not depend on its company.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from p2pclust.clustering.autoencoders import Activation, Architecture

__all__ = ["LayerStack", "Pass", "Rows", "Take", "Views", "WeightLayout"]

Floats32 = npt.NDArray[np.float32]
Views = list[tuple[torch.Tensor, torch.Tensor]]
Take = Callable[[int, int, torch.Tensor], None]

_LINE = 16  # floats of a cache line
# From so many floating-point operations on, a product is worth a call to oneDNN.
_WIDE_FLOPS = 2_000_000


@dataclass(frozen=True, eq=False)
class Rows:
    """Weights of a chunk, or their gradients or moments.

    Attributes
    ----------
    flat : tensor, shape (A, width)
        All but what lies apart.
    apart : dict from layer to tensor, shape (A, shorter side, longer side)
        Matrices that lie apart; those with more units in than out, transposed. That is how their gradients come.
    """

    flat: torch.Tensor
    apart: dict[int, torch.Tensor]

    def zero_(self) -> None:
        """Set all to zero."""
        for part in (self.flat, *self.apart.values()):
            part.zero_()


class WeightLayout:
    """Where the layers of a model, of these (units in, units out), lie; and whether each one's matrix lies apart."""

    def __init__(self, shapes: Sequence[tuple[int, int]], apart: Sequence[bool] = ()) -> None:
        self.shapes = tuple(shapes)
        self._lengths = [length for fan_in, fan_out in shapes for length in (fan_in * fan_out, fan_out)]
        self.apart = tuple(index for index, is_apart in enumerate(apart) if is_apart)
        starts, self.width = [], 0
        for index, (fan_in, fan_out) in enumerate(self.shapes):
            bias = self.width + (0 if index in self.apart else _aligned(fan_in * fan_out))
            starts.append((self.width, bias))
            self.width = bias + _aligned(fan_out)
        self._starts = tuple(starts)

    def rows(self, n_models: int, device: torch.device) -> Rows:
        """Take memory for so many models: zeros, and anything in what lies apart."""
        apart = {index: torch.empty((n_models, *sorted(self.shapes[index])), device=device) for index in self.apart}
        return Rows(torch.zeros((n_models, self.width), device=device), apart)

    def views(self, rows: Rows, n_models: int) -> Views:
        """Return each layer's matrices (A, units in, units out) and biases (A, 1, units out) of the first A models."""
        flat, views = rows.flat[:n_models], []
        for index, ((fan_in, fan_out), (start, bias)) in enumerate(zip(self.shapes, self._starts, strict=True)):
            if index in self.apart:
                apart = rows.apart[index][:n_models]
                matrix = apart.mT if fan_in > fan_out else apart
            else:
                matrix = flat[:, start : start + fan_in * fan_out].view(n_models, fan_in, fan_out)
            views.append((matrix, flat[:, bias : bias + fan_out].unsqueeze(1)))
        return views

    def pack(self, weights: Floats32, into: Views) -> Views:
        """Copy dense rows (A, P) to where `into` views A models, and return it; what lies between stays as it is."""
        dense = torch.from_numpy(np.require(weights, requirements=["W"]))
        torch._foreach_copy_([part for views in into for part in views], self._parts(dense))
        return into

    def unpack(self, views: Views, into: Floats32) -> Floats32:
        """Copy what is viewed into dense rows (A, P), and return them."""
        torch._foreach_copy_(self._parts(torch.from_numpy(into)), [part for layer in views for part in layer])
        return into

    def _parts(self, dense: torch.Tensor) -> list[torch.Tensor]:
        """Return the matrices and biases in dense rows, layer after layer."""
        parts = list(torch.split(dense, self._lengths, dim=1))
        parts[::2] = [part.view(len(part), *shape) for part, shape in zip(parts[::2], self.shapes, strict=True)]
        parts[1::2] = [part.unsqueeze(1) for part in parts[1::2]]
        return parts


class LayerStack:
    """The scratch of passes of up to A models with `rows` rows each; `backward`: going backward needs some too."""

    def __init__(
        self, architecture: Architecture, n_models: int, rows: int, device: torch.device, *, backward: bool = True
    ) -> None:
        self._kinds, shapes = architecture.activations, architecture.shapes
        fast = device.type == "cpu" and _onednn() is not None
        self.wide = tuple(fast and 2 * rows * fan_in * fan_out >= _WIDE_FLOPS for fan_in, fan_out in shapes)
        sizes = [(n_models, rows, fan_out) for _, fan_out in shapes]
        self._outputs = [torch.empty(size, device=device) for size in sizes]
        self._slopes = [torch.empty(size, device=device) for size in sizes] if backward else self._outputs

    def bound(self, weights: Views, gradients: Views | None = None) -> Pass:
        """Return the passes of models with these weights; going backward fills in `gradients`."""
        layers: list[_Layer] = []
        for index, kind in enumerate(self._kinds):
            scratch = [part[index][: len(weights[index][0])] for part in (self._outputs, self._slopes)]
            layer = _OneByOne if self.wide[index] else _Layer
            layers.append(layer(index, kind, weights[index], (gradients or weights)[index], *scratch))
        return Pass(layers)


class Pass:
    """Forward and backward through layers whose memory stays where it is."""

    def __init__(self, layers: Sequence[_Layer]) -> None:
        self._layers = tuple(layers)
        # The loss's slope in the last outputs (A, rows, width), to be filled in before going backward.
        self.slope = layers[-1].slope

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Return the last layer's outputs, (A, rows, width), in scratch; X is (A, rows, d)."""
        self._X = hidden = X
        for layer in self._layers:
            layer.forward(hidden)
            hidden = layer.output
        return hidden

    def results(self, X: torch.Tensor) -> Iterator[tuple[slice, torch.Tensor]]:
        """Give the last layer's outputs as soon as they are there: of which models, and (models, rows, width).

        They may be overwritten, and are best used at once, while they are in cache.
        """
        hidden = X
        for layer in self._layers[:-1]:
            layer.forward(hidden)
            hidden = layer.output
        yield from self._layers[-1].results(hidden)

    def backward(self, take: Take) -> None:
        """Fill in the gradients of the last forward pass from `slope`, which is spent.

        `take` is called with a layer, a model and the gradient, shorter side first, of each matrix of a wide layer, as
        soon as the matrix is not needed any more.
        """
        last = self._layers[-1]
        _descend(last.kind, last.slope, last.output, last.slope)
        for below, layer in reversed(tuple(pairwise(self._layers))):
            layer.backward(below.output, below, take)
        self._layers[0].backward(self._X, None, take)


class _Layer:
    """One layer of a chunk: weights and gradients (matrix, bias), outputs and the loss's slope in them, all (A, ...)."""

    def __init__(
        self,
        index: int,
        kind: Activation,
        weights: tuple[torch.Tensor, torch.Tensor],
        gradients: tuple[torch.Tensor, torch.Tensor],
        output: torch.Tensor,
        slope: torch.Tensor,
    ) -> None:
        self.index, self.kind, self.output, self.slope = index, kind, output, slope
        self.matrix, self.bias = weights
        self.transposed = self.matrix.mT
        self.gradient, self.bias_gradient = gradients

    def forward(self, inputs: torch.Tensor) -> None:
        """Fill in the outputs."""
        torch.baddbmm(self.bias, inputs, self.matrix, out=self.output)
        _activate(self.kind, self.output, self.output)

    def results(self, inputs: torch.Tensor) -> Iterator[tuple[slice, torch.Tensor]]:
        """Yield outputs as they come, with the models that they are of."""
        self.forward(inputs)
        yield slice(0, len(self.output)), self.output

    def backward(self, inputs: torch.Tensor, below: _Layer | None, take: Take) -> None:
        """Fill in the gradients, and the slope in the layer below, before its activation."""
        torch.bmm(inputs.mT, self.slope, out=self.gradient)
        torch.sum(self.slope, 1, keepdim=True, out=self.bias_gradient)
        if below:
            torch.bmm(self.slope, self.transposed, out=below.slope)
            _descend(below.kind, below.slope, below.output, below.slope)


class _OneByOne(_Layer):
    """One model at a time, by oneDNN; activations are taken on the way to where results are wanted."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._tall = self.matrix.shape[1] > self.matrix.shape[2]
        self._forward = tuple(zip(self.transposed, self.bias.squeeze(1), self.output, strict=True))
        self._backward = tuple(zip(self.matrix, self.slope, self.slope.mT, strict=True))

    def forward(self, inputs: torch.Tensor) -> None:
        for X, (transposed, bias, output) in zip(inputs.unbind(), self._forward, strict=True):
            _activate(self.kind, _product(X, transposed, bias), output)

    def results(self, inputs: torch.Tensor) -> Iterator[tuple[slice, torch.Tensor]]:
        for m, (X, (transposed, bias, _)) in enumerate(zip(inputs.unbind(), self._forward, strict=True)):
            sums = _product(X, transposed, bias)
            _activate(self.kind, sums, sums)
            yield slice(m, m + 1), sums[None]

    def backward(self, inputs: torch.Tensor, below: _Layer | None, take: Take) -> None:
        torch.sum(self.slope, 1, keepdim=True, out=self.bias_gradient)
        for m, (X, (matrix, slope, across)) in enumerate(zip(inputs.mT.unbind(), self._backward, strict=True)):
            # oneDNN wants its first operand in rows, and copies it if it is not: so that is the shorter one.
            gradient = _product(across, X) if self._tall else _product(X, across)
            if below:
                _descend(below.kind, _product(slope, matrix), below.output[m], below.slope[m])
            take(self.index, m, gradient)


def _activate(kind: Activation, sums: torch.Tensor, output: torch.Tensor) -> None:
    """Write the activations of `sums` to `output`, which may be the same."""
    if kind == "relu":
        torch.clamp_min(sums, 0, out=output)
    elif kind == "sigmoid":
        torch.sigmoid(sums, out=output)
    elif sums is not output:
        output.copy_(sums)


def _descend(kind: Activation, slope: torch.Tensor, output: torch.Tensor, descended: torch.Tensor) -> None:
    """Write the slope before an activation to `descended`; `slope` is the one after, and may be the same."""
    # Of the activations' outputs, by torch's own kernels of one pass.
    if kind == "relu":
        torch.ops.aten.threshold_backward.grad_input(slope, output, 0, grad_input=descended)
    elif kind == "sigmoid":
        torch.ops.aten.sigmoid_backward.grad_input(slope, output, grad_input=descended)
    elif slope is not descended:
        descended.copy_(slope)


@cache
def _onednn() -> Callable[..., torch.Tensor] | None:
    """Return oneDNN's product as torch wraps it, or None where it is missing or no faster than torch's own."""
    found = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
    return found.default if found and torch.backends.cpu.get_cpu_capability() == "AVX512" else None


def _product(X: torch.Tensor, Y: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Return X Y' + bias, by oneDNN, in new memory."""
    linear = _onednn()
    assert linear is not None
    return linear(X, Y, bias, "none", [], "")


def _aligned(length: int) -> int:
    return -(-length // _LINE) * _LINE
