"""What ``p2pclust init`` shows, asks and writes: the rows of each device, a scenario, an inventory, and configurations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import typer
from rich.console import Console

from p2pclust.choose.trials import choose_clusters
from p2pclust.cli.show.output import note
from p2pclust.cli.show.output import table as table_of
from p2pclust.data.columns import read_column
from p2pclust.data.dataset import DataSet, fills_outside
from p2pclust.data.table import TextRows
from p2pclust.errors import UsageError
from p2pclust.hosts.inventory import peer_toml
from p2pclust.lab.data.prepare import Prepared, Wishes, write_device
from p2pclust.lab.data.survey import ColumnSurvey, probable_id, probable_labels, probable_split
from p2pclust.protocols.engine.privacy import LEAST_ROWS
from p2pclust.protocols.measuring.measure import Measure
from p2pclust.tools.spelling import command, counted

_SHOWN: Final = 40  # columns in the table
PROTOCOL: Final = "llf-cm"
_TRIED: Final = range(1, 11)
_RESTARTS: Final = 2
_MOST_ROWS: Final = 4000  # of all devices together; more rows hardly change the proposal, and take long
_LEAST_ROWS_EACH: Final = 10


@dataclass(frozen=True)
class NumberOfClusters:
    """A number of clusters, and in a sentence where it comes from."""

    clusters: int
    reason: str


def proposed(prepared: Prepared, seed: int, *, asks: bool) -> NumberOfClusters:
    """Propose a number of clusters as ``p2pclust choose`` does, from the rows of all devices, or from some of each; ask.

    Everything is computed in this process; peers whose rows are few are measured too, since no row leaves this machine.
    """
    note("trying 1 to 10 clusters (--clusters K spares this)", style="dim")
    rows = {name: prepared.matrix(own) for name, own in prepared.devices.items()}
    n_rows = sum(map(len, rows.values()))
    step = max(1, -(-n_rows // _MOST_ROWS))
    arrays = [own[:: min(step, max(1, len(own) // _LEAST_ROWS_EACH))] for own in rows.values()]
    together = len(np.unique(np.concatenate(arrays), axis=0))
    tried = range(_TRIED.start, min(_TRIED.stop, together))
    if len(tried) < 3:
        chosen = NumberOfClusters(min(2, together), f"there are only {together} different rows")
    else:
        found = choose_clusters(
            arrays, PROTOCOL, tried, restarts=_RESTARTS, random_state=seed, scaling="minmax", measure_gate=False,
            suppress_singletons=False,
        )  # fmt: skip
        of = f" (from {sum(map(len, arrays))} of {n_rows} rows)" if step > 1 else ""
        chosen = NumberOfClusters(max(2, found.recommended), found.reason + of)
    if asks:
        answer = typer.prompt(f"How many clusters? {chosen.reason}", default=chosen.clusters, type=int, err=True)
        chosen = chosen if answer == chosen.clusters else NumberOfClusters(answer, "as asked")
    return chosen


def doubtful_fills(prepared: Prepared) -> list[str]:
    """Return a warning for each column in which the number for missing values lies outside the range of the others."""
    if not isinstance(prepared.missing_values, Mapping):
        return []
    X = np.array([[float(cell or "nan") for cell in prepared.cells[name]] for name in prepared.features]).T
    filled = np.isnan(X)
    rows = np.where(filled, prepared.missing_values["fill"], X)
    return fills_outside([DataSet("rows", rows, feature_names=prepared.features, filled=filled)])


def too_few(prepared: Prepared) -> tuple[str, ...]:
    """Return a sentence about the devices that send nothing, because sums of so few rows would show them."""
    few = [name for name, rows in prepared.devices.items() if len(prepared.matrix(rows)) < LEAST_ROWS]
    what = f"with fewer than {LEAST_ROWS} complete rows a device sends nothing, as its sums would show them"
    return (f"{', '.join(few)}: {what}",) if few else ()


def names_in(text: str | None) -> list[str] | None:
    """Return the names of an option, which has commas between them."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def missing_of(text: str | None) -> str | float:
    """Return what is done with missing values: drop, omit, or the number that is put there."""
    if text is None or text in ("drop", "omit"):
        return text or "drop"
    found = read_column([text])
    if found.kind != "numbers" or found.values[0] != found.values[0]:
        raise UsageError(f"--missing-values {text}: expected drop, omit or a number")
    return float(found.values[0])


def text_of(text: str | None) -> str:
    if text not in (None, "omit", "encode"):
        raise UsageError(f"--text {text}: expected omit or encode")
    return text or "omit"


def with_defaults(wishes: Wishes, found: Sequence[ColumnSurvey], n_rows: int, *, dealt: bool) -> Wishes:
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


def with_answers(wishes: Wishes, found: Sequence[ColumnSurvey], open_: Sequence[str]) -> Wishes:
    """Ask for what no option says, and only where the file leaves a choice."""
    if "split" in open_:
        question = "Which column says which device a row is of? Or a number of devices"
        answer = typer.prompt(question, default=wishes.split_by or str(wishes.devices), err=True)
        names = [column.name for column in found]
        by_number = answer not in names and answer.isascii() and answer.isdigit()
        wishes = replace(wishes, split_by=None, devices=int(answer)) if by_number else replace(wishes, split_by=answer)
    if "missing" in open_ and any(column.n_missing for column in found):
        question = "Missing values: drop their rows, omit their columns, or put a number there?"
        wishes = replace(wishes, missing=missing_of(typer.prompt(question, default="drop", err=True)))
    apart = (wishes.split_by, wishes.id_column, *wishes.omit)
    if "text" in open_ and any(column.kind == "text" and column.name not in apart for column in found):
        wishes = replace(
            wishes, text=text_of(typer.prompt("Columns of text: omit or encode?", default="omit", err=True))
        )
    return wishes


def next_steps(folder: Path, prepared: Prepared, clusters: int) -> list[tuple[str, str]]:
    """Return the commands that come next, each with what it does."""
    names = list(prepared.devices)
    scenario, inventory, keys = folder / "scenario.toml", folder / "fleet.toml", folder / "keys"
    more = " ..." if len(names) > 8 else ""
    peer = folder / "state" / "peers" / names[0] / "state"
    # Without it, `choose` measures up to 10 clusters at devices with rows enough only.
    needed = Measure(compare_up_to=_TRIED.stop - 1).rows_needed(_TRIED.start, len(prepared.features))
    few = any(len(prepared.matrix(rows)) < needed for rows in prepared.devices.values())
    gate = ("--no-gate",) if few else ()
    job = (PROTOCOL, "--clusters", clusters, "--scaling", "minmax", "--peer", peer, "--wait")
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


def show_columns(people: Console, file: Path, table: TextRows, found: Sequence[ColumnSurvey]) -> None:
    """Print how each column of the file was read."""
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


def show_end(
    people: Console, folder: Path, prepared: Prepared, chosen: NumberOfClusters, steps: Sequence[tuple[str, str]]
) -> None:
    """Print the features, the devices and clusters, and the commands that come next."""
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


# -- what is written --------------------------------------------------------------------------------------------------


def check_new(out: Path) -> None:
    """Refuse a folder that has something in it, before much is computed."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"--out {out}: it exists and is not an empty folder: choose another one")


def write(out: Path, source: Path, prepared: Prepared, chosen: NumberOfClusters, seed: int, port: int) -> list[Path]:
    """Write all files into a new or empty folder; return them in the order in which people look at them.

    Raise UsageError if there is something in the folder, or it cannot be written.
    """
    check_new(out)
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
        + peer_toml({"protocol": PROTOCOL, "clusters": chosen.clusters})
        + f"\n[expect]\nfinished_at_least = {len(ports)}\nidentical_centers = true\n"
    )
    devices = [{"name": name, "port": own, "data": f"rows/{name}.csv"} for name, own in ports.items()]
    inventory = (
        f"# Written by `{written_by}`: all devices on this machine. For other machines give each device a\n"
        "# host, and `send = true` to copy its rows there.\n"
        + peer_toml({"keys": "keys", "state_dir": "state", "settings": reading})
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
                + peer_toml(reading),
                encoding="utf-8",
            )
    except OSError as error:
        raise UsageError(f"--out {out}: cannot be written ({error.strerror}): choose another folder") from None
    return made
