from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from p2pclust.data import SCHEMES, DataSet, deal, load, split, split_columns
from p2pclust.data.partition import nearby
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


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_labels_meet_in_many_ways() -> None:
    y = np.repeat(np.arange(10), 80)
    shares = split(y, 800, 40, "labels", rng(), labels_per_peer=2)
    pairs = {tuple(np.unique(y[rows]).tolist()) for rows in shares}
    assert len(pairs) > 20  # of 45; a deal round the table alone makes 5


def test_labels_gives_large_classes_more_holders() -> None:
    y = np.repeat([0, 1, 2], [60, 20, 20])
    shares = split(y, 100, 5, "labels", rng(), labels_per_peer=1)
    assert sorted((int(y[rows[0]]), len(rows)) for rows in shares) == [(0, 20), (0, 20), (0, 20), (1, 20), (2, 20)]


@pytest.mark.slow
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


def test_by_file_is_by_group_in_other_words() -> None:
    files = np.array(["b", "a", "a", "c"])
    assert [rows.tolist() for rows in split(files, 4, 3, "by-file", rng())] == [[1, 2], [0], [3]]
    with pytest.raises(UsageError, match=r"^partition 'by-file': 3 files for 4 peers: every peer needs a file$"):
        split(files, 4, 4, "by-file", rng())


POINTS = np.random.default_rng(5).uniform(size=(60, 2))
LOCATIONS = [[0.1, 0.1], [0.9, 0.1], [0.5, 0.5], [0.2, 0.9]]
OPTIONS: dict[str, dict[str, Any]] = {
    "dirichlet": {"beta": 0.5},
    "labels": {"labels_per_peer": 2},
    "distance": {"beta": 0.3, "points": POINTS},
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_generator_decides_everything(scheme: str) -> None:
    y = np.arange(60) % 6

    def drawn(seed: int) -> list[list[int]]:
        return [rows.tolist() for rows in split(y, 60, 4, scheme, rng(seed), **OPTIONS.get(scheme, {}))]

    assert drawn(3) == drawn(3)
    assert (drawn(3) == drawn(4)) is (scheme in ("by-group", "by-file"))


PINNED = {
    "iid": "130122013003013122231320",
    "dirichlet": "212213220313231313212310",
    "labels": "202013202013312013312013",
    "distance": "223321232300231322010021",
    "by-group": "012301012301012301012301",
    "by-file": "012301012301012301012301",
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_seed_deals_the_same_rows_for_ever(scheme: str) -> None:
    y = np.arange(24) % 6
    options = OPTIONS.get(scheme, {}) | ({"points": POINTS[:24]} if scheme == "distance" else {})
    owner = np.empty(24, dtype=int)
    for peer, rows in enumerate(split(y, 24, 4, scheme, rng(11), **options)):
        owner[rows] = peer
    assert "".join(map(str, owner)) == PINNED[scheme]


@given(seed=st.integers(0, 99), beta=st.floats(1e-3, 1e3), n_peers=st.integers(1, 6))
def test_distance(seed: int, beta: float, n_peers: int) -> None:
    try:
        shares = split(None, 60, n_peers, "distance", rng(seed), beta=beta, points=POINTS)
    except UsageError as error:
        assert "sees no row: raise beta" in str(error)  # noqa: PT017 - either is right
        return
    check_partition(shares, 60, n_peers)


def test_below_all_distances_every_row_is_at_the_nearest() -> None:
    shares = split(None, 60, 4, "distance", rng(), beta=1e-12, points=POINTS, locations=LOCATIONS)
    nearest = np.linalg.norm(POINTS[:, None] - np.array(LOCATIONS), axis=2).argmin(axis=1)
    assert [rows.tolist() for rows in shares] == [np.flatnonzero(nearest == peer).tolist() for peer in range(4)]


def test_above_all_distances_everybody_sees_everything_and_lots_decide() -> None:
    points = np.random.default_rng(0).uniform(size=(8000, 2))
    shares = split(None, 8000, 4, "distance", rng(), beta=1e6, points=points, locations=LOCATIONS)
    assert max(abs(len(rows) - 2000) for rows in shares) < 4 * np.sqrt(8000 * 0.25 * 0.75)


def test_a_row_is_seen_with_the_probability_of_the_paper() -> None:
    # One peer beside the row, one at distance 2, one so far that it sees nothing: by hand.
    points, places = np.zeros((20000, 1)), np.array([[0.0], [2.0], [1e12]])
    owner = nearby(points, places, 1.0, rng())
    seen_by_second = 1 - np.exp(-1.0 / 2.0)  # the first sees all; a row seen by both is at either, equally often
    assert np.bincount(owner, minlength=3)[2] == 0
    assert (owner == 1).mean() == pytest.approx(seen_by_second / 2, abs=4 * np.sqrt(0.25 / 20000))


def test_deal_finds_what_the_scheme_looks_at() -> None:
    data = DataSet("d", POINTS, np.arange(60) % 6, np.repeat(np.arange(4), 15))
    for scheme in SCHEMES:
        options = {key: value for key, value in OPTIONS.get(scheme, {}).items() if key != "points"}
        looked_at = data.group if scheme in ("by-group", "by-file") else data.y
        expected = split(looked_at, 60, 4, scheme, rng(1), **OPTIONS.get(scheme, {}))
        found = deal(data, 4, scheme, rng(1), **options)
        assert [rows.tolist() for rows in found] == [rows.tolist() for rows in expected]


@given(n_features=st.integers(1, 40), n_peers=st.integers(1, 40))
def test_columns_are_split_evenly(n_features: int, n_peers: int) -> None:
    if n_peers > n_features:
        with pytest.raises(UsageError, match="every peer needs at least one column"):
            split_columns(n_features, n_peers)
        return
    shares = split_columns(n_features, n_peers)
    assert np.concatenate(shares).tolist() == list(range(n_features))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("widths", [[1] * 16, [2] * 8, [4] * 4, [8] * 2, [1, 2, 3, 4, 6]])
def test_the_vertical_schemes_of_the_paper(widths: list[int]) -> None:
    assert [len(columns) for columns in split_columns(16, len(widths), widths)] == widths


@pytest.mark.parametrize("widths", [[1, 2], [1, 2, 4], [3, 3, 0], [7, -1, 0]])
def test_widths_that_do_not_fit(widths: list[int]) -> None:
    with pytest.raises(
        UsageError, match=r"^partition 'vertical': widths .*: expected 3 numbers of at least 1 with the "
    ):
        split_columns(6, 3, widths)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            (None, 9, 2, "idd"),
            "unknown partition scheme 'idd': expected iid, dirichlet, labels, distance, by-group, by-file",
        ),
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
        (
            (np.arange(9), 9, 2, "dirichlet", None, 0.0),
            "partition 'dirichlet': beta = 0.0: expected a number of more than 0",
        ),
        ((np.arange(9), 9, 2, "iid", None, 1.0), "partition 'iid': has no option beta"),
        ((None, 9, 2, "distance"), "partition 'distance': beta is missing"),
        ((None, 9, 2, "distance", None, 1.0), "partition 'distance': needs the rows themselves, as points"),
    ],
)
def test_impossible_partitions(call: tuple[Any, ...], message: str) -> None:
    y, n_rows, n_peers, scheme, labels_per_peer, beta = (*call, None, None)[:6]
    with pytest.raises(UsageError) as error:
        split(y, n_rows, n_peers, scheme, rng(), labels_per_peer=labels_per_peer, beta=beta)
    assert str(error.value) == message


def test_impossible_locations() -> None:
    with pytest.raises(UsageError, match=r"expected 2 locations, one for each peer, of 2 coordinates each$"):
        split(None, 60, 2, "distance", rng(), beta=1.0, points=POINTS, locations=LOCATIONS)
    with pytest.raises(UsageError, match=r"^partition 'iid': has no option locations$"):
        split(None, 60, 4, "iid", rng(), locations=LOCATIONS)
    far = [[0.5, 0.5], [1e9, 1e9]]
    with pytest.raises(
        UsageError, match=r"^partition 'distance': peer 2 of 2 sees no row: raise beta, give locations "
    ):
        split(None, 60, 2, "distance", rng(), beta=1e-6, points=POINTS, locations=far)
