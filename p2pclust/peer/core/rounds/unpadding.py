"""How an aggregator closes the rounds of a job with secure sums (docs/secure-sums.md).

When the padded contributions are here, it adds them up and asks the keepers to take their pads from the sum. If a keeper
does not answer, or refuses, or the set may not be revealed, the next state asks all peers for new keys. A new aggregator
first finishes the round of the one before it, if all keepers hold what they had released.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from p2pclust.peer.core import tasks
from p2pclust.peer.core.job_messages import Pads, Unpad
from p2pclust.peer.core.round_reports import KeysRenewed, OutOfReach
from p2pclust.peer.core.rounds.job_context import JobContext, JobPart
from p2pclust.peer.core.rounds.keeper import Held, Keeper
from p2pclust.peer.core.rounds.open_round import OpenRound
from p2pclust.peer.core.rounds.pad_notes import PadNotes
from p2pclust.peer.core.rounds.patience import Patience
from p2pclust.protocols.engine.reasons import NEW_KEYS, SMALL_CLASS
from p2pclust.protocols.secure.classes import parted
from p2pclust.protocols.secure.proofs import CancelProof
from p2pclust.protocols.secure.secured import Maker
from p2pclust.tools.bit_sets import as_mask, members_of, packed, unpacked

_MOST_DOUBLINGS: Final = 8


@dataclass
class _Closing:
    """One padded state that is closed: what is asked of its keepers, and what has come."""

    state: tasks.Ref
    round: int
    secure: tasks.SecureInfo
    abstained: Mapping[int, str]
    resumes: bool  # whether another aggregator made the state
    held: Held | None = None  # the set and the sum; None until they are known
    message: Unpad | None = None
    keepers: dict[int, str] = field(default_factory=dict)  # that are asked
    since: float = 0.0
    sent_at: dict[int, float] = field(default_factory=dict)
    removed: dict[int, tasks.Ref] = field(default_factory=dict)
    relayed: dict[int, None] = field(default_factory=dict)  # keepers that were asked through other peers
    pulling: dict[int, tasks.Ref] = field(default_factory=dict)  # answers that are blobs, not here yet
    chunks_left: dict[int, int] = field(default_factory=dict)  # of each of these

    def missing(self) -> list[int]:
        return [index for index in self.keepers if index not in self.removed]


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
        self._given_up = 0  # how often keepers were given up in this term
        self._in_vain = False  # whether none of the keepers that were asked last in this term answered
        self.finished: tuple[int, ...] = ()  # the peers in the sum of the round of another aggregator

    def close(self, opened: OpenRound, abstained: Mapping[int, str], cancel: CancelProof | None = None) -> None:
        secure = opened.secure
        assert secure is not None
        if secure.wants_keys:
            self._combine(opened.ref, opened.round, opened.used, abstained, (), cancel)
            return
        self._closing = closing = _Closing(opened.ref, opened.round, secure, abstained, resumes=False)
        restarted = [index for index, reason in abstained.items() if reason == NEW_KEYS]
        waits = self.document.treatment.missing == "all"
        if flaw := self._problem_with(secure, as_mask(opened.contributors())):
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
        parts = (*outcome.peers, *closing.secure.keepers)
        revoked = [index for index in parts if self._job.bars(self.document.roster[index])]
        if revoked:  # while the sum was made
            self._renew(closing, f"{self._names(revoked[:1])} was revoked, or has new keys")
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
        self._note(closing, members)
        closing.held = Held(closing.state, members, total)
        self._keeper.held = closing.held
        self._send_all(closing, packed(members), total)

    def _note(self, closing: _Closing, members: int) -> None:
        self._notes.note(closing.state.digest, members, parted(members, closing.secure.groups), sync=False)

    def resume(self, state: tasks.Ref, round_: int, secure: tasks.SecureInfo) -> None:
        """Finish the round of another aggregator, which made this padded state; or ask for new keys."""
        self._closing = closing = _Closing(state, round_, secure, {}, resumes=True)
        held = self._keeper.held
        closing.held = held if held is not None and held.state.digest == state.digest else None
        self._send_all(closing, b"", tasks.NOTHING)

    def _send_all(self, closing: _Closing, members: bytes, total: tasks.Ref) -> None:
        """Ask the other keepers; the maker has left its own pads out of the sum."""
        closing.message = Unpad(
            self.document.id, self._term, closing.round, closing.state.digest, members, total.digest, total.size_bytes,
            total.frames,
        )  # fmt: skip
        others = [index for index in closing.secure.keepers if index not in (self._me, closing.secure.maker)]
        closing.keepers = {index: self.document.roster[index] for index in others}
        closing.since = self._ctx.now
        for index in closing.keepers:
            self._send(closing, index)
        self.look()

    def _send(self, closing: _Closing, index: int) -> None:
        assert closing.message is not None
        closing.sent_at[index] = self._ctx.now
        self._ctx.send(closing.keepers[index], closing.message)

    def on_pads(self, source: str, message: Pads) -> None:
        closing, index = self._closing, self.document.index(source)
        if closing is None or index not in closing.keepers or index in closing.removed:
            return
        if (message.term, message.round, message.digest) != (self._term, closing.round, closing.state.digest):
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
            return
        if ref.payload is None and not self._blobs.has(ref.digest):
            closing.pulling[index] = ref
            self._blobs.pull(ref.digest, ref.size_bytes, [source])
            return
        closing.removed[index] = ref
        self.look()

    def blob_ready(self, digest: bytes) -> None:
        closing = self._closing
        if closing is None:
            return
        for index in [index for index, ref in closing.pulling.items() if ref.digest == digest]:
            closing.removed[index] = closing.pulling.pop(index)
            self.look()

    def blobs(self) -> list[bytes]:
        closing = self._closing
        if closing is None:
            return []
        return tasks.blobs_of((closing.state, *closing.removed.values(), *closing.pulling.values()))

    def waits_for(self) -> list[str]:
        closing = self._closing
        return [] if closing is None else [closing.keepers[index] for index in closing.missing()]

    def look(self) -> None:
        """Continue if all keepers have answered; ask for new keys if one is gone."""
        closing = self._closing
        if closing is None or closing.message is None:
            return
        missing = closing.missing()
        if not missing and (held := closing.held) is not None:
            removed = tuple(sorted(closing.removed.items()))
            self._closing = None
            if closing.resumes:
                maker = Maker(self._me, self._term, closing.round + 1)
                self._note(closing, held.members)
                self.finished = members_of(held.members)
                own = self._keeper.held
                if own is not None and own.state.digest == closing.state.digest:
                    removed = (*removed, (self._me, own.sum))
                task = tasks.FinishRound(
                    *self._of_job, closing.state, held.members, maker, removed, keys=self._job.keys
                )  # fmt: skip
                self._compute(task)
            else:
                given = ((members_of(held.members), held.sum),)
                self._combine(closing.state, closing.round, given, closing.abstained, removed)
        elif not missing:
            self._renew(closing, "no peer holds the sum")
        elif gone := [index for index in missing if self._membership.gone(closing.keepers[index])]:
            self._renew(closing, f"{self._names(gone)} gone")

    def _combine(
        self, state: tasks.Ref, round_: int, given: tuple[tasks.Given, ...], abstained: Mapping[int, str],
        removed: tuple[tuple[int, tasks.Ref], ...], cancel: CancelProof | None = None,
    ) -> None:  # fmt: skip
        maker = Maker(self._me, self._term, round_ + 1)
        rules, keys = None if cancel is None else self._job.cancels.rules(self.document), self._job.keys
        self._compute(
            tasks.CombineRound(*self._of_job, state, given, abstained, maker, removed, cancel, rules, keys=keys)
        )

    def _renew(self, closing: _Closing, why: str, silent: tuple[int, ...] = ()) -> None:
        self._closing = None
        if not closing.resumes:
            self._report(KeysRenewed, term=self._term, round=closing.round, reason=why)
        self._compute(tasks.RenewKeys(*self._of_job, closing.state, closing.abstained, silent, keys=self._job.keys))

    def revoked(self, name: str) -> None:
        """Ask for new keys if a revoked peer is in the set, or keeps pads."""
        closing, index = self._closing, self.document.index(name)
        if closing is not None and closing.message is not None:
            members = 0 if closing.held is None else closing.held.members
            if index in closing.keepers or members >> index & 1:
                self._renew(closing, f"{name} was revoked, or has new keys")

    def fire(self) -> bool:
        """Ask silent keepers again, and give them up in the end; return whether another aggregator should try.

        New keys cost a round, so patience grows with every time that keepers were given up. If twice in one term no keeper
        answers, the messages of this peer may be the ones that are lost. With ``missing = "all"`` no keeper is given up,
        but another aggregator may have a link to it.
        """
        closing = self._closing
        if closing is None or closing.message is None:
            return False
        self._patience.note_pulls(closing.pulling, closing.chunks_left)
        silent = closing.missing()
        lost = [index for index in silent if self._gives_up(closing, index)]
        none_answered = not closing.removed and not closing.pulling
        if lost and (self.document.treatment.missing == "all" or (none_answered and self._in_vain)):
            for index in lost:
                self._report(OutOfReach, closing.round, closing.keepers[index])
            return True
        if lost:
            self._in_vain = none_answered
            self._given_up += 1
            self._renew(closing, f"{self._names(lost)} did not answer as keepers", tuple(lost))
            return False
        for index in [index for index in silent if index not in closing.pulling]:
            if self._ctx.now - closing.sent_at[index] >= self._ctx.timing.retry_s:
                self._send(closing, index)
            silent_s = self._patience.silent_s(closing.keepers[index], closing.since)
            if index not in closing.relayed and silent_s > self.document.treatment.patience_s / 2:
                closing.relayed[index] = None
                self._send_around(closing.round, closing.keepers[index], closing.message)
        self.look()
        return False

    def _gives_up(self, closing: _Closing, index: int) -> bool:
        """Return whether a keeper was silent, or computed, for too long.

        A keeper that computes may need more time with every one that was given up, as all may be slow; but not one whose
        contribution is missing too: it may report indefinitely that it fetches what cannot reach it.
        """
        times = 2.0 ** min(self._given_up, _MOST_DOUBLINGS)
        contributed = closing.held is None or bool(closing.held.members >> index & 1)
        return self._patience.gives_up(closing.keepers[index], closing.since, times, times if contributed else 1.0)

    def _names(self, indices: list[int]) -> str:
        return ", ".join(self.document.roster[index] for index in indices)
