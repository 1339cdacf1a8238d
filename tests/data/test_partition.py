from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from p2pclust.data import SCHEMES, load, split
from p2pclust.errors import UsageError


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


labels = st.lists(st.integers(0, 6), min_size=1, max_size=80).map(np.array)


def check_partition(shares: tuple[NDArray[np.int64], ...], n_rows: int, n_peers: int) -> None:
    """Every row exactly once, nobody empty, ascending."""
    assert len(shares) == n_peers
    assert sorted(itertools.chain.from_iterable(rows.tolist() for rows in shares)) == list(range(n_rows))
    for rows in shares:
        assert rows.dtype == np.int64
        assert len(rows) > 0
        assert np.all(np.diff(rows) > 0)


@given(n_peers=st.integers(1, 30), extra=st.integers(0, 100), seed=st.integers(0, 99))
def test_iid(n_peers: int, extra: int, seed: int) -> None:
    shares = split(None, n_peers + extra, n_peers, "iid", rng(seed))
    check_partition(shares, n_peers + extra, n_peers)
    sizes = [len(rows) for rows in shares]
    assert max(sizes) - min(sizes) <= 1


@given(y=labels, n_peers=st.integers(1, 20), beta=st.floats(1e-12, 1e6), seed=st.integers(0, 99))
def test_dirichlet(y: NDArray[Any], n_peers: int, beta: float, seed: int) -> None:
    assume(len(y) >= n_peers)
    check_partition(split(y, len(y), n_peers, "dirichlet", rng(seed), beta=beta), len(y), n_peers)


def test_dirichlet_beta_is_the_degree_of_skew() -> None:
    y = np.repeat(np.arange(5), 200)

    def largest_share_of_a_class(beta: float) -> float:
        shares = split(y, 1000, 5, "dirichlet", rng(1), beta=beta)
        counts = np.array([np.bincount(y[rows], minlength=5) for rows in shares])
        return float((counts.max(axis=0) / 200).mean())

    assert largest_share_of_a_class(1e6) == pytest.approx(0.2, abs=0.01)
    assert 0.3 < largest_share_of_a_class(1.0) < 0.7
    assert largest_share_of_a_class(1e-3) > 0.98


@given(y=labels, n_peers=st.integers(1, 20), labels_per_peer=st.integers(1, 6), seed=st.integers(0, 99))
@settings(deadline=None)
def test_labels(y: NDArray[Any], n_peers: int, labels_per_peer: int, seed: int) -> None:
    n_classes = len(np.unique(y))
    possible = (
        labels_per_peer < n_classes <= n_peers * labels_per_peer
        and np.minimum(np.unique(y, return_counts=True)[1], n_peers).sum() >= n_peers * labels_per_peer
        and len(y) >= n_peers
    )
    if not possible:
        with pytest.raises(UsageError, match=r"^partition"):
            split(y, len(y), n_peers, "labels", rng(seed), labels_per_peer=labels_per_peer)
        return
    shares = split(y, len(y), n_peers, "labels", rng(seed), labels_per_peer=labels_per_peer)
    check_partition(shares, len(y), n_peers)
    assert [len(np.unique(y[rows])) for rows in shares] == [labels_per_peer] * n_peers


@pytest.mark.parametrize("seed", range(5))
def test_labels_balances_sizes(seed: int) -> None:
    y = load("digits").y
    assert y is not None
    shares = split(y, len(y), 8, "labels", rng(seed), labels_per_peer=3)
    sizes = [len(rows) for rows in shares]
    assert max(sizes) - min(sizes) <= 4  # of 225


def test_labels_gives_large_classes_more_holders() -> None:
    y = np.repeat([0, 1, 2], [60, 20, 20])
    shares = split(y, 100, 5, "labels", rng(), labels_per_peer=1)
    assert sorted((int(y[rows[0]]), len(rows)) for rows in shares) == [(0, 20), (0, 20), (0, 20), (1, 20), (2, 20)]


@given(group=labels, n_peers=st.integers(1, 7))
def test_by_group(group: NDArray[Any], n_peers: int) -> None:
    n_groups = len(np.unique(group))
    if n_groups < n_peers:
        with pytest.raises(UsageError):
            split(group, len(group), n_peers, "by-group", rng())
        return
    shares = split(group, len(group), n_peers, "by-group", rng())
    check_partition(shares, len(group), n_peers)
    held = [set(group[rows].tolist()) for rows in shares]
    assert sum(map(len, held)) == n_groups  # no group at two peers
    assert [min(of_peer) for of_peer in held] == sorted(min(of_peer) for of_peer in held)


def test_by_group_with_a_peer_for_each_keeps_their_order() -> None:
    group = np.array(["c", "a", "b", "a"])
    assert [rows.tolist() for rows in split(group, 4, 3, "by-group", rng())] == [[1, 3], [2], [0]]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_generator_decides_everything(scheme: str) -> None:
    y = np.arange(60) % 6
    options: dict[str, Any] = {"dirichlet": {"beta": 0.5}, "labels": {"labels_per_peer": 2}}.get(scheme, {})

    def drawn(seed: int) -> list[list[int]]:
        return [rows.tolist() for rows in split(y, 60, 4, scheme, rng(seed), **options)]

    assert drawn(3) == drawn(3)
    assert (drawn(3) == drawn(4)) is (scheme == "by-group")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ((None, 9, 2, "idd"), "unknown partition scheme 'idd': expected iid, dirichlet, labels, by-group"),
        ((None, 9, 0, "iid"), "partition: 0 peers: expected at least 1"),
        ((None, 3, 4, "iid"), "partition: 3 rows for 4 peers: every peer needs at least one row"),
        ((None, 9, 2, "labels", 2), "partition 'labels': needs labels, and the data have none"),
        ((None, 9, 2, "by-group"), "partition 'by-group': needs groups, and the data have none"),
        ((np.zeros(8), 9, 2, "by-group"), "partition 'by-group': groups of shape (8,) for 9 rows"),
        ((np.arange(9) // 5, 9, 3, "by-group"), "partition 'by-group': 2 groups for 3 peers: every peer needs a group"),
        (
            (np.arange(9) % 3, 9, 2, "labels", 3),
            "partition 'labels': labels_per_peer = 3 with 3 classes: expected fewer, so that no peer holds every class",
        ),
        (
            (np.arange(9), 9, 2, "labels", 2),
            "partition 'labels': 2 peers with 2 labels each hold at most 4 of 9 classes, and every row needs a peer: "
            "raise labels_per_peer",
        ),
        (
            (np.array([0, 0, 0, 1, 2]), 5, 3, "labels", 2),
            "partition 'labels': the classes have too few rows for 3 peers with 2 labels each: lower labels_per_peer",
        ),
        ((np.arange(9), 9, 2, "labels"), "partition 'labels': labels_per_peer is missing"),
        ((np.arange(9), 9, 2, "dirichlet"), "partition 'dirichlet': beta is missing"),
        ((np.arange(9), 9, 2, "dirichlet", None, 0.0), "partition 'dirichlet': beta = 0.0: expected more than 0"),
        ((np.arange(9), 9, 2, "iid", None, 1.0), "partition 'iid': has no option beta"),
    ],
)
def test_impossible_partitions(call: tuple[Any, ...], message: str) -> None:
    y, n_rows, n_peers, scheme, labels_per_peer, beta = (*call, None, None)[:6]
    with pytest.raises(UsageError) as error:
        split(y, n_rows, n_peers, scheme, rng(), labels_per_peer=labels_per_peer, beta=beta)
    assert str(error.value) == message
