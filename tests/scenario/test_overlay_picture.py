from __future__ import annotations

import numpy as np
import pytest

from p2pclust.lab.pictures.canvas import figure_of, image_bytes
from p2pclust.lab.pictures.drawing import Drawing, Floats
from p2pclust.lab.pictures.overlay import overlay_drawing
from p2pclust.lab.pictures.palette import WRONG
from p2pclust.overlay import KINDS, Overlay, make_overlay


def made(kind: str, n_peers: int, **options: object) -> Overlay:
    return make_overlay(kind, [f"p{number:03d}" for number in range(n_peers)], np.random.default_rng(0), **options)


def links_of(drawing: Drawing) -> list[Floats]:
    """Return the lines, which have a gap after each."""
    at = np.concatenate([mark.at for mark in drawing.marks if mark.shape == "line"])
    gaps = np.flatnonzero(np.isnan(at[:, 0]))
    return [at[start:end] for start, end in zip([0, *(gaps[:-1] + 1)], gaps, strict=True)]


def told(drawing: Drawing) -> list[str]:
    return [key.text for key in drawing.keys]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "file"])
@pytest.mark.parametrize("n_peers", [16, 64])
def test_all_peers_and_links_are_on_the_page(kind: str, n_peers: int) -> None:
    overlay = made(kind, n_peers)
    drawing = overlay_drawing(overlay)
    links = links_of(drawing)
    assert len(links) == overlay.n_links
    places = np.concatenate([mark.at for mark in drawing.marks if mark.shape == "o"])
    assert len(places) == n_peers
    everything = np.concatenate([places, *links])
    (left, right), (bottom, top) = drawing.x.ends, drawing.y.ends
    assert ((everything > [left, bottom]) & (everything < [right, top])).all()
    names = [mark.text for mark in drawing.marks if mark.shape == "text"]
    assert names == (list(overlay.names) if n_peers == 16 else [])
    assert drawing.title == f"{kind}: {n_peers} peers, {overlay.n_links} links"


def test_cut_vertices_are_red_and_peers_with_many_links_large() -> None:
    drawing = overlay_drawing(made("star", 5))
    middle, others = (mark for mark in drawing.marks if mark.shape == "o")
    assert (len(middle.at), len(others.at)) == (1, 4)
    assert middle.colour == WRONG != others.colour
    assert middle.size > others.size
    assert told(drawing) == [
        "a peer, 1 link",
        "a peer, 4 links",
        "cut vertex: without it the others are disconnected (1)",
    ]
    assert told(overlay_drawing(made("ring", 5))) == ["a peer, 2 links"]


def test_links_around_a_torus_are_bent() -> None:
    links = links_of(overlay_drawing(made("grid", 9, torus=True)))
    assert sorted({len(line) for line in links}) == [2, 40]
    assert sum(len(line) == 40 for line in links) == 6


def test_odd_ones() -> None:
    assert figure_of(overlay_drawing(Overlay(("alone",), ()))).axes
    drawing = overlay_drawing(Overlay(("a-name-that-is-too-long", "b", "c"), [("b", "c")]))
    assert next(mark.text for mark in drawing.marks if mark.shape == "text") == "a-name-that-i…"
    assert drawing.title == "custom: 3 peers, 1 link"


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "begin"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_the_same_overlay_gives_the_same_bytes(kind: str, begin: bytes) -> None:
    one, other = (image_bytes(figure_of(overlay_drawing(made("small-world", 12))), kind) for _ in range(2))
    assert one == other
    assert one.startswith(begin)
