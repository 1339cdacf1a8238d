from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import p2pclust.lab.topology as room
from p2pclust.errors import UsageError
from p2pclust.overlay import Overlay

NAMES = tuple("abcdefgh")


@st.composite
def overlays(draw: st.DrawFn) -> Overlay:
    names = draw(st.permutations(NAMES[: draw(st.integers(1, 8))]))
    pairs = [(a, b) for a in names for b in names if a != b]
    return Overlay(tuple(names), draw(st.lists(st.sampled_from(pairs))) if pairs else [])


def test_links_are_normalised_sorted_and_given_once() -> None:
    overlay = Overlay(("c", "a", "b"), [("c", "a"), ("b", "a"), ("a", "c")])
    assert overlay.names == ("c", "a", "b")
    assert overlay.links == (("a", "b"), ("a", "c"))
    assert (overlay.n_peers, overlay.n_links) == (3, 2)
    assert overlay.neighbours("a") == ("b", "c")
    np.testing.assert_array_equal(overlay.pairs, [[1, 2], [1, 0]])
    np.testing.assert_array_equal(overlay.degrees, [1, 2, 1])


def test_it_is_a_value() -> None:
    places = {"b": (0, 1), "a": (2, 3)}
    one = Overlay(("a", "b"), [("a", "b")], places)
    other = Overlay(("a", "b"), [("b", "a")], {"a": (2.0, 3.0), "b": (0.0, 1.0)})
    assert one == other
    assert hash(one) == hash(other)
    assert one != Overlay(("a", "b"), [("a", "b")])
    places["a"] = (9, 9)
    assert one.positions == {"a": (2.0, 3.0), "b": (0.0, 1.0)}
    assert list(one.positions) == ["a", "b"]  # in the order of the names
    with pytest.raises(AttributeError):
        one.kind = "ring"  # type: ignore[misc]


@given(overlays())
def test_neighbours_and_links_say_the_same(overlay: Overlay) -> None:
    from_neighbours = {(a, b) for a in overlay.names for b in overlay.neighbours(a)}
    assert from_neighbours == {pair for a, b in overlay.links for pair in ((a, b), (b, a))}
    assert overlay.degrees.tolist() == [len(overlay.neighbours(name)) for name in overlay.names]


@pytest.mark.slow
@given(overlays())
def test_components_are_what_links_join(overlay: Overlay) -> None:
    parts = overlay.components()
    assert sorted(name for part in parts for name in part) == sorted(overlay.names)
    assert [len(part) for part in parts] == sorted((len(part) for part in parts), reverse=True)
    home = {name: number for number, part in enumerate(parts) for name in part}
    assert all(home[a] == home[b] for a, b in overlay.links)
    # By repeated squaring of the matrix of who reaches whom.
    reach = np.eye(overlay.n_peers, dtype=np.int64)
    reach[tuple(overlay.pairs.T)] = reach[tuple(overlay.pairs[:, ::-1].T)] = 1
    for _ in range(3):
        reach = np.minimum(reach @ reach, 1)
    together = [[home[a] == home[b] for b in overlay.names] for a in overlay.names]
    np.testing.assert_array_equal(reach == 1, together)


def test_components_in_order() -> None:
    overlay = Overlay(("z", "y", "x", "w", "v"), [("v", "x"), ("w", "y")])
    assert overlay.components() == (("y", "w"), ("x", "v"), ("z",))


REFUSED = {
    "nobody": (lambda: Overlay((), []), "overlay: no peers: name at least one"),
    "named twice": (lambda: Overlay(("a", "b", "a"), []), "overlay: peer 'a' is named twice: name every peer once"),
    "no name": (lambda: Overlay(("a", ""), []), "overlay: a peer is called '': expected a name"),
    "a number": (lambda: Overlay((1,), []), "overlay: a peer is called 1: expected a name"),  # type: ignore[arg-type]
    "a self-loop": (
        lambda: Overlay(("a", "b"), [("a", "b"), ("b", "b")]),
        "overlay: peer 'b' is linked to itself: leave that link out",
    ),
    "an unknown peer": (
        lambda: Overlay(("a", "b"), [("a", "x")]),
        "overlay: link 'a' - 'x': unknown peer 'x': expected one of 'a', 'b'",
    ),
    "a misspelt peer": (
        lambda: Overlay(("meter-01", "meter-02"), [("meter-01", "metr-02")]),
        "overlay: link 'meter-01' - 'metr-02': unknown peer 'metr-02' (did you mean 'meter-02'?)",
    ),
    "many peers": (
        lambda: Overlay(NAMES, [("a", "xyz")]),
        "overlay: link 'a' - 'xyz': unknown peer 'xyz': expected one of 'a', 'b', 'c', 'd', 'e', 'f' and 2 more",
    ),
    "neighbours of nobody": (
        lambda: Overlay(("a",), []).neighbours("x"),
        "overlay: unknown peer 'x': expected one of 'a'",
    ),
    "a position of nobody": (
        lambda: Overlay(("a",), [], {"a": (0, 0), "x": (0, 0)}),
        "overlay: position: unknown peer 'x': expected one of 'a'",
    ),
    "no position": (
        lambda: Overlay(("a", "b"), [], {"a": (0, 0)}),
        "overlay: peer 'b' has no position: give one to all peers, or to none",
    ),
    "a position that is none": (
        lambda: Overlay(("a",), [], {"a": (0, float("nan"))}),
        "overlay: peer 'a' is at (0.0, nan): expected two finite numbers",
    ),
    "two parts": (
        lambda: Overlay(("a", "b", "c"), [("a", "c")]).require_connected(),
        "overlay: not connected, but in 2 parts, of 2 peers ('a', ...) and 1 ('b'): link them",
    ),
    "many parts": (
        lambda: Overlay(NAMES, [("h", "g")]).require_connected(),
        "overlay: not connected, but in 7 parts, of 2 peers ('g', ...), 1 ('a'), 1 ('b'), 1 ('c') and 3 more: link them",
    ),
}


@pytest.mark.parametrize(("make", "line"), REFUSED.values(), ids=REFUSED)
def test_refused(make, line: str) -> None:
    with pytest.raises(UsageError) as error:
        make()
    assert str(error.value) == line


def test_a_peer_that_imports_overlays_imports_nothing_heavy() -> None:
    script = (
        "import sys\nfrom p2pclust.overlay import Overlay\n"
        "overlay = Overlay(('a', 'b'), [('a', 'b')])\noverlay.components(), overlay.neighbours('a')\n"
        "print(sorted({'networkx', 'scipy', 'sklearn', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_names_are_found_when_they_are_used() -> None:
    for name in room.__all__:
        assert getattr(room, name) is not None
    assert dir(room) == sorted(room.__all__)
    assert not hasattr(room, "Network")
