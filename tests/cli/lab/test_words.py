"""Words in files: one schema for a scenario, a peer's own file, a job that is submitted, a split, and rows to label."""

from __future__ import annotations

import csv
import json
import socket
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Cli

from p2pclust.cli.fleet.inventory import load_inventory
from p2pclust.cli.fleet.peer_config import load_config
from p2pclust.data.readers import read
from p2pclust.data.schema import Column, Schema
from p2pclust.errors import DataError, UsageError
from p2pclust.jobs.submission import request_from
from p2pclust.lab.scenario.file.load import load_data, load_scenario
from p2pclust.peer.work.rows import load_rows
from p2pclust.protocols.engine.job import Job

SCHEMA = Schema(
    (Column("watt", "number", unit="W"), Column("mode", "category", ("eco", "boost")), Column("on", "flag"))
)
NAMES = ("a", "b", "c", "d")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four files of words, each with its columns in another order, their schema, and a scenario."""
    draw = np.random.default_rng(0)
    (tmp_path / "schema.toml").write_text(SCHEMA.to_toml())
    for name in NAMES:
        order = draw.permutation(3).tolist()
        with open(tmp_path / f"{name}.csv", "w") as file:
            rows = csv.writer(file)
            rows.writerow(["id", *(SCHEMA.names[place] for place in order)])
            for number in range(40):
                kind = int(draw.integers(2))
                cells = [f"{[50, 400][kind] + draw.normal(0, 30):.1f}", ["eco", "boost"][kind], ["no", "yes"][kind]]
                rows.writerow([f"{name}{number}", *(cells[place] for place in order)])
    (tmp_path / "s.toml").write_text(
        'title = "Words"\n[data]\nfiles = ["a.csv", "b.csv", "c.csv", "d.csv"]\nschema = "schema.toml"\n'
        'id_column = "id"\nscaling = "minmax"\n[fleet]\npeers = 4\n[[jobs]]\nprotocol = "llf-cm"\nclusters = 2\n'
    )
    return tmp_path


@pytest.mark.parametrize("backend", ["in-process", "simulated", pytest.param("processes", marks=pytest.mark.processes)])
def test_a_scenario_runs_by_its_schema_and_labels_new_words(cli: Cli, folder: Path, backend: str) -> None:
    done = cli("run", "s.toml", "--backend", backend, "--out", "r")
    assert done.code == 0, done.err
    entry = json.loads((folder / "r" / "result.json").read_text())["jobs"][0]
    assert (entry["failure"], entry["abstained"]) == ("", [{}] * len(entry["abstained"]))
    (folder / "new.csv").write_text("on,mode,watt,why\nyes,boost,410 W,x\nno,eco,47 W,y\n")
    done = cli("assign", "r", "--data", "new.csv")
    assert done.code == 0, done.err
    header, one, two = csv.reader(done.out.splitlines())
    assert header[:6] == ["on", "mode", "watt", "why", "row", "label"]
    assert (one[:5], two[:5]) == (["yes", "boost", "410 W", "x", "0"], ["no", "eco", "47 W", "y", "1"])
    assert one[5] != two[5]
    (folder / "new.csv").write_text("on,mode,watt\nyes,secret,410\n")
    done = cli("assign", "r", "--data", "new.csv")
    assert (done.code, done.err) == (
        2, "error: new.csv: column 'mode' has a value that the schema does not declare\n",
    )  # fmt: skip


def test_it_may_stand_in_the_scenario(folder: Path) -> None:
    given = load_data(load_scenario(folder / "s.toml"))
    text = (folder / "s.toml").read_text().replace('schema = "schema.toml"\n', "")
    inline = '[data.schema]\n[[data.schema.column]]\nname = "watt"\nkind = "number"\nunit = "W"\n'
    inline += '[[data.schema.column]]\nname = "mode"\nkind = "category"\nvalues = ["eco", "boost"]\n'
    inline += '[[data.schema.column]]\nname = "on"\nkind = "flag"\n'
    (folder / "inline.toml").write_text(text.replace("[fleet]\n", f"{inline}[fleet]\n"))
    shares = load_data(load_scenario(folder / "inline.toml"))
    assert {share.schema for share in shares.values()} == {SCHEMA}
    assert all((shares[name].X == given[name].X).all() for name in given)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ('schema = "schema.toml"', 'schema = "scema.toml"',
         "F: [data.schema]: G/scema.toml: no such file (did you mean G/schema.toml?)"),
        ('schema = "schema.toml"', 'schema = "bad.toml"',
         "F: [data.schema]: G/bad.toml: column 1 (x): kind = 'nr': expected one of number, category, flag"),
        ('schema = "schema.toml"', "schema = {}", "F: [data.schema]: schema: expected at least one [[column]]"),
        ('schema = "schema.toml"', 'schema = "schema.toml"\ncolumns = ["watt"]',
         "F: [data]: columns and schema: a schema names the features: leave columns out"),
    ],
)  # fmt: skip
def test_a_wrong_one_is_refused_in_one_line(folder: Path, old: str, new: str, line: str) -> None:
    (folder / "bad.toml").write_text('[[column]]\nname = "x"\nkind = "nr"\n')
    (folder / "s.toml").write_text((folder / "s.toml").read_text().replace(old, new))
    with pytest.raises(UsageError) as refused:
        load_scenario(folder / "s.toml")
    assert str(refused.value).replace(str(folder / "s.toml"), "F").replace(str(folder), "G") == line


def test_a_protocol_of_numbers_is_refused_in_one_line(cli: Cli, folder: Path) -> None:
    done = cli("run", "s.toml", "--set", "jobs.0.protocol=ffcm", "--out", "r")
    assert (done.code, done.err) == (
        2, "error: [jobs.0]: schema: ffcm clusters numbers, and mode, on are not: leave these columns out of the schema\n",
    )  # fmt: skip


def test_the_number_of_clusters_is_not_chosen_by_distances_of_codes(cli: Cli, folder: Path) -> None:
    done = cli("choose", "s.toml", "--clusters", "1-3")
    why = "the measures are distances of numbers: give the number of clusters yourself"
    assert (done.code, done.err) == (2, f"error: choose: mode, on hold categories or flags, and {why}\n")


def test_a_device_reads_its_file_by_it(folder: Path) -> None:
    (folder / "peer.toml").write_text(
        'name = "m1"\nlisten = "127.0.0.1:7001"\ndata = "a.csv"\nschema = "schema.toml"\nstate_dir = "state"\n'
        'join = ["m2@127.0.0.1:7002"]\n'
    )
    config = load_config(folder / "peer.toml", {})
    assert Schema.from_dict(config["schema"]) == SCHEMA
    told: list[str] = []
    local = load_rows(config, lambda verb, fields: told.append(verb))
    assert (told, local.problem, local.schema) == (["data"], "", SCHEMA)
    assert np.array_equal(local.X, read(folder / "a.csv", schema=SCHEMA).X)
    (folder / "a.csv").write_text("watt,mode,on\n1,secret,no\n")
    assert load_rows(config, lambda verb, fields: None).problem == (
        "its data cannot be used: column 'mode' has a value that the schema does not declare"
    )
    with pytest.raises(DataError, match=r"a\.csv: column 'mode' has a value that the schema does not declare$"):
        load_config(folder / "peer.toml", {})


def test_an_inventory_sends_it_with_the_configuration(cli: Cli, folder: Path) -> None:
    (folder / "fleet.toml").write_text(
        'keys = "keys"\nstate_dir = "state"\nsettings = { schema = "schema.toml" }\n'
        '[[devices]]\nname = "a"\nport = 7001\ndata = "a.csv"\n'
    )
    cli("keys", "init", folder / "keys", "--no-passphrase")
    cli("keys", "device", "a", "--fleet", folder / "keys")
    (device,) = load_inventory(folder / "fleet.toml").devices
    assert Schema.from_dict(device.config["schema"]) == SCHEMA


def test_a_job_that_is_submitted_carries_it(folder: Path) -> None:
    given = {"protocol": "llf-cm", "clusters": 2, "schema": str(folder / "schema.toml")}
    request, _ = request_from(given, 3)
    assert Job.from_dict(request.job.to_dict()).schema == SCHEMA
    with pytest.raises(UsageError, match=r"^submit: \[schema\]: .*absent\.toml: no such file"):
        request_from(given | {"schema": str(folder / "absent.toml")}, 3)


def test_a_split_keeps_it(cli: Cli, folder: Path) -> None:
    done = cli(
        "data", "split", "a.csv", "--schema", "schema.toml", "--id-column", "id", "--peers", "2", "--out", "parts"
    )
    assert done.code == 0, done.err
    parts = [read(folder / "parts" / f"peer-0{number}.npz") for number in (1, 2)]
    assert {part.schema for part in parts} == {SCHEMA}
    whole = read(folder / "a.csv", schema=SCHEMA)
    assert sorted(np.concatenate([part.X for part in parts]).tolist()) == sorted(whole.X.tolist())
    done = cli("data", "split", "iris", "--schema", "schema.toml", "--peers", "2", "--out", "more")
    assert done.err.startswith("error: iris: ")
    assert done.err.endswith(", schema are for files, not for a registered data set\n")


def test_other_rows_are_labelled_by_a_schema_of_the_same_version(cli: Cli, folder: Path) -> None:
    cli("run", "s.toml", "--backend", "in-process", "--out", "r")
    (folder / "new.csv").write_text("on,mode,watt\nyes,boost,410\nno,eco,47\n")
    turned = Schema((SCHEMA.columns[2], Column("mode", "category", ("boost", "eco")), SCHEMA.columns[0]))
    (folder / "turned.toml").write_text(turned.to_toml())
    one, two = (cli("assign", "r", "--data", "new.csv", *more) for more in ((), ("--schema", "turned.toml")))
    assert (one.code, one.out) == (two.code, two.out)
    (folder / "turned.toml").write_text(turned.to_toml().replace("version = 1", "version = 2"))
    done = cli("assign", "r", "--data", "new.csv", "--schema", "turned.toml")
    why = "version 2 of the schema, and the job has version 1"
    assert (done.code, done.err) == (2, f"error: its data cannot be used: {why}\n")


@pytest.mark.slow
@pytest.mark.processes
def test_a_fleet_that_stays_finds_clusters_of_words(cli: Cli, folder: Path) -> None:
    """From a file with words to a result by their names, and the labels of a device's own rows."""
    rows = [(folder / f"{name}.csv").read_text().splitlines() for name in NAMES]
    order = [[lines[0].split(",").index(name) for name in ("id", *SCHEMA.names)] for lines in rows]
    cells = [[line.split(",") for line in lines[1:]] for lines in rows]
    with open(folder / "all.csv", "w") as file:
        table = csv.writer(file)
        table.writerow(["site", "id", *SCHEMA.names])
        for name, own, places in zip(NAMES, cells, order, strict=True):
            table.writerows([name, *(row[place] for place in places)] for row in own)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    done = cli("init", "all.csv", "--text", "encode", "--clusters", "2", "--port", str(min(port, 60000)), "--out", "f")
    assert done.code == 0, done.err
    cli("keys", "init", "f/keys", "--no-passphrase")
    cli("keys", "device", *NAMES, "--fleet", "f/keys")
    at = ("--inventory", "f/fleet.toml")
    try:
        assert cli("fleet", "up", "f/fleet.toml").code == 0
        job = ("submit", "llf-cm", "--clusters", "2", "--scaling", "minmax", "--wait", *at)
        plain = cli(*job)
        assert plain.code == 3
        assert "categories or flags (mode, on), and the job has no schema" in plain.err
        done = cli(*job, "--schema", "f/schema.toml")
        assert done.code == 0, done.err
        named = done.out.strip()
        told = json.loads(cli("result", named, "--json", *at).out)
        assert told["features"] == ["watt", "mode=boost", "mode=eco", "on=false", "on=true"]
        assert sorted(center[1:] for center in told["centers"]) == [[0.0, 1.0, 1.0, 0.0], [1.0, 0.0, 0.0, 1.0]]
        own = cli("assign", named, *at, "--peer", "b")
        assert own.code == 0, own.err
        assert {(row["mode"], row["label"]) for row in csv.DictReader(own.out.splitlines())} in (
            {("eco", "0"), ("boost", "1")}, {("eco", "1"), ("boost", "0")},
        )  # fmt: skip
    finally:
        cli("fleet", "down", "f/fleet.toml")
