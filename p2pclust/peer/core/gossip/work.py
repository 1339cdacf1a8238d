"""The mathematics that a job without an aggregator asks for, each task once at a time."""

from __future__ import annotations

from math import inf

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.effects import Compute, Task
from p2pclust.peer.core.events import Ref
from p2pclust.protocols.gossip.averaging import Averaging

__all__ = ["Work"]


class Work:
    """Hands tasks to the worker. A token names the job, the task, the state, and within what its result counts."""

    def __init__(self, context: Context, document: Document) -> None:
        self._ctx = context
        self._document = document
        self._me = document.index(context.me)
        self._running: dict[tuple[str, ...], None] = {}

    def look_at(self, ref: Ref | None) -> None:
        """What is to be known of a state; of the job's first one if there is none yet."""
        kind = "begin" if ref is None else "describe"
        self._ask("", Task(kind, self._document.job, len(self._document.roster), state=ref))

    def offer(self, ref: Ref | None, circle: tuple[int, ...], whom: str) -> None:
        """What this peer brings into the round that begins with the state."""
        task = Task(
            "contribute", self._document.job, len(self._document.roster), me=self._me, state=ref, circle=circle
        )  # fmt: skip
        self._ask(whom, task)

    def close(self, ref: Ref | None, circle: tuple[int, ...], ended: Averaging, *, within: str, own: bool) -> None:
        """The state after a round; `own`: from an estimate that this peer alone has."""
        task = Task(
            "combine", self._document.job, len(self._document.roster), state=ref, circle=circle,
            answers=tuple(answer for _, answer in sorted(ended.answers.items())),
            estimate=ended.estimate if ended.size else None, tolerance=inf if own else self._document.tolerance,
        )  # fmt: skip
        self._ask(within, task)

    def _ask(self, within: str, task: Task) -> None:
        digest = "" if task.state is None else task.state.digest.hex()
        token = ("job", self._document.id, task.kind, digest, within)
        if token not in self._running:
            self._running[token] = None
            self._ctx.effects.append(Compute(token, task))

    def ended(self, token: tuple[str, ...]) -> None:
        """That task is not running any more."""
        self._running.pop(token, None)
