"""The wheel, installed where neither the checkout nor any extra is: what a person meets after ``pip install`` alone.

Nothing is downloaded: the environment is given the wheel, and links to what it requires, which is installed here.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
from packaging.requirements import Requirement
from packaging.version import Version

from p2pclust.cli.app import app
from p2pclust.cli.reference import commands

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PARTS = ("p2pclust", "scenarios", "topology", "pyproject.toml", "README.md", "LICENSE")
OLDEST_SETUPTOOLS = "77"

pytestmark = [pytest.mark.slow, pytest.mark.processes, pytest.mark.xdist_group("wheel")]

NOT_IN_AN_EMPTY_FOLDER = {
    "a fleet that runs": ["status", "peers", "submit", "jobs", "watch", "result", "assign", "cancel"],
    "a file of one's own": ["peer", "keys enroll"],
    "a fleet's key": ["keys request", "keys publish"],
    "an inventory": [
        "fleet",
        *(f"fleet {verb}" for verb in ["up", "down", "status", "logs", "restart", "stop", "fault"]),
    ],
    "a network": ["data fetch"],
    "half a minute": ["topology sweep"],
}
"""What the first example of a command needs beyond an installed p2pclust. All others are run."""


ONE_AFTER_THE_OTHER = """
import json, pathlib, sys
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


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel and its requirements, and an empty folder."""

    environment: Path
    folder: Path

    def sh(self, line: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Type a line where the environment is active, by default in the empty folder."""
        return subprocess.run(
            ["/bin/sh", "-c", line], cwd=folder or self.folder, capture_output=True, text=True, timeout=100, check=False,
            env={
                "PATH": f"{self.environment / 'bin'}:/usr/bin:/bin", "HOME": str(self.folder), "LANG": "C.UTF-8",
                "P2PCLUST_PASSPHRASE": "asked for where there is a terminal", "OMP_NUM_THREADS": "1",
                # What is there must do: nothing is downloaded. (So is it said in pip's words: "no isolation: no".)
                "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1",
                "PIP_NO_COMPILE": "1",
            },
        )  # fmt: skip


Found = dict[str, importlib.metadata.Distribution]


def required(name: str, found: Found) -> Found:
    """Collect what a distribution requires without its extras, and what that requires."""
    for line in importlib.metadata.requires(name) or ():
        requirement = Requirement(line)
        key = requirement.name.lower().replace("_", "-")
        if key not in found and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            found[key] = importlib.metadata.distribution(requirement.name)
            required(requirement.name, found)
    return found


def link(distribution: importlib.metadata.Distribution, packages: Path) -> list[Path]:
    """Link what a distribution has installed here into another environment."""
    tops = {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}
    for top in sorted(tops):
        (packages / top).symlink_to(Path(str(distribution.locate_file(top))))
    return [packages / top for top in sorted(tops)]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """What the README's lines make, from a copy of the checkout that is not there any more."""
    if Version(importlib.metadata.version("setuptools")) < Version(OLDEST_SETUPTOOLS):
        pytest.skip(f"an older setuptools is here: pip install 'setuptools>={OLDEST_SETUPTOOLS}'")
    home = tmp_path_factory.mktemp("wheel")
    checkout, environment, folder = home / "checkout", home / "environment", home / "empty"
    checkout.mkdir()
    folder.mkdir()
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, checkout / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / part, checkout)
    made = Installed(environment, folder)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    pip = environment / "bin" / "pip"
    pip.write_text(f'#!/bin/sh\nexec {sys.executable} -m pip --python {environment}/bin/python "$@"\n')
    pip.chmod(0o755)
    (packages,) = (environment / "lib").glob("python3*/site-packages")
    for distribution in required("p2pclust", {}).values():
        link(distribution, packages)
    builders = link(importlib.metadata.distribution("setuptools"), packages)
    first, *lines = install_lines()
    assert first == "python3 -m venv .venv && source .venv/bin/activate"
    for line in lines:
        if line.startswith("pip install dist/"):
            assert made.sh("pip uninstall --yes p2pclust").returncode == 0
        done = made.sh(line, checkout)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    for link_ in builders:
        link_.unlink()
    (wheel,) = (checkout / "dist").iterdir()
    wheel.rename(home / wheel.name)
    shutil.rmtree(checkout)
    return made


def test_it_runs_without_the_checkout_and_without_extras(installed: Installed) -> None:
    assert installed.sh("p2pclust --version").stdout == f"p2pclust {PROJECT['version']}\n"
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
    assert len(list(installed.folder.glob("runs/*/result.json"))) == 1
    assert "pip install 'p2pclust[plots]'" in done.stdout  # no pictures, and how to have some


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
