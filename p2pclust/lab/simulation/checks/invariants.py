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

from p2pclust.lab.simulation.checks.agreement import Agreement, majority
from p2pclust.lab.simulation.checks.revealed import Revealed
from p2pclust.lab.simulation.world.observer import Observer
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.lab.simulation.world.world import World
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.effects import Compute, Effect, Persist, Send
from p2pclust.peer.core.reports import Report
from p2pclust.peer.core.tasks import (
    CancelJob,
    CloseGossipRound,
    CombineRound,
    FinishRound,
    JobToken,
    RenewKeys,
    SumPadded,
    TermToken,
)
from p2pclust.tools.bit_sets import members_of

_STORY = 40
#: The reports that are checked.
_CHECKED = frozenset(("submitted", "job", "catches-up", "elected", "finished"))


def _shown(what: str | Report) -> str:
    """Return something that happened in words."""
    if isinstance(what, str):
        return what
    return f"{what.verb} " + " ".join(f"{k}={v}" for k, v in what.fields.items() if k not in ("job", "roster"))


def _repeated(peers: list[int]) -> list[int]:
    return [index for index, times in Counter(peers).items() if times > 1]


class Invariants(Observer):
    """Watches one world."""

    watches = (Send, Persist, Compute, Report)

    def __init__(self) -> None:
        self._parents: dict[str, dict[bytes, bytes]] = {}  # two jobs may have the same state
        self._agreements: dict[str, Agreement] = {}
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

    def tell(self, now: float, what: str) -> None:
        """Add something that happened to the fleet to the story."""
        self._happened.append((now, "", what))

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

    def _holds(self, name: str, job: str, flaw: str) -> None:
        if flaw:
            self._broken(name, f"{job}: {flaw}")

    def _agreement(self, job: str) -> Agreement:
        if job not in self._agreements:
            self._agreements[job] = Agreement(
                len(self._documents[job].roster), self._parents.setdefault(job, {})
            )  # fmt: skip
        return self._agreements[job]

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
                # An older store that was put back may vote again: what counts is that no two peers are elected.
                self._agreement(effect.key).voted(term, voted_for, peer.name)
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
        agreement = self._agreement(effect.key)
        self._assert(
            not learns or agreement.is_open(*position),
            "S4",
            f"{peer.name} takes over a state of term {term} round {round_} that was never opened",
        )
        if not own:
            self._holds("S4", effect.key, agreement.opened(*position, digest))

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
        agreement = self._agreement(token.job_id)
        opened = agreement.was_adopted(token.term, state)
        if isinstance(task, CombineRound | SumPadded) or opened:
            self._rests_on_a_majority(peer, token, state)
        elif isinstance(task, FinishRound):
            # The round of an aggregator before: it had a majority in its own term.
            enough = agreement.most_holders(state) >= majority(len(self._documents[token.job_id].roster))
            self._assert(enough, "S10", f"{peer.name} finishes a round whose state no majority has held in one term")

    def _brought(self, peer: Peer, token: TermToken, contributors: list[int]) -> None:
        assert peer.core is not None
        barred, roster = peer.core.barred, self._documents[token.job_id].roster
        revoked = [roster[index] for index in contributors if roster[index] in barred]
        self._assert(not revoked, "S10", f"{peer.name} combines what {', '.join(revoked)} brought, which was revoked")

    def _rests_on_a_majority(self, peer: Peer, token: TermToken, state: bytes) -> None:
        assert peer.core is not None
        holders = self._agreement(token.job_id).holders(token.term, state)
        held = len([name for name in holders if name not in peer.core.barred])
        enough = held >= majority(len(self._documents[token.job_id].roster))
        self._assert(enough, "S10", f"{peer.name} combines what {held} intact stores hold that are not revoked")

    def _count(self, peer: Peer, job: str, term: int, digest: bytes) -> None:
        """S3, of adoptions on intact stores."""
        agreement = self._agreement(job)
        self._holds("S3", job, agreement.adopted(term, digest, peer.name if self._intact(peer, job) else ""))

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
        assert peer.core is not None
        document, agreement = self._documents[job], self._agreement(job)
        named = term == 1 and document.treatment.aggregator == peer.name
        self._holds("S1", job, agreement.elected(term, peer.name, named=named))
        if not named:
            votes = len([name for name in agreement.voters(term, peer.name) if name not in peer.core.barred])
            enough = votes >= majority(len(document.roster))
            self._assert(enough, "S10", f"{peer.name} is elected in term {term} by {votes} votes that are not revoked")

    def _finished(self, peer: Peer, job: str, digest: bytes) -> None:
        agreement = self._agreement(job)
        self._holds("S5", job, agreement.ended(digest, peer.name))
        row = peer.disk.read_synced("register", job)
        self._assert(
            row is not None and msgpack.unpackb(row)[6], "S6", f"{peer.name} reports an end that is not synced"
        )
        self._holds("S8", job, agreement.ended_early(digest, peer.name))

    # -- what the world did -----------------------------------------------------------------------------------------

    def synced(self, world: World, peer: Peer) -> None:
        """Everything that the peer wrote is on its disk."""
        for adoption in self._unsynced.pop(peer.name, []):
            self._count(peer, *adoption)

    def computed(self, world: World, peer: Peer, effect: Compute, digest: bytes) -> None:
        """A state came out of another."""
        if isinstance(effect.task, CombineRound | RenewKeys | FinishRound | CancelJob | CloseGossipRound):
            assert isinstance(effect.token, JobToken)
            self._parents.setdefault(effect.token.job_id, {})[digest] = effect.task.state.digest

    def _intact(self, peer: Peer, job: str) -> bool:
        # Written out instead of asking the document, whose own rule is among what is checked.
        document = self._documents[job]
        return document.store_ids[document.roster.index(peer.name)] == peer.disk.store_id
