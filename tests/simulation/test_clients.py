"""Clients of the control address, among all faults: what they saw keeps every promise, in many runs."""

from __future__ import annotations

import pytest
from swarm_seeds import counted


@pytest.mark.swarms
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("overlay", "n_seeds"), [(None, 150), ("sparse", 40), ("moving", 40)])
def test_what_clients_see_keeps_every_promise(overlay: str | None, n_seeds: int) -> None:
    counts = counted(range(n_seeds), "clients", overlay)
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
