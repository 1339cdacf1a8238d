"""Links of a peer's own that appear and vanish: whom it speaks to, what it tells, and who is held dead."""

from __future__ import annotations

import msgpack
import numpy as np
import pytest
from harness import Net, Packet, toy

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.effects import CheckLink, Connect, Disconnect, Send, SendChunk
from p2pclust.peer.core.events import LinkChecked, Linked
from p2pclust.peer.core.messages import Ack, BlobChunk, BlobRequest, FactDelta, MemberSync, Ping
from p2pclust.peer.core.routing import LINKS, Routing
from p2pclust.peer.core.spread.blobs import Blobs
from p2pclust.peer.core.timing import PRESETS, Limits
from p2pclust.protocols.engine.workspace import digest_of

LINE = "12 23 34 45"


def a_net(links: str = LINE, n: int = 5, *, known: bool = True) -> Net:
    net = Net(n, links=links, known=known)
    net.meet()
    net.advance(3)
    net.sent.clear()
    for peer in net.peers.values():
        peer.effects.clear()
    return net


def all_know(net: Net) -> bool:
    assert net.overlay is not None
    return all(net.core(n).routing.neighbours_of(o) == net.overlay[o] for n in net.names for o in net.names)


def statuses(net: Net, of: str) -> set[str]:
    return {net.core(name).membership.status(of) for name in net.names if name != of and net.peers[name].core}


class TestWhatAPeerDoes:
    def test_a_link_that_vanishes_is_closed_and_told_to_those_that_are_left(self) -> None:
        net = a_net()
        net.relink("23", up=False)
        assert [e for e in net.peers["p2"].effects if isinstance(e, Disconnect | Connect)] == [Disconnect("p3")]
        (told,) = [p for p in net.sent if p.source == "p2" and isinstance(p.message, FactDelta)]
        assert isinstance(told.message, FactDelta)
        assert (told.target, told.message.keys) == ("p1", (LINKS,))
        assert msgpack.unpackb(told.message.values[0]) == ["p1"]
        assert net.core("p1").routing.hop("p5") == ""

    def test_a_link_that_appears_is_opened_and_both_exchange_all_they_know(self) -> None:
        net = a_net()
        net.relink("15", up=True)
        assert [e for e in net.peers["p1"].effects if isinstance(e, Connect)] == [Connect("p5", "p5:1")]
        greeted = [p for p in net.sent if isinstance(p.message, MemberSync)]
        assert {(p.source, p.target) for p in greeted} >= {("p1", "p5"), ("p5", "p1")}
        assert net.core("p2").routing.hop("p5") == "p1", "nearer this way now"
        assert all_know(net)

    @pytest.mark.parametrize("known", [True, False])
    def test_everybody_knows_it_at_once_where_nothing_is_lost(self, known: bool) -> None:
        net = a_net(known=known)
        net.relink("15", "24", up=True)
        net.relink("34", up=False)
        assert all_know(net)

    def test_two_parts_that_are_linked_again_tell_each_other_at_once_what_changed_in_each(self) -> None:
        net = a_net()
        net.relink("23", up=False)
        net.relink("35", up=True)
        net.relink("34", up=False)
        once = {("p2", "p3"), ("p3", "p2")}

        def first_news(packet: Packet) -> bool:
            """The new link loses the first thing that is told over it."""
            way = (packet.source, packet.target)
            if isinstance(packet.message, FactDelta) and way in once:
                once.remove(way)
                return True
            return False

        net.lost = first_news
        net.relink("23", up=True)
        assert all_know(net)
        assert not once

    def test_what_is_no_news_does_nothing(self) -> None:
        net = a_net()
        for event in (Linked("p2", True), Linked("p5", False), Linked("p1", True), Linked("stranger", True)):
            net.step("p1", event)
        assert net.peers["p1"].effects == []

    def test_on_a_full_mesh_it_means_nothing(self) -> None:
        net = Net(3)
        net.meet()
        before = len(net.sent)
        net.step("p1", Linked("p2", False))
        assert len(net.sent) == before
        assert net.core("p1").routing.linked("p2")


class TestWhoIsHeldDead:
    @pytest.mark.slow
    def test_silence_after_the_link_vanished_proves_nothing(self) -> None:
        net = a_net()
        net.lost = lambda packet: isinstance(packet.message, Ack)
        net.until(lambda: any(isinstance(p.message, Ping) and (p.source, p.target) == ("p2", "p3") for p in net.sent))
        net.relink("23", up=False)
        net.lost = lambda packet: False
        net.advance(60)
        assert statuses(net, "p3") == {"alive"}

    def test_who_walks_on_lives_for_others_reach_it(self) -> None:
        net = a_net("12 23 34 15")
        for host, other in (("1", "2"), ("2", "3"), ("3", "4")):
            net.relink(f"{other}5", up=True)
            net.relink(f"{host}5", up=False)
            net.advance(20)
            assert statuses(net, "p5") == {"alive"}
        assert not net.verbs("refuted")

    def test_who_dies_at_its_new_place_is_noticed_there(self) -> None:
        net = a_net("12 23 34 15")
        net.relink("15", up=False)
        net.relink("45", up=True)
        net.crash("p5")
        net.advance(10)
        assert statuses(net, "p5") == {"dead"}

    def test_who_is_out_of_range_of_all_is_alive_as_far_as_anybody_knows_and_cannot_be_reached(self) -> None:
        net = a_net()
        net.relink("45", up=False)
        net.advance(60)
        assert statuses(net, "p5") == {"alive"}
        assert net.core("p1").routing.hop("p5") == ""
        assert net.core("p5").routing.hop("p1") == ""

    def test_a_port_that_refuses_counts_only_as_long_as_there_is_a_link(self) -> None:
        net = a_net()
        net.relink("45", up=False)
        net.step("p4", LinkChecked("p5", True))
        assert net.core("p4").membership.status("p5") == "alive", "and no other witness would be needed"
        assert not [e for e in net.peers["p4"].effects if isinstance(e, CheckLink)]

    def test_who_was_held_dead_hears_of_it_over_the_new_link_and_refutes_it(self) -> None:
        net = a_net()
        net.lost = lambda packet: "p5" in (packet.source, packet.target)
        net.until(lambda: statuses(net, "p5") == {"dead"})
        net.relink("45", up=False)
        net.lost = lambda packet: False
        net.relink("15", up=True)
        assert net.core("p1").membership.status("p5") == "alive"
        net.advance(2)
        assert statuses(net, "p5") == {"alive"}
        assert all_know(net)


class TestAfterARestart:
    def test_a_peer_finds_its_links_as_they_are_and_tells_them(self) -> None:
        net = a_net()
        net.crash("p5")
        net.relink("45", up=False)
        net.relink("15", up=True)
        net.start("p5")
        net.advance(10)
        assert all_know(net)
        assert statuses(net, "p5") == {"alive"}

    @pytest.mark.parametrize("wiped", [True, False])
    def test_what_others_remember_of_its_former_links_is_put_right(self, wiped: bool) -> None:
        """Its links are again those of the beginning, so it has nothing to tell, but the others were told otherwise."""
        net = a_net()
        net.relink("45", up=False)
        net.relink("35", up=True)
        net.crash("p5", wiped=wiped)
        net.relink("35", up=False)
        net.relink("45", up=True)
        net.start("p5")
        net.advance(20)
        assert all_know(net)

    def test_who_comes_back_learns_what_changed_meanwhile(self) -> None:
        net = a_net()
        net.crash("p1")
        net.advance(10)
        net.relink("35", up=True)
        net.relink("45", up=False)
        net.start("p1")
        net.advance(10)
        assert all_know(net)


class TestAJob:
    @pytest.mark.parametrize("pad", [0, 50_000])
    def test_goes_around_a_link_that_vanishes(self, pad: int) -> None:
        net = a_net("12 23 34 45 15")
        net.hold_work = lambda name, effect: effect.task.kind == "contribute"
        job = net.submit("p1", toy(3, pad=pad))
        net.until(lambda: len(net.tasks) == 5)  # everybody has adopted the first state, and nobody has answered
        net.relink("23", up=False)
        net.hold_work = lambda name, effect: False
        net.do_work()
        net.until(lambda: len(net.finished(job)) == 5)
        assert set(net.states(job).values()) == {"s3[0,1,2,3,4]"}

    @pytest.mark.slow
    def test_waits_while_it_is_cut_in_two_and_ends_when_a_link_appears(self) -> None:
        net = a_net()
        net.hold_work = lambda name, effect: effect.task.kind == "contribute"
        job = net.submit("p4", toy(3), missing="all")
        net.until(lambda: len(net.tasks) == 5)
        net.relink("23", up=False)
        net.hold_work = lambda name, effect: False
        net.do_work()
        net.advance(30)
        assert net.finished(job) == []
        net.relink("15", up=True)
        net.until(lambda: len(net.finished(job)) == 5)
        assert set(net.states(job).values()) == {"s3[0,1,2,3,4]"}

    @pytest.mark.parametrize("beats", range(5))
    def test_who_comes_into_reach_is_asked_at_the_next_heartbeat(self, beats: int) -> None:
        """Contact may be shorter than the time after which a question is repeated, and come at any moment of it."""
        net = a_net("12 13 14 15")
        net.hold_work = lambda name, effect: effect.task.kind == "contribute"
        job = net.submit("p2", toy(1), missing="all")
        net.until(lambda: len(net.tasks) == 5)
        led = net.aggregator(job)
        away = "p5" if led != "p5" else "p4"
        net.relink(f"1{away[1]}", up=False)
        net.hold_work = lambda name, effect: False
        net.do_work()
        beat = net.timing.heartbeat_s
        assert 4 * beat < net.timing.retry_s
        net.advance(net.timing.retry_s + beats * beat)
        assert net.states(job)[led] == "s0"
        net.relink(f"1{away[1]}", up=True)
        net.advance(2 * beat)
        assert net.states(job)[led] == "s1[0,1,2,3,4]"

    def test_the_minority_counts_whom_it_can_reach(self) -> None:
        net = a_net()
        net.hold_work = lambda name, effect: effect.task.kind == "contribute"
        net.submit("p4", toy(3), missing="all")
        net.until(lambda: len(net.tasks) == 5)
        net.relink("23", up=False)
        net.advance(10)
        said = [(name, fields["present"]) for name, fields in net.verbs("waiting")]
        assert {("p1", 2), ("p2", 2)} <= set(said)


class TestBlobsUnderWay:
    """p2 of the ring p1 - p2 - p3 - p4: it fetches from p4, through p1 or p3."""

    DATA = bytes(range(200))
    DIGEST = digest_of(DATA)

    def fetching(self) -> tuple[Context, Blobs, str]:
        ring = {"p1": ("p2", "p4"), "p2": ("p1", "p3"), "p3": ("p2", "p4"), "p4": ("p1", "p3")}
        limits = Limits(chunk_bytes=64, window=2)
        context = Context("p2", PRESETS["fast"], limits, np.random.default_rng(0), "s", Routing("p2", ring))
        blobs = Blobs(context, {}, frozenset())
        blobs.pull(self.DIGEST, len(self.DATA), ["p4"])
        hops = [e.to for e in context.effects if isinstance(e, Send)]
        context.effects.clear()
        assert len(set(hops)) == 1
        return context, blobs, hops[0]

    def test_are_asked_for_the_other_way_at_once(self) -> None:
        context, blobs, hop = self.fetching()
        context.routing.link(hop, up=False)
        blobs.link_vanished(hop)
        asked = [(e.to, e.message) for e in context.effects if isinstance(e, Send)]
        other = "p3" if hop == "p1" else "p1"
        assert asked == [(other, BlobRequest(self.DIGEST, 0, len(self.DATA), ("p4",)))]

    def test_are_left_alone_if_they_come_over_another_link(self) -> None:
        context, blobs, hop = self.fetching()
        other = "p3" if hop == "p1" else "p1"
        context.routing.link(other, up=False)
        blobs.link_vanished(other)
        assert [e for e in context.effects if isinstance(e, Send)] == []

    def test_are_not_handed_on_to_who_is_gone(self) -> None:
        context, blobs, hop = self.fetching()
        other = "p3" if hop == "p1" else "p1"
        blobs.receive(other, BlobRequest(self.DIGEST, 0, len(self.DATA), ("p4",)))
        context.routing.link(other, up=False)
        blobs.link_vanished(other)
        blobs.receive(hop, BlobChunk(self.DIGEST, 0, (self.DATA[:64],)))
        assert [e for e in context.effects if isinstance(e, SendChunk)] == []


def test_of_the_harness_nobody_sends_over_a_link_that_is_not_there() -> None:
    net = a_net()
    net.relink("23", up=False)
    net.advance(20)
    assert net.overlay is not None
    overlay = net.overlay

    def fits(packet: Packet) -> bool:
        return (
            bool(packet.via)
            or packet.target in overlay[packet.source]
            or {packet.source, packet.target} == {"p2", "p3"}
        )

    assert all(fits(packet) for packet in net.sent)
