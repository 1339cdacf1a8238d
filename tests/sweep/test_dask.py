"""Through Dask: two workers of a cluster on this machine find the table that this process finds, byte for byte."""

from __future__ import annotations

import signal
from importlib.util import find_spec
from pathlib import Path

import pytest
from files import JOB, begun, written

from p2pclust.errors import UsageError
from p2pclust.lab.sweep.cells import Cell, check
from p2pclust.lab.sweep.spec import load_sweep
from p2pclust.lab.sweep.sweeping import run_cells, sweep_to
from p2pclust.lab.workers import Scheduler

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("dask"),
    pytest.mark.skipif(find_spec("distributed") is None, reason="needs Dask: pip install 'p2pclust[sweep]'"),
]


def cells(folder: Path, text: str = JOB) -> tuple[Cell, ...]:
    path = written(folder, text)
    return check(load_sweep(path), str(path))


def test_the_same_table(dask_scheduler: str, tmp_path: Path) -> None:
    wanted = cells(tmp_path)
    sweep_to(tmp_path / "here", wanted, 1)
    found = sweep_to(tmp_path / "there", wanted, Scheduler(dask_scheduler))
    assert found.n_run == len(wanted)
    for name in ("table.csv", "table.parquet"):
        if (tmp_path / "here" / name).exists():
            assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes()


@pytest.mark.long
def test_from_the_command_line_interrupted_and_gone_on(dask_scheduler: str, tmp_path: Path) -> None:
    file = written(tmp_path, JOB.replace('"0:3"', '"10:22"'))
    sweep_to(tmp_path / "whole", check(load_sweep(file), str(file)), 1)
    first = begun(tmp_path, file, "--scheduler", dask_scheduler)
    assert first.stderr is not None
    for line in first.stderr:
        if line.startswith("2/24"):
            break
    first.send_signal(signal.SIGINT)
    _, said = first.communicate(timeout=30)
    assert first.returncode == 130, said
    assert "cells are in out/cells.jsonl: the same command continues from there" in said
    second = begun(tmp_path, file, "--scheduler", dask_scheduler)
    _, said = second.communicate(timeout=60)
    assert second.returncode == 0, said
    assert (tmp_path / "out" / "table.csv").read_bytes() == (tmp_path / "whole" / "table.csv").read_bytes()


def test_what_a_worker_refuses_is_refused_here(dask_scheduler: str, tmp_path: Path) -> None:
    (cell, *_) = cells(tmp_path)
    impossible = Cell(cell.measure, cell.overlay, "hypercube", "{}", 5, 0, cell.axes, cell.settings)
    with pytest.raises(UsageError, match="power of 2"):
        list(run_cells([impossible], Scheduler(dask_scheduler)))


def test_nobody_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p2pclust.lab.workers._ANSWER_S", 0.5)
    for wrong in ("tcp://127.0.0.1:9", "nonsense://"):
        with pytest.raises(UsageError, match=r"--scheduler .*: no scheduler answers there"):
            list(run_cells(cells(tmp_path), Scheduler(wrong)))
