"""FedCRef as an estimator: the same bits on every fleet, communities with one meaning, and odd input."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "protocols"))

from communities import planted

from p2pclust import FedCRef
from p2pclust.errors import DataError, FleetError, UsageError
from p2pclust.metrics import accuracy

pytest.importorskip("torch", reason="autoencoders need torch: pip install 'p2pclust[models]'")

KINDS = np.random.default_rng(5).random((4, 8))
SIGHTS = ((0, 1), (1, 2, 3), (2, 0), (3, 1))
SMALL: dict[str, Any] = {"hidden": (5, 3, 5), "epochs": 30, "batch": 8, "learning_rate": 0.02, "federated_rate": 0.02}


def peers(rows: int = 40) -> tuple[list[np.ndarray[Any, Any]], list[np.ndarray[Any, Any]]]:
    rng = np.random.default_rng(1)
    labels = [rng.permutation(np.repeat(own, rows)) for own in SIGHTS]
    return [np.clip(KINDS[y] + 0.04 * rng.normal(size=(len(y), 8)), 0, 1) for y in labels], labels


def fitted(**options: Any) -> FedCRef:
    X, _ = peers()
    numbers = [len(own) for own in SIGHTS]
    return FedCRef(**{"n_local_clusters": numbers, "bounds": (0.0, 1.0), "random_state": 3, **SMALL, **options}).fit(X)


def same(one: FedCRef, other: FedCRef) -> None:
    assert [labels.tobytes() for labels in one.labels_] == [labels.tobytes() for labels in other.labels_]
    assert one.models_.weights.tobytes() == other.models_.weights.tobytes()
    assert (one.communities_, one.isolated_, one.history_) == (other.communities_, other.isolated_, other.history_)


@pytest.mark.slow
def test_in_virtual_time() -> None:
    same(fitted(fleet="simulated", encoding="int8"), fitted(encoding="int8"))


@pytest.mark.slow
def test_in_bfloat16() -> None:
    same(fitted(fleet="simulated", precision="bfloat16"), fitted(precision="bfloat16"))


@pytest.mark.processes
@pytest.mark.slow
def test_on_processes() -> None:
    same(fitted(fleet="processes"), fitted())
    same(fitted(fleet="processes", precision="bfloat16"), fitted(precision="bfloat16"))


def test_labels_have_one_meaning_for_all_peers() -> None:
    X, truth = peers()
    model = fitted()
    assert len(model.communities_) == 4
    assert model.isolated_ == ()
    assert accuracy(np.concatenate(truth), np.concatenate(model.labels_)) == 1.0
    assert set(model.association_graph_.nodes) == {node for members in model.communities_ for node in members}
    assert [model.predict(rows).tolist() for rows in X] == [labels.tolist() for labels in model.labels_]
    assert model.score(np.concatenate(X)) > model.score(1.0 - np.concatenate(X))
    assert model.history_[-1]["groups"] == 4
    assert model.converged_


def test_the_paper_s_mode_goes_by_iterations() -> None:
    model = fitted(mode="paper", max_iterations=2)
    assert 1 <= model.n_iterations_ <= 2
    assert {row["refinement"] for row in model.history_} == {0}


def test_given_labels_are_where_it_begins() -> None:
    _, truth = peers()
    model = fitted(initial=truth, n_local_clusters=None, max_refinements=1)
    assert all(accuracy(y, labels) == 1.0 for y, labels in zip(truth, model.labels_, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("fleet", [None, "simulated"])
def test_given_labels_may_be_called_anything(fleet: str | None) -> None:
    _, truth = peers()
    numbers = fitted(initial=truth, n_local_clusters=None, max_refinements=1)
    for called in (lambda y: y / 4 - 0.5, lambda y: np.array(list("abcd"))[y]):
        same(fitted(initial=[called(y) for y in truth], n_local_clusters=None, max_refinements=1, fleet=fleet), numbers)


def test_given_labels_of_one_array_are_dealt_out_with_it() -> None:
    X, truth = peers()
    together, y = np.concatenate(X), np.concatenate(truth)
    options: dict[str, Any] = {"n_peers": 3, "random_state": 0, **SMALL}
    model = FedCRef(initial=y, **options).fit(together)
    assert accuracy(y, np.asarray(model.labels_)) > 0.9
    for wrong in ([y], y[1:]):
        with pytest.raises(DataError, match=f"initial: expected one label for each of the {len(y)} rows of X"):
            FedCRef(initial=wrong, **options).fit(together)


def test_one_array_is_dealt_out() -> None:
    X, truth = peers()
    together, y = np.concatenate(X), np.concatenate(truth)
    model = FedCRef(n_peers=3, n_local_clusters=4, random_state=0, **SMALL).fit(together)
    assert len(model.labels_) == len(y)
    assert accuracy(y, np.asarray(model.labels_)) > 0.9


@pytest.mark.parametrize(
    ("options", "error", "line"),
    [
        ({"mode": "better"}, UsageError, "fedcref: mode = 'better'"),
        ({"tau": 0.5}, UsageError, "tau belongs to mode = 'paper'"),
        ({"n_local_clusters": [2, 2]}, UsageError, "one number from 1 on for each of the 4 peers"),
        ({"initial": [[0, 1]] * 4}, DataError, "initial: labels for"),
        ({"initial": "best"}, UsageError, "fedcref: initial = 'best'"),
        ({"initial": "given"}, UsageError, "^initial = 'given': give the labels themselves"),
        ({"n_local_clusters": "classes"}, UsageError, "^n_local_clusters = 'classes': expected a whole number"),
        ({"n_local_clusters": 2.5}, UsageError, "^n_local_clusters = 2.5: expected a whole number"),
        ({"n_local_clusters": [2, 2, 2, 1.5]}, UsageError, "one number from 1 on for each of the 4 peers"),
        ({"scaling": "none", "bounds": None}, UsageError, "^scaling = 'none' .* end in a sigmoid"),
        ({"scaling": "zscore", "bounds": None}, UsageError, "^scaling = 'zscore' .* end in a sigmoid"),
        ({"device": "nowhere"}, UsageError, "^there is no device 'nowhere'"),
        ({"min_rows": 1000}, FleetError, r"no cluster has the 1000 rows that a model needs \(min_rows\)"),
    ],
)
def test_bad_parameters(options: dict[str, Any], error: type[Exception], line: str) -> None:
    with pytest.raises(error, match=line):
        fitted(**options)


def test_without_a_community_rows_have_clusters_of_their_own_peer() -> None:
    X, _ = peers()
    alone = FedCRef(n_local_clusters=2, random_state=0, **SMALL).fit(X[:1])
    assert alone.communities_ == ()
    assert alone.isolated_ == alone.own_clusters_ == ((0, 0), (0, 1))
    assert alone.predict(X[0]).tolist() == alone.labels_[0].tolist()
    assert np.isfinite(alone.score(X[0]))
    assert sorted(set(alone.labels_[0].tolist())) == [0, 1]


# Kinds 4 and 5 are of peer 1 only.
LONELY = planted(((0, 1, 2), (0, 1, 2, 4, 5), (0, 1, 2), (1, 2, 0)))


def lonely(fleet: str | None = None, mode: str = "refined") -> FedCRef:
    own = {"max_iterations": 2, "theta": 0.4} if mode == "paper" else {}
    model = FedCRef(
        initial=[peer.labels for peer in LONELY], bounds=(0.0, 1.0), random_state=0, mode=mode, fleet=fleet, hidden=(4,),
        output="linear", epochs=40, batch=8, rounds=3, local_epochs=3, learning_rate=0.02, federated_rate=0.02, **own,
    )  # fmt: skip
    return model.fit([peer.X for peer in LONELY])


@pytest.mark.parametrize("mode", ["refined", "paper"])
def test_predict_of_the_training_rows_is_what_they_are_called(mode: str) -> None:
    model = lonely(mode=mode)
    found, labels = np.concatenate([model.predict(p.X) for p in LONELY]), np.concatenate(model.labels_)
    assert np.mean(found == labels) >= 0.97
    assert len(model.own_clusters_) >= 2
    assert np.unique(found).tolist() == np.unique(labels).tolist() == list(range(labels.max() + 1))
    assert labels.max() + 1 == len(model.communities_) + len(model.own_clusters_)
    assert sorted(set(model.model_labels_.tolist())) == np.unique(labels).tolist()


def test_a_row_near_the_model_of_a_lonely_cluster_is_called_after_it() -> None:
    model = lonely()
    rows = np.array([LONELY[1].X[LONELY[1].truth == kind].mean(axis=0) for kind in (4, 5, 0)])  # no peer has them
    alone, other, shared = model.predict(rows).tolist()
    assert model.own_clusters_ == ((1, 3), (1, 4))
    assert (alone, other) == (len(model.communities_), len(model.communities_) + 1)
    assert shared < len(model.communities_)
    of_peer_2 = model.predict(rows, peer=2)
    assert set(of_peer_2.tolist()) <= set(model.labels_[2].tolist()), "that peer has rows of no other kinds"
    assert model.predict(rows, peer=1)[0] == alone
    assert [model.predict(row[np.newaxis])[0] for row in rows] == [alone, other, shared]


@cache
def small() -> FedCRef:
    return fitted(max_refinements=1)


@pytest.mark.parametrize("peer", [4, -1, 0.5, True])
def test_a_peer_that_there_is_not(peer: Any) -> None:
    X, _ = peers()
    with pytest.raises(UsageError, match=r"^peer = .*: expected a whole number from 0 to 3"):
        small().predict(X[0], peer=peer)


@pytest.mark.slow
@pytest.mark.parametrize("fleet", ["simulated", pytest.param("processes", marks=pytest.mark.processes)])
def test_a_fleet_brings_the_models_of_lonely_clusters(fleet: str) -> None:
    here, there = lonely(), lonely(fleet)
    same(here, there)
    assert here.own_clusters_ == there.own_clusters_ != ()
    assert [here.predict(p.X).tolist() for p in LONELY] == [there.predict(p.X).tolist() for p in LONELY]


@pytest.mark.parametrize("fleet", [None, "simulated"])
def test_without_torch_there_is_one_line(monkeypatch: pytest.MonkeyPatch, fleet: str | None) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"^fedcref needs torch, .*: pip install 'p2pclust\[models\]'$"):
        fitted(fleet=fleet)
