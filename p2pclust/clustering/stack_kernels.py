"""Training and evaluating stacked autoencoders, in torch: the steps of many models at once, and their layers.

Imported only by functions that train or evaluate, since torch is an extra. The weights of a chunk, their gradients and
their moments lie in memory that is taken once; every view of it is made once too, so that a step does nothing but
arithmetic. Nothing here is shared between calls or threads. The models of a chunk lie below one another, one flat row
each, in which every layer starts at a multiple of 64 bytes; each product is taken for all models in one call.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch.optim.adam import adam  # torch.optim.Adam would load the compiler: seconds, and 70 MB

from p2pclust.clustering.autoencoders import Activation, Architecture
from p2pclust.clustering.points import Floats32, Integers
from p2pclust.errors import UsageError

Views = list[tuple[torch.Tensor, torch.Tensor]]

_LINE = 16  # floats of a cache line


def placed(device: str) -> torch.device:
    """Return the device of that name, or say in one line why it cannot be used."""
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise UsageError(f"there is no device {device!r}; use 'cpu' or 'cuda'") from error
    if found.type not in {"cpu", "cuda"}:
        raise UsageError(f"models run on 'cpu' or 'cuda', not on {device!r}")
    if found.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"device {device!r} cannot be used: torch finds no CUDA device; use 'cpu'")
    return found


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one torch thread: with more, the libraries may share a product out in another way, with other bits.

    The setting is the calling thread's own. A thread that computes with torch for the first time takes over what was
    set last by any; so it is only touched if it has to be.
    """
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def adam_step(
    weights: torch.Tensor, gradient: torch.Tensor, first: torch.Tensor, second: torch.Tensor, steps: torch.Tensor,
    learning_rate: float, decay: float = 0.0,
) -> None:  # fmt: skip
    """Take a step of Adam, with L2 `decay`, in place; torch counts it in `steps`."""
    adam(
        [weights], [gradient], [first], [second], [], [steps], fused=True, amsgrad=False, beta1=0.9, beta2=0.999,
        lr=learning_rate, weight_decay=decay, eps=1e-8, maximize=False,
    )  # fmt: skip


_kept = threading.local()


def trainer(architecture: Architecture, height: int, width: int, device: torch.device, *, keep: bool) -> Trainer:
    """Return a trainer of chunks of at least this height; if it is to be kept, for the thread's next call too.

    Taking memory anew costs as much as several steps, which weighs in trainings of eight. One trainer is kept per
    thread, and goes with it.
    """
    key = (architecture, width, device)
    if getattr(_kept, "key", None) == key and _kept.trainer.height >= height:
        found: Trainer = _kept.trainer
        return found
    made = Trainer(architecture, height, width, device)
    if keep:
        _kept.key, _kept.trainer = key, made
    return made


class Trainer:
    """Trains chunks of up to `height` models, one chunk after the other, in memory that is taken once.

    `width` is the number of rows of a minibatch, padding included.
    """

    def __init__(self, architecture: Architecture, height: int, width: int, device: torch.device) -> None:
        self._features, self._device = architecture.n_features, device
        self._fewest = _fewest(architecture)
        self.height = height = max(height, self._fewest)
        self._network = LayerStack(architecture, height, width, device)
        self._layout = WeightLayout(architecture.shapes)
        # Of each model: weights, gradients, and the first and second moments of Adam. All have taken as many steps.
        self._rows = [self._layout.rows(height, device) for _ in range(4)]
        self._count = torch.zeros((), device=device)
        # Zeros, because a partner without rows of its own is left with them.
        self._batch = torch.zeros((height, width, self._features), device=device)
        self._dense = np.empty((height, architecture.n_parameters), dtype=np.float32)
        self._active: dict[int, tuple[Views, Pass, torch.Tensor]] = {}

    @torch.inference_mode()
    def run(
        self, weights: Floats32, chunk: Sequence[int], samples: Sequence[Floats32], picked: Integers, filled: Integers,
        learning_rate: float,
    ) -> None:  # fmt: skip
        """Take every step of a schedule with the models of `chunk`, rows of `weights` (M, P), which are replaced.

        `picked` (steps, A, width) are the rows that each model takes, and `filled` (steps, A) how many of them count.
        """
        n_models = len(chunk)
        dense = self._dense[:n_models]
        # Each model's rows where they are, or on a GPU all in one piece.
        rows = [torch.from_numpy(each) for each in samples]
        if self._device.type != "cpu":
            rows = [torch.cat(rows).to(self._device)]
            picked = picked + np.cumsum([0, *map(len, samples[:-1])])[:, np.newaxis]
        picks = torch.from_numpy(picked).to(self._device)
        padded = max(n_models, self._fewest)
        scales = torch.zeros((len(picks), padded, picks.shape[2], 1), device=self._device)
        # Each row's share of the mean squared error's slope: 0 for padding.
        share = 1.0 / (np.maximum(filled, 1) * self._features)
        counts = np.arange(picked.shape[2]) < filled[:, :, np.newaxis]
        shares = np.where(counts, share[:, :, np.newaxis], 0.0).astype(np.float32)
        scales[:, :n_models] = torch.from_numpy(shares[..., np.newaxis])
        np.take(weights, chunk, axis=0, out=dense, mode="clip")  # other modes take memory
        self._layout.pack(dense, self._first(n_models)[0])
        for part in (*self._rows[2:], self._count):
            part.zero_()
        moving = (filled > 0).sum(axis=1)
        # Models leave the program when they have taken all their steps; between two that leave, nothing changes.
        changes = np.flatnonzero(np.diff(moving)) + 1
        for start, stop in zip([0, *changes.tolist()], [*changes.tolist(), len(moving)], strict=True):
            # The first `count` models move; a partner of one that is alone does not.
            count = int(moving[start])
            together = max(count, self._fewest)
            _, models, X = self._first(together)
            values, gradients, first, second = (part[:count] for part in self._rows)
            taken = [X[:count].flatten(0, 1)] if len(rows) == 1 else X[:count].unbind()
            own_picks = picks[start:stop, :count].view(stop - start, len(taken), -1)
            for pick, scale in zip(own_picks, scales[start:stop, :together].unbind(), strict=True):
                for own, which, out in zip(rows, pick.unbind(), taken, strict=False):
                    torch.index_select(own, 0, which, out=out)
                output = models.forward(X)
                # Twice the difference, times each row's scale.
                torch.ops.aten.mse_loss_backward.grad_input(scale, output, X, 2, grad_input=models.slope)
                models.backward()
                adam_step(values, gradients, first, second, self._count, learning_rate)
        self._layout.unpack(self._first(n_models)[0], dense)
        weights[chunk] = dense

    def _first(self, n_models: int) -> tuple[Views, Pass, torch.Tensor]:
        """Return the weights, passes and minibatches of the first models of the chunk, which are still being trained."""
        if n_models not in self._active:
            weights, gradients = (self._layout.views(part, n_models) for part in self._rows[:2])
            self._active[n_models] = (weights, Pass(self._network, weights, gradients), self._batch[:n_models])
        return self._active[n_models]


@torch.inference_mode()
def errors(
    architecture: Architecture, weights: Floats32, X: Floats32, height: int, block: int, device: torch.device,
    precision: str = "float32",
) -> Floats32:  # fmt: skip
    """Return the mean squared errors (n, M), in blocks of `block` rows and up to `height` models.

    Products are of numbers of this precision; the last activations and the errors are float32 in any case.
    """
    dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}[precision]
    layout, fewest = WeightLayout(architecture.shapes), _fewest(architecture)
    n_rows, n_models = len(X), len(weights)
    found = np.empty((n_rows, n_models), dtype=np.float32)
    if not found.size:
        return found
    padded = torch.zeros((-(-n_rows // block) * block, architecture.n_features), device=device)
    padded[:n_rows] = torch.from_numpy(X).to(device)
    rounded = padded.to(dtype)  # the same memory if nothing is rounded
    height = max(min(height, n_models), fewest)
    packed = layout.rows(height, device, dtype)
    network = LayerStack(architecture, height, block, device, backward=False, dtype=dtype)
    output = torch.empty((block, architecture.n_features), device=device)
    squares, count = torch.empty((height, len(padded)), device=device), 0
    for first in range(0, n_models, height):
        chunk = weights[first : first + height]
        if max(len(chunk), fewest) != count:
            count = max(len(chunk), fewest)
            models = Pass(network, layout.views(packed, count))
        layout.pack(chunk, layout.views(packed, len(chunk)))
        for start in range(0, len(padded), block):
            here = slice(start, start + block)
            rows, sums = padded[here], models.sums(rounded[here].expand(count, -1, -1))
            # One model after the other, so that what is written stays in cache.
            for m in range(len(chunk)):
                output.copy_(sums[m])
                activate(architecture.output, output, output)
                torch.ops.aten.mse_loss.out(output, rows, 0, out=output)
                torch.sum(output, -1, out=squares[m, here])
        found[:, first : first + height] = squares[: len(chunk), :n_rows].T.cpu().numpy()
    found /= np.float32(architecture.n_features)
    return found


@torch.inference_mode()
def reconstruct(architecture: Architecture, weights: Floats32, X: Floats32, device: torch.device) -> Floats32:
    layout, n_models = WeightLayout(architecture.shapes), len(weights)
    network = LayerStack(architecture, n_models, len(X), device, backward=False)
    rows = torch.from_numpy(X).to(device).expand(n_models, -1, -1)
    models = Pass(network, layout.pack(weights, layout.views(layout.rows(n_models, device), n_models)))
    output: Floats32 = models.forward(rows).cpu().numpy()
    return output


def _fewest(architecture: Architecture) -> int:
    """Return how many models go through the products at least.

    Where a layer has a single unit, the library multiplies and sums a model that is alone in another way, with other
    bits, than one in company: such a model is given a partner.
    """
    return 2 if min(architecture.sizes) == 1 else 1


class WeightLayout:
    """Where the layers of a model, of these (units in, units out), lie in its row of `width` numbers."""

    def __init__(self, shapes: Sequence[tuple[int, int]]) -> None:
        self.shapes = tuple(shapes)
        self._lengths = [length for fan_in, fan_out in shapes for length in (fan_in * fan_out, fan_out)]
        self._starts: list[tuple[int, int]] = []
        self.width = 0
        for fan_in, fan_out in self.shapes:
            bias = self.width + _aligned(fan_in * fan_out)
            self._starts.append((self.width, bias))
            self.width = bias + _aligned(fan_out)

    def rows(self, n_models: int, device: torch.device, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Take memory for so many models, (A, width): zeros."""
        return torch.zeros((n_models, self.width), device=device, dtype=dtype)

    def views(self, rows: torch.Tensor, n_models: int) -> Views:
        """Return each layer's matrices (A, units in, units out) and biases (A, 1, units out) of the first A models."""
        found, flat = [], rows[:n_models]
        for (fan_in, fan_out), (start, bias) in zip(self.shapes, self._starts, strict=True):
            matrix = flat[:, start : start + fan_in * fan_out].view(n_models, fan_in, fan_out)
            found.append((matrix, flat[:, bias : bias + fan_out].unsqueeze(1)))
        return found

    def pack(self, weights: Floats32, into: Views) -> Views:
        """Copy dense rows (A, P) to where `into` views A models, and return it; what lies between stays as it is."""
        _copy(self._parts(torch.from_numpy(np.require(weights, requirements=["W"]))), into)
        return into

    def unpack(self, views: Views, into: Floats32) -> Floats32:
        """Copy what is viewed into dense rows (A, P), and return them."""
        _copy(views, self._parts(torch.from_numpy(into)))
        return into

    def _parts(self, dense: torch.Tensor) -> Views:
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
        self.kinds = architecture.activations
        sizes = [(n_models, rows, fan_out) for _, fan_out in architecture.shapes]
        self.outputs = [torch.empty(size, device=device, dtype=dtype) for size in sizes]
        self.slopes = [torch.empty(size, device=device) for size in sizes] if backward else self.outputs


class Pass:
    """Forward and backward through the layers of A models, whose memory stays where it is.

    Of each layer: weights and gradients (matrix, bias), outputs, and the loss's slope in them, all (A, ...).
    """

    def __init__(self, scratch: LayerStack, weights: Views, gradients: Views | None = None) -> None:
        n_models = len(weights[0][0])
        self._kinds, self._weights, self._gradients = scratch.kinds, weights, gradients or weights
        self._outputs = [part[:n_models] for part in scratch.outputs]
        self._slopes = [part[:n_models] for part in scratch.slopes]
        self._across = [matrix.mT for matrix, _ in weights]
        # The loss's slope in the last outputs (A, rows, width), to be filled in before going backward.
        self.slope = self._slopes[-1]

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Return the last layer's outputs, (A, rows, width), in scratch; X is (A, rows, d)."""
        self._X = X
        activate(self._kinds[-1], self.sums(X), self._outputs[-1])
        return self._outputs[-1]

    def sums(self, X: torch.Tensor) -> torch.Tensor:
        """Return the last layer's outputs before their activation, (A, rows, width), in scratch."""
        hidden, last = X, len(self._kinds) - 1
        for index, (kind, (matrix, bias), output) in enumerate(
            zip(self._kinds, self._weights, self._outputs, strict=True)
        ):
            hidden = torch.baddbmm(bias, hidden, matrix, out=output)
            if index < last:
                activate(kind, output, output)
        return hidden

    def backward(self) -> None:
        """Fill in the gradients of the last forward pass from `slope`, which is spent."""
        for index in reversed(range(len(self._kinds))):
            slope, (gradient, bias_gradient) = self._slopes[index], self._gradients[index]
            # From the slope after the activation to the one before it, in place, by torch's own kernels of one pass.
            if self._kinds[index] == "relu":
                torch.ops.aten.threshold_backward.grad_input(slope, self._outputs[index], 0, grad_input=slope)
            elif self._kinds[index] == "sigmoid":
                torch.ops.aten.sigmoid_backward.grad_input(slope, self._outputs[index], grad_input=slope)
            inputs = self._outputs[index - 1] if index else self._X
            torch.bmm(inputs.mT, slope, out=gradient)
            torch.sum(slope, 1, keepdim=True, out=bias_gradient)
            if index:
                torch.bmm(slope, self._across[index], out=self._slopes[index - 1])


def activate(kind: Activation, sums: torch.Tensor, output: torch.Tensor) -> None:
    if kind == "relu":
        torch.clamp_min(sums, 0, out=output)
    elif kind == "sigmoid":
        torch.sigmoid(sums, out=output)
    elif sums is not output:
        output.copy_(sums)


def _copy(views: Views, into: Views) -> None:
    for (matrix, bias), (matrix_there, bias_there) in zip(views, into, strict=True):
        matrix_there.copy_(matrix)
        bias_there.copy_(bias)


def _aligned(length: int) -> int:
    return -(-length // _LINE) * _LINE
