"""What a run's summary says of a job."""

from __future__ import annotations

from typing import Any

import pytest

from p2pclust.lab.scenario.outcome.lines import job_lines


def facts(peers: dict[str, Any] | None = None, /, **job: Any) -> dict[str, str]:
    whole = {
        "protocol": "fedcref", "parameters": {"mode": "refined"}, "failure": "", "rounds": 16, "converged": False,
        "stops": "rows keep their clusters", "terms": [], "abstained": [], "warnings": {}, "suppressed": 0, "coarse": 0,
        "best_pooled": None, "objective": None, "doubts": [],
        "damaged": [], "harm": None, "drift": [], "tolerance": None, "reached": None, "ticks": [], "metrics": {},
        "pooled": None, "gap": None, "digests": {}, "communities": [], "isolated": [], "declared": {},
    }  # fmt: skip
    return {fact.name: fact.words for fact in job_lines(whole | job, 1, 1, peers or {})}


@pytest.mark.parametrize("limit", ["max_refinements", "max_iterations", "max_rounds"])
def test_the_limit_that_ended_a_job_is_the_one_that_it_has(limit: str) -> None:
    assert facts(parameters={"mode": "refined", limit: 6})["rounds"] == f"16 ({limit} was reached)"
    assert facts(converged=True)["rounds"] == "16 (rows keep their clusters)"


def test_a_peer_that_was_left_out_did_not_abstain() -> None:
    found = facts(abstained=[{"a": "left out: dead"}, {"b": "no data"}, {"a": "left out: dead", "c": "left out: dead"}])
    assert found["left out"] == "a, c (dead)"
    assert found["abstained"] == "b: no data"


@pytest.mark.parametrize(
    ("n_peers", "protocol", "begins"),
    [
        (2, "llf-cm", "no; 2 peers: llf-cm runs without secure sums"),
        (3, "llf-cm", "no; 3 peers: llf-cm runs without secure sums"),
        (4, "llf-cm", ""), (3, "fkm", ""),
    ],
)  # fmt: skip
def test_a_small_fleet_says_who_can_read_what(n_peers: int, protocol: str, begins: str) -> None:
    names = [f"p{number}" for number in range(n_peers)]
    job = {"protocol": protocol, "contributors": [names[1:]], "abstained": [{"p0": "no data"}]}
    sent = {name: {"lost": False, "messages_sent": 7} for name in names}
    assert facts(sent, **job).get("secured", "").startswith(begins)
    assert bool(facts(sent, **job).get("secured")) == bool(begins)
    in_one_process = {name: {"lost": False, "messages_sent": 0} for name in names}
    assert "secured" not in facts(in_one_process, **job)


def test_communities() -> None:
    assert facts(isolated=[["a", 0], ["b", 0]])["communities"] == "none: 2 clusters, all isolated"
    some = facts(communities=[[["a", 0], ["b", 1]]], isolated=[["b", 0]])
    assert some["communities"] == "1 of 2 clusters, 1 isolated"


def test_scores() -> None:
    assert facts(metrics={"ari": 0.5, "accuracy": 0.75})["ARI"] == "0.500 (accuracy 0.750)"
    flows = {"ari": 0.5, "accuracy": 0.75, "peer_accuracy": 0.875}
    assert facts(metrics=flows)["ARI"] == "0.500 (accuracy 0.750, 0.875 in the mean over peers)"


def test_the_objective_beside_pooled_starts_and_doubts() -> None:
    best = {"starts": 10, "objective": 2.0, "excess": 0.035, "words": "3.5 % above the best of 10 pooled starts"}
    told = facts(objective=2.07, best_pooled=best, doubts=["centers 0 and 1 nearly coincide: ask for fewer clusters"])
    assert told["objective"] == "2.07, 3.5 % above the best of 10 pooled starts"
    assert told["doubt"] == "centers 0 and 1 nearly coincide: ask for fewer clusters"
    assert facts(best_pooled=best)["objective"] == "3.5 % above the best of 10 pooled starts"
