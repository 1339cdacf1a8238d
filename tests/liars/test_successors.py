"""An aggregator that opens two successors of one state, or continues after the last one, in one term."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.liars.lab import Aggressor, certificate, fleet, inject, signed, submit

from p2pclust.lab.simulation.world.peer import device_secrets
from p2pclust.peer.core.job_messages import Adopted, Open
from p2pclust.peer.work.states import job_of
from p2pclust.peer.work.verified import Verifier
from p2pclust.protocols.engine import secure_rounds
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.workspace import digest_of
from p2pclust.protocols.secure.proofs import Proof, SignedAnswer

pytestmark = pytest.mark.slow

_LIAR = "p0"


def _rows(n):
    rng = np.random.default_rng(5)
    centers = rng.uniform(0, 100, (3, 2))
    return [np.clip(centers[rng.integers(0, 3, 60)] + rng.normal(0, 6, (60, 2)), -50, 150) for _ in range(n)]


def _job(*, secure=False):
    box = ([-50.0, -50.0], [150.0, 150.0])
    return cluster_job("llf-cm", n_clusters=3, bounds=box, init="uniform", tol=0.0, max_rounds=30, secure=secure)


def _suspects(world, job_id):
    jobs = [peer.core.jobs.jobs[job_id] for name, peer in world.peers.items() if name != _LIAR]
    return [set(job.suspicions) for job in jobs]


@pytest.mark.parametrize("later", [1, 2], ids=["next", "after a gap"])
def test_no_peer_answers_a_second_successor_of_a_padded_state(later):
    world, ears = fleet(_rows(8), me=_LIAR)
    job_id = submit(world, _job(secure=True), secure=True, verify="all")
    liar = Aggressor(world, ears, job_id, me=_LIAR)
    first = secure_rounds.begin(liar.job, liar.terms)
    state = liar.padded_from(liar.keys_round(first, 2), liar.round + 1)
    digest, given, _ = liar.padded_round(state)
    total, pads, refusals = liar.unpad(state, digest, given, sorted(given))
    assert not refusals
    before = (state, digest, given, pads, sorted(given), total)
    _, answers, _ = liar.padded_round(liar.next_from(*before, liar.round + 1))
    assert len(answers) > 1, "the first successor is answered"
    liar.round += later - 1
    _, answers, _ = liar.padded_round(liar.next_from(*before, liar.round + 1))
    assert not set(answers) - {liar.index}, "no honest peer answers the second"
    assert all(found == {_LIAR} for found in _suspects(world, job_id))


class _Claims:
    """A peer that is elected in the term 100 of a running job, and opens what it likes."""

    def __init__(self, **treatment):
        self.world, self.ears = fleet(_rows(6), me=_LIAR)
        self.id = submit(self.world, _job(), **treatment)
        peers = [name for name in self.world.peers if name != _LIAR]
        self.jobs = {name: self.world.peers[name].core.jobs.jobs[self.id] for name in peers}
        reached = lambda: min(job.ledger.register.round for job in self.jobs.values()) >= 2  # noqa: E731
        assert self.world.run_until(self.world.now + 90.0, reached)
        for name, job in self.jobs.items():
            inject(self.world, _LIAR, name, certificate(job.document, _LIAR, 100))
        self.world.run_until(self.world.now + 0.05)

    @property
    def registers(self):
        return [job.ledger.register for job in self.jobs.values()]

    def held(self):
        ref = self.jobs["p1"].ledger.register.ref
        return ref.payload or b"".join(self.world.peers["p1"].disk.blob(ref.digest))

    def open(self, data, round_, *, final=False):
        """Open a state at all; return the answers to it."""
        self.ears.heard.clear()
        document, digest = self.jobs["p1"].document, digest_of(data)
        own = signed(document, _LIAR, 100, _LIAR, (100, round_, digest, True)).encode() if final else b""
        for name in self.jobs:
            message = Open(self.id, 100, round_, digest, len(data), final, -1, (data,), acknowledgement=own)
            inject(self.world, _LIAR, name, message)
        self.world.run_until(self.world.now + 0.4)
        heard = self.ears.heard  # a peer may answer twice
        return list({name: m for name, m in heard if isinstance(m, Adopted) and m.digest == digest_of(data)}.values())


def test_a_state_of_which_an_answer_was_left_out_does_not_follow_beside_the_whole_one():
    trial = _Claims(verify="all")
    data, round_, document = trial.held(), trial.registers[0].round, trial.jobs["p1"].document
    given = [SignedAnswer.decode(answer.payload[0]) for answer in trial.open(data, round_)]
    verifier = Verifier(
        job_of(document.mathematics), 6, trial.jobs["p1"].keys, device_secrets(_LIAR, np.random.default_rng(0))
    )
    before = replace(JobState.decode(data), proof=b"")

    def successor(answers):
        left_out = dict.fromkeys(set(range(6)) - {one.index for one in answers}, "left out: late")
        proof = Proof(before.encode(), digest_of(data), sorted(answers, key=lambda one: one.index), [], left_out)
        return replace(verifier.follows(before, proof), proof=proof.encode()).encode()

    whole, less = successor(given), successor(given[:-1])
    assert len(trial.open(whole, round_ + 1)) == len(trial.jobs)
    for later in (2, 3, 4):
        assert not trial.open(less, round_ + later)
    assert all(found == {_LIAR} for found in _suspects(trial.world, trial.id))


def test_a_running_state_that_is_called_final_is_not_adopted():
    trial = _Claims()
    trial.open(trial.held(), 90, final=True)
    assert not any(register.final for register in trial.registers)


def test_nothing_but_the_same_state_follows_the_last_one_in_a_term():
    trial = _Claims()
    running = JobState.decode(trial.held())
    ended, another = replace(running, status="done").encode(), replace(running, status="done", converged=True).encode()
    assert len(trial.open(ended, 90, final=True)) == len(trial.jobs)
    assert not trial.open(another, 91, final=True)
    assert not trial.open(running.encode(), 92)
    assert not trial.open(ended, 93, final=False)
    assert all((register.ref.digest, register.final) == (digest_of(ended), True) for register in trial.registers)
