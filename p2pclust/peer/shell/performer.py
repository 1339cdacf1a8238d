"""Performs a core's effects and reads its messages: the one way for real peers and for simulated ones.

Effects are performed in order. Successive rows are one write, which is on disk before the next effect, so that no message
leaves before what it promises is stored. It has no socket, file, clock or loop of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from p2pclust.errors import WireError
from p2pclust.peer.core import effects
from p2pclust.peer.core.codec import decode, encode
from p2pclust.peer.core.effects import CheckRoster, Compute, Effect, Persist, Send, SendRoster, TakeRoster
from p2pclust.peer.core.events import Arrived
from p2pclust.peer.core.messages import BlobChunk, BlobMissing, FactDelta, Message, Relay
from p2pclust.peer.core.reports import ForgedFact, Report
from p2pclust.peer.core.spread.facts import Fact, facts_of
from p2pclust.transport.links import Lane

_SHOWN: Final = 80  # letters of a forged fact's key
Row = tuple[str, str, bytes | None]
"""Table, key and value of a row; a row without a value is deleted."""


class Chunks(Protocol):
    """The chunks of blobs in a store; see `BlobFiles`. A crash may lose a chunk, and an absent one is None."""

    def store_chunk(self, digest: bytes, index: int, n_chunks: int, data: bytes) -> None: ...
    def chunk(self, digest: bytes, index: int) -> bytes | None: ...
    def drop(self, digest: bytes) -> None: ...


class RowStore(Protocol):
    """The rows of a store, and its blobs. Rows are written in one transaction; with `sync` they are then on disk."""

    @property
    def blobs(self) -> Chunks: ...
    def write(self, rows: Sequence[Row], *, sync: bool) -> None: ...


class Outbox(Protocol):
    """The sending half of links; see `Links`."""

    def send(self, peer: str, frames: list[bytes], lane: Lane) -> bool: ...
    def connect(self, peer: str, address: str) -> None: ...
    def disconnect(self, peer: str) -> None: ...


class Tasks(Protocol):
    """A worker's queue. It reads the rows again after the queued tasks."""

    def submit(self, effect: Compute) -> None: ...
    def reload(self) -> None: ...


class Signatures(Protocol):
    """Signs and verifies relayed messages and facts; see `RosterSigner`."""

    @property
    def signs_facts(self) -> bool: ...
    def sign(self, target: str, frames: Sequence[bytes]) -> bytes: ...
    def valid(self, relay: Relay) -> bool: ...
    def sign_fact(self, fact: Fact) -> bytes: ...
    def enrolled(self, owner: str) -> bool: ...
    def fact_valid(self, fact: Fact) -> bool: ...


class Agent(Protocol):
    """Whatever runs the core; see `Shell`."""

    def report(self, effect: Report) -> None: ...
    def check_link(self, peer: str) -> None: ...
    def held(self, owner: str, key: str) -> int: ...
    def excuses(self, source: str, serial: int) -> bool: ...

    def before(self, effect: Effect) -> None:
        """An effect other than a row is about to be performed; what comes before it is on disk."""


@dataclass(eq=False)
class Performer:
    """Performs the effects of one peer, named `me`."""

    me: str
    store: RowStore
    links: Outbox
    worker: Tasks
    signer: Signatures
    on_roster: Callable[[CheckRoster | TakeRoster | SendRoster], None]  # performs what concerns fleet rosters
    agent: Agent
    encode: Callable[[Message], list[bytes]] = encode
    decode: Callable[[Sequence[bytes]], Message] = decode
    #: The last message that was sent, and its frames: a state is sent to all peers in one and the same message.
    _encoded: tuple[Message | None, list[bytes]] = field(default=(None, []), init=False)

    def perform_all(self, of_step: Iterable[Effect]) -> None:
        """Perform the effects of one step, in order; each is read after the one before it was performed."""
        rows: list[Row] = []
        sync = False
        for effect in of_step:
            if isinstance(effect, Persist):
                rows.append((effect.table, effect.key, effect.value))
                sync = sync or effect.sync
                continue
            if rows:
                self.store.write(rows, sync=sync)
                rows, sync = [], False
            self.agent.before(effect)
            if type(effect) is Send:  # most are
                self._send(effect)
            else:
                self.perform(effect)
        if rows:
            self.store.write(rows, sync=sync)

    def arrived(self, source: str, frames: list[bytes]) -> Arrived:
        """Return the event of a message that came from a neighbour, perhaps relayed, or raise WireError."""
        message = self.decode(frames)
        if not (isinstance(message, Relay) and message.target == self.me):
            return Arrived(source, self._genuine(source, message))
        inner = self.decode(message.inner)
        if isinstance(inner, Relay) or not self.signer.valid(message):
            raise WireError("relayed message without a valid signature")
        return Arrived(message.origin, self._genuine(message.origin, inner), via=source)

    def _genuine(self, source: str, message: Message) -> Message:
        """Return the message; of facts, only those before the first that its owner did not sign.

        What follows a forged fact goes too: a peer that took it would no longer ask for what is missing.
        """
        if not isinstance(message, FactDelta) or not self.signer.signs_facts:
            return message
        for number, fact in enumerate(facts_of(message)):
            known = self.signer.enrolled(fact.owner)
            if fact.version <= self.agent.held(fact.owner, fact.key) or (known and self.signer.fact_valid(fact)):
                continue  # the core takes no fact that is not newer than its own
            # Otherwise the sender has another roster, in which the owner may have another key.
            if known and not self.agent.excuses(source, message.serial):
                reason = "the signature is not its owner's" if fact.signature else "it is not signed"
                self.perform_all([ForgedFact(source, fact.owner, fact.key[:_SHOWN], reason)])
            return replace(
                message, keys=message.keys[:number], versions=message.versions[:number], values=message.values[:number],
                signatures=message.signatures[:number],
            )  # fmt: skip
        return message

    def perform(self, effect: Effect) -> None:
        """Perform one effect that is not a row."""
        match effect:
            case Send():
                self._send(effect)
            case Report():
                self.agent.report(effect)
            case Compute():
                self.worker.submit(effect)
            case effects.Reload():
                self.worker.reload()
            case effects.CheckLink():
                self.agent.check_link(effect.peer)
            case effects.Connect():
                self.links.connect(effect.peer, effect.address)
            case effects.Disconnect():
                self.links.disconnect(effect.peer)
            case effects.StoreChunk():
                self.store.blobs.store_chunk(effect.digest, effect.index, effect.n_chunks, effect.data)
            case effects.SendChunk():
                data = self.store.blobs.chunk(effect.digest, effect.index)
                chunk = None if data is None else BlobChunk(effect.digest, effect.index, (data,))
                self._send(Send(effect.to, chunk or BlobMissing(effect.digest), bulk=chunk is not None))
            case effects.DropBlob():
                self.store.blobs.drop(effect.digest)
            case _:
                assert isinstance(effect, CheckRoster | TakeRoster | SendRoster), f"unknown effect {effect}"
                self.on_roster(effect)

    def _send(self, effect: Send) -> None:
        if effect.message is not self._encoded[0]:
            message = effect.message
            if isinstance(message, FactDelta) and message.owner == self.me and self.signer.signs_facts:
                message = replace(message, signatures=tuple(self.signer.sign_fact(fact) for fact in facts_of(message)))
            self._encoded = (effect.message, self.encode(message))
        frames = self._encoded[1]
        lane = Lane.BULK if effect.bulk else Lane.CONTROL
        if not effect.via:
            self.links.send(effect.to, frames, lane)
            return
        carried = self.encode(Relay(self.me, effect.to, self.signer.sign(effect.to, frames), tuple(frames)))
        for name in effect.via:
            self.links.send(name, carried, lane)
