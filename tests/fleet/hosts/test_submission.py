"""Handing a job in and getting its result, with a door that says what a test wants."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgpack
import pytest

from p2pclust.errors import FleetError
from p2pclust.hosts.submission import fetch, n_features_at, result_of, submit, with_common_kernel
from p2pclust.jobs.request import JobRequest
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import run_in_process
from p2pclust.protocols.engine.workspace import digest_of

JOB = cluster_job("llf-cm", n_clusters=2)


class FakeConnection:
    """Answers from lists."""

    address = "a"

    def __init__(
        self, follows: list[dict[str, Any]] | None = None, answers: dict[str, list[Any]] | None = None
    ) -> None:
        self.follows, self.answers = follows or [], answers or {}
        self.asked: list[Any] = []

    def follow(self, verb: str, /, **fields: Any) -> Iterator[dict[str, Any]]:
        self.asked.append((verb, fields))
        yield from self.follows

    def ask(self, verb: str, /, **fields: Any) -> dict[str, Any]:
        self.asked.append((verb, fields))
        answer: dict[str, Any] = self.answers[verb].pop(0)
        return answer


def test_it_returns_when_a_majority_has_the_job() -> None:
    door = FakeConnection([{"job": "job-1", "roster": ["a"], "accepted": False}, {"job": "job-1", "accepted": True}])
    told: list[Any] = []
    found = submit(door, JobRequest(JOB, Treatment(every_s=60.0)), ("a",), on_submitted=lambda *of: told.append(of))  # type: ignore[arg-type]
    assert found == "job-1"
    assert told == [("job-1", ["a"])]
    ((_, fields),) = door.asked
    assert msgpack.unpackb(fields["mathematics"]) == msgpack.unpackb(msgpack.packb(JOB.to_dict()))
    assert (fields["roster"], fields["every_s"], fields["missing"]) == (["a"], 60.0, "wait")


@pytest.mark.parametrize(
    ("roster", "kernels", "expected"),
    [
        ((), {"a": "c1", "b": "c1"}, "c1"),
        ((), {"a": "c1", "b": "numpy"}, "numpy"),
        ((), {"a": "numpy", "b": "c1"}, "numpy"),
        ((), {"a": "c1", "b": "c1", "dead": "numpy"}, "c1"),  # it would not be on the roster
        (("a", "b"), {"a": "c1", "b": "c1", "c": "numpy"}, "c1"),
        (("a", "dead"), {"a": "c1", "dead": "numpy"}, "numpy"),
        (("a", "unknown"), {"a": "c1"}, "numpy"),
    ],
)
def test_a_job_has_the_kernel_that_all_its_peers_have(
    roster: tuple[str, ...], kernels: dict[str, str], expected: str
) -> None:
    own, *others = kernels
    members = [
        {"name": name, "status": "dead" if name == "dead" else "alive", "kernel": kernels[name]} for name in others
    ]
    door = FakeConnection(answers={"status": [{"peer": own, "kernel": kernels[own], "members": members}]})
    request = with_common_kernel(door, JobRequest(JOB), roster)  # type: ignore[arg-type]
    assert request.job == replace(JOB, kernel=expected)


def test_a_later_turn_may_have_a_peer_that_is_down_now_and_lacks_the_kernel() -> None:
    members = [{"name": "b", "status": "alive", "kernel": "c1"}, {"name": "dead", "status": "dead", "kernel": "numpy"}]
    door = FakeConnection(answers={"status": [{"peer": "a", "kernel": "c1", "members": members}]})
    request = JobRequest(JOB, Treatment(every_s=60.0))
    assert with_common_kernel(door, request) == request  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("follows", "reason"),
    [
        ([], "did not submit the job within 0.5 s"),
        ([{"job": "job-1", "roster": ["a"], "accepted": False}], "job-1 is submitted, but after 0.5 s no majority"),
    ],
)
def test_it_says_how_far_it_came(follows: list[dict[str, Any]], reason: str) -> None:
    with pytest.raises(FleetError, match=reason):
        submit(FakeConnection(follows), JobRequest(JOB), (), 0.5)  # type: ignore[arg-type]


def test_what_is_large_comes_in_parts_and_is_checked() -> None:
    parts = [{"data": b"ab", "last": False}, {"data": b"c", "last": True}]
    assert fetch(FakeConnection(answers={"read": list(parts)}), "job-1", "state", digest_of(b"abc")) == b"abc"  # type: ignore[arg-type]
    with pytest.raises(FleetError, match="arrived damaged"):
        fetch(FakeConnection(answers={"read": list(parts)}), "job-1", "state", digest_of(b"abd"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"finished": False, "phase": "gathering", "round": 3}, "job-1 has not ended: gathering, round 3"),
        (
            {"finished": True, "phase": "failed", "reason": "nobody can", "exposed": ["p7", "p9"]},
            "job-1: nobody can; exposed: p7, p9$",
        ),
        (
            {"finished": True, "phase": "cancelled", "reason": "cancelled by ann", "exposed": []},
            "job-1: cancelled by ann$",
        ),
    ],
)
def test_a_job_without_a_result(told: dict[str, Any], reason: str) -> None:
    with pytest.raises(FleetError, match=reason):
        result_of(FakeConnection(answers={"job": [{"job": "job-1", **told}]}), "job-1")  # type: ignore[arg-type]


def test_names_of_columns_where_there_are_none() -> None:
    state = run_in_process(JOB, [Local([[0.0, 0.0], [0.1, 0.0], [0.0, 0.1], [5.0, 5.0], [5.0, 5.1], [5.1, 5.0]])])
    data = state.encode()
    told = {
        "job": "job-1", "finished": True, "phase": "done", "mathematics": msgpack.packb(JOB.to_dict()), "roster": ["a"],
        "digest": digest_of(data), "features": [], "number": 0,
    }  # fmt: skip
    door = FakeConnection(answers={"job": [told], "read": [{"data": data, "last": True}]})
    found = result_of(door, "job-1")  # type: ignore[arg-type]
    assert found.features == ["x1", "x2"]
    assert found.named([0]) == ["a"]
    assert found.state == state


def test_a_peer_says_for_how_many_features_one_pair_of_bounds_is() -> None:
    def door(columns: int) -> Any:
        return FakeConnection(answers={"status": [{"peer": "a", "data": {"columns": columns}}]})

    assert n_features_at(door(4)) == 4
    with pytest.raises(FleetError, match="a has no rows that can be used: write a pair for each feature"):
        n_features_at(door(0))
