"""Stacked autoencoders: against a loop over torch.nn models, and against this machine's own matrix products.

Run by hand::

    python benchmarks/autoencoders.py            # about half a minute
    python benchmarks/autoencoders.py --features 64
    python benchmarks/autoencoders.py --both-cores
    python benchmarks/autoencoders.py --device cuda --models 286

24 models d-100-64-32-64-100-d with d = 784 (or ``--features``), 500 rows each, two epochs in minibatches of 64; then all
models on 2048 rows; then 24 calls for one model each and one epoch, as a peer of FedAvg makes them. Rows are uniform
random numbers: the work does not depend on them. The loop is torch.nn.Sequential, autograd and torch.optim.Adam, one
model after the other. Work is counted by formula (products only). The rate of products is the best at 512 x 512 in the
same process, between the measurements: of torch.mm, whose library the loop and the stack multiply by, and of oneDNN's
product, which torch does not offer in public; on some CPUs it is faster.

All run on one thread, in turns. Times are those of the calling thread, so that other work on the machine weighs less;
on CUDA they are wall times. ``--both-cores`` adds a table of wall times on two cores, which must be idle: stacked training
and evaluation in a pool of two threads, eight models a call, beside the loop with two torch threads. The least and the
median of the repeats are shown, and the load of the machine at the beginning.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import torch

from p2pclust.clustering.autoencoders import Architecture, ModelStack
from p2pclust.clustering.stacks import reconstruction_errors, train

FEATURES, ROWS, EPOCHS, BATCH, EVALUATED, CALL = 784, 500, 2, 64, 2048, 8

Clock = Callable[[], float]
Tasks = dict[str, tuple[Callable[[], object], float]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--models", type=int, default=24)
    parser.add_argument("--features", type=int, default=FEATURES)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--both-cores", action="store_true")
    chosen = parser.parse_args()
    work = Work(chosen.models, chosen.features, chosen.device)
    clock = time.thread_time if chosen.device == "cpu" else wall_of_gpu
    print(f"torch {torch.__version__}, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")

    torch.set_num_threads(1)
    tasks: Tasks = {
        "training, stacked": (work.train, work.training_flops),
        "training, loop over torch.nn": (work.loop, work.training_flops),
        "cross-evaluation, stacked": (work.evaluate, work.evaluation_flops),
        "training, one model and epoch a call": (work.train_singly, work.training_flops / EPOCHS),
    }
    rates = dict.fromkeys(products(chosen.device), 0.0)
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(chosen.repeats):
        for name, product in products(chosen.device).items():
            rates[name] = max(rates[name], *(2 * 512**3 / timed(product, clock) / 1e9 for _ in range(20)))
        measure(tasks, seconds, clock)
    print("products of 512 x 512: " + ", ".join(f"{name} {rate:.0f} GFLOP/s" for name, rate in rates.items()))
    show(tasks, seconds, rates)

    if chosen.both_cores:
        with ThreadPoolExecutor(2) as pool:
            both: Tasks = {
                "training, stacked, two threads": (lambda: work.in_calls(pool, work.train), work.training_flops),
                "training, loop, two torch threads": (lambda: with_torch_threads(2, work.loop), work.training_flops),
                "cross-evaluation, two threads": (lambda: work.in_calls(pool, work.evaluate), work.evaluation_flops),
                "training, stacked, one thread": (work.train, work.training_flops),
            }
            waits: dict[str, list[float]] = {name: [] for name in both}
            for _ in range(chosen.repeats):
                measure(both, waits, time.perf_counter)
        print("wall time on two cores; shares of the rate of one:")
        show(both, waits, rates)
    return 0


class Work:
    """What is measured: models, their rows, and the rows that all are evaluated on."""

    def __init__(self, n: int, features: int, device: str) -> None:
        rng = np.random.default_rng(0)
        self.device = device
        self.samples = [rng.random((ROWS, features), dtype=np.float32) for _ in range(n)]
        self.X = rng.random((EVALUATED, features), dtype=np.float32)
        self.stack = ModelStack.random(Architecture(features), [np.random.default_rng(m) for m in range(n)])
        # Of the matrix products; a multiply-add counts two, and the first layer needs no gradient of its input.
        products = [2 * fan_in * fan_out for fan_in, fan_out in self.stack.architecture.shapes]
        self.training_flops = float(n * EPOCHS * ROWS * (3 * sum(products) - products[0]))
        self.evaluation_flops = float(n * EVALUATED * sum(products))

    def train(self, first: int = 0, stop: int | None = None, epochs: int = EPOCHS) -> None:
        """Train some models in one call."""
        samples = self.samples[first:stop]
        rngs = [np.random.default_rng(m) for m in range(len(samples))]
        train(self.stack[first:stop], samples, rngs=rngs, epochs=epochs, batch=BATCH, device=self.device)

    def train_singly(self) -> None:
        """Train each model for an epoch, in a call of its own."""
        for m in range(len(self.samples)):
            self.train(m, m + 1, epochs=1)

    def evaluate(self, first: int = 0, stop: int | None = None) -> None:
        """Evaluate some models on all rows."""
        reconstruction_errors(self.stack[first:stop], self.X, device=self.device)

    def in_calls(self, pool: ThreadPoolExecutor, task: Callable[[int, int], None]) -> None:
        """Share a task out among threads, some models a call."""
        firsts = range(0, len(self.samples), CALL)
        list(pool.map(task, firsts, [first + CALL for first in firsts]))

    def loop(self) -> None:
        """Train one model after the other, as one would write it."""
        sizes = self.stack.architecture.sizes
        for samples in self.samples:
            layers: list[torch.nn.Module] = []
            for fan_in, fan_out in pairwise(sizes):
                layers += [torch.nn.Linear(fan_in, fan_out), torch.nn.ReLU()]
            model = torch.nn.Sequential(*layers[:-1], torch.nn.Sigmoid()).to(self.device)
            optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
            rows = torch.from_numpy(samples).to(self.device)
            for _ in range(EPOCHS):
                for batch in torch.randperm(ROWS, device=self.device).split(BATCH):
                    taken = rows[batch]
                    optimiser.zero_grad()
                    torch.nn.functional.mse_loss(model(taken), taken).backward()
                    optimiser.step()


def products(device: str) -> dict[str, Callable[[], object]]:
    """Return the products whose rates are the yardsticks."""
    left = torch.rand(512, 512, device=device)
    out = torch.empty_like(left)
    found: dict[str, Callable[[], object]] = {"torch.mm": lambda: torch.mm(left, left, out=out)}
    onednn = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
    if device == "cpu" and onednn is not None:
        found["oneDNN"] = lambda: onednn(left, left, None, "none", [], "")
    return found


def measure(tasks: Tasks, seconds: dict[str, list[float]], clock: Clock) -> None:
    """Run each task once, and note its time."""
    for name, (task, _) in tasks.items():
        seconds[name].append(timed(task, clock))


def timed(task: Callable[[], object], clock: Clock) -> float:
    """Return the seconds of a task."""
    started = clock()
    task()
    return clock() - started


def wall_of_gpu() -> float:
    """Return the time when the GPU has done all it was given."""
    torch.cuda.synchronize()
    return time.perf_counter()


def with_torch_threads(n: int, task: Callable[[], object]) -> None:
    """Run a task with so many torch threads."""
    torch.set_num_threads(n)
    task()
    torch.set_num_threads(1)


def show(tasks: Tasks, seconds: dict[str, list[float]], rates: dict[str, float]) -> None:
    """Print times, rates, shares of the rates of products, and how much faster than the loop training is."""
    for name, (_, flops) in tasks.items():
        least, median = min(seconds[name]), statistics.median(seconds[name])
        rate = flops / least / 1e9
        shares = ", ".join(f"{rate / best:4.0%} of {product}" for product, best in rates.items())
        print(f"{name:37s} {least:7.3f} s (median {median:7.3f})  {rate:6.1f} GFLOP/s  {shares}")
    stacked, loop = (min(seconds[name]) for name in list(tasks)[:2])
    print(f"stacked training is {loop / stacked:.1f} times as fast as the loop")


if __name__ == "__main__":
    sys.exit(main())
