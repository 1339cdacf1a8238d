"""``p2pclust watch --serve``: a page of the whole fleet, from what its peers answer."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from p2pclust.cli.fleet.operate import client_of
from p2pclust.errors import UsageError
from p2pclust.lab.commands.show.page import ended_like_ctrl_c, page_of
from p2pclust.tools.files import expanded

if TYPE_CHECKING:
    from p2pclust.hosts.inventory import Inventory


def serve_fleet(
    address: str,
    job: str | None,
    peers: Sequence[str],
    bundle: Path | None,
    roster: Path | None,
    inventory: Path | None,
) -> None:
    """Serve the page until Ctrl-C. The peers may be asked in this order: those named, then those of the inventory."""
    from p2pclust.lab.live.ask import FleetFollower  # noqa: PLC0415
    from p2pclust.lab.live.shown import FollowedRun  # noqa: PLC0415
    from p2pclust.lab.run.scene import Scene  # noqa: PLC0415

    groups: dict[str, str] = {}
    addresses: list[str | None] = [*peers]
    title = "A fleet"
    if inventory is not None:
        from p2pclust.cli.fleet.inventory import load_inventory  # noqa: PLC0415

        loaded = load_inventory(inventory, to_start=False)
        groups = {device.name: device.group for device in loaded.devices}
        found = list(_controls(loaded, with_key=bool(bundle or os.environ.get("P2PCLUST_BUNDLE"))))
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


def _controls(inventory: Inventory, *, with_key: bool) -> Iterator[str]:
    """Yield where the devices can be asked: on this machine at their sockets, elsewhere at control addresses."""
    for device in inventory.devices:
        host = inventory.hosts[device.host]
        if host.ssh is None:
            yield str(expanded(host.state_dir) / "peers" / device.name)
        elif with_key and device.config.get("control"):
            yield f"{device.name}@{device.config['control']}"
