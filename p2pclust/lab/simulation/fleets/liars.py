"""Peers that lie to the fleet: they forge facts of others, publish job documents of their own making, or open wrong states.

Each lie about a state, in a job with ``verify = "all"``, gets past all checks but one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from p2pclust.errors import WireError
from p2pclust.lab.simulation.fleets.out_of_turn import shifted
from p2pclust.lab.simulation.fleets.plan import REPEATED, WRONG_WORD
from p2pclust.lab.simulation.world.device import signature_of
from p2pclust.lab.simulation.world.network import decoded, encoded
from p2pclust.lab.simulation.world.peer import Peer, signer_of
from p2pclust.peer.core.codec import decode, encode
from p2pclust.peer.core.core import Core
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.events import Arrived, Woken
from p2pclust.peer.core.evidence import Evidence, Majority, Statement
from p2pclust.peer.core.fleet_roster import RosterName
from p2pclust.peer.core.job_messages import ShowEvidence
from p2pclust.peer.core.messages import FactDelta, FactDigest
from p2pclust.peer.core.rounds.job import AggregatedJob
from p2pclust.peer.core.spread.facts import JOB, SERIES, Fact, facts_of
from p2pclust.peer.core.spread.series import census_of
from p2pclust.peer.core.tasks import Contributed, JobKeys, Outcome, StateInfo, StateMade
from p2pclust.peer.work.secrets import Secrets
from p2pclust.peer.work.secure_tasks import SecureRound
from p2pclust.peer.work.verified import Verifier
from p2pclust.protocols.engine import secure_rounds
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.wire import PADDED, SIGNED
from p2pclust.protocols.engine.workspace import digest_of
from p2pclust.protocols.secure.proofs import OpenPads, Proof, SignedAnswer
from p2pclust.protocols.secure.secured import Maker
from p2pclust.tools.bit_sets import members_of

if TYPE_CHECKING:
    from p2pclust.lab.simulation.fleets.fleet import RandomFleet
    from p2pclust.lab.simulation.fleets.jobs import DrawnJob

_EVERY_S: Final = 0.7
_REPEATS: Final = 0.5
_SHOWN_AFTER_S: Final = 0.3  # when others have asked for what shows that a turn follows


class Forger:
    """What a peer sends in the place of a message, if it is among `names`."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.names: dict[str, None] = {}
        self._rng = rng

    def __call__(self, peer: Peer, target: str, frames: list[bytes]) -> list[list[bytes]]:
        """Return the messages that are sent instead."""
        if peer.name not in self.names or peer.core is None:
            return [frames]
        message = decoded(frames)
        if isinstance(message, FactDelta) and message.owner != peer.name:
            facts = list(facts_of(message))
            if facts:  # give one of them another value, or a newer version
                index = int(self._rng.integers(len(facts)))
                one = facts[index]
                newer = self._rng.random() < 0.3
                facts[index] = replace(one, version=one.version + 1) if newer else self._false(peer.core, one)
            return [encoded(_delta(message.owner, message.after, facts, message.serial))]
        if isinstance(message, FactDigest):
            made_up = self._made_up(peer.core, target)
            return [encoded(_delta(made_up.owner, 0, [made_up])), frames]
        return [frames]

    def _made_up(self, core: Core, target: str) -> Fact:
        """Make up a fact of another peer: often of the target itself, as one that it forgot."""
        others = [name for name in core.identity.roster if name != core.identity.name]
        owner = target if self._rng.random() < 0.3 else str(self._rng.choice(others))
        keys = ["links", "fitness", "floor", *(f"{kind}/{job}" for kind in ("cancel", "job") for job in core.jobs.jobs)]
        key = str(self._rng.choice(keys))
        held = [fact for fact in core.facts.everything() if fact.owner == owner]
        version = max((fact.version for fact in held), default=2**20) + 1
        return self._false(core, Fact(owner, key, version, b"", held[0].signature if held else b""))

    def _false(self, core: Core, fact: Fact) -> Fact:
        """Give a fact a false value; leave its signature, take it away, or sign with the forger's own key."""
        kind = fact.key.partition("/")[0]
        values = {"links": core.routing.own_claim, "fitness": b"99", "floor": b""}
        fact = replace(fact, value=values.get(kind, b"a forger"))
        own = signature_of(replace(fact, owner=core.identity.name))
        return replace(fact, signature=(fact.signature, b"", own)[int(self._rng.integers(3))])


def _delta(owner: str, after: int, facts: list[Fact], serial: int = 0) -> FactDelta:
    return FactDelta(
        owner, after, tuple(f.key for f in facts), tuple(f.version for f in facts), tuple(f.value for f in facts),
        tuple(f.signature for f in facts), serial,
    )  # fmt: skip


class Ghosts:
    """Makes the documents of liars from that of a job that the liar knows."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._made = 0

    def begin(self, fleet: RandomFleet, name: str, for_s: float) -> None:
        """Let a peer publish one document after another for so long."""
        until = fleet.world.now + for_s

        def publish() -> None:
            core = fleet.world.peers[name].core
            documents = [] if core is None or fleet.healed else list(core.jobs.table.documents.values())
            honest = next((one for one in documents if one.submitter and one.turn is None), None)
            # A peer that submitted a turn may be the only one that publishes it.
            turns = [
                one for one in documents
                if one.turn is not None and not one.census and name in one and name != one.submitter
            ]  # fmt: skip
            if core is not None and honest is not None:
                made = self._changed(fleet, honest, name)
                core.facts.publish(JOB + made.id, made.encode())
                fleet.marks.counts["document of a liar"] += 1
            elif core is not None and turns:
                self._make_up_a_turn(fleet, core, max(turns, key=lambda one: one.number))
            if fleet.world.now < until and not fleet.healed:
                fleet.world.at(fleet.world.now + _EVERY_S, publish)

        fleet.world.at(fleet.world.now, publish)

    def _make_up_a_turn(self, fleet: RandomFleet, core: Core, newest: Document) -> None:
        """Publish a later turn, and show what the liar alone has signed: in the census after the newest, or in its own."""
        liar, turn = core.identity.name, newest.turn
        assert turn is not None
        if fleet.world.now < fleet.world.peers[liar].frozen_until or fleet.world.peers[liar].asleep:
            return
        turn = replace(turn, number=turn.number + int(self._rng.choice([0, 1, 1, 2, 1000])))
        index, census = newest.index(liar), replace(census_of(newest), turn=turn)
        if self._rng.random() < 0.5:
            census = replace(census, roster=(liar,), store_ids=(newest.store_ids[index],))
        alone = self._rng.random() < 0.5
        made = replace(
            newest, turn=turn, submitter=liar, nonce=census.id, links=b"",
            roster=(liar,) if alone else newest.roster,
            store_ids=(newest.store_ids[index],) if alone else newest.store_ids,
            treatment=replace(newest.treatment, aggregator=liar, collect="star", gossip_tolerance=0.0, mixing=""),
        )  # fmt: skip
        core.facts.publish(SERIES + turn.series, made.encode())
        fleet.world.step(fleet.world.peers[liar], Woken())  # it leaves at once: its links may change
        fleet.marks.counts["turn of a liar"] += 1
        digest, me = digest_of(made.encode()), census.index(liar)
        sign = signer_of(liar, core.identity.keys.get(liar, ""))
        one, other = (
            Statement(1, me, me, newest.store_ids[index], *at) for at in ((0, 0, b"", False), (1, 0, digest, True))
        )
        shown = Evidence(*(
            Majority(bare, dict.fromkeys(range(census.majority), sign(bare.statement(census.id)))) for bare in (one, other)
        ))  # fmt: skip
        believed = core.jobs._turns._believed.get(turn.series)
        first = newest.encode() if believed is None else believed.shown[-1]
        message = decode(encode(ShowEvidence(census.id, 1, (shown.encode(), census.encode(), first))))

        def show() -> None:
            for peer in fleet.world.peers.values():
                via = "" if peer.core is None else peer.core.routing.hop(liar)
                if via and peer.name != liar and fleet.world.now >= peer.frozen_until and not peer.asleep:
                    fleet.world.step(peer, Arrived(liar, message, "" if via == liar else via))

        fleet.world.at(fleet.world.now + _SHOWN_AFTER_S, show)

    def _changed(self, fleet: RandomFleet, honest: Document, liar: str) -> Document:
        """Name peers that never were; or no fleet roster, one that never was, or one that is too old."""
        self._made += 1
        made = replace(honest, submitter=liar, nonce=f"{liar}-{self._made}")
        named, n, kind = honest.fleet_roster, len(honest.roster), int(self._rng.integers(4))
        assert named is not None, "a fleet with keys"
        if kind == 0:
            ghosts = [f"ghost-{number}" for number in range((n + 1) // 2)]
            names = tuple(sorted([*honest.roster[: n - len(ghosts)], *ghosts]))
            return replace(made, roster=names, treatment=replace(made.treatment, aggregator=""))
        if kind == 1 and not made.treatment.keyed:
            return replace(made, fleet_roster=None)
        if kind == 2 and (older := fleet.named_rosters.older_than(fleet.serial - 1, honest.roster)):
            return replace(made, fleet_roster=older[int(self._rng.integers(len(older)))])
        return replace(made, fleet_roster=RosterName(named.serial + int(self._rng.integers(3)), self._rng.bytes(32)))


@dataclass(frozen=True)
class Made:
    """A state that the liar made, and how it may make others."""

    state: JobState
    info: StateInfo
    liar: int  # by roster index
    verifier: Verifier

    @property
    def proof(self) -> Proof:
        return Proof.decode(self.state.proof)

    def following(self, proof: Proof) -> JobState:
        """Return what would follow from a proof if all signatures in it were right."""
        careless = _Careless(self.verifier.job, self.verifier.n_peers, self.verifier.keys, self.verifier.secrets)
        before = replace(JobState.decode(proof.before), proof=b"")
        return replace(careless.follows(before, proof), proof=proof.encode())


class _Careless(Verifier):
    """Takes every signature for right."""

    def is_signed(self, answer: SignedAnswer, digest: bytes, bare: bytes) -> bool:
        return True

    def are_signed(self, pads: OpenPads, digest: bytes, members: int) -> bool:
        return True


LIES: Final = (
    "other numbers", "no proof", "an answer that was not given", "pads that were not given", "after its own answer only",
    "after another state", "called final",
)  # fmt: skip


def falsified(kind: str, made: Made) -> tuple[JobState, StateInfo] | None:
    """Return a lie of that kind, and what the liar's own core is given of it; None if it cannot lie here."""
    state, info = made.state, made.info
    try:
        match kind:
            case "other numbers":
                state = shifted(state)
            case "no proof":
                state = replace(state, proof=b"")
            case "an answer that was not given":
                refusal = replace(made.proof.answers[0], reason="it has no rows", body=b"")
                state = made.following(replace(made.proof, answers=[refusal, *made.proof.answers[1:]]))
            case "pads that were not given" if made.proof.pads:
                first, *others = made.proof.pads
                numbers = np.frombuffer(first.numbers, dtype="<u8").copy()
                numbers[0] += np.uint64(1)  # not the check word, which is the last number
                state = made.following(replace(made.proof, pads=[replace(first, numbers=numbers.tobytes()), *others]))
            case "after its own answer only" if state.secured is None:  # one that this peer alone has signed
                own = [answer for answer in made.proof.answers if answer.index == made.liar and answer.body]
                before = shifted(JobState.decode(made.proof.before)).encode()
                digest, secrets = digest_of(b"another state" + before), made.verifier.secrets
                for answer in own[:1]:
                    statement = answer.statement(secrets.fleet, made.verifier.keys.job_id, digest, digest_of(before))
                    signed = replace(answer, signature=secrets.sign(statement))
                    state = made.following(Proof(before, digest, [signed]))
            case "after another state" if state.secured is not None and not state.secured.wants_keys:
                before = replace(shifted(state), proof=b"").encode()  # asks for new keys after a state that never was
                state = made.following(Proof(before, digest_of(before)))
            case "called final":
                info = replace(info, final=True)
    except (WireError, secure_rounds.NotEnough):
        return None  # not even a careless peer would make that
    return None if (state, info) == (made.state, made.info) else (state, info)


def let_them_lie(fleet: RandomFleet) -> None:
    """Let aggregators open wrong states of the only job of a fleet, as its plan says."""
    rng = np.random.default_rng([fleet.plan.seed, 26])
    if fleet.plan.lie == REPEATED and fleet.secrecy is not None:
        fleet.world.falsify = partial(_repeat, fleet, rng, {})
        fleet.secrecy.hides = True
    elif fleet.plan.lie == WRONG_WORD and fleet.secrecy is not None:
        fleet.world.falsify = partial(_wrong_word, fleet)
    elif fleet.plan.lie:
        fleet.world.falsify = partial(_falsify, fleet, rng, float(rng.choice([0.3, 1.0])))


def _falsify(fleet: RandomFleet, rng: np.random.Generator, often: float, peer: Peer, outcome: Outcome) -> Outcome:
    """Let the liar falsify a state that it makes, and watch what becomes of it."""
    kind, refutations, (job,) = fleet.plan.lie, fleet.refutations, fleet.jobs
    if peer.name not in refutations.liars[:1] or not isinstance(outcome, StateMade) or rng.random() >= often:
        return outcome
    state = JobState.decode(peer.bytes_of(outcome.ref))
    if not state.proof or not Proof.decode(state.proof).answers or state.status != "running":
        return outcome  # no answers led to it
    verifier = Verifier(job.job, len(job.roster), *_at_work(peer, job))
    lie = falsified(kind, Made(state, outcome.info, job.roster.index(peer.name), verifier))
    if lie is None:
        return outcome
    state, info = lie
    ref = peer.keep(state.encode(), fleet.plan.limits)
    if kind != "called final":  # there the state itself is true
        refutations.lies[job.id, ref.digest] = kind
    fleet.marks.counts[f"lie: {kind}"] += 1
    return StateMade(ref, info)


def _wrong_word(fleet: RandomFleet, peer: Peer, outcome: Outcome) -> Outcome:
    """Add 1 to the check word of the liar's contributions, and sign it where that is asked."""
    (job,) = fleet.jobs
    held = (
        None if peer.core is None or job.id not in peer.core.jobs.jobs else peer.core.jobs.jobs[job.id].ledger.register
    )
    if (
        peer.name not in fleet.refutations.liars[:1]
        or not isinstance(outcome, Contributed)
        or not outcome.rows  # a key, of the state before
        or held is None
        or held.ref is None
    ):
        return outcome
    state = JobState.decode(peer.bytes_of(held.ref))
    if state.secured is None or state.secured.wants_keys or state.status != "running":
        return outcome
    assert fleet.secrecy is not None
    me = fleet.secrecy.liar = job.roster.index(peer.name)
    arrays = {name: np.array(array) for name, array in Arrays.decode(peer.bytes_of(outcome.ref)).items()}
    arrays[PADDED][-1] += 1
    if SIGNED in arrays:
        at = SecureRound(job.job, state, len(job.roster), *_at_work(peer, job), held.ref.digest)
        word = at.signed_word(me, 0, arrays[PADDED].view(np.uint64))
        arrays[SIGNED] = np.frombuffer(word.signature, "<i8")
    fleet.marks.counts[f"lie: {WRONG_WORD}"] += 1
    return replace(outcome, ref=peer.keep(Arrays(arrays).encode(), fleet.plan.limits))


def _at_work(peer: Peer, job: DrawnJob) -> tuple[JobKeys, Secrets]:
    """Return what the worker of a peer has of a keyed job."""
    assert peer.core is not None
    assert peer.working.secrets is not None
    running = peer.core.jobs.jobs[job.id]
    assert isinstance(running, AggregatedJob)
    assert running.keys is not None
    return running.keys, peer.working.secrets


def _repeat(
    fleet: RandomFleet, rng: np.random.Generator, siblings: dict[bytes, JobState], peer: Peer, outcome: Outcome
) -> Outcome:  # fmt: skip
    """Break the rules of secure sums: after a total, open the same numbers again, without one peer.

    The aggregator that has both totals goes on as if the second one had never been, so no state names the set of that one:
    `siblings` has the state that follows from the first total, by digest. The state that is returned is as the worker would
    make it, so that the liar's own core can go on with it.
    """
    (job,) = fleet.jobs
    ledger = None if peer.core is None else peer.core.jobs.jobs[job.id].ledger
    held = None if ledger is None else ledger.register.ref
    if not isinstance(outcome, StateMade) or ledger is None or held is None:
        return outcome
    before, after = (JobState.decode(peer.bytes_of(ref)) for ref in (held, outcome.ref))
    if after.round == before.round:
        return outcome  # no total came before it
    maker = Maker(job.roster.index(peer.name), ledger.term, ledger.register.round + 1)
    known = siblings.get(held.digest)
    if known is None and (after.status != "running" or rng.random() >= _REPEATS):
        return outcome
    # An aggregator that repeats one round so often ends the job, as it may: docs/evidence.md, promise 3.
    if known is None and before.secured is not None and before.secured.renewals + 1 >= secure_rounds.MOST_RENEWALS:
        return outcome
    state = known or before
    part = state.secured
    assert part is not None
    if not part.wants_keys:
        part = replace(part, maker=maker)
    if known is None:
        fleet.marks.counts["total asked for again"] += 1
        others = [other for other in members_of(part.asked) if other != part.maker.index]
        victim = others[int(rng.integers(len(others)))]
        absent = {**part.absent, victim: "left out: late"}
        part = replace(part, asked=part.asked & ~(1 << victim), absent=absent)
    state = replace(state, secured=part)
    at = SecureRound(job.job, state, len(job.roster), *_at_work(peer, job))
    made = StateMade(peer.keep(state.encode(), fleet.plan.limits), at.info(state))
    if known is None:
        siblings[made.ref.digest] = after
    return made
