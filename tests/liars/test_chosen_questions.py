"""Exact totals of jobs with chosen first centers give rows back; a device's conditions refuse such jobs."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.liars.devices import HI, LO, Devices, N, reasons

from p2pclust.peer.core.tasks import Contributed
from p2pclust.peer.work.floor import Floor
from p2pclust.protocols.engine.compose import cluster_job, continued
from p2pclust.protocols.engine.job import Job, Stage
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import run_in_process
from p2pclust.protocols.private.ledger import MostJobs

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "chosen_questions.py"
GIVEN = cluster_job(
    "llf-cm", n_clusters=2, scaling="none", init=[[1.0, 5.0], [3.0, 5.0]], bounds=(LO, HI), max_rounds=1, secure=True
)
DRAWN = cluster_job("llf-cm", n_clusters=2, scaling="none", init="uniform", bounds=(LO, HI), max_rounds=1, secure=True)
FEW = "from the totals of this job and of earlier ones, sums of fewer than 5 peers could be computed"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def test_the_figures_of_the_documents(script: dict[str, Any]) -> None:
    """Reference: docs/security.md, "What totals reveal: chosen questions". A thousand jobs take too long here."""
    peers = script["devices"]()
    assert script["one_row"](peers) < 1e-9
    assert script["rows_found"](peers, 100) == 61
    assert script["without_one"](peers) < 1e-9


def test_each_condition_refuses_one_of_these_jobs(script: dict[str, Any], tmp_path: Path) -> None:
    assert all(script["refusals"](tmp_path).values())


def test_given_centers_are_refused_at_each_contribution(tmp_path: Path) -> None:
    devices = Devices(tmp_path, Floor(given_centers=False))
    refusals, outcomes = devices.ask_all_the_same(GIVEN)
    assert set(refusals) == {"this device takes part in no job whose first centers are given: choose an init"}
    assert reasons(outcomes) == refusals
    assert not any(devices.ask_all_the_same(DRAWN, named="job-y")[0])


def test_later_turns_of_a_repeated_job_have_given_centers_too() -> None:
    job = cluster_job("llf-cm", n_clusters=2, init="split-merge")
    state = run_in_process(job, [Local(np.random.default_rng(0).normal(size=(40, 2)))])
    floor = Floor(given_centers=False)
    assert floor.problem_with(job, None, 50) == ""
    assert floor.problem_with(continued(job, state), None, 50)


def test_what_a_stream_learned_before_is_a_given_center() -> None:
    vector, table = [1.0, 1.0], [[0.0, 0.0], [9.0, 9.0]]
    warm = Stage("warm", {"origin": vector, "scale": vector, "unit": vector, "centers": table, "past_weights": vector,
                          "past_sums": table})  # fmt: skip
    job = Job((warm, Stage("stream-fcm", {"n_clusters": 2})), seed=0)
    assert "first centers are given" in Floor(given_centers=False).problem_with(job, None, 50)


@pytest.mark.parametrize(("rounds", "refused"), [(1, True), (4, True), (5, False), (100, False)])
def test_jobs_of_few_rounds_are_refused(rounds: int, refused: bool) -> None:
    job = cluster_job("llf-cm", n_clusters=2, max_rounds=rounds)
    said = f"this device asks for a limit of at least 5 rounds, and the job has {rounds}"
    assert Floor(least_rounds=5).problem_with(job, None, 50) == (said if refused else "")


def test_every_clustering_of_a_job_has_so_many_rounds() -> None:
    job = cluster_job("llf-cm", n_clusters=2, max_rounds=100)
    first = Stage("llf-cm", {"n_clusters": 2, "max_rounds": 1})
    at = job.main
    twice = replace(job, stages=(*job.stages[:at], first, *job.stages[at:]))
    assert Floor(least_rounds=5).problem_with(twice, None, 50)


def test_private_jobs_may_have_any_first_centers_and_few_rounds() -> None:
    job = cluster_job(
        "llf-cm", n_clusters=2, init=[[1.0, 5.0], [3.0, 5.0]], bounds=(LO, HI), max_rounds=1, secure=True,
        privacy={"epsilon": 1.0, "delta": 1e-6},
    )  # fmt: skip
    assert Floor(given_centers=False, least_rounds=5).problem_with(job, None, 50) == ""


def test_a_device_takes_part_in_so_many_jobs(tmp_path: Path) -> None:
    devices = Devices(tmp_path, jobs=MostJobs(3, 30))
    for number in range(3):
        _, outcomes = devices.ask_all_the_same(DRAWN, named=f"job-{number}")
        assert all(isinstance(one, Contributed) for one in outcomes)
    refusals, outcomes = devices.ask_all_the_same(DRAWN, named="job-3")
    assert set(refusals) == {"this device takes part in 3 jobs in 30 days, and it has"}
    assert all(reasons(outcomes))
    _, outcomes = devices.ask_all_the_same(DRAWN, named="job-1")
    assert all(isinstance(one, Contributed) for one in outcomes), "a job that it is in continues"


@pytest.mark.parametrize(("asked", "refused"), [(range(N - 1), True), (range(N - 3), True), (range(N), False)])
def test_sets_of_peers_that_differ_by_few_are_refused(asked: range, refused: bool, tmp_path: Path) -> None:
    devices = Devices(tmp_path, fixed=True)
    _, outcomes = devices.ask_all_the_same(GIVEN, named="job-a")
    assert all(isinstance(one, Contributed) for one in outcomes)
    _, outcomes = devices.ask_all_the_same(GIVEN, named="job-b", asked=asked)
    assert reasons(outcomes) == [FEW if refused else ""] * len(asked)


def test_a_device_with_other_rows_is_asked_anew(tmp_path: Path) -> None:
    devices = Devices(tmp_path, fixed=True)
    devices.ask_all_the_same(GIVEN, named="job-a")
    devices.locals = [Local(one.X + 0.5) for one in devices.locals]
    _, outcomes = devices.ask_all_the_same(GIVEN, named="job-b", asked=range(N - 1))
    assert all(isinstance(one, Contributed) for one in outcomes)


@pytest.mark.parametrize("rule", [Floor(jobs="3 per 30d"), Floor(rosters="fixed")])
def test_these_conditions_imply_secure_sums(rule: Floor) -> None:
    """In a plain job the aggregator sees what each peer sends."""
    assert rule.problem_with(DRAWN, None, 50) == "this device contributes only to jobs with secure sums"


def test_a_configuration_names_them() -> None:
    given = {
        "jobs": {"most": 3, "per": "30d"},
        "given_centers": False,
        "least_rounds": 5,
        "rosters": "fixed",
        "ledger": "x",
    }
    assert Floor.of(given) == Floor(jobs="3 per 30d", given_centers=False, least_rounds=5, rosters="fixed")
