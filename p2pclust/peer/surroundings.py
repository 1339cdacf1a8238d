"""What a peer runs in: on a device its log and its services. The seam at which a testbed attaches its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from p2pclust.peer.shell.compute import Worker
from p2pclust.peer.shell.logs import Log
from p2pclust.peer.shell.shell import Shell
from p2pclust.transport.bundle import Bundle
from p2pclust.transport.links import Receive
from p2pclust.transport.zeromq import ZmqLinks

if TYPE_CHECKING:
    from p2pclust.peer.operate.services import Services


class Surroundings:
    """A device.

    Parameters
    ----------
    config : mapping
        Of `p2pclust.peer.main.run_peer`.
    """

    #: Whether other processes of the same user may not look at the memory of a peer with keys.
    hides_memory: ClassVar[bool] = True

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config
        self._log = log_of(config)
        self._services: Services | None = None

    def watch(self, verb: str, fields: Mapping[str, Any]) -> None:
        """Take a report of the peer."""
        self._log.tell(verb, fields)

    def receiving(self, receive: Receive, rng: np.random.Generator) -> Receive:
        """Return what the links call with each message that has come, which calls `receive`."""
        return receive

    def begin(self, shell: Shell, links: ZmqLinks, worker: Worker, bundle: Bundle) -> None:
        """Start the peer."""
        from p2pclust.peer.operate.services import Services  # noqa: PLC0415 - a peer of a testbed has none

        shell.start(links, worker)
        self._services = Services(self.config, shell, links, bundle, self.watch)

    async def close(self) -> None:
        """End the services."""
        if self._services is not None:
            await self._services.close()

    def failed(self, reason: str) -> None:
        """Report why the peer has ended."""
        self.watch("failed", {"reason": reason})


def log_of(config: Mapping[str, Any]) -> Log:
    return Log(str(config["name"]), config.get("log", "text"), config.get("log_level", "info"))
