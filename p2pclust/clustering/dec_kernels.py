"""DEC's encoder in torch: codes of rows, and the steps that move encoder and centers towards a target distribution.

Imported only by functions that run DEC, since torch is an extra. The gradients are the closed forms of DEC's equations
4 and 5; through the encoder they go by the same passes as those of stacked autoencoders.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from p2pclust.clustering.autoencoders import ModelStack
from p2pclust.clustering.stack_layers import Layout, Network, Pass

__all__ = ["Encoder"]

Floats = npt.NDArray[np.float64]
Floats32 = npt.NDArray[np.float32]

_BLOCK = 256


class Encoder:
    """The first layers of an autoencoder, and centers in their outputs.

    Parameters
    ----------
    model : ModelStack
        One autoencoder.
    depth : int
        How many of its layers encode.
    device : torch.device
    """

    def __init__(self, model: ModelStack, depth: int, device: torch.device) -> None:
        architecture = model.architecture
        self._layout = Layout(architecture.shapes[:depth])
        self._kinds = architecture.activations[:depth]
        dense = sum(fan_in * fan_out + fan_out for fan_in, fan_out in self._layout.shapes)
        self._weights, self._gradients, self._velocity = (self._layout.rows(1, device) for _ in range(3))
        self._layout.pack(model.weights[:, :dense], self._layout.views(self._weights, 1))
        self._device = device

    def start(self, centers: Floats, *, learning_rate: float, momentum: float) -> None:
        """Set the centers (K, code units), and at rest all that moves."""
        self._centers = torch.from_numpy(centers.astype(np.float32)).to(self._device)
        self._drift = torch.zeros_like(self._centers)
        self._rate, self._momentum = learning_rate, momentum

    @property
    def centers(self) -> Floats:
        """Where the centers are, (K, code units)."""
        return self._centers.cpu().numpy().astype(np.float64)

    @torch.no_grad()
    def encode(self, X: Floats32) -> Floats32:
        """Return the codes of rows, (n, code units), in blocks of fixed shape."""
        network = Network(self._layout.shapes, self._kinds, 1, _BLOCK, self._device, backward=False)
        encoder = network.bound(self._layout.views(self._weights, 1))
        padded = np.zeros((-(-len(X) // _BLOCK) * _BLOCK, X.shape[1]), dtype=np.float32)
        padded[: len(X)] = X
        rows = torch.from_numpy(padded).to(self._device)
        codes = [encoder.forward(part[None]).cpu().numpy()[0].copy() for part in torch.split(rows, _BLOCK)]
        return np.concatenate(codes)[: len(X)]

    @torch.no_grad()
    def descend(self, X: Floats32, target: Floats, batches: Sequence[npt.NDArray[np.int64]]) -> None:
        """Take one step per minibatch down the divergence KL(target || q), a mean over the minibatch's rows."""
        rows = torch.from_numpy(X).to(self._device)
        aims = torch.from_numpy(target.astype(np.float32)).to(self._device)
        views = [self._layout.views(part, 1) for part in (self._weights, self._gradients)]
        passes: dict[int, Pass] = {}
        for batch in batches:
            picked = torch.from_numpy(batch).to(self._device)
            if len(batch) not in passes:
                network = Network(self._layout.shapes, self._kinds, 1, len(batch), self._device)
                passes[len(batch)] = network.bound(*views)
            encoder = passes[len(batch)]
            code = encoder.forward(rows[picked][None])[0]
            pull, drift = _gradients(code, self._centers, aims[picked])
            encoder.slope[0] = pull
            encoder.backward()
            self._velocity.flat.mul_(self._momentum).add_(self._gradients.flat)
            self._weights.flat.sub_(self._velocity.flat, alpha=self._rate)
            self._drift.mul_(self._momentum).add_(drift)
            self._centers.sub_(self._drift, alpha=self._rate)


def _gradients(code: torch.Tensor, centers: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean divergence's slopes in the code (B, units) and in the centers (K, units)."""
    differences = code[:, None] - centers
    closeness = 1.0 / (1.0 + differences.square().sum(dim=2))
    q = closeness / closeness.sum(dim=1, keepdim=True)
    # (1 + |z - c|^2)^-1 (p - q) (z - c): pulls a row towards the centers that its target prefers, equation 4; the
    # centers feel the opposite, equation 5.
    forces = (2.0 / len(code)) * (closeness * (target - q))[..., None] * differences
    return forces.sum(dim=1), -forces.sum(dim=0)
