from __future__ import annotations

import numpy as np
import pytest
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from p2pclust.lab.pictures.canvas import image_bytes
from p2pclust.lab.pictures.overlay import overlay_figure
from p2pclust.lab.pictures.palette import WRONG
from p2pclust.overlay import KINDS, Overlay, make_overlay


def made(kind: str, n_peers: int, **options: object) -> Overlay:
    return make_overlay(kind, [f"p{number:03d}" for number in range(n_peers)], np.random.default_rng(0), **options)


def told(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "file"])
@pytest.mark.parametrize("n_peers", [16, 64])
def test_all_peers_and_links_are_on_the_page(kind: str, n_peers: int) -> None:
    overlay = made(kind, n_peers)
    figure = overlay_figure(overlay)
    axes = figure.axes[0]
    (links,) = (drawn for drawn in axes.collections if isinstance(drawn, LineCollection))
    (peers,) = (drawn for drawn in axes.collections if isinstance(drawn, PathCollection))
    assert len(links.get_segments()) == overlay.n_links
    places = np.asarray(peers.get_offsets())
    assert len(places) == n_peers
    everything = np.concatenate([places, *links.get_segments()])
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    assert ((everything > [left, bottom]) & (everything < [right, top])).all()
    names = [text.get_text() for text in axes.texts]
    assert names == (list(overlay.names) if n_peers == 16 else [])
    assert axes.get_title() == f"{kind}: {n_peers} peers, {overlay.n_links} links"


def test_cut_vertices_are_red_and_peers_with_many_links_large() -> None:
    figure = overlay_figure(made("star", 5))
    peers = next(drawn for drawn in figure.axes[0].collections if isinstance(drawn, PathCollection))
    colours = [to_hex(colour) for colour in peers.get_facecolors()]
    assert [colour == WRONG for colour in colours] == [True, False, False, False, False]
    sizes = peers.get_sizes()
    assert (sizes[0] > sizes[1:]).all()
    assert told(figure) == [
        "a peer, 1 link",
        "a peer, 4 links",
        "cut vertex: without it the others are disconnected (1)",
    ]
    assert told(overlay_figure(made("ring", 5))) == ["a peer, 2 links"]


def test_links_around_a_torus_are_bent() -> None:
    links = overlay_figure(made("grid", 9, torus=True)).axes[0].collections[0]
    assert sorted({len(line) for line in links.get_segments()}) == [2, 40]
    assert sum(len(line) == 40 for line in links.get_segments()) == 6


def test_odd_ones() -> None:
    overlay_figure(Overlay(("alone",), ()))
    figure = overlay_figure(Overlay(("a-name-that-is-too-long", "b", "c"), [("b", "c")]))
    assert figure.axes[0].texts[0].get_text() == "a-name-that-i…"
    assert figure.axes[0].get_title() == "custom: 3 peers, 1 link"


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "begin"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_the_same_overlay_gives_the_same_bytes(kind: str, begin: bytes) -> None:
    one, other = (image_bytes(overlay_figure(made("small-world", 12)), kind) for _ in range(2))
    assert one == other
    assert one.startswith(begin)
