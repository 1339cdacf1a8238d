"""The wheel and the source distribution, installed where neither the checkout nor any extra is."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import re
import shlex
import shutil
import socket
import tomllib
import zipfile
from pathlib import Path

import pytest
import typer
from packaging.version import Version
from tests.command_reference import commands
from tests.installed import ROOT, Installed, checkout, environment, link

from p2pclust import __version__
from p2pclust.cli.app import app

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DEPENDENCIES = PROJECT["dependencies"]
OLDEST_SETUPTOOLS = "77"

pytestmark = [pytest.mark.slow, pytest.mark.processes, pytest.mark.xdist_group("wheel")]

NOT_IN_AN_EMPTY_FOLDER = {
    "a fleet that runs": ["status", "peers", "submit", "jobs", "watch", "result", "assign", "cancel"],
    "a file of one's own": ["peer", "keys enroll", "init"],
    "a fleet's key": ["keys request", "keys publish"],
    "an inventory": [
        "fleet",
        *(f"fleet {verb}" for verb in ["up", "down", "status", "logs", "restart", "stop", "fault"]),
    ],
    "a network": ["data fetch"],
    "half a minute": ["topology sweep"],
    "run by other tests": ["demo"],
}
"""What the first example of a command needs beyond an installed p2pclust. All others are run."""


ONE_AFTER_THE_OTHER = """
import json, pathlib, sys
from p2pclust import __version__
from p2pclust.cli.app import app
for words in json.loads(pathlib.Path("typed.json").read_text()):
    try:
        app(words)
    except SystemExit as ended:
        if ended.code:
            sys.exit(f"{words} ended with {ended.code}")
"""
"""In one process: a new one for each command would take most of the time."""


def first_examples() -> dict[str, str]:
    """By command, the first line of the examples in its help."""
    found = {}
    for name, command in commands("p2pclust", typer.main.get_command(app)):
        _, _, below = (command.help or "").partition("\b\nExample")
        found[name.removeprefix("p2pclust").strip()] = below.splitlines()[1].strip()
    return found


def install_lines() -> list[str]:
    """Return the lines of the section *Install* that want a checkout."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Install\n")[2].partition("\n## ")[0]
    blocks = re.findall(
        r"^<!-- not run: tests/test_wheel.py [^\n]*\n```console\n(.*?)^```", section, re.MULTILINE | re.DOTALL
    )
    return [line.removeprefix("$ ") for block in blocks for line in block.splitlines() if line.startswith("$ ")]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """What the README's lines make, from a copy of the checkout that is not there any more."""
    if Version(importlib.metadata.version("setuptools")) < Version(OLDEST_SETUPTOOLS):
        pytest.skip(f"an older setuptools is here: pip install 'setuptools>={OLDEST_SETUPTOOLS}'")
    home = tmp_path_factory.mktemp("wheel")
    source = checkout(home)
    made = environment(home, DEPENDENCIES)
    builders = link(importlib.metadata.distribution("setuptools"), made.packages)
    first, *lines = install_lines()
    assert first == "python3 -m venv .venv && source .venv/bin/activate"
    for line in lines:
        if line.startswith("pip install dist/"):
            assert made.sh("pip uninstall --yes p2pclust").returncode == 0
        done = made.sh(line, source)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    for link_ in builders:
        link_.unlink()
    (wheel,) = (source / "dist").iterdir()
    wheel.rename(home / wheel.name)
    shutil.rmtree(source)
    return made


def test_it_runs_without_the_checkout_and_without_extras(installed: Installed) -> None:
    assert installed.sh("p2pclust --version").stdout == f"p2pclust {__version__}\n"
    where = installed.sh("python -c 'import p2pclust; print(p2pclust.__file__)'").stdout
    assert where.startswith(f"{installed.environment}{os.sep}")
    assert installed.sh("python -c 'import matplotlib'").returncode == 1


def test_its_metadata_and_licence(installed: Installed) -> None:
    (wheel,) = installed.folder.parent.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith("/METADATA"))
        (licence,) = (name for name in names if name.endswith("/LICENSE"))
        told = archive.read(metadata).decode()
        page = {
            "index.html",
            "live.css",
            "live.js",
            "drawings.js",
            "uPlot.iife.min.js",
            "uPlot.min.css",
            "uPlot.LICENSE",
        }
        assert {f"p2pclust/lab/live/static/{name}" for name in page} <= set(names)
        assert archive.read(licence) == (ROOT / "LICENSE").read_bytes()
    for line in ("License-Expression: Apache-2.0", "Author: The p2pclust authors", "Requires-Python: >=3.11"):
        assert line in told.splitlines()
    assert "Keywords: " in told
    assert not [name for name in names if name.startswith(("scenarios/", "topology/", "tests/"))]


def test_the_licence_is_the_whole_apache_licence() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert text.split()[:6] == ["Apache", "License", "Version", "2.0,", "January", "2004"]
    for number in range(1, 10):
        assert re.search(rf"^   {number}\. [A-Z]", text, re.MULTILINE), number
    assert "END OF TERMS AND CONDITIONS" in text
    assert re.search(r"^   Copyright \d{4} The p2pclust authors$", text, re.MULTILINE)


def test_the_first_example_of_the_help_runs_in_an_empty_folder(installed: Installed) -> None:
    helped = installed.sh("p2pclust --help").stdout
    example = helped.partition("Example:\n")[2].splitlines()[0].strip()
    assert example.startswith("p2pclust ")
    done = installed.sh(example)
    assert done.returncode == 0, done.stdout + done.stderr
    (report,) = installed.folder.glob("runs/*/report.html")
    assert report.read_text(encoding="utf-8").count('<svg class="drawing"') > 12, "pictures need no Matplotlib"


def test_so_does_the_first_example_of_every_command_that_needs_no_more(installed: Installed) -> None:
    examples = first_examples()
    needy = [name for names in NOT_IN_AN_EMPTY_FOLDER.values() for name in names]
    assert set(needy) <= set(examples)
    lines = dict.fromkeys(line for name, line in examples.items() if name not in needy)
    lines.pop(examples[""])  # see above
    results = [["run", "iris-kmeans", "--out", directory] for directory in ("runs/one", "runs/other")]
    typed = [*results, *(shlex.split(line)[1:] for line in lines)]  # `compare` has two results
    quick = {"run": ["--backend", "simulated"], "simulate": ["--seeds", "0:2"]}
    (installed.folder / "typed.json").write_text(json.dumps([[*words, *quick.get(words[0], ())] for words in typed]))
    done = installed.sh(f"python -c {shlex.quote(ONE_AFTER_THE_OTHER)}")
    assert done.returncode == 0, done.stdout + done.stderr


def test_installed_sweeps_are_listed_by_name(installed: Installed) -> None:
    listed = installed.sh("p2pclust topology sweep").stdout
    (name,) = shlex.split(first_examples()["topology sweep"])[3:]
    assert re.search(rf"^{name} ", listed, re.MULTILINE)
    assert not (installed.folder / "runs" / f"sweep-{name}").exists()


def test_the_examples_in_python_of_the_readme(installed: Installed) -> None:
    shutil.copy(ROOT / "README.md", installed.folder)
    done = installed.sh("python -m doctest README.md")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_readme_names_every_extra() -> None:
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Install\n")[2].partition("\n## ")[0]
    named = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert sorted(named) == sorted(set(PROJECT["optional-dependencies"]) - {"dev", "benchmarks", "docs", "mutants"})


def free_ports(count: int) -> int:
    """Return the first of so many ports in a row that are free now."""
    for first in range(20000 + os.getpid() % 1000 * 10, 32000, count):
        with contextlib.ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return first
    raise AssertionError("no free ports")


def test_the_demo_says_where_its_report_is(installed: Installed) -> None:
    done = installed.sh("p2pclust demo --out demo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("Eight peers with at most three digits each")
    report = installed.folder / "demo" / "report.html"
    assert done.stderr.splitlines()[-2] == f"open the report in a browser: {report.as_uri()}"
    assert "<h1" in report.read_text(encoding="utf-8")


def test_estimators_with_peers_of_their_own(installed: Installed) -> None:
    code = (
        "import numpy as np; from p2pclust import LosslessCMeans; rng = np.random.default_rng(0)\n"
        "peers = [rng.normal(3 * n, 0.3, size=(40, 2)) for n in range(3)]\n"
        "fit = lambda fleet: LosslessCMeans(3, random_state=0, fleet=fleet).fit(peers).cluster_centers_\n"
        "print(np.array_equal(fit(None), fit('processes')))"
    )
    done = installed.sh(f"python -c {shlex.quote(code)}")
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_from_a_file_of_ones_own_to_a_fleet_of_three_and_a_report(installed: Installed) -> None:
    """The commands that `init` prints are typed as they stand."""
    lines = ["reading,site,kwh,volt,mode"]
    for row in range(90):
        kwh = "" if row % 30 == 7 else f"{(row % 2) * 40 + row % 7}.5"
        lines.append(f"{row},{'abc'[row % 3]},{kwh},{220 + (row % 2) * 20},{'on' if row % 2 else 'off'}")
    (installed.folder / "meters.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    done = installed.sh(f"p2pclust init meters.csv --port {free_ports(3)} --json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["devices"] == {"a": 30, "b": 30, "c": 30}
    assert (told["features"], told["id_column"], told["clusters"]) == (["kwh", "volt"], "reading", 2)
    *begin, down = told["next"]
    try:
        for line in begin:
            done = installed.sh(line)
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        assert (installed.folder / "meters" / "run" / "report.html").exists()
    finally:
        ended = installed.sh(down)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_source_distribution_installs_the_same(installed: Installed, tmp_path: Path) -> None:
    source = checkout(tmp_path)
    other = environment(tmp_path / "other", DEPENDENCIES)
    builders = link(importlib.metadata.distribution("setuptools"), other.packages)
    build = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    done = other.sh(f"python -c {shlex.quote(build)} {tmp_path}", source)
    assert done.returncode == 0, done.stderr
    shutil.rmtree(source)
    (archive,) = tmp_path.glob("*.tar.gz")
    done = other.sh(f"pip install {archive}")
    assert done.returncode == 0, done.stdout + done.stderr
    for path in builders:
        path.unlink()
    assert _contents(other) == _contents(installed)
    done = other.sh("p2pclust run iris-kmeans --backend simulated --out run && p2pclust examples copy rice-mill mine")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {file.name for file in (other.folder / "mine").iterdir()} == {"rice-mill.toml", "rice-mill.adj"}


def _contents(made: Installed) -> dict[str, bytes]:
    """Return the files of the installed package by name; the kernels, which a compiler made, without content."""
    package = made.packages / "p2pclust"
    return {
        str(file.relative_to(package)): b"" if file.suffix == ".so" else file.read_bytes()
        for file in package.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
