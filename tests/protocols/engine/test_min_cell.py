"""A device can ask that nothing is sent of clusters with fewer of its rows, whatever a job's parameters say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from p2pclust.lab.attacks.sights import sights_of
from p2pclust.protocols.engine import summaries
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import run_in_process

INIT = [[0.0], [10.0], [20.0]]


def strict(values: list[float], min_cell: int) -> Local:
    local = Local(np.array(values)[:, np.newaxis])
    local.min_cell = min_cell
    return local


def shown_of(job: Job, peer: int, *locals_: Local) -> list[Any]:
    state = run_in_process(job, locals_)
    assert state.status == "done", state.reason
    return [sight.shown for sight in sights_of(job, locals_, state.log).sent[(peer,)]]


STRICT = [0.0, 0.1, 0.2, 9.0, 9.1, 9.2, 9.3]  # three rows near 0, four near 10
OTHER = [0.0, 0.2, 10.0, 10.2, 20.0, 20.2]


@pytest.mark.parametrize("singletons", [True, False])
def test_sums_of_fewer_rows_are_sent_as_zeros(singletons: bool) -> None:
    job = cluster_job("llf-cm", n_clusters=3, init=INIT, scaling="none", suppress_singletons=singletons, max_rounds=2)
    rounds = [shown for shown in shown_of(job, 0, strict(STRICT, 4), strict(OTHER, 0)) if "counts" in shown]
    assert [shown["counts"].tolist() for shown in rounds] == [[0.0, 4.0, 0.0]] * 2
    assert [float(shown["suppressed"]) for shown in rounds] == [1.0, 1.0]
    assert summaries.suppressed(run_in_process(job, [strict(STRICT, 4), strict(OTHER, 0)])) == 2
    masses = [shown["masses"] for shown in shown_of(job, 0, strict(STRICT, 4), strict(OTHER, 0)) if "masses" in shown]
    assert [of.tolist() for of in masses] == [[[0.0, 4.0, 0.0]]]


def test_without_the_rule_they_are_sent() -> None:
    job = cluster_job("llf-cm", n_clusters=3, init=INIT, scaling="none", max_rounds=2)
    rounds = [shown for shown in shown_of(job, 0, strict(STRICT, 0), strict(OTHER, 0)) if "counts" in shown]
    assert rounds[0]["counts"].tolist() == [3.0, 4.0, 0.0]


def test_cells_of_the_start_are_withheld_too() -> None:
    job = cluster_job("llf-cm", n_clusters=2, init="split-merge", scaling="none", max_rounds=2)
    rng = np.random.default_rng(0)
    rows = [strict(list(rng.normal(center, 1.0, 12)), least) for center, least in ((0.0, 7), (9.0, 0))]
    counts = [shown["counts"] for shown in shown_of(job, 0, *rows) if "counts" in shown]
    assert len(counts) > 3
    assert all(((of == 0) | (of >= 7)).all() for of in counts)


@pytest.mark.parametrize("protocol", ["k-fed", "fkm"])
def test_local_centers_of_fewer_rows_are_not_sent(protocol: str) -> None:
    rng = np.random.default_rng(1)
    values = [*rng.normal(0.0, 0.1, 4), *rng.normal(10.0, 0.1, 9)]
    job = cluster_job(protocol, n_clusters=2, seed=1)
    for least, centers in ((0, 2), (5, 1)):
        sent = [shown for shown in shown_of(job, 0, strict(values, least), strict(values, 0)) if "centers" in shown]
        assert len(sent[0]["centers"]) == centers


@pytest.mark.parametrize("init", ["careful", "k-means++", "shared-k-means++"])
def test_proposed_centers_are_means_of_as_many_rows(init: str) -> None:
    job = cluster_job("llf-cm", n_clusters=2, init=init, scaling="none", seed=3, max_rounds=1)
    few, rows = strict([float(n) for n in range(13)], 7), strict([float(n) for n in range(40)], 0)
    state = run_in_process(job, [few, rows])
    proposals = [record for record in state.log if record.stage == 2]
    assert proposals
    assert all(record.contributors == (1,) for record in proposals), "13 rows are fewer than twice 7"


def test_other_rows_keep_the_rule() -> None:
    assert strict([1.0], 5).with_rows([[2.0]]).min_cell == 5
