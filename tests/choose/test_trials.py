"""The number of clusters, chosen by the fleet."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from p2pclust import ChoiceOfClusters, choose_clusters
from p2pclust.choose.trials import _exposed, trials
from p2pclust.errors import DataError, FleetError, UsageError
from p2pclust.lab.testbed import backend
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import run_in_process
from p2pclust.protocols.secure.secured import Secured


def blobs(n_clusters: int, n_peers: int = 4, n_features: int = 2, seed: int = 0) -> list[np.ndarray]:
    """Clusters of deviation 1 that are at least 8 apart; each peer has rows of some clusters only."""
    rng = np.random.default_rng(seed)
    centers: list[np.ndarray] = []
    while len(centers) < n_clusters:
        center = rng.uniform(0, 40, n_features)
        if all(np.linalg.norm(center - other) > 8 for other in centers):
            centers.append(center)
    whose = [rng.choice(n_clusters, size=(n_clusters + 1) // 2, replace=False) for _ in range(n_peers)]
    whose[0] = np.arange(n_clusters)
    return [np.concatenate([rng.normal(centers[c], 1.0, (40, n_features)) for c in own]) for own in whose]


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["llf-cm", "llf-fcm"])
@pytest.mark.parametrize(("n_clusters", "n_features"), [(2, 3), (3, 2), (5, 2), (6, 8)])
def test_finds_clear_clusters(protocol: str, n_clusters: int, n_features: int) -> None:
    peers = blobs(n_clusters, n_features=n_features, seed=n_clusters)
    found = choose_clusters(peers, protocol, range(1, 9), random_state=0)
    assert (found.recommended, found.agreed) == (n_clusters, True), found.reason
    assert [row.clusters for row in found.table] == list(range(1, 9))
    assert found.centers[5].shape == (5, n_features)
    assert {row.rows for row in found.table} == {sum(len(X) for X in peers)}


@pytest.mark.slow
def test_the_best_of_the_restarts_is_kept_and_can_be_run_again() -> None:
    peers = blobs(5)
    found = choose_clusters(peers, "llf-cm", [4, 5, 6], restarts=4, random_state=7, init="k-means++")
    seeds = [seed for clusters, seed in trials([5], 4, 7)]
    assert seeds[0] == 7
    inertias = []
    for seed in seeds:
        alone = choose_clusters(peers, "llf-cm", [5, 6], restarts=1, random_state=seed, init="k-means++")
        inertias.append(alone.table[0].inertia)
    assert found.table[1].inertia == min(inertias)
    assert found.seeds[5] == seeds[inertias.index(min(inertias))]
    job = cluster_job("llf-cm", n_clusters=5, seed=found.seeds[5], init="k-means++")
    state = run_in_process(job, [Local(X) for X in peers])
    assert found.centers[5].tolist() == (state.arrays["origin"] + state.arrays["centers"]).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("fleet", ["in-process", "simulated", backend("in-process")])
def test_every_backend_finds_the_same_numbers(fleet: object) -> None:
    peers = blobs(2, n_peers=3)
    options = {"clusters": [1, 2, 3], "restarts": 1, "random_state": 0}
    assert choose_clusters(peers, fleet=fleet, **options).to_dict() == choose_clusters(peers, **options).to_dict()


@pytest.mark.processes
@pytest.mark.slow
def test_real_peers_find_the_same_numbers() -> None:
    peers = blobs(2, n_peers=3)
    options = {"clusters": [2, 3], "restarts": 1, "random_state": 0}
    there = choose_clusters(peers, fleet="processes", **options).to_dict()
    assert there == choose_clusters(peers, **options).to_dict()


@pytest.mark.slow
def test_a_small_peer_is_left_out_of_every_number_and_named() -> None:
    peers = [*blobs(3), blobs(3)[0][:20]]  # 20 rows: enough for 3 clusters, not for 6
    found = choose_clusters(peers, "llf-cm", range(2, 7), random_state=0)
    assert {row.rows for row in found.table} == {sum(len(X) for X in peers[:-1])}
    limit = "privacy gate: fewer than 21 rows, which measuring up to 6 clusters needs"
    assert found.notes == (f"peer 4 was not measured: {limit}",)
    everybody = choose_clusters(peers, "llf-cm", range(2, 7), random_state=0, measure_gate=False)
    assert (everybody.notes, everybody.table[0].rows) == ((), sum(len(X) for X in peers))


def test_if_nobody_may_be_measured_it_says_so() -> None:
    with pytest.raises(FleetError, match=r"2 clusters: measure: no peer can contribute \(peer 0: privacy gate: fewer"):
        choose_clusters([np.arange(9.0)[:, np.newaxis]], "llf-cm", [2, 3], random_state=0)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"clusters": [3]}, "at least two"),
        ({"clusters": [3, 3]}, "at least two"),
        ({"clusters": [0, 3]}, "clusters = 0"),
        ({"clusters": [2, 2.5]}, "whole numbers"),
        ({"clusters": 5}, "whole numbers"),
        ({"clusters": [2, 9]}, "hold 8 rows"),
        ({"restarts": 0}, "restarts"),
        ({"random_state": -1}, "seed"),
        ({"init": [[0.0], [1.0]]}, "first centers"),
        ({"protocol": "llf-fc"}, "did you mean"),
        ({"scaling": "max"}, "scaling"),
        ({"fuzzifer": 2.0}, "did you mean 'fuzzifier'"),
        ({"fleet": 3}, "expected None"),
        ({"fleet": "cloud"}, "backend = 'cloud'"),
    ],
)
def test_wrong_wishes_are_refused_before_anything_runs(changes: dict[str, object], told: str) -> None:
    peers = [[[0.0], [1.0], [2.0], [3.0]], [[4.0], [5.0], [6.0], [7.0]]]
    with pytest.raises(UsageError, match=told) as refused:
        choose_clusters(peers, **{"clusters": [2, 3], "privacy_gate": False, "random_state": 0} | changes)
    assert "\n" not in str(refused.value)


def test_models_cannot_be_compared_by_their_centers() -> None:
    with pytest.raises(UsageError, match="uifca has no centers"):
        choose_clusters([[[0.0], [1.0], [2.0], [3.0]]], "uifca", [2, 3], random_state=0)


@pytest.mark.parametrize(
    ("X", "told"),
    [
        (np.zeros((4, 2)), "a list"),
        ([], "a list"),
        ([[[0.0]], [[0.0, 1.0]]], "peer 1 has 2 columns"),
        ([[[0.0], [np.nan]]], "peer 0: row 1, column 0 is NaN"),
        ([[[0.0]], []], "peer 1"),
        ([[["a"]]], "peer 0: expected numbers"),
        ([np.array([["2024-01-01"]] * 9, dtype="M8[D]")] * 2, "peer 0: expected numbers, and there is text or a time"),
    ],
)
def test_bad_data_are_refused_by_name(X: object, told: str) -> None:
    with pytest.raises(DataError, match=told):
        choose_clusters(X)  # type: ignore[arg-type]


class Table(np.ndarray):
    """An array whose columns have names, as those of pandas have."""

    columns: list[str]


def named(columns: str, peer: int) -> Table:
    table = blobs(2)[peer].view(Table)
    table.columns = list(columns[: table.shape[1]])
    return table


@pytest.mark.parametrize(
    ("other", "told"),
    [("ba", "peer 1 has the columns b, a where"), ("ac", "peer 0 has no column 'c'|peer 1 has no column 'b'"),
     ("Ab", "peer 1 has no column 'a'")],
)  # fmt: skip
def test_tables_with_other_columns_are_refused_as_they_are_fitted(other: str, told: str) -> None:
    with pytest.raises(DataError, match=told):
        choose_clusters([named("ab", 0), named(other, 1)], clusters=range(1, 4))


@pytest.mark.parametrize("value", [7.25, 0.1, -1e9 / 3])
@pytest.mark.parametrize("protocol", ["llf-fcm", "llf-cm"])
def test_equal_rows_are_one_cluster(protocol: str, value: float) -> None:
    found = choose_clusters([np.full((40, 3), value)] * 3, protocol, range(1, 4), random_state=0, restarts=1)
    assert (found.recommended, found.agreed) == (1, True)
    assert found.reason.startswith("All rows are equal")


@pytest.fixture(scope="module")
def found() -> ChoiceOfClusters:
    return choose_clusters(blobs(3), clusters=range(1, 7), random_state=0, restarts=1)


@pytest.mark.slow
def test_plain_values(found: ChoiceOfClusters) -> None:
    told = json.loads(json.dumps(found.to_dict()))
    assert told["recommended"] == 3
    assert [row["clusters"] for row in told["table"]] == [1, 2, 3, 4, 5, 6]
    assert set(told) == {"recommended", "reason", "agreed", "votes", "notes", "table"}
    assert sum(told["table"][2]["counts"]) + told["table"][2]["hidden"] == told["table"][2]["rows"]


@pytest.mark.slow
def test_the_plot_shows_every_measure_and_what_is_recommended(found: ChoiceOfClusters, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pip install 'p2pclust[plots]'")
    figure = found.plot(tmp_path / "choice.svg")
    assert (tmp_path / "choice.svg").read_text(encoding="utf-8").startswith("<?xml")
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["soft Davies–Bouldin: 3", "Xie–Beni: 3", "simplified silhouette: 3", "elbow: 3"]
    for axes in figure.axes:
        curve, best = axes.lines[1], axes.lines[2]
        assert list(curve.get_xdata())[-5:] == [2, 3, 4, 5, 6]
        assert list(best.get_xdata()) == [3]


@pytest.mark.parametrize(
    ("name", "told"), [("choice.xyz", "png"), ("choice", "png"), ("nowhere/choice.png", "does not exist")]
)
def test_a_plot_that_cannot_be_saved_is_refused(found: ChoiceOfClusters, tmp_path: Path, name: str, told: str) -> None:
    pytest.importorskip("matplotlib", reason="pip install 'p2pclust[plots]'")
    with pytest.raises(UsageError, match=told):
        found.plot(tmp_path / name)


def test_without_matplotlib_it_says_what_to_install(found: ChoiceOfClusters, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UsageError, match=r"pip install 'p2pclust\[plots\]'"):
        found.plot()


def test_the_sets_of_all_jobs_are_judged_together() -> None:
    """Each job alone exposes no peer; the difference of the two is the sum of one peer."""
    state = engine.begin(cluster_job("llf-cm", n_clusters=2))
    whole, without = (replace(state, secured=Secured(5, revealed=(mask,))) for mask in (0b111111, 0b011111))
    assert _exposed([whole, whole]) == ()
    assert _exposed([whole, without]) == (5,)
    assert _exposed([state]) == ()
