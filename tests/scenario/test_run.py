from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from p2pclust.errors import FleetError, UsageError
from p2pclust.jobs.request import JobResult
from p2pclust.lab.commands.show.summary import summarise
from p2pclust.lab.links.shaping import Shape
from p2pclust.lab.scenario.file.load import load_data, load_scenario
from p2pclust.lab.scenario.run import carry_out, checked_run, fleet_spec
from p2pclust.lab.testbed import backend
from p2pclust.lab.testbed.faults import Fault
from p2pclust.lab.testbed.spec import FleetResult, FleetSpec, OnEvent
from p2pclust.metrics import adjusted_rand_index
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.job import Job, RoundRecord

Write = Callable[..., str]
OUT = Path("out")

DEVICES = """
[data]
source = "iris"
[fleet]
timing = "fast"
[[fleet.devices]]
name = "meter"
count = 3
[[fleet.devices]]
name = "gateway"
mains = true
cores = 4
link = { latency_ms = 40, loss = 0.1 }
[[jobs]]
protocol = "llf-cm"
clusters = 3
suppress_singletons = false
patience_s = 9
"""


ALIKE = """
[data]
source = "iris"
[fleet]
peers = 3
timing = "fast"
{}
"""


def spec_of(path: str, *overrides: str) -> FleetSpec:
    return fleet_spec(checked_run(load_scenario(path, overrides)))


class Fake:
    """A backend that runs in process, and lies as a test tells it to."""

    def __init__(self, change: Callable[[FleetResult], FleetResult] = lambda result: result) -> None:
        self._change = change

    def carry_out(self, spec: FleetSpec, on_event: OnEvent) -> FleetResult:
        return self._change(backend("in-process").carry_out(spec, on_event))


def run(path: str, backend_name: str = "in-process", **more: Any) -> dict[str, Any]:
    return carry_out(load_scenario(path), backend_name, out=OUT, **more)


# -- what a backend is asked to do ---------------------------------------------------------------------------------


def test_peers_are_sorted_and_keep_their_rows(scenario_file: Write) -> None:
    path = scenario_file(base=DEVICES)
    shares = load_data(load_scenario(path))
    spec = spec_of(path)
    assert [peer.name for peer in spec.peers] == ["gateway", "meter-01", "meter-02", "meter-03"]
    for peer in spec.peers:
        assert np.array_equal(peer.X, shares[peer.name].X)
    assert spec.peers[0].link == Shape.of(latency_ms=40.0, loss=0.1)
    assert spec.peers[1].link is None
    treatment = spec.jobs[0].treatment
    assert (spec.timing, spec.seed, treatment.missing, treatment.patience_s) == ("fast", 0, "wait", 9.0)


FAULTS = 'faults=[{at={round=3},do="kill",who="aggregator"},{at={seconds=1},do="restart",who="meter"}]'


def test_faults_meet_each_victim_once(scenario_file: Write) -> None:
    spec = spec_of(scenario_file(base=DEVICES), FAULTS)
    assert spec.faults[0] == Fault("kill", (), 3, "opening", None, None)
    assert [fault.who for fault in spec.faults[1:]] == [("meter-01",), ("meter-02",), ("meter-03",)]
    for fault in spec.faults[1:]:
        # Nobody said for how long: twice the longest election of the preset.
        assert (fault.do, fault.round, fault.seconds, fault.for_s) == ("restart", None, 1.0, 1.6)


def test_random_victims_follow_from_the_seed(scenario_file: Write) -> None:
    path = scenario_file(base=DEVICES)

    def victims(seed: int) -> list[str]:
        fault = 'faults=[{at={seconds=1},do="kill",who={random=2}},{at={seconds=2},do="kill",who={random=2}}]'
        return [name for fault in spec_of(path, fault, f"seed={seed}").faults for name in fault.who]

    assert len(victims(1)) == 4
    assert victims(1) == victims(1)
    assert len({tuple(victims(seed)) for seed in range(8)}) > 1


def test_the_fleet_is_given_up_after_patience_and_absence(scenario_file: Write) -> None:
    path = scenario_file(base=DEVICES)
    assert spec_of(path).give_up_s == 120.0
    assert spec_of(path, "jobs.0.patience_s=100").give_up_s == pytest.approx(203.2)
    away = 'faults=[{at={seconds=1},do="pause",who="meter-01",for_s=300}]'
    assert spec_of(path, away).give_up_s > 318.0
    assert spec_of(path, "fleet.give_up_s=7").give_up_s == 7.0


# -- what comes of it ------------------------------------------------------------------------------------------------

KEYS = {
    "scenario", "title", "backend", "seed", "jobs", "peers", "left_out", "reading", "traffic", "wall_seconds",
    "virtual_seconds", "failure", "unfired_faults", "expectations", "output",
}  # fmt: skip


@pytest.mark.slow
def test_a_whole_result(scenario_file: Write) -> None:
    events: list[Mapping[str, Any]] = []
    more = "[expect]\nreplay_identical = true\nari_at_least = 0.99\n"
    path = scenario_file("fuzzifier = 1.5\n" + more)
    result = run(path, "simulated", on_event=events.append, name="s")
    assert set(result) == KEYS
    assert json.loads((OUT / "result.json").read_text()) == result
    assert (result["scenario"], result["backend"], result["failure"], result["output"]) == ("s", "simulated", "", "out")
    assert [event["verb"] for event in events] == [
        json.loads(line)["verb"] for line in (OUT / "events.jsonl").read_text().splitlines()
    ]
    assert [item["held"] for item in result["expectations"]] == [True, False]
    (job,) = result["jobs"]
    assert (job["protocol"], job["parameters"]["n_clusters"], job["parameters"]["fuzzifier"]) == ("llf-fcm", 3, 1.5)
    assert job["rounds"] == len(job["contributors"]) == len(job["abstained"]) == len(job["stages"])
    assert job["stages"].count("llf-fcm") == len(job["history"])
    assert job["converged"]
    assert job["history"][-1] < 5e-3
    assert job["terms"][0]["term"] == 1
    assert set(job["digests"]) == set(result["peers"])
    assert len(set(job["digests"].values())) == 1
    assert job["n_rows"] == 150
    assert job["pooled"]["relative_difference"] < 1e-12
    assert job["replay_identical"] is True
    assert 0.6 < job["metrics"]["ari"] < 0.99
    assert result["peers"]["peer-01"]["n_rows"] == 38
    assert result["peers"]["peer-01"]["finished"] is True
    header, *rows = (OUT / "centers.csv").read_text().splitlines()
    assert header == "sepal length (cm),sepal width (cm),petal length (cm),petal width (cm)"
    assert [[float(cell) for cell in row.split(",")] for row in rows] == job["centers"]


BY_COLUMNS = """
[data]
source = "iris"
[data.partition]
scheme = "vertical"
[fleet]
peers = 3
[[jobs]]
protocol = "vertical-cm"
clusters = 3
"""


@pytest.mark.slow
def test_the_three_backends_agree_on_the_bits_there_are(scenario_file: Write) -> None:
    path = scenario_file()
    assert run(path, "simulated")["jobs"][0]["centers"] == run(path, "in-process")["jobs"][0]["centers"]


@pytest.mark.slow
def test_several_jobs(scenario_file: Write) -> None:
    result = run(scenario_file('[[jobs]]\nprotocol = "llf-cm"\nclusters = 2\n'))
    assert [len(job["centers"]) for job in result["jobs"]] == [3, 2]
    assert len((OUT / "centers.csv").read_text().splitlines()) == 4
    assert len((OUT / "centers-2.csv").read_text().splitlines()) == 3
    for name, job, n_clusters in (("labels", result["jobs"][0], 3), ("labels-2", result["jobs"][1], 2)):
        with (OUT / f"{name}.csv").open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert sorted(int(row["row"]) for row in rows) == list(range(150)), "as numbered in the data set"
        assert {row["label"] for row in rows} == {str(cluster) for cluster in range(n_clusters)}
        ari = adjusted_rand_index([row["class"] for row in rows], [row["label"] for row in rows])
        assert ari == pytest.approx(job["metrics"]["ari"])
    run(scenario_file())
    assert (OUT / "labels.csv").exists()
    assert not (OUT / "labels-2.csv").exists(), "of an earlier run"


def test_labels_where_devices_hold_columns(scenario_file: Write) -> None:
    run(scenario_file(base=BY_COLUMNS))
    with (OUT / "labels.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert (len(rows), {row["device"] for row in rows}) == (150, {"all"})
    assert len({row["row"] for row in rows}) == 150


@pytest.mark.parametrize("backend_name", ["in-process", "simulated"])
def test_a_protocol_without_a_promise_tells_its_gap(scenario_file: Write, backend_name: str) -> None:
    table = '[[jobs]]\nprotocol = "{}"\nclusters = 3\n'
    found = run(
        scenario_file("[expect]\ngap_below = 0.5\n", base=ALIKE.format("".join(map(table.format, ("fkm", "k-fed"))))),
        backend_name,
    )
    assert [item["held"] for item in found["expectations"]] == [True]
    for job, stops in zip(found["jobs"], ("the centers move by less than tol", "its only round is done"), strict=True):
        assert (job["pooled"], job["replay_identical"], job["stops"]) == (None, True, stops)
        assert job["parameters"]["init"] == "own"
        assert (job["gap"]["to"], job["gap"]["pooled_converged"]) == ("pooled k-means", True)
        assert 0 <= job["gap"]["center_distance"] < 0.5


def test_a_lossless_one_has_none(scenario_file: Write) -> None:
    table = '[[jobs]]\nprotocol = "ffcm"\nclusters = 3\nlocal_iterations = 1\nmax_rounds = 5\n'
    (job,) = run(scenario_file(base=ALIKE.format(table)))["jobs"]
    assert job["gap"] is None
    assert job["pooled"]["relative_difference"] < 1e-9


@pytest.mark.parametrize(
    ("more", "why"),
    [
        pytest.param("", r"\d+ sums of one row were suppressed", id="lone-rows"),
        pytest.param("suppress_singletons = false\n", "", id="nothing-held-back"),
    ],
)
def test_a_difference_to_the_pooled_result_is_explained_wherever_it_is_shown(
    tmp_path: Path, scenario_file: Write, capsys: pytest.CaptureFixture[str], more: str, why: str
) -> None:
    rng = np.random.default_rng(8)
    for name in ("a", "b", "c"):
        np.savetxt(tmp_path / f"{name}.csv", rng.normal(size=(30 if name == "a" else 9, 2)), delimiter=",")
    base = (
        '[data]\nfiles = ["a.csv", "b.csv", "c.csv"]\n[fleet]\npeers = 3\n[[jobs]]\nprotocol = "llf-cm"\nclusters = 5\n'
        f"tol = 0.0\nmax_rounds = 5\n{more}"
    )
    result = run(scenario_file(base=base))
    pooled = result["jobs"][0]["pooled"]
    assert (pooled["relative_difference"] > 1e-9) == bool(why)
    assert re.fullmatch(why, pooled["why"])
    summarise(Console(width=400), result)
    told = capsys.readouterr().out
    page = (OUT / "report.html").read_text(encoding="utf-8")
    assert not why or (pooled["why"] in told and pooled["why"] in page)


def test_rows_without_labels_have_no_metrics(tmp_path: Path, scenario_file: Write) -> None:
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        np.savetxt(tmp_path / f"{name}.csv", rng.normal(size=(20, 2)), delimiter=",", header="u,v", comments="")
    base = (
        '[data]\nfiles = ["a.csv", "b.csv"]\n[fleet]\npeers = 2\n[[jobs]]\nprotocol = "llf-cm"\nclusters = 2\n'
        "suppress_singletons = false\n[expect]\nari_at_least = 0.1\n"
    )
    result = run(scenario_file(base=base))
    assert result["jobs"][0]["metrics"] == {}
    assert result["expectations"][0]["held"] is False
    assert (OUT / "centers.csv").read_text().splitlines()[0] == "u,v"
    assert (OUT / "labels.csv").read_text().splitlines()[0] == "device,row,label"


def test_a_constant_feature_has_no_range(tmp_path: Path, scenario_file: Write) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("u,v\n1,7\n2,7\n8,7\n9,7\n", encoding="utf-8")
    base = '[data]\nfiles = ["a.csv", "b.csv"]\n[fleet]\npeers = 2\n[[jobs]]\nprotocol = "llf-cm"\nclusters = 2\n'
    assert run(scenario_file(base=base))["jobs"][0]["pooled"]["relative_difference"] < 1e-12


def test_a_job_that_fails_says_why_with_names(scenario_file: Write) -> None:
    scenario = load_scenario(scenario_file(), ["jobs.0.clusters=100", "jobs.0.init=uniform", "jobs.0.secure=false"])
    result = carry_out(scenario, "in-process", out=OUT)
    assert "privacy gate" in result["failure"]
    assert "(peer-01, peer-02, peer-03, peer-04: privacy gate: " in result["failure"]
    job = result["jobs"][0]
    assert job["centers"] is None
    assert (job["pooled"], job["replay_identical"], job["metrics"]) == (None, None, {})
    assert not job["converged"]
    assert any("privacy gate" in reason for reason in job["abstained"][-1].values())
    assert not (OUT / "centers.csv").exists()
    assert not (OUT / "labels.csv").exists()


def test_reasons_name_the_column_and_the_device(tmp_path: Path, scenario_file: Write) -> None:
    for name, last in (("a", 9), ("b", 9), ("c", 99)):
        (tmp_path / f"{name}.csv").write_text(f"watt,volt\n1,7\n2,7\n8,7\n9,{last}\n", encoding="utf-8")
    base = """
    data = { files = ["a.csv", "b.csv", "c.csv"], scaling = "minmax", bounds = [[0, 10]] }
    fleet.peers = 3
    jobs = [{ protocol = "llf-cm", clusters = 2 }]
    """
    (job,) = run(scenario_file(base=base))["jobs"]
    said = {why for told in job["abstained"] for name, why in told.items() if name == "peer-03"}
    assert said == {"row 3, column 1 (volt) is outside the declared bounds [0, 10]"}


# -- fleets that do not finish, and backends that are wrong ---------------------------------------------------------


def test_a_fleet_that_did_not_even_start(scenario_file: Write) -> None:
    def fail(result: FleetResult) -> FleetResult:
        raise FleetError("peer-01 did not start: no room")

    result = run(scenario_file("[expect]\nfinished_at_least = 1\n"), backend=Fake(fail))
    assert result["failure"] == "peer-01 did not start: no room"
    assert [item["held"] for item in result["expectations"]] == [False]
    assert result["peers"]["peer-04"]["finished"] is False
    assert "was not submitted" in result["jobs"][0]["failure"]
    assert json.loads((OUT / "result.json").read_text()) == result


def test_a_job_that_nobody_finished(scenario_file: Write) -> None:
    def lose(result: FleetResult) -> FleetResult:
        (job,) = result.jobs
        lost = JobResult(job.job_id, job.roster, None, ((1, "peer-02"),), {}, 1.0)
        return FleetResult((lost,), {}, 2.0, None, "the fleet lost its majority")

    result = run(scenario_file(), backend=Fake(lose))
    assert result["failure"] == "the fleet lost its majority"
    job = result["jobs"][0]
    assert (job["terms"], job["rounds"]) == ([{"term": 1, "aggregator": "peer-02"}], None)


def altered(result: FleetResult, **changes: Any) -> FleetResult:
    from dataclasses import replace

    (job,) = result.jobs
    assert job.state is not None
    return replace(result, jobs=(replace(job, state=replace(job.state, **changes)),))


def test_other_bits_are_found_out(scenario_file: Write) -> None:
    def shifted(result: FleetResult) -> FleetResult:
        state = result.jobs[0].state
        assert state is not None
        centers = state.arrays["centers"] + 1e-6
        return altered(result, arrays=state.arrays.replace(centers=centers))

    job = run(scenario_file(), backend=Fake(shifted))["jobs"][0]
    assert job["replay_identical"] is False
    assert job["pooled"]["max_abs_difference"] == pytest.approx(1e-6, rel=1e-3)
    assert job["pooled"]["relative_difference"] == pytest.approx(1e-6 / 2.4, rel=1e-3)


def test_a_record_of_something_else_is_found_out(scenario_file: Write) -> None:
    def relabelled(result: FleetResult) -> FleetResult:
        state = result.jobs[0].state
        assert state is not None
        *before, last = state.log
        return altered(result, log=(*before, RoundRecord(last.stage, last.contributors[:2])))

    assert run(scenario_file(), backend=Fake(relabelled))["jobs"][0]["replay_identical"] is False


def test_only_contributing_peers_are_scored(scenario_file: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = engine.contribution

    def without_last(job: Job, state: Any, local: Any, peer: int, *of: Any, **named: Any) -> Any:
        if peer == 3:
            raise engine.Abstain("test: absent")
        return whole(job, state, local, peer, *of, **named)

    monkeypatch.setattr(engine, "contribution", without_last)
    result = run(scenario_file())
    assert result["jobs"][0]["n_rows"] == 150 - result["peers"]["peer-04"]["n_rows"]


def test_bad_input_leaves_nothing(scenario_file: Write) -> None:
    with pytest.raises(UsageError):
        run(scenario_file('[[faults]]\nat = { seconds = 1 }\ndo = "kill"\nwho = "peer-01"\n'))
    with pytest.raises(UsageError):
        run(scenario_file(), "somewhere")
    assert not OUT.exists()


def test_an_interrupted_run_keeps_its_events(scenario_file: Write) -> None:
    def interrupt(result: FleetResult) -> FleetResult:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(scenario_file(), backend=Fake(interrupt))
    assert [path.name for path in OUT.iterdir()] == ["events.jsonl"]
    assert "submitted" in (OUT / "events.jsonl").read_text()
