"""Descriptions under faults: every peer that ends has the same bits, those of the replay of the record."""

from __future__ import annotations

import pytest
from swarm_seeds import counted


def test_a_few_seeds_break_no_promise() -> None:
    counts = counted(range(4), "describe")
    assert counts["done: described"] + counts["done: described-secured"] > 0


@pytest.mark.swarms
@pytest.mark.timeout(600)
@pytest.mark.parametrize("overlay", [None, "sparse"])
def test_seeds_break_no_promise(overlay: str | None) -> None:
    n_seeds = 60
    counts = counted(range(n_seeds), "describe", overlay)
    assert counts["crash"] > 0
    assert counts["finished"] > n_seeds / 2
    assert counts["done: described-secured"] > 0


def test_counts_that_a_state_has_too_are_no_single_contribution() -> None:
    """Once (5, 11, 0) rows of one peer were the merged cells of a state, three bytes further on."""
    assert counted(range(70, 71), "describe")["finished"] == 1
