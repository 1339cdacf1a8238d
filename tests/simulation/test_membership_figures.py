"""How soon a crash is known by all, in virtual time: the benchmark's own verdict on a few crashes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "membership.py"


@pytest.mark.slow
def test_a_crash_is_known_by_all_as_soon_as_wanted() -> None:
    """Ten silent crashes among 25 peers, without loss and with 5 %. Reference: benchmarks/README.md, "Membership"."""
    options = ["--only", "crashes", "--nodes", "25", "--timing", "default", "--crashes", "10"]
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), *options], capture_output=True, text=True, check=False, timeout=110
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    verdicts = [line.split()[7] for line in ran.stdout.splitlines() if line.startswith("default  silent")]
    assert verdicts == ["held", "held"], ran.stdout
