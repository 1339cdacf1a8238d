"""Events of a job in a line each, for an operator who watches it."""

from __future__ import annotations

from typing import Any

import pytest

from p2pclust.hosts.events import job_lines


@pytest.mark.parametrize(
    ("event", "line"),
    [
        ({"round": 7, "outcome": "done"}, "done after 7 rounds"),
        ({"round": 0, "outcome": "failed", "reason": "no rows"}, "failed after 0 rounds: no rows"),
        ({"round": -1, "outcome": "unknown"}, "unknown"),
        ({"outcome": "cancelled"}, "cancelled"),
        ({"within": "j"}, "finished (within it child)"),
    ],
)
def test_an_end_names_the_round_only_where_the_peer_does(event: dict[str, Any], line: str) -> None:
    assert job_lines(by_round=True)({"verb": "finished", "job": "child", **event}) == line


def test_phases_are_lines_of_their_own_unless_rounds_are_shown() -> None:
    phase = {"verb": "phase", "job": "j", "round": 4, "phase": "adopting", "term": 1}
    assert job_lines(by_round=False)(phase) == "round 4: adopting (term 1)"
    line = job_lines(by_round=True)
    assert line({"verb": "combined", "job": "j", "round": 3, "contributors": ["a"]}) == "round 3 combined from 1 peer"
    assert line(phase) == "", "that round was shown as it was combined"


def test_keys_are_a_line_for_people() -> None:
    event = {"verb": "keys-exchanged", "job": "j", "term": 1, "round": 0, "peers": ["a", "b", "c"]}
    assert job_lines(by_round=True)(event) == "asks 3 peers to contribute, with new keys"
