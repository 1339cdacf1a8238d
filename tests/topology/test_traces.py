"""Traces of links: what a file may say, what it may not, and peers that walk."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.errors import UsageError
from p2pclust.overlay import LinkChange, Overlay, make_overlay, make_trace, read_trace, walk, write_trace

LINE = Overlay(("a", "b", "c"), [("a", "b"), ("b", "c")])


@pytest.fixture
def file_of(tmp_path: Path) -> Callable[..., Path]:
    def write(*lines: str) -> Path:
        file = tmp_path / "walk.csv"
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return file

    return write


def test_a_file_is_read_in_its_order(file_of: Callable[..., Path]) -> None:
    file = file_of("# a walk", "seconds,from,to,link", "", "1.5,b,a,down", "1.5, a, c, up", "4,a,b,up")
    assert read_trace(file, LINE) == (
        LinkChange(1.5, "b", "a", False), LinkChange(1.5, "a", "c", True), LinkChange(4.0, "a", "b", True),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("1,a,d,up", "line 3: unknown peer 'd'"),
        ("1,a,a,up", "line 3: peer 'a' is linked to itself"),
        ("0.5,a,c,up", "line 3: 0.5 s after 1 s"),
        ("1,c,b,up", "line 3: link 'c' - 'b' is there already"),
        ("1,a,c,down", "line 3: link 'a' - 'c' is not there"),
        ("1,a,b,down", "line 3: link 'a' - 'b' is not there"),
        ("1,a,c,on", "line 3: link = 'on': expected up or down"),
        ("-1,a,c,up", "line 3: seconds = '-1': expected a number from 0"),
        ("nan,a,c,up", "line 3: seconds = 'nan'"),
        ("1,a,c", "line 3: 3 values: expected seconds,from,to,link"),
    ],
)
def test_what_cannot_be_is_one_clear_line(file_of: Callable[..., Path], line: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_trace(file_of("seconds,from,to,link", "1,a,b,down", line), LINE)
    assert said in str(refused.value)
    assert "walk.csv" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("lines", [(), ("1,a,b,down",), ("from,to",)])
def test_a_header_is_needed(file_of: Callable[..., Path], lines: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="line 1: expected the header seconds,from,to,link"):
        read_trace(file_of(*lines), LINE)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_trace(tmp_path / "nowhere.csv", LINE)


@pytest.mark.slow
@given(st.integers(0, 2**32), st.integers(1, 12), st.floats(0.005, 0.3))
def test_a_walk_is_a_trace_that_begins_at_its_overlay(seed: int, n_peers: int, speed: float) -> None:
    names = [f"p{number}" for number in range(n_peers)]
    options = {"speed": speed, "seconds": 30}
    overlay = make_overlay("mobility", names, np.random.default_rng(seed), **options)
    trace = make_trace("mobility", names, np.random.default_rng(seed), **options)
    assert overlay.positions is not None
    assert trace == make_trace("mobility", names, np.random.default_rng(seed), **options)
    assert all(before.seconds <= after.seconds for before, after in pairwise(trace))
    links = set(overlay.links)
    for change in trace:
        pair = (min(change.a, change.b), max(change.a, change.b))
        assert change.up == (pair not in links)
        links ^= {pair}


@pytest.mark.slow
@given(st.integers(0, 2**32))
def test_nobody_is_faster_than_half_as_fast_again_as_the_mean_and_all_stay_inside(seed: int) -> None:
    rng = np.random.default_rng(seed)
    there = walk(("a", "b", "c"), rng.random((3, 2)), rng, radius=0.3, speed=0.1, seconds=50)
    steps = np.hypot(*np.moveaxis(np.diff(there.places, axis=0), -1, 0))
    assert steps.max() <= 0.15 + 1e-12
    assert steps.max() > 0.03
    assert there.places.min() >= 0
    assert there.places.max() <= 1


def test_two_that_walk_towards_each_other_meet_and_part() -> None:
    places = np.array([[[x, 0.5], [1 - x, 0.5]] for x in np.linspace(0, 1, 11)])
    there = walk(("a", "b"), places[0], np.random.default_rng(0), radius=0.3, speed=0.1, seconds=10)
    object.__setattr__(there, "places", places)
    assert there.trace() == (LinkChange(4.0, "a", "b", True), LinkChange(7.0, "a", "b", False))
    assert not there.linked(0).diagonal().any()


def test_new_links_come_before_old_ones_go() -> None:
    there = walk(("a", "b", "c"), np.zeros((3, 2)), np.random.default_rng(0), radius=0.2, speed=0.1, seconds=1)
    object.__setattr__(there, "places", np.array([[[0, 0], [0.1, 0], [1, 0]], [[0.9, 0], [0.1, 0], [1, 0]]]))
    assert [(change.b, change.up) for change in there.trace()] == [("c", True), ("b", False)]


def test_other_kinds_have_no_trace_of_their_own() -> None:
    assert make_trace("ring", ["a", "b", "c"], np.random.default_rng(0)) == ()


def test_written_and_read_again(tmp_path: Path) -> None:
    names = [f"p{number}" for number in range(8)]
    overlay = make_overlay("mobility", names, np.random.default_rng(3), speed=0.05)
    trace = make_trace("mobility", names, np.random.default_rng(3), speed=0.05)
    assert len(trace) > 10
    write_trace(trace, tmp_path / "made" / "walk.csv")
    assert read_trace(tmp_path / "made" / "walk.csv", overlay) == trace
    assert math.isclose(trace[-1].seconds, round(trace[-1].seconds))
