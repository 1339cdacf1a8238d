"""A device's own conditions hold whatever an aggregator asks: it checks them itself, at each contribution."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.liars.devices import HI, LO, Devices, N, private_job, reasons
from tests.peer.told import a_status

from p2pclust.errors import DataError
from p2pclust.peer.core.tasks import Contributed
from p2pclust.peer.operate import questions
from p2pclust.peer.operate.server import HERE
from p2pclust.peer.shell.compute import DataStatus
from p2pclust.peer.work.floor import Floor
from p2pclust.peer.work.rows import load_rows
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.base import Abstain
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job, Stage
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.private.ledger import Budget

pytestmark = pytest.mark.slow

EXACT = (
    Stage("range", {"lo": LO, "hi": HI}),
    Stage("none"),
    Stage("seeding", {"n_clusters": 3, "init": "uniform"}),
    Stage("llf-cm", {"n_clusters": 3, "tol": 0.0, "max_rounds": 5, "suppress_singletons": False}),
)
NOISY = Stage("private-cm", {"n_clusters": 3, "epsilon": 0.01, "delta": 1e-6, "lo": LO, "hi": HI, "rounds": 1})


def test_a_device_whose_budget_is_spent_contributes_to_no_padded_state(tmp_path: Path) -> None:
    devices = Devices(tmp_path, Floor(private=True, secure=True), budget=Budget(1.0, 1e-6, 30))
    refusals, outcomes = devices.ask_all_the_same(private_job(4.0))
    assert all("privacy budget of epsilon 1" in refusal for refusal in refusals)
    assert all(reasons(outcomes)), "an aggregator that passes over the refusal gets a contribution"


def test_a_device_within_its_budget_contributes_and_has_written_its_ledger(tmp_path: Path) -> None:
    devices = Devices(tmp_path, Floor(private=True, secure=True), budget=Budget(2.0, 1e-6, 30))
    refusals, outcomes = devices.ask_all_the_same(private_job(1.0))
    assert not any(refusals)
    assert all(isinstance(one, Contributed) for one in outcomes)
    assert len(list(tmp_path.glob("*/privacy-ledger"))) == N


def test_the_ledger_is_asked_at_each_contribution(tmp_path: Path) -> None:
    devices = Devices(tmp_path, budget=Budget(1.2, 1e-6, 30))
    for life in devices.lives:
        secrets = life.secrets
        assert secrets is not None
        asked: list[str] = []

        def reserve(job: str, *_: object, asked: list[str] = asked) -> str:
            asked.append(job)
            return "" if len(asked) == 1 else "privacy budget: another job took it meanwhile"

        secrets.reserve = reserve
    refusals, outcomes = devices.ask_all_the_same(private_job(1.0))
    assert not any(refusals)
    assert reasons(outcomes) == ["privacy budget: another job took it meanwhile"] * N


@pytest.mark.parametrize("floor", [Floor(), Floor(private=True, secure=True, min_cell=5)])
def test_a_job_with_a_noisy_stage_has_no_exact_stage(floor: Floor, tmp_path: Path) -> None:
    job = Job((*EXACT, NOISY), seed=0)
    assert "reveals numbers that depend on single rows exactly" in floor.problem_with(job, None, 50)
    devices = Devices(tmp_path, floor, budget=Budget(1.0, 1e-6, 30))
    refusals, outcomes = devices.ask_all_the_same(job)
    assert all("reveals numbers that depend on single rows exactly" in refusal for refusal in refusals)
    assert all(reasons(outcomes)), "an exact sum beside a noisy one left the device"


def test_a_budget_asks_for_secure_sums() -> None:
    assert Floor(private=True).problem_with(private_job(1.0), None, 50) == (
        "this device contributes only to jobs with secure sums"
    )


def test_a_refusal_leaves_no_key_that_a_contribution_can_be_padded_with(tmp_path: Path) -> None:
    """The entry that the device signed says that it has no columns: no list of keys makes it contribute."""
    devices = Devices(tmp_path, Floor(secure=True), budget=Budget(2.0, 1e-6, 30))
    for life in devices.lives:
        assert life.secrets is not None
        answers = iter(["not now", ""])
        life.secrets.reserve = lambda *_, answers=answers: next(answers, "")  # type: ignore[misc]
    refusals, outcomes = devices.ask_all_the_same(private_job(1.0))
    assert refusals == ["not now"] * N
    assert reasons(outcomes) == ["left out: a peer is asked that has refused"] * N


def test_jobs_that_are_unfit_for_secure_sums_get_nothing(tmp_path: Path) -> None:
    job = replace(cluster_job("llf-cm", n_clusters=3, init="uniform", bounds=(LO, HI), secure=True), participation=0.5)
    refusals, outcomes = Devices(tmp_path, budget=Budget(1.0, 1e-6, 30)).ask_all_the_same(job)
    assert all("participation" in refusal for refusal in refusals)
    assert all("participation" in reason for reason in reasons(outcomes))


def rows_of(folder: Path, content: str, **config: Any) -> Local:
    (folder / "rows.csv").write_text(content, encoding="utf-8")
    return load_rows({"data": str(folder / "rows.csv"), **config}, lambda verb, fields: None)


def asked_for_keys(devices: Devices, job: Job) -> list[str]:
    return devices.ask_all_the_same(job)[0]


@pytest.mark.parametrize("rule", ["error", "drop"])
def test_a_peer_of_a_private_job_does_not_abstain_because_of_an_empty_cell(rule: str, tmp_path: Path) -> None:
    """Its row is left out, also where the device's own rule would refuse the data."""
    devices = Devices(tmp_path, budget=Budget(2.0, 1e-6, 30))
    whole = "".join(f"{k}.5,1\n" for k in range(9))
    devices.locals[3] = rows_of(tmp_path, f"watt,volt\n{whole},1\n", missing_values=rule)
    assert devices.locals[3].n_samples == 9
    refusals, outcomes = devices.ask_all_the_same(private_job(1.0))
    assert not any(refusals), "the whole roster learns that the device has an empty cell"
    assert all(isinstance(one, Contributed) for one in outcomes)


@pytest.mark.parametrize("content", ["", "watt,volt\n1.5,a word\n2.5,3\n", "watt,volt\n,1\n,2\n"])
def test_data_that_cannot_be_used_is_one_sentence_in_a_private_job(content: str, tmp_path: Path) -> None:
    devices = Devices(tmp_path, budget=Budget(2.0, 1e-6, 30))
    devices.locals[3] = rows_of(tmp_path, content)
    assert asked_for_keys(devices, private_job(1.0)) == ["", "", "", "its data cannot be used", "", "", "", ""]


def test_other_jobs_still_name_the_place_of_an_empty_cell(tmp_path: Path) -> None:
    local = rows_of(tmp_path, "watt,volt\n1.5,2\n,3\n")
    job = cluster_job("llf-cm", n_clusters=2, scaling="none", init="uniform", bounds=(LO, HI), secure=True)
    devices = Devices(tmp_path, budget=Budget(2.0, 1e-6, 30))
    devices.locals[0] = local
    assert asked_for_keys(devices, job)[0] == "its data cannot be used (row 3, column 1)"


@pytest.mark.parametrize("job", [private_job(1.0)])
def test_other_rows_than_before_are_no_reason_in_a_private_job(job: Job, tmp_path: Path) -> None:
    """Rows may change in the middle of it: each row is hidden by the noise of the rounds that it is in."""
    devices = Devices(tmp_path, budget=Budget(2.0, 1e-6, 30))
    assert not any(asked_for_keys(devices, job))
    _, outcomes = devices.ask_all_the_same(job, rows=bytes(32))
    assert all(isinstance(one, Contributed) for one in outcomes)


def test_no_value_of_a_row_is_in_a_reason() -> None:
    """A sensor's wrong value is beyond the grid that the other peers' ranges gave: the reason does not contain it."""
    job = cluster_job("llf-cm", n_clusters=2, scaling="none", init=[[0.2, 0.2], [0.8, 0.8]], max_rounds=3, secure=True)
    rows = np.random.default_rng(0).uniform(0, 1, (40, 2))
    small = Local([[123456789.0123e6, 0.5], [0.9, 0.6]])  # too few rows to reveal a range, so no range covers them
    every = [Local(rows[:20]), Local(rows[20:]), small]
    state = engine.begin(job)
    state = replace(state, arrays=job.protocols[state.stage].knowing_columns(state.arrays, 2))
    while job.stages[state.stage].protocol != "llf-cm":
        given, abstained = [], {}
        for k, one in enumerate(every):
            try:
                given.append((k, engine.contribution(job, state, one, k, 3)))
            except Abstain as why:
                abstained[k] = why.reason
        state = engine.advance(job, state, given, abstained, n_peers=3)
    with pytest.raises(Abstain) as why:
        engine.contribution(job, state, small, 2, 3)
    assert why.value.reason == "failed: a value is too large for the grid of 3 peers"


def test_errors_of_the_mathematics_become_reasons_without_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    job = cluster_job("llf-cm", n_clusters=2, scaling="none", init=[[0.0], [9.0]], bounds=([0.0], [9.0]))
    state = engine.begin(job)

    def fails(*_: object) -> None:
        raise DataError("the data has 8.25 in row 4, column 1, and 41 rows")

    monkeypatch.setattr(type(job.protocols[state.stage]), "contribute", fails)
    with pytest.raises(Abstain) as why:
        engine.contribution(job, state, Local([[1.0], [8.25]]), 0, 3)
    assert why.value.reason == "failed: the data has ... in row 4, column 1, and ... rows"


@pytest.mark.parametrize(
    ("rows", "problem", "told"),
    [
        (41, "", {"rows": 64, "columns": 2, "problem": "", "rounded": True}),
        (64, "", {"rows": 64, "columns": 2, "problem": "", "rounded": True}),
        (0, "", {"rows": 0, "columns": 2, "problem": "", "rounded": True}),
        (
            40, "its data cannot be used (row 3, column 1)",
            {"rows": 0, "columns": 2, "problem": "`p2pclust status` on the device itself says why", "rounded": True},
        ),
    ],
)  # fmt: skip
def test_the_exact_number_of_rows_does_not_leave_the_device(
    rows: int, problem: str, told: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    status = replace(a_status(), data=DataStatus(rows, 2, problem))
    monkeypatch.setattr(questions, "snapshot", lambda shell: status)
    asked = questions.Questions(SimpleNamespace(listen=lambda listener: None))  # type: ignore[arg-type]
    for name in ("laptop", "p02", HERE):
        answers: list[Any] = []
        asked.take(SimpleNamespace(name=name, answer=answers.append), "status", {})  # type: ignore[arg-type]
        exact = {"rows": rows, "columns": 2, "problem": problem, "rounded": False}
        assert [one["data"] for one in answers] == [exact if name == HERE else told]
