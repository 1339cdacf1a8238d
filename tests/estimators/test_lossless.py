from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score

from p2pclust.clustering import Points, fuzzy_step, lloyd_step, run_steps
from p2pclust.errors import DataError, FleetError, LeftOutWarning, SuspectResultWarning, UsageError
from p2pclust.estimators import LosslessCMeans, LosslessFuzzyCMeans
from p2pclust.protocols import Job, JobState, Local, run_in_process

X, Y = load_iris(return_X_y=True)
PEERS = [X[0::3], X[1::3], X[2::3]]
INIT = X[[10, 60, 110]]
BOTH = pytest.mark.parametrize("Model", [LosslessCMeans, LosslessFuzzyCMeans])


def test_fuzzy_c_means_on_iris_equals_pooled() -> None:
    model = LosslessFuzzyCMeans(n_clusters=3, init=INIT, tol=1e-6, max_rounds=100).fit(PEERS)
    reference = run_steps(partial(fuzzy_step, fuzzifier=2.0), Points(X), INIT, tol=1e-6, max_rounds=100)
    assert model.converged_
    assert model.n_rounds_ == reference.n_rounds == len(model.history_)
    assert np.abs(model.cluster_centers_ - reference.centers).max() < 1e-11
    assert model.history_ == pytest.approx(reference.shifts, abs=1e-11)
    assert model.suppressed_ == 0
    assert adjusted_rand_score(Y, model.predict(X)) > 0.7


def test_c_means_on_iris_equals_pooled() -> None:
    model = LosslessCMeans(n_clusters=3, init=INIT, suppress_singletons=False).fit(PEERS)
    reference = run_steps(lloyd_step, Points(X), INIT, tol=5e-3, max_rounds=30)
    assert np.abs(model.cluster_centers_ - reference.centers).max() < 1e-13
    assert model.n_rounds_ == reference.n_rounds
    assert model.score(X) == pytest.approx(-((X - model.cluster_centers_[model.predict(X)]) ** 2).sum())


@BOTH
def test_labels_come_per_peer(Model) -> None:
    model = Model(n_clusters=3, random_state=0)
    labels = model.fit_predict(PEERS)
    assert [len(part) for part in labels] == [50, 50, 50]
    for rows, part in zip(PEERS, model.labels_, strict=True):
        assert model.predict(rows).tolist() == part.tolist()
        assert part.dtype == np.int64


@BOTH
@pytest.mark.parametrize("scaling", ["none", "minmax", "zscore"])
def test_one_array_is_split_over_peers_and_labels_come_in_its_order(Model, scaling: str) -> None:
    model = Model(n_clusters=3, n_peers=4, scaling=scaling, random_state=1).fit(X)
    assert model.labels_.tolist() == model.predict(X).tolist()
    assert model.contributors_ == [(0, 1, 2, 3)] * model.n_rounds_
    assert model.n_features_in_ == 4
    again = Model(n_clusters=3, n_peers=4, scaling=scaling, random_state=1).fit(X)
    assert again.cluster_centers_.tobytes() == model.cluster_centers_.tobytes()
    other = Model(n_clusters=3, n_peers=4, scaling=scaling, random_state=2).fit(X)
    assert other.seed_ == 2


@BOTH
def test_one_array_alone_is_one_peer(Model) -> None:
    model = Model(n_clusters=2, random_state=0).fit(X)
    assert set(model.contributors_) == {(0,)}
    assert len(model.labels_) == len(X)


@BOTH
def test_a_list_of_rows_is_one_array_and_says_so(Model) -> None:
    with pytest.warns(
        UserWarning, match=r"X is a list of rows.*: a list means one array per peer.*n_peers= and partition="
    ):
        model = Model(n_clusters=2, random_state=0).fit(X.tolist())
    assert set(model.contributors_) == {(0,)}
    Model(n_clusters=2, random_state=0, n_peers=2).fit(X.tolist())  # split on purpose: nothing to warn of


@BOTH
def test_scikit_learns_conventions(Model) -> None:
    given = {"n_clusters": 3, "init": INIT, "tol": 0.0, "max_rounds": 2, "participation": 0.5, "random_state": 7}
    model = Model(**given)
    for name, value in given.items():
        assert model.get_params()[name] is value, "parameters are stored as given"
    copy = clone(model)
    assert copy.get_params().keys() == model.get_params().keys()
    assert not hasattr(copy, "cluster_centers_")
    assert copy.set_params(n_clusters=2, scaling="minmax") is copy
    assert (copy.n_clusters, copy.scaling) == (2, "minmax")
    assert model.fit(PEERS) is model
    assert model.n_rounds_ == 2
    assert all(len(part) == 2 for part in model.contributors_)
    for name in vars(model):
        assert name in model.get_params() or name.endswith("_") or name.startswith("_")
    assert repr(model).startswith(Model.__name__)
    with pytest.raises(NotFittedError):
        Model().predict(X)


def test_memberships_and_transform() -> None:
    model = LosslessFuzzyCMeans(n_clusters=3, init=INIT).fit(PEERS)
    memberships = model.memberships(X)
    assert memberships.shape == (150, 3)
    assert memberships.sum(axis=1) == pytest.approx(1.0)
    assert memberships.argmax(axis=1).tolist() == model.predict(X).tolist()
    distances = model.transform(X)
    assert distances.argmin(axis=1).tolist() == model.predict(X).tolist()
    assert model.score(X) == pytest.approx(-(memberships**2 * distances**2).sum())


def test_working_coordinates_serve_new_rows_too() -> None:
    wide = X * [1.0, 1.0, 1.0, 1000.0]
    model = LosslessCMeans(n_clusters=3, scaling="minmax", random_state=0).fit([wide[::2], wide[1::2]])
    plain = LosslessCMeans(n_clusters=3, scaling="minmax", random_state=0).fit([X[::2], X[1::2]])
    assert model.predict(wide).tolist() == plain.predict(X).tolist()
    assert model.transform(wide) == pytest.approx(plain.transform(X))


def test_what_privacy_rules_hold_back_is_reported() -> None:
    with pytest.warns(LeftOutWarning, match=r"without the rows of a peer \(peer 3: privacy gate: ") as warned:
        model = LosslessFuzzyCMeans(n_clusters=3, init=INIT).fit([*PEERS, X[:3]])
    assert warned[0].filename == __file__, "it points at whoever called fit"
    assert model.abstained_[3].startswith("privacy gate: C (F + 1) / F = 3.75 rows or fewer: ")
    assert model.suppressed_ == model.n_rounds_
    assert model.contributors_ == [(0, 1, 2)] * model.n_rounds_
    assert len(model.labels_[3]) == 3
    with pytest.raises(FleetError, match="no peer can contribute"):
        LosslessFuzzyCMeans(n_clusters=3, init=INIT).fit([X[:3], X[:2]])


def test_peers_that_stay_out_for_one_reason_are_named_together() -> None:
    with pytest.warns(
        LeftOutWarning, match=r"rows of 2 peers \(peer 0, peer 2: privacy gate: C \(F \+ 1\) / F = 3.75 rows"
    ):
        LosslessFuzzyCMeans(n_clusters=3, random_state=0).fit([X[:3], X[::2], X[3:6]])


def test_peers_of_one_or_two_rows_tell_no_range_but_are_clustered() -> None:
    model = LosslessCMeans(n_clusters=3, init=INIT, scaling="minmax").fit([*PEERS, X[:2]])
    assert model.abstained_[3].startswith(
        "privacy gate: fewer than 3 rows: add rows, declare bounds, or set privacy_gate or "
    )
    assert model.contributors_ == [(0, 1, 2, 3)] * model.n_rounds_
    with pytest.raises(FleetError, match=r"range: no peer can contribute .*declare bounds"):
        LosslessCMeans(n_clusters=1).fit([X[:2], X[2:4]])
    assert LosslessCMeans(n_clusters=1, suppress_singletons=False).fit([X[:2], X[2:4]]).suppressed_ == 0


def test_centers_too_far_for_the_grid_are_counted() -> None:
    options = {"n_clusters": 3, "max_rounds": 1}
    assert LosslessFuzzyCMeans(init=INIT, **options).fit(PEERS).coarse_ == 0
    with pytest.warns(SuspectResultWarning, match="hardly any row belongs to center 2"):
        assert LosslessFuzzyCMeans(init=[*INIT[:2], INIT[2] * 1e9], **options).fit(PEERS).coarse_ == 1
    with pytest.warns(SuspectResultWarning, match="hardly any row belongs to center 2"):
        assert LosslessCMeans(init=[*INIT[:2], INIT[2] * 1e9], **options).fit(PEERS).coarse_ == 0


def test_one_pair_of_bounds_stands_for_all_features() -> None:
    low, high = float(X.min()), float(X.max())
    spelled_out = LosslessCMeans(n_clusters=3, init=INIT, bounds=([low] * 4, [high] * 4)).fit(PEERS)
    for pair in ((low, high), np.array([low, high])):
        model = LosslessCMeans(n_clusters=3, init=INIT, bounds=pair).fit(PEERS)
        assert model.cluster_centers_.tobytes() == spelled_out.cluster_centers_.tobytes()
    with pytest.raises(UsageError, match=r"bounds: expected a pair \(lo, hi\)"):
        LosslessCMeans(n_clusters=3, bounds=(low, 1.0, high)).fit(PEERS)


def test_declared_bounds_spare_a_round_and_leave_out_who_lies_outside() -> None:
    bounds = (X.min(axis=0), X.max(axis=0))
    with pytest.warns(LeftOutWarning, match=r"peer 3: row 0, column 0.* outside the declared bounds"):
        model = LosslessCMeans(n_clusters=3, init=INIT, bounds=bounds).fit([*PEERS, PEERS[0] + 100.0])
    assert list(model.abstained_) == [3]
    assert "is outside the declared bounds" in model.abstained_[3]
    with pytest.warns(LeftOutWarning):
        as_array = LosslessCMeans(n_clusters=3, init=INIT, bounds=np.array(bounds)).fit([*PEERS, PEERS[0] + 100.0])
    assert as_array.cluster_centers_.tobytes() == model.cluster_centers_.tobytes()
    assert model.cluster_centers_ == pytest.approx(LosslessCMeans(n_clusters=3, init=INIT).fit(PEERS).cluster_centers_)


@pytest.mark.parametrize("random_state", [None, 3, np.int64(3), np.random.RandomState(3), np.random.default_rng(3)])
def test_random_states(random_state: object) -> None:
    model = LosslessCMeans(n_clusters=3, random_state=random_state).fit(PEERS)
    assert LosslessCMeans(n_clusters=3, random_state=model.seed_).fit(PEERS).labels_[0].tolist() == (
        model.labels_[0].tolist()
    )


def nan_in(peer: int) -> list[np.ndarray]:
    rows = [part.copy() for part in PEERS]
    rows[peer][7, 2] = np.nan
    return rows


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "no peers"),
        ([X, np.empty((0, 4))], "peer 1 is empty"),
        ([X.tolist(), []], "peer 1 is empty"),
        ([[], X.tolist()], "peer 0 is empty"),
        (np.empty((0, 4)), "X is empty"),
        (nan_in(2), "peer 2: row 7, column 2 is NaN"),
        ([X, X + np.inf], "peer 1: row 0, column 0 is inf"),
        ([X, X * 1e150], "peer 1: row 0, column 0 is too large"),
        ([X, X[:, :3]], "peer 1 has 3 columns where peer 0 has 4"),
        ([X, X[0]], "peer 1: expected 2D array with rows and columns, got 1 dimension"),
        ([X, "rows"], "peer 1: expected numbers"),
        ([X, [["a", "b"]]], "peer 1: expected numbers"),
        ([X, [[1.0, 2.0], [1.0]]], "peer 1: expected numbers in rows of equal length"),
        (X[0], "X: expected 2D array with rows and columns"),
        (X * 1j, "Complex data not supported"),
    ],
)
@BOTH
def test_bad_data_is_one_line(Model, data: object, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        Model(n_clusters=2).fit(data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_clusters": 0}, "n_clusters = 0"),
        ({"init": "forgy"}, "init = 'forgy': expected one of split-merge"),
        ({"init": INIT[:2]}, "init: 2 centers were given for n_clusters = 3"),
        ({"init": INIT[:, :2]}, "init has 2 columns, but the data have 4"),
        ({"bounds": ([0.0], [9.0])}, "bounds are given for 1 features, but the data have 4"),
        ({"fuzzifier": 1.0}, "fuzzifier = 1.0: expected a finite number above 1"),
        ({"participation": 0.0}, "participation = 0.0"),
        ({"scaling": "robust"}, "scaling = 'robust'"),
        ({"tol": "small"}, "tol = 'small'"),
        ({"max_rounds": 0}, "max_rounds = 0"),
        ({"random_state": "seven"}, "random_state = 'seven'"),
        ({"random_state": -1}, "seed = -1"),
        ({"n_peers": 2}, "n_peers = 2, but a list of 3 arrays was given"),
        ({"n_peers": 0}, "n_peers = 0"),
        ({"partition": "dirichlet"}, "partition = 'dirichlet', but a list of 3 arrays was given: leave it out"),
        ({"fleet": 3}, "fleet = 3: expected None"),
    ],
)
def test_bad_parameters_are_one_line(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        LosslessFuzzyCMeans(**{"n_clusters": 3, **parameters}).fit(PEERS)
    assert "\n" not in str(caught.value)


def test_more_clusters_than_rows_is_refused() -> None:
    with pytest.raises(DataError, match="n_clusters = 151, but all peers together hold n_samples = 150 rows: ask for "):
        LosslessCMeans(n_clusters=151).fit(PEERS)


def test_more_peers_than_rows_is_refused() -> None:
    with pytest.raises(UsageError, match="n_peers = 200, but X has 150 rows"):
        LosslessCMeans(n_clusters=3, n_peers=200).fit(X)


def test_predict_checks_its_rows() -> None:
    model = LosslessCMeans(n_clusters=3, init=INIT).fit(PEERS)
    with pytest.raises(DataError, match="X has 2 features, but LosslessCMeans is expecting 4 features as input"):
        model.predict(X[:, :2])
    with pytest.raises(DataError, match="X: row 0, column 0 is NaN"):
        model.predict([[np.nan] * 4])


def test_a_backend_object_runs_the_same_job() -> None:
    class Recorder:
        job: Job

        def run(self, job: Job, arrays: list[np.ndarray]) -> JobState:
            self.job = job
            return run_in_process(Job.from_dict(job.to_dict()), [Local(rows) for rows in arrays])

    fleet = Recorder()
    model = LosslessFuzzyCMeans(n_clusters=3, random_state=5, fleet=fleet).fit(PEERS)
    here = LosslessFuzzyCMeans(n_clusters=3, random_state=5).fit(PEERS)
    assert fleet.job.seed == 5
    assert model.cluster_centers_.tobytes() == here.cluster_centers_.tobytes()
