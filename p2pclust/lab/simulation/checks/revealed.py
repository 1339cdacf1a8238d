"""S6: no message reveals what a crash could take back: each row that it speaks of is on the disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgpack

from p2pclust.lab.simulation.world.peer import Peer, read_paper
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.effects import Send
from p2pclust.peer.core.enrolment import CURRENT
from p2pclust.peer.core.enrolment import TABLE as ROSTER
from p2pclust.peer.core.job_messages import (
    Adopted,
    Close,
    Ended,
    HeartbeatReply,
    HeldState,
    Mix,
    Partial,
    PreVoteReply,
    RequestVote,
    StaleTerm,
    Synced,
    VoteReply,
)  # fmt: skip
from p2pclust.peer.core.messages import (
    Ack,
    FactDelta,
    FactDigest,
    Gossip,
    MemberSync,
    Message,
    Ping,
    RosterOffer,
    RosterRequest,
)  # fmt: skip
from p2pclust.peer.core.spread.facts import CANCEL
from p2pclust.peer.core.spread.tombstones import ENDED

#: The kinds of messages that may speak of a row.
_REVEALING: Final = frozenset((
    Ack, Adopted, Close, Ended, FactDelta, FactDigest, Gossip, HeartbeatReply, HeldState, MemberSync, Mix, Partial, Ping,
    PreVoteReply, RequestVote, RosterOffer, RosterRequest, StaleTerm, Synced, VoteReply,
))  # fmt: skip


class Revealed:
    """Compares the messages of all peers of a world with their disks. `documents` are those of all jobs, by id."""

    def __init__(self, documents: Mapping[str, Document]) -> None:
        self._documents = documents
        self._cancels: dict[tuple[str, str], None] = {}  # who has revealed a cancel of its own, and of which job

    def flaw_of(self, peer: Peer, effect: Send) -> str:
        """Return what a message reveals that is not on the disk of its sender; empty if nothing."""
        message = effect.message
        if type(message) not in _REVEALING:
            return ""
        if isinstance(message, Adopted | Partial) and peer.disk.unsynced("note", message.job):
            return f"{peer.name} contributes while its note is not synced"
        kept = self._kept(peer, effect.to, message) and self._serial_kept(peer, message)
        return "" if kept else f"{peer.name} reveals what is not synced: {message.kind}"

    def _kept(self, peer: Peer, to: str, message: Message) -> bool:
        disk, kept = peer.disk, True
        match message:
            case VoteReply() if message.granted:
                kept = _ballot(peer, message.job) == (message.term, to)
            case RequestVote():
                kept = _ballot(peer, message.job) == (message.term, peer.name)
            case StaleTerm(job=job, term=term) | PreVoteReply(job=job, own_term=term) | Mix(job=job, epoch=term):
                kept = term <= self._term(peer, job)
            case Adopted() | Partial():
                kept = _held(peer, message.job)[:3] == [message.term, message.round, message.digest]
            case HeartbeatReply() if message.register_term:
                kept = _held(peer, message.job)[:2] == [message.register_term, message.register_round]
            case HeldState() if self._documents[message.job].treatment.collect != "gossip":
                row = _held(peer, message.job)
                kept = row[:3] == [message.entry_epoch, message.entry_round, message.digest]
            case Close():
                kept = _held(peer, message.job)[6:] == [True]
            case Ended():
                # A peer that refuses a job has no rows of it.
                never = disk.read_synced("job", message.job) is None and disk.read_synced("ballot", message.job) is None
                kept = never or disk.read_synced(ENDED, message.job) is not None
            case Synced():
                kept = disk.read_synced("job", message.job) is not None
            case Ping() | Ack() | Gossip() | MemberSync():
                incarnation = int(disk.read_synced("self", "incarnation") or b"0")
                own = [update.incarnation for update in message.updates if update.name == peer.name]
                kept = max(own, default=0) <= incarnation
            case FactDelta() if message.owner == peer.name:
                kept = self._cancels_kept(peer, message)
        return kept

    def _cancels_kept(self, peer: Peer, message: FactDelta) -> bool:
        """Return whether each cancel of the peer was on its disk when it was first revealed.

        Later its row may be gone: it is deleted with the job, or the store is lost and the fact comes back from others, to
        be published again.
        """
        cancels = [key.removeprefix(CANCEL) for key in message.keys if key.startswith(CANCEL)]
        new = [job for job in cancels if (peer.name, job) not in self._cancels]
        self._cancels.update({(peer.name, job): None for job in new})
        return all(peer.disk.read_synced("cancel", job) is not None for job in new)

    def _term(self, peer: Peer, job: str) -> int:
        """Return the term, or epoch, that a restarted peer would begin with."""
        named, held = bool(self._documents[job].treatment.aggregator), _held(peer, job)
        term: int = max(int(named), _ballot(peer, job)[0], held[0] if held else 0)
        return term

    @staticmethod
    def _serial_kept(peer: Peer, message: Message) -> bool:
        """Return whether a restarted peer would know the fleet roster whose serial the message has.

        A peer whose store is lost begins with the roster that it was started with before.
        """
        serial = message.serial if isinstance(message, FactDigest | MemberSync | RosterOffer | RosterRequest) else 0
        if serial <= peer.identity.serial:
            return True
        name = peer.disk.read_synced(ROSTER, CURRENT)
        kept = None if name is None else peer.disk.read_synced(ROSTER, name.decode())
        return kept is not None and read_paper("", kept).serial >= serial


def _ballot(peer: Peer, job: str) -> tuple[int, str]:
    row = peer.disk.read_synced("ballot", job)
    term, voted_for = msgpack.unpackb(row) if row else (0, "")
    return term, voted_for


def _held(peer: Peer, job: str) -> list[Any]:
    """Return the register's row on disk; empty if there is none."""
    row = peer.disk.read_synced("register", job)
    return list(msgpack.unpackb(row)) if row else []
