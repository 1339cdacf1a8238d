"""The invariants S1 to S8, S10 and S11 (docs/peer/simulator.md), watched from outside after every effect.

A broken one is an `AssertionError` with the last events. Queues and exceptions need no watcher: the heap is bounded by the
run, and an exception of a core ends the run.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque

import msgpack

from p2pclust.lab.simulation.checks.agreement import Agreement, majority
from p2pclust.lab.simulation.checks.revealed import Revealed
from p2pclust.lab.simulation.world.peer import Peer, stands
from p2pclust.lab.simulation.world.world import Observer, World
from p2pclust.peer.core import tasks
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.effects import Compute, Effect, Persist, Send
from p2pclust.peer.core.reports import Report
from p2pclust.tools.bit_sets import members_of

_Sum = tasks.CombineRound | tasks.SumPadded
_Step = _Sum | tasks.FinishRound | tasks.RenewKeys
_Makes = tasks.CombineRound | tasks.RenewKeys | tasks.FinishRound | tasks.CancelJob | tasks.CloseGossipRound
_STORY = 40
#: The reports that are checked.
_CHECKED = frozenset(("submitted", "job", "catches-up", "elected", "finished"))


class Invariants(Observer):
    """Watches one world."""

    watches = (Send, Persist, Compute, Report)

    def __init__(self) -> None:
        self._parents: dict[str, dict[bytes, bytes]] = {}  # two jobs may have the same state
        self._agreements: dict[str, Agreement] = {}
        self._documents: dict[str, Document] = {}
        self._unsynced: dict[str, list[tuple[str, int, bytes]]] = {}
        self._learns: dict[tuple[str, str], bool] = {}  # who takes over the register of another peer in this step
        self._incarnations: dict[tuple[str, str], int] = {}
        self._positions: dict[tuple[str, str, str], tuple[int, int]] = {}
        self._terms: dict[tuple[str, str, str], int] = {}
        self._revealed = Revealed(self._documents)
        self._happened: deque[tuple[float, str, str | Report]] = deque(maxlen=_STORY)

    @property
    def story(self) -> list[str]:
        """The last things that happened, oldest first."""
        told = []
        for now, peer, what in self._happened:
            fields = what.fields.items() if isinstance(what, Report) else ()
            shown = " ".join(f"{k}={v}" for k, v in fields if k not in ("job", "roster"))
            told.append(f"{now:9.3f} {peer} {f'{what.verb} {shown}' if isinstance(what, Report) else what}")
        return told

    def tell(self, now: float, what: str | Report, peer: str = "") -> None:
        """Add something that happened to the story; without a peer, to the fleet."""
        self._happened.append((now, peer, what))

    def started(self, world: World, peer: Peer) -> None:
        self.tell(world.now, f"starts life {peer.life}, {peer.disk.store_id}", peer.name)

    def crashed(self, world: World, peer: Peer, lost_writes: int) -> None:
        self._unsynced.pop(peer.name, None)  # was never adopted
        self.tell(world.now, f"crashes, {lost_writes} unsynced rows lost", peer.name)

    def restored(self, world: World, peer: Peer) -> None:
        self.tell(world.now, "gets an older store back", peer.name)
        of = (peer.name, peer.disk.store_id)
        self._incarnations.pop(of, None)
        for known in (self._positions, self._terms):
            for key in [key for key in known if key[:2] == of]:
                del known[key]

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        match effect:
            case Send():
                problem = self._revealed.problem_with(peer, effect)
                self._assert(not problem, "S6", problem)
            case Persist(value=bytes() as row):
                self._persist(peer, effect, row)
            case Compute(tasks.TermToken() as token, task) if isinstance(task, _Step):
                self._goes_on(peer, token, task)
            case Report():
                if effect.verb not in ("member", "combined"):
                    self.tell(world.now, effect, peer.name)
                if effect.verb in _CHECKED:
                    self._report(peer, effect)

    # -- checks -----------------------------------------------------------------------------------------------------

    def _assert(self, holds: bool, name: str, what: str) -> None:
        if not holds:
            raise AssertionError("\n".join([f"{name}: {what}", *self.story]))

    def _holds(self, name: str, job: str, problem: str) -> None:
        self._assert(not problem, name, f"{job}: {problem}")

    def _agreement(self, job: str) -> Agreement:
        if job not in self._agreements:
            n_peers, parents = len(self._documents[job].roster), self._parents.setdefault(job, {})
            self._agreements[job] = Agreement(n_peers, parents)
        return self._agreements[job]

    def _persist(self, peer: Peer, effect: Persist, row: bytes) -> None:
        key = (peer.name, peer.disk.store_id, effect.key)
        if (effect.table, effect.key) == ("self", "incarnation"):
            value = int(row)
            self._assert(value >= self._incarnations.get(key[:2], 0), "S7", f"{peer.name}: incarnation fell to {value}")
            self._incarnations[key[:2]] = value
        elif effect.table == "ballot":
            term, voted_for = msgpack.unpackb(row)
            if voted_for and self._intact(peer, effect.key):
                # An older store that was put back may vote again: what counts is that no two peers are elected.
                self._agreement(effect.key).voted(term, voted_for, peer.name)
            self._assert(term >= self._terms.get(key, 0), "S7", f"{peer.name}: term fell to {term}")
            self._terms[key] = term
        elif effect.table == "register":
            self._register(peer, effect.key, key, row)

    def _register(self, peer: Peer, job: str, key: tuple[str, str, str], row: bytes) -> None:
        term, round_, digest, _, payload, final, finished = msgpack.unpackb(row)
        if payload is None:
            held = hashlib.blake2b(b"".join(peer.disk.synced_blob(digest)), digest_size=32).digest()
            self._assert(held == digest, "S11", f"{peer.name} adopts a state whose blob is not here, or is another")
        if finished:
            return  # the end may be learnt from a peer of any term
        # Where each peer goes on from a model of its own, the final state only is one.
        own = bool(self._documents[job].treatment.ticks) and not final
        # Taking over another peer's register as a candidate in a later term is not an adoption.
        learns = self._learns.pop((peer.name, job), False)
        newest_term = self._terms.get(key, 0)
        past = learns and term < newest_term
        if not own and not past:
            self._unsynced.setdefault(peer.name, []).append((job, term, digest))
        position = (term, round_)
        self._assert(position >= self._positions.get(key, (0, 0)), "S7", f"{peer.name}: register fell to {position}")
        self._positions[key] = position
        fell = f"{peer.name} adopts in term {term} after term {newest_term}"
        self._assert(past or term >= newest_term, "S7", fell)
        agreement = self._agreement(job)
        if self._documents[job].fleet_roster is not None and self._documents[job].treatment.collect != "gossip":
            unelected = f"{peer.name} adopts a state of term {term}, in which no peer was elected"
            self._assert(agreement.has_aggregator(term), "E1", unelected)
        invented = f"{peer.name} takes over a state of term {term} round {round_} that was never opened"
        self._assert(not learns or agreement.is_open(*position), "S4", invented)
        if not own:
            self._holds("S4", job, agreement.opened(*position, digest))

    def _goes_on(self, peer: Peer, token: tasks.TermToken, task: _Step) -> None:
        """S2 and S10, where an aggregator makes a sum, or the state after a round."""
        assert peer.core is not None
        state, added = task.state.digest, [index for index, _ in getattr(task, "removed", ())]
        if isinstance(task, _Sum):
            peers = [index for indices, _ in task.contributions for index in indices]
        else:
            peers = list(members_of(task.members)) if isinstance(task, tasks.FinishRound) else []
        twice = [index for indices in (peers, added) for index, times in Counter(indices).items() if times > 1]
        self._assert(not twice, "S2", f"{token}: a peer is counted twice: {twice}")
        roster, barred = self._documents[token.job_id].roster, peer.core.barred
        revoked = [roster[index] for index in peers if roster[index] in barred]
        self._assert(not revoked, "S10", f"{peer.name} combines what {', '.join(revoked)} brought, which was revoked")
        agreement, enough = self._agreement(token.job_id), majority(len(roster))
        if isinstance(task, _Sum) or agreement.was_adopted(token.term, state):
            held = len([name for name in agreement.holders(token.term, state) if name not in barred])
            self._assert(
                held >= enough, "S10", f"{peer.name} combines what {held} intact stores hold that are not revoked"
            )
        elif isinstance(task, tasks.FinishRound):
            # The round of an aggregator before: it had a majority in its own term.
            unheld = f"{peer.name} finishes a round whose state no majority has held in one term"
            self._assert(agreement.most_holders(state) >= enough, "S10", unheld)

    def _report(self, peer: Peer, effect: Report) -> None:
        fields, job = effect.fields, str(effect.fields["job"])
        match effect.verb:
            case "submitted" | "job":
                if peer.core is not None and job in peer.core.jobs.jobs:
                    self._documents[job] = peer.core.jobs.jobs[job].document
            case "catches-up":
                self._learns[peer.name, job] = True
            case "elected":
                assert peer.core is not None
                term, document, agreement = int(fields["term"]), self._documents[job], self._agreement(job)
                named = term == 1 and document.treatment.aggregator == peer.name
                self._holds("S1", job, agreement.elected(term, peer.name, named=named))
                votes = len([name for name in agreement.voters(term, peer.name) if name not in peer.core.barred])
                few = f"{peer.name} is elected in term {term} by {votes} votes that are not revoked"
                self._assert(named or votes >= majority(len(document.roster)), "S10", few)
            case "finished":
                digest, agreement = bytes.fromhex(str(fields["digest"])), self._agreement(job)
                self._holds("S5", job, agreement.ended(digest, peer.name))
                row = peer.disk.read_synced("register", job)
                kept = row is not None and msgpack.unpackb(row)[6]
                self._assert(kept, "S6", f"{peer.name} reports an end that is not synced")
                self._ended(peer, job, digest)
                self._holds("S8", job, agreement.ended_early(digest, peer.name))

    def _ended(self, peer: Peer, job: str, digest: bytes) -> None:
        """E2: a peer that finishes shows the signatures of a majority, in a fleet with keys."""
        assert peer.core is not None
        certificates = peer.core.jobs.jobs[job].certificates
        if certificates.signed:
            end = None if certificates.end is None else certificates.end.end
            shown = (
                end is not None
                and end.statement.digest == digest
                and not end.problem_with(certificates.signers, stands)
            )
            self._assert(shown, "E2", f"{peer.name} finishes without the signatures of a majority")

    # -- what the world did -----------------------------------------------------------------------------------------

    def synced(self, world: World, peer: Peer) -> None:
        for job, term, digest in self._unsynced.pop(peer.name, []):
            name = peer.name if self._intact(peer, job) else ""
            self._holds("S3", job, self._agreement(job).adopted(term, digest, name))

    def computed(self, world: World, peer: Peer, effect: Compute, digest: bytes) -> None:
        if isinstance(effect.task, _Makes):
            assert isinstance(effect.token, tasks.JobToken)
            self._parents.setdefault(effect.token.job_id, {})[digest] = effect.task.state.digest

    def _intact(self, peer: Peer, job: str) -> bool:
        # Written out instead of asking the document, whose own rule is among what is checked.
        document = self._documents[job]
        return document.store_ids[document.roster.index(peer.name)] == peer.disk.store_id
