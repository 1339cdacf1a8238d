"""Many seeds of the simulator on many cores: workers are processes of their own, and talk in lines of JSON.

A worker is ``python -m p2pclust.cli.lab.seeds FIRST LAST STEP PROTOCOL [MUTANT]``, with ``-`` for no protocol in
particular. One that dies is noticed, whatever it died of.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from queue import SimpleQueue
from typing import NamedTuple

from p2pclust.errors import FleetError

__all__ = ["Asked", "Finding", "explore", "try_seeds"]


@dataclass(frozen=True)
class Finding:
    """What came of one seed; `failure` is empty if nothing was wrong."""

    seed: int
    failure: str
    trace: str
    virtual_s: float
    n_events: int
    counts: Mapping[str, int]


class Asked(NamedTuple):
    """What a person wants tried."""

    protocol: str | None = None  # "fedcref", "leaderless", "cancel", "series" and "lasting" have seeds of their own
    mutant: str | None = None
    overlay: str | None = None  # "sparse" or "moving"; otherwise a full mesh


def try_seeds(seeds: range, asked: Asked = Asked()) -> Iterator[Finding]:  # noqa: B008 - it never changes
    """Run seeds one after another in this process.

    Examples
    --------
    >>> [finding.failure for finding in try_seeds(range(2))]
    ['', '']
    """
    from p2pclust.simulation.swarms import (  # noqa: PLC0415
        cancel,
        fedcref,
        lasting,
        leaderless,
        series,
        swarm,
    )
    from p2pclust.simulation.swarms.mutants import planted  # noqa: PLC0415

    own = {
        "fedcref": fedcref, "leaderless": leaderless, "cancel": cancel, "series": series,
        "lasting": lasting,
    }  # fmt: skip
    run = own[asked.protocol].run if asked.protocol in own else swarm.run
    with planted(asked.mutant) if asked.mutant else contextlib.nullcontext():
        for seed in seeds:
            try:
                outcome = run(seed, overlay=asked.overlay)
            except Exception:  # noqa: BLE001 - a crash of the agent is a finding like any other, and told in full
                yield Finding(seed, traceback.format_exc(), "", 0.0, 0, {})
            else:
                yield Finding(
                    seed, outcome.failure, outcome.trace, outcome.virtual_s, outcome.n_events, dict(outcome.counts)
                )


def explore(first: int, last: int, asked: Asked, n_workers: int) -> Iterator[Finding]:
    """Run the seeds from `first` up to `last`, in no particular order.

    Raises
    ------
    FleetError
        If a worker died.
    """
    if n_workers <= 1:
        # In this very process, so that one seed can be looked at in a debugger.
        yield from try_seeds(range(first, last), asked)
        return
    workers = [_start(first + number, last, n_workers, asked) for number in range(n_workers)]
    lines: SimpleQueue[str | None] = SimpleQueue()
    for worker in workers:
        threading.Thread(target=_read, args=(worker, lines), daemon=True).start()
    try:
        ended = 0
        while ended < n_workers:
            line = lines.get()
            if line is None:
                ended += 1
            else:
                yield Finding(**json.loads(line))
        dead = next((worker for worker in workers if worker.wait() != 0), None)
        if dead is not None:
            raise FleetError(f"a worker ended with exit code {dead.returncode}: run again with --jobs 1 to see why")
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def _start(first: int, last: int, step: int, asked: Asked) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "p2pclust.cli.lab.seeds", str(first), str(last), str(step), json.dumps(asked)]
    # In a session of its own, so that a Ctrl-C at the terminal reaches the parent alone, which ends its workers.
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)


def _read(worker: subprocess.Popen[str], lines: SimpleQueue[str | None]) -> None:
    assert worker.stdout is not None
    with worker.stdout:
        for line in worker.stdout:
            lines.put(line)
    lines.put(None)


def _main() -> None:
    first, last, step = (int(text) for text in sys.argv[1:4])
    for finding in try_seeds(range(first, last, step), Asked(*json.loads(sys.argv[4]))):
        # A parent that is gone reads no more, and the write fails: no worker outlives it for longer than one seed.
        sys.stdout.write(json.dumps(asdict(finding)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _main()
