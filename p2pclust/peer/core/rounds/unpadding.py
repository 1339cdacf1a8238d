"""How an aggregator closes the rounds of a job with secure sums (docs/secure-sums.md).

When the padded contributions are here, it fixes the set of peers and asks the keepers to take their pads from the sum. If
a keeper does not answer, or refuses, or the set may not be revealed, the next state asks all peers for new keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from p2pclust.peer.core.job_messages import Pads, Unpad
from p2pclust.peer.core.round_reports import KeysRenewed
from p2pclust.peer.core.rounds.job_context import JobContext
from p2pclust.peer.core.rounds.open_round import OpenRound
from p2pclust.peer.core.rounds.pad_notes import PadNotes
from p2pclust.peer.core.rounds.patience import Patience
from p2pclust.peer.core.tasks import CombineRound, Ref, RenewKeys, Task
from p2pclust.protocols.engine.secure_rounds import NEW_KEYS
from p2pclust.protocols.secure.secured import Maker, as_mask

__all__ = ["SecureTerm"]


@dataclass
class _Asked:
    """The keepers of one round: what was asked, and what has come."""

    opened: OpenRound
    abstained: Mapping[int, str]
    message: Unpad
    keepers: dict[int, str]  # without this peer, whose own pads its worker takes away
    since: float
    sent_at: dict[int, float] = field(default_factory=dict)
    removed: dict[int, Ref] = field(default_factory=dict)
    pulling: dict[int, Ref] = field(default_factory=dict)  # answers that are blobs, not here yet


class SecureTerm:
    """The secured rounds of one term at its aggregator. `compute` hands a task of the term to the worker."""

    def __init__(
        self, job: JobContext, notes: PadNotes, patience: Patience, compute: Callable[[Task], None]
    ) -> None:  # fmt: skip
        self._ctx = job.context
        self._membership = job.membership
        self._blobs = job.blobs
        self._document = job.document
        self._term = job.ledger.term
        self._notes = notes
        self._patience = patience
        self._compute = compute
        self._asked: _Asked | None = None

    def close(self, opened: OpenRound, abstained: Mapping[int, str], *, cancelled_by: str = "") -> None:
        """Close a round whose answers are here."""
        secure, members = opened.secure, as_mask(opened.contributors())
        assert secure is not None
        if secure.wants_keys:
            self._combine(opened, abstained, (), cancelled_by)
            return
        restarted = [index for index, reason in abstained.items() if reason == NEW_KEYS]
        waits = self._document.treatment.missing == "all"
        if flaw := self._flaw(opened, members):
            self._renew(opened, abstained, (), flaw)
        elif lost := [index for index in restarted if waits or index in secure.keepers]:
            self._renew(opened, abstained, (), f"{self._names(lost)} restarted")
        else:
            self._ask(opened, abstained, members)

    def _flaw(self, opened: OpenRound, members: int) -> str:
        """Return why the sum of these peers may not be revealed, or an empty string."""
        secure = opened.secure
        assert secure is not None
        if members.bit_count() < secure.cohort:
            return f"{members.bit_count()} contributed, and {secure.cohort} are needed"
        if secure.whole and members != as_mask(secure.asked):
            return "not all that were asked contributed"
        return ""

    def _ask(self, opened: OpenRound, abstained: Mapping[int, str], members: int) -> None:
        secure, roster = opened.secure, self._document.roster
        assert secure is not None
        self._notes.note(opened.ref.digest, members)
        data = members.to_bytes((members.bit_length() + 7) // 8, "little")
        message = Unpad(self._document.id, self._term, opened.round, opened.ref.digest, data)
        keepers = {index: roster[index] for index in secure.keepers if roster[index] != self._ctx.me}
        self._asked = _Asked(opened, abstained, message, keepers, self._ctx.now)
        for index in keepers:
            self._send(self._asked, index)
        self._look()

    def _send(self, asked: _Asked, index: int) -> None:
        asked.sent_at[index] = self._ctx.now
        self._ctx.send(asked.keepers[index], asked.message)

    def _combine(
        self, opened: OpenRound, abstained: Mapping[int, str], removed: tuple[tuple[int, Ref], ...], cancelled_by: str = ""
    ) -> None:  # fmt: skip
        maker = Maker(self._document.index(self._ctx.me), self._term, opened.round + 1)
        self._compute(
            CombineRound(
                self._document.job, len(self._document.roster), opened.ref, opened.used, abstained, maker, removed,
                cancelled_by, keys=self._document.keys,
            )
        )  # fmt: skip

    def _renew(self, opened: OpenRound, abstained: Mapping[int, str], silent: tuple[int, ...], why: str) -> None:
        self._asked = None
        self._ctx.report(KeysRenewed(*self._document.named, term=self._term, round=opened.round, reason=why))
        self.renew(opened.ref, abstained, silent)

    def renew(self, ref: Ref, abstained: Mapping[int, str], silent: tuple[int, ...]) -> None:
        """Make the state that asks for new keys after a padded one."""
        n_peers = len(self._document.roster)
        self._compute(RenewKeys(self._document.job, n_peers, ref, abstained, silent, keys=self._document.keys))

    def on_pads(self, source: str, message: Pads) -> None:
        """Take the answer of a keeper."""
        asked, index = self._asked, self._document.index(source)
        if asked is None or index not in asked.keepers or index in asked.removed:
            return
        opened = asked.opened
        if (message.term, message.round, message.digest) != (self._term, opened.round, opened.ref.digest):
            return
        if message.refusal:
            self._renew(opened, asked.abstained, (), f"{source} refused its pads: {message.refusal}")
            return
        ref = Ref(message.pads, message.size_bytes, message.payload[0] if message.payload else None)
        if ref.payload is None and not self._blobs.has(ref.digest):
            asked.pulling[index] = ref
            self._blobs.pull(ref.digest, ref.size_bytes, [source])
            return
        asked.removed[index] = ref
        self._look()

    def blob_ready(self, digest: bytes) -> None:
        """Take an answer whose blob is complete now."""
        asked = self._asked
        if asked is None:
            return
        for index in [index for index, ref in asked.pulling.items() if ref.digest == digest]:
            asked.removed[index] = asked.pulling.pop(index)
            self._look()

    def blobs(self) -> list[bytes]:
        """Return the blobs that are needed."""
        asked = self._asked
        refs = [] if asked is None else [*asked.removed.values(), *asked.pulling.values()]
        return [ref.digest for ref in refs if ref.payload is None]

    def waits_for(self) -> list[str]:
        """Return the keepers whose answers are missing, in roster order."""
        asked = self._asked
        return [] if asked is None else [name for index, name in asked.keepers.items() if index not in asked.removed]

    def _look(self) -> None:
        """Combine if all keepers have answered; ask for new keys if one is gone."""
        asked = self._asked
        if asked is None:
            return
        missing = [index for index in asked.keepers if index not in asked.removed]
        if not missing:
            self._asked = None
            self._combine(asked.opened, asked.abstained, tuple(sorted(asked.removed.items())))
        elif gone := [index for index in missing if self._membership.gone(asked.keepers[index])]:
            self._renew(asked.opened, asked.abstained, (), f"{self._names(gone)} gone")

    def member_changed(self) -> None:
        """React to a new membership status: a keeper may be gone."""
        self._look()

    def revoked(self, name: str) -> None:
        """Ask for new keys if a revoked peer is in the set, or keeps pads."""
        asked, index = self._asked, self._document.index(name)
        if asked is not None and (index in asked.keepers or index in asked.opened.contributors()):
            self._renew(asked.opened, asked.abstained, (), f"{name} was revoked")

    def fire(self) -> None:
        """Ask silent keepers again, and give them up in the end."""
        asked = self._asked
        if asked is None:
            return
        silent = [index for index in asked.keepers if index not in asked.removed and index not in asked.pulling]
        if lost := [index for index in silent if self._patience.gives_up(asked.keepers[index], asked.since)]:
            left_out = () if self._document.treatment.missing == "all" else tuple(lost)
            self._renew(asked.opened, asked.abstained, left_out, f"{self._names(lost)} did not answer as keepers")
            return
        for index in silent:
            if self._ctx.now - asked.sent_at[index] >= self._ctx.timing.retry_s:
                self._send(asked, index)
        self._look()

    def _names(self, indices: list[int]) -> str:
        return ", ".join(self._document.roster[index] for index in indices)
