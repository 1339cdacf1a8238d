"""`p2pclust describe`, a scenario with the job, and `p2pclust result` of it."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Cli

from p2pclust.cli.fleet.result import _lines, _told, _write
from p2pclust.cli.show.description import _blocks
from p2pclust.errors import UsageError
from p2pclust.hosts.labels import labelled
from p2pclust.hosts.submission import FinishedJob
from p2pclust.protocols import Local, cluster_job, run_in_process
from p2pclust.protocols.measuring.description import Description

SCENARIO = """
title = "Four sites"
[data]
files = ["a.csv", "b.csv", "c.csv", "d.csv"]
[fleet]
peers = 4
timing = "fast"
[[jobs]]
protocol = "llf-cm"
clusters = 2
"""
JOB = 'protocol = "describe"\nlevels = [0, 0, 3]\nquantiles = [0.9]\n'


@pytest.fixture
def sites(tmp_path: Path) -> np.ndarray:
    """Write a scenario of four files with gaps; return all rows, with NaN for the gaps."""
    rng = np.random.default_rng(0)
    found = []
    for name in "abcd":
        rows = np.column_stack([rng.normal(20, 5, 50), 1e12 + rng.normal(size=50), rng.integers(0, 3, 50)])
        rows[rng.random(rows.shape) < 0.1] = np.nan
        cells = [["" if np.isnan(value) else repr(value) for value in row] for row in rows.tolist()]
        lines = [",".join(row) for row in [["watt", "counter", "mode"], *cells]]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        found.append(rows)
    (tmp_path / "sites.toml").write_text(SCENARIO, encoding="utf-8")
    keeping = SCENARIO.partition("protocol")[0].replace("[fleet]", 'missing_values = "keep"\n[fleet]') + JOB
    (tmp_path / "described.toml").write_text(keeping, encoding="utf-8")
    return np.concatenate(found)


def test_a_table_that_lines_up(cli: Cli, sites: np.ndarray) -> None:
    ended = cli("describe", "sites.toml", "--backend", "simulated", "--quantiles", "0.05")
    assert (ended.code, ended.err) == (0, "")
    lines = [line.rstrip() for line in ended.out.splitlines()]
    assert lines[0] == "200 rows, 3 columns"
    figures = lines[2 : lines.index("", 2)]
    assert figures[0].split() == ["column", "watt", "counter", "mode"]
    assert len({len(line) for line in figures}) == 1
    table = {line.split()[0]: line.split()[1:] for line in figures}
    assert table["missing"] == [str(int(np.isnan(column).sum())) for column in sites.T]
    assert float(table["mean"][0]) == pytest.approx(np.nanmean(sites[:, 0]), rel=1e-5)
    assert re.fullmatch(r"100000000000\d\.\d+|99999999999\d\.\d+", table["largest"][1])
    assert "the aggregator sees the totals of all peers" in lines[-1]


def test_json_and_csv_have_all_digits(cli: Cli, sites: np.ndarray) -> None:
    arguments = ("describe", "described.toml", "--backend", "in-process")
    told = json.loads(cli(*arguments, "--json").out)
    watt, mode = told["columns"][0], told["columns"][2]
    known = sites[~np.isnan(sites[:, 0]), 0]
    assert watt["quantiles"][3] == {"share": 0.9, "value": np.quantile(known, 0.9, method="inverted_cdf")}
    assert sum(cell["rows"] for cell in watt["histogram"]) == watt["rows"] == known.size
    assert sum(one["rows"] for one in mode["values"]) == mode["rows"]
    lines = list(csv.DictReader(io.StringIO(cli(*arguments, "--csv").out)))
    mean = next(line["value"] for line in lines if (line["column"], line["what"]) == ("watt", "mean"))
    assert float(mean) == watt["mean"]
    both = cli(*arguments, "--csv", "--json")
    assert (both.code, "leave one of them out" in both.err) == (2, True)


def test_min_cell_and_wrong_options(cli: Cli, sites: np.ndarray) -> None:
    ended = cli("describe", "sites.toml", "--backend", "in-process", "--min-cell", "0", "--json")
    assert json.loads(ended.out)["columns"][0]["smallest"] == np.nanmin(sites[:, 0])
    ended = cli("describe", "sites.toml", "--backend", "in-process", "--quantiles", "half")
    assert (ended.code, ended.err) == (2, "error: --quantiles half: expected numbers from 0 to 1, such as 0.05,0.95\n")
    ended = cli("describe", "sites.toml", "--backend", "in-process", "--bins", "0")
    assert (ended.code, "describe: bins = 0: expected a whole number from 1 to 1000" in ended.err) == (2, True)


def test_a_scenario_has_a_report_with_a_picture_of_each_column(cli: Cli, sites: np.ndarray, tmp_path: Path) -> None:
    ended = cli("run", "described.toml", "--backend", "simulated", "--out", "out")
    assert ended.code == 0, ended.err
    assert "200 rows, 3 columns, in description.csv and report.html" in ended.out
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    for name in ("watt", "counter", "mode"):
        assert f'aria-label="the values of {name}"' in page
    assert "<h2>The table</h2>" in page
    assert "the aggregator sees the totals of all peers" in page
    result = json.loads((tmp_path / "out" / "result.json").read_text(encoding="utf-8"))
    assert result["jobs"][0]["replay_identical"] is True
    assert result["jobs"][0]["description"]["rows"] == 200
    files = {file.name for file in (tmp_path / "out").iterdir()}
    assert files == {"description.csv", "events.jsonl", "report.html", "result.json"}


def test_the_result_of_a_fleet_is_written_as_csv_or_json(tmp_path: Path) -> None:
    job = cluster_job("describe")
    rows = np.random.default_rng(0).normal(size=(40, 2))
    told = {
        "roster": ["a"], "features": ["kwh", "volt"], "number": 0, "terms": [], "peer": "a", "secured": {},
        "exposed": [], "exposed_by": [], "scaling": "none", "verify": "",
    }  # fmt: skip
    found = FinishedJob("job-1", told, job, run_in_process(job, [Local(rows)]))
    answer = _told(found)
    assert [column["name"] for column in answer["description"]["columns"]] == ["kwh", "volt"]
    described = Description.of(job, found.state, found.features)
    _write(tmp_path / "d.csv", answer, described)
    assert (tmp_path / "d.csv").read_text(encoding="utf-8").startswith("column,what,of,to,value\nkwh,rows,,,40\n")
    _write(tmp_path / "d.json", answer, described)
    assert json.loads((tmp_path / "d.json").read_text(encoding="utf-8"))["description"]["rows"] == 40
    assert next(_lines(answer)).startswith("job-1: describe, ")
    with pytest.raises(UsageError, match="describes the table, and labels no row"):
        labelled(found, Local(rows))
    with pytest.raises(UsageError, match=r"written as \.csv or \.json"):
        _write(tmp_path / "d.npz", answer, described)


def test_columns_that_do_not_fit_the_terminal_follow_below() -> None:
    whole = [["column", *(f"name-{n}" for n in range(5))], ["mean", *"12345"]]
    blocks = list(_blocks(whole, 26))
    assert [len(block[0]) for block in blocks] == [3, 3, 2]
    assert [name for block in blocks for name in block[0][1:]] == whole[0][1:]
