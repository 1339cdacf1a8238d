"""The page "Begin with your own file" says what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import ROOT, Cli

PAGE = (ROOT / "docs" / "own-file.md").read_text(encoding="utf-8")


@pytest.fixture
def meters(tmp_path: Path) -> None:
    """The file that the page makes."""
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


def blocks() -> list[str]:
    return re.findall(r"^<!-- not run: tests/cli/lab/[^\n]*\n```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.filterwarnings("default")
def test_its_commands(cli: Cli, meters: None, tmp_path: Path) -> None:
    commands = [line for block in blocks() for line in block.splitlines() if line.startswith("$ p2pclust ")]
    assert len(commands) == 3
    for command in commands:
        done = cli(*command.split()[2:])
        assert done.code == 0, done.err
    assert (tmp_path / "meters" / "run" / "report.html").exists()


def test_its_output(cli: Cli, meters: None) -> None:
    shown = [line.rstrip() for line in blocks()[0].splitlines()[1:]]
    done = cli("init", "meters.csv", "--clusters", "3")
    assert [line.rstrip() for line in done.out.splitlines()][: len(shown)] == shown


def test_the_commands_for_a_fleet_are_those_that_init_prints(cli: Cli, meters: None) -> None:
    done = cli("init", "meters.csv", "--clusters", "3")
    (block,) = re.findall(
        r"^<!-- not run: tests/test_wheel[^\n]*\n```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL
    )
    for line in block.splitlines():
        assert line.removeprefix("$ ") in done.out.splitlines()
