"""A few real cores, a toy job, and a hand on every message and on the clock.

Nothing here is random beyond each core's own seeded generator, and no time passes unless a test lets it. What a test
wants to hold in its hand is named by `manual`; all other messages are delivered at once, in the order of sending.

The toy job keeps states readable: round 0 is ``s0``, and combining peers 0 and 2 gives ``s1[0,2]``.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import msgpack
import numpy as np

from p2pclust.errors import WireError
from p2pclust.lab.simulation.world.disk import Disk
from p2pclust.lab.simulation.world.peer import read_paper
from p2pclust.peer.core.codec import decode, encode
from p2pclust.peer.core.context import Context
from p2pclust.peer.core.core import Core, Identity, StoreContents
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.effects import (
    CheckLink,
    CheckRoster,
    Compute,
    Effect,
    Persist,
    Send,
    SendChunk,
    SendRoster,
)
from p2pclust.peer.core.enrolment import CURRENT, TABLE, in_force, rows_in_force
from p2pclust.peer.core.events import (
    Arrived,
    Computed,
    Event,
    LinkChecked,
    Linked,
    RosterRead,
    Started,
    Submit,
    Woken,
)
from p2pclust.peer.core.messages import (
    Ack,
    BlobChunk,
    BlobMissing,
    BlobRequest,
    FactDelta,
    FactDigest,
    Gossip,
    MemberSync,
    Message,
    Ping,
    PingRequest,
    Refusal,
    Relay,
    RosterCopy,
)  # fmt: skip
from p2pclust.peer.core.reports import Report
from p2pclust.peer.core.rounds.job import AggregatedJob
from p2pclust.peer.core.rounds.pad_notes import PadNotes
from p2pclust.peer.core.rounds.round import AskedPeer, Round
from p2pclust.peer.core.tasks import (
    AddUp,
    BeginJob,
    BlobHashed,
    CancelJob,
    CombineRound,
    Continued,
    ContinueJob,
    Contribute,
    Contributed,
    HashBlob,
    NoResult,
    Outcome,
    Ref,
    StateInfo,
    StateMade,
    StateTask,
    Summed,
    Task,
)
from p2pclust.peer.core.timing import PRESETS, Limits, Timing
from p2pclust.peer.core.treatment import Treatment
from p2pclust.peer.work.states import BlobAccess
from p2pclust.protocols.engine.reasons import NOT_ASKED
from p2pclust.protocols.engine.workspace import digest_of

MEMBERSHIP = (Ping, Ack, PingRequest, Gossip, MemberSync, Refusal)
FACTS = (FactDigest, FactDelta)
BLOBS = (BlobRequest, BlobChunk, BlobMissing)

_STATE = re.compile(rb"s\d{1,9}(\[[\d,]*\])?\.*")


def is_of_job(message: Message) -> bool:
    """Whether the message belongs to an election or a round."""
    return not isinstance(message, (*MEMBERSHIP, *FACTS, *BLOBS, Relay))


@dataclass(frozen=True)
class Packet:
    """One message on its way."""

    source: str
    target: str
    message: Message
    via: str = ""


def toy(rounds: int = 2, *, one: bool = False, pad: int = 0, abstainers: Iterable[int] = ()) -> bytes:
    """A job whose states are readable; `pad` bytes make it large enough for blobs, `one` asks one proposer a round."""
    return bytes(msgpack.packb([rounds, one, pad, sorted(abstainers)]))


def opened_round(ref: Ref, *names: str, **fields: Any) -> Round:
    """Round 5 at its aggregator, which asks all peers directly, at the instant 0."""
    document = SimpleNamespace(id="job-1", roster=names, index=names.index, majority=len(names) // 2 + 1)
    branches = SimpleNamespace(sums=list, refs=list, coming=dict, drop=lambda index: ())
    info = StateInfo(**{"final": False, "asked": tuple(range(len(names))), **fields})
    peers = {index: AskedPeer(name) for index, name in enumerate(names)}
    return Round(peers, 0.0, 0.0, 1, ref, 5, info, cast(Any, document), cast(Any, branches))


def pad_notes(context: Context, document: Document, stored: bytes | None) -> PadNotes:
    """The notes of a job that has not ended."""
    facts, ledger = SimpleNamespace(retract=lambda key: None), SimpleNamespace(finished=False)
    job = SimpleNamespace(
        context=context, document=document, membership=None, blobs=None, ledger=ledger, facts=facts, keys=None
    )
    return PadNotes(cast(Any, job), stored)


def _toy_info(job: list[Any], payload: bytes, task: BeginJob | StateTask) -> StateInfo:
    rounds, one, _, _ = job
    if isinstance(task, CancelJob):
        return StateInfo(final=True, status="failed", one=one)
    abstained = task.abstained if isinstance(task, CombineRound) else {}
    if _round_of(payload) >= rounds:
        return StateInfo(final=True, status="done", one=one, abstained=abstained)
    return StateInfo(False, asked=tuple(range(task.n_peers)), one=one, additive=not one, abstained=abstained)


def _round_of(payload: bytes) -> int:
    return int(payload[1:].split(b"[")[0].rstrip(b"."))


def work(task: Task, blobs: BlobAccess) -> Outcome:  # noqa: PLR0911
    """Do one toy task.

    As the real worker (`p2pclust.peer.work.tasks`): an unreadable state, or one that was dropped meanwhile, has no
    result; a contribution that cannot be read is not combined.
    """
    if isinstance(task, HashBlob):
        good = digest_of(b"".join(blobs.read(task.digest))) == task.digest
        if good:
            blobs.sync(task.digest)
        return BlobHashed(good)
    assert isinstance(task, BeginJob | StateTask)
    if isinstance(task, ContinueJob):
        rounds, *rest = msgpack.unpackb(task.mathematics)
        return Continued(bytes(msgpack.packb([rounds + 1, *rest])))
    job = _job(task.mathematics)
    state = b"s0" if isinstance(task, BeginJob) else _bytes(task.state, blobs)
    if job is None or not _STATE.fullmatch(state):
        return NoResult(f"failed: unreadable {'job' if job is None else 'state'}")
    pad, abstainers = b"." * job[2], job[3]
    readable: list[int] = []
    match task:
        case Contribute():
            if task.proposer not in (-1, task.me) or task.me in abstainers:
                return NoResult("gate" if task.proposer in (-1, task.me) else NOT_ASKED)
            return Contributed(blobs.keep(b"c%d of " % task.me + state + pad))
        case AddUp() | CombineRound():
            readable = sorted(
                i for peers, ref in task.contributions if _bytes(ref, blobs).startswith(b"c") for i in peers
            )
    match task:
        case AddUp():
            given = b"c%s of " % b"+".join(b"%d" % index for index in readable) + state + pad
            return Summed(blobs.keep(given) if readable else None, tuple(readable))
        case BeginJob():
            state = b"s0" + pad
        case CancelJob():
            state = f"s{_round_of(state)}[]".encode() + pad
        case CombineRound():
            state = f"s{_round_of(state) + 1}[{','.join(map(str, readable))}]".encode() + pad
    return StateMade(blobs.keep(state), _toy_info(job, state, task))


def _job(data: bytes) -> list[Any] | None:
    try:
        job = msgpack.unpackb(data)
    except (ValueError, msgpack.UnpackException):
        return None
    return job if isinstance(job, list) and len(job) == len(msgpack.unpackb(toy())) else None


def _bytes(ref: Ref, blobs: BlobAccess) -> bytes:
    return b"".join(blobs.read(ref.digest)) if ref.payload is None else ref.payload


@dataclass
class Peer:
    """One peer over all its lives."""

    name: str
    disk: Disk
    core: Core | None = None
    life: int = 0
    effects: list[Effect] = field(default_factory=list)


class Net:
    """The fleet p1, p2, ... . See the module's text."""

    def __init__(
        self, n: int = 3, *, timing: Timing = PRESETS["fast"], limits: Limits = Limits(),  # noqa: B008
        manual: Callable[[Message], bool] = lambda message: False, fitness: Mapping[str, float] | None = None,
        links: str = "", known: bool = True, kernels: Mapping[str, str] | None = None, signs_facts: bool = False,
    ) -> None:  # fmt: skip
        self.now = 0.0
        self.signs_facts = signs_facts
        self.timing, self.limits, self.manual = timing, limits, manual
        self.names = tuple(f"p{i + 1}" for i in range(n))
        self.peers = {name: Peer(name, Disk(f"store-{name}")) for name in self.names}
        self.flight: list[Packet] = []  # messages that a test has to deliver or drop
        self.tasks: list[tuple[str, int, Compute]] = []  # work that a test has to do, if `hold_work`
        self.hold_work: Callable[[str, Compute], bool] = lambda name, effect: False
        self.lost: Callable[[Packet], bool] = lambda packet: False
        self.reports: list[tuple[str, Report]] = []
        self.sent: list[Packet] = []  # everything, for tests that look back
        self._fitness = fitness or {}
        self._kernels = kernels or {}
        # "12 23": p1 is linked to p2, p2 to p3; nothing: a full mesh. Otherwise nobody sends to whom it has no link.
        ends = [(f"p{a}", f"p{b}") for a, b in links.split()]
        both = [*ends, *((b, a) for a, b in ends)]
        self.overlay = {name: tuple(sorted(b for a, b in both if a == name)) for name in self.names} if ends else None
        self._known, self._configured = known, self.overlay
        self._auto: deque[Callable[[], None]] = deque()
        self._pumping = False

    # -- lives ------------------------------------------------------------------------------------------------------

    def start(self, *names: str) -> None:
        """Begin a life of each peer, from what its disk holds."""
        for name in names or self.names:
            peer = self.peers[name]
            peer.life += 1
            addresses = {other: f"{other}:1" for other in self.names}
            told = self._configured
            overlay = told if told is None or self._known else {name: told[name]}
            links = (
                None if self.overlay is None or told is None or self.overlay[name] == told[name] else self.overlay[name]
            )
            kept = in_force(self.peers[name].disk.load().tables.get(TABLE, {}))
            roster = (
                RosterRead("", b"", True, 0, dict.fromkeys(self.names, "")) if kept is None else read_paper("", kept)
            )
            identity = Identity(
                name, addresses[name], tuple(roster.peers), addresses, self._fitness.get(name, 0.5), overlay, links,
                serial=roster.serial, keys=roster.peers, signs_facts=self.signs_facts,
                kernel=self._kernels.get(name, ""),
            )  # fmt: skip
            rng = np.random.default_rng([self.names.index(name), peer.life])
            peer.core = Core(identity, peer.disk.load(), self.timing, self.limits, rng)
            self.step(name, Started())

    def give(self, paper: bytes, *names: str) -> None:
        """A person gives these peers a fleet roster; those that do not run find it when they start."""
        for name in names:
            if self.peers[name].core is None:
                disk = self.peers[name].disk
                for row in rows_in_force(paper, disk.read_synced(TABLE, CURRENT)):
                    disk.write(*row)
                disk.sync()
            else:
                self.step(name, read_paper("", paper))

    def crash(self, name: str, *, wiped: bool = False) -> None:
        """Kill the peer; with `wiped` its store is lost too."""
        peer = self.peers[name]
        peer.core = None
        peer.disk.crash()
        if wiped:
            peer.disk = Disk(f"store-{name}-{peer.life}")

    def relink(self, *links: str, up: bool) -> None:
        """Let links appear, or vanish, and tell both ends: ``"12"`` is that of p1 and p2."""
        assert self.overlay is not None
        for link in links:
            a, b = f"p{link[0]}", f"p{link[1]}"
            before = self.overlay
            self.overlay = dict(before)
            for one, other in ((a, b), (b, a)):
                kept = [name for name in before[one] if name != other]
                self.overlay[one] = tuple(sorted([*kept, other] if up else kept))
            self._pumping = True  # nothing is delivered before both know
            for one, other in ((a, b), (b, a)):
                self.step(one, Linked(other, up))
            self._pumping = False
            self._pump()

    def meet(self) -> None:
        """Start everybody and wait until all see all."""
        self.start()
        self.until(lambda: all(self.core(name).membership.all_here() for name in self.names))

    def core(self, name: str) -> Core:
        """A running core."""
        core = self.peers[name].core
        assert core is not None, f"{name} is down"
        return core

    # -- jobs -------------------------------------------------------------------------------------------------------

    def submit(self, at: str, job: bytes | None = None, **fields: Any) -> str:
        """Hand in a toy job and return its name."""
        before = len(self.reports)
        roster, asked, request = fields.pop("roster", ()), fields.pop("asked", ""), fields.pop("request", "")
        self.step(at, Submit(toy() if job is None else job, roster, Treatment(**fields), asked, request))

        def answers() -> list[Report]:
            return [r for name, r in self.reports[before:] if name == at and r.verb in ("submitted", "refused")]

        self.until(lambda: bool(answers()))
        verb = answers()[-1]
        assert verb.verb == "submitted", verb
        return str(verb.fields["job"])

    def job(self, name: str, job: str) -> AggregatedJob:
        """One peer's machine of a job."""
        return self.core(name).jobs.jobs[job]

    def states(self, job: str) -> dict[str, str]:
        """The state that each running peer that knows the job has in its register, readable."""
        found = {}
        for name, peer in self.peers.items():
            if peer.core is not None and job in peer.core.jobs.jobs:
                ref = peer.core.jobs.jobs[job].ledger.register.ref
                payload = b"" if ref is None else (ref.payload or b"".join(peer.disk.blob(ref.digest)))
                found[name] = payload.rstrip(b".").decode()
        return found

    def finished(self, job: str) -> list[str]:
        """The running peers that have finished the job."""
        return [
            n for n, p in self.peers.items() if p.core and job in p.core.jobs.jobs and self.job(n, job).ledger.finished
        ]

    def aggregator(self, job: str) -> str:
        """The only peer that aggregates now, or an empty name."""
        found = [
            n for n, p in self.peers.items()
            if p.core and job in p.core.jobs.jobs and self.job(n, job).election.role.value == "aggregator"
        ]  # fmt: skip
        return found[0] if len(found) == 1 else ""

    def verbs(self, *wanted: str) -> list[tuple[str, Mapping[str, Any]]]:
        """Who reported it, and what."""
        return [(name, report.fields) for name, report in self.reports if report.verb in wanted]

    # -- messages ---------------------------------------------------------------------------------------------------

    def arrive(self, source: str, target: str, message: Message, via: str = "") -> list[Effect]:
        """Deliver a message made up by the test; returns the effects of that very step."""
        before = len(self.peers[target].effects)
        self.step(target, Arrived(source, message, via))
        return self.peers[target].effects[before:]

    def deliver(self, where: Callable[[Packet], bool] = lambda packet: True) -> list[Packet]:
        """Deliver those messages in flight at this moment that fit; returns them."""
        chosen = [packet for packet in self.flight if where(packet)]
        self.flight = [packet for packet in self.flight if not where(packet)]
        for packet in chosen:
            self._transmit(packet)
        return chosen

    def drop(self, where: Callable[[Packet], bool] = lambda packet: True) -> list[Packet]:
        """Lose those messages in flight that fit."""
        dropped = [packet for packet in self.flight if where(packet)]
        self.flight = [packet for packet in self.flight if not where(packet)]
        return dropped

    # -- time -------------------------------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        """Let time pass: timers fire, messages that are not manual arrive at once."""
        end = self.now + seconds
        while (due := self._next()) is not None and due[0] <= end:
            self.now = max(self.now, due[0])
            self.step(due[1], Woken())
        self.now = end

    def until(self, reached: Callable[[], bool], limit_s: float = 60.0) -> None:
        """Let time pass until something holds."""
        end = self.now + limit_s
        while not reached():
            due = self._next()
            assert due is not None, "nobody waits for anything"
            assert due[0] <= end, f"not reached within {limit_s} s"
            self.now = max(self.now, due[0])
            self.step(due[1], Woken())

    def _next(self) -> tuple[float, str] | None:
        waking = [(peer.core.wake_at, name) for name, peer in self.peers.items() if peer.core is not None]
        return min(waking, default=None)

    # -- effects ----------------------------------------------------------------------------------------------------

    def step(self, name: str, event: Event) -> None:
        """Give one core one event, perform its effects, and whatever follows from them without waiting."""
        peer = self.peers[name]
        if peer.core is None:
            return
        for effect in peer.core.step(self.now, event):
            peer.effects.append(effect)
            self._perform(peer, effect)
        peer.disk.sync()
        self._pump()

    def _pump(self) -> None:
        if not self._pumping:
            self._pumping = True
            while self._auto:
                self._auto.popleft()()
            self._pumping = False

    def _perform(self, peer: Peer, effect: Effect) -> None:
        name = peer.name
        match effect:
            case Send():
                self._send(name, effect)
            case SendChunk():
                data = peer.disk.chunk(effect.digest, effect.index)
                answer = BlobMissing(effect.digest) if data is None else BlobChunk(effect.digest, effect.index, (data,))
                self._send(name, Send(effect.to, answer, bulk=True))
            case Persist():
                peer.disk.write(effect.table, effect.key, effect.value)
            case CheckRoster():
                self._auto.append(lambda: self.step(name, read_paper(effect.source, effect.data)))
            case SendRoster():
                peer.disk.sync()
                key = effect.digest.hex() or peer.disk.read_synced(TABLE, CURRENT).decode()
                self._send(name, Send(effect.to, RosterCopy((peer.disk.read_synced(TABLE, key),)), True, effect.via))
            case Report():
                self.reports.append((name, effect))
            case CheckLink():
                life = peer.life
                self._auto.append(lambda: self._checked(name, life, effect.peer))
            case Compute():
                self._compute(peer, effect)
            case _ if type(effect).__name__ == "StoreChunk":
                peer.disk.store_chunk(effect.digest, effect.index, effect.n_chunks, effect.data)  # type: ignore[attr-defined]
            case _ if type(effect).__name__ == "DropBlob":
                peer.disk.drop_blob(effect.digest)  # type: ignore[attr-defined]

    def _send(self, name: str, effect: Send) -> None:
        # Encoded and decoded, so that nothing can be sent here that a real peer would refuse.
        message = decode(encode(effect.message))
        packets = [Packet(name, effect.to, message)] if not effect.via else []
        if isinstance(message, Relay):
            carried = Packet(name, effect.to, message)
            packets = self._opened(message, effect.to, name) if message.target == effect.to else [carried]
        packets += [Packet(name, via, Relay(name, effect.to, b"", tuple(encode(message)))) for via in effect.via]
        for packet in packets:
            linked = self.overlay is None or packet.via or packet.target in self.overlay[name]
            assert linked, f"{name} sends to {packet.target}, to which it has no link"
            self.sent.append(packet)
            if packet.target not in self.peers or self.lost(packet):
                continue  # to a name without a link nothing is sent, and nothing is raised
            if self.manual(packet.message):
                self.flight.append(packet)
            else:
                self._auto.append(lambda packet=packet: self._transmit(packet))  # type: ignore[misc]

    @staticmethod
    def _opened(relay: Relay, target: str, via: str) -> list[Packet]:
        """What the target's shell makes of a relayed message; none if it is nonsense."""
        try:
            return [Packet(relay.origin, target, decode(relay.inner), via)]
        except WireError:
            return []

    def _transmit(self, packet: Packet) -> None:
        self.step(packet.target, Arrived(packet.source, packet.message, packet.via))

    def _checked(self, name: str, life: int, target: str) -> None:
        there, back = Packet(name, target, Gossip(())), Packet(target, name, Gossip(()))
        if self.peers[name].life == life and not self.lost(there) and not self.lost(back):
            self.step(name, LinkChecked(target, self.peers[target].core is None))

    # -- work -------------------------------------------------------------------------------------------------------

    def _compute(self, peer: Peer, effect: Compute) -> None:
        if self.hold_work(peer.name, effect):
            self.tasks.append((peer.name, peer.life, effect))
        else:
            self._auto.append(lambda: self._work(peer.name, peer.life, effect))

    def do_work(self, where: Callable[[str, Compute], bool] = lambda name, effect: True) -> None:
        """Do the work that was held back and fits."""
        chosen = [task for task in self.tasks if where(task[0], task[2])]
        self.tasks = [task for task in self.tasks if not where(task[0], task[2])]
        for task in chosen:
            self._work(*task)

    def _work(self, name: str, life: int, effect: Compute) -> None:
        peer = self.peers[name]
        if peer.core is None or peer.life != life:
            return
        self.step(name, Computed(effect.token, work(effect.task, self.blob_access(peer))))

    def blob_access(self, peer: Peer) -> BlobAccess:
        return BlobAccess(
            lambda digest: iter(peer.disk.blob(digest)), peer.disk.store_blob, peer.disk.sync_blob, self.limits
        )


def alone(
    name: str = "p1", *, fleet: int = 3, timing: Timing = PRESETS["fast"], limits: Limits = Limits(),  # noqa: B008
    stored: StoreContents | None = None, join: Mapping[str, str] | None = None,
) -> Core:  # fmt: skip
    """One core by itself, started at time 0, that knows only its own address, and those of `join`."""
    roster = tuple(f"p{i + 1}" for i in range(fleet))
    core = Core(
        Identity(name, f"{name}:1", roster, join or {}),
        stored or StoreContents(f"store-{name}"),
        timing,
        limits,
        np.random.default_rng(0),
    )
    core.step(0.0, Started())
    return core
