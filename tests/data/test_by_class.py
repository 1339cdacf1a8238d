"""The draw of peers in FedCRef's experiments: who sees which classes, and which rows of them."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.errors import DataError, UsageError
from p2pclust.lab.data.by_class import Drawn, draw_by_class


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def rows_of(peers: tuple[Drawn, ...], y: np.ndarray) -> dict[object, list[set[int]]]:
    """For each class, the rows of it that each of its peers holds."""
    found: dict[object, list[set[int]]] = {}
    for peer in peers:
        for name in peer.classes:
            found.setdefault(name, []).append({int(row) for row in peer.rows if y[row] == name})
    return found


def test_every_peer_has_its_classes_and_as_many_rows_of_each() -> None:
    y = rng(1).permutation(np.repeat(np.arange(10), 600))
    peers = draw_by_class(y, 25, rng(2), rows_per_class=60)
    assert len(peers) == 25
    for peer in peers:
        assert 2 <= len(peer.classes) <= 5
        assert Counter(y[peer.rows].tolist()) == dict.fromkeys(peer.classes.tolist(), 60)
        assert (peer.classes[peer.labels] == y[peer.rows]).all()
        assert peer.rows.dtype == peer.labels.dtype == np.int64
        assert list(peer.classes) == sorted(peer.classes)
    assert {len(peer.classes) for peer in peers} == {2, 3, 4, 5}
    everything = np.concatenate([peer.rows for peer in peers])
    assert len(np.unique(everything)) == len(everything)


def test_rows_of_different_classes_are_mixed() -> None:
    peer = draw_by_class(np.repeat([0, 1, 2, 3], 500), 1, rng(0), rows_per_class=500)[0]
    # Sorted by class, half of the first half would be of one class for certain.
    assert 150 < np.count_nonzero(peer.labels[:500] == 0) < 350


def test_the_same_seed_gives_the_same_draw_and_another_another() -> None:
    y = np.repeat(np.arange(8), 200)

    def drawn(seed: int) -> list[list[int]]:
        return [peer.rows.tolist() for peer in draw_by_class(y, 5, rng(seed), rows_per_class=50)]

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)


@pytest.mark.parametrize(("overlap", "common"), [(0.0, 0), (0.3, 6), (0.5, 10), (1.0, 20)])
def test_overlap_is_the_share_that_all_peers_of_a_class_have_in_common(overlap: float, common: int) -> None:
    y = np.repeat(["a", "b", "c", "d", "e", "f"], 150)
    peers = draw_by_class(y, 6, rng(5), rows_per_class=20, overlap=overlap)
    met = 0
    for holders in rows_of(peers, y).values():
        assert all(len(rows) == 20 for rows in holders)
        for one, other in itertools.combinations(holders, 2):
            assert len(one & other) == common
            met += 1
    assert met > 5


def test_overlap_needs_fewer_rows() -> None:
    # Two peers that see all of it: 10 rows in common and 10 of their own each, of 30.
    y = np.zeros(30)
    peers = draw_by_class(y, 2, rng(), rows_per_class=20, classes_per_peer=(1, 1), overlap=0.5)
    assert sorted(set(peers[0].rows.tolist()) | set(peers[1].rows.tolist())) == list(range(30))
    with pytest.raises(DataError, match="1 classes, of 30 to 30 rows, have enough for 1"):
        draw_by_class(y, 2, rng(), rows_per_class=20, classes_per_peer=(1, 1))


@given(seed=st.integers(0, 10_000))
def test_a_draw_that_needs_every_row_succeeds_with_every_seed(seed: int) -> None:
    # Six peers with two of three classes: each class is seen by exactly four, who take all of its rows.
    y = np.repeat([0, 1, 2], 12)
    peers = draw_by_class(y, 6, rng(seed), rows_per_class=3, classes_per_peer=(2, 2))
    assert sorted(np.concatenate([peer.rows for peer in peers]).tolist()) == list(range(36))


def test_a_class_with_too_few_rows_is_drawn_by_nobody() -> None:
    y = np.repeat([0, 1, 2, 3], [100, 9, 100, 100])
    for seed in range(10):
        assert not any(1 in peer.classes for peer in draw_by_class(y, 4, rng(seed), rows_per_class=10))


def test_too_few_rows() -> None:
    with pytest.raises(DataError, match=r"^draw by class: 25 peers see \d+ classes in all, with 500 rows of each"):
        draw_by_class(np.repeat(np.arange(10), 180), 25, rng())
    # Enough places in all, but one class has most of them and no peer sees it twice.
    with pytest.raises(DataError, match="have enough for 6"):
        draw_by_class(np.repeat([0, 1], [50, 10]), 3, rng(), rows_per_class=10, classes_per_peer=(2, 2))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"n_peers": 0}, "0 peers"),
        ({"rows_per_class": 0}, "0 rows per class"),
        ({"overlap": 1.5}, "overlap 1.5"),
        ({"overlap": float("nan")}, "overlap nan"),
        ({"classes_per_peer": (3, 2)}, "3 to 2 classes per peer of 4"),
        ({"classes_per_peer": (2, 5)}, "2 to 5 classes per peer of 4"),
        ({"y": np.repeat([0, 1, 2], 50)}, "2 to 1 classes per peer of 3"),
        ({"y": np.zeros((4, 2))}, r"labels of shape \(4, 2\)"),
        ({"y": []}, r"labels of shape \(0,\)"),
    ],
)
def test_what_cannot_be_drawn_is_said(changed: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {"y": np.repeat([0, 1, 2, 3], 50), "n_peers": 2, "rng": rng(), "rows_per_class": 5}
    with pytest.raises(UsageError, match=message):
        draw_by_class(**(arguments | changed))  # type: ignore[arg-type]
