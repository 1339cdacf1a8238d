"""Cancels at random instants, among all other misfortunes: one end, the same everywhere, and both kinds of end are met."""

from __future__ import annotations

import pytest
from swarm_seeds import counted


@pytest.mark.swarms
@pytest.mark.parametrize(("overlay", "n_seeds"), [(None, 40), ("sparse", 20), ("moving", 20)])
def test_a_job_ends_once_cancelled_or_done(overlay: str | None, n_seeds: int) -> None:
    counts = counted(range(n_seeds), "cancel", overlay)
    assert counts["cancelled"] >= n_seeds // 2
    if overlay is None:
        assert counts["done: plain"] + counts["done: gossip"] >= 1
