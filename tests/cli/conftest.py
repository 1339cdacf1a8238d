from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.command_line import p2pclust

ROOT = Path(__file__).parents[2]
SCENARIOS = ROOT / "scenarios"


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


Cli = Callable[..., Ended]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run the command line in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)

    def call(*arguments: object) -> Ended:
        with pytest.raises(SystemExit) as ended:
            p2pclust(*arguments)
        captured = capsys.readouterr()
        return Ended(int(ended.value.code or 0), captured.out, captured.err)

    return call


@pytest.fixture
def real_cli(tmp_path: Path) -> Cli:
    """Run the command line as a process of its own, in an empty folder."""

    def call(*arguments: object) -> Ended:
        command = [sys.executable, "-m", "p2pclust", *map(str, arguments)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
        return Ended(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def scenarios() -> Path:
    """The folder of scenarios."""
    return SCENARIOS
