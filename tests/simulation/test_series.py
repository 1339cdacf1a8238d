"""Jobs that are repeated, among all misfortunes: each turn is one job, begins where the last one ended, and they go on."""

from __future__ import annotations

from collections import Counter

import pytest

from p2pclust.simulation.swarms import series


@pytest.mark.slow
@pytest.mark.parametrize(("overlay", "n_seeds"), [(None, 4), ("sparse", 2), ("moving", 2)])
def test_turns_follow_each_other(overlay: str | None, n_seeds: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(n_seeds):
        outcome = series.run(seed, overlay=overlay)
        assert not outcome.failure, f"seed {seed}: {outcome.failure}"
        counts += outcome.counts
    assert counts["warm start"] >= 2 * n_seeds
    assert counts["series ended"] == n_seeds
    assert counts["crash"] >= 1
