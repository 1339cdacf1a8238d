from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.conftest import Cli

from p2pclust.lab.reproduce import frame
from p2pclust.lab.reproduce.frame import table, table_ids
from p2pclust.lab.reproduce.model import Claim


def test_without_arguments_the_tables_are_listed(cli: Cli) -> None:
    ended = cli("reproduce")
    assert (ended.code, ended.err) == (0, "")
    assert [line.split()[0] for line in ended.out.splitlines() if line[:2] == "00"] == list(table_ids())
    told = json.loads(cli("reproduce", "--json").out)
    assert [item["table"] for item in told["tables"]] == list(table_ids())


def test_unknown_table(cli: Cli) -> None:
    ended = cli("reproduce", "001-tabel2")
    assert (ended.code, ended.err) == (2, "error: unknown table '001-tabel2' (did you mean '001-table2'?)\n")


def test_all_and_names(cli: Cli) -> None:
    ended = cli("reproduce", "--all", "001-table2")
    assert (ended.code, ended.err) == (2, "error: --all and the names of tables: give one or the other\n")


def test_a_place_that_cannot_be_written_is_told_before_anything_is_measured(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    ended = cli("reproduce", "001-table2", "--out", "taken")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == "error: output directory taken: cannot be written (File exists): choose another with --out\n"


@pytest.mark.slow
def test_one_table(cli: Cli, tmp_path: Path) -> None:
    ended = cli("reproduce", "001-table2", "--repeats", 2, "--jobs", 1, "--out", "here", "--json", "--quick")
    assert ended.code == 0
    told = json.loads(ended.out)
    assert (told["quick"], told["seed"], told["backend"]) == (True, 0, "in-process")
    (only,) = told["tables"]
    assert only["repeats"] == 2
    row = next(row for row in only["rows"] if (row["row"], row["measure"]) == ("pooled (case 1)", "wsse"))
    assert row["paper"] == 0.312
    assert abs(row["difference"]) < 0.02
    assert {file.name for file in (tmp_path / "here").iterdir()} == {"001-table2.csv", "001-table2.png"}
    assert "pooled (case 1)" in ended.err
    assert "a quick run does not decide: 4 of 4 claims" in ended.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("quick", "always", "code"), [(False, False, 1), (False, True, 1), (True, False, 0), (True, True, 1)]
)
def test_a_claim_that_fails(cli: Cli, monkeypatch: pytest.MonkeyPatch, quick: bool, always: bool, code: int) -> None:
    failing = replace(table("001-table2"), claims=lambda found: [Claim("all is well", "it is not", False, always)])
    monkeypatch.setitem(frame._TABLES, "001-table2", failing)
    options = ["--quick"] if quick else []
    ended = cli("reproduce", "001-table2", "--repeats", 1, "--jobs", 1, *options)
    assert ended.code == code
    assert ("FAILED  all is well: it is not" in ended.out) == (code == 1)


@pytest.mark.slow
def test_data_that_are_not_there(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("P2PCLUST_DATA", str(tmp_path / "nothing"))
    ended = cli("reproduce", "000-figure1", "--jobs", 1)
    assert ended.code == 0
    assert "left out: xclara: data set xclara is not in" in ended.out
    assert "p2pclust data fetch xclara" in ended.out


@pytest.mark.slow
def test_without_matplotlib(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p2pclust.lab.pictures.canvas.can_draw", lambda: False)
    ended = cli("reproduce", "001-table2", "--repeats", 1, "--jobs", 1, "--quick", "--out", "here")
    assert ended.code == 0
    assert "no pictures, because matplotlib is not installed: pip install 'p2pclust[plots]'" in ended.err
    assert {file.name for file in (tmp_path / "here").iterdir()} == {"001-table2.csv"}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("default")
def test_all_quick(cli: Cli, tmp_path: Path) -> None:
    """Every table works from end to end, on whatever data are there; what holds for any data holds."""
    ended = cli("reproduce", "--all", "--quick", "--jobs", 1, "--out", "all", "--json")
    assert ended.code == 0, ended.err
    tables = {item["table"]: item for item in json.loads(ended.out)["tables"]}
    assert list(tables) == list(table_ids())
    for table_id, item in tables.items():
        assert item["rows"] or item["skipped"] or table_id == "002-table2"
        assert not [claim for claim in item["claims"] if claim["always"] and claim["held"] is False]
        assert (tmp_path / "all" / f"{table_id}.csv").is_file()
