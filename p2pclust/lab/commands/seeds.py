"""Try many seeds of the simulator, on many cores."""

from __future__ import annotations

import contextlib
import gc
import json
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NamedTuple, TextIO

from p2pclust._version import __version__
from p2pclust.errors import UsageError
from p2pclust.lab.simulation.mixture import kind_of
from p2pclust.tools.dask import Scheduler
from p2pclust.tools.workers import in_processes


@dataclass(frozen=True)
class Finding:
    """The result of one seed; `failure` is empty if it passed."""

    seed: int
    failure: str
    trace: str
    virtual_s: float
    n_events: int
    counts: Mapping[str, int]
    cpu_s: float = 0.0


class Asked(NamedTuple):
    """The options of ``p2pclust simulate`` that choose what is tried."""

    protocol: str | None = None  # one of `PROTOCOLS`; otherwise llf-cm or llf-fcm on few peers
    mutant: str | None = None
    overlay: str | None = None  # "sparse" or "moving"; otherwise a full mesh


#: In a worker: a simulated fleet is many objects that stay, and looking at them often takes a tenth of the time.
_OBJECTS_BETWEEN_COLLECTIONS: Final = 50_000
_alone = threading.Lock()
#: Each seed belongs to one of the others.
ALL: Final = "all"
PROTOCOLS: Final = (
    ALL, "any", "any-core", "any-long", "cuts", "terms", "disks", "disks-core", "forgers", "rosters", "fedcref",
    "leaderless", "cancel", "series", "lasting", "secure", "secure_groups", "verified", "clients",
)  # fmt: skip


def asked_of(seed: int, asked: Asked) -> Asked:
    """Return the options that run a seed without ``all``.

    Examples
    --------
    >>> asked_of(3, Asked("all"))
    Asked(protocol=None, mutant=None, overlay='sparse')
    """
    return Asked(kind_of(seed).protocol, asked.mutant, kind_of(seed).overlay) if asked.protocol == ALL else asked


def try_seeds(seeds: range, asked: Asked = Asked()) -> Iterator[Finding]:  # noqa: B008 - immutable
    """Run seeds one after another in this process.

    Examples
    --------
    >>> [finding.failure for finding in try_seeds(range(1))]
    ['']
    """
    from p2pclust.lab.simulation.fleets.run import run  # noqa: PLC0415
    from p2pclust.lab.simulation.swarms.bugs import planted  # noqa: PLC0415

    with planted(asked.mutant) if asked.mutant else contextlib.nullcontext():
        for seed in seeds:
            begun = time.process_time()
            try:
                of = asked_of(seed, asked)
                outcome = run(seed, of.protocol or "", of.overlay or "")
            except ModuleNotFoundError:
                raise  # the worker's machine lacks an extra
            except Exception:  # noqa: BLE001 - a crash of the agent is a finding, reported with its traceback
                yield Finding(seed, traceback.format_exc(), "", 0.0, 0, {}, time.process_time() - begun)
            else:
                yield Finding(
                    seed, outcome.failure, outcome.trace, outcome.virtual_s, outcome.n_events, dict(outcome.counts),
                    time.process_time() - begun,
                )  # fmt: skip


def explore(seeds: Sequence[int], asked: Asked, workers: int | Scheduler) -> Iterator[Finding]:
    """Run seeds, in any order: with one worker in this process, for a debugger; with more in processes, or through Dask."""
    if isinstance(workers, Scheduler):
        edition = "-".join([__version__, *(part or "" for part in asked)])
        texts = {f"p2pclust-seed-{edition}-{seed}": json.dumps([seed, *asked]) for seed in seeds}
        for _, line in workers.do(
            _try_text, texts, what="a seed", advice="--resume FILE keeps those that are finished"
        ):
            yield Finding(**json.loads(line))
    elif workers <= 1:
        for seed in seeds:
            yield from try_seeds(range(seed, seed + 1), asked)
    else:
        tasks = ((seed, asked) for seed in seeds)
        for _, finding in in_processes(_try_one, tasks, workers, advice="run again with --jobs 1 to see why"):
            yield finding


def _try_one(task: tuple[int, Asked]) -> Finding:
    seed, asked = task
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    return next(try_seeds(range(seed, seed + 1), asked))


def _try_text(text: str) -> str:
    """Run the seed that a text names, in a worker of Dask; return the finding as a line of JSON."""
    seed, *asked = json.loads(text)
    with in_worker():
        return json.dumps(asdict(next(try_seeds(range(seed, seed + 1), Asked(*asked)))))


@contextlib.contextmanager
def in_worker() -> Iterator[None]:
    """Run here what simulates in a worker of Dask: nothing else does at the same time, with one thread of linear algebra.

    Such a worker may have several threads, and a planted bug changes the modules of the whole process.
    """
    from threadpoolctl import threadpool_limits  # noqa: PLC0415 - loads the libraries that it limits

    before = gc.get_threshold()
    with _alone, threadpool_limits(limits=1):
        gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
        try:
            yield
        finally:
            gc.set_threshold(*before)


class KeptFindings:
    """The results of seeds in a file, a line of JSON for each; none without a path.

    Raises UsageError for a file whose results are of other options, and FleetError if it cannot be written.
    """

    def __init__(self, path: Path | None, asked: Asked) -> None:
        self._path = path
        self._asked = dict(asked._asdict())
        self._file: TextIO | None = None

    def load(self) -> list[Finding]:
        """Read what is kept; a last line that is not whole is left out."""
        if self._path is None or not self._path.exists():
            return []
        found = []
        for number, line in enumerate(self._path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                plain = json.loads(line)
                asked, finding = plain.pop("asked"), Finding(**plain)
            except (ValueError, TypeError, KeyError, AttributeError):
                continue  # a run that was stopped while it wrote
            if asked != self._asked:
                raise UsageError(f"--resume {self._path}: line {number} is of other options: {asked}")
            found.append(finding)
        return found

    def add(self, finding: Finding) -> None:
        """Keep one more."""
        if self._file is not None:
            self._file.write(json.dumps({"asked": self._asked, **asdict(finding)}) + "\n")
            self._file.flush()

    def __enter__(self) -> KeptFindings:
        if self._path is not None:
            try:
                whole = not self._path.exists() or self._path.read_bytes()[-1:] in (b"", b"\n")
                self._file = self._path.open("a", encoding="utf-8")
            except OSError as error:
                raise UsageError(f"--resume {self._path}: {error.strerror}") from error
            if not whole:
                self._file.write("\n")
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
