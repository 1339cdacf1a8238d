from __future__ import annotations

import sys
from pathlib import Path

import pytest

# The tests of this folder share `harness`; pytest's importlib mode puts no test folder on the path by itself.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def any_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let any key of a fact mean something, so that tests of facts read well."""
    monkeypatch.setattr("p2pclust.peer.core.core.FACTS_OF_JOBS", ("",))
