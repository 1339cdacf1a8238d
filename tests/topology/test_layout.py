from __future__ import annotations

import numpy as np
import pytest

from p2pclust.lab.topology.layout import lay_out
from p2pclust.overlay import KINDS, Overlay, make_overlay


def made(kind: str, n_peers: int, **options: object) -> Overlay:
    return make_overlay(kind, [f"p{number:03d}" for number in range(n_peers)], np.random.default_rng(0), **options)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "file"])
@pytest.mark.parametrize("n_peers", [4, 16, 64])
def test_all_are_apart_and_always_drawn_alike(kind: str, n_peers: int) -> None:
    overlay = made(kind, n_peers)
    places = lay_out(overlay)
    assert places.shape == (n_peers, 2)
    apart = np.hypot(*(places[:, np.newaxis] - places).transpose(2, 0, 1)) + 9 * np.eye(n_peers)
    assert apart.min() > 0.002 * np.ptp(places)
    np.testing.assert_array_equal(places, lay_out(overlay))


def test_positions_are_kept() -> None:
    overlay = Overlay(("b", "a"), [("a", "b")], {"a": (3, 4), "b": (1, 2)}, "ring")
    assert lay_out(overlay).tolist() == [[1, 2], [3, 4]]


def test_by_hand() -> None:
    assert lay_out(made("grid", 5)).tolist() == [[0, 0], [1, 0], [2, 0], [0, -1], [1, -1]]
    np.testing.assert_allclose(lay_out(made("ring", 4)), [[0, 1], [1, 0], [0, -1], [-1, 0]], atol=1e-15)
    np.testing.assert_allclose(lay_out(made("star", 3, center="p001")), [[0, 1], [0, 0], [0, -1]], atol=1e-15)
    snake = lay_out(made("line", 24))  # rows of 7
    assert snake[6:8].tolist() == [[6, 0], [6, -1]]
    assert np.hypot(*np.diff(snake, axis=0).T).max() == 1.0


def test_levels() -> None:
    tree = lay_out(made("tree", 7))
    assert tree[:, 1].tolist() == [0, -1, -1, -2, -2, -2, -2]
    assert tree[0, 0] == pytest.approx(tree[1:3, 0].mean())
    large = np.hypot(*lay_out(made("tree", 63)).T)
    assert sorted(set(large.round(9).tolist())) == [0, 1, 2, 3, 4, 5]
    gateways = np.hypot(*lay_out(made("hierarchical", 20, gateways=4)).T)
    np.testing.assert_allclose(gateways, [0.5] * 4 + [1.0] * 16)


def test_one_peer_and_parts() -> None:
    assert lay_out(Overlay(("a",), ())).tolist() == [[0, 0]]
    assert np.isfinite(lay_out(Overlay(tuple("abcd"), [("a", "b")]))).all()
