"""Every file in `peers/` is what it claims to be: the annotated configuration is one that a peer takes."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest

from p2pclust.cli.peer_config import PeerConfig, load_config
from p2pclust.transport.keys import add_device, init_fleet, load_bundle, load_roster

FOLDER = Path(__file__).parents[1] / "peers"


@pytest.fixture
def device(tmp_path: Path) -> Path:
    """A folder as `device.toml` wants it: the file, the keys of a fleet made for it, and rows."""
    document = tomllib.loads((FOLDER / "device.toml").read_text(encoding="utf-8"))
    names = [document["name"], *(neighbour.partition("@")[0] for neighbour in document["join"])]
    init_fleet(tmp_path / "fleet")
    bundles = {name: add_device(tmp_path / "fleet", name) for name in names}
    folder = tmp_path / "device"
    folder.mkdir()
    shutil.copy(FOLDER / "device.toml", folder)
    shutil.copy(tmp_path / "fleet" / "roster.json", folder)
    shutil.copy(bundles[document["name"]], folder)
    (folder / "rows.csv").write_text("kwh,volt\n1.5,230\n2.5,231\n", encoding="utf-8")
    return folder


def test_a_device_with_its_keys_takes_the_configuration(device: Path) -> None:
    config = load_config(device / "device.toml", {})
    assert config["name"] == "meter-01"
    assert sorted(config["join"]) == ["meter-02", "meter-03"]
    assert config["roster"] == str(device / "roster.json")
    bundle = load_bundle(config["bundle"])
    assert config["name"] in load_roster(config["roster"], bundle.fleet_public).names
    assert not (device / "state").exists()  # checking starts nothing


def test_the_configuration_explains_every_key() -> None:
    text = (FOLDER / "device.toml").read_text(encoding="utf-8")
    assert sorted(tomllib.loads(text)) == sorted(PeerConfig.model_fields)
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if line and not line.startswith("#"):
            assert lines[number - 1].startswith("#"), f"peers/device.toml: nothing is said about {line}"


def test_every_file_is_known_here() -> None:
    assert sorted(file.name for file in FOLDER.iterdir()) == ["README.md", "device.toml"]
