"""The states of other peers that this peer's worker has checked before it adopts them.

In a job with ``verify = "all"`` (docs/verified-rounds.md) those are all, and each is made again from its proof. In any other
job of a fleet with keys those are the last ones: a state is the end of a job only if the worker reads it so, and of a
cancelled job only with the signature of the peer that cancelled it. A peer that sends another state is not followed in this
job from then on, and gets no vote.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from p2pclust.peer.core import tasks
from p2pclust.peer.core.effects import Compute
from p2pclust.peer.core.round_reports import NotChecked, RefutesState
from p2pclust.peer.core.rounds.job_context import JobContext, JobPart

_MOST_REMEMBERED: Final = 16
#: The digest of a state, and of the one that it must follow, because this peer adopted that one in the same term.
_Key = tuple[bytes, bytes]


class CheckedStates(JobPart):
    """Asks the worker of one peer to check the states of one job, and remembers what it said.

    `leave` is called with each peer that is distrusted, once.
    """

    def __init__(self, job: JobContext, leave: Callable[[str], None]) -> None:
        super().__init__(job)
        self._good: dict[_Key, bool] = {}  # whether the state is final
        self._leave = leave
        self._refuted: dict[_Key, None] = {}
        self._asked: dict[tasks.CheckToken, tuple[str, tasks.Ref, _Key]] = {}  # who sent the state
        self._opener = (0, "")  # a term, and the peer that opened the state that this peer adopted in it
        self.distrusted: dict[str, None] = {}

    def adopted(self, term: int, opener: str) -> None:
        self._opener = (term, opener)

    def passes(self, source: str, ref: tasks.Ref, *, final: bool, opened_in: int = 0) -> bool:
        """Return whether a state that a peer sent may be adopted; False too while it is checked.

        `final` is what the sender says of it, and `opened_in` the term of the aggregator that opens it now.
        """
        document, register = self.document, self.ledger.register
        if document.census or not (document.treatment.verify or (final and self._ctx.rosters.in_force is not None)):
            return True
        follows = register.ref is not None and register.term == opened_in and register.ref.digest != ref.digest
        key = (ref.digest, register.ref.digest if register.ref is not None and follows else b"")
        if key not in self._good:
            token = tasks.CheckToken(document.id, tasks.CheckState.kind, ref.digest)
            if key not in self._refuted and token not in self._asked:
                self._asked[token] = (source, ref, key)
                held, rules = register.ref if document.treatment.verify else None, self._job.cancels.rules(document)
                task = tasks.CheckState(*self._of_job, ref, held, bool(key[1]), rules, keys=self._job.keys)
                self._ctx.effects.append(Compute(token, task))
            return False
        if self._good[key] is not final:
            self._distrust(source, f"it says that the state is {'final' if final else 'not final'}")
            return False
        return True

    def checked(self, token: tasks.CheckToken, outcome: tasks.Outcome) -> bool:
        """Take an answer of the worker; return whether the state is good.

        A state that could not be checked is checked again when a peer sends it again: at once would be without end.
        """
        source, _, key = self._asked.pop(token)
        if isinstance(outcome, tasks.StateChecked):
            self._good[key] = outcome.final
            _forget_oldest(self._good)
            return True
        if isinstance(outcome, tasks.StateRefuted):
            self._refuted[key] = None
            _forget_oldest(self._refuted)
            if not outcome.second:
                self._distrust(source, outcome.reason)
                return False
        assert isinstance(outcome, tasks.StateRefuted | tasks.NoResult), outcome
        self._report(NotChecked, peer=source, reason=outcome.reason)
        if isinstance(outcome, tasks.StateRefuted):
            self.contradicts(source, outcome.reason)
        return False

    def contradicts(self, source: str, reason: str) -> None:
        """Distrust an aggregator that opened, in one term, two states of which at most one can be right.

        After a restart this peer does not know which peer opened the first, and blames none.
        """
        if self._opener == (self.ledger.register.term, source) and self.document.treatment.collect != "tree":
            self._distrust(source, reason)

    def _distrust(self, source: str, reason: str) -> None:
        if source not in self.distrusted:
            self.distrusted[source] = None
            round_ = self.ledger.register.round
            self._report(RefutesState, round=round_, peer=source, reason=reason)
            self._job.suspicions.setdefault(source, (round_, f"it sent a state that does not follow: {reason}"))
            self._leave(source)

    def checking(self, digest: bytes) -> bool:
        return any(token.state == digest for token in self._asked)

    def blobs_in_use(self) -> list[bytes]:
        return tasks.blobs_of(ref for _, ref, _ in self._asked.values())


def _forget_oldest(table: dict[_Key, Any]) -> None:
    while len(table) > _MOST_REMEMBERED:
        del table[next(iter(table))]
