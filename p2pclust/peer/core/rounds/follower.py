"""What a peer does with the states that an aggregator opens: it adopts them, and contributes.

The aggregator is its own first follower. An answer is computed once for each state and kept as long as the register holds
that state, so an aggregator that asks again, and the next one, get the same bits.
"""

from __future__ import annotations

from collections.abc import Callable

from p2pclust.errors import WireError
from p2pclust.peer.core import tasks
from p2pclust.peer.core.effects import Compute
from p2pclust.peer.core.job_messages import Adopted, Heartbeat, HeartbeatReply, Open
from p2pclust.peer.core.round_reports import BadTree, Contradiction
from p2pclust.peer.core.rounds.aggregator import AggregatorTerm
from p2pclust.peer.core.rounds.certificates import Certificates
from p2pclust.peer.core.rounds.election import Election
from p2pclust.peer.core.rounds.headway import Headway
from p2pclust.peer.core.rounds.job_context import JobContext, JobPart
from p2pclust.peer.core.rounds.keeper import Keeper
from p2pclust.peer.core.rounds.pad_notes import PadNotes
from p2pclust.peer.core.rounds.round import Round
from p2pclust.peer.core.rounds.statements import Statements
from p2pclust.peer.core.rounds.states import States
from p2pclust.peer.core.rounds.tree_sums import TreeSum
from p2pclust.peer.core.rounds.workspace import JobWorkspace
from p2pclust.protocols.engine.reasons import REVOKED


class Follower(JobPart):
    """One peer's part in the rounds of one job. `aggregates` returns the term in which this peer aggregates, if it does."""

    def __init__(
        self, job: JobContext, election: Election, headway: Headway, workspace: JobWorkspace, notes: PadNotes,
        states: States, statements: Statements, certificates: Certificates,
        aggregates: Callable[[], AggregatorTerm | None],
    ) -> None:  # fmt: skip
        super().__init__(job)
        self._election = election
        self._headway = headway
        self._workspace = workspace
        self._notes = notes
        self._aggregates = aggregates
        self.keeper = Keeper(job, election, notes)
        self._states = states
        self._statements = statements
        self._certificates = certificates
        self._hashed: tuple[bytes, float] | None = None  # the pending state that the worker hashes, and since when
        self._answers: dict[tuple[bytes, int], tuple[tasks.Ref | None, str]] = {}  # of the state in the register
        self._proposer = -1
        #: Of a final state in the register: the acknowledgement of the aggregator that opened it, if this life has seen it.
        self.opened_as_last = b""
        self.place: TreeSum | None = None  # this peer's place in the round's tree
        self._direct = (0, 0)  # the round in which the aggregator asked this peer directly

    @property
    def phase(self) -> str:
        """The phase of this peer: ``fetching``, ``computing``, or only ``following``."""
        if Open in self._states.waiting or self._workspace.busy:
            return "fetching"
        return "computing" if self._headway.computing else "following"

    def blobs_in_use(self) -> list[bytes]:
        own = (ref for ref, _ in self._answers.values())
        sums = [] if self.place is None else self.place.refs()
        computing = [token.state for token in self._headway.computing]
        in_use = [*self.keeper.blobs_in_use(), *self._states.blobs_in_use()]
        return tasks.blobs_of((self.ledger.register.ref, *own, *sums)) + computing + in_use

    def end(self) -> None:
        self.leave_place()
        self.keeper.end()
        self._answers.clear()

    # -- a place in the tree ----------------------------------------------------------------------------------------

    @property
    def _here(self) -> tuple[int, int]:
        """The term and round of this peer's place in a tree."""
        return (0, 0) if self.place is None else (self.place.opened.term, self.place.opened.round)

    def is_news(self, message: Open | Heartbeat) -> bool:
        """Return whether a message handed on in a tree is new; peers repeat it even when its aggregator may be gone."""
        return (message.term, message.round) > max(self.ledger.register.position, self._here, self._direct)

    def take_place(self, carrier: str, message: Open) -> None:
        """Take this peer's place in the message's tree, or note that the aggregator asks it directly."""
        position, place = (message.term, message.round), self.place
        if not self.ledger.may_adopt(*position) or position < max(self._here, self._direct):
            return  # it may come late, and before the blob of a newer state is here
        if message.height and self.document.treatment.collect != "tree":
            self._report(BadTree, reason="this job has no tree")
            return
        if place is not None and self._here != position:
            self.leave_place()
        if not message.height:
            self._direct = position
        elif place is not None and place.opened == message:
            place.again()
        else:
            self.leave_place()
            try:
                self.place = TreeSum(self._job, carrier, message)
            except WireError as error:
                self._report(BadTree, reason=str(error))

    def leave_place(self) -> None:
        if self.place is not None:
            self.place.end()
            self.place = None

    # -- adopting ---------------------------------------------------------------------------------------------------

    def on_open(self, source: str, message: Open) -> None:
        """Adopt a state, once it is here, and answer."""
        register = self.ledger.register
        if not self.ledger.may_adopt(message.term, message.round):
            return  # an older message of this term, overtaken on the way
        if not -1 <= message.proposer < len(self.document.roster):
            return
        _, waits = self._states.waiting.get(Open, ("", None))
        if isinstance(waits, Open) and (message.term, message.round) < (waits.term, waits.round):
            return  # it comes late, and before the blob of a newer state is here
        held = register.ref is not None and register.ref.digest == message.digest
        same = register.position == (message.term, message.round)
        at = (message.term, message.round, message.digest)
        shown = not message.final or self._statements.ends(source, at, message.acknowledgement)
        if not shown or self._contradicts(source, message, held=held):
            return
        self._proposer = message.proposer
        if held and same and register.final == message.final:
            self._answer()
            return
        ref = self._states.resolve(source, message)
        if ref is None:
            self._states.waiting[Open] = (source, message)
            return
        self._states.waiting.pop(Open, None)
        self._states.adopted(message.term, source)
        self.opened_as_last = message.acknowledgement
        self._adopt(message.term, message.round, ref, final=message.final)

    def _contradicts(self, source: str, message: Open, *, held: bool) -> bool:
        """Return whether the aggregator may not open that state; report it, and follow it no longer if that is certain."""
        allowed = self._certificates.allows(message)
        if allowed and not self._is_second(message, held=held):
            return False
        self._report(Contradiction, peer=source, term=message.term, round=message.round)
        if allowed:
            self._states.contradicts(source, "it opened a second state in one term and round, or one after the last")
        elif self.document.treatment.collect != "tree":  # there another peer may have changed the message
            self._states.distrust(source, "it opened another state than the one that it was elected with")
        return True

    def _is_second(self, message: Open, *, held: bool) -> bool:
        """Return whether a faulty aggregator opens two states in one round of one term, or one after the last."""
        register = self.ledger.register
        if register.ref is None or register.term != message.term:
            return False
        return not (held and message.final) if register.final else not held and register.round == message.round

    def adopt_own(self, opened: Round) -> bool:
        """Adopt what this peer opened, or answer it again; return whether it is new."""
        register = self.ledger.register
        self._proposer = opened.proposer
        if register.position == (opened.term, opened.number) and register.ref is not None:
            self._answer()
            return False
        self._states.adopted(opened.term, self._ctx.me)
        self._adopt(opened.term, opened.number, opened.ref, final=opened.info.final)
        return True

    def learn(self, term: int, round_: int, ref: tasks.Ref, *, final: bool) -> None:
        """Take over another peer's register, without answering for it."""
        self.leave_place()
        self._states.waiting.pop(Open, None)
        self._answers.clear()
        self._workspace.abandon()
        self.ledger.learn(term, round_, ref, final=final)
        self.opened_as_last = b""

    def _adopt(self, term: int, round_: int, ref: tasks.Ref, *, final: bool) -> None:
        before = self.ledger.register.ref
        self._phase_begins("adopting", term, round_)
        self.ledger.adopt(term, round_, ref, final=final)
        self._headway.adopts(term, round_)
        if before is not None and before.digest != ref.digest:
            self._answers.clear()
            self._workspace.abandon()
        self._answer()

    # -- contributing -----------------------------------------------------------------------------------------------

    def _answer(self) -> None:
        """Acknowledge the register's state with the contribution, which is computed first if necessary."""
        register = self.ledger.register
        assert register.ref is not None
        key = (register.ref.digest, self._proposer)
        if register.final:
            self._acknowledge(None, "")
        elif key in self._answers:
            self._acknowledge(*self._answers[key])
        elif self._job.bars(self._ctx.me):
            self._acknowledge(None, REVOKED)
        elif not (self._workspace.busy or self._headway.computing):  # otherwise later: it skips the states between
            keys, parent = self._job.keys, self.document.parent
            if parent:  # a child job uses the note of its parent
                note = self._job.children.note_for(parent, self.document.parent_round)
            else:
                note = self._workspace.note_before(register.round)
            pads, asked = None if keys is None else self._notes.kept, (self._me, self._proposer)
            self.compute(tasks.Contribute(*self._of_job, register.ref, *asked, note, pads=pads, keys=keys))

    def compute(self, task: tasks.Contribute) -> None:
        """Hand a contribution to the worker, unless it has it already."""
        token = tasks.AnswerToken(self.document.id, task.kind, task.state.digest, task.proposer)
        if token not in self._headway.computing:
            self._headway.computing[token] = (task, self._ctx.now)
            self._ctx.effects.append(Compute(token, task))

    def contributed(self, token: tasks.AnswerToken, outcome: tasks.Outcome) -> None:
        """The contribution is computed, or the worker says what it needs first."""
        task, _ = self._headway.computing.pop(token)
        self._headway.ended += 1
        register = self.ledger.register
        if register.ref is None or self.ledger.finished:
            return
        if register.ref.digest != token.state:
            if self._election.aggregator and register.term == self.ledger.term:
                self._answer()  # otherwise the next open asks for it
            return
        if isinstance(outcome, tasks.Wanted):
            if not self._workspace.busy:
                self._workspace.prepare(register.round, task, outcome)
            return
        assert isinstance(outcome, tasks.Contributed | tasks.NoResult), outcome
        answer = (None, outcome.reason) if isinstance(outcome, tasks.NoResult) else (outcome.ref, outcome.abstains)
        self._workspace.took(register.round, outcome)
        if isinstance(outcome, tasks.Contributed) and not outcome.abstains:
            self._notes.contributed(outcome.rows, noisy=outcome.noisy)
        self._answers[token.state, token.proposer] = answer
        self._answer()

    def _acknowledge(self, contribution: tasks.Ref | None, abstains: str) -> None:
        register = self.ledger.register
        assert register.ref is not None
        if (term := self._aggregates()) is not None:
            term.own_answer(register.ref.digest, contribution, abstains)
            return
        place = self.place
        if place is not None and place.of(register.term, register.round, register.ref.digest):
            place.own(register.ref, contribution, abstains)
            if self._direct != register.position:
                return
        if not self._election.aggregator or register.term != self.ledger.term:
            return  # no aggregator at the moment; the next open asks again
        ref = contribution or tasks.NOTHING
        message = Adopted(
            self.document.id, register.term, register.round, register.ref.digest, self._ctx.store_id, abstains,
            ref.digest, ref.size_bytes, ref.frames, self._statements.acknowledgement(self._election.aggregator),
        )  # fmt: skip
        self._ctx.send(self._election.aggregator, message)

    def _hashes_for_long(self, digest: bytes) -> bool:
        """Return whether this peer's worker has hashed a state for so long that it may hang; asked at every heartbeat."""
        if not self._blobs.verifying(digest):
            self._hashed = None
            return False
        if self._hashed is None or self._hashed[0] != digest:
            self._hashed = (digest, self._ctx.now)
        return self._ctx.now - self._hashed[1] > self.document.treatment.compute_limit_s

    def on_heartbeat(self, source: str, message: Heartbeat) -> None:
        position, asked = self.ledger.register.position, (message.term, message.round)
        _, waits = self._states.waiting.get(Open, ("", None))
        if isinstance(waits, Open) and (waits.term, waits.round) == asked:
            busy = self._states.awaits(waits.digest) and not self._hashes_for_long(waits.digest)
        else:
            gathers = self.place is not None and self.place.busy()
            answers = bool(self._headway.computing) or self._workspace.busy or gathers
            busy = (answers and position == asked) or self.keeper.busy(asked)
        reply = HeartbeatReply(
            self.document.id, message.term, *position, self._ctx.store_id, busy, self._headway.ended
        )  # fmt: skip
        self._ctx.send(source, reply)
