"""What a store promised and forgot, remembered for ever: across restarts, and after the store itself deleted it.

S9  a job begins once at a store and has one result there: a ballot or register that was deleted is never written again, no
    deleted job is begun again, and none is deleted before a tombstone is written that says so
"""

from __future__ import annotations

import msgpack

from p2pclust.lab.simulation.world.observer import Observer
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.lab.simulation.world.world import World
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.effects import Effect, Persist
from p2pclust.peer.core.reports import Report
from p2pclust.peer.core.spread.tombstones import ENDED, SERIES

_PROMISES = ("ballot", "register")
_ROUNDS_BACK = 2  # of the job around it: in no older round can a job be wanted again

_Key = tuple[str, str]  # store and job


class Endings(Observer):
    """Watches one world."""

    watches = (Persist, Report)

    def __init__(self) -> None:
        self._documents: dict[str, Document] = {}
        self._deleted: dict[_Key, None] = {}
        self._deleting: dict[str, dict[_Key, None]] = {}  # by peer: not on its disk yet
        self._results: dict[_Key, str] = {}

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        """Check what this effect touches."""
        if isinstance(effect, Persist) and effect.table in _PROMISES:
            self._promise(peer, effect)
        elif isinstance(effect, Report) and effect.verb in ("submitted", "job", "finished"):
            self._report(peer, effect)

    def synced(self, world: World, peer: Peer) -> None:
        """What the peer deleted is gone."""
        self._deleted.update(self._deleting.pop(peer.name, {}))

    def crashed(self, world: World, peer: Peer, lost_writes: int) -> None:
        """What was not synced was not deleted either."""
        self._deleting.pop(peer.name, None)

    def _promise(self, peer: Peer, effect: Persist) -> None:
        key = (peer.disk.store_id, effect.key)
        if effect.value is not None:
            assert key not in self._deleted, f"S9: {peer.name} writes the {effect.table} of {effect.key} once more"
            return
        if peer.disk.read(effect.table, effect.key) is not None:
            document = self._documents[effect.key]
            assert self._buried(peer, document), f"S9: {peer.name} deletes the {effect.table} of {effect.key}, unburied"
            self._deleting.setdefault(peer.name, {})[key] = None

    def _report(self, peer: Peer, effect: Report) -> None:
        job_id = str(effect.fields["job"])
        job = None if peer.core is None else peer.core.jobs.jobs.get(job_id)
        if job is not None:
            self._documents.setdefault(job_id, job.document)
        key = (peer.disk.store_id, job_id)
        if effect.verb == "job":
            assert key not in self._deleted, f"S9: {peer.name} begins {job_id} once more, in the same store"
        elif effect.verb == "finished":
            digest = str(effect.fields["digest"])
            known = self._results.setdefault(key, digest)
            assert known == digest, f"S9: {job_id} ends a second time at {peer.name}, with other bits"

    def _buried(self, peer: Peer, document: Document) -> bool:
        """Whether a tombstone is written; written out here, because the core's own rule is what is checked."""
        disk, turn = peer.disk, document.turn
        if turn is not None:
            return int(disk.read(SERIES, turn.series) or b"-1") > turn.number
        if not document.parent:
            return disk.read(ENDED, document.id) is not None
        row = disk.read("register", document.parent)
        if row is None:
            return disk.read(ENDED, document.parent) is not None
        _, round_, _, _, _, _, finished = msgpack.unpackb(row)
        return bool(finished) or document.parent_round <= round_ - _ROUNDS_BACK
