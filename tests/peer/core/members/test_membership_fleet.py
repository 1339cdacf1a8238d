"""Whole fleets: crashes, lost stores, cuts and lossy links. References are to SWIM and `docs/architecture.md`."""

from __future__ import annotations

import pytest
from harness import Net, Packet

from p2pclust.peer.core.messages import Gossip, MemberSync, Update


def test_a_restarted_peer_is_above_its_own_death() -> None:
    """The incarnation is stored and a life begins one above the last. Reference: docs/peer/membership.md, "Membership"."""
    net = Net(3)
    net.meet()
    net.crash("p2")
    net.until(lambda: net.core("p1").membership.status("p2") == "dead")
    net.start("p2")
    net.until(lambda: net.core("p1").membership.status("p2") == "alive")
    assert net.core("p1").membership.members["p2"].incarnation >= 2


def test_a_lost_store_comes_back_above_its_tombstone() -> None:
    """A peer that forgot its incarnation hears its own tombstone and refutes it.

    Reference: docs/peer/membership.md, "Membership".
    """
    net = Net(4)
    net.meet()
    for _ in range(3):
        net.crash("p2")
        net.start("p2")
    net.advance(1)
    before = net.core("p1").membership.members["p2"].incarnation
    net.crash("p2", wiped=True)
    net.until(lambda: all(net.core(n).membership.status("p2") == "dead" for n in ("p1", "p3", "p4")))
    net.start("p2")
    net.until(lambda: all(net.core(n).membership.status("p2") == "alive" for n in ("p1", "p3", "p4")))
    assert net.core("p1").membership.members["p2"].incarnation > before
    assert net.core("p1").membership.members["p2"].store_id == net.peers["p2"].disk.store_id


def test_a_store_that_was_lost_before_anybody_noticed_is_known_to_be_another_one() -> None:
    """Both lives count from the start, so the claims are alike but for the store; and jobs name the stores that count."""
    net = Net(3)
    net.meet()
    net.crash("p2", wiped=True)
    net.start("p2")
    now = net.peers["p2"].disk.store_id
    net.until(lambda: {net.core(name).membership.store_id("p2") for name in net.names} == {now}, limit_s=10.0)
    job = net.submit("p1", aggregator="p2")
    net.until(lambda: set(net.finished(job)) == set(net.names))
    assert net.job("p1", job).document.counts("p2", now)


def test_a_silent_peer_dies_and_a_healed_cut_merges() -> None:
    """Dead members are tried again, so two halves that buried each other find together.

    Reference: docs/peer/membership.md, "Membership".
    """
    net = Net(4)
    net.meet()
    halves = ({"p1", "p2"}, {"p3", "p4"})
    net.lost = lambda packet: any((packet.source in half) != (packet.target in half) for half in halves)
    net.until(lambda: all(len(net.core(n).membership.alive()) == 2 for n in net.names))
    net.lost = lambda packet: False
    net.until(lambda: all(len(net.core(n).membership.alive()) == 4 for n in net.names), limit_s=20)


def test_one_lossy_link_kills_nobody() -> None:
    """The helpers' way around a broken link keeps the member alive. Reference: SWIM, section 3.1."""
    net = Net(5)
    net.meet()

    def cut(packet: Packet) -> bool:
        return {packet.source, packet.target} == {"p1", "p2"}

    net.lost = cut
    net.advance(20)
    assert not net.verbs("refuted")
    assert all(net.core(n).membership.status("p2") == "alive" for n in net.names)


@pytest.mark.slow
def test_the_table_of_a_large_fleet_fits_into_a_message() -> None:
    """In a fleet of five hundred, two peers can still compare whom they see."""
    net = Net(500)
    net.start("p1")
    store, host = "0123456789abcdef" * 2, "192.168.100."
    for index, name in enumerate(net.names[1:]):
        net.arrive(name, "p1", Gossip((Update(name, "alive", 1, f"{host}{index % 256}:47000", store, ""),)))
    net.advance(5)
    assert max(len(p.message.updates) for p in net.sent if isinstance(p.message, MemberSync)) == 500
