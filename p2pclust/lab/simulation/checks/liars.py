"""What liars must not bring about, and which fleet rosters jobs may name: S12, V1, F1 and F2 (docs/peer/simulator.md)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

from p2pclust.lab.simulation.world.peer import Peer, read_paper
from p2pclust.lab.simulation.world.world import Observer, World
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.effects import Compute, Effect, Send
from p2pclust.peer.core.enrolment import BEFORE, CURRENT, TABLE
from p2pclust.peer.core.fleet_roster import RosterName
from p2pclust.peer.core.job_messages import Pads
from p2pclust.peer.core.messages import FactDelta
from p2pclust.peer.core.reports import DocumentHeld, ForgedFact, JobBegun
from p2pclust.peer.core.round_reports import RefutesState
from p2pclust.peer.core.spread.facts import CANCEL, facts_of
from p2pclust.peer.core.tasks import CombineRound
from p2pclust.tools.bit_sets import members_of, unpacked

#: All facts of all peers are compared so often, in virtual seconds.
_EVERY_S: Final = 0.5


class Published(Observer):
    """Notes what each peer sends of its own facts, before a liar changes it on the way, and compares what all peers hold."""

    watches = (ForgedFact, Send)

    def __init__(self) -> None:
        self._values: dict[tuple[str, str, int], bytes] = {}  # by owner, key and version
        self.cancelled: dict[str, None] = {}  # jobs whose cancel a person asked for
        self.forgers: dict[str, None] = {}  # peers that forge facts
        self._next = 0.0

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        if isinstance(effect, ForgedFact):
            assert effect.peer in self.forgers, (
                f"S12: {peer.name} calls {effect.peer} a forger, which it is not: {effect}"
            )
        if isinstance(effect, Send) and isinstance(effect.message, FactDelta) and effect.message.owner == peer.name:
            for fact in facts_of(effect.message):
                self._values[fact.owner, fact.key, fact.version] = fact.value

    def stepped(self, world: World, peer: Peer) -> None:
        if world.now >= self._next:
            self._next = world.now + _EVERY_S
            self.compare(world)

    def compare(self, world: World) -> None:
        for name, peer in world.peers.items():
            for fact in [] if peer.core is None else peer.core.facts.everything():
                problem = ""
                if fact.owner != name and self._values.get((fact.owner, fact.key, fact.version)) != fact.value:
                    problem = "which its owner did not publish"
                elif fact.key.startswith(CANCEL) and fact.key.removeprefix(CANCEL) not in self.cancelled:
                    problem = "a cancel that was not asked for"
                assert not problem, f"S12: {name} holds {fact.key} {fact.version} of {fact.owner}, {problem}"


class Refutations(Observer):
    """Watches the registers of all peers but one, and which peers they refute."""

    watches = (RefutesState,)

    def __init__(self, liar: str) -> None:
        self.liar = liar
        #: By job and digest of a state: its kind. Another job may have the same state in earnest.
        self.lies: dict[tuple[str, bytes], str] = {}

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        assert isinstance(effect, RefutesState)
        assert effect.peer == self.liar, f"V1: {peer.name} refutes a state of {effect.peer}: {effect.reason}"
        core = peer.core
        named = [] if core is None else [one for job in core.jobs.jobs.values() for one in job.suspicions]
        assert core is None or self.liar in named, f"V1: {peer.name} refutes a state and suspects no peer"

    def stepped(self, world: World, peer: Peer) -> None:
        if peer.core is None or peer.name == self.liar:
            return
        for job in peer.core.jobs.jobs.values():
            ref = job.ledger.register.ref
            lie = "" if ref is None else self.lies.get((job.document.id, ref.digest), "")
            assert not lie, f"V1: {peer.name} has adopted a lie: {lie}"


class NamedRosters(Observer):
    """Watches a fleet with keys; it is given every roster that the fleet signs."""

    watches = (JobBegun, DocumentHeld, Compute, Send)

    def __init__(self) -> None:
        self._texts: dict[RosterName, dict[str, str]] = {}  # by roster: a text for each key
        self._met: dict[tuple[str, str], None] = {}  # by peer and job: the documents that waited

    def signed(self, paper: bytes) -> None:
        read = read_paper("", paper)
        self._texts[RosterName(read.serial, hashlib.sha256(paper).digest())] = dict(read.peers)

    def older_than(self, serial: int, names: Iterable[str]) -> list[RosterName]:
        """Return the rosters with these peers that have a lower serial."""
        return [name for name, texts in self._texts.items() if name.serial < serial and texts.keys() >= set(names)]

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
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
            oldest = self._at(peer, BEFORE).serial or self._at(peer, CURRENT).serial - 1
            assert named.serial >= oldest, (
                f"F1: {peer.name} begins {document.id}, which names the old roster {named.serial}"
            )

    def _at(self, peer: Peer, key: str) -> RosterName:
        """Return the roster in force at a peer, or the one before; if there is none, one with serial 0."""
        digits = (peer.disk.read(TABLE, key) or b"").decode()
        return next((name for name in self._texts if name.digest.hex() == digits), RosterName(0, b""))

    def _uses(self, peer: Peer, document: Document, indices: Iterable[int]) -> None:
        assert document.fleet_roster is not None
        now, then = self._texts[self._at(peer, CURRENT)], self._texts[document.fleet_roster]
        for name in (document.roster[index] for index in indices):
            assert now.get(name) == then[name], (
                f"F2: {peer.name} uses what {name} brought, which is barred from the job"
            )
