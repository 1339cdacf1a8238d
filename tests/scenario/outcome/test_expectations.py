from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar

import pytest

from p2pclust.lab.scenario.file.load import load_scenario
from p2pclust.lab.scenario.file.result_paths import wrong_path
from p2pclust.lab.scenario.file.schema import ExpectSpec, ValueSpec
from p2pclust.lab.scenario.outcome.expectations import Expectation, check
from p2pclust.lab.scenario.run import carry_out


def job(**changes: Any) -> dict[str, Any]:
    return {
        "rounds": 12,
        "terms": [{"term": 1, "aggregator": "a"}, {"term": 2, "aggregator": "b"}],
        "metrics": {"ari": 0.6},
        "pooled": {"relative_difference": 2e-16},
        "digests": {"a": "1f", "b": "1f"},
    } | changes


def result(*jobs: dict[str, Any], **changes: Any) -> dict[str, Any]:
    peers = {"a": {"finished": True}, "b": {"finished": True}, "c": {"finished": False}}
    return {"jobs": list(jobs or [job()]), "peers": peers, "wall_seconds": 3.0, "virtual_seconds": None} | changes


ABSENT = job(abstained=[{"a": "left out: dead"}, {}, {"b": "not drawn", "c": "row 1, column 2 is nan"}])
COUNTED = result(
    peers={
        "a": {"bytes_sent": 3, "bytes_received": 7, "energy_j": 4.5},
        "b": {"bytes_sent": 10, "bytes_received": 20, "energy_j": None},
        "gone": {"bytes_sent": None, "bytes_received": None, "lost": True},
    }
)

CASES: list[tuple[str, Any, dict[str, Any], bool, Any]] = [
    ("finished_at_least", 2, result(), True, 2),
    ("finished_at_least", 3, result(), False, 2),
    ("finished_at_least", 0, {}, False, None),
    ("lost_at_most", 1, result(), True, 1),
    ("lost_at_most", 0, result(), False, 1),
    ("identical_centers", True, result(), True, True),
    ("identical_centers", True, result(job(), job(digests={"a": "1f", "b": "2e"})), False, False),
    ("identical_centers", True, result(job(digests={})), False, None),
    ("identical_centers", True, result(jobs=[]), False, None),
    ("identical_centers", False, result(job(digests={"a": "1f", "b": "2e"})), True, False),
    ("pooled_relative_difference_below", 1e-9, result(), True, 2e-16),
    ("pooled_relative_difference_below", 1e-9, result(job(), job(pooled={"relative_difference": 1e-9})), False, 1e-9),
    ("pooled_relative_difference_below", 1e-9, result(job(), job(pooled=None)), False, None),
    ("gap_below", 0.1, result(job(gap={"center_distance": 0.05}), job(gap={"center_distance": 0.2})), False, 0.2),
    ("gap_below", 0.1, result(job(gap={"center_distance": 0.05})), True, 0.05),
    ("gap_below", 0.1, result(job()), False, None),
    ("replay_identical", True, result(job(replay_identical=True)), True, True),
    ("replay_identical", True, result(job(replay_identical=True), job(replay_identical=False)), False, False),
    ("replay_identical", True, result(job(replay_identical=True), job()), False, None),
    ("ari_at_least", 0.6, result(), True, 0.6),
    ("ari_at_least", 0.5, result(job(), job(metrics={"ari": 0.4})), False, 0.4),
    ("ari_at_least", 0.5, result(job(metrics={})), False, None),
    ("terms_at_least", 2, result(), True, 2),
    ("terms_at_least", 2, result(job(), job(terms=[{"term": 1}])), True, 2),
    ("terms_at_least", 3, result(), False, 2),
    ("rounds_at_most", 12, result(job(rounds=5), job()), True, 12),
    ("rounds_at_most", 11, result(job(rounds=5), job()), False, 12),
    ("seconds_at_most", 3, result(), True, 3.0),
    ("seconds_at_most", 3, result(virtual_seconds=3.5), False, 3.5),
    ("wall_seconds_at_most", 3, result(virtual_seconds=3.5), True, 3.0),
    ("virtual_seconds_at_most", 3, result(virtual_seconds=3.5), False, 3.5),
    ("virtual_seconds_at_most", 3, result(), False, None),
    ("accuracy_at_least", 0.5, result(job(metrics={"accuracy": 0.7}), job(metrics={"accuracy": 0.4})), False, 0.4),
    ("accuracy_at_least", 0.5, result(), False, None),
    ("communities_at_least", 2, result(job(communities=[[], []])), True, 2),
    ("communities_at_most", 2, result(job(communities=[[], [], []])), False, 3),
    ("communities_at_most", 2, result(), False, None),
    ("terms_at_most", 1, result(), False, 2),
    ("terms_at_most", 0, result(job(terms=[])), True, 0),
    ("terms_at_most", 1, result(job(terms=[], rounds=None)), False, None),
    ("rounds_at_least", 12, result(job(rounds=5), job()), False, 5),
    ("left_out", ("c",), result(ABSENT), True, "a, c"),
    ("left_out", ("b",), result(ABSENT), False, "a, c"),
    ("left_out", (), result(ABSENT), False, "a, c"),
    ("left_out", (), result(job(abstained=[{}, {"a": "not drawn"}])), True, "no peer"),
    ("left_out", (), result(), False, None),
    ("bytes_per_device_at_most", 30, COUNTED, True, 30),
    ("bytes_per_device_at_most", 29, COUNTED, False, 30),
    ("mean_bytes_per_device_at_most", 20, COUNTED, True, 20.0),
    ("bytes_per_device_at_most", 1e9, result(), False, None),
    ("energy_per_device_at_most", 5, COUNTED, True, 4.5),
    ("energy_per_device_at_most", 5, result(), False, None),
]


@pytest.mark.parametrize(("key", "wanted", "found", "held", "value"), CASES)
def test_each(key: str, wanted: Any, found: dict[str, Any], held: bool, value: Any) -> None:
    (expectation,) = check(ExpectSpec(**{key: wanted}), found)
    assert (expectation.held, expectation.value) == (held, value)


def test_every_key_is_tried_above() -> None:
    assert {case[0] for case in CASES} == set(ExpectSpec.model_fields) - {"values"}


def test_nan_satisfies_nothing() -> None:
    found = result(job(pooled={"relative_difference": math.nan}), job(metrics={"ari": math.nan}))
    for key, wanted in (("pooled_relative_difference_below", 1.0), ("ari_at_least", -1.0)):
        (expectation,) = check(ExpectSpec(**{key: wanted}), found)
        assert not expectation.held
        assert isinstance(expectation.value, float)
        assert math.isnan(expectation.value)


def test_words_and_order() -> None:
    everything = ExpectSpec(
        finished_at_least=7,
        lost_at_most=1,
        identical_centers=True,
        pooled_relative_difference_below=1e-9,
        replay_identical=True,
        ari_at_least=0.5,
        terms_at_least=2,
        rounds_at_most=40,
        seconds_at_most=15,
    )
    assert [expectation.what for expectation in check(everything, result())] == [
        "at least 7 peers finished",
        "at most 1 peers were lost",
        "results are identical on all peers that finished",
        "relative difference to the pooled algorithm is below 1e-09",
        "the in-process replay of each job's record has the same bits",
        "adjusted Rand index is at least 0.5",
        "at least 2 terms in one job",
        "at most 40 rounds in each job",
        "at most 15 seconds in all",
    ]
    assert check(ExpectSpec(), {}) == []


def test_to_dict() -> None:
    assert Expectation("w", True, 2).to_dict() == {"what": "w", "held": True, "value": 2}


def judged(what: str, found: dict[str, Any], **more: Any) -> Expectation:
    (expectation,) = check(ExpectSpec(values=(ValueSpec(what=what, **more),)), found)
    return expectation


def test_a_job_that_gossips_has_no_replay_with_the_same_bits_and_the_report_says_why() -> None:
    (found,) = check(ExpectSpec(replay_identical=True), result(job(replay_identical=None, tolerance=1e-9)))
    assert (found.held, found.value) == (False, None)
    assert found.why.startswith("with collect = 'gossip' sums are right up to a tolerance")
    (found,) = check(ExpectSpec(replay_identical=True), result(job(replay_identical=None)))
    assert found.why == ""


class TestAnythingElse:
    FOUND: ClassVar[dict[str, Any]] = result(
        job(metrics={"ari": 0.6}), job(metrics={"ari": 0.9}, converged=True, note="done"),
        peers={
            "meter-01": {"finished": True, "bytes_sent": 10},
            "meter-02": {"finished": False, "bytes_sent": 30},
            "gateway": {"finished": True, "bytes_sent": 500},
        },
    )  # fmt: skip

    @pytest.mark.parametrize(
        ("what", "more", "held", "value"),
        [
            ("jobs.0.metrics.ari", {"at_least": 0.6}, True, 0.6),
            ("jobs.0.metrics.ari", {"above": 0.6}, False, 0.6),
            ("jobs.0.metrics.ari", {"at_most": 0.6, "at_least": 0.5}, True, 0.6),
            ("jobs.0.metrics.ari", {"below": 0.6}, False, 0.6),
            ("jobs.1.converged", {"equals": True}, True, True),
            ("jobs.1.converged", {"equals": 1}, False, True),
            ("jobs.1.note", {"equals": "done"}, True, "done"),
            ("jobs.0.rounds", {"equals": 12}, True, 12),
            ("jobs.*.metrics.ari", {"at_least": 0.6}, True, "2 of 2"),
            ("jobs.*.metrics.ari", {"at_least": 0.7}, False, "1 of 2"),
            ("jobs.*.metrics.ari", {"at_least": 0.7, "over": "any"}, True, "1 of 2"),
            ("peers.*.bytes_sent", {"at_most": 500, "over": "max"}, True, 500),
            ("peers.meter-*.bytes_sent", {"at_most": 30, "over": "max"}, True, 30),
            ("peers.*.bytes_sent", {"equals": 180, "over": "mean"}, True, 180.0),
            ("peers.*.bytes_sent", {"above": 10, "over": "min"}, False, 10),
            ("peers.*.finished", {"at_least": 2, "over": "count"}, True, 2),
            ("peers.*.finished", {"equals": True}, False, "2 of 3"),
            ("jobs.*.terms.*.term", {"at_most": 2, "over": "max"}, True, 2),
        ],
    )
    def test_by_its_path(self, what: str, more: dict[str, Any], held: bool, value: Any) -> None:
        found = judged(what, self.FOUND, **more)
        assert (found.held, found.value, found.why) == (held, value, "")

    @pytest.mark.parametrize(
        ("what", "more", "why"),
        [
            ("jobs.0.metric.ari", {}, "jobs.0 has no 'metric': did you mean 'metrics'?"),
            ("jobs.7.rounds", {}, "jobs has no '7': it has 0, 1"),
            ("jobs.0.pooled.relative_diference", {}, "jobs.0.pooled has no 'relative_diference': did you mean"),
            ("jobs.0.rounds.x", {}, "jobs.0.rounds has no parts: it has no 'x'"),
            ("virtual_seconds.x", {}, "virtual_seconds is missing in this run"),
            ("virtual_seconds", {}, "this run does not have it"),
            ("jobs.1.note", {}, "it is not a number: expected equals instead of at_least"),
            ("jobs.0.terms", {}, "there are 2 values: name one, or compare all with * or over = 'count'"),
            ("peers.robot-*.bytes_sent", {}, "nothing matches 'robot-*' in peers"),
            ("peers.*.finished", {"over": "max"}, "3 of 3 values are not numbers"),
        ],
    )
    def test_what_is_not_there_has_not_held_and_says_why(self, what: str, more: dict[str, Any], why: str) -> None:
        found = judged(what, self.FOUND, at_least=0.0, **more)
        assert not found.held
        assert found.why.startswith(why)
        assert found.to_dict()["why"] == found.why

    def test_nothing_is_a_count_too(self) -> None:
        assert judged("peers.robot-*.lost", self.FOUND, at_most=0, over="count").held

    def test_words(self) -> None:
        assert judged("jobs.0.rounds", self.FOUND, at_least=2, below=5.5).what == (
            "jobs.0.rounds is at least 2 and below 5.5"
        )
        assert judged("peers.*.finished", self.FOUND, equals=True).what == "all of peers.*.finished are equal to true"
        assert judged("peers.*.bytes_sent", self.FOUND, over="max", at_most=3).what == (
            "max of peers.*.bytes_sent is at most 3"
        )

    def test_nan_satisfies_nothing(self) -> None:
        assert not judged("jobs.*.metrics.ari", result(job(metrics={"ari": math.nan})), over="max", at_most=1.0).held


def test_every_path_of_a_real_result_is_known(scenario_file: Any) -> None:
    """Whoever adds a key to a result adds it to the known ones, or nobody can ask for it."""
    made = carry_out(load_scenario(scenario_file()), "in-process", out=Path("out"))
    devices = list(made["peers"])
    for key, value in made.items():
        if key in ("expectations", "output"):
            continue
        assert wrong_path(key, devices, 1) == ""
        inner = value[0] if key == "jobs" else value["peer-01"] if key == "peers" else {}
        step = "jobs.0" if key == "jobs" else "peers.peer-01"
        for name in inner:
            assert wrong_path(f"{step}.{name}", devices, 1) == "", name
        for name, part in inner.items():
            if isinstance(part, dict):
                for last in part:
                    assert wrong_path(f"{step}.{name}.{last}", devices, 1) == "", last


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("jobs.0.metric.ari", "jobs.0 has no 'metric': did you mean 'metrics'?"),
        ("jobs.1.rounds", "jobs has no '1': it has 0"),
        ("peers.met-01.lost", "peers has no 'met-01': did you mean 'meter-01'?"),
        ("peers.*.byte_sent", "peers.* has no 'byte_sent': did you mean 'bytes_sent'?"),
        ("peer.*.lost", "the result has no 'peer': did you mean 'peers'?"),
        ("jobs.*.pooled.relative_diff", "jobs.*.pooled has no 'relative_diff': did you mean 'relative_difference'?"),
        ("peers.robot-*.lost", "peers has no 'robot-*'"),
        ("jobs.*.terms.0.term", ""),
        ("traffic.bytes", ""),
    ],
)
def test_a_wrong_path_is_refused_with_what_was_meant(path: str, said: str) -> None:
    told = wrong_path(path, ["meter-01", "gateway"], 1)
    assert told.startswith(said)
    assert bool(told) == bool(said)
