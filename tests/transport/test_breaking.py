from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from p2pclust.lab.links.breaking import BreakableLinks
from p2pclust.transport.links import Counters, Lane


class Wrapped:
    """Links that send everything, and whose peers all refuse."""

    roster: Any = None

    def __init__(self) -> None:
        self.counters = Counters()
        self.sent: list[str] = []

    def send(self, peer: str, frames: Sequence[bytes], lane: Lane) -> bool:
        self.sent.append(peer)
        return True

    def problem_with(self, peer: str) -> str:
        return ""

    async def refused(self, peer: str, timeout_s: float) -> bool:
        return True


@pytest.fixture
def wrapped() -> Wrapped:
    return Wrapped()


@pytest.fixture
def heard() -> list[str]:
    return []


@pytest.fixture
def links(wrapped: Wrapped, heard: list[str]) -> BreakableLinks:
    rng = np.random.default_rng(0)
    return BreakableLinks(lambda source, frames, lane: heard.append(source), rng).wrap(wrapped)  # type: ignore[arg-type]


def test_nothing_is_lost_unless_it_was_told(links: BreakableLinks, wrapped: Wrapped, heard: list[str]) -> None:
    assert links.send("a", [b"x"], Lane.CONTROL)
    links.take("a", [b"x"], Lane.CONTROL)
    assert (wrapped.sent, heard) == (["a"], ["a"])


def test_each_direction_by_itself(links: BreakableLinks, wrapped: Wrapped, heard: list[str]) -> None:
    links.deaf, links.mute = frozenset({"a"}), frozenset({"b"})
    for peer in ("a", "b"):
        assert links.send(peer, [b"xyz"], Lane.CONTROL), "who sends cannot know"
        links.take(peer, [b"x"], Lane.CONTROL)
    assert (wrapped.sent, heard) == (["a"], ["b"])
    assert (wrapped.counters.messages_sent, wrapped.counters.bytes_sent) == (1, 3), "what is lost was sent nonetheless"
    assert wrapped.counters.dropped == {"not received: lost on the way": 1}
    assert (links.problem_with("a"), links.problem_with("b")) == ("", "cut off by the testbed")


def test_beyond_a_cut_there_is_only_silence(links: BreakableLinks) -> None:
    links.deaf, links.mute = frozenset({"a"}), frozenset({"b"})
    assert [asyncio.run(links.refused(peer, 1.0)) for peer in "abc"] == [False, False, True]


def test_as_many_are_lost_as_was_told(links: BreakableLinks, wrapped: Wrapped, heard: list[str]) -> None:
    links.loss = 0.3
    for _ in range(2000):
        links.send("a", [b"x"], Lane.CONTROL)
        links.take("a", [b"x"], Lane.CONTROL)
    assert abs(len(wrapped.sent) / 2000 - 0.7) < 0.04
    assert abs(len(heard) / 2000 - 0.7) < 0.04
