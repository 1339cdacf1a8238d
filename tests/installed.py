"""An environment with an installed distribution, far from the checkout: what a person meets after ``pip install`` alone.

Nothing is downloaded: the environment gets the distribution, and links to what it requires, which is installed here.
"""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PARTS = ("p2pclust", "scenarios", "topology", "device", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in")


@dataclass(frozen=True)
class Installed:
    """An environment, and an empty folder beside it."""

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

    @property
    def packages(self) -> Path:
        """The folder of its packages."""
        (found,) = (self.environment / "lib").glob("python3*/site-packages")
        return found


Found = dict[str, importlib.metadata.Distribution]


def required(lines: Iterable[str], found: Found | None = None) -> Found:
    """Collect what these requirements name, without extras, and what that requires."""
    found = {} if found is None else found
    for line in lines:
        requirement = Requirement(line)
        key = requirement.name.lower().replace("_", "-")
        if key not in found and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            found[key] = importlib.metadata.distribution(requirement.name)
            required(found[key].requires or (), found)
    return found


def link(distribution: importlib.metadata.Distribution, packages: Path) -> list[Path]:
    """Link what a distribution has installed here into another environment."""
    tops = {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}
    for top in sorted(tops):
        (packages / top).symlink_to(Path(str(distribution.locate_file(top))))
    return [packages / top for top in sorted(tops)]


def environment(home: Path, requirements: Collection[str]) -> Installed:
    """Make an environment that has what these requirements name; its `pip` is that of the tests."""
    made = Installed(home / "environment", home / "empty")
    made.folder.mkdir(parents=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", made.environment], check=True)
    pip = made.environment / "bin" / "pip"
    pip.write_text(f'#!/bin/sh\nexec {sys.executable} -m pip --python {made.environment}/bin/python "$@"\n')
    pip.chmod(0o755)
    for distribution in required(requirements).values():
        link(distribution, made.packages)
    return made


def checkout(home: Path) -> Path:
    """Copy the parts of the checkout that a distribution is built from."""
    copied = home / "checkout"
    copied.mkdir(parents=True)
    leave = shutil.ignore_patterns("__pycache__", "build", "*.egg-info", "*.so")
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, copied / part, symlinks=True, ignore=leave)
        else:
            shutil.copy(ROOT / part, copied)
    return copied
