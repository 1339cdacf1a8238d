"""S13: when a job is reported as accepted, a majority of its roster has the document on the disk."""

from __future__ import annotations

from p2pclust.lab.simulation.checks.agreement import majority
from p2pclust.lab.simulation.world.observer import Observer
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.lab.simulation.world.world import World
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.effects import Effect, Persist
from p2pclust.peer.core.reports import JobAccepted


class Accepted(Observer):
    """Watches one world.

    A store counts if it was intact when it got the document: if it is lost later, what its peer had said before still
    meets every majority that can come.
    """

    watches = (Persist, JobAccepted)

    def __init__(self) -> None:
        self._documents: dict[str, Document] = {}
        self._unsynced: dict[str, dict[str, None]] = {}  # by peer
        self._holders: dict[str, dict[str, None]] = {}  # by job

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        """Note a document that is written, and check one that is accepted."""
        if isinstance(effect, Persist) and effect.table == "job" and effect.value is not None:
            document = self._documents.setdefault(effect.key, Document.decode(effect.value))
            stores = dict(zip(document.roster, document.store_ids, strict=True))
            if stores.get(peer.name) == peer.disk.store_id:
                self._unsynced.setdefault(peer.name, {})[effect.key] = None
        elif isinstance(effect, JobAccepted):
            self._accepted(peer, effect.job)

    def synced(self, world: World, peer: Peer) -> None:
        """What the peer wrote is on its disk."""
        for job in self._unsynced.pop(peer.name, {}):
            self._holders.setdefault(job, {})[peer.name] = None

    def crashed(self, world: World, peer: Peer, lost_writes: int) -> None:
        """What was not synced is lost."""
        self._unsynced.pop(peer.name, None)

    def _accepted(self, peer: Peer, job: str) -> None:
        assert peer.core is not None
        document, holders = self._documents[job], self._holders.get(job, {})
        if document.number:
            return  # a census agreed on it
        ended = peer.core.jobs.table.ended(job)  # peers that are revoked after the end took part in it
        found = [name for name in holders if ended or name not in peer.core.barred]
        enough = len(found) >= majority(len(document.roster))
        assert enough, f"S13: {peer.name} reports {job} as accepted, and only {', '.join(found) or 'no peer'} has it"
