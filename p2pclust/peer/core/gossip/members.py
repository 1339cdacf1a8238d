"""The members of a gossip job: which peers take part in an epoch.

A *circle* is an epoch and its members. A round needs the answers of all members before any of them can end it
(:mod:`p2pclust.protocols.gossip.averaging`). A circle is proposed and entered only with a majority of the roster's intact
stores, as far as these are known, and a member finishes only after all members have named their store. Hence two circles
that both make progress have a peer in common, and that peer brings the result of one into the other.

The first circle is the whole roster, in epoch 0. Any peer may *propose* another one: it enters it with a higher epoch and
sends it to its neighbours, which enter it too, since the highest epoch wins. An epoch contains a checksum of its
proposer's store, so no two circles have the same epoch. It is on disk before a message is sent in it. Reasons to propose:

- Membership considers a member dead. The proposal is the rest of the circle, as far as the proposer reaches it over links
  of living peers. Without a majority nothing is proposed: this part waits.
- This peer is in no circle: it restarted and lost its masses, or others went on without it. It asks its neighbours, and
  those in a circle answer. The proposal is that circle and this peer. If no peer answers for a while, because all have
  restarted, the proposal is all present peers.
- A former life of this peer, whose store is lost, took part in this circle: neighbours have messages of it.

Entering a circle begins the running round again, with fresh contributions. So a death or a return costs a repeated round
and changes no sum: a mass of one epoch is never added to one of another.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol
from zlib import crc32

from p2pclust.peer.core.document import majority
from p2pclust.peer.core.job_messages import Join
from p2pclust.peer.core.round_reports import EpochBegun, LeftEpoch, WaitsForMajority
from p2pclust.peer.core.rounds.job_context import JobContext, JobPart
from p2pclust.protocols.gossip.push_sum import GossipLinks
from p2pclust.tools.bit_sets import as_mask, members_of, packed, unpacked

_STORE_BITS = 32
_MOST_EPOCHS = 2**60
_PATIENCE = 4  # repeats without an answer, or with a dead member


@dataclass(frozen=True)
class GossipMembers:
    """An epoch and its members: roster indices, sorted."""

    epoch: int
    members: tuple[int, ...]

    @cached_property
    def mask(self) -> bytes:
        return packed(as_mask(self.members))


class Mixes(Protocol):
    """What the membership calls: the job whose rounds its members close."""

    def entered(self) -> None:
        """Begin again in a new epoch."""

    def outside(self) -> None:
        """Stop: this peer is in no circle now."""

    def greet(self, name: str) -> None:
        """Send a peer this one's position."""


class GossipMembership(JobPart):
    """Which circle this peer is in: at most one at a time. Its epochs are the terms of the job's ledger."""

    def __init__(self, job: JobContext, mixes: Mixes) -> None:
        super().__init__(job)
        self._mixes = mixes
        self._all = self.document.peers_links
        self.circle: GossipMembers | None = None
        self.links: GossipLinks | None = None  # among the members
        self._needs_all = self.document.treatment.missing == "all"
        self._highest = self.ledger.term
        self._outside_since = 0.0
        self._asked_at = float("-inf")
        self._proposed_at = float("-inf")
        self._doubt_at = float("inf")
        self._waiting = 0  # the number of present peers in the last report; 0: not waiting

    def begin(self) -> None:
        self._enter(GossipMembers(0, tuple(range(len(self.document.roster)))))

    def join(self) -> None:
        """Ask for a circle after a restart."""
        self._leave()
        self._ask()

    def _leave(self) -> None:
        self.circle = self.links = None
        self._outside_since = self._ctx.now

    def _ask(self) -> None:
        self._asked_at = self._ctx.now
        for other in self._all.near[self._me]:
            if not self._membership.gone(self.document.roster[other]):
                self._ctx.send(self.document.roster[other], Join(self.document.id, self._highest))

    def heard(self, source: str, epoch: int, mask: bytes) -> bool:
        """Note that a peer is in a circle; return whether this peer is in the same one now."""
        if self.circle is not None and epoch <= self.circle.epoch:
            return epoch == self.circle.epoch
        bits = unpacked(mask)
        if bits.bit_length() > len(self.document.roster) or epoch < self.ledger.term:
            return False
        members = members_of(bits)
        if not members or epoch >= _MOST_EPOCHS:
            return False
        self._highest = max(self._highest, epoch)
        if not self._enough(members):
            # Its proposer assumed that a lost store was intact. Another circle with a higher epoch frees its members.
            self._rejoin((*members, *(self.circle.members if self.circle is not None else ())))
            return False
        # In an epoch in which a former life of this peer sent messages, others may hold masses that this life lacks.
        if self._me in members and epoch > self.ledger.term:
            self._enter(GossipMembers(epoch, members))
            return True
        if self.circle is not None:
            self._report(LeftEpoch, peer=source, epoch=epoch)
            self._leave()
            self._mixes.outside()
        self._rejoin(members)
        return False

    def _rejoin(self, members: tuple[int, ...]) -> None:
        if self._ctx.now - self._proposed_at < self._ctx.timing.retry_s:
            return  # the message is repeated
        part = self._all.among({*members, self._me}).part(self._me)
        if self._enough(part):
            self._propose(part)

    def renew(self) -> None:
        """Propose a new epoch: a former life of this peer took part in this one."""
        if self.circle is not None and self._ctx.now - self._proposed_at >= self._ctx.timing.retry_s:
            self._propose(self.circle.members)

    def settle(self) -> None:
        """Require only a majority from now on: the job is to end."""
        self._needs_all = False
        self.look()

    def look(self) -> None:
        """Check whether the circle can still make progress."""
        if self.circle is None:
            return
        roster = self.document.roster
        gone = [member for member in self.circle.members if self._membership.gone(roster[member])]
        self._doubt_at = float("inf")
        if not gone:
            self._waiting = 0
            return
        self._propose_or_wait([member for member in self.circle.members if member not in gone])

    def fire(self) -> None:
        pause_s = self._ctx.timing.retry_s
        if self._ctx.now >= self._doubt_at:
            self.look()
        if self.circle is not None or self._ctx.now - self._asked_at < pause_s:
            return
        self._ask()
        if self._ctx.now - self._outside_since < _PATIENCE * pause_s:
            return
        here = [index for index, name in enumerate(self.document.roster) if self._membership.present(name)]
        self._propose_or_wait({*here, self._me})

    def _propose_or_wait(self, members: Collection[int]) -> None:
        part, n_peers = self._all.among(members).part(self._me), len(self.document.roster)
        if self._enough(part) and (not self._needs_all or len(part) == n_peers):
            self._propose(part)
        elif len(part) != self._waiting:
            self._waiting = len(part)
            self._report(WaitsForMajority, present=len(part), of=n_peers)

    def _enough(self, members: Collection[int]) -> bool:
        """Return whether these may be a majority of the roster, with the stores that they had at submission.

        The stores of distant peers may be unknown; they report them before any peer finishes (:meth:`counted`).
        """
        names = ((index, self.document.roster[index]) for index in members)
        known = {i: self._ctx.store_id if n == self._ctx.me else self._membership.store_id(n) for i, n in names}
        return self.counted(known, unknown=True)

    def counted(self, stores: Mapping[int, str], *, unknown: bool = False) -> bool:
        """Return whether these peers, with these stores, are a majority; `unknown`: count unknown stores as intact."""
        roster = self.document.roster
        counts = [self.document.counts(roster[m], store) or (unknown and not store) for m, store in stores.items()]
        return sum(counts) >= majority(len(roster))

    def _propose(self, members: tuple[int, ...]) -> None:
        store = crc32(f"{self._ctx.me} {self._ctx.store_id}".encode())
        epoch = ((max(self._highest, self.ledger.term) >> _STORE_BITS) + 1 << _STORE_BITS) + store
        self._proposed_at = self._ctx.now
        told = [self.document.roster[member] for member in members]
        self._report(EpochBegun, epoch=epoch, members=told)
        self._enter(GossipMembers(epoch, members))

    def _enter(self, circle: GossipMembers) -> None:
        self.ledger.see(circle.epoch)
        self._highest = max(self._highest, circle.epoch)
        self.circle, self.links = circle, self._all.among(circle.members)
        # For a while, its proposer may know better than this peer's membership.
        doubts = any(self._membership.gone(self.document.roster[member]) for member in circle.members)
        self._doubt_at = self._ctx.now + _PATIENCE * self._ctx.timing.retry_s if doubts else float("inf")
        self._waiting = 0
        self._mixes.entered()
        if circle.epoch:
            for other in self.links.near[self._me]:
                self._mixes.greet(self.document.roster[other])
