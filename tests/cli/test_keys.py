from __future__ import annotations

from pathlib import Path

import pytest

from p2pclust.transport.keys import load_bundle, load_roster

from .conftest import Cli


def test_a_fleet_and_its_devices(cli: Cli, tmp_path: Path) -> None:
    ended = cli("keys", "init", "f")
    assert (ended.code, ended.out) == (0, "")
    assert "f/fleet.key" in ended.err
    ended = cli("keys", "device", "meter-01", "meter-02", "--fleet", "f")
    assert (ended.code, ended.out) == (0, "")
    assert "copy f/meter-02.bundle and f/roster.json" in ended.err
    bundle = load_bundle(tmp_path / "f" / "meter-02.bundle")
    assert load_roster(tmp_path / "f" / "roster.json", bundle.fleet_public).names == ("meter-01", "meter-02")
    assert bundle.curve_secret.decode() not in ended.err


def test_brackets_in_names_are_no_markup(cli: Cli) -> None:
    assert "[bold]f/fleet.key" in cli("keys", "init", "[bold]f").err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("init", "f"), "already holds a fleet"),
        (("device", "a", "--fleet", "g"), "does not exist"),
        (("device", "A b", "--fleet", "f"), "cannot be used"),
        (("device", "a", "a", "--fleet", "f"), "is taken"),
    ],
)
def test_refusals(cli: Cli, arguments: tuple[str, ...], words: str) -> None:
    assert cli("keys", "init", "f").code == 0
    ended = cli("keys", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.splitlines()[-1].startswith("error: ")
    assert words in ended.err
    assert "Traceback" not in ended.err


def test_one_wrong_name_enrols_nobody(cli: Cli, tmp_path: Path) -> None:
    cli("keys", "init", "f")
    assert cli("keys", "device", "good", "not good", "--fleet", "f").code == 2
    assert not (tmp_path / "f" / "good.bundle").exists()


def test_an_encrypted_key_needs_its_passphrase(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("P2PCLUST_PASSPHRASE", "open sesame")
    assert cli("keys", "init", "f", "--encrypt").code == 0
    assert b"ENCRYPTED" in (tmp_path / "f" / "fleet.key").read_bytes()
    assert cli("keys", "device", "a", "--fleet", "f").code == 0
    monkeypatch.setenv("P2PCLUST_PASSPHRASE", "open barley")
    ended = cli("keys", "device", "b", "--fleet", "f")
    assert ended.code == 2
    assert "passphrase is wrong" in ended.err
    monkeypatch.delenv("P2PCLUST_PASSPHRASE")
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    ended = cli("keys", "device", "b", "--fleet", "f")
    assert ended.code == 2
    assert "set P2PCLUST_PASSPHRASE" in ended.err
