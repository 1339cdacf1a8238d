"""What a lying device sends, and that only a testbed makes a device lie."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import p2pclust
from p2pclust.lab.testbed.peer.lies import LIES, lie_called
from p2pclust.protocols import Local
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.engine import begin, floats_of

ROWS = np.random.default_rng(2).uniform(1.0, 9.0, (40, 2))


@pytest.mark.parametrize("how", list(LIES))
@pytest.mark.parametrize("protocol", ["llf-cm", "llf-fcm"])
@pytest.mark.parametrize("n_init", [1, 2])
def test_it_lies_in_rounds_of_clustering_only(how: str, protocol: str, n_init: int) -> None:
    honest = Local(ROWS)
    liar = honest.with_rows(ROWS).lying(lie_called(how))
    job = cluster_job(
        protocol, n_clusters=4, scaling="minmax", bounds=[[0.0, 0.0], [10.0, 10.0]], n_init=n_init, seed=1
    )
    state, lied = begin(job), 0
    while state.status == "running":
        stage = job.protocols[state.stage]
        told, true = (engine.contribution(job, state, local, 0, 2) for local in (liar, honest))
        if state.stage == job.main:
            floats = floats_of(stage, state.arrays, told)  # type: ignore[arg-type]
            weights = floats[next(iter(floats))]
            assert weights.sum(axis=-1) == pytest.approx(
                40.0 * {"inflate": 100.0, "waver": 1.0 + lied % 2}.get(how, 1.0)
            )
            assert np.abs(floats["sums"]).max() == 0.0, "the corner is the lower end of the declared bounds"
            lied += 1
        else:
            assert told.encode() == true.encode()
        state = engine.advance(job, state, [(0, true), (1, told)], {}, n_peers=2)
    assert state.status == "done", state.reason
    assert lied > 0


def test_rows_that_are_replaced_or_refused_leave_a_liar_a_liar() -> None:
    lie = lie_called("corner")
    liar = Local(ROWS).lying(lie)
    assert liar.with_rows(ROWS[:3]).lie is lie
    assert liar.refusing("why").lie is lie
    assert Local(ROWS).lie is None


def test_no_ordinary_peer_can_lie() -> None:
    """The import contracts keep the testbed out of the core, the shell and what operators can ask."""
    package = Path(p2pclust.__file__).parent
    users = {path.relative_to(package).as_posix() for path in package.rglob("*.py") if "peer.lies" in path.read_text()}
    assert {user for user in users if not user.startswith("lab/")} == set()
