from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.errors import UsageError
from p2pclust.overlay import KINDS, Overlay, make_overlay
from p2pclust.overlay.kinds import grid_columns

DRAWN = ("regular", "random", "small-world", "scale-free", "geometric", "mobility", "expander")
GENERATED = [kind for kind in KINDS if kind != "file"]


def names_of(n_peers: int) -> list[str]:
    return [f"p{number:02d}" for number in range(n_peers)]


def made(kind: str, n_peers: int, seed: int = 0, **options: Any) -> Overlay:
    return make_overlay(kind, names_of(n_peers), np.random.default_rng(seed), **options)


def links(overlay: Overlay) -> list[str]:
    return [f"{int(a[1:])}-{int(b[1:])}" for a, b in overlay.links]


@pytest.mark.slow
@pytest.mark.parametrize("kind", GENERATED)
@given(st.data())
def test_every_kind_is_connected_simple_and_reproducible(kind: str, data: st.DataObject) -> None:
    sizes = st.sampled_from([1, 2, 4, 8, 16, 32]) if kind == "hypercube" else st.integers(KINDS[kind].fewest, 40)
    n_peers, seed = data.draw(sizes), data.draw(st.integers(0, 2**32))
    names = tuple(data.draw(st.permutations(names_of(n_peers))))
    overlay = make_overlay(kind, names, np.random.default_rng(seed))
    assert (overlay.names, overlay.kind) == (names, kind)
    assert len(overlay.components()) == 1
    assert all(a < b for a, b in overlay.links)
    assert len(set(overlay.links)) == overlay.n_links
    assert overlay == make_overlay(kind, names, np.random.default_rng(seed))
    assert (overlay.positions is not None) == (kind in ("geometric", "mobility"))


@pytest.mark.parametrize("kind", GENERATED)
def test_another_seed_is_another_overlay_where_there_is_chance(kind: str) -> None:
    different = {made(kind, 32, seed).links for seed in range(5)}
    assert len(different) == (5 if kind in DRAWN else 1)


@pytest.mark.parametrize(
    ("kind", "n_peers", "options", "expected"),
    [
        ("full", 4, {}, "0-1 0-2 0-3 1-2 1-3 2-3"),
        ("ring", 4, {}, "0-1 0-3 1-2 2-3"),
        ("ring", 2, {}, "0-1"),
        ("line", 4, {}, "0-1 1-2 2-3"),
        ("star", 4, {}, "0-1 0-2 0-3"),
        ("star", 4, {"center": "p02"}, "0-2 1-2 2-3"),
        # 0 1 2
        # 3 4 5
        # 6 7
        ("grid", 8, {}, "0-1 0-3 1-2 1-4 2-5 3-4 3-6 4-5 4-7 6-7"),
        ("grid", 8, {"torus": True}, "0-1 0-2 0-3 0-6 1-2 1-4 1-7 2-5 3-4 3-5 3-6 4-5 4-7 6-7"),
        ("grid", 2, {"torus": True}, "0-1"),
        ("tree", 6, {}, "0-1 0-2 1-3 1-4 2-5"),
        ("tree", 5, {"children": 3}, "0-1 0-2 0-3 1-4"),
        ("hierarchical", 7, {"gateways": 3}, "0-1 0-2 0-3 0-6 1-2 1-4 2-5"),
        ("hierarchical", 4, {"gateways": 1}, "0-1 0-2 0-3"),
        ("hypercube", 8, {}, "0-1 0-2 0-4 1-3 1-5 2-3 2-6 3-7 4-5 4-6 5-7 6-7"),
        ("hypercube", 2, {}, "0-1"),
        ("regular", 2, {}, "0-1"),
        ("expander", 4, {}, "0-1 0-2 0-3 1-2 1-3 2-3"),
    ],
)
def test_by_hand(kind: str, n_peers: int, options: dict[str, Any], expected: str) -> None:
    assert links(made(kind, n_peers, **options)) == expected.split()


@pytest.mark.parametrize(("n_peers", "columns"), [(1, 1), (2, 2), (4, 2), (5, 3), (9, 3), (10, 4), (12, 4), (13, 4)])
def test_grid_columns(n_peers: int, columns: int) -> None:
    assert grid_columns(n_peers) == columns


@given(st.integers(2, 16), st.integers(2, 15), st.integers(0, 1000))
def test_regular_overlays_are_regular(n_peers: int, degree: int, seed: int) -> None:
    if degree < n_peers and degree * n_peers % 2 == 0:
        assert set(made("regular", n_peers, seed, neighbours=degree).degrees.tolist()) == {degree}


@given(st.integers(4, 30), st.integers(0, 1000))
def test_expanders_are_ramanujan(n_peers: int, seed: int) -> None:
    overlay = made("expander", n_peers, seed)
    (degree,) = set(overlay.degrees.tolist())
    values = np.sort(np.abs(np.linalg.eigvalsh(nx.to_numpy_array(overlay.graph()))))
    assert values[-1] == pytest.approx(degree)
    assert values[-2] <= 2 * math.sqrt(degree - 1) + 1e-6


@pytest.mark.slow
def test_a_large_expander_and_a_dense_regular_overlay() -> None:
    overlay = made("expander", 2000, neighbours=4)
    assert set(overlay.degrees.tolist()) == {4}
    assert set(made("regular", 300, neighbours=290).degrees.tolist()) == {290}


def test_the_mean_degree_is_the_one_asked_for() -> None:
    assert np.mean([made("random", 40, seed, neighbours=8).degrees.mean() for seed in range(20)]) == pytest.approx(
        8, rel=0.05
    )
    assert made("small-world", 40, neighbours=6).degrees.mean() == 6.0
    assert made("scale-free", 40, neighbours=3).n_links == 3 * 37


def test_no_rewiring_is_a_ring_with_its_nearest() -> None:
    assert made("small-world", 6, neighbours=4, rewire=0.0).neighbours("p00") == ("p01", "p02", "p04", "p05")


@given(st.integers(2, 30), st.integers(0, 1000))
def test_geometric_overlays_link_who_is_in_range(n_peers: int, seed: int) -> None:
    with pytest.raises(UsageError) as error:
        made("geometric", n_peers, seed, radius=0.001)
    least = float(str(error.value).rpartition(" ")[2])
    with pytest.raises(UsageError):
        made("geometric", n_peers, seed, radius=0.99 * least - 1e-4)
    overlay = made("geometric", n_peers, seed, radius=least)  # what the refusal says is enough
    assert overlay.positions is not None
    places = np.array([overlay.positions[name] for name in overlay.names])
    away = np.hypot(*(places[:, np.newaxis] - places).transpose(2, 0, 1))
    near = np.argwhere(np.triu(away <= least, 1))
    assert sorted(map(tuple, overlay.pairs.tolist())) == sorted(map(tuple, near.tolist()))


def test_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "o.edges"
    file.write_text("a b\nb c\n")
    overlay = make_overlay("file", ["c", "b", "a"], np.random.default_rng(0), path=str(file))
    assert (overlay.names, overlay.links) == (("c", "b", "a"), (("a", "b"), ("b", "c")))
    assert make_overlay("file", [], np.random.default_rng(0), path=str(file)).names == ("a", "b", "c")
    file.write_text("a b\nc d\n")
    with pytest.raises(UsageError) as error:
        make_overlay("file", [], np.random.default_rng(0), path=str(file))
    assert str(error.value) == (
        f"{file}: not connected, but in 2 parts, of 2 peers ('a', ...) and 2 ('c', ...): link them"
    )


REFUSED = {
    "an unknown kind": ("smallworld", 12, {}, "overlay: unknown kind 'smallworld' (did you mean 'small-world'?)"),
    "no kind at all": ("xyz", 12, {}, f"overlay: unknown kind 'xyz': expected {', '.join(KINDS)}"),
    "a foreign option": ("grid", 12, {"neighbours": 4}, "overlay 'grid': no option 'neighbours': it has torus"),
    "an option of none": ("ring", 12, {"torus": True}, "overlay 'ring': no option 'torus': it has none"),
    "a word for a number": (
        "regular", 12, {"neighbours": "many"}, "overlay 'regular': neighbours = 'many': expected a whole number",
    ),
    "true for a number": ("tree", 12, {"children": True}, "overlay 'tree': children = True: expected a whole number"),
    "half a link": (
        "scale-free", 12, {"neighbours": 2.5},
        "overlay 'scale-free': neighbours = 2.5: expected a whole number",
    ),
    "NaN": ("geometric", 12, {"radius": math.nan}, "overlay 'geometric': radius = nan: expected a number"),
    "a number for true": ("grid", 12, {"torus": 1}, "overlay 'grid': torus = 1: expected true or false"),
    "no children": ("tree", 12, {"children": 0}, "overlay 'tree': children = 0: expected at least 1"),
    "more than always": ("small-world", 12, {"rewire": 1.5}, "overlay 'small-world': rewire = 1.5: expected at most 1"),
    "a file without a path": ("file", 2, {}, "overlay 'file': path is missing: ends with .graphml, .edges or .adj"),
    "nobody": ("ring", 0, {}, "overlay: no peers: name at least one"),
    "too few": ("expander", 3, {}, "overlay 'expander': 3 peers: expected at least 4"),
    "two in a small world": ("small-world", 2, {}, "overlay 'small-world': 2 peers: expected at least 3"),
    "an unknown center": (
        "star", 2, {"center": "x"}, "overlay 'star': center: unknown peer 'x': expected one of 'p00', 'p01'",
    ),
    "as many neighbours as peers": (
        "regular", 12, {"neighbours": 12}, "overlay 'regular': neighbours = 12 with 12 peers: expected at most 11",
    ),
    "odd times odd": (
        "regular", 11, {"neighbours": 5},
        "overlay 'regular': neighbours = 5 with 11 peers: an odd number of ends of links: expected an even number of "
        "neighbours, such as 4 or 6",
    ),
    "one times odd": (
        "regular", 11, {"neighbours": 1},
        "overlay 'regular': neighbours = 1 with 11 peers: an odd number of ends of links: expected an even number of "
        "neighbours, such as 2",
    ),
    "pairs": (
        "regular", 12, {"neighbours": 1},
        "overlay 'regular': neighbours = 1 with 12 peers: links them in pairs only: expected at least 2",
    ),
    "an expander like a ring": (
        "expander", 12, {"neighbours": 2},
        "overlay 'expander': neighbours = 2: expected at least 3",
    ),
    "too many on average": (
        "random", 12, {"neighbours": 11.5}, "overlay 'random': neighbours = 11.5 with 12 peers: expected at most 11",
    ),
    "too few on average": (
        "random", 60, {"neighbours": 0.5},
        "overlay 'random': neighbours = 0.5 with 60 peers: not connected in 100 draws: raise it; 6 are enough",
    ),
    "an odd small world": (
        "small-world", 12, {"neighbours": 5},
        "overlay 'small-world': neighbours = 5: half of them are on either side: expected an even number, such as 4 or 6",
    ),
    "an odd tiny world": (
        "small-world", 4, {"neighbours": 3},
        "overlay 'small-world': neighbours = 3: half of them are on either side: expected an even number, such as 2",
    ),
    "newcomers with too many links": (
        "scale-free", 3, {"neighbours": 3}, "overlay 'scale-free': neighbours = 3 with 3 peers: expected at most 2",
    ),
    "alone with a link": (
        "regular", 1, {"neighbours": 2}, "overlay 'regular': neighbours = 2 with 1 peer: expected at most 0",
    ),
    "more gateways than peers": (
        "hierarchical", 3, {"gateways": 4}, "overlay 'hierarchical': gateways = 4 with 3 peers: expected at most 3",
    ),
    "no power of two": ("hypercube", 12, {}, "overlay 'hypercube': 12 peers: expected a power of 2, such as 8 or 16"),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "n_peers", "options", "line"), REFUSED.values(), ids=REFUSED)
def test_refused(kind: str, n_peers: int, options: dict[str, Any], line: str) -> None:
    with pytest.raises(UsageError) as error:
        made(kind, n_peers, **options)
    assert str(error.value) == line


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "options", "line"),
    [
        (
            "small-world",
            {"neighbours": 2, "rewire": 1.0},
            "neighbours = 2 with 300 peers: not connected in 1 draws: raise it, or lower rewire = 1",
        ),
        (
            "expander",
            {"neighbours": 3},
            "neighbours = 3 with 300 peers: no expander in 1 draws: expected another number of neighbours",
        ),
    ],
)
def test_chance_that_is_never_kind(
    monkeypatch: pytest.MonkeyPatch, kind: str, options: dict[str, Any], line: str
) -> None:
    monkeypatch.setattr("p2pclust.overlay.graphs._DRAWS", 1)
    refusals = set()
    for seed in range(40):
        try:
            made(kind, 300, seed, **options)
        except UsageError as error:
            refusals.add(str(error))
    assert refusals == {f"overlay {kind!r}: {line}"}


def test_a_range_that_does_not_reach_names_the_least_that_does() -> None:
    with pytest.raises(UsageError) as error:
        made("geometric", 12, radius=0.2)
    assert str(error.value) == (
        "overlay 'geometric': radius = 0.2: these 12 peers are then in 7 parts: expected at least 0.4034"
    )


def test_none_is_as_if_not_given() -> None:
    assert made("small-world", 12, neighbours=None, rewire=None) == made("small-world", 12, neighbours=4, rewire=0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_the_table_is_told_in_lines(kind: str) -> None:
    assert "\n" not in KINDS[kind].what
    for option in KINDS[kind].options.values():
        assert "\n" not in option.what + option.shown_default()
        assert option.type in (int, float, bool, str)
        assert option.what
        if option.default is not None:
            assert type(option.default) is option.type


def test_defaults_in_words() -> None:
    told = {f"{kind}.{name}": option.shown_default() for kind in KINDS for name, option in KINDS[kind].options.items()}
    assert told["small-world.rewire"] == "0.1"
    assert told["grid.torus"] == "false"
    assert told["star.center"] == "the first peer"
    assert told["file.path"] == "(needed)"
