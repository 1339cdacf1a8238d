"""One simulated peer: what a device keeps over all lives of its peer, and what one life has."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgpack

from p2pclust.peer.core.core import Core, Identity
from p2pclust.peer.core.events import Event, RosterRead
from p2pclust.peer.work.tasks import Memories
from p2pclust.protocols.engine.local import Local
from p2pclust.simulation.world.disk import Disk

__all__ = ["Peer", "paper_roster", "read_paper"]


def paper_roster(serial: int, names: Iterable[str], *, signed: bool = True) -> bytes:
    """Make a fleet roster as the simulator has them: it knows no cryptography, so the paper says whether it is signed.

    Examples
    --------
    >>> read_paper("p1", paper_roster(2, ["p2", "p1"])).peers
    {'p1': '', 'p2': ''}
    """
    paper: bytes = msgpack.packb([serial, dict.fromkeys(sorted(names), ""), signed])
    return paper


def read_paper(source: str, data: bytes) -> RosterRead:
    """What a shell would make of such a roster."""
    serial, peers, signed = msgpack.unpackb(data)
    return RosterRead(source, data, signed, serial, peers, "" if signed else "the fleet did not sign it")


@dataclass
class Peer:
    """One simulated peer over all its lives."""

    identity: Identity
    local: Local
    disk: Disk
    core: Core | None = None  # None while it is down
    life: int = 0
    frozen_until: float = 0.0
    asleep: bool = False
    held: list[Event] = field(default_factory=list)  # what happened while it was frozen or asleep, in that order
    wake_planned: float = float("inf")
    must_sync: bool = False
    memories: Memories = field(default_factory=Memories)  # of this life
    links: dict[str, None] = field(default_factory=dict)  # its neighbours, as far as it knows them; none on a full mesh
    wiped: bool = False  # its store was lost at least once since the job was handed in
    counters: dict[str, int] = field(
        default_factory=lambda: {"messages_sent": 0, "bytes_sent": 0, "messages_received": 0, "bytes_received": 0}
    )

    @property
    def name(self) -> str:
        """Its name."""
        return self.identity.name
