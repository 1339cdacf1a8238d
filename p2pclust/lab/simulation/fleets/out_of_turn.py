"""A peer that lies speaks out of turn: beside what its own core says, it sends messages that are not its to send.

Each lie is one that an honest peer can know to be one. It arrives at once, so that what made it one still holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import msgpack
import numpy as np

from p2pclust.errors import WireError
from p2pclust.lab.simulation.checks.liars import Refutations
from p2pclust.lab.simulation.world.peer import FLEET, Peer, device_key, signer_of
from p2pclust.lab.simulation.world.world import World
from p2pclust.peer.core.codec import decode, encode
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.events import Arrived
from p2pclust.peer.core.evidence import Evidence, Majority, Statement
from p2pclust.peer.core.job_messages import Close, Heartbeat, HeldState, Open, RequestVote, ShowEvidence, StaleTerm
from p2pclust.peer.core.ledger import Register
from p2pclust.peer.core.messages import Message
from p2pclust.peer.core.rounds.election import Role
from p2pclust.peer.core.rounds.job import AggregatedJob
from p2pclust.peer.core.spread.facts import CANCEL
from p2pclust.peer.work.states import job_of
from p2pclust.peer.work.verified import Verifier
from p2pclust.protocols.engine import secure_rounds
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.reasons import CANCELLED, LEFT_OUT
from p2pclust.protocols.engine.workspace import digest_of
from p2pclust.protocols.secure.proofs import CancelProof, Proof
from p2pclust.protocols.secure.secured import Maker
from p2pclust.transport.roster import fleet_id_of
from p2pclust.transport.wire import fact_statement

_PAUSE_S: Final = (0.02, 0.4)
_OFTEN: Final = 0.6  # how often it says a lie that it can say
_FAR: Final = 2**20  # so many terms on, no election comes
_INLINE_BYTES: Final = 30_000  # a larger state would not fit into one message


@dataclass(frozen=True)
class _Moment:
    """What the liar knows of one job at the peer that it speaks to."""

    world: World
    liar: Peer
    target: Peer
    job: AggregatedJob
    rng: np.random.Generator

    @property
    def document(self) -> Document:
        return self.job.document

    @property
    def register(self) -> Register:
        return self.job.ledger.register

    @property
    def aggregator(self) -> str:
        """The aggregator of the target's term, if this life of the target has heard of it, else an empty string."""
        return self.job.election.terms.get(self.job.ledger.term, "")

    @property
    def is_kept(self) -> bool:
        """Whether the state that the target has adopted, in its present term, is on its disk."""
        row = self.target.disk.read_synced("register", self.document.id)
        register = self.register
        return (
            row is not None
            and register.ref is not None
            and register.term == self.job.ledger.term
            and msgpack.unpackb(row)[:3] == [*register.position, register.ref.digest]
        )

    def vote(self, term: int, register_term: int) -> Statement:
        """Return a vote of the liar for itself, with a register of that term."""
        return self.signed(term, register_term, 0, b"", final=False)

    def signed(self, term: int, register_term: int, round_: int, digest: bytes, *, final: bool) -> Statement:
        me, store = self.document.index(self.liar.name), self.liar.disk.store_id
        bare = Statement(term, me, me, store, register_term, round_, digest, final)
        sign = signer_of(self.liar.name, self.liar.identity.keys.get(self.liar.name, ""))
        return replace(bare, signature=sign(bare.statement(self.document.id)))

    @property
    def state(self) -> JobState:
        ref = self.register.ref
        assert ref is not None
        return JobState.decode(self.target.bytes_of(ref))

    def open(self, state: JobState, *, aggregator: int = -1) -> _Lie:
        data, round_, final = state.encode(), self.register.round + 1, state.status != "running"
        term, digest = self.job.ledger.term, digest_of(data)
        own = b""
        if final and self.job.certificates.signed:
            own = self.signed(term, term, round_, digest, final=True).encode()
        message = Open(
            self.document.id, term, round_, digest, len(data), final, -1, (data,), aggregator, acknowledgement=own
        )  # fmt: skip
        return message, digest

    def close(self, state: JobState, *, held: bool = False) -> _Lie:
        """End the job, or as a peer that a candidate asks say that it has ended."""
        data, round_, term = state.encode(), self.register.round + 1, self.job.ledger.term
        digest, size = digest_of(data), len(data)
        if held:
            return HeldState(self.document.id, term, term, round_, digest, size, (data,), True), digest
        return Close(self.document.id, term, round_, digest, size, (data,)), digest


#: What the liar says, and the digest of a state that no other peer may adopt.
_Lie = tuple[Message, bytes]


def shifted(state: JobState) -> JobState:
    """Return a state with other numbers."""
    numbers = (name for name, array in state.arrays.items() if array.dtype == np.float64 and name != "unit")
    return replace(state, arrays=Arrays({**state.arrays, **{name: state.arrays[name] + 1.0 for name in numbers}}))


def _another_open(at: _Moment) -> _Lie | None:
    """Open a made-up state in a term that another peer aggregates: in that peer's name, or in the liar's own."""
    if at.aggregator in ("", at.liar.name) or at.register.ref is None or at.document.treatment.collect == "tree":
        return None
    shown = at.document.index(at.aggregator) if at.rng.random() < 0.7 else -1
    state = shifted(at.state)
    if state == at.state:  # without numbers so far
        return None
    return at.open(state, aggregator=shown)


def _another_heartbeat(at: _Moment) -> _Lie | None:
    """Speak as the aggregator of a term that another peer aggregates, or the target itself."""
    if at.aggregator in ("", at.liar.name):
        return None
    return Heartbeat(at.document.id, at.job.ledger.term, at.register.round), b""


def _made_up_cancel(at: _Moment) -> _Lie | None:
    """End a job that was not cancelled, in another peer's name."""
    if at.register.ref is None or at.register.final:
        return None
    others = [name for name in at.document.roster if name != at.liar.name]
    before, name = at.state, str(at.rng.choice(others))
    cancel = _cancel(at, name)
    state = replace(before, status="failed", reason=f"{CANCELLED}{cancel.by}", proof=cancel.encode())
    if before.secured is not None:
        part = secure_rounds.cancelled(replace(before, proof=b""), cancel.by).secured
        state = replace(state, secured=part)
    if at.document.treatment.verify:
        state = replace(state, proof=Proof(before.encode(), at.register.ref.digest, cancel=cancel.encode()).encode())
    if at.rng.random() < 0.2:
        state = replace(state, proof=b"")
    if at.aggregator == at.liar.name:
        return at.open(state)
    return at.close(state, held=at.job.election.stands and at.rng.random() < 0.5)


def _cancel(at: _Moment, owner: str) -> CancelProof:
    """Return a cancel that its owner did not sign."""
    kind = int(at.rng.integers(4))
    value = owner.encode()
    # With "all", the owner may be revoked in a moment, and then this is the true end.
    if kind == 0 and at.document.treatment.missing != "all":
        return CancelProof("", owner)
    if kind in (0, 1):
        return CancelProof(CANCEL + at.document.id, owner, 1, value)
    key = CANCEL + (at.document.id if kind == 2 else "another job")
    signer = at.liar.name if kind == 2 else owner
    statement = fact_statement(fleet_id_of(FLEET), owner, key, 1, value)
    return CancelProof(key, owner, 1, value, device_key(signer).sign(statement))


def _second_successor(at: _Moment) -> _Lie | None:
    """As the aggregator, open a sound state beside the one that the target has adopted in this term."""
    ref = at.register.ref
    if at.aggregator != at.liar.name or ref is None or not at.is_kept or not at.document.treatment.verify:
        return None
    state = at.state
    if not state.proof or not (proof := Proof.decode(state.proof)).answers:
        return None
    last = proof.answers[-1].index
    others = [
        replace(proof, answers=proof.answers[:-1], left_out={**proof.left_out, last: f"{LEFT_OUT}: late"}),
        replace(proof, maker=Maker(proof.maker.index, proof.maker.term, proof.maker.round + 1)),
    ]
    keys = at.job.keys
    assert keys is not None
    assert at.liar.working.secrets is not None
    verifier = Verifier(job_of(at.document.mathematics), len(at.document.roster), keys, at.liar.working.secrets)
    try:
        other = others[int(at.rng.integers(2))]
        made = verifier.follows(replace(JobState.decode(proof.before), proof=b""), other)
    except (WireError, secure_rounds.NotEnough):
        return None
    sibling = replace(made, proof=other.encode())
    return None if sibling.encode() == state.encode() else at.open(sibling)


def _after_the_last(at: _Moment) -> _Lie | None:
    """As the aggregator, open another state after the last one."""
    if at.aggregator != at.liar.name or not at.register.final or not at.is_kept:
        return None
    state = shifted(at.state)
    if state == at.state:  # without numbers so far, and the state before may be the same but for its end
        return None
    if at.rng.random() < 0.5:
        state = replace(state, status="running", reason="")
    return at.open(state)


def _made_up_end(at: _Moment) -> _Lie | None:
    """End a job with a made-up result, as if a majority had it."""
    if at.register.ref is None or not at.job.certificates.signed:
        return None
    made = shifted(at.state)
    if made == at.state:  # without numbers so far
        return None
    state = replace(made, status="done")
    if state.secured is not None:
        state = replace(state, secured=secure_rounds.cancelled(state, "").secured)
    return at.close(state)


def _made_up_term(at: _Moment) -> _Lie | None:
    """Open a state in a term that no election has reached."""
    if at.register.ref is None or not at.job.certificates.signed:
        return None
    state = shifted(at.state)
    if state == at.state:  # without numbers so far
        return None
    message, digest = at.open(state)
    assert isinstance(message, Open)
    return replace(message, term=at.job.ledger.term + _FAR), digest


def _made_up_evidence(at: _Moment) -> _Lie | None:
    """Show a certificate that the liar alone has signed."""
    if not at.job.certificates.signed:
        return None
    vote = at.vote(at.job.ledger.term + _FAR, 0)
    votes = Majority(vote, dict.fromkeys(range(at.document.majority), vote.signature))
    return ShowEvidence(at.document.id, vote.term, (Evidence(votes).encode(),)), b""


def _claimed_register(at: _Moment) -> _Lie | None:
    """Ask for a vote with a register of a term that no election has reached."""
    if not at.job.certificates.signed:
        return None
    vote = at.vote(2**40 + 1, 2**40)
    return RequestVote(at.document.id, vote.term, vote.register_term, vote.round, vote.encode()), b""


def _stale_term(at: _Moment) -> _Lie | None:
    """Depose an aggregator: as if there were a newer term, or with a vote of the liar's own."""
    if at.job.election.role is not Role.AGGREGATOR or not at.job.certificates.signed:
        return None
    vote = at.vote(at.job.ledger.term + 1, 0).encode() if at.rng.random() < 0.5 else b""
    return StaleTerm(at.document.id, at.job.ledger.term + 1, vote), b""


#: What the liar says: first what it can seldom say.
KINDS: dict[str, Callable[[_Moment], _Lie | None]] = {
    "after the last": _after_the_last,
    "second successor": _second_successor,
    "made-up cancel": _made_up_cancel,
    "another's open": _another_open,
    "another's heartbeat": _another_heartbeat,
    "made-up end": _made_up_end,
    "made-up term": _made_up_term,
    "made-up evidence": _made_up_evidence,
    "claimed register": _claimed_register,
    "stale term": _stale_term,
}


def speak_out_of_turn(
    world: World, liar: str, rng: np.random.Generator, counts: Counter[str], refutations: Refutations
) -> None:  # fmt: skip
    """From a moment from now on, let one peer of a world speak out of turn, again and again."""
    kinds = list(KINDS.items())

    def begin() -> None:
        world.at(world.now + float(rng.uniform(*_PAUSE_S)), speak)

    def speak() -> None:
        begin()
        peers = [peer for peer in world.peers.values() if peer.core is not None]
        speaker = world.peers[liar]
        target = peers[int(rng.integers(len(peers)))] if peers else speaker
        if speaker.core is None or target is speaker or world.now < target.frozen_until or target.asleep:
            return
        assert target.core is not None
        via = target.core.routing.hop(liar)
        jobs = [
            job for job in target.core.jobs.jobs.values()
            if isinstance(job, AggregatedJob) and not job.ledger.finished and not job.document.census
            and liar in job.document
        ]  # fmt: skip
        if not jobs or not via:
            return
        moment = _Moment(world, speaker, target, jobs[int(rng.integers(len(jobs)))], rng)
        lies = ((kind, lie_of(moment)) for kind, lie_of in kinds if rng.random() < _OFTEN)
        kind, lie = next(((kind, lie) for kind, lie in lies if lie is not None), ("", None))
        if lie is None or sum(map(len, frames := encode(lie[0]))) > _INLINE_BYTES:
            return
        counts[f"out of turn: {kind}"] += 1
        if lie[1]:
            refutations.lies[moment.document.id, lie[1]] = kind
        world.step(target, Arrived(liar, decode(frames), "" if via == liar else via))

    begin()
