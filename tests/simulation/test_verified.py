"""Jobs with verify under faults and with an aggregator that lies: no other peer adopts a lie."""

from __future__ import annotations

import pytest
from swarm_seeds import counted

from p2pclust.lab.simulation.fleets.liars import LIES


@pytest.mark.swarms
@pytest.mark.timeout(600)
@pytest.mark.parametrize("overlay", [None, "sparse", "moving"])
def test_seeds_break_no_promise(overlay: str | None) -> None:
    n_seeds = 60
    counts = counted(range(n_seeds), "verified", overlay)
    assert counts["crash"] > n_seeds
    lies = sum(counts[f"lie: {kind}"] for kind in LIES)
    assert counts["state refuted"] >= lies > 0
