"""A round without an aggregator: everybody ends at the same tick with the same, right estimate."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from overlays import connected, line, ring, star

from p2pclust.errors import WireError
from p2pclust.protocols.gossip.averaging import Answer, Averaging, Proposal, Tick, problem_with_tolerance
from p2pclust.protocols.gossip.push_sum import GossipLinks, agrees, apart, first_mass, second_eigenvalue


def round_of(links: GossipLinks, values: list[np.ndarray], tolerance: float) -> list[Averaging]:
    return [Averaging(links, i, Answer(i, whole=i), first_mass(values[i]), tolerance=tolerance) for i in links.members]


def take_tick(peers: list[Averaging]) -> None:
    told = [peer.message for peer in peers]
    for peer in peers:
        for other in peer.neighbours:
            # As from the wire, and it has no flaw.
            word = Tick.decode(told[other].encode(), n_peers=len(peers), size=peer.size)
            assert peer.problem_with(word) == ""
        peer.step({other: told[other] for other in peer.neighbours})


@pytest.mark.slow
@settings(max_examples=30)
@given(connected(), st.integers(0, 2**32 - 1), st.sampled_from([1e-2, 1e-6, 1e-10]))
def test_all_end_together_with_one_estimate_within_the_tolerance(
    links: GossipLinks, seed: int, tolerance: float
) -> None:
    rng = np.random.default_rng(seed)
    values = [rng.normal(size=2) * 10.0 ** rng.integers(-6, 6) * rng.integers(0, 2) for _ in links.members]
    peers = round_of(links, values, tolerance)
    ends: list[int] = []
    while not all(peer.ended for peer in peers):
        take_tick(peers)
        ends.append(sum(peer.ended for peer in peers))
        assert len(ends) < 20_000
    assert set(ends[:-1]) <= {0}, "nobody ends before the others"
    agreed = peers[0].estimate
    for peer in peers:
        assert peer.estimate.tobytes() == agreed.tobytes()
        assert sorted(peer.answers) == list(links.members)
    mean = np.mean([first_mass(x) for x in values], axis=0)
    # Of each pair the one's own scale counts, and that is within the tolerance of the other's too.
    assert agrees(mean, agreed, tolerance * (1 + 2 * tolerance) + 1e-13)


@pytest.mark.slow
@settings(max_examples=20)
@given(connected(), st.integers(0, 2**32 - 1))
def test_a_streak_beyond_the_hops_proves_that_all_agreed(links: GossipLinks, seed: int) -> None:
    """The claim of the module, at every tick at which any streak is so long."""
    tolerance, rng = 1e-4, np.random.default_rng(seed)
    peers = round_of(links, [rng.normal(size=1) for _ in links.members], tolerance)
    history: list[list[np.ndarray]] = []
    while not peers[0].ended:
        history.append([peer.estimate for peer in peers])
        take_tick(peers)
        for peer in peers:
            if peer.message.proposal is not None and peer.message.proposal.tick == peer.tick:
                then = history[peer.tick - links.hops - 1]
                worst = max(apart(a, b) for a in then for b in then)
                assert worst <= tolerance * (1 + 2 * tolerance)


def test_differences_never_grow() -> None:
    rng = np.random.default_rng(5)
    peers = round_of(ring(9), [rng.normal(size=1) for _ in range(9)], 1e-8)
    widths = []
    while not peers[0].ended and peers[0].message.value is not None:
        widths.append(float(np.ptp([peer.estimate[0] for peer in peers])))
        take_tick(peers)
    assert all(after <= before * (1 + 1e-12) + 1e-15 for before, after in pairwise(widths))


def predicted_ticks(links: GossipLinks, tolerance: float) -> int:
    """Return how many ticks a round is expected to take.

    A difference shrinks by the second eigenvalue per tick, until it is `tolerance` over the number of hops; then it takes
    one tick more than hops until a peer knows that it is so everywhere, and hops ticks until all know that.
    """
    fading = math.log(max(links.hops, 1) / tolerance) / -math.log(second_eigenvalue(links))
    return math.ceil(fading) + 2 * links.hops + 1


@pytest.mark.slow
def test_measured_ticks_are_as_predicted() -> None:
    for links in (ring(12), line(12), star(12)):
        rng = np.random.default_rng(0)
        peers = round_of(links, [rng.normal(size=3) for _ in links.members], 1e-9)
        while not peers[0].ended:
            take_tick(peers)
        assert 0.5 < peers[0].tick / predicted_ticks(links, 1e-9) < 2.0


def test_a_stage_that_does_not_add_up_ends_when_all_answers_are_everywhere() -> None:
    links = line(5)
    peers = [Averaging(links, i, Answer(i, payload=b"%d" % i), tolerance=1e-9) for i in range(5)]
    for _ in range(4):
        assert not peers[0].ended
        take_tick(peers)
    for peer in peers:
        assert peer.ended
        assert [answer.payload for _, answer in sorted(peer.answers.items())] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_fixed_number_of_ticks_leaves_everybody_its_own() -> None:
    links = line(3, "metropolis-hastings")
    values = [3.0, 0.0, 9.0]
    peers = [Averaging(links, i, Answer(i), np.array([x, x]), tolerance=1e-9, ticks=1) for i, x in enumerate(values)]
    take_tick(peers)
    assert not any(peer.ended for peer in peers), "the ends do not know yet who contributes at the other one"
    take_tick(peers)
    assert all(peer.ended for peer in peers)
    assert [sorted(peer.answers) for peer in peers] == [[0, 1, 2]] * 3
    assert [round(float(peer.estimate[0]), 12) for peer in peers] == [2.0, 4.0, 6.0]


def test_one_alone_ends_too() -> None:
    (peer,) = round_of(GossipLinks([[]]), [np.array([2.0])], 1e-9)
    while not peer.ended:
        take_tick([peer])
    assert peer.estimate.tolist() == [2.0, 2.0]


def test_who_knows_a_proposal_sends_no_mass() -> None:
    rng = np.random.default_rng(1)
    peers = round_of(ring(6), [rng.normal(size=1) for _ in range(6)], 1e-3)
    quiet = 0
    while not peers[0].ended:
        take_tick(peers)
        quiet += sum(peer.message.value is None for peer in peers)
    assert quiet > 6


def good() -> Tick:
    value = np.array([1.0, 1.0])
    return Tick(3, value, 0.5, (Answer(1, "no data"), Answer(2, whole=5)), Proposal(2, 1, value))


def test_a_tick_survives_the_wire() -> None:
    back = Tick.decode(good().encode(), n_peers=3, size=2)
    assert (back.streak, back.weight, back.answers) == (3, 0.5, good().answers)
    assert back.value is not None
    assert back.value.tolist() == [1.0, 1.0]
    assert back.proposal is not None
    assert back.proposal.rank == (2, 1)


def test_what_no_peer_could_say_is_refused() -> None:
    fields = msgpack.unpackb(good().encode())
    nan = np.array([np.nan, 1.0]).tobytes()
    wrong = [
        {0: -1}, {0: 2.0}, {0: None}, {1: [0.0, fields[1][1]]}, {1: [1, fields[1][1]]}, {1: [0.5, b"1234"]}, {1: [0.5,
        nan]}, {1: [0.5]}, {1: [float("inf"), fields[1][1]]}, {1: [0.5, np.array([5.0, 1.0]).tobytes()]}, {2: [[3, "",
        0, b""]]}, {2: [[0, "x" * 201, 0, b""]]}, {2: [[0, "", -1, b""]]}, {2: [[0, "", 0, "text"]]}, {2: [[0, ""]]},
        {2: 7}, {3: [1, 1]}, {3: [1, 9, fields[3][2]]}, {3: [-1, 1, fields[3][2]]}, {3: [1, 1, b""]},
    ]  # fmt: skip
    for change in wrong:
        data = [change.get(number, value) for number, value in enumerate(fields)]
        with pytest.raises(WireError):
            Tick.decode(msgpack.packb(data), n_peers=3, size=2)
    for data in (b"", b"\xc1", b"\x90", msgpack.packb({"a": 1}), msgpack.packb([1] * 5), b"\x91" * 2000):
        with pytest.raises(WireError):
            Tick.decode(data, n_peers=3, size=2)


def test_altered_bytes_are_refused_or_are_another_tick() -> None:
    valid = Tick(3, np.array([1.0, 5.0]), 0.5, (Answer(1, whole=1), Answer(2, "no data")), Proposal(1, 1, np.ones(2)))
    good, outcomes = valid.encode(), Counter[str]()

    @given(st.binary(max_size=60), st.integers(0, 40), st.integers(0, 3))
    def check(data: bytes, start: int, length: int) -> None:
        altered = good[:start] + data[:length] + good[start + length :]
        for one in (data, altered):
            try:
                tick = Tick.decode(one, n_peers=3, size=2)
            except WireError:
                outcomes["refused"] += 1
                continue
            outcomes["as it was" if one == good else "another tick"] += 1
            assert Tick.decode(tick.encode(), n_peers=3, size=2).encode() == tick.encode()
            assert all(0 <= answer.peer < 3 for answer in tick.answers)

    check()
    assert min(outcomes["refused"], outcomes["another tick"]) > 0, outcomes


def test_flaws() -> None:
    peer = round_of(line(3).among([0, 1]), [np.array([1.0])] * 3, 1e-9)[0]
    mass = first_mass(np.array([1.0]))
    assert peer.problem_with(Tick(0, mass, 1.0)) == ""
    assert "streak" in peer.problem_with(Tick(1, mass, 1.0))
    assert "no part" in peer.problem_with(Tick(0, mass, 1.0, (Answer(2),)))
    assert "future" in peer.problem_with(Tick(0, None, 1.0, (), Proposal(1, 1, mass)))
    assert "no mass" in peer.problem_with(Tick(0, None, 1.0))


def test_tolerances_that_rounding_would_not_reach() -> None:
    assert problem_with_tolerance(1e-9, 6) == ""
    assert "at least" in problem_with_tolerance(1e-13, 6)
    assert "at most" in problem_with_tolerance(0.6, 6)
    assert "at least" in problem_with_tolerance(float("nan"), 6)
