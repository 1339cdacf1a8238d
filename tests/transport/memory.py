"""A transport within one process, which shows that the conformance tests hold for more than ZeroMQ."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from p2pclust.errors import UsageError
from p2pclust.transport.bundle import Bundle
from p2pclust.transport.links import Counters, Lane, Links, Receive, parse_address, problem_with_frames
from p2pclust.transport.roster import Roster

MOST_WAITING = {Lane.CONTROL: 64, Lane.BULK: 8}
PATIENCE_S = 1.0

Network = dict[str, "MemoryLinks"]  # who listens, by address


@dataclass
class _Link:
    address: str
    waiting: dict[Lane, deque[list[bytes]]] = field(default_factory=lambda: {lane: deque() for lane in Lane})
    taken_at: float = 0.0  # when the other end last took a message, or the link was opened
    pump: asyncio.Handle | None = None


class MemoryLinks:
    """Links over a dictionary: one message of each link is handed over in each turn of the loop, control first."""

    _ports = count(1)

    def __init__(self, network: Network, bundle: Bundle, roster: Roster, listen: str, receive: Receive) -> None:
        self.counters = Counters()
        self.roster = roster
        self._network, self._name, self._receive = network, bundle.name, receive
        self._links: dict[str, _Link] = {}
        self._loop = asyncio.get_running_loop()
        self.address = f"127.0.0.1:{next(self._ports)}" if listen.endswith(":0") else listen
        network[self.address] = self

    def problem_with(self, peer: str) -> str:
        link = self._links.get(peer)
        return "" if link is not None and link.address in self._network else "no connection"

    def connect(self, peer: str, address: str) -> None:
        if self._network.get(self.address) is not self or (
            peer in self._links and self._links[peer].address == address
        ):
            return
        if peer not in self.roster.names or peer == self._name:
            self.counters.drop(f"not connected: {'ourselves' if peer == self._name else 'not on the roster'}")
            return
        try:
            parse_address(address)
        except UsageError:
            self.counters.drop("not connected: bad address")
            return
        self.disconnect(peer)
        self._links[peer] = _Link(address, taken_at=self._loop.time())

    def disconnect(self, peer: str) -> None:
        link = self._links.pop(peer, None)
        if link is not None and link.pump is not None:
            link.pump.cancel()

    def send(self, peer: str, frames: Sequence[bytes], lane: Lane) -> bool:
        link = self._links.get(peer)
        reason = "no such link" if link is None else problem_with_frames(frames, lane)
        if link is not None and not reason and len(link.waiting[lane]) >= MOST_WAITING[lane]:
            reason = "queue full"
        if link is None or reason:
            self.counters.drop(f"not sent: {reason}")
            return False
        if not any(link.waiting.values()):
            link.taken_at = self._loop.time()
        link.waiting[lane].append(list(frames))
        if link.pump is None:
            link.pump = self._loop.call_soon(self._hand_over, link)
        return True

    def _hand_over(self, link: _Link) -> None:
        link.pump = None
        other = self._network.get(link.address)
        lane = next(lane for lane in Lane if link.waiting[lane])
        if other is not None:
            frames, link.taken_at = link.waiting[lane].popleft(), self._loop.time()
            self.counters.messages_sent += 1
            self.counters.bytes_sent += sum(map(len, frames))
            other.take(self._name, frames, lane)
        elif self._loop.time() - link.taken_at > PATIENCE_S:
            for waiting in link.waiting.values():
                self.counters.drop("not sent: not connected", len(waiting))
                waiting.clear()
        if any(link.waiting.values()):
            link.pump = self._loop.call_later(0.0 if other is not None else 0.01, self._hand_over, link)

    def take(self, source: str, frames: list[bytes], lane: Lane) -> None:
        self.counters.messages_received += 1
        self.counters.bytes_received += sum(map(len, frames))
        self._receive(source, frames, lane)

    async def refused(self, peer: str, timeout_s: float) -> bool:
        return peer in self._links and self._links[peer].address not in self._network

    def close(self) -> None:
        if self._network.get(self.address) is self:
            del self._network[self.address]
        for peer in [*self._links]:
            self.disconnect(peer)


if TYPE_CHECKING:
    _follows_the_interface: type[Links] = MemoryLinks
