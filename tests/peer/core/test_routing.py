"""Which way a message goes: a peer's own map of the overlay, and what changes it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.errors import WireError
from p2pclust.overlay.routes import Ways, mutual
from p2pclust.peer.core.codec import decode, encode
from p2pclust.peer.core.context import Context
from p2pclust.peer.core.effects import Send
from p2pclust.peer.core.job_messages import Close, Ended
from p2pclust.peer.core.messages import BlobMissing, FactDelta, Relay
from p2pclust.peer.core.routing import Routing
from p2pclust.peer.core.timing import PRESETS, Limits

RING = {"a": ("b", "d"), "b": ("a", "c"), "c": ("b", "d"), "d": ("a", "c")}
LINE = {"a": ("b",), "b": ("a", "c"), "c": ("b", "d"), "d": ("c",)}
WORD = BlobMissing(b"d" * 32)
FACT = FactDelta("a", 0, ("job/1",), (1,), (b"value",))
ANSWER = Ended("job-1")
LARGE = Close("job-1", 2, 3, b"d" * 32, 5, (b"state",))


def a_context(overlay: dict[str, tuple[str, ...]] | None, me: str = "a") -> Context:
    return Context(me, PRESETS["fast"], Limits(), np.random.default_rng(0), "s", Routing(me, overlay))


def claim(*names: str) -> bytes:
    packed: bytes = msgpack.packb(list(names))
    return packed


def test_on_a_full_mesh_everybody_is_a_neighbour() -> None:
    routing = Routing("a")
    assert (routing.whole, routing.linked("z"), routing.hop("z"), routing.links_known) == (True, True, "z", True)


def test_a_neighbour_is_spoken_to_and_others_through_one() -> None:
    routing = Routing("a", LINE)
    assert [routing.hop(name) for name in "bcd"] == ["b", "b", "b"]
    assert [routing.linked(name) for name in "bcd"] == [True, False, False]
    assert routing.others("d") == []
    assert Routing("a", RING).others("b") == [], "d is farther away, and may send it back"


def test_around_the_dead_and_back() -> None:
    routing = Routing("a", RING)
    first = routing.hop("c")
    routing.set_carries(first, False)
    assert {first, routing.hop("c")} == {"b", "d"}
    routing.set_carries(first, True)
    assert routing.hop("c") == first


def test_of_equal_ways_pairs_take_different_ones() -> None:
    wide = {"a": tuple("bcdefgh"), **dict.fromkeys("bcdefgh", ("a", "x", "y", "z"))}
    wide |= {name: tuple("bcdefgh") for name in "xyz"}
    hops = {me: Routing("a", wide).hop(me) for me in "xyz"}
    assert len(set(hops.values())) > 1


def test_who_knows_only_its_own_links_learns_the_others() -> None:
    routing = Routing("a", {"a": ("b",)})
    assert (routing.links_known, routing.hop("c"), routing.own_claim) == (False, "", claim("b"))
    routing.learn("b", claim("a", "c"))
    assert routing.hop("c") == "", "c has not said so"
    routing.learn("c", claim("b"))
    assert routing.hop("c") == "b"


def test_nobody_tells_this_peer_its_own_links() -> None:
    routing = Routing("a", LINE)
    routing.learn("a", claim("d"))
    assert [routing.linked(name) for name in "bd"] == [True, False]


def test_a_claim_of_links_that_are_not_there_draws_no_traffic() -> None:
    routing = Routing("a", LINE)
    routing.learn("b", claim("a", "c", "d"))
    assert routing.neighbours_of("b") == ("a", "c")


@pytest.mark.parametrize(
    "hostile", [b"", b"\xc1", claim("b") * 2, msgpack.packb("b"), msgpack.packb([1]), b"x" * 60_000]
)
def test_links_that_are_none_are_refused(hostile: bytes) -> None:
    with pytest.raises(WireError):
        Routing("a", LINE).learn("c", hostile)


class TestContext:
    def test_a_message_to_somebody_far_goes_through_a_neighbour(self) -> None:
        context = a_context(LINE)
        context.send("b", WORD)
        context.send("d", WORD)
        assert context.effects == [Send("b", WORD), Send("d", WORD, False, ("b",))]

    def test_on_a_mesh_the_relay_of_a_peer_is_used_for_half_a_minute(self) -> None:
        """Messages that come through it do not prolong that: two peers would never try the direct way again."""
        context = a_context(None)
        for now, relays in ((0.0, ("c",)), (20.0, ("c",)), (29.9, ("c",)), (30.1, ())):
            context.now = now
            if relays:
                context.heard("b", "c")
            context.send("b", WORD)
            assert context.effects.pop() == Send("b", WORD, False, relays)

    def test_where_no_way_is_known_nothing_is_sent(self) -> None:
        context = a_context({"a": ("b",)})
        context.send("d", WORD)
        assert context.effects == []

    def test_what_is_carried_counts_down(self) -> None:
        context = a_context(LINE, "b")
        relay = Relay("a", "d", b"", tuple(encode(WORD)))
        context.carry(relay, "a", 9)
        (sent,) = context.effects
        assert isinstance(sent, Send)
        assert (sent.to, sent.via) == ("c", ())
        assert isinstance(sent.message, Relay)
        assert sent.message.hops_left == 8
        assert decode(sent.message.inner) == WORD

    @pytest.mark.parametrize(("left", "carried"), [(1, True), (0, False), (-1, False), (2**60, True)])
    def test_a_message_in_circles_ends(self, left: int, carried: bool) -> None:
        context = a_context(LINE, "b")
        context.carry(Relay("a", "d", b"", tuple(encode(WORD)), left), "a", 9)
        assert bool(context.effects) == carried
        for effect in context.effects:
            assert isinstance(effect, Send)
            assert isinstance(effect.message, Relay)
            assert effect.message.hops_left < 9

    def test_nothing_goes_back_to_where_it_came_from(self) -> None:
        context = a_context(LINE, "b")
        context.carry(Relay("a", "d", b"", tuple(encode(WORD))), "c", 9)
        assert context.effects == []

    def test_around_takes_other_neighbours(self) -> None:
        context = a_context(RING)
        usual = context.routing.hop("c")
        assert context.send_around("c", WORD, [], 3) == [({"b", "d"} - {usual}).pop()]
        assert a_context(LINE).send_around("c", WORD, [], 3) == []

    def test_what_is_repeated_goes_another_way_too(self) -> None:
        """The usual way may lose large messages for good, and be found to be sound by the small ones that pass."""
        context = a_context(RING)
        usual = context.routing.hop("c")
        both = [Send("c", LARGE, False, tuple({"b", "d"} - {usual})), Send("c", LARGE, False, (usual,))]
        for passed_s, sent in ((0.0, both[1:]), (1.0, both), (0.01, both[1:]), (0.01, both[1:]), (1.0, both)):
            context.now += passed_s * context.timing.retry_s
            context.send("c", LARGE)
            assert context.effects == sent, "two at once are no repetition: the peer was asked by two ways"
            context.effects.clear()

    @pytest.mark.parametrize(
        ("links", "message", "bulk"),
        [(RING, ANSWER, False), (RING, FACT, False), (RING, LARGE, True), (LINE, LARGE, False), (None, LARGE, False)],
    )
    def test_nothing_else_does(self, links: Any, message: Any, bulk: bool) -> None:
        """Small messages pass, those about no job go between neighbours, and here may be only one way that is no longer."""
        context = a_context(links)
        for _ in range(3):
            context.now += 10.0
            context.send("c", message, bulk=bulk)
        assert len(context.effects) == 3

    def test_few_messages_are_remembered(self) -> None:
        context = a_context(RING)
        for number in range(5000):
            context.send("c", replace(LARGE, round=number))
        context.now += 10.0
        context.effects.clear()
        context.send("c", replace(LARGE, round=0))
        assert len(context.effects) == 1
        context.send("c", replace(LARGE, round=4999))
        assert len(context.effects) == 3


@given(
    st.lists(
        st.tuples(st.sampled_from(["link", "claim", "dies", "lives", "look"]), *[st.integers(0, 7)] * 2), max_size=30
    )
)
def test_a_map_that_changed_step_by_step_is_the_map_that_it_would_be_at_once(
    steps: list[tuple[str, int, int]],
) -> None:
    names = [f"p{number}" for number in range(8)]
    claims = {name: (names[number - 1], names[(number + 1) % 8]) for number, name in enumerate(names)}
    routing, silent = Routing("p0", dict(claims)), dict[str, None]()
    for what, a, b in [*steps, ("look", 0, 0)]:
        one, other = names[a], names[b]
        if what == "link" and a != b and 0 not in (a, b):
            for end, far in ((one, other), (other, one)):
                claims[end] = tuple(sorted({*claims[end]} ^ {far}))
                routing.learn(end, claim(*claims[end]))
        elif what == "claim" and a:
            claims[one] = (other,)
            routing.learn(one, claim(other))
        elif what in ("dies", "lives") and a:
            silent = {name: None for name in silent if name != one} | ({one: None} if what == "dies" else {})
            routing.set_carries(one, what == "lives")
        elif what == "look":
            whole = Ways(mutual(claims), silent)
            assert routing.reach == max(1, *whole.distances("p0").values())
            for name in names:
                assert routing.neighbours_of(name) == whole.neighbours(name)
                hops = whole.next_hops("p0", name)
                assert routing.hop(name) in (hops if name not in (*claims["p0"], "p0") and hops else (name, ""))


def test_neighbours_of_a_lost_peer_find_the_same_pairs_although_some_have_linked_already() -> None:
    names = [f"p{number:02}" for number in range(30)]
    overlay = {name: tuple(names[(n + step) % 30] for step in (1, 5, 12, 18, 25, 29)) for n, name in enumerate(names)}
    peers = {name: Routing(name, overlay) for name in overlay["p00"]}
    found: dict[str, str] = {}
    for name, routing in peers.items():
        for one, other in found.items():  # these two publish their new links before this peer hears of the death
            if name == other:
                routing.link(one, up=True)
            else:
                routing.learn(one, peers[one].own_claim)
        routing.set_carries("p00", False)
        found[name] = routing.replacement("p00")
        routing.link(found[name], up=True)
    assert {name: found[found[name]] for name in found} == {name: name for name in found}


def test_peers_that_are_given_the_same_overlay_change_their_own_maps_only() -> None:
    overlay = dict(RING)
    one, other = Routing("a", overlay), Routing("b", overlay)
    one.link("b", up=False)
    assert (one.neighbours_of("a"), other.neighbours_of("a")) == (("d",), ("b", "d"))
    assert overlay == RING


def test_a_broken_link_is_used_for_no_message_as_long_as_there_is_another_way() -> None:
    routing = Routing("a", RING)
    assert (routing.hop("b"), routing.hop("d")) == ("b", "d")
    assert routing.set_works("b", False)
    assert (routing.hop("b"), routing.hop("c"), routing.hop("d")) == ("d", "d", "d")
    assert routing.others("c") == []
    assert routing.linked("b"), "it is kept, so that it can be probed"
    assert msgpack.unpackb(routing.own_claim) == ["d"]
    assert routing.set_works("b", True)
    assert routing.hop("b") == "b"


def test_a_broken_link_that_is_the_only_way_is_tried() -> None:
    routing = Routing("a", LINE)
    assert routing.set_works("b", False)
    assert (routing.hop("b"), routing.hop("d")) == ("b", "")
