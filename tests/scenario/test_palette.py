"""Each colour of a report means one thing."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.lab.pictures.palette import (
    ALONE,
    CLASSES,
    CLUSTERS,
    CROWN,
    CURVE,
    DARK,
    GOOD,
    INK,
    LINK,
    PAPER,
    PEERS,
    SERIES,
    SHADES,
    VARIABLES,
    WRONG,
    cluster_hues,
    own_colours,
    peer_colours,
)
from p2pclust.lab.scenario.page.page import Page, write_page

EVERY = (*CLUSTERS, *CLASSES, *PEERS, *SERIES, *SHADES, ALONE, CROWN, CURVE, GOOD, INK, LINK, PAPER, WRONG)


def channels(colour: str) -> tuple[int, ...]:
    return tuple(int(colour[place : place + 2], 16) for place in (1, 3, 5))


def test_no_colour_has_two_meanings_on_a_light_or_on_a_dark_page(tmp_path: Path) -> None:
    assert len(set(EVERY)) == len(EVERY)
    dark = [DARK.get(colour, colour) for colour in EVERY]
    assert len(set(dark)) == len(dark)
    named = [VARIABLES[colour] for colour in EVERY]
    assert len(set(named)) == len(named), "the page has a variable for each"
    write_page(tmp_path / "page.html", Page("", "", ()))
    style = (tmp_path / "page.html").read_text(encoding="utf-8")
    for colour in (*CLUSTERS, *CLASSES, *PEERS, *SERIES, *SHADES, CROWN, CURVE):
        assert f"--{VARIABLES[colour]}: {colour}" in style


@pytest.mark.parametrize("palette", [CLUSTERS, CLASSES, PEERS])
def test_colours_of_one_kind_can_be_told_apart(palette: tuple[str, ...]) -> None:
    for one, other in itertools.combinations(palette, 2):
        apart = sum(abs(a - b) for a, b in zip(channels(one), channels(other), strict=True))
        assert apart >= 35, (one, other)


def test_clusters_classes_and_peers_do_not_look_alike() -> None:
    for one, other in itertools.product(CLUSTERS, CLASSES + PEERS):
        assert max(abs(a - b) for a, b in zip(channels(one), channels(other), strict=True)) >= 25, (one, other)


def test_a_peer_has_the_same_colour_whoever_is_asked_first() -> None:
    groups = {"m-2": "meter", "g": "gateway", "m-1": "meter"}
    colours = peer_colours(groups)
    assert colours == {"m-1": PEERS[0], "m-2": PEERS[1], "g": PEERS[2]}
    assert len(set(colours.values())) == len(groups)
    assert peer_colours({"m-1": "meter", "g": "gateway", "m-2": "meter"}) == colours


def test_of_more_peers_than_colours_each_has_that_of_its_device_class() -> None:
    groups = {f"m-{number}": "meter" for number in range(len(PEERS))} | {"g": "gateway"}
    assert not own_colours(groups)
    assert peer_colours(groups) == {name: PEERS[group == "gateway"] for name, group in groups.items()}


@given(
    st.lists(st.integers(0, 40), unique=True, max_size=len(CLUSTERS)),
    st.lists(st.booleans(), min_size=len(CLUSTERS), max_size=len(CLUSTERS)),
)
def test_two_clusters_share_a_colour_only_where_there_are_too_few(kinds: list[int], known: list[bool]) -> None:
    alike = [kind if there else None for kind, there in zip(kinds, known, strict=False)]
    hues = cluster_hues(alike, 41)
    assert len({hue % len(CLUSTERS) for hue in hues}) == len(hues)
    for kind, hue in zip(alike, hues, strict=True):
        assert kind is None or kind >= len(CLUSTERS) or hue == kind


def test_a_cluster_of_no_class_looks_like_no_class() -> None:
    assert cluster_hues([1, None, None], n_classes=3) == [1, 3, 4]
    assert len(set(cluster_hues([None] * 20))) == 20
