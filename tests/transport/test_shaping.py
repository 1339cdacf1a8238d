"""A device's own link: rate, latency, jitter, loss, lanes and queues, with exact arithmetic."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.lab.links.shaping import QUEUE_BYTES, Line, Shape, Way
from p2pclust.transport.links import Lane

CONTROL, BULK = Lane.CONTROL, Lane.BULK


def line(seed: int = 0, **way: float) -> Line[str]:
    return Line[str](Way(**way), np.random.default_rng(seed))


def all_of(shaped: Line[str]) -> list[tuple[float, str]]:
    """When each message comes out, looking exactly when the line asks for it."""
    out: list[tuple[float, str]] = []
    while (at := shaped.next_at) < math.inf:
        out += [(at, item) for item in shaped.pop(at)]
    return out


def test_a_message_takes_its_bytes_over_the_rate_and_the_latency() -> None:
    shaped = line(latency_s=0.5, rate=1000.0)
    assert shaped.next_at == math.inf
    shaped.push(2.0, 250, BULK, "b", "model")
    assert shaped.pop(2.74) == []
    assert all_of(shaped) == [(2.75, "model")]


def test_messages_are_on_the_line_one_after_the_other() -> None:
    shaped = line(latency_s=1.0, rate=1000.0)
    for number in range(4):
        shaped.push(0.0, 500, BULK, "b", str(number))
    assert all_of(shaped) == [(1.5, "0"), (2.0, "1"), (2.5, "2"), (3.0, "3")]


def test_without_a_rate_nothing_waits() -> None:
    shaped = line(latency_s=0.25)
    for number in range(3):
        shaped.push(1.0, 10**6, BULK, "b", str(number))
    assert all_of(shaped) == [(1.25, "0"), (1.25, "1"), (1.25, "2")]


def test_a_probe_goes_before_a_model_and_the_rest_of_it_follows() -> None:
    shaped = line(rate=1000.0)
    shaped.push(0.0, 1000, BULK, "b", "model")
    shaped.push(0.5, 1000, BULK, "b", "another")
    shaped.push(0.25, 250, CONTROL, "b", "probe")
    assert all_of(shaped) == [(0.5, "probe"), (1.25, "model"), (2.25, "another")]


def test_a_down_link_takes_in_what_still_comes_out_of_an_up_link() -> None:
    # 1000 bytes that left over 500 bytes a second: the last one is here at 2, the first was at 0.
    faster, slower = line(rate=1000.0), line(rate=250.0)
    for shaped in (faster, slower):
        shaped.push(2.0, 1000, BULK, "a", "model", 500.0)
    assert (all_of(faster), all_of(slower)) == ([(2.0, "model")], [(4.0, "model")])


def test_two_senders_share_a_down_link() -> None:
    shaped = line(rate=1000.0)
    for sender in ("a", "b"):
        shaped.push(1.0, 1000, BULK, sender, sender, 1000.0)
    assert all_of(shaped) == [(1.0, "a"), (2.0, "b")]


@given(sizes=st.lists(st.integers(1, 5000), min_size=1, max_size=30), up=st.floats(10, 1e6), down=st.floats(10, 1e6))
def test_a_train_of_messages_takes_what_the_slower_line_says(sizes: list[int], up: float, down: float) -> None:
    first, second = line(rate=up), line(rate=down)
    for number, size in enumerate(sizes):
        first.push(0.0, size, BULK, "b", str(number))
    for at, item in all_of(first):
        second.push(at, sizes[int(item)], BULK, "a", item, up)
    out = all_of(second)
    assert [item for _, item in out] == [str(number) for number in range(len(sizes))]
    whole, rate = sum(sizes), min(up, down)
    assert whole / rate * (1 - 1e-9) <= out[-1][0] <= (whole / rate) * (1 + 1e-9) + max(sizes) / max(up, down)


@pytest.mark.slow
@given(st.lists(st.tuples(st.floats(0, 10), st.integers(1, 10**5), st.sampled_from([CONTROL, BULK])), max_size=40))
def test_nothing_is_lost_made_up_or_faster_than_the_rate(sent: list[tuple[float, int, Lane]]) -> None:
    shaped = line(latency_s=0.5, rate=1e4)
    sent.sort(key=lambda message: message[0])
    for number, (at, size, lane) in enumerate(sent):
        assert shaped.push(at, size, lane, "b", str(number))
    out = all_of(shaped)
    assert sorted(int(item) for _, item in out) == list(range(len(sent)))
    for at, item in out:
        began, size, _ = sent[int(item)]
        assert at >= began + size / 1e4 + 0.5 - 1e-6
    for lane in Lane:
        order = [int(item) for _, item in out if sent[int(item)][2] == lane]
        assert order == sorted(order)


def test_jitter_is_uniform_around_the_latency() -> None:
    shaped = line(latency_s=0.04, jitter_s=0.01)
    for number in range(2000):
        shaped.push(float(number), 10, CONTROL, "b", str(number))
    taken = [at - int(item) for at, item in all_of(shaped)]
    assert 0.03 <= min(taken) < 0.0302
    assert 0.0498 < max(taken) <= 0.05
    assert np.mean(taken) == pytest.approx(0.04, abs=0.0005)


def test_jitter_lets_no_message_overtake_another_of_its_flow() -> None:
    shaped = line(latency_s=0.04, jitter_s=0.04)
    for number in range(300):
        shaped.push(number / 1000, 10, CONTROL, "bc"[number % 2], str(number))
    order = [int(item) for _, item in all_of(shaped)]
    assert order != sorted(order)
    for peer in (0, 1):
        mine = [number for number in order if number % 2 == peer]
        assert mine == sorted(mine)


def test_a_share_is_lost_after_its_time_on_the_line() -> None:
    shaped = line(loss=0.3, rate=1000.0)
    for _ in range(2000):
        shaped.push(0.0, 1000, BULK, "b", "model")
    out = all_of(shaped)
    assert len(out) + shaped.lost == 2000
    assert shaped.lost_bytes == 1000 * shaped.lost
    assert abs(shaped.lost / 2000 - 0.3) < 0.03
    assert out[-1][0] > 1990


def test_draws_come_from_the_generator_and_only_where_they_matter() -> None:
    def lost(seed: int) -> int:
        shaped = line(seed, loss=0.5)
        for _ in range(1000):
            shaped.push(0.0, 1, BULK, "b", "x")
        shaped.pop(1.0)
        return shaped.lost

    assert lost(1) == lost(1) != lost(2)
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    quiet = Line[str](Way(latency_s=1.0, rate=10.0), rng)
    quiet.push(0.0, 10, BULK, "b", "x")
    assert quiet.pop(2.0) == ["x"]
    assert rng.bit_generator.state == before


def test_a_full_queue_refuses_and_the_other_lane_has_its_own() -> None:
    shaped = line(rate=1000.0)
    assert shaped.push(0.0, 3 * QUEUE_BYTES, BULK, "b", "huge")  # alone it may be as large as messages are
    assert not shaped.push(0.0, 1, BULK, "b", "small")
    assert shaped.push(0.0, 1, CONTROL, "b", "probe")
    assert [item for _, item in all_of(shaped)] == ["probe", "huge"]
    assert shaped.push(1e9, 1, BULK, "b", "small")


def test_a_line_may_change_under_way() -> None:
    shaped = line(rate=1000.0, latency_s=0.5)
    shaped.push(0.0, 1000, BULK, "b", "model")
    shaped.change(0.5, replace(shaped.way, rate=250.0))
    assert all_of(shaped) == [(3.0, "model")]
    shaped.change(4.0, Way())
    shaped.push(4.0, 1000, BULK, "b", "model")
    assert all_of(shaped) == [(4.0, "model")]


def test_flushing_takes_all_in_their_order() -> None:
    shaped = line(rate=1000.0, latency_s=9.0)
    for name, lane in (("first", BULK), ("second", BULK), ("probe", CONTROL)):
        shaped.push(0.0, 1000, lane, "b", name)
    assert shaped.pop(2.5) == []
    assert shaped.flush() == ["probe", "first", "second"]
    assert shaped.next_at == math.inf


def test_a_shape_survives_a_configuration() -> None:
    shape = Shape.of(latency_ms=10, jitter_ms=4, loss=0.5, up_mbit=8, down_mbit=80)
    assert Shape.from_dict(shape.to_dict()) == shape
    assert Shape.from_dict(Shape().to_dict()) == Shape()
