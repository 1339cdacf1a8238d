"""One array, dealt to peers by a partitioner."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris

from p2pclust.errors import DataError, UsageError
from p2pclust.estimators import LosslessCMeans, LosslessFuzzyCMeans
from p2pclust.estimators.inputs import dealt

X, Y = load_iris(return_X_y=True)


@pytest.mark.parametrize(
    ("partition", "y"),
    [
        ("iid", None),
        ({"scheme": "dirichlet", "beta": 0.5}, Y),
        ({"scheme": "labels", "labels_per_peer": 2}, Y),
        ("by-group", np.arange(150) % 7),
    ],
)
def test_however_rows_are_dealt_the_clustering_is_that_of_one_peer(partition: object, y: object) -> None:
    parameters = {"n_clusters": 3, "init": X[[10, 60, 110]], "privacy_gate": False, "random_state": 4}
    split = LosslessFuzzyCMeans(n_peers=3, partition=partition, **parameters).fit(X, y)
    alone = LosslessFuzzyCMeans(**parameters).fit(X)
    assert split.contributors_ == [(0, 1, 2)] * split.n_rounds_
    assert split.cluster_centers_ == pytest.approx(alone.cluster_centers_, abs=1e-9)
    assert split.labels_.tolist() == alone.labels_.tolist()


def test_a_partition_follows_from_its_seed() -> None:
    scheme = {"scheme": "dirichlet", "beta": 0.5}
    first, again, other = (dealt(X, Y, 4, scheme, seed) for seed in (1, 1, 2))
    assert [rows.tolist() for rows in first] == [rows.tolist() for rows in again]
    assert [rows.tolist() for rows in first] != [rows.tolist() for rows in other]
    assert sorted(np.concatenate(first).tolist()) == list(range(150))


@pytest.mark.parametrize(
    ("partition", "error", "message"),
    [
        ("dirichlet", UsageError, "dirichlet"),
        ({"scheme": "dirichlet", "beta": 0.5, "gamma": 1}, UsageError, "gamma"),
        ({"scheme": "dirichlet", "bta": 0.5}, UsageError, r"unknown option 'bta' \(did you mean 'beta'\?\)"),
        (
            {"scheme": "iid", "points": X},
            UsageError,
            "unknown option 'points' .known: beta, labels_per_peer, locations",
        ),
        ({"scheme": "iid", 3: X}, UsageError, "unknown option '3'"),
        ({"beta": 0.5}, UsageError, "expected a scheme's name, or a mapping with 'scheme'"),
        (7, UsageError, "partition = 7"),
        ("by-colour", UsageError, "by-colour"),
    ],
)
def test_bad_partitions_are_one_line(partition: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        LosslessFuzzyCMeans(n_clusters=3, n_peers=3, partition=partition).fit(X, Y)
    assert "\n" not in str(caught.value)


def test_labels_must_be_as_many_as_rows() -> None:
    with pytest.raises(DataError, match=r"y has shape \(3,\), but X has 150 rows"):
        LosslessFuzzyCMeans(n_clusters=3, n_peers=3).fit(X, [0, 1, 2])


@pytest.mark.parametrize(
    ("partition", "what"),
    [({"scheme": "dirichlet", "beta": 0.5}, "labels"), ("by-group", "groups"), ("by-file", "files")],
)
def test_what_a_partition_looks_at_is_passed_as_y(partition: object, what: str) -> None:
    with pytest.raises(UsageError, match=rf"needs {what}: pass y, one of them for each row, as in fit\(X, y\)"):
        LosslessFuzzyCMeans(n_clusters=3, n_peers=3, partition=partition).fit(X)


def test_what_only_scenarios_deal_is_told_before_its_options() -> None:
    for partition in ("by-class", {"scheme": "by-class", "rows_per_class": 10}):
        with pytest.raises(
            UsageError, match="partition 'by-class' is one of scenarios: here, pass a list with the rows"
        ):
            LosslessCMeans(n_clusters=2, n_peers=3, partition=partition).fit(np.zeros((30, 2)), np.zeros(30))
