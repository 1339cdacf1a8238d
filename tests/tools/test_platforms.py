"""What a system without fork, Unix sockets and Unix signals sees: Windows, as far as it can be imitated here."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "platforms.md"

#: Imported before anything is removed: what Python and the libraries themselves have for the other system. Each command runs
#: in a fork of the process that has imported all this, and then the package: the imports take seconds.
IMITATION = """
import asyncio, concurrent.futures.process, ctypes, http.server, logging.handlers, multiprocessing.popen_spawn_posix
import os, platform, selectors, shutil, signal, socket, subprocess, sys, tarfile, tempfile, zipfile
import cryptography.hazmat.primitives.serialization, jinja2, networkx, numpy, platformdirs, pydantic
import rich.live, rich.progress
import scipy.optimize, scipy.sparse.csgraph, scipy.stats, sklearn.base, sklearn.datasets, sklearn.utils.validation
import json, threadpoolctl, typer, zmq
fork = os.fork
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
import p2pclust.lab.commands.run
command = typer.main.get_command(app)
for line in sys.stdin:
    asked = json.loads(line)
    child = fork()
    if not child:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()
os.chdir(asked["folder"])
for number, file in enumerate((os.devnull, asked["out"], asked["err"])):
    os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), number)
command(asked["words"], prog_name="p2pclust")
"""

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("platforms")]


class Ended(NamedTuple):
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


Typed = Callable[..., Ended]


@pytest.fixture(scope="module")
def windows() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", IMITATION], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process


@pytest.fixture
def typed(windows: subprocess.Popen[str], tmp_path_factory: pytest.TempPathFactory) -> Typed:
    """Run a command in a folder, in a process of its own."""

    def call(folder: Path, *words: str) -> Ended:
        said = tmp_path_factory.mktemp("said")
        out, err = said / "out", said / "err"
        assert windows.stdin is not None
        assert windows.stdout is not None
        asked = {"folder": str(folder), "out": str(out), "err": str(err), "words": words}
        print(json.dumps(asked), file=windows.stdin, flush=True)
        code = int(windows.stdout.readline())
        return Ended(code, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8"))

    return call


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
def test_what_cannot_work_is_refused_in_one_line(
    typed: Typed, tmp_path: Path, words: list[str], what: str, instead: str
) -> None:
    done = typed(tmp_path, *words)
    line = f"error: {what} needs Linux or macOS, and this is Windows: {instead}\n"
    assert done == (2, "", line)


def test_a_fleet_on_this_machine_is_refused_in_one_line(typed: Typed, tmp_path: Path) -> None:
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
def test_what_needs_no_peers_works(typed: Typed, tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n" + "\n".join(f"{row % 7},{row % 2}" for row in range(20)) + "\n")
    done = typed(tmp_path, *words)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_doctor_says_so(typed: Typed, tmp_path: Path) -> None:
    done = typed(tmp_path, "doctor", "--json")
    assert done.returncode == 1, done.stderr
    (system,) = (check for check in json.loads(done.stdout)["checks"] if check["what"] == "system")
    assert system["found"].startswith("Windows on ")
    assert not system["ok"]


def test_the_page_has_all_systems() -> None:
    table = PAGE.read_text(encoding="utf-8")
    head, *_ = re.findall(r"^\| +\| (.*) \|$", table, re.MULTILINE)
    assert head.split(" | ") == ["Linux, 64 bits", "Linux, 32-bit ARM", "macOS", "Windows"]
