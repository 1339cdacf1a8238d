"""The tasks of a job with verify, one after another and without any network."""

from __future__ import annotations

from dataclasses import replace

import msgpack
import numpy as np
import pytest
from tests.peer.work.test_secure_tasks import Workers
from tests.protocols.secure_fleet import FLEET, JOB

from p2pclust.lab.simulation.fleets.liars import LIES, Made, falsified
from p2pclust.peer.core.tasks import (
    AddUp,
    BeginJob,
    CancelJob,
    CheckState,
    CombineRound,
    Contributed,
    DescribeState,
    FinishRound,
    Given,
    NoResult,
    Outcome,
    PadsKept,
    PadsTaken,
    Ref,
    RenewKeys,
    StateChecked,
    StateInfo,
    StateMade,
    StateRefuted,
    Summed,
    SumPadded,
    TakePads,
)
from p2pclust.peer.work.secrets import Secrets
from p2pclust.peer.work.tasks import Life
from p2pclust.peer.work.verified import Verifier
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.reasons import LEFT_OUT
from p2pclust.protocols.engine.runner import run_in_process
from p2pclust.protocols.engine.workspace import digest_of
from p2pclust.protocols.secure.proofs import CancelProof, Proof, SignedAnswer
from p2pclust.protocols.secure.secured import Maker

CANCEL = CancelProof("cancel/job", "p1", 0, b"meter-01")


class VerifiedWorkers(Workers):
    """The workers of a fleet in which every peer checks each state."""

    def __init__(self, n_peers: int = 5, *, secure: bool, inline_bytes: int = 10**6) -> None:
        super().__init__(n_peers, inline_bytes=inline_bytes)
        self.secured = secure
        if not secure:
            self.job = cluster_job("llf-cm", n_clusters=2, init="uniform", max_rounds=2, tol=0.0, seed=3)
            self.data = bytes(msgpack.packb(self.job.to_dict()))
        self.keys = self.fleet.job_keys(self.fleet.secure if secure else None, verify=True)

    def begun(self) -> Ref:
        return self.made(0, BeginJob(self.data, self.n_peers, self.keys))

    def closed(self, state: Ref, given: tuple[Given, ...] | None = None) -> Ref:
        if self.secured and not self.part(state).wants_keys:
            return super().closed(state)
        maker = self.maker() if self.secured else None
        task = CombineRound(self.data, self.n_peers, state, given or self.given(state), maker=maker, keys=self.keys)
        return self.made(0, task)

    def check(self, state: Ref, held: Ref | None, peer: int = 1) -> Outcome:
        return self.do(peer, CheckState(self.data, self.n_peers, state, held, keys=self.keys))

    def to_the_end(self) -> list[Ref]:
        """All states, from the first to the last."""
        states = [self.begun()]
        while self.state(states[-1]).status == "running":
            states.append(self.closed(states[-1]))
        return states

    def ref_of(self, state: JobState) -> Ref:
        data = state.encode()
        return Ref(digest_of(data), len(data), data)

    def lie(self, kind: str, state: Ref) -> Ref | None:
        """What peer 0 makes of a state that it made, if it can lie so."""
        secrets = self.lives[0].secrets
        assert secrets is not None
        verifier = Verifier(self.job, self.n_peers, self.keys, secrets)
        found = falsified(kind, Made(self.state(state), self.info(state), 0, verifier))
        return None if found is None else self.ref_of(found[0])

    def info(self, state: Ref) -> StateInfo:
        described = self.do(0, DescribeState(self.data, self.n_peers, state, keys=self.keys))
        assert isinstance(described, StateMade)
        return described.info


@pytest.fixture(params=[False, True], ids=["plain", "secured"])
def workers(request: pytest.FixtureRequest) -> VerifiedWorkers:
    return VerifiedWorkers(secure=request.param)


# -- honest states -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("inline_bytes", [10**6, 100])
def test_a_job_has_the_bits_of_the_plain_one_and_every_state_is_checked(secure: bool, inline_bytes: int) -> None:
    workers = VerifiedWorkers(secure=secure, inline_bytes=inline_bytes)
    states = workers.to_the_end()
    final = workers.state(states[-1])
    assert final.plain().encode() == run_in_process(workers.job, workers.locals).encode()
    for held, state in zip([None, *states], states, strict=False):
        assert workers.check(state, held) == StateChecked(state == states[-1])


@pytest.mark.slow
def test_a_peer_that_lacks_the_state_before_believes_a_majority(workers: VerifiedWorkers) -> None:
    states = workers.to_the_end()
    for state in states[1:]:
        assert isinstance(workers.check(state, None), StateChecked)
        assert isinstance(workers.check(state, states[0]), StateChecked), "it holds an older state"


def test_fewer_signatures_are_no_lie_and_not_enough() -> None:
    workers = VerifiedWorkers(secure=False)
    first = workers.begun()
    second = workers.closed(first)
    third = workers.closed(second, workers.given(second, [0, 1]))
    assert workers.check(third, second) == StateChecked(False)
    assert workers.check(third, first) == NoResult(
        "2 of 5 peers have signed the state before, and this peer does not have it"
    )


def test_who_abstains_signs_the_reason() -> None:
    workers = VerifiedWorkers(secure=False)
    workers.locals[2] = Local(workers.locals[2].X[:0])
    first = workers.begun()
    refusal = workers.contribute(first, 2)
    assert isinstance(refusal, Contributed)
    assert refusal.abstains == "no data"
    second = workers.closed(first, (*workers.given(first, [0, 1, 3, 4]), ((2,), refusal.ref)))
    assert workers.state(second).log[-1].abstained == {2: "no data"}
    assert workers.check(second, first) == StateChecked(False)


def test_who_does_not_answer_is_left_out_on_the_word_of_the_aggregator() -> None:
    workers = VerifiedWorkers(secure=False)
    first = workers.begun()
    given = workers.given(first, [0, 1, 3])
    task = CombineRound(workers.data, 5, first, given, {2: f"{LEFT_OUT}: dead", 4: "it has no keys"}, keys=workers.keys)
    second = workers.made(0, task)
    assert workers.state(second).log[-1].abstained == {2: "left out: dead", 4: "left out: it has no keys"}
    assert workers.check(second, first) == StateChecked(False)
    proof = Proof.decode(workers.state(second).proof)
    claimed = replace(proof, left_out={2: "no data", 4: "left out: late"})
    lie = workers.ref_of(replace(workers.state(second), proof=claimed.encode()))
    assert workers.check(lie, first) == StateRefuted("a peer abstains that has not signed it")


def test_a_cancelled_job_follows_from_the_state_before(workers: VerifiedWorkers) -> None:
    state = workers.closed(workers.begun())
    ended = workers.made(0, CancelJob(workers.data, 5, state, CANCEL, keys=workers.keys))
    assert workers.check(ended, state) == StateChecked(True)
    assert workers.check(ended, None) == StateChecked(True), "the state before is in its proof"
    last = workers.state(ended)
    lies = [
        replace(last, proof=b""), replace(last, reason="cancelled by another"),
        replace(last, arrays=Arrays({**last.arrays, "more": np.zeros(1)})),
        replace(last, proof=replace(Proof.decode(last.proof), cancel=b"").encode()),
    ]  # fmt: skip
    assert all(isinstance(workers.check(workers.ref_of(lie), state), StateRefuted) for lie in lies)


def test_a_contribution_without_a_signature_is_left_out() -> None:
    workers = VerifiedWorkers(secure=False)
    first = workers.begun()
    given = list(workers.given(first))
    answer = SignedAnswer.decode(workers.bytes_of(given[1][1]))
    data = replace(answer, signature=bytes(64)).encode()
    given[1] = ((1,), Ref(digest_of(data), len(data), data))
    given[2] = ((2,), given[3][1])  # what another peer has signed
    second = workers.closed(first, tuple(given))
    assert sorted(workers.state(second).log[-1].contributors) == [0, 3, 4]
    assert set(workers.state(second).log[-1].abstained) == {1, 2}
    assert workers.check(second, first) == StateChecked(False)


def test_new_keys_after_a_padded_state_are_proved_by_the_whole_state() -> None:
    workers = VerifiedWorkers(secure=True)
    begun = workers.begun()
    padded = workers.closed(begun)
    renewed = workers.made(0, RenewKeys(workers.data, 5, padded, {}, (1,), keys=workers.keys))
    assert workers.part(renewed).wants_keys
    for held in (padded, begun, None):
        assert workers.check(renewed, held) == StateChecked(False)


def test_a_round_whose_maker_is_gone_is_proved_with_what_its_keepers_hold() -> None:
    workers = VerifiedWorkers(secure=True)
    padded = workers.closed(workers.begun())
    bundle = _bundle(workers, padded)
    successor = next(peer for peer in workers.keepers(padded))
    others = [keeper for keeper in workers.keepers(padded) if keeper != successor]
    removed = [(keeper, _handed_over(workers, padded, keeper, bundle)) for keeper in others]
    task = FinishRound(
        workers.data, 5, padded, 0b11111, Maker(successor, 2, 9), (*removed, (successor, bundle)), keys=workers.keys
    )
    after = workers.made(successor, task)
    assert workers.state(after).log, "it has a total"
    assert workers.check(after, padded) == StateChecked(False)
    assert workers.check(after, None) == StateChecked(False)


def _bundle(workers: VerifiedWorkers, padded: Ref) -> Ref:
    summed = workers.do(0, SumPadded(workers.data, 5, padded, 0, workers.given(padded), keys=workers.keys))
    assert isinstance(summed, Summed)
    assert summed.ref is not None
    return summed.ref


def _handed_over(workers: VerifiedWorkers, padded: Ref, keeper: int, bundle: Ref) -> Ref:
    task = TakePads(workers.data, 5, padded, keeper, 0b11111, Maker(1, 2, 9), PadsKept(True), bundle, keys=workers.keys)
    outcome = workers.do(keeper, task)
    assert isinstance(outcome, PadsTaken), outcome
    return outcome.ref


# -- lies ----------------------------------------------------------------------------------------------------------------

SECURED_ONLY, PLAIN_ONLY = ("pads that were not given", "after another state"), ("after its own answer only",)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in LIES if kind != "called final"])
def test_every_lie_is_refuted_by_a_peer_that_has_the_state_before(workers: VerifiedWorkers, kind: str) -> None:
    states = [workers.begun()]
    lies = 0
    while workers.state(states[-1]).status == "running":
        states.append(workers.closed(states[-1]))
        if workers.state(states[-1]).status == "running" and (lie := workers.lie(kind, states[-1])) is not None:
            lies += 1
            outcome = workers.check(lie, states[-2])
            assert isinstance(outcome, StateRefuted | NoResult), outcome
            if kind != "after its own answer only":  # a state before that no other peer has
                assert isinstance(outcome, StateRefuted)
    never = PLAIN_ONLY if workers.secured else SECURED_ONLY
    assert (lies > 0) is (kind not in never)


@pytest.mark.parametrize("status", ["done", "failed"])
def test_an_end_that_does_not_follow_is_refuted(workers: VerifiedWorkers, status: str) -> None:
    states = workers.to_the_end()
    reason = "" if status == "done" else "all peers abstained"
    running = workers.state(states[-2])
    early = workers.ref_of(replace(running, status=status, reason=reason, secured=None))  # type: ignore[arg-type]
    assert isinstance(workers.check(early, states[-3]), StateRefuted)


@pytest.mark.parametrize("data", [b"", b"\x90", b"no state"])
def test_bytes_that_are_no_state_are_refuted(workers: VerifiedWorkers, data: bytes) -> None:
    assert isinstance(workers.check(Ref(digest_of(data), len(data), data), workers.begun()), StateRefuted)


def test_a_proof_within_a_proof_within_a_proof_is_refuted() -> None:
    workers = VerifiedWorkers(secure=True)
    state = workers.closed(workers.begun())
    for _ in range(4):
        inner = workers.state(state)
        data = inner.encode()
        state = workers.ref_of(replace(inner, proof=Proof(data, digest_of(data)).encode()))
    assert workers.check(state, None) == StateRefuted("too many proofs within its proof")


def test_nothing_follows_from_a_job_that_has_ended(workers: VerifiedWorkers) -> None:
    """A state that was said to follow from a cancelled one ended the peer with an exception."""
    state = workers.closed(workers.begun())
    ended = workers.made(0, CancelJob(workers.data, 5, state, CANCEL, keys=workers.keys))
    data, secrets = workers.bytes_of(ended), workers.lives[4].secrets
    assert secrets is not None
    bare = SignedAnswer(4, "", b"any bytes")
    signed = replace(bare, signature=secrets.sign(bare.statement(FLEET, JOB, ended.digest, ended.digest)))
    lie = workers.ref_of(replace(workers.state(state), proof=Proof(data, ended.digest, [signed]).encode()))
    assert workers.check(lie, state) == StateRefuted("the state before is failed, and nothing follows from it")


def test_a_state_older_than_one_that_a_majority_adopted_is_refuted() -> None:
    workers = VerifiedWorkers(secure=False)
    states = [workers.begun()]
    for _ in range(3):
        states.append(workers.closed(states[-1]))
    assert workers.check(states[2], states[3]) == StateChecked(False), "the next aggregator may not have the newest"
    assert workers.check(states[1], states[3]) == StateRefuted("it is older than a state that a majority has adopted")


@pytest.mark.parametrize("seed", range(40))
def test_whatever_a_proof_says_the_check_answers(workers: VerifiedWorkers, seed: int) -> None:
    rng = np.random.default_rng(seed)
    before = workers.closed(workers.begun())
    state = workers.closed(before)
    proof = Proof.decode(workers.state(state).proof)
    changes = [
        {"left_out": {int(rng.integers(0, 5000)): "left out: late"}}, {"silent": [int(rng.integers(0, 5000))]},
        {"maker": Maker(int(rng.integers(0, 5000)), 1, 1)}, {"answers": proof.answers[: int(rng.integers(0, 5))]},
        {"pads": proof.pads[:-1]}, {"digest": bytes(32)}, {"before": proof.before[: int(rng.integers(0, 99))]},
        {"before": workers.bytes_of(state), "digest": state.digest},
    ]  # fmt: skip
    changed = replace(proof, **changes[seed % len(changes)])
    lie = workers.ref_of(replace(workers.state(state), proof=changed.encode()))
    for held in (before, None):
        assert isinstance(workers.check(lie, held), StateRefuted | NoResult | StateChecked)


# -- what cannot be ------------------------------------------------------------------------------------------------------


def test_a_fleet_without_keys_has_no_verify() -> None:
    workers = VerifiedWorkers(secure=False)
    first = workers.begun()
    workers.lives[1] = Life()
    assert workers.check(first, None) == NoResult("failed: verify: this peer has no keys")


def test_contributions_that_grow_with_the_rows_are_refused() -> None:
    workers = VerifiedWorkers(secure=False)
    job = cluster_job("vertical-cm", n_clusters=2)
    data = bytes(msgpack.packb(job.to_dict()))
    refused = workers.do(0, BeginJob(data, 5, workers.keys))
    assert isinstance(refused, NoResult)
    assert refused.reason.startswith("failed: a protocol over columns excludes verify: ")


# -- keepers -------------------------------------------------------------------------------------------------------------


def test_the_keepers_are_others_when_another_peer_makes_the_next_state_with_the_same_keys() -> None:
    workers = Workers()
    part = workers.part(workers.padded())
    entropy = workers.life(0).secrets
    assert entropy is not None
    secrets = Secrets(FLEET, workers.fleet.devices[0].sign, entropy.entropy)
    first = secrets.keepers(workers.keys, part)
    successor = next(iter(first))
    after = secrets.keepers(workers.keys, replace(part, maker=Maker(successor, 2, 5)))
    assert successor not in after
    assert secrets.keepers(workers.keys, part) == first


def test_no_tree_adds_up_signed_answers(workers: VerifiedWorkers) -> None:
    """An aggregator that lies may open a tree all the same: its peers' workers continue."""
    first = workers.begun()
    outcome = workers.do(1, AddUp(workers.data, workers.n_peers, first, workers.given(first), keys=workers.keys))
    assert outcome == NoResult("failed: signed answers are not added up")
