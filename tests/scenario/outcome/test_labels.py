"""Labels belong to their rows: joined by id or number to the file that the rows came from, they are those of these rows."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from p2pclust.data import load
from p2pclust.errors import DataError
from p2pclust.lab.scenario.file.load import load_data, load_scenario
from p2pclust.lab.scenario.run import carry_out

Write = Callable[..., str]

BODY = """
[fleet]
peers = 2
timing = "fast"
[[jobs]]
protocol = "llf-cm"
clusters = 2
init = [[0.0, 0.0], [10.0, 10.0]]
"""
FILES = '[data]\nfiles = ["a.csv", "b.csv"]\nlabel_column = "kind"\nmissing_values = "drop"\n' + BODY
FOLDER = """
[data]
source = "rows/"
label_column = "kind"
missing_values = "drop"
[data.partition]
scheme = "by-file"
""" + BODY  # fmt: skip


def write_rows(file: Path, seed: int) -> list[dict[str, str]]:
    """Write rows of two clusters in a random order, a value missing in every third; return them as they stand there."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(2, size=60)
    points = 10.0 * kinds[:, None] + rng.normal(0, 0.5, (60, 2))
    rows = [{"u": f"{u:.3f}", "v": f"{v:.3f}", "kind": "ab"[kind]} for (u, v), kind in zip(points, kinds, strict=True)]
    for row in rows[1::3]:
        row["v"] = ""
    file.parent.mkdir(exist_ok=True)
    with file.open("w", encoding="utf-8", newline="") as out:
        table = csv.DictWriter(out, ["u", "v", "kind"])
        table.writeheader()
        table.writerows(rows)
    return rows


def run(path: str) -> tuple[dict[str, Any], list[dict[str, str]]]:
    result = carry_out(load_scenario(path), "in-process", out=Path("out"))
    with Path("out/labels.csv").open(encoding="utf-8") as file:
        return result, list(csv.DictReader(file))


def right(row: dict[str, str], label: dict[str, str]) -> bool:
    """Whether a row of the file is what the line of labels says of it; the clusters are far apart."""
    return row["v"] != "" and row["kind"] == label["class"] and int(label["label"]) == (float(row["u"]) > 5)


def test_labels_are_joined_by_number_where_rows_were_left_out(tmp_path: Path, scenario_file: Write) -> None:
    rows = {f"peer-0{number}": write_rows(tmp_path / f"{name}.csv", number) for number, name in ((1, "a"), (2, "b"))}
    _, labels = run(scenario_file(base=FILES))
    assert list(labels[0]) == ["device", "row", "label", "class"]
    assert len(labels) == 80
    assert all(right(rows[label["device"]][int(label["row"])], label) for label in labels)


def test_rows_of_a_folder_are_joined_by_file_and_number(tmp_path: Path, scenario_file: Write) -> None:
    rows = {name: write_rows(tmp_path / "rows" / name, number) for number, name in enumerate(("a.csv", "b.csv"))}
    result, labels = run(scenario_file(base=FOLDER))
    assert list(labels[0]) == ["device", "file", "row", "label", "class"]
    assert len(labels) == 80
    assert all(right(rows[label["file"]][int(label["row"])], label) for label in labels)
    assert [(one["device"], one["rows"]) for one in result["left_out"]] == [(None, 40)]


def test_rows_with_ids_are_joined_by_these(tmp_path: Path, scenario_file: Write) -> None:
    X = np.array([[0.0, 0.1], [np.nan, 0.0], [9.9, 10.0], [10.0, 9.9], [0.2, 0.0]])
    for name in "ab":
        np.savez(tmp_path / f"{name}.npz", X=X, id=[f"{name}-{number}" for number in (7, 5, 3, 9, 1)])
    base = FILES.replace(".csv", ".npz").replace('label_column = "kind"\n', "")
    _, labels = run(scenario_file(base=base))
    assert [label["row"] for label in labels] == [f"{name}-{number}" for name in "ab" for number in (7, 3, 9, 1)]
    assert [label["label"] for label in labels] == ["0", "1", "1", "0"] * 2


def test_rows_that_are_dealt_out_have_their_numbers_in_the_data_set(scenario_file: Write) -> None:
    path = scenario_file()
    shares = load_data(load_scenario(path))
    iris = load("iris")
    for share in shares.values():
        assert share.X.tolist() == iris.X[share.row_names].tolist()
    _, labels = run(path)
    assert sorted(int(label["row"]) for label in labels) == list(range(150))


def test_rows_that_were_left_out_are_reported(tmp_path: Path, scenario_file: Write) -> None:
    for number, name in enumerate("ab"):
        write_rows(tmp_path / f"{name}.csv", number)
    (tmp_path / "b.csv").write_text("u,v,kind\n0,0,a\n10,10,b\n0,1,a\n10,11,b\n", encoding="utf-8")
    result, _ = run(scenario_file(base=FILES))
    ((name, device, n_rows),) = [tuple(one.values()) for one in result["left_out"]]
    assert (Path(name).name, device, n_rows) == ("a.csv", "peer-01", 20)
    opening, second = map(json.loads, Path("out/events.jsonl").read_text(encoding="utf-8").splitlines()[:2])
    assert opening["verb"] == "fleet"
    assert second == {"t": 0.0, "peer": "peer-01", "verb": "rows-left-out", "file": name, "rows": 20}
    page = Path("out/report.html").read_text(encoding="utf-8")
    assert f"<td>{name}</td><td>peer-01</td><td>20</td>" in page
    assert json.loads(Path("out/result.json").read_text(encoding="utf-8"))["left_out"] == result["left_out"]


def test_columns_of_which_other_rows_were_left_out_are_refused(tmp_path: Path, scenario_file: Write) -> None:
    (tmp_path / "a.csv").write_text("u\n1\nNA\n3\n9\n", encoding="utf-8")
    (tmp_path / "b.csv").write_text("v\n1\n2\nNA\n9\n", encoding="utf-8")
    base = FILES.replace('label_column = "kind"\n', "").replace("llf-cm", "vertical-cm")
    with pytest.raises(DataError, match=r"a\.csv: row 1 of its rows \(from 0\) was left out for a missing value"):
        load_data(load_scenario(scenario_file(base=base.replace("init = [[0.0, 0.0], [10.0, 10.0]]\n", ""))))


@pytest.mark.parametrize("ids", ["text", "numbers"])
def test_labels_are_joined_by_the_id_column(tmp_path: Path, scenario_file: Write, ids: str) -> None:
    rows: dict[str, dict[str, dict[str, str]]] = {}
    for number, name in ((1, "a"), (2, "b")):
        held = write_rows(tmp_path / f"{name}.csv", number)
        called = [f"{name}{row:03}" if ids == "text" else str(900 - 7 * row) for row in range(len(held))]
        with (tmp_path / f"{name}.csv").open("w", encoding="utf-8", newline="") as out:
            table = csv.DictWriter(out, ["meter", "u", "v", "kind"])
            table.writeheader()
            table.writerows({"meter": own, **row} for own, row in zip(called, held, strict=True))
        rows[f"peer-0{number}"] = dict(zip(called, held, strict=True))
    _, labels = run(scenario_file(base=FILES.replace("label_column", 'id_column = "meter"\nlabel_column', 1)))
    assert len(labels) == 80
    assert all(right(rows[label["device"]][label["row"]], label) for label in labels)
