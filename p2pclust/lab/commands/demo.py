"""``p2pclust demo``: the quick start, and where its report is."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from p2pclust.cli.show.output import note
from p2pclust.lab.commands.run import BackendName, run

_NAME = "quickstart"


def demo(
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Output directory; default runs/quickstart-YYYYmmdd-HHMMSS.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the files of an earlier run in the output directory.")
    ] = False,
) -> None:
    """Run the quick start, and say where its report is: eight peers cluster digits, and the aggregator is killed.

    It is `p2pclust run quickstart`: real processes on this machine, which all end with the command. Where the system cannot
    fork, the same peers run in virtual time.

    \b
    Example:
      p2pclust demo
    """
    from p2pclust.lab.scenario.outcome.folder import default_directory  # noqa: PLC0415
    from p2pclust.tools.platforms import is_unix  # noqa: PLC0415

    directory = out or default_directory(_NAME, datetime.now())
    backend = BackendName.PROCESSES if is_unix() else BackendName.SIMULATED
    try:
        run(Path(_NAME), backend=backend, out=directory, overwrite=overwrite)
    finally:
        report = directory.absolute() / "report.html"
        if report.exists():
            note(f"open the report in a browser: {report.as_uri()}")
            note("begin with your own file: p2pclust init FILE.csv")
