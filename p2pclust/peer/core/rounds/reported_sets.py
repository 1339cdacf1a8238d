"""What keepers report after a job with secure sums: sets of peers that its final state leaves out (docs/secure-sums.md).

The state is the word of aggregators; a keeper knows for which sets it took its pads away. What it reports is a fact, signed
like all facts of its device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgpack

from p2pclust.peer.core.effects import Compute
from p2pclust.peer.core.round_reports import ReportsSets
from p2pclust.peer.core.rounds.job_context import JobContext
from p2pclust.peer.core.rounds.pad_notes import PadNotes
from p2pclust.peer.core.tasks import ForgetKeys, KeysForgotten, Outcome
from p2pclust.peer.core.tokens import EndToken
from p2pclust.tools.bit_sets import packed, unpacked

#: Of the fact's key; the job's id follows. Its value is a list of sets.
PREFIX: Final = "sets/"
#: Of one keeper: so a fact stays small, and a liar cannot say more.
_MOST_SETS: Final = 64


class ReportedSets:
    """One job's keys and sets at one peer, after its end."""

    def __init__(self, job: JobContext, notes: PadNotes) -> None:
        self._job = job
        self._ctx = job.context
        self._document = job.document
        self._ledger = job.ledger
        self._facts = job.facts
        self._notes = notes

    def end(self) -> None:
        """Let the worker forget the keys, and compare what this peer knows with the final state, if there is one."""
        document, sets, keys = self._document, self._notes.kept.released, self._job.keys
        if keys is not None and document.treatment.secure:
            state = self._ledger.register.ref if self._ledger.finished and sets else None
            task = ForgetKeys(document.job, keys, state, sets)
            self._ctx.effects.append(Compute(EndToken(document.id, task.kind), task))

    def go_on(self) -> None:
        """After a restart, compare again what this peer knows of a job that has ended."""
        if self._notes.kept.released:
            self.end()

    def compared(self, outcome: Outcome) -> None:
        """Publish the sets that the final state leaves out; without any, nothing is to be kept on disk."""
        if isinstance(outcome, KeysForgotten) and not outcome.unnamed:
            self._notes.forget()
        elif isinstance(outcome, KeysForgotten):
            roster = self._document.roster
            self._facts.publish(PREFIX + self._document.id, _encoded(outcome.unnamed[-_MOST_SETS:]))
            self._ctx.report(ReportsSets(*self._document.named, peers=[roster[index] for index in outcome.exposed]))

    def forget(self) -> None:
        """Retract what this peer reported."""
        self._facts.retract(PREFIX + self._document.id)

    def by_keeper(self) -> dict[str, tuple[int, ...]]:
        """Return the sets that each peer of the job reports, and those that this peer itself knows."""
        found = {self._ctx.me: self._notes.kept.released} if self._notes.kept.released else {}
        for name in self._document.roster:
            fact = None if name == self._ctx.me else self._facts.get(name, PREFIX + self._document.id)
            if fact is not None:
                found[name] = _decoded(fact.value, len(self._document.roster))
        return {name: sets for name, sets in found.items() if sets}


def _encoded(sets: Sequence[int]) -> bytes:
    return bytes(msgpack.packb([packed(one) for one in sets]))


def _decoded(data: bytes, n_peers: int) -> tuple[int, ...]:
    """Return the sets that a peer reports, or none if these cannot be."""
    try:
        masks = msgpack.unpackb(data, max_ext_len=0)
        sets = tuple(unpacked(mask) for mask in masks if type(mask) is bytes)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException):
        return ()
    possible = len(sets) == len(masks) <= _MOST_SETS and all(0 < one.bit_length() <= n_peers for one in sets)
    return sets if possible else ()
