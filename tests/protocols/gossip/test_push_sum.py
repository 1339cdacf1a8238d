"""Shares, masses and predictions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from overlays import connected, grid, line, links_of, ring, star

from p2pclust.errors import UsageError
from p2pclust.lab.topology.matrices import metropolis_hastings
from p2pclust.overlay.overlay import Overlay
from p2pclust.protocols.gossip.push_sum import (
    GossipLinks,
    agrees,
    first_mass,
    mixed,
    mixing_matrix,
    second_eigenvalue,
    total_of,
)


def test_two_ticks_on_a_line_of_three_by_hand() -> None:
    links = line(3)
    masses = {i: (np.array([x]), 1.0) for i, x in enumerate([6.0, 0.0, 12.0])}
    # The ends keep a half and give a half, the middle keeps a third and gives a third to each end.
    once = {i: mixed(links.shares(i), masses) for i in range(3)}
    assert [float(x[0]) for x, _ in once.values()] == [3.0, 9.0, 6.0]
    assert [w for _, w in once.values()] == pytest.approx([5 / 6, 4 / 3, 5 / 6])
    twice = {i: mixed(links.shares(i), once) for i in range(3)}
    assert [float(x[0]) for x, _ in twice.values()] == pytest.approx([4.5, 7.5, 6.0])
    assert [w for _, w in twice.values()] == pytest.approx([31 / 36, 46 / 36, 31 / 36])


def test_the_shares_of_metropolis_and_hastings() -> None:
    links = star(4, "metropolis-hastings")
    assert links.shares(0) == {0: 0.25, 1: 0.25, 2: 0.25, 3: 0.25}
    assert links.shares(2) == {0: 0.25, 2: 0.75}
    pairs = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (3, 4)]
    overlay = Overlay(tuple("abcde"), [("abcde"[a], "abcde"[b]) for a, b in pairs])
    matrix = mixing_matrix(links_of(5, pairs, "metropolis-hastings"))
    assert np.allclose(matrix, metropolis_hastings(overlay), rtol=0, atol=1e-15)


@pytest.mark.slow
@given(connected(), st.randoms(use_true_random=False))
def test_no_tick_changes_the_sum_of_masses(links: GossipLinks, random: object) -> None:
    rng = np.random.default_rng(len(links.members))
    masses = {i: (first_mass(rng.normal(size=3)), 1.0) for i in links.members}
    total = sum(x for x, _ in masses.values())
    for _ in range(5):
        masses = {i: mixed(links.shares(i), masses) for i in links.members}
    assert np.allclose(sum(x for x, _ in masses.values()), total, rtol=1e-13, atol=1e-13)
    assert sum(w for _, w in masses.values()) == pytest.approx(len(links.members), rel=1e-13)


@pytest.mark.slow
@given(connected())
def test_columns_of_the_mixing_matrix_add_up_to_one(links: GossipLinks) -> None:
    matrix = mixing_matrix(links)
    assert np.allclose(matrix.sum(axis=0), 1.0)
    assert (matrix >= 0).all()
    plain = np.sort(np.abs(np.linalg.eigvals(matrix)))
    if len(plain) > 1:
        assert second_eigenvalue(links) == pytest.approx(plain[-2], abs=1e-7)


def test_eigenvalues_known_in_closed_form() -> None:
    assert second_eigenvalue(ring(12)) == pytest.approx((1 + 2 * np.cos(2 * np.pi / 12)) / 3)
    assert second_eigenvalue(links_of(3, [(0, 1), (0, 2), (1, 2)])) == pytest.approx(0.0, abs=1e-12)


def test_hops_and_parts() -> None:
    assert [grid(3, 4).hops, line(5).hops, star(5).hops, ring(7).hops] == [5, 4, 2, 3]
    apart = line(5).among([0, 1, 3, 4])
    assert not apart.connected
    assert (apart.part(0), apart.part(4)) == ((0, 1), (3, 4))
    assert apart.among(apart.part(0)).hops == 1


def test_links_must_be_links() -> None:
    for wrong in ([[1], []], [[0]], [[1], [0, 2]]):
        with pytest.raises(UsageError, match="links of peer"):
            GossipLinks(wrong)
    with pytest.raises(UsageError, match="mixing = 'fast'"):
        GossipLinks([[]], "fast")


def test_what_is_not_a_number_does_not_agree() -> None:
    own = np.array([1.0, 1.0])
    assert agrees(own, own, 0.0)
    assert not agrees(own, np.array([np.nan, 1.0]), 0.1)
    with np.errstate(invalid="ignore"):
        assert not agrees(np.array([np.inf, np.inf]), np.array([np.inf, np.inf]), 0.1)


def test_whole_totals_stay_whole_only_where_that_is_certain() -> None:
    estimate = np.array([1e3 + 1e-8, 1e12 / 3, 1e3 + 1e-8, 1e12 / 3])
    total = total_of(estimate, 3, np.array([True, True]), 1e-9)
    assert total[0] == 3000.0
    assert total[1] == 1e12 / 3 * 3  # a thousand whole numbers lie within the tolerance
