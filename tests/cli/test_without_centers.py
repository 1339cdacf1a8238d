"""A plug-in without centers and without a number of clusters: all commands show what it declares."""

from __future__ import annotations

import csv
import importlib
import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Cli

from p2pclust.cli.fleet.result import _lines, _told, _write
from p2pclust.errors import UsageError
from p2pclust.hosts import labels
from p2pclust.hosts.submission import FinishedJob
from p2pclust.protocols import Local, cluster_job, run_in_process

pytestmark = pytest.mark.slow

CODE = '''
from dataclasses import dataclass
from typing import ClassVar
import numpy as np
from p2pclust.protocols import Additive, Arrays, Labelling, Slot

@dataclass(frozen=True)
class DenseCells(Labelling, Additive):
    """Cells of a grid with many rows."""
    id: ClassVar[str] = "dense-cells"
    before: ClassVar[tuple] = ("range", "scaling")
    stops: ClassVar[str] = "one round is enough"
    works_on: ClassVar[tuple] = ("origin", "scale")
    own_arrays: ClassVar[dict] = {"mass": Slot((None,)), "edges": Slot((None, None))}
    bins: int = 3
    least: float = 3.0

    def open(self, state, rng):
        edges = np.stack([np.linspace(lo, hi, self.bins + 1) for lo, hi in zip(state["lo"], state["hi"])])
        kept = state.without("lo", "hi", "declared", "rows", "unit")
        return kept.replace(mass=np.zeros(self.bins ** len(edges)), edges=edges)

    def cells(self, state, X):
        cell = np.zeros(len(X), dtype=np.int64)
        for column, edges in enumerate(state["edges"]):
            cell = cell * self.bins + np.clip(np.searchsorted(edges, X[:, column], side="right") - 1, 0, self.bins - 1)
        return cell

    def expects(self, state):
        return {"mass": Slot(state["mass"].shape)}

    def units(self, state):
        return {"mass": 1.0}

    def contribute(self, state, local, rng):
        return Arrays(mass=np.bincount(self.cells(state, local.X), minlength=state["mass"].size).astype(float))

    def combine(self, state, total):
        return state.replace(mass=total["mass"])

    def finished(self, previous, state, rounds):
        return True

    def conclude(self, state, local):
        cells, dense = self.cells(state, local.X), np.flatnonzero(state["mass"] >= self.least)
        found = np.where(np.isin(cells, dense), np.searchsorted(dense, cells), -1).astype(np.int64)
        return Arrays(labels=found, density=state["mass"][cells])

@dataclass(frozen=True)
class Edges(DenseCells):
    """The same, with one table."""
    id: ClassVar[str] = "edges"
    own_arrays: ClassVar[dict] = {"edges": Slot((None, None)), "mass": Slot((None,))}

    def combine(self, state, total):
        return state.replace(mass=total["mass"][:0])

    def conclude(self, state, local):
        return Arrays(labels=np.zeros(len(local.X), dtype=np.int64))

@dataclass(frozen=True)
class Sides(Labelling, Additive):
    """On which side of a fixed number a row lies: nothing is declared."""
    id: ClassVar[str] = "sides"
    before: ClassVar[tuple] = ("range", "scaling")
    stops: ClassVar[str] = "one round is enough"

    def open(self, state, rng):
        return state.without("lo", "hi", "declared", "rows", "unit")

    def expects(self, state):
        return {"n": Slot(())}

    def units(self, state):
        return {"n": 1.0}

    def contribute(self, state, local, rng):
        return Arrays(n=float(local.n_samples))

    def combine(self, state, total):
        return state

    def finished(self, previous, state, rounds):
        return True

    def conclude(self, state, local):
        return Arrays(labels=(local.X[:, 0] > 0).astype(np.int64))
'''
ROSTER = ("a", "b")


@pytest.fixture
def rows() -> list[Local]:
    rng = np.random.default_rng(0)
    return [Local(rng.normal(size=(30, 2)) + 4.0 * (np.arange(30) % 2)[:, np.newaxis]) for _ in ROSTER]


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    info = site / "grid_cells-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "grid_cells.py").write_text(CODE, encoding="utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: grid-cells\nVersion: 1.0\n", encoding="utf-8")
    names = {"dense-cells": "DenseCells", "edges": "Edges", "sides": "Sides"}
    entries = "".join(f"{name} = grid_cells:{kind}\n" for name, kind in names.items())
    (info / "entry_points.txt").write_text(f"[p2pclust.protocols]\n{entries}", encoding="utf-8")
    monkeypatch.syspath_prepend(site)
    importlib.invalidate_caches()


def finished(rows: list[Local], protocol: str = "dense-cells") -> FinishedJob:
    job = cluster_job(protocol)
    told = {
        "roster": list(ROSTER), "features": ["kwh", "volt"], "number": 0, "terms": [], "peer": "a",
        "secured": {}, "exposed": [], "exposed_by": [], "scaling": "none", "verify": "",
    }  # fmt: skip
    return FinishedJob("job-1", told, job, run_in_process(job, rows))


@pytest.mark.parametrize("protocol", ["dense-cells", "edges", "sides"])
def test_a_run_shows_its_parameters_and_what_it_declares(cli: Cli, tmp_path: Path, protocol: str) -> None:
    scenario = '[data]\nsource = "iris"\n[fleet]\npeers = 3\n[[jobs]]\nprotocol = "{}"\n{}'
    bins = "" if protocol == "sides" else "bins = 4\n"
    (tmp_path / "s.toml").write_text(scenario.format(protocol, bins), encoding="utf-8")
    done = cli("run", "s.toml", "--backend", "in-process", "--out", "o")
    assert done.code == 0, done.err
    assert protocol in done.out
    assert (", bins 4, least 3.0" in done.out) == bool(bins)
    result = json.loads((tmp_path / "o" / "result.json").read_text(encoding="utf-8"))
    declared = result["jobs"][0]["declared"]
    assert sorted(declared) == ([] if protocol == "sides" else ["edges", "mass"])
    page = (tmp_path / "o" / "report.html").read_text(encoding="utf-8")
    assert ("of shape 4 x 5" in done.out and "of shape 4 x 5" in page) == bool(bins)
    again = cli("run", "s.toml", "--backend", "in-process", "--out", "p", "--json")
    assert json.loads(again.out)["jobs"][0]["declared"] == declared
    assert cli("compare", "o", "p").code == 0


def test_a_result_of_a_fleet_shows_and_writes_it(rows: list[Local], tmp_path: Path) -> None:
    found = finished(rows)
    told = _told(found)
    lines = list(_lines(told))
    assert "edges: -" in "\n".join(lines)
    assert any(line.startswith("mass: ") for line in lines)
    assert json.loads(json.dumps(told))["declared"]["mass"] == found.state.arrays["mass"].tolist()
    _write(tmp_path / "r.json", told)
    assert json.loads((tmp_path / "r.json").read_text())["declared"] == told["declared"]
    _write(tmp_path / "r.npz", told)
    with np.load(tmp_path / "r.npz") as arrays:
        assert sorted(arrays) == ["edges", "features", "mass"]
        assert arrays["edges"].tolist() == told["declared"]["edges"]
    with pytest.raises(UsageError, match=r"r\.csv: a CSV file holds one table, and it declares mass, edges: name a"):
        _write(tmp_path / "r.csv", told)


def test_what_declares_nothing_has_only_labels(rows: list[Local], tmp_path: Path) -> None:
    found = finished(rows, "sides")
    assert _told(found)["declared"] == {}
    with pytest.raises(UsageError, match="sides ends without centers: write labels with `p2pclust assign`"):
        _write(tmp_path / "r.json", _told(found))


def test_assign_writes_what_it_says_of_each_row(
    rows: list[Local], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = finished(rows)
    monkeypatch.setattr(labels, "result_of", lambda door, job: found)
    (tmp_path / "rows.csv").write_text("kwh,volt,density\n0,0,x\n4,4,y\n", encoding="utf-8")
    table = labels.label_file(None, "job-1", tmp_path / "rows.csv")  # type: ignore[arg-type]
    assert table.header == ["kwh", "volt", "density", "row", "label", "density_"]
    written = list(csv.reader([",".join(row) for row in table.rows()]))
    assert [row[:4] for row in written] == [["0", "0", "x", "0"], ["4", "4", "y", "1"]]
    assert all(float(row[5]) >= 1.0 for row in written)


def test_a_single_table_is_written_as_csv(rows: list[Local], tmp_path: Path) -> None:
    found = finished(rows)
    told = _told(found) | {"declared": {"edges": found.state.arrays["edges"].T.tolist()}}
    _write(tmp_path / "r.csv", told)
    lines = list(csv.reader((tmp_path / "r.csv").read_text().splitlines()))
    assert lines[0] == ["kwh", "volt"]
    assert np.array(lines[1:], dtype=float).T.tolist() == found.state.arrays["edges"].tolist()
