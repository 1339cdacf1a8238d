"""Estimators that keep missing values: labels, memberships and centers over the values that are there."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from tests.clustering import gaps_oracle as oracle

from p2pclust import LosslessCMeans, LosslessFuzzyCMeans
from p2pclust.choose.trials import choose_clusters
from p2pclust.errors import DataError, LeftOutWarning, UsageError
from p2pclust.estimators.base import FederatedClustering

NAN = np.nan


def peers(seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    middles = np.array([[0.0, 0.0, 0.0], [6.0, 6.0, 0.0], [0.0, 6.0, 6.0]])
    X = oracle.with_gaps(rng, middles[np.arange(180) % 3] + 0.5 * rng.normal(size=(180, 3)), 0.25)
    return [X[start::4] for start in range(4)]


def test_labels_memberships_and_distances_by_hand() -> None:
    rows = [[0.0, 1.0], [NAN, 1.0], [9.0, NAN], [9.0, 9.0], [NAN, NAN]]
    options = {"init": [[0.0, 1.0], [9.0, 9.0]], "missing_values": "keep", "random_state": 0}
    with pytest.warns(LeftOutWarning, match="1 row has no value, and the label -1"):
        model = LosslessCMeans(2, suppress_singletons=False, **options).fit([rows])
    assert model.cluster_centers_.tolist() == [[0.0, 1.0], [9.0, 9.0]]
    assert model.labels_[0].tolist() == [0, 0, 1, 1, -1]
    assert model.predict([[NAN, 8.0], [1.0, NAN], [NAN, NAN]]).tolist() == [1, 0, -1]
    assert model.transform([[NAN, 4.0], [0.0, NAN]]).tolist() == [[3.0, 5.0], [0.0, 9.0]]
    assert model.score([[NAN, 4.0], [0.0, 0.0]]) == -10.0
    with pytest.warns(LeftOutWarning):
        fuzzy = LosslessFuzzyCMeans(2, privacy_gate=False, max_rounds=1, tol=0.0, **options).fit([rows])
    assert fuzzy.memberships([[NAN, NAN]]).tolist() == [[0.0, 0.0]]
    u = fuzzy.memberships([[NAN, fuzzy.cluster_centers_[0, 1]], [3.0, NAN]])
    np.testing.assert_allclose(u.sum(axis=1), 1.0)
    assert u[0].tolist() == [1.0, 0.0]


@pytest.mark.parametrize("kind", [LosslessCMeans, LosslessFuzzyCMeans])
def test_the_result_is_a_fixed_point_of_the_formulas(kind: type) -> None:
    model = kind(3, missing_values="keep", tol=1e-10, max_rounds=200, random_state=1).fit(peers())
    fuzzifier = 2.0 if kind is LosslessFuzzyCMeans else None
    X = np.concatenate(peers())
    np.testing.assert_allclose(oracle.step(X, model.cluster_centers_, fuzzifier), model.cluster_centers_, atol=1e-8)
    np.testing.assert_allclose(-model.score(X), oracle.objective(X, model.cluster_centers_, fuzzifier), rtol=1e-9)
    assert clone(model).missing_values == "keep"


@pytest.mark.slow
@pytest.mark.parametrize("kind", [LosslessCMeans, LosslessFuzzyCMeans])
def test_simulated_fleets_have_the_same_bits(kind: type) -> None:
    here, there = (
        kind(3, missing_values="keep", scaling="minmax", random_state=1, fleet=fleet).fit(peers())
        for fleet in (None, "simulated")
    )
    assert here.cluster_centers_.tobytes() == there.cluster_centers_.tobytes()


@pytest.mark.processes
def test_real_peers_have_the_same_bits() -> None:
    here, there = (
        LosslessCMeans(3, missing_values="keep", random_state=1, fleet=fleet).fit(peers())
        for fleet in (None, "processes")
    )
    assert here.cluster_centers_.tobytes() == there.cluster_centers_.tobytes()
    assert [own.tolist() for own in here.labels_] == [own.tolist() for own in there.labels_]


def test_weights_count_rows_that_often() -> None:
    X = peers()[0]
    options = {"init": X[:3].copy(), "missing_values": "keep", "suppress_singletons": False, "random_state": 0}
    options["init"] = np.nan_to_num(options["init"])
    weights = np.random.default_rng(0).integers(1, 4, len(X))
    weighted = LosslessCMeans(3, **options).fit([X], sample_weight=[weights])
    repeated = LosslessCMeans(3, **options).fit([np.repeat(X, weights, axis=0)])
    np.testing.assert_allclose(weighted.cluster_centers_, repeated.cluster_centers_, rtol=1e-12)
    np.testing.assert_allclose(weighted.inertia_, repeated.inertia_, rtol=1e-12)


def test_one_array_of_a_table_and_another_protocol() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(np.concatenate(peers()), columns=["a", "b", "c"])
    model = LosslessCMeans(3, missing_values="keep", n_peers=4, random_state=1).fit(table)
    assert model.labels_.shape == (180,)
    assert model.predict(table).tolist() == model.labels_.tolist()
    own = FederatedClustering("llf-cm", 3, parameters={"missing_values": "keep"}, random_state=1).fit(peers())
    assert own.predict(peers()[0]).tolist() == own.labels_[0].tolist()


def test_the_number_of_clusters_is_chosen_over_the_values_that_are_there() -> None:
    found = choose_clusters(peers(), "llf-cm", range(1, 6), random_state=0, restarts=1, missing_values="keep")
    assert found.recommended == 3
    assert found.table[0].rows == 180


def test_what_is_refused() -> None:
    with pytest.raises(DataError, match=r"peer 0: row .* is NaN"):
        LosslessCMeans(2).fit(peers())
    with pytest.raises(UsageError, match="missing_values = 'drop': expected one of error, keep"):
        LosslessCMeans(2, missing_values="drop").fit(peers())
    with pytest.raises(UsageError, match="excludes init = 'careful'"):
        LosslessCMeans(2, missing_values="keep", init="careful").fit(peers())
    with pytest.raises(DataError, match="row 0, column 0 is inf"):
        LosslessCMeans(2, missing_values="keep").fit([[[np.inf, NAN], [0.0, 1.0]]])
    model = LosslessCMeans(2, missing_values="keep", n_peers=2, partition={"scheme": "distance", "beta": 1.0})
    with pytest.raises(UsageError, match="partition 'distance': rows with missing values have no place"):
        model.fit(peers()[0])
