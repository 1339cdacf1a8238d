"""How an aggregator closes the rounds of a job with secure sums (docs/secure-sums.md).

When the padded contributions are here, it adds them up and asks the keepers to take their pads from the sum. If a keeper
does not answer, or refuses, or the set may not be revealed, the next state asks all peers for new keys. A new aggregator
first finishes the round of the one before it, if all keepers hold what they had released.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from p2pclust.peer.core import tasks
from p2pclust.peer.core.job_messages import Pads, Unpad
from p2pclust.peer.core.round_reports import KeysRenewed, OutOfReach
from p2pclust.peer.core.rounds.job_context import JobContext, JobPart
from p2pclust.peer.core.rounds.keeper import Held, Keeper
from p2pclust.peer.core.rounds.pad_notes import PadNotes
from p2pclust.peer.core.rounds.patience import Patience
from p2pclust.peer.core.rounds.round import AskedPeer, Collection, Round
from p2pclust.protocols.engine.reasons import NEW_KEYS, SMALL_CLASS
from p2pclust.protocols.secure.classes import parted
from p2pclust.protocols.secure.proofs import CancelProof
from p2pclust.protocols.secure.secured import Maker
from p2pclust.tools.bit_sets import as_mask, members_of, packed, unpacked


@dataclass
class _Closing(Collection):
    """One padded state that is closed, and the keepers that are asked for their pads."""

    state: tasks.Ref
    number: int
    secure: tasks.SecureInfo
    abstained: Mapping[int, str]
    resumes: bool  # whether another aggregator made the state
    held: Held | None = None  # the set and the sum; None until they are known
    message: Unpad | None = None  # None until the keepers are asked

    def message_to(self, index: int) -> Unpad:
        assert self.message is not None
        return self.message


class SecureTerm(JobPart):
    """The secured rounds of one term at its aggregator. `compute` hands a task of the term to the worker."""

    def __init__(
        self, job: JobContext, notes: PadNotes, keeper: Keeper, patience: Patience, compute: Callable[[tasks.Task], None]
    ) -> None:  # fmt: skip
        super().__init__(job)
        self._term = job.ledger.term
        self._notes = notes
        self._keeper = keeper
        self._patience = patience
        self._compute = compute
        self._closing: _Closing | None = None
        self._in_vain = False  # whether none of the keepers that were asked last in this term answered
        self.finished: tuple[int, ...] = ()  # the peers in the sum of the round of another aggregator

    def _close(
        self, state: tasks.Ref, number: int, secure: tasks.SecureInfo, abstained: Mapping[int, str], *, resumes: bool
    ) -> _Closing:  # fmt: skip
        self._closing = _Closing({}, self._ctx.now, self._ctx.now, state, number, secure, abstained, resumes)
        return self._closing

    def close(self, opened: Round, abstained: Mapping[int, str], cancel: CancelProof | None = None) -> None:
        secure = opened.info.secure
        assert secure is not None
        if secure.wants_keys:
            self._combine(opened.ref, opened.number, opened.used, abstained, (), cancel)
            return
        closing = self._close(opened.ref, opened.number, secure, abstained, resumes=False)
        restarted = [index for index, reason in abstained.items() if reason == NEW_KEYS]
        waits = self.document.treatment.missing == "all"
        if flaw := self._problem_with(secure, as_mask(opened.contributors)):
            self._renew(closing, flaw)
        elif lost := [index for index in restarted if waits or index in secure.keepers]:
            self._renew(closing, f"{self._names(lost)} restarted")
        else:
            self._compute(tasks.SumPadded(*self._of_job, opened.ref, self._me, opened.used, keys=self._job.keys))

    def summed(self, outcome: tasks.Summed) -> None:
        """Ask the keepers: the padded contributions are added up."""
        closing = self._closing
        if closing is None or closing.held is not None:
            return
        members = as_mask(outcome.peers)
        if barred := self._job.barred_among(members | as_mask(closing.secure.keepers)):  # while the sum was made
            self._renew(closing, f"{barred} was revoked, or has new keys")
        elif outcome.ref is None or (flaw := self._problem_with(closing.secure, members)):
            self._renew(closing, flaw if outcome.ref is not None else "no contribution could be read")
        else:
            self._ask(closing, members, outcome.ref)

    def _problem_with(self, secure: tasks.SecureInfo, members: int) -> str:
        members = secure.revealable(members)
        if members.bit_count() < secure.cohort:
            return f"{members.bit_count()} contributed, and {secure.cohort} are needed"
        if secure.whole and members != as_mask(secure.asked):
            return "not all that were asked contributed"
        return ""

    def _ask(self, closing: _Closing, members: int, total: tasks.Ref) -> None:
        """Fix the set: no other one is asked for in this context."""
        closing.held = Held(closing.state, members, total)
        self._keeper.held = closing.held
        self._ask_keepers(closing, packed(members), total)
        self._note(closing, members)  # keepers need not wait until it is on this peer's disk: they note it themselves

    def _note(self, closing: _Closing, members: int) -> None:
        sets = parted(members, closing.secure.groups if closing.secure.one_by_one else ())
        self._notes.note(closing.state.digest, members, sets, sync=False)

    def resume(self, state: tasks.Ref, number: int, secure: tasks.SecureInfo) -> None:
        """Finish the round of another aggregator, which made this padded state; or ask for new keys."""
        closing = self._close(state, number, secure, {}, resumes=True)
        held = self._keeper.held
        closing.held = held if held is not None and held.state.digest == state.digest else None
        self._ask_keepers(closing, b"", tasks.NOTHING)

    def _ask_keepers(self, closing: _Closing, members: bytes, total: tasks.Ref) -> None:
        """Ask the other keepers; the maker has left its own pads out of the sum."""
        closing.message = Unpad(
            self.document.id, self._term, closing.number, closing.state.digest, members, total.digest, total.size_bytes,
            total.frames,
        )  # fmt: skip
        others = [index for index in closing.secure.keepers if index not in (self._me, closing.secure.maker)]
        closing.peers = {index: AskedPeer(self.document.roster[index]) for index in others}
        closing.asked_at = closing.busy_since = self._ctx.now
        for index in closing.peers:
            self._patience.ask(closing, index)
        self.look()

    def on_pads(self, source: str, message: Pads) -> None:
        closing, index = self._closing, self.document.index(source)
        if closing is None or index not in closing.peers or closing.peers[index].answered:
            return
        if (message.term, message.round, message.digest) != (self._term, closing.number, closing.state.digest):
            return
        if message.refusal:
            # What it knows it may know for the rest of the job: the others try without its pads.
            silent = (index,) if message.refusal == SMALL_CLASS else ()
            self._renew(closing, f"{source} refused its pads: {message.refusal}", silent)
            return
        ref = tasks.Ref.of(message.pads, message.size_bytes, message.payload)
        members = unpacked(message.members)
        if closing.resumes and closing.held is None:  # the set may be the one of the round that is resumed
            within = not members & ~as_mask(closing.secure.asked) and not self._problem_with(closing.secure, members)
            if within and self._notes.allows(closing.state.digest, members):
                closing.held = Held(closing.state, members, ref)
        self._in_vain = False
        if closing.held is None or closing.held.members != members:
            self._renew(closing, f"{source} has taken its pads away for other peers")
        elif ref.payload is None and not self._blobs.has(ref.digest):
            closing.peers[index].coming = ref
            self._blobs.pull(ref.digest, ref.size_bytes, [source])
        else:
            self._take(closing, index, ref)

    def _take(self, closing: _Closing, index: int, ref: tasks.Ref) -> None:
        closing.peers[index].ref, closing.peers[index].answered = ref, True
        self.look()

    def blob_ready(self, digest: bytes) -> None:
        if (closing := self._closing) is not None:
            for index, ref in closing.arrived(digest):
                self._take(closing, index, ref)

    def blobs(self) -> list[bytes]:
        closing = self._closing
        return [] if closing is None else tasks.blobs_of((closing.state, *closing.refs()))

    def waits_for(self) -> list[str]:
        closing = self._closing
        return [] if closing is None else [closing.peers[index].name for index in closing.missing()]

    def look(self) -> None:
        """Continue if all keepers have answered; ask for new keys if one is gone."""
        closing = self._closing
        if closing is None or closing.message is None:
            return
        missing = closing.missing()
        if gone := [index for index in missing if self._membership.gone(closing.peers[index].name)]:
            self._renew(closing, f"{self._names(gone)} gone")
        elif not missing and closing.held is None:
            self._renew(closing, "no peer holds the sum")
        elif not missing and closing.held is not None:
            self._closing = None
            self._end(closing, closing.held)

    def _end(self, closing: _Closing, held: Held) -> None:
        """Hand the sum and the pads to the worker, which makes the next state."""
        removed = tuple((index, one.ref) for index, one in sorted(closing.peers.items()) if one.ref is not None)
        if not closing.resumes:
            given = ((members_of(held.members), held.sum),)
            self._combine(closing.state, closing.number, given, closing.abstained, removed)
            return
        maker = Maker(self._me, self._term, closing.number + 1)
        self._note(closing, held.members)
        self.finished = members_of(held.members)
        own = self._keeper.held
        if own is not None and own.state.digest == closing.state.digest:
            removed = (*removed, (self._me, own.sum))
        self._compute(
            tasks.FinishRound(*self._of_job, closing.state, held.members, maker, removed, keys=self._job.keys)
        )  # fmt: skip

    def _combine(
        self, state: tasks.Ref, number: int, given: tuple[tasks.Given, ...], abstained: Mapping[int, str],
        removed: tuple[tuple[int, tasks.Ref], ...], cancel: CancelProof | None = None,
    ) -> None:  # fmt: skip
        maker = Maker(self._me, self._term, number + 1)
        rules, keys = None if cancel is None else self._job.cancels.rules(self.document), self._job.keys
        self._compute(
            tasks.CombineRound(*self._of_job, state, given, abstained, maker, removed, cancel, rules, keys=keys)
        )

    def _renew(self, closing: _Closing, why: str, silent: tuple[int, ...] = ()) -> None:
        self._closing = None
        if not closing.resumes:
            self._report(KeysRenewed, term=self._term, round=closing.number, reason=why)
        self._compute(tasks.RenewKeys(*self._of_job, closing.state, closing.abstained, silent, keys=self._job.keys))

    def revoked(self, name: str) -> None:
        """Ask for new keys if a revoked peer is in the set, or keeps pads."""
        closing, index = self._closing, self.document.index(name)
        if closing is not None and closing.message is not None:
            members = 0 if closing.held is None else closing.held.members
            if index in closing.peers or members >> index & 1:
                self._renew(closing, f"{name} was revoked, or has new keys")

    def fire(self) -> bool:
        """Ask silent keepers again, and give them up in the end; return whether another aggregator should try.

        If twice in one term no keeper answers, the messages of this peer may be the ones that are lost. With ``missing =
        "all"`` no keeper is given up, but another aggregator may have a link to it.
        """
        closing = self._closing
        if closing is None or closing.message is None:
            return False
        self._patience.note_chunks(closing)
        self._patience.ask_again(closing)
        lost = self._patience.ask_around(closing, closing.number, closing.message)
        none_answered = not any(closing.refs())
        if lost and (self.document.treatment.missing == "all" or (none_answered and self._in_vain)):
            for one in lost:
                self._report(OutOfReach, closing.number, one.name)
            return True
        if lost:
            self._in_vain = none_answered
            names = [self.document.index(one.name) for one in lost]
            self._renew(closing, f"{self._names(names)} did not answer as keepers", tuple(names))
        else:
            self.look()
        return False

    def _names(self, indices: Iterable[int]) -> str:
        return ", ".join(self.document.roster[index] for index in indices)
