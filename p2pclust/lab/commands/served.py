"""Pages in the browser: ``p2pclust replay`` of a run that ended, and ``p2pclust watch --serve`` of a whole fleet."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated

from p2pclust.cli.fleet.inventory import controls_of, load_inventory
from p2pclust.cli.fleet.operate import client_of
from p2pclust.cli.show.options import Serve, argument, option
from p2pclust.cli.show.output import stdout
from p2pclust.errors import UsageError
from p2pclust.lab.commands.show.live import Watch
from p2pclust.lab.commands.show.page import ended_like_ctrl_c, page_of
from p2pclust.lab.live.ask import FleetFollower
from p2pclust.lab.live.shown import FollowedRun, Replay
from p2pclust.lab.run.scene import Scene, recorded


def replay(
    run: Annotated[Path, argument("RUN", "The output directory of p2pclust run, or its events.jsonl.")],
    serve: Serve = None,
    speed: Annotated[float, option("X", "Seconds of the run in one second.", min=0.001, max=1000.0)] = 1.0,
) -> None:
    """Show a run that ended, as it went on: with --serve on a page in the browser, until Ctrl-C; else on the terminal.

    The page has a button to pause, a speed, and a slider for the moment. Shown are names, rounds, faults, costs and the
    centers, but no row.

    \b
    Examples:
      p2pclust replay runs/one --speed 10
      p2pclust replay runs/one --serve
    """
    scene, events = recorded(run)
    if serve is None:
        with Watch(stdout(), scene.title, scene.details, scene.begun(), scene.tol, clock=False) as watch:
            wait, before = threading.Event(), 0.0
            for event in events:
                wait.wait(max(0.0, event.t - before) / speed)
                before = max(before, event.t)
                watch.take(event)
        return

    if not events:
        raise UsageError(f"{run}: nothing happened in that run")
    shown = Replay(scene, events, speed)
    with ended_like_ctrl_c(), suppress(KeyboardInterrupt), page_of(shown, serve):
        shown.play(threading.Event())


def serve_fleet(
    address: str, job: str | None, peers: Sequence[str], bundle: Path | None, roster: Path | None,
    inventory: Path | None,
) -> None:  # fmt: skip
    """Serve the page until Ctrl-C. The peers may be asked in this order: those named, then those of the inventory."""

    groups: dict[str, str] = {}
    addresses: list[str | None] = [*peers]
    title = "A fleet"
    if inventory is not None:
        loaded = load_inventory(inventory, to_start=False)
        groups = {device.name: device.group for device in loaded.devices}
        found = list(controls_of(loaded, with_key=bool(bundle or os.environ.get("P2PCLUST_BUNDLE"))).values())
        if not found and not peers:
            raise UsageError(
                f'{inventory}: none of its devices can be asked from here: set control = "HOST:PORT" for some, and name '
                "your key with --bundle"
            )
        addresses += found
        title = f"The fleet of {inventory.name}"
    with ended_like_ctrl_c(), suppress(KeyboardInterrupt), ExitStack() as stack:
        clients = [stack.enter_context(client_of(one, bundle, roster)) for one in addresses or [None]]
        scene = Scene(title, f"asking {len(clients)} of its peers, one at a time", groups, links=(), testbed=False)
        shown = FollowedRun(scene, scene.begun(), mode="watch")
        stack.enter_context(page_of(shown, address))
        FleetFollower(clients, shown, time.monotonic, job or "").follow(threading.Event())
