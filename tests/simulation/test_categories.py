"""Random fleets whose rows have a category run k-prototypes: one fleet of ten, by its seed."""

from __future__ import annotations

import pytest
from swarm_seeds import counted

from p2pclust.lab.simulation.fleets.drawing import Bounds, draw

SEEDS = range(4, 64, 10)


def test_one_fleet_of_ten_has_categories() -> None:
    drawn = [draw(seed, Bounds(jobs=("plain",))).jobs for seed in range(40)]
    of_categories = [seed for seed, jobs in enumerate(drawn) if any(job.protocol == "k-prototypes" for job in jobs)]
    assert of_categories == [4, 14, 24, 34]


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [None, "secure", "leaderless"])
def test_their_seeds_break_no_promise(protocol: str | None) -> None:
    assert counted(SEEDS, protocol)["finished"] >= len(SEEDS) // 2
