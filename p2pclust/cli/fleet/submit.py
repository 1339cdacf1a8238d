"""``p2pclust protocols``, ``submit``, ``watch`` and ``cancel``: control the jobs of a fleet of running peers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import MISSING
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from p2pclust.cli.fleet import operate
from p2pclust.cli.show.options import AsJson, Serve, argument, flag, option
from p2pclust.cli.show.output import note, put, put_json, stderr, stdout
from p2pclust.errors import FleetError, UsageError
from p2pclust.tools.distribution import laboratory
from p2pclust.tools.spelling import command, counted, nearest

if TYPE_CHECKING:
    from rich.console import Console

    from p2pclust.hosts.client import Connection
    from p2pclust.jobs.submission import Submission

_FLAGS = ("--secure", "--no-secure", "--wait", "--json")  # the options that take no value
_SWITCHES = ("true", "false", "yes", "no", "on", "off")  # what people write after them
_SECURED = ". With secure sums: the totals of all peers, and nothing of a single one"


def protocols(as_json: AsJson = False) -> None:
    """List the clustering protocols: what each peer reveals, and when it stops.

    \b
    Example:
      p2pclust protocols
    """
    from p2pclust.protocols.engine.compose import cluster_job, clustering_class  # noqa: PLC0415 - imports NumPy
    from p2pclust.protocols.engine.registry import clusterings, package_of, parameters_of  # noqa: PLC0415

    listed: list[dict[str, Any]] = []
    for name in clusterings():
        one: dict[str, Any] = {"id": name, "package": package_of(name)}
        listed.append(one)
        try:
            kind = clustering_class(name)
        except UsageError as error:
            one |= {"what": "cannot be used", "reveals": str(error), "stops": "", "secure": False}
            continue
        parameters, secure = parameters_of(kind), False
        with suppress(UsageError):
            cluster_job(name, n_clusters=2 if "n_clusters" in parameters else None, scaling="minmax", secure=True)
            secure = True
        one |= {
            "what": (kind.__doc__ or "").strip().partition("\n")[0],
            "reveals": kind.reveals or "not declared",
            "stops": kind.stops + (", or after max_rounds" if "max_rounds" in parameters else ""),
            "secure": secure,
            "parameters": {key: None if value is MISSING else value for key, value in parameters.items()},
        }
    if as_json:
        put_json({"protocols": listed})
        return
    from rich.table import Table  # noqa: PLC0415

    shown = Table(box=None, padding=(0, 3, 1, 0), pad_edge=False, header_style="dim", expand=True)
    for heading, ratio in (("id", None), ("what it is", 2), ("what a peer reveals", 3), ("it stops when", 1)):
        shown.add_column(heading, ratio=ratio, no_wrap=heading == "id")
    for one in listed:
        by = f" ({one['package']})" if one["package"] else ""
        shown.add_row(one["id"], one["what"] + by, one["reveals"] + _SECURED * one["secure"], one["stops"])
    stdout().print(shown)


def submit(
    context: typer.Context,
    protocol: Annotated[str, argument("PROTOCOL", "See `p2pclust protocols`.")],
    clusters: Annotated[int | None, option("K", "Number of clusters, unless the protocol finds it.")] = None,
    scaling: Annotated[
        str | None, option("none|minmax|zscore", "Working coordinates, computed by the federation.")
    ] = None,
    roster: Annotated[
        str | None, option("NAME,...", "The peers that take part; default all that are alive.", "--roster")
    ] = None,
    missing: Annotated[
        str | None, option("all|wait|drop", "What to do about a peer that does not answer; default wait.")
    ] = None,
    patience_s: Annotated[
        float | None, option("SECONDS", "For wait and all: patience_s of a scenario.", "--patience")
    ] = None,
    deadline_s: Annotated[float | None, option("SECONDS", "For drop: deadline_s of a scenario.", "--deadline")] = None,
    collect: Annotated[str | None, option("star|tree|gossip", "How contributions are combined.")] = None,
    every: Annotated[
        str | None,
        option(
            "DURATION",
            "Repeat it after a pause (90s, 15m, 1h; at least 1s), from the last centers, on newly read rows.",
        ),
    ] = None,
    secure: Annotated[
        bool | None,
        flag(
            "--secure/--no-secure", "Secure sums: no peer sees what a single other one contributes; default as below."
        ),
    ] = None,
    verify: Annotated[
        str | None, option("all", "Which peers make each state again before they adopt it; default none.")
    ] = None,
    seed: Annotated[int | None, option("N", "Seed of all random numbers of the job; default 0.")] = None,
    request_id: Annotated[
        str | None, option("NAME", "Your name for this submission: if it is repeated, it is the same job.", "--id")
    ] = None,
    within: Annotated[
        float, option("SECONDS", "How long to wait until a majority has the job on disk.", min=0.1)
    ] = 60.0,
    wait: Annotated[bool, flag("--wait", "Wait for the end of the job, as `watch` does.")] = False,
    peer: operate.PeerOption = None,
    bundle: operate.BundleOption = None,
    fleet_roster: operate.RosterOption = None,
    as_json: operate.JsonOption = False,
) -> None:
    """Submit a job, and return when a majority of its roster has it on disk: after that no crash loses it.

    Prints the job's id, or for a repeated job that of its series, which every command accepts. Any other parameter of
    [[jobs]] in a scenario is an option of the same name with the same checks: --fuzzifier 1.5, --max-rounds 50, --init
    uniform, --bounds "[[0, 1], [0, 5]]". A peer that is offline receives the job when it returns.

    llf-cm, llf-fcm, vertical-cm and vertical-fcm have secure sums where at least four peers take part; --no-secure is
    secure = false of a scenario. Parameters of secure sums are --keepers, --cohort, --colluders, --burnt, --leave and
    --groups. Without --roster, a job that two or three peers run plain for that reason has these peers as its roster.

    If no answer comes, the job may have been submitted nevertheless. A submission with --id can be repeated at the same
    peer: as long as that peer keeps the job, the answer is that job, and no second one begins.

    \b
    Examples:
      p2pclust submit llf-fcm --clusters 3 --scaling minmax
      p2pclust submit llf-cm --clusters 10 --tol 1e-4 --missing all --wait
      p2pclust submit llf-cm --clusters 3 --cohort 5
      p2pclust submit llf-cm --clusters 3 --verify all
      p2pclust submit llf-fcm --clusters 3 --every 1h
      p2pclust submit llf-fcm --clusters 3 --id readings-2026-05-01
      p2pclust submit fedcref --mode refined --roster meter-01,meter-02,meter-03
    """
    given = _given(context, roster, secure)
    spec = _checked_for_any_fleet(given)
    with operate.client_of(peer, bundle, fleet_roster) as client:
        named = _submitted(client, given, spec, within, request_id or "")
        first = f"{named}/1" if spec.every else named
        ended = _watched(client, first, None, None if as_json else stderr()) if wait else None
    if as_json:
        put_json({**({} if ended is None else ended), "job": named})
    else:
        typer.echo(named)
    if ended is not None:
        raise typer.Exit(_code(ended))


def _given(context: typer.Context, roster: str | None, secure: bool | None) -> dict[str, Any]:
    """Return the keys of the job that a command line gives: those of its own options, and its parameters."""
    from p2pclust.jobs.job_keys import SecureSpec  # noqa: PLC0415
    from p2pclust.jobs.submission import Submission  # noqa: PLC0415

    # Options that are named as keys of a job are these keys.
    keys = {key: value for key, value in context.params.items() if key in Submission.model_fields}
    given: dict[str, Any] = {key: value for key, value in keys.items() if value is not None and key != "secure"}
    if roster is not None:
        given["roster"] = [name.strip() for name in roster.split(",") if name.strip()]
    more = parameters(context.args)
    if secure is not None:
        given["secure"] = secure
    if secure is not False and (table := {name: more.pop(name) for name in SecureSpec.model_fields if name in more}):
        given["secure"] = table
    return given | more


def _checked_for_any_fleet(given: Mapping[str, Any]) -> Submission:
    """Refuse, before a peer is asked, what is wrong with any number of peers."""
    from p2pclust.jobs.secured import UnfitForSumsError  # noqa: PLC0415
    from p2pclust.jobs.submission import request_from  # noqa: PLC0415
    from p2pclust.protocols.secure.parameters import LEAST_PEERS  # noqa: PLC0415

    try:
        return request_from(given, LEAST_PEERS)[1]
    except UnfitForSumsError:
        return request_from(given, LEAST_PEERS - 1)[1]


def _submitted(
    client: Connection, given: Mapping[str, Any], spec: Submission, within_s: float, request_id: str
) -> str:  # fmt: skip
    """Submit a job for the peers that take part; return its id when a majority of them has it on disk."""
    from p2pclust.clustering.kernels import AUTO  # noqa: PLC0415
    from p2pclust.hosts import submission  # noqa: PLC0415
    from p2pclust.jobs.secured import readers, too_few  # noqa: PLC0415
    from p2pclust.jobs.submission import request_from  # noqa: PLC0415

    def has_id(named: str, names: Sequence[str]) -> None:
        note(f"submitted {named} for {counted(len(names), 'peers')}: {', '.join(names)}")

    width = submission.n_features_at(client) if spec.bounds is not None and len(spec.bounds) == 1 else 1
    names = spec.roster or submission.alive_at(client)
    request, spec = request_from(given, len(names), width)
    own_roster = spec.roster or ()
    if few := too_few(spec.protocol, spec.secure, len(names)):
        own_roster = names  # the peer would add others that have come meanwhile, and more peers have secure sums
    if problem := submission.problem_with_floor(client, request, len(names)):
        note(f"warning: {problem}", style="yellow")
    if spec.kernel == AUTO:
        request = submission.with_common_kernel(client, request, own_roster)
    named = submission.submit(client, request, own_roster, within_s, has_id, request_id)
    note("accepted: a majority has it on disk")
    if few:
        note(readers(spec.protocol, len(names)))
    return named


def parameters(words: Sequence[str]) -> dict[str, Any]:
    """Return the parameters in the remaining words of a command line: ``--name value``, or ``--name=value``.

    >>> parameters(["--max-rounds", "50", "--init=careful", "--bounds", "[[0, 1]]"])
    {'max_rounds': 50, 'init': 'careful', 'bounds': [[0, 1]]}
    """
    from p2pclust.jobs.toml_files import toml_value  # noqa: PLC0415

    given: dict[str, Any] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        name, equals, text = word.partition("=")
        if not name.startswith("--") or len(name) < 3:
            flags = f"; {', '.join(_FLAGS[:-1])} and {_FLAGS[-1]} take no value: write --secure alone"
            hint = flags if word.lower() in _SWITCHES else ""
            raise UsageError(f"submit: {word!r}: expected --PARAMETER VALUE{hint}")
        if not equals:
            if not left or left[0].startswith("--"):
                near = nearest(name, _FLAGS)
                raise UsageError(f"submit: {name} needs a value" + (f" (did you mean {near}?)" if near else ""))
            text = left.pop(0)
        key = name.removeprefix("--").replace("-", "_")
        if key in given:
            raise UsageError(f"submit: {name} is given twice")
        given[key] = toml_value(text)
    return given


def watch(
    job: Annotated[
        str | None, argument("[JOB]", f"{operate.JOB_HELP} With --serve it may be omitted: the newest one.")
    ] = None,
    within: Annotated[float | None, option("SECONDS", "Stop watching after this time.", min=0.0)] = None,
    peer: Annotated[
        list[str] | None, option("ADDRESS", f"{operate.ADDRESS_HELP} With --serve it may be repeated.", "--peer")
    ] = None,
    bundle: operate.BundleOption = None,
    roster: operate.RosterOption = None,
    serve: Serve = None,
    inventory: Annotated[
        Path | None, option("INVENTORY.toml", "With --serve: ask the peers of this inventory.")
    ] = None,
    as_json: operate.JsonOption = False,
) -> None:
    """Show the progress of a job, as one peer sees it, until it ends; with --serve the whole fleet, until Ctrl-C.

    For a series this is the running turn, or else the newest one. With --serve a page in the browser shows all peers and
    their jobs as the peer sees them that is asked; if it does not answer, the next one is asked. Name several with --peer,
    or an inventory: of its devices those are asked that run on this machine or have a control address. The page never
    shows rows or centers.

    Exits with 0 if the job was done, with 3 if it failed, was cancelled, or is still running after --within.

    \b
    Examples:
      p2pclust watch job-3f2a
      p2pclust watch job-3f2a --within 60 --json
      p2pclust watch series-3f2a
      p2pclust watch --serve --peer a/state --peer b/state
      p2pclust watch --serve 10.0.0.1:7480 --inventory fleet.toml --bundle me.bundle
    """
    if serve is not None:
        if as_json or within is not None:
            raise UsageError("watch: --serve shows a page until Ctrl-C: omit --json and --within")
        laboratory("commands.served", "watch --serve").serve_fleet(serve, job, peer or [], bundle, roster, inventory)
        return
    if job is None:
        raise UsageError("watch: name a JOB, or add --serve")
    if inventory is not None or len(peer or []) > 1:
        what = "--inventory" if inventory is not None else "more than one --peer"
        raise UsageError(f"watch: {what} goes with --serve only")
    with operate.client_of(peer[0] if peer else None, bundle, roster) as client:
        ended = _watched(client, job, within, None if as_json else stdout())
    if as_json:
        put_json(ended)
    raise typer.Exit(_code(ended))


def _code(ended: Mapping[str, Any]) -> int:
    return 0 if ended["outcome"] == "done" else FleetError.exit_code


def _watched(client: Connection, job: str, within_s: float | None, console: Console | None) -> dict[str, Any]:
    """Follow a job; show its events as lines, or on a terminal the rounds in one changing line. Return its end."""
    from p2pclust.hosts.events import job_lines  # noqa: PLC0415

    ended: dict[str, Any] = {"job": job, "outcome": "unknown", "reason": "it continues", "events": []}
    with console.status("") if console is not None and console.is_terminal else nullcontext() as live:
        line_of = job_lines(by_round=live is None)
        for event in client.follow("watch", in_all_s=float("inf") if within_s is None else within_s, job=job):
            ended["job"] = event["job"] if event["verb"] == "standing" else ended["job"]
            ended["events"].append(event)
            if live is not None and event["verb"] in ("phase", "mixing", "averaged", "combined"):
                live.update(line_of(event))
            elif console is not None and (line := line_of(event)):
                console.print(f"{datetime.now():%H:%M:%S} {line}", soft_wrap=True)
            if "outcome" in event:
                ended |= {"outcome": event["outcome"], "reason": event["reason"], "round": event["round"]}
                ended |= {name: event[name] for name in ("secured", "exposed") if name in event}
    return ended


def cancel(
    job: operate.JobArgument,
    within: Annotated[
        float, option("SECONDS", "How long to wait until the fleet has agreed on the end.", min=0.1)
    ] = 60.0,
    peer: operate.PeerOption = None,
    bundle: operate.BundleOption = None,
    roster: operate.RosterOption = None,
    as_json: operate.JsonOption = False,
) -> None:
    """Cancel a job in the whole fleet: the peers agree on the end of the job.

    Waits for that end. Exits with 3 if the job has ended in another way, or if there is no majority to agree; then the
    peers keep the request, and end the job when a majority is back. For a repeated job this ends the whole series.

    \b
    Examples:
      p2pclust cancel job-3f2a
      p2pclust cancel series-3f2a
    """
    answer: dict[str, Any] = {"job": job, "outcome": "unknown", "reason": ""}
    with operate.client_of(peer, bundle, roster) as client:
        for told in client.follow("cancel", within_s=within, job=job):
            answer |= told
    late = answer["outcome"] in ("done", "failed") or answer.get("late", False)
    named = answer.get("series") or answer["job"]
    if as_json:
        put_json(answer)
    elif answer["outcome"] == "unknown":
        raise FleetError(
            f"{named}: requested, but after {within:g} s the fleet has not agreed on the end: it will when a majority of "
            f"its roster is present; `{command('p2pclust', 'watch', named)}` waits for it"
        )
    elif late:
        raise FleetError(f"{named}: too late, it has already ended: {answer['reason'] or answer['outcome']}")
    else:
        put(f"{named}: {answer['reason']}")
    raise typer.Exit(0 if answer["outcome"] == "cancelled" and not late else FleetError.exit_code)
