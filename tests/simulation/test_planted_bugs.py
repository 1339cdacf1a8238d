"""Every planted bug is found, so every promise that the simulator watches can be seen to break.

Each test runs one seed, which is known to find the bug; `p2pclust simulate --mutant all` looks for each without knowing one.
That the same seeds break no promise without the bug, the seeds of all swarms show (`make test`, `make swarms`).
"""

from __future__ import annotations

import importlib.util

import pytest

from p2pclust.cli.lab.seeds import Asked, try_seeds
from p2pclust.simulation.swarms.mutants import BUGS

#: By planted bug: a seed of its swarm that finds it, and how the failure begins.
FOUND_BY = {
    # TABLE
}


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    swarm, _ = BUGS[bug]
    if swarm == "fedcref" and importlib.util.find_spec("torch") is None:
        pytest.skip("autoencoders need torch: pip install 'p2pclust[models]'")
    seed, begins = FOUND_BY[bug]
    (found,) = try_seeds(range(seed, seed + 1), Asked(swarm or None, bug))
    lines = found.failure.splitlines() or [""]
    broken = lines[-1 if lines[0].startswith("Traceback") else 0]
    assert broken.startswith(begins), f"p2pclust simulate --seeds {seed}:{seed + 1} --mutant {bug}: {broken}"


def test_every_bug_that_is_looked_for_is_planted() -> None:
    assert set(FOUND_BY) == set(BUGS)
