"""What a peer has beside its work, for whoever looks after it: a door, figures and a page, word to the service manager."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p2pclust.errors import UsageError
from p2pclust.peer.core.events import Hinted
from p2pclust.peer.operate.notify import Notifier
from p2pclust.peer.operate.questions import Asked
from p2pclust.peer.operate.server import Door
from p2pclust.peer.operate.status import snapshot
from p2pclust.peer.shell.shell import Shell
from p2pclust.transport.keys import Bundle
from p2pclust.transport.zeromq import ZmqLinks

if TYPE_CHECKING:
    from p2pclust.peer.operate.mdns import Discovery

__all__ = ["Beside"]

_LEAVE_S = 1.0  # for taking an announcement back

Watch = Callable[[str, Mapping[str, Any]], None]


class Beside:
    """All of it that the configuration wants, for a peer that was started by a command.

    What is wrong with a part of it stops no peer; it is reported.
    """

    def __init__(self, config: Mapping[str, Any], shell: Shell, links: ZmqLinks, bundle: Bundle, watch: Watch) -> None:
        self._notifier = Notifier(os.environ, partial(_standing, shell), asyncio.get_running_loop())
        self._notifier.start()
        self._door = _door(config, shell, links, bundle, watch)
        self._close_web: Callable[[], None] = lambda: None
        self._discovery: Discovery | None = None
        self._announcing: asyncio.Task[None] | None = None
        for key, open_it in (("metrics", self._open_web), ("mdns", self._open_mdns)):
            if config.get(key):
                try:
                    watch(key, {"address": open_it(config, shell, watch)})
                except UsageError as error:
                    watch(f"no-{key}", {"reason": str(error)})

    async def close(self) -> None:
        """Take leave of all who look after the peer."""
        self._notifier.stopping()
        self._door.close()
        self._close_web()
        if self._announcing is not None:
            self._announcing.cancel()
        if self._discovery is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LEAVE_S):
                    await self._discovery.close()

    def _open_web(self, config: Mapping[str, Any], shell: Shell, watch: Watch) -> str:
        self._close_web = _web(config, shell)
        return str(config["metrics"])

    def _open_mdns(self, config: Mapping[str, Any], shell: Shell, watch: Watch) -> str:
        """Announce this peer, and try those that announce themselves."""
        try:
            from p2pclust.peer.operate.mdns import Discovery  # noqa: PLC0415 - an extra
        except ImportError:
            raise UsageError("mdns needs zeroconf: pip install 'p2pclust[mdns]'") from None
        identity = shell.core.identity

        def hint(name: str, address: str) -> None:
            shell.step(Hinted(name, address))

        self._discovery = Discovery(identity.name, shell.links.roster.fleet_id, identity.address, hint)
        self._announcing = asyncio.get_running_loop().create_task(self._announce(self._discovery, watch))
        return identity.address

    async def _announce(self, discovery: Discovery, watch: Watch) -> None:
        from zeroconf import Error  # noqa: PLC0415 - an extra

        try:
            await discovery.start()
        except (OSError, Error) as error:
            watch("no-mdns", {"reason": f"the network takes no multicast ({error})"})


def _door(config: Mapping[str, Any], shell: Shell, links: ZmqLinks, bundle: Bundle, watch: Watch) -> Door:
    """Where operators ask."""
    shell.version = str(config.get("version", ""))
    door = Door(
        asyncio.get_running_loop(), links.context, Asked(shell).take,
        lambda name, reason: watch("malformed", {"from": name, "reason": reason}),
    )  # fmt: skip
    try:
        door.open_here(Path(config["state_dir"]))
    except UsageError as error:
        watch("no-door", {"reason": str(error)})
    try:
        if config.get("door"):
            watch("door", {"address": door.open_to_all(config["door"], bundle, lambda: links.roster)})
    except UsageError as error:
        watch("no-door", {"reason": str(error)})
    return door


def _web(config: Mapping[str, Any], shell: Shell) -> Callable[[], None]:
    """Serve the figures and the status page; returns what closes them."""
    try:
        from p2pclust.peer.operate.metrics import CONTENT_TYPE, Metrics  # noqa: PLC0415 - an extra
    except ImportError:
        raise UsageError("metrics needs prometheus_client: pip install 'p2pclust[metrics]'") from None
    from p2pclust.peer.operate.page import status_page  # noqa: PLC0415
    from p2pclust.peer.operate.web import Web  # noqa: PLC0415

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
