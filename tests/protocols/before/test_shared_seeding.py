from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.errors import UsageError
from p2pclust.protocols import Arrays, Job, Local, Stage, run_in_process
from p2pclust.protocols.before.seeding import SharedSeeding
from p2pclust.protocols.engine import summaries
from p2pclust.protocols.engine.base import Abstain
from p2pclust.protocols.engine.compose import cluster_job

Rows = list[list[float]]


def ranged(peers: Sequence[Rows]) -> Arrays:
    rows = np.concatenate([np.array(peer) for peer in peers])
    F = rows.shape[1]
    return Arrays(lo=rows.min(axis=0), hi=rows.max(axis=0), origin=np.zeros(F), scale=np.ones(F), unit=np.ones(F))


def seeded(protocol: SharedSeeding, peers: Sequence[Rows], seed: int) -> Arrays:
    rng = np.random.default_rng(seed)
    state = protocol.open(ranged(peers), rng)
    while "centers" not in state:
        state = protocol.combine(state, [protocol.contribute(state, Local(peer), rng) for peer in peers])
    return state


def test_by_hand_what_a_peer_tells() -> None:
    protocol = SharedSeeding(n_clusters=2, neighbours=2)
    state = protocol.open(ranged([[[0.0], [9.0]]]), np.random.default_rng(0))
    told = protocol.contribute(
        state.replace(picks=np.array([[0.0]])), Local([[0.0], [0.0], [3.0], [3.5]]), np.random.default_rng(0)
    )
    assert float(told["mass"]) == 9.0 + 3.5**2
    assert told["candidate"].tolist() == [3.25]  # only 3.0 and 3.5 have a chance, and each is the other's neighbour
    first = protocol.contribute(state, Local([[1.0], [1.0], [2.0]]), np.random.default_rng(0))
    assert float(first["mass"]) == 3.0


@pytest.mark.slow
def test_picks_are_distributed_as_on_pooled_rows() -> None:
    """All pairs of first and second pick, against the probabilities of k-means++ on the union of the rows."""
    peers = [[[0.0], [1.0]], [[4.0]], [[9.0], [10.0], [12.0]]]
    rows = np.concatenate([np.ravel(peer) for peer in peers])
    runs = 3000
    seen = Counter(
        tuple(seeded(SharedSeeding(n_clusters=2, neighbours=1), peers, seed)["centers"].ravel().tolist())
        for seed in range(runs)
    )
    statistic = 0.0
    for first in rows:
        chances = (rows - first) ** 2 / ((rows - first) ** 2).sum()
        for second, chance in zip(rows, chances, strict=True):
            expected = runs * chance / len(rows)
            if expected == 0.0:
                assert seen[(first, second)] == 0
            else:
                statistic += (seen[(first, second)] - expected) ** 2 / expected
    assert statistic < 60.0  # chi-square with 29 degrees of freedom exceeds 60 with probability 6e-4


@pytest.mark.slow
@given(
    peers=st.lists(
        st.lists(st.lists(st.integers(-5, 5), min_size=2, max_size=2), min_size=3, max_size=8), min_size=1, max_size=4
    ),
    n_clusters=st.integers(1, 6),
    seed=st.integers(0, 99),
)
def test_centers_lie_within_the_ranges_and_never_coincide_where_rows_are_left(
    peers: list[Rows], n_clusters: int, seed: int
) -> None:
    state = seeded(SharedSeeding(n_clusters), peers, seed)
    centers = state["centers"]
    assert centers.shape == (n_clusters, 2)
    assert (centers >= state["lo"] - 1e-12).all()
    assert (centers <= state["hi"] + 1e-12).all()
    assert "stream" not in state
    if (state["hi"] > state["lo"]).any():
        assert len(np.unique(centers, axis=0)) == n_clusters


def test_no_row_leaves() -> None:
    rows = np.random.default_rng(1).random((40, 3))
    protocol = SharedSeeding(n_clusters=4)
    told = seeded(protocol, [rows[:20].tolist(), rows[20:].tolist()], 3)["centers"]
    assert not any((rows == center).all(axis=1).any() for center in told)


def test_a_peer_with_few_rows_proposes_nothing() -> None:
    protocol = SharedSeeding(n_clusters=2)
    state = protocol.open(ranged([[[0.0], [1.0]]]), np.random.default_rng(0))
    with pytest.raises(Abstain, match="privacy gate: too few rows"):
        protocol.contribute(state, Local([[0.0], [1.0]]), np.random.default_rng(0))


def test_nonsense_is_left_out_by_name() -> None:
    protocol = SharedSeeding(n_clusters=2)
    state = protocol.open(ranged([[[0.0], [1.0]]]), np.random.default_rng(0))
    parts = [
        (0, Arrays(mass=1.0, candidate=np.array([0.5]))),
        (1, Arrays(mass=-1.0, candidate=np.array([0.5]))),
        (2, Arrays(mass=1.0, candidate=np.array([1e200]))),
    ]
    assert list(protocol.problems_with_parts(state, parts)) == [1, 2]


def test_in_a_job_it_takes_a_round_for_each_center_and_draws_what_nobody_proposes() -> None:
    rng = np.random.default_rng(5)
    rows = [rng.normal(size=(30, 2)) + shift for shift in (0.0, 8.0)]
    job = cluster_job("llf-cm", n_clusters=3, init="shared-k-means++", seed=1)
    state = run_in_process(job, [Local(part) for part in rows])
    assert state.status == "done"
    assert [job.stages[record.stage].protocol for record in state.log].count("shared-k-means++") == 3
    bounds = {"lo": [0.0], "hi": [1.0]}
    tiny = Job((Stage("range", bounds), Stage("none"), Stage("shared-k-means++", {"n_clusters": 2})), seed=0)
    alone = run_in_process(tiny, [Local([[0.0], [1.0]])])
    assert alone.status == "done"
    centers = summaries.raw_centers(alone)
    assert ((centers > 0.0) & (centers < 1.0)).all()


def test_it_needs_ranges() -> None:
    with pytest.raises(UsageError, match="put range and scaling stages before it"):
        SharedSeeding(n_clusters=2).open(Arrays(), np.random.default_rng(0))
