"""Scenarios in which the devices hold different columns of the same rows."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from p2pclust.errors import P2PClustError
from p2pclust.lab.scenario.file.load import load_data, load_scenario, make_job
from p2pclust.lab.scenario.run import carry_out

BASE = """
[data]
source = "iris"
[data.partition]
scheme = "vertical"
widths = [1, 2, 1]
[fleet]
peers = 3
timing = "fast"
[[jobs]]
protocol = "vertical-fcm"
clusters = 3
init = "rows"
tol = 0.1
"""


def scenario_of(tmp_path: Path, text: str = BASE, **files: np.ndarray) -> Path:
    for name, values in files.items():
        np.savez(tmp_path / f"{name}.npz", **values)
    path = tmp_path / "s.toml"
    path.write_text(text)
    return path


def line(path: Path) -> str:
    def check() -> None:
        scenario = load_scenario(path)
        shares = load_data(scenario)
        make_job(scenario, 0, next(iter(shares.values())).n_features)

    with pytest.raises(P2PClustError) as caught:
        check()
    return str(caught.value)


def test_each_peer_keeps_its_own_columns_and_nobody_the_whole(tmp_path: Path) -> None:
    result = carry_out(load_scenario(scenario_of(tmp_path)), "simulated", out=tmp_path / "out")
    assert result["failure"] == ""
    job = result["jobs"][0]
    assert job["centers"] is None
    assert job["note"] == "no peer holds whole centers: each peer has its own columns of them, in centers-PEER.csv"
    assert "own_centers" not in job
    assert job["pooled"]["relative_difference"] < 1e-9
    assert job["replay_identical"]
    assert job["metrics"]["ari"] > 0.6
    assert job["n_rows"] == 150
    assert job["parameters"]["missing"] == "all"
    assert sorted(job["warnings"]) == ["peer-01", "peer-02", "peer-03"]
    assert job["warnings"]["peer-01"].startswith("1 column for 3 clusters")
    files = sorted(file.name for file in (tmp_path / "out").glob("centers*"))
    assert files == ["centers-peer-01.csv", "centers-peer-02.csv", "centers-peer-03.csv"]
    rows = list(csv.reader((tmp_path / "out" / "centers-peer-02.csv").read_text().splitlines()))
    assert rows[0] == ["sepal width (cm)", "petal length (cm)"]
    assert len(rows) == 4
    assert json.loads((tmp_path / "out" / "result.json").read_text())["jobs"][0]["centers"] is None


def test_explicit_first_centers_are_cut_into_columns(tmp_path: Path) -> None:
    init = "[[5.0, 3.4, 1.5, 0.2], [5.9, 2.8, 4.3, 1.3], [6.6, 3.0, 5.5, 2.0]]"
    scenario = load_scenario(scenario_of(tmp_path, BASE.replace('"rows"', init)))
    result = carry_out(scenario, "in-process", out=tmp_path / "out")
    assert result["failure"] == ""
    assert result["jobs"][0]["parameters"]["init"] == "given"
    assert result["jobs"][0]["replay_identical"]
    assert result["jobs"][0]["pooled"]["relative_difference"] < 1e-9


def test_files_with_ids_must_hold_the_same_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ids = np.array([f"patient {n}" for n in range(20)])
    files = {name: {"X": rng.random((20, 2)), "id": ids} for name in ("a", "b", "c")}
    files["c"] = files["c"] | {"id": ids[::-1].copy()}
    text = BASE.replace('source = "iris"', 'files = ["a.npz", "b.npz", "c.npz"]')
    text = text.replace('[data.partition]\nscheme = "vertical"\nwidths = [1, 2, 1]\n', "")
    result = carry_out(load_scenario(scenario_of(tmp_path, text, **files)), "simulated", out=tmp_path / "out")
    assert result["jobs"][0]["failure"] == (
        "align: every peer's columns are needed (peer-03: has 20 rows with other ids, or in another order, than most peers)"
    )
    assert result["jobs"][0]["stages"] == ["align"]


def test_float32_is_measured_as_a_gap(tmp_path: Path) -> None:
    scenario = load_scenario(scenario_of(tmp_path, BASE + 'transfer = "float32"\n'), ["data.scaling=none"])
    job = carry_out(scenario, "in-process", out=tmp_path / "out")["jobs"][0]
    assert job["pooled"] is None
    assert job["gap"]["to"] == "pooled fuzzy c-means"
    assert job["gap"]["center_distance"] < 0.1


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            ('scheme = "vertical"\nwidths = [1, 2, 1]', 'scheme = "iid"'),
            "[jobs.0]: protocol 'vertical-fcm' is for peers that hold different columns: expected [data.partition] "
            "scheme = 'vertical'",
        ),
        (
            ('"vertical-fcm"', '"llf-fcm"'),
            "[jobs.0]: protocol 'llf-fcm' is for peers that hold different rows, and here they hold columns",
        ),
        (("tol = 0.1", 'missing = "wait"'), "a protocol over columns needs missing = 'all'"),
        (("tol = 0.1", "participation = 0.5"), "a protocol over columns excludes participation"),
        (("widths = [1, 2, 1]", "widths = [1, 2]"), "widths 1, 2: expected 3 numbers of at least 1 with the sum 4"),
        (("peers = 3", "peers = 5"), "4 columns for 5 peers: every peer needs at least one column"),
        (('scheme = "vertical"', 'scheme = "iid"'), "widths is for scheme = 'vertical', not 'iid'"),
        (
            ('source = "iris"', 'source = "iris"\nbounds = [0, 9]'),
            "every peer scales its own columns: leave bounds out",
        ),
        (('"rows"', '"uniform"'), "init = 'uniform': expected one of k-means++, rows, random, given"),
        (('"rows"', "[[0, 0], [1, 1], [2, 2]]"), "init has centers of 2 values: expected 4"),
    ],
)
def test_one_line_says_it(tmp_path: Path, change: tuple[str, str], expected: str) -> None:
    told = line(scenario_of(tmp_path, BASE.replace(*change)))
    assert expected in told
    assert "\n" not in told


def test_files_with_other_numbers_of_rows_are_refused_at_once(tmp_path: Path) -> None:
    files = {name: {"X": np.zeros((n, 2)) + np.arange(n)[:, None]} for name, n in (("a", 5), ("b", 5), ("c", 4))}
    text = BASE.replace('source = "iris"', 'files = ["a.npz", "b.npz", "c.npz"]')
    text = text.replace('[data.partition]\nscheme = "vertical"\nwidths = [1, 2, 1]\n', "")
    told = line(scenario_of(tmp_path, text, **files))
    assert told.endswith("peers that hold columns need the same rows")
