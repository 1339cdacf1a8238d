from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import ROOT, Cli

from p2pclust.lab.scenario.file.load import load_scenario
from p2pclust.lab.sweep.spec import load_sweep

SCENARIOS = sorted(file.stem for file in (ROOT / "scenarios").glob("*.toml"))
UNKNOWN = "no installed example of this name (did you mean 'quickstart'?): p2pclust examples list shows all"
SWEEPS = sorted(file.stem for file in (ROOT / "topology").glob("*.toml"))


def test_all_are_listed_once(cli: Cli) -> None:
    told = json.loads(cli("examples", "list", "--json").out)["examples"]
    assert sorted((one["kind"], one["name"]) for one in told) == sorted(
        [("scenario", name) for name in SCENARIOS] + [("sweep", name) for name in SWEEPS]
    )
    assert set(SCENARIOS).isdisjoint(SWEEPS)
    assert "quickstart " in cli("examples", "list").out


@pytest.mark.parametrize("name", SCENARIOS + SWEEPS)
def test_a_copy_loads_where_the_checkout_is_not(cli: Cli, tmp_path: Path, name: str) -> None:
    done = cli("examples", "copy", name, "mine")
    assert (done.code, done.out) == (0, "")
    copy = tmp_path / "mine" / f"{name}.toml"
    if name in SCENARIOS:
        assert f"run it: p2pclust run mine/{name}.toml" in done.err
        scenario = load_scenario(copy)
        files = [scenario.fleet.overlay.path, scenario.fleet.overlay.trace, scenario.fleet.availability]
        assert all(Path(file).is_file() for file in files if file is not None)
    else:
        assert f"run it: p2pclust topology sweep mine/{name}.toml" in done.err
        load_sweep(copy)


def test_the_current_folder_is_the_default(cli: Cli, tmp_path: Path) -> None:
    told = json.loads(cli("examples", "copy", "quickstart", "--json").out)
    assert told == {"files": ["quickstart.toml"], "next": "p2pclust run ./quickstart.toml"}
    assert (tmp_path / "quickstart.toml").read_bytes() == (ROOT / "scenarios" / "quickstart.toml").read_bytes()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["quickstrat"], f"quickstrat: {UNKNOWN}"),
        (["../quickstart"], f"../quickstart: {UNKNOWN}"),
        (["rice-mill", "here"], "here/rice-mill.adj: it exists: choose another folder"),
        (["rice-mill", "file"], "file: cannot be written (File exists): choose another folder"),
    ],
    ids=["misspelt", "path", "not replaced", "not a folder"],
)  # fmt: skip
def test_refused_in_one_line(cli: Cli, tmp_path: Path, words: list[str], line: str) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "rice-mill.adj").write_text("a b\n")
    (tmp_path / "file").write_text("")
    done = cli("examples", "copy", *words)
    assert (done.code, done.err) == (2, f"error: {line}\n")
    assert not (tmp_path / "here" / "rice-mill.toml").exists()
