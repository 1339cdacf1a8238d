"""What an aggregator sends: the opened state, to each peer directly or down a tree, and heartbeats between."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from p2pclust.peer.core.job_messages import Heartbeat, Open
from p2pclust.peer.core.rounds.job_context import JobContext, JobPart
from p2pclust.peer.core.rounds.open_round import OpenRound
from p2pclust.peer.core.rounds.patience import Patience

RELAYS: Final = 3
_LEAST_REPEATS: Final = 4  # of an open, in the time after which a silent peer is asked through others


class Invitations(JobPart):
    """The invitations to the rounds of one term."""

    def __init__(self, job: JobContext, patience: Patience) -> None:
        super().__init__(job)
        self._patience = patience
        self._term = job.ledger.term

    def grow_tree(self, opened: OpenRound) -> None:
        """Make a tree of the reachable peers; this peer asks the others directly."""
        from p2pclust.peer.core.rounds.tree_sums import Branches, tree_of  # noqa: PLC0415 - few jobs have a tree

        roster = self._document.roster
        parents = [-1] * len(roster)
        reachable = [name for name in roster if not self._membership.gone(name)]
        for name, above in self._ctx.routing.tree(reachable).items():
            parents[self._document.index(name)] = self._document.index(above)
        opened.tree = tree_of(tuple(parents), self._me)
        opened.branches = Branches(self._blobs, self._document, opened.tree, self._me)
        for name in self._ctx.barred:
            if name in self._document:
                opened.branches.drop(self._document.index(name))

    def send_all(self, opened: OpenRound) -> None:
        """Send the opened state to all present peers, except those that get it along the tree."""
        message = opened.message(self._document.id, self._term)  # one for all, so that it is encoded once
        below = 0 if opened.tree is None else opened.tree.below[self._me]
        for index, name in enumerate(self._document.roster):
            if index == self._me or self._membership.gone(name):
                continue
            opened.sent_at[name] = self._ctx.now
            child = opened.branches is not None and index in opened.branches.children
            if child or not below >> index & 1:  # otherwise another peer hands it on
                self._ctx.send(name, self._along(opened, index, message) if child else message)

    def send(self, opened: OpenRound, name: str) -> None:
        """Send the opened state to one peer."""
        opened.sent_at[name] = self._ctx.now
        message = opened.message(self._document.id, self._term)
        self._ctx.send(name, self._along(opened, self._document.index(name), message))

    def send_around(self, opened: OpenRound, name: str) -> list[str]:
        """Send the opened state to a silent peer through others; return these."""
        message = opened.message(self._document.id, self._term)
        return self._ctx.send_around(name, message, self._membership.alive(), RELAYS)

    def _along(self, opened: OpenRound, index: int, message: Open) -> Open:
        """Return the message with the part of the tree that a peer hands it on along; any other peer is asked directly."""
        branches, tree = opened.branches, opened.tree
        if branches is None or tree is None or index not in branches.children or tree.below[index] & branches.barred:
            return message
        return replace(message, aggregator=self._me, height=tree.height[self._me], below=tree.pairs(index))

    def heartbeat(self, opened: OpenRound | None) -> None:
        """Send a heartbeat to each peer that was not sent an open in the last heartbeat period."""
        sent_at = {} if opened is None else opened.sent_at
        round_ = self._ledger.register.round if opened is None else opened.round
        lately = self._ctx.now - self._ctx.timing.heartbeat_s
        for name in self._document.roster:
            if name != self._ctx.me and sent_at.get(name, float("-inf")) <= lately:
                self._ctx.send(name, Heartbeat(self._document.id, self._term, round_))

    def repeat(self, opened: OpenRound) -> None:
        """Send the opened state again to peers that have not answered: first after `retry_s`, then ever more seldom.

        Each repeat is answered with the whole contribution, so a peer with a slow uplink would otherwise send more than its
        link carries, and its answers to probes would wait behind them.
        """
        retry_s = self._ctx.timing.retry_s
        longest_s = max(retry_s, self._document.treatment.patience_s / _LEAST_REPEATS)
        for name in self._document.roster:
            if name == self._ctx.me or name in opened.answered or self._membership.gone(name):
                continue
            if not self._ctx.routing.hop(name):
                # A peer that comes into reach is asked at the next heartbeat: contact may be shorter than `retry_s`.
                opened.sent_at.pop(name, None)
                opened.repeats.pop(name, None)
                continue
            if self._patience.works_still(name):
                continue
            repeats = opened.repeats.get(name, 0)
            pause_s = min(retry_s * 2.0 ** min(repeats, 16), longest_s)
            if self._ctx.now - opened.sent_at.get(name, float("-inf")) >= pause_s:
                opened.repeats[name] = repeats + 1
                self.send(opened, name)
