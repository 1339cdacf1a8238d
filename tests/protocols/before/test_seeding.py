from __future__ import annotations

import numpy as np
import pytest

from p2pclust.protocols.engine import engine, random_streams, summaries
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import run_in_process

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.normal(center, 0.1, (20, 2)) for center in ((0, 0), (5, 5), (9, 0))])


def seeded(peers: list[object], **options: object) -> JobState:
    """Return the state in which the clustering opens."""
    job = cluster_job("llf-cm", **{"n_clusters": 3, "scaling": "minmax", **options})
    seen: list[JobState] = [engine.begin(job)]
    state = run_in_process(job, [Local(rows) for rows in peers], seen.append)
    return next((s for s in seen if s.stage == 3 and s.stage_round == 0), state)


def test_uniform_asks_nobody_and_draws_within_the_ranges() -> None:
    state = seeded([X], init="uniform")
    assert [record.stage for record in state.log] == [0]
    centers = summaries.raw_centers(state)
    assert (centers >= X.min(axis=0)).all()
    assert (centers <= X.max(axis=0)).all()
    assert seeded([X, X], init="uniform").arrays["centers"].tobytes() == state.arrays["centers"].tobytes()
    assert seeded([X], init="uniform", seed=1).arrays["centers"].tobytes() != state.arrays["centers"].tobytes()


def test_random_asks_the_first_of_the_permutation() -> None:
    state = seeded([X, X, X], init="random", seed=4)
    assert state.log[1].contributors == (random_streams.proposers(4, 3)[0],)
    assert (state.arrays["centers"] >= 0).all()
    assert (state.arrays["centers"] <= 1).all()


def test_given_centers_are_in_the_datas_own_units() -> None:
    init = [[0.0, 0.0], [5.0, 5.0], [9.0, 1.0]]
    for scaling in ("none", "minmax", "zscore"):
        assert summaries.raw_centers(seeded([X], init=init, scaling=scaling)) == pytest.approx(
            np.array(init), abs=1e-14
        )


def test_given_centers_with_other_columns_fail_the_job() -> None:
    state = seeded([X], init=[[0.0], [1.0], [2.0]])
    assert state.status == "failed"
    assert state.reason == "seeding: the given centers have 1 columns, the data 2"


def test_careful_centers_are_means_of_five_rows_and_no_row_leaves() -> None:
    state = seeded([X], init="k-means++", scaling="none")
    centers = summaries.raw_centers(state)
    for center in centers:
        assert not (np.abs(X - center).max(axis=1) < 1e-12).any()
        # A mean of five rows: that of some row's five nearest rows, itself included.
        means = [X[np.argsort(((X - row) ** 2).sum(axis=1), kind="stable")[:5]].mean(axis=0) for row in X]
        assert np.abs(np.array(means) - center).max(axis=1).min() < 1e-12
    assert sorted(int(np.argmin(((np.array([(0, 0), (5, 5), (9, 0)]) - c) ** 2).sum(axis=1))) for c in centers) == [
        0,
        1,
        2,
    ]


def test_a_peer_with_few_rows_averages_half_of_them() -> None:
    rows = np.array([[0.0, 0.0], [1.0, 0.0], [8.0, 8.0], [9.0, 8.0]])
    centers = summaries.raw_centers(seeded([rows], n_clusters=2, init="k-means++", scaling="none"))
    assert sorted(centers.tolist()) == [[0.5, 0.0], [8.5, 8.0]]


def test_who_has_too_few_rows_abstains_and_the_next_is_asked() -> None:
    first, second = random_streams.proposers(0, 2)
    peers: list[object] = [X, X]
    peers[first] = X[:2]
    state = seeded(peers, init="k-means++")
    # In the round that finds the ranges as well: two rows would nearly be told by theirs.
    assert list(state.log[0].abstained) == [first]
    assert state.log[1].abstained == {first: "fewer than 3 rows, too few to propose 3 centers"}
    assert state.log[1].contributors == ()
    assert state.log[2].contributors == (second,)


def test_if_nobody_can_propose_the_centers_are_drawn() -> None:
    peers = [X[:1], X[20:22], X[40:41]]
    options = {"seed": 3, "suppress_singletons": False}
    state = seeded(peers, init="k-means++", **options)
    assert sorted(peer for record in state.log[1:] for peer in record.abstained) == [0, 1, 2]
    assert state.arrays["centers"].tobytes() == seeded(peers, init="uniform", **options).arrays["centers"].tobytes()
