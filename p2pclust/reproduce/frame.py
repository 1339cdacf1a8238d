"""The frame around all tables: which repetitions there are, who does them, and what they found.

With several workers, each is ``python -m p2pclust.reproduce.frame``: it reads its tasks as lines of JSON and answers
each with a line. Tasks are dealt out one by one, for one may take a hundred times as long as another.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import SimpleQueue

from p2pclust import __version__
from p2pclust.errors import FleetError, P2PClustError
from p2pclust.reproduce.model import Findings, Setup, Table, Values
from p2pclust.reproduce.peers import Peers, stream
from p2pclust.reproduce.registry import experiment

__all__ = ["Measured", "Plan", "Task", "do_task", "measure"]


@dataclass(frozen=True)
class Plan:
    """What a person asked for.

    Parameters
    ----------
    repeats : int or None
        None: as the papers, or a few in a quick run.
    seed : int
        All chance follows from it.
    backend : str
    workers : int
        Processes at the same time; with 1 everything happens in this one.
    quick : bool
        A part of the set-ups, few repetitions, fewer rows.
    keep : Path or None
        Where repetitions that take long are kept, and found again by a later run with the same version.
    """

    repeats: int | None = None
    seed: int = 0
    backend: str = "in-process"
    workers: int = 1
    quick: bool = False
    keep: Path | None = None

    def repeats_of(self, table: Table) -> int:
        """Return how often the set-ups of this table are repeated."""
        if self.repeats is not None:
            return self.repeats
        return table.quick_repeats if self.quick else table.repeats


@dataclass(frozen=True)
class Task:
    """One repetition of one set-up."""

    experiment: str
    setup: str
    repetition: int
    seed: int
    backend: str
    quick: bool
    keep: str = ""


@dataclass
class Measured:
    """What was found for one table, and what could not be measured."""

    found: Findings = field(default_factory=Findings)
    skipped: dict[str, str] = field(default_factory=dict)  # by set-up: why, and what to do
    repeats: int = 0
    kept: int = 0  # repetitions that an earlier run had left


def do_task(task: Task, threads: int | None = None) -> Values:
    """Do one repetition in this process, by default with a thread for each core."""
    of = experiment(task.experiment)
    setup = next(setup for setup in of.setups() if setup.name == task.setup)
    rng = stream(task.seed, f"{task.experiment}/{setup.draws or task.setup}", task.repetition)
    peers = Peers(task.backend, threads=threads or _cores(), keep=Path(task.keep) if task.keep else None)
    return of.repeat(setup, rng, peers, quick=task.quick)


def measure(
    tables: Sequence[Table], plan: Plan, tell: Callable[[int, int], None] = lambda done, of: None
) -> dict[str, Measured]:
    """Measure tables; what two of them share is measured once.

    Parameters
    ----------
    tables : sequence of Table
    plan : Plan
    tell : callable
        Is told how many of how many repetitions are done.

    Returns
    -------
    dict of str to Measured
        By table.

    Raises
    ------
    FleetError
        If a job or a worker failed.
    """
    measured = {table.id: Measured(repeats=plan.repeats_of(table)) for table in tables}
    wanted: dict[Task, list[str]] = {}
    for table in tables:
        for setup in table.setups(quick=plan.quick):
            why = missing(setup)
            if why:
                measured[table.id].skipped[setup.name] = why
                continue
            for repetition in range(plan.repeats_of(table)):
                keep = str(plan.keep) if plan.keep and table.experiment.keeps else ""
                task = Task(table.experiment.id, setup.name, repetition, plan.seed, plan.backend, plan.quick, keep)
                wanted.setdefault(task, []).append(table.id)
    there = {task: values for task in wanted if (values := kept(task)) is not None}
    for task, values in there.items():
        for table_id in wanted[task]:
            measured[table_id].found.add(task.repetition, values)
            measured[table_id].kept += 1
    tell(len(there), len(wanted))
    to_do = tuple(task for task in wanted if task not in there)
    for done, (task, values) in enumerate(_results(to_do, plan.workers), start=1 + len(there)):
        for table_id in wanted[task]:
            measured[table_id].found.add(task.repetition, values)
        _keep(task, values)
        tell(done, len(wanted))
    return measured


def kept(task: Task) -> Values | None:
    """Return what an earlier run of this version left of a repetition, or None."""
    file = _file(task)
    if file is None or not file.is_file():
        return None
    document = json.loads(file.read_text(encoding="utf-8"))
    if (document["version"], document["task"]) != (__version__, asdict(task) | {"keep": ""}):
        return None
    values: Values = document["values"]
    return values


def _keep(task: Task, values: Values) -> None:
    file = _file(task)
    if file is None:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_suffix(".tmp")
    document = {"version": __version__, "task": asdict(task) | {"keep": ""}, "values": values}
    beside.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    beside.replace(file)


def _file(task: Task) -> Path | None:
    """Return where a repetition is kept, or None if it is not: one of another seed or backend is another file."""
    if not task.keep:
        return None
    name = re.sub(r"[^a-z0-9.]+", "-", task.setup.lower())
    how = f"{task.seed}-{task.backend}{'-quick' if task.quick else ''}"
    return Path(task.keep) / f"{task.experiment}-{name}-{task.repetition}-{how}.json"


def missing(setup: Setup) -> str:
    """Say why a set-up cannot be measured here and what to do, or return an empty string."""
    from p2pclust.data.registry import available, cache_dir  # noqa: PLC0415 - so that listing the tables stays light

    if not setup.needs or setup.needs in available():
        return ""
    return f"data set {setup.needs} is not in {cache_dir()}: p2pclust data fetch {setup.needs}"


def _results(tasks: Sequence[Task], workers: int) -> Iterator[tuple[Task, Values]]:
    if workers <= 1 or len(tasks) <= 1:
        for task in tasks:
            yield task, do_task(task)
    else:
        yield from _spread(tasks, min(workers, len(tasks)))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _spread(tasks: Sequence[Task], n_workers: int) -> Iterator[tuple[Task, Values]]:
    # One BLAS thread each: several workers share the cores already.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "p2pclust.reproduce.frame"]
    workers = [
        # In a session of its own, so that a Ctrl-C at the terminal reaches the parent alone, which ends its workers.
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True, env=environment
        )
        for _ in range(n_workers)
    ]
    answers: SimpleQueue[tuple[int, str]] = SimpleQueue()
    for number, worker in enumerate(workers):
        threading.Thread(target=_read, args=(number, worker, answers), daemon=True).start()
    waiting = list(enumerate(tasks))[::-1]
    at_work: dict[int, int] = {}
    try:
        for number, worker in enumerate(workers):
            at_work[number], task = waiting.pop()
            _hand(worker, task)
        while at_work:
            number, line = answers.get()
            if not line:
                raise FleetError("a worker ended in the middle of its work: run again with --jobs 1 to see why")
            task = tasks[at_work.pop(number)]
            answer = json.loads(line)
            if answer["error"]:
                raise FleetError(f"{task.setup}, repetition {task.repetition}: {answer['error']}")
            if waiting:
                at_work[number], following = waiting.pop()
                _hand(workers[number], following)
            yield task, answer["values"]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
            assert worker.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                worker.stdin.close()


def _hand(worker: subprocess.Popen[str], task: Task) -> None:
    assert worker.stdin is not None
    # A worker that is dead by now is told of by its silence.
    with contextlib.suppress(BrokenPipeError):
        worker.stdin.write(json.dumps(asdict(task)) + "\n")
        worker.stdin.flush()


def _read(number: int, worker: subprocess.Popen[str], answers: SimpleQueue[tuple[int, str]]) -> None:
    assert worker.stdout is not None
    with worker.stdout:
        for line in worker.stdout:
            answers.put((number, line))
    answers.put((number, ""))


def _main() -> None:
    for line in sys.stdin:
        answer: dict[str, object] = {"values": {}, "error": ""}
        try:
            answer["values"] = do_task(Task(**json.loads(line)), threads=1)
        except P2PClustError as error:
            answer["error"] = str(error)
        except Exception:  # noqa: BLE001 - a bug is told in full by whoever handed out the task
            answer["error"] = traceback.format_exc()
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _main()
