from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from p2pclust.lab.pictures.canvas import image_bytes, new_figure
from p2pclust.lab.pictures.curves import mean_curves
from p2pclust.lab.reproduce.frame import Measured, table
from p2pclust.lab.reproduce.model import Claim
from p2pclust.lab.reproduce.report import comparison, plain, write_csv
from p2pclust.lab.reproduce.tables.fedcref import row_of


def some() -> Measured:
    measured = Measured(repeats=2, skipped={"s_set1": "not there"})
    for number, distance in enumerate([0.006, 0.008]):
        measured.found.add(
            number,
            {
                "xclara, γ 0.25": {"distance": distance, "ari": 0.99, "shifts": [0.5, 0.25][: number + 1]},
                "xclara, γ 1.00": {"distance": math.inf, "ari": 0.99},
                "new row": {"ari": 0.5},
            },
        )
    return measured


def test_comparison() -> None:
    lines = {(line.row, line.measure): line for line in comparison(table("000-table1"), some())}
    line = lines["xclara, γ 0.25", "distance"]
    assert (line.paper, round(line.mean, 12), line.repeats) == (0.00893, 0.007, 2)
    assert round(line.difference, 12) == round(0.007 - 0.00893, 12)
    assert math.isnan(lines["new row", "ari"].paper)
    assert ("xclara, γ 0.50", "ari") not in lines, "it was not measured"
    assert ("xclara, γ 0.25", "shifts") not in lines, "curves are no numbers of a table"


def test_csv(tmp_path: Path) -> None:
    write_csv(tmp_path, table("000-table1"), some())
    with (tmp_path / "000-table1.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    row = next(row for row in rows if (row["row"], row["measure"]) == ("xclara, γ 0.25", "distance"))
    assert (row["paper"], row["mean"], row["paper_sd"], row["repeats"]) == ("0.00893", "0.007", "", "2")
    with (tmp_path / "000-table1-curves.csv").open(encoding="utf-8") as file:
        curve = [(row["repetition"], row["round"], row["value"]) for row in csv.DictReader(file)]
    assert curve == [("0", "1", "0.5"), ("1", "1", "0.5"), ("1", "2", "0.25")]


def test_no_curves_no_file(tmp_path: Path) -> None:
    write_csv(tmp_path, table("001-table2"), Measured())
    assert [file.name for file in tmp_path.iterdir()] == ["001-table2.csv"]


def test_plain_values_have_no_infinity() -> None:
    told = plain(table("000-table1"), some(), [Claim("it holds", "1", held=True)])
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert told["claims"] == [{"what": "it holds", "value": "1", "held": True, "always": False}]
    assert told["skipped"] == {"s_set1": "not there"}
    infinite = next(row for row in told["rows"] if (row["row"], row["measure"]) == ("xclara, γ 1.00", "distance"))
    assert infinite["mean"] is None


@pytest.mark.slow
def test_pictures_of_the_same_findings_are_the_same() -> None:
    one, two = new_figure(11, 5), new_figure(11, 5)
    for figure in (one, two):
        table("000-table1").draw(figure, some().found)
    assert image_bytes(one, "png") == image_bytes(two, "png")


def test_curves_are_over_whole_rounds() -> None:
    axes = Figure().add_subplot()
    mean_curves(axes, some().found.all_curves({"xclara": "xclara, γ 0.25"}, "shifts"), first=0)
    ticks = axes.xaxis.get_major_locator().tick_values(0, 2)
    assert ticks.tolist() == [0, 1, 2]


def test_curves_of_numbers_of_things_begin_at_nothing() -> None:
    figure, measured = Figure(), Measured()
    measures = ("communities", "acc", "wrong", "isolated", "active")
    measured.found.add(0, {row_of("refined", "DEC start"): {f"{measure} by step": [6.0, 6.0] for measure in measures}})
    table("004-figure8").draw(figure, measured.found)
    drawn = {axes.get_title(): axes.get_ylim() for axes in figure.axes}
    assert drawn["active peers, refined"] == pytest.approx((0.0, 6.3))
    assert drawn["ACC, refined"][0] > 5
