"""``p2pclust reproduce``: measure the papers' tables and figures again and compare the numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from p2pclust.cli.show.options import ResultAsJson, argument, flag, option
from p2pclust.cli.show.output import complain, put_json, stderr, stdout
from p2pclust.cli.show.output import table as table_of
from p2pclust.errors import UsageError
from p2pclust.lab.commands.run import BackendName
from p2pclust.lab.commands.show.bar import progress_bar
from p2pclust.lab.pictures import canvas
from p2pclust.lab.reproduce.frame import Measured, Plan, measure, table, table_ids
from p2pclust.lab.reproduce.model import Claim, Table
from p2pclust.lab.reproduce.report import comparison, plain, write_csv
from p2pclust.lab.scenario.outcome.folder import default_directory, prepare
from p2pclust.tools.platforms import n_cores


def reproduce(
    tables: Annotated[list[str] | None, argument("[TABLE]...", "Ids of tables; without any, they are listed.")] = None,
    every: Annotated[bool, flag("--all", "All tables; shared experiments are run once.")] = False,
    quick: Annotated[
        bool, flag("--quick", "Some rows of each table, from fewer and smaller runs: a check that it works.")
    ] = False,
    repeats: Annotated[int | None, option("N", "Repetitions; default as in the papers, mostly ten.", min=1)] = None,
    seed: Annotated[int, option("N", "The seed of all randomness.", min=0)] = 0,
    backend: Annotated[
        BackendName,
        option(
            "processes|simulated|in-process",
            "Where the peers run: processes on this machine, virtual time, or this process. The results are the same.",
        ),
    ] = BackendName.IN_PROCESS,
    jobs: Annotated[int | None, option("N", "Repetitions at the same time; default one per core.", min=1)] = None,
    out: Annotated[Path | None, option("DIR", "Output directory; default runs/reproduce-YYYYmmdd-HHMMSS.")] = None,
    as_json: ResultAsJson = False,
) -> None:
    """Measure a paper's table again: show the paper's numbers, mean and standard deviation, the difference, and claims.

    Writes a CSV file and a picture of each table to the output directory. Exits with 1 if a claim failed; a quick run
    decides only claims that hold for any data. Rows that need a missing data set are left out, with the command that
    fetches it. Repetitions that take minutes are kept in the output directory: a later run with the
    same --out continues with what is there.

    \b
    Examples:
      p2pclust reproduce
      p2pclust reproduce 000-figure1
      p2pclust reproduce 002-table3 --repeats 3 --out table3
      p2pclust reproduce --all --quick
    """
    if every and tables:
        raise UsageError("--all and the names of tables: give one or the other")
    wanted = [table(name) for name in (table_ids() if every else dict.fromkeys(tables or ()))]
    if not wanted:
        listed = [table(name) for name in table_ids()]
        if as_json:
            of = [{"table": item.id, "shows": item.source.shows, "time": item.source.time} for item in listed]
            put_json({"tables": of})
            return
        rows = ((item.id, item.source.time, item.source.shows) for item in listed)
        stdout().print(table_of(("table", "time", "what it shows"), rows, right=("time",), wrap=("what it shows",)))
        stdout().print("\nOne table: p2pclust reproduce TABLE. All: --all. Times are of full runs on one core.")
        return
    n_workers = jobs or n_cores()
    plan = Plan(repeats=repeats, seed=seed, backend=backend.value, workers=n_workers, quick=quick)
    summary = _carry_out(wanted, plan, out, stderr() if as_json else stdout(200))
    if as_json:
        put_json(summary)
    claims = [claim for item in summary["tables"] for claim in item["claims"]]
    if any(claim["held"] is False for claim in claims if claim["always"] or not quick):
        raise typer.Exit(1)


def _carry_out(tables: Sequence[Table], plan: Plan, out: Path | None, console: Console) -> dict[str, Any]:
    # Only the name of the directory depends on the wall clock.
    directory = out or default_directory("reproduce", datetime.now())
    prepare(directory)
    long = any(item.experiment.keeps for item in tables) and not plan.quick
    with progress_bar("repetitions") as advance:

        def show(done: int, total: int) -> None:
            advance(completed=done, total=total)
            if long and not stderr().is_terminal:
                stderr().print(f"{done} of {total} repetitions")

        measured = measure(tables, replace(plan, keep=directory / "repetitions"), show)
    claims = {item.id: tuple(item.claims(measured[item.id].found)) for item in tables}
    for item in tables:
        write_csv(directory, item, measured[item.id])
        if canvas.can_draw() and measured[item.id].found.rows:
            figure = canvas.new_figure(11, 5)
            item.draw(figure, measured[item.id].found)
            (directory / f"{item.id}.png").write_bytes(canvas.image_bytes(figure, "png"))
    if not canvas.can_draw():
        complain(canvas.INSTALL)
    for item in tables:
        _show(console, item, measured[item.id], claims[item.id], quick=plan.quick)
    console.print(f"output: {directory}", soft_wrap=True)
    return {
        "quick": plan.quick,
        "seed": plan.seed,
        "backend": plan.backend,
        "tables": [plain(item, measured[item.id], claims[item.id]) for item in tables],
    }


def _show(console: Console, item: Table, measured: Measured, claims: Sequence[Claim], *, quick: bool) -> None:
    console.print(f"{item.id}: {item.source.shows}", style="bold", soft_wrap=True)
    where = f"{item.source.where}; here {measured.repeats} repetition{'s' * (measured.repeats != 1)}"
    where += "; ±: 95 % confidence interval of the mean" if item.interval else ""
    where += f"; {measured.kept} found in the output directory" if measured.kept else ""
    console.print(where, style="dim", soft_wrap=True)
    numbers = ("paper", "measured", "median", "difference")
    shown = table_of(("row", "", *numbers), right=numbers, gap=2)  # the rows are long
    for line in comparison(item, measured):
        ours, theirs = (line.ci, line.paper_ci) if item.interval else (line.sd, line.paper_sd)
        places = _places(line.paper, line.mean)
        cells = (
            _number(line.paper, places) + _spread(theirs, places), _number(line.mean, places) + _spread(ours, places),
            _number(line.median, places), _number(line.difference, places, plus="+"),
        )  # fmt: skip
        shown.add_row(line.row, item.source.measures.get(line.measure, line.measure), *cells)
    console.print(shown)
    for name, why in measured.skipped.items():
        console.print(f"left out: {name}: {why}", style="yellow", soft_wrap=True)
    undecided = [claim for claim in claims if claim.held is None or (quick and not claim.always)]
    for claim in claims:
        if claim not in undecided:
            word, style = ("held", "green") if claim.held else ("FAILED", "bold red")
            console.print(Text.assemble((f"{word}  ", style), f"{claim.what}: {claim.value}"), soft_wrap=True)
    if undecided:
        why = "a quick run does not decide" if quick else "not measured"
        console.print(f"{why}: {len(undecided)} of {len(claims)} claims", style="dim")
    console.print()


def _places(*values: float) -> int:
    """Return how many decimal places to show for such numbers.

    >>> _places(0.98765), _places(9.0, 8.882), _places(10.2, 9.8), _places(float("nan"), 1234.5)
    (4, 3, 2, 0)
    """
    largest = max((abs(value) for value in values if not math.isnan(value)), default=0.0)
    return 4 if largest < 2 else 3 if largest < 10 else 2 if largest < 1000 else 0


def _number(value: float, places: int, *, plus: str = "") -> str:
    """Return a number with `places` decimal places, or three digits if it would round to 0.

    >>> _number(0.98765, 4), _number(2e-13, 4), _number(0.0, 4), _number(float("nan"), 2), _number(0.01, 3, plus="+")
    ('0.9877', '2.00e-13', '0.0000', '-', '+0.010')
    """
    if math.isnan(value):
        return "-"
    return f"{value:{plus}.2e}" if 0 < abs(value) < 0.5 * 10**-places else f"{value:{plus}.{places}f}"


def _spread(value: float, places: int) -> str:
    return "" if math.isnan(value) else f" ± {_number(value, places)}"
