"""Every file in `peers/` is what it claims to be: the annotated configuration is one that a peer takes."""

from __future__ import annotations

import importlib.util
import re
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.command_line import p2pclust

from p2pclust.cli.fleet.peer_config import PeerConfig, load_config
from p2pclust.data.schema import Column, Schema
from p2pclust.transport.bundle import load_bundle, newest_roster
from p2pclust.transport.keys import add_devices, init_fleet

FOLDER = Path(__file__).parents[1] / "peers"


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Run a command in this process; gives its exit code and what it complained of."""

    def call(*arguments: object) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            p2pclust(*arguments)
        said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
        return int(ended.value.code or 0), "\n".join(said)

    return call


@pytest.fixture
def device(tmp_path: Path) -> Path:
    """A folder as `device.toml` wants it: the file, the keys of a fleet made for it, and rows."""
    document = tomllib.loads((FOLDER / "device.toml").read_text(encoding="utf-8"))
    names = [document["name"], *(neighbour.partition("@")[0] for neighbour in document["join"])]
    init_fleet(tmp_path / "fleet")
    bundles = dict(zip(names, add_devices(tmp_path / "fleet", names), strict=True))
    folder = tmp_path / "device"
    folder.mkdir()
    shutil.copy(FOLDER / "device.toml", folder)
    shutil.copy(tmp_path / "fleet" / "roster.json", folder)
    shutil.copy(bundles[document["name"]], folder)
    (folder / "rows.csv").write_text("reading,kwh,volt\n7,1.5,230\n8,2.5,231\n", encoding="utf-8")
    return folder


def test_a_device_with_its_keys_takes_the_configuration(device: Path) -> None:
    config = load_config(device / "device.toml", {})
    assert config["name"] == "meter-01"
    assert sorted(config["join"]) == ["meter-02", "meter-03"]
    bundle = load_bundle(config["bundle"])
    assert config["name"] in newest_roster(bundle, config["bundle"], config.get("roster")).names
    assert not (device / "state").exists()  # checking starts nothing


@pytest.mark.parametrize("module", ["prometheus_client", "zeroconf"])
def test_it_starts_where_no_extra_is_installed(
    device: Path, cli: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *more: None if name == module else find(name, *more))
    assert cli("peer", "--config", device / "device.toml", "--check") == (0, "")
    extra = {"prometheus_client": "metrics=127.0.0.1:9100", "zeroconf": "mdns=true"}[module]
    code, complaint = cli("peer", "--config", device / "device.toml", "--set", extra, "--check")
    assert code == 2
    assert f"needs {module}: pip install 'p2pclust[" in complaint


TEXT = (FOLDER / "device.toml").read_text(encoding="utf-8")
SHOWN = re.findall(r"^# ([a-z_]+ = .+)$", TEXT, re.MULTILINE)
"""What may be said instead, or besides."""


def test_the_configuration_explains_every_key() -> None:
    keys = {field.alias or name for name, field in PeerConfig.model_fields.items()}
    shown = {key for line in SHOWN for key in tomllib.loads(line)}
    assert set(tomllib.loads(TEXT)) | shown == keys
    lines = TEXT.splitlines()
    for number, line in enumerate(lines):
        if line and not line.startswith("#"):
            above = lines[number - 1]
            together = above.partition(" = ")[0] in keys and lines[number - 2].startswith("#")
            assert above.startswith("#") or together, f"peers/device.toml: nothing is said about {line}"


@pytest.mark.parametrize("line", SHOWN, ids=lambda line: line.split()[0])
def test_what_is_shown_as_a_comment_can_be_said(device: Path, line: str) -> None:
    (key,) = tomllib.loads(line)
    instead = {"schema": "columns"}.get(key, key)
    others = [other for other in TEXT.splitlines() if not other.startswith(f"{instead} = ")]
    text = "\n".join([*others, line]).replace("meter-07", "meter-03").replace("cpus = [2, 3]", "cpus = [0]")
    (device / "device.toml").write_text(text, encoding="utf-8")
    (device / "ring.edges").write_text("meter-01 meter-02\nmeter-02 meter-03\nmeter-03 meter-01\n", encoding="utf-8")
    (device / "schema.toml").write_text(Schema((Column("kwh", "number"), Column("volt", "number"))).to_toml())
    (device / "read-meter").write_text("#!/bin/sh\necho kwh,volt\necho 1.5,230\n", encoding="utf-8")
    (device / "read-meter").chmod(0o755)
    config = load_config(device / "device.toml", {}, try_command=True)
    assert key in config


def test_every_file_is_known_here() -> None:
    there = [
        "Containerfile",
        "README.md",
        "compose.yaml",
        "container.toml",
        "device.toml",
        "fleet.toml",
        "kubernetes.yaml",
        "monitoring",
    ]
    # Those that are not of one device are checked in test_deployment.py and test_monitoring.py.
    assert sorted(file.name for file in FOLDER.iterdir()) == [*there, "p2pclust-peer@.service", "p2pclust.sysusers"]
