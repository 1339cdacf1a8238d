"""Drawings become elements of a page."""

from __future__ import annotations

import base64
import math
import re
import zlib
from xml.etree import ElementTree

import numpy as np
import pytest

from p2pclust.lab.pictures.drawing import Axis, Drawing
from p2pclust.lab.pictures.palette import CLUSTERS, INK, PAPER, WRONG


def a_drawing() -> Drawing:
    drawing = Drawing(288, 192, "a title")
    points = [(0, 0.123456), (1, 1)]
    drawing.line(points, CLUSTERS[2], kind="curve", peer='a"b', when=[(0.0, 1.25), (2, 3)], tip="1 < 2 & so on")
    drawing.text((0.5, 0.5), "0.123456 < 1", colour=INK)
    drawing.limit(0.5, "the end", WRONG)
    drawing.key("the line & its name", CLUSTERS[2], "line", 2)
    drawing.key("what is not there", WRONG, there=False)
    return drawing


def path_of(drawing: Drawing) -> str:
    """The path of the last mark that is no text."""
    return re.findall(r'<path d="([^"]*)"', drawing.svg("x"))[-1]


def test_it_is_one_element_that_says_what_it_is() -> None:
    svg = a_drawing().svg('a "curve"')
    root = ElementTree.fromstring(svg)
    assert root.tag == "svg"
    assert (root.attrib["role"], root.attrib["aria-label"]) == ("img", 'a "curve"')
    assert root.attrib["viewBox"] == "0 0 288 192"
    assert "width:288px" in root.attrib["style"]
    assert not any(word in svg for word in ("<style", "http", " id="))


def test_its_legend_is_a_list_below_it() -> None:
    element = a_drawing().element("x")
    assert element.startswith("<svg")
    assert re.findall(r"</svg>([^<]*)</li>", element) == ["the line &amp; its name"]
    assert Drawing(10, 10).legend() == ""


def test_colours_are_the_pages_and_letters_are_letters() -> None:
    svg = a_drawing().svg("x")
    assert 'stroke="var(--k2)"' in svg
    assert 'stroke="var(--wrong)"' in svg
    assert "#" not in svg, "no colour is fixed"
    assert re.search(r"<text[^>]*>0\.123456 &lt; 1</text>", svg), "numbers that are read are not shortened"


def test_what_was_marked_can_be_found() -> None:
    (group,) = re.findall(r'<g class="curve"[^>]*>.*?</title>', a_drawing().svg("x"))
    assert 'data-peer="a&quot;b"' in group
    assert 'data-when="0:1.25 2:3"' in group
    assert "<title>1 &lt; 2 &amp; so on</title>" in group
    never = Drawing(100, 100)
    never.line([(0, 1), (1, 1)], INK, when=[])
    assert 'data-when="-"' in never.svg("x")


def test_the_same_drawing_is_the_same_text() -> None:
    assert a_drawing().svg("x") == a_drawing().svg("x")


def test_many_dots_are_one_path() -> None:
    drawing = Drawing(200, 200, "", Axis(ends=(0, 1)), Axis(ends=(0, 1)))
    drawing.dots(np.random.Generator(np.random.PCG64(0)).random((500, 2)), CLUSTERS[0], 4.0, kind="dots")
    svg = drawing.svg("x")
    (path,) = re.findall(r'<g class="dots"[^>]*><path d="([^"]*)"', svg)
    assert path.count("M") == 500
    assert len(path) < 500 * 16
    assert 'stroke-linecap="round"' in svg


# -- places -------------------------------------------------------------------------------------------------------------


def bare(across: Axis, up: Axis) -> Drawing:
    """A drawing with the plain sides of 3 pixels, and 5 above."""
    return Drawing(106, 108, "", across, up)


def test_places_are_in_the_units_of_the_data() -> None:
    drawing = bare(Axis.hidden(0, 10), Axis.hidden(0, 10))
    drawing.lines([[(0, 0), (5, 10)], [(2, 1), (3, 1)]], INK)
    assert path_of(drawing) == "M3 105L53 5M23 95L33 95"
    drawing.boxes([(1, 1, 2, 3), (5, 5, 1, 1)], WRONG)
    assert path_of(drawing) == "M13 95h20v-30h-20zM53 55h10v-10h-10z"
    drawing.dots([(5, 5)], WRONG, 10, edge=PAPER)
    assert path_of(drawing).startswith("M53 55m-5.0 0a5.0 5.0 ")


@pytest.mark.parametrize("size", [10.0, 45.74, 3.333])
def test_a_dot_with_an_edge_is_round(size: float) -> None:
    drawing = bare(Axis.hidden(0, 10), Axis.hidden(0, 10))
    drawing.dots([(5, 5)], WRONG, size, edge=PAPER)
    radius, chord = re.findall(r"a([\d.]+) [\d.]+ 0 1 0 ([\d.]+) ", path_of(drawing))[0]
    assert 2 * float(radius) == pytest.approx(float(chord)), "an arc over a shorter chord is more than half a circle"


def test_what_is_infinite_is_at_the_edge() -> None:
    drawing = bare(Axis.hidden(0, 10), Axis.hidden(10, 0))
    drawing.line([(2, -math.inf), (2, math.inf)], INK)
    assert path_of(drawing) == "M23 105L23 5"


def test_a_logarithmic_axis_has_no_place_for_0() -> None:
    drawing = bare(Axis.hidden(0, 4), Axis(ends=(0.01, 100), ticks=(), line=False, log=True))
    drawing.line([(0, 0.01), (1, 1), (2, 0), (3, 100), (4, 10)], INK)
    assert path_of(drawing) == "M3 105L28 55M78 5L103 30"


@pytest.mark.parametrize("values", [[], [3.0], [0.0], [-1.0, 1.0], [1e9, 2e9]])
@pytest.mark.parametrize("log", [False, True])
def test_ends_follow_from_the_marks(values: list[float], log: bool) -> None:
    fitted = Axis(log=log).fitted(np.array(values))
    low, high = fitted.ends
    assert low < high
    assert all(low < value < high for value in values if value > 0 or not log)
    assert fitted.ticks is not None
    room = 1e-9 * (high - low)
    assert all(low - room <= value <= high + room for value, _ in fitted.ticks)
    assert len({text for _, text in fitted.ticks}) == len(fitted.ticks)
    half = Axis(ends=(0.5, math.nan), log=log).fitted(np.array(values))
    assert half.ends == (0.5, high)


def test_both_axes_may_have_equal_units() -> None:
    drawing = Drawing(106, 0, "", Axis.hidden(0, 10), Axis.hidden(0, 4))
    assert 'viewBox="0 0 106 48"' in drawing.svg("x")


def test_an_image_has_a_byte_for_each_pixel() -> None:
    drawing = bare(Axis.hidden(0, 2), Axis.hidden(1, 0))
    drawing.image((0, 0, 2, 1), np.array([[0.0, 0.5, 1.0], [1.0, 0.0, 2.0]]))
    svg = drawing.svg("x")
    (address,) = re.findall(r'href="data:image/png;base64,([^"]*)"', svg)
    data = base64.b64decode(address)
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    start = data.index(b"IDAT") + 4
    assert zlib.decompress(data[start : data.index(b"IEND") - 8]) == bytes([0, 0, 128, 255, 0, 255, 0, 255])
    assert 'x="3" y="5" width="100" height="100"' in svg


def test_long_names_of_lanes_leave_room() -> None:
    drawing = Drawing(300, 60, "", Axis.hidden(0, 1))
    drawing.lanes(["a", "b" * 200])
    drawing.boxes((0, 0, 1, 0.5), INK)
    width = float(path_of(drawing).partition("h")[2].partition("v")[0])
    assert 120 < width < 150
    assert "b…</text>" in drawing.svg("x")
