from __future__ import annotations

import math
from typing import Any

import pytest

from p2pclust.lab.pictures.drawing import Drawing
from p2pclust.lab.pictures.palette import WRONG
from p2pclust.lab.sweep.plots import plot_drawing
from p2pclust.lab.sweep.spec import PlotSpec


def drawn(x_type: type, rows: list[dict[str, Any]], **settings: Any) -> Drawing:
    drawing = plot_drawing(PlotSpec(title="t", y="bytes", **settings), x_type, float, rows)
    assert "nan" not in drawing.svg("words"), "a path with a number that is none ends there"
    return drawing


def of(shape: str, drawing: Drawing) -> list[list[list[float]]]:
    return [mark.at.tolist() for mark in drawing.marks if mark.shape == shape]


ROWS = [
    {"overlay": "ring", "peers": 4, "bytes": 2000.0},
    {"overlay": "ring", "peers": 8, "bytes": 4000.0},
    {"overlay": "star", "peers": 4, "bytes": 0.0},
    {"overlay": "star", "peers": 8, "bytes": None},
]


def test_categories_are_bars_of_means_with_a_cross_where_a_value_is_missing() -> None:
    drawing = drawn(str, ROWS, x="overlay", by="overlay")
    assert [box[1][1] for box in of("boxes", drawing)] == [3.0, 0.0]
    assert [[y for _, y in dots] for dots in of("o", drawing)] == [[2.0, 4.0], [0.0]]
    (cross,) = (mark for mark in drawing.marks if mark.shape == "x")
    assert (cross.at.tolist(), cross.colour) == ([[1.0, math.inf]], WRONG)
    assert (drawing.x.ticks, drawing.y.label) == ([(0, "ring"), (1, "star")], "bytes (kB)")
    assert [key.text for key in drawing.keys] == ["not finished"], "the axis names the overlays"


def test_bars_on_a_logarithmic_axis_begin_below_the_least_value() -> None:
    drawing = drawn(str, ROWS, x="overlay", by="peers", log=("y",))
    assert [[y for _, y in box] for box in of("boxes", drawing)] == [[1.6, 2.0], [1.6, 4.0]]
    assert drawing.fitted_axes()[1].ends[0] == 1.6
    assert [key.text for key in drawing.keys] == ["peers: 4", "peers: 8", "not finished"]


def test_numbers_are_points_joined_in_their_means() -> None:
    drawing = drawn(int, [*ROWS, {"overlay": "ring", "peers": 4, "bytes": 0.0}], x="peers", by="overlay", lines=True)
    assert of("line", drawing) == [[[4.0, 1.0], [8.0, 4.0]], [[4.0, 0.0]]]
    logarithmic = drawn(int, ROWS, x="peers", by="overlay", log=("x", "y"), guide="factor 2")
    assert of("s", logarithmic) == [[]], "a logarithmic axis has no place for 0"
    assert logarithmic.x.label == "peers (1 of 4 values are 0, for which a logarithmic axis has no place)"
    assert of("line", logarithmic)[0] == [[4.0, 0.004], [8.0, 0.008]], "where as many bytes as peers are"
    assert [key.text for key in logarithmic.keys][2:] == ["bytes = peers", "half and twice that", "not finished"]


@pytest.mark.parametrize("rows", [[], ROWS[3:]])
def test_nothing_may_be_known(rows: list[dict[str, Any]]) -> None:
    for x_type, x in ((str, "overlay"), (int, "peers")):
        for log in ((), ("y",)):
            assert of("o", drawn(x_type, rows, x=x, by="overlay", log=log)) in ([], [[]])
