from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from tests.throwaway import throwaway_fleet
from tests.transport.memory import MemoryLinks, Network

from p2pclust.transport.bundle import Bundle
from p2pclust.transport.links import Lane
from p2pclust.transport.roster import Roster
from p2pclust.transport.zeromq import ZmqLinks

Message = tuple[str, list[bytes], Lane]


class ZmqNet:
    """A fleet of named peers on loopback."""

    def __init__(self, names: Sequence[str] = ("a", "b", "c")) -> None:
        self.roster, self.bundles = throwaway_fleet(names)
        self.inbox: dict[str, list[Message]] = {name: [] for name in names}
        self.open_links: list[Any] = []
        self.failures: list[dict[str, Any]] = []  # what reached the loop's exception handler

    def open(self, name: str, listen: str = "127.0.0.1:0", **options: Any) -> Any:
        def receive(source: str, frames: list[bytes], lane: Lane) -> None:
            self.inbox[name].append((source, frames, lane))

        options = {"receive": receive} | options
        links = self.make(self.bundles[name], self.roster, listen, **options)
        self.open_links.append(links)
        return links

    def make(self, bundle: Bundle, roster: Roster, listen: str, **options: Any) -> Any:
        return ZmqLinks(bundle, roster, listen, **options)

    def restart(self, name: str, links: Any) -> Any:
        """Close a peer's links and open them again at the same address, as another process would."""
        links.close()
        return self.open(name, links.address)

    async def until(self, condition: Callable[[], object], within_s: float = 30.0) -> None:
        """Return when the condition holds; fail when it does not within the deadline."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        while not condition():
            if loop.time() > deadline:
                raise AssertionError(f"not within {within_s} s: {[links.counters for links in self.open_links]}")
            await asyncio.sleep(0.002)

    async def send(self, links: ZmqLinks, peer: str, frames: list[bytes], lane: Lane = Lane.CONTROL) -> None:
        """Send, again and again while there is no room."""
        await self.until(lambda: links.send(peer, frames, lane))

    def run(self, test: Coroutine[Any, Any, None]) -> None:
        async def bounded() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: self.failures.append(context))
            try:
                async with asyncio.timeout(60):
                    await test
            finally:
                for links in self.open_links:
                    links.close()

        asyncio.run(bounded())
        assert not self.failures


class MemoryNet(ZmqNet):
    """The same within this process, without sockets."""

    def __init__(self) -> None:
        super().__init__()
        self.network: Network = {}

    def make(self, bundle: Bundle, roster: Roster, listen: str, **options: Any) -> MemoryLinks:
        return MemoryLinks(self.network, bundle, roster, listen, **options)


@pytest.fixture
def net() -> ZmqNet:
    return ZmqNet()


@pytest.fixture(params=[ZmqNet, MemoryNet])
def every_net(request: pytest.FixtureRequest) -> ZmqNet:
    """Run a conformance test on every transport."""
    net: ZmqNet = request.param()
    return net
