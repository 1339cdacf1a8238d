"""One flow in torch: its likelihood, and its training by autograd.

Imported only by functions that train or evaluate, since torch is an extra.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import torch

from p2pclust.clustering.flows import FlowArchitecture
from p2pclust.clustering.points import Floats32
from p2pclust.clustering.stack_kernels import adam_step

_Conditioner = list[tuple[torch.Tensor, torch.Tensor]]

# Rows are evaluated in blocks of this shape, the last one padded: a row's bits do not depend on the rows beside it.
_BLOCK = 128


def likelihood(architecture: FlowArchitecture, weights: torch.Tensor, X: torch.Tensor) -> torch.Tensor:
    """Return the logarithm of the density of rows X (n, d) under the model with these weights (P,), shape (n,)."""
    halves = [X[:, torch.from_numpy(half).to(X.device)] for half in architecture.halves]
    logs = X.new_full((len(X),), -0.5 * architecture.n_features * math.log(2.0 * math.pi))
    for coupling, conditioner in enumerate(_conditioners(architecture, weights)):
        s, t = _scale_and_shift(conditioner, halves[coupling % 2])
        halves[1 - coupling % 2] = halves[1 - coupling % 2] * s.exp() + t
        logs = logs + s.sum(1)
    return logs - 0.5 * (halves[0].square().sum(1) + halves[1].square().sum(1))


def _conditioners(architecture: FlowArchitecture, weights: torch.Tensor) -> list[_Conditioner]:
    """Return each coupling's matrices and biases: the hidden layers, then those of s and of t."""
    lengths = [length for inner, outer in architecture.shapes for length in (inner * outer, outer)]
    parts = iter(torch.split(weights, lengths))
    return [[(next(parts).view(shape), next(parts)) for shape in shapes] for shapes in architecture.coupling_shapes]


def _scale_and_shift(conditioner: _Conditioner, kept: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return s and t, by which a coupling moves one half of the features, from the half that it leaves as it is."""
    *layers, (to_s, s_bias), (to_t, t_bias) = conditioner
    hidden = kept
    for matrix, bias in layers:
        hidden = torch.addmm(bias, hidden, matrix).relu()
    return torch.addmm(s_bias, hidden, to_s).tanh(), torch.addmm(t_bias, hidden, to_t)


@torch.no_grad()
def generated(architecture: FlowArchitecture, weights: Floats32, Z: Floats32, device: torch.device) -> Floats32:
    """Return the rows that a model maps to Z, shape (n, d)."""
    codes = torch.from_numpy(Z).to(device)
    halves = [codes[:, torch.from_numpy(half).to(device)] for half in architecture.halves]
    conditioners = _conditioners(architecture, torch.tensor(weights, device=device))
    for coupling in reversed(range(architecture.couplings)):
        s, t = _scale_and_shift(conditioners[coupling], halves[coupling % 2])
        halves[1 - coupling % 2] = (halves[1 - coupling % 2] - t) * (-s).exp()
    rows = np.empty(Z.shape, dtype=np.float32)
    for half, values in zip(architecture.halves, halves, strict=True):
        rows[:, half] = values.cpu().numpy()
    return rows


@torch.no_grad()
def log_likelihoods(architecture: FlowArchitecture, weights: Floats32, X: Floats32, device: torch.device) -> Floats32:
    """Return the log-likelihood of each row, shape (n,)."""
    padded = torch.zeros((-(-len(X) // _BLOCK) * _BLOCK, architecture.n_features), device=device)
    padded[: len(X)] = torch.from_numpy(X)
    model = torch.tensor(weights, device=device)
    found = [likelihood(architecture, model, block) for block in torch.split(padded, _BLOCK)]
    return torch.cat(found)[: len(X)].cpu().numpy()


def trained(
    architecture: FlowArchitecture, weights: Floats32, X: Floats32, batches: Iterable[npt.NDArray[np.int64]],
    learning_rate: float, decay: float, device: torch.device,
) -> Floats32:  # fmt: skip
    """Return the weights after a step of Adam for each minibatch, from zero moments, with L2 regularisation."""
    model, rows = torch.tensor(weights, device=device, requires_grad=True), torch.from_numpy(X).to(device)
    first, second, steps = torch.zeros_like(model), torch.zeros_like(model), torch.zeros((), device=device)
    for batch in batches:
        loss = -likelihood(architecture, model, rows[torch.from_numpy(batch)]).mean()
        (gradient,) = torch.autograd.grad(loss, model)
        with torch.no_grad():
            adam_step(model, gradient, first, second, steps, learning_rate, decay)
    return model.detach().cpu().numpy()
