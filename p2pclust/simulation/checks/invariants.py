"""The invariants, watched from outside after every effect; a broken one is an `AssertionError` with the last events.

S1  at most one aggregator per job and term, elected by a majority whose votes are on disk
S2  a peer is in the sum of a round at most once
S3  a state that a majority adopted is an ancestor of every state that a majority adopts later
S4  one term and round of a job is one state
S5  finished peers hold the same bits (and, checked at the end of a run, those of the replay)
S6  no message reveals what a crash could take back
S7  incarnation, term and register never fall, except with a lost store
S8  no peer finishes before a majority of intact stores holds the final state
S10  no peer aggregates or combines with votes or answers of a peer that it knows to be revoked
S11 a register names a state whose bytes are on the disk

Queues and exceptions need no watcher: the heap is bounded by the run, and an exception of a core ends the run.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from typing import NoReturn

import msgpack

from p2pclust.peer.core.document import Document
from p2pclust.peer.core.effects import Compute, Effect, Persist, Send
from p2pclust.peer.core.reports import Report
from p2pclust.peer.core.tasks import CancelJob, CloseGossipRound, CombineRound, FinishRound, RenewKeys, SumPadded
from p2pclust.peer.core.tokens import JobToken, TermToken
from p2pclust.simulation.checks.revealed import Revealed
from p2pclust.simulation.world.observer import Observer
from p2pclust.simulation.world.peer import Peer
from p2pclust.simulation.world.world import World
from p2pclust.tools.bit_sets import members_of

__all__ = ["Invariants"]

_STORY = 40
#: The reports that are checked.
_CHECKED = frozenset(("submitted", "job", "catches-up", "elected", "finished"))


def _shown(what: str | Report) -> str:
    """Return something that happened in words."""
    if isinstance(what, str):
        return what
    return f"{what.verb} " + " ".join(f"{k}={v}" for k, v in what.fields.items() if k not in ("job", "roster"))


def majority(n: int) -> int:
    """Return how many of `n` are more than half: written out here, because the core's own count is what is checked."""
    return next(k for k in range(n + 1) if 2 * k > n)


def _repeated(peers: list[int]) -> list[int]:
    return [index for index, times in Counter(peers).items() if times > 1]


class Invariants(Observer):
    """Watches one world."""

    watches = (Send, Persist, Compute, Report)

    def __init__(self) -> None:
        self._aggregators: dict[tuple[str, int], str] = {}
        self._states: dict[tuple[str, int, int], bytes] = {}
        self._parents: dict[tuple[str, bytes], bytes] = {}  # two jobs may have the same state
        # By stores that were intact at the time: a store that is lost later counts for no majority any more either, so
        # what it had promised before still meets every majority that can come.
        self._adopted: dict[tuple[str, int, bytes], dict[str, None]] = {}
        self._votes: dict[tuple[str, int, str], dict[str, None]] = {}
        self._committed: dict[str, list[bytes]] = {}
        self._final: dict[str, bytes] = {}
        self._documents: dict[str, Document] = {}
        self._unsynced: dict[str, list[tuple[str, int, bytes]]] = {}
        self._learns: dict[tuple[str, str], None] = {}  # who takes over the register of another peer in this step
        self._incarnations: dict[tuple[str, str], int] = {}
        self._positions: dict[tuple[str, str, str], tuple[int, int]] = {}
        self._terms: dict[tuple[str, str, str], int] = {}
        self._revealed = Revealed(self._documents)
        self._happened: deque[tuple[float, str, str | Report]] = deque(maxlen=_STORY)

    @property
    def story(self) -> list[str]:
        """The last things that happened, oldest first."""
        return [f"{now:9.3f} {peer} {_shown(what)}" for now, peer, what in self._happened]

    def started(self, world: World, peer: Peer) -> None:
        """A restarted peer knows at least what it knew (S7)."""
        self._happened.append((world.now, peer.name, f"starts life {peer.life}, {peer.disk.store_id}"))

    def crashed(self, world: World, peer: Peer, lost_writes: int) -> None:
        """What was not synced was never adopted."""
        self._unsynced.pop(peer.name, None)
        self._happened.append((world.now, peer.name, f"crashes, {lost_writes} unsynced rows lost"))

    def restored(self, world: World, peer: Peer) -> None:
        """What was on the disk may be there no more."""
        self._happened.append((world.now, peer.name, "gets an older store back"))
        of = (peer.name, peer.disk.store_id)
        self._incarnations.pop(of, None)
        for known in (self._positions, self._terms):
            for key in [key for key in known if key[:2] == of]:
                del known[key]

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        """Check what this effect touches."""
        match effect:
            case Send():
                if flaw := self._revealed.flaw_of(peer, effect):
                    self._broken("S6", flaw)
            case Persist():
                self._persist(peer, effect)
            case Compute(TermToken() as token, CombineRound() | SumPadded() | FinishRound() | RenewKeys() as task):
                self._goes_on(peer, token, task)
            case Report():
                self._report(world, peer, effect)

    # -- checks -----------------------------------------------------------------------------------------------------

    def _assert(self, holds: bool, name: str, what: str) -> None:
        if not holds:
            self._broken(name, what)

    def _broken(self, name: str, what: str) -> NoReturn:
        raise AssertionError(f"{name}: {what}\n" + "\n".join(self.story))

    def _persist(self, peer: Peer, effect: Persist) -> None:
        key = (peer.name, peer.disk.store_id, effect.key)
        if (effect.table, effect.key) == ("self", "incarnation") and effect.value is not None:
            value = int(effect.value)
            self._assert(value >= self._incarnations.get(key[:2], 0), "S7", f"{peer.name}: incarnation fell to {value}")
            self._incarnations[key[:2]] = value
        elif effect.table == "ballot" and effect.value is not None:
            term, voted_for = msgpack.unpackb(effect.value)
            if voted_for and self._intact(peer, effect.key):
                self._votes.setdefault((effect.key, term, voted_for), {})[peer.name] = None
            self._assert(term >= self._terms.get(key, 0), "S7", f"{peer.name}: term fell to {term}")
            self._terms[key] = term
        elif effect.table == "register" and effect.value is not None:
            self._register(peer, effect)

    def _register(self, peer: Peer, effect: Persist) -> None:
        assert effect.value is not None
        term, round_, digest, _, payload, final, finished = msgpack.unpackb(effect.value)
        if payload is None:
            held = hashlib.blake2b(b"".join(peer.disk.synced_blob(digest)), digest_size=32).digest()
            self._assert(held == digest, "S11", f"{peer.name} adopts a state whose blob is not here, or is another")
        key = (peer.name, peer.disk.store_id, effect.key)
        if finished:
            return  # the end may be learnt from a peer of any term
        # Where each peer goes on from a model of its own, the final state only is one.
        own = bool(self._documents[effect.key].treatment.ticks) and not final
        # Taking over another peer's register as a candidate in a later term is not an adoption.
        learns = (peer.name, effect.key) in self._learns
        self._learns.pop((peer.name, effect.key), None)
        past = learns and term < self._terms.get(key, 0)
        if not own and not past:
            self._unsynced.setdefault(peer.name, []).append((effect.key, term, digest))
        position = (term, round_)
        self._assert(position >= self._positions.get(key, (0, 0)), "S7", f"{peer.name}: register fell to {position}")
        self._positions[key] = position
        self._assert(
            past or term >= self._terms.get(key, 0),
            "S7",
            f"{peer.name} adopts in term {term} after term {self._terms.get(key)}",
        )
        opened = not learns or (effect.key, *position) in self._states
        self._assert(
            opened, "S4", f"{peer.name} takes over a state that was never opened at term {term} round {round_}"
        )
        known = digest if own else self._states.setdefault((effect.key, *position), digest)
        self._assert(known == digest, "S4", f"{effect.key}: two states at term {term} round {round_}")

    def _goes_on(
        self, peer: Peer, token: TermToken, task: CombineRound | SumPadded | FinishRound | RenewKeys
    ) -> None:  # fmt: skip
        """S2 and S10, where an aggregator makes a sum, or the state after a round."""
        state, added = task.state.digest, [index for index, _ in getattr(task, "removed", ())]
        if isinstance(task, CombineRound | SumPadded):
            peers = [index for indices, _ in task.contributions for index in indices]
        else:
            peers = list(members_of(task.members)) if isinstance(task, FinishRound) else []
        twice = [*_repeated(peers), *_repeated(added)]
        self._assert(not twice, "S2", f"{token}: a peer is counted twice: {twice}")
        self._brought(peer, token, peers)
        opened = (token.job, token.term, state) in self._adopted
        if isinstance(task, CombineRound | SumPadded) or opened:
            self._rests_on_a_majority(peer, token, state)
        elif isinstance(task, FinishRound):
            # The round of an aggregator before: it had a majority in its own term.
            held = [len(names) for (job, _, of), names in self._adopted.items() if (job, of) == (token.job, state)]
            enough = max(held, default=0) >= majority(len(self._documents[token.job].roster))
            self._assert(enough, "S10", f"{peer.name} finishes a round whose state no majority has held in one term")

    def _brought(self, peer: Peer, token: TermToken, contributors: list[int]) -> None:
        assert peer.core is not None
        barred, roster = peer.core.barred, self._documents[token.job].roster
        revoked = [roster[index] for index in contributors if roster[index] in barred]
        self._assert(not revoked, "S10", f"{peer.name} combines what {', '.join(revoked)} brought, which was revoked")

    def _rests_on_a_majority(self, peer: Peer, token: TermToken, state: bytes) -> None:
        assert peer.core is not None
        holders = self._adopted.get((token.job, token.term, state), {})
        held = len([name for name in holders if name not in peer.core.barred])
        enough = held >= majority(len(self._documents[token.job].roster))
        self._assert(enough, "S10", f"{peer.name} combines what {held} intact stores hold that are not revoked")

    def _count(self, peer: Peer, job: str, term: int, digest: bytes) -> None:
        """S3, whenever an adoption completes a majority."""
        holders = self._adopted.setdefault((job, term, digest), {})
        if not self._intact(peer, job) or peer.name in holders:
            return
        holders[peer.name] = None
        if len(holders) != majority(len(self._documents[job].roster)):
            return
        committed, line = self._committed.setdefault(job, []), self._line(job, digest)
        for other in committed:
            related = other in line or digest in self._line(job, other)
            self._assert(related, "S3", f"{job}: a majority adopted {digest.hex()[:8]} beside {other.hex()[:8]}")
        committed.append(digest)

    def _report(self, world: World, peer: Peer, effect: Report) -> None:
        if effect.verb not in ("member", "combined"):
            self._happened.append((world.now, peer.name, effect))
        if effect.verb not in _CHECKED:
            return
        fields = effect.fields
        if effect.verb in ("submitted", "job") and peer.core is not None:
            job = peer.core.jobs.jobs.get(str(fields["job"]))
            if job is not None:
                self._documents[job.id] = job.document
        elif effect.verb == "catches-up":
            self._learns[peer.name, str(fields["job"])] = None
        elif effect.verb == "elected":
            self._elected(peer, str(fields["job"]), int(fields["term"]))
        elif effect.verb == "finished":
            self._finished(peer, str(fields["job"]), bytes.fromhex(str(fields["digest"])))

    def _elected(self, peer: Peer, job: str, term: int) -> None:
        known = self._aggregators.setdefault((job, term), peer.name)
        self._assert(known == peer.name, "S1", f"{job}: {known} and {peer.name} aggregate in term {term}")
        assert peer.core is not None
        voters = self._votes.get((job, term, peer.name), {})
        votes = len(voters)
        document = self._documents[job]
        if not (term == 1 and document.treatment.aggregator == peer.name):
            enough = votes >= majority(len(document.roster))
            self._assert(enough, "S1", f"{peer.name} is elected in term {term} by {votes} intact votes")
            votes = len([name for name in voters if name not in peer.core.barred])
            enough = votes >= majority(len(document.roster))
            self._assert(enough, "S10", f"{peer.name} is elected in term {term} by {votes} votes that are not revoked")

    def _finished(self, peer: Peer, job: str, digest: bytes) -> None:
        known = self._final.setdefault(job, digest)
        self._assert(known == digest, "S5", f"{job}: {peer.name} finished with other bits")
        row = peer.disk.read_synced("register", job)
        self._assert(
            row is not None and msgpack.unpackb(row)[6], "S6", f"{peer.name} reports an end that is not synced"
        )
        holders = [len(names) for (of, _, state), names in self._adopted.items() if (of, state) == (job, digest)]
        held = max(holders, default=0)
        enough = held >= majority(len(self._documents[job].roster))
        self._assert(enough, "S8", f"{job}: {peer.name} finished while {held} intact stores hold the final state")

    # -- what the world did -----------------------------------------------------------------------------------------

    def synced(self, world: World, peer: Peer) -> None:
        """Everything that the peer wrote is on its disk."""
        for adoption in self._unsynced.pop(peer.name, []):
            self._count(peer, *adoption)

    def computed(self, world: World, peer: Peer, effect: Compute, digest: bytes) -> None:
        """A state came out of another."""
        if isinstance(effect.task, CombineRound | RenewKeys | FinishRound | CancelJob | CloseGossipRound):
            assert isinstance(effect.token, JobToken)
            self._parents[effect.token.job, digest] = effect.task.state.digest

    def _line(self, job: str, digest: bytes) -> set[bytes]:
        """The state and all that it descends from."""
        line = {digest}
        while (job, digest) in self._parents:
            digest = self._parents[job, digest]
            line.add(digest)
        return line

    def _intact(self, peer: Peer, job: str) -> bool:
        # Written out instead of asking the document, whose own rule is among what is checked.
        document = self._documents[job]
        return document.store_ids[document.roster.index(peer.name)] == peer.disk.store_id
