"""What all commands that ask a running peer share, and those that only show: ``status``, ``peers``, ``jobs``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from p2pclust.cli.show.output import put_json, stdout
from p2pclust.errors import UsageError

if TYPE_CHECKING:
    from p2pclust.fleet.hosts.client import Connection

__all__ = [
    "BundleOption", "JobArgument", "JsonOption", "PeerOption", "RosterOption", "door_of", "duration_of", "jobs", "name_of",
    "peers", "status", "table_of",
]  # fmt: skip

_OVER = ("done", "failed", "cancelled")
_LAST = 3  # jobs that ended, which `status` shows
_LONGEST_REASON = 60

_ADDRESS = (
    "Which peer to ask: its state directory, the folder with state/ in it, or the socket; or NAME@HOST:PORT of its door on "
    "the network. Default $P2PCLUST_DOOR, or state/door."
)
PeerOption = Annotated[str | None, typer.Option("--peer", metavar="ADDRESS", help=_ADDRESS)]
BundleOption = Annotated[
    Path | None,
    typer.Option("--bundle", metavar="FILE", help="Your key, for a door on the network; default $P2PCLUST_BUNDLE."),
]
RosterOption = Annotated[
    Path | None,
    typer.Option("--fleet-roster", metavar="FILE", help="The fleet's roster.json; default beside the bundle."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
_JOB = (
    "The job's id, or as much of it as is unique; of a repeated job that of its series, or SERIES/3 for its third turn."
)
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help=_JOB)]


def door_of(peer: str | None, bundle: Path | None, roster: Path | None) -> Connection:
    """Return the door that the options name."""
    from p2pclust.fleet.hosts.client import DEFAULT, ENVIRONMENT, Connection  # noqa: PLC0415

    named = os.environ.get("P2PCLUST_BUNDLE")
    key = bundle if bundle is not None else Path(named) if named else None
    return Connection(peer or os.environ.get(ENVIRONMENT) or DEFAULT, key, roster)


def status(
    peer: PeerOption = None, bundle: BundleOption = None, roster: RosterOption = None, as_json: JsonOption = False
) -> None:
    """Show what a running peer knows of itself, of the others and of its jobs: those that go on, and the last few.

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
    console, fleet, data = stdout(), told["fleet"], told["data"]
    console.print(
        f"{told['peer']} at {told['address']}, p2pclust {told['version']}, up {duration_of(told['uptime_s'])}, "
        f"{told['rss_mb']:.0f} MB; {fleet['alive']} of {fleet['enrolled']} peers here (roster {fleet['serial']})",
        soft_wrap=True,
    )
    console.print(
        f"its data cannot be used: {data['problem']}" if data["problem"] else
        f"its data: {data['rows']} rows of {data['columns']} columns",
        soft_wrap=True,
    )  # fmt: skip
    if told["waiting"]:
        console.print(f"no majority: {told['waiting']}, {fleet['majority']} are needed", soft_wrap=True)
    console.print(table_of(["peer", "status", "heard", "why"], map(_member_row, told["members"])))
    _show_newest(_own(told["jobs"]))


def peers(
    peer: Annotated[
        list[str] | None, typer.Option("--peer", metavar="ADDRESS", help=_ADDRESS + " May be repeated.")
    ] = None,
    bundle: BundleOption = None,
    roster: RosterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show whom a running peer sees, and why not the others; of several peers, who sees whom.

    A peer knows its own view only. Give --peer several times to see the views of several peers side by side.

    \b
    Examples:
      p2pclust peers
      p2pclust peers --peer a/state --peer b/state
    """
    views = []
    addresses: list[str | None] = [*peer] if peer else [None]
    for address in addresses:
        with door_of(address, bundle, roster) as door:
            views.append(door.ask("status"))
    if as_json:
        put_json({"views": [{"peer": view["peer"], "members": view["members"]} for view in views]})
        return
    console = stdout()
    if len(views) > 1:
        console.print(_matrix(views))
    for view in views:
        if len(views) == 1:
            console.print(
                f"as {view['peer']} sees it; each peer has a view of its own (--peer shows another's)", soft_wrap=True
            )
            columns = ["peer", "status", "incarnation", "address", "heard", "why"]
            console.print(table_of(columns, ([*_row(m)] for m in view["members"])))
            continue
        for member in view["members"]:
            if member["why"]:
                console.print(
                    f"{view['peer']} about {member['name']}: {member['status']}: {member['why']}", soft_wrap=True
                )


def jobs(
    job: Annotated[str | None, typer.Argument(metavar="JOB", help="Only this one: its id, or its series.")] = None,
    peer: PeerOption = None,
    bundle: BundleOption = None,
    roster: RosterOption = None,
    every: Annotated[bool, typer.Option("--all", help="Also those that a round of another job wants.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the jobs that a running peer takes part in: where each stands, for whom it waits, how it ended.

    Of a repeated job the last two turns are listed, as SERIES/TURN.

    \b
    Examples:
      p2pclust jobs
      p2pclust jobs series-3f2a
      p2pclust jobs --peer meter-02@10.0.0.2:7400 --bundle me.bundle
    """
    from p2pclust.fleet.hosts.submission import drift, result_of  # noqa: PLC0415

    with door_of(peer, bundle, roster) as door:
        told = door.ask("status")
        listed = told["jobs"] if every else _own(told["jobs"])
        if job is not None:
            listed = _named(listed, job, told["peer"])
        for one in listed:
            if one["series"] and one["number"] and one["phase"] == "done":
                with contextlib.suppress(UsageError):  # forgotten meanwhile: a newer turn has taken its place
                    one["drift"] = drift(result_of(door, one["job"]))
    if as_json:
        put_json({"peer": told["peer"], "jobs": listed})
    else:
        _show_jobs(listed)


def _own(listed: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [job for job in listed if not job["within"]]


def _named(listed: Iterable[dict[str, Any]], named: str, peer: str) -> list[dict[str, Any]]:
    """Return the jobs of that name: one, or the turns of a series."""
    names = (named, f"job-{named}", f"series-{named}")
    found = [job for job in listed if job["job"].startswith(names) or name_of(job).startswith(names)]
    if not found:
        raise UsageError(f"{peer} does not know the job: {named!r:.80}: `p2pclust jobs` lists what it knows")
    return found


def _show_newest(listed: Sequence[Mapping[str, Any]]) -> None:
    """Show the jobs that go on and the last that ended, with the beginnings of long reasons, and say how many are older."""
    over = [job for job in listed if job["phase"] in _OVER]
    older = {job["job"]: None for job in over[:-_LAST]}
    shown = [{**job, "reason": _cut(job["reason"])} for job in listed if job["job"] not in older]
    _show_jobs(shown)
    if older:
        stdout().print(f"and {len(older)} older: `p2pclust jobs` lists all", soft_wrap=True)


def _cut(reason: str) -> str:
    return reason if len(reason) <= _LONGEST_REASON else reason[:_LONGEST_REASON].rstrip() + " ..."


def _show_jobs(listed: Sequence[Mapping[str, Any]]) -> None:
    console = stdout()
    if not listed:
        console.print("no jobs")
        return
    console.print(
        table_of(["job", "protocol", "round", "phase", "aggregator", "waits for, or why"], map(_job_row, listed))
    )


def _job_row(job: Mapping[str, Any]) -> list[str]:
    waits = ", ".join(job["waits_for"][:4]) + (f" and {len(job['waits_for']) - 4} more" if job["waits_for"][4:] else "")
    turn = f"turn {job['number'] + 1} of every {duration_of(job['every_s'])}" if job["series"] else ""
    if by := job.get("series_cancelled_by"):
        turn += f", series cancelled by {by}"
    elif job["next_s"] is not None:
        turn += f", the next in {duration_of(job['next_s'])}"
    why = "; ".join(filter(None, [job["reason"] or waits, turn, drift_of(job)]))
    return [name_of(job), job["protocol"], str(job["round"]), job["phase"], job["aggregator"], why]


def name_of(job: Mapping[str, Any]) -> str:
    """What commands show and take: a job's id, or the series of a repeated one and its turn."""
    return f"{job['series']}/{job['number'] + 1}" if job["series"] else str(job["job"])


def drift_of(job: Mapping[str, Any]) -> str:
    """Say how far the centers of a repeated job moved since the turn before."""
    return f"centers moved {job['drift']['frobenius']:.3g} since the last" if job.get("drift") else ""


def _heard(member: Mapping[str, Any]) -> str:
    return "never" if member["heard_s"] is None else f"{duration_of(member['heard_s'])} ago"


def _member_row(member: Mapping[str, Any]) -> list[str]:
    return [member["name"], member["status"], _heard(member), member["why"]]


def _row(member: Mapping[str, Any]) -> list[str]:
    name, state, why = member["name"], member["status"], member["why"]
    return [name, state, str(member["incarnation"]), member["address"], _heard(member), why]


def _matrix(views: Sequence[Mapping[str, Any]]) -> Any:
    """One row for each peer that was asked; a dot is the peer itself."""
    names = sorted({member["name"] for view in views for member in view["members"]} | {view["peer"] for view in views})
    rows = []
    for view in views:
        sees = {member["name"]: member["status"] for member in view["members"]}
        rows.append([view["peer"], *("." if name == view["peer"] else sees.get(name, "?") for name in names)])
    return table_of(["sees", *names], rows)


def table_of(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Any:
    """Return a table as people read it, whose cells are never cut."""
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def duration_of(seconds: float) -> str:
    """Say a duration in the unit that fits it.

    Examples
    --------
    >>> duration_of(0.4), duration_of(75), duration_of(7300), duration_of(200_000)
    ('0.4 s', '1 min 15 s', '2 h 1 min', '2 d 7 h')
    """
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, hours = int(seconds // 60), int(seconds // 3600)
    if minutes < 60:
        return f"{minutes} min {int(seconds % 60)} s"
    return f"{hours} h {minutes % 60} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"
