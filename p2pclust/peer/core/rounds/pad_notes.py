"""What a peer keeps on disk about the secure sums of one job, and reports after its end (docs/secure-sums.md).

The notes are one row, synced before it counts. The last state is the word of aggregators; a keeper knows for which sets it
took its pads away. It reports the sets that the state leaves out, as a fact, signed like all facts of its device.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgpack

from p2pclust.peer.core.effects import Compute
from p2pclust.peer.core.round_reports import ReportsSets
from p2pclust.peer.core.rounds.job_context import JobContext, JobPart
from p2pclust.peer.core.tasks import EndToken, ForgetKeys, KeysForgotten, Outcome, PadsKept
from p2pclust.protocols.engine.reasons import PROVED
from p2pclust.tools.bit_sets import packed, unpacked

#: The table of these rows.
TABLE: Final = "pads"
#: States that are remembered. Only the newest padded state that this peer unpadded may still be asked about: the one before
#: is followed by a state that a majority has adopted. Of sets all that differ are, of the whole job.
_MOST_STATES: Final = 4


#: Of the key of the fact with the sets that a peer reports; the job's id follows. Its value is a list of sets.
PREFIX: Final = "sets/"
#: Of one keeper: so a fact stays small, and a liar cannot say more.
_MOST_SETS: Final = 64


class PadNotes(JobPart):
    """The sets for which this peer took pads away, or asked keepers to, and a digest of the rows that it contributed."""

    def __init__(self, job: JobContext, stored: bytes | None) -> None:
        super().__init__(job)
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
        intact = self.document.counts(self._ctx.me, self._ctx.store_id)
        return PadsKept(intact, self._rows, self._noisy, tuple(self._sets.items()), tuple(self._released))

    def contributed(self, rows: bytes, *, noisy: bool = False) -> None:
        """Note the rows of the first padded contribution, and count those with noise."""
        if (rows and not self._rows) or noisy:
            self._rows, self._noisy = self._rows or rows, self._noisy + noisy
            self._save()

    def knows(self, state: bytes) -> bool:
        """Return whether a set was noted for a padded state."""
        return state in self._sets

    def allows(self, state: bytes, members: int) -> bool:
        """Return whether no other set was noted for a padded state."""
        return self._sets.get(state, members) == members

    def note(self, state: bytes, members: int, sets: Iterable[int], *, sync: bool = True) -> None:
        """Note the only set of a padded state, and the sets whose sums can be revealed of it.

        A keeper syncs this before its pads leave. An aggregator need not: without the pads of keepers, which have noted the
        set, it knows no total.
        """
        assert self.allows(state, members), f"{self.document.id}: a second set for one state"
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
        self._ctx.persist(TABLE, self.document.id, msgpack.packb(row), sync=sync)

    def end(self) -> None:
        """Let the worker forget the keys, and compare what this peer knows with the final state, if there is one."""
        document, sets, keys = self.document, tuple(self._released), self._job.keys
        if keys is not None and document.treatment.secure:
            state = self.ledger.register.ref if self.ledger.finished else None
            task = ForgetKeys(document.mathematics, keys, state, sets)
            self._ctx.effects.append(Compute(EndToken(document.id, task.kind), task))

    def go_on(self) -> None:
        """After a restart, compare again what this peer knows of a job that has ended."""
        if self._released:
            self.end()

    def compared(self, outcome: Outcome) -> None:
        """Publish the sets that the final state leaves out; without any, nothing is to be kept on disk."""
        if not isinstance(outcome, KeysForgotten):
            return
        roster = self.document.roster
        for index in outcome.proved:
            self._job.suspicions.setdefault(roster[index], (self.ledger.register.round, PROVED))
        if not outcome.unnamed:
            self._delete()
        else:
            sets = msgpack.packb([packed(one) for one in outcome.unnamed[-_MOST_SETS:]])
            self._job.facts.publish(PREFIX + self.document.id, sets)
            self._report(ReportsSets, peers=[roster[index] for index in outcome.exposed])

    def forget(self) -> None:
        """Delete the row and the keys, and retract what this peer reported."""
        self._delete()
        if not self.ledger.finished:
            self.end()
        self._job.facts.retract(PREFIX + self.document.id)

    def _delete(self) -> None:
        if self.document.treatment.secure:
            self._ctx.persist(TABLE, self.document.id, None, sync=False)

    def by_keeper(self) -> dict[str, tuple[int, ...]]:
        """Return the sets that each peer of the job reports, and those that this peer itself knows."""
        found = {self._ctx.me: tuple(self._released)}
        for name in self.document.roster:
            fact = None if name == self._ctx.me else self._job.facts.get(name, PREFIX + self.document.id)
            if fact is not None:
                found[name] = _decoded(fact.value, len(self.document.roster))
        return {name: sets for name, sets in found.items() if sets}


def _decoded(data: bytes, n_peers: int) -> tuple[int, ...]:
    try:
        masks = msgpack.unpackb(data, max_ext_len=0)
        sets = tuple(unpacked(mask) for mask in masks if type(mask) is bytes)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException):
        return ()
    possible = len(sets) == len(masks) <= _MOST_SETS and all(0 < one.bit_length() <= n_peers for one in sets)
    return sets if possible else ()
