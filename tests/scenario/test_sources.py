"""What a scenario may say about its data: generated sets, folders, columns, and partitions by place and by file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from p2pclust.data.generate import generate
from p2pclust.errors import UsageError
from p2pclust.lab.scenario.file.load import load_data, load_scenario, make_job

Write = Callable[..., str]

REST = '[fleet]\npeers = {peers}\n[[jobs]]\nprotocol = "llf-cm"\nclusters = 2\n'


def scenario(write: Write, data: str, peers: int = 2) -> str:
    return write(base=data + REST.format(peers=peers))


def test_a_generated_set_as_its_paper_splits_it(scenario_file: Write) -> None:
    data = """
[data]
source = "gaussian-grid"
options = { noise = 1.5, points = 20, beta = 10 }
[data.partition]
scheme = "by-group"
"""
    shares = load_data(load_scenario(scenario(scenario_file, data, peers=5)))
    whole = generate("gaussian_grid", {"noise": 1.5, "points": 20, "beta": 10})
    for peer, share in enumerate(shares.values()):
        assert np.array_equal(share.X, whole.X[whole.group == peer])


def test_the_seed_of_a_scenario_is_not_that_of_the_data(scenario_file: Write) -> None:
    path = scenario(scenario_file, '[data]\nsource = "hidden-clusters"\n[data.partition]\nscheme = "by-group"\n')
    one, two = (load_data(load_scenario(path, seed=seed)) for seed in (1, 2))
    assert all(np.array_equal(one[name].X, two[name].X) for name in one)
    other = load_data(load_scenario(path, ["data.options.seed=1"]))
    assert not np.array_equal(one["peer-01"].X, other["peer-01"].X)


def test_peers_see_what_is_near(scenario_file: Write) -> None:
    data = """
[data]
source = "absent-clusters"
[data.partition]
scheme = "distance"
beta = 0.001
locations = [[0.0, 5.0], [10.0, 5.0]]
"""
    shares = load_data(load_scenario(scenario(scenario_file, data)))
    assert sum(share.n_rows for share in shares.values()) == 3000
    left, right = (share.X[:, 0] for share in shares.values())
    assert (left < 5).mean() > 0.99
    assert (right > 5).mean() > 0.99


def test_a_folder_with_columns_and_missing_values(scenario_file: Write, tmp_path: Path) -> None:
    (tmp_path / "meters").mkdir()
    (tmp_path / "meters" / "a.csv").write_text("time,w,h\nx,1,2\ny,,4\n")
    (tmp_path / "meters" / "b.csv").write_text("time,w,h\nx,5,6\nz,7,8\n")
    data = '[data]\nsource = "meters/"\ncolumns = ["w", 3]\nmissing_values = "drop"\n[data.partition]\nscheme = "by-file"\n'
    shares = load_data(load_scenario(scenario(scenario_file, data)))
    assert [share.X.tolist() for share in shares.values()] == [[[1.0, 2.0]], [[5.0, 6.0], [7.0, 8.0]]]


def test_by_file_names_the_devices_by_their_files(tmp_path: Path) -> None:
    (tmp_path / "meters").mkdir()
    (tmp_path / "meters" / "Hall 1.csv").write_text("w,h\n1,2\n3,4\n")
    (tmp_path / "meters" / "b.csv").write_text("w,h\n5,6\n7,8\n9,9\n")
    file = tmp_path / "s.toml"
    file.write_text(
        '[data]\nsource = "meters/"\n[data.partition]\nscheme = "by-file"\n[[jobs]]\nprotocol = "llf-cm"\nclusters = 2\n'
    )
    shares = load_data(load_scenario(file))
    assert {name: share.n_rows for name, share in shares.items()} == {"hall-1": 2, "b": 3}


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ('[data]\nsource = "g2"\noptions = 3\n', "[data]: options = 3: expected a table of options, such as { noise"),
        (
            '[data]\nsource = "g2"\ncolumns = "w"\n',
            '[data]: columns = "w": expected a list of columns, each by its name',
        ),
        (
            '[data]\nsource = "g2"\ncolumns = [0]\n',
            "[data]: columns = [0]: expected a list of columns, each by its name or",
        ),
        (
            '[data]\nsource = "g2"\nmissing_values = "mean"\n',
            '[data]: missing_values = "mean": a peer knows the mean of its own rows only',
        ),
        (
            '[data]\nfiles = ["a.csv", "b.csv"]\noptions = { sd = 1 }\n',
            "[data]: options are for generated data sets: they need source",
        ),
        (
            '[data]\nsource = "g2"\n[data.partition]\nscheme = "distance"\n',
            "[data.partition]: scheme = 'distance' needs beta",
        ),
        (
            '[data]\nsource = "g2"\n[data.partition]\nlocations = [[1, 2]]\n',
            "[data.partition]: locations is for scheme = 'distance', not 'iid'",
        ),
        (
            '[data]\nsource = "g2"\n[data.partition]\nscheme = "distance"\nbeta = 1.0\nlocations = [[1, 2], [3]]\n',
            "[data.partition]: locations = [[1, 2], [3]]: expected a list with one point for each peer, all with the same",
        ),
    ],
)
def test_one_line_says_it(scenario_file: Write, data: str, line: str) -> None:
    with pytest.raises(UsageError) as error:
        load_scenario(scenario(scenario_file, data))
    assert str(error.value).startswith(f"s.toml: {line}")
    assert "\n" not in str(error.value)


def test_options_that_the_generator_does_not_have(scenario_file: Write) -> None:
    checked = load_scenario(scenario(scenario_file, '[data]\nsource = "g2"\noptions = { noise = 1 }\n'))
    with pytest.raises(UsageError, match=r"^g2: no option 'noise'; its options are dimension = 2, sd = 10\.0, "):
        load_data(checked)


def test_a_folder_beside_the_scenario_is_found_without_a_slash(
    tmp_path: Path, scenario_file: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "meters").mkdir()
    (tmp_path / "meters" / "a.csv").write_text("u,v\n1,2\n3,4\n", encoding="utf-8")
    path = scenario_file(
        base='[data]\nsource = "meters"\n[fleet]\npeers = 1\n[[jobs]]\nprotocol = "llf-cm"\nclusters = 2\n'
    )
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert [share.n_rows for share in load_data(load_scenario(tmp_path / path)).values()] == [2]


def test_a_declared_value_is_put_in_the_place_of_missing_ones(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,\n2,3\n")
    (tmp_path / "b.csv").write_text("x,y\n4,5\n,6\n")
    file = tmp_path / "s.toml"
    file.write_text(
        '[data]\nfiles = ["a.csv", "b.csv"]\nmissing_values = { fill = { x = -1.0, y = 0.5 } }\n'
        '[fleet]\npeers = 2\n[[jobs]]\nprotocol = "llf-cm"\nclusters = 2\n'
    )
    shares = load_data(load_scenario(file))
    assert [share.X.tolist() for share in shares.values()] == [[[1.0, 0.5], [2.0, 3.0]], [[4.0, 5.0], [-1.0, 6.0]]]


def test_jobs_keep_the_missing_values_that_the_data_keep(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,\n2,3\n3,4\n")
    (tmp_path / "b.csv").write_text("x,y\n4,5\n,6\nNA,\n")
    file = tmp_path / "s.toml"
    text = (
        '[data]\nfiles = ["a.csv", "b.csv"]\nmissing_values = "keep"\n[fleet]\npeers = 2\n'
        '[[jobs]]\nprotocol = "llf-cm"\nclusters = 2\n[[jobs]]\nprotocol = "llf-fcm"\nclusters = 2\n'
    )
    file.write_text(text)
    found = load_scenario(file)
    shares = load_data(found)
    assert [(share.n_rows, share.dropped) for share in shares.values()] == [(3, 0), (2, 1)]
    jobs = [make_job(found, number, 2) for number in range(2)]
    assert all(job.protocols[job.main].keeps_gaps for job in jobs)
    file.write_text(text.replace("llf-fcm", "fkm"))
    with pytest.raises(UsageError, match=r"\[jobs.1\]: protocol 'fkm' needs a value in every cell: set missing_values"):
        load_scenario(file)
