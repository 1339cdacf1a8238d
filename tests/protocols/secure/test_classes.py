"""Classes of revealed sets, compared with linear algebra: what can be solved for is never a part of a class."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.protocols.secure.classes import classes, exposed, grouped

PEERS = 6
SETS = st.lists(st.integers(1, 2**PEERS - 1), max_size=5)


def bits(mask: int) -> list[int]:
    return [mask >> peer & 1 for peer in range(PEERS)]


@given(SETS)
def test_classes_part_the_peers_that_are_in_any_set(revealed: list[int]) -> None:
    found = classes(revealed)
    everyone = 0
    for mask in revealed:
        everyone |= mask
    assert sum(found) == everyone
    assert all(one & other == 0 for one, other in combinations(found, 2))
    assert all(mask & one in (0, one) for mask in revealed for one in found)


@given(SETS)
def test_two_peers_are_together_exactly_if_they_are_in_the_same_sets(revealed: list[int]) -> None:
    together = {peer: one for one in classes(revealed) for peer in range(PEERS) if one >> peer & 1}
    for a, b in combinations(sorted(together), 2):
        same = all((mask >> a & 1) == (mask >> b & 1) for mask in revealed)
        assert (together[a] == together[b]) == same


@given(SETS, st.integers(2, 4))
def test_a_peer_whose_numbers_can_be_solved_for_is_listed(revealed: list[int], cohort: int) -> None:
    if not revealed:
        return
    matrix = np.array([bits(mask) for mask in revealed], dtype=float)
    listed = exposed(revealed, cohort)
    for size in range(1, cohort):
        for few in combinations(range(PEERS), size):
            target = np.array([float(peer in few) for peer in range(PEERS)])
            solution = np.linalg.lstsq(matrix.T, target, rcond=None)[0]
            if np.allclose(matrix.T @ solution, target, atol=1e-9):
                assert all(listed >> peer & 1 for peer in few), (revealed, few)


@given(SETS, st.integers(1, 2**PEERS - 1), st.integers(2, 4), st.data())
def test_whatever_part_of_an_unknown_set_was_revealed_nothing_more_is_exposed(
    revealed: list[int], unknown: int, cohort: int, data: st.DataObject
) -> None:
    part = unknown & data.draw(st.integers(0, 2**PEERS - 1))
    known = [*revealed, part] if part else revealed
    assert exposed(known, cohort) & ~exposed(revealed, cohort, [unknown]) == 0


def test_an_order_of_sets_does_not_matter_and_repeats_tell_nothing() -> None:
    revealed = [0b111100, 0b001111, 0b011110]
    assert classes(revealed) == classes([*reversed(revealed), revealed[0]])


def test_nothing_revealed_exposes_nobody() -> None:
    assert classes([]) == []
    assert exposed([], cohort=3) == 0


def members(mask: int) -> list[int]:
    return [peer for peer in range(12) if mask >> peer & 1]


@given(
    st.lists(st.integers(1, 2**12 - 1), max_size=4),
    st.integers(2, 4),
    st.lists(st.integers(0, 2**12 - 1), min_size=1, max_size=4),
    st.permutations(range(12)),
)
def test_one_more_set_that_may_be_revealed_leaves_no_small_class(
    sets: list[int], cohort: int, available: list[int], order: list[int]
) -> None:
    revealed: list[int] = []
    for mask in sets:
        if all(one.bit_count() >= cohort for one in classes([*revealed, mask])):
            revealed.append(mask)
    for here in available:  # one after another, as in a job
        found = grouped(here, revealed, cohort, order)
        assert found & ~here == 0
        if found:
            revealed.append(found)
        assert all(one.bit_count() >= cohort for one in classes(revealed)), (revealed, members(here), members(found))


@given(SETS, st.integers(1, 2**PEERS - 1), st.integers(2, 4))
def test_with_all_peers_of_a_set_back_it_may_be_revealed_again(revealed: list[int], more: int, cohort: int) -> None:
    whole = more
    for mask in revealed:
        whole |= mask
    if all(one.bit_count() >= cohort for one in classes([*revealed, whole])):
        assert grouped(whole, revealed, cohort, range(PEERS)) == whole


def test_a_peer_that_is_missing_takes_the_last_of_the_order_with_it() -> None:
    assert members(grouped(0b111111110, [0b111111111], 3, [8, 7, 6, 5, 4, 3, 1, 2, 0])) == [3, 4, 5, 6, 7, 8]


def test_a_class_of_which_too_few_would_be_left_is_left_out_whole() -> None:
    assert grouped(0b11110, [0b11111], 3, range(5)) == 0
    assert members(grouped(0b111110111, [0b000001111, 0b111111111], 3, range(9))) == [4, 5, 6, 7, 8]
    assert members(grouped(0b111111011, [0b000000111, 0b111111111], 3, range(9))) == [3, 4, 5, 6, 7, 8]


def test_peers_that_are_new_are_a_class_of_their_own() -> None:
    assert grouped(0b1110000, [0b0000111], 3, range(7)) == 0b1110000
    assert grouped(0b0111111, [0b0000111], 4, range(7)) == 0, "neither three nor three are enough"
    assert grouped(0b1111111, [0b0000111], 4, range(7)) == 0b1111000, (
        "of three that are exposed, nothing more is revealed"
    )
    assert grouped(0b11111, [], 3, range(5)) == 0b11111
