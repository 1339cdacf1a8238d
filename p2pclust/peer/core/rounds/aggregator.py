"""The aggregator's side of the rounds of one term.

A round is a consensus entry whose acknowledgement carries the contribution. The aggregator opens a state; each peer
adopts it (on disk) and answers with its contribution, or with the reason why it abstains. When a majority of the roster
has adopted it in this term and all wanted peers have answered, the answers are combined into the next state. The final
state is opened like any other, but no peer contributes to it; once a majority has it, the job is finished.

An object of this class lives for one term at one peer. Nothing in it is on disk: the next aggregator opens its own newest
state again, and a contribution is a pure function of state and data.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from p2pclust.peer.core import round_reports, tasks
from p2pclust.peer.core.context import TimerKey
from p2pclust.peer.core.effects import Compute
from p2pclust.peer.core.evidence import Statement
from p2pclust.peer.core.job_messages import Adopted, Heartbeat, HeartbeatReply, Pads, Partial
from p2pclust.peer.core.rounds.election import Election
from p2pclust.peer.core.rounds.headway import Headway
from p2pclust.peer.core.rounds.job_context import JobContext, JobPart
from p2pclust.peer.core.rounds.keeper import Keeper
from p2pclust.peer.core.rounds.pad_notes import PadNotes
from p2pclust.peer.core.rounds.patience import Patience
from p2pclust.peer.core.rounds.round import ANSWERED_TWICE, AskedPeer, Round
from p2pclust.peer.core.rounds.statements import Statements
from p2pclust.peer.core.rounds.tree_sums import Branches, Part, tree_of
from p2pclust.peer.core.rounds.unpadding import SecureTerm
from p2pclust.protocols.engine.reasons import LATE, LEFT_OUT, NOT_ASKED, REVOKED
from p2pclust.protocols.engine.workspace import digest_of
from p2pclust.protocols.secure.proofs import CancelProof
from p2pclust.tools.bit_sets import members_of

#: The only state of a census.
_AGREED: Final = tasks.StateInfo(final=True)


class Follows(Protocol):
    """What an aggregator calls: its own peer, which follows it first."""

    def adopt_own(self, opened: Round) -> None:
        """Adopt what this peer opened."""

    def finished(self, opened: Round) -> None:
        """Finish the job: a majority adopted the final state."""


class AggregatorTerm(JobPart):
    """One term of aggregation."""

    def __init__(
        self, job: JobContext, follows: Follows, election: Election, headway: Headway, notes: PadNotes, keeper: Keeper,
        statements: Statements,
    ) -> None:  # fmt: skip
        super().__init__(job)
        self._statements = statements
        self._follows = follows
        self._election = election
        self._headway = headway
        self.term = self.ledger.term
        self._patience = Patience(job, headway)
        self._secure = SecureTerm(job, notes, keeper, self._patience, self._compute)
        self._working = False  # whether the worker has a task of this term
        self._progress: tuple[object, ...] = ()  # of this term, when it last changed
        self._moved_at = self._ctx.now
        self._round: Round | None = None
        self._mathematics: bytes | None = None  # in a census that cannot be opened yet
        self._timer: TimerKey = ("job", self.document.id, "tick")

    def begin(self) -> None:
        """Ask the worker about the newest state: a term begins by opening it again."""
        ref = self.ledger.register.ref
        if not self.document.census:
            self._compute(self._describing(ref, self._job.keys))
        elif ref is not None:  # its only state: an earlier term may have agreed on it
            self._open(ref, self.ledger.register.round, _AGREED)
        elif (task := self._job.series.continues(self.document)) is not None:  # otherwise a newer turn replaces it
            self._compute(task)
        self._ctx.set_timer(self._timer, self._ctx.timing.heartbeat_s)
        self._heartbeat()

    def end(self) -> None:
        self._ctx.timers.cancel(self._timer)

    def blobs_in_use(self) -> list[bytes]:
        return self._secure.blobs() + ([] if self._round is None else self._round.blobs())

    @property
    def phase(self) -> str:
        """The phase of this term: ``describing`` its first state, ``gathering``, ``combining`` or ``closing``."""
        if self._round is None:
            return "describing"
        return "combining" if self._round.combining else "closing" if self._round.info.final else "gathering"

    def waits_for(self) -> list[str]:
        """Return the peers whose answers are missing in this round, in roster order."""
        opened, roster = self._round, self.document.roster
        if opened is None or opened.combining:
            return self._secure.waits_for()
        if opened.too_few is not None:
            missing = [index for index, one in opened.peers.items() if one.ref is None]
        elif opened.info.final:
            missing = [
                i for i, name in enumerate(roster) if i not in opened.adopted and not self._membership.gone(name)
            ]
        else:
            unheld = () if opened.adopted_by_majority else (i for i in opened.peers if i not in opened.adopted)
            missing = sorted({*opened.missing(), *unheld})
        return [roster[index] for index in missing]

    # -- opening ----------------------------------------------------------------------------------------------------

    def _propose(self, mathematics: bytes) -> None:
        data = self._job.series.propose(self.document, mathematics)
        self._mathematics = mathematics if data is None else None
        if data is not None:
            self._open(tasks.Ref(digest_of(data), len(data), data), self.ledger.register.round, _AGREED)

    def computed(self, token: tasks.TermToken, outcome: tasks.Outcome) -> None:
        if token.term != self.term:
            return
        self._working = False
        if token.kind == tasks.ContinueJob.kind:
            self._propose(outcome.mathematics if isinstance(outcome, tasks.Continued) else b"")
        elif isinstance(outcome, tasks.NoResult):
            # This peer cannot work with the state or the job (another version of the software, say); another may. If none
            # can, one of them still ends the job when it is cancelled.
            self._report(round_reports.Unable, task=token.kind, reason=outcome.reason)
            self._election.withdraw(until_cancelled=token.kind != tasks.CancelJob.kind)
            if self._job.cancels.of(self.document):
                self._election.cancelled()
        elif isinstance(outcome, tasks.Summed):
            self._secure.summed(outcome)
        elif isinstance(outcome, tasks.TooFew):
            opened = self._round  # of keys: it stays open
            assert opened is not None
            opened.combining, opened.too_few = False, opened.contributions()
            self._report(round_reports.TooFewKeys, self.term, opened.number, outcome.reason)
            self.look()
        elif isinstance(outcome, tasks.StateMade):
            self._state_made(token, outcome)

    def _state_made(self, token: tasks.TermToken, outcome: tasks.StateMade) -> None:
        closed, roster, secure = self._round, self.document.roster, outcome.info.secure
        if token.kind == tasks.DescribeState.kind and self._made_before(outcome.info):
            assert secure is not None
            self._secure.resume(outcome.ref, self.ledger.register.round, secure)
            return
        refused = secure is not None and secure.wants_keys and secure.pending  # its parts did not belong together
        held = self.ledger.register
        combined: tuple[int, Iterable[int]] | None = None
        if closed is not None and token.kind == tasks.CombineRound.kind:
            if closed.info.secure is not None and closed.info.secure.wants_keys:
                listed = [] if secure is None else [roster[index] for index in secure.asked]
                self._report(round_reports.KeysExchanged, self.term, closed.number, listed)
            else:
                combined = closed.number, closed.contributors
        elif token.kind == tasks.FinishRound.kind:
            combined = held.round, self._secure.finished
        if combined is not None and not refused:
            names = [roster[index] for index in combined[1]]
            self._report(round_reports.RoundCombined, self.term, combined[0], names, outcome.info, roster)
        renewed = closed is None and held.ref is not None and outcome.ref.digest != held.ref.digest
        self._open(outcome.ref, held.round + renewed if closed is None else closed.number + 1, outcome.info)

    def _made_before(self, info: tasks.StateInfo) -> bool:
        """Return whether a state is padded, and so may be unpadded only for the peer and the term that made it."""
        return info.secure is not None and not info.secure.wants_keys

    def _open(self, ref: tasks.Ref, number: int, info: tasks.StateInfo) -> None:
        now, me, roster = self._ctx.now, self._me, self.document.roster
        # Each peer acknowledges the last state itself where ends are signed.
        hands_on = info.additive and not (info.final and self._statements.signed)
        branches = self._branches(along_tree=self.document.treatment.collect == "tree" and hands_on)
        busy_since = float("inf") if me in info.asked and not info.one else now
        peers = {index: AskedPeer(name) for index, name in enumerate(roster)}
        self._round = opened = Round(
            peers, now, busy_since, self.term, ref, number, info, self.document, branches
        )  # fmt: skip
        self._patience.begin()
        opened.proposer = self._proposer(opened)
        self._phase_begins("closing" if info.final else "opening", self.term, number)
        if info.final and self._statements.signed:  # what this peer signs must be on its disk
            self._follows.adopt_own(opened)
            opened.acknowledgement = self._statements.acknowledgement(self._ctx.me)
        # Sending before our own copy is synced is safe (Ongaro 10.2.1): we count ourselves only afterwards.
        message, below = opened.message(), branches.tree.below[me]  # one for all: it is encoded once
        for index, name in enumerate(roster):
            if index == me or self._membership.gone(name):
                continue
            peers[index].sent_at = now
            if index in branches.children or not below >> index & 1:  # otherwise another peer hands it on
                self._ctx.send(name, branches.along(index, message))
        if not opened.acknowledgement:
            self._follows.adopt_own(opened)

    def _branches(self, *, along_tree: bool) -> Branches:
        """Return the branches of a tree of the reachable peers, or none; this peer asks the others directly."""
        parents: list[int] = []
        if along_tree:
            parents = [-1] * len(self.document.roster)
            reachable = [name for name in self.document.roster if not self._membership.gone(name)]
            for name, above in self._ctx.routing.tree(reachable).items():
                parents[self.document.index(name)] = self.document.index(above)
        branches = Branches(self._job, tree_of(tuple(parents), self._me))
        for name in self._ctx.barred:
            if name in self.document:
                branches.drop(self.document.index(name))
        return branches

    def _proposer(self, opened: Round, besides: int = -1) -> int:
        """Return the first able peer of the seed's permutation, which does not depend on the aggregator."""
        if not opened.info.one or opened.info.final:
            return -1
        for index in opened.info.asked:
            one = opened.peers[index]
            gone = self._membership.gone(one.name) and self.document.treatment.missing != "all"
            if not gone and not one.left_out and index != besides:
                return index
        return -1

    def own_answer(self, digest: bytes, ref: tasks.Ref | None, abstains: str) -> None:
        if self._round is not None and digest == self._round.ref.digest:
            self._take(self._round, self._me, ref, abstains)

    def own_adopted(self) -> None:
        """Count this peer: its register holds the opened state."""
        opened = self._round
        assert opened is not None
        signed = self._statements.acknowledgement(self._ctx.me)
        if signed:
            opened.acknowledged[self._me] = Statement.decode(signed)
        opened.adopted[self._me] = None
        self.look()

    def _heartbeat(self) -> None:
        """Send a heartbeat to each peer that was not sent an open in the last heartbeat period."""
        opened = self._round
        round_ = self.ledger.register.round if opened is None else opened.number
        lately = self._ctx.now - self._ctx.timing.heartbeat_s
        for index, name in enumerate(self.document.roster):
            if index != self._me and (opened is None or opened.peers[index].sent_at <= lately):
                self._ctx.send(name, Heartbeat(self.document.id, self.term, round_))

    # -- answers ----------------------------------------------------------------------------------------------------

    def on_adopted(self, source: str, message: Adopted) -> None:
        self._patience.heard(source)
        if message.payload or not message.contribution:  # otherwise it is a blob, which may be lost
            self._patience.heard_late(source)
        opened = self._round
        if opened is None or opened.combining or (message.round, message.digest) != (opened.number, opened.ref.digest):
            return
        index, ref, abstains = self.document.index(source), None, message.abstains
        if self.document.counts(source, message.store_id):
            if opened.info.final and self._statements.signed:
                statement = self._statements.read(source, message.acknowledgement, self.term)
                at = (self.term, opened.number, opened.ref.digest)
                if statement is None or not statement.ends(aggregator=self._me, at=at):
                    return
                opened.acknowledged[index] = statement
            opened.adopted[index] = None
        signed = bool(message.contribution) and bool(self.document.treatment.verify)
        if (not abstains or signed) and not opened.info.final:
            if message.contribution:
                ref = tasks.Ref.of(message.contribution, message.size_bytes, message.payload)
            else:
                abstains = "malformed: neither a contribution nor a reason"
        self._take(opened, index, ref, abstains)

    def on_partial(self, source: str, message: Partial) -> None:
        self._patience.heard(source)
        opened = self._round
        if opened is None or opened.combining or (message.round, message.digest) != (opened.number, opened.ref.digest):
            return
        part = opened.branches.take(source, message)
        if part is not None:
            self._count(opened, part)
            self.look()

    def on_pads(self, source: str, message: Pads) -> None:
        self._patience.heard(source)
        self._secure.on_pads(source, message)

    def on_heartbeat_reply(self, source: str, message: HeartbeatReply) -> None:
        self._patience.heard(source)
        self._headway.has_ended(source, message.ended)
        if message.busy:
            self._patience.works(source)
        opened = self._round
        if opened is None or (message.register_term, message.register_round) != (self.term, opened.number):
            return
        signed = opened.info.final and self._statements.signed
        if self.document.counts(source, message.store_id) and not signed:
            opened.adopted[self.document.index(source)] = None
            self.look()

    def blob_ready(self, digest: bytes) -> None:
        self._secure.blob_ready(digest)
        opened = self._round
        if opened is None or opened.combining:
            return
        for index, ref in opened.arrived(digest):
            self._take(opened, index, ref, "")
        for part in opened.branches.blob_ready(digest):
            self._count(opened, part)
            self.look()

    def revoked(self, name: str) -> None:
        """Discard what a revoked peer sent in this round; a round that is being combined stays as it is."""
        self._patience.revoked(name)
        self._secure.revoked(name)
        opened = self._round
        if opened is not None and not opened.combining:
            for index in opened.revoke(self.document.index(name)):
                if not self._membership.gone(self.document.roster[index]):
                    self._patience.ask(opened, index)

    def member_changed(self, name: str) -> None:
        opened, gone = self._round, self._membership.gone(name)
        self._secure.look()
        if gone:
            self._patience.heard_late(name)
        if opened is None:
            return
        again: Iterable[int] = ()
        if self._membership.status(name) == "alive":
            again = (self.document.index(name),)
        elif gone:  # the peer that would have handed on the answers of those below it is gone
            again = opened.branches.tree.without(self.document.index(name))
        for index in again:
            one = opened.peers[index]
            if not one.answered and not self._membership.gone(one.name):
                self._patience.ask(opened, index)
        self.look()

    def _take(self, opened: Round, index: int, ref: tasks.Ref | None, abstains: str) -> None:
        """Take one peer's contribution, or why there is none and the signed refusal; fetch a contribution that is a blob."""
        one = opened.peers[index]
        if self._job.bars(one.name) and abstains != NOT_ASKED:
            ref, abstains = None, REVOKED
        if ref is not None and one.ref is not None and ref.digest != one.ref.digest:
            # Different last bits, for example after a restart on another kind of CPU: the newer one counts.
            self._report(round_reports.AnswerDiffers, round=opened.number, peer=one.name)
            self._job.suspicions.setdefault(one.name, (opened.number, ANSWERED_TWICE))
        if ref is not None and abstains:
            if ref.payload is not None:
                one.refusal = ref
            ref = None
        if ref is not None and ref.payload is None and not self._blobs.has(ref.digest):
            one.coming = ref
            if not (self._blobs.silent(ref.digest) or self._blobs.spoiled_by(ref.digest, one.name)):
                self._patience.works(one.name)  # or it waits until other contributions are here
            self._blobs.pull(ref.digest, ref.size_bytes, [one.name])
            return
        if abstains == NOT_ASKED and index == opened.proposer:
            return  # its answer from before it was asked came late
        self._answered(opened, one)
        if abstains != NOT_ASKED:  # otherwise it does not answer the round that it was left out of
            one.left_out = False
        if ref is not None:
            one.ref = ref
        elif abstains and abstains != NOT_ASKED:
            one.abstains = abstains
        self.look()

    def _answered(self, opened: Round, one: AskedPeer) -> None:
        self._patience.answered(one.name)
        if one.name == self._ctx.me and not one.answered:
            opened.busy_since = self._ctx.now
        one.answered = True

    def _count(self, opened: Round, part: Part) -> None:
        for index in members_of(part.answered):
            one = opened.peers[index]
            if not one.answered:  # otherwise it may repeat an old answer
                self._patience.heard(one.name)
            self._answered(opened, one)
            if part.abstained.get(index) != NOT_ASKED:
                one.left_out = False
        for index in members_of(part.adopted):
            if opened.peers[index].name not in self._ctx.barred:
                opened.adopted[index] = None
        for index, reason in part.abstained.items():
            opened.peers[index].abstains = reason

    # -- progress ---------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """End the round, or the job, if nothing is missing now."""
        opened = self._round
        if opened is None or opened.combining:
            return
        if not opened.adopted_by_majority:
            if not opened.has_majority(signed=bool(self.document.treatment.verify)):
                return
            opened.adopted_by_majority = True
            self._headway.reached(opened.number)
        if opened.info.final:
            self._follows.finished(opened)
        elif cancel := self._job.cancels.of(self.document) or self._revocation(opened):
            if opened.info.secure is None or not opened.info.secure.pending:
                opened.combining = True  # without waiting for contributions
                self._report(round_reports.Cancelling, term=self.term, round=opened.number, by=cancel.by)
                ends = self._job.cancels.rules(self.document)
                self._compute(tasks.CancelJob(*self._of_job, opened.ref, cancel, ends, keys=self._job.keys))
            elif all(self._needs_no_report(opened, index) for index in opened.info.asked):
                opened.use()  # what was revealed is to be in the last state
                self._secure.close(opened, self._abstained(opened), cancel)
        elif self._complete(opened) and not opened.combining:  # asking the next proposer may have come here already
            opened.use()
            self._phase_begins("combining", self.term, opened.number)
            abstained = self._abstained(opened)
            if opened.info.secure is not None:
                self._secure.close(opened, abstained)
            else:
                self._compute(
                    tasks.CombineRound(*self._of_job, opened.ref, opened.used, abstained, keys=self._job.keys)
                )

    def _revocation(self, opened: Round) -> CancelProof | None:
        """Return the revocation that ends a job with ``missing = "all"``: that peer will never answer."""
        if self.document.treatment.missing != "all":
            return None
        names = (self.document.roster[index] for index in opened.wanted())
        return next((CancelProof("", name) for name in names if self._job.bars(name)), None)

    def _complete(self, opened: Round) -> bool:
        """Return whether no answer is missing; leave out peers that are gone or late, and ask the next proposer."""
        if opened.info.one:
            # A proposer that abstains ends the round, and the next round asks the next one. One that is gone is replaced.
            while opened.proposer >= 0 and self._settled(opened, opened.proposer):
                if not opened.peers[opened.proposer].left_out:
                    return True
                opened.proposer = self._proposer(opened)
                if opened.proposer >= 0:
                    one = opened.peers[opened.proposer]
                    self._report(round_reports.ProposerAsked, proposer=one.name)
                    one.answered, opened.asked_at, opened.busy_since = False, self._ctx.now, self._ctx.now
                    if opened.proposer == self._me:
                        self._follows.adopt_own(opened)
                    else:
                        self._patience.ask(opened, opened.proposer)
            return opened.proposer < 0
        if opened.too_few is not None and opened.too_few == opened.contributions():
            return False
        for index in opened.info.asked:
            if not opened.peers[index].answered and not self._settled(opened, index):
                return False
        return True

    def _settled(self, opened: Round, index: int) -> bool:
        """Return whether a peer is not waited for; leave it out if it is gone, or late and not needed."""
        one, treatment = opened.peers[index], self.document.treatment
        if one.answered or one.left_out:
            return True
        gone = self._membership.gone(one.name) or self._patience.astray(one.name) or self._job.bars(one.name)
        late = treatment.missing == "drop" and self._ctx.now - opened.asked_at >= treatment.deadline_s
        if late:  # without a contribution, and without a peer to ask next, the round would be empty
            late = self._proposer(opened, besides=index) >= 0 if opened.info.one else opened.enough
        one.left_out = (treatment.missing != "all" and gone) or late
        return one.left_out

    def _needs_no_report(self, opened: Round, index: int) -> bool:
        """Return whether a cancelled job waits no longer for a peer's report, whatever `missing` is."""
        one = opened.peers[index]
        lost = self._membership.gone(one.name) or self._patience.silent(opened, one)
        return self._settled(opened, index) or lost or self._patience.computes_too_long(opened, one)

    def _abstained(self, opened: Round) -> dict[int, str]:
        have, abstained = dict.fromkeys(opened.contributors), dict[int, str]()
        for index, one in opened.peers.items():
            if index in have or not (one.abstains or one.left_out):
                continue
            abstained[index] = one.abstains
            if one.left_out:
                status = self._membership.status(one.name)
                abstained[index] = LATE if status == "alive" else f"{LEFT_OUT}: {status}"
                if self._job.bars(one.name) and (opened.info.secure is not None or status == "alive"):
                    abstained[index] = REVOKED
        return abstained

    def _compute(self, task: tasks.Task) -> None:
        self._working = True
        self._ctx.effects.append(Compute(tasks.TermToken(self.document.id, task.kind, self.term), task))

    # -- time -------------------------------------------------------------------------------------------------------

    def fire(self) -> None:
        """Send heartbeats, ask again, give up silent peers, or resign without a majority."""
        self._ctx.set_timer(self._timer, self._ctx.timing.heartbeat_s)
        if not self._patience.followed():
            self._election.resign()
            return
        if self._stands_still():
            waited_s = round(self._ctx.now - self._moved_at, 3)
            self._report(round_reports.StandsStill, self.term, self.phase, waited_s)
            self._election.hand_over()
            return
        self._heartbeat()
        if self._secure.fire():
            self._election.hand_over()
            return
        if self._mathematics is not None:
            self._propose(self._mathematics)
            if self.ledger.finished:
                return  # the only peer of the job has adopted the final state
        if self._round is not None:
            self._patience.note_chunks(self._round)
            self._patience.ask_again(self._round)
            # While the job is being cancelled, answers that were missing are no longer taken: no peer is late.
            if not self._round.combining and self._give_up_late(self._round):
                self._election.hand_over()
            else:
                self.look()

    def _stands_still(self) -> bool:
        """Return whether the term made no progress for too long: no task ended here, and no further peer adopted its state.

        Another aggregator may do better: this peer's worker may hang, or its large messages may be lost.
        """
        opened = self._round
        progress = () if opened is None else (opened.number, opened.combining, len(opened.adopted))
        spread = opened is not None and not opened.combining and not opened.adopted_by_majority
        if progress != self._progress or not (self._working or spread or self._headway.computing):
            self._progress, self._moved_at = progress, self._ctx.now
        alone = len(self.document.roster) == 1
        return not alone and self._ctx.now - self._moved_at > self._headway.standing_limit_s()

    def _give_up_late(self, opened: Round) -> bool:
        """Ask silent peers through other peers, or leave them out; return whether another aggregator should try.

        With ``missing = "all"`` no peer is left out, but another aggregator may have a link to the silent peer. With
        ``"drop"`` only the deadline counts, unless too few peers have contributed by then.
        """
        treatment = self.document.treatment
        waited_s = self._ctx.now - opened.asked_at
        if treatment.missing == "drop" and (waited_s < treatment.deadline_s or opened.enough):
            return False
        for one in self._patience.ask_around(opened, opened.number, opened.message()):
            if treatment.missing == "all":
                self._report(round_reports.OutOfReach, opened.number, one.name)
                return True
            busy = self._patience.left_out(opened, one)
            self._report(round_reports.LeftOut, opened.number, one.name, busy or None)
        return False
