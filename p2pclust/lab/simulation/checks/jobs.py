"""What jobs and series promise, and what peers wait for: S9, S13, S14, L5 and L7 (docs/peer/simulator.md).

All is seen from outside, and remembered across restarts and lost stores. Each turn of a series is one job, has one result,
and begins where the one before ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import msgpack

from p2pclust.lab.simulation.checks.agreement import majority
from p2pclust.lab.simulation.world.disk import Disk
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.lab.simulation.world.world import Observer, World
from p2pclust.peer.core.context import TimerKey
from p2pclust.peer.core.core import Core
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.effects import Effect, Persist
from p2pclust.peer.core.jobs.submission import TOLD
from p2pclust.peer.core.ledger import ENDED, SERIES
from p2pclust.peer.core.reports import JobAccepted, JobSubmitted, Report
from p2pclust.peer.core.round_reports import LeftOut
from p2pclust.peer.core.rounds.election import Role
from p2pclust.peer.core.rounds.job import AggregatedJob
from p2pclust.peer.core.spread.series import PAUSES
from p2pclust.protocols.engine import random_streams, summaries
from p2pclust.protocols.engine.job import Job, JobState

_PROMISES: Final = ("ballot", "register")
_ROUNDS_BACK: Final = 2  # of the job around it: in no older round can a job be wanted again
_MOST_DOCUMENTS: Final = 4  # of a series: the present turn, the one before, and a census or two
#: Members are probed, and tables of members and facts are compared, as long as a peer runs.
_ALWAYS: Final[tuple[TimerKey, ...]] = (("fact", "sync"), ("member", "sync"), ("member", "probe"), ("member", "dead"))
_STORE_IDS: Final[TimerKey] = ("submit", "")
_ROSTER: Final[TimerKey] = ("roster", "ask")
_WHOLE_DAY: Final = b"16"

_Key = tuple[str, str]  # store and job


class Promises(Observer):
    """Watches one world (S9, S13, S14).

    For S13, a store counts if it was intact when it got the document: if it is lost later, what its peer had said before
    still meets every majority that can come.
    """

    watches = (Persist, Report)

    def __init__(self) -> None:
        self._documents: dict[str, Document] = {}
        self._deleted: dict[_Key, None] = {}
        self._deleting: dict[str, dict[_Key, None]] = {}  # by peer: not on its disk yet
        self._results: dict[_Key, str] = {}
        self._unsynced: dict[str, dict[str, None]] = {}  # by peer: documents of jobs
        self._holders: dict[str, dict[str, None]] = {}  # by job
        self._read: dict[str, None] = {}  # jobs whose record was read

    def synced(self, world: World, peer: Peer) -> None:
        self._deleted.update(self._deleting.pop(peer.name, {}))
        for job in self._unsynced.pop(peer.name, {}):
            self._holders.setdefault(job, {})[peer.name] = None

    def crashed(self, world: World, peer: Peer, lost_writes: int) -> None:
        self._deleting.pop(peer.name, None)
        self._unsynced.pop(peer.name, None)

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        if isinstance(effect, Persist):
            self._persist(peer, effect)
        elif isinstance(effect, JobAccepted):
            self._accepted(peer, effect.job)
        elif isinstance(effect, Report) and effect.verb in ("submitted", "job", "finished"):
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
                self._finished(peer, job_id)

    def _persist(self, peer: Peer, effect: Persist) -> None:
        key, row = (peer.disk.store_id, effect.key), effect.value
        if effect.table == "job" and row is not None:
            document = self._documents.setdefault(effect.key, Document.decode(row))
            stores = dict(zip(document.roster, document.store_ids, strict=True))
            if stores.get(peer.name) == peer.disk.store_id:
                self._unsynced.setdefault(peer.name, {})[effect.key] = None
        elif effect.table in _PROMISES and row is not None:
            assert key not in self._deleted, f"S9: {peer.name} writes the {effect.table} of {effect.key} once more"
        elif effect.table in _PROMISES and peer.disk.read(effect.table, effect.key) is not None:
            buried = self._buried(peer, self._documents[effect.key])
            assert buried, f"S9: {peer.name} deletes the {effect.table} of {effect.key}, unburied"
            self._deleting.setdefault(peer.name, {})[key] = None

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

    def _accepted(self, peer: Peer, job: str) -> None:
        assert peer.core is not None
        document = self._documents[job]
        if document.number:
            return  # a census agreed on it
        ended = peer.core.jobs.table.ended(job)  # peers that are revoked after the end took part in it
        found = [name for name in self._holders.get(job, {}) if ended or name not in peer.core.barred]
        enough = len(found) >= majority(len(document.roster))
        assert enough, f"S13: {peer.name} reports {job} as accepted, and only {', '.join(found) or 'no peer'} has it"

    def _finished(self, peer: Peer, job_id: str) -> None:
        """Check the record of a job where it ends first. What a stage asks one peer, it may get from any."""
        document = self._documents[job_id]
        if job_id in self._read or document.census:
            return
        self._read[job_id] = None
        state = JobState.decode(peer.state_of(job_id))
        mathematics, roster = Job.from_dict(msgpack.unpackb(document.mathematics)), document.roster
        for number, record in enumerate(state.log):
            protocol = mathematics.protocols[record.stage]
            if protocol.asks == "one":
                continue
            share = mathematics.participation if protocol.draws else 1.0
            asked = random_streams.participants(mathematics.seed, number, len(roster), share)
            unnamed = [roster[index] for index in asked if index not in (*record.contributors, *record.abstained)]
            assert not unnamed, f"S14: round {number} of {job_id} does not say what {', '.join(unnamed)} did: {record}"


@dataclass
class SeriesSeen:
    """What was seen of one series, by the numbers of its turns."""

    name: str
    documents: dict[int, Document] = field(default_factory=dict)
    finals: dict[int, dict[str, bytes]] = field(default_factory=dict)  # by peer, the bytes of the final state

    @property
    def newest(self) -> int:
        """The number of the newest turn, -1 before the first."""
        return max(self.documents, default=-1)

    def needed(self) -> list[Document]:
        """Return the turns that need a majority of their stores: those that have not ended, and the newest.

        The roster of the newest agrees on the next one after it has ended.
        """
        return [turn for number, turn in self.documents.items() if number not in self.finals or number == self.newest]

    def judge(self, counts: Counter[str], peers: Iterable[Peer]) -> None:
        """Check all turns that were seen: one result each, and a start where the turn before ended, and few on each disk."""
        counts["turns"] += len(self.finals)
        for number, ended in self.finals.items():
            assert len(set(ended.values())) == 1, f"S5: turn {number} of {self.name} ended with different bits"
        for number, document in self.documents.items():
            before = self.finals.get(number - 1)
            state = None if before is None else JobState.decode(next(iter(before.values())))
            warm = state is not None and state.status == "done"
            counts["warm start"] += warm
            if state is not None and warm:
                stages = Job.from_dict(msgpack.unpackb(document.mathematics)).stages
                given = [stage.parameters["centers"] for stage in stages if stage.parameters.get("init") == "given"]
                assert given == [summaries.raw_centers(state).tolist()], (
                    f"turn {number} of {self.name} begins elsewhere"
                )
        for peer in peers:
            documents = (Document.decode(row) for row in peer.disk.load().tables["job"].values())
            kept = [one for one in documents if one.turn is not None and one.turn.series == self.name]
            assert len(kept) <= _MOST_DOCUMENTS, f"L6: {peer.name} keeps {len(kept)} documents of one series"


class Turns(Observer):
    """Remembers the documents and the ends of all turns of all series."""

    watches = (Report,)

    def __init__(self) -> None:
        self.series: dict[str, SeriesSeen] = {}

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        if not isinstance(effect, Report) or effect.verb not in ("job", "finished") or peer.core is None:
            return
        job = peer.core.jobs.jobs.get(str(effect.fields["job"]))
        if job is None or job.document.turn is None or job.document.census:
            return
        turn = job.document.turn
        seen = self.series.setdefault(turn.series, SeriesSeen(turn.series))
        known = seen.documents.setdefault(turn.number, job.document)
        assert known.id == job.id, f"turn {turn.number} is two jobs: {known.id} and {job.id}"
        if effect.verb == "finished":
            seen.finals.setdefault(turn.number, {})[peer.name] = peer.state_of(job.id)


class Waits(Observer):
    """Knows what each peer of a world waits for."""

    watches = (JobSubmitted, JobAccepted)

    def __init__(self) -> None:
        self._submitted: dict[str, dict[str, None]] = {}  # by peer: jobs that no majority is known to have yet

    def started(self, world: World, peer: Peer) -> None:
        self._submitted[peer.name] = {}  # the client asks again

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        if isinstance(effect, JobSubmitted):
            self._submitted[peer.name][effect.job] = None
        elif isinstance(effect, JobAccepted):
            self._submitted[peer.name].pop(effect.job, None)

    def stepped(self, world: World, peer: Peer) -> None:
        if (core := peer.core) is not None:
            lacking = next((key for key in self._needed(core, peer) if not core.timers.armed(key)), None)
            assert lacking is None, f"L5: {peer.name} waits without its timer {' '.join(map(str, lacking or ()))}"

    def _needed(self, core: Core, peer: Peer) -> Iterator[TimerKey]:
        yield from _ALWAYS
        jobs = core.jobs
        for job in jobs.jobs.values():
            if not job.ledger.finished:
                kind = "mix"
                if isinstance(job, AggregatedJob):
                    kind = "tick" if job.election.role is Role.AGGREGATOR else "election"
                yield ("job", job.id, kind)
        yield from (("submit", job) for job in self._submitted[peer.name] if job in jobs.table.documents)
        if jobs._submissions.waiting:
            yield _STORE_IDS
        if core.enrolment._asked:
            yield _ROSTER
        for document in jobs.table.documents.values():
            if jobs.table.runs(document.id) or document.census:
                continue
            if document.turn is None and not document.parent and peer.disk.read(TOLD, document.id) != _WHOLE_DAY:
                yield (TOLD, document.id)
            elif document.turn is not None and _is_last(document, core, peer.disk):
                yield (PAUSES, document.id)


def _is_last(document: Document, core: Core, disk: Disk) -> bool:
    """Return whether a turn that has ended is the newest that its peer knows of, in a series that is not cancelled."""
    assert document.turn is not None
    series, number = document.turn.series, document.number
    newest = max(turn.number for turn in core.jobs.table.turns(series))
    return number >= max(newest, int(disk.read(SERIES, series) or b"0")) and disk.read("cancel", series) is None


class WaitsOnce(Observer):
    """L7, for a world with a single job in which workers that hang are not mended."""

    watches = (LeftOut,)

    def __init__(self) -> None:
        self._waited: dict[tuple[str, int, str], None] = {}

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        if isinstance(effect, LeftOut) and effect.busy and effect.peer in world.workers.hung:
            key = (peer.name, peer.life, effect.peer)
            assert key not in self._waited, f"L7: {peer.name} waits again for {effect.peer}, whose worker hangs"
            self._waited[key] = None
