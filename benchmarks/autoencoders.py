"""Stacked autoencoders: against a loop over torch.nn models, and against this machine's own matrix products.

Run by hand::

    python benchmarks/autoencoders.py            # about half a minute
    python benchmarks/autoencoders.py --device cuda

24 models d-100-64-32-64-100-d with d = 784 (or ``--features``), 500 rows each, two epochs in minibatches of 64; then all
models on 2048 rows. Rows are uniform random numbers: the work does not depend on them. The loop is torch.nn.Sequential,
autograd and torch.optim.Adam, one model after the other. Work is counted by formula (products only), and the rate of
products is the best of torch.mm at 512 x 512 in the same process, between the measurements. All run on one thread, in
turns. CPU times are those of the calling thread, so that other work on the machine weighs less; the least and the median
of the repeats are shown. On CUDA, times are wall times; give it more ``--models``, as many as all peers have together.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch

from p2pclust.clustering.autoencoders import Architecture, ModelStack
from p2pclust.clustering.stacks import reconstruction_errors, train

FEATURES, ROWS, EPOCHS, BATCH, EVALUATED = 784, 500, 2, 64, 2048


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--models", type=int, default=24)
    parser.add_argument("--features", type=int, default=FEATURES)
    parser.add_argument("--repeats", type=int, default=5)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    timed = Timed(chosen.device)
    n = chosen.models
    rng = np.random.default_rng(0)
    samples = [rng.random((ROWS, chosen.features), dtype=np.float32) for _ in range(n)]
    X = rng.random((EVALUATED, chosen.features), dtype=np.float32)
    stack = ModelStack.random(Architecture(chosen.features), [np.random.default_rng(m) for m in range(n)])

    def stacked() -> None:
        generators = [np.random.default_rng(m) for m in range(n)]
        train(stack, samples, rngs=generators, epochs=EPOCHS, batch=BATCH, device=chosen.device)

    tasks: dict[str, tuple[Callable[[], object], float]] = {
        "training, stacked": (stacked, n * EPOCHS * ROWS * stack.architecture.training_flops),
        "training, loop over torch.nn": (
            lambda: loop(n, samples, chosen.device),
            n * EPOCHS * ROWS * stack.architecture.training_flops,
        ),
        "cross-evaluation, stacked": (
            lambda: reconstruction_errors(stack, X, device=chosen.device),
            n * EVALUATED * stack.architecture.forward_flops,
        ),
    }
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    rates = []
    for _ in range(chosen.repeats):
        rates.append(product_rate(chosen.device, timed))
        for name, (task, _) in tasks.items():
            seconds[name].append(timed(task))
    best = max(rates)
    print(f"products of 512 x 512: {best:.1f} GFLOP/s ({chosen.device}, torch {torch.__version__})")
    for name, (_, flops) in tasks.items():
        least, median = min(seconds[name]), statistics.median(seconds[name])
        rate = flops / least / 1e9
        print(f"{name:30s} {least:7.3f} s (median {median:7.3f})  {rate:7.1f} GFLOP/s  {rate / best:4.0%} of that rate")
    ratio = min(seconds["training, loop over torch.nn"]) / min(seconds["training, stacked"])
    print(f"stacked training is {ratio:.1f} times as fast as the loop")
    return 0


class Timed:
    """Seconds of a task: of this thread on the CPU, on the wall for a GPU."""

    def __init__(self, device: str) -> None:
        self.cuda = device != "cpu"

    def __call__(self, task: Callable[[], object]) -> float:
        clock = time.perf_counter if self.cuda else time.thread_time
        started = clock()
        task()
        if self.cuda:
            torch.cuda.synchronize()
        return clock() - started


def product_rate(device: str, timed: Timed) -> float:
    """Return the best rate of square products, in GFLOP/s."""
    left = torch.rand(512, 512, device=device)
    out = torch.empty_like(left)
    return max(2 * 512**3 / timed(lambda: torch.mm(left, left, out=out)) / 1e9 for _ in range(30))


def loop(n: int, samples: list[np.ndarray], device: str) -> None:
    """Train one model after the other, as one would write it."""
    sizes = Architecture(samples[0].shape[1]).sizes
    for m in range(n):
        layers: list[torch.nn.Module] = []
        for fan_in, fan_out in pairwise(sizes):
            layers += [torch.nn.Linear(fan_in, fan_out), torch.nn.ReLU()]
        model = torch.nn.Sequential(*layers[:-1], torch.nn.Sigmoid()).to(device)
        optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
        rows = torch.from_numpy(samples[m]).to(device)
        for _ in range(EPOCHS):
            for batch in torch.randperm(ROWS, device=device).split(BATCH):
                taken = rows[batch]
                optimiser.zero_grad()
                torch.nn.functional.mse_loss(model(taken), taken).backward()
                optimiser.step()


if __name__ == "__main__":
    sys.exit(main())
