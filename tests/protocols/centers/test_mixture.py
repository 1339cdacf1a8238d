"""Mixtures over peers: equal to EM over the pooled rows, whatever the peers, the covariances and the starts."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.mixture import GaussianMixture

from p2pclust.clustering.mixtures import COVARIANCE_TYPES
from p2pclust.errors import UsageError
from p2pclust.protocols.centers.mixture import MixtureProtocol, mixture_of
from p2pclust.protocols.engine import engine, summaries
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.base import Abstain
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import pooled, replay, run_in_process
from p2pclust.protocols.measuring.doubts import objective_of

KINDS = pytest.mark.parametrize("kind", COVARIANCE_TYPES)


def rows(seed=0, n=120, shift=0.0):
    """Three elongated groups of two columns."""
    rng = np.random.default_rng(seed)
    groups = (((0, 0), 0.8), ((6, 0), -0.7), ((0, 7), 0.0))
    X = np.concatenate([rng.multivariate_normal(at, [[1, s], [s, 1]], n) for at, s in groups])
    return rng.permutation(X) + shift


def run(X, n_peers=4, kind="full", **options):
    job = cluster_job("mixture", **{"n_clusters": 3, "covariance_type": kind, "seed": 3} | options)
    locals_ = [Local(part) for part in np.array_split(X, n_peers)]
    return job, locals_, run_in_process(job, locals_)


def apart(found, expected):
    return float(np.abs(found - expected).max())


@KINDS
@pytest.mark.parametrize("scaling", ["none", "minmax", "zscore"])
def test_the_means_are_those_of_pooled_rows(kind, scaling):
    X = rows(shift=1000.0)
    job, locals_, state = run(X, kind=kind, scaling=scaling)
    assert state.converged, state.reason
    assert apart(summaries.raw_centers(state), pooled(job, locals_, state.log)) < 1e-9
    assert replay(job, locals_, state.log).arrays == state.arrays


@KINDS
def test_one_peer_and_many_find_the_same(kind):
    (_, _, one), (_, _, many) = (run(rows(), n_peers, kind=kind) for n_peers in (1, 9))
    mine, theirs = mixture_of(one.arrays, kind), mixture_of(many.arrays, kind)
    assert apart(mine.means, theirs.means) < 1e-9
    assert apart(mine.shares, theirs.shares) < 1e-9
    widths = np.sqrt(np.einsum("kii->ki", mine.full_covariances()))
    relative = (mine.full_covariances() - theirs.full_covariances()) / (
        widths[:, np.newaxis] * widths[:, :, np.newaxis]
    )
    assert np.abs(relative).max() < 1e-9


@KINDS
def test_from_the_same_parameters_it_is_scikit_learns(kind):
    X = rows()
    covariances = np.tile(2.0 * np.eye(2), (3, 1, 1))
    packed = {
        "full": [[2.0, 0.0, 2.0]] * 3,
        "tied": [[2.0, 0.0, 2.0]],
        "diag": [[2.0, 2.0]] * 3,
        "spherical": [[2.0]] * 3,
    }
    inverse = np.linalg.inv(covariances)
    first = {"full": inverse, "tied": inverse[0], "diag": np.full((3, 2), 0.5), "spherical": np.full(3, 0.5)}[kind]
    shares, means = [0.2, 0.3, 0.5], [[0.0, 1.0], [5.0, 1.0], [1.0, 6.0]]
    options = {"first_shares": shares, "first_covariances": packed[kind], "init": means, "tol": 0.0, "max_rounds": 10}
    _, _, state = run(X, kind=kind, **options)
    theirs = GaussianMixture(
        3, covariance_type=kind, tol=0.0, max_iter=10, weights_init=shares, means_init=means, precisions_init=first
    )
    with pytest.warns(match="did not converge"):
        theirs.fit(X)
    assert apart(summaries.raw_centers(state), theirs.means_) < 1e-8
    assert apart(state.arrays["shares"][0], theirs.weights_) < 1e-8
    assert state.arrays["bounds"][0, -1] == pytest.approx(theirs.lower_bound_, abs=1e-8)
    assert -objective_of(state.arrays) / len(X) == pytest.approx(theirs.score(X), abs=1e-8)


def test_it_ends_when_the_bound_rises_by_less_than_tol():
    _, _, state = run(rows(), init=[[0.0, 0.0], [0.1, 0.0], [0.0, 0.1]], tol=1e-5)
    rises = np.diff(state.arrays["bounds"][0])
    assert state.converged
    assert abs(rises[-1]) < 1e-5 <= np.abs(rises[:-1]).min()
    assert rises.size > 5
    # The first round only assigns rows to means: it has no likelihood.
    assert state.arrays["shifts"].size == state.arrays["bounds"].shape[1] + 1


def test_with_tol_0_it_runs_all_rounds():
    _, _, state = run(rows(), tol=0.0, max_rounds=7)
    assert (state.arrays["shifts"].size, state.converged) == (7, False)


@KINDS
def test_the_start_with_the_greatest_likelihood_is_kept(kind):
    X = rows()
    job, locals_, state = run(X, kind=kind, n_init=4, init="random")
    objectives, winner = state.arrays["objectives"], int(state.arrays["winner"])
    assert winner == int(np.argmin(objectives))
    assert "starts" not in state.arrays
    assert state.arrays["shares"].shape == (1, 3)
    assert apart(summaries.raw_centers(state), pooled(job, locals_, state.log)) < 1e-9
    kept = mixture_of(state.arrays, kind)
    again = {"first_shares": kept.shares.tolist(), "first_covariances": kept.covariances.tolist(), "n_init": 1}
    _, _, alone = run(X, kind=kind, init=summaries.raw_centers(state), max_rounds=1, **again)
    assert alone.arrays["bounds"][0, 0] * len(X) == pytest.approx(-objectives[winner], rel=1e-9)


def test_labels_are_the_likeliest_components():
    X = rows()
    job, locals_, state = run(X)
    labels = np.concatenate([engine.conclude(job, state, local)["labels"] for local in locals_])
    kept = mixture_of(state.arrays, "full")
    theirs = GaussianMixture(3, precisions_init=np.linalg.inv(kept.full_covariances()))
    theirs.weights_, theirs.means_, theirs.covariances_ = (
        kept.shares,
        summaries.raw_centers(state),
        kept.full_covariances(),
    )
    theirs.precisions_cholesky_ = np.linalg.cholesky(np.linalg.inv(theirs.covariances_))
    assert (labels == theirs.predict(X)).all()


def test_rows_of_a_peer_that_is_gated_take_no_part():
    # C (1 + F + P) + 1 = 3 (1 + 2 + 3) + 1 = 19 numbers, and two columns: nine rows could be solved for.
    X = rows()
    job = cluster_job("mixture", n_clusters=3, seed=3)
    for n, held in ((9, True), (10, False)):
        state = run_in_process(job, [Local(X[:-n]), Local(X[-n:])])
        assert any(1 in record.abstained for record in state.log if record.stage == job.main) is held
    state = run_in_process(job, [Local(X)])
    with pytest.raises(Abstain, match=r"\(C \(F \+ 1\) \+ 10\) / F = 9.5 rows or fewer"):
        job.protocols[job.main].contribute(state.arrays, Local(X[:9]), np.random.default_rng(0))


@KINDS
def test_a_component_with_one_row_of_a_peer_is_sent_as_zeros(kind):
    X = rows()
    near = X[np.argsort(((X - [6.0, 0.0]) ** 2).sum(axis=1))]
    odd = np.concatenate([near[:40], near[-1:]])  # one row of another component
    locals_ = [Local(odd), Local(near[40:-1])]
    running = run(X, 1, kind=kind)[2].arrays.replace(bounds=np.zeros((1, 0)))
    for suppress, lone in ((True, 0.0), (False, 1.0)):
        protocol = MixtureProtocol(3, covariance_type=kind, suppress_singletons=suppress, privacy_gate=False)
        part = protocol.contribute(running, locals_[0], np.random.default_rng(0))
        few = np.abs(part["masses"][0] - 1.0) < 0.1
        assert few.sum() == lone
        if suppress:
            absent = part["masses"][0] == 0.0
            assert part["suppressed"] == absent.sum() >= 1
            assert (part["sums"][0][absent] == 0.0).all()
            assert kind == "tied" or (part["squares"][0][absent] == 0.0).all()
    state = run_in_process(cluster_job("mixture", n_clusters=3, covariance_type=kind, seed=3), locals_)
    assert summaries.suppressed(state) > 0


def test_with_secure_sums_the_rows_of_all_peers_are_counted():
    job = cluster_job("mixture", n_clusters=3, secure=True)
    main = job.protocols[job.main]
    assert (main.privacy_gate, main.suppress_singletons) == (False, False)
    # 3 (1 + 2 + 3) + 1 = 19 numbers in a round, and two columns: at least ten rows.
    enough = job.protocols[0]
    assert enough.needed(Arrays(n_columns=np.int64(2))) == 10
    assert cluster_job("llf-fcm", n_clusters=3, secure=True).protocols[0].needed(Arrays(n_columns=np.int64(2))) == 5


def test_equal_rows_make_no_singular_covariance():
    _, _, state = run(np.ones((40, 3)), n_clusters=1)
    assert state.status == "done"
    assert mixture_of(state.arrays, "full").full_covariances()[0] == pytest.approx(1e-6 * np.eye(3))


def test_without_regularisation_a_singular_covariance_fails_the_job_and_says_which():
    _, _, state = run(np.arange(40.0)[:, np.newaxis] * [1.0, 2.0], n_clusters=1, reg_covar=0.0)
    assert state.status == "failed"
    assert state.reason == (
        "mixture: the covariance of component 0 is singular: set a larger reg_covar, ask for fewer components, or set "
        "covariance_type = 'diag'"
    )


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"covariance_type": "round"}, "mixture: covariance_type = 'round'"),
        ({"reg_covar": -1.0}, "mixture: reg_covar = -1.0"),
        ({"first_shares": [0.5, 0.5, 0.0], "first_covariances": [[1.0]]}, "expected 3 numbers above 0 with the sum 1"),
        ({"first_shares": [0.2, 0.3, 0.5]}, "give both first_shares and first_covariances, or neither"),
        ({"first_shares": [0.2, 0.3, 0.5], "first_covariances": [[1.0]], "n_init": 2}, "leave n_init out"),
    ],
)
def test_bad_parameters_are_refused_in_one_line(options, line):
    with pytest.raises(UsageError) as caught:
        cluster_job("mixture", n_clusters=3, **options)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("covariances", "line"),
    [
        ([[1.0, 0.0]] * 3, "mixture: first_covariances: expected 3 rows of 3 numbers"),
        ([[1.0, 2.0, 1.0]] * 3, "mixture: first_covariances: that of component 0 is not positive definite"),
    ],
)
def test_given_covariances_that_do_not_fit_fail_the_job(covariances, line):
    _, _, state = run(rows(), first_shares=[0.2, 0.3, 0.5], first_covariances=covariances)
    assert (state.status, state.reason) == ("failed", line)


def test_a_job_with_more_components_than_rows_fails():
    _, _, state = run(rows()[:2], 1, n_clusters=3, privacy_gate=False)
    assert state.status == "failed"
    assert "2 rows" in state.reason
