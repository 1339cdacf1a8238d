"""`p2pclust fleet` through SSH: a real sshd of our own, on loopback, with keys and settings in a temporary folder."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs import peers_alive, processes_alive, until
from tests.throwaway import throwaway_fleet

from p2pclust.lab.testbed.processes.children import ReservedPorts, write_fleet

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")

pytestmark = [
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.xdist_group("sshd"),  # one after the other: who takes /run/sshd away again would take it from all
    pytest.mark.skipif(
        SSHD is None or shutil.which("ssh") is None,
        reason="no sshd here: apt-get install openssh-server openssh-client",
    ),
]

LAST = '[[devices]]\nname = "meter-1"\nport = 7099\ndata = "meter-1.csv"\n'
ROOT = Path(__file__).parents[2]
NAMES = [f"meter-{number}" for number in range(1, 6)]


@dataclass(frozen=True)
class Door:
    """Where the sshd listens, and the settings by which ssh gets in."""

    port: int
    config: Path


@pytest.fixture
def sshd(home: Path) -> Iterator[Door]:
    """An sshd of the present user, which lets in one key that was made for it."""
    assert SSHD is not None
    folder = home / "ssh"
    folder.mkdir(mode=0o700)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    ports = ReservedPorts(1)
    port = ports.numbers[0]
    user = pwd.getpwuid(os.getuid()).pw_name
    settings = {
        "ListenAddress": f"127.0.0.1:{port}", "HostKey": folder / "host", "AuthorizedKeysFile": folder / "user.pub",
        "PidFile": "none", "StrictModes": "no", "UsePAM": "no", "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no", "PermitRootLogin": "yes", "AllowUsers": user,
    }  # fmt: skip
    (folder / "sshd_config").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {(folder / 'host.pub').read_text()}")
    here = {
        "IdentityFile": folder / "user", "IdentitiesOnly": "yes", "UserKnownHostsFile": folder / "known_hosts",
        "StrictHostKeyChecking": "yes", "User": user, "IdentityAgent": "none",
    }  # fmt: skip
    (folder / "config").write_text("Host *\n" + "".join(f"  {key} {value}\n" for key, value in here.items()))
    made = _privilege_separation()
    with (folder / "log").open("wb") as log:
        command = [SSHD, "-D", "-e", "-f", folder / "sshd_config"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log)
    try:
        until(lambda: _answers(port) or process.poll() is not None)
        if process.poll() is not None:
            pytest.skip(f"sshd does not run here: {(folder / 'log').read_text().strip()}")
        yield Door(port, folder / "config")
    finally:
        process.terminate()
        process.wait(10)
        ports.release()
        if made is not None:
            with contextlib.suppress(OSError):
                made.rmdir()


def _privilege_separation() -> Path | None:
    """The empty folder without which an sshd of root does not start; whoever starts the system's makes it, too."""
    folder = Path("/run/sshd")
    if os.getuid() or folder.exists():
        return None
    folder.mkdir(mode=0o755)
    return folder


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


@dataclass
class FleetOf:
    """An inventory, and the command line on it."""

    inventory: Path

    def do(self, verb: str, *options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "p2pclust", "fleet", verb, str(self.inventory), *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)

    def peers(self) -> dict[str, Any]:
        answer = json.loads(self.do("status", "--json").stdout)
        assert answer["errors"] == {}
        found: dict[str, Any] = answer["peers"]
        return found


@pytest.fixture
def fleet(home: Path, sshd: Door) -> Iterator[FleetOf]:
    """Five devices on one host that is reached by SSH, their rows and keys here."""
    write_fleet(home / "keys", *throwaway_fleet(NAMES))
    ports = ReservedPorts(len(NAMES))
    far = home / "far end"  # a folder whose name wants quoting
    lines = [
        'keys = "keys"', f"state_dir = {json.dumps(str(far))}", f"python = {json.dumps(sys.executable)}",
        'timing = "fast"', "[ssh]", f"port = {sshd.port}", 'config = "ssh/config"', 'options = ["ServerAliveInterval=5"]',
        "[hosts.gateway]", 'ssh = "127.0.0.1"', 'address = "127.0.0.1"',
        f'environment = {{ PYTHONPATH = {json.dumps(str(ROOT))}, OMP_NUM_THREADS = "1" }}',
    ]  # fmt: skip
    rng = np.random.default_rng(0)
    for name, port in zip(NAMES, ports.numbers, strict=True):
        np.savetxt(home / f"{name}.csv", rng.normal(size=(20, 2)), delimiter=",", header="x,y", comments="")
        entry = {"name": name, "host": "gateway", "class": "meter", "data": f"{name}.csv"}
        lines += ["[[devices]]", *(f"{key} = {json.dumps(value)}" for key, value in entry.items())]
        lines += ["send = true", f"port = {port}"]
    (home / "fleet.toml").write_text("\n".join(lines) + "\n")
    made = FleetOf(home / "fleet.toml")
    yield made
    made.do("down", "--deadline", "0")
    ports.release()


@pytest.mark.timeout(240)
def test_five_peers_start_one_is_killed_and_comes_back_and_nothing_is_left(fleet: FleetOf, home: Path) -> None:
    up = fleet.do("up", "--wait", "60")
    assert up.returncode == 0, up.stderr
    assert sorted(up.stdout.splitlines()) == [f"{name} on gateway: started" for name in NAMES]
    before = fleet.peers()
    assert [(peer["status"], peer["restarts"]) for peer in before.values()] == [("running", 0)] * 5
    assert peers_alive(home) == {peer["pid"] for peer in before.values()}
    _only_their_owner_reads_keys(home / "far end")

    # A second time changes nothing.
    again = fleet.do("up")
    assert sorted(again.stdout.splitlines()) == [f"{name} on gateway: unchanged" for name in NAMES]
    assert peers_alive(home) == {peer["pid"] for peer in before.values()}
    assert fleet.do("fault", "meter-3", "kill").stdout == "meter-3 on gateway: killed: its supervisor starts it again\n"
    try:
        until(lambda: _known(home, "meter-3") == ("running", 1), 60.0)
    except AssertionError as error:
        raise AssertionError(
            (home / "far end" / "state.json").read_text() + fleet.do("logs", "meter-3").stdout
        ) from error
    after = fleet.peers()
    assert (after["meter-3"]["restarts"], after["meter-3"]["ended"]) == (1, "killed by SIGKILL")
    assert [name for name in NAMES if after[name]["pid"] != before[name]["pid"]] == ["meter-3"]
    paused = json.loads(fleet.do("fault", "meter-2", "pause", "--json").stdout)["peers"]["meter-2"]
    assert (paused["status"], paused["pid"]) == ("paused", after["meter-2"]["pid"])
    stopped = fleet.do("stop", "meter-2", "meter-4")  # also one that stands still
    assert stopped.returncode == 0, stopped.stderr
    assert [_known(home, name) for name in ("meter-2", "meter-4")] == [("stopped", 0)] * 2
    assert fleet.do("stop", "meter-4").stderr == "error: meter-4: is stopped already\n"
    lives = [line for line in fleet.do("logs", "meter-3", "--lines", "99").stdout.splitlines() if " started " in line]
    assert len(lives) == 2

    down = fleet.do("down")
    assert (down.returncode, down.stdout) == (0, "gateway: 5 peers have left\n")
    until(lambda: processes_alive(home) == {} or list(processes_alive(home).values()) == ["log"])  # sshd's own
    told = fleet.do("status", "--json")
    assert told.returncode == 3
    assert {peer["status"] for peer in json.loads(told.stdout)["peers"].values()} == {"left"}
    ports = [json.loads(file.read_text())["listen"] for file in (home / "far end").rglob("peer.json")]
    assert len(ports) == 5
    assert not any(_answers(int(place.rpartition(":")[2])) for place in ports)


def _known(home: Path, name: str) -> tuple[str, int]:
    """What the supervisor there knows of a peer: looked at from here, since each question through SSH takes a second."""
    peer = json.loads((home / "far end" / "state.json").read_text())["peers"][name]
    return peer["status"], peer["restarts"]


def _only_their_owner_reads_keys(folder: Path) -> None:
    secrets = sorted(folder.glob("peers/*/*.bundle"))
    assert [file.stem for file in secrets] == NAMES
    for path in (folder, folder / "peers", *secrets):
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_host_that_cannot_be_reached_is_one_line_and_stops_no_other(fleet: FleetOf, home: Path) -> None:
    text = fleet.inventory.read_text()
    four_elsewhere = text.replace('host = "gateway"', 'host = "elsewhere"', 4)
    far = '[hosts.elsewhere]\nssh = "127.0.0.1"\nport = 9\naddress = "127.0.0.1"\n'
    fleet.inventory.write_text(four_elsewhere + far)
    up = fleet.do("up", "--wait", "0")
    assert up.returncode == 3
    (line,) = up.stderr.splitlines()
    assert line.startswith("error: elsewhere: ssh 127.0.0.1 failed: ")
    assert "Connection refused" in line
    assert up.stdout.splitlines() == ["meter-5 on gateway: started; not ready yet"]
    status = json.loads(fleet.do("status", "--json").stdout)
    assert [peer["status"] for peer in status["peers"].values()] == ["unreachable"] * 4 + ["starting"]

    # So is one where p2pclust is not installed.
    bare = home / "python-without-it"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    fleet.inventory.write_text(text.replace(json.dumps(sys.executable), json.dumps(str(bare))))
    refused = fleet.do("status")
    assert refused.returncode == 3
    assert "cannot run p2pclust there" in refused.stderr

    # A host that is no longer in the inventory is remembered: its peers are told to leave.
    fleet.inventory.write_text(f'keys = "keys"\nstate_dir = "near"\n{LAST}')
    gone = fleet.do("up", "--wait", "0", "--json")
    changes = {host: told["changes"] for host, told in json.loads(gone.stdout)["hosts"].items()}
    assert (changes["gateway"], changes["local"]) == ({"removed": ["meter-5"]}, {"new": ["meter-1"]})
    errors = json.loads(gone.stdout)["errors"]
    assert list(errors) == ["elsewhere"]
    assert errors["elsewhere"].endswith("(no longer in the inventory: if it is gone for good, --forget elsewhere)")
    assert "expected one of elsewhere" in fleet.do("up", "--wait", "0", "--forget", "nowhere").stderr
    again = fleet.do("up", "--wait", "0", "--forget", "elsewhere")
    assert again.stdout.startswith("meter-1 on local: unchanged")
    until(lambda: not processes_alive(home / "far end"))
