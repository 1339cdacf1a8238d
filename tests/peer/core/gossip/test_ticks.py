"""Words between neighbours: no peer continues without those of all, whatever is lost, late or repeated."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.gossip.ticks import NEVER, Frames, Position, Ticks
from p2pclust.peer.core.timing import Limits, preset
from p2pclust.transport.wire import MAX_FRAME_BYTES, MAX_FRAMES


class Side:
    """One peer's exchange, with what it told in the hand of the test."""

    def __init__(self, me: str, near: tuple[str, ...]) -> None:
        self.me = me
        self.ctx = Context(me, preset("fast"), Limits(), np.random.default_rng(0), "s")
        self.told: list[tuple[str, Position, Frames]] = []
        self.exchange = Ticks(self.ctx, lambda name, at, frames: self.told.append((name, at, frames)))
        self.exchange.enter(near, (0, 0))

    def take(self) -> list[tuple[str, Position, Frames, Position]]:
        told, self.told = self.told, []
        return [(name, at, frames, self.exchange.heard(name)) for name, at, frames in told]


def pair() -> tuple[Side, Side]:
    a, b = Side("a", ("b",)), Side("b", ("a",))
    a.exchange.say((0, 0), b"a0")
    b.exchange.say((0, 0), b"b0")
    return a, b


def deliver(source: Side, target: Side, *, but: tuple[int, ...] = ()) -> None:
    for number, (_, at, frames, heard) in enumerate(source.take()):
        if number not in but:
            target.exchange.hear(source.me, at, heard, frames)


def test_the_words_of_a_tick() -> None:
    a, b = pair()
    assert a.exchange.words() is None
    deliver(b, a)
    assert a.exchange.words() == {"b": b"b0"}


def test_the_longest_word_travels_and_no_longer_one() -> None:
    a, _ = pair()
    a.exchange.say((0, 1), bytes(MAX_FRAMES * MAX_FRAME_BYTES))
    assert len(a.take()[-1][2]) == MAX_FRAMES
    with pytest.raises(AssertionError, match="a word of"):
        a.exchange.say((0, 2), bytes(MAX_FRAMES * MAX_FRAME_BYTES + 1))


def test_a_lost_word_is_said_again_until_it_is_shown() -> None:
    a, b = pair()
    deliver(a, b, but=(0,))
    deliver(b, a)
    a.exchange.say((0, 1), b"a1")
    deliver(a, b, but=(0,))
    assert b.exchange.words() is None
    a.ctx.now = 0.3
    a.exchange.repeat()
    assert [at for _, at, _, _ in list(a.take())] == [(0, 0), (0, 1)], "both words, for neither was shown"
    a.ctx.now = 0.6
    a.exchange.repeat()
    deliver(a, b)
    assert b.exchange.words() == {"a": b"a0"}
    b.exchange.say((0, 1), b"b1")
    deliver(b, a)
    a.ctx.now = 0.9
    a.exchange.repeat()
    assert a.take() == [], "who says (0, 1) has (0, 0), and shows that it has (0, 1)"


def test_what_comes_twice_is_answered_so_that_it_stops() -> None:
    a, b = pair()
    deliver(a, b)
    b.take()
    a.ctx.now = 0.3
    a.exchange.repeat()
    deliver(a, b)
    ((_, _, frames, heard),) = b.take()
    assert (frames, heard) == ((), (0, 0))
    a.exchange.hear("b", (0, 0), heard, frames)
    a.ctx.now = 0.4
    a.exchange.repeat()
    assert a.take() == []


def test_words_that_overtake_each_other_are_not_taken_for_complete() -> None:
    a, b = pair()
    deliver(b, a)
    deliver(a, b)
    for side in (a, b):
        side.exchange.words()
        side.exchange.say((0, 1), side.me.encode() + b"1")
    (first,) = b.take()
    deliver(a, b)
    b.exchange.say((0, 2), b"b2")
    (second,) = b.take()
    a.exchange.hear("b", second[1], second[3], second[2])
    assert a.exchange.heard("b") == (0, 0), "the word before it is still on its way"
    a.exchange.hear("b", first[1], first[3], first[2])
    assert a.exchange.heard("b") == (0, 2)


def test_who_is_silent_is_told_where_this_peer_stands() -> None:
    a, b = pair()
    deliver(a, b)
    b.take()
    a.exchange.hear("b", (0, 0), (0, 0), ())
    a.ctx.now = 1.0
    a.exchange.repeat()
    assert [(name, frames) for name, _, frames, _ in a.take()] == [("b", ())]


def test_a_word_from_far_ahead_or_of_a_stranger_is_not_kept() -> None:
    a, _ = pair()
    a.exchange.hear("b", (0, 2), NEVER, (b"x",))
    a.exchange.hear("b", (7, 0), NEVER, (b"x",))
    a.exchange.hear("z", (0, 0), NEVER, (b"x",))
    assert a.exchange.words() is None
    assert a.exchange.heard("b") == NEVER
    assert a.exchange.heard("z") == NEVER


def test_what_a_former_life_said_is_known_for_it() -> None:
    a, _ = pair()
    assert a.exchange.said((0, 0))
    assert not a.exchange.said((0, 1))
    a.exchange.enter(("b",), (3, 0), again=True)
    assert a.exchange.said((0, 0))
    a.exchange.enter(("b",), (3, 0))
    assert not a.exchange.said((0, 0))


def test_a_neighbour_that_lost_its_store_is_sent_again_what_its_former_life_had() -> None:
    a, former = pair()
    former.take()  # its own word was lost
    deliver(a, former)
    former.exchange.say((0, 0), b"b0")
    former.take()
    a.exchange.hear("b", (0, 0), former.exchange.heard("a"), ())  # it only showed that it has a's word
    new = Side("b", ("a",))
    new.exchange.say((0, 0), b"b0")
    deliver(new, a)
    a.exchange.say((0, 1), b"a1")
    deliver(a, new)
    assert new.exchange.words() is None, "it has a's word of tick 1 and not that of tick 0"
    new.ctx.now = 3.0
    new.exchange.repeat()
    deliver(new, a)
    a.ctx.now = 4.0
    a.exchange.repeat()
    deliver(a, new)
    assert new.exchange.words() == {"a": b"a0"}


def test_a_large_word_travels_in_frames() -> None:
    a, b = Side("a", ("b",)), Side("b", ("a",))
    word = b"x" * (2 * MAX_FRAME_BYTES + 5)
    a.exchange.say((0, 0), word)
    b.exchange.say((0, 0), b"")
    ((_, _, frames, _),) = [packet for packet in a.take() if packet[2]]
    assert [len(frame) for frame in frames] == [MAX_FRAME_BYTES, MAX_FRAME_BYTES, 5]
    b.exchange.hear("a", (0, 0), NEVER, frames)
    assert b.exchange.words() == {"a": word}


def test_a_word_that_is_none_may_be_replaced() -> None:
    a, _ = pair()
    a.exchange.hear("b", (0, 0), NEVER, (b"bad",))
    a.exchange.refuse("b")
    assert a.exchange.words() is None
    a.exchange.hear("b", (0, 0), NEVER, (b"good",))
    assert a.exchange.words() == {"b": b"good"}


@pytest.mark.slow
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.booleans()), max_size=120))
def test_no_order_of_deliveries_mixes_ticks_up(steps: list[tuple[bool, int, bool]]) -> None:
    """Each side counts up; whatever is delivered when, lost or twice, each hears the other's numbers in order."""
    a, b = pair()
    wire: dict[str, list[tuple[Position, Frames, Position]]] = {"a": [], "b": []}
    for forth, which, keep in [*steps, *[(bool(i % 2), 0, False) for i in range(40)]]:
        source, target = (a, b) if forth else (b, a)
        source.ctx.now += 0.3
        source.exchange.repeat()
        wire[source.me] += [(at, frames, heard) for _, at, frames, heard in source.take()]
        if not wire[source.me]:
            continue
        place = which % len(wire[source.me])
        at, frames, heard = wire[source.me][place]
        if not keep:
            del wire[source.me][place]
        assert target.exchange.said(heard)
        target.exchange.hear(source.me, at, heard, frames)
        while (words := target.exchange.words()) is not None:
            tick = target.exchange.at[1]
            assert words == {source.me: b"%s%d" % (source.me.encode(), tick)}
            target.exchange.say((0, tick + 1), b"%s%d" % (target.me.encode(), tick + 1))
    assert abs(a.exchange.at[1] - b.exchange.at[1]) <= 1
    assert a.exchange.at[1] > 0
