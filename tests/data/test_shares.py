from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from p2pclust.data import DataSet, read, split_columns
from p2pclust.data.readers import shape_of, write_npz
from p2pclust.errors import DataError, UsageError
from p2pclust.lab.data.shares import MANIFEST, holdings, peer_names, write_shares
from p2pclust.lab.pictures.canvas import save
from p2pclust.lab.pictures.shares import split_figure

DATA = DataSet(
    "d", np.arange(12.0).reshape(6, 2), np.array(["b", "a", "a", "b", "b", "a"]), np.arange(6), ("w", "h"), dropped=2
)
ROWS = (np.array([0, 3]), np.array([1]), np.array([2, 4, 5]))
NAMES = peer_names(3)


def test_who_holds_what() -> None:
    held = holdings(DATA, NAMES, ROWS, vertical=False)
    assert held.columns == ("a", "b")
    assert held.counts.tolist() == [[0, 2], [1, 0], [2, 1]]
    assert held.sizes.tolist() == [2, 1, 3]
    assert held.held.tolist() == [1, 1, 2]


def test_who_holds_what_without_labels() -> None:
    held = holdings(DataSet("d", DATA.X), NAMES, ROWS, vertical=False)
    assert (held.columns, held.sizes.tolist()) == ((), [2, 1, 3])


def test_a_split_by_rows_on_disk(tmp_path: Path) -> None:
    out = tmp_path / "parts"
    manifest = write_shares(out, DATA, ROWS, holdings(DATA, NAMES, ROWS, vertical=False), {"source": "d", "seed": 1})
    assert json.loads((out / MANIFEST).read_text()) == manifest
    assert (manifest["source"], manifest["rows"], manifest["dropped_rows"]) == ("d", 6, 2)
    assert manifest["peers"][2]["classes"] == {"a": 2, "b": 1}
    for name, rows in zip(NAMES, ROWS, strict=True):
        part = read(out / f"{name}.npz")
        assert np.array_equal(part.X, DATA.X[rows])
        assert part.feature_names == ("w", "h")
        with np.load(out / f"{name}.npz") as content:
            assert content["id"].tolist() == rows.tolist()
            assert content["y"].tolist() == np.asarray(DATA.y)[rows].tolist()
            assert content["group"].tolist() == rows.tolist()
    again = read(out)
    assert again.n_rows == 6
    assert again.group is not None
    assert again.group.tolist() == np.repeat(NAMES, [2, 1, 3]).tolist()


def test_a_split_by_columns_on_disk(tmp_path: Path) -> None:
    columns = split_columns(2, 2)
    held = holdings(DATA, peer_names(2), columns, vertical=True)
    assert held.counts.tolist() == [[1, 0], [0, 1]]
    manifest = write_shares(tmp_path, DATA, columns, held, {})
    assert [peer["features"] for peer in manifest["peers"]] == [["w"], ["h"]]
    part = read(tmp_path / "peer-02.npz")
    assert (part.X[:, 0].tolist(), part.feature_names) == (DATA.X[:, 1].tolist(), ("h",))
    with np.load(tmp_path / "peer-02.npz") as content:
        assert content["id"].tolist() == list(range(6))


def test_the_same_split_makes_the_same_files(tmp_path: Path) -> None:
    held = holdings(DATA, NAMES, ROWS, vertical=False)
    for name in "ab":
        write_shares(tmp_path / name, DATA, ROWS, held, {})
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    held = holdings(DATA, NAMES, ROWS, vertical=False)
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(
        UsageError, match=r": mine is there, which is not of a split: choose another folder, or empty it$"
    ):
        write_shares(tmp_path, DATA, ROWS, held, {})
    with pytest.raises(UsageError, match=r"mine: there is a file of this name: choose another folder$"):
        write_shares(tmp_path / "mine", DATA, ROWS, held, {}, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_an_earlier_split_is_replaced_where_that_is_said(tmp_path: Path) -> None:
    held = holdings(DATA, NAMES, ROWS, vertical=False)
    write_shares(tmp_path, DATA, ROWS, held, {"seed": 1})
    (tmp_path / "who.png").write_text("a picture")
    before = (tmp_path / MANIFEST).read_bytes()
    with pytest.raises(UsageError, match=r": an earlier split is there: choose another folder, or add --overwrite$"):
        write_shares(tmp_path, DATA, ROWS, held, {"seed": 2})
    assert (tmp_path / MANIFEST).read_bytes() == before
    (tmp_path / "mine.csv").write_text("1\n")
    with pytest.raises(UsageError, match=r": mine\.csv is there, which is not of a split"):
        write_shares(tmp_path, DATA, ROWS, held, {"seed": 2}, overwrite=True)
    (tmp_path / "mine.csv").unlink()
    two = ROWS[:2]
    write_shares(tmp_path, DATA, two, holdings(DATA, NAMES[:2], two, vertical=False), {"seed": 2}, overwrite=True)
    assert sorted(file.name for file in tmp_path.iterdir()) == [MANIFEST, "peer-01.npz", "peer-02.npz", "who.png"]
    assert json.loads((tmp_path / MANIFEST).read_text())["seed"] == 2


def test_names_sort_as_they_count() -> None:
    assert peer_names(100)[:2] == ("peer-001", "peer-002")
    assert sorted(peer_names(100)) == list(peer_names(100))


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_the_picture(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    held = holdings(DATA, NAMES, ROWS, vertical=False)
    drawn = split_figure(held, "a title", data=DATA, shares=ROWS)
    heat, sizes, points = drawn.axes
    assert [text.get_text() for text in heat.get_yticklabels()] == list(NAMES)
    assert [text.get_text() for text in heat.get_xticklabels()] == ["a", "b"]
    assert [text.get_text() for text in heat.texts] == ["2", "1", "2", "1"]
    assert [bar.get_width() for bar in sizes.patches] == [2, 1, 3]
    assert sum(len(part.get_offsets()) for part in points.collections) == 6
    save(drawn, tmp_path / "new" / f"p{suffix}")
    assert (tmp_path / "new" / f"p{suffix}").stat().st_size > 1000


@pytest.mark.slow
def test_pictures_of_other_splits() -> None:
    pytest.importorskip("matplotlib")
    plain = DataSet("d", DATA.X)
    assert len(split_figure(holdings(plain, NAMES, ROWS, vertical=False), "no labels").axes) == 1
    columns = split_columns(2, 2)
    held = holdings(DATA, peer_names(2), columns, vertical=True)
    assert len(split_figure(held, "by columns", data=DATA, shares=columns).axes) == 2
    many = DataSet("d", np.zeros((900, 3)), np.arange(900) % 300)
    rows = tuple(np.array_split(np.arange(900), 90))
    heat, _ = split_figure(holdings(many, peer_names(90), rows, vertical=False), "many").axes
    assert len(heat.texts) == 0


def test_a_picture_that_cannot_be_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    drawn = split_figure(holdings(DATA, NAMES, ROWS, vertical=False), "a title")
    with pytest.raises(DataError, match=r"p\.xyz: cannot be written \(Format 'xyz' is not supported"):
        save(drawn, tmp_path / "p.xyz")


def test_without_the_library_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p2pclust.lab.pictures.canvas.can_draw", lambda: False)
    with pytest.raises(UsageError, match=r"^a picture needs matplotlib, which is not installed: pip"):
        split_figure(holdings(DATA, NAMES, ROWS, vertical=False), "a title")


def test_npz_files_are_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "d.npz"
    write_npz(target, {"X": np.zeros((2, 3))})
    before = target.read_bytes()
    assert shape_of(target) == (2, 3)
    monkeypatch.setattr("os.fsync", lambda _number: (_ for _ in ()).throw(OSError(5, "Input/output error")))
    with pytest.raises(DataError, match=r"d\.npz: cannot be written \(Input/output error\): choose another folder$"):
        write_npz(target, {"X": np.zeros((9, 3))})
    assert target.read_bytes() == before
    assert list(tmp_path.iterdir()) == [target]


def test_ids_are_those_of_the_source(tmp_path: Path) -> None:
    """Also where rows were left out, and of a folder, in which numbers come twice."""
    for name, text in (("a", "u,v\n1,2\nNA,3\n4,5\n"), ("b", "u,v\n6,7\n8,9\n")):
        (tmp_path / f"{name}.csv").write_text(text, encoding="utf-8")
    data = read(tmp_path / "a.csv", missing_values="drop")
    held = holdings(data, peer_names(1), [np.array([1])], vertical=False)
    write_shares(tmp_path / "one", data, [np.array([1])], held, {})
    part = read(tmp_path / "one" / "peer-01.npz")
    assert (part.X.tolist(), part.row_names.tolist()) == ([[4.0, 5.0]], [2])
    both = read(tmp_path, missing_values="drop")
    rows = [np.array([3, 1])]
    write_shares(tmp_path / "two", both, rows, holdings(both, peer_names(1), rows, vertical=False), {})
    assert read(tmp_path / "two" / "peer-01.npz").row_names.tolist() == ["b.csv:1", "a.csv:2"]
