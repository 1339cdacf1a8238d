"""Train and evaluate autoencoders by the stack: checks, schedules and blocks; the steps are in `stack_kernels`.

All models of a stack go through one batched program, whichever peer they belong to, and a model's result is the same bits on
the same machine whichever others are in the stack:

- Each model has its own minibatches, padded with rows of weight zero to a width that depends on `batch` alone. Models that
  have taken all their steps leave the program, the others continue.
- All arithmetic is per model, on operands of the same shape and alignment in every stack, and in blocks of a fixed size.
- One torch thread computes: with more, the libraries may share a product out in another way, with other bits. To use more
  cores, call from several threads: torch computes without Python's lock, and calls share nothing.

Everything is float32, but for errors where bfloat16 is asked for; nothing is ever trained in bfloat16.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from typing import Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from p2pclust.clustering.autoencoders import ModelStack
from p2pclust.clustering.points import Floats32, Integers
from p2pclust.errors import DataError, UsageError
from p2pclust.tools.distribution import install_line

Precision = Literal["float32", "bfloat16"]
PRECISIONS: Final[tuple[Precision, ...]] = get_args(Precision)


# How many weights are trained at once. On a CPU the models of a chunk, with their gradients and moments, should stay
# in cache: two of FedCRef's for images, more of smaller ones. A GPU wants thousands of products at once. What fits is
# also kept for the thread's next call.
_CHUNK_WEIGHTS = {"cpu": 400_000, "cuda": 50_000_000}
# Rows and models of one block of evaluation. In half the memory there is room for twice as many rows.
_BLOCK_ROWS = {"cpu": 128, "cuda": 1024}
_BLOCK_OF: dict[str, int] = {"float32": 1, "bfloat16": 2}
_BLOCK_WEIGHTS = {"cpu": 800_000, "cuda": 20_000_000}
# Rows of a batch are padded to a multiple of this: every model's activations then fill whole vector registers, two at a
# time. What does not is left to scalar code, whose exponential has other bits.
_ALIGNED = 32


def require_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        raise UsageError(f"these models need torch, which is not installed: {install_line('models')}")


def refuse_device(device: str) -> None:
    """Refuse, in one line, a device on which nothing can be computed here; torch has to be installed."""
    from p2pclust.clustering.stack_kernels import placed  # noqa: PLC0415 - it imports torch

    placed(device)


def train(
    stack: ModelStack, samples: Sequence[npt.ArrayLike], *, rngs: Sequence[np.random.Generator], epochs: int = 20,
    batch: int = 64, learning_rate: float = 1e-3, device: str = "cpu",
) -> ModelStack:  # fmt: skip
    """Train each model on its own rows: mean squared error, Adam from zero moments with its usual 0.9, 0.999 and 1e-8.

    `samples` are the rows (n_m, d) of each model's cluster; a model without rows comes back unchanged, and one whose
    training diverged holds NaN: see ``ModelStack.finite``. Each model's own generator draws the order of its rows, once
    per epoch. Raises DataError for rows that :func:`finite_rows` refuses, and UsageError if torch or the device is
    missing, or a number is out of range.
    """
    require_torch()
    from p2pclust.clustering import stack_kernels as kernels  # noqa: PLC0415 - torch is an extra

    if len(samples) != len(stack) or len(rngs) != len(stack):
        raise UsageError(f"{len(stack)} models need as many clusters and generators: {len(samples)}, {len(rngs)}")
    if epochs < 0 or batch < 1 or not learning_rate > 0:
        raise UsageError(f"epochs {epochs}, batch {batch} and learning rate {learning_rate} must be positive")
    placed = kernels.placed(device)
    n_features, bounded = stack.architecture.n_features, stack.architecture.output == "sigmoid"
    rows = [finite_rows(array, n_features, f"cluster {m}", bounded=bounded) for m, array in enumerate(samples)]
    trained = stack.weights.copy()
    # Longest first: the models that are still being trained are then always the first ones of their chunk.
    order = sorted((m for m in range(len(rows)) if len(rows[m]) and epochs), key=lambda m: -len(rows[m]))
    height = max(1, min(len(stack), _CHUNK_WEIGHTS[placed.type] // stack.architecture.n_parameters))
    width = -(-batch // _ALIGNED) * _ALIGNED
    fits = placed.type == "cpu" and height * stack.architecture.n_parameters <= _CHUNK_WEIGHTS["cpu"]
    trainer = kernels.trainer(stack.architecture, height, width, placed, keep=fits)
    with kernels.one_thread():
        for start in range(0, len(order), height):
            chunk = order[start : start + height]
            plan = _schedule([len(rows[m]) for m in chunk], [rngs[m] for m in chunk], epochs, batch, width)
            trainer.run(trained, chunk, [rows[m] for m in chunk], *plan, learning_rate)
    return ModelStack(stack.architecture, trained)


def reconstruction_errors(
    stack: ModelStack, X: npt.ArrayLike, *, device: str = "cpu", precision: str = "float32"
) -> Floats32:
    """Return the mean squared error of each row's reconstruction by each model, in squared units of X, shape (n, M).

    With `precision` "bfloat16", weights, rows and what layers hand on have 8 significant bits, which is faster where the
    CPU multiplies such numbers fast; reconstructions are compared with the rows in float32. Infinite where a model is
    broken (its weights or its reconstruction hold NaN or infinite numbers), so that such a model is never the best. Raises
    as :func:`train` does.
    """
    require_torch()
    from p2pclust.clustering import stack_kernels as kernels  # noqa: PLC0415 - torch is an extra

    placed = kernels.placed(device)
    if precision not in PRECISIONS:
        raise UsageError(f"precision {precision!r}: use {' or '.join(map(repr, PRECISIONS))}")
    rows = finite_rows(X, stack.architecture.n_features, "the data")
    height = max(1, _BLOCK_WEIGHTS[placed.type] // stack.architecture.n_parameters)
    block = _BLOCK_ROWS[placed.type] * _BLOCK_OF[precision]
    with kernels.one_thread():
        errors = kernels.errors(stack.architecture, stack.weights, rows, height, block, placed, precision)
    np.copyto(errors, np.inf, where=~np.isfinite(errors))
    return errors


def reconstructions(stack: ModelStack, X: npt.ArrayLike, *, device: str = "cpu") -> Floats32:
    """Return each row as each model reconstructs it, shape (M, n, d): for looking at a few rows."""
    require_torch()
    from p2pclust.clustering import stack_kernels as kernels  # noqa: PLC0415 - torch is an extra

    rows = finite_rows(X, stack.architecture.n_features, "the data")
    with kernels.one_thread():
        return kernels.reconstruct(stack.architecture, stack.weights, rows, kernels.placed(device))


def _schedule(
    sizes: Sequence[int], rngs: Sequence[np.random.Generator], epochs: int, batch: int, width: int
) -> tuple[Integers, Integers]:
    """Lay out every step of a chunk whose models come longest first.

    Returns which of its rows each model takes, (steps, A, width), and how many of these count, (steps, A): none where a
    model has taken all its steps. What a model does not use of the width points at its first row with weight zero.
    """
    per_epoch = [-(-n // batch) for n in sizes]
    steps = epochs * per_epoch[0]
    picks = np.zeros((steps, len(sizes), width), dtype=np.int64)
    filled = np.zeros((steps, len(sizes)), dtype=np.int64)
    for m, (n, rng) in enumerate(zip(sizes, rngs, strict=True)):
        mine = epochs * per_epoch[m]
        shuffled = np.zeros((epochs, per_epoch[m] * batch), dtype=np.int64)
        for epoch in range(epochs):
            shuffled[epoch, :n] = rng.permutation(n)
        picks[:mine, m, :batch] = shuffled.reshape(mine, batch)
        filled[:mine, m] = np.tile(np.minimum(batch, n - batch * np.arange(per_epoch[m])), epochs)
    return picks, filled


def minibatches(n_rows: int, batch: int, rng: np.random.Generator) -> Iterator[Integers]:
    """Yield minibatches of row numbers without end: permutations of the rows, one after the other, cut into pieces."""
    while True:
        order = rng.permutation(n_rows)
        for start in range(0, n_rows, batch):
            yield order[start : start + batch]


def finite_rows(X: npt.ArrayLike, n_features: int, what: str, *, bounded: bool = False) -> Floats32:
    """Return rows as float32, or raise DataError that says what is wrong; `bounded` ones lie in [0, 1]."""
    given = np.asarray(X)
    if given.ndim != 2 or given.shape[1] != n_features:
        raise DataError(f"{what} must have {n_features} columns as the models; its shape is {given.shape}")
    if given.dtype.kind not in "fiub":
        raise DataError(f"{what} must hold real numbers, not {given.dtype}")
    with np.errstate(over="ignore"):
        # Writable, since torch warns of arrays that are not, though nothing writes to these.
        rows = np.require(given, np.float32, ["C", "W"])
    # NaN is kept by both, so that two passes see all that can be wrong.
    least, most = (rows.min(), rows.max()) if rows.size else (0.0, 1.0)
    if not (np.isfinite(least) and np.isfinite(most)):
        row, column = np.argwhere(~np.isfinite(rows))[0]
        raise DataError(f"{what} has {rows[row, column]} in row {row}, column {column}; remove or fill it")
    if bounded and (least < 0 or most > 1):
        raise DataError(
            f"{what} ranges from {least:g} to {most:g}, but these models end in a sigmoid; "
            "scale to [0, 1] (minmax), or choose a linear output"
        )
    return rows
