"""What secure sums promise, watched from outside (docs/secure-sums.md).

P1  in one context a peer pads one vector only
P2  a keeper, and the maker of a state, know one set for it; what they released is on their disk before
P3  no message, row or blob of a secured job has the numbers of a single contribution
P4  the result says what was revealed: every set of which enough keepers released their pads is among those that the last
    state names, and every peer in a class of fewer than `cohort` peers is listed as exposed; after an aggregator that hides
    sets, what keepers report counts too
P5  where the job asks for groups, no class has fewer than `cohort` peers, but for peers that are proved to have sent wrong
    check words; with ``leave = "groups"``, whatever an aggregator writes into states
P6  a keeper reports every set for which it released its pads and that the last state does not name
P7  no peer has a key of a job that has ended
P8  with ``leave = "alone"`` no padded state asks fewer than `cohort` peers that are in no revealed set; where aggregators
    hide sets, such a state is not unpadded
P9  no peer is proved to have sent a wrong check word but the liar

The checks have their own way from sets to classes, because the production code's is among what is checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import Final

import msgpack
import numpy as np

from p2pclust.lab.simulation.world.peer import FLEET, Peer
from p2pclust.lab.simulation.world.world import Observer, World
from p2pclust.peer.core.codec import encode
from p2pclust.peer.core.effects import Compute, Effect, Persist, Send
from p2pclust.peer.core.job_messages import Adopted, Pads, Unpad
from p2pclust.peer.core.rounds.pad_notes import PREFIX as SETS
from p2pclust.peer.core.rounds.pad_notes import TABLE
from p2pclust.peer.core.tasks import Contribute
from p2pclust.protocols.engine import engine, secure_rounds
from p2pclust.protocols.engine.base import Abstain
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.padded import layout_of
from p2pclust.protocols.engine.secure_rounds import SecuredState, Terms
from p2pclust.protocols.secure.classes import parted
from p2pclust.protocols.secure.key_list import FleetKeys, KeyEntry
from p2pclust.protocols.secure.proofs import SignedAnswer
from p2pclust.tools.bit_sets import as_mask, members_of, unpacked

#: Three numbers in a row, of which two are large, are no accident.
_WINDOW: Final = 24
_LARGE: Final = 2**20
_UNIT: Final = 2**24  # one unit in the first limb of the grid
_MOST_WINDOWS: Final = 4


class Secrecy(Observer):
    """Watches one world in which one secured job runs."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.hides = False  # whether aggregators hide sets
        self.liar = -1  # the roster index of a peer that sends wrong check words
        self._terms: Terms | None = None
        self._roster: tuple[str, ...] = ()
        self._states: dict[bytes, JobState] = {}  # padded states and the last one, by digest
        self._padded: dict[tuple[str, int, bytes], bytes] = {}  # by peer, life and context: what was padded
        self._noted: dict[tuple[str, bytes], int] = {}  # by store and state: the set
        self._asked: dict[bytes, dict[int, None]] = {}  # by state: the sets that keepers were asked about, with the sum
        self._public: dict[bytes, bytes] = {}  # by public key: the state that asked for it
        #: By state: the keepers that sent their pads, and for which set.
        self._released: dict[bytes, dict[str, int]] = {}
        self._windows: dict[bytes, str] = {}  # pieces of single contributions, and whose they are

    # -- what happens -------------------------------------------------------------------------------------------------

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        match effect:
            case Persist() if effect.value is not None:
                self._written(peer, effect.table, effect.value)
            case Send():
                self._seek(encode(effect.message), f"a message {effect.message.kind} of {peer.name}")
                if isinstance(effect.message, Pads) and not effect.message.refusal:
                    self._release(peer, effect.message)
                elif isinstance(effect.message, Adopted):
                    self._key(peer, effect.message)
                elif isinstance(effect.message, Unpad) and effect.message.members:
                    asked = self._asked.setdefault(effect.message.digest, {})
                    asked[unpacked(effect.message.members)] = None
            case Compute(task=Contribute() as task) if task.keys and task.keys.secure and peer.core is not None:
                self._learn(peer, task)

    def _written(self, peer: Peer, table: str, row: bytes) -> None:
        if table == TABLE:
            for state, mask in msgpack.unpackb(row)[1]:
                members = unpacked(mask)
                known = self._noted.setdefault((peer.disk.store_id, state), members)
                assert known == members, f"P2: {peer.name} knows two sets for one state"
        elif table == "register":
            _, _, digest, _, payload, *_ = msgpack.unpackb(row)
            if digest not in self._states:
                data = payload if payload is not None else b"".join(peer.disk.blob(digest))
                self._states[digest] = JobState.decode(data)
        self._seek([row], f"a row of {table} of {peer.name}")

    def _key(self, peer: Peer, message: Adopted) -> None:
        """P1: a peer has other keys for every state that asks for them, so those of before are gone."""
        state = self._states.get(message.digest)
        if state is None or state.secured is None or not state.secured.wants_keys or not message.payload:
            return
        data = message.payload[0]
        if peer.core is not None and peer.core.jobs.jobs[message.job].document.treatment.verify:
            data = SignedAnswer.decode(data).body
        public = KeyEntry.unpacked(msgpack.unpackb(data)).public
        known = self._public.setdefault(public, message.digest)
        assert known == message.digest, f"P1: {peer.name} has one key for two exchanges"

    def _release(self, peer: Peer, message: Pads) -> None:
        """P2: the set is on the disk of the keeper."""
        row = peer.disk.read_synced(TABLE, message.job)
        sets = {} if row is None else {state: unpacked(mask) for state, mask in msgpack.unpackb(row)[1]}
        assert message.digest in sets, f"P2: {peer.name} releases pads for a set that is not on its disk"
        members = sets[message.digest]
        known = self._released.setdefault(message.digest, {}).setdefault(peer.name, members)
        assert known == members, f"P2: {peer.name} releases pads for two sets of one state"

    def _learn(self, peer: Peer, task: Contribute) -> None:
        """Note what a peer is about to pad, as bytes to be found nowhere (P1, P3)."""
        assert task.keys is not None
        assert task.keys.secure is not None
        assert peer.core is not None
        if self._terms is None:
            self._terms = Terms(
                task.keys.job_id, task.keys.secure, FleetKeys(FLEET, task.keys.fleet_roster_digest, task.keys.devices)
            )
            self._roster = peer.core.jobs.jobs[task.keys.job_id].document.roster
        state = self._states.get(task.state.digest)
        if state is None or state.secured is None or state.secured.wants_keys or state.status != "running":
            return
        try:
            contribution = engine.contribution(self._job, state, peer.local, task.me, len(self._roster))
        except Abstain:
            return
        numbers = np.concatenate([np.asarray(array, dtype=np.int64).ravel() for array in contribution.values()])
        context = secure_rounds.context_of(self._terms, task.state.digest)
        plain = task.state.digest + numbers.tobytes()
        known = self._padded.setdefault((peer.name, peer.life, context), plain)
        assert known == plain, f"P1: {peer.name} pads two vectors in one context"
        if layout_of(self._job, state).whether:
            return
        pieces = [numbers[at : at + 3] for at in range(len(numbers) - 2)]
        # Counts are whole units of the grid, and totals in states may have the same.
        large = ((np.abs(one) > _LARGE) & (one % _UNIT != 0) for one in pieces)
        telling = (one for one, own in zip(pieces, large, strict=True) if own.sum() >= 2 and len(np.unique(one)) == 3)
        self._windows.update((piece.tobytes(), peer.name) for piece in islice(telling, _MOST_WINDOWS))

    def _seek(self, parts: Iterable[bytes], where: str) -> None:
        """P3."""
        for part in parts:
            for at in range(0, len(part) - _WINDOW + 1) if self._windows else ():
                owner = self._windows.get(part[at : at + _WINDOW])
                assert owner is None, f"P3: {where} has numbers that {owner} contributed"

    # -- at the end -----------------------------------------------------------------------------------------------------

    def judge(self, world: World, final: JobState) -> None:
        """Check the result, and everything that is still on a disk."""
        for name, peer in world.peers.items():
            for digest in peer.disk.load().blobs:
                self._seek([b"".join(peer.disk.blob(digest))], f"a blob of {name}")
        part = final.secured
        assert part is not None, "P4: the last state has no secured part"
        if self._terms is None:
            return
        reported: dict[str, list[int]] = {}  # by peer: the sets that it reports, as others get them
        for name, peer in world.peers.items():
            fact = None if peer.core is None else peer.core.facts.get(name, SETS + self._terms.job_id)
            reported[name] = [] if fact is None else [unpacked(mask) for mask in msgpack.unpackb(fact.value)]
        told = {*part.revealed, *(one for sets in reported.values() for one in sets if self.hides)}
        unknown = as_mask(member for mask in part.unknown for member in members_of(mask))
        for digest, keepers in self._released.items():
            for name, members in keepers.items():
                for own in SecuredState(self._job, self._states[digest], self._terms).segments(members):
                    covered = self._is_told(own, {*part.revealed}) or not own & ~unknown
                    covered |= own in reported[name] or world.peers[name].wiped
                    assert covered, f"P6: {name} released pads for {own:b}, and neither the result nor it says so"
        for digest, state in self._states.items():
            self._joins(digest, state)
        proved = secure_rounds.proved_peers(part, self._terms)
        assert not proved & ~(1 << self.liar if self.liar >= 0 else 0), f"P9: peers {members_of(proved)} are blamed"
        assert not self.keys_left(world), f"P7: keys of the job are left at {', '.join(self.keys_left(world))}"
        by_step: dict[tuple[int, int], list[int]] = {}
        for digest, members in self._readable():
            state = self._states[digest]
            assert state.secured is not None
            for own in SecuredState(self._job, state, self._terms).segments(members):
                covered = self._is_told(own, told) or not own & ~unknown
                assert covered, f"P4: the set {own:b} was revealed, and the result does not say so"
                assert own.bit_count() >= self._terms.secure.cohort, f"P4: a sum of {own.bit_count()} peers"
                by_step.setdefault((state.stage, state.round), []).append(own)
        all_sets = [members for sets in by_step.values() for members in sets]
        listed = as_mask(secure_rounds.exposed_peers(final, told))
        small = self._small(all_sets)
        assert not small & ~listed, f"P4: peers {members_of(small & ~listed)} are exposed and not listed"
        # One that hides sets moves the numbers a little, and no keeper knows that they are almost the same.
        for sets in by_step.values() if self._terms.secure.burnt == "groups" and not self.hides else ():
            assert not self._small(sets) & ~(unknown | proved), f"P5: the sets {sets} of one state make a small class"
        if self._terms.secure.leave == "groups":
            assert not self._small(all_sets) & ~(unknown | proved), f"P5: the sets {all_sets} make a small class"

    def _joins(self, digest: bytes, state: JobState) -> None:
        """P8."""
        assert self._terms is not None
        part, secure = state.secured, self._terms.secure
        if part is None or secure.leave != "alone" or state.status != "running" or not (part.revealed or part.unknown):
            return
        known = as_mask(member for mask in (*part.revealed, *part.unknown) for member in members_of(mask))
        asked = part.asked
        if self.hides:
            asked = as_mask(i for members in self._released.get(digest, {}).values() for i in members_of(members))
        for own in self._terms.groups or ((1 << len(self._roster)) - 1,):
            fresh = (asked & own & ~known).bit_count()
            assert not 0 < fresh < secure.cohort, f"P8: {fresh} peers that were in no sum are asked"

    def _is_told(self, own: int, named: set[int]) -> bool:
        """Return whether a set is named, or all its groups are: then their sum says nothing more."""
        assert self._terms is not None
        return own in named or all(part in named for part in parted(own, self._terms.groups))

    def keys_left(self, world: World) -> list[str]:
        lives = {name: peer.working.secrets for name, peer in world.peers.items()}
        return [name for name, own in lives.items() if own and any(one.pair for one in own._jobs.values())]

    def _readable(self) -> Iterable[tuple[bytes, int]]:
        """Yield the sets that colluders can read: of a state with its maker, where so few pads are missing."""
        assert self._terms is not None
        colluders = self._terms.secure.colluders
        for digest, sets in self._asked.items():
            part = self._states[digest].secured
            assert part is not None
            others = [index for index in secure_rounds.keepers(part, self._terms) if index != part.maker.index]
            released = self._released.get(digest, {})
            for members in sets:
                missing = [index for index in others if released.get(self._roster[index]) != members]
                # One colluder is the aggregator that pads were sealed for; or all that are left collude, and have the sum.
                if len(missing) <= colluders - 1 or (len(missing) == len(others) <= colluders):
                    yield digest, members

    def _small(self, sets: list[int]) -> int:
        """Return the peers that fewer than `cohort` share all their memberships with."""
        assert self._terms is not None
        width = range(len(self._roster))
        signs = [tuple(mask >> peer & 1 for mask in sets) for peer in width]
        sizes = Counter(signs)
        return as_mask(p for p in width if any(signs[p]) and sizes[signs[p]] < self._terms.secure.cohort)
