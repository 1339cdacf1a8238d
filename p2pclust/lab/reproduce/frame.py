"""Measure tables: list the repetitions, do them on all cores, and collect what they find."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from p2pclust import __version__
from p2pclust.data.registry import available, cache_in_words
from p2pclust.errors import FleetError, P2PClustError, UsageError
from p2pclust.lab.reproduce.model import Experiment, Findings, Table, Values
from p2pclust.lab.reproduce.peers import Peers, stream
from p2pclust.lab.reproduce.tables import fedcref, federated_fcm, ffcm, fkm, lossless
from p2pclust.lab.workers import in_processes, kept_in
from p2pclust.tools.platforms import n_cores
from p2pclust.tools.spelling import did_you_mean


@dataclass(frozen=True)
class Plan:
    """The options of ``p2pclust reproduce``."""

    repeats: int | None = None  # None: as in the papers, or a few in a quick run
    seed: int = 0
    backend: str = "in-process"
    workers: int = 1  # processes at the same time; with 1 everything happens in this one
    quick: bool = False  # a part of the set-ups, few repetitions, fewer rows
    keep: Path | None = None  # where long repetitions are kept, for later runs of the same version

    def repeats_of(self, table: Table) -> int:
        """Return how often the set-ups of this table are repeated."""
        if self.repeats is not None:
            return self.repeats
        return table.quick_repeats if self.quick else table.repeats


@dataclass(frozen=True)
class Repetition:
    experiment: str
    setup: str
    repetition: int
    seed: int
    backend: str
    quick: bool
    keep: str = ""


@dataclass
class Measured:
    """The results of one table, and the set-ups that could not be measured."""

    found: Findings = field(default_factory=Findings)
    skipped: dict[str, str] = field(default_factory=dict)  # by set-up: the reason, and what to do
    repeats: int = 0
    kept: int = 0  # repetitions of an earlier run


def do_task(task: Repetition, threads: int | None = None) -> Values:
    """Do one repetition in this process, by default with a thread for each core."""
    setup = next(setup for setup in EXPERIMENTS[task.experiment].setups() if setup.name == task.setup)
    rng = stream(task.seed, f"{task.experiment}/{setup.draws or task.setup}", task.repetition)
    peers = Peers(task.backend, threads=threads or n_cores(), keep=Path(task.keep) if task.keep else None)
    return setup.repeat(rng, peers, quick=task.quick)


def measure(
    tables: Sequence[Table], plan: Plan, on_progress: Callable[[int, int], None] = lambda done, of: None
) -> dict[str, Measured]:
    """Measure tables, and return the results by table; shared repetitions are done once.

    `on_progress` is called with the number of repetitions done, and of all. Raise FleetError if a job or a worker failed.
    """
    measured = {table.id: Measured(repeats=plan.repeats_of(table)) for table in tables}
    wanted: dict[Repetition, list[str]] = {}
    for table in tables:
        for setup in table.setups(quick=plan.quick):
            if setup.needs and setup.needs not in available():
                advice = f"{cache_in_words()}: p2pclust data fetch {setup.needs}"
                measured[table.id].skipped[setup.name] = f"data set {setup.needs} is not in {advice}"
                continue
            for repetition in range(plan.repeats_of(table)):
                keep = str(plan.keep) if plan.keep and table.experiment.keeps else ""
                task = Repetition(
                    table.experiment.id, setup.name, repetition, plan.seed, plan.backend, plan.quick, keep
                )
                wanted.setdefault(task, []).append(table.id)
    there: dict[Repetition, Values] = {}

    def read(_: int, kept: dict[str, Any]) -> None:
        task = Repetition(**kept["task"] | {"keep": str(plan.keep)})
        if kept["version"] == __version__ and task in wanted:
            there[task] = kept["values"]

    with contextlib.ExitStack() as stack:
        if plan.keep is not None and any(task.keep for task in wanted):
            plan.keep.mkdir(parents=True, exist_ok=True)
            file = kept_in(plan.keep / "repetitions.jsonl", read, of="reproduction", option="--out")
            add = stack.enter_context(file)
        for task, values in there.items():
            for table_id in wanted[task]:
                measured[table_id].found.add(task.repetition, values)
                measured[table_id].kept += 1
        on_progress(len(there), len(wanted))
        to_do = tuple(task for task in wanted if task not in there)
        for done, (task, values) in enumerate(_results(to_do, plan.workers), start=1 + len(there)):
            for table_id in wanted[task]:
                measured[table_id].found.add(task.repetition, values)
            if task.keep:
                add({"version": __version__, "task": asdict(task), "values": values})
            on_progress(done, len(wanted))
    return measured


def _results(tasks: Sequence[Repetition], workers: int) -> Iterator[tuple[Repetition, Values]]:
    if workers <= 1 or len(tasks) <= 1:
        yield from ((task, do_task(task)) for task in tasks)
    else:
        advice = "run again with --jobs 1 to see why"
        yield from in_processes(_do_alone, tasks, min(workers, len(tasks)), advice=advice)


def _do_alone(task: Repetition) -> Values:
    """Do a repetition in a worker process, which has one core."""
    try:
        return do_task(task, threads=1)
    except P2PClustError as error:
        raise FleetError(f"{task.setup}, repetition {task.repetition}: {error}") from None


_PAPERS = (federated_fcm, ffcm, lossless, fkm, fedcref)
_TABLES: dict[str, Table] = {table.id: table for paper in _PAPERS for table in paper.TABLES}
EXPERIMENTS: dict[str, Experiment] = {table.experiment.id: table.experiment for table in _TABLES.values()}


def table_ids() -> tuple[str, ...]:
    """Return all tables, in the order of the papers."""
    return tuple(_TABLES)


def table(table_id: str) -> Table:
    """Return a table by its id; a refusal suggests the nearest.

    Examples
    --------
    >>> table("000-tabel1")
    Traceback (most recent call last):
    p2pclust.errors.UsageError: unknown table '000-tabel1' (did you mean '000-table1'?)
    """
    if table_id not in _TABLES:
        hint = did_you_mean(table_id, _TABLES, f" (known: {', '.join(_TABLES)})")
        raise UsageError(f"unknown table {table_id[:60]!r}{hint}")
    return _TABLES[table_id]
