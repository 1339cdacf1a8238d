"""Try many seeds of the simulator, on many cores."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from p2pclust.tools.workers import in_processes

__all__ = ["Asked", "Finding", "explore", "try_seeds"]


@dataclass(frozen=True)
class Finding:
    """The result of one seed; `failure` is empty if it passed."""

    seed: int
    failure: str
    trace: str
    virtual_s: float
    n_events: int
    counts: Mapping[str, int]


class Asked(NamedTuple):
    """The options of ``p2pclust simulate`` that choose what is tried."""

    protocol: str | None = None  # "fedcref", "leaderless", "cancel", "series", "lasting", "secure" or "verified"
    mutant: str | None = None
    overlay: str | None = None  # "sparse" or "moving"; otherwise a full mesh


def try_seeds(seeds: range, asked: Asked = Asked()) -> Iterator[Finding]:  # noqa: B008 - immutable
    """Run seeds one after another in this process.

    Examples
    --------
    >>> [finding.failure for finding in try_seeds(range(1))]
    ['']
    """
    from p2pclust.simulation.swarms import (  # noqa: PLC0415
        cancel,
        fedcref,
        lasting,
        leaderless,
        secure,
        series,
        swarm,
        verified,
    )
    from p2pclust.simulation.swarms.mutants import planted  # noqa: PLC0415

    own = {
        "fedcref": fedcref, "leaderless": leaderless, "cancel": cancel, "series": series, "lasting": lasting,
        "secure": secure, "verified": verified,
    }  # fmt: skip
    run = own[asked.protocol].run if asked.protocol in own else swarm.run
    with planted(asked.mutant) if asked.mutant else contextlib.nullcontext():
        for seed in seeds:
            try:
                outcome = run(seed, overlay=asked.overlay)
            except Exception:  # noqa: BLE001 - a crash of the agent is a finding, reported with its traceback
                yield Finding(seed, traceback.format_exc(), "", 0.0, 0, {})
            else:
                yield Finding(
                    seed, outcome.failure, outcome.trace, outcome.virtual_s, outcome.n_events, dict(outcome.counts)
                )


def explore(first: int, last: int, asked: Asked, n_workers: int) -> Iterator[Finding]:
    """Run the seeds from `first` up to `last`, in any order; with one worker in this process, for a debugger."""
    if n_workers <= 1:
        yield from try_seeds(range(first, last), asked)
        return
    tasks = ((seed, asked) for seed in range(first, last))
    for _, finding in in_processes(_try_one, tasks, n_workers, advice="run again with --jobs 1 to see why"):
        yield finding


def _try_one(task: tuple[int, Asked]) -> Finding:
    seed, asked = task
    return next(try_seeds(range(seed, seed + 1), asked))
