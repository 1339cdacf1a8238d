"""A job from the words of a command line: the keys, and the checks, of a scenario."""

from __future__ import annotations

from typing import Any

import pytest

from p2pclust.cli.fleet.submit import parameters
from p2pclust.errors import UsageError
from p2pclust.jobs.submission import duration, request_from
from p2pclust.protocols.engine.compose import cluster_job


def test_it_is_the_job_that_a_scenario_would_make() -> None:
    words = "--scaling minmax --fuzzifier 1.5 --max-rounds 7 --privacy-gate false --seed 3 --bounds [[0,1],[0,2]]"
    request, spec = request_from({"protocol": "llf-fcm", "clusters": 3} | parameters(words.split()), 3)
    made = cluster_job(
        "llf-fcm", n_clusters=3, scaling="minmax", bounds=([0, 0], [1, 2]), max_rounds=7, seed=3, fuzzifier=1.5,
        privacy_gate=False,
    )  # fmt: skip
    assert request.job == made
    assert (request.treatment.missing, request.treatment.collect, spec.roster) == ("wait", "", None)


def test_several_starts() -> None:
    request, _ = request_from({"protocol": "llf-cm", "clusters": 3} | parameters(["--n-init", "4"]), 3)
    assert [stage.parameters.get("n_init") for stage in request.job.stages[2:]] == [4, 4, 4]
    with pytest.raises(UsageError, match="protocol 'ffcm' has no n_init"):
        request_from({"protocol": "ffcm", "clusters": 3, "n_init": 4}, 3)


def test_how_the_fleet_treats_it() -> None:
    given = {
        "protocol": "llf-cm",
        "clusters": 2,
        "missing": "drop",
        "deadline_s": 2.5,
        "roster": ["b", "a"],
        "every": "1h",
    }
    request, spec = request_from(given, 3)
    treatment = request.treatment
    assert (treatment.missing, treatment.deadline_s, treatment.every_s) == ("drop", 2.5, 3600.0)
    assert (spec.roster, spec.every) == (("b", "a"), 3600.0)
    gossip, _ = request_from({"protocol": "llf-cm", "clusters": 2, "collect": "gossip", "mixing": "push-sum"}, 3)
    assert (gossip.treatment.collect, gossip.treatment.gossip_tolerance, gossip.treatment.mixing) == (
        "gossip",
        1e-9,
        "push-sum",
    )


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"clusters": 3, "fuzifier": 2}, "submit: unknown key 'fuzifier' (did you mean 'fuzzifier'?)"),
        ({"clusters": 3, "fuzzifier": 2}, "submit: protocol 'llf-cm' has no fuzzifier"),
        ({}, "submit: protocol 'llf-cm' needs clusters"),
        (
            {"clusters": 3, "missing": "drop"},
            "submit: missing = 'drop' needs deadline_s: the round ends at its deadline: set deadline_s above 0",
        ),
        ({"clusters": 3, "tol": "small"}, 'submit: tol = "small": expected a number'),
        (
            {"clusters": 3, "every": "soon"},
            "submit: every = \"soon\": 'soon' is not a duration: use 90s, 15m, 1h or 1d",
        ),
        (
            {"clusters": 3, "every": "0.5s"},
            'submit: every = "0.5s": expected at least 1 s, and less than 1e+09 s',
        ),
        ({"clusters": 3, "every": "1"}, "submit: every = \"1\": '1' has no unit: write 1s, 1m, 1h or 1d"),
        ({"clusters": 3, "every": 1e-9}, "submit: every = 1e-09: expected at least 1 s, and less than 1e+09 s"),
        ({"clusters": 3, "patience_s": 1e-9}, "submit: patience_s = 1e-09: expected at least 0.1"),
        ({"clusters": 3, "every": 1e9}, "submit: every = 1000000000.0: expected at least 1 s, and less than 1e+09 s"),
        ({"clusters": 2, "init": [[1.0]]}, "submit: init has 1 centers: expected clusters = 2"),
        (
            {"clusters": 2, "init": "rows"},
            "submit: init = 'rows': expected one of split-merge, k-means++, shared-k-means++, careful, random, uniform",
        ),
    ],
)
def test_what_is_wrong_is_said_as_of_a_scenario(given: dict[str, Any], line: str) -> None:
    with pytest.raises(UsageError) as error:
        request_from({"protocol": "llf-cm", **given}, 5)
    assert str(error.value).splitlines()[0] == line


@pytest.mark.parametrize(("name", "meant"), [("kmeans", "llf-cm"), ("k-means", "llf-cm"), ("fcm", "llf-fcm")])
def test_algorithms_called_as_elsewhere_are_known(name: str, meant: str) -> None:
    with pytest.raises(UsageError, match=f"^submit: protocol = \"{name}\": unknown protocol; did you mean '{meant}'"):
        request_from({"protocol": name, "clusters": 3}, 5)


def test_vertical_jobs_need_everybody_and_make_their_own_centers() -> None:
    request, _ = request_from({"protocol": "vertical-cm", "clusters": 2}, 5)
    assert request.treatment.missing == "all"
    with pytest.raises(UsageError, match="use the name of an init"):
        request_from({"protocol": "vertical-cm", "clusters": 1, "init": [[1.0]]}, 5)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["fuzzifier", "2"], "expected --PARAMETER VALUE$"),
        (
            ["true"],
            "'true': expected --PARAMETER VALUE; --secure, --no-secure, --wait and --json take no value: write --secure "
            "alone",
        ),
        (["--tol"], "--tol needs a value"),
        (["--wat"], r"--wat needs a value \(did you mean --wait\?\)"),
        (["--tol", "1", "--tol=2"], "--tol is given twice"),
    ],
)
def test_words_that_are_no_parameters(words: list[str], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        parameters(words)


@pytest.mark.parametrize("text", ["", "h", "1w", "-1h", "1h30m", "1e3s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError, match="not a duration"):
        duration(text)


@pytest.mark.parametrize(
    ("bounds", "n_features", "init", "spread"),
    [
        ([0.0, 1.0], 3, None, ([0.0, 0.0, 0.0], [1.0, 1.0, 1.0])),
        ([[0.0, 1.0]], 2, None, ([0.0, 0.0], [1.0, 1.0])),
        ([[0.0, 1.0]], 1, [[0.0, 0.5], [1.0, 1.0]], ([0.0, 0.0], [1.0, 1.0])),
        ([[0.0, 1.0], [0.0, 5.0]], 2, None, ([0.0, 0.0], [1.0, 5.0])),
    ],
)
def test_one_pair_of_bounds_is_for_all_features(
    bounds: list[Any], n_features: int, init: list[list[float]] | None, spread: tuple[list[float], list[float]]
) -> None:
    given = {"protocol": "llf-cm", "clusters": 2, "bounds": bounds, **({} if init is None else {"init": init})}
    request, _ = request_from(given, 3, n_features)
    assert request.job == cluster_job("llf-cm", n_clusters=2, bounds=spread, init=init)
