"""The tasks of a gossip job, each of them once at a time."""

from __future__ import annotations

from math import inf

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.effects import Compute
from p2pclust.peer.core.tasks import BeginJob, CloseGossipRound, DescribeState, MakeOffer, Ref, StateTask, Task
from p2pclust.peer.core.tokens import GossipToken
from p2pclust.protocols.gossip.averaging import Averaging


class GossipWork:
    """Hands tasks to the worker."""

    def __init__(self, context: Context, document: Document) -> None:
        self._ctx = context
        self._document = document
        self._me = document.index(context.me)
        self._running: dict[GossipToken, None] = {}

    def describe(self, ref: Ref | None) -> None:
        """Ask what the core may know about a state, or about the job's first state if there is none yet."""
        job, n_peers = self._document.job, len(self._document.roster)
        self._ask("", BeginJob(job, n_peers) if ref is None else DescribeState(job, n_peers, ref))

    def offer(self, ref: Ref, members: tuple[int, ...], within: str) -> None:
        """Ask for this peer's offer to the round that starts from the state."""
        self._ask(within, MakeOffer(self._document.job, len(self._document.roster), ref, self._me, members))

    def close(self, ref: Ref, ended: Averaging, *, within: str, own: bool) -> None:
        """Ask for the state after a round; `own`: the estimate is this peer's alone."""
        task = CloseGossipRound(
            self._document.job, len(self._document.roster), ref,
            answers=tuple(answer for _, answer in sorted(ended.answers.items())),
            estimate=ended.estimate if ended.size else None,
            tolerance=inf if own else self._document.treatment.gossip_tolerance,
        )  # fmt: skip
        self._ask(within, task)

    def _ask(self, within: str, task: Task) -> None:
        state = task.state.digest if isinstance(task, StateTask) else b""
        token = GossipToken(self._document.id, task.kind, state, within)
        if token not in self._running:
            self._running[token] = None
            self._ctx.effects.append(Compute(token, task))

    def ended(self, token: GossipToken) -> None:
        """A task ended."""
        self._running.pop(token, None)
