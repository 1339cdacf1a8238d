from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# `runs` is shared with tests/fleet, `by_hand` with this folder; pytest's importlib mode puts neither on the path by itself.
# `tests.soak` is a command of its own.
sys.path.insert(0, str(Path(__file__).parent.parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "fleet"))
sys.path.insert(0, str(Path(__file__).parent))

from runs import assert_nothing_left


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Where a fleet of processes may live; afterwards none of them does, and their ports are free."""
    yield tmp_path
    assert_nothing_left(tmp_path)
