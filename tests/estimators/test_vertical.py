from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from sklearn.datasets import load_wine

from p2pclust.clustering import Points, fuzzy_step, lloyd_step, run_steps
from p2pclust.errors import DataError, UsageError
from p2pclust.estimators import VerticalCMeans, VerticalFuzzyCMeans

X = load_wine().data
SCALED = (X - X.min(axis=0)) / np.ptp(X, axis=0)
INIT = X[[5, 80, 160]]
PARTS = [X[:, :2], X[:, 2:9], X[:, 9:]]
BOTH = pytest.mark.parametrize("Model", [VerticalCMeans, VerticalFuzzyCMeans])


def test_equals_pooled_fuzzy_c_means() -> None:
    model = VerticalFuzzyCMeans(n_clusters=3, init=INIT, scaling="minmax", tol=0.0, max_rounds=12).fit(PARTS)
    first = (INIT - X.min(axis=0)) / np.ptp(X, axis=0)
    pooled = run_steps(partial(fuzzy_step, fuzzifier=2.0), Points(SCALED), first, tol=0.0, max_rounds=12)
    assert model.n_rounds_ == 13, "the first measures the distances to the first centers"
    assert len(model.history_) == 12
    assert np.abs((model.cluster_centers_ - X.min(axis=0)) / np.ptp(X, axis=0) - pooled.centers).max() < 1e-12


def test_equals_pooled_c_means() -> None:
    model = VerticalCMeans(n_clusters=3, init=INIT, tol=0.0, max_rounds=20, scaling="none").fit(PARTS)
    pooled = run_steps(lloyd_step, Points(X), INIT, tol=0.0, max_rounds=20)
    assert model.cluster_centers_ == pytest.approx(pooled.centers, rel=1e-12)
    assert model.labels_.tolist() == model.predict(X).tolist()


@BOTH
def test_however_the_columns_are_split(Model) -> None:
    fitted = [
        Model(n_clusters=3, n_peers=n_peers, partition=partition, scaling="zscore", random_state=3).fit(X)
        for n_peers, partition in ((None, "even"), (2, "even"), (13, "even"), (3, [1, 11, 1]), (None, (4, 9)))
    ]
    assert [len(model.columns_) for model in fitted] == [1, 2, 13, 3, 2]
    for model in fitted[1:]:
        assert model.cluster_centers_ == pytest.approx(fitted[0].cluster_centers_, rel=1e-9)
        assert model.labels_.tolist() == fitted[0].labels_.tolist()


@BOTH
def test_in_scaled_coordinates_new_rows_are_labelled_alike(Model) -> None:
    model = Model(n_clusters=3, scaling="minmax", random_state=1).fit(PARTS)
    assert model.predict(X).tolist() == model.labels_.tolist()
    assert model.transform(X[:4]).shape == (4, 3)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([X, X[:100]], "peer 1 has 100 rows where peer 0 has 178: give every peer the same rows"),
        ([X[:2, :3], X[:2, 3:]], "n_clusters = 3, but the peers hold n_samples = 2 rows: ask for at most 2"),
        ([X[:, :3], np.empty((178, 0))], "peer 1 is empty"),
    ],
)
@BOTH
def test_bad_data_is_one_line(Model, data: object, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        Model(n_clusters=3).fit(data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("parameters", "data", "message"),
    [
        ({"n_peers": 14}, X, "13 columns for 14 peers: every peer needs at least one column"),
        ({"partition": [6, 6]}, X, "widths 6, 6: expected 2 numbers of at least 1 with the sum 13"),
        ({"partition": "iid"}, X, "partition = 'iid': expected 'even', or the number of columns of each peer"),
        ({"partition": [2, 7, 4]}, PARTS, "but a list of 3 arrays was given: leave it out"),
        ({"n_peers": 2}, PARTS, "n_peers = 2, but a list of 3 arrays was given"),
        ({"init": INIT[:, :5]}, PARTS, "init has 5 columns, but the data have 13"),
        ({"init": "careful"}, PARTS, "init = 'careful': expected one of"),
        ({"transfer": "float16"}, PARTS, "transfer = 'float16': expected one of"),
    ],
)
def test_bad_parameters_are_one_line(parameters: dict[str, object], data: object, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        VerticalFuzzyCMeans(**{"n_clusters": 3, **parameters}).fit(data)
    assert "\n" not in str(caught.value)


def test_float32_is_nearly_the_same_for_half_the_bytes() -> None:
    exact, rounded = (
        VerticalFuzzyCMeans(n_clusters=3, init=INIT, scaling="minmax", transfer=transfer).fit(PARTS)
        for transfer in ("float64", "float32")
    )
    apart = np.abs(exact.cluster_centers_ - rounded.cluster_centers_) / np.ptp(X, axis=0)
    assert 0 < apart.max() < 1e-4
