"""Attacks find the rows that they should find, and nothing that is not there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from p2pclust.errors import UsageError
from p2pclust.lab.attacks.audit import Audit, audit_job
from p2pclust.lab.attacks.findings import AttackResult, recovered
from p2pclust.lab.attacks.rows import (
    SeenFuzzySums,
    fuzzy_sums_in,
    mixture_sums_in,
    rows_from_centers,
    rows_solved_for,
)
from p2pclust.lab.attacks.sights import sights_of
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import run_in_process

Floats = NDArray[np.float64]


def blobs(seed: int, *sizes: int) -> list[Floats]:
    rng = np.random.default_rng(seed)
    centers = np.array([[0.0, 0.0], [1.0, 0.1], [0.4, 1.0]])
    return [centers[rng.integers(3, size=size)] + rng.normal(0.0, 0.25, (size, 2)) for size in sizes]


def audited(job: Job, peers: list[Floats], **more: Any) -> dict[tuple[str, str], AttackResult]:
    locals_ = [Local(rows) for rows in peers]
    state = run_in_process(job, locals_)
    assert state.status == "done", state.reason
    found = audit_job(Audit(job, [Local(rows) for rows in peers], state.log, **more))
    return {(finding.observer, finding.attack): finding for finding in found}


@pytest.mark.slow
def test_a_row_that_moves_alone_comes_back() -> None:
    # From the centers 0 and 10 the row at 4.9 is nearest to the first. These move to 0.7 and 8: the row changes over.
    peers = [np.array([[0.0], [0.0], [0.0], [0.0], [4.9]]), np.array([[6.0], [8.0], [10.0], [0.0], [0.0]])]
    job = cluster_job(
        "llf-cm", n_clusters=2, init=[[0.0], [10.0]], scaling="none", tol=0.0, max_rounds=6, suppress_singletons=False
    )
    finding = audited(job, peers)["aggregator", "rows that move alone"]
    assert finding.rows == 10
    assert finding.by_peer == {0: 1}


@pytest.mark.slow
def test_a_peer_of_few_rows_that_passes_the_gate_is_solved_for() -> None:
    peers = blobs(3, 6, 60, 60)
    job = cluster_job("llf-fcm", n_clusters=3, init="uniform", tol=0.0, max_rounds=30, seed=1)
    finding = audited(job, peers, patience_s=10.0)["aggregator", "least squares over the rounds"]
    assert finding.by_peer == {0: 6}
    assert finding.rows == 126


@pytest.mark.slow
def test_several_starts_are_more_equations() -> None:
    peers = blobs(3, 15, 60, 60)  # with three starts the gate asks for more than 13.5 rows
    job = cluster_job("llf-fcm", n_clusters=3, init="uniform", n_init=3, tol=0.0, max_rounds=12, seed=1)
    locals_ = [Local(rows) for rows in peers]
    seen = sights_of(job, locals_, run_in_process(job, locals_).log).sent[(0,)]
    sums = fuzzy_sums_in(seen, 2.0)
    assert sums is not None
    assert sums.weights.shape == (36, 3)
    first = next(sight for sight in seen if "weights" in sight.shown).state
    rows = (peers[0] - first["origin"]) / first["scale"]
    assert np.abs(sums.explained_by(rows) - sums.shown).max() < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["full", "diag", "spherical"])
def test_rows_that_are_alone_in_a_component_of_a_mixture_come_back_unless_they_are_suppressed(kind: str) -> None:
    peers = [4.0 * rows for rows in blobs(3, 8, 14, 120)]
    finding = "aggregator", "clusters of one row"
    for rules, found in ((False, True), (True, False)):
        options = {"privacy_gate": rules, "suppress_singletons": rules}
        job = cluster_job("mixture", n_clusters=3, covariance_type=kind, seed=1, max_rounds=8, **options)
        assert bool(audited(job, peers, patience_s=0.1)[finding].recovered) is found


@pytest.mark.slow
def test_sums_of_a_mixture_are_those_that_its_rows_explain() -> None:
    peers = blobs(3, 30, 60)
    job = cluster_job("mixture", n_clusters=3, seed=1, max_rounds=5, tol=0.0, suppress_singletons=False)
    locals_ = [Local(rows) for rows in peers]
    seen = sights_of(job, locals_, run_in_process(job, locals_).log).sent[(0,)]
    sums = mixture_sums_in(seen, "full")
    assert sums is not None
    assert (len(sums.mixtures), sums.n_rows) == (4, 30)
    first = next(sight for sight in seen if "log_likelihoods" in sight.shown).state
    rows = (peers[0] - first["origin"]) / first["scale"]
    assert np.abs(sums.explained_by(rows) - sums.shown).max() < 1e-9
    # Of the first round, which knows means only, nothing is solved for.
    assert mixture_sums_in([sight for sight in seen if "log_likelihoods" in sight.shown][:2], "full") is None


@pytest.mark.slow
def test_points_that_a_peer_proposes_are_compared_with_its_rows() -> None:
    peers = [np.repeat(rows, 6, axis=0) for rows in blobs(5, 10, 10)]  # the mean of five neighbours is the row
    job = cluster_job("llf-cm", n_clusters=3, init="careful", max_rounds=2, seed=1)
    finding = audited(job, peers)["aggregator", "copies in centers"]
    assert finding.recovered >= 6
    assert set(finding.by_peer) == {0, 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "options"),
    [
        ("k-fed", {}), ("fkm", {"max_rounds": 3}), ("ffcm", {"max_rounds": 3}), ("c2f-fcm", {"max_rounds": 3}),
        ("gdf-fcm", {"max_rounds": 3}), ("stream-fcm", {"max_rounds": 3, "n_batches": 2}),
    ],
)  # fmt: skip
def test_every_protocol_of_rows_can_be_attacked(protocol: str, options: dict[str, Any]) -> None:
    found = audited(cluster_job(protocol, n_clusters=3, seed=1, **options), blobs(4, 30, 30), patience_s=0.1)
    assert found["aggregator", "copies in centers"].rows == 60
    tried = {attack for _, attack in found}
    assert ("a new row" in tried) == (protocol in ("gdf-fcm", "stream-fcm"))


def test_a_find_counts_each_row_once_and_only_if_every_value_is_near() -> None:
    rows = np.array([[0.0, 0.0], [1.0, 5.0]])
    ranges = np.array([1.0, 10.0])
    assert recovered(np.array([[0.0005, 0.005], [0.0, 0.0]]), rows, ranges) == 1
    assert recovered(np.array([[0.0005, 0.02]]), rows, ranges) == 0
    assert recovered(np.zeros((0, 2)), rows, ranges) == 0


def test_solving_ends_when_its_time_is_over() -> None:
    rng = np.random.default_rng(0)
    centers = rng.random((3, 2, 1))
    sums = SeenFuzzySums(centers, np.ones((3, 2)), rng.random((3, 2, 1)), 2.0, 1, np.zeros(1), np.ones(1))
    asked = iter([False, True])
    assert rows_solved_for(sums, rng, lambda: next(asked)).shape[1] == 1
    assert next(asked, None) is None, "it was asked after each try, and ended with the second"


def test_a_finding_in_plain_values_names_peers() -> None:
    plain = AttackResult("aggregator", "rows that move alone", 9, 2, 0.5, {1: 2}).to_dict(["a", "b"])
    assert plain == {
        "observer": "aggregator", "attack": "rows that move alone", "rows": 9, "recovered": 2, "seconds": 0.5,
        "peers": {"b": 2}, "auc": None, "nearest": None, "control": None,
    }  # fmt: skip


@pytest.mark.slow
def test_a_new_row_is_the_difference_of_two_turns() -> None:
    peers = blobs(6, 30, 30, 30)
    options: dict[str, Any] = {"n_clusters": 3, "init": [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], "seed": 1}
    for protocol in ("llf-cm", "llf-fcm"):
        for secured in (False, True):
            found = audited(cluster_job(protocol, scaling="none", **options), peers, secured=secured)
            assert found["two turns", "a new row"].by_peer == {0: 1, 1: 1, 2: 1}, (protocol, secured)


def test_a_device_that_is_away_from_one_of_two_runs_shows_its_single_rows() -> None:
    # The first device has three rows, each of which is nearest to another center: with each other device's rows beside them
    # no cluster has a single row, but the difference of two runs has three.
    alone = np.array([[0.0, 0.1], [1.0, 0.2], [0.1, 0.9]])
    job = cluster_job(
        "llf-cm", n_clusters=3, init=[[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], scaling="none", suppress_singletons=False
    )
    found = audited(job, [alone, *blobs(6, 60, 60)])
    assert found["two runs", "without one device"].by_peer[0] == 3
    assert found["aggregator", "clusters of one row"].by_peer == {0: 3}


def test_two_centers_give_a_row_away_to_every_peer() -> None:
    def public(*centers: list[float]) -> tuple[int, Arrays]:
        return 3, Arrays(origin=np.array([10.0, 0.0]), scale=np.array([2.0, 1.0]), centers=np.array(centers))

    still = [-3.0, 2.0]
    before, after = public([1.0, 0.0], [7.0, 5.0], still), public([2.0, 1.0], [8.5, 6.0], still)
    assert rows_from_centers([before, after]).tolist() == [[18.0, 3.0]]
    assert not len(rows_from_centers([before, public([2.0, 1.0], [8.5, 6.0], [-3.0, 2.5])])), "three centers moved"
    assert not len(rows_from_centers([before, public([2.0, 1.0], [8.4, 6.0], still)])), "no whole numbers of rows"
    assert not len(rows_from_centers([before, (4, after[1])])), "another stage"


def test_in_a_tree_a_peer_sees_the_sums_of_branches() -> None:
    peers = blobs(4, 20, 20, 20, 20)
    job = cluster_job("llf-cm", n_clusters=3, init="uniform", seed=1, max_rounds=3)
    locals_ = [Local(rows) for rows in peers]
    log = run_in_process(job, locals_).log
    sights = sights_of(job, locals_, log, parents=(-1, 0, 1, 1))
    additive = [peers for peers, seen in sights.sent.items() if any("sums" in one.shown for one in seen)]
    assert sorted(additive) == [(1, 2, 3), (2,), (3,)]
    counts = [one.shown["counts"] for one in sights.sent[1, 2, 3] if "counts" in one.shown]
    assert [of_round.sum() for of_round in counts] == [60, 60, 60]


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["fedcref", pytest.param("uifca", marks=pytest.mark.long)])
def test_a_model_that_remembers_its_rows_recognises_them(protocol: str) -> None:
    pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    peers = [rng.normal(peer, 1.0, (40, 12)) for peer in range(3)]
    few: dict[str, Any] = (
        {"epochs": 400, "batch": 8, "n_local_clusters": 1, "initial": "kmeans"}
        if protocol == "fedcref"
        else {"n_clusters": 2, "cluster_rounds": 2, "communication_rounds": 2, "local_steps": 300, "hidden": (64,)}
    )
    job = cluster_job(protocol, scaling="minmax", seed=1, **few)
    found = {one.attack: one for one in audit_job(Audit(job, [Local(rows) for rows in peers], ()))}
    calibrated = found["membership inference, calibrated"].auc
    assert calibrated is not None
    assert calibrated > 0.6
    copies = found["copies drawn from models"]
    assert copies.rows == 96
    assert copies.nearest is not None
    assert copies.control is not None
    assert 0.0 < copies.nearest < 1.0


def test_what_cannot_be_attacked_is_refused() -> None:
    box = ([-2.0, -2.0], [3.0, 3.0])
    job = cluster_job("llf-cm", n_clusters=2, bounds=box, secure=True, privacy={"epsilon": 2, "delta": 1e-6}, seed=1)
    with pytest.raises(UsageError, match="its noise cannot be drawn again"):
        audit_job(Audit(job, [Local(rows) for rows in blobs(1, 9, 9)], ()))


@pytest.mark.slow
def test_the_start_of_a_job_is_read_too() -> None:
    # A far row has a cell of its own, of too few rows to be sent: the totals of two rounds of split-merge differ by it.
    rng = np.random.default_rng(3)
    far = np.concatenate([rng.normal(0.0, 0.1, (20, 2)), [[6.5, 6.1]]])
    job = cluster_job("llf-cm", n_clusters=2, scaling="none", seed=1)
    found = audited(job, [far, rng.normal(0.0, 0.1, (40, 2))])
    assert found["aggregator", "rows that move alone"].by_peer[0] >= 1
    assert found["two turns", "a new row"].recovered == 2


@pytest.mark.slow
def test_means_of_many_rows_are_no_finds() -> None:
    rng = np.random.default_rng(4)
    peers = [rng.normal(size=(300, 1)) for _ in range(3)]
    found = audited(cluster_job("llf-fcm", n_clusters=3, scaling="none", seed=1, max_rounds=5), peers, patience_s=0.1)
    assert found["aggregator", "clusters of one row"].recovered == 0
    assert found["two runs", "without one device"].recovered == 0


@pytest.mark.slow
def test_the_unit_of_the_data_changes_nothing() -> None:
    peers = blobs(3, 30, 30, 30)
    counts = []
    for unit in (1.0, 1e7):
        job = cluster_job("llf-cm", n_clusters=3, init="uniform", scaling="none", tol=0.0, max_rounds=12, seed=5)
        counts.append([one.recovered for one in audited(job, [rows * unit for rows in peers]).values()])
    assert counts[0] == counts[1]
    assert sum(filter(None, counts[0])) > 0


@pytest.mark.slow
def test_peers_that_take_no_part_change_nothing() -> None:
    peers = [Local(rows * 1e-4) for rows in blobs(3, 30, 30, 30)]
    odd = [Local([[np.nan, 0.0]]), Local(np.zeros((0, 2))), Local(np.ones((9, 3)))]
    job = cluster_job("llf-cm", n_clusters=3, init="careful", scaling="none", max_rounds=4, seed=5)
    found = []
    for locals_ in (peers, [*peers, *odd]):
        log = run_in_process(job, locals_).log
        found.append({one.attack: one.recovered for one in audit_job(Audit(job, locals_, log))})
    assert found[0]["copies in centers"] == found[1]["copies in centers"]


def test_labels_and_weights_lose_the_row_that_is_left_out() -> None:
    peers = [Local(rows, weights=np.full(len(rows), 2.0)) for rows in blobs(6, 20, 20)]
    job = cluster_job("llf-cm", n_clusters=2, init=[[0.0, 0.0], [1.0, 0.0]], scaling="none")
    assert audit_job(Audit(job, peers, run_in_process(job, peers).log))


def one_cell_alone(seed: int) -> Floats:
    """Return two clusters of 20 rows, in which one row each has the second and the third column."""
    rng = np.random.default_rng(seed)
    rows = np.concatenate([rng.normal(0.0, 1.0, (20, 3)), rng.normal(8.0, 1.0, (20, 3))])
    rows[1:20, 2], rows[21:40, 1] = np.nan, np.nan
    return rows


@pytest.mark.slow
def test_a_column_that_one_row_of_a_cluster_has_gives_its_cell_with_the_rules_off_only() -> None:
    peers = [one_cell_alone(seed) for seed in range(3)]
    what = {"n_clusters": 2, "missing_values": "keep", "init": [[0.0] * 3, [8.0] * 3], "tol": 0.0, "max_rounds": 4}
    alone = "aggregator", "clusters of one row"
    open_ = audited(cluster_job("llf-cm", suppress_singletons=False, **what), peers)
    assert open_[alone].by_peer == {0: 2, 1: 2, 2: 2}
    closed = audited(cluster_job("llf-cm", **what), peers)
    assert [one.recovered for (observer, _), one in closed.items() if observer != "two turns"] == [0] * 6


@pytest.mark.slow
def test_a_column_that_one_row_of_a_fuzzy_peer_has_gives_its_cell_with_the_gate_off_only() -> None:
    peers = [one_cell_alone(seed) for seed in range(3)]
    for rows in peers:
        rows[20:, 2] = np.nan
    what = {"n_clusters": 2, "missing_values": "keep", "init": [[0.0] * 3, [8.0] * 3], "tol": 0.0, "max_rounds": 4}
    open_ = audited(cluster_job("llf-fcm", privacy_gate=False, **what), peers, patience_s=0.1)
    assert open_["aggregator", "clusters of one row"].by_peer == {0: 1, 1: 1, 2: 1}
    with pytest.raises(AssertionError, match="privacy gate: some column has a number in 4 rows or fewer"):
        audited(cluster_job("llf-fcm", **what), peers)
    third = np.random.default_rng(9).normal(size=(40, 1))
    enough = [np.concatenate([one_cell_alone(seed)[:, :2], third], axis=1) for seed in range(3)]
    closed = audited(cluster_job("llf-fcm", **what), enough, patience_s=0.1)
    assert closed["aggregator", "clusters of one row"].recovered == 0


@pytest.mark.slow
def test_a_cell_that_moves_alone_comes_back() -> None:
    # As above, with a second column that only the row at 4.9 and some of the other cluster have.
    first = np.array([[0.0, np.nan], [0.0, np.nan], [0.0, np.nan], [0.0, np.nan], [4.9, 3.0]])
    peers = [first, np.array([[6.0, 1.0], [8.0, 2.0], [10.0, 2.0], [0.0, np.nan], [0.0, np.nan]])]
    job = cluster_job(
        "llf-cm", n_clusters=2, init=[[0.0, 2.0], [10.0, 2.0]], tol=0.0, max_rounds=6, suppress_singletons=False,
        missing_values="keep",
    )  # fmt: skip
    assert audited(job, peers)["aggregator", "rows that move alone"].by_peer == {0: 1}


def description_audit(rows: Floats, **parameters: Any) -> dict[tuple[str, str], AttackResult]:
    job = cluster_job("describe", secure=True, **parameters)
    peers = list(np.array_split(rows, 4))
    log = run_in_process(job, [Local(part) for part in peers]).log
    found = audit_job(Audit(job, [Local(part) for part in peers], log, secured=True))
    return {(finding.observer, finding.attack): finding for finding in found}


def test_a_row_alone_in_a_cell_is_found_without_the_rules_and_not_with_them() -> None:
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(size=80), rng.integers(0, 2, 80)])
    rows[17] = 40.0, 2.0  # far from the others, and the only one of its category
    open_ = description_audit(rows, min_cell=0, levels=[0, 3])
    assert open_["any peer", "cells of one row"].by_peer[0] >= 1
    held = description_audit(rows, levels=[0, 3])
    assert held["any peer", "cells of one row"].recovered == 0
    assert held["aggregator", "cells of one row"].recovered == 0  # single peers' sums are padded
    # The rules hide from readers what the aggregator sees in the totals.
    assert held["totals", "cells of one row"].recovered == open_["totals", "cells of one row"].recovered == 1


def test_many_quantiles_are_rows_without_the_rules_and_not_with_them() -> None:
    rows = np.random.default_rng(1).normal(size=(80, 1))
    shares = [round(0.3 + 0.005 * step, 4) for step in range(80)]
    attack = ("any peer", "quantiles of neighbouring ranks")
    assert (description_audit(rows, min_cell=0, quantiles=shares)[attack].recovered or 0) > 30
    assert description_audit(rows, quantiles=shares)[attack].recovered == 0


@pytest.mark.parametrize("protocol", ["llf-cm", "llf-fcm", "k-prototypes"])
def test_values_of_single_rows_come_back_only_without_the_rule(protocol: str) -> None:
    rng = np.random.default_rng(2)
    peers = [
        np.column_stack([blobs(seed, 40)[0][:, 0], rng.integers(0, 3, 40), rng.integers(0, 9, 40)]) for seed in (1, 2)
    ]
    for rows in peers:
        rows[rows[:, 2] == 8, 2] = 7
        rows[3, 2] = 8  # the only row of the peer with this value
    rule = "suppress_values" if protocol == "llf-fcm" else "suppress_singletons"
    found = {}
    for on in (True, False):
        job = cluster_job(protocol, n_clusters=3, levels=(0, 3, 9), seed=1, max_rounds=4, tol=0.0, **{rule: on})
        found[on] = audited(job, peers, patience_s=0.1)["aggregator", "values of single rows"]
    assert (found[True].rows, found[True].recovered) == (80, 0)
    assert set(found[False].by_peer) == {0, 1}


def test_a_new_row_with_a_category_comes_back_too() -> None:
    peers = [np.column_stack([rows[:, 0], np.arange(len(rows)) % 3]) for rows in blobs(4, 40, 40)]
    job = cluster_job("k-prototypes", n_clusters=2, levels=(0, 3), seed=1, suppress_singletons=False)
    assert audited(job, peers, patience_s=0.1)["two turns", "a new row"].by_peer == {0: 1, 1: 1}
