"""``p2pclust init``: begin with a file of one's own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from p2pclust.cli.show.options import AsJson, argument, option
from p2pclust.cli.show.output import note, put_json, stderr, stdout
from p2pclust.errors import UsageError

_ROWS_EACH = 10  # if rows are dealt out by chance, and no number of devices is given


def init(
    file: Annotated[Path, argument("FILE", "Your rows: CSV, Parquet, NPZ, NPY or ARFF.")],
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
      p2pclust init meters.csv --split-by site --missing-values 0 --text encode --clusters 4 --out mine
    """
    from p2pclust.lab.commands import own_file as own  # noqa: PLC0415
    from p2pclust.lab.data.prepare import Wishes, prepare  # noqa: PLC0415 - imports NumPy
    from p2pclust.lab.data.survey import read_table, survey  # noqa: PLC0415
    from p2pclust.protocols.engine.random_streams import splitting  # noqa: PLC0415

    if split_by is not None and devices is not None:
        raise UsageError("--split-by and --devices: a column says how many devices there are: leave one of them out")
    folder = out or Path(file.stem)
    own.check_new(folder)
    table = read_table(file)
    found = survey(table)
    people = stderr() if as_json else stdout()
    own.show_columns(people, file, table, found)
    asks = not yes and not as_json and sys.stdin.isatty()
    wishes = Wishes(
        split_by=split_by, devices=devices or max(2, min(4, len(table.rows) // _ROWS_EACH)), id_column=id_column,
        columns=own.names_in(columns), omit=own.names_in(omit) or (), missing=own.missing_of(missing_values),
        text=own.text_of(text),
    )  # fmt: skip
    wishes = own.with_defaults(wishes, found, len(table.rows), dealt=devices is not None)
    if asks:
        options = {"split": split_by or devices, "missing": missing_values, "text": text}
        wishes = own.with_answers(wishes, found, [what for what, value in options.items() if value is None])
    prepared = prepare(table, wishes, splitting(seed))
    for line in (*prepared.notes, *own.too_few(prepared)):
        people.print(f"  {line}", soft_wrap=True)
    for line in own.doubtful_fills(prepared):
        note(f"warning: {line}", style="yellow")
    given = None if clusters is None else own.NumberOfClusters(clusters, "as asked")
    chosen = given or own.proposed(prepared, seed, asks=asks)
    files = own.write(folder, file, prepared, chosen, seed, port)
    steps = own.next_steps(folder, prepared, chosen.clusters)
    own.show_end(people, folder, prepared, chosen, steps)
    if as_json:
        n_rows = {name: len(rows) for name, rows in prepared.devices.items()}
        put_json({
            "folder": str(folder), "files": [str(written) for written in files], "features": list(prepared.features),
            "id_column": prepared.id_column, "missing_values": prepared.missing_values, "devices": n_rows,
            "clusters": chosen.clusters, "reason": chosen.reason, "notes": list(prepared.notes),
            "next": [step for _, step in steps],
        })  # fmt: skip
