"""``p2pclust init``: begin with a file of one's own.

It writes the rows of each device, a scenario, an inventory, and the peers' configurations.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import typer
from rich.console import Console

from p2pclust.choose.trials import choose_clusters
from p2pclust.cli.show.options import AsJson, Decimal, Header, MissingCodes, Thousands, argument, how_read, option
from p2pclust.cli.show.output import note, put_json, stderr, stdout
from p2pclust.cli.show.output import table as table_of
from p2pclust.data.columns import read_column
from p2pclust.data.dataset import DataSet, fills_outside
from p2pclust.data.readers import kind_and_stem
from p2pclust.data.table import TextRows
from p2pclust.errors import UsageError
from p2pclust.hosts.inventory import peer_toml
from p2pclust.lab.data.prepare import Prepared, Wishes, prepare, write_device
from p2pclust.lab.data.survey import ColumnSurvey, probable_id, probable_labels, probable_split, read_table, survey
from p2pclust.protocols.engine.privacy import LEAST_ROWS
from p2pclust.protocols.engine.random_streams import splitting
from p2pclust.protocols.measuring.measure import Measure
from p2pclust.protocols.secure.parameters import LEAST_PEERS
from p2pclust.tools.spelling import command, counted

_ROWS_EACH: Final = 10  # if rows are dealt out by chance, and no number of devices is given
_SHOWN: Final = 40  # columns in the table
_PROTOCOL: Final = "llf-cm"
_TRIED: Final = range(1, 11)
_RESTARTS: Final = 2
_MOST_ROWS: Final = 4000  # of all devices together; more rows hardly change the proposal, and take long
_LEAST_ROWS_EACH: Final = 10
_FLOOR: Final = "each device refuses plain jobs of llf-* and vertical-* (privacy = { secure = true })"
_NO_FLOOR: Final = (
    f"fewer than {LEAST_PEERS} devices: jobs run without secure sums, and no device has a floor ([privacy])"
)


def init(
    file: Annotated[
        Path, argument("FILE", "Your rows: CSV, Parquet, NPZ, NPY or ARFF, or a folder with a file for each device.")
    ],
    out: Annotated[
        Path | None, option("DIR", "A new or empty folder; default the file's name without its end.")
    ] = None,
    split_by: Annotated[
        str | None, option("COLUMN", "The column that says which device a row is of; default by its name.")
    ] = None,
    devices: Annotated[
        int | None, option("N", "Deal the rows out to so many devices; default 4, of few rows 2.")
    ] = None,
    columns: Annotated[str | None, option("NAME,...", "The features; default all columns that can be.")] = None,
    omit: Annotated[str | None, option("NAME,...", "Columns that are not features, such as true labels.")] = None,
    id_column: Annotated[str | None, option("COLUMN", "The column that names the rows; default by its values.")] = None,
    missing_values: Annotated[
        str | None,
        option(
            "drop|omit|NUMBER",
            "Leave out rows with a missing value (default), or columns with one, or put this number there.",
        ),
    ] = None,
    text: Annotated[
        str | None, option("omit|encode", "Leave out text (default), or make each of its values a column of 0 and 1.")
    ] = None,
    decimal: Decimal = None,
    thousands: Thousands = None,
    missing_codes: MissingCodes = None,
    header: Header = None,
    clusters: Annotated[int | None, option("K", "The number of clusters; default as `choose` proposes.", min=1)] = None,
    port: Annotated[int, option("PORT", "The port of the first device in fleet.toml.", min=1, max=65000)] = 7001,
    seed: Annotated[int, option("N", "Of the split, the proposal and the scenario.", min=0)] = 0,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing, even on a terminal.")] = False,
    as_json: AsJson = False,
) -> None:
    """Begin with your own file: write a scenario, an inventory and the devices' files into a folder.

    Shows what the columns hold and what is done with text and missing values, and prints the commands that come next. On a
    terminal it asks for what no option says; otherwise it takes the defaults. The file itself is not changed.

    \b
    Examples:
      p2pclust init meters.csv
      p2pclust init meters/
      p2pclust init meters.csv --split-by site --missing-values 0 --text encode --clusters 4 --out mine
    """
    if split_by is not None and devices is not None:
        raise UsageError("--split-by and --devices: a column says how many devices there are: leave one of them out")
    folder = out or Path(f"{file.resolve().name}-fleet" if file.is_dir() else kind_and_stem(file)[1])
    _check_new(folder)
    table = read_table(file, how_read(decimal, thousands, missing_codes, header))
    found = survey(table)
    people = stderr() if as_json else stdout()
    _show_columns(people, file, table, found)
    named, omitted = (
        None if text is None else [name.strip() for name in text.split(",") if name.strip()] for text in (columns, omit)
    )
    wishes = Wishes(
        split_by=split_by, devices=devices or max(2, min(4, len(table.rows) // _ROWS_EACH)), id_column=id_column,
        columns=named, omit=omitted or (), missing=_missing_of(missing_values), text=_text_of(text),
    )  # fmt: skip
    wishes = _with_defaults(wishes, found, len(table.rows), dealt=devices is not None)
    asks = not yes and not as_json and sys.stdin.isatty()
    if asks:
        options = {"split": split_by or devices, "missing": missing_values, "text": text}
        wishes = _with_answers(wishes, found, [what for what, value in options.items() if value is None])
    prepared = prepare(table, wishes, splitting(seed))
    _show_prepared(people, prepared)
    n_clusters, reason = (clusters, "as asked") if clusters is not None else _proposed(prepared, seed, asks=asks)
    files = _write(folder, file, prepared, n_clusters, seed, port)
    steps = _next_steps(folder, prepared, n_clusters)
    _show_written(people, folder, prepared, f"{n_clusters} clusters: {reason}", steps)
    if as_json:
        put_json({
            "folder": str(folder), "files": [str(written) for written in files], "features": list(prepared.features),
            "id_column": prepared.id_column, "missing_values": prepared.missing_values,
            "devices": {name: len(rows) for name, rows in prepared.devices.items()},
            "clusters": n_clusters, "reason": reason, "notes": list(prepared.notes), "next": [step for _, step in steps],
        })  # fmt: skip


def _proposed(prepared: Prepared, seed: int, *, asks: bool) -> tuple[int, str]:
    """Propose a number of clusters as ``p2pclust choose`` does, from the rows of all devices, or from some of each; ask.

    Everything is computed in this process; peers whose rows are few are measured too, since no row leaves this machine.
    Return the number, and in a sentence where it comes from.
    """
    note("trying 1 to 10 clusters (--clusters K spares this)", style="dim")
    rows = [prepared.matrix(own) for own in prepared.devices.values()]
    n_rows = sum(map(len, rows))
    step = max(1, -(-n_rows // _MOST_ROWS))
    arrays = [own[:: min(step, max(1, len(own) // _LEAST_ROWS_EACH))] for own in rows]
    together = len(np.unique(np.concatenate(arrays), axis=0))
    tried = range(_TRIED.start, min(_TRIED.stop, together))
    if len(tried) < 3:
        n_clusters, reason = min(2, together), f"there are only {together} different rows"
    else:
        found = choose_clusters(
            arrays, _PROTOCOL, tried, restarts=_RESTARTS, random_state=seed, scaling="minmax", measure_gate=False,
            suppress_singletons=False,
        )  # fmt: skip
        of = f" (from {sum(map(len, arrays))} of {n_rows} rows)" if step > 1 else ""
        n_clusters, reason = max(2, found.recommended), found.reason + of
    if asks:
        answer = typer.prompt(f"How many clusters? {reason}", default=n_clusters, type=int, err=True)
        n_clusters, reason = (n_clusters, reason) if answer == n_clusters else (answer, "as asked")
    return n_clusters, reason


def _missing_of(text: str | None) -> str | float:
    """Return what is done with missing values: drop, omit, or the number that is put there."""
    if text is None or text in ("drop", "omit"):
        return text or "drop"
    found = read_column([text])
    if found.kind != "numbers" or found.values[0] != found.values[0]:
        raise UsageError(f"--missing-values {text}: expected drop, omit or a number")
    return float(found.values[0])


def _text_of(text: str | None) -> str:
    if text not in (None, "omit", "encode"):
        raise UsageError(f"--text {text}: expected omit or encode")
    return text or "omit"


def _with_defaults(wishes: Wishes, found: Sequence[ColumnSurvey], n_rows: int, *, dealt: bool) -> Wishes:
    """Fill in the columns that names and values give away."""
    free = [column for column in found if column.name not in (*(wishes.columns or ()), *wishes.omit)]
    if wishes.columns is None:
        wishes = replace(wishes, labels=probable_labels(free))
        free = [column for column in free if column.name not in wishes.labels]
    if wishes.split_by is None and not dealt:
        wishes = replace(wishes, split_by=probable_split(free, n_rows))
    if wishes.id_column is None:
        free = [column for column in free if column.name != wishes.split_by]
        wishes = replace(wishes, id_column=probable_id(free, n_rows))
    return wishes


def _with_answers(wishes: Wishes, found: Sequence[ColumnSurvey], open_: Sequence[str]) -> Wishes:
    """Ask for what no option says, and only where the file leaves a choice."""
    if "split" in open_:
        question = "Which column says which device a row is of? Or a number of devices"
        answer = typer.prompt(question, default=wishes.split_by or str(wishes.devices), err=True)
        names = [column.name for column in found]
        by_number = answer not in names and answer.isascii() and answer.isdigit()
        wishes = replace(wishes, split_by=None, devices=int(answer)) if by_number else replace(wishes, split_by=answer)
    if "missing" in open_ and any(column.n_missing for column in found):
        question = "Missing values: drop their rows, omit their columns, or put a number there?"
        wishes = replace(wishes, missing=_missing_of(typer.prompt(question, default="drop", err=True)))
    apart = (wishes.split_by, wishes.id_column, *wishes.omit)
    if "text" in open_ and any(column.kind == "text" and column.name not in apart for column in found):
        wishes = replace(
            wishes, text=_text_of(typer.prompt("Columns of text: omit or encode?", default="omit", err=True))
        )
    return wishes


def _next_steps(folder: Path, prepared: Prepared, clusters: int) -> list[tuple[str, str]]:
    """Return the commands that come next, each with what it does."""
    names = list(prepared.devices)
    scenario, inventory, keys = folder / "scenario.toml", folder / "fleet.toml", folder / "keys"
    more = " ..." if len(names) > 8 else ""
    peer = folder / "state" / "peers" / names[0] / "state"
    # Without it, `choose` measures up to 10 clusters at devices with rows enough only.
    needed = Measure(compare_up_to=_TRIED.stop - 1).rows_needed(_TRIED.start, len(prepared.features))
    few = any(len(prepared.matrix(rows)) < needed for rows in prepared.devices.values())
    gate = ("--no-gate",) if few else ()
    job = (_PROTOCOL, "--clusters", clusters, "--scaling", "minmax", "--peer", peer, "--wait")
    return [
        ("run it as processes on this machine", command("p2pclust", "run", scenario, "--out", folder / "run")),
        ("look at other numbers of clusters", command("p2pclust", "choose", scenario, "--clusters", "1-10", *gate)),
        ("as a fleet that stays: its keys", command("p2pclust", "keys", "init", keys)),
        ("", f"{command('p2pclust', 'keys', 'device', *names[:8])}{more} {command('--fleet', keys)}"),
        ("start it", command("p2pclust", "fleet", "up", inventory)),
        ("hand in the job", command("p2pclust", "submit", *job)),
        ("look at its centers (the only job whose id begins so)", command("p2pclust", "result", "job-", "--peer", peer)),
        ("end it", command("p2pclust", "fleet", "down", inventory)),
    ]  # fmt: skip


def _show_columns(people: Console, file: Path, table: TextRows, found: Sequence[ColumnSurvey]) -> None:
    people.print(f"{file}: {counted(len(table.rows), 'rows')}, {counted(len(found), 'columns')}\n", soft_wrap=True)
    rows = (
        (one.name, one.how, f"{one.n_missing}", f"{len(one.values)}", ", ".join(value[:20] for value in one.values[:3]))
        for one in found[:_SHOWN]
    )
    people.print(table_of(("column", "read as", "missing", "values", "such as"), rows, right=("missing", "values")))
    if len(found) > _SHOWN:
        people.print(f"and {len(found) - _SHOWN} more columns")
    if headless := table.no_header:
        people.print(headless, soft_wrap=True)
    people.print()


def _show_prepared(people: Console, prepared: Prepared) -> None:
    """Say what was done with the columns, and warn of rows or of a fill that are probably not as meant."""
    for line in prepared.notes:
        people.print(f"  {line}", soft_wrap=True)
    if few := [name for name, rows in prepared.devices.items() if len(prepared.matrix(rows)) < LEAST_ROWS]:
        what = f"with fewer than {LEAST_ROWS} complete rows a device sends nothing, as its sums would show them"
        people.print(f"  {', '.join(few)}: {what}", soft_wrap=True)
    if isinstance(prepared.missing_values, Mapping):
        X = np.array([[float(cell or "nan") for cell in prepared.cells[name]] for name in prepared.features]).T
        filled = np.isnan(X)
        rows = np.where(filled, prepared.missing_values["fill"], X)
        for line in fills_outside([DataSet("rows", rows, feature_names=prepared.features, filled=filled)]):
            note(f"warning: {line}", style="yellow")


def _show_written(
    people: Console, folder: Path, prepared: Prepared, clusters: str, steps: Sequence[tuple[str, str]]
) -> None:
    """Show the fleet that was written, and the commands that come next."""
    n_rows = [len(rows) for rows in prepared.devices.values()]
    least, most = min(n_rows), max(n_rows)
    more = " ..." if len(prepared.features) > 12 else ""
    for line in (
        f"\n{counted(len(prepared.features), 'features')}: {', '.join(prepared.features[:12])}{more}",
        f"{len(n_rows)} devices with " + (f"{least} rows each" if least == most else f"{least} to {most} rows"),
        clusters,
        _FLOOR if len(n_rows) >= LEAST_PEERS else _NO_FLOOR,
        f"\nwritten to {folder}: scenario.toml, fleet.toml, rows/, devices/\n",
    ):
        people.print(line, soft_wrap=True)
    for what, step in steps:
        if what:
            people.print(f"# {what}", style="dim", soft_wrap=True)
        people.print(step, soft_wrap=True)


def _check_new(out: Path) -> None:
    """Refuse a folder that has something in it, before much is computed."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"--out {out}: it exists and is not an empty folder: choose another one")


def _write(out: Path, source: Path, prepared: Prepared, n_clusters: int, seed: int, port: int) -> list[Path]:
    """Write all files into a new or empty folder; return them in the order in which people look at them."""
    _check_new(out)
    ports = {name: port + number for number, name in enumerate(prepared.devices)}
    # How a file of rows is read: scenarios, inventories and peers have these keys in common.
    reading = {
        "columns": list(prepared.features), "id_column": prepared.id_column, "missing_values": prepared.missing_values,
    }  # fmt: skip
    written_by = command("p2pclust", "init", Path(source.name))
    written_by = "".join(letter if letter.isprintable() else "?" for letter in written_by)  # in one line of a comment
    scenario = (
        f"# Written by `{written_by}`; every value may be changed. The rows of a device are in rows/.\n"
        + peer_toml({"title": f"{source.name} on {len(ports)} devices", "seed": seed})
        + "\n[data]\n# One file for each device, in the order of the devices below.\n"
        + peer_toml({"files": [f"rows/{name}.csv" for name in ports]} | reading)
        + "# By the federated protocol: each device sends the ranges of its columns, and no row.\n"
        + peer_toml({"scaling": "minmax"})
        + '\n[fleet]\ntiming = "fast"    # all devices on this machine; on real links "default" or "wan"\n'
        + "".join(f"\n[[fleet.devices]]\n{peer_toml({'name': name})}" for name in ports)
        + "\n[[jobs]]\n"
        + peer_toml({"protocol": _PROTOCOL, "clusters": n_clusters})
        + f"\n[expect]\nfinished_at_least = {len(ports)}\nidentical_centers = true\n"
    )
    floor = {"privacy": {"secure": True}} if len(ports) >= LEAST_PEERS else {}
    devices = [{"name": name, "port": own, "data": f"rows/{name}.csv"} for name, own in ports.items()]
    inventory = (
        f"# Written by `{written_by}`: all devices on this machine. For other machines give each device a\n"
        "# host, and `send = true` to copy its rows there.\n"
        + peer_toml({"keys": "keys", "state_dir": "state", "settings": reading | floor})
        + "".join(f"\n[[devices]]\n{peer_toml(device)}" for device in devices)
    )
    made = [out / "scenario.toml", out / "fleet.toml"]
    try:
        for folder in (out / "rows", out / "devices"):
            folder.mkdir(parents=True, mode=0o700)
        made[0].write_text(scenario, encoding="utf-8")
        made[1].write_text(inventory, encoding="utf-8")
        for name, rows in prepared.devices.items():
            made += [out / "rows" / f"{name}.csv", out / "devices" / f"{name}.toml"]
            write_device(made[-2], prepared, rows)
            others = [f"{other}@127.0.0.1:{own}" for other, own in ports.items() if other != name]
            files = {"bundle": f"../keys/{name}.bundle", "state_dir": f"../state-{name}", "data": f"../rows/{name}.csv"}
            # For `p2pclust peer --config`, for one who starts the peers by hand.
            made[-1].write_text(
                "# Written by `p2pclust init`. On a device of its own, change `listen` and `join` to addresses of the "
                "network.\n"
                + peer_toml({"name": name, "listen": f"127.0.0.1:{ports[name]}", "join": others[:2]})
                + peer_toml(files)
                + peer_toml(reading | floor),
                encoding="utf-8",
            )
    except OSError as error:
        raise UsageError(f"--out {out}: cannot be written ({error.strerror}): choose another folder") from None
    return made
