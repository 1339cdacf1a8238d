from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Cli

pytestmark = pytest.mark.slow

MIXING = """
title = "Two overlays"
measure = "mixing"
[grid]
overlay = ["ring", "star"]
peers = [4, 6]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "two.toml"
    path.write_text(MIXING, encoding="utf-8")
    return path


def test_a_sweep(cli: Cli, file: Path, tmp_path: Path) -> None:
    ended = cli("topology", "sweep", file, "--workers", 1, "--json")
    assert ended.code == 0
    told = json.loads(ended.out)
    assert (told["title"], told["measure"], told["cells"], told["run"], told["kept"]) == (
        "Two overlays",
        "mixing",
        4,
        4,
        0,
    )
    assert all((tmp_path / name).is_file() for name in told["files"])
    assert (tmp_path / "runs" / "sweep-two" / "report.html").is_file()
    lines = ended.err.splitlines()
    assert lines[0].startswith("1/4  ring, 4 peers, push-sum, seed 0: ")
    assert "Two overlays: 4 cells run in" in lines[4]
    again = cli("topology", "sweep", file, "--workers", 1, "--no-report")
    assert again.err.splitlines()[0] == "4 of 4 cells are finished already"


def test_the_page_needs_nothing_beside_it(cli: Cli, file: Path, tmp_path: Path) -> None:
    assert cli("topology", "sweep", file, "--workers", 1, "--out", "here").code == 0
    page = (tmp_path / "here" / "report.html").read_text(encoding="utf-8")
    assert "<h1>Two overlays</h1>" in page
    assert page.count('<svg class="drawing"') == 3 + 2  # three plots, two overlays
    assert all(word not in page for word in ("http:", "https:", "<script src", "src=\"plots"))  # fmt: skip
    assert page.count("<tr>") == (1 + 4) * 2 + 1 + 17
    again = (tmp_path / "here" / "plots" / "ticks-by-diameter.svg").read_bytes()
    assert cli("topology", "sweep", file, "--workers", 1, "--out", "here").code == 0
    assert (tmp_path / "here" / "plots" / "ticks-by-diameter.svg").read_bytes() == again


def test_fleets_that_cannot_finish(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "lossy.toml"
    path.write_text(
        'title = "Hopeless"\n[grid]\noverlay = "ring"\npeers = 5\nloss = 0.95\n'
        '[data]\nsource = "iris"\n[job]\nclusters = 3\n',
        encoding="utf-8",
    )
    ended = cli("topology", "sweep", path, "--workers", 1, "--no-report")
    assert ended.code == 3
    assert "error: 1 of 1 fleets could not finish: see the column outcome of" in ended.err
    assert ",unlinked," in (tmp_path / "runs" / "sweep-lossy" / "table.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            ("--workers", 2, "--scheduler", "tcp://a:1"),
            "--workers is for this machine, --scheduler has its own workers",
        ),
        (("--workers", 0), "workers"),
        (("--out", "two.toml/x"), "output directory two.toml/x: cannot be written"),
    ],
)
def test_refused(cli: Cli, file: Path, options: tuple[object, ...], expected: str) -> None:
    ended = cli("topology", "sweep", file, *options)
    assert ended.code == 2
    (line,) = ended.err.splitlines()
    assert expected in line


def test_no_such_file(cli: Cli) -> None:
    ended = cli("topology", "sweep", "absent.toml")
    assert (ended.code, ended.err) == (2, "error: absent.toml: no such file\n")


def test_without_matplotlib_there_is_a_table_and_a_line_that_says_so(
    cli: Cli, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("p2pclust.lab.pictures.canvas.can_draw", lambda: False)
    ended = cli("topology", "sweep", file, "--workers", 1)
    assert ended.code == 0
    assert "no plots and no report.html: they need Matplotlib: pip install 'p2pclust[plots]'" in ended.err
    assert (tmp_path / "runs" / "sweep-two" / "table.csv").is_file()
    refused = cli("topology", "sweep", file, "--workers", 1, "--report")
    assert (refused.code, refused.err) == (
        2,
        "error: plots need Matplotlib: pip install 'p2pclust[plots]', or add --no-report\n",
    )
