"""A sweep continues where it stopped, however it stopped, and its table does not depend on how often that was."""

from __future__ import annotations

import contextlib
import csv
import multiprocessing
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from files import JOB, MIXING, begun, dying, written

from p2pclust.errors import FleetError, UsageError
from p2pclust.lab.commands.sweep import _carry_out
from p2pclust.lab.sweep import sweeping
from p2pclust.lab.sweep.cells import Cell, check
from p2pclust.lab.sweep.columns import columns_of
from p2pclust.lab.sweep.spec import load_sweep
from p2pclust.lab.sweep.sweeping import Finished, can_write_parquet, run_cells, sweep_to
from p2pclust.lab.workers import Scheduler

pytestmark = pytest.mark.slow


def cells(folder: Path, text: str = MIXING) -> tuple[Cell, ...]:
    path = written(folder, text)
    return check(load_sweep(path), str(path))


def test_the_table(tmp_path: Path) -> None:
    wanted = cells(tmp_path)
    found = sweep_to(tmp_path / "out", wanted, 1)
    with (tmp_path / "out" / "table.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(columns_of("mixing"))
    assert [(row["overlay"], row["peers"], row["seed"]) for row in rows] == [
        (cell.overlay, str(cell.peers), str(cell.seed)) for cell in wanted
    ]
    assert [float(row["ratio"]) for row in rows] == [row["ratio"] for row in found.rows]
    assert (found.n_run, found.n_kept) == (8, 0)


def test_parquet_has_types(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pip install 'p2pclust[parquet]'")
    assert can_write_parquet()
    sweep_to(tmp_path / "out", cells(tmp_path), 1)
    table = parquet.read_table(tmp_path / "out" / "table.parquet")
    assert table.column_names == list(columns_of("mixing"))
    types = {name: str(table.schema.field(name).type) for name in ("overlay", "peers", "spectral_gap")}
    assert types == {"overlay": "string", "peers": "int64", "spectral_gap": "double"}
    assert table.num_rows == 8


def test_what_is_finished_is_not_run_again(tmp_path: Path) -> None:
    out, wanted = tmp_path / "out", cells(tmp_path)
    sweep_to(out, wanted[:3], 1)
    told: list[tuple[int, int]] = []
    ran: list[Cell] = []
    found = sweep_to(
        out,
        wanted,
        1,
        on_start=lambda left, kept: told.append((left, kept)),
        on_cell=lambda it: ran.append(it.cell),
    )
    assert told == [(5, 3)]
    assert ran == list(wanted[3:])
    assert (found.n_run, found.n_kept, len(found.rows)) == (5, 3, 8)
    sweep_to(tmp_path / "at-once", wanted, 1)
    assert (out / "table.csv").read_bytes() == (tmp_path / "at-once" / "table.csv").read_bytes()


def test_a_changed_sweep_keeps_the_cells_that_still_belong(tmp_path: Path) -> None:
    out = tmp_path / "out"
    sweep_to(out, cells(tmp_path), 1)
    found = sweep_to(out, cells(tmp_path, MIXING.replace("[8, 9]", "[9, 10]").replace("Another", "A third")), 1)
    assert (found.n_run, found.n_kept) == (4, 4)
    assert {row["peers"] for row in found.rows} == {9, 10}
    # And those that no longer do are there when the sweep is changed back.
    assert sweep_to(out, cells(tmp_path), 1).n_run == 0


def test_an_interruption_loses_at_most_what_was_running(tmp_path: Path) -> None:
    wanted = cells(tmp_path)

    def stop(finished: Finished) -> None:
        if finished.cell == wanted[4]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep_to(tmp_path / "out", wanted, 1, on_cell=stop)
    assert sweep_to(tmp_path / "out", wanted, 1).n_run == 3


def test_many_processes_find_what_one_finds(tmp_path: Path) -> None:
    wanted = cells(tmp_path, JOB)
    sweep_to(tmp_path / "one", wanted, 1)
    sweep_to(tmp_path / "two", wanted, 2)
    assert (tmp_path / "one" / "table.csv").read_bytes() == (tmp_path / "two" / "table.csv").read_bytes()


def test_workers_are_gone_when_somebody_stops_listening(tmp_path: Path) -> None:
    others = set(multiprocessing.active_children())  # of a scheduler that other tests share
    running = run_cells(cells(tmp_path, JOB), 2)
    next(running)
    running.close()  # type: ignore[attr-defined]
    until = time.monotonic() + 60
    # Again and again: while the pool's own thread reaps a child, it counts as alive, and joining it returns at once.
    while (children := [*set(multiprocessing.active_children()) - others]) and time.monotonic() < until:
        children[0].join(1)
    assert not set(multiprocessing.active_children()) - others


def test_a_worker_that_dies_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "timed_work", dying)
    with pytest.raises(
        FleetError, match="a worker process died: perhaps for lack of memory: continue with fewer --workers"
    ):
        list(run_cells(cells(tmp_path), 2))


@pytest.mark.parametrize("workers", [1, 2])
def test_bad_input_that_shows_late_ends_the_sweep(workers: int, tmp_path: Path) -> None:
    (cell, *_) = cells(tmp_path, JOB)
    seeds = range(2)
    impossible = [Cell(cell.measure, cell.overlay, "hypercube", "{}", 5, s, cell.axes, cell.settings) for s in seeds]
    with pytest.raises(UsageError, match="power of 2"):
        list(run_cells(impossible, workers))


def test_a_ctrl_c_that_is_lost_ends_it_after_the_next_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(wanted: Sequence[Cell], workers: int) -> Iterator[Finished]:
        for number, finished in enumerate(run_cells(wanted, workers)):
            if number == 2:
                with contextlib.suppress(KeyboardInterrupt):  # as Python does if the signal comes in a finalizer
                    signal.raise_signal(signal.SIGINT)
            yield finished

    monkeypatch.setattr(sweeping, "run_cells", interrupted)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        _carry_out(cells(tmp_path), tmp_path / "out", 1)
    assert (tmp_path / "out" / "cells.jsonl").read_text(encoding="utf-8").count("\n") == 3
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("how", "workers"),
    [
        pytest.param(signal.SIGINT, "2", marks=pytest.mark.long),
        (signal.SIGKILL, "2"),
        pytest.param(signal.SIGTERM, "1", marks=pytest.mark.long),
    ],
)
def test_a_killed_sweep_goes_on_to_the_same_table(how: signal.Signals, workers: str, tmp_path: Path) -> None:
    file = written(tmp_path, JOB.replace('"0:3"', '"0:12"'))
    sweep_to(tmp_path / "whole", check(load_sweep(file), str(file)), 1)
    first = begun(tmp_path, file, "--workers", workers)
    assert first.stderr is not None
    for line in first.stderr:  # one per cell
        if line.startswith("3/24"):
            break
    first.send_signal(how)
    _, said = first.communicate(timeout=20)
    if how is signal.SIGKILL:
        assert first.returncode == -how
    else:
        assert first.returncode == 130
        *_, told, last = said.splitlines()
        assert "of 24 cells are in out/cells.jsonl: the same command continues from there" in told
        assert last == "error: interrupted"
    finished = (tmp_path / "out" / "cells.jsonl").read_text(encoding="utf-8").count("\n")
    assert 3 <= finished < 24
    second = begun(tmp_path, file, "--workers", workers)
    _, said = second.communicate(timeout=60)
    assert second.returncode == 0, said
    assert f"{finished} of 24 cells are finished already" in said
    assert (tmp_path / "out" / "table.csv").read_bytes() == (tmp_path / "whole" / "table.csv").read_bytes()


def test_without_dask_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError, match=r"--scheduler needs Dask: pip install 'p2pclust\[sweep\]'"):
        Scheduler("tcp://127.0.0.1:1")
