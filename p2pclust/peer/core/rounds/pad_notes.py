"""What a peer keeps on disk about the secure sums of one job (docs/secure-sums.md): one row, synced before it counts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgpack

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.tasks import PadsKept
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
