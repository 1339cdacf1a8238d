"""What a peer keeps on disk about the secure sums of one job, and reports after its end (docs/secure-sums.md).

The notes are one row, synced before it counts. The last state is the word of aggregators; a keeper knows for which sets it
took its pads away. It reports the sets that the state leaves out, as a fact, signed like all facts of its device.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgpack

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.effects import Compute
from p2pclust.peer.core.round_reports import ReportsSets
from p2pclust.peer.core.rounds.job_context import JobContext, JobPart
from p2pclust.peer.core.tasks import EndToken, ForgetKeys, KeysForgotten, Outcome, PadsKept
from p2pclust.tools.bit_sets import packed, unpacked

#: The table of these rows.
TABLE: Final = "pads"
#: States that are remembered. Only the newest padded state that this peer unpadded may still be asked about: the one before
#: is followed by a state that a majority has adopted. Of sets all that differ are, of the whole job.
_MOST_STATES: Final = 4


class PadNotes:
    """The sets for which this peer took pads away, or asked keepers to, and a digest of the rows that it contributed."""

    def __init__(self, context: Context, document: Document, stored: bytes | None) -> None:
        self._ctx = context
        self._document = document
        self._rows, self._noisy = b"", 0
        self._sets: dict[bytes, int] = {}
        self._released: dict[int, None] = {}
        self._synced = True  # whether the row was to be on the disk when it was written last
        if stored is not None:
            self._rows, sets, self._noisy, released = msgpack.unpackb(stored)
            self._sets = {state: unpacked(mask) for state, mask in sets}
            self._released = dict.fromkeys(map(unpacked, released))

    @property
    def kept(self) -> PadsKept:
        """What tasks are given."""
        intact = self._document.counts(self._ctx.me, self._ctx.store_id)
        return PadsKept(intact, self._rows, self._noisy, tuple(self._sets.items()), tuple(self._released))

    def contributed(self, rows: bytes, *, noisy: bool = False) -> None:
        """Note the rows of the first padded contribution, and count those with noise."""
        if (rows and not self._rows) or noisy:
            self._rows, self._noisy = self._rows or rows, self._noisy + noisy
            self._save()

    def allows(self, state: bytes, members: int) -> bool:
        """Return whether no other set was noted for a padded state."""
        return self._sets.get(state, members) == members

    def note(self, state: bytes, members: int, sets: Iterable[int], *, sync: bool = True) -> None:
        """Note the only set of a padded state, and the sets whose sums can be revealed of it.

        A keeper syncs this before its pads leave. An aggregator need not: without the pads of keepers, which have noted the
        set, it knows no total.
        """
        assert self.allows(state, members), f"{self._document.id}: a second set for one state"
        if state in self._sets and (self._synced or not sync):
            return
        self._sets[state] = members
        self._released |= dict.fromkeys(sets)
        while len(self._sets) > _MOST_STATES:
            del self._sets[next(iter(self._sets))]
        self._save(sync=sync)

    def _save(self, *, sync: bool = True) -> None:
        self._synced = sync
        sets = [[state, packed(mask)] for state, mask in self._sets.items()]
        row = [self._rows, sets, self._noisy, [packed(mask) for mask in self._released]]
        self._ctx.persist(TABLE, self._document.id, msgpack.packb(row), sync=sync)

    def forget(self) -> None:
        """Delete the row."""
        if self._document.treatment.secure:
            self._ctx.persist(TABLE, self._document.id, None, sync=False)


#: Of the fact's key; the job's id follows. Its value is a list of sets.
PREFIX: Final = "sets/"
#: Of one keeper: so a fact stays small, and a liar cannot say more.
_MOST_SETS: Final = 64


class ReportedSets(JobPart):
    """One job's keys and sets at one peer, after its end."""

    def __init__(self, job: JobContext, notes: PadNotes) -> None:
        super().__init__(job)
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
            sets = msgpack.packb([packed(one) for one in outcome.unnamed[-_MOST_SETS:]])
            self._job.facts.publish(PREFIX + self._document.id, sets)
            self._report(ReportsSets, peers=[roster[index] for index in outcome.exposed])

    def forget(self) -> None:
        """Retract what this peer reported."""
        self._job.facts.retract(PREFIX + self._document.id)

    def by_keeper(self) -> dict[str, tuple[int, ...]]:
        """Return the sets that each peer of the job reports, and those that this peer itself knows."""
        found = {self._ctx.me: self._notes.kept.released} if self._notes.kept.released else {}
        for name in self._document.roster:
            fact = None if name == self._ctx.me else self._job.facts.get(name, PREFIX + self._document.id)
            if fact is not None:
                found[name] = _decoded(fact.value, len(self._document.roster))
        return {name: sets for name, sets in found.items() if sets}


def _decoded(data: bytes, n_peers: int) -> tuple[int, ...]:
    """Return the sets that a peer reports, or none if these cannot be."""
    try:
        masks = msgpack.unpackb(data, max_ext_len=0)
        sets = tuple(unpacked(mask) for mask in masks if type(mask) is bytes)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException):
        return ()
    possible = len(sets) == len(masks) <= _MOST_SETS and all(0 < one.bit_length() <= n_peers for one in sets)
    return sets if possible else ()
