"""Peers of a local network find each other by multicast DNS, without an address in any file; an extra.

Announcements are only hints, which anyone on the network can forge. A peer proves its identity with its key when it is
connected to: a forged announcement costs a failed handshake.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Final

from zeroconf import IPVersion, ServiceStateChange, Zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from p2pclust.transport.links import parse_address

SERVICE: Final = "_p2pclust._tcp.local."

_LOOK_UP_MS = 3000
_MOST_AT_ONCE = 8  # announcements that are looked up at the same time; others are when they are repeated
_MOST_KNOWN = 512  # hints to keep: those of a fleet, and some that are wrong
_AGAIN_S = 10.0


class Discovery:
    """Announces one peer on the network where it listens, and calls `hint` with names and addresses of its fleet.

    The name of an announcement begins with a part of the fleet's id and ends with random letters, so that it cannot be taken
    by others first. It reveals which peers belong together: names, addresses and the fleet's id are not secret.
    """

    def __init__(self, name: str, fleet_id: str, address: str, hint: Callable[[str, str], None]) -> None:
        self._fleet_id, self._hint = fleet_id, hint
        self._host, port = parse_address(address)
        self._prefix = f"{fleet_id[:12]}-"
        instance = f"{self._prefix}{name[:40]}-{os.urandom(3).hex()}.{SERVICE}"
        where = socket.getaddrinfo(self._host, port, type=socket.SOCK_STREAM)[0]
        self._interface = str(where[4][0])
        self._info = AsyncServiceInfo(
            SERVICE, instance, port=port, addresses=[socket.inet_pton(where[0], self._interface)],
            properties={"name": name, "fleet": fleet_id}, server=f"{instance.removesuffix(SERVICE)}local.",
        )  # fmt: skip
        self._known: dict[str, tuple[str, str]] = {}  # name and address, by the name of the announcement
        self._looking: dict[asyncio.Task[None], None] = {}
        self._again: asyncio.TimerHandle | None = None
        self._network: AsyncZeroconf | None = None
        self._browser: AsyncServiceBrowser | None = None

    async def start(self) -> None:
        """Announce the peer, and listen for others. Raise OSError if the network has no multicast."""
        self._network = AsyncZeroconf(interfaces=[self._interface])
        await self._network.zeroconf.async_wait_for_start()
        self._keep(await self._network.async_register_service(self._info))
        self._browser = AsyncServiceBrowser(self._network.zeroconf, SERVICE, handlers=[self._changed])
        self._hint_again()

    async def close(self) -> None:
        if self._again is not None:
            self._again.cancel()
        for task in [*self._looking]:
            task.cancel()
        if self._browser is not None:
            await self._browser.async_cancel()
        if self._network is not None:
            await self._network.async_unregister_all_services()
            await self._network.async_close()

    def _changed(self, zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        if not name.startswith(self._prefix) or name == self._info.name:
            return
        if state_change is ServiceStateChange.Removed:
            self._known.pop(name, None)
        elif len(self._looking) < _MOST_AT_ONCE and (name in self._known or len(self._known) < _MOST_KNOWN):
            self._keep(self._look_up(zeroconf, name))

    async def _look_up(self, zeroconf: Zeroconf, announcement: str) -> None:
        info = AsyncServiceInfo(SERVICE, announcement)
        if not await info.async_request(zeroconf, _LOOK_UP_MS) or not info.port:
            return
        properties = {key: value or b"" for key, value in info.properties.items()}
        addresses = info.parsed_addresses(IPVersion.V6Only if ":" in self._host else IPVersion.V4Only)
        if properties.get(b"fleet") != self._fleet_id.encode() or not addresses:
            return
        host = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
        self._known[announcement] = (properties.get(b"name", b"").decode("utf-8", "replace"), f"{host}:{info.port}")
        self._hint(*self._known[announcement])

    def _hint_again(self) -> None:
        """Repeat all hints: a peer that could not be reached may be reachable now."""
        self._again = asyncio.get_running_loop().call_later(_AGAIN_S, self._hint_again)
        for name, address in [*self._known.values()]:
            self._hint(name, address)

    def _keep(self, work: Coroutine[Any, Any, Any] | Any) -> None:
        task = asyncio.ensure_future(work)
        self._looking[task] = None
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._looking.pop(task, None)
        if not task.cancelled():
            task.exception()  # ignore look-ups that fail
