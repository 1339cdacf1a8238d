"""Runs seeds of a swarm for a test, as they are and with a planted bug."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Protocol

from p2pclust.cli.lab.seeds import Asked, try_seeds
from p2pclust.simulation.swarms.mutants import planted


def counted(seeds: range, protocol: str | None, overlay: str | None = None) -> Counter[str]:
    """Run these seeds; return what happened in all of them. A failure names the command that repeats it."""
    counts: Counter[str] = Counter()
    options = (f" --protocol {protocol}" if protocol else "") + (f" --overlay {overlay}" if overlay else "")
    for finding in try_seeds(seeds, Asked(protocol, overlay=overlay)):
        again = f"p2pclust simulate --seeds {finding.seed}:{finding.seed + 1}{options}"
        assert not finding.failure, f"{finding.failure}\n{again}"
        counts.update(finding.counts)
    return counts


class _Ran(Protocol):
    failure: str


def assert_found(mutant: str, run: Callable[[int], _Ran], first: int, begins: str = "") -> None:
    """Assert that seeds find a planted bug, `first` tried before the others, and that its seed is sound without it.

    `begins` is how the failure begins.
    """
    failure, seed = "", 0
    with planted(mutant):
        for seed in (first, *range(200)):
            try:
                failure = run(seed).failure
            except AssertionError as error:  # of the code itself, which the bug broke
                failure = repr(error)
            if failure:
                break
    assert failure, f"{mutant} is not found within 200 seeds"
    assert failure.startswith(begins), f"seed {seed}: {failure.splitlines()[:1]}"
    assert not run(seed).failure, f"without the bug, seed {seed}"
