from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console
from tests.happened import happened

from p2pclust.lab.commands.show.live import Watch, sparkline
from p2pclust.lab.run.state import RunState
from p2pclust.lab.run.views import GroupView

NAMES = ["a", "b", "c"]
ROUND = {"verb": "combined", "peer": "a", "job": "j", "term": 1, "status": "running", "stage": 1}


def progress() -> RunState:
    return RunState(NAMES, [["range", "llf-cm"]])


def told(one: RunState, *events: dict[str, Any]) -> list[str]:
    return [one.take(happened({"t": 1.0, "job": "j", **event})) for event in events]


def begun() -> RunState:
    one = progress()
    told(
        one,
        *({"peer": name, "verb": "started", "pid": 1} for name in NAMES),
        {"peer": "a", "verb": "submitted", "roster": NAMES},
        {"peer": "a", "verb": "elected", "term": 1, "votes": 2, "of": 3},
    )
    return one


def test_everybody_linked_is_said_once() -> None:
    one = progress()
    events = [
        {"peer": x, "verb": "member", "member": y, "status": "alive", "before": "unknown"}
        for x in NAMES
        for y in NAMES
        if x != y
    ]
    assert [line for line in told(one, *events, *events) if line] == ["3 peers linked to each other"]


def test_rounds() -> None:
    one = begun()
    lines = told(
        one,
        ROUND | {"round": 0, "contributors": NAMES},
        ROUND | {"round": 1, "contributors": ["a", "b"], "shift": 0.25},
    )
    assert lines == [
        "round 0: 3 of 3 contributed; next is llf-cm",
        "round 1: 2 of 3 contributed, the centers moved by 0.25",
    ]
    assert [peer.round for peer in one.peers.values()] == [1, 1, 0]


def test_a_round_done_again_replaces_the_first_try() -> None:
    one = begun()
    told(one, *(ROUND | {"round": r, "contributors": NAMES, "shift": s} for r, s in ((1, 4.0), (2, 2.0), (1, 3.0))))
    assert one.job is not None
    assert one.job.shift_of == {1: 3.0}


def test_an_aggregator_is_killed_and_another_elected() -> None:
    one = begun()
    assert told(
        one,
        {"peer": "a", "verb": "fault", "do": "kill", "phase": "opening", "planned": 3},
        {"peer": "a", "verb": "exited", "code": -9},
        {"peer": "b", "verb": "member", "member": "a", "status": "dead", "before": "alive"},
        {"peer": "c", "verb": "member", "member": "a", "status": "dead", "before": "alive"},
        {"peer": "b", "verb": "elected", "term": 2, "votes": 2, "of": 3},
        {"peer": "b", "verb": "finished", "term": 2, "round": 9, "digest": "ff"},
        {"peer": "c", "verb": "finished", "term": 2, "round": 9, "digest": "ff"},
    ) == [
        "a killed while opening round 3",
        "",
        "b reports that a is dead",
        "",
        "b aggregates term 2 (2 of 3 votes)",
        "job 1 is finished: a majority holds the final state",
        "",
    ]
    assert [peer.status for peer in one.peers.values()] == ["lost", "finished", "finished"]
    assert [peer.term for peer in one.peers.values()] == [None, 2, None]


def test_a_restart_and_a_pause() -> None:
    one = begun()
    assert told(
        one,
        {"peer": "b", "verb": "fault", "do": "restart", "seconds": 1.0},
        {"peer": "b", "verb": "started", "pid": 2},
        {"peer": "c", "verb": "fault", "do": "pause", "seconds": 1.0},
        {"peer": "c", "verb": "resumed"},
    ) == ["b killed, to come back", "b is back, from its disk", "c paused", "c resumed"]
    assert [peer.lives for peer in one.peers.values()] == [1, 2, 1]
    assert {peer.status for peer in one.peers.values()} == {"alive"}


def test_parts_that_wait_side_by_side_are_told_once_each() -> None:
    one = begun()
    few = {"peer": "b", "verb": "waiting", "present": 1, "of": 3}
    two = {"peer": "c", "verb": "waiting", "present": 2, "of": 3}
    inner = {"peer": "c", "verb": "waiting", "present": 1, "of": 2, "within": "j"}
    lines = ["waiting: 1 of 3 peers are here, as b sees it", "waiting: 2 of 3 peers are here, as c sees it"]
    assert told(one, few, two, few, two, {**few, "peer": "a"}, two) == [*lines, "", "", "", ""]
    assert told(one, inner) == ["waiting: 1 of 2 peers of a job within the job are here, as c sees it"]
    told(one, {"peer": "a", "verb": "link", "to": "b", "up": False})
    assert told(one, few, two, few) == [*lines, ""]


def test_other_lines() -> None:
    one = begun()
    assert told(
        one,
        {"peer": "b", "verb": "waiting", "present": 1, "of": 3},
        {"peer": "b", "verb": "waiting", "present": 1, "of": 3},
        {"peer": "a", "verb": "link", "to": "b", "up": False},
        {"peer": "a", "verb": "link", "to": "c", "up": True},
        {"peer": "c", "verb": "left-out", "round": 5},
        {"peer": "c", "verb": "exited", "code": 3},
        {"peer": "a", "verb": "data-refused", "reason": "row 1 is empty"},
        {"peer": "a", "verb": "unable", "task": "combine", "reason": "failed: KeyError: 'sums'"},
        {"peer": "a", "verb": "never heard of"},
    ) == [
        "waiting: 1 of 3 peers are here, as b sees it",
        "",
        "a and b have lost their link",
        "a and c are linked now",
        "round 5 continues without c, which stays silent",
        "c ended with exit code 3",
        "a cannot use its data: row 1 is empty",
        "a cannot continue with the job: failed: KeyError: 'sums'",
        "",
    ]


@pytest.mark.parametrize("width", [80, 120])
def test_the_view_fits_and_lines_up(width: int) -> None:
    long = [f"a-rather-long-name-of-a-device-{number:03d}" for number in range(60)]
    one = RunState(long, [["range", "llf-cm"]])
    console = Console(file=io.StringIO(), width=width, height=24, force_terminal=True, color_system=None)
    watch = Watch(console, "A title " * 20, "details " * 20, one, [0.01])
    job = {"t": 0.5, "job": "j"}
    watch.take(happened({"peer": long[0], "verb": "submitted", "roster": long} | job))
    watch.take(happened({"peer": long[7], "verb": "elected", "term": 1, "votes": 31, "of": 60} | job))
    watch.take(happened({"peer": long[9], "verb": "fault", "do": "kill", "seconds": 1.0} | job))
    for number in range(9):
        watch.take(happened(ROUND | job | {"round": number, "contributors": long, "shift": 2.0**-number}))
    console.file = io.StringIO()
    console.print(watch.render())
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(lines) <= 24
    assert max(map(len, lines)) <= width
    rows = [line for line in lines if line.startswith("a-rather")]
    assert rows[0].startswith(long[7])
    assert "aggregates term 1" in rows[0]
    assert rows[1].split()[:2] == [long[9], "lost"]
    assert any("more" in line for line in lines)
    assert any("█▇▆▅▅▄▃▂▁  0.00391" in line for line in lines)


def test_without_a_terminal_there_are_lines() -> None:
    console = Console(file=io.StringIO(), width=60)
    with Watch(console, "Title", "3 peers", progress()) as watch:
        watch.take(happened({"t": 1.5, "peer": "a", "verb": "submitted", "job": "j", "roster": NAMES}))
    assert console.file.getvalue().splitlines() == [  # type: ignore[attr-defined]
        "Title",
        "3 peers",
        "    1.50 s  job 1 of 1 handed in at a: llf-cm, 3 peers",
    ]


def test_a_view_on_a_terminal_leaves_nothing_behind() -> None:
    console = Console(file=io.StringIO(), width=80, height=24, force_terminal=True)
    with pytest.raises(KeyboardInterrupt), Watch(console, "Title", "3 peers", progress()):
        raise KeyboardInterrupt
    assert console.file.getvalue().endswith("\x1b[2K")  # type: ignore[attr-defined]


def test_classes_are_counted() -> None:
    one = RunState(NAMES, [["llf-cm"]], {"a": "gateway", "b": "meter", "c": "meter"})
    told(
        one, *({"peer": name, "verb": "started"} for name in NAMES), {"peer": "a", "verb": "submitted", "roster": NAMES}
    )
    told(one, {"peer": "b", "verb": "fault", "do": "kill"}, {"peer": "c", "verb": "asleep", "why": "duty"})
    assert one.groups == [GroupView("gateway", 1, 1, 0, 0), GroupView("meter", 2, 0, 2, 0)]
    lines = told(one, {"peer": "c", "verb": "awake"}, {"peer": "b", "verb": "asleep", "why": "duty"})
    assert lines == ["", ""], "sleep is part of a device's day"
    assert (one.peers["c"].status, one.peers["b"].status) == ("alive", "lost")
    told(one, {"peer": "c", "verb": "finished"}, {"peer": "a", "verb": "finished"})
    assert one.groups == [GroupView("gateway", 1, 0, 0, 1), GroupView("meter", 2, 0, 1, 1)]
    assert told(one, {"peer": "c", "verb": "drained", "energy_j": 1.0}) == ["the battery of c is empty"]


LOAD = {
    "peer": "",
    "verb": "load",
    "messages_sent": 1234,
    "bytes_sent": 5_200_000,
    "busiest": "b",
    "busiest_bytes": 900_000,
}


def test_what_was_sent_so_far_needs_no_line() -> None:
    one = begun()
    assert one.load is None
    assert told(one, LOAD) == [""]
    assert one.load is not None
    assert (one.load.bytes_sent, one.load.busiest) == (5_200_000, "b")


def test_the_association_graph_is_followed() -> None:
    one = begun()
    graph = {
        "phase": "graph",
        "clusters": [2, 3],
        "groups": [[0, 2], [1, 3]],
        "isolated": [4],
        "links": [[0, 2], [1, 3]],
    }
    refined = {"phase": "refine", "groups": 1, "isolated": 1, "links": 2, "changed": 7, "rows": 90}
    lines = told(
        one,
        ROUND | {"round": 2, "contributors": NAMES} | graph,
        ROUND | {"round": 3, "contributors": NAMES} | refined,
        ROUND | {"round": 4, "contributors": NAMES, "phase": "train"},
    )
    assert [line.removeprefix("round ") for line in lines] == [
        "2: 3 of 3 contributed, 2 communities, 1 cluster isolated; next is llf-cm",
        "3: 3 of 3 contributed, 1 community, 1 cluster isolated, 7 of 90 rows changed",
        "4: 3 of 3 contributed",
    ]
    assert one.job is not None
    assert one.job.graph == {"groups": 1, "isolated": 1, "links": 2, "clusters": 5, "changed": 7, "rows": 90}


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_the_view_shows_classes_load_and_communities(encoding: str) -> None:
    one = RunState(NAMES, [["range", "fedcref"]], {"a": "gateway", "b": "meter", "c": "meter"})
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=stream, width=100, height=30, force_terminal=True, color_system=None)
    watch = Watch(console, "Title", "3 peers", one)
    graph = {"phase": "refine", "groups": 4, "isolated": 1, "links": 2, "changed": 7, "rows": 90}
    for event in (
        *({"peer": name, "verb": "started"} for name in NAMES), {"peer": "a", "verb": "submitted", "roster": NAMES},
        {"peer": "b", "verb": "fault", "do": "kill"}, ROUND | {"round": 3, "contributors": NAMES} | graph, LOAD,
    ):  # fmt: skip
        watch.take(happened({"t": 1.0, "job": "j"} | event))
    console.print(watch.render())
    stream.flush()
    lines = stream.buffer.getvalue().decode(encoding).splitlines()  # type: ignore[attr-defined]
    full, empty = ("█", "░") if encoding == "utf-8" else ("#", ".")
    assert any(line.split() == ["gateway", full, "1:", "1", "alive"] for line in lines)
    assert any(line.split() == ["meter", full + empty, "2:", "1", "alive,", "1", "away"] for line in lines)
    assert "communities   4   1 cluster isolated   2 links   7 of 90 rows changed" in lines
    assert "sent so far   5.2 MB in 1,234 messages   most by b: 900.0 kB" in lines


def test_sparkline_of_what_stands_still() -> None:
    assert sparkline([0.0, 0.0]) == "▁▁"
    assert sparkline([1.0, 0.0, 0.1]) == "█▁▁"
