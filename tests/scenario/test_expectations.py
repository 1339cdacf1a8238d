from __future__ import annotations

import math
from typing import Any

import pytest

from p2pclust.scenario.expect_keys import ExpectSpec
from p2pclust.scenario.expectations import Expectation, check


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
]


@pytest.mark.parametrize(("key", "wanted", "found", "held", "value"), CASES)
def test_each(key: str, wanted: Any, found: dict[str, Any], held: bool, value: Any) -> None:
    (expectation,) = check(ExpectSpec(**{key: wanted}), found)
    assert (expectation.held, expectation.value) == (held, value)


def test_every_key_is_tried_above() -> None:
    assert {case[0] for case in CASES} == set(ExpectSpec.model_fields)


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
        "centers are identical on all peers that finished",
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
