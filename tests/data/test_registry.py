from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from p2pclust.data import BUILT_IN, load
from p2pclust.data.generate import GENERATORS, gaussians
from p2pclust.data.registry import available, cache_dir
from p2pclust.errors import DataError, UsageError


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("P2PCLUST_DATA", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [
        ("breast_cancer", (569, 30), 2),
        ("digits", (1797, 64), 10),
        ("gaussians", (2000, 8), 5),
        ("iris", (150, 4), 3),
        ("wine", (178, 13), 3),
    ],
)
def test_built_in(name: str, shape: tuple[int, int], classes: int) -> None:
    data = load(name)
    assert data.name == name
    assert data.X.shape == shape
    assert data.X.dtype == np.float64
    assert data.y is not None
    assert len(np.unique(data.y)) == classes
    assert len(data.feature_names) == shape[1]


def test_the_table_above_is_complete() -> None:
    shipped = ("breast_cancer", "digits", "iris", "wine")
    assert tuple(BUILT_IN) == tuple(sorted((*shipped, *GENERATORS)))


def test_cached(cache: Path) -> None:
    np.savez(cache / "meters.npz", X=np.arange(6, dtype=np.uint8).reshape(3, 2), group=np.array([1, 1, 2]))
    data = load("meters")
    assert data.name == "meters"
    assert data.X.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert data.y is None
    assert data.group is not None
    assert available() == (*BUILT_IN, "meters")


def test_labels_that_nobody_knows_are_none(cache: Path) -> None:
    np.savez(cache / "motes.npz", X=np.zeros((2, 1)), y=np.array([-1, -1]))
    np.savez(cache / "partly.npz", X=np.zeros((2, 1)), y=np.array([-1, 4]))
    assert load("motes").y is None
    partly = load("partly").y
    assert partly is not None
    assert partly.tolist() == [-1, 4]


@pytest.mark.parametrize("name", ["breast_cancer", "digits", "iris", "wine"])
@pytest.mark.parametrize("found", [True, False])
def test_sets_are_those_of_scikit_learn(name: str, found: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    import sklearn.datasets

    if not found:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    data, wanted = load(name), getattr(sklearn.datasets, f"load_{name}")()
    np.testing.assert_array_equal(data.X, wanted.data)
    np.testing.assert_array_equal(data.y, wanted.target)
    assert list(data.feature_names) == list(wanted.feature_names)
    assert (data.X.dtype, data.y.dtype) == (np.float64, np.int64)


def test_a_cached_file_does_not_hide_a_built_in_set(cache: Path) -> None:
    np.savez(cache / "iris.npz", X=np.zeros((1, 1)))
    assert load("iris").n_rows == 150
    assert available() == tuple(BUILT_IN)


def test_the_users_cache_unless_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("P2PCLUST_DATA", raising=False)
    assert cache_dir().parts[-2:] == ("p2pclust", "data")


@pytest.mark.parametrize(("name", "meant"), [("digit", " (did you mean 'digits'?)"), ("zzz", ""), ("a*", "")])
def test_absent(cache: Path, name: str, meant: str) -> None:
    with pytest.raises(UsageError) as error:
        load(name)
    assert str(error.value) == (
        f"unknown data set {name!r}{meant}: p2pclust data list shows the known ones; others are read as NAME.npz (X, y) "
        f"from {cache}: set P2PCLUST_DATA to the folder that holds them, or give a file's name"
    )


def test_absent_but_to_be_had(cache: Path) -> None:
    with pytest.raises(UsageError) as error:
        load("S-Set1")
    assert str(error.value) == f"S-Set1 is not in {cache}: get it with: p2pclust data fetch s_set1"


def test_what_downloads_is_missed_at_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        UsageError, match=r"get it with: pip install 'p2pclust\[fetch\]' && p2pclust data fetch s_set1$"
    ):
        load("s_set1")
    with pytest.raises(UsageError, match=r"get it with: p2pclust data fetch femnist$"):
        load("femnist")


@pytest.mark.parametrize("spelling", ["s_set1", "s-set1", "S-Set1", "s1"])
def test_one_rule_for_all_spellings(cache: Path, spelling: str) -> None:
    np.savez(cache / "s_set1.npz", X=np.zeros((1, 1)))
    assert load(spelling).name == "s_set1"


def test_a_file_called_exactly_so_comes_first(cache: Path) -> None:
    np.savez(cache / "my_data.npz", X=np.zeros((1, 1)))
    assert load("My-Data").n_rows == 1
    np.savez(cache / "My-Data.npz", X=np.zeros((2, 1)))
    assert load("My-Data").n_rows == 2
    assert load("my_data").n_rows == 1


def test_files_start_from_base(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text("kind,w\ncat,2\n", encoding="utf-8")
    data = load("m.csv", base=tmp_path, label_column="kind")
    assert data.X.tolist() == [[2.0]]
    assert data.y is not None
    assert data.y.tolist() == ["cat"]
    assert load(str(tmp_path / "m.csv"), base="/nowhere", label_column=1).X.tolist() == [[2.0]]


def test_columns_are_for_files() -> None:
    with pytest.raises(
        UsageError, match=r"^iris: label_column, group_column, id_column, columns, missing_values, .* are for files"
    ):
        load("iris", label_column="species")


def test_gaussians_are_reproducible_and_as_asked() -> None:
    data = gaussians(11, 3, 2, spread=0.0, seed=4)
    again = gaussians(11, 3, 2, spread=0.0, seed=4)
    assert data.X.tobytes() == again.X.tobytes()
    assert data.y is not None
    assert sorted(np.bincount(data.y).tolist()) == [3, 4, 4]
    assert len(np.unique(data.X, axis=0)) == 3
    with pytest.raises(DataError, match=r"^gaussians: expected at least one row"):
        gaussians(0)


def test_shared_data_sets_have_groups_where_rows_come_from_devices() -> None:
    if "lwsndr" not in available():
        pytest.skip("set P2PCLUST_DATA to a folder that holds lwsndr.npz")
    data = load("lwsndr")
    assert data.group is not None
    assert data.X.shape == (37674, 2)


def test_a_folder_is_found_by_its_name_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("meters", "iris"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.csv").write_text("u,v\n1,2\n3,4\n", encoding="utf-8")
    assert load("meters").X.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert load("meters", base=tmp_path).n_rows == 2
    assert load("iris").n_rows == 150, "a data set of that name comes first"
    assert load("iris/").n_rows == 2
    with pytest.raises(UsageError, match=r"^unknown data set 'metres'"):
        load("metres")
