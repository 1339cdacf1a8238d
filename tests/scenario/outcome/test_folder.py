from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from p2pclust.errors import UsageError
from p2pclust.lab.scenario.outcome.folder import default_directory, event_log, prepare, write_centers, write_json
from p2pclust.tools.json_values import plain

NOW = datetime(2026, 1, 2, 3, 4, 5)


def test_default_directories_never_collide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = default_directory("s", NOW)
    assert first == Path("runs") / "s-20260102-030405"
    prepare(first)
    second = default_directory("s", NOW)
    assert second.name == "s-20260102-030405-2"
    prepare(second)
    assert default_directory("s", NOW).name == "s-20260102-030405-3"


def test_a_directory_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written") as error:
        prepare(tmp_path / "file")
    assert "--out" in str(error.value)


def test_plain() -> None:
    given = {"a": np.float64(0.5), "b": np.array([[1, 2]]), 3: (1.0, float("nan")), "c": float("inf"), "d": Path("p")}
    assert plain(given) == {"a": 0.5, "b": [[1, 2]], "3": [1.0, None], "c": None, "d": "p"}
    assert plain(True) is True


def test_results_replace_older_ones_whole(tmp_path: Path) -> None:
    write_json(tmp_path / "result.json", {"a": 1})
    write_json(tmp_path / "result.json", {"a": 2})
    assert json.loads((tmp_path / "result.json").read_text()) == {"a": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_centers_keep_all_digits(tmp_path: Path) -> None:
    centers = np.random.default_rng(0).normal(size=(3, 2)) * 1e6
    write_centers(tmp_path, ["a", 'b, "c"'], [{"centers": centers.tolist()}, {"centers": None}])
    assert (tmp_path / "centers.csv").read_text().startswith('a,"b, ""c"""\n')
    assert np.array_equal(np.loadtxt(tmp_path / "centers.csv", delimiter=",", skiprows=1), centers)
    assert [path.name for path in tmp_path.iterdir()] == ["centers.csv"]


def test_a_log_gets_its_name_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with event_log(path) as log:
        log({"t": 0.1, "verb": "member", "via": ("a", "b")})
        assert not path.exists()
        log({"t": float("nan"), "verb": "x"})
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"t": 0.1, "verb": "member", "via": ["a", "b"]},
        {"t": None, "verb": "x"},
    ]
    assert [file.name for file in tmp_path.iterdir()] == ["events.jsonl"]
