"""Every scenario in the folder ends as its README says: in virtual time, with its faults and expectations."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from p2pclust.data.catalogue import find

from .conftest import Cli
from .stories import FOLDER, STORIES, absent

FILES = sorted(FOLDER.glob("**/*.toml"))
#: These are run by `make long`, and by `make scenarios` on real processes.
LONG = ("gossip-ring", "mobile-swarm", "thousand-sensors")


def ends_as_told(file: Path, cli: Cli, *overrides: str) -> None:
    if why := absent(file):
        pytest.skip(why)
    ended = cli("run", file, "--backend", "simulated", "--out", "out", *overrides)
    assert ended.code == STORIES[file.stem].ends, ended.out[-2000:] + ended.err
    if ended.code == 0:
        assert " NO " not in ended.out


def test_each_is_told_of() -> None:
    told = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [file.stem for file in FILES] == sorted(STORIES)
    assert [file.name for file in FILES if f"`{file.name}`" not in told] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_its_row_says_what_it_needs(file: Path) -> None:
    document = tomllib.loads(file.read_text(encoding="utf-8"))
    entry = find(document["data"].get("source", ""))
    rows = (FOLDER / "README.md").read_text(encoding="utf-8").splitlines()
    (row,) = (row for row in rows if row.startswith(f"| `{file.name}` |"))
    assert re.findall(r"`p2pclust data fetch (\w+)`", row) == ([] if entry is None else [entry.name])
    assert ("Needs torch" in row) == any(job["protocol"] in ("fedcref", "uifca") for job in document["jobs"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "file", [pytest.param(file, id=file.stem, marks=[pytest.mark.long] * (file.stem in LONG)) for file in FILES]
)
def test_ends_as_its_readme_says(file: Path, cli: Cli) -> None:
    ends_as_told(file, cli, *STORIES[file.stem].short)


@pytest.mark.soak
@pytest.mark.timeout(900)  # a thousand simulated sensors take some minutes of one core
@pytest.mark.parametrize("file", [file for file in FILES if STORIES[file.stem].short], ids=lambda file: file.stem)
def test_in_full(file: Path, cli: Cli) -> None:
    ends_as_told(file, cli)
