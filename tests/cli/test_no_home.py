"""A user without a home folder, as services and containers have: no HOME, and no entry for the user."""

from __future__ import annotations

import json
import pwd
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Cli

from p2pclust.data.registry import available, load
from p2pclust.errors import UsageError
from p2pclust.hosts.inventory import Host
from p2pclust.tools.files import expanded


@pytest.fixture(autouse=True)
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(user: object) -> None:
        raise KeyError(f"getpwuid(): uid not found: {user}")

    for name in ("HOME", "P2PCLUST_DATA", "XDG_CACHE_HOME", "USERPROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", absent)
    monkeypatch.setattr(pwd, "getpwnam", absent)


def test_the_sets_that_are_shipped_are_there(cli: Cli) -> None:
    done = cli("data", "list")
    assert done.code == 0, done.err
    assert "iris" in done.out
    assert "no folder (this user has no home folder: set P2PCLUST_DATA to a folder for data sets)" in done.out
    assert load("iris").n_rows == 150
    assert "iris" in available()
    told = json.loads(cli("data", "list", "--json").out)
    assert [item["here"] for item in told["data"] if item["name"] == "iris"] == ["built in"]


def test_what_needs_the_folder_says_how_to_name_one(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = cli("data", "fetch", "s1")
    assert (done.code, done.err) == (
        2,
        "error: this user has no home folder: set P2PCLUST_DATA to a folder for data sets\n",
    )
    with pytest.raises(
        UsageError, match=r"NAME\.npz .* from no folder \(this user has no home folder: set P2PCLUST_DATA"
    ):
        load("mine")
    monkeypatch.setenv("P2PCLUST_DATA", str(tmp_path))
    np.savez(tmp_path / "mine.npz", X=np.zeros((3, 2)))
    assert load("mine").n_rows == 3


@pytest.mark.parametrize("path", ["~/rows.csv", "~nobody-here/rows.csv", "~"])
def test_a_path_from_the_home_folder_is_refused_in_one_line(cli: Cli, tmp_path: Path, path: str) -> None:
    with pytest.raises(UsageError, match=f"^{path}: there is no home folder for ~: write the whole path, or set HOME$"):
        expanded(path)
    scenario = f'[data]\nfiles = ["{path}"]\n[fleet]\npeers = 1\n[[jobs]]\nprotocol = "llf-cm"\nclusters = 2\n'
    (tmp_path / "s.toml").write_text(scenario, encoding="utf-8")
    done = cli("run", "s.toml", "--out", "o")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "there is no home folder for ~" in done.err
    assert Host("far", "far", "python3", path).state_dir == path, "the other host has its own"
