"""Pictures are tested by what is in them, not by how they look."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.lab.pictures.bars import Cost, bytes_drawing
from p2pclust.lab.pictures.canvas import figure_of, image_bytes
from p2pclust.lab.pictures.curves import history_drawings
from p2pclust.lab.pictures.drawing import Axis, Drawing
from p2pclust.lab.pictures.graph import NODE, association_drawing, community_names, lay_out
from p2pclust.lab.pictures.palette import CLUSTERS, GOOD, WRONG
from p2pclust.lab.pictures.shares import reconstruction_drawing
from p2pclust.protocols.models.association import Association, Clusters

# Two communities, {0, 2, 4} and {1, 3}, and one isolated cluster.
GRAPH = Association(Clusters((2, 2, 1, 1)), [(0, 2), (2, 4), (0, 4), (1, 3)])
CLASSES = ["a", "b", "a", "b", "b", "c"]


@st.composite
def graphs(draw: st.DrawFn) -> Association:
    clusters = Clusters(tuple(draw(st.lists(st.integers(0, 4), min_size=1, max_size=12))))
    pairs = [(a, b) for a in range(clusters.total) for b in range(a) if clusters.owners[a] != clusters.owners[b]]
    links = draw(st.lists(st.sampled_from(pairs), max_size=30)) if pairs else []
    return Association(clusters, links)


@pytest.mark.slow
@given(graphs())
def test_everything_is_on_the_page_and_apart(graph: Association) -> None:
    layout = lay_out(graph)
    left, right, bottom, top = layout.page
    assert layout.places.shape == (graph.clusters.total, 2)
    x, y = layout.places.T
    assert ((x - NODE > left) & (x + NODE < right)).all()
    assert ((y - NODE > bottom) & (y + NODE < top)).all()
    group_of = graph.group_of
    apart = np.hypot(*(layout.places[:, np.newaxis] - layout.places).transpose(2, 0, 1))
    different = (group_of[:, np.newaxis] != group_of) | ((group_of < 0) & ~np.eye(len(group_of), dtype=bool))
    assert (apart[different] > 2 * NODE).all(), "nodes of different communities do not touch"
    for members, (_, caption) in zip(graph.groups, layout.captions, strict=True):
        assert caption > layout.places[list(members), 1].max() + NODE, "captions stand above"


def test_the_same_graph_is_drawn_alike() -> None:
    one, other = (lay_out(Association(GRAPH.clusters, GRAPH.links[::-1])) for _ in range(2))
    np.testing.assert_array_equal(one.places, other.places)
    np.testing.assert_array_equal(one.places, lay_out(GRAPH).places)


def texts(drawing: Drawing) -> list[str]:
    return [mark.text for mark in drawing.marks if mark.shape == "text"]


def test_wrong_links_and_strangers_are_red() -> None:
    drawing = association_drawing(GRAPH, CLASSES)
    right, wrong, *nodes = (mark for mark in drawing.marks if mark.shape != "text")
    assert (right.shape, wrong.shape) == ("line", "line")
    assert [len(links.at) for links in (right, wrong)] == [6, 6], "two ends and a break for each of two links"
    assert wrong.colour == WRONG
    assert [number for number, node in enumerate(nodes) if node.edge == WRONG] == [4]
    assert drawing.title == "2 communities of 5 clusters, 1 isolated; 4 links, 2 of them wrong (50.0 %)"
    written = texts(drawing)
    assert written[:6] == ["0", "0", "1", "1", "2", "3"], "whose clusters they are"
    assert written[6:] == ["A: 3 clusters\n2 of class a, 1 not", "B: 2 clusters\nall of class b"]


def test_communities_that_were_dropped_are_named() -> None:
    drawing = association_drawing(GRAPH, gone=[1])
    assert drawing.title.startswith("2 communities (1 left in the end) of 5 clusters")
    assert texts(drawing)[-1] == "B: 2 clusters\ndropped later"


def test_communities_may_have_the_colours_of_other_pictures() -> None:
    def colours(**options: Any) -> list[str]:
        return [mark.colour for mark in association_drawing(GRAPH, **options).marks if mark.shape == "o"]

    first, second = CLUSTERS[:2]
    assert colours()[:5] == [first, second, first, second, first]
    assert colours(hues=[1, 0])[:5] == [second, first, second, first, second]


def test_a_graph_without_a_link_says_so() -> None:
    alone = Association(Clusters((2, 1)), [])
    assert association_drawing(alone).title == "no community: 3 clusters, all isolated"


def test_without_labels_nothing_is_called_wrong() -> None:
    drawing = association_drawing(GRAPH, peers=["w", "x", "y", "z"])
    assert drawing.title == "2 communities of 5 clusters, 1 isolated; 4 links"
    assert texts(drawing)[-2:] == ["A: 3 clusters", "B: 2 clusters"]
    assert texts(drawing)[2] == "x"
    assert len(drawing.marks[1].at) == 0


def test_what_is_known_of_some_clusters_only() -> None:
    drawing = association_drawing(GRAPH, ["a", None, "a", "b", None, None])
    assert drawing.title.endswith("none of them wrong")
    assert texts(drawing)[6] == "A: 3 clusters\nclass a, 1 unknown"


def test_names_go_on_after_z() -> None:
    names = community_names(60)
    assert len(set(names)) == 60
    assert names[25:27] == ["Z", "A2"]


def test_a_curve_has_a_panel_if_anything_of_it_is_known() -> None:
    nan = float("nan")
    drawings = history_drawings(
        {"accuracy": [0.7, nan, 0.9], "isolated": [9, 3, 2], "wrong": [nan, nan, nan], "communities": [nan, 4, 5]},
        wanted={"communities": 5.0},
    )
    assert [drawing.title for drawing in drawings] == [
        "communities", "accuracy (mean over peers)", "isolated clusters",
    ]  # fmt: skip
    communities, score, isolated = (drawing.marks[0] for drawing in drawings)
    assert communities.at[:, 0].tolist() == [1, 2]
    assert score.at[:, 0].tolist() == [0, 2]
    assert (bool(score.dash), bool(isolated.dash)) == (True, False)
    assert drawings[0].marks[2].at[:, 1].tolist() == [5.0, 5.0]
    told = [[key.text for key in drawing.keys] for drawing in drawings]
    assert told == [["dashed: classes (5)"], ["dotted: not known in between"], []], "each kind of line is explained"


def test_the_best_reconstruction_is_outlined() -> None:
    rows = np.array([[0.0, 0.0, 1.0, 1.0], [1.0, 0.0, 0.0, 1.0]])
    drawn = np.stack([np.stack([rows[0] + 0.1, rows[1] + 0.2]), np.stack([rows[0] + 0.3, rows[1]])])
    marks = reconstruction_drawing(rows, ["class 0", "class 1"], drawn, ["A", "B"]).marks
    images = [mark for mark in marks if mark.shape == "image"]
    assert len(images) == 6, "two rows, each with two reconstructions, of 2 x 2 pixels"
    boxes = [mark for mark in marks if mark.shape == "boxes"]
    assert [box.edge for box in boxes] == [GOOD, GOOD]
    written = {mark.text: mark.colour for mark in marks if mark.shape == "text"}
    assert {text for text, colour in written.items() if colour == GOOD} == {"0.010", "0.000"}
    assert {"0.040", "0.090"} <= set(written)
    assert boxes[0].at[0, 0] < boxes[1].at[0, 0]


def test_rows_that_are_no_pictures_are_lines() -> None:
    rows = np.array([[0.0, 0.5, 1.0]])
    shapes = [mark.shape for mark in reconstruction_drawing(rows, ["A"], rows[np.newaxis], ["A"]).marks]
    assert "image" not in shapes
    assert shapes.count("line") == 3, "the row, and the reconstruction over the row"


def test_bytes_by_phase() -> None:
    costs = [Cost("models", "1", 0), Cost("verdicts", "1", 3_000_000), Cost("train", "1", 1_000_000)]
    drawing = bytes_drawing([*costs, Cost("train", "2", 2_000_000)], 4, measured=7_000_000)
    assert drawing.title == "models: 6.0 MB, 1.5 MB a peer; all that the peers sent: 7.0 MB"
    assert [key.text for key in drawing.keys] == [
        "clusters' models, to every peer: 3.0 MB", "FedAvg within the communities: 3.0 MB",
    ]  # fmt: skip
    corners = np.concatenate([mark.at for mark in drawing.marks])
    assert (corners[1::2, 1] - corners[::2, 1]).tolist() == [3.0, 0.0, 1.0, 2.0]
    assert bytes_drawing([], 1).title == "models: 0 B, 0 B a peer"


def test_a_drawing_is_a_figure_with_the_same_bytes_each_time() -> None:
    drawing = Drawing(192, 96, "boxes", Axis("x", ticks=[(1.0, "one")]), Axis("y", (0.0, math.nan)))
    drawing.boxes((0, 0, 2, 3), GOOD)
    drawing.dots((1, math.inf), WRONG, 8, "x")
    drawing.text((1, 2), "word", kind="halo")
    drawing.key("a box", GOOD)
    figure = figure_of(drawing)
    (axes,) = figure.axes
    assert (round(96 * figure.get_figwidth()), axes.get_title(loc="left")) == (192, "boxes")
    assert axes.get_ylim() == drawing.fitted_axes()[1].ends == (0.0, pytest.approx(3.15))
    assert [text.get_text() for text in (*axes.get_xticklabels(), *axes.texts)] == ["one", "word"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a box"]
    one, other = image_bytes(figure, "png"), image_bytes(figure_of(drawing), "png")
    assert one == other
    assert one[:5] == b"\x89PNG\r"
