"""What peers wait for.

L5  whatever a peer waits for, it has a timer of its own armed for it, so that a message that is lost cannot stop it
L7  an aggregator waits for a worker that hangs once, not in one round after another
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from p2pclust.lab.simulation.world.disk import Disk
from p2pclust.lab.simulation.world.observer import Observer
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.lab.simulation.world.world import World
from p2pclust.peer.core.context import TimerKey
from p2pclust.peer.core.core import Core
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.effects import Effect
from p2pclust.peer.core.jobs.announcements import TOLD
from p2pclust.peer.core.reports import JobAccepted, JobSubmitted
from p2pclust.peer.core.round_reports import LeftOut
from p2pclust.peer.core.rounds.election import Role
from p2pclust.peer.core.rounds.job import AggregatedJob
from p2pclust.peer.core.spread.series import PAUSES
from p2pclust.peer.core.spread.tombstones import SERIES

#: Members are probed, and tables of members and facts are compared, as long as a peer runs.
_ALWAYS: Final[tuple[TimerKey, ...]] = (("fact", "sync"), ("member", "sync"), ("member", "probe"), ("member", "dead"))
_STORE_IDS: Final[TimerKey] = ("submit", "")
_ROSTER: Final[TimerKey] = ("roster", "ask")
_WHOLE_DAY: Final = b"16"


class Waits(Observer):
    """Knows what each peer of a world waits for."""

    watches = (JobSubmitted, JobAccepted)

    def __init__(self) -> None:
        self._submitted: dict[str, dict[str, None]] = {}  # by peer: jobs that no majority is known to have yet

    def started(self, world: World, peer: Peer) -> None:
        """A submission that was not accepted is forgotten with its life; the client asks again."""
        self._submitted[peer.name] = {}

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        """Note what is submitted, and accepted."""
        if isinstance(effect, JobSubmitted):
            self._submitted[peer.name][effect.job] = None
        elif isinstance(effect, JobAccepted):
            self._submitted[peer.name].pop(effect.job, None)

    def stepped(self, world: World, peer: Peer) -> None:
        """Check all timers of a peer."""
        if (core := peer.core) is not None:
            lacking = next((key for key in self._needed(core, peer) if not core.timers.armed(key)), None)
            assert lacking is None, f"L5: {peer.name} waits without its timer {' '.join(map(str, lacking or ()))}"

    def _needed(self, core: Core, peer: Peer) -> Iterator[TimerKey]:
        yield from _ALWAYS
        jobs = core.jobs
        for job in jobs.jobs.values():
            if not job.ledger.finished:
                yield ("job", job.id, _kind_of(job))
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


def _kind_of(job: object) -> str:
    if not isinstance(job, AggregatedJob):
        return "mix"
    return "tick" if job.election.role is Role.AGGREGATOR else "election"


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
        """Look at which busy peer is given up."""
        if isinstance(effect, LeftOut) and effect.busy and effect.peer in world.workers.hung:
            key = (peer.name, peer.life, effect.peer)
            assert key not in self._waited, f"L7: {peer.name} waits again for {effect.peer}, whose worker hangs"
            self._waited[key] = None
