"""The state of the peers of an inventory, from the answers of their supervisors and of the peers themselves."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from p2pclust.cli.fleet.operate import OVER
from p2pclust.cli.show.output import table
from p2pclust.tools.spelling import first_few

if TYPE_CHECKING:
    from rich.console import Group

    from p2pclust.hosts.inventory import Inventory

_BEHIND = 2  # rounds; an aggregator is one round ahead of the others
_STYLES = {
    "running": "green", "starting": "yellow", "waiting": "bold red", "given-up": "bold red", "leaving": "yellow",
    "stopped": "yellow", "paused": "yellow",
}  # fmt: skip

_DOWN = {
    "stopped": "stopped: `p2pclust fleet restart` starts it again",
    "paused": "paused: `p2pclust fleet fault` with `resume` continues it",
    "unreachable": "its host cannot be reached",
}

Answer = Mapping[str, Any]


def judge(inventory: Inventory, answers: Mapping[str, Answer]) -> dict[str, dict[str, Any]]:
    """Return the state of every device, from the answers to ``status`` of the hosts that can be reached.

    ``linked`` is how many of its ``neighbours`` a peer sees alive, or None if it does not answer; ``job`` its newest running
    job, else the newest; ``last_line`` is of its log, if it is down; ``trouble`` its problem, or an empty string.
    """
    told: dict[str, Answer] = {
        device.name: answers[device.host]["peers"].get(device.name, {})
        if device.host in answers
        else {"status": "unreachable"}
        for device in inventory.devices
    }
    rounds: dict[str, int] = {}  # the highest of each job at any peer
    for peer in told.values():
        for job in peer.get("snapshot", {}).get("jobs", ()):
            rounds[job["job"]] = max(job["round"], rounds.get(job["job"], 0))
    shown = {}
    for device in inventory.devices:
        peer = told[device.name]
        lives = bool(peer.get("pid"))
        status = peer.get("status", "absent")
        snapshot = peer.get("snapshot", {})
        near = [member for member in snapshot.get("members", ()) if member["linked"]]
        jobs = [job for job in snapshot.get("jobs", ()) if not job["within"]]
        running = (job for job in reversed(jobs) if job["phase"] not in OVER)
        job = next(running, jobs[-1] if jobs else None)
        failed = peer.get("failed") if status == "starting" else status not in ("running", "paused", "stopped")
        shown[device.name] = {
            "host": device.host,
            "class": device.group,
            "status": status,
            "pid": peer.get("pid") or None,
            "since": peer["since"] if lives else None,
            "up_s": peer.get("up_s", 0.0),
            "restarts": peer.get("restarts", 0),
            "linked": sum(member["status"] == "alive" for member in near) if "members" in snapshot else None,
            "neighbours": len(near) if "members" in snapshot else None,
            "job": f"{job['protocol']} {_named(job)}" if job else "",
            "round": job["round"] if job else None,
            "phase": job["phase"] if job else "",
            "says": peer.get("says", ""),
            "ended": peer.get("ended", ""),
            "last_line": peer.get("last_line", "") if failed else "",
            "trouble": _problem_with(told, device.name, inventory.late_s, rounds),
        }
    return shown


def _named(job: Answer) -> str:
    """Return a name that other commands accept: the beginning of a job's id, or SERIES/TURN."""
    return str(job["name"] if job.get("series") else job["job"][:12])


def _problem_with(told: Mapping[str, Answer], name: str, late_s: float, rounds: Mapping[str, int]) -> str:
    peer = told[name]
    match peer.get("status"):
        case "starting":
            again = f", tried again after it failed ({peer['ended']})" if peer.get("failed") else ""
            return f"not ready yet, {peer['up_s']:.0f} s after its start{again}"
        case "running":
            return peer.get("snapshot", {}).get("twin", "") or _late(told, name, late_s) or _behind(peer, rounds)
        case "waiting":
            return f"down, will be started again ({peer['ended']})"
        case "given-up":
            return f"given up ({peer['ended']})"
    return _DOWN.get(peer.get("status", ""), "down")


def _late(told: Mapping[str, Answer], name: str, late_s: float) -> str:
    """Return which neighbours a peer has not linked to in time; neighbours must have been up for as long as well."""
    peer = told[name]
    if peer["up_s"] <= late_s:
        return ""
    snapshot = peer.get("snapshot", {})
    if "members" not in snapshot:
        return f"does not report its state: {snapshot.get('error', 'it cannot be asked')}"
    away = [
        member["name"]
        for member in snapshot["members"]
        if member["linked"] and member["status"] != "alive"
        if told.get(member["name"], {}).get("up_s", 0.0) > late_s
        if told[member["name"]]["status"] != "paused"
    ]
    return f"late: not linked to {first_few(away, 3)} after {peer['up_s']:.0f} s" if away else ""


def _behind(peer: Answer, rounds: Mapping[str, int]) -> str:
    for job in peer.get("snapshot", {}).get("jobs", ()):
        if job["phase"] not in OVER and rounds[job["job"]] - job["round"] >= _BEHIND:
            return f"behind: round {job['round']} of job {_named(job)}, others are at {rounds[job['job']]}"
    return ""


def is_down(peer: Answer) -> bool:
    """Return True if a peer failed and is down, or is being started again after a failure."""
    status = peer.get("status")
    return status in ("given-up", "waiting") or (status == "starting" and bool(peer.get("failed")))


def how(peer: Answer) -> str:
    """Return the state of a peer that was started and is not running yet, to append to a line; empty if it runs."""
    if is_down(peer):
        words = {"given-up": "given up", "waiting": "will be tried again", "starting": "is being tried again"}
        why = f": {peer['last_line']}" if peer["last_line"] else ""
        return f"; {words[peer['status']]}: {peer['ended']}{why}"
    return "; not ready yet" if peer.get("status") == "starting" else ""


def show(peers: Mapping[str, Answer]) -> Group:
    """Return the table for people, followed by a line for each peer with a problem."""
    from rich.console import Group  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    numbers = ("pid", "restarts", "linked", "round")
    columns = ("peer", "class", "host", "status", "pid", "up since", "restarts", "linked", "job", "round")
    shown = table(columns, right=numbers)
    for name, peer in peers.items():
        linked = "" if peer["linked"] is None else f"{peer['linked']} of {peer['neighbours']}"
        at = "" if peer["round"] is None else f"{peer['phase']} {peer['round']}"
        since = "" if peer["since"] is None else f"{datetime.fromisoformat(peer['since']):%m-%d %H:%M:%S}"
        shown.add_row(
            name, peer["class"], peer["host"], Text(peer["status"], style=_STYLES.get(peer["status"], "")),
            f"{peer['pid'] or ''}", since, f"{peer['restarts']}", linked, peer["job"], at,
        )  # fmt: skip
    troubled = [
        ": ".join(filter(None, (name, peer["trouble"], peer["last_line"])))
        for name, peer in peers.items()
        if peer["trouble"]
    ]
    return Group(shown, *(Text(line, style="bold red") for line in troubled))
