"""Pictures of any run are tested by what is in them, not by how they look."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from html import unescape
from typing import Any

import numpy as np
import pytest
from tests.happened import happened

from p2pclust.lab.pictures.bars import CostFigure, cost_drawing, kinds_drawing
from p2pclust.lab.pictures.curves import attendance_drawing, movement_drawing, objective_drawing
from p2pclust.lab.pictures.drawing import Drawing
from p2pclust.lab.pictures.overlay import roles_drawing
from p2pclust.lab.pictures.palette import CLASSES, CLUSTERS
from p2pclust.lab.pictures.scatter import Colouring, plane_of, scatter_drawings
from p2pclust.lab.pictures.shares import (
    agreement_drawing,
    centers_drawing,
    certainty_drawing,
    confusion_drawing,
    differences_drawing,
    holdings_drawing,
    matched,
)
from p2pclust.lab.pictures.timeline import lanes_of, timeline_drawing
from p2pclust.lab.run.state import RunState
from p2pclust.overlay import Overlay

GROUPS = {"g": "gateway", "m-1": "meter", "m-2": "meter"}
EVENTS: list[dict[str, Any]] = [
    *({"t": 0.0, "peer": name, "verb": "started"} for name in GROUPS),
    {"t": 0.1, "peer": "g", "verb": "submitted", "job": "j", "roster": list(GROUPS)},
    {"t": 1.0, "peer": "g", "verb": "elected", "job": "j", "term": 1},
    {"t": 1.5, "peer": "g", "verb": "combined", "job": "j", "round": 0, "contributors": list(GROUPS)},
    {"t": 2.0, "peer": "g", "verb": "fault", "do": "kill", "phase": "opening", "round": 1},
    {"t": 2.5, "peer": "m-1", "verb": "waiting", "job": "j", "present": 1, "of": 3},
    {"t": 3.0, "peer": "m-1", "verb": "elected", "job": "j", "term": 2},
    {"t": 3.5, "peer": "m-1", "verb": "link", "to": "m-2", "up": False},
    {"t": 4.0, "peer": "m-1", "verb": "finished", "job": "j"},
]
LINKS = (("g", "m-1"), ("m-1", "m-2"))


def run_of(events: Sequence[Mapping[str, Any]], names: Iterable[str] = GROUPS, **how: Any) -> RunState:
    return RunState.of(
        map(happened, sorted(events, key=lambda event: float(event["t"]))), list(names), links=LINKS, **how
    )


TOLD = run_of(EVENTS)


def tips(drawing: Drawing) -> list[str]:
    return re.findall(r"<title>([^<]*)</title>", drawing.svg("x"))


def texts(drawing: Drawing) -> list[str]:
    return [mark.text for mark in drawing.marks if mark.shape == "text"]


def keys(drawing: Drawing) -> list[str]:
    return [key.text for key in drawing.keys]


def test_roles_and_failures() -> None:
    overlay = Overlay(tuple(GROUPS), LINKS, kind="line")
    drawing = roles_drawing(overlay, GROUPS, TOLD, load={("g", "m-1"): 5000}, tips={"g": "the gateway"})
    svg = drawing.svg("x")
    assert "<title>the gateway</title>" in svg
    assert "<title>g – m-1: 5.0 kB</title>" in svg
    assert "<title>m-1 – m-2, linked for 3.50 s</title>" in svg
    whens = re.findall(r'data-when="([^"]*)"', svg)
    # Two links that are not there all the time or are; two rings; a veil and a cross over the dead one.
    assert whens.count("1:2") == 1, "the gateway's ring"
    assert whens.count("3:4") == 1, "the meter's ring"
    assert whens.count("2:4") == 2, "the dead gateway"
    assert whens.count("0:3.5") == 1, "the link that was lost"
    assert texts(drawing) == ["g\nterm 1", "m-1\nterm 2", "m-2"]
    assert {"gateway (1)", "meter (2)"} <= set(keys(drawing))


def test_whoever_came_back_is_marked_otherwise_than_whoever_is_gone() -> None:
    more = [
        {"t": 1.2, "peer": "m-2", "verb": "fault", "do": "restart"},
        {"t": 1.7, "peer": "m-2", "verb": "started"},
        {"t": 1.8, "peer": "m-2", "verb": "fault", "do": "pause"},
        {"t": 1.9, "peer": "m-2", "verb": "fault", "do": "resume"},
    ]
    told = run_of([*EVENTS, *more])
    drawing = roles_drawing(Overlay(tuple(GROUPS), LINKS, kind="line"), GROUPS, told)
    svg = drawing.svg("x")
    assert {"gone for good", "was away, and came back"} <= set(keys(drawing))
    whens = re.findall(r'data-when="([^"]*)"', svg)
    assert whens.count("1.2:1.7 1.8:1.9") == 2, "a veil and a wedge over the one that came back"
    assert whens.count("2:4") == 2, "a veil and a cross over the one that did not"
    line = timeline_drawing(told, list(GROUPS), GROUPS)
    assert [tip for tip in tips(line) if "came back" in tip] == [
        "m-2 came back, at 1.70 s", "m-2 came back, at 1.90 s",
    ]  # fmt: skip
    assert not [tip for tip in tips(line) if "resumed" in tip], "it has a mark already"


def test_a_stranger_stands_outside_and_has_no_lane_of_a_member() -> None:
    more = [
        {"t": 0.0, "peer": "x", "verb": "started"},
        {"t": 0.4, "peer": "g", "verb": "refused-stranger", "print": "ab-cd"},
        {"t": 0.6, "peer": "g", "verb": "refused-stranger", "print": "ab-cd"},
    ]
    groups = GROUPS | {"x": "laptop"}
    told = run_of([*EVENTS, *more], groups, strangers=["x"])
    assert told.refusals == {"g": 0.4}
    drawing = roles_drawing(Overlay(tuple(GROUPS), LINKS, kind="line"), groups, told, tips={"x": "the laptop"})
    svg = drawing.svg("x")
    assert "x" in texts(drawing)
    assert "stranger, kept out (1)" in keys(drawing)
    assert "laptop (1)" not in keys(drawing), "it is no device of the fleet"
    assert "<title>the laptop</title>" in svg
    assert not [tip for tip in tips(drawing) if "x –" in tip or "– x" in tip], "no link leads to it"
    line = timeline_drawing(told, list(groups), groups)
    assert {"x: not on the fleet roster", "g refused it, at 0.40 s"} <= {unescape(tip) for tip in tips(line)}
    assert "x (stranger)</text>" in line.svg("x")


def test_a_large_fleet_is_drawn_without_names() -> None:
    names = tuple(f"p-{number:03}" for number in range(150))
    overlay = Overlay(names, tuple(itertools.pairwise(names)), kind="ring")
    svg = roles_drawing(overlay, dict.fromkeys(names, "p"), RunState.of([], names)).svg("x")
    assert "p-001</text>" not in svg
    assert "data-peer" not in svg


def test_the_time_line_tells_what_happened() -> None:
    drawing = timeline_drawing(TOLD, list(GROUPS), GROUPS)
    told = tips(drawing)
    assert "g killed while opening round 1, at 2.00 s" in told
    assert "g: killed, away for 2.00 s" in told
    assert "g aggregates term 1, 1.00 to 2.00 s" in told
    assert "m-1 aggregates term 2, 3.00 to 4.00 s" in told
    assert "m-1 finished at 4.00 s" in told
    assert "waiting: 1 of 3 are here, 2.50 to 4.00 s" in told
    svg = drawing.svg("x")
    assert svg.count('class="cursor"') == svg.count('class="span"') == 1


def test_lanes_are_for_those_to_whom_something_happened() -> None:
    names = [f"p{number}" for number in range(100)]
    events = [
        {"t": 1.0, "peer": "p77", "verb": "fault", "do": "kill"},
        {"t": 2.0, "peer": "p50", "verb": "elected", "job": "j", "term": 1},
    ]
    told = RunState.of(map(happened, events), names)
    lanes = lanes_of(names, [*(strike.peer for strike in told.strikes), *(term.peer for term in told.terms)])
    assert len(lanes) == 40
    assert {"p77", "p50", "p0"} <= set(lanes)
    assert lanes == sorted(lanes, key=names.index)


def test_movement_and_objective() -> None:
    drawing = movement_drawing([2, 3, 4], [1.0, None, 0.1], 0.2, [(3, "term 2")])
    assert drawing.marks[0].at.tolist() == [[2, 1.0], [4, 0.1]]
    assert drawing.y.log
    assert texts(drawing) == ["ends below 0.2", "term 2"]
    assert keys(drawing) == []
    still = movement_drawing([2, 3, 4], [1.0, 0.5, 0.0], 0.2)
    (wedges,) = (mark for mark in still.marks if mark.shape == "v")
    assert wedges.at.tolist() == [[4, -np.inf]], "a logarithmic axis has no 0"
    assert keys(still) == ["moved by 0, which this axis cannot show"]
    assert "moved by 0 in round 4" in tips(still)
    assert not movement_drawing([1, 2], [0.0, 0.0], 0.0).y.log
    assert objective_drawing([0, 1], [5.0, 4.0], "objective").marks[0].at.tolist() == [[0, 5.0], [1, 4.0]]


def test_attendance() -> None:
    drawing = attendance_drawing(
        [["a", "b"], ["a"], ["a"]], [{}, {"b": "left out: dead"}, {"b": "privacy gate"}], ["a", "b"], {"a": "x", "b": "x"},
        ["range", "llf-cm", "llf-cm"],
    )  # fmt: skip
    assert tips(drawing) == [
        "a contributed to 3 of 3 rounds", "b contributed to 1 of 3 rounds", "b, 1 rounds: left out: dead",
        "b, 1 rounds: privacy gate",
    ]  # fmt: skip


def test_cost_of_each_device() -> None:
    sent = CostFigure("bytes sent", "B", {"g": 2_500_000.0, "m-1": 1000.0, "m-2": None})
    energy = CostFigure("energy", "J", {"g": 0.002, "m-1": 0.001, "m-2": 0.0})
    one, other = (cost_drawing(measure, list(GROUPS), GROUPS) for measure in (sent, energy))
    assert [drawing.title for drawing in (one, other)] == ["bytes sent (MB)", "energy (mJ)"]
    assert texts(one) == ["lost with the peer"]
    assert "g: 2.5 MB" in tips(one)


def test_of_many_devices_each_is_a_dot() -> None:
    names = [f"m{number}" for number in range(100)]
    groups = {name: "even" if number % 2 else "odd" for number, name in enumerate(names)}
    drawing = cost_drawing(CostFigure("messages", "", {name: float(n) for n, name in enumerate(names)}), names, groups)
    assert {"odd: 50 peers", "half of odd spent less than 49"} <= {tip.strip() for tip in tips(drawing)}


def test_kinds_of_messages() -> None:
    assert tips(kinds_drawing({"ping": 1, "open": 700, "adopted": 299})) == [
        "open: 0.7 kB, 70.0%", "adopted: 0.299 kB, 29.9%", "all others: 0.001 kB, 0.1%",
    ]  # fmt: skip


# -- what was found -----------------------------------------------------------------------------------------------------


def test_two_columns_are_shown_as_they_are() -> None:
    X = np.array([[0.0, 5.0], [1.0, 7.0]])
    plane = plane_of(X, ["u", "v"], scaled=True)
    np.testing.assert_array_equal(plane(X), X)
    assert plane.titles == ("u", "v")
    one = plane_of(X[:, :1], ["u"], scaled=False)
    np.testing.assert_array_equal(one(X[:, :1]), [[0.0, 0.0], [1.0, 0.0]])


@pytest.mark.parametrize("n_features", [5, 700])
def test_the_first_principal_axis_is_where_the_rows_are_spread(n_features: int) -> None:
    rng = np.random.Generator(np.random.PCG64(0))
    X = rng.normal(size=(200, n_features)) * 0.01
    X[:, 3] += np.linspace(0, 10, 200)
    plane = plane_of(X, [str(n) for n in range(n_features)], scaled=False)
    assert abs(plane.axes[3, 0]) == pytest.approx(1.0, abs=1e-3)
    assert abs(np.corrcoef(plane(X)[:, 0], X[:, 3])[0, 1]) == pytest.approx(1.0, abs=1e-4)
    assert plane.titles[0].startswith("principal axis 1 (")


def test_a_constant_column_is_no_axis() -> None:
    X = np.array([[0.0, 1.0, 3.0], [1.0, 0.0, 3.0], [2.0, 5.0, 3.0]])
    assert np.isfinite(plane_of(X, "abc", scaled=True)(X)).all()
    same = plane_of(np.ones((4, 3)), "abc", scaled=True)
    assert np.isfinite(same(np.ones((4, 3)))).all()


def test_rows_in_a_plane() -> None:
    places = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]])
    panels = [
        Colouring(
            "found", np.array([0, 1, -1]), ["0", "1"], CLUSTERS[1::-1], places[:2], np.stack([places[:2], places[1:]])
        ),
        Colouring("true", np.array([0, 0, 1]), ["cat", "dog"], CLASSES),
    ]
    drawings = scatter_drawings(places, panels, ("u", "v"))
    assert [tip for drawing in drawings for tip in tips(drawing)] == [
        "none: 1 of the rows drawn", "0: 1 of the rows drawn", "1: 1 of the rows drawn", "center 0", "center 1",
        "cat: 2 of the rows drawn", "dog: 1 of the rows drawn",
    ]  # fmt: skip


def test_what_each_peer_holds() -> None:
    drawing = holdings_drawing("classes", np.array([[3, 1], [0, 2]]), ["x", "y"], CLASSES[:2], ["a", "b"])
    assert tips(drawing) == ["a: 3 rows of x", "a: 1 rows of y", "b: 2 rows of y"]


def test_matching_fits_as_much_as_it_can() -> None:
    assert matched(np.array([[0, 9, 1], [8, 0, 0]])).tolist() == [1, 0, 2]
    assert matched(np.array([[0, 1], [5, 0], [0, 7]])).tolist() == [0, 1]


def test_confusion() -> None:
    drawing = confusion_drawing(
        np.array([[3, 0], [1, 4]]), ["cat", "dog"], ["0", "1"], row="true class", column="cluster"
    )
    assert tips(drawing) == [
        "true class cat, cluster 0: 3 rows (100%)", "true class dog, cluster 0: 1 rows (20%)",
        "true class dog, cluster 1: 4 rows (80%)",
    ]  # fmt: skip
    big = confusion_drawing(
        np.eye(20, dtype=np.int64), [str(n) for n in range(20)], [str(n) for n in range(20)], row="r", column="c"
    )
    assert texts(big) == [], "numbers have no room there"


def test_certainty_is_told_for_each_cluster() -> None:
    drawing = certainty_drawing(np.array([0.9, 0.5, 0.7, 0.6]), np.array([0, 0, 0, 1]), ["0", "1"], [0, 1])
    assert tips(drawing) == [
        "cluster 0: half of its rows have a membership of 0.70 or more",
        "cluster 1: half of its rows have a membership of 0.60 or more",
    ]


def test_agreement_with_the_pooled_centers() -> None:
    wanted = np.array([[0.0, 1.0, 0.5], [0.25, 0.5, 0.5]])
    drawing = differences_drawing(np.full((2, 3), 1e-15), ["u", "v", "w"])
    assert tips(drawing) == ["the largest: 1e-15 of the feature&#x27;s range"]
    assert tips(agreement_drawing(wanted, wanted, [0, 1])) == ["center 0: 3 coordinates", "center 1: 3 coordinates"]


def test_centers_as_pictures_or_lines() -> None:
    flat = np.zeros((1, 64))
    images = centers_drawing(np.zeros((3, 64)), [str(n) for n in range(64)], ["0", "1", "2"], [0, 1, 2], flat)
    assert images is not None
    assert sum(mark.shape == "image" for mark in images.marks) == 3
    assert tips(images) == ["center 0", "center 1", "center 2"]
    lines = centers_drawing(np.eye(4), list("abcd"), list("0123"), range(4), np.eye(4))
    assert lines is not None
    assert tips(lines) == ["center 0", "center 1", "center 2", "center 3"]
    assert centers_drawing(np.zeros((3, 2)), list("ab"), list("012"), range(3), flat) is None, (
        "a plane shows these already"
    )
    assert centers_drawing(np.zeros((3, 50)), [str(n) for n in range(50)], list("012"), range(3), flat) is None


def test_two_centers_are_no_two_flat_lines_and_features_have_their_whole_names() -> None:
    rows = np.array([[0.0, 10.0, 5.0], [4.0, 20.0, 5.0]])
    features = ["radius", "mean fractal dimension", "so long a name that nobody could ever read all of it"]
    drawing = centers_drawing(np.array([[1.0, 11.0, 5.0], [3.0, 19.0, 5.0]]), features, ["0", "1"], [0, 1], rows)
    assert drawing is not None
    lines = [mark.at[:, 1].tolist() for mark in drawing.marks if mark.shape == "line"]
    assert lines == [[0.25, 0.1, 0.0], [0.75, 0.9, 0.0]]
    named = [text for _, text in drawing.x.ticks or ()]
    assert named == ["radius", "mean fractal dimension", "so long a name that nobody coul…"]
