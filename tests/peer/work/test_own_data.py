"""A peer reads its own file: the columns that it was told, without the rows in which a value is missing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from p2pclust.peer.work.rows import load_rows

Told = list[tuple[str, dict[str, Any]]]


def load(config: Mapping[str, Any], told: Told) -> Any:
    return load_rows(config, lambda verb, fields: told.append((verb, dict(fields))))


def test_columns_and_missing_values(tmp_path: Path) -> None:
    file, told = tmp_path / "rows.csv", Told()
    file.write_text("time,w,h\nx,1,2\ny,,4\nz,5,6\n", encoding="utf-8")
    config = {"data": str(file), "columns": ["h", "w"], "missing_values": "drop"}
    assert load(config, told).X.tolist() == [[2.0, 1.0], [6.0, 5.0]]
    assert told[0] == ("data", {"rows": 2, "columns": 2, "dropped": 1, "reading": "all columns as numbers"})
    told.clear()
    refused = load(config | {"missing_values": "error"}, told)
    what_to_do = 'fill it in or leave the row out, as missing_values = "drop" (--missing-values drop) does'
    reason = f"{file}: row 3, column 2 (w): empty: {what_to_do}"
    assert told == [("data-refused", {"reason": reason})]
    assert refused.problem == "its data cannot be used (row 3, column 2)"
    assert load(config | {"missing_values": {"fill": {"w": 9.0}}}, told).X.tolist() == [
        [2.0, 1.0],
        [4.0, 9.0],
        [6.0, 5.0],
    ]


def test_missing_values_that_are_kept(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("w,h\n1,2\n,4\nNA,\n", encoding="utf-8")
    np.save(tmp_path / "rows.npy", np.array([[1.0, 2.0], [np.nan, 4.0], [np.nan, np.nan]]))
    for name, rows in (("rows.csv", 2), ("rows.npy", 3)):
        told = Told()
        local = load({"data": str(tmp_path / name), "missing_values": "keep"}, told)
        assert (local.n_samples, local.n_observed, told[0][1]["dropped"]) == (rows, 2, 1)
        assert local.problem_if(keeps_gaps=True) == ""
        assert local.problem_if(keeps_gaps=False) == "row 1, column 0 is nan"
    refused = load({"data": str(tmp_path / "rows.npy")}, Told())
    assert refused.problem_if(keeps_gaps=True) == "row 1, column 0 is nan"


def test_a_probable_code_of_missing_values_is_doubtful(tmp_path: Path) -> None:
    """In a column of numbers, and not in one of words, whose numbers mean nothing."""
    rows = "".join(f"{n},{'abcd'[n % 4]}\n" for n in range(12))
    (tmp_path / "rows.csv").write_text(f"w,mode\n{rows}-999,z\n-999,z\n-999,z\n", encoding="utf-8")
    column = {"name": "mode", "kind": "category", "values": [*"abcd", *(f"e{n}" for n in range(30)), "z"]}
    told = Told()
    load({"data": str(tmp_path / "rows.csv"), "schema": {"column": [{"name": "w", "kind": "number"}, column]}}, told)
    assert [(verb, fields["reason"].partition(":")[0]) for verb, fields in told[1:]] == [("data-doubtful", "w")]
    told = Told()
    load(
        {"data": str(tmp_path / "rows.csv"), "columns": ["w"], "missing_codes": [-999], "missing_values": {"fill": 5}},
        told,
    )
    assert [verb for verb, _ in told] == ["data"]


def test_leaving_out_more_than_a_tenth_of_the_rows_is_doubtful(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("w,h\n1,2\n,4\n", encoding="utf-8")
    told = Told()
    load({"data": str(tmp_path / "rows.csv"), "missing_values": "drop"}, told)
    assert told[-1][0] == "data-doubtful"
    assert told[-1][1]["reason"].startswith(
        "1 of 2 rows were left out, because a value is missing: missing_values = 'keep'"
    )


@pytest.mark.parametrize("columns", [None, [2]])
def test_a_numpy_file(tmp_path: Path, columns: list[int] | None) -> None:
    np.save(tmp_path / "rows.npy", np.array([[1.0, 2.0], [3.0, 4.0]]))
    local = load({"data": str(tmp_path / "rows.npy"), "columns": columns}, Told())
    assert local.X.tolist() == ([[1.0, 2.0], [3.0, 4.0]] if columns is None else [[2.0], [4.0]])


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and no more"], ids=["empty", "like-an-archive"])
def test_a_damaged_numpy_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "rows.npy").write_bytes(content)
    told = Told()
    assert load({"data": str(tmp_path / "rows.npy")}, told).problem == "its data cannot be used"
    ((verb, fields),) = told
    assert verb == "data-refused"
    assert fields["reason"].startswith(f"{tmp_path / 'rows.npy'}: damaged or not a NumPy file (")


def test_what_is_beside_the_rows(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.ones((2, 1)))
    np.save(tmp_path / "ids.npy", np.array([7, 8]))
    local = load({"data": str(tmp_path / "rows.npy"), "ids": str(tmp_path / "ids.npy"), "n_clusters": 3}, Told())
    assert (local.ids.tolist(), local.n_clusters, local.centers) == ([7, 8], 3, None)


def test_rows_that_do_not_fit_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise MemoryError

    monkeypatch.setattr("p2pclust.data.sources.read_source", full)
    told = Told()
    assert load({"data": "rows.csv"}, told).problem == "its data cannot be used"
    assert told == [("data-refused", {"reason": "it does not fit into memory"})]


def test_a_value_that_is_filled_in_far_from_the_others_is_reported(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("temp,hum\n20.5,50\n,51\n21.5,52\n", encoding="utf-8")
    config = {"data": str(tmp_path / "rows.csv"), "missing_values": {"fill": 0.0}}
    told: list[tuple[str, Any]] = []
    local = load_rows(config, lambda verb, fields: told.append((verb, dict(fields))))
    assert (local.problem, [verb for verb, _ in told]) == ("", ["data", "data-doubtful"])
    assert told[1][1]["reason"].startswith("temp: 1 value is the fill 0, outside the range of the others, 20.5 to 21.5")
