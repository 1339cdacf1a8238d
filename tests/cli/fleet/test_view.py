"""Who of a fleet is well, and who is late: from what supervisors and peers say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from p2pclust.cli.fleet.view import judge, show
from p2pclust.hosts.inventory import Host, Inventory, InventoryDevice

NAMES = ("a", "b", "c")
FLEET = Inventory(
    Path("fleet.toml"),
    Path("keys"),
    Path("keys/roster.json"),
    {"h": Host("h", None, "python3", "there")},
    tuple(InventoryDevice(name, "h", "meter", {}, {}) for name in NAMES),
    late_s=30.0,
)


def a_peer(
    name: str, *, up_s: float = 100.0, round_: int = 5, sees: str = "abc", phase: str = "gathering"
) -> dict[str, Any]:
    """What is told of one that is well."""
    members = [
        {"name": other, "status": "alive" if other in sees else "dead", "linked": True}
        for other in NAMES
        if other != name
    ]
    jobs = [
        {"job": "old1234567", "protocol": "llf-cm", "round": 9, "phase": "done", "within": ""},
        {"job": "new1234567", "protocol": "llf-fcm", "round": round_, "phase": phase, "within": ""},
        {"job": "inside4567", "protocol": "fedavg", "round": 0, "phase": "done", "within": "new1234567"},
    ]
    return {
        "status": "running", "pid": 7, "since": "2026-01-02T03:04:05+00:00", "up_s": up_s, "restarts": 0, "ended": "",
        "last_line": "", "says": "", "snapshot": {"members": members, "jobs": jobs},
    }  # fmt: skip


def judged(**changed: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return judge(FLEET, {"h": {"peers": {name: a_peer(name) for name in NAMES} | changed}})


def test_all_are_well() -> None:
    peers = judged()
    assert [peer["trouble"] for peer in peers.values()] == [""] * 3
    a = peers["a"]
    assert (a["linked"], a["neighbours"], a["job"], a["round"], a["phase"]) == (
        2,
        2,
        "llf-fcm new1234567",
        5,
        "gathering",
    )
    console = Console(width=160, record=True, file=None)
    with console.capture() as captured:
        console.print(show(peers))
    assert captured.get().splitlines()[1].split() == (
        [
            "a",
            "meter",
            "h",
            "running",
            "7",
            "01-02",
            "03:04:05",
            "0",
            "2",
            "of",
            "2",
            "llf-fcm",
            "new1234567",
            "gathering",
            "5",
        ]
    )


def test_a_turn_of_a_series_has_the_name_that_other_commands_take() -> None:
    a = a_peer("a")
    a["snapshot"]["jobs"][1] |= {"series": "series-1267fac0921cef9c", "name": "series-1267fac0921cef9c/4"}
    assert judged(a=a)["a"]["job"] == "llf-fcm series-1267fac0921cef9c/4"


@pytest.mark.parametrize(
    ("peer", "trouble"),
    [
        (a_peer("a", sees="ab"), "late: not linked to c after 100 s"),
        (a_peer("a", sees="a"), "late: not linked to b, c after 100 s"),
        (a_peer("a", sees="ab", up_s=29.0), ""),
        (a_peer("a", round_=4), ""),
        (a_peer("a", round_=3), "behind: round 3 of job new1234567, others are at 5"),
        (a_peer("a", round_=3, phase="done"), ""),
        (a_peer("a") | {"snapshot": {"error": "no answer"}}, "does not report its state: no answer"),
        (a_peer("a") | {"snapshot": {"error": "no answer"}, "up_s": 3.0}, ""),
        (a_peer("a", up_s=3.0) | {"status": "starting"}, "not ready yet, 3 s after its start"),
        (
            a_peer("a", up_s=3.0) | {"status": "starting", "failed": True, "ended": "exit code 3", "last_line": "why"},
            "not ready yet, 3 s after its start, tried again after it failed (exit code 3)",
        ),
        ({"status": "waiting", "pid": 0, "ended": "exit code 3"}, "down, will be started again (exit code 3)"),
        ({"status": "given-up", "pid": 0, "ended": "exit code 2", "last_line": "no rows"}, "given up (exit code 2)"),
        ({"status": "left", "pid": 0}, "down"),
        ({"status": "stopped", "pid": 0}, "stopped: `p2pclust fleet restart` starts it again"),
        (a_peer("a") | {"status": "paused"}, "paused: `p2pclust fleet fault` with `resume` continues it"),
        ({}, "down"),
    ],
)
def test_what_is_not_well(peer: dict[str, Any], trouble: str) -> None:
    peers = judged(a=peer)
    assert peers["a"]["trouble"] == trouble
    assert peers["b"]["trouble"] == peers["c"]["trouble"] == ""


def test_nobody_is_late_for_not_seeing_one_that_is_down_or_new() -> None:
    down = judged(c={"status": "given-up", "pid": 0, "ended": "exit code 2"}, a=a_peer("a", sees="ab"))
    assert (down["a"]["trouble"], down["c"]["trouble"]) == ("", "given up (exit code 2)")
    paused = judged(c=a_peer("c") | {"status": "paused"}, a=a_peer("a", sees="ab"))
    assert (paused["a"]["trouble"], paused["c"]["status"]) == ("", "paused")
    new = judged(c=a_peer("c", up_s=5.0), a=a_peer("a", sees="ab"))
    assert new["a"]["trouble"] == new["c"]["trouble"] == ""


def test_a_host_that_cannot_be_reached() -> None:
    peers = judge(FLEET, {})
    assert [peer["status"] for peer in peers.values()] == ["unreachable"] * 3
    assert peers["a"]["trouble"] == "its host cannot be reached"


def test_the_last_line_of_one_that_is_down_is_shown() -> None:
    peers = judged(a={"status": "given-up", "pid": 0, "ended": "exit code 2", "last_line": "rows.csv: no such file"})
    console = Console(width=160, file=None)
    with console.capture() as captured:
        console.print(show(peers))
    assert "a: given up (exit code 2): rows.csv: no such file" in captured.get()
