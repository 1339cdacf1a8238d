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
from typing import TYPE_CHECKING, Final

from p2pclust.peer.core import round_reports, tasks
from p2pclust.peer.core.context import TimerKey
from p2pclust.peer.core.document import has_majority
from p2pclust.peer.core.effects import Compute
from p2pclust.peer.core.job_messages import Adopted, Heartbeat, HeartbeatReply, Pads, Partial
from p2pclust.peer.core.rounds.job_context import JobContext, JobPart
from p2pclust.peer.core.rounds.open_round import ANSWERED_TWICE, OpenRound
from p2pclust.peer.core.rounds.patience import Patience, Resort
from p2pclust.peer.core.rounds.tree_sums import Branches, Part, tree_of
from p2pclust.peer.core.rounds.unpadding import SecureTerm
from p2pclust.protocols.engine.reasons import LEFT_OUT, NOT_ASKED, REVOKED
from p2pclust.protocols.engine.workspace import digest_of
from p2pclust.protocols.secure.proofs import CancelProof
from p2pclust.tools.bit_sets import members_of

if TYPE_CHECKING:
    from p2pclust.peer.core.rounds.job import AggregatedJob

_LEAST_REPEATS: Final = 4  # of an open, in the time after which a silent peer is asked through others
#: The only state of a census.
_AGREED: Final = tasks.StateInfo(final=True)


class AggregatorTerm(JobPart):
    """One term of aggregation."""

    def __init__(self, job: JobContext, rule: AggregatedJob) -> None:
        super().__init__(job)
        self._rule = rule
        self._election = rule.election
        self._headway = rule.headway
        self.term = self.ledger.term
        self._patience = Patience(job, rule.headway)
        self._secure = SecureTerm(job, rule.notes, rule.follower.keeper, self._patience, self._compute)
        self._working = False  # whether the worker has a task of this term
        self._stage: tuple[object, ...] = ()  # the progress of this term when it last changed
        self._moved_at = self._ctx.now
        self._round: OpenRound | None = None
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
        self._heartbeat(self._round)

    def end(self) -> None:
        self._ctx.timers.cancel(self._timer)

    def blobs_in_use(self) -> list[bytes]:
        return self._secure.blobs() + ([] if self._round is None else self._round.blobs())

    @property
    def phase(self) -> str:
        """The phase of this term: ``describing`` its first state, ``gathering``, ``combining`` or ``closing``."""
        if self._round is None:
            return "describing"
        return "combining" if self._round.combining else "closing" if self._round.final else "gathering"

    def waits_for(self) -> list[str]:
        """Return the peers whose answers are missing in this round, in roster order."""
        opened, roster = self._round, self.document.roster
        if opened is None or opened.combining:
            return self._secure.waits_for()
        if opened.too_few is not None:
            return [name for index, name in enumerate(roster) if index not in opened.contributions]
        if opened.final:
            return [name for name in roster if name not in opened.adopted and not self._membership.gone(name)]
        return opened.lacking()

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
            opened.combining, opened.too_few = False, dict(opened.contributions)
            self._report(round_reports.TooFewKeys, self.term, opened.round, outcome.reason)
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
            if closed.secure is not None and closed.secure.wants_keys:
                listed = [] if secure is None else [roster[index] for index in secure.asked]
                self._report(round_reports.KeysExchanged, self.term, closed.round, listed)
            else:
                combined = closed.round, closed.contributors()
        elif token.kind == tasks.FinishRound.kind:
            combined = held.round, self._secure.finished
        if combined is not None and not refused:
            names = [roster[index] for index in combined[1]]
            self._report(round_reports.RoundCombined, self.term, combined[0], names, outcome.info, roster)
        renewed = closed is None and held.ref is not None and outcome.ref.digest != held.ref.digest
        self._open(outcome.ref, held.round + renewed if closed is None else closed.round + 1, outcome.info)

    def _made_before(self, info: tasks.StateInfo) -> bool:
        """Return whether a state is padded, and so may be unpadded only for the peer and the term that made it."""
        return info.secure is not None and not info.secure.wants_keys

    def _open(self, ref: tasks.Ref, round_: int, info: tasks.StateInfo) -> None:
        branches = self._branches(along_tree=self.document.treatment.collect == "tree" and info.additive)
        opened = OpenRound(
            ref, round_, info.final, info.asked, info.one, self._ctx.now, self.document, branches, info.secure
        )  # fmt: skip
        self._round = opened
        self._patience.begin()
        opened.proposer = self._proposer(opened)
        self._report(round_reports.PhaseBegun, "closing" if opened.final else "opening", self.term, round_)
        # Sending before our own copy is synced is safe (Ongaro 10.2.1): we count ourselves only afterwards.
        message, below = opened.message(self.term), branches.tree.below[self._me]  # one for all: it is encoded once
        for index, name in enumerate(self.document.roster):
            if index == self._me or self._membership.gone(name):
                continue
            opened.sent_at[name] = self._ctx.now
            if index in branches.children or not below >> index & 1:  # otherwise another peer hands it on
                self._ctx.send(name, branches.along(index, message))
        self._rule.adopt_own(self.term, opened)

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

    def _proposer(self, opened: OpenRound, besides: int = -1) -> int:
        """Return the first able peer of the seed's permutation, which does not depend on the aggregator."""
        if not opened.one or opened.final:
            return -1
        for index in opened.asked:
            gone = self._membership.gone(self.document.roster[index]) and self.document.treatment.missing != "all"
            if not gone and index not in opened.left_out and index != besides:
                return index
        return -1

    def own_answer(self, digest: bytes, ref: tasks.Ref | None, abstains: str) -> None:
        if self._round is not None and digest == self._round.ref.digest:
            self._take(self._round, self._ctx.me, ref, abstains)

    def own_adopted(self) -> None:
        """Count this peer: its register holds the opened state."""
        assert self._round is not None
        self._round.adopted[self._ctx.me] = None
        self.look()

    # -- what is sent -----------------------------------------------------------------------------------------------

    def _send(self, opened: OpenRound, name: str) -> None:
        opened.sent_at[name] = self._ctx.now
        self._ctx.send(name, opened.branches.along(self.document.index(name), opened.message(self.term)))

    def _heartbeat(self, opened: OpenRound | None) -> None:
        """Send a heartbeat to each peer that was not sent an open in the last heartbeat period."""
        sent_at = {} if opened is None else opened.sent_at
        round_ = self.ledger.register.round if opened is None else opened.round
        lately = self._ctx.now - self._ctx.timing.heartbeat_s
        for name in self.document.roster:
            if name != self._ctx.me and sent_at.get(name, float("-inf")) <= lately:
                self._ctx.send(name, Heartbeat(self.document.id, self.term, round_))

    def _repeat(self, opened: OpenRound) -> None:
        """Send the opened state again to peers that have not answered: first after `retry_s`, then ever more seldom.

        Each repeat is answered with the whole contribution, so a peer with a slow uplink would otherwise send more than its
        link carries, and its answers to probes would wait behind them.
        """
        retry_s = self._ctx.timing.retry_s
        longest_s = max(retry_s, self.document.treatment.patience_s / _LEAST_REPEATS)
        for name in self.document.roster:
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
                self._send(opened, name)

    # -- answers ----------------------------------------------------------------------------------------------------

    def on_adopted(self, source: str, message: Adopted) -> None:
        self._patience.heard(source)
        if message.payload or not message.contribution:  # otherwise it is a blob, which may be lost
            self._patience.comes_through(source)
        opened = self._round
        if opened is None or opened.combining or (message.round, message.digest) != (opened.round, opened.ref.digest):
            return
        if self.document.counts(source, message.store_id):
            opened.adopted[source] = None
        ref, signed, abstains = (
            None,
            bool(message.contribution) and bool(self.document.treatment.verify),
            message.abstains,
        )
        if (not abstains or signed) and not opened.final:
            if message.contribution:
                ref = tasks.Ref.of(message.contribution, message.size_bytes, message.payload)
            else:
                abstains = "malformed: neither a contribution nor a reason"
        self._take(opened, source, ref, abstains)

    def on_partial(self, source: str, message: Partial) -> None:
        self._patience.heard(source)
        opened = self._round
        if opened is None or opened.combining:
            return
        if (message.round, message.digest) != (opened.round, opened.ref.digest):
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
        opened = self._round
        here = opened is not None and (message.register_term, message.register_round) == (self.term, opened.round)
        if message.busy:
            (self._patience.computes if here else self._patience.works)(source)  # without the state, it fetches it
        if opened is not None and here and self.document.counts(source, message.store_id):
            opened.adopted[source] = None
            self.look()

    def blob_ready(self, digest: bytes) -> None:
        self._secure.blob_ready(digest)
        opened = self._round
        if opened is None or opened.combining:
            return
        for index in [index for index, ref in opened.pulling.items() if ref.digest == digest]:
            self._take(opened, self.document.roster[index], opened.pulling.pop(index), "")
        for part in opened.branches.blob_ready(digest):
            self._count(opened, part)
            self.look()

    def revoked(self, name: str) -> None:
        """Discard what a revoked peer sent in this round; a round that is being combined stays as it is."""
        self._patience.revoked(name)
        self._secure.revoked(name)
        opened = self._round
        if opened is not None and not opened.combining:
            for other in opened.drop(name):
                if not self._membership.gone(other):
                    self._send(opened, other)

    def member_changed(self, name: str) -> None:
        opened = self._round
        self._secure.look()
        if self._membership.gone(name):
            self._patience.comes_through(name)
        if opened is None:
            return
        if self._membership.status(name) == "alive" and name not in opened.answered:
            self._send(opened, name)
        elif self._membership.gone(name):
            # The peer that would have handed on the answers of those below it is gone.
            for index in opened.branches.tree.without(self.document.index(name)):
                other = self.document.roster[index]
                if other not in opened.answered and not self._membership.gone(other):
                    self._send(opened, other)
        self.look()

    def _take(self, opened: OpenRound, name: str, ref: tasks.Ref | None, abstains: str) -> None:
        """Take one peer's contribution, or why there is none and the signed refusal; fetch a contribution that is a blob."""
        index = self.document.index(name)
        if self._job.bars(name) and abstains != NOT_ASKED:
            ref, abstains = None, REVOKED
        known = opened.contributions.get(index)
        if ref is not None and known is not None and ref.digest != known.digest:
            # Different last bits, for example after a restart on another kind of CPU: the newer one counts.
            self._report(round_reports.AnswerDiffers, round=opened.round, peer=name)
            self._job.suspicions.setdefault(name, (opened.round, ANSWERED_TWICE))
        if ref is not None and abstains:
            if ref.payload is not None:
                opened.refusals[index] = ref
            ref = None
        if ref is not None and ref.payload is None and not self._blobs.has(ref.digest):
            opened.pulling[index] = ref
            if not (self._blobs.silent(ref.digest) or self._blobs.spoiled_by(ref.digest, name)):
                self._patience.works(name)  # or it waits until other contributions are here
            self._blobs.pull(ref.digest, ref.size_bytes, [name])
            return
        if abstains == NOT_ASKED and index == opened.proposer:
            return  # its answer from before it was asked came late
        self._patience.rests(name)
        opened.answered[name] = None
        if abstains != NOT_ASKED:  # otherwise it does not answer the round that it was left out of
            opened.left_out.pop(index, None)
        if ref is not None:
            opened.contributions[index] = ref
        elif abstains and abstains != NOT_ASKED:
            opened.abstained[index] = abstains
        self.look()

    def _count(self, opened: OpenRound, part: Part) -> None:
        roster = self.document.roster
        for index in members_of(part.answered):
            if roster[index] not in opened.answered:  # otherwise it may repeat an old answer
                self._patience.heard(roster[index])
            opened.answered[roster[index]] = None
            if part.abstained.get(index) != NOT_ASKED:
                opened.left_out.pop(index, None)
            self._patience.rests(roster[index])
        for index in members_of(part.adopted):
            if roster[index] not in self._ctx.barred:
                opened.adopted[roster[index]] = None
        opened.abstained.update(part.abstained)

    # -- progress ---------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """End the round, or the job, if nothing is missing now."""
        opened = self._round
        if opened is None or opened.combining:
            return
        if not opened.adopted_by_majority:
            holders = opened.holders(signed=bool(self.document.treatment.verify))
            if not has_majority(holders, self.document.roster):
                return
            opened.adopted_by_majority = True
            self._headway.reached(opened.round)
        if opened.final:
            self._rule.finished(self.term, opened)
        elif cancel := self._job.cancels.of(self.document) or self._revocation(opened):
            if opened.secure is None or not opened.secure.pending:
                opened.combining = True  # without waiting for contributions
                self._report(round_reports.Cancelling, term=self.term, round=opened.round, by=cancel.by)
                ends = self._job.cancels.rules(self.document)
                self._compute(tasks.CancelJob(*self._of_job, opened.ref, cancel, ends, keys=self._job.keys))
            elif self._reported(opened):  # what was revealed is to be in the last state
                opened.use()
                self._secure.close(opened, self._abstained(opened), cancel)
        elif self._complete(opened) and not opened.combining:  # asking the next proposer may have come here already
            opened.use()
            self._report(round_reports.PhaseBegun, phase="combining", term=self.term, round=opened.round)
            abstained = self._abstained(opened)
            if opened.secure is not None:
                self._secure.close(opened, abstained)
            else:
                self._compute(
                    tasks.CombineRound(*self._of_job, opened.ref, opened.used, abstained, keys=self._job.keys)
                )

    def _revocation(self, opened: OpenRound) -> CancelProof | None:
        """Return the revocation that ends a job with ``missing = "all"``: that peer will never answer."""
        wanted = opened.wanted() if self.document.treatment.missing == "all" else ()
        names = (self.document.roster[index] for index in wanted)
        return next((CancelProof("", name) for name in names if self._job.bars(name)), None)

    def _complete(self, opened: OpenRound) -> bool:
        if opened.one:
            # A proposer that abstains ends the round, and the next round asks the next one. One that is gone is replaced.
            while opened.proposer >= 0 and self._settled(opened, opened.proposer):
                if opened.proposer not in opened.left_out:
                    return True
                opened.proposer = self._proposer(opened)
                if opened.proposer >= 0:
                    name = self.document.roster[opened.proposer]
                    self._report(round_reports.ProposerAsked, proposer=name)
                    opened.answered.pop(name, None)
                    opened.opened_at = self._ctx.now
                    if name == self._ctx.me:
                        self._rule.adopt_own(self.term, opened)
                    else:
                        self._send(opened, name)
            return opened.proposer < 0
        if opened.too_few is not None and opened.too_few == opened.contributions:
            return False
        return all(self._settled(opened, index) for index in opened.asked)

    def _settled(self, opened: OpenRound, index: int) -> bool:
        name = self.document.roster[index]
        if name in opened.answered or index in opened.left_out:
            return True
        missing, waited_s = self.document.treatment.missing, self._ctx.now - opened.opened_at
        gone = self._membership.gone(name) or self._patience.astray(name) or self._job.bars(name)
        late = missing == "drop" and waited_s >= self.document.treatment.deadline_s
        # Without a contribution, and without a peer to ask next, the round would be empty.
        spared = self._proposer(opened, besides=index) >= 0 if opened.one else opened.enough
        if (missing != "all" and gone) or (late and spared):
            opened.left_out[index] = None
            return True
        return False

    def _reported(self, opened: OpenRound) -> bool:
        """Return whether a job that was cancelled need wait for no more reports, whatever `missing` is."""
        waits_for = [index for index in opened.asked if not self._settled(opened, index)]
        lost = (self.document.roster[index] for index in waits_for)
        return all(self._membership.gone(name) or self._patience.gives_up(name, opened.opened_at) for name in lost)

    def _abstained(self, opened: OpenRound) -> dict[int, str]:
        have = opened.contributors()
        abstained = {i: reason for i, reason in sorted(opened.abstained.items()) if i not in have}
        for index in opened.left_out:
            if index not in have:
                name = self.document.roster[index]
                status = self._membership.status(name)
                # "late": alive, but without an answer in time.
                abstained[index] = f"{LEFT_OUT}: {'late' if status == 'alive' else status}"
                if self._job.bars(name) and (opened.secure is not None or status == "alive"):
                    abstained[index] = REVOKED
        return abstained

    def _compute(self, task: tasks.Task) -> None:
        self._working = True
        self._ctx.effects.append(Compute(tasks.TermToken(self.document.id, task.kind, self.term), task))

    # -- time -------------------------------------------------------------------------------------------------------

    def fire(self) -> None:
        """Send heartbeats, repeat what was not answered, give up silent peers, or resign without a majority."""
        self._ctx.set_timer(self._timer, self._ctx.timing.heartbeat_s)
        if not self._patience.followed():
            self._election.resign()
            return
        if self._stands_still():
            waited_s = round(self._ctx.now - self._moved_at, 3)
            self._report(round_reports.StandsStill, self.term, self.phase, waited_s)
            self._election.hand_over()
            return
        self._heartbeat(self._round)
        if self._secure.fire():
            self._election.hand_over()
            return
        if self._mathematics is not None:
            self._propose(self._mathematics)
            if self.ledger.finished:
                return  # the only peer of the job has adopted the final state
        if self._round is not None:
            self._patience.note_pulls(self._round.coming(), self._round.chunks_left)
            self._repeat(self._round)
            if self._lose_patience(self._round):
                self._election.hand_over()
            else:
                self.look()

    def _stands_still(self) -> bool:
        """Return whether the term made no progress for too long: no task ended here, and no further peer adopted its state.

        Another aggregator may do better: this peer's worker may hang, or its large messages may be lost.
        """
        opened = self._round
        stage = () if opened is None else (opened.round, opened.combining, len(opened.adopted))
        spread = opened is not None and not opened.combining and not opened.adopted_by_majority
        if stage != self._stage or not (self._working or spread or self._headway.computing):
            self._stage, self._moved_at = stage, self._ctx.now
        alone = len(self.document.roster) == 1
        return not alone and self._ctx.now - self._moved_at > self._headway.standing_limit_s()

    def _lose_patience(self, opened: OpenRound) -> bool:
        """Ask silent peers through other peers, or leave them out; return whether another aggregator should try.

        With ``missing = "all"`` no peer is left out, but another aggregator may have a link to the silent peer.
        """
        for name, resort in self._patience.lost_with(opened):
            if resort is Resort.ASK_AROUND:
                self._send_around(opened.round, name, opened.message(self.term))
            elif resort is Resort.GIVE_UP and self.document.treatment.missing == "all":
                self._report(round_reports.OutOfReach, opened.round, name)
                return True
            else:
                busy = resort is Resort.GIVE_UP_BUSY
                opened.left_out[self.document.index(name)] = None
                self._patience.left_out(name, opened, busy=busy)
                self._report(round_reports.LeftOut, opened.round, name, busy or None)
        return False
