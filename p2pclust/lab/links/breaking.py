"""Links that a testbed breaks: cut in either direction, or losing some of their messages.

A wrapper around real links. A TCP connection loses nothing while it is up, so messages that a radio would lose are dropped
here, before they are sent and after they were received.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from p2pclust.transport.links import Counters, Lane, Links, Receive
from p2pclust.transport.roster import Roster


@dataclass(eq=False)
class BreakableLinks:
    """Links of one peer that can be cut or made lossy; implements `p2pclust.transport.links.Links`.

    The wrapped links call `take`; `receive` gets each message that is not lost. Nothing arrives from the peers in `deaf`,
    nothing gets through to those in `mute`, and any other message is lost with the probability `loss`.

    >>> heard = []
    >>> links = BreakableLinks(lambda *message: heard.append(message), np.random.Generator(np.random.PCG64(0)))
    >>> links.deaf = frozenset({"b"})
    >>> links.take("b", [b"lost"], Lane.CONTROL)
    >>> links.take("c", [b"heard"], Lane.CONTROL)
    >>> heard
    [('c', [b'heard'], <Lane.CONTROL: 0>)]
    """

    receive: Receive
    rng: np.random.Generator
    counters: Counters = field(default_factory=Counters)
    deaf: frozenset[str] = frozenset()
    mute: frozenset[str] = frozenset()
    loss: float = 0.0
    _links: Links = field(init=False, repr=False)

    def wrap(self, links: Links) -> BreakableLinks:
        """Use these links, and their counters: a message that is lost after it was sent counts as sent."""
        self._links = links
        self.counters = links.counters
        return self

    @property
    def roster(self) -> Roster:
        return self._links.roster

    def problem_with(self, peer: str) -> str:
        return "cut off by the testbed" if peer in self.mute else self._links.problem_with(peer)

    def connect(self, peer: str, address: str) -> None:
        self._links.connect(peer, address)

    def disconnect(self, peer: str) -> None:
        self._links.disconnect(peer)

    def send(self, peer: str, frames: Sequence[bytes], lane: Lane) -> bool:
        """Send a message, or lose it and return True all the same."""
        if peer in self.mute or self._loses():
            self.counters.messages_sent += 1
            self.counters.bytes_sent += sum(map(len, frames))
            return True
        return self._links.send(peer, frames, lane)

    def take(self, source: str, frames: list[bytes], lane: Lane) -> None:
        """Receive a message of the wrapped links."""
        if source in self.deaf or self._loses():
            self.counters.drop("not received: lost on the way")
        else:
            self.receive(source, frames, lane)

    def _loses(self) -> bool:
        return self.loss > 0 and float(self.rng.random()) < self.loss

    async def refused(self, peer: str, timeout_s: float) -> bool:
        """Return True if the peer's port refuses; never across a cut."""
        if peer in self.deaf or peer in self.mute:
            return False
        return await self._links.refused(peer, timeout_s)

    def close(self) -> None:
        self._links.close()


if TYPE_CHECKING:
    _follows_the_interface: type[Links] = BreakableLinks
