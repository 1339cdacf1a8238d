"""A peer reads its own file: the columns that it was told, without the rows in which a value is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from p2pclust.peer.main import _load


def test_columns_and_missing_values(tmp_path: Path) -> None:
    file, told = tmp_path / "rows.csv", []
    file.write_text("time,w,h\nx,1,2\ny,,4\nz,5,6\n", encoding="utf-8")

    def watch(verb: str, fields: Any) -> None:
        told.append((verb, fields["reason"]))

    assert _load(file, watch, ["h", "w"], "drop", {}).X.tolist() == [[2.0, 1.0], [6.0, 5.0]]
    assert told == []
    refused = _load(file, watch, ["h", "w"], "error", {})
    assert refused.problem == "row 3, column 2 (w): empty: fill it in or leave the row out"
    assert told == [("data-refused", f"{file}: {refused.problem}")]


@pytest.mark.parametrize("columns", [None, [2]])
def test_a_numpy_file(tmp_path: Path, columns: list[int] | None) -> None:
    np.save(tmp_path / "rows.npy", np.array([[1.0, 2.0], [3.0, 4.0]]))
    local = _load(tmp_path / "rows.npy", lambda verb, fields: None, columns, "error", {})
    assert local.X.tolist() == ([[1.0, 2.0], [3.0, 4.0]] if columns is None else [[2.0], [4.0]])
