"""One simulated peer: what a device keeps over all lives of its peer, and what one life has."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final

import msgpack
import numpy as np

from p2pclust.lab.simulation.world.disk import Disk
from p2pclust.peer.core.core import Core, Identity
from p2pclust.peer.core.events import Event, RosterRead
from p2pclust.peer.core.fleet_roster import FleetRoster, RosterName
from p2pclust.peer.core.tasks import Ref
from p2pclust.peer.core.timing import Limits
from p2pclust.peer.shell.performer import Performer
from p2pclust.peer.work.secrets import Secrets
from p2pclust.peer.work.tasks import Life
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.workspace import digest_of

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


class Clock:
    """Local time as a function of world time, both in seconds.

    >>> clock = Clock()
    >>> clock.set(10.0, rate=2.0)
    >>> clock.read(11.0), clock.when(12.0)
    (12.0, 11.0)
    >>> clock.set(11.0, leap_s=5.0)
    >>> clock.read(11.0)
    17.0
    """

    def __init__(self) -> None:
        self._since, self._then, self._rate = 0.0, 0.0, 1.0

    def read(self, now: float) -> float:
        if self._rate == 1.0 and self._since == self._then:
            return now  # without the last bits that a detour would cost
        return self._then + (now - self._since) * self._rate

    def when(self, local: float) -> float:
        """Return the first world time at which the clock shows a local time, or a later one."""
        if (self._rate == 1.0 and self._since == self._then) or local == math.inf:
            return local
        found = self._since + (local - self._then) / self._rate
        while self.read(found) < local:  # by the last bits
            found = math.nextafter(found, math.inf)
        return found

    def set(self, now: float, *, rate: float | None = None, leap_s: float = 0.0) -> None:
        """From now on, run so many times as fast as the world's time, or show a later time."""
        self._then, self._since, self._rate = self.read(now) + leap_s, now, self._rate if rate is None else rate


#: The public key of a simulated fleet: nothing is signed with it.
FLEET: Final = hashlib.sha256(b"simulated fleet").digest()


def paper_roster(
    serial: int, names: Iterable[str], *, signed: bool = True, renewed: Mapping[str, str] | None = None
) -> bytes:  # fmt: skip
    """Make a fleet roster as the simulator has them: it knows no cryptography, so the paper says whether it is signed.

    `renewed` has a text for each peer with new keys, another for each key.

    >>> read_paper("p1", paper_roster(2, ["p2", "p1"])).peers
    {'p1': '', 'p2': ''}
    """
    texts = {name: (renewed or {}).get(name, "") for name in sorted(names)}
    paper: bytes = msgpack.packb([serial, texts, signed])
    return paper


def read_paper(source: str, data: bytes, *, keyed: bool = False) -> RosterRead:
    """What a shell would make of such a roster, in a fleet with keys or without."""
    serial, peers, signed = msgpack.unpackb(data)
    devices = {name: _public(name, text) for name, text in peers.items()} if keyed else None
    reason = "" if signed else "the fleet did not sign it"
    return RosterRead(source, data, signed, serial, peers, reason, devices)


def fleet_roster_of(data: bytes) -> FleetRoster:
    """Return what a core of a fleet with keys knows of such a roster."""
    read = read_paper("", data, keyed=True)
    return FleetRoster(RosterName(read.serial, hashlib.sha256(data).digest()), read.devices or {})


@lru_cache(maxsize=64)
def device_key(name: str, text: str = "") -> Ed25519PrivateKey:
    """Return the key of a simulated device: everyone could make it, and the simulator keeps no secrets from itself."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(f"simulated device {name}{text}".encode()).digest())


@lru_cache(maxsize=256)
def _public(name: str, text: str) -> bytes:
    return device_key(name, text).public_key().public_bytes_raw()


def stand_in(public: bytes, statement: bytes) -> bytes:
    """Return what stands for a signature: cheap, and another for every key and statement; liars make none of others."""
    return hashlib.blake2b(statement, key=public).digest()


def signer_of(name: str, text: str) -> Callable[[bytes], bytes]:
    """Return how a simulated device signs votes and ends."""
    return partial(stand_in, _public(name, text))


def stands(public: bytes, signature: bytes, statement: bytes) -> bool:
    return signature == stand_in(public, statement)


def device_secrets(name: str, rng: np.random.Generator, text: str = "") -> Secrets:
    """Return what secure sums need of a simulated device, for one life; `text` is that of its key on the fleet roster."""
    return Secrets(FLEET, device_key(name, text).sign, rng.bytes)


@dataclass
class Peer:
    """One simulated peer over all its lives."""

    identity: Identity
    local: Local
    disk: Disk
    core: Core | None = None  # None while it is down
    life: int = 0
    clock: Clock = field(default_factory=Clock)
    frozen_until: float = 0.0
    asleep: bool = False
    held: list[Event] = field(default_factory=list)  # what happened while it was frozen or asleep, in that order
    wake_planned: float = float("inf")
    performer: Performer = field(init=False)  # of this life
    unwritten: int = 0  # rows that the core wants on the disk, and that are still in its performer
    working: Life = field(default_factory=Life)  # what its worker has in this life
    links: dict[str, None] = field(default_factory=dict)  # its neighbours, as far as it knows them; none on a full mesh
    wiped: bool = False  # its store was lost at least once since the job was handed in
    counters: dict[str, int] = field(
        default_factory=lambda: {"messages_sent": 0, "bytes_sent": 0, "messages_received": 0, "bytes_received": 0}
    )

    @property
    def name(self) -> str:
        return self.identity.name

    def bytes_of(self, ref: Ref) -> bytes:
        """Return the state that a reference names, from its message or from the disk."""
        return b"".join(self.disk.blob(ref.digest)) if ref.payload is None else ref.payload

    def state_of(self, job_id: str) -> bytes:
        """Return the state that the peer, which runs, holds of a job that it knows and has a state of."""
        assert self.core is not None
        ref = self.core.jobs.jobs[job_id].ledger.register.ref
        assert ref is not None
        return self.bytes_of(ref)

    def keep(self, data: bytes, limits: Limits) -> Ref:
        """Return a reference to a state; a large one is written to the disk as a blob."""
        digest = digest_of(data)
        if len(data) <= limits.inline_bytes:
            return Ref(digest, len(data), data)
        self.disk.store_blob(digest, data, limits.chunk_bytes)
        return Ref(digest, len(data), None)
