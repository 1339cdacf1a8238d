"""What a system without fork, Unix sockets and Unix signals sees: Windows, as far as it can be imitated here."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "platforms.md"

#: Imported before anything is removed: what Python and the libraries themselves have for the other system.
IMITATION = """
import asyncio, concurrent.futures.process, ctypes, http.server, logging.handlers, multiprocessing.popen_spawn_posix
import os, platform, selectors, shutil, signal, socket, subprocess, sys, tarfile, tempfile, zipfile
import cryptography.hazmat.primitives.serialization, jinja2, networkx, numpy, platformdirs, pydantic
import rich.live, rich.progress
import scipy.optimize, scipy.sparse.csgraph, scipy.stats, sklearn.base, sklearn.datasets, sklearn.utils.validation
import threadpoolctl, typer, zmq
for name in ("fcntl", "resource", "pwd", "grp", "termios", "pty"):
    sys.modules[name] = None
for module, names in {
    os: "fork fchmod killpg getuid geteuid O_DIRECTORY O_NOFOLLOW sched_getaffinity sched_setaffinity setpriority mkfifo",
    signal: "SIGHUP SIGKILL SIGSTOP SIGCONT SIGCHLD",
    socket: "AF_UNIX recv_fds",
}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
platform.system = lambda: "Windows"
from p2pclust.cli.app import app
from p2pclust.lab.pictures import canvas
canvas.can_draw = lambda: False
app(sys.argv[1:], prog_name="p2pclust")
"""

pytestmark = pytest.mark.slow


def typed(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", IMITATION, *words], cwd=folder, capture_output=True, text=True, timeout=100, check=False
    )


FORKS = ", whose peers are forks of one process,"


@pytest.mark.parametrize(
    ("words", "what", "instead"),
    [
        (["run", "iris-kmeans"], f"backend processes{FORKS}", "choose simulated, which has the same bits, or in-process"),
        (
            ["run", "iris-kmeans", "--backend", "namespaces"], f"backend namespaces{FORKS}",
            "choose simulated, which has the same bits, or in-process",
        ),
        (["peer", "--name", "a"], "p2pclust peer", "run it in WSL, in a container or on another device"),
        (["status"], "the control socket state/control", "name a control address, --peer NAME@HOST:PORT"),
    ],
    ids=["processes", "namespaces", "peer", "status"],
)  # fmt: skip
def test_what_cannot_work_is_refused_in_one_line(tmp_path: Path, words: list[str], what: str, instead: str) -> None:
    done = typed(tmp_path, *words)
    line = f"error: {what} needs Linux or macOS, and this is Windows: {instead}\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", line)


def test_a_fleet_on_this_machine_is_refused_in_one_line(tmp_path: Path) -> None:
    for words in (("keys", "init", "keys", "--no-passphrase"), ("keys", "device", "a", "--fleet", "keys")):
        done = typed(tmp_path, *words)
        assert done.returncode == 0, done.stderr
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    (tmp_path / "fleet.toml").write_text(
        'keys = "keys"\nstate_dir = "s"\n[[devices]]\nname = "a"\nport = 7001\ndata = "rows.csv"\n'
    )
    done = typed(tmp_path, "fleet", "up", "fleet.toml", "--json")
    assert "a fleet on this machine needs Linux or macOS, and this is Windows" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["--help"], ["demo", "--out", "demo"], ["run", "iris-kmeans", "--backend", "simulated", "--out", "run"],
        ["choose", "iris-kmeans", "--clusters", "1-3", "--restarts", "1"], ["init", "rows.csv", "--clusters", "2"],
        ["data", "split", "iris", "--peers", "2", "--out", "parts"], ["topology", "show", "ring", "--peers", "5"],
        ["examples", "copy", "rice-mill"], ["protocols"],
    ],
    ids=lambda words: " ".join(words[:2]),
)  # fmt: skip
def test_what_needs_no_peers_works(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n" + "\n".join(f"{row % 7},{row % 2}" for row in range(20)) + "\n")
    done = typed(tmp_path, *words)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_doctor_says_so(tmp_path: Path) -> None:
    done = typed(tmp_path, "doctor", "--json")
    assert done.returncode == 1, done.stderr
    (system,) = (check for check in json.loads(done.stdout)["checks"] if check["what"] == "system")
    assert system["found"].startswith("Windows on ")
    assert not system["ok"]


def test_the_page_has_all_systems() -> None:
    table = PAGE.read_text(encoding="utf-8")
    head, *_ = re.findall(r"^\| +\| (.*) \|$", table, re.MULTILINE)
    assert head.split(" | ") == ["Linux, 64 bits", "Linux, 32-bit ARM", "macOS", "Windows"]
