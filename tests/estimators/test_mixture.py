"""LosslessMixture: scikit-learn's names and numbers, on arrays of peers, in this process and on fleets."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from p2pclust import LosslessMixture
from p2pclust.clustering.mixtures import COVARIANCE_TYPES
from p2pclust.errors import DataError, FleetError, LeftOutWarning, UsageError

KINDS = pytest.mark.parametrize("kind", COVARIANCE_TYPES)


def rows(n=100):
    rng = np.random.default_rng(2)
    groups = (((0, 0, 0), 0.8), ((6, 0, 1), -0.5), ((0, 7, 2), 0.0))
    X = np.concatenate(
        [rng.multivariate_normal(at, [[1, s, 0], [s, 1, 0], [0, 0, 0.5]], n) for at, s in groups]
    )  # fmt: skip
    return rng.permutation(X) * [1.0, 4.0, 0.5]


def parts(X, n=4):
    return np.array_split(X, n)


@KINDS
def test_names_and_numbers_are_scikit_learns(kind):
    X = rows()
    ours = LosslessMixture(3, covariance_type=kind, tol=1e-10, max_rounds=2000, random_state=0).fit(parts(X))
    theirs = GaussianMixture(3, covariance_type=kind, tol=1e-10, max_iter=2000, means_init=ours.means_).fit(X)
    assert ours.means_ == pytest.approx(theirs.means_, rel=1e-3, abs=1e-3)
    assert ours.weights_ == pytest.approx(theirs.weights_, abs=1e-4)
    assert ours.covariances_.shape == theirs.covariances_.shape == ours.precisions_.shape
    assert ours.covariances_ == pytest.approx(theirs.covariances_, rel=1e-2, abs=1e-3)
    assert ours.score(X) == pytest.approx(theirs.score(X), abs=1e-6)
    assert ours.score_samples(X) == pytest.approx(theirs.score_samples(X), abs=0.05)
    assert ours.bic(X) == pytest.approx(theirs.bic(X), rel=1e-6)
    assert ours.aic(X) == pytest.approx(theirs.aic(X), rel=1e-6)
    assert (ours.predict(X) == theirs.predict(X)).mean() > 0.99
    assert ours.predict_proba(X) == pytest.approx(theirs.predict_proba(X), abs=0.05)
    assert ours.converged_
    assert ours.n_iter_ == ours.n_rounds_


@KINDS
@pytest.mark.parametrize("scaling", ["none", "minmax", "zscore"])
def test_what_all_rows_have_is_known_without_them(kind, scaling):
    X = rows()
    model = LosslessMixture(3, covariance_type=kind, scaling=scaling, random_state=0).fit(parts(X))
    # Densities are in the data's own units, whatever the job counted in.
    assert model.log_likelihood_ == pytest.approx(model.score_samples(X).sum(), rel=1e-9)
    assert model.bic_ == pytest.approx(model.bic(X), rel=1e-9)
    assert model.aic_ == pytest.approx(model.aic(X), rel=1e-9)
    assert [labels.tolist() for labels in model.labels_] == [model.predict(part).tolist() for part in parts(X)]
    assert model.precisions_ * model.covariances_ == pytest.approx(1.0) if kind in ("diag", "spherical") else True


@KINDS
def test_it_starts_where_it_is_asked_to(kind):
    X = rows()
    fitted = LosslessMixture(3, covariance_type=kind, random_state=0).fit(parts(X))
    first = {"weights_init": fitted.weights_, "means_init": fitted.means_, "precisions_init": fitted.precisions_}
    with pytest.warns(ConvergenceWarning):
        again = LosslessMixture(3, covariance_type=kind, max_rounds=1, **first).fit(parts(X))
    assert again.lower_bound_ == pytest.approx(fitted.log_likelihood_ / len(X), abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("secure", [False, {"keepers": 3, "cohort": 3, "colluders": 1}])
def test_a_fleet_finds_the_same_bits(secure):
    X = rows()
    in_process = LosslessMixture(3, random_state=1).fit(parts(X, 5))
    fleet = LosslessMixture(3, random_state=1, fleet="simulated", secure=secure).fit(parts(X, 5))
    for name in ("means_", "weights_", "covariances_"):
        assert getattr(fleet, name).tobytes() == getattr(in_process, name).tobytes()
    assert fleet.log_likelihood_ == in_process.log_likelihood_


def test_one_array_is_split_and_labelled_in_its_order():
    X = rows()
    model = LosslessMixture(3, n_peers=5, random_state=0)
    assert (model.fit_predict(X) == model.predict(X)).all()


def test_samples_come_from_the_mixture():
    model = LosslessMixture(3, random_state=0, tol=1e-6).fit(parts(rows()))
    drawn, components = model.sample(20_000)
    assert np.bincount(components) / 20_000 == pytest.approx(model.weights_, abs=0.02)
    for k in range(3):
        own = drawn[components == k]
        assert own.mean(axis=0) == pytest.approx(
            model.means_[k], abs=0.05 * np.sqrt(np.diag(model.covariances_[k])).max()
        )
        assert np.cov(own.T) == pytest.approx(model.covariances_[k], rel=0.1, abs=0.1)
    assert (model.sample(5)[0] == model.sample(5)[0]).all()


def test_a_peer_whose_rows_could_be_solved_for_is_left_out():
    X = rows()
    with pytest.warns(LeftOutWarning, match="privacy gate"):
        LosslessMixture(3, random_state=0).fit([X[:-10], X[-10:]])


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"n_components": 0}, "n_clusters = 0"),
        ({"n_components": 301}, "n_components = 301, but all peers together hold n_samples = 300 rows"),
        ({"covariance_type": "round"}, "mixture: covariance_type = 'round': expected one of"),
        ({"means_init": [[0.0, 0.0]] * 3}, "means_init has 2 columns, but the data have 3"),
        ({"weights_init": [0.5, 0.25, 0.25]}, "give both first_shares and first_covariances"),
        ({"weights_init": [1, 1, 1], "precisions_init": [np.zeros((3, 3))] * 3}, "precisions_init: expected positive"),
        ({"init": [[0.0, 0.0, 0.0]] * 3}, "init: expected a name; give first means as means_init"),
    ],
)
def test_bad_input_in_one_line(options, line):
    with pytest.raises((DataError, UsageError)) as caught:
        LosslessMixture(**{"n_components": 3} | options).fit(parts(rows()))
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_rows_on_a_line_need_regularisation():
    X = np.arange(60.0)[:, np.newaxis] * [1.0, 2.0]
    with pytest.raises(FleetError, match="singular: set a larger reg_covar"):
        LosslessMixture(1, reg_covar=0.0).fit(parts(X))
    assert LosslessMixture(1).fit(parts(X)).covariances_[0, 0, 1] == pytest.approx(
        2 * np.var(np.arange(60.0)), rel=1e-6
    )
