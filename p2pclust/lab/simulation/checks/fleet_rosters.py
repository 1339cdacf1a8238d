"""F1, F2: what peers do with the fleet rosters that jobs name, where the fleet has keys.

F1  a peer begins a job only if the job names a roster that the fleet has signed, with all peers of the job; and no older one
    than the peer held before the one in force, unless it met the document earlier, or a census agreed on it
F2  what a peer adds up, or takes its pads away for, has no peer that is not on its roster in force, or has another key there
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from p2pclust.lab.simulation.world.observer import Observer
from p2pclust.lab.simulation.world.peer import Peer, read_paper
from p2pclust.lab.simulation.world.world import World
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.effects import Compute, Effect, Send
from p2pclust.peer.core.enrolment import BEFORE, CURRENT, TABLE
from p2pclust.peer.core.fleet_roster import RosterName
from p2pclust.peer.core.job_messages import Pads
from p2pclust.peer.core.reports import DocumentHeld, JobBegun
from p2pclust.peer.core.tasks import CombineRound
from p2pclust.tools.bit_sets import members_of, unpacked


class NamedRosters(Observer):
    """Watches a fleet with keys; it is given every roster that the fleet signs."""

    watches = (JobBegun, DocumentHeld, Compute, Send)

    def __init__(self) -> None:
        self._texts: dict[RosterName, dict[str, str]] = {}  # by roster: a text for each key
        self._met: dict[tuple[str, str], None] = {}  # by peer and job: the documents that waited

    def signed(self, paper: bytes) -> None:
        """Note a roster that the fleet signed."""
        read = read_paper("", paper)
        self._texts[RosterName(read.serial, hashlib.sha256(paper).digest())] = dict(read.peers)

    def older_than(self, serial: int, names: Iterable[str]) -> list[RosterName]:
        """Return the rosters with these peers that have a lower serial."""
        return [name for name, texts in self._texts.items() if name.serial < serial and texts.keys() >= set(names)]

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        """Look at what a peer begins, adds up, and takes its pads away for."""
        core = peer.core
        if core is None:
            return
        if isinstance(effect, DocumentHeld):
            self._met[peer.name, effect.job] = None
        elif isinstance(effect, JobBegun):
            self._begins(peer, core.jobs.table.documents[effect.job])
        elif isinstance(effect, Compute) and isinstance(effect.task, CombineRound):
            document = core.jobs.jobs[effect.token.job_id].document  # type: ignore[attr-defined]
            self._uses(peer, document, (index for peers, _ in effect.task.contributions for index in peers))
        elif isinstance(effect, Send) and isinstance(effect.message, Pads) and not effect.message.refusal:
            document = core.jobs.jobs[effect.message.job].document
            self._uses(peer, document, members_of(unpacked(effect.message.members)))

    def _begins(self, peer: Peer, document: Document) -> None:
        named = document.fleet_roster
        assert named is not None, f"F1: {peer.name} begins {document.id}, which names no fleet roster"
        assert named in self._texts, f"F1: {peer.name} begins {document.id}, whose fleet roster was never signed"
        strange = [name for name in document.roster if name not in self._texts[named]]
        assert not strange, f"F1: {peer.name} begins {document.id} with {strange}, which its fleet roster does not have"
        if (peer.name, document.id) not in self._met and document.turn is None and not document.parent:
            oldest = self._serial(peer, BEFORE) or self._serial(peer, CURRENT) - 1
            assert named.serial >= oldest, (
                f"F1: {peer.name} begins {document.id}, which names the old roster {named.serial}"
            )

    def _serial(self, peer: Peer, key: str) -> int:
        """Return the serial of the roster in force at a peer, or of the one before; 0 if there is none."""
        digits = (peer.disk.read(TABLE, key) or b"").decode()
        return next((name.serial for name in self._texts if name.digest.hex() == digits), 0)

    def _uses(self, peer: Peer, document: Document, indices: Iterable[int]) -> None:
        digits = (peer.disk.read(TABLE, CURRENT) or b"").decode()
        now = next(texts for name, texts in self._texts.items() if name.digest.hex() == digits)
        assert document.fleet_roster is not None
        then = self._texts[document.fleet_roster]
        for name in (document.roster[index] for index in indices):
            assert now.get(name) == then[name], (
                f"F2: {peer.name} uses what {name} brought, which is barred from the job"
            )
