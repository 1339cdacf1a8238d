"""A peer that cannot impose what its testbed asks for ends, and names the reason: the run would be another one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from p2pclust.errors import DataError
from p2pclust.lab.testbed.peer.conditions import ImposedConditions


def imposed(rows: Path) -> tuple[list[str], list[BaseException]]:
    """Return what happens to the worker and the shell, and what the peer ends with, if `rows` are to replace its own."""
    happened: list[str] = []
    errors: list[BaseException] = []
    worker: Any = SimpleNamespace(replace=lambda new: happened.append(f"{new.shape}"))
    shell: Any = SimpleNamespace(failed=errors.append)
    first_use: Any = SimpleNamespace(replaced=lambda number: happened.append(f"number {number}"))
    links: Any = SimpleNamespace()
    conditions = ImposedConditions(links, worker, shell, first_use, {})
    conditions.take({"rows": {"file": str(rows), "number": 3}})
    return happened, errors


def test_rows_are_replaced_and_reported(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.ones((4, 2)))
    assert imposed(tmp_path / "rows.npy") == (["(4, 2)", "number 3"], [])


@pytest.mark.parametrize("content", [None, b"", b"no array"])
def test_rows_that_cannot_be_read_end_the_peer_and_are_named(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "rows.npy"
    if content is not None:
        file.write_bytes(content)
    happened, errors = imposed(file)
    assert happened == []
    assert [type(error) for error in errors] == [DataError]
    assert str(file) in str(errors[0])
