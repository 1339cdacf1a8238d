"""Figures become elements of a page."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np

from p2pclust.lab.pictures.canvas import Drawing
from p2pclust.lab.pictures.palette import CLUSTERS, INK, WRONG
from p2pclust.lab.pictures.scatter import add_points


def a_drawing() -> Drawing:
    drawing = Drawing.new(3, 2)
    axes = drawing.axes
    (line,) = axes.plot([0, 1], [0.123456, 1], color=CLUSTERS[2])
    drawing.mark(line, kind="curve", peer='a"b', when=[(0.0, 1.25), (2, 3)], tip="1 < 2 & so on")
    axes.text(0.5, 0.5, "0.123456", color=INK)
    axes.axhline(0.5, color=WRONG)
    return drawing


def test_it_is_one_element_that_says_what_it_is() -> None:
    svg = a_drawing().svg('a "curve"')
    root = ElementTree.fromstring(svg)
    assert root.tag == "svg"
    assert (root.attrib["role"], root.attrib["aria-label"]) == ("img", 'a "curve"')
    assert root.attrib["viewBox"] == "0 0 216 144"
    assert "width:288px" in root.attrib["style"]
    assert not any(word in svg for word in ("<?xml", "<!DOCTYPE", "metadata", "<style", "xlink", "http"))


def test_colours_are_the_pages_and_letters_are_letters() -> None:
    svg = a_drawing().svg("x")
    assert "stroke:var(--k2)" in svg
    assert "stroke:var(--wrong)" in svg
    assert "stroke:var(--ink)" in svg, "axes are black in matplotlib, and must be light on a dark page"
    assert "#" not in re.sub(r"(url\(|href=\")#", "", svg), "no colour is fixed"
    assert re.search(r"<text[^>]*>0\.123456</text>", svg), "numbers that are read are not shortened"
    assert "DejaVu" not in svg


def test_what_was_marked_can_be_found() -> None:
    (group,) = re.findall(r'<g class="curve"[^>]*>.*?</title>', a_drawing().svg("x"))
    assert 'data-peer="a&quot;b"' in group
    assert 'data-when="0:1.25 2:3"' in group
    assert "<title>1 &lt; 2 &amp; so on</title>" in group
    never = Drawing.new(1, 1)
    never.mark(never.axes.plot([0, 1])[0], when=[])
    assert 'data-when="-"' in never.svg("x")


def test_names_do_not_meet_on_one_page() -> None:
    pictures = []
    for value in (1.0, 2.0):
        drawing = Drawing.new(2, 2)
        drawing.axes.plot([0, value], marker="o")
        pictures.append(drawing.svg("x"))
    names = [dict.fromkeys(re.findall(r' id="([^"]*)"', svg)) for svg in pictures]
    assert names[0]
    assert not names[0].keys() & names[1].keys()
    for svg, known in zip(pictures, names, strict=True):
        referred = re.findall(r'(?:url\(|href=")#([^")]*)', svg)
        assert referred
        assert all(name in known for name in referred)


def test_the_same_figure_is_the_same_text() -> None:
    assert a_drawing().svg("x") == a_drawing().svg("x")


def test_many_dots_are_one_path() -> None:
    drawing = Drawing.new(2, 2)
    axes = drawing.axes
    axes.set(xlim=(0, 1), ylim=(0, 1))
    drawing.mark(
        add_points(axes, np.random.Generator(np.random.PCG64(0)).random((500, 2)), CLUSTERS[0], 4.0), kind="dots"
    )
    svg = drawing.svg("x")
    (path,) = re.findall(r'<g class="dots"[^>]*><path d="([^"]*)"', svg)
    assert path.count("M") == 500
    assert len(path) < 500 * 32
    assert "stroke-linecap:round" in svg
