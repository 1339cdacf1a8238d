from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.happened import happened

from p2pclust.errors import DataError, UsageError
from p2pclust.lab.live.shown import FollowedRun, Replay, snapshot, thinned
from p2pclust.lab.run.scene import Scene, recorded
from p2pclust.lab.run.state import RunState

NAMES = ["a", "b", "c"]
SCENE = Scene(
    "three", "here", dict.fromkeys(NAMES, "meter"), [["range", "llf-cm"]], [0.01], [("a", "b"), ("b", "c")],
    features=["u", "v", "w"],
)  # fmt: skip
FLEET = (
    '{"t": 0, "peer": "", "verb": "fleet", "title": "", "details": "", "groups": {"a": ""}, "jobs": [["llf-cm"]],'
    ' "tol": [0], "links": null, "places": {}, "features": []}\n'
)
CLOSED = {"verb": "combined", "peer": "a", "term": 1, "status": "running", "stage": 1, "contributors": NAMES}


def told(*events: dict[str, Any], scene: Scene = SCENE) -> tuple[RunState, dict[str, Any]]:
    progress = scene.begun()
    for number, event in enumerate(events):
        progress.take(happened({"t": float(number), "job": "j", **event}))
    return progress, snapshot(scene, progress)


BEGUN = (
    *({"peer": name, "verb": "started"} for name in NAMES),
    {"peer": "a", "verb": "submitted", "roster": NAMES},
    {"peer": "a", "verb": "elected", "term": 1, "votes": 2, "of": 3},
)


def test_the_aggregator_that_dies_is_waited_for_until_it_is_noticed() -> None:
    _, before = told(*BEGUN)
    assert [device["role"] for device in before["devices"]] == ["aggregates", "", ""]
    assert before["job"] is not None
    assert (before["job"]["aggregator"], before["job"]["waits_for"]) == ("a", ())
    killed = {"peer": "a", "verb": "fault", "do": "kill"}
    _, dead = told(*BEGUN, killed)
    assert [(device["status"], device["role"]) for device in dead["devices"]] == [
        ("lost", "waited"),
        ("alive", ""),
        ("alive", ""),
    ]
    noticed = {"peer": "b", "verb": "member", "member": "a", "status": "dead"}
    elected = {"peer": "c", "verb": "elected", "term": 2, "votes": 2, "of": 3}
    _, after = told(*BEGUN, killed, noticed, elected)
    assert [device["role"] for device in after["devices"]] == ["", "", "aggregates"]
    assert [(mark["t"], mark["kind"], mark["peer"]) for mark in after["marks"]] == [
        (4.0, "election", "a"), (5.0, "fault", "a"), (6.0, "death", "a"), (7.0, "election", "c"),
    ]  # fmt: skip


def test_a_round_waits_for_peers_that_stay_silent_and_for_those_that_the_aggregator_names() -> None:
    silent = {"peer": "b", "verb": "relayed", "round": 1, "via": []}
    named = {"peer": "a", "verb": "waits", "peers": ["b", "c"]}
    assert told(*BEGUN, silent)[0].waited_for() == ("b",)
    assert told(*BEGUN, silent, named)[0].waited_for() == ("b", "c")
    assert told(*BEGUN, silent, named, {**CLOSED, "round": 1})[0].waited_for() == ()
    ended = {"peer": "b", "verb": "finished", "term": 1, "round": 2, "digest": ""}
    assert told(*BEGUN, silent, ended)[0].waited_for() == ()


def test_movement_and_objective_are_by_round_and_a_repeated_round_counts_once() -> None:
    rounds = [{**CLOSED, "round": number, "shift": shift} for number, shift in ((1, 3.0), (2, 2.0), (3, 1.0))]
    again = {**CLOSED, "peer": "b", "term": 2, "round": 2, "shift": 2.5, "contributors": ["b", "c"]}
    objective = {**CLOSED, "round": 3, "objective": 7.5, "status": "done"}
    _, found = told(*BEGUN, *rounds, again, objective)
    assert found["moves"] is not None
    assert (found["moves"]["rounds"], found["moves"]["shifts"], found["moves"]["tol"]) == ([1, 2], [3.0, 2.5], 0.01)
    assert (found["moves"]["objective_rounds"], found["moves"]["objectives"]) == ([3], [7.5])
    assert [(one["number"], one["present"], one["roster"]) for one in found["rounds"]] == [
        (1, 3, 3), (2, 3, 3), (3, 3, 3), (2, 2, 3), (3, 3, 3),
    ]  # fmt: skip


def test_centers_are_shown_in_the_two_columns_where_they_were_farthest_apart_at_first() -> None:
    first = {"peer": "a", "verb": "centers", "round": 1, "centers": [[0.0, 0.0, 1.0], [1.0, 9.0, 5.0]]}
    then = {**first, "round": 2, "centers": [[50.0, 1.0, 1.5], [-50.0, 8.0, 4.0]]}
    _, found = told(*BEGUN, first, then)
    assert found["plane"] is not None
    assert (found["plane"]["x"], found["plane"]["y"]) == ("v", "w")
    assert found["plane"]["paths"] == [[(0.0, 1.0), (1.0, 1.5)], [(9.0, 5.0), (8.0, 4.0)]]
    assert found["plane"]["box"] == (0.0, 9.0, 1.0, 5.0)


def test_columns_of_values_are_not_called_like_columns_of_rows() -> None:
    shares = {"peer": "a", "verb": "centers", "round": 1, "centers": [[0.0, 1.0, 0.0, 0.0], [0.5, 0.0, 1.0, 0.0]]}
    _, found = told(*BEGUN, shares)
    assert found["plane"] is not None
    assert (found["plane"]["x"], found["plane"]["y"]) == ("column 2", "column 3")


def test_of_centers_only_what_is_drawn_is_kept_and_a_round_that_is_done_again_counts_once() -> None:
    """A run of thousands of rounds once kept all coordinates of each, and copied the rounds in each round."""
    one = {"peer": "a", "verb": "centers", "round": 1, "centers": [[0.0, 0.0, 1.0], [1.0, 9.0, 5.0]]}
    again = {**one, "round": 2, "centers": [[0.0, 2.0, 1.5], [1.0, 8.0, 4.0]]}
    progress, _ = told(*BEGUN, one, {**one, "round": 2}, {**one, "round": 3}, again)
    assert progress.job is not None
    assert progress.job.centers_of == {1: [(0.0, 1.0), (9.0, 5.0)], 2: [(2.0, 1.5), (8.0, 4.0)]}


def test_the_page_of_a_standing_fleet_never_has_centers() -> None:
    scene = Scene("fleet", "", dict.fromkeys(NAMES, ""), [["llf-cm"]], testbed=False)
    _, found = told(
        *BEGUN, {"peer": "a", "verb": "centers", "round": 1, "centers": [[0.0, 0.0], [1.0, 9.0]]}, scene=scene
    )  # fmt: skip
    assert found["plane"] is None


def test_costs_and_links_are_kept_by_device() -> None:
    _, found = told(
        *BEGUN,
        {"peer": "", "verb": "load", "messages_sent": 2, "bytes_sent": 30, "busiest": "b", "busiest_bytes": 20,
         "sent": {"a": 10, "b": 20}},
        {"peer": "", "verb": "energy", "used_j": {"b": 1.5}, "left": {"b": 0.75}},
        {"peer": "b", "verb": "link", "to": "a", "up": False},
        {"peer": "a", "verb": "link", "to": "c", "up": True},
    )  # fmt: skip
    assert [(one["bytes_sent"], one["energy_j"], one["battery"]) for one in found["devices"]] == [
        (10, None, None), (20, 1.5, 0.75), (None, None, None),
    ]  # fmt: skip
    assert found["links"] == [[0, 2], [1, 2]]


@pytest.mark.slow
def test_a_snapshot_is_one_line_of_json_of_a_bounded_size() -> None:
    closed = [{**CLOSED, "round": number, "shift": 1.0 / (1 + number)} for number in range(5_000)]
    elected = [{"peer": "a", "verb": "elected", "term": number, "votes": 2, "of": 3} for number in range(500)]
    text = FollowedRun(SCENE, told(*BEGUN, *closed, *elected)[0], mode="run").to_json()
    assert "\n" not in text
    found = json.loads(text)
    assert len(found["moves"]["rounds"]) == len(found["moves"]["shifts"]) <= 300
    assert found["moves"]["rounds"][-1] == 4_999
    assert max(len(found["rounds"]), len(found["marks"]), len(found["lines"])) <= 300
    assert len(text) < 60_000


@given(st.integers(0, 5_000), st.integers(2, 400))
def test_thinned_points_are_few_and_have_both_ends(number: int, most: int) -> None:
    kept = thinned(number, most)
    assert len(kept) <= most
    assert kept == sorted(set(kept))
    if number:
        assert (kept[0], kept[-1]) == (0, number - 1)
    if number <= most:
        assert kept == list(range(number))


def test_points_stay_where_they_are_as_a_series_grows() -> None:
    for number in range(300, 600):
        before, after = set(thinned(number, 300)), set(thinned(number + 1, 300))
        assert before - {number - 1} <= after or after - {number} < before


def test_numbers_that_are_not_finite_are_left_out() -> None:
    rounds = [
        {**CLOSED, "round": number, "shift": shift}
        for number, shift in ((1, float("inf")), (2, 2.0), (3, float("nan")))
    ]
    progress, found = told(*BEGUN, *rounds, {**CLOSED, "round": 4, "objective": float("nan")})
    assert found["moves"] is not None
    assert (found["moves"]["rounds"], found["moves"]["objectives"]) == ([2], [])
    assert json.loads(FollowedRun(SCENE, progress, mode="run").to_json())["moves"]["shifts"] == [2.0]


def replayed(*events: dict[str, Any]) -> Replay:
    replay = Replay(SCENE, [happened({"t": float(number), "job": "j", **event}) for number, event in enumerate(events)])
    replay.control("pause", 0.0)
    return replay


def test_a_replay_goes_back_in_time_and_is_the_same_as_going_forth() -> None:
    replay = replayed(*BEGUN, {"peer": "a", "verb": "fault", "do": "kill"}, {**CLOSED, "round": 1})
    pictures = {}
    for t in (0.0, 3.0, 4.5, 6.0):
        replay.control("seek", t)
        pictures[t] = replay.to_json()
    assert len(set(pictures.values())) == 4
    for t in (6.0, 0.0, 4.5, 3.0):
        replay.control("seek", t)
        assert replay.to_json() == pictures[t]


@pytest.mark.parametrize(
    ("do", "value"), [("speed", 0.0), ("speed", 1e9), ("speed", float("nan")), ("seek", -1.0), ("fly", 1.0)]
)
def test_a_replay_refuses_what_it_cannot_do(do: str, value: float) -> None:
    replay = replayed(*BEGUN)
    before = replay.to_json()
    with pytest.raises(UsageError, match="expected play, pause, seek to a second, or a speed of at most 1000"):
        replay.control(do, value)
    assert replay.to_json() == before


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "its first line does not describe the fleet"),
        ("{\n", "cannot be read"),
        ("[]\n", "line 1: not an event of a run"),
        ('{"t": 0, "peer": "", "verb": "started"}\n', "its first line does not describe the fleet"),
        ('{"t": 0, "peer": "", "verb": "fleet"}\n', "line 1: not the description of a fleet"),
        (
            'FLEET{"t": 0, "peer": "a", "verb": "submitted", "job": "j"}\n',
            "line 2: not an event of a run .KeyError: 'roster'",
        ),
    ],
)
def test_a_log_that_is_none_is_refused(tmp_path: Path, text: str, line: str) -> None:
    (tmp_path / "events.jsonl").write_text(text.replace("FLEET", FLEET), encoding="utf-8")
    with pytest.raises(DataError, match=line):
        recorded(tmp_path)


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no events\.jsonl there: name the output directory"):
        recorded(tmp_path)
