"""Membership and blobs where peers have links to their neighbours only."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import numpy as np
import pytest
from harness import Net, Packet, toy

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.effects import CheckLink, Connect, DropBlob, Effect, Send, SendChunk, StoreChunk
from p2pclust.peer.core.messages import Ack, BlobChunk, BlobMissing, BlobRequest, Gossip, MemberSync, Ping
from p2pclust.peer.core.routing import Routing
from p2pclust.peer.core.spread.blobs import Blobs
from p2pclust.peer.core.timing import PRESETS, Limits
from p2pclust.protocols.engine.workspace import digest_of

LINE = "12 23 34 45"
RING = "12 23 34 45 15"


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("links", [LINE, RING, "12 13 14 15", "12 23 24 45"])
def test_all_see_all_and_only_neighbours_are_probed(links: str, known: bool) -> None:
    net = Net(5, links=links, known=known)
    net.meet()
    net.advance(5)
    assert net.overlay is not None
    for name in net.names:
        assert len(net.core(name).membership.alive()) == 5
        near = set(net.overlay[name])
        effects = net.peers[name].effects
        assert {e.peer for e in effects if isinstance(e, Connect | CheckLink)} <= near
    pings = [p for p in net.sent if isinstance(p.message, Ping | MemberSync) and not p.via]
    assert pings
    assert all(p.target in net.overlay[p.source] for p in pings)


@pytest.mark.parametrize(("links", "victim"), [(LINE, "p5"), (LINE, "p3"), (RING, "p2"), ("12 13 14 15", "p4")])
def test_a_death_is_known_to_all_that_can_hear_of_it(links: str, victim: str) -> None:
    net = Net(5, links=links)
    net.meet()
    net.crash(victim)
    net.advance(10)
    for name in net.names:
        if name != victim:
            assert net.core(name).membership.status(victim) == "dead"


@pytest.mark.parametrize(("links", "victim"), [(RING, "p2"), ("12 23 34 45 15 13", "p3")])
def test_refused_connections_are_reported_around_the_peer_that_refuses_them(links: str, victim: str) -> None:
    """The shortest path between its neighbours goes through it. Without a second report it would be suspected first."""
    net = Net(5, links=links)
    net.meet()
    net.advance(2)
    net.crash(victim)
    net.advance(2)
    changes = [(fields["member"], fields["status"]) for _, fields in net.verbs("member")]
    assert changes.count((victim, "dead")) == 4
    assert (victim, "suspect") not in changes


def sent_claims(net: Net, name: str, status: str) -> Counter[tuple[str, str]]:
    """How often each peer sent a claim to each other, but in tables."""
    kinds = Ping | Ack | Gossip
    sent = [p for p in net.sent if isinstance(p.message, kinds) and any(
        (u.name, u.status) == (name, status) for u in p.message.updates
    )]  # fmt: skip
    return Counter((packet.source, packet.target) for packet in sent if packet.target != name)


@pytest.mark.parametrize("links", ["12 23 34 45 56 67 17", "12 13 14 15 16 17", "12 23 34 14 25 36 17"])
def test_a_claim_goes_over_each_link_once_in_each_direction(links: str) -> None:
    net = Net(7, links=links)
    net.meet()
    net.crash("p4")
    net.advance(10)
    assert net.overlay is not None
    ways = {(name, near) for name in net.names for near in net.overlay[name] if "p4" not in (name, near)}
    assert sent_claims(net, "p4", "dead") == dict.fromkeys(ways, 1)


def test_a_claim_that_was_lost_is_sent_again() -> None:
    net = Net(5, links=LINE)
    net.meet()
    lost: list[Packet] = []

    def first(packet: Packet) -> bool:
        hit = not lost and (packet.source, packet.target) == ("p4", "p3") and isinstance(packet.message, Gossip)
        lost.extend([packet] if hit else [])
        return hit

    net.lost = first
    net.crash("p5")
    net.until(lambda: bool(lost))
    net.advance(2 * net.timing.gossip_period_s)
    assert net.core("p1").membership.status("p5") == "dead"
    once = dict.fromkeys([("p3", "p4"), ("p3", "p2"), ("p2", "p3"), ("p2", "p1"), ("p1", "p2")], 1)
    assert sent_claims(net, "p5", "dead") == {("p4", "p3"): 2, **once}


def test_who_lives_behind_a_cut_is_not_dead_and_cannot_be_reached() -> None:
    net = Net(5, links=LINE)
    net.meet()
    net.crash("p3")
    net.advance(10)
    assert net.core("p1").membership.status("p5") == "alive"
    net.core("p1")._ctx.effects.clear()
    net.core("p1")._ctx.send("p5", BlobMissing(b"d" * 32))
    assert net.core("p1")._ctx.effects == []


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("links", [LINE, RING])
def test_a_job_ends_as_on_a_full_mesh(links: str, known: bool) -> None:
    net = Net(5, links=links, known=known)
    net.meet()
    net.advance(2)
    job = net.submit("p1", toy(3))
    net.until(lambda: len(net.finished(job)) == 5)
    assert set(net.states(job).values()) == {"s3[0,1,2,3,4]"}


class TestBrokenLinks:
    """The link of p1 and p2 in a ring carries nothing from p1 to p2."""

    def net(self, links: str = RING) -> Net:
        net = Net(5, links=links)
        net.meet()
        net.lost = lambda packet: (packet.source, packet.target) == ("p1", "p2")
        net.advance(10)
        return net

    def test_both_ends_go_around_it_until_it_works_again(self) -> None:
        net = self.net()
        assert [net.core(name).routing.broken for name in net.names] == [("p2",), ("p1",), (), (), ()]
        assert [net.core("p1").routing.hop("p2"), net.core("p2").routing.hop("p1")] == ["p5", "p3"]
        assert net.core("p3").routing.nearest_first(["p1"]) == ["p1"]
        assert net.core("p3").routing.hop("p1") == "p4"  # the others have heard of it
        assert all(net.core(name).membership.status("p2") == "alive" for name in net.names if name != "p2")
        net.lost = lambda packet: False
        net.advance(10)
        assert [net.core(name).routing.broken for name in net.names] == [()] * 5
        assert net.core("p1").routing.hop("p2") == "p2"
        assert sorted(name for name, _ in net.verbs("link-mended")) == ["p1", "p2"]

    def test_a_job_does_not_wait_for_it(self) -> None:
        net = self.net()
        net.advance(10)
        job = net.submit("p3", toy(3, pad=2000))
        net.until(lambda: len(net.finished(job)) == 5, limit_s=2)
        assert set(net.states(job).values()) == {"s3[0,1,2,3,4]"}
        assert net.verbs("relayed", "left-out") == []

    def test_a_link_without_another_way_is_used_all_the_same(self) -> None:
        net = self.net(LINE)
        assert net.core("p1").routing.broken == ()
        assert net.core("p1").routing.hop("p2") == "p2"

    def test_a_single_lost_probe_does_not_break_a_link(self) -> None:
        net = Net(5, links=RING)
        net.meet()
        lost = [0]

        def two_pings(packet: Packet) -> bool:
            hit = (packet.source, packet.target) == ("p1", "p2") and isinstance(packet.message, Ping)
            lost[0] += hit
            return hit and lost[0] <= 2

        net.lost = two_pings
        net.advance(20)
        assert lost[0] > 2
        assert net.verbs("link-broken") == []

    def test_a_vanished_link_is_not_broken(self) -> None:
        net = self.net()
        net.relink("12", up=False)
        assert net.core("p1").routing.broken == net.core("p2").routing.broken == ()
        net.lost = lambda packet: False
        net.relink("12", up=True)
        assert net.core("p1").routing.hop("p2") == "p2"


class TestBlobsOnTheWay:
    """p2 of the line p1 - p2 - p3: it has nothing of its own to do with the blob."""

    DATA = bytes(range(100))
    DIGEST = digest_of(DATA)
    OVERLAY: ClassVar[dict[str, tuple[str, ...]]] = {"p1": ("p2",), "p2": ("p1", "p3"), "p3": ("p2",)}

    def carrier(self, passing: int = 4) -> tuple[Context, Blobs]:
        limits = Limits(chunk_bytes=64, window=4, passing=passing)
        context = Context(
            "p2", PRESETS["fast"], limits, np.random.default_rng(0), "s", Routing("p2", self.OVERLAY)
        )  # fmt: skip
        return context, Blobs(context, {}, frozenset())

    def ask(self, index: int) -> BlobRequest:
        return BlobRequest(self.DIGEST, index, len(self.DATA), ("p3",))

    @staticmethod
    def effects(context: Context, *kinds: type[Effect]) -> list[Effect]:
        found = [effect for effect in context.effects if isinstance(effect, kinds)]
        context.effects.clear()
        return found

    def test_who_has_no_link_to_the_owner_asks_a_neighbour_and_names_it(self) -> None:
        limits = Limits(chunk_bytes=64)
        context = Context("p1", PRESETS["fast"], limits, np.random.default_rng(0), "s", Routing("p1", self.OVERLAY))
        blobs = Blobs(context, {}, frozenset())
        blobs.pull(self.DIGEST, len(self.DATA), ["p3"])
        assert self.effects(context, Send) == [Send("p2", self.ask(0))]
        blobs.receive("p2", BlobChunk(self.DIGEST, 0, (self.DATA[:64],)))
        assert self.effects(context, Send) == [Send("p2", self.ask(1))]

    def test_it_is_fetched_and_every_chunk_handed_on_at_once(self) -> None:
        context, blobs = self.carrier()
        blobs.receive("p1", self.ask(1))
        assert self.effects(context, Send) == [
            Send("p3", BlobRequest(self.DIGEST, 0)), Send("p3", BlobRequest(self.DIGEST, 1)),
        ]  # fmt: skip
        blobs.receive("p3", BlobChunk(self.DIGEST, 1, (self.DATA[64:],)))
        assert [type(effect) for effect in self.effects(context, StoreChunk, SendChunk)] == [StoreChunk, SendChunk]
        blobs.receive("p1", self.ask(0))
        blobs.receive("p3", BlobChunk(self.DIGEST, 0, (self.DATA[:64],)))
        assert self.effects(context, SendChunk) == [SendChunk("p1", self.DIGEST, 0)]

    def test_who_has_it_now_is_asked_too(self) -> None:
        """p3, of whom it was wanted, lost it, and wants it of p1: otherwise p2 and p3 would ask each other indefinitely."""
        context, blobs = self.carrier()
        blobs.receive("p1", self.ask(0))
        blobs.receive("p3", BlobRequest(self.DIGEST, 0, len(self.DATA), ("p1",)))
        context.effects.clear()
        blobs.fire(("blob", self.DIGEST.hex()))
        assert self.effects(context, Send) == [
            Send("p1", BlobRequest(self.DIGEST, 0)), Send("p1", BlobRequest(self.DIGEST, 1)),
        ]  # fmt: skip

    def test_it_is_kept_for_others_for_a_while(self) -> None:
        context, blobs = self.carrier()
        blobs.receive("p1", self.ask(0))
        for index, data in enumerate((self.DATA[:64], self.DATA[64:])):
            blobs.receive("p3", BlobChunk(self.DIGEST, index, (data,)))
        blobs.verified(self.DIGEST, True)
        context.effects.clear()
        blobs.keep_only(frozenset(), unfinished=False)
        blobs.receive("p1", self.ask(1))
        assert self.effects(context, Send, SendChunk, DropBlob) == [SendChunk("p1", self.DIGEST, 1)]
        context.now += 60.0
        blobs.keep_only(frozenset(), unfinished=False)
        assert self.effects(context, DropBlob) == [DropBlob(self.DIGEST)]

    def test_no_more_than_so_many_at_a_time(self) -> None:
        context, blobs = self.carrier(passing=1)
        blobs.receive("p1", self.ask(0))
        context.effects.clear()
        other = digest_of(b"other")
        blobs.receive("p1", BlobRequest(other, 0, 50, ("p3",)))
        assert self.effects(context, Send) == [Send("p1", BlobMissing(other))]

    def test_what_nobody_waits_for_makes_room(self) -> None:
        """Many models through one peer: it does not send the others away until the first ones are forgotten."""
        context, blobs = self.carrier(passing=1)
        blobs.receive("p1", self.ask(0))
        blobs.receive("p1", self.ask(1))
        for index, data in enumerate((self.DATA[:64], self.DATA[64:])):
            blobs.receive("p3", BlobChunk(self.DIGEST, index, (data,)))
        blobs.verified(self.DIGEST, True)
        context.effects.clear()
        other = digest_of(b"other")
        blobs.receive("p1", BlobRequest(other, 0, 50, ("p3",)))
        assert self.effects(context, Send) == [Send("p3", BlobRequest(other, 0))]
        blobs.keep_only(frozenset(), unfinished=False)
        assert self.effects(context, DropBlob) == [DropBlob(self.DIGEST)]

    def test_it_does_not_wait_until_this_peer_has_what_it_wants_itself(self) -> None:
        """Two peers, each with its own fetches through the other, would wait until a chunk is held lost."""
        context, blobs = self.carrier()
        for number in range(context.limits.pulls + 1):
            blobs.pull(digest_of(bytes([number])), 1, ["p3"])
        context.effects.clear()
        blobs.receive("p1", self.ask(0))
        assert self.effects(context, Send) == [Send("p3", BlobRequest(self.DIGEST, i)) for i in (0, 1)]

    def test_what_waited_for_room_goes_when_a_neighbour_wants_it_too(self) -> None:
        context, blobs = self.carrier()
        for number in range(context.limits.pulls):
            blobs.pull(digest_of(bytes([number])), 1, ["p3"])
        blobs.pull(self.DIGEST, len(self.DATA), ["p3"])
        context.effects.clear()
        blobs.receive("p1", self.ask(0))
        assert self.effects(context, Send) == [Send("p3", BlobRequest(self.DIGEST, i)) for i in (0, 1)]

    @pytest.mark.parametrize(("index", "size_bytes"), [(2, 100), (-1, 100), (0, 0), (0, -1), (2**61, 2**62)])
    def test_chunks_that_cannot_be_are_not_waited_for(self, index: int, size_bytes: int) -> None:
        context, blobs = self.carrier()
        blobs.receive("p1", BlobRequest(self.DIGEST, index, size_bytes, ("p3",)))
        assert self.effects(context, Send) == [Send("p1", BlobMissing(self.DIGEST))]
        assert (blobs._passing, blobs._askers) == ({}, {})

    def test_without_holders_it_is_missing(self) -> None:
        context, blobs = self.carrier()
        blobs.receive("p1", BlobRequest(self.DIGEST, 0))
        assert self.effects(context, Send) == [Send("p1", BlobMissing(self.DIGEST))]


def test_a_store_that_was_lost_far_away_is_known_before_the_next_job() -> None:
    """Those on the way never heard of p7 themselves; that it is back, with another store, is news to them all the same."""
    net = Net(7, links="12 23 34 45 56 67", timing=PRESETS["default"])
    net.meet()
    net.advance(2)
    first = net.submit("p1", toy(1), collect="star")  # p1 asks p7 who it is
    net.until(lambda: len(net.finished(first)) == 7)
    net.crash("p7", wiped=True)
    net.start("p7")
    net.advance(5)
    store_id = net.peers["p7"].disk.store_id
    assert net.core("p6").membership.store_id("p7") == store_id
    second = net.submit("p1", toy(1), collect="star")
    assert net.job("p1", second).document.counts("p7", store_id)
