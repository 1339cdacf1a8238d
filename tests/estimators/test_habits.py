"""What users of scikit-learn are used to: n_iter_, ConvergenceWarning, predict_proba."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from p2pclust import (
    FFCM,
    FederatedKMeans,
    KFed,
    LosslessCMeans,
    LosslessFuzzyCMeans,
    VerticalCMeans,
    VerticalFuzzyCMeans,
)
from p2pclust.choose.trials import _either_way, choose_clusters
from p2pclust.errors import DataError, LeftOutWarning, SuspectResultWarning, UsageError


def peers() -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    return [np.concatenate([rng.normal(at, 1.0, (30, 2)) for at in (0.0, 3.0, 6.0)]) for _ in range(2)]


@pytest.mark.parametrize("kind", [LosslessCMeans, LosslessFuzzyCMeans, FFCM, FederatedKMeans, VerticalFuzzyCMeans])
def test_n_iter_is_the_number_of_rounds(kind: Any) -> None:
    model = kind(n_clusters=3, random_state=0, max_rounds=60, tol=1e-2).fit(peers())
    assert model.n_iter_ == model.n_rounds_ >= 1


@pytest.mark.parametrize("kind", [LosslessCMeans, LosslessFuzzyCMeans, VerticalCMeans])
def test_rounds_that_were_used_up_are_told(kind: Any) -> None:
    options: dict[str, Any] = {"n_clusters": 3, "random_state": 0, "max_rounds": 1}
    with pytest.warns(ConvergenceWarning, match=r"did not converge in max_rounds = 1 rounds: give it more") as caught:
        model = kind(tol=1e-12, **options).fit(peers())
    assert not model.converged_
    assert caught[0].filename == __file__, "where the estimator was called"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kind(tol=0.0, **options).fit(peers())
        assert kind(n_clusters=3, random_state=0, max_rounds=200, tol=1e-2).fit(peers()).converged_


@pytest.mark.parametrize("kind", [LosslessFuzzyCMeans, FFCM, VerticalFuzzyCMeans])
def test_predict_proba_is_how_much_a_row_belongs_to_each_cluster(kind: Any) -> None:
    model, X = kind(n_clusters=3, random_state=0).fit(peers()), peers()[0]
    rows = np.concatenate([X, X], axis=1) if kind is VerticalFuzzyCMeans else X
    found = model.predict_proba(rows)
    assert found.tobytes() == model.memberships(rows).tobytes()
    assert np.allclose(found.sum(axis=1), 1.0)
    assert found.argmax(axis=1).tolist() == model.predict(rows).tolist()
    assert not hasattr(LosslessCMeans(), "predict_proba")


def test_choosing_takes_the_numbers_in_either_place() -> None:
    assert _either_way("llf-cm", None) == ("llf-cm", range(2, 11))
    assert _either_way("llf-cm", range(2, 7)) == ("llf-cm", range(2, 7))
    assert _either_way(range(2, 7), None) == ("llf-fcm", range(2, 7))
    assert _either_way(range(2, 7), "llf-cm") == ("llf-cm", range(2, 7))
    for wrong in ((range(2, 7), range(2, 5)), ("llf-cm", "2-7")):
        with pytest.raises(UsageError, match=r"^clusters"):
            _either_way(*wrong)


def test_peers_have_the_names_of_a_dict() -> None:
    rng = np.random.default_rng(0)
    parts = {name: rng.normal(at, 1, (40, 2)) for name, at in (("north", 0), ("south", 6))}
    named = LosslessCMeans(n_clusters=2, random_state=0).fit(parts)
    plain = LosslessCMeans(n_clusters=2, random_state=0).fit([*parts.values()])
    assert named.peer_names_ == ("north", "south")
    assert [own.tolist() for own in named.labels_] == [own.tolist() for own in plain.labels_]
    assert not hasattr(named.fit([*parts.values()]), "peer_names_")
    weights = {"south": np.ones(40), "north": np.full(40, 2.0)}
    weighted = LosslessCMeans(n_clusters=2, random_state=0).fit(parts, sample_weight=weights)
    listed = LosslessCMeans(n_clusters=2, random_state=0).fit(
        [*parts.values()], sample_weight=[np.full(40, 2.0), np.ones(40)]
    )
    assert weighted.cluster_centers_.tobytes() == listed.cluster_centers_.tobytes()
    assert (
        choose_clusters(parts, range(1, 4)).recommended == choose_clusters([*parts.values()], range(1, 4)).recommended
    )
    with pytest.warns(LeftOutWarning, match=r"without the rows of a peer \(one: "):
        LosslessFuzzyCMeans(n_clusters=2, random_state=0).fit({**parts, "one": np.array([[3.0, 2.9]])})
    columns = {"north": parts["north"][:, :1], "south": parts["north"][:, 1:]}
    assert VerticalCMeans(n_clusters=2, random_state=0).fit(columns).peer_names_ == ("north", "south")


def test_a_dict_of_columns_is_no_dict_of_peers() -> None:
    with pytest.raises(DataError, match=r"got a dict: pass list\(X\.values\(\)\) if it has one array per peer$"):
        LosslessCMeans(n_clusters=2).fit({"watt": [1.0, 2.0, 3.0], "volt": [230.0, 231.0, 229.0]})


@pytest.mark.parametrize("kind", [KFed, FFCM, LosslessCMeans])
def test_clusters_without_a_row_are_doubted(kind: Any) -> None:
    rng = np.random.default_rng(1)
    base = np.array([[30.0, 5], [31, 5], [90, 40], [90, 41], [10, 80]])
    with pytest.warns(SuspectResultWarning, match=r"^(no|hardly any) row belongs to centers? \d"):
        model = kind(n_clusters=8, random_state=0).fit([base[rng.integers(0, 5, 30)] for _ in range(3)])
    assert any("row belongs to" in doubt for doubt in model.doubts_)


def test_a_peer_that_can_only_send_zeros_is_left_out_with_a_warning() -> None:
    rng = np.random.default_rng(0)
    parts = [rng.normal(0, 1, (40, 2)), np.array([[3.0, 2.9]]), rng.normal(6, 1, (40, 2))]
    with pytest.warns(
        LeftOutWarning, match=r"a peer \(peer 1: each of its clusters has one row, which is sent as zeros"
    ):
        LosslessCMeans(n_clusters=2, random_state=0).fit(parts)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LeftOutWarning)
        LosslessCMeans(n_clusters=2, random_state=0, suppress_singletons=False).fit(parts)
