"""``p2pclust topology sweep``: one measurement over a grid of overlays, on all cores or on many machines."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from p2pclust.cli.show.options import OnScheduler, argument, flag, option
from p2pclust.cli.show.output import complain, note, put_json, stderr, stdout
from p2pclust.errors import UsageError
from p2pclust.lab.commands.examples import list_examples
from p2pclust.lab.commands.show.bar import progress_bar
from p2pclust.lab.commands.show.page import ended_like_ctrl_c
from p2pclust.lab.pictures import canvas
from p2pclust.lab.scenario.file.examples import SWEEPS, find_example
from p2pclust.lab.sweep import Cell, Sweeping
from p2pclust.lab.sweep.cells import check
from p2pclust.lab.sweep.report import write_report
from p2pclust.lab.sweep.spec import load_sweep
from p2pclust.lab.sweep.sweeping import CELLS, Finished, sweep_to
from p2pclust.lab.workers import Scheduler
from p2pclust.tools.platforms import n_cores


def sweep(
    file: Annotated[
        Path | None,
        argument(
            "[SWEEP.toml]",
            "The sweep file, or the name of one that is installed with p2pclust; without it, these are listed.",
        ),
    ] = None,
    out: Annotated[
        Path | None, option("DIR", "Output directory; default runs/sweep-NAME. An interrupted sweep continues there.")
    ] = None,
    workers: Annotated[int | None, option("N", "Processes at the same time; default one per core.", min=1)] = None,
    scheduler: OnScheduler = None,
    report: Annotated[
        bool | None,
        flag("--report/--no-report", "Draw the plots and write report.html; default if Matplotlib is installed."),
    ] = None,
    as_json: Annotated[bool, flag("--json", "Print a summary as one JSON object.")] = False,
) -> None:
    """Run every cell of a grid over overlays, sizes, seeds and more in the simulator, and write the results as a table.

    Writes cells.jsonl (finished cells; the same command continues from there) and table.csv, with pyarrow also
    table.parquet, with Matplotlib also plots/*.svg and report.html. Exits with 3 if a fleet without faults could not
    finish.

    \b
    Examples:
      p2pclust topology sweep gossip-spread
      p2pclust topology sweep mine.toml --workers 1 --out runs/mine
      p2pclust topology sweep mixing --scheduler tcp://10.0.0.1:8786
    """
    if file is None:
        list_examples(SWEEPS, "sweep", "p2pclust topology sweep", as_json=as_json)
        return
    if scheduler is not None and workers is not None:
        raise UsageError("--workers is for this machine, --scheduler has its own workers: choose one")
    file = find_example(file, SWEEPS, "p2pclust topology sweep")
    spec = load_sweep(file)
    cells = check(spec, str(file))
    directory = out or Path("runs") / f"sweep-{file.stem}"
    if report and not canvas.can_draw():
        raise UsageError("plots need Matplotlib: pip install 'p2pclust[plots]', or add --no-report")
    if report is None and not canvas.can_draw():
        note("no plots and no report.html: they need Matplotlib: pip install 'p2pclust[plots]'")
    done = _carry_out(cells, directory, workers or n_cores() if scheduler is None else Scheduler(scheduler))
    files = list(done.files)
    if report is not False and canvas.can_draw():
        files += write_report(directory, spec, cells, done.rows)
    console, kept = stderr() if as_json else stdout(), f", {done.n_kept} kept" if done.n_kept else ""
    console.print(f"{spec.title}: {done.n_run} cells run in {done.worker_seconds:.1f} s of work{kept}", soft_wrap=True)
    for name in (name for name in files if name.suffix != ".svg"):
        console.print(f"written: {name}", soft_wrap=True)
    if as_json:
        put_json({
            "title": spec.title, "measure": spec.measure, "cells": len(done.rows), "run": done.n_run, "kept": done.n_kept,
            "worker_seconds": round(done.worker_seconds, 3), "files": [str(name) for name in files],
        })  # fmt: skip
    stuck = [row for row in done.rows if spec.measure == "job" and row["outcome"] != "finished"]
    if stuck:
        complain(f"{len(stuck)} of {len(done.rows)} fleets could not finish: see the column outcome of {files[0]}")
        raise typer.Exit(3)


def _carry_out(cells: Sequence[Cell], directory: Path, workers: int | Scheduler) -> Sweeping:
    n_done = 0
    with ended_like_ctrl_c(), _remembered_ctrl_c() as look, progress_bar("", len(cells)) as advance:

        def start(n_left: int, n_kept: int) -> None:
            nonlocal n_done
            n_done = n_kept
            if n_kept:
                note(f"{n_kept} of {len(cells)} cells are finished already")
            advance(completed=n_done)

        def take(finished: Finished) -> None:
            nonlocal n_done
            n_done += 1
            line = f"{finished.cell}: {finished.seconds:.1f} s"
            advance(completed=n_done, description=line)
            if not stderr().is_terminal:
                note(f"{n_done}/{len(cells)}  {line}")
            look()

        try:
            return sweep_to(directory, cells, workers, on_start=start, on_cell=take)
        except KeyboardInterrupt:
            complain(
                f"{n_done} of {len(cells)} cells are in {directory / CELLS}: the same command continues from there"
            )
            raise


@contextmanager
def _remembered_ctrl_c() -> Iterator[Callable[[], None]]:
    """Yield a function that raises Ctrl-C again if it was lost: Python only prints one that interrupts a finalizer."""
    asked = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        raise KeyboardInterrupt

    def look() -> None:
        if asked:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield look
    finally:
        signal.signal(signal.SIGINT, before)
