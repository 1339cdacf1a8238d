"""For how long an aggregator waits for a peer, and what it does then.

A peer that says that it computes or fetches is not silent, for `compute_limit_s`; nor is one whose contribution comes in,
chunk by chunk, or waits for this peer itself. A peer that only answers heartbeats is silent: its answer does not arrive.
"""

from __future__ import annotations

from typing import Final

from p2pclust.peer.core.document import has_majority
from p2pclust.peer.core.messages import JobMessage
from p2pclust.peer.core.round_reports import Relayed
from p2pclust.peer.core.rounds.headway import Headway
from p2pclust.peer.core.rounds.job_context import JobContext, JobPart
from p2pclust.peer.core.rounds.round import AskedPeer, Collection

#: A silent peer is waited for in this many rounds in a row.
_MOST_SILENT: Final = 2
_LEAST_REPEATS: Final = 4  # of a message, in the time after which a silent peer is asked through others
_MOST_DOUBLINGS: Final = 16
_RELAYS: Final = 3
_NEVER: Final = float("-inf")


class Patience(JobPart):
    """Asks peers, again and through others; knows which were heard in one term, which work, and which are out of reach."""

    def __init__(self, job: JobContext, headway: Headway) -> None:
        super().__init__(job)
        self._headway = headway
        self._heard: dict[str, float] = dict.fromkeys(self.document.roster, self._ctx.now)
        self._astray: dict[str, None] = {}  # peers without a route when they were left out
        self._silent: dict[str, int] = {}  # how often each was left out as silent, since an answer of it came
        self.begin()

    def begin(self) -> None:
        """Begin a round."""
        self._works: dict[str, float] = {}  # when a peer last reported that it computes or fetches
        self._held_up: dict[bytes, float] = {}  # blobs that wait for this peer itself, and since when

    # -- what was heard ---------------------------------------------------------------------------------------------

    def heard(self, name: str) -> None:
        self._heard[name] = self._ctx.now

    def works(self, name: str) -> None:
        """Note that a peer computes or fetches, or that its contribution comes."""
        self._works[name] = self._ctx.now

    def answered(self, name: str) -> None:
        self._works.pop(name, None)
        self._silent.pop(name, None)
        self._headway.hung.pop(name, None)

    def heard_late(self, name: str) -> None:
        """Note that an answer of a peer, or a part of one, came, if only late, or that it is gone and may return."""
        self._silent.pop(name, None)

    def revoked(self, name: str) -> None:
        self._heard[name] = _NEVER
        self._works.pop(name, None)

    def followed(self) -> bool:
        """Return whether a majority, this peer included, was heard within the time that an election takes."""
        timing = self._ctx.timing
        lately_s = timing.election_max_s * self._headway.election_times() + timing.quiet_s
        heard = [name for name in self.document.roster if self._ctx.now - self._heard[name] < lately_s]
        return has_majority([self._ctx.me, *heard], self.document.roster)

    def note_chunks(self, collection: Collection) -> None:
        """Count chunks that arrived since the last call as signs of work, and blobs that wait for this peer itself."""
        for index, ref in collection.coming().items():
            one, left = collection.peers[index], self._blobs.left(ref.digest)
            before, one.chunks_left = one.chunks_left, left
            if (left != before or self._holds_up(ref.digest)) and not self._blobs.spoiled_by(ref.digest, one.name):
                self.works(one.name)
                if before not in (None, left):
                    self.heard_late(one.name)

    def _holds_up(self, digest: bytes) -> bool:
        """Return whether a blob waits for this peer itself, and not for so long that its worker may hang."""
        if not self._blobs.held_up(digest):
            self._held_up.pop(digest, None)
            return False
        since = self._held_up.setdefault(digest, self._ctx.now)
        return self._ctx.now - since <= self.document.treatment.compute_limit_s

    # -- what is asked ----------------------------------------------------------------------------------------------

    def ask(self, collection: Collection, index: int) -> None:
        one = collection.peers[index]
        one.sent_at = self._ctx.now
        self._ctx.send(one.name, collection.message_to(index))

    def ask_again(self, collection: Collection) -> None:
        """Ask the peers again that have not answered: first after `retry_s`, then ever more seldom.

        Each repeat is answered with the whole contribution, so a peer with a slow uplink would otherwise send more than its
        link carries, and its answers to probes would wait behind them.
        """
        now, retry_s = self._ctx.now, self._ctx.timing.retry_s
        longest_s = max(retry_s, self.document.treatment.patience_s / _LEAST_REPEATS)
        for index, one in collection.peers.items():
            if one.answered or index == self._me or self._membership.gone(one.name):
                continue
            if not self._ctx.routing.hop(one.name):
                # A peer that comes into reach is asked at the next heartbeat: contact may be shorter than `retry_s`.
                one.sent_at, one.repeats = _NEVER, 0
            elif now - self._works.get(one.name, _NEVER) >= retry_s:  # otherwise it works still
                pause_s = min(retry_s * 2.0 ** min(one.repeats, _MOST_DOUBLINGS), longest_s)
                if now - one.sent_at >= pause_s:
                    one.repeats += 1
                    self.ask(collection, index)

    def ask_around(self, collection: Collection, round_: int, message: JobMessage) -> list[AskedPeer]:
        """Ask peers that are silent for `patience_s` through other peers; return those to give up, after half as long again.

        Or those that compute for too long; with ``missing = "all"`` they are waited for, however long that takes.
        """
        patience_s, waits_for_all = self.document.treatment.patience_s, self.document.treatment.missing == "all"
        given_up = []
        for index in collection.missing():
            one = collection.peers[index]
            if index == self._me or (waits_for_all and self._membership.gone(one.name)):
                continue
            if not waits_for_all and one.name not in self._headway.hung and self.computes_too_long(collection, one):
                given_up.append(one)
            elif not self.silent(collection, one):
                continue
            elif one.relayed_at is None:
                one.relayed_at = self._ctx.now
                relays = self._ctx.send_around(one.name, message, self._membership.alive(), _RELAYS)
                self._report(Relayed, round=round_, peer=one.name, via=relays)
            elif self._ctx.now - one.relayed_at >= patience_s / 2:
                given_up.append(one)
        return given_up

    def silent(self, collection: Collection, one: AskedPeer) -> bool:
        """Return whether a peer has not answered, nor reported that it works, for `patience_s`."""
        since = max(self._works.get(one.name, 0.0), collection.asked_at)
        return self._ctx.now - since >= self.document.treatment.patience_s

    def computes_too_long(self, collection: Collection, one: AskedPeer) -> bool:
        """Return whether a peer still computes or fetches `compute_limit_s` after this peer's own answer."""
        return (
            one.name in self._works and self._ctx.now - collection.busy_since > self.document.treatment.compute_limit_s
        )

    # -- who is not waited for --------------------------------------------------------------------------------------

    def left_out(self, collection: Collection, one: AskedPeer) -> bool:
        """Note that the round continues without a peer; return whether it has computed for too long, or is silent.

        A silent peer is waited for again in the next round, or once there is a route to it. If it is silent then, too, its
        messages may be lost, and it is waited for again once an answer of it comes.
        """
        one.left_out = True
        if one.name not in self._headway.hung and self.computes_too_long(collection, one):
            self._headway.given_up(one.name)
            return True
        self._silent[one.name] = self._silent.get(one.name, 0) + 1
        if not self._ctx.routing.hop(one.name):
            self._astray[one.name] = None
        return False

    def astray(self, name: str) -> bool:
        """Return whether a peer need not be waited for: it hangs, its answers are lost, or it is out of reach since it was
        left out.
        """
        lost = self._silent.get(name, 0) >= _MOST_SILENT or (name in self._astray and not self._ctx.routing.hop(name))
        return lost or name in self._headway.hung
