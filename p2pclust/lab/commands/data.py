"""``p2pclust data``: list data sets, download them, and split one among peers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from p2pclust.cli.show.options import (
    AsJson,
    Decimal,
    Header,
    MissingCodes,
    SchemaFile,
    Thousands,
    argument,
    column,
    columns_of,
    flag,
    given_schema,
    group,
    how_read,
    key_values,
    option,
)
from p2pclust.cli.show.output import note, put_json, stderr, stdout, table
from p2pclust.data import SCHEMES, DataSet, deal, load, split_columns
from p2pclust.data.registry import cache_in_words
from p2pclust.errors import UsageError
from p2pclust.lab.data.fetch import OnProgress
from p2pclust.lab.data.fetch import fetch as fetch_one
from p2pclust.lab.data.listing import listing
from p2pclust.lab.data.shares import holdings, peer_names, write_shares
from p2pclust.lab.pictures.canvas import save
from p2pclust.lab.pictures.shares import split_figure
from p2pclust.protocols.engine.random_streams import splitting

FORMATS = (".png", ".svg", ".pdf")

app = group("""List data sets, download them, and split one among peers.

\b
Example:
  p2pclust data list
  p2pclust data fetch xclara
  p2pclust data split xclara --scheme dirichlet --beta 0.5 --peers 8 --out parts
""")


@app.command(name="list", short_help="List the data sets.")
def list_(as_json: AsJson = False) -> None:
    """List the data sets: built in, generated, already fetched, or to be fetched from public sources.

    \b
    Example:
      p2pclust data list
    """
    found = listing()
    if as_json:
        put_json({"folder": cache_in_words(), "data": [asdict(item) for item in found]})
        return
    numbers = ("rows", "columns", "classes", "groups")
    columns = ("name", *numbers, "here", "size", "what")
    rows = (
        (item.name, *(f"{getattr(item, name) or '-'}" for name in numbers), item.here, item.size, item.title)
        for item in found
    )
    console = stdout()
    console.print(table(columns, rows, right=(*numbers, "size"), wrap=("what",), gap=2))
    console.print(f"\nhere: in {cache_in_words()}; p2pclust data fetch NAME gets what is not", soft_wrap=True)


@app.command(short_help="Download data sets and check them.")
def fetch(
    names: Annotated[list[str], argument("NAME...", "Data sets of the list.")],
    to: Annotated[Path | None, option("DIR", "The folder; default $P2PCLUST_DATA, or the user's cache.")] = None,
    given: Annotated[
        Path | None, option("PATH", "A file or folder that was downloaded elsewhere: no network.", "--from")
    ] = None,
    unverified: Annotated[
        bool, flag("--unverified", "Download files without a known checksum, too; later ones must equal them.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Download data sets from public sources, check them, and store each as NAME.npz.

    A download that broke off continues when you run the command again. A file with a wrong checksum is refused. A file
    without a known checksum is downloaded only with --unverified; every later download must equal the first.

    \b
    Example:
      p2pclust data fetch xclara s-set1 --to data
      p2pclust data fetch femnist --from leaf/data/femnist/data/all_data
    """
    if given is not None and len(names) > 1:
        raise UsageError(f"--from is for one data set, and {len(names)} were named")
    done = []
    for name in names:
        with _progress() as show:
            found = fetch_one(name, to=to, given=given, unverified=unverified, on_progress=show)
        done.append({"name": found.name, "file": str(found.file), "new": found.new})
        word = f"fetched {found.name}:" if found.new else f"{found.name} is here already:"
        note(f"{word} {found.file}")
    if as_json:
        put_json({"data": done})


@contextmanager
def _progress() -> Iterator[OnProgress]:
    console = stderr()
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        tasks: dict[str, Any] = {}

        def show(name: str, there: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total)
            bars.update(tasks[name], completed=there, total=total)

        yield show


@app.command(short_help="Share a data set out among peers, a file for each.")
def split(
    source: Annotated[str, argument("SOURCE", "A data set's name, a file, or a folder of files.")],
    out: Annotated[Path, option("DIR", "An empty or new folder.")],
    overwrite: Annotated[bool, flag("--overwrite", "Replace the files of an earlier split there.")] = False,
    scheme: Annotated[
        str, option("SCHEME", "iid, dirichlet, labels, distance, by-group, by-file; or vertical: by columns.")
    ] = "iid",
    peers: Annotated[int | None, option("N", "How many; by-group and by-file: default one per group or file.")] = None,
    beta: Annotated[
        float | None, option("X", "For dirichlet and distance: the smaller, the more peers differ.")
    ] = None,
    labels_per_peer: Annotated[int | None, option("N", "For labels: classes of each peer.")] = None,
    location: Annotated[
        list[str] | None, option("X,Y,...", "For distance: the location of a peer; once per peer, default drawn.")
    ] = None,
    widths: Annotated[str | None, option("N,N,...", "For vertical: columns of each peer; default even.")] = None,
    seed: Annotated[int, option("N", "The split equals that of a scenario with this seed.")] = 0,
    picture: Annotated[Path | None, option("FILE.png", "Draw the rows of each peer; also .svg, .pdf.")] = None,
    option: Annotated[list[str] | None, option("KEY=VALUE", "Of a generated data set; may be repeated.")] = None,
    columns: Annotated[str | None, option("NAME,...", "For files: the features, by names or numbers from 1.")] = None,
    label_column: Annotated[str | None, option("NAME", "For files: the labels' column.")] = None,
    group_column: Annotated[str | None, option("NAME", "For files: the groups' column.")] = None,
    id_column: Annotated[str | None, option("NAME", "For files: the column of the rows' ids.")] = None,
    missing_values: Annotated[
        str | None,
        option("error|drop|keep", "For files: refuse a missing value (default), leave its row out, or keep it."),
    ] = None,
    decimal: Decimal = None,
    thousands: Thousands = None,
    missing_codes: MissingCodes = None,
    header: Header = None,
    schema: SchemaFile = None,
    as_json: Annotated[bool, flag("--json", "Print the manifest as one JSON object.")] = False,
) -> None:
    """Split a data set among peers: write one NPZ file for each, a manifest, and a picture of the split.

    \b
    Example:
      p2pclust data split digits --scheme dirichlet --beta 0.5 --peers 8 --seed 1 --out parts
      p2pclust data split digits --scheme labels --labels-per-peer 3 --peers 8 --out by-label --picture by-label.png
      p2pclust data split gaussian-grid --option beta=0.1 --scheme by-group --out parts
      p2pclust data split pendigits --scheme vertical --widths 1,2,3,4,6 --out parts
    """
    if picture is not None and picture.suffix.lower() not in FORMATS:
        raise UsageError(f"--picture {picture}: expected a name that ends with {', '.join(FORMATS)}")
    options = key_values("--option", option, "noise=1.5")
    rows = load(
        source, label_column=column(label_column), group_column=column(group_column), id_column=column(id_column),
        columns=columns_of(columns), missing_values=missing_values or "error", options=options,
        how_read=how_read(decimal, thousands, missing_codes, header), schema=given_schema(schema),
    )  # fmt: skip
    settings = {
        "beta": beta, "labels_per_peer": labels_per_peer,
        "locations": [_numbers("--location", place) for place in location] if location else None,
        "widths": [int(width) for width in _numbers("--widths", widths, whole=True)] if widths else None,
    }  # fmt: skip
    shares = _shares(rows, scheme, peers, settings, seed)
    held = holdings(rows, peer_names(len(shares)), shares, vertical=scheme == "vertical")
    made = {"source": source, "scheme": scheme, "seed": seed, "options": options}
    made |= {key: value for key, value in settings.items() if value is not None}
    title = f"{rows.name}: {scheme}, {len(shares)} peers, seed {seed}"
    # Drawn first, so that a missing library leaves no files behind.
    drawn = None if picture is None else split_figure(held, title, data=rows, shares=shares)
    manifest = write_shares(out, rows, shares, held, made, overwrite=overwrite)
    if picture is not None and drawn is not None:
        save(drawn, picture)
    by_class = held.what == "rows" and bool(held.columns)
    numbers = (held.what, "classes", "largest class") if by_class else (held.what,)
    shown = table(("peer", *numbers, *(["which"] if held.what == "features" else [])), right=numbers, gap=2)
    for peer, (name, size, counts) in enumerate(zip(held.peers, held.sizes, held.counts, strict=True)):
        cells = [name, str(size)]
        if by_class:
            cells += [str(held.held[peer]), f"{held.columns[int(counts.argmax())]} ({counts.max() / size:.0%})"]
        elif held.what == "features":
            cells.append(", ".join(title for title, n in zip(held.columns, counts, strict=True) if n))
        shown.add_row(*cells)
    console = stderr() if as_json else stdout()
    console.print(shown)
    dropped = f", {rows.dropped} left out for a missing value" if rows.dropped else ""
    console.print(f"{rows.n_rows} rows, {rows.n_features} features{dropped}: {out}", soft_wrap=True)
    if as_json:
        put_json(manifest)


def _shares(rows: DataSet, scheme: str, peers: int | None, settings: dict[str, Any], seed: int) -> Any:
    if scheme != "vertical" and scheme not in SCHEMES:
        raise UsageError(f"--scheme {scheme}: expected {', '.join(SCHEMES)}, vertical")
    if seed < 0:
        raise UsageError(f"--seed {seed}: expected 0 or more")
    widths = settings["widths"]
    own = {key: value for key, value in settings.items() if key != "widths"}
    for key, value in own.items() if scheme == "vertical" else [("widths", widths)]:
        if value is not None:
            raise UsageError(f"partition {scheme!r}: has no option {key}")
    if scheme == "vertical":
        peers = peers or (widths and len(widths))
    elif peers is None and scheme in ("by-group", "by-file") and rows.group is not None:
        peers = len(np.unique(rows.group))
    if peers is None:
        raise UsageError("--peers is missing: give the number of peers")
    if scheme == "vertical":
        return split_columns(rows.n_features, peers, widths)
    return deal(rows, peers, scheme, splitting(seed), **own)


def _numbers(what: str, text: str, *, whole: bool = False) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise UsageError(f"{what} {text}: expected numbers with commas between them") from error
    if whole and not all(number.is_integer() for number in numbers):
        raise UsageError(f"{what} {text}: expected whole numbers")
    return numbers
