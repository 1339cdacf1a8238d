"""Peers by their place on an overlay."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from p2pclust.lab.sweep.measures import peer_at
from p2pclust.lab.sweep.spec import Grid
from p2pclust.overlay.overlay import Overlay

#: Two triangles, a b c and e f g, with d between them; h hangs at g.
LINKS = [("a", "b"), ("a", "c"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "f"), ("e", "g"), ("f", "g"), ("g", "h")]
OVERLAY = Overlay(tuple("abcdefgh"), tuple(LINKS))
RING = Overlay(tuple("abcd"), (("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")))


def at(place: str, overlay: Overlay = OVERLAY, seed: int = 0) -> str:
    return peer_at(overlay, place, np.random.default_rng(seed))


def test_by_centrality() -> None:
    # Twelve pairs meet through d, three on its left with four on its right, and twelve through e, four with three; the
    # distances of both add up to 13: the first by name is first. Nobody meets through a, b, f and h; h is the farthest.
    assert at("central") == at("betweenness:1") == at("closeness:1") == "d"
    assert at("betweenness:2") == at("closeness:2") == "e"
    assert at("betweenness:3") == "c"
    assert at("closeness:last") == at("peripheral") == "h"


def test_of_equals_the_first() -> None:
    assert [at(place, RING) for place in ("central", "peripheral", "closeness:1", "closeness:last")] == [
        "a",
        "a",
        "a",
        "d",
    ]


def test_a_cut_vertex_or_none() -> None:
    assert at("cut-vertex") == "d"
    assert at("cut-vertex", RING) == ""


def test_there_is_no_hundredth_of_eight() -> None:
    assert at("betweenness:100") == ""


def test_drawn() -> None:
    assert {at("random", seed=seed) for seed in range(60)} == set("abcdefgh")
    assert at("random", seed=7) == at("random", seed=7)


@pytest.mark.parametrize("place", ["middle", "betweenness:0", "closeness", "closeness:-1", "betweenness:x", ""])
def test_what_is_no_place(place: str) -> None:
    with pytest.raises(ValidationError, match="expected elected, or central, peripheral, random, cut-vertex"):
        Grid.model_validate({"overlay": "ring", "aggregator": place})
