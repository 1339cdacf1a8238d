"""What jobs with and without an aggregator have in common at one peer: how they end, and states that come late."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar

from p2pclust.peer.core.job_messages import AskEvidence, Close, CloseReply, HeldState, Open, ShowEvidence
from p2pclust.peer.core.messages import Message
from p2pclust.peer.core.reports import JobFinished
from p2pclust.peer.core.rounds.certificates import Certificates
from p2pclust.peer.core.rounds.job_context import JobContext, JobPart
from p2pclust.peer.core.rounds.statements import Statements
from p2pclust.peer.core.rounds.states import States
from p2pclust.peer.core.tasks import CheckToken, Outcome, Ref


class PeerJob(JobPart, ABC):
    """One job at one peer. `leave` is called with each peer that sent a state that does not follow."""

    #: Messages that a finished peer answers with the final state; what answers old questions is ignored.
    asks: ClassVar[tuple[type[Message], ...]]

    def __init__(self, job: JobContext, leave: Callable[[str], None], evidence: bytes | None = None) -> None:
        super().__init__(job)
        self.suspicions = job.suspicions
        self.bars = job.bars
        self.id = job.document.id
        self.terms: Mapping[int, str] = {}  #: by term: the aggregators that this life of the peer has heard of
        self.states = States(job, leave)
        self.statements = Statements(job)
        self.certificates = Certificates(job, self.statements, evidence, self.receive)

    @abstractmethod
    def receive(self, source: str, message: Message) -> None:
        """Take a message of another peer of the job."""

    # -- states of others -------------------------------------------------------------------------------------------

    def blob_ready(self, digest: bytes) -> None:
        """Take the messages again whose state is here now, or is checked."""
        for kind in (Close, HeldState, Open):
            source, message = self.states.waiting.get(kind, ("", None))
            if message is not None and message.digest == digest:
                del self.states.waiting[kind]
                if isinstance(message, Close):
                    self._on_close(source, message)
                else:
                    self.state_named(source, message)

    @abstractmethod
    def state_named(self, source: str, message: HeldState | Open) -> None:
        """Take a message that names a state of a job that has not ended."""

    def state_checked(self, token: CheckToken, outcome: Outcome) -> None:
        if self.states.checked(token, outcome):
            self.blob_ready(token.state)

    # -- the end ----------------------------------------------------------------------------------------------------

    def about_the_end(self, source: str, message: Message) -> bool:
        """Take a message about the end of the job or evidence, or any after the end; return whether it was one."""
        match message:
            case Close():
                self._on_close(source, message)
            case CloseReply() if self.ledger.finished:
                self.close_confirmed(source, message)
            case AskEvidence():
                self.certificates.show(source, message.term)
            case ShowEvidence():
                self.certificates.receive(source, message)
            case _ if self.ledger.finished and isinstance(message, self.asks):
                self.certificates.show(self.asker(source, message), self.ledger.register.term)
                self._ctx.send(self.asker(source, message), self.close_message())
        return self.ledger.finished or isinstance(message, CloseReply | Close | AskEvidence | ShowEvidence)

    def asker(self, source: str, message: Message) -> str:
        """Return the peer that a message is from, which another may have handed on."""
        return source

    def _on_close(self, source: str, message: Close) -> None:
        if not self.ledger.finished:
            position = self.certificates.ended_at(message)
            if position is None:
                self.certificates.await_(source, message, message.term)
                return
            held = self.ledger.register
            running = held.ref is not None and held.ref.digest == message.digest and not held.final
            ref = None if running else self.states.resolve(source, message)
            if ref is None:
                if message.size_bytes > self._ctx.limits.inline_bytes or self.states.awaits(message.digest):
                    self.states.waiting[Close] = (source, message)
                elif not message.state and not running:
                    self._ctx.send(source, CloseReply(self.id, True))
                return
            self._finish(*position, ref)
        self._ctx.send(source, CloseReply(self.id, False))

    def close_confirmed(self, source: str, message: CloseReply) -> None:
        """Take the answer to `Close`: the peer has finished too, or needs the state first."""
        if message.needs_state:
            self._ctx.send(source, self.close_message())

    def close_message(self, *, with_state: bool = True) -> Close:
        register = self.ledger.register
        assert register.ref is not None
        ref, state = register.ref, register.ref.frames if with_state else ()
        return Close(self.id, register.term, register.round, ref.digest, ref.size_bytes, state)

    def _finish(self, term: int, round_: int, ref: Ref) -> None:
        self.ledger.finish(term, round_, ref)
        self.states.waiting.clear()
        self.certificates.finish()
        self._stop()
        self._report(JobFinished, term=term, round=round_, digest=ref.digest.hex())
        self._job.children.ended(self.id)

    @abstractmethod
    def _stop(self) -> None:
        """Drop all but the result: the job has finished."""

    def forget(self) -> None:
        for table in ("job", "ballot", "register"):
            self._ctx.persist(table, self.id, None, sync=False)
        self.certificates.forget()
