"""Faults of a scenario: whom they meet and when, from the seed; and what a result says of rows that went bad."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np
import pytest

from p2pclust.errors import UsageError
from p2pclust.lab.data.damage import HOWS
from p2pclust.lab.scenario.file.load import load_scenario
from p2pclust.lab.scenario.file.plans import away_s, planned
from p2pclust.lab.scenario.file.schema import FaultSpec, Scenario
from p2pclust.lab.scenario.outcome.lines import _warnings
from p2pclust.lab.scenario.run import carry_out
from p2pclust.lab.testbed.faults import Do, Fault
from p2pclust.lab.testbed.peer.lies import LIES

Write = Callable[..., str]

MINIMAL: dict[str, Any] = {
    "data": {"source": "iris"},
    "fleet": {"timing": "fast", "devices": [{"name": "meter", "count": 4}, {"name": "gateway"}]},
    "jobs": [{"protocol": "llf-cm", "clusters": 3}, {"protocol": "llf-fcm", "clusters": 3}],
}


def faults_of(*faults: dict[str, Any], seed: int = 0) -> tuple[Fault, ...]:
    return planned(Scenario.model_validate(MINIMAL | {"seed": seed, "faults": list(faults)}))


class TestWhom:
    def test_a_class_a_list_everybody(self) -> None:
        at = {"seconds": 1}
        assert [f.who for f in faults_of({"do": "kill", "who": ["gateway", "meter-03"], "at": at})] == [
            ("meter-03",),
            ("gateway",),
        ]
        assert len(faults_of({"do": "leave", "who": "all", "at": at})) == 5
        assert [f.who for f in faults_of({"do": "kill", "who": "aggregator", "at": at})] == [()]

    def test_a_cut_is_one_fault_with_two_sides(self) -> None:
        (cut,) = faults_of({"do": "cut", "who": "meter", "from": "gateway", "one_way": True, "at": {"round": 3}})
        assert cut.who == ("meter-01", "meter-02", "meter-03", "meter-04")
        assert (cut.apart_from, cut.one_way, cut.phase) == (("gateway",), True, "adopting")
        (heal,) = faults_of({"do": "heal", "at": {"seconds": 3}})
        assert (len(heal.who), heal.apart_from) == (5, ())

    def test_what_a_kind_needs(self) -> None:
        slow, drop, bad = faults_of(
            {"do": "slow", "who": "gateway", "factor": 4, "for_s": 2, "at": {"seconds": 1}},
            {"do": "drop", "who": "gateway", "probability": 0.25, "at": {"job": 1}},
            {"do": "corrupt-data", "who": "gateway", "how": "scale", "at": {"job": 0}},
        )
        assert (slow.factor, slow.for_s) == (4.0, 2.0)
        assert (drop.probability, drop.job) == (0.25, 1)
        assert (bad.how, bad.job) == ("scale", 0)


class TestAtRandom:
    RATE: ClassVar[dict[str, Any]] = {
        "do": "restart",
        "who": {"random": 1},
        "at": {"rate_per_minute": 30, "from_s": 5, "until_s": 65},
    }

    def test_as_many_as_the_rate_says_and_in_its_time(self) -> None:
        counts = [len(faults_of(self.RATE, seed=seed)) for seed in range(60)]
        assert abs(np.mean(counts) - 30) < 3
        assert abs(np.var(counts) - 30) < 17, "as Poisson counts spread"
        drawn = faults_of(self.RATE)
        instants = [fault.seconds for fault in drawn if fault.seconds is not None]
        assert instants == sorted(instants)
        assert all(5 <= instant <= 65 for instant in instants)
        assert len({fault.who for fault in drawn}) > 1, "each instant has a victim of its own"

    def test_the_seed_decides(self) -> None:
        assert faults_of(self.RATE, seed=3) == faults_of(self.RATE, seed=3)
        assert faults_of(self.RATE, seed=3) != faults_of(self.RATE, seed=4)
        both = faults_of(self.RATE, self.RATE)
        assert len({fault.seconds for fault in both}) == len(both), "two rates draw for themselves"

    def test_no_instant_at_all_is_a_fault_that_never_strikes(self) -> None:
        rare = self.RATE | {"at": {"rate_per_minute": 0.001, "until_s": 1}}
        (fault,) = faults_of(rare)
        assert (fault.seconds, fault.round, fault.job) == (None, None, None)
        assert "0.001 a minute from 0 to 1 s (faults.0)" in str(fault)


def test_how_long_somebody_may_be_away() -> None:
    faults = [
        Fault("pause", ("a",), seconds=1.0, for_s=7.0),
        Fault("heal", ("a",), seconds=30.0),
        Fault("kill", ("b",), 3),
    ]
    assert away_s(faults) == 30.0
    assert away_s(()) == 0.0


def test_rows_of_one_column_have_no_other_order() -> None:
    made = Scenario.model_validate(
        MINIMAL | {"faults": [{"do": "corrupt-data", "who": "all", "how": "shuffle", "at": {"job": 0}}]}
    )
    with pytest.raises(UsageError, match=r"\[faults.0\]: how = 'shuffle': a single column"):
        planned(made, 1)


def test_readme_and_schema_name_the_same() -> None:
    readme = (Path(__file__).parents[3] / "scenarios" / "README.md").read_text(encoding="utf-8")
    rows = [line for line in readme.split("### Faults")[1].split("\n## ")[0].splitlines() if line.startswith("| `")]
    named = {word for row in rows for word in row.split("|")[1].replace("`", "").replace(",", " ").split()}
    assert set(get_args(Do)) <= named
    assert set(get_args(get_args(FaultSpec.model_fields["how"].annotation)[0])) == {*HOWS, *LIES}
    assert all(f"`{how}`" in readme for how in HOWS)


WITH_BAD_ROWS = """
seed = 5
[data]
source = "iris"
[fleet]
peers = 5
timing = "fast"
[[jobs]]
protocol = "llf-cm"
clusters = 3
suppress_singletons = false
tol = 0.0
max_rounds = 8
secure = false
[[faults]]
do = "corrupt-data"
who = "peer-02"
how = "{}"
at = {}
[expect]
identical_centers = true
replay_identical = true
pooled_relative_difference_below = 1e-9
"""


@pytest.mark.slow
class TestBadRows:
    def run(self, path: str) -> dict[str, Any]:
        return carry_out(load_scenario(path), "simulated", out=Path("out"))

    def test_what_can_be_seen_is_named(self, scenario_file: Write) -> None:
        result = self.run(scenario_file(base=WITH_BAD_ROWS.format("nan", "{ job = 0 }")))
        (job,) = result["jobs"]
        (damaged,) = job["damaged"]
        assert (damaged["peer"], damaged["how"], damaged["round"]) == ("peer-02", "nan", 0)
        assert damaged["named"].startswith("row ")
        assert all("peer-02" not in names for names in job["contributors"])
        assert all(item["held"] for item in result["expectations"]), result["expectations"]
        assert job["harm"]["center_distance"] == pytest.approx(0.0, abs=1e-12), "left out by name, it harms nobody"

    @pytest.mark.parametrize("at", ["{ job = 0 }", "{ round = 6 }"])
    def test_what_nobody_can_see_is_shown_by_the_result(self, at: str, scenario_file: Write) -> None:
        result = self.run(scenario_file(base=WITH_BAD_ROWS.format("scale", at)))
        (job,) = result["jobs"]
        (damaged,) = job["damaged"]
        assert (damaged["round"], damaged["named"]) == (6 if "round" in at else 0, None)
        assert all("peer-02" in names for names in job["contributors"][4:])
        assert job["harm"]["center_distance"] > 0.1
        assert all(item["held"] for item in result["expectations"]), result["expectations"]

    @pytest.mark.parametrize("at", ["{ job = 0 }", "{ round = 4 }"])
    def test_columns_that_went_bad(self, at: str, scenario_file: Write) -> None:
        base = WITH_BAD_ROWS.format("scale", at).replace('"iris"', '"wine"').replace("llf-cm", "vertical-cm")
        base = base.replace("suppress_singletons = false\n", "")
        base = base.replace("[fleet]", '[data.partition]\nscheme = "vertical"\n[fleet]')
        result = self.run(scenario_file(base=base))
        (job,) = result["jobs"]
        assert job["replay_identical"]
        assert job["damaged"][0]["round"] == (4 if "round" in at else 0)
        if "job" in at:
            assert job["pooled"]["relative_difference"] < 1e-9
        else:
            assert job["pooled"] is None, "no pooled algorithm continues with other columns"

    def test_instants_that_were_drawn_are_in_the_events(self, scenario_file: Write) -> None:
        base = WITH_BAD_ROWS.split("[[faults]]", maxsplit=1)[0] + (
            '[[faults]]\ndo = "slow"\nfactor = 2\nwho = { random = 1 }\nfor_s = 0.1\n'
            "at = { rate_per_minute = 600, until_s = 2 }\n"
        )
        result = self.run(scenario_file(base=base))
        events = [json.loads(line) for line in Path("out/events.jsonl").read_text().splitlines()]
        drawn = [(e["number"], e["seconds"], e["peer"]) for e in events if e["verb"] == "planned"]
        struck = [(e["number"], e["seconds"], e["peer"]) for e in events if e["verb"] == "fault"]
        assert len(drawn) > 5
        assert struck
        assert set(struck) <= set(drawn)
        assert result["unfired_faults"] == []


@pytest.mark.slow
class TestLies:
    def run(self, path: str) -> dict[str, Any]:
        return carry_out(load_scenario(path), "simulated", out=Path("out"))

    def test_a_liar_that_contradicts_itself_is_named_at_every_device(self, scenario_file: Write) -> None:
        base = WITH_BAD_ROWS.replace("corrupt-data", "lie").format("waver", "{ job = 0 }")
        base = base.replace("pooled_relative_difference_below = 1e-9\n", "")
        plain = self.run(scenario_file(base=base))["jobs"][0]
        assert plain["suspects"] == []
        assert plain["damaged"] == [{"peer": "peer-02", "how": "waver", "round": 0, "named": None}]
        result = self.run(scenario_file(base=base.replace("tol = 0.0", "tol = 0.0\nmax_weight = 2.0")))
        (job,) = result["jobs"]
        (suspect,) = job["suspects"]
        assert (suspect["peer"], suspect["found_by"]) == ("peer-02", "all")
        assert suspect["reason"] == "its weights are those of another number of rows than in earlier rounds"
        assert job["damaged"][0]["named"] == f"implausible: {suspect['reason']}"
        assert suspect["rounds"] == 4, "every second of eight rounds"
        assert "peer-02" not in job["contributors"][suspect["round"]]
        assert "peer-02" in job["contributors"][suspect["round"] - 1]
        assert len(set(job["digests"].values())) == 1
        assert all(item["held"] for item in result["expectations"]), result["expectations"]
        page = Path("out", "report.html").read_text()
        assert "its weights are those of another number of rows" in page
        assert "peer-02: waver, named: implausible" in page

    def test_scores_are_of_honest_rows(self, scenario_file: Write) -> None:
        base = WITH_BAD_ROWS.replace("corrupt-data", "lie").format("inflate", "{ job = 0 }")
        base = base.replace("pooled_relative_difference_below = 1e-9\n", "")
        job = self.run(scenario_file(base=base))["jobs"][0]
        assert job["metrics"]["ari"] < 0.3
        assert job["harm"]["center_distance"] > 0.1


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (
            {"peer": "a", "how": "nan", "round": 0, "named": "row 1, column 2 is nan"},
            "a: nan, named: row 1, column 2 is",
        ),
        (
            {"peer": "a", "how": "scale", "round": 4, "named": None},
            "a: scale, from round 4 on, no peer could detect it",
        ),
    ],
)
def test_the_summary_tells_of_it(told: dict[str, Any], said: str) -> None:
    job = {"damaged": [told], "harm": {"center_distance": 0.25}, "warnings": {}, "suppressed": 0, "coarse": 0}
    (damaged, harm) = _warnings(job)
    assert (damaged[0], str(damaged[1]).startswith(said)) == ("damaged", True)
    assert harm[:2] == (
        "harm",
        "the centers lie 0.25 of the features' ranges from those of the sound rows (best matching)",
    )
