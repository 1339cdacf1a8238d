"""Every experiment in topology/ loads, can be run, and is told of in the folder's README with the pictures that it made."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from p2pclust.lab.sweep import spec
from p2pclust.lab.sweep.cells import cells_of, check
from p2pclust.lab.sweep.columns import columns_of
from p2pclust.lab.sweep.measures import run_cell
from p2pclust.lab.sweep.plots import plot_drawing
from p2pclust.lab.sweep.report import file_name, plots_of
from p2pclust.lab.sweep.spec import Sweep, load_sweep
from p2pclust.lab.sweep.sweeping import Row, rows_of
from p2pclust.overlay import read_overlay

FOLDER = Path(__file__).parents[2] / "topology"
FILES = sorted(FOLDER.glob("*.toml"))
README = (FOLDER / "README.md").read_text(encoding="utf-8")
# What a row of each measure must say, whatever the overlay; eight peers.
AS_EXPECTED: dict[str, Callable[[Row], bool]] = {
    "job": lambda row: row["outcome"] in ("finished", "waiting", "some wait"),
    "recovery": lambda row: row["outcome"] in ("finished", "waiting", "some wait"),
    "facts": lambda row: row["informed"] == 8,
    "mixing": lambda row: row["ticks"] >= 1,
}
OVERLAYS = sorted((FOLDER / "overlays").iterdir())


def loaded(file: Path) -> Sweep:
    if "fedcref" in file.read_text(encoding="utf-8"):
        pytest.importorskip("torch", reason="autoencoders need torch: pip install 'p2pclust[models]'")
    return load_sweep(file)


def test_there_are_six_and_more() -> None:
    assert len(FILES) >= 6
    measures = {load_sweep(file).measure for file in FILES}
    assert measures == {"job", "facts", "mixing", "recovery"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_can_be_run(file: Path) -> None:
    sweep = loaded(file)
    assert len(check(sweep, str(file))) >= 6
    assert sweep.question.endswith("?")
    assert file.read_text(encoding="utf-8").startswith("# ")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_is_told_of_with_its_pictures(file: Path) -> None:
    assert f"$ p2pclust topology sweep topology/{file.name}" in README
    plots = {file_name(plot) for plot in plots_of(load_sweep(file))}
    shown = {name.removeprefix(f"{file.stem}-") for name in re.findall(r"\(pictures/([^)]+)\)", README)}
    assert shown & plots


def test_the_pictures_are_there_and_small() -> None:
    shown = re.findall(r"\(pictures/([^)]+)\)", README)
    assert sorted(shown) == sorted(file.name for file in (FOLDER / "pictures").iterdir())
    assert all((FOLDER / "pictures" / name).stat().st_size < 80_000 for name in shown)


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_part_of_it(file: Path) -> None:
    sweep = loaded(file)
    small = {"peers": (8,), "seed": sweep.grid.seed[:1], "overlay": sweep.grid.overlay[1:3]}
    grid = sweep.grid.model_copy(update={**small, "loss": sweep.grid.loss[-1:], "who": sweep.grid.who[1:3]})
    part = sweep.model_copy(update={"grid": grid})
    part._base = FOLDER
    cells = cells_of(part)
    assert 2 <= len(cells) <= 8
    finished = {cell.digest: run_cell(cell) for cell in cells}
    rows = rows_of(cells, finished)
    for row in rows:
        assert list(row) == list(columns_of(part.measure))
        assert AS_EXPECTED[part.measure](row), row
    for plot in plots_of(part):
        columns = columns_of(part.measure)
        assert plot_drawing(plot, columns[plot.x].type, columns[plot.y].type, rows).svg(plot.title)


def test_the_readme_names_every_key() -> None:
    words = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"`([^`]*)`", README))))
    models = [it for it in vars(spec).values() if hasattr(it, "model_fields") and it.__module__ == spec.__name__]
    own = {key for model in models for key in model.model_fields}
    assert own - words - {"trace"} == set()


@pytest.mark.parametrize("file", OVERLAYS, ids=lambda file: file.name)
def test_the_overlays(file: Path) -> None:
    read_overlay(file).require_connected()
    assert f"`{file.name}`" in README
    assert any(f"overlays/{file.name}" in sweep.read_text(encoding="utf-8") for sweep in FILES)
