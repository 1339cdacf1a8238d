"""Clients of the control address, among all faults: what they saw keeps every promise, and planted bugs are found."""

from __future__ import annotations

from collections import Counter

import pytest

from p2pclust.simulation.swarms import clients
from p2pclust.simulation.swarms.control_mutants import CLIENT_MUTANTS
from p2pclust.simulation.swarms.mutants import planted

#: The bug -> a seed that finds it, tried before the others, and the promises that may break under it.
FOUND_BY = {
    "request-id-not-looked-up": (0, ("H4",)),
    "cancelled-before-all-agreed": (0, ("H3", "H6")),
    "ended-before-a-majority": (27, ("H2", "H6")),
    "labels-of-other-centers": (1, ("H5",)),
    "accepted-by-one": (0, ("H1",)),
}


@pytest.mark.swarms
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("overlay", "n_seeds"), [(None, 150), ("sparse", 40), ("moving", 40)])
def test_what_clients_see_keeps_every_promise(overlay: str | None, n_seeds: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(n_seeds):
        outcome = clients.run(seed, overlay=overlay)
        assert not outcome.failure, f"seed {seed}: {outcome.failure}"
        counts += outcome.counts
    assert counts["operations"] >= 40 * n_seeds
    if n_seeds >= 5:
        met = (
            "job done",
            "job cancelled",
            "submit: unknown",
            "cancel: unknown",
            "peer crashed at a question",
            "wiped store",
        )
        assert not [what for what in met if not counts[what]]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", FOUND_BY)
def test_a_planted_bug_is_found(mutant: str) -> None:
    seed, promises = FOUND_BY[mutant]
    with planted(mutant):
        found = (clients.run(other).failure for other in (seed, *range(60)))
        failure = next(filter(None, found), "no seed found it")
    assert failure.startswith(promises), failure


def test_every_planted_bug_is_tried() -> None:
    assert set(CLIENT_MUTANTS) <= set(FOUND_BY)
