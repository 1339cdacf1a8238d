from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from p2pclust.errors import UsageError
from p2pclust.lab.scenario.outcome.compare import ComparedFigure, compare, read_runs
from p2pclust.lab.scenario.page.compare_page import write_comparison


def a_result(**job: Any) -> dict[str, Any]:
    told = {
        "protocol": "llf-fcm", "parameters": {"n_clusters": 3, "tol": 0.1}, "rounds": 12, "converged": True,
        "terms": [{"term": 1, "aggregator": "a"}], "metrics": {"ari": 0.5}, "pooled": {"relative_difference": 1e-16},
        "gap": None, "digests": {"a": "x", "b": "x"}, "history": [1.0, 0.1, None, 0.01],
    }  # fmt: skip
    peers = {
        "a": {"finished": True, "bytes_sent": 3000, "messages_sent": 10, "max_rss_mb": None},
        "b": {"finished": False, "bytes_sent": None, "messages_sent": None, "max_rss_mb": None},
    }
    held = [{"what": "at least 1 peers finished", "held": True, "value": 1}]
    return {
        "scenario": "s", "backend": "simulated", "seed": 7, "jobs": [told | job], "peers": peers, "wall_seconds": 1.5,
        "virtual_seconds": 0.5, "failure": "", "expectations": held,
    }  # fmt: skip


def lines_of(*results: dict[str, Any]) -> dict[str, ComparedFigure]:
    return {line.what: line for line in compare(results)}


def test_what_differs_is_told_and_by_how_much() -> None:
    lines = lines_of(a_result(), a_result(rounds=24, converged=False, parameters={"n_clusters": 3, "fuzzifier": 2.0}))
    assert {what for what, line in lines.items() if line.differs} == {"rounds", "converged", "tol", "fuzzifier"}
    assert (lines["rounds"].values, lines["rounds"].ratio) == ((12, 24), 2.0)
    assert lines["tol"].values == (0.1, None)
    assert lines["converged"].ratio is None
    assert lines["n_clusters"].part == "job, as asked for"


def test_what_peers_sent_adds_up_where_they_told() -> None:
    lines = lines_of(a_result(), a_result())
    assert lines["bytes sent"].values == (3000, 3000)
    assert lines["bytes sent by the busiest"].values == (3000, 3000)
    assert lines["peers finished"].values == ("1 of 2", "1 of 2")
    assert "memory of the largest" not in lines, "nobody tells"
    assert "energy" not in lines
    assert not any(line.differs for line in lines.values())


def test_jobs_and_expectations_that_only_some_have() -> None:
    two = a_result()
    two["jobs"] *= 2
    two["expectations"] = [{"what": "at most 5 rounds in each job", "held": False, "value": 12}]
    lines = compare([a_result(), two])
    assert [line.values for line in lines if (line.part, line.what) == ("job 2", "rounds")] == [(None, 12)]
    told = {line.what: line.values for line in lines if line.part == "expected"}
    assert told == {"at least 1 peers finished": (True, None), "at most 5 rounds in each job": (None, False)}


def test_numbers_that_are_equal_but_for_rounding_do_not_differ() -> None:
    assert not ComparedFigure("", "", (0.1 + 0.2, 0.3)).differs
    assert ComparedFigure("", "", (1, True)).differs, "a number is no truth"
    assert ComparedFigure("", "", (None, 0)).differs
    assert ComparedFigure("", "", (0, 0, 1)).differs
    assert ComparedFigure("", "", (0, 5)).ratio is None
    assert not ComparedFigure("job", "from the pooled result", (1.9e-16, 2.5e-16, 0.0)).differs
    assert ComparedFigure("job", "from the pooled result", (1.9e-16, 2.5e-6)).differs
    assert ComparedFigure("job", "suppressed", (1.9e-16, 2.5e-16)).differs


def test_results_are_read_from_folders_and_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text(json.dumps(a_result()), encoding="utf-8")
    runs = read_runs([tmp_path / "one", tmp_path / "two" / "result.json"])
    assert [*runs] == ["one", "two"]
    assert runs["one"] == a_result()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "cannot be read as JSON"), ("[]", "is not the result of a run"),
        ('{"jobs": 1, "peers": {}}', "is not the result"),
        ('{"jobs": [1], "peers": {}}', "is not the result"), ('{"jobs": [], "peers": {"a": 0}}', "is not the result"),
    ],
)  # fmt: skip
def test_what_is_no_result_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bad.json").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=message) as refused:
        read_runs([tmp_path / "bad.json", tmp_path])
    assert str(refused.value).startswith(str(tmp_path / "bad.json"))


def test_a_folder_without_a_result_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no result\.json: expected an output directory"):
        read_runs([tmp_path, tmp_path])
    with pytest.raises(UsageError, match="no such file or folder"):
        read_runs([tmp_path / "none", tmp_path])
    with pytest.raises(UsageError, match="expected two or more"):
        read_runs([tmp_path])


def test_the_page_has_the_table(tmp_path: Path) -> None:
    runs = {"one <1>": a_result(), "two": a_result(rounds=24)}
    write_comparison(tmp_path / "c.html", runs, compare([*runs.values()]))
    text = (tmp_path / "c.html").read_text(encoding="utf-8")
    assert "<th>one &lt;1&gt;</th>" in text
    assert "<td>job: rounds</td><td>12</td><td>24</td><td>× 2</td>" in text


def test_the_page_draws_what_differs(tmp_path: Path) -> None:
    runs = {"one": a_result(), "two": a_result(rounds=24, history=[1.0, 0.5], parameters={"n_clusters": 4})}
    write_comparison(tmp_path / "c.html", runs, compare([*runs.values()]))
    labels = re.findall(r'aria-label="([^"]*)"', (tmp_path / "c.html").read_text(encoding="utf-8"))
    assert labels == ["rounds", "how far the centers moved", "bytes sent by each peer"]
