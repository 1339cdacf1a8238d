"""Cells: the product of the grid, and names that depend on what is run, and on nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from files import JOB, MIXING, written

from p2pclust.errors import UsageError
from p2pclust.lab.sweep.cells import Cell, cells_of, check
from p2pclust.lab.sweep.spec import load_sweep
from p2pclust.overlay import make_overlay
from p2pclust.protocols.engine.random_streams import linking


def cells(folder: Path, text: str) -> tuple[Cell, ...]:
    return cells_of(load_sweep(written(folder, text)))


def test_the_product_with_the_seed_last(tmp_path: Path) -> None:
    found = cells(tmp_path, MIXING)
    assert [(cell.overlay, cell.peers, cell.seed) for cell in found] == [
        (overlay, peers, seed) for overlay in ("ring", "small-world") for peers in (8, 9) for seed in (0, 1)
    ]
    assert len({cell.digest for cell in found}) == 8


def test_there_and_back() -> None:
    cell = Cell("job", "o", "ring", "{}", 5, 2, (("loss", 0.1), ("collect", "star")), '{"a":1}')
    assert Cell.decode(cell.encode()) == cell
    assert Cell.decode(cell.encode()).digest == cell.digest
    assert str(cell) == "o, 5 peers, loss 0.1, star, seed 2"


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (("seed = \"0:3\"", "seed = [2, 1, 0]"), True),  # the same seeds in another order
        (('"ring"', '{ kind = "ring", name = "circle" }'), True),  # what it is called says nothing
        (("A small sweep", "Another title"), True),
        (("peers = 5", "peers = 6"), False),
        (("max_rounds = 3", "max_rounds = 4"), False),
        (("n_rows = 60", "n_rows = 61"), False),
        (("peers = 5", "peers = 5\nlatency_ms = 2"), False),
        (("[data]", '[fleet]\ntiming = "default"\n[data]'), False),
    ],
)  # fmt: skip
def test_what_a_name_depends_on(change: tuple[str, str], same: bool, tmp_path: Path) -> None:
    before = {cell.digest for cell in cells(tmp_path, JOB)}
    after = {cell.digest for cell in cells(tmp_path, JOB.replace(*change))}
    assert (before == after) if same else not before & after


def test_an_overlay_is_the_one_of_a_scenario_with_that_seed(tmp_path: Path) -> None:
    cell = cells(tmp_path, MIXING)[-1]
    names = [f"peer-0{i}" for i in range(1, 10)]
    assert cell.make_overlay().links == make_overlay("small-world", names, linking(1), neighbours=4, rewire=0.5).links


def test_a_file_is_read_once_and_goes_along(tmp_path: Path) -> None:
    (tmp_path / "yard.edges").write_text("a b\nb c\nc a\nc d\n", encoding="utf-8")
    file = written(tmp_path, MIXING.replace('"ring"', '{ kind = "file", path = "yard.edges" }'))
    first, second, *others = check(load_sweep(file), str(file))
    (tmp_path / "yard.edges").unlink()
    # Its size is its own, and not on the axis.
    assert [(cell.overlay, cell.peers, cell.seed) for cell in (first, second)] == [("yard", 4, 0), ("yard", 4, 1)]
    assert [cell.overlay for cell in others] == ["small-world"] * 4
    assert Cell.decode(second.encode()).make_overlay().links == (("a", "b"), ("a", "c"), ("b", "c"), ("c", "d"))


def test_a_file_in_parts_is_refused(tmp_path: Path) -> None:
    (tmp_path / "yard.edges").write_text("a b\nc d\n", encoding="utf-8")
    file = written(tmp_path, MIXING.replace('"ring"', '{ kind = "file", path = "yard.edges" }'))
    with pytest.raises(UsageError, match=r"small.toml: \[grid\]: .*yard.edges: not connected, but in 2 parts"):
        check(load_sweep(file), str(file))
