"""What crosses each link is counted, by kind and by round, and agrees with what peers and arithmetic say."""

from __future__ import annotations

from functools import cache

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.jobs.request import JobRequest
from p2pclust.lab.simulation.world.network import LinkTraffic, Traffic, traffic_summary
from p2pclust.lab.testbed import backend
from p2pclust.lab.testbed.spec import FleetResult, FleetSpec, PeerSpec
from p2pclust.peer.core.codec import encode
from p2pclust.peer.core.job_messages import Adopted, Heartbeat
from p2pclust.peer.core.messages import Message, Relay
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.transport.wire import kind_of, pack

N = 7
NAMES = tuple(f"p{i}" for i in range(N))
RING = {name: tuple(sorted((NAMES[i - 1], NAMES[(i + 1) % N]))) for i, name in enumerate(NAMES)}


def adopted(abstains: str = "", payload: bytes = b"", contribution: bytes = b"") -> Adopted:
    frames = (payload,) if payload else ()
    return Adopted("j", 1, 4, bytes(32), "store", abstains, contribution, len(payload), frames)


def counted(*messages: Message) -> LinkTraffic:
    traffic = Traffic()
    for message in messages:
        traffic.count("a", "b", encode(message), 10)
    return traffic.links()["a", "b"]


class TestCounting:
    def test_messages_and_bytes_by_kind(self) -> None:
        link = counted(Heartbeat("j", 1, 2), adopted(payload=b"x"), Heartbeat("j", 1, 3))
        assert link.messages == {"adopted": 1, "heartbeat": 2}
        assert link.n_bytes == {"adopted": 10, "heartbeat": 20}
        assert (link.total_messages, link.total_bytes) == (3, 30)

    def test_a_relayed_message_counts_as_what_it_carries(self) -> None:
        relays = [Relay("a", "c", b"", tuple(encode(inner))) for inner in (Heartbeat("j", 1, 2), adopted(payload=b"x"))]
        link = counted(*relays)
        assert link.messages == {"adopted": 1, "heartbeat": 1}
        assert link.contributions == {("j", 4): 1}

    def test_only_what_has_a_contribution_counts_as_one(self) -> None:
        relayed = Relay("a", "c", b"", tuple(encode(adopted(abstains="not drawn"))))
        assert counted(adopted(abstains="not drawn"), adopted(), relayed).contributions == {}
        assert counted(adopted(payload=b"x"), adopted(contribution=bytes(32))).contributions == {("j", 4): 2}

    def test_directions_are_apart_and_sorted(self) -> None:
        traffic = Traffic()
        for source, target in (("b", "a"), ("a", "c"), ("a", "b")):
            traffic.count(source, target, encode(Heartbeat("j", 1, 2)), 1)
        assert list(traffic.links()) == [("a", "b"), ("a", "c"), ("b", "a")]

    @given(st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=31), st.integers(0, 2**40))
    def test_the_kind_of_a_header(self, kind: str, seq: int) -> None:
        assert kind_of(pack(kind, {"seq": seq})[0]) == kind


def test_of_equally_hot_links_the_first_is_told() -> None:
    one = LinkTraffic({"ping": 1}, {"ping": 5})
    assert traffic_summary({("b", "a"): one, ("a", "b"): one}) == {
        "messages": 2, "bytes": 10, "hottest_link": {"from": "a", "to": "b", "bytes": 5},
    }  # fmt: skip
    assert traffic_summary({}) is None


@cache
def on_a_ring() -> FleetResult:
    rng = np.random.default_rng(0)
    peers = tuple(PeerSpec(name, rng.normal(size=(9, 2)) + 6 * rng.integers(0, 3, (9, 1))) for name in NAMES)
    job = cluster_job("llf-cm", n_clusters=3, max_rounds=4, tol=0.0, suppress_singletons=False)
    request = JobRequest(job, Treatment(aggregator="p3", collect="star"))
    return backend("simulated").carry_out(FleetSpec(peers, (request,), overlay=RING), lambda event: None)


def test_links_agree_with_peers() -> None:
    result = on_a_ring()
    assert all(target in RING[source] for source, target in result.links)
    for name, peer in result.peers.items():
        from_here = [link for (source, _), link in result.links.items() if source == name]
        assert sum(link.total_messages for link in from_here) == peer["messages_sent"]
        assert sum(link.total_bytes for link in from_here) == peer["bytes_sent"]


def test_on_a_ring_a_contribution_crosses_as_many_links_as_its_peer_is_away() -> None:
    result = on_a_ring()
    (job,) = result.jobs
    assert job.state is not None
    clustering = [round_ for round_, record in enumerate(job.state.log) if len(record.contributors) == N]
    assert len(clustering) >= 4
    for round_ in clustering:
        crossings = sum(link.contributions.get((job.job_id, round_), 0) for link in result.links.values())
        assert crossings == 2 * (1 + 2 + 3)
