"""``p2pclust replay``: show a run that ended, at any speed."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from p2pclust.cli.show.options import Serve
from p2pclust.errors import UsageError
from p2pclust.lab.commands.show.page import ended_like_ctrl_c


def replay(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="The output directory of p2pclust run, or its events.jsonl.")
    ],
    serve: Serve = None,
    speed: Annotated[
        float, typer.Option(metavar="X", min=0.001, max=1000.0, help="Seconds of the run in one second.")
    ] = 1.0,
) -> None:
    """Show a run that ended, as it went on: with --serve on a page in the browser, until Ctrl-C; else on the terminal.

    The page has a button to pause, a speed, and a slider for the moment. Shown are names, rounds, faults, costs and the
    centers, but no row.

    \b
    Examples:
      p2pclust replay runs/one --speed 10
      p2pclust replay runs/one --serve
    """
    from p2pclust.cli.show.output import stdout  # noqa: PLC0415
    from p2pclust.lab.run.scene import recorded  # noqa: PLC0415

    scene, events = recorded(run)
    if serve is None:
        from p2pclust.lab.commands.show.live import Watch  # noqa: PLC0415

        with Watch(stdout(), scene.title, scene.details, scene.begun(), scene.tol, clock=False) as watch:
            wait, before = threading.Event(), 0.0
            for event in events:
                wait.wait(max(0.0, event.t - before) / speed)
                before = max(before, event.t)
                watch.take(event)
        return
    from p2pclust.lab.commands.show.page import page_of  # noqa: PLC0415
    from p2pclust.lab.live.shown import Replay  # noqa: PLC0415

    if not events:
        raise UsageError(f"{run}: nothing happened in that run")
    shown = Replay(scene, events, speed)
    with ended_like_ctrl_c(), suppress(KeyboardInterrupt), page_of(shown, serve):
        shown.play(threading.Event())
