"""``p2pclust compare``: show several runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rich.table import Table
from rich.text import Text

from p2pclust.cli.show.options import argument, flag, option
from p2pclust.cli.show.output import note, put_json, stdout
from p2pclust.errors import UsageError
from p2pclust.lab.scenario.outcome import compare as outcome
from p2pclust.lab.scenario.page.compare_page import write_comparison


def compare(
    results: Annotated[list[Path], argument("RESULT...", "Output directories of p2pclust run, or their result.json.")],
    differing: Annotated[bool, flag("--differing", "Leave out lines that are equal in all runs.")] = False,
    out: Annotated[Path | None, option("FILE.html", "Write a page with the comparison and charts.")] = None,
    as_json: Annotated[bool, flag("--json", "Print the comparison as one JSON object.")] = False,
) -> None:
    """Show two or more runs side by side: what was run, the results, the cost and the expectations.

    Differences are highlighted; the last column is the ratio of the largest number to the smallest.

    \b
    Examples:
      p2pclust compare runs/one runs/other
      p2pclust compare runs/one runs/other/result.json --differing --out compared.html
    """
    runs = outcome.read_runs(results)
    lines = [line for line in outcome.compare([*runs.values()]) if line.differs or not differing]
    if out is not None:
        try:
            write_comparison(out, runs, lines)
        except OSError as error:
            raise UsageError(f"--out {out}: cannot be written ({error.strerror}): choose another file") from None
        note(f"page: {out}")
    if as_json:
        put_json({"runs": [*runs], "lines": [line.to_dict() for line in lines]})
        return

    console = stdout()
    made = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="bold")
    made.add_column("", no_wrap=True)
    for name in runs:
        made.add_column(name, overflow="fold", min_width=min(len(name), 24))
    made.add_column("differs", no_wrap=True)
    part = ""
    for line in lines:
        if line.part != part:
            part = line.part
            made.add_row(*[""] * (len(runs) + 2)) if made.row_count else None
            made.add_row(Text(part, style="bold underline"))
        style = "bold yellow" if line.differs else "dim"
        values = [Text(outcome.shown(value, line.unit), style=style) for value in line.values]
        what = Text(line.what, style="bold" if line.differs else "dim")
        made.add_row(what, *values, Text(outcome.mark(line), style=style))
    console.print(made)
    if not lines:
        console.print("nothing differs")
