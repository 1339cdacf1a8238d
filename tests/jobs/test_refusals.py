"""Options that do not fit together are refused, by the same line on every way in; the table of exclusions is whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.jobs.refusals import refusals

from p2pclust.cli.fleet.submit import parameters
from p2pclust.errors import UsageError
from p2pclust.estimators import FederatedClustering, LosslessCMeans
from p2pclust.jobs.job_keys import SecureSpec
from p2pclust.jobs.request import JobRequest
from p2pclust.jobs.submission import Submission, request_from
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.exclusions import _WORDS, EXCLUSIONS, Exclusion, problems, refuse

FILE = Path(__file__).parent / "refusals.txt"
KEYS = {*Submission.model_fields, *SecureSpec.model_fields, "n_init", "accelerate", "max_weight", "robust", "levels"}


def sides(rule: Exclusion) -> tuple[str, str, str]:
    verb = "excludes" if " excludes " in rule.rule else "needs"
    left, right = rule.rule.split(f" {verb} ")
    return left, verb, right


def given(side: str, *, holds: bool = True) -> dict[str, str]:
    name, _, value = side.partition(" = ")
    if not value:
        return {name: "x" if holds else ""}
    return {name: value.strip("'") if holds else "another"}


def test_refusals_are_those_of_the_file() -> None:
    """A line that is gone is a check that is lost: `python -m tests.jobs.refusals > tests/jobs/refusals.txt`."""
    known = [line.partition(" | ")[0] for line in FILE.read_text(encoding="utf-8").splitlines()]
    assert sorted(refusals()) == known


@pytest.mark.parametrize("rule", EXCLUSIONS, ids=lambda rule: rule.rule)
def test_each_rule_fires_and_only_where_it_should(rule: Exclusion) -> None:
    left, verb, right = sides(rule)
    assert {left.partition(" = ")[0], right.partition(" = ")[0]} <= {*KEYS, *_WORDS}, "a name that no job has"
    broken = {**given(left), **given(right, holds=verb == "excludes")}
    assert rule.words in [problem.partition(": ")[0] for problem in problems(broken)]
    assert not rule.breaks({**given(left), **given(right, holds=verb == "needs")})
    assert not rule.breaks(given(left)), "the other side is not known"
    assert rule.why
    assert rule.instead


def test_no_rule_stands_twice() -> None:
    pairs = [
        (verb, *((left, right) if verb == "needs" else sorted((left, right))))
        for left, verb, right in map(sides, EXCLUSIONS)
    ]
    assert len(set(pairs)) == len(pairs)


def test_every_way_in_asks_the_table() -> None:
    wanted = "secure excludes collect = 'gossip': secure sums need an aggregator: set collect to 'star' or 'tree'"
    with pytest.raises(UsageError) as submitted:
        request_from({"protocol": "llf-cm", "clusters": 2, "secure": True, "collect": "gossip"}, 5)
    with pytest.raises(UsageError) as requested:
        JobRequest(cluster_job("llf-cm", n_clusters=2), Treatment(secure=True, collect="gossip"))
    with pytest.raises(UsageError) as met:
        Treatment("wait", 5.0, 60.0, collect="gossip", secure=True).check()
    assert [str(error.value) for error in (submitted, requested, met)] == [f"submit: {wanted}", wanted, wanted]


def test_stages_for_secure_sums_are_refused_in_a_plain_job() -> None:
    with pytest.raises(UsageError, match="range-by-sums: needs secure sums"):
        JobRequest(cluster_job("llf-cm", n_clusters=2, secure=True))


def test_options_that_are_not_known_break_nothing() -> None:
    refuse({})
    refuse({"n_init": 1, "participation": 1.0, "init": [[0.0]], "accelerate": True, "strange": 1})
    with pytest.raises(UsageError, match=r"^n_init excludes an array of first centers"):
        refuse({"n_init": 2, "init": [[0.0]]})


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"secure": {"keeper": 3}}, "submit: [secure]: unknown key 'keeper' (did you mean 'keepers'?)"),
        ({"secure": {"keepers": 1}}, 'submit: [secure]: keepers = 1: expected a whole number from 2 to 4096, or "all"'),
        ({"keepers": 3}, "submit: keepers needs secure: it is a parameter of secure sums: set secure = true"),
        (
            {"accelerate": True, "n_init": 3},
            "submit: accelerate excludes n_init: it follows one path of the centers: leave one of the two out",
        ),
        ({"n_clusters": 3}, "submit: unknown key 'n_clusters' (did you mean 'clusters'?)"),
        ({"robust": "medain"}, "submit: llf-cm: robust = 'medain': expected one of trim, median"),
    ],
)
def test_one_mistake_is_one_line(given: dict[str, object], line: str) -> None:
    with pytest.raises(UsageError) as refused:
        request_from({"protocol": "llf-cm", "clusters": 3} | given, 5)
    assert str(refused.value) == line


def test_an_option_that_lacks_its_value_is_named() -> None:
    with pytest.raises(UsageError, match="submit: --accelerate needs a value"):
        parameters(["--accelerate", "--n-init", "3"])


def test_the_defaults_of_an_estimator_exclude_no_privacy() -> None:
    estimator = LosslessCMeans(
        2, secure=True, bounds=(0, 9), privacy={"epsilon": 8.0, "delta": 1e-6}, fleet="simulated"
    )
    assert estimator._job(1, 2, 5).stages[-1].protocol == "private-cm"


def test_bounds_may_be_an_array_and_an_empty_promise_is_one() -> None:
    job = cluster_job("llf-cm", n_clusters=2, bounds=np.array([[0.0, 0.0], [9.0, 9.0]]))  # type: ignore[arg-type]
    assert (job.stages[0].parameters["lo"], job.stages[0].parameters["hi"]) == ([0.0, 0.0], [9.0, 9.0])
    with pytest.raises(UsageError, match="privacy: epsilon is missing"):
        cluster_job("llf-cm", n_clusters=2, bounds=([0.0], [9.0]), secure=True, privacy={})


@pytest.mark.parametrize("name", ["n_clusters", "protocol"])
def test_a_parameter_that_is_an_argument_of_its_own_is_refused(name: str) -> None:
    model = FederatedClustering("llf-cm", 2, parameters={name: "llf-fcm" if name == "protocol" else 3})
    with pytest.raises(UsageError, match=f"parameters: {name}: give it as an argument of its own"):
        model.fit([[[0.0], [1.0]], [[8.0], [9.0]]])
