"""Messages of an enrolled peer that lies: those that peers have sent, changed, and others from nothing but the schema.

Every field of every kind of message is changed. A change that would be refused at once for its digest is mended most of the
time, so that what lies behind that check is reached too.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgpack
import numpy as np
from tests.fuzz.fleets import HONEST, LIAR, Fleet
from tests.fuzz.mutations import Mutator

from p2pclust.errors import P2PClustError
from p2pclust.peer.core import codec, job_messages, messages
from p2pclust.peer.core.codec import decode, encode
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.messages import FactDelta, Message, Relay, Update
from p2pclust.peer.core.spread.facts import CANCEL, JOB, SERIES
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.workspace import digest_of

__all__ = ["KINDS", "Liar"]

KINDS: Final = {kind: codec.KINDS[kind] for kind in sorted(codec.KINDS)}
_HINTS: Final = {cls: get_type_hints(cls, include_extras=True) for cls in KINDS.values()}
#: Those behind which most is computed.
_OFTEN: Final = (
    "adopted", "blob-chunk", "close", "fact-delta", "held-state", "mix", "open", "pads", "partial", "unpad",
)  # fmt: skip
_COUNTED: Final = ("term", "epoch", "register_term", "round", "register_round", "entry_epoch", "entry_round")
_STATUSES: Final = ("alive", "suspect", "dead", "left", "unknown", "a" * 64)
#: Which field names the digest of the frames in which other field, and where their size is.
_DIGESTS: Final = (
    ("state", "digest"), ("payload", "contribution"), ("payload", "sum"), ("payload", "pads"), ("data", "digest"),
)  # fmt: skip


class Liar(Mutator):
    """Draws messages for one victim after the other."""

    def __init__(self, fleet: Fleet, rng: np.random.Generator) -> None:
        super().__init__(rng)
        self.fleet = fleet
        self._terms, self._rounds = [0], [0]
        self._jobs = [""]
        self._digests, self._stores = [bytes(32)], [""]
        self._version = 0

    def look_at(self, victim: str) -> None:
        """Learn what the victim holds now: its jobs, terms, states."""
        peer = self.fleet.world.peers.get(victim)
        core = None if peer is None else peer.core
        if core is None:
            return
        running = sorted(core.jobs.jobs.items(), key=lambda item: item[1].ledger.finished)
        ledgers = [job.ledger for _, job in running]
        self._jobs = [*(name for name, _ in running), "job-" + 32 * "0", "x"]
        self._terms = [ledger.term for ledger in ledgers] or [0]
        self._rounds = [ledger.register.round for ledger in ledgers] or [0]
        self._digests = [ledger.register.ref.digest if ledger.register.ref else bytes(32) for ledger in ledgers] or [
            b""
        ]
        self._stores = [peer.disk.store_id for peer in self.fleet.world.peers.values()]
        self._version = core.facts._held[LIAR].highest

    def name(self) -> str:
        """A name, mostly one of the fleet."""
        return str(self.pick((*HONEST, LIAR, *HONEST, LIAR, "zz", "p1 ", "n" * 64)))

    # -- messages -----------------------------------------------------------------------------------------------------

    def frames(self, victim: str) -> list[bytes]:
        """One message out of nothing, as frames."""
        message = self.message(victim)
        if self.chance(0.08):
            message = self.relayed(message, victim)
        return self.sent(message)

    def tampered(self, victim: str, message: Message) -> list[bytes] | None:
        """What becomes of a message that the liar's own core sends: in one of three cases another one."""
        if not self.chance(0.35):
            return None
        self.look_at(victim)
        return self.sent(self.changed(message, 1 + self.below(2)))

    def sent(self, message: Message) -> list[bytes]:
        """The frames of a message, some of them damaged."""
        frames = encode(message)
        if self.chance(0.07):
            return self.damaged(frames)
        return self.changed_header(frames) if self.chance(0.07) else frames

    def message(self, victim: str) -> Message:
        """One message: a recorded one, or one from the schema, with up to three other fields."""
        self.look_at(victim)
        kind = self.pick(_OFTEN if self.chance(0.5) else tuple(KINDS))
        recorded = self.fleet.world.recorded.get(kind, [])
        if kind == "fact-delta" and self.chance(0.6):
            return self._announced()
        message = decode(self.pick(recorded)) if recorded and self.chance(0.9) else self.made(KINDS[kind])
        return self.changed(self.aimed(message) if self.chance(0.7) else message, self.below(4))

    def aimed(self, message: Message) -> Message:
        """The message as if it were about what the victim does now."""
        at = self.below(len(self._terms))
        now = {"job": self._jobs[at], "term": self._terms[at], "round": self._rounds[at], "epoch": self._terms[at]}
        if isinstance(message, job_messages.Open | job_messages.Heartbeat):
            now["term"] += self.below(2)
            now["round"] += self.below(3)
        elif hasattr(message, "store_id"):
            now["digest"], now["store_id"] = self._digests[at], self._stores[-1]
        changes = {name: value for name, value in now.items() if value and hasattr(message, name)}
        return dataclasses.replace(message, **changes)

    def changed(self, message: Message, n: int) -> Message:
        """The message with so many other fields; most of the time its digests fit again."""
        fields = [field.name for field in dataclasses.fields(message)]
        large = [name for name in fields if get_args(_HINTS[type(message)][name])[:1] == (messages.Frame,)]
        for _ in range(n):
            name = self.pick(large if large and self.chance(0.5) else fields)
            value = self.value(name, _HINTS[type(message)][name], getattr(message, name))
            message = dataclasses.replace(message, **{name: value})
        return self._mended(message) if self.chance(0.8) else message

    def made(self, cls: type[Message]) -> Message:
        """A message from nothing but its schema."""
        fields = [field.name for field in dataclasses.fields(cls)]
        return cls(**{name: self.value(name, _HINTS[cls][name], None) for name in fields})

    def relayed(self, message: Message, victim: str) -> Relay:
        """A message in a relay: to the victim, or to be handed on."""
        target = victim if self.chance(0.6) else self.name()
        origin = LIAR if self.chance(0.8) else self.name()
        return Relay(origin, target, b"", tuple(encode(message)[:8]), min(max(-1, self.whole(1)), 2**62))

    def damaged(self, frames: list[bytes]) -> list[bytes]:
        """Frames with wrong bytes, or another number of frames."""
        at = self.below(len(frames))
        match self.below(4):
            case 0:
                return [*frames, *frames[at:]][:12]
            case 1:
                return frames[:at]
        return [*frames[:at], self.octets(frames[at]), *frames[at + 1 :]]

    def changed_header(self, frames: list[bytes]) -> list[bytes]:
        """Frames with a header that is msgpack, but perhaps not what the schema says."""
        changed = self.tree(msgpack.unpackb(frames[0]))
        try:
            return [bytes(msgpack.packb(changed)), *frames[1:]]
        except (ValueError, OverflowError, RecursionError):
            return frames

    # -- fields -------------------------------------------------------------------------------------------------------

    def value(self, name: str, hint: Any, before: Any) -> Any:  # noqa: PLR0911
        """A value of a field's type."""
        if get_origin(hint) is tuple:
            return self._several(name, get_args(hint)[0], before or ())
        match hint:
            case messages.Name if name == "job":
                return self.pick(self._jobs[:4])
            case messages.Name:
                return self.name()
            case messages.Digest:
                return self.pick((*self._digests, b"", bytes(32), self.rng.bytes(32)))
            case messages.Signature:
                return self.pick((b"", bytes(64), self.rng.bytes(64)))
            case messages.SignedBytes:
                return self.pick((before or b"", b"", bytes(200), self.rng.bytes(150)))
            case _ if hint is bool:
                return self.chance(0.5)
            case _ if hint is str:
                return self.pick((*self._stores, "", "h:1", "x" * 80, "é" * 40, "failed: x", "cancelled by x", "p9:0"))
            case _ if hint is bytes:
                return self.pick(
                    (b"", b"\x01", b"\x1f", b"\xff", b"\x00\x01", b"\xff" * 8, b"\x01" * 512, b"\xff" * 1024)
                )
        return self._number(name, before)

    def _number(self, name: str, before: int | None) -> int:
        """A number that a message may have: terms and rounds near those of the victim."""
        if name in _COUNTED and self.chance(0.7):
            return max(-1, self.pick(self._terms if "round" not in name else self._rounds) + self.below(4) - 1)
        return min(max(self.whole(before or 0), -1), 2**62)

    def _several(self, name: str, hint: Any, before: tuple[Any, ...]) -> tuple[Any, ...]:
        if hint is messages.Frame:
            return self._payloads(before)
        if before and self.chance(0.3):
            at = self.below(len(before))
            return self.pick((before[:at], before[at:] + before[:at], before + before[at:], before * 3))
        most = 2000 if self.chance(0.03) else 6
        return tuple(self._one(name, hint, before) for _ in range(self.below(most)))

    def _one(self, name: str, hint: Any, before: tuple[Any, ...]) -> Any:
        if hint is Update:
            words = (self.pick(self._stores), self.pick(("", "h:1", "127.0.0.1:1")), self.name())
            return Update(self.name(), self.pick(_STATUSES), self._number("", 2), words[1], words[0], words[2])
        if name in ("owners", "keys", "holders"):
            return self.pick((*HONEST, LIAR, "links", "floor", "fitness", "k" * 64))
        return self.value(name, hint, before[0] if before else None)

    def _payloads(self, before: tuple[bytes, ...]) -> tuple[bytes, ...]:
        match self.below(12):
            case 0:
                return ()
            case 1:
                return tuple(self.rng.bytes(self.below(50)) for _ in range(self.below(9)))
            case 2:
                return before[:7] + (before[:1] or (b"",))
        return tuple(self.payload(part) for part in before) or (self._stored(),)

    def _stored(self) -> bytes:
        """The payload of some recorded message."""
        kind = self.pick(list(self.fleet.world.recorded))
        frames = self.pick(self.fleet.world.recorded[kind])
        return bytes(self.pick(frames[1:])) if len(frames) > 1 else b""

    def _mended(self, message: Message) -> Message:
        """The message with the digest and size of what is in it."""
        for frames, digest in _DIGESTS:
            payload = getattr(message, frames, ())
            if payload and hasattr(message, digest):
                message = dataclasses.replace(message, **{digest: digest_of(payload[0])})
                if hasattr(message, "size_bytes"):
                    message = dataclasses.replace(message, size_bytes=len(payload[0]))
        return message

    # -- facts --------------------------------------------------------------------------------------------------------

    def _announced(self) -> FactDelta:
        """Facts that will be taken for new ones: documents of jobs, cancels, links, floors."""
        owner = LIAR if self.chance(0.7) else self.name()
        facts = [self._fact() for _ in range(1 + self.below(3))]
        version = self._version + 1 + self.below(3)
        versions = tuple(range(version, version + len(facts)))
        keys, values = tuple(key[:1024] for key, _ in facts), tuple(value for _, value in facts)
        return FactDelta(owner, self.below(2) * self._version, keys, versions, values)

    def _fact(self) -> tuple[str, bytes]:
        match self.below(8):
            case 0:
                return CANCEL + self.pick(self._jobs), self.pick((b"admin", b"", b"\xff" * 300, b" "))
            case 1:
                names = self.list_([self.name() for _ in range(3)])
                return "links", bytes(msgpack.packb(names)) if self.chance(0.6) else self.payload(b"\x91\xa2p1")
            case 2:
                return self.pick(("fitness", "floor", "told", "k")), self.pick(
                    (b"", b"50", b"-1", b"1e9", b"9" * 5000, b"\xff")
                )
        return self._document()

    def _document(self) -> tuple[str, bytes]:
        """A changed document under the name that belongs to it."""
        cores = [peer.core for peer in self.fleet.world.peers.values() if peer.core is not None]
        documents = [document for core in cores for document in core.jobs.table.documents.values()]
        if not documents:
            return JOB + "x", b"x"
        document = self.pick(documents)
        data = document.encode()
        with contextlib.suppress(P2PClustError, ValueError, TypeError, OverflowError, RecursionError):
            data = self._other_job(document).encode()
        if self.chance(0.3):
            data = self.payload(data)
        return _named(data), data

    def _other_job(self, document: Document) -> Document:
        """A job with other mathematics, another roster or another treatment."""
        changes: dict[str, Any] = {"nonce": self.rng.bytes(4).hex(), "submitter": self.pick((LIAR, LIAR, "p1", "zz"))}
        if self.chance(0.7):
            mathematics = msgpack.unpackb(document.mathematics, strict_map_key=False)
            for _ in range(1 + self.below(2)):
                mathematics = self.tree(mathematics)
            changes["job"] = bytes(msgpack.packb(mathematics))
        if self.chance(0.4):
            count = self.pick((1, 2, 3, 5, 5, 300, 3000))
            names = sorted({*self.pick(((), HONEST, (*HONEST, LIAR))), *(f"n{number:04d}" for number in range(count))})
            changes |= {"roster": tuple(names), "store_ids": tuple(self.pick(("", *self._stores)) for _ in names)}
        if self.chance(0.4):
            name = self.pick([field.name for field in dataclasses.fields(Treatment)])
            value = self.other(getattr(document.treatment, name))
            changes["treatment"] = dataclasses.replace(document.treatment, **{name: value})
        if document.turn is not None and self.chance(0.8):
            number = document.turn.number + self.pick((0, 1, 2, 2**31, 2**62))
            changes["turn"] = dataclasses.replace(document.turn, number=number)
        return dataclasses.replace(document, **changes)


def _named(data: bytes) -> str:
    """The key under which a document must come to be looked at."""
    try:
        document = Document.decode(data)
        return JOB + document.id if document.turn is None else SERIES + document.turn.series
    except (P2PClustError, ValueError):
        return JOB + "x"
