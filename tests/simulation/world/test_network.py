"""A network whose every misfortune comes from the seed."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from p2pclust.lab.simulation.world.network import Conditions, Network


def network(conditions: Conditions = Conditions(), seed: int = 0, **options: object) -> Network:  # noqa: B008 (frozen)
    return Network(conditions, np.random.default_rng(seed), **options)  # type: ignore[arg-type]


class TestCuts:
    def test_a_cut_has_a_direction(self) -> None:
        net = network()
        net.cut("a", "b")
        assert not net.reaches("a", "b")
        assert net.reaches("b", "a")
        assert net.delays("a", "b") == []
        assert len(net.delays("b", "a")) == 1
        assert (net.counts["cut"], net.counts["sent"]) == (1, 2)

    def test_cuts_add_up_and_each_needs_its_own_healing(self) -> None:
        net = network()
        net.cut("a", "b")
        net.cut("a", "b")
        net.heal("a", "b")
        assert not net.reaches("a", "b")
        net.heal("a", "b")
        assert net.reaches("a", "b")

    def test_healing_what_is_whole_leaves_no_credit(self) -> None:
        net = network()
        net.heal("a", "b")
        net.cut("a", "b")
        assert not net.reaches("a", "b")

    def test_healing_all_makes_a_perfect_network(self) -> None:
        net = network(Conditions(loss=1.0, duplicates=1.0, tail_probability=1.0))
        net.cut("a", "b")
        net.cut("a", "b")
        net.heal_all()
        assert net.reaches("a", "b")
        delays = [net.delays("a", "b") for _ in range(200)]
        assert all(len(copies) == 1 and copies[0] <= 0.01 for copies in delays)


class TestConditions:
    def test_delays_lie_within_their_bounds_and_reorder(self) -> None:
        net = network(Conditions(delay_s=(0.002, 0.005)))
        delays = [net.delays("a", "b")[0] for _ in range(500)]
        assert all(0.002 <= delay <= 0.005 for delay in delays)
        assert any(later < earlier for earlier, later in pairwise(delays))

    def test_loss_and_duplicates_come_as_often_as_asked(self) -> None:
        net = network(Conditions(loss=0.3, duplicates=0.5))
        copies = [len(net.delays("a", "b")) for _ in range(4000)]
        assert abs(copies.count(0) / 4000 - 0.3) < 0.03
        assert abs(copies.count(2) / (4000 - copies.count(0)) - 0.5) < 0.04
        assert (net.counts["lost"], net.counts["duplicated"]) == (copies.count(0), copies.count(2))

    def test_a_long_tail_delays_single_messages(self) -> None:
        net = network(Conditions(delay_s=(0.001, 0.002), tail_probability=0.1, tail_s=3.0))
        delays = [net.delays("a", "b")[0] for _ in range(2000)]
        slow = [delay for delay in delays if delay > 0.002]
        assert max(slow) > 2.0
        assert abs(len(slow) / 2000 - 0.1) < 0.03

    def test_a_device_has_its_own_link_on_top_at_both_ends(self) -> None:
        net = network(Conditions(delay_s=(0.0, 0.0)), links={"a": (0.04, 0.0), "b": (0.005, 0.0)})
        assert net.delays("a", "b") == [0.045]
        assert net.delays("b", "a") == [0.045]
        assert net.delays("b", "c") == [0.005]

    def test_the_losses_of_both_links_apply(self) -> None:
        net = network(links={"a": (0.0, 0.5), "b": (0.0, 0.5)})
        arrived = sum(bool(net.delays("a", "b")) for _ in range(4000))
        assert abs(arrived / 4000 - 0.25) < 0.03


def test_everything_comes_from_the_seed() -> None:
    bad = Conditions(delay_s=(0.001, 0.2), loss=0.3, duplicates=0.5, tail_probability=0.1)

    def draws(seed: int) -> list[list[float]]:
        net = network(bad, seed)
        return [net.delays("a", "b") for _ in range(100)]

    assert draws(1) == draws(1)
    assert draws(1) != draws(2)
