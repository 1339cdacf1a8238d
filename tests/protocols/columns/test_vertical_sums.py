"""Vertical clustering by sums alone: the results of the plain protocols, and what no sum can hide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust import VerticalCMeans, VerticalFuzzyCMeans
from p2pclust.errors import FleetError, UsageError
from p2pclust.protocols.columns.vertical_sums import AlignBySums
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.engine import added_up
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import run_in_process

from .test_vertical import centers, relative_difference, rows_of, split

X = rows_of(4, 90, 7)
WIDTHS = [3, 1, 3]
OPTIONS: dict[str, Any] = {"n_clusters": 4, "scaling": "zscore", "seed": 2, "tol": 0.0, "max_rounds": 9}


@pytest.mark.parametrize("protocol", ["vertical-cm", "vertical-fcm"])
@pytest.mark.parametrize("init", ["k-means++", "rows", "random", X[:4]])
def test_rounds_give_what_they_give_without_secure_sums(protocol: str, init: Any) -> None:
    columns = split(X, WIDTHS, None if isinstance(init, str) else init)
    jobs = [cluster_job(protocol, init=init, secure=secure, **OPTIONS) for secure in (False, True)]
    plain, by_sums = (run_in_process(job, columns) for job in jobs)
    assert (plain.status, by_sums.status) == ("done", "done")
    found = [centers(job, state, columns) for job, state in zip(jobs, (plain, by_sums), strict=True)]
    assert np.abs(found[0] - found[1]).max() < 1e-9
    assert relative_difference(jobs[1], columns, by_sums) < 1e-9


def test_crisp_rounds_end_when_no_row_has_another_label() -> None:
    columns = split(X, WIDTHS)
    job = cluster_job("vertical-cm", **{**OPTIONS, "tol": 0.5, "max_rounds": 40}, secure=True)
    state = run_in_process(job, columns)
    shifts = state.arrays["shifts"].tolist()
    assert state.converged
    assert shifts[-1] == 0.0
    assert all(shift == round(shift) > 0 for shift in shifts[:-1])
    assert np.array_equal(state.arrays["labels"], state.arrays["last_labels"])


def test_fuzzy_rounds_end_when_memberships_move_by_less_than_tol() -> None:
    job = cluster_job("vertical-fcm", **{**OPTIONS, "tol": 0.01, "max_rounds": 200}, secure=True)
    state = run_in_process(job, split(X, WIDTHS))
    moved = np.linalg.norm(state.arrays["memberships"] - state.arrays["last_memberships"])
    assert state.converged
    assert state.arrays["shifts"][-1] == pytest.approx(moved)
    assert moved < 0.01 <= state.arrays["shifts"][-2]


@pytest.mark.parametrize(
    "odd",
    [
        Local(X[:, 3:4], ids=np.arange(90)[::-1].copy()),
        Local(X[:89, 3:4]),
        Local(X[:, 3:4], ids=np.array([f"row {n}" for n in range(90)])),
    ],
)
def test_other_rows_are_noticed_and_no_number_of_the_data_is_sent(odd: Local) -> None:
    columns = split(X, WIDTHS)
    state = run_in_process(cluster_job("vertical-cm", secure=True, **OPTIONS), [columns[0], odd, columns[2]])
    assert state.status == "failed"
    assert state.round == 1
    assert "not all peers hold the same rows in the same order" in state.reason


@given(st.lists(st.integers(0, 2**64), min_size=3, max_size=3))
def test_only_equal_digests_pass(salts: list[int]) -> None:
    align, salt = AlignBySums(), Arrays(salt=np.zeros(16, np.uint8))
    ids = [np.full(3, value, dtype=object) for value in salts]
    parts = [
        align.contribute(salt, Local(np.zeros((3, 1)), ids=np.array([str(i) for i in one])), np.random.default_rng(0))
        for one in ids
    ]
    total = Arrays({name: np.sum([part[name] for part in parts], axis=0) for name in parts[0]})
    assert int(align.combine(salt, total)["n_rows"]) == (3 if len(set(salts)) == 1 else 0)


def test_without_one_owner_there_is_no_total() -> None:
    columns = split(X, WIDTHS)
    job = cluster_job("vertical-cm", secure=True, **OPTIONS)
    state: JobState = engine.begin(job)
    given = [(peer, engine.contribution(job, state, columns[peer], peer, 3)) for peer in (0, 1)]
    total, peers = added_up(given, 3)
    assert total is not None
    after = engine.advance(job, state, [(peers, total)], {2: "has no data"}, n_peers=3)
    assert after.status == "failed"
    assert "every peer's columns are needed (peer 2: has no data)" in after.reason


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"scaling": "none"}, "vertical-cm-by-sums: sums need scaled columns: set scaling to 'minmax' or 'zscore'"),
        ({"transfer": "float32"}, "transfer = 'float32': sums are of whole numbers: leave it out"),
    ],
)
def test_what_sums_cannot_do_is_refused(more: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        cluster_job("vertical-cm", secure=True, **{**OPTIONS, **more})


@pytest.mark.slow
@pytest.mark.parametrize("kind", [VerticalCMeans, VerticalFuzzyCMeans])
@pytest.mark.parametrize("init", ["k-means++", X[:4]])
def test_peers_of_a_fleet_find_what_one_process_finds(kind: Any, init: Any) -> None:
    options = {"n_clusters": 4, "n_peers": 4, "scaling": "minmax", "init": init, "random_state": 3, "tol": 0.05}
    model = kind(fleet="simulated", secure=True, **options).fit(X)
    assert model.converged_
    assert model.exposed_ == ()
    job = cluster_job(secure=True, **model._options(), seed=model.seed_)
    state = run_in_process(job, model._locals([X[:, own] for own in model.columns_], None))
    assert model.labels_.tolist() == engine.conclude(job, state, Local(X[:, :2]))["labels"].tolist()
    with pytest.raises(FleetError, match="expected 3 to the number of peers"):
        kind(**{**options, "n_peers": 2}, fleet="simulated", secure=True).fit(X)
