from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Cli

from p2pclust.transport.bundle import load_bundle, load_roster, newest_roster
from p2pclust.transport.key_files import is_sealed
from p2pclust.transport.roster import OPERATOR, fingerprint

pytestmark = pytest.mark.usefixtures("quick_passphrases")


@pytest.fixture(autouse=True)
def passphrase(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no terminal to ask for it."""
    monkeypatch.setenv("P2PCLUST_PASSPHRASE", "open sesame please")


def test_a_fleet_and_its_devices(cli: Cli, tmp_path: Path) -> None:
    ended = cli("keys", "init", "f")
    assert (ended.code, ended.out) == (0, "")
    assert "f/fleet.key" in ended.err
    assert is_sealed(tmp_path / "f" / "fleet.key")
    ended = cli("keys", "device", "meter-01", "meter-02", "--fleet", "f")
    assert (ended.code, ended.out) == (0, "")
    assert "copy f/meter-02.bundle to it" in ended.err
    assert "does the fleet run?" not in ended.err
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
        (("device", "A b", "--fleet", "f"), "is invalid"),
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
    assert cli("keys", "init", "f").code == 0
    assert cli("keys", "device", "a", "--fleet", "f").code == 0
    monkeypatch.setenv("P2PCLUST_PASSPHRASE", "open barley please")
    ended = cli("keys", "device", "b", "--fleet", "f")
    assert ended.code == 2
    assert "passphrase is wrong" in ended.err
    monkeypatch.delenv("P2PCLUST_PASSPHRASE")
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    ended = cli("keys", "device", "b", "--fleet", "f")
    assert ended.code == 2
    assert "set P2PCLUST_PASSPHRASE" in ended.err


def test_a_key_without_a_passphrase_has_to_be_wanted(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("P2PCLUST_PASSPHRASE")
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    ended = cli("keys", "init", "f")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "set P2PCLUST_PASSPHRASE, or type --no-passphrase" in ended.err
    assert not (tmp_path / "f").exists()
    assert cli("keys", "init", "f", "--no-passphrase").code == 0
    assert not is_sealed(tmp_path / "f" / "fleet.key")
    assert cli("keys", "device", "a", "--fleet", "f").code == 0


def test_a_short_passphrase_makes_no_fleet(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("P2PCLUST_PASSPHRASE", "open sesame")
    ended = cli("keys", "init", "f")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "the passphrase has 11 characters: choose one of at least 12" in ended.err
    assert not (tmp_path / "f" / "fleet.key").exists()


@pytest.mark.slow
def test_a_fleet_changes(cli: Cli, tmp_path: Path) -> None:
    """Revoked, renewed, enrolled by request, and shown."""
    fleet = tmp_path / "f"
    cli("keys", "init", "f")
    cli("keys", "device", "a", "b", "--fleet", "f")
    before = load_bundle(fleet / "a.bundle")
    ended = cli("keys", "device", "laptop", "--operator", "--expires", "2030-01-31", "--fleet", "f")
    assert "if the fleet is running, `p2pclust keys publish --fleet f" in ended.err
    ended = cli("keys", "revoke", "b", "--fleet", "f")
    assert "revoked b; roster 3 lists 2" in ended.err
    assert not (fleet / "b.bundle").exists()
    ended = cli("keys", "rotate", "a", "--fleet", "f")
    assert "copy f/a.bundle to it, and start its peer again" in ended.err
    after = load_bundle(fleet / "a.bundle")
    assert after.curve_public != before.curve_public
    shown = json.loads(cli("keys", "show", "f", "--json").out)
    assert (shown["serial"], [row["name"] for row in shown["devices"]]) == (4, ["a", "laptop"])
    assert shown["devices"][1]["role"] == "operator"
    assert shown["devices"][1]["expires"] == "2030-01-31"
    assert shown["public_key"] == after.fleet_public.hex()
    ended = cli("keys", "request", "c", "--fleet-key", shown["public_key"], "--dir", "device")
    print_on_device = ended.err.split("fingerprint ")[1][:19]
    ended = cli("keys", "enroll", "device/c.request", "--fleet", "f")
    assert f"enrolled c, fingerprint {print_on_device}" in ended.err
    roster = load_roster(fleet / "roster.json", after.fleet_public)
    assert roster.names == ("a", "c")
    assert [peer.name for peer in roster.peers if peer.role == OPERATOR] == ["laptop"]
    bundle = load_bundle(tmp_path / "device" / "c.bundle")
    assert newest_roster(bundle, "c.bundle", fleet / "roster.json").curve_key("c") == bundle.curve_public
    lines = cli("keys", "show", "f").out.splitlines()
    assert lines[1].split() == ["name", "role", "fingerprint", "expires"]
    assert lines[2].split() == ["a", "peer", fingerprint(after.curve_public), "never"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("revoke", "x", "--fleet", "f"), "'x' is not on the roster of f"),
        (("rotate", "x", "--fleet", "f"), "'x' is not on the roster of f"),
        (("device", "x", "--expires", "31.1.2027", "--fleet", "f"), "'31.1.2027' is not a day"),
        (("enroll", "a.request", "--fleet", "f"), "does not exist"),
        (("request", "x", "--fleet-key", "12"), "'12' is not a fleet's public key"),
        (("show", "g"), "does not exist"),
    ],
)
def test_refusals_of_changes(cli: Cli, tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    cli("keys", "init", "f")
    cli("keys", "device", "a", "--fleet", "f")
    before = {path.name: path.read_bytes() for path in (tmp_path / "f").iterdir()}
    ended = cli("keys", *arguments)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert words in ended.err
    assert {path.name: path.read_bytes() for path in (tmp_path / "f").iterdir()} == before


def test_a_request_that_was_changed_enrols_nobody(cli: Cli, tmp_path: Path) -> None:
    cli("keys", "init", "f")
    public = (tmp_path / "f" / "fleet.pub").read_text().strip()
    cli("keys", "request", "c", "--fleet-key", public)
    cli("keys", "request", "d", "--fleet-key", public)
    document = json.loads((tmp_path / "c.request").read_text())
    document["name"] = "e"
    (tmp_path / "c.request").write_text(json.dumps(document))
    ended = cli("keys", "enroll", "d.request", "c.request", "--fleet", "f")
    assert ended.code == 2
    assert "was changed on its way" in ended.err
    assert json.loads(cli("keys", "show", "f", "--json").out)["devices"] == []
    assert cli("keys", "request", "d", "--fleet-key", public).code == 2  # its keys are not thrown away


def test_the_command_that_publishes_a_roster_can_be_pasted(cli: Cli) -> None:
    cli("keys", "init", "our fleet")
    cli("keys", "device", "a", "--fleet", "our fleet")
    ended = cli("keys", "device", "b", "--fleet", "our fleet")
    assert "`p2pclust keys publish --fleet 'our fleet' --peer ADDRESS`" in ended.err
