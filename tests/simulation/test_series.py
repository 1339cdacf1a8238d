"""Jobs that are repeated, among all misfortunes: each turn is one job, begins where the last one ended, and they go on."""

from __future__ import annotations

from collections import Counter

import pytest

from p2pclust.lab.simulation.swarms import series


@pytest.mark.slow
def test_stores_are_wiped_only_where_each_turn_keeps_a_majority_of_intact_ones() -> None:
    """A turn of two peers of three lost one of its two stores, and nothing is promised of such a turn."""
    assert not series.run(1285).failure


@pytest.mark.slow
def test_the_newest_turn_keeps_its_stores_until_the_next_has_begun() -> None:
    """The peers of a turn that has ended agree on the next one, so the disk of one of two is not lost then."""
    assert not series.run(23083).failure


@pytest.mark.swarms
@pytest.mark.parametrize(("overlay", "n_seeds"), [(None, 40), ("sparse", 20), ("moving", 20)])
def test_turns_follow_each_other(overlay: str | None, n_seeds: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(n_seeds):
        outcome = series.run(seed, overlay=overlay)
        assert not outcome.failure, f"seed {seed}: {outcome.failure}"
        counts += outcome.counts
    assert counts["warm start"] >= 2 * n_seeds
    assert counts["series ended"] == n_seeds
    assert counts["crash"] >= 1
