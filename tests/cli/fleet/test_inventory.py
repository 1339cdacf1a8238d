"""The inventory: what it may say, what is refused and how, and what each host is sent."""

from __future__ import annotations

import io
import json
import tarfile
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.throwaway import throwaway_fleet

from p2pclust.cli.fleet.inventory import load_inventory
from p2pclust.errors import UsageError
from p2pclust.hosts.inventory import Inventory, pack, peer_toml, print_of
from p2pclust.hosts.remote import command_for
from p2pclust.lab.testbed.processes.children import write_fleet
from p2pclust.transport.keys import add_devices, init_fleet, revoke

HEAD = 'keys = "fleet"\nstate_dir = "there"\n'
A = '[[devices]]\nname = "a"\nport = 7001\ndata = "a.csv"\n'
B = '[[devices]]\nname = "b"\nport = 7002\ndata = "b.csv"\n'

COMMAND = "{ command = ['cat', 'a.csv'], format = 'csv' }"

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write an inventory beside the keys and rows of a and b."""
    write_fleet(tmp_path / "fleet", *throwaway_fleet(["a", "b"]))
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("x,y\n1,2\n")

    def inventory(text: str) -> Path:
        (tmp_path / "fleet.toml").write_text(text)
        return tmp_path / "fleet.toml"

    return inventory


def test_local_devices(write: Write, tmp_path: Path) -> None:
    loaded = load_inventory(write(HEAD + A + B))
    a, b = loaded.devices
    assert a.config["listen"] == "127.0.0.1:7001"
    assert a.config["join"] == ("b@127.0.0.1:7002",)
    assert b.config["join"] == ("a@127.0.0.1:7001",)
    assert a.config["data"] == str(tmp_path / "a.csv")
    assert a.files == {"a.bundle": tmp_path / "fleet" / "a.bundle"}
    assert loaded.hosts["local"].state_dir == str(tmp_path / "there")
    assert loaded.on("local") == (a, b)


def test_rows_may_be_what_a_command_on_the_host_writes(write: Write) -> None:
    a, _ = load_inventory(write(HEAD + A.replace('"a.csv"', COMMAND) + B)).devices
    assert a.config["data"] == {"command": ["cat", "a.csv"], "format": "csv"}
    assert tomllib.loads(peer_toml(a.config))["data"] == a.config["data"]


def test_settings_of_the_fleet_the_class_and_the_device(write: Write) -> None:
    text = HEAD + 'settings = { missing_values = "drop", fitness = 0.1 }\n' + A + 'class = "m"\n' + B + 'class = "m"\n'
    text += "settings = { fitness = 0.9 }\n[classes.m]\nsettings = { fitness = 0.5 }\n"
    a, b = load_inventory(write(text)).devices
    assert (a.config["missing_values"], a.config["fitness"], a.group) == ("drop", 0.5, "m")
    assert (b.config["missing_values"], b.config["fitness"]) == ("drop", 0.9)


def test_a_host_that_is_not_listed_is_reached_by_its_name(write: Write, tmp_path: Path) -> None:
    text = HEAD + A + 'host = "pi@10.0.0.7"\nsend = true\n' + B + 'host = "far"\nsend = true\n'
    text += '[ssh]\nconfig = "ssh_config"\nport = 2200\noptions = ["Compression=yes"]\n'
    text += '[hosts.far]\nssh = "root@far.example"\nport = 22\naddress = "10.0.0.8"\nstate_dir = "/var/lib/fleet"\n'
    text += 'python = "/opt/python"\nenvironment = { A_B = "1 2" }\n'
    loaded = load_inventory(write(text))
    assert [device.config["listen"] for device in loaded.devices] == ["10.0.0.7:7001", "10.0.0.8:7002"]
    assert loaded.devices[0].config["data"] == "rows.csv"
    assert loaded.devices[0].files["rows.csv"] == tmp_path / "a.csv"
    near = command_for(loaded.hosts["pi@10.0.0.7"], "status")
    assert near[:6] == ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-T"]
    assert near[6:12] == ["-F", str(tmp_path / "ssh_config"), "-p", "2200", "-o", "Compression=yes"]
    assert near[12:] == ["--", "pi@10.0.0.7", "exec python3 -m p2pclust.hosts.host status there"]
    far = command_for(loaded.hosts["far"], "down", ["--deadline", "3"])
    assert far[8:10] == ["-p", "22"]
    line = "exec env 'A_B=1 2' /opt/python -m p2pclust.hosts.host down /var/lib/fleet --deadline 3"
    assert far[-2:] == ["root@far.example", line]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('state_dir = "x"\n' + A, "key 'keys' is missing"),
        (HEAD, "key 'devices' is missing"),
        (HEAD + "devices = []", "devices = []: expected at least one"),
        (HEAD + 'device = "x"\n' + A, "unknown key 'device' (did you mean 'devices'?)"),
        (HEAD + A + A, "[[devices]]: the name 'a' is given 2 times"),
        (HEAD + A + B.replace("7002", "7001"), "a, b all listen on 127.0.0.1:7001: give each a port of its own"),
        (HEAD + A.replace("port = 7001", ""), "[devices.0]: expected either listen = HOST:PORT or port"),
        (HEAD + A + 'listen = "h:1"', "[devices.0]: expected either listen = HOST:PORT or port"),
        (HEAD + A.replace("port = 7001", 'listen = "7001"'), 'a: listen = "7001": expected HOST:PORT'),
        (HEAD + A + "settings = { fitnes = 1.0 }", "unknown key 'fitnes'"),
        (HEAD + A + "settings = { fitness = 2.0 }", "a: fitness = 2.0: expected at most 1"),
        (HEAD + A + 'settings = { timing = "wan" }', "timing is not a setting"),
        (HEAD + A + 'host = "far"', "a: data = 'a.csv': expected its full path on far, or send = true"),
        (HEAD + A + 'host = "-oProxyCommand=x"\nsend = true', "ssh = '-oProxyCommand=x': expected USER@HOST"),
        (HEAD + A + '[hosts.local]\nssh = "x"', "[hosts.local]: ssh = 'x': local is this machine"),
        (HEAD + A + '[hosts.local]\nenvironment = { "A B" = "x" }', "expected names of letters, digits"),
        (HEAD + A + "[hosts.local]\nprot = 1", "[hosts.local]: unknown key 'prot' (did you mean 'port'?)"),
        (HEAD + A + "[overlay]\ntrace = 'x'\nkind = 'ring'", "trace"),
        (HEAD + A + "[overlay]\nkind = 'rng'", "overlay: unknown kind 'rng' (did you mean 'ring'?)"),
        (HEAD + A.replace('"a.csv"', COMMAND) + "send = true", "send is for files"),
        (HEAD + A + 'class = "x"\n[classes.y]\n', "a: [classes.x] does not exist: expected one of y"),
        (HEAD + A.replace('"a"', '"c"'), "not on fleet roster 2: c. Revoked devices: remove them"),
        (HEAD.replace('"fleet"', '"none"') + A, "none`, then `p2pclust keys device a --fleet /"),
        (HEAD + A.replace("a.csv", "absent.csv") + "send = true", "absent.csv is not a file"),
    ],
)
def test_refusals(write: Write, text: str, line: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_inventory(write(text))
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_who_is_only_looked_at_needs_no_keys_here(write: Write) -> None:
    assert load_inventory(write(HEAD + A.replace('"a"', '"c"')), to_start=False).devices[0].name == "c"


def test_an_overlay_names_each_peers_neighbours_and_an_added_device_changes_theirs_only(
    write: Write, tmp_path: Path
) -> None:
    names = ["a", "b", "c", "d", "e"]
    write_fleet(tmp_path / "fleet", *throwaway_fleet(names))
    entries = [A.replace('"a"', f'"{name}"').replace("7001", f"700{number}") for number, name in enumerate(names)]
    line = "overlay = { kind = 'line' }\n"
    before = load_inventory(write(HEAD + line + "".join(entries[:4])))
    assert [device.config["links"] for device in before.devices] == [("b",), ("a", "c"), ("b", "d"), ("c",)]
    assert before.devices[0].config["join"] == ("b@127.0.0.1:7001",)
    after = load_inventory(write(HEAD + line + "".join(entries)))
    assert [name for name in names[:4] if prints(after)[name] != prints(before)[name]] == ["d"]


def prints(loaded: Inventory) -> dict[str, str]:
    return {device.name: print_of(device, loaded.hosts[device.host]) for device in loaded.devices}


def test_only_a_changed_entry_has_another_print(write: Write, tmp_path: Path) -> None:
    before = prints(load_inventory(write(HEAD + A + B)))
    assert prints(load_inventory(write(HEAD + A + B))) == before
    changed = prints(load_inventory(write(HEAD + A + B.replace("7002", "7003"))))
    assert changed["b"] != before["b"]
    assert changed["a"] == before["a"], "it hears of the other's new address from the other itself"
    sent = HEAD + A + "send = true\n" + B
    first = prints(load_inventory(write(sent)))
    assert first["a"] != before["a"]
    (tmp_path / "a.csv").write_text("x,y\n3,4\n")
    second = prints(load_inventory(write(sent)))
    assert second["a"] != first["a"]
    assert second["b"] == first["b"]


def test_what_a_host_is_sent(write: Write) -> None:
    loaded = load_inventory(write(HEAD + A + "send = true\n" + B + "send = true\n"))
    stream = io.BytesIO()
    pack(stream, loaded, prints(loaded), ["b"])
    stream.seek(0)
    with tarfile.open(fileobj=stream) as archive:
        modes = {member.name: member.mode for member in archive}
        assert list(modes)[-1] == "plan.json"
        assert modes == {
            "roster.json": 0o644,
            "peers/a/peer.toml": 0o600,
            "peers/a/a.bundle": 0o600,  # its rows have not changed
            "peers/b/peer.toml": 0o600,
            "peers/b/b.bundle": 0o600,
            "peers/b/rows.csv": 0o600,
            "plan.json": 0o600,
        }
        sent = json.loads(archive.extractfile("plan.json").read())  # type: ignore[union-attr]
        config = tomllib.loads(archive.extractfile("peers/a/peer.toml").read().decode())  # type: ignore[union-attr]
    assert sent["peers"]["a"]["command"] == ["-m", "p2pclust", "peer", "--config", "peers/a/peer.toml"]
    assert config["roster"] == "../../roster.json"
    assert config["bundle"] == "a.bundle"


def test_a_configuration_is_written_so_that_toml_reads_it_back() -> None:
    values = {"a": 'quote " and \\ and \x7f and \n', "b": [1, 2.5, True, "x"], "c": {"k 1": "v"}, "d": 1e300}
    assert tomllib.loads(peer_toml(values)) == values


def test_a_revoked_device_is_said_to_be_none_of_the_fleet(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Enrolling it again is not what an operator wants who has just revoked it."""
    inventory = write(HEAD.replace('"fleet"', '"our fleet"') + A + B)
    init_fleet(tmp_path / "our fleet")
    add_devices(tmp_path / "our fleet", ["a", "b"])
    load_inventory(inventory)
    revoke(tmp_path / "our fleet", ["b"])
    with pytest.raises(UsageError, match=r"not on fleet roster 2: b. Revoked devices: remove them from the inventory"):
        load_inventory(inventory)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"New ones: `p2pclust keys device b --fleet 'our fleet'`$"):
        load_inventory(inventory)
    assert [device.name for device in load_inventory(write(inventory.read_text().replace(B, ""))).devices] == ["a"]


def test_a_device_whose_bundle_is_elsewhere_is_not_taken_for_a_revoked_one(tmp_path: Path, write: Write) -> None:
    inventory = write(HEAD + A + B)
    (tmp_path / "fleet" / "b.bundle").rename(tmp_path / "b.bundle")
    with pytest.raises(UsageError, match=r"no keys in .*fleet for b: make them with .*, or copy the bundles here"):
        load_inventory(inventory)
