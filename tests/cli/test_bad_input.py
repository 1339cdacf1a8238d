"""What cannot be meant is refused as a new user would meet it: one line, exit 2, no traceback, nothing left behind."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from p2pclust.protocols.engine.registry import CLUSTERING

from .conftest import Cli

JOB = '[[jobs]]\nprotocol = "llf-fcm"\nclusters = 2\n'
FILES = '[data]\nfiles = ["a.csv", "b.csv"]\n[fleet]\npeers = 2\n'
IRIS = '[data]\nsource = "iris"\n[fleet]\npeers = 3\n'
GOOD = "w,h\n1,2\n3,4\n5,6\n"

CASES = {
    "a missing scenario": ({}, "s.toml: no such file"),
    "a missing data file": ({"s.toml": FILES + JOB, "a.csv": GOOD}, "peer-02: b.csv: no such file"),
    "a NaN": (
        {"s.toml": FILES + JOB, "a.csv": GOOD, "b.csv": "w,h\n1,2\nnan,4\n"},
        "peer-02: b.csv: row 3, column 1 (w): 'nan' means a missing value: fill it in or leave the row out, as",
    ),
    "an empty peer": (
        {"s.toml": FILES + JOB, "a.csv": GOOD, "b.csv": "w,h\n"},
        "peer-02: b.csv: no rows below the header: expected at least one",
    ),
    "peers with different columns": (
        {"s.toml": FILES + JOB, "a.csv": GOOD, "b.csv": "w\n1\n"},
        "peer-02: b.csv: 1 features, but a.csv of peer-01 has 2: all peers need the same columns",
    ),
    "an unknown protocol": (
        {"s.toml": IRIS + JOB.replace("llf-fcm", "llf-fmc")},
        "s.toml: [jobs.0]: protocol = \"llf-fmc\": unknown protocol; did you mean 'llf-fcm'? known are "
        + ", ".join(CLUSTERING),
    ),
    "more clusters than points": (
        {"s.toml": IRIS + JOB.replace("2", "151")},
        "[jobs.0]: clusters = 151: expected at most the 150 rows of data",
    ),
    "a misspelt key": (
        {"s.toml": IRIS + JOB + "fuzifier = 1.5\n"},
        "s.toml: [jobs.0]: unknown key 'fuzifier' (did you mean 'fuzzifier'?)",
    ),
    "an unknown data set": (
        {"s.toml": IRIS.replace("iris", "iriss") + JOB},
        "unknown data set 'iriss' (did you mean 'iris'?)",
    ),
    "an output directory that is a file": (
        {"s.toml": IRIS + JOB, "out": ""},
        "output directory out: cannot be written",
    ),
}


@pytest.mark.parametrize(("files", "line"), CASES.values(), ids=CASES)
def test_refused(cli: Cli, tmp_path: Path, files: dict[str, str], line: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    ended = cli("run", "s.toml", "--backend", "in-process", "--out", "out")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"error: {line}")
    assert ended.err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(files)


@pytest.mark.slow
def test_refused_by_a_real_process(real_cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(IRIS + JOB + "clusers = 3\n", encoding="utf-8")
    ended = real_cli("run", "s.toml")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == "error: s.toml: [jobs.0]: unknown key 'clusers' (did you mean 'clusters'?)\n"


def test_several_errors_are_a_line_each(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(IRIS + JOB + "tol = -1\nmax_rounds = 0\n", encoding="utf-8")
    ended = cli("run", "s.toml")
    assert ended.code == 2
    assert [line.split(": ")[0] for line in ended.err.splitlines()] == ["error", "error"]


def test_what_a_backend_cannot_do(cli: Cli, tmp_path: Path) -> None:
    fault = '[[faults]]\nat = { seconds = 1 }\ndo = "kill"\nwho = "peer-01"\n'
    (tmp_path / "s.toml").write_text(IRIS + JOB + fault, encoding="utf-8")
    ended = cli("run", "s.toml", "--backend", "in-process")
    assert ended.code == 2
    assert ended.err.startswith("error: a run in one process excludes [[faults]]: it has no peers that can fail")


@pytest.mark.parametrize("protocol", ["fedcref", "uifca"])
def test_torch_is_missed_before_anything_starts(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "torch" else find(name))
    clusters = "clusters = 2\n" if protocol == "uifca" else ""
    (tmp_path / "s.toml").write_text(IRIS + f'[[jobs]]\nprotocol = "{protocol}"\n{clusters}', encoding="utf-8")
    ended = cli("run", "s.toml", "--out", "out")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == (f"error: {protocol} needs torch, which is not installed: pip install 'p2pclust[models]'\n")
    assert not (tmp_path / "out").exists()
