"""The states that this peer has made again from their proofs, in a job with ``verify = "all"`` (docs/verified-rounds.md).

No state is adopted before. A peer that sends a state which does not follow from its proof is not followed any more in this
job, and gets no vote.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from p2pclust.peer.core.effects import Compute
from p2pclust.peer.core.round_reports import NotChecked, RefutesState
from p2pclust.peer.core.rounds.job_context import JobContext
from p2pclust.peer.core.tasks import CheckState, NoResult, Outcome, Ref, StateChecked, StateRefuted
from p2pclust.peer.core.tokens import CheckToken

__all__ = ["CheckedStates"]

_MOST_REMEMBERED: Final = 16


class CheckedStates:
    """Asks the worker of one peer to check the states of one job, and remembers what it said.

    `leave` is called with each peer that is distrusted, once.
    """

    def __init__(self, job: JobContext, leave: Callable[[str], None]) -> None:
        self._job = job
        self._ctx = job.context
        self._document = job.document
        self._ledger = job.ledger
        self._suspicions = job.suspicions
        self._good: dict[bytes, bool] = {}  # by digest: whether the state is final
        self._leave = leave
        self._refuted: dict[bytes, None] = {}
        self._asked: dict[CheckToken, tuple[str, Ref]] = {}  # who sent the state
        self.distrusted: dict[str, None] = {}

    def passes(self, source: str, ref: Ref, *, final: bool) -> bool:
        """Return whether a state that a peer sent may be adopted; False too while it is checked.

        `final` is what the sender says of it.
        """
        if not self._document.treatment.verify:
            return True
        if ref.digest not in self._good:
            if ref.digest not in self._refuted:
                self._ask(source, ref)
            return False
        if self._good[ref.digest] is not final:
            self._distrust(source, f"it says that the state is {'final' if final else 'not final'}")
            return False
        return True

    def _ask(self, source: str, ref: Ref) -> None:
        document = self._document
        token = CheckToken(document.id, CheckState.kind, ref.digest)
        if token not in self._asked:
            self._asked[token] = (source, ref)
            held = self._ledger.register.ref
            task = CheckState(document.job, len(document.roster), ref, held, keys=self._job.keys)
            self._ctx.effects.append(Compute(token, task))

    def checked(self, token: CheckToken, outcome: Outcome) -> bool:
        """Take an answer of the worker; return whether the state is good.

        A state that could not be checked is checked again when a peer sends it again: at once would be without end.
        """
        source, _ = self._asked.pop(token)
        if isinstance(outcome, StateChecked):
            self._good[token.state] = outcome.final
            _forget_oldest(self._good)
        elif isinstance(outcome, StateRefuted):
            self._refuted[token.state] = None
            _forget_oldest(self._refuted)
            self._distrust(source, outcome.reason)
        else:
            assert isinstance(outcome, NoResult), outcome
            self._ctx.report(NotChecked(*self._document.named, peer=source, reason=outcome.reason))
        return isinstance(outcome, StateChecked)

    def _distrust(self, source: str, reason: str) -> None:
        if source not in self.distrusted:
            self.distrusted[source] = None
            round_ = self._ledger.register.round
            self._ctx.report(RefutesState(*self._document.named, round=round_, peer=source, reason=reason))
            self._suspicions.add(source, round_, f"it sent a state that does not follow: {reason}")
            self._leave(source)

    def checking(self, digest: bytes) -> bool:
        """Return whether the worker has that state."""
        return any(token.state == digest for token in self._asked)

    def blobs_in_use(self) -> list[bytes]:
        """Return the blobs that are needed."""
        refs = [ref for _, ref in self._asked.values()]
        return [ref.digest for ref in refs if ref.payload is None]


def _forget_oldest(table: dict[bytes, Any]) -> None:
    while len(table) > _MOST_REMEMBERED:
        del table[next(iter(table))]
