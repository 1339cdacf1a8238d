"""Jobs that are repeated, among all misfortunes: each turn is one job, begins where the last one ended, and they go on."""

from __future__ import annotations

import pytest
from swarm_seeds import counted


@pytest.mark.swarms
@pytest.mark.parametrize(("overlay", "n_seeds"), [(None, 40), ("sparse", 20), ("moving", 20)])
def test_turns_follow_each_other(overlay: str | None, n_seeds: int) -> None:
    counts = counted(range(n_seeds), "series", overlay)
    assert counts["warm start"] >= 2 * n_seeds
    assert counts["finished"] == n_seeds
    assert counts["crash"] >= 1


@pytest.mark.swarms
@pytest.mark.parametrize(("overlay", "n_seeds"), [(None, 40), ("sparse", 20), ("moving", 20)])
def test_with_keys_no_liar_makes_up_a_turn(overlay: str | None, n_seeds: int) -> None:
    counts = counted(range(n_seeds), "turns", overlay)
    assert counts["finished"] == n_seeds
    assert counts["turn of a liar"] >= n_seeds // 2
