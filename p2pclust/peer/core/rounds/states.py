"""The states that other peers name: they are fetched, and checked by this peer's worker, before it adopts them.

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
from p2pclust.peer.core.job_messages import Close, HeldState, Open
from p2pclust.peer.core.messages import Message
from p2pclust.peer.core.round_reports import NotChecked, RefutesState, StateCorrupt
from p2pclust.peer.core.rounds.job_context import JobContext, JobPart
from p2pclust.protocols.engine.workspace import digest_of

#: The messages that name a state.
Named = Open | Close | HeldState
_MOST_REMEMBERED: Final = 16
#: The digest of a state, and of the one that it must follow, because this peer adopted that one in the same term.
_Key = tuple[bytes, bytes]


class States(JobPart):
    """Fetches the states of one job that other peers name, lets the worker check them, and remembers what it said.

    `leave` is called with each peer that is distrusted, once.
    """

    def __init__(self, job: JobContext, leave: Callable[[str], None]) -> None:
        super().__init__(job)
        self._good: dict[_Key, bool] = {}  # whether the state is final
        self._leave = leave
        self._refuted: dict[_Key, None] = {}
        self._asked: dict[tasks.CheckToken, tuple[str, tasks.Ref, _Key]] = {}  # who sent the state
        #: By kind: the sender, and the message with a state that is on its way, or is checked.
        self.waiting: dict[type[Message], tuple[str, Named]] = {}
        self._opener = (0, "")  # a term, and the peer that opened the state that this peer adopted in it
        self.distrusted: dict[str, None] = {}

    def adopted(self, term: int, opener: str) -> None:
        self._opener = (term, opener)

    def resolve(self, source: str, message: Named) -> tasks.Ref | None:
        """Return the state that a message names; None while it is fetched or checked, or if it must not be adopted."""
        register, final = self.ledger.register, isinstance(message, Close) or message.final
        held = register.ref is not None and register.ref.digest == message.digest
        if held and register.final is final:
            return register.ref
        ref = self._state_of(message, source)
        opened_in = message.term if isinstance(message, Open) else 0
        return ref if ref is not None and self.passes(source, ref, final=final, opened_in=opened_in) else None

    def _state_of(self, message: Named, source: str) -> tasks.Ref | None:
        """Return the state that a message has, or that is here; None if its digest is wrong, or while it is fetched."""
        if message.state:
            if digest_of(message.state[0]) != message.digest:
                self._report(StateCorrupt, peer=source)
                return None
            return tasks.Ref(message.digest, len(message.state[0]), message.state[0])
        if self._blobs.has(message.digest):
            return tasks.Ref(message.digest, message.size_bytes, None)
        if message.size_bytes > self._ctx.limits.inline_bytes:
            present = filter(self._membership.present, self.document.roster)
            others = [name for name in present if name not in (source, self._ctx.me)]
            self._blobs.pull(message.digest, message.size_bytes, [source, *others] if source else others)
        return None

    def awaits(self, digest: bytes) -> bool:
        """Return whether a state is fetched or checked: then :meth:`resolve` may return it later."""
        return self._blobs.fetching(digest) or any(token.state == digest for token in self._asked)

    def revoked(self, name: str) -> None:
        """Stop waiting for states that a revoked peer sent."""
        for kind in [kind for kind, (source, _) in self.waiting.items() if source == name]:
            del self.waiting[kind]

    def passes(self, source: str, ref: tasks.Ref, *, final: bool, opened_in: int = 0) -> bool:
        """Return whether a state that a peer sent may be adopted; False too while it is checked.

        `final` is what the sender says of it, and `opened_in` the term of the aggregator that opens it now.
        """
        document, register = self.document, self.ledger.register
        if (
            document.census
            or document.treatment.collect == "gossip"
            or not (document.treatment.verify or (final and self._ctx.rosters.in_force is not None))
        ):
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
            self.distrust(source, f"it says that the state is {'final' if final else 'not final'}")
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
                self.distrust(source, outcome.reason)
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
            self.distrust(source, reason)

    def distrust(self, source: str, reason: str) -> None:
        if source not in self.distrusted:
            self.distrusted[source] = None
            round_ = self.ledger.register.round
            self._report(RefutesState, round=round_, peer=source, reason=reason)
            self._job.suspicions.setdefault(source, (round_, f"it sent a state that does not follow: {reason}"))
            if self.waiting.get(Open, ("", None))[0] == source:
                del self.waiting[Open]
            self._leave(source)

    def blobs_in_use(self) -> list[bytes]:
        waiting = [message.digest for _, message in self.waiting.values()]
        return tasks.blobs_of(ref for _, ref, _ in self._asked.values()) + waiting


def _forget_oldest(table: dict[_Key, Any]) -> None:
    while len(table) > _MOST_REMEMBERED:
        del table[next(iter(table))]
