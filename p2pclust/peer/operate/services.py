"""Services of a running peer for the people and programs that look after it: control server, metrics, systemd, mDNS."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p2pclust.errors import UsageError
from p2pclust.peer.core.events import Hinted
from p2pclust.peer.operate.notify import Notifier
from p2pclust.peer.operate.questions import Questions
from p2pclust.peer.operate.server import ControlServer
from p2pclust.peer.operate.status import job_snapshot, snapshot
from p2pclust.peer.shell.logs import Watch
from p2pclust.peer.shell.shell import Shell
from p2pclust.tools.distribution import install_line
from p2pclust.transport.bundle import Bundle
from p2pclust.transport.zeromq import ZmqLinks

if TYPE_CHECKING:
    from p2pclust.peer.operate.mdns import Discovery
    from p2pclust.peer.operate.web import Web

_LEAVE_S = 1.0  # for withdrawing an announcement


class Services:
    """All services that the configuration asks for. One that cannot start is reported, and does not stop the peer."""

    def __init__(self, config: Mapping[str, Any], shell: Shell, links: ZmqLinks, bundle: Bundle, watch: Watch) -> None:
        notifier = Notifier(os.environ, partial(_readiness, shell), asyncio.get_running_loop())
        notifier.start()
        control = _control_server(config, shell, links, bundle, watch)
        self._stops: list[Callable[[], object]] = [notifier.stopping, control.close]
        shell.listen(partial(_warn_if_exposed, shell, watch))
        self._discovery: Discovery | None = None
        if config.get("metrics"):
            with _reported("no-metrics", watch):
                self._stops.append(_web(config, shell).close)
                watch("metrics", {"address": config["metrics"]})
        if config.get("mdns"):
            with _reported("no-mdns", watch):
                try:
                    from p2pclust.peer.operate.mdns import Discovery  # noqa: PLC0415 - an extra
                except ImportError:
                    raise UsageError(f"mdns needs zeroconf: {install_line('mdns')}") from None
                me, fleet_id = shell.core.identity, shell.links.roster.fleet_id
                self._discovery = Discovery(
                    me.name, fleet_id, me.address, lambda *hint: shell.step(Hinted(*hint))
                )  # fmt: skip
                self._stops.append(asyncio.get_running_loop().create_task(_announce(self._discovery, watch)).cancel)
                watch("mdns", {"address": shell.core.identity.address})

    async def close(self) -> None:
        for stop in self._stops:
            stop()
        if self._discovery is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LEAVE_S):
                    await self._discovery.close()


def _warn_if_exposed(shell: Shell, watch: Watch, verb: str, fields: Mapping[str, Any]) -> None:
    """Warn when a job has ended in which sums of this device, with few others, can be computed."""
    me, job = shell.core.identity.name, fields.get("job")
    if verb in ("finished", "reports-sets") and job in shell.core.jobs.jobs:
        status = job_snapshot(shell, str(job))
        if me in status.exposed:
            with_fewer_than = int(status.secured["cohort"])
            watch("exposed", {"job": job, "with_fewer_than": with_fewer_than, "reported_by": status.exposed_by})


@contextlib.contextmanager
def _reported(verb: str, watch: Watch) -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        watch(verb, {"reason": str(error)})


def _control_server(
    config: Mapping[str, Any], shell: Shell, links: ZmqLinks, bundle: Bundle, watch: Watch
) -> ControlServer:
    shell.version = str(config.get("version", ""))
    server = ControlServer(
        asyncio.get_running_loop(), links.context, Questions(shell).take,
        lambda name, reason: watch("malformed", {"from": name, "reason": reason}),
    )  # fmt: skip
    with _reported("no-control", watch):
        server.open_here(Path(config["state_dir"]))
    if config.get("control"):
        with _reported("no-control", watch):
            address = server.open_to_all(config["control"], bundle, lambda: links.roster)
            links.half_open.watch(address)
            watch("control", {"address": address})
    return server


def _web(config: Mapping[str, Any], shell: Shell) -> Web:
    try:
        from p2pclust.peer.operate.metrics import CONTENT_TYPE, Metrics  # noqa: PLC0415 - an extra
    except ImportError:
        raise UsageError(f"metrics needs prometheus_client: {install_line('metrics')}") from None
    from p2pclust.peer.operate.page import status_page  # noqa: PLC0415
    from p2pclust.peer.operate.web import Web  # noqa: PLC0415

    kind = str(config.get("class", ""))
    metrics = Metrics(partial(snapshot, shell), kind)
    shell.listen(metrics.count)

    def page() -> tuple[str, bytes]:
        return "text/html; charset=utf-8", status_page(snapshot(shell), kind).encode()

    pages = {"/metrics": lambda: (CONTENT_TYPE, metrics.text()), "/status": page, "/": page}
    return Web(config["metrics"], pages, asyncio.get_running_loop())


async def _announce(discovery: Discovery, watch: Watch) -> None:
    from zeroconf import Error  # noqa: PLC0415 - an extra

    try:
        await discovery.start()
    except (OSError, Error) as error:
        watch("no-mdns", {"reason": f"the network has no multicast ({error})"})


def _readiness(shell: Shell) -> tuple[bool, str]:
    membership = shell.core.membership
    here, enrolled = len(membership.alive()), len(membership.members) + 1
    heard = any(member.incarnation and member.status == "alive" for member in membership.members.values())
    unfinished = sum(not job.ledger.finished for job in shell.core.jobs.jobs.values())
    jobs = f", {unfinished} job{'s' if unfinished > 1 else ''} running" if unfinished else ""
    return heard or enrolled == 1, f"{here} of {enrolled} enrolled peers are here{jobs}"
