"""Cancels at random instants, among all other misfortunes: one end, the same everywhere, and both kinds of end are met."""

from __future__ import annotations

from collections import Counter

import pytest

from p2pclust.lab.simulation.swarms import cancel


@pytest.mark.swarms
@pytest.mark.parametrize(("overlay", "n_seeds"), [(None, 40), ("sparse", 20), ("moving", 20)])
def test_a_job_ends_once_cancelled_or_done(overlay: str | None, n_seeds: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(n_seeds):
        outcome = cancel.run(seed, overlay=overlay)
        assert not outcome.failure, f"seed {seed}: {outcome.failure}"
        counts += outcome.counts
    assert counts["cancelled"] >= n_seeds // 2
    if overlay is None:
        assert counts["done in spite of a cancel"] >= 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1002, 1028, 1034])
def test_a_candidate_that_caught_up_with_the_final_state_accepts_the_close(seed: int) -> None:
    """It was offered the final state after its vote was refused, and once held it as one that goes on, for ever."""
    assert not cancel.run(seed).failure


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1067, 1147])
def test_a_restarted_peer_is_reminded_only_of_cancels_that_are_on_its_disk(seed: int) -> None:
    """The job had ended and the row of its cancel was deleted at the restart; then others reminded it of the fact."""
    assert not cancel.run(seed).failure
