"""DEC's encoder in torch: codes of rows, and the steps that move encoder and centers towards a target distribution.

Imported only by functions that run DEC, since torch is an extra.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import torch
from torch.optim.sgd import sgd  # torch.optim.SGD would load the compiler: seconds, and 70 MB

from p2pclust.clustering.autoencoders import ModelStack
from p2pclust.clustering.points import Floats, Floats32

_BLOCK = 256


class Encoder:
    """The first `depth` layers of an autoencoder, `model`, and centers (K, code units) in their outputs."""

    def __init__(self, model: ModelStack, depth: int, device: torch.device) -> None:
        self._device, self._kinds = device, model.architecture.activations[:depth]
        layers = model.architecture.layers(model.weights[0])[:depth]
        self._layers = [(self._parameter(matrix), self._parameter(bias)) for matrix, bias in layers]

    def start(self, centers: Floats) -> None:
        """Set the centers, and the momentum of encoder and centers to zero."""
        self._centers = self._parameter(centers.astype(np.float32))
        self._moved = [part for layer in self._layers for part in layer] + [self._centers]
        self._momenta: list[torch.Tensor | None] = [None] * len(self._moved)

    @property
    def centers(self) -> Floats:
        return self._centers.detach().cpu().numpy().astype(np.float64)

    @torch.no_grad()
    def encode(self, X: Floats32) -> Floats:
        """Return the codes of rows, (n, code units)."""
        codes = [self._code(block) for block in torch.split(torch.from_numpy(X).to(self._device), _BLOCK)]
        return torch.cat(codes).cpu().numpy().astype(np.float64)

    def descend(
        self, X: Floats32, target: Floats, batches: Iterable[npt.NDArray[np.int64]], rate: float, momentum: float
    ) -> None:
        """Take one step per minibatch down the divergence KL(target || q), a mean over the minibatch's rows."""
        rows = torch.from_numpy(X).to(self._device)
        aims = torch.from_numpy(target.astype(np.float32)).to(self._device)
        for batch in batches:
            picked = torch.from_numpy(batch).to(self._device)
            closeness = 1.0 / (1.0 + (self._code(rows[picked])[:, None] - self._centers).square().sum(dim=2))
            q = closeness / closeness.sum(dim=1, keepdim=True)
            divergence = torch.nn.functional.kl_div(q.log(), aims[picked], reduction="batchmean")
            gradients = torch.autograd.grad(divergence, self._moved)
            with torch.no_grad():
                sgd(
                    self._moved, list(gradients), self._momenta, foreach=False, weight_decay=0.0, momentum=momentum,
                    lr=rate, dampening=0.0, nesterov=False, maximize=False,
                )  # fmt: skip

    def _code(self, rows: torch.Tensor) -> torch.Tensor:
        for kind, (matrix, bias) in zip(self._kinds, self._layers, strict=True):
            rows = torch.addmm(bias, rows, matrix)
            rows = rows.relu() if kind == "relu" else rows
        return rows

    def _parameter(self, values: npt.NDArray[np.float32]) -> torch.Tensor:
        return torch.tensor(values, device=self._device, requires_grad=True)
