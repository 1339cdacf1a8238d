"""Services of a running peer for the people and programs that look after it: control server, metrics, systemd, mDNS."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p2pclust.errors import UsageError
from p2pclust.peer.core.events import Hinted
from p2pclust.peer.operate.questions import Questions
from p2pclust.peer.operate.server import ControlServer
from p2pclust.peer.operate.status import job_snapshot, snapshot
from p2pclust.peer.shell.logs import Watch
from p2pclust.peer.shell.shell import Shell
from p2pclust.transport.bundle import Bundle
from p2pclust.transport.zeromq import ZmqLinks

if TYPE_CHECKING:
    from p2pclust.peer.operate.mdns import Discovery

_LEAVE_S = 1.0  # for withdrawing an announcement
_LOOK_S = 1.0
_GRACE_S = 15.0  # so that a peer that waits for others is not considered hung


class Services:
    """All services that the configuration asks for. One that cannot start is reported, and does not stop the peer."""

    def __init__(self, config: Mapping[str, Any], shell: Shell, links: ZmqLinks, bundle: Bundle, watch: Watch) -> None:
        loop = asyncio.get_running_loop()
        notifier = Notifier(os.environ, partial(_readiness, shell), loop)
        notifier.start()
        control = _control_server(config, shell, links, bundle, watch)
        self._stops: list[Callable[[], object]] = [notifier.stopping, control.close]
        shell.listen(partial(_warn_if_exposed, shell, watch))
        self._discovery: Discovery | None = None
        if config.get("metrics"):
            with _reported("no-metrics", watch, "metrics needs prometheus_client"):
                from p2pclust.peer.operate.metrics import CONTENT_TYPE, Metrics  # noqa: PLC0415 - an extra
                from p2pclust.peer.operate.web import Web, status_page  # noqa: PLC0415

                kind = str(config.get("class", ""))
                metrics = Metrics(partial(snapshot, shell), kind)
                shell.listen(metrics.count)

                def page() -> tuple[str, bytes]:
                    return "text/html; charset=utf-8", status_page(snapshot(shell), kind).encode()

                pages = {"/metrics": lambda: (CONTENT_TYPE, metrics.text()), "/status": page, "/": page}
                self._stops.append(Web(config["metrics"], pages, loop).close)
                watch("metrics", {"address": config["metrics"]})
        if config.get("mdns"):
            with _reported("no-mdns", watch, "mdns needs zeroconf"):
                from p2pclust.peer.operate.mdns import Discovery  # noqa: PLC0415 - an extra

                me, fleet_id = shell.core.identity, shell.links.roster.fleet_id
                self._discovery = Discovery(me.name, fleet_id, me.address, lambda *hint: shell.step(Hinted(*hint)))
                self._stops.append(loop.create_task(_announce(self._discovery, watch)).cancel)
                watch("mdns", {"address": me.address})

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
def _reported(verb: str, watch: Watch, lacks: str = "") -> Iterator[None]:
    """Report a service that cannot start; `lacks` says which module an extra installs, if an import fails."""
    try:
        yield
    except UsageError as error:
        watch(verb, {"reason": str(error)})
    except ImportError:
        from p2pclust.tools.distribution import install_line  # noqa: PLC0415 - needed only here

        watch(verb, {"reason": f"{lacks}: {install_line(verb.removeprefix('no-'))}"})


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


class Notifier:
    """Notifies systemd in datagrams, by the protocol of ``sd_notify(3)``; without a socket nothing is sent.

    `standing` returns whether the peer has joined its fleet, and its status.

    Until it has joined, systemd is asked to extend its timeout: it must not restart the peers of a site that starts after a
    power cut. A timer of the event loop feeds the watchdog: a loop that hangs does not.
    """

    def __init__(
        self, environment: Mapping[str, str], standing: Callable[[], tuple[bool, str]], loop: asyncio.AbstractEventLoop
    ) -> None:
        named = environment.get("NOTIFY_SOCKET", "")
        # A path, or a name in Linux's abstract space, which begins with ``@``.
        self._address = "\0" + named[1:] if named.startswith("@") else named if named.startswith("/") else ""
        self._standing = standing
        self._loop = loop
        self._ready = False
        self._status = ""
        self._timer: asyncio.TimerHandle | None = None
        told, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
        ours = not pid or pid == str(os.getpid())  # otherwise it watches another process
        self._fed_s = int(told) / 1e6 if ours and told.isdigit() else 0.0
        self._every_s = min(_LOOK_S, self._fed_s / 3) if self._fed_s else _LOOK_S
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) if self._address else None
        if self._socket is not None:
            self._socket.setblocking(False)

    def start(self) -> None:
        if self._socket is not None:
            self._look()

    def _look(self) -> None:
        self._timer = self._loop.call_later(self._every_s, self._look)
        joined, status = self._standing()
        words = {}
        if not self._ready:
            words = {"READY": "1"} if joined else {"EXTEND_TIMEOUT_USEC": f"{int(_GRACE_S * 1e6)}"}
        if self._fed_s:
            words["WATCHDOG"] = "1"
        if status != self._status:
            words["STATUS"] = status
        if words and self._send(words):
            self._ready, self._status = self._ready or joined, status

    def stopping(self) -> None:
        """Notify that the peer stops, and then no more."""
        if self._timer is not None:
            self._timer.cancel()
        self._send({"STOPPING": "1", "STATUS": "leaving"})
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, words: Mapping[str, str]) -> bool:
        """Send a datagram; return False if systemd is busy or gone, so that the next look repeats it."""
        if self._socket is None:
            return False
        lines = [f"{word}={' '.join(value.splitlines())}" for word, value in words.items()]
        try:
            self._socket.sendto("\n".join(lines).encode(), self._address)
        except OSError:
            return False
        return True
