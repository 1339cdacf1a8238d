"""S6: no message reveals what a crash could take back: each row that it speaks of is on the disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgpack

from p2pclust.lab.simulation.world.peer import Peer, read_paper
from p2pclust.peer.core import job_messages as jobs
from p2pclust.peer.core import messages
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.effects import Send
from p2pclust.peer.core.enrolment import CURRENT
from p2pclust.peer.core.enrolment import TABLE as ROSTER
from p2pclust.peer.core.ledger import ENDED
from p2pclust.peer.core.spread.facts import CANCEL

_WithSerial = messages.FactDigest | messages.MemberSync | messages.RosterOffer | messages.RosterRequest


class Revealed:
    """Compares the messages of all peers of a world with their disks. `documents` are those of all jobs, by id."""

    def __init__(self, documents: Mapping[str, Document]) -> None:
        self._documents = documents
        self._cancels: dict[tuple[str, str], None] = {}  # who has revealed a cancel of its own, and of which job

    def problem_with(self, peer: Peer, effect: Send) -> str:
        """Return what a message reveals that is not on the disk of its sender; empty if nothing."""
        message = effect.message
        if isinstance(message, jobs.Adopted | jobs.Partial) and peer.disk.unsynced("note", message.job):
            return f"{peer.name} contributes while its note is not synced"
        kept = self._kept(peer, effect.to, message)
        serial = message.serial if isinstance(message, _WithSerial) else 0
        # A peer whose store is lost begins with the fleet roster that it was started with before.
        if kept and serial > peer.identity.serial:
            name = peer.disk.read_synced(ROSTER, CURRENT)
            paper = None if name is None else peer.disk.read_synced(ROSTER, name.decode())
            kept = paper is not None and read_paper("", paper).serial >= serial
        return "" if kept else f"{peer.name} reveals what is not synced: {message.kind}"

    def _kept(self, peer: Peer, to: str, message: messages.Message) -> bool:
        disk, kept = peer.disk, True
        match message:
            case jobs.VoteReply() if message.granted:
                kept = _ballot(peer, message.job) == (message.term, to)
            case jobs.RequestVote():
                kept = _ballot(peer, message.job) == (message.term, peer.name)
            case (
                jobs.StaleTerm(job=job, term=term)
                | jobs.PreVoteReply(job=job, own_term=term)
                | jobs.Mix(job=job, epoch=term)
            ):
                # A restarted peer would begin with this term, or epoch.
                named, held = bool(self._documents[job].treatment.aggregator), _held(peer, job)
                kept = term <= max(int(named), _ballot(peer, job)[0], held[0] if held else 0)
            case jobs.Adopted() | jobs.Partial():
                kept = _held(peer, message.job)[:3] == [message.term, message.round, message.digest]
            case jobs.HeartbeatReply() if message.register_term:
                kept = _held(peer, message.job)[:2] == [message.register_term, message.register_round]
            case jobs.HeldState() if self._documents[message.job].treatment.collect != "gossip":
                row = _held(peer, message.job)
                kept = row[:3] == [message.entry_epoch, message.entry_round, message.digest]
            case jobs.Close():
                kept = _held(peer, message.job)[6:] == [True]
            case jobs.Ended():
                # A peer that refuses a job has no rows of it.
                never = disk.read_synced("job", message.job) is None and disk.read_synced("ballot", message.job) is None
                kept = never or disk.read_synced(ENDED, message.job) is not None
            case jobs.Synced():
                kept = disk.read_synced("job", message.job) is not None
            case messages.Ping() | messages.Ack() | messages.Gossip() | messages.MemberSync():
                incarnation = int(disk.read_synced("self", "incarnation") or b"0")
                own = [update.incarnation for update in message.updates if update.name == peer.name]
                kept = max(own, default=0) <= incarnation
            case messages.FactDelta() if message.owner == peer.name:
                # Each cancel was on the disk when it was first revealed. Later its row may be gone: it is deleted with the
                # job, or the store is lost and the fact comes back from others, to be published again.
                cancels = [key.removeprefix(CANCEL) for key in message.keys if key.startswith(CANCEL)]
                new = [job for job in cancels if (peer.name, job) not in self._cancels]
                self._cancels.update({(peer.name, job): None for job in new})
                kept = all(disk.read_synced("cancel", job) is not None for job in new)
        return kept


def _ballot(peer: Peer, job: str) -> tuple[int, str]:
    row = peer.disk.read_synced("ballot", job)
    term, voted_for = msgpack.unpackb(row) if row else (0, "")
    return term, voted_for


def _held(peer: Peer, job: str) -> list[Any]:
    """Return the register's row on disk; empty if there is none."""
    row = peer.disk.read_synced("register", job)
    return list(msgpack.unpackb(row)) if row else []
