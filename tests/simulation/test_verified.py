"""Jobs with verify under faults and with an aggregator that lies: no other peer adopts a lie."""

from __future__ import annotations

import pytest
from swarm_seeds import assert_found, counted

from p2pclust.simulation.swarms.lies import LIES
from p2pclust.simulation.swarms.mutants import VERIFIED_MUTANTS
from p2pclust.simulation.swarms.verified import run

#: By planted bug: a seed that finds it, and how the failure begins.
FOUND_BY = {
    "states-not-checked": 0,
    "answers-not-verified": 30,
    "pads-not-verified": 38,
    "any-start-of-a-proof": 37,
    "one-signature-is-enough": 37,
    "end-as-it-is-called": 2,
}


def test_a_few_seeds_break_no_promise() -> None:
    counts = counted(range(1, 5), "verified")
    assert counts["crash"] > 0
    assert counts["finished"] == 4
    assert counts["state refuted"] > 0


@pytest.mark.swarms
@pytest.mark.timeout(600)
@pytest.mark.parametrize("overlay", [None, "sparse", "moving"])
def test_seeds_break_no_promise(overlay: str | None) -> None:
    n_seeds = 60
    counts = counted(range(n_seeds), "verified", overlay)
    assert counts["crash"] > n_seeds
    lies = sum(counts[f"lie: {kind}"] for kind in LIES)
    assert counts["state refuted"] >= lies > 0


@pytest.mark.slow
@pytest.mark.parametrize("mutant", VERIFIED_MUTANTS)
def test_a_planted_bug_is_found(mutant: str) -> None:
    assert_found(mutant, run, FOUND_BY[mutant])


def test_every_planted_bug_is_looked_for() -> None:
    assert set(FOUND_BY) == set(VERIFIED_MUTANTS)
