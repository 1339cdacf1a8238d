"""Shaped links in virtual time: what a scenario states is what a round trip and a transfer take, exactly."""

from __future__ import annotations

import numpy as np
import pytest

from p2pclust.lab.links.shaping import Shape
from p2pclust.lab.simulation.world.lines import Lines, Parcel
from p2pclust.lab.simulation.world.network import Conditions, Network
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.lab.simulation.world.world import Observer, World
from p2pclust.peer.core.reports import Report
from p2pclust.peer.core.timing import Limits, preset
from p2pclust.protocols.engine.local import Local
from p2pclust.transport.links import Lane

MBIT = 125_000  # bytes


class Post:
    """Devices that only send parcels; `arrived` has when and what."""

    def __init__(self, **shapes: Shape) -> None:
        self.world = World({}, Network(Conditions((0.0, 0.0)), np.random.default_rng(0)), preset("fast"), Limits(),
                           np.random.default_rng(1))  # fmt: skip
        self.lines = Lines(self.world.network, lambda: self.world.now, self.world.at, self._deliver)
        for name, shape in shapes.items():
            self.lines.shape(name, shape, np.random.default_rng(2))
        self.arrived: list[tuple[float, Parcel]] = []

    def _deliver(self, parcel: Parcel) -> None:
        self.arrived.append((self.world.now, parcel))

    def send(self, source: str, target: str, n_bytes: int, lane: Lane = Lane.BULK) -> bool:
        return self.lines.send(Parcel(source, target, [], n_bytes, lane, 0))


def test_a_way_has_both_latencies_and_the_slower_rate() -> None:
    post = Post(a=Shape.of(latency_ms=40, up_mbit=4, down_mbit=1), b=Shape.of(latency_ms=5, up_mbit=2, down_mbit=8))
    post.send("a", "b", 4 * MBIT)
    post.world.run_until(10.0)
    assert post.arrived[0][0] == pytest.approx(1.045, abs=1e-12)  # 4 Mbit/s of 4 and 8
    post.send("b", "a", 4 * MBIT)
    post.world.run_until(20.0)
    assert post.arrived[1][0] == pytest.approx(10.0 + 4.045, abs=1e-12)  # 1 of 2 and 1


def test_many_transfers_together_pass_what_the_slower_end_passes() -> None:
    post = Post(a=Shape.of(up_mbit=100), b=Shape.of(up_mbit=100), hub=Shape.of(down_mbit=8))
    for _ in range(10):
        post.send("a", "hub", MBIT)
        post.send("b", "hub", MBIT)
    post.world.run_until(60.0)
    # 20 megabits at 8 a second, after the first byte, which is under way with the first message.
    assert post.arrived[-1][0] == pytest.approx(20 / 8, abs=1 / 100)


def test_whoever_has_no_shape_is_not_held_up() -> None:
    post = Post(a=Shape.of(latency_ms=40))
    post.send("b", "c", 10**9)
    post.send("b", "a", 10**9)
    post.world.run_until(1.0)
    assert [at for at, _ in post.arrived] == [0.0, 0.04]


def test_a_device_that_loses_its_memory_loses_its_queue() -> None:
    post = Post(a=Shape.of(up_mbit=1))
    assert post.send("a", "b", MBIT)
    post.lines.forget("a")
    post.world.run_until(5.0)
    assert post.arrived == []


def test_a_cut_is_met_between_the_links() -> None:
    post = Post(a=Shape.of(latency_ms=40))
    post.send("a", "b", 10)
    post.world.network.cut("a", "b")
    post.world.run_until(1.0)
    assert post.arrived == []


class RoundTrips(Observer):
    """How long every answered ping took, by who asked."""

    def __init__(self) -> None:
        self.members: list[tuple[float, str]] = []

    def effect(self, world: World, peer: Peer, effect: object) -> None:
        if isinstance(effect, Report) and effect.verb == "member" and effect.fields["status"] == "alive":
            self.members.append((world.now, peer.name))


def test_peers_meet_after_the_latencies_of_their_links() -> None:
    watch = RoundTrips()
    network = Network(Conditions((0.0, 0.0)), np.random.default_rng(0))
    rows = {name: Local(np.zeros((1, 1))) for name in ("a", "b")}
    world = World(rows, network, preset("wan"), Limits(), np.random.default_rng(1), (watch,))
    world.lines.shape("a", Shape.of(latency_ms=200), np.random.default_rng(3))
    world.lines.shape("b", Shape.of(latency_ms=50), np.random.default_rng(4))
    for name in rows:
        world.start(name)
    world.run_until(20.0)
    assert sorted(name for _, name in watch.members) == ["a", "b"]
    assert min(at for at, _ in watch.members) >= 0.25


def test_the_same_seed_loses_the_same_messages() -> None:
    def arrived() -> list[float]:
        post = Post(a=Shape.of(latency_ms=40, jitter_ms=20, loss=0.2), b=Shape.of(latency_ms=5, loss=0.1))
        for number in range(200):
            post.world.at(number / 100, lambda: post.send("a", "b", 100))
        post.world.run_until(9.0)
        return [at for at, _ in post.arrived]

    found = arrived()
    assert found == arrived()
    assert abs(len(found) / 200 - 0.72) < 0.08
