"""`secure` in a scenario and in Python: what goes with it, what does not, and the same bits as without."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from p2pclust import LosslessCMeans, LosslessFuzzyCMeans
from p2pclust.errors import FleetError, UsageError
from p2pclust.jobs.request import JobRequest
from p2pclust.jobs.secured import secured_fields
from p2pclust.lab.attacks.audit import Audit, audit_job
from p2pclust.lab.scenario.file.examples import SCENARIOS, find_example
from p2pclust.lab.scenario.file.load import check_backend, load_scenario
from p2pclust.lab.scenario.run import carry_out
from p2pclust.lab.testbed import backend
from p2pclust.lab.testbed.faults import Fault
from p2pclust.lab.testbed.peer.lies import lie_called
from p2pclust.lab.testbed.spec import FleetSpec, PeerSpec
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.centers.robust import limited_peers
from p2pclust.protocols.engine import summaries
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import replay, run_in_process


@pytest.mark.parametrize(
    ("more", "secured"),
    [
        ("", {}),
        ("secure = false", {}),
        ("secure = true", {"secure": True}),
        ("secure = {}", {"secure": True}),
        ('secure = {keepers = "all", cohort = 4}', {"secure": True, "keepers": 4096, "cohort": 4}),
        ('secure = {burnt = "record", leave = "groups"}', {"secure": True, "burnt": "record", "leave": "groups"}),
    ],
)
def test_what_a_scenario_may_say(more: str, secured: dict[str, Any], scenario_file: Callable[..., str]) -> None:
    job = load_scenario(scenario_file(more)).jobs[0]
    assert secured_fields(job.protocol, job.secure, 3) == secured


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("secure = 1", "secure"),
        ("secure = {keeper = 3}", "keeper"),
        ("secure = {groups = 2}", "groups"),
        ('secure = {groups = 3}\nrobust = "median"\nverify = "all"', "not of groups"),
        ('secure = {groups = 3}\nrobust = "median"\ncollect = "tree"', "groups excludes collect = 'tree'"),
        ("secure = {keepers = 1}", "keepers"),
        ('secure = {keepers = "some"}', "keepers"),
        ("secure = {cohort = 2}", "cohort"),
        ('secure = {burnt = "leave"}', "burnt"),
        ('secure = {leave = "never"}', "leave"),
        ('secure = true\ncollect = "gossip"', "secure sums need an aggregator"),
    ],
)
def test_what_does_not_go_together(more: str, words: str, scenario_file: Callable[..., str]) -> None:
    with pytest.raises(UsageError, match=words):
        load_scenario(scenario_file(more))


@pytest.mark.parametrize(
    ("more", "backend", "words"),
    [
        ("secure = true", "in-process", "a run in one process excludes secure"),
        ("secure = {cohort = 5}", "simulated", r"expected 3 to the number of peers \(4\)"),
        ("secure = {keepers = 5}", "simulated", "expected 2 to 4, the number of peers, or 'all'"),
    ],
)
def test_a_fleet_that_cannot_do_it_is_refused(
    more: str, backend: str, words: str, scenario_file: Callable[..., str]
) -> None:
    with pytest.raises(UsageError, match=words):
        check_backend(load_scenario(scenario_file(more)), backend)


def test_a_job_that_was_not_made_of_sums_is_refused() -> None:
    with pytest.raises(UsageError, match="range shows each peer's ranges"):
        JobRequest(cluster_job("llf-cm", n_clusters=2), Treatment(secure=True))


@pytest.mark.slow
@pytest.mark.parametrize("secure", ["true", '{keepers = "all", leave = "groups"}'])
def test_a_scenario_has_the_bits_of_the_plain_one(
    secure: str, scenario_file: Callable[..., str], tmp_path: Path
) -> None:
    results = []
    for number, more in enumerate((f"secure = {secure}\n", "")):
        scenario = load_scenario(scenario_file(f"{more}max_rounds = 3\ntol = 0.0\n"))
        results.append(carry_out(scenario, "simulated", out=tmp_path / f"out-{number}"))
    for result in results:
        assert result["failure"] == ""
    found, plain = (result["jobs"][0] for result in results)
    assert found["centers"] == plain["centers"]
    assert found["objective"] == plain["objective"]


X = np.random.default_rng(0).normal(size=(60, 2)) + 5 * np.random.default_rng(1).integers(0, 2, (60, 1))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [LosslessCMeans, LosslessFuzzyCMeans])
def test_an_estimator_has_the_bits_of_the_plain_one(kind: Any) -> None:
    plain = kind(n_clusters=2, n_peers=4, random_state=3).fit(X)
    for secure in (True, {"keepers": 2, "cohort": 4}):
        model = kind(n_clusters=2, n_peers=4, random_state=3, fleet="simulated", secure=secure).fit(X)
        assert model.cluster_centers_.tobytes() == plain.cluster_centers_.tobytes()
        assert model.labels_.tolist() == plain.labels_.tolist()
        assert model.exposed_ == ()


def test_an_estimator_in_this_process_has_nothing_to_hide() -> None:
    with pytest.raises(UsageError, match="nothing crosses a link"):
        LosslessCMeans(n_clusters=2, n_peers=4, secure=True).fit(X)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["vertical-cm", "vertical-fcm"])
@pytest.mark.parametrize("backend", ["simulated", "processes"])
def test_owners_of_columns_whose_aggregator_restarts(protocol: str, backend: str, tmp_path: Path) -> None:
    overrides = [f"jobs.0.protocol={protocol}", "jobs.0.secure=true", "jobs.0.init=random", "expect={}"]
    scenario = load_scenario(find_example(Path("vertical-wine"), SCENARIOS, "p2pclust run"), overrides)
    result = carry_out(scenario, backend, out=tmp_path / "out")
    assert result["failure"] == ""
    assert result["unfired_faults"] == []
    (job,) = result["jobs"]
    assert job["replay_identical"] is True
    assert job["exposed"] == {}
    assert job["pooled"]["relative_difference"] < 1e-9


PEERS = [np.random.default_rng(seed).normal(size=(40, 2)) + 8.0 * (seed % 2) for seed in range(12)]
BOUNDS = ([-9.0, -9.0], [16.0, 16.0])
GROUPS: dict[str, Any] = {
    "secure": {"groups": 4},
    "robust": "median",
    "max_weight": 1.0,
    "bounds": ([-9.0, -9.0], [16.0, 16.0]),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [LosslessCMeans, LosslessFuzzyCMeans])
def test_a_liar_within_its_group_moves_no_center_far(kind: Any) -> None:
    honest = kind(n_clusters=2, random_state=1, fleet="simulated", **GROUPS).fit(PEERS)
    plain = kind(n_clusters=2, random_state=1, bounds=BOUNDS).fit(PEERS)
    assert honest.exposed_ == ()
    order = [np.argsort(model.cluster_centers_[:, 0]) for model in (honest, plain)]
    assert np.abs(honest.cluster_centers_[order[0]] - plain.cluster_centers_[order[1]]).max() < 0.5
    job = cluster_job(
        kind.protocol_id,
        n_clusters=2,
        seed=1,
        secure=True,
        groups=4,
        robust="median",
        max_weight=1.0,
        bounds=BOUNDS,
    )
    peers = tuple(PeerSpec(f"p{number:02d}", X) for number, X in enumerate(PEERS))
    request = JobRequest(job, Treatment(missing="", secure=True, groups=4))
    spec = FleetSpec(peers, (request,), faults=(Fault("lie", ("p05",), job=0, how="inflate"),))
    lied = backend("simulated").carry_out(spec, lambda event: None).jobs[0].state
    assert lied is not None
    assert lied.secured is not None
    assert [mask.bit_count() for mask in lied.secured.groups] == [3, 3, 3, 3]
    assert sum(lied.secured.groups) == 2**12 - 1, "each peer is in one group"
    centers = summaries.raw_centers(lied)
    assert np.abs(centers[np.argsort(centers[:, 0])] - plain.cluster_centers_[order[1]]).max() < 1.0
    assert set(limited_peers(lied.arrays)) >= {5}, "with the others of its group"
    locals_ = [Local(X) for X in PEERS]
    locals_[5] = locals_[5].lying(lie_called("inflate"))
    assert replay(job, locals_, lied.log, (), lied.secured.groups).encode() == lied.plain().encode()


@pytest.mark.parametrize(
    ("job", "groups", "words"),
    [
        ({}, 3, "groups needs max_weight or robust"),
        ({"robust": "median"}, 0, "set groups of secure"),
    ],
)
def test_groups_are_for_what_looks_at_them(job: dict[str, Any], groups: int, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        cluster_job("llf-cm", n_clusters=2, secure=True, groups=groups, **job)


def test_groups_are_at_least_a_cohort() -> None:
    with pytest.raises(
        FleetError, match=r"groups = 4: expected 3 to 3, so that each of 11 peers has 2 others in its group"
    ):
        LosslessCMeans(n_clusters=2, fleet="simulated", **GROUPS).fit(PEERS[:11])


def test_each_group_must_have_the_rows_that_the_privacy_gate_asks_for() -> None:
    few = [X[:2] for X in PEERS]
    with pytest.raises((UsageError, FleetError), match="privacy gate: a group of peers holds 6 rows"):
        LosslessFuzzyCMeans(n_clusters=4, fleet="simulated", **GROUPS).fit(few)


@pytest.mark.slow
def test_what_groups_reveal_is_attacked_too() -> None:
    job = cluster_job(
        "llf-cm",
        n_clusters=2,
        seed=1,
        secure=True,
        groups=4,
        robust="median",
        bounds=BOUNDS,
        suppress_singletons=False,
    )
    groups = (0b000000000111, 0b000000111000, 0b000111000000, 0b111000000000)
    # A group of three peers of which two have no row near a cluster: what it reveals is the third one's single row.
    rows = [np.array(X) for X in PEERS]
    for peer in (0, 1, 2):
        rows[peer] = PEERS[0] + 0.1 * peer
    rows[1][0] = [9.0, 9.0]
    locals_ = [Local(X) for X in rows]
    log = run_in_process(job, locals_, groups=groups).log
    found = audit_job(Audit(job, locals_, log, secured=True, groups=groups))
    by_group = {one.attack: one for one in found if one.observer == "group totals"}
    assert by_group["clusters of one row"].by_peer == {1: 1}
    hidden = audit_job(Audit(job, locals_, log, secured=True))
    assert not [one for one in hidden if one.observer == "group totals"]
