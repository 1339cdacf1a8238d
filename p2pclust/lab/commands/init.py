"""``p2pclust init``: begin with a file of one's own."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from p2pclust.cli.show.options import AsJson
from p2pclust.cli.show.output import note, put_json, stderr, stdout
from p2pclust.cli.show.output import table as table_of
from p2pclust.errors import UsageError
from p2pclust.lab.commands import own_file
from p2pclust.tools.spelling import command, counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from p2pclust.data.table import TextRows
    from p2pclust.lab.data.prepare import Prepared, Wishes
    from p2pclust.lab.data.survey import ColumnSurvey

_SHOWN = 40  # columns in the table
_ROWS_EACH = 10  # if rows are dealt out by chance, and no number of devices is given


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Your rows: CSV, Parquet, NPZ, NPY or ARFF.")],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A new or empty folder; default the file's name without its end.")
    ] = None,
    split_by: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The column that says which device a row is of; default by its name."),
    ] = None,
    devices: Annotated[
        int | None, typer.Option(metavar="N", help="Deal the rows out to so many devices; default 4, of few rows 2.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="The features; default all columns that can be.")
    ] = None,
    omit: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Columns that are not features, such as true labels.")
    ] = None,
    id_column: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column that names the rows; default by its values.")
    ] = None,
    missing_values: Annotated[
        str | None,
        typer.Option(
            metavar="drop|omit|NUMBER",
            help="Leave out rows with a missing value (default), or columns with one, or put this number there.",
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            metavar="omit|encode", help="Leave out text (default), or make each of its values a column of 0 and 1."
        ),
    ] = None,
    clusters: Annotated[
        int | None, typer.Option(metavar="K", min=1, help="The number of clusters; default as `choose` proposes.")
    ] = None,
    port: Annotated[
        int,
        typer.Option(metavar="PORT", min=1, max=65000, help="The port of the first device in fleet.toml."),
    ] = 7001,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Of the split, the proposal and the scenario.")] = 0,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing, even on a terminal.")] = False,
    as_json: AsJson = False,
) -> None:
    """Begin with your own file: write a scenario, an inventory and the devices' files into a folder.

    Shows what the columns hold and what is done with text and missing values, and prints the commands that come next. On a
    terminal it asks for what no option says; otherwise it takes the defaults. The file itself is not changed.

    \b
    Examples:
      p2pclust init meters.csv
      p2pclust init meters.csv --split-by site --missing-values 0 --text encode --clusters 4 --out mine
    """
    from p2pclust.lab.data.prepare import Wishes, prepare  # noqa: PLC0415 - imports NumPy
    from p2pclust.lab.data.survey import read_table, survey  # noqa: PLC0415
    from p2pclust.protocols.engine.random_streams import splitting  # noqa: PLC0415

    if split_by is not None and devices is not None:
        raise UsageError("--split-by and --devices: a column says how many devices there are: leave one of them out")
    folder = out or Path(file.stem)
    own_file.check_new(folder)
    table = read_table(file)
    found = survey(table)
    people = stderr() if as_json else stdout()
    _show_columns(people, file, table, found)
    asks = not yes and not as_json and sys.stdin.isatty()
    wishes = Wishes(
        split_by=split_by, devices=devices or max(2, min(4, len(table.rows) // _ROWS_EACH)), id_column=id_column,
        columns=_names(columns), omit=_names(omit) or (), missing=_missing(missing_values), text=_text(text),
    )  # fmt: skip
    wishes = _defaults(wishes, found, len(table.rows), dealt=devices is not None)
    if asks:
        given = {"split": split_by or devices, "missing": missing_values, "text": text}
        wishes = _asked(wishes, found, [what for what, value in given.items() if value is None])
    prepared = prepare(table, wishes, splitting(seed))
    for line in (*prepared.notes, *own_file.too_few(prepared)):
        people.print(f"  {line}", soft_wrap=True)
    for line in own_file.doubtful_fills(prepared):
        note(f"warning: {line}", style="yellow")
    chosen = (
        own_file.NumberOfClusters(clusters, "as asked")
        if clusters is not None
        else _proposed(prepared, seed, asks=asks)
    )
    files = own_file.write(folder, file, prepared, chosen, seed, port)
    steps = _next(folder, prepared, chosen.clusters)
    _show_end(people, folder, prepared, chosen, steps)
    if as_json:
        n_rows = {name: len(rows) for name, rows in prepared.devices.items()}
        put_json({
            "folder": str(folder), "files": [str(written) for written in files], "features": list(prepared.features),
            "id_column": prepared.id_column, "missing_values": prepared.missing_values, "devices": n_rows,
            "clusters": chosen.clusters, "reason": chosen.reason, "notes": list(prepared.notes),
            "next": [step for _, step in steps],
        })  # fmt: skip


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _missing(text: str | None) -> str | float:
    if text is None or text in ("drop", "omit"):
        return text or "drop"
    from p2pclust.data.columns import read_column  # noqa: PLC0415

    found = read_column([text])
    if found.kind != "numbers" or found.values[0] != found.values[0]:
        raise UsageError(f"--missing-values {text}: expected drop, omit or a number")
    return float(found.values[0])


def _text(text: str | None) -> str:
    if text not in (None, "omit", "encode"):
        raise UsageError(f"--text {text}: expected omit or encode")
    return text or "omit"


def _defaults(wishes: Wishes, found: Sequence[ColumnSurvey], n_rows: int, *, dealt: bool) -> Wishes:
    """Fill in the columns that names and values give away."""
    from p2pclust.lab.data.survey import probable_id, probable_labels, probable_split  # noqa: PLC0415

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


def _asked(wishes: Wishes, found: Sequence[ColumnSurvey], open_: Sequence[str]) -> Wishes:
    """Ask for what no option says, and only where the file leaves a choice."""
    if "split" in open_:
        question = "Which column says which device a row is of? Or a number of devices"
        answer = typer.prompt(question, default=wishes.split_by or str(wishes.devices), err=True)
        names = [column.name for column in found]
        by_number = answer not in names and answer.isascii() and answer.isdigit()
        wishes = replace(wishes, split_by=None, devices=int(answer)) if by_number else replace(wishes, split_by=answer)
    if "missing" in open_ and any(column.n_missing for column in found):
        question = "Missing values: drop their rows, omit their columns, or put a number there?"
        wishes = replace(wishes, missing=_missing(typer.prompt(question, default="drop", err=True)))
    apart = (wishes.split_by, wishes.id_column, *wishes.omit)
    if "text" in open_ and any(column.kind == "text" and column.name not in apart for column in found):
        wishes = replace(wishes, text=_text(typer.prompt("Columns of text: omit or encode?", default="omit", err=True)))
    return wishes


def _proposed(prepared: Prepared, seed: int, *, asks: bool) -> own_file.NumberOfClusters:
    note("trying 1 to 10 clusters (--clusters K spares this)", style="dim")
    chosen = own_file.propose(prepared, seed)
    if asks:
        answer = typer.prompt(f"How many clusters? {chosen.reason}", default=chosen.clusters, type=int, err=True)
        chosen = chosen if answer == chosen.clusters else own_file.NumberOfClusters(answer, "as asked")
    return chosen


def _next(folder: Path, prepared: Prepared, clusters: int) -> list[tuple[str, str]]:
    """Return the commands that come next, each with what it does."""
    names = list(prepared.devices)
    scenario, inventory, keys = folder / "scenario.toml", folder / "fleet.toml", folder / "keys"
    more = " ..." if len(names) > 8 else ""
    peer = folder / "state" / "peers" / names[0] / "state"
    gate = () if own_file.measurable(prepared) else ("--no-gate",)
    job = (own_file.PROTOCOL, "--clusters", clusters, "--scaling", "minmax", "--peer", peer, "--wait")
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
    shown = table_of(("column", "read as", "missing", "values", "such as"), right=("missing", "values"))
    for column in found[:_SHOWN]:
        examples = ", ".join(value[:20] for value in column.values[:3])
        shown.add_row(column.name, column.how, str(column.n_missing), str(len(column.values)), examples)
    people.print(shown)
    if len(found) > _SHOWN:
        people.print(f"and {len(found) - _SHOWN} more columns")
    if headless := table.no_header:
        people.print(headless, soft_wrap=True)
    people.print()


def _show_end(
    people: Console,
    folder: Path,
    prepared: Prepared,
    chosen: own_file.NumberOfClusters,
    steps: Sequence[tuple[str, str]],
) -> None:
    sizes = [len(rows) for rows in prepared.devices.values()]
    more = " ..." if len(prepared.features) > 12 else ""
    features = f"{counted(len(prepared.features), 'features')}: {', '.join(prepared.features[:12])}{more}"
    people.print(f"\n{features}", soft_wrap=True)
    rows = f"{min(sizes)} rows each" if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)} rows"
    people.print(f"{len(sizes)} devices with {rows}", soft_wrap=True)
    people.print(f"{chosen.clusters} clusters: {chosen.reason}", soft_wrap=True)
    people.print(f"\nwritten to {folder}: scenario.toml, fleet.toml, rows/, devices/\n", soft_wrap=True)
    for what, step in steps:
        if what:
            people.print(f"# {what}", style="dim", soft_wrap=True)
        people.print(step, soft_wrap=True)
