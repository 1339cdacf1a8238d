"""Looks for every planted bug of the simulator: a bug that is not found proves nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from p2pclust._version import __version__
from p2pclust.lab.commands.seeds import Asked, in_worker, try_seeds
from p2pclust.tools.dask import Scheduler
from p2pclust.tools.workers import in_processes


class BugFound(NamedTuple):
    """Where a planted bug was found."""

    bug: str
    swarm: str  # as ``--protocol`` has it; empty: the default one
    seed: int | None  # None: it was not found
    broken: str  # the promise that it broke, and how


def bug_names() -> list[str]:
    """Return the names of all planted bugs."""
    from p2pclust.lab.simulation.swarms.mutants import BUGS  # noqa: PLC0415

    return list(BUGS)


def look_for_all(seeds: range, workers: int | Scheduler) -> Iterator[BugFound]:
    """Look for each bug in the swarm that should find it, seed after seed, until it is found."""
    tasks = [(name, seeds) for name in bug_names()]
    if isinstance(workers, Scheduler):
        edition = f"{__version__}-{seeds.start}:{seeds.stop}"
        texts = {f"p2pclust-bug-{edition}-{name}": json.dumps([name, seeds.start, seeds.stop]) for name, _ in tasks}
        for _, line in workers.do(_look_for_text, texts, what="a planted bug", advice="try fewer seeds"):
            yield BugFound(*json.loads(line))
    elif workers <= 1:
        yield from (_look_for(task) for task in tasks)
    else:
        for _, found in in_processes(_look_for, tasks, workers, advice="run again with --jobs 1 to see why"):
            yield found


def _look_for_text(text: str) -> str:
    """Look for the bug that a text names, in a worker of Dask; return what was found as a line of JSON."""
    name, first, last = json.loads(text)
    with in_worker():
        return json.dumps(_look_for((name, range(first, last))))


def _look_for(task: tuple[str, range]) -> BugFound:
    from p2pclust.lab.simulation.swarms.mutants import BUGS  # noqa: PLC0415

    name, seeds = task
    swarm, _ = BUGS[name]
    for finding in try_seeds(seeds, Asked(swarm or None, name)):
        if finding.failure:
            lines = finding.failure.splitlines()
            return BugFound(name, swarm, finding.seed, lines[-1 if lines[0].startswith("Traceback") else 0][:60])
    return BugFound(name, swarm, None, "")
