"""An enrolled peer that lies about everything, in well-formed messages of every kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from harness import Net

from p2pclust.peer.core.job_messages import (
    Adopted,
    Close,
    CloseReply,
    Heartbeat,
    HeartbeatReply,
    Open,
    PreVote,
    PreVoteReply,
    RequestVote,
    StaleTerm,
    Synced,
    VoteReply,
)  # fmt: skip
from p2pclust.peer.core.messages import (
    Ack,
    BlobChunk,
    BlobMissing,
    BlobRequest,
    FactDelta,
    FactDigest,
    Gossip,
    MemberSync,
    Message,
    Ping,
    PingRequest,
    Refusal,
    Relay,
    Update,
)  # fmt: skip
from p2pclust.protocols.engine.workspace import digest_of

LIAR = "p4"
UNREADABLE = 0.1


@dataclass
class Liar:
    """Draws messages that are well-formed; what it knows of the job makes them hit where it hurts."""

    rng: np.random.Generator
    job: str
    digests: list[bytes]
    terms: tuple[int, int] = (0, 6)
    round: int = 0
    ends: bool = False  # whether it also tells ends that are believed, after which little is left to attack
    keys: int = 0  # how many facts it has made up so far

    def look_at(self, net: Net, name: str) -> None:
        """Aim at what the victim holds now: its terms, and the state in its register."""
        ledger = net.job(name, self.job).ledger
        self.terms = (max(0, ledger.term - 2), ledger.term + 3)
        if ledger.register.ref is not None:
            self.digests = [ledger.register.ref.digest]
        self.round = ledger.register.round

    def near(self) -> int:
        """A round near the victim's, or any."""
        return self.round + int(self.pick(0, 0, 1, -1)) if self.rng.random() < 0.7 else self.number()

    def pick(self, *values: Any) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def number(self) -> int:
        return int(self.pick(-1, 0, 1, 2, 3, 7, 255, 2**31))

    def term(self) -> int:
        return int(self.rng.integers(*self.terms))

    def name(self) -> str:
        return str(self.pick("p1", "p2", "p3", "p4", "zz", "", "p1 ")) or "p9"

    def digest(self) -> bytes:
        return bytes(self.pick(*self.digests, b"", bytes(32), self.rng.bytes(32)))

    def which(self) -> str:
        return str(self.pick(self.job, self.job, self.job, "job-000000000000", self.name()))

    def frames(self) -> tuple[bytes, ...]:
        return tuple(self.pick((), (b"s1[0]",), (b"",), (b"x" * 32,), (b"a", b"b", b"c")))

    def state(self) -> tuple[bytes, ...]:
        """A state in the message or none; one in ten cannot be read, and whoever aggregates with it gives up."""
        if self.rng.random() < UNREADABLE:
            return tuple(self.pick((b"",), (b"garbage",), (b"s",), (b"s1[0",), (b"\xc1" * 100,), (b"s1", b"s2")))
        return tuple(self.pick((), (b"s0",), (b"s1[0]",), (b"s2[3]",)))

    def size(self) -> int:
        return int(self.pick(-1, 0, 1, 5, 300, 100_000, 1024**3, 1024**3 + 1, 2**62))

    def text(self, longest: int) -> str:
        return str(self.pick("", "h:1", "h" * longest, "\u00e9" * (longest // 2)))

    def updates(self) -> tuple[Update, ...]:
        status = ("unknown", "alive", "suspect", "dead", "left", "asleep", "a" * 64)
        return tuple(
            Update(self.name(), str(self.pick(*status)), self.number(), self.text(80), self.text(80), self.text(80))
            for _ in range(int(self.rng.integers(0, 4)))
        )

    def facts(self) -> FactDelta:
        """Up to seven facts, some of them new ones of its own: these are what could fill a memory."""
        if self.rng.random() < 0.5:
            key = str(self.pick("a", "b", "job/" + self.job, "job/x", "k" * 1024))
            return FactDelta(self.name(), self.number(), (key,), (self.number(),), (self.frames() or (b"",))[:1])
        numbers = range(self.keys + 1, self.keys + 8)
        self.keys += len(numbers)
        return FactDelta(LIAR, 0, tuple(f"key-{i}" for i in numbers), tuple(numbers), (b"x" * 32,) * len(numbers))

    def end(self) -> Close:
        """The end with a state that is not the one it names, with none, or with one too large to be fetched at once."""
        job, round_ = self.which(), max(-1, self.near())
        if self.ends and self.rng.random() < 0.02:
            return Close(job, self.term(), round_, digest_of(b"s9[3]"), 5, (b"s9[3]",))
        state = tuple(self.pick((), (), (b"s1[0]",), (b"",), (b"garbage",)))
        digest = bytes(self.pick(*self.digests, self.rng.bytes(32), self.rng.bytes(32)))
        return Close(job, self.term(), round_, digest, self.size(), state)

    def message(self) -> Message:  # noqa: PLR0911
        """One message of any kind."""
        kind = int(self.rng.integers(0, 25))
        seq, job, term = self.number(), self.which(), self.term()
        state, frames = self.digest(), self.frames()
        if frames and self.rng.random() < 0.5:
            state = digest_of(frames[0])
        match kind:
            case 0:
                return Ping(seq, self.updates())
            case 1:
                return Ack(seq, bool(self.pick(True, False)), self.updates())
            case 2:
                return PingRequest(seq, self.name(), self.updates())
            case 3:
                return Gossip(self.updates())
            case 4:
                return MemberSync(bool(self.pick(True, False)), self.updates())
            case 5:
                return Refusal(self.name(), seq)
            case 6:
                return FactDigest(
                    bool(self.pick(True, False)), (self.name(), self.name()), (seq, self.number()), (self.number(), 0)
                )
            case 7:
                return self.facts()
            case 8:
                return Synced(job)
            case 9:
                return PreVote(job, term, self.term(), max(-1, self.near()))
            case 10:
                return PreVoteReply(job, term, True, self.term(), "store-p4")
            case 11:
                return RequestVote(job, term, self.term(), max(-1, self.near()))
            case 12:
                return VoteReply(job, term, True, "store-p4")
            case 13:
                return StaleTerm(job, term)
            case 14 | 15:
                opened = self.state()
                state = digest_of(opened[0]) if opened and self.rng.random() < 0.8 else state
                final = self.ends and bool(self.pick(True, False, False))
                proposer = int(self.pick(-1, -1, 0, 3, 4, 255, 2**31))
                return Open(job, term, max(-1, self.near()), state, self.size(), final, proposer, opened)
            case 16 | 17:
                store, reason, said = str(self.pick("store-p4", "s")), self.text(1024), self.digest()
                return Adopted(job, term, max(-1, self.near()), state, store, reason, said, self.size(), frames)
            case 18:
                return Heartbeat(job, term, max(-1, self.near()))
            case 19:
                held, busy = max(-1, self.near()), bool(self.pick(True, False))
                return HeartbeatReply(job, term, term, held, "store-p4", busy, max(-1, self.near()))
            case 20:
                return CloseReply(job, bool(self.pick(True, False)))
            case 21:
                return BlobRequest(state, seq)
            case 22:
                return BlobChunk(state, seq, frames) if self.pick(True, False) else BlobMissing(state)
            case 23:
                return self.end()
            case _:
                return Relay(self.name(), self.name(), b"", frames)
