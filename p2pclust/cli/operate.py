"""``p2pclust status`` and the other commands that ask a running peer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from p2pclust.cli.output import people, put_json

__all__ = ["BundleOption", "JsonOption", "PeerOption", "RosterOption", "door_of", "status"]

PeerOption = Annotated[
    str | None,
    typer.Option(
        "--peer",
        metavar="ADDRESS",
        help="Which peer to ask: its state directory or the socket in it, or NAME@HOST:PORT of its door on the network. "
        "Default $P2PCLUST_DOOR, or state/door.",
    ),
]
BundleOption = Annotated[
    Path | None,
    typer.Option(
        "--bundle", metavar="FILE", help="Your key, where the door is on the network; default $P2PCLUST_BUNDLE."
    ),
]
RosterOption = Annotated[
    Path | None,
    typer.Option("--fleet-roster", metavar="FILE", help="The fleet's roster.json; default beside the bundle."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def door_of(peer: str | None, bundle: Path | None, roster: Path | None) -> Any:
    """Return the door that the options name: `p2pclust.fleet.asking.Door`."""
    from p2pclust.fleet.asking import DEFAULT, ENVIRONMENT, Door  # noqa: PLC0415

    named = os.environ.get("P2PCLUST_BUNDLE")
    key = bundle if bundle is not None else Path(named) if named else None
    return Door(peer or os.environ.get(ENVIRONMENT) or DEFAULT, key, roster)


def status(
    peer: PeerOption = None, bundle: BundleOption = None, roster: RosterOption = None, as_json: JsonOption = False
) -> None:
    """Show what a running peer knows of itself, of the others and of its jobs.

    \b
    Examples:
      p2pclust status
      p2pclust status --peer /var/lib/p2pclust/meter-01
      p2pclust status --peer meter-02@10.0.0.2:7400 --bundle me.bundle --json
    """
    with door_of(peer, bundle, roster) as door:
        told = door.ask("status")
    if as_json:
        put_json(told)
        return
    _show(told)


def _show(told: Mapping[str, Any]) -> None:
    console, fleet = people(), told["fleet"]
    console.print(
        f"{told['peer']} at {told['address']}, p2pclust {told['version']}, up {_duration(told['uptime_s'])}, "
        f"{told['rss_mb']:.0f} MB; {fleet['alive']} of {fleet['enrolled']} peers here (roster {fleet['serial']})"
    )
    if told["waiting"]:
        console.print(f"no majority: {told['waiting']}, {fleet['majority']} are needed")
    console.print(_table(["peer", "status", "heard", "why"], [_member_row(member) for member in told["members"]]))
    jobs = [job for job in told["jobs"] if not job["within"]]
    if jobs:
        console.print(_table(["job", "protocol", "round", "phase", "aggregator", "waits for"], map(_job_row, jobs)))
    else:
        console.print("no jobs")


def _member_row(member: Mapping[str, Any]) -> list[str]:
    heard = "never" if member["heard_s"] is None else f"{_duration(member['heard_s'])} ago"
    return [member["name"], member["status"], heard, member["why"]]


def _job_row(job: Mapping[str, Any]) -> list[str]:
    waits = ", ".join(job["waits_for"][:4]) + (f" and {len(job['waits_for']) - 4} more" if job["waits_for"][4:] else "")
    return [job["job"], job["protocol"], str(job["round"]), job["phase"], job["aggregator"], job["reason"] or waits]


def _table(columns: list[str], rows: Any) -> Any:
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _duration(seconds: float) -> str:
    """Say a duration in the unit that fits it.

    Examples
    --------
    >>> _duration(0.4), _duration(75), _duration(7300), _duration(200_000)
    ('0.4 s', '1 min 15 s', '2 h 1 min', '2 d 7 h')
    """
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, hours = int(seconds // 60), int(seconds // 3600)
    if minutes < 60:
        return f"{minutes} min {int(seconds % 60)} s"
    return f"{hours} h {minutes % 60} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"
