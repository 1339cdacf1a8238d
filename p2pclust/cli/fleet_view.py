"""How the peers of an inventory are, from what their supervisors and they themselves say."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from p2pclust.errors import FleetError

if TYPE_CHECKING:
    from rich.console import Group

    from p2pclust.fleet.inventory import Inventory

__all__ = ["judge", "show"]

_BEHIND = 2  # rounds: an aggregator is one ahead of those that it waits for
_STYLES = {"running": "green", "starting": "yellow", "waiting": "bold red", "given-up": "bold red", "leaving": "yellow"}


def judge(
    inventory: Inventory, answers: Mapping[str, Mapping[str, Any] | FleetError]
) -> dict[str, dict[str, Any]]:  # fmt: skip
    """Put together what is known of every device of the inventory.

    Parameters
    ----------
    inventory : Inventory
    answers : mapping
        Per host what it answered to ``status``, or why it did not.

    Returns
    -------
    dict
        By device: ``host``, ``class``, ``status``, ``pid``, ``since``, ``restarts``, ``linked`` (how many peers it sees,
        None where it does not say), ``job`` and ``round``, ``last_line`` (of one that is down), and ``trouble``: what is not
        well with it, empty if all is.
    """
    peers = {}
    for device in inventory.devices:
        answer = answers[device.host]
        told: Mapping[str, Any] = {} if isinstance(answer, FleetError) else answer["peers"].get(device.name, {})
        status = "unreachable" if isinstance(answer, FleetError) else told.get("status", "absent")
        down = status not in ("running", "starting")
        peers[device.name] = {
            "host": device.host,
            "class": device.group,
            "status": status,
            "pid": told.get("pid") or None,
            "since": told.get("since") or None if told.get("pid") else None,
            "restarts": told.get("restarts", 0),
            "says": told.get("says", ""),
            "ended": told.get("ended", ""),
            "last_line": told.get("last_line", "") if down else "",
            "trouble": _trouble(status, told, inventory.late_s),
        }
    return peers


def _trouble(status: str, told: Mapping[str, Any], late_s: float) -> str:
    if status == "running":
        return ""
    if status == "starting":
        up_s = float(told.get("up_s", 0.0))
        return f"late: not ready after {up_s:.0f} s" if up_s > late_s else ""
    if status == "waiting":
        return f"down, will be started again ({told['ended']})"
    if status == "given-up":
        return f"given up ({told['ended']})"
    return "its host cannot be reached" if status == "unreachable" else "down"


def show(peers: Mapping[str, Mapping[str, Any]]) -> Group:
    """Return the table for people, and below it one line for each peer that is not well."""
    from rich.console import Group  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from p2pclust.cli.live import table  # noqa: PLC0415

    columns = ("peer", "class", "host", "status", "pid", "up since", "restarts")
    shown = table(*((name, "right" if name in ("pid", "restarts") else "left") for name in columns))
    for name, peer in peers.items():
        shown.add_row(
            name, peer["class"], peer["host"], Text(peer["status"], style=_STYLES.get(peer["status"], "")),
            f"{peer['pid'] or ''}", _clock(peer["since"]), f"{peer['restarts']}",
        )  # fmt: skip
    troubled = {name: peer for name, peer in peers.items() if peer["trouble"]}
    return Group(shown, *(Text(_line(name, peer), style="bold red") for name, peer in troubled.items()))


def _line(name: str, peer: Mapping[str, Any]) -> str:
    return f"{name}: {peer['trouble']}" + (f": {peer['last_line']}" if peer["last_line"] else "")


def _clock(since: str | None) -> str:
    return "" if since is None else datetime.fromisoformat(since).strftime("%m-%d %H:%M:%S")
