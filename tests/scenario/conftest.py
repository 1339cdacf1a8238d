from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

MINIMAL = """
[data]
source = "iris"
[fleet]
peers = 4
[[jobs]]
protocol = "llf-fcm"
clusters = 3
"""


@pytest.fixture
def scenario_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Write a scenario into the current folder, so that messages name it shortly: the minimal one, and more."""
    monkeypatch.chdir(tmp_path)

    def write(more: str = "", base: str = MINIMAL, name: str = "s.toml") -> str:
        Path(name).write_text(base + more, encoding="utf-8")
        return name

    return write
