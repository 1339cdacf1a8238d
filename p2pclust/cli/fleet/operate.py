"""``p2pclust status``, ``peers`` and ``jobs``, and what all commands that ask a running peer share."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from p2pclust.cli.show.options import argument, flag, option
from p2pclust.cli.show.output import put, put_json, stdout, table
from p2pclust.errors import UsageError
from p2pclust.tools.spelling import first_few
from p2pclust.tools.units import duration

if TYPE_CHECKING:
    from rich.table import Table

    from p2pclust.hosts.client import Connection
    from p2pclust.transport.bundle import Bundle

#: Phases of ended jobs.
OVER = ("done", "failed", "cancelled")
_LAST = 3  # ended jobs that `status` shows
_LONGEST_REASON = 60

ADDRESS_HELP = (
    "Which peer to ask: its state directory, the folder with state/ in it, or the socket; or NAME@HOST:PORT, its control "
    "address on the network. Default $P2PCLUST_CONTROL, or state/control."
)
PeerOption = Annotated[str | None, option("ADDRESS", ADDRESS_HELP, "--peer")]
BundleOption = Annotated[
    Path | None, option("FILE", "Your key, for a control address on the network; default $P2PCLUST_BUNDLE.", "--bundle")
]
RosterOption = Annotated[
    Path | None, option("FILE", "The fleet's roster.json; default beside the bundle.", "--fleet-roster")
]
InventoryOption = Annotated[
    Path | None,
    option(
        "INVENTORY.toml",
        "The fleet's inventory: --peer is then the name of a device in it; default the first that runs.",
        "--inventory",
    ),
]
JsonOption = Annotated[bool, flag("--json", "Print one JSON object and nothing else.")]
JOB_HELP = "The job's id, or a unique beginning of it; for a repeated job its series, or SERIES/3 for the third turn."
JobArgument = Annotated[str, argument("JOB", JOB_HELP)]


def client_of(
    peer: str | None, bundle: Path | None, roster: Path | None, inventory: Path | None = None
) -> Connection:  # fmt: skip
    """Return a client of the peer that the options, or else the environment, name; of an inventory, by its name there."""
    from p2pclust.hosts.client import DEFAULT, ENVIRONMENT, Connection  # noqa: PLC0415

    named = os.environ.get("P2PCLUST_BUNDLE")
    key = bundle if bundle is not None else Path(named) if named else None
    if inventory is not None:
        from p2pclust.cli.fleet.inventory import address_of, load_inventory  # noqa: PLC0415

        fleet = load_inventory(inventory, to_start=False)
        peer, roster = address_of(fleet, peer, with_key=key is not None), roster or fleet.roster
    return Connection(peer or os.environ.get(ENVIRONMENT) or DEFAULT, key, roster)


def bundle_of(bundle: Path | None) -> Bundle:
    """Return the user's own bundle, which has the fleet's public key: a device that lies could show another one."""
    from p2pclust.transport.bundle import load_bundle  # noqa: PLC0415

    named = os.environ.get("P2PCLUST_BUNDLE")
    if bundle is None and not named:
        raise UsageError("--check needs the fleet's key, which your bundle has: name it with --bundle FILE")
    return load_bundle(bundle or Path(str(named)))


def status(
    peer: PeerOption = None,
    bundle: BundleOption = None,
    roster: RosterOption = None,
    inventory: InventoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the status of a running peer: its data, how it sees the other peers, running jobs and the last few that ended.

    \b
    Examples:
      p2pclust status
      p2pclust status --peer /var/lib/p2pclust/meter-01
      p2pclust status --inventory fleet.toml --peer meter-01
      p2pclust status --peer meter-02@10.0.0.2:7400 --bundle me.bundle --json
    """
    with client_of(peer, bundle, roster, inventory) as client:
        answer = client.ask("status")
    if as_json:
        put_json(answer)
        return
    fleet, data = answer["fleet"], answer["data"]
    put(
        f"{answer['peer']} at {answer['address']}, p2pclust {answer['version']}, up {duration(answer['uptime_s'])}, "
        f"{answer['rss_mb']:.0f} MB; {fleet['alive']} of {fleet['enrolled']} peers here (roster {fleet['serial']})"
    )
    put(
        f"its data cannot be used: {data['problem']}" if data["problem"] else
        f"its data: {'at most ' if data.get('rounded') else ''}{data['rows']} rows of {data['columns']} columns"
        + (", a power of two: the exact number stays on the device" if data.get("rounded") else "")
    )  # fmt: skip
    privacy = answer.get("privacy", {})
    secure = any(privacy.get(rule) for rule in ("secure", "keep", "cohort", "private", "jobs", "rosters"))
    cell, rounds = privacy.get("min_cell"), privacy.get("least_rounds")
    asks = (
        ("with secure sums", secure),
        ("to private jobs", privacy.get("private")),
        ("where it keeps pads itself", privacy.get("keep")),
        (f"in cohorts of {privacy.get('cohort')} or more", privacy.get("cohort")),
        (f"to {', '.join(privacy.get('protocols') or ())}", privacy.get("protocols")),
        (f"clusters with {cell} of its rows or more", cell),
        ("without given centers", not privacy.get("given_centers", True)),
        (f"of {rounds} rounds or more", rounds),
        (f"in jobs, {privacy.get('jobs')}", privacy.get("jobs")),
        ("of the same peers as before", privacy.get("rosters")),
    )
    if only := ", ".join(words for words, asked in asks if asked):
        put(f"it contributes only {only}")
    if answer["waiting"]:
        put(f"no majority: {answer['waiting']}, {fleet['majority']} are needed")
    if answer["twin"]:
        put(answer["twin"])
    stdout().print(_members(answer["members"], "peer", "status", "heard", "why"))
    listed = [job for job in answer["jobs"] if not job["within"]]
    older = [job["job"] for job in listed if job["phase"] in OVER][:-_LAST]
    shown = [job for job in listed if job["job"] not in older]
    for job in shown:
        if len(job["reason"]) > _LONGEST_REASON:
            job["reason"] = job["reason"][:_LONGEST_REASON].rstrip() + " ..."
    _show_jobs(shown)
    if older:
        put(f"and {len(older)} older: `p2pclust jobs` lists all")


def peers(
    peer: Annotated[list[str] | None, option("ADDRESS", ADDRESS_HELP + " May be repeated.", "--peer")] = None,
    bundle: BundleOption = None,
    roster: RosterOption = None,
    inventory: InventoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which peers a running peer sees, and why it does not see the others.

    A peer knows its own view only. Give --peer several times to compare the views of several peers.

    \b
    Examples:
      p2pclust peers
      p2pclust peers --peer a/state --peer b/state
    """
    views = []
    addresses: list[str | None] = [*peer] if peer else [None]
    for address in addresses:
        with client_of(address, bundle, roster, inventory) as client:
            views.append(client.ask("status"))
    if as_json:
        put_json({"views": [{"peer": view["peer"], "members": view["members"]} for view in views]})
        return
    if len(views) == 1:
        view = views[0]
        put(f"the view of {view['peer']}; each peer has its own (--peer shows another one)")
        if view["twin"]:
            put(view["twin"])
        stdout().print(_members(view["members"], "peer", "status", "incarnation", "address", "heard", "why"))
        return
    names = sorted({member["name"] for view in views for member in view["members"]} | {view["peer"] for view in views})
    rows = []
    for view in views:
        sees = {member["name"]: member["status"] for member in view["members"]} | {view["peer"]: "."}
        rows.append([view["peer"], *(sees.get(name, "?") for name in names)])
    stdout().print(table_of(["sees", *names], rows))
    for view in views:
        if view["twin"]:
            put(view["twin"])
        for member in view["members"]:
            if member["why"]:
                put(f"{view['peer']} about {member['name']}: {member['status']}: {member['why']}")


def jobs(
    job: Annotated[str | None, argument("JOB", "Only this one: its id, or its series.")] = None,
    peer: PeerOption = None,
    bundle: BundleOption = None,
    roster: RosterOption = None,
    inventory: InventoryOption = None,
    every: Annotated[bool, flag("--all", "Include child jobs, which a round of another job started.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the jobs of a running peer: the progress of each, the peers that it waits for, the outcome.

    For a repeated job the last two turns are listed, as SERIES/TURN.

    \b
    Examples:
      p2pclust jobs
      p2pclust jobs series-3f2a
      p2pclust jobs --peer meter-02@10.0.0.2:7400 --bundle me.bundle
    """
    from p2pclust.hosts.submission import drift, result_of  # noqa: PLC0415

    with client_of(peer, bundle, roster, inventory) as client:
        answer = client.ask("status")
        listed = [one for one in answer["jobs"] if every or not one["within"]]
        if job is not None:  # one, or the turns of a series
            names = (job, f"job-{job}", f"series-{job}")
            listed = [one for one in listed if one["job"].startswith(names) or one["name"].startswith(names)]
            if not listed:
                raise UsageError(
                    f"{answer['peer']} does not know the job: {job!r:.80}: `p2pclust jobs` lists what it knows"
                )
        for one in listed:
            if one["series"] and one["number"] and one["phase"] == "done":
                with contextlib.suppress(UsageError):  # deleted meanwhile, for a newer turn
                    one["drift"] = drift(result_of(client, one["job"]))
    if as_json:
        put_json({"peer": answer["peer"], "jobs": listed})
    else:
        _show_jobs(listed)


def _show_jobs(listed: Sequence[Mapping[str, Any]]) -> None:
    if not listed:
        put("no jobs")
        return
    rows = []
    for job in listed:
        turn = f"turn {job['number'] + 1} of every {duration(job['every_s'])}" if job["series"] else ""
        if by := job.get("series_cancelled_by"):
            turn += f", series cancelled by {by}"
        elif job["next_s"] is not None:
            turn += f", the next in {duration(job['next_s'])}"
        exposed = f"exposed: {', '.join(job['exposed'])}" if job["exposed"] else ""
        moved = ""
        if drift := job.get("drift"):
            moved = f"centers moved by up to {100 * drift['largest']:.2g} % of a feature's {drift['of']} since the last"
        why = "; ".join(filter(None, [job["reason"] or first_few(job["waits_for"], 4), exposed, turn, moved]))
        secured = "yes" if job["secured"] else "no"
        rows.append([job["name"], job["protocol"], secured, str(job["round"]), job["phase"], job["aggregator"], why])
    columns = ("job", "protocol", "secured", "round", "phase", "aggregator", "waits for, or why")
    stdout().print(table_of(columns, rows))


def secrecy_of(job: Mapping[str, Any]) -> Iterator[str]:
    """Yield, line by line, who could read another peer's sums: whether the job was secured, and the exposed peers."""
    from p2pclust.jobs.secured import readers, too_few  # noqa: PLC0415 - imports the protocols

    if not job["secured"]:
        protocol, n_peers = job["protocol"], len(job["roster"])
        few = too_few(protocol, None, n_peers)
        received = "other peers received the contributions of single peers"
        yield f"secured: no; {readers(protocol, n_peers) if few else received}"
        return
    named = {name: value for name, value in job["secured"].items() if value not in (0, "")}
    parameters = ", ".join(f"{name} {value}" for name, value in named.items())
    yield f"secured: {parameters}; verify {job['verify'] or 'no'}; scaling {job['scaling'] or 'of its own'}"
    cohort = job["secured"]["cohort"]
    but = ", except of those that are listed as exposed" if job["exposed"] else ""
    together = {1: "no single peer that follows", 2: "no two peers together that follow"}
    peers = together.get(job["secured"]["colluders"], f"no {job['secured']['colluders']} peers together that follow")
    yield f"{peers} the protocol could read another peer's sums{but}"
    yield (
        f"exposed: {', '.join(job['exposed'])}: sums of fewer than {cohort} peers with each of them can be computed"
        if job["exposed"] else "exposed: no peer"
    )  # fmt: skip
    if job["exposed_by"]:
        yield f"beside the result, {', '.join(job['exposed_by'])} report sums that were revealed (or lie)"


def _members(members: Iterable[Mapping[str, Any]], *columns: str) -> Table:
    rows = []
    for member in members:
        heard = "never" if member["heard_s"] is None else f"{duration(member['heard_s'])} ago"
        cells = {**member, "peer": member["name"], "heard": heard}
        rows.append([str(cells[column]) for column in columns])
    return table_of(columns, rows)


def table_of(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table for people, whose cells are never cut; the first column is not wrapped, so that it can be copied."""
    return table(columns, rows, wrap=columns[1:], gap=2)
