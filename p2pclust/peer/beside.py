"""What a peer has beside its work, for whoever looks after it: a door, figures and a page, word to the service manager."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from p2pclust.errors import UsageError
from p2pclust.peer.asked import Asked
from p2pclust.peer.door import Door
from p2pclust.peer.notify import Notifier
from p2pclust.peer.shell import Shell
from p2pclust.peer.status import snapshot
from p2pclust.transport.keys import Bundle
from p2pclust.transport.zeromq import ZmqLinks

__all__ = ["open_beside"]

Watch = Callable[[str, Mapping[str, Any]], None]


def open_beside(
    config: Mapping[str, Any], shell: Shell, links: ZmqLinks, bundle: Bundle, watch: Watch
) -> list[Callable[[], None]]:
    """Open all of it that the configuration wants, for a peer that was started by a command.

    What is wrong with one of these stops no peer; it is reported.

    Returns
    -------
    list of callable
        Closes them, in this order, when the peer leaves.
    """
    notifier = Notifier(os.environ, partial(_standing, shell), asyncio.get_running_loop())
    notifier.start()
    closers = [notifier.stopping, _door(config, shell, links, bundle, watch).close]
    if config.get("metrics"):
        try:
            closers.append(_web(config, shell))
            watch("metrics", {"address": config["metrics"]})
        except UsageError as error:
            watch("no-metrics", {"reason": str(error)})
    return closers


def _door(config: Mapping[str, Any], shell: Shell, links: ZmqLinks, bundle: Bundle, watch: Watch) -> Door:
    """Where operators ask."""
    shell.version = str(config.get("version", ""))
    door = Door(
        asyncio.get_running_loop(), links.context, Asked(shell).take, lambda reason: watch("malformed", {"reason": reason})
    )  # fmt: skip
    try:
        door.open_here(Path(config["state_dir"]))
        if config.get("door"):
            watch("door", {"address": door.open_to_all(config["door"], bundle, lambda: links.roster)})
    except UsageError as error:
        watch("no-door", {"reason": str(error)})
    return door


def _web(config: Mapping[str, Any], shell: Shell) -> Callable[[], None]:
    """Serve the figures and the status page; returns what closes them."""
    try:
        from p2pclust.peer.metrics import CONTENT_TYPE, Metrics  # noqa: PLC0415 - an extra
    except ImportError:
        raise UsageError("metrics needs prometheus_client: pip install 'p2pclust[metrics]'") from None
    from p2pclust.peer.page import status_page  # noqa: PLC0415
    from p2pclust.peer.web import Web  # noqa: PLC0415

    kind = str(config.get("class", ""))
    metrics = Metrics(partial(snapshot, shell), kind)
    shell.listen(metrics.count)

    def page() -> tuple[str, bytes]:
        return "text/html; charset=utf-8", status_page(snapshot(shell), kind).encode()

    pages = {"/metrics": lambda: (CONTENT_TYPE, metrics.text()), "/status": page, "/": page}
    return Web(config["metrics"], pages, asyncio.get_running_loop()).close


def _standing(shell: Shell) -> tuple[bool, str]:
    """Whether this peer has joined its fleet, and how it is in a line."""
    membership = shell.core.membership
    here, enrolled = len(membership.alive()), len(membership.members) + 1
    heard = any(member.incarnation and member.status == "alive" for member in membership.members.values())
    unfinished = sum(not job.ledger.finished for job in shell.core.jobs.jobs.values())
    jobs = f", {unfinished} job{'s' if unfinished > 1 else ''} running" if unfinished else ""
    return heard or enrolled == 1, f"{here} of {enrolled} enrolled peers are here{jobs}"
