"""`make soak`: forty peers of mixed classes on this machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.soak, pytest.mark.processes, pytest.mark.timeout(300)]

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "fleet_size.py"


@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is read from /proc")
def test_forty_peers_are_linked_small_and_alive() -> None:
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), "--started", "forked"], capture_output=True, text=True, check=False, timeout=280
    )
    print(ran.stdout)  # noqa: T201 - what was measured
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "done at 40 peers" in ran.stdout
