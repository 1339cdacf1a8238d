from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Cli
from tests.throwaway import throwaway_fleet

from p2pclust.cli.fleet import peer
from p2pclust.cli.fleet.peer_config import load_config
from p2pclust.errors import UsageError
from p2pclust.lab.testbed.processes.children import write_fleet
from p2pclust.transport.bundle import load_bundle, newest_roster
from p2pclust.transport.keys import insecure_bundle

CONFIG = {
    "name": "meter-01",
    "listen": "127.0.0.1:7001",
    "join": ["meter-02@127.0.0.1:7002"],
    "roster": "keys/roster.json",
    "bundle": "keys/meter-01.bundle",
    "data": "rows.csv",
    "state_dir": "state",
    "timing": "fast",
    "fitness": 0.7,
}


@pytest.fixture
def device(tmp_path: Path) -> Path:
    """Everything that a device needs, and the configuration of meter-01."""
    write_fleet(tmp_path / "keys", *throwaway_fleet(["meter-01", "meter-02"]))
    (tmp_path / "rows.csv").write_text("w,h\n1,2\n3,4\n", encoding="utf-8")
    write_toml(tmp_path / "peer.toml", CONFIG)
    return tmp_path


def write_toml(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text("".join(f"{key} = {toml(value)}\n" for key, value in values.items()), encoding="utf-8")


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(inner)}" for key, inner in value.items()) + " }"
    return json.dumps(value)


def test_a_file_becomes_what_a_peer_takes(device: Path) -> None:
    config = load_config(device / "peer.toml", {})
    assert config == CONFIG | {
        "join": {"meter-02": "127.0.0.1:7002"},
        "roster": str(device / "keys/roster.json"),
        "bundle": str(device / "keys/meter-01.bundle"),
        "data": str(device / "rows.csv"),
        "state_dir": str(device / "state"),
        "mdns": False,
        "missing_values": "error",
        "nice": 0,
        "threads": 1,
        "log": "text",
        "log_level": "info",
        "metrics_beyond_this_device": False,
        "faults": [],
    }


def test_columns_are_chosen_by_the_file_or_by_an_option(
    cli: Cli, device: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    became: list[Mapping[str, Any]] = []
    monkeypatch.setattr("p2pclust.cli.fleet.peer.become", became.append)
    write_toml(device / "peer.toml", CONFIG | {"columns": ["h", 1], "missing_values": "drop"})
    assert cli("peer", "--config", "peer.toml").code == 0
    assert cli("peer", "--config", "peer.toml", "--columns", "2, w", "--missing-values", "error").code == 0
    assert [(config["columns"], config["missing_values"]) for config in became] == [
        (("h", 1), "drop"),
        ((2, "w"), "error"),
    ]


def test_options_replace_the_file_and_are_enough(cli: Cli, device: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[Mapping[str, Any]] = []
    monkeypatch.setattr("p2pclust.cli.fleet.peer.become", became.append)
    assert cli("peer", "--config", "peer.toml", "--timing", "wan", "--fitness", "0.1").code == 0
    assert (became[0]["timing"], became[0]["fitness"], became[0]["name"]) == ("wan", 0.1, "meter-01")
    options: list[str] = []
    for key, value in CONFIG.items():
        for item in value if isinstance(value, list) else [value]:
            options += [f"--{key.replace('_', '-')}", str(item)]
    assert cli("peer", *options).code == 0
    assert became[1] == load_config(device / "peer.toml", {})


def test_every_key_can_be_set_on_the_command_line(cli: Cli, device: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[Mapping[str, Any]] = []
    monkeypatch.setattr("p2pclust.cli.fleet.peer.become", became.append)
    settings = [
        "class=meter",
        "mains=true",
        "cores=8",
        "nice=3",
        "cpus=[0]",
        "log=json",
        "missing_values={fill={w=0,h=1.5}}",
    ]
    options = [word for setting in settings for word in ("--set", setting)]
    assert cli("peer", "--config", "peer.toml", *options, "--set", "timing=wan").code == 0
    told = became[0]
    assert (told["class"], told["nice"], list(told["cpus"]), told["log"]) == ("meter", 3, [0], "json")
    assert (told["missing_values"], told["timing"]) == ({"fill": {"w": 0, "h": 1.5}}, "wan")
    assert cli("peer", "--config", "peer.toml", "--set", "wings=2").err.startswith("error: --set: unknown key 'wings'")


def test_fitness_follows_from_the_device_unless_it_is_said(device: Path) -> None:
    def of(*settings: str) -> float:
        told = {key: value for key, value in CONFIG.items() if key != "fitness"}
        write_toml(device / "peer.toml", told)
        return float(load_config(device / "peer.toml", {}, settings)["fitness"])

    assert of() == 0.5
    assert of("mains=true", "cores=8") == 1.0
    assert of("mains=true", "cores=8", "up_mbit=10") == pytest.approx(0.9)
    assert of("cores=1") == pytest.approx(0.3375)
    assert of("mains=true", "fitness=0.1") == 0.1


def test_neighbours_are_named_or_stand_in_a_file(device: Path) -> None:
    config = load_config(device / "peer.toml", {"links": ["meter-02"]})
    assert (config["overlay"], config["links"]) == ({"meter-01": ["meter-02"]}, ["meter-02"])
    (device / "ring.edges").write_text("meter-01 meter-02\n", encoding="utf-8")
    write_toml(device / "peer.toml", CONFIG | {"overlay": "ring.edges"})
    config = load_config(device / "peer.toml", {})
    assert config["overlay"] == {"meter-01": ["meter-02"], "meter-02": ["meter-01"]}
    assert "links" not in config


COMMAND = {"command": ["./read-meter", "--last", "24h"], "format": "csv"}


def test_a_command_runs_beside_its_file_and_only_when_it_is_asked_for(cli: Cli, device: Path) -> None:
    program = device / "read-meter"
    program.write_text("#!/bin/sh\necho x >> ran\necho w,h\necho 1,$2\n", encoding="utf-8")
    program.chmod(0o755)
    write_toml(device / "peer.toml", CONFIG | {"data": COMMAND})
    told = load_config(device / "peer.toml", {})
    assert told["data"] == COMMAND | {"cwd": str(device)}
    assert not (device / "ran").exists()
    ended = cli("peer", "--config", "peer.toml", "--check")
    assert (ended.code, ended.err) == (
        2,
        "error: command ./read-meter: its output: row 2, column 2 (h): '24h' is text: expected a number; h holds text: "
        'choose the features with columns = ["w"] (--columns w), or name it as label_column, group_column or id_column\n',
    )
    assert (device / "ran").read_text() == "x\n"
    assert cli("peer", "--config", "peer.toml", "--check", "--columns", "w").code == 0


def test_check_names_the_first_columns(cli: Cli, device: Path) -> None:
    (device / "rows.csv").write_text(",".join(f"c{n}" for n in range(9)) + "\n" + "1," * 8 + "1\n", encoding="utf-8")
    ended = cli("peer", "--config", "peer.toml", "--check")
    assert ended.err.endswith(
        "; 1 rows of 9 columns (c0, c1, c2, c3, c4, c5, c6, c7 and 1 more); read all columns as numbers\n"
    )


def test_check_starts_nothing(cli: Cli, device: Path) -> None:
    ended = cli("peer", "--config", "peer.toml", "--check")
    assert (ended.code, ended.out, ended.err) == (
        0,
        "",
        "meter-01: the configuration is fine; 2 rows of 2 columns (w, h); read all columns as numbers\n",
    )
    assert not (device / "state").exists()
    (device / "rows.csv").write_text("w,h\n1,2\n,4\n5,6\n", encoding="utf-8")
    ended = cli("peer", "--config", "peer.toml", "--check", "--missing-values", "drop")
    assert ended.err.endswith(
        "; 2 rows of 2 columns (w, h), 1 more omitted because of missing values; read all columns as numbers\n"
    )


def test_the_id_column_is_no_feature(cli: Cli, device: Path) -> None:
    (device / "rows.csv").write_text("meter,w,h\n7,1,2\n7,3,4\n", encoding="utf-8")
    assert cli("peer", "--config", "peer.toml", "--check").err.endswith(" (meter, w, h); read all columns as numbers\n")
    ended = cli("peer", "--config", "peer.toml", "--check", "--id-column", 1)
    assert (ended.code, ended.err) == (
        2,
        "error: rows.csv: row 3, column 1 (meter): '7' is the id of row 2 too: every row of a file needs an id of "
        "its own\n",
    )
    (device / "rows.csv").write_text("meter,w,h\n7,1,2\n8,3,4\n", encoding="utf-8")
    write_toml(device / "peer.toml", CONFIG | {"id_column": "meter"})
    ended = cli("peer", "--config", "peer.toml", "--check")
    assert (ended.code, ended.err) == (
        0,
        "meter-01: the configuration is fine; 2 rows of 2 columns (w, h); read all columns as numbers\n",
    )


def test_it_becomes_the_light_process(device: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda program, arguments: calls.append(arguments))
    config = load_config(device / "peer.toml", {})
    peer.become(config)
    ((_, *arguments),) = calls
    assert arguments == ["-P", "-m", "p2pclust.peer.main", str(device / "state" / "peer.json")]
    told = json.loads((device / "state" / "peer.json").read_text())
    assert told == config | {"version": version("p2pclust")}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"nam": "x"}, "peer.toml: unknown key 'nam' (did you mean 'name'?)"),
        ({"listen": "7001"}, 'peer.toml: listen = "7001": expected HOST:PORT, with a port from 1 to 65535'),
        ({"listen": "h:70000"}, 'peer.toml: listen = "h:70000": expected HOST:PORT, with a port from 1 to 65535'),
        (
            {"listen": "tcp://127.0.0.1:7411"},
            'peer.toml: listen = "tcp://127.0.0.1:7411": expected HOST:PORT: leave tcp:// out, and write 127.0.0.1:7411',
        ),
        ({"listen": "http://h:7411"}, 'peer.toml: listen = "http://h:7411": expected HOST:PORT: leave http:// out'),
        (
            {"listen": "fe80::1:7411"},
            'peer.toml: listen = "fe80::1:7411": expected HOST:PORT, such as 192.168.1.20:7411',
        ),
        ({"control": "tcp://h:7411"}, 'peer.toml: control = "tcp://h:7411": expected HOST:PORT: leave tcp:// out'),
        ({"join": ["x@tcp://h:7002"]}, 'peer.toml: join.0 = "x@tcp://h:7002": expected HOST:PORT: leave tcp:// out'),
        ({"join": {"meter-02": "127.0.0.1:7002"}}, 'peer.toml: join = {"meter-02": "127.0.0.1:7002"}: expected a list'),
        ({"join": ["127.0.0.1:7002"]}, 'peer.toml: join.0 = "127.0.0.1:7002": expected NAME@HOST:PORT'),
        ({"join": ["x@h:1"]}, "peer.toml: join: 'x' is not on fleet roster 2"),
        ({"timing": "quick"}, "peer.toml: timing = \"quick\": expected 'default', 'wan' or 'fast'"),
        ({"fitness": 2.0}, "peer.toml: fitness = 2.0: expected at most 1"),
        ({"data": "absent.csv"}, "absent.csv: no such file"),
        ({"columns": ["depth"]}, "rows.csv: columns = 'depth': no such column; the columns are w, h"),
        ({"missing_values": "mean"}, 'peer.toml: missing_values = "mean": a peer knows the mean of its own rows only'),
        (
            {"missing_values": "zero"},
            "peer.toml: missing_values = \"zero\": expected 'error', 'drop', or { fill = VALUE }",
        ),
        ({"data": {"command": []}}, 'peer.toml: data = {"command": []}: expected a file, a folder, or { command = ['),
        ({"data": COMMAND}, "data.command: './read-meter': no such program, or it may not be run: give its path"),
        (
            {"data": {"command": ["a"], "format": "xls"}},
            'peer.toml: data = {"command": ["a"], "format": "xls"}: format: expected one of csv, tsv, npy, npz, arff, '
            "parquet",
        ),
        (
            {"data": COMMAND | {"timeout_s": 0}},
            'peer.toml: data = {"command": ["./read-meter", "--last"...: timeout_s: expected a number above 0',
        ),
        ({"links": ["x"]}, "peer.toml: links: 'x' is not on fleet roster 2"),
        ({"links": ["meter-01"]}, "peer.toml: links: 'meter-01' is this peer itself"),
        ({"overlay": "ring.edges"}, "ring.edges: "),
        ({"class": "a\nb"}, 'peer.toml: class = "a\\nb": '),
        (
            {"metrics": "10.0.0.1:9100"},
            "peer.toml: metrics = '10.0.0.1:9100': everyone who can reach this address may read it, without a key",
        ),
        ({"metrics": "9100"}, 'peer.toml: metrics = "9100": expected HOST:PORT, with a port from 1 to 65535'),
        ({"nice": 20}, "peer.toml: nice = 20: expected at most 19"),
        ({"log": "xml"}, "peer.toml: log = \"xml\": expected 'text' or 'json'"),
        ({"bundle": "absent.bundle"}, "device bundle absent.bundle does not exist"),
        ({"privacy": {"cohorts": 5}}, "peer.toml: [privacy]: unknown key 'cohorts' (did you mean 'cohort'?)"),
        (
            {"privacy": {"jobs": {"most": 3}}},
            'peer.toml: [privacy]: jobs = {"most": 3}: jobs: expected { most = 3, per = "30d" }',
        ),
        ({"privacy": {"least_rounds": 0}}, "peer.toml: [privacy]: least_rounds = 0: expected at least 1"),
        ({"privacy": {"rosters": "same"}}, "peer.toml: [privacy]: rosters = \"same\": expected 'fixed'"),
        ({"privacy": {"ledger": "nowhere/ledger"}}, "peer.toml: privacy: ledger = "),
        (
            {"name": "meter-02"},
            "peer.toml: name = 'meter-02', but keys/meter-01.bundle is the bundle of 'meter-01'",
        ),
    ],
)
def test_refusals(cli: Cli, device: Path, changes: dict[str, Any], line: str) -> None:
    write_toml(device / "peer.toml", CONFIG | changes)
    ended = cli("peer", "--config", "peer.toml")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"error: {line}")
    assert ended.err.count("\n") == 1
    assert not (device / "state").exists()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--name", "meter-02"), "--name: name = 'meter-02', but keys/meter-01.bundle is the bundle of 'meter-01'"),
        (
            ("--bundle", "keys/meter-02.bundle"),
            "--bundle: name = 'meter-01', but keys/meter-02.bundle is the bundle of",
        ),
        (("--listen", "localhost"), '--listen: listen = "localhost": expected HOST:PORT'),
        (("--join", "x@h:1"), "--join: join: 'x' is not on fleet roster 2"),
        (("--link", "x"), "--link: links: 'x' is not on fleet roster 2"),
        (("--set", "log.level=1"), '--set: log = {"level": 1}: expected'),
        (("--timing", "fast", "--set", "nice=20"), "--set: nice = 20: expected at most 19"),
        (("--timing", "fast"), "peer.toml: nice = 21: expected at most 19"),
    ],
)
def test_what_an_option_said_is_not_blamed_on_the_file(
    cli: Cli, device: Path, options: tuple[str, ...], line: str
) -> None:
    write_toml(device / "peer.toml", {"nice": 21 if options == ("--timing", "fast") else 1} | CONFIG)
    ended = cli("peer", "--config", "peer.toml", *options, "--check")
    assert ended.code == 2
    assert ended.err.startswith(f"error: {line}")
    assert ended.err.count("\n") == 1


def test_a_ledger_beside_the_data_starts_in_the_folder_of_the_file(device: Path) -> None:
    floors = {"jobs": {"most": 3, "per": "30d"}, "rosters": "fixed", "least_rounds": 5, "given_centers": False}
    write_toml(device / "peer.toml", CONFIG | {"privacy": floors | {"ledger": "keys/ledger"}})
    privacy = load_config(device / "peer.toml", {})["privacy"]
    assert {key: privacy[key] for key in (*floors, "ledger")} == floors | {"ledger": str(device / "keys" / "ledger")}


@pytest.mark.parametrize("floor", [{"jobs": {"most": 3, "per": "30d"}}, {"rosters": "fixed"}, {"cohort": 5}])
def test_floors_that_imply_secure_sums_need_keys(cli: Cli, device: Path, floor: dict[str, Any]) -> None:
    keyless(device, privacy=floor)
    ended = cli("peer", "--config", "peer.toml")
    assert ended.code == 2
    assert "privacy: secure sums need keys, and this device has no bundle" in ended.err


def test_what_is_missing_is_named(cli: Cli) -> None:
    ended = cli("peer", "--name", "a")
    assert ended.code == 2
    assert ended.err.splitlines()[0] == "error: options: key 'listen' is missing"


def test_a_key_that_is_not_on_the_roster(cli: Cli, device: Path) -> None:
    strangers, bundles = throwaway_fleet(["meter-01"])
    write_fleet(device / "other", strangers, bundles)
    write_toml(device / "peer.toml", CONFIG | {"bundle": "other/meter-01.bundle"})
    ended = cli("peer", "--config", "peer.toml")
    assert ended.code == 2
    assert "does not carry the signature of this fleet" in ended.err
    assert ended.err.count("\n") == 1


def test_a_nan_is_refused_before_the_peer_joins(cli: Cli, device: Path) -> None:
    (device / "rows.csv").write_text("w,h\n1,nan\n", encoding="utf-8")
    ended = cli("peer", "--config", "peer.toml")
    assert ended.code == 2
    assert ended.err.startswith("error: rows.csv: row 2, column 2 (h): 'nan' means a missing value: fill it in")


def keyless(device: Path, **changes: Any) -> None:
    """A configuration without keys."""
    kept = {key: value for key, value in CONFIG.items() if key not in ("bundle", "roster")}
    write_toml(device / "peer.toml", kept | changes)


def test_without_keys_a_peer_listens_on_this_device(cli: Cli, device: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keyless(device)
    assert cli("peer", "--config", "peer.toml", "--check").code == 0
    assert not (device / "state").exists()
    monkeypatch.setattr(os, "execv", lambda program, arguments: None)
    assert cli("peer", "--config", "peer.toml").code == 0
    told = json.loads((device / "state" / "peer.json").read_text())
    assert told["insecure"] is True
    bundle = load_bundle(told["bundle"])
    assert newest_roster(bundle, told["bundle"], None).names == ("meter-01", "meter-02")


@pytest.mark.parametrize(
    ("changes", "options", "line"),
    [
        ({"listen": "10.0.0.1:7001"}, (), "peer.toml: listen = '10.0.0.1:7001', and no bundle: everyone who can reach"),
        ({"control": "10.0.0.1:7400"}, (), "peer.toml: control = '10.0.0.1:7400', and no bundle: everyone"),
        (
            {"bundle": "keys/meter-01.bundle"},
            ("--insecure",),
            "peer.toml: bundle = 'keys/meter-01.bundle', and --insecure",
        ),
        ({"roster": "keys/roster.json"}, (), "peer.toml: roster = 'keys/roster.json': without a bundle"),
    ],
)
def test_an_address_without_keys_has_to_be_wanted(
    cli: Cli, device: Path, changes: dict[str, Any], options: tuple[str, ...], line: str
) -> None:
    keyless(device, **changes)
    ended = cli("peer", "--config", "peer.toml", *options)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert ended.err.startswith(f"error: {line}")
    assert not (device / "state").exists()


def test_it_can_be_wanted(cli: Cli, device: Path) -> None:
    keyless(device, listen="10.0.0.1:7001")
    assert cli("peer", "--config", "peer.toml", "--insecure", "--check").code == 0


def test_keys_that_protect_nothing_are_no_fleets(tmp_path: Path) -> None:
    """Peers without keys meet nobody who has some: no roster of theirs is believed, and theirs believe no other."""
    _, bundles = throwaway_fleet(["meter-01"])
    made_up = insecure_bundle("meter-01", ["meter-02"])
    assert made_up.roster is not None
    assert insecure_bundle("meter-02", ["meter-01"]).roster == made_up.roster, "the same on every device"
    (tmp_path / "roster.json").write_bytes(made_up.roster.to_bytes())
    with pytest.raises(UsageError, match="does not carry the signature of this fleet"):
        newest_roster(bundles["meter-01"], "a.bundle", tmp_path / "roster.json")
    assert made_up.roster.name_of(bundles["meter-01"].curve_public) is None
