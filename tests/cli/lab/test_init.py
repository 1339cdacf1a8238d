from __future__ import annotations

import io
import json
import os
import pty
import shlex
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Cli

from p2pclust.cli.fleet.inventory import load_inventory
from p2pclust.cli.fleet.peer_config import load_config
from p2pclust.data.schema import Column, Schema, read_schema
from p2pclust.lab.scenario.file.load import load_data, load_scenario
from p2pclust.peer.work.rows import load_rows

ROWS = [f"{n},{'ab'[n % 2]},{20 * (n // 2 % 2) + n % 3},{5 * (n // 2 % 2)},{'xyz'[n % 3]}" for n in range(60)]
HEAD = "nr,site,kwh,volt,mode"
SCHEMA = Schema((Column("kwh", "number"), Column("volt", "number"), Column("mode", "category", ("x", "y", "z"))))


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """A table with two sites; rows 4 and 7 lack a value."""
    lines = [*ROWS]
    lines[4], lines[7] = "4,a,,0,y", "7,b,NA,5,y"
    file = tmp_path / "rows.csv"
    file.write_text("\n".join([HEAD, *lines]) + "\n", encoding="utf-8")
    return file


@pytest.mark.slow
def test_all_that_it_writes_is_taken_by_what_reads_it(cli: Cli, rows: Path, tmp_path: Path) -> None:
    done = cli("init", "rows.csv", "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told["devices"] == {"a": 30, "b": 30}
    assert (told["features"], told["id_column"], told["missing_values"]) == (["kwh", "volt"], "nr", "drop")
    assert told["clusters"] == 2
    folder = tmp_path / "rows"
    shares = load_data(load_scenario(folder / "scenario.toml"))
    assert {name: (share.n_rows, share.dropped) for name, share in shares.items()} == {"a": (29, 1), "b": (29, 1)}
    assert shares["b"].row_names.tolist()[:4] == [1, 3, 5, 9]
    cli("keys", "init", folder / "keys", "--no-passphrase")
    cli("keys", "device", "a", "b", "--fleet", folder / "keys")
    assert [device.name for device in load_inventory(folder / "fleet.toml").devices] == ["a", "b"]
    config = load_config(folder / "devices" / "a.toml", {})
    assert config["join"] == {"b": "127.0.0.1:7002"}
    assert stat.S_IMODE((folder / "rows" / "a.csv").stat().st_mode) == 0o600


def test_a_number_is_put_in_the_place_of_missing_values(cli: Cli, rows: Path, tmp_path: Path) -> None:
    done = cli("init", "rows.csv", "--missing-values", "-1", "--text", "encode", "--clusters", "2", "--out", "mine")
    assert done.code == 0, done.err
    shares = load_data(load_scenario(tmp_path / "mine" / "scenario.toml"))
    assert (shares["a"].feature_names, shares["a"].schema) == (("kwh", "volt", "mode"), SCHEMA)
    assert shares["a"].X[2].tolist() == [-1.0, 0.0, 1.0]
    assert (shares["a"].n_rows, shares["a"].dropped) == (30, 0)


def test_missing_values_are_kept(cli: Cli, rows: Path, tmp_path: Path) -> None:
    done = cli("init", "rows.csv", "--missing-values", "keep", "--out", "mine")
    assert done.code == 0, done.err
    assert "kwh: 2 of 60 values are missing: the rows keep their other values" in done.out
    assert "--missing-values keep --inventory" in done.out
    found = load_scenario(tmp_path / "mine" / "scenario.toml")
    shares = load_data(found)
    assert {name: (share.n_rows, share.dropped) for name, share in shares.items()} == {"a": (30, 0), "b": (30, 0)}
    assert np.isnan(shares["a"].X[2, 0])
    device = tomllib.loads((tmp_path / "mine" / "devices" / "a.toml").read_text(encoding="utf-8"))
    assert device["missing_values"] == "keep"


@pytest.mark.parametrize("given", [False, True], ids=["encode", "schema"])
def test_words_make_a_schema_that_scenario_fleet_and_devices_read(
    cli: Cli, rows: Path, tmp_path: Path, *, given: bool
) -> None:
    (tmp_path / "own.toml").write_text(SCHEMA.to_toml())
    words = ["--schema", "own.toml"] if given else ["--text", "encode"]
    done = cli("init", "rows.csv", *words, "--clusters", "2")
    assert done.code == 0, done.err
    assert ("mode: text: a category of 3 values" in done.out) == (not given)
    assert "p2pclust choose" not in done.out
    folder = tmp_path / "rows"
    assert f"--schema {folder.relative_to(tmp_path)}/schema.toml" in done.out
    assert read_schema(folder / "schema.toml") == SCHEMA
    cli("keys", "init", folder / "keys", "--no-passphrase")
    cli("keys", "device", "a", "b", "--fleet", folder / "keys")
    assert load_rows(load_config(folder / "devices" / "a.toml", {}), lambda verb, fields: None).schema == SCHEMA
    assert load_inventory(folder / "fleet.toml").devices[0].config["schema"] == SCHEMA.to_dict()
    done = cli("run", folder / "scenario.toml", "--backend", "in-process", "--out", "r")
    assert done.code == 0, done.err


def test_the_number_of_clusters_is_proposed_by_the_columns_of_numbers(cli: Cli, rows: Path) -> None:
    done = cli("init", "rows.csv", "--text", "encode")
    assert "2 clusters: " in done.out
    assert "(by the columns of numbers)" in done.out
    done = cli("init", "rows.csv", "--text", "encode", "--columns", "mode", "--out", "words")
    why = "without a column of numbers no number of clusters can be proposed"
    assert (done.code, done.err) == (2, f"error: --clusters is missing: {why}\n")


def test_without_a_column_rows_are_dealt_out(cli: Cli, rows: Path, tmp_path: Path) -> None:
    done = cli("init", "rows.csv", "--devices", "3", "--omit", "site", "--clusters", "2")
    assert "rows are dealt out to 3 devices by chance" in done.out
    shares = load_data(load_scenario(tmp_path / "rows" / "scenario.toml"))
    assert list(shares) == ["peer-01", "peer-02", "peer-03"]
    assert sorted(row for share in shares.values() for row in share.row_names.tolist()) == sorted({*range(60)} - {4, 7})


@pytest.mark.parametrize(("n_devices", "floor"), [(3, None), (4, {"secure": True})])
def test_four_devices_or_more_refuse_plain_jobs(
    cli: Cli, rows: Path, tmp_path: Path, n_devices: int, floor: dict[str, bool] | None
) -> None:
    done = cli("init", "rows.csv", "--devices", str(n_devices), "--omit", "site", "--clusters", "2")
    assert ("each device refuses plain jobs" in done.out) == (floor is not None)
    assert ("no device has a floor" in done.out) == (floor is None)
    inventory = tomllib.loads((tmp_path / "rows" / "fleet.toml").read_text(encoding="utf-8"))
    assert inventory["settings"].get("privacy") == floor
    for file in (tmp_path / "rows" / "devices").iterdir():
        assert tomllib.loads(file.read_text(encoding="utf-8")).get("privacy") == floor


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_other_formats(cli: Cli, tmp_path: Path, suffix: str) -> None:
    X = np.array([[n % 4, np.nan if n == 3 else 10.0 * (n % 2)] for n in range(40)])
    group = np.array(["north", "south"])[np.arange(40) // 20]
    if suffix == ".npz":
        np.savez(tmp_path / "d.npz", X=X, group=group, features=np.array(["p", "q"]))
    else:
        pyarrow = pytest.importorskip("pyarrow", reason="pip install 'p2pclust[parquet]'")
        parquet = pytest.importorskip("pyarrow.parquet")
        table = {"p": X[:, 0], "q": [None if np.isnan(value) else value for value in X[:, 1]], "group": group}
        parquet.write_table(pyarrow.table(table), tmp_path / "d.parquet")
    done = cli("init", f"d{suffix}", "--clusters", "2")
    assert done.code == 0, done.err
    shares = load_data(load_scenario(tmp_path / "d" / "scenario.toml"))
    assert {name: share.X.shape for name, share in shares.items()} == {"north": (19, 2), "south": (20, 2)}
    assert np.array_equal(shares["south"].X, X[20:])


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["absent.csv"], "absent.csv: no such file"),
        (["rows.csv", "--split-by", "sight"], "--split-by sight: rows.csv has no such column (did you mean 'site'?)"),
        (["rows.csv", "--split-by", "site", "--devices", "3"],
         "--split-by and --devices: a column says how many devices there are: leave one of them out"),
        (["rows.csv", "--devices", "1"], "--devices 1: expected 2 to 200"),
        (["rows.csv", "--missing-values", "mean"], "--missing-values mean: expected drop, omit, keep or a number"),
        (["rows.csv", "--text", "embed"], "--text embed: expected omit or encode"),
        (["rows.csv", "--schema", "s.toml", "--text", "omit"],
         "--schema and --text: a schema names the features and their kinds: leave --text out"),
        (["rows.csv", "--columns", "kwh,mode"], "--columns mode: it cannot be a feature (text (3 values))"),
        (["rows.csv", "--id-column", "mode"], "--id-column mode: two rows have the same id"),
        (["rows.csv", "--omit", "kwh,volt"],
         "rows.csv: no column of numbers is left to cluster: encode text columns, or name the columns"),
        (["rows.csv", "--out", "."], "--out .: it exists and is not an empty folder: choose another one"),
    ],
    ids=lambda value: "-".join(value[1:3]) if isinstance(value, list) else "",
)  # fmt: skip
def test_refused_in_one_line(cli: Cli, rows: Path, words: list[str], line: str) -> None:
    done = cli("init", *words, "--clusters", "2")
    assert (done.code, done.err) == (2, f"error: {line}\n")


def test_it_asks_nothing_where_there_is_no_terminal(cli: Cli, rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert cli("init", "rows.csv", "--clusters", "2").code == 0


@pytest.mark.slow
def test_on_a_terminal_it_asks_for_what_no_option_says(rows: Path, tmp_path: Path) -> None:
    near, far = pty.openpty()
    os.write(near, b"3\nomit\nencode\n4\n")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "p2pclust", "init", "rows.csv"], cwd=tmp_path, stdin=far, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip
    finally:
        os.close(near)
        os.close(far)
    assert done.returncode == 0, done.stderr
    assert "Which column says which device a row is of?" in done.stderr
    scenario = load_scenario(tmp_path / "rows" / "scenario.toml")
    assert len(scenario.fleet.names) == 3
    assert scenario.data.schema_ is not None
    assert scenario.data.schema_.names == ("site", "volt", "mode")
    assert scenario.jobs[0].clusters == 4


def test_true_classes_are_not_clustered_unless_they_are_named(cli: Cli, tmp_path: Path) -> None:
    X = np.array([[n % 4, 10.0 * (n % 2)] for n in range(40)])
    np.savez(tmp_path / "d.npz", X=X, y=np.arange(40) % 2)
    told = json.loads(cli("init", "d.npz", "--clusters", "2", "--json").out)
    assert told["features"] == ["x1", "x2"]
    assert "y: left out: true classes, as its name says (--columns to take it)" in told["notes"]
    told = json.loads(cli("init", "d.npz", "--clusters", "2", "--columns", "x1,y", "--out", "e", "--json").out)
    assert told["features"] == ["x1", "y"]


@pytest.mark.parametrize(
    "name", ["Readings (May).csv", "it's $(date) `here`.csv", "-readings.csv", "a;b & c.csv", "two\nlines.csv"]
)
def test_the_commands_that_it_prints_can_be_pasted(cli: Cli, rows: Path, tmp_path: Path, name: str) -> None:
    rows.rename(tmp_path / name)
    done = cli("init", "--clusters", "2", "--json", "--", name)
    assert done.code == 0, done.err
    told = json.loads(done.out)
    words = [shlex.split(line) for line in told["next"]]
    folder = Path(name).stem if not name.startswith("-") else f"./{Path(name).stem}"
    assert words[0] == ["p2pclust", "run", f"{folder}/scenario.toml", "--out", f"{folder}/run"]
    assert words[3] == ["p2pclust", "keys", "device", "a", "b", "--fleet", f"{folder}/keys"]
    assert len(load_data(load_scenario(tmp_path / folder / "scenario.toml"))) == 2, (
        "its name is in a comment of the file"
    )


def test_a_number_outside_the_range_of_a_column_is_warned_of(cli: Cli, rows: Path) -> None:
    done = cli("init", "rows.csv", "--missing-values", "-999", "--clusters", "2", "--out", "o")
    assert done.code == 0, done.err
    assert "warning: kwh: 2 values are the fill -999, outside the range of the others" in done.err
    assert "warning" not in cli("init", "rows.csv", "--missing-values", "1", "--clusters", "2", "--out", "p").err
    (result,) = json.loads(cli("run", "o/scenario.toml", "--backend", "in-process", "--out", "r", "--json").out)["jobs"]
    assert any(doubt.startswith("kwh: 2 values are the fill -999, outside") for doubt in result["doubts"])
