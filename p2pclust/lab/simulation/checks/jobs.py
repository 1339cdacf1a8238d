"""What jobs promise, seen from outside and remembered across restarts and lost stores.

S9   a job begins once at a store and has one result there: a ballot or register that was deleted is never written again, no
     deleted job is begun again, and none is deleted before a tombstone is written that says so
S13  when a job is reported as accepted, a majority of its roster has the document on the disk
S14  the record of a round names each peer that was asked, either as contributor or with the reason why it is not one
"""

from __future__ import annotations

import msgpack

from p2pclust.lab.simulation.checks.agreement import majority
from p2pclust.lab.simulation.world.observer import Observer
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.lab.simulation.world.world import World
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.effects import Effect, Persist
from p2pclust.peer.core.reports import JobAccepted, JobFinished, Report
from p2pclust.peer.core.spread.tombstones import ENDED, SERIES
from p2pclust.protocols.engine import random_streams
from p2pclust.protocols.engine.job import Job, JobState

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


class Named(Observer):
    """Reads the record in each final state of a world. What a stage asks one peer, it may get from any."""

    watches = (JobFinished,)

    def __init__(self) -> None:
        self._read: dict[str, None] = {}
        self.rounds = 0

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        """Check the record of a job, where it ends first."""
        assert isinstance(effect, JobFinished)
        assert peer.core is not None
        job = peer.core.jobs.jobs[effect.job]
        if job.id in self._read or job.document.census:
            return
        self._read[job.id] = None
        state = JobState.decode(peer.state_of(job.id))
        mathematics, roster = Job.from_dict(msgpack.unpackb(job.document.mathematics)), job.document.roster
        for number, record in enumerate(state.log):
            protocol = mathematics.protocols[record.stage]
            if protocol.asks == "one":
                continue
            share = mathematics.participation if protocol.draws else 1.0
            asked = random_streams.participants(mathematics.seed, number, len(roster), share)
            unnamed = [roster[index] for index in asked if index not in (*record.contributors, *record.abstained)]
            self.rounds += 1
            assert not unnamed, f"S14: round {number} of {job.id} does not say what {', '.join(unnamed)} did: {record}"
