"""One enrolled peer that ends a job which was not cancelled, or was cancelled by another peer than it says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.liars.lab import fleet, inject, submit

from p2pclust.lab.simulation.world.peer import FLEET, device_key
from p2pclust.peer.core.events import Cancel
from p2pclust.peer.core.job_messages import Close, Open
from p2pclust.peer.core.messages import FactDelta
from p2pclust.peer.operate.status import outcome_of
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.workspace import digest_of
from p2pclust.protocols.secure.proofs import CancelProof, Proof
from p2pclust.transport.roster import fleet_id_of
from p2pclust.transport.wire import fact_statement

pytestmark = pytest.mark.slow

_LIAR = "p5"
_HONEST = ("p0", "p1", "p2", "p3", "p4")
_MODES = {"plain": {}, "tree": {"collect": "tree"}, "secure": {"secure": True}, "verify": {"verify": "all"},
          "verify, secure": {"verify": "all", "secure": True}}  # fmt: skip


class _Trial:
    """Six peers, the last of which lies, and one job that runs for long."""

    def __init__(self, mode, **fields):
        rng = np.random.default_rng(5)
        rows = [rng.normal(20 * (k % 3), 5, (40, 2)) for k in range(6)]
        self.world, self.ears = fleet(rows, me=_LIAR)
        self.secure, self.verify = _MODES[mode].get("secure", False), "verify" in _MODES[mode]
        box = ([-50.0, -50.0], [150.0, 150.0])
        job = cluster_job(
            "llf-cm", n_clusters=3, bounds=box, init="uniform", tol=0.0, max_rounds=40, secure=self.secure
        )
        self.id = submit(self.world, job, at="p1", **_MODES[mode], **fields)
        rounds = lambda: min(one.ledger.register.round for one in self.jobs.values())  # noqa: E731
        assert self.world.run_until(self.world.now + 90.0, lambda: rounds() >= 2)

    @property
    def jobs(self):
        return {name: self.world.peers[name].core.jobs.jobs[self.id] for name in _HONEST}

    def state(self, name="p0"):
        ref = self.jobs[name].ledger.register.ref
        return JobState.decode(ref.payload or b"".join(self.world.peers[name].disk.blob(ref.digest)))

    def ended(self, cancel, *, arrays=None):
        """A cancelled state made of the one that p0 holds now."""
        ref, state = self.jobs["p0"].ledger.register.ref, self.state()
        shown = cancel.encode() if cancel is not None else b""
        if self.verify and shown:
            shown = Proof(state.encode(), ref.digest, cancel=shown).encode()
        by = "p1" if cancel is None else cancel.by
        part = state.secured and replace(
            state.secured, entries=(), asked=0, absent={}, unsettled=None, silent=0, burnt=(), renewals=0,
            maker=type(state.secured.maker)(),
        )  # fmt: skip
        return replace(
            state,
            status="failed",
            reason=f"cancelled by {by}",
            secured=part,
            proof=shown,
            arrays=arrays or state.arrays,
        )

    def say(self, state, kind=Close):
        data, job = state.encode(), self.jobs["p0"]
        term, round_ = job.ledger.term, job.ledger.register.round + 1
        parts = (self.id, term, round_, digest_of(data), len(data))
        for name in _HONEST:
            inject(
                self.world, _LIAR, name, Close(*parts, (data,)) if kind is Close else Open(*parts, True, -1, (data,))
            )
        self.world.run_until(self.world.now + 0.1)

    def outcomes(self):
        return {self.outcome(name) for name in _HONEST}

    def outcome(self, name):
        job, disk = self.jobs[name], self.world.peers[name].disk
        ref = job.ledger.register.ref
        found = outcome_of(ref, lambda digest: iter(disk.blob(digest)))
        return (found.phase, found.reason) if job.ledger.finished else ("running", "")


def signed(owner, job_id, value, *, by=None, version=7):
    """A cancel of that owner, signed with the key of another if `by` is given."""
    key = f"cancel/{job_id}"
    statement = fact_statement(fleet_id_of(FLEET), owner, key, version, value)
    return CancelProof(key, owner, version, value, device_key(by or owner).sign(statement))


@pytest.mark.parametrize("mode", _MODES)
def test_no_peer_ends_a_job_with_a_cancel_that_its_owner_did_not_sign(mode):
    trial = _Trial(mode)
    other = {key: value + 1.0 if key == "centers" else value for key, value in trial.state().arrays.items()}
    trial.say(trial.ended(None))
    trial.say(trial.ended(None, arrays=Arrays(other)))
    for cancel in (
        CancelProof(f"cancel/{trial.id}", "p1", 7, b"p1"),
        signed("p1", trial.id, b"p1", by=_LIAR),
        signed("p1", "another-job", b"p1"),
        CancelProof("", "p1"),
    ):
        trial.say(trial.ended(cancel))
        trial.say(trial.ended(cancel), Open)
    assert "cancelled" not in {phase for phase, _ in trial.outcomes()}


@pytest.mark.parametrize("mode", ["verify", "verify, secure"])
def test_a_cancelled_job_with_verify_ends_with_the_numbers_that_it_had(mode):
    trial = _Trial(mode)
    other = {key: value + 1.0 if key == "centers" else value for key, value in trial.state().arrays.items()}
    trial.say(trial.ended(signed(_LIAR, trial.id, _LIAR.encode()), arrays=Arrays(other)))
    assert "cancelled" not in {phase for phase, _ in trial.outcomes()}


@pytest.mark.parametrize("mode", _MODES)
@pytest.mark.parametrize("by", ["laptop", "p2"])
def test_a_cancel_that_was_asked_for_ends_the_job_and_names_the_peer_that_signed_it(mode, by):
    trial = _Trial(mode)
    trial.world.step(trial.world.peers["p2"], Cancel(trial.id, by))
    assert trial.world.run_until(
        trial.world.now + 60.0, lambda: all(job.ledger.finished for job in trial.jobs.values())
    )
    assert trial.outcomes() == {("cancelled", "cancelled by p2" if by == "p2" else "cancelled by laptop, signed by p2")}


@pytest.mark.parametrize("mode", _MODES)
def test_the_end_names_the_liar_that_has_signed_the_cancel_in_a_name_that_it_chose(mode):
    trial = _Trial(mode)
    key, version = f"cancel/{trial.id}", 2**40
    proof = signed(_LIAR, trial.id, b"p1", version=version)
    facts = trial.world.peers[_LIAR].core.facts
    after = facts._held[_LIAR].highest
    for name in _HONEST:
        inject(trial.world, _LIAR, name, FactDelta(_LIAR, after, (key,), (version,), (b"p1",), (proof.signature,)))
    assert trial.world.run_until(
        trial.world.now + 60.0, lambda: all(job.ledger.finished for job in trial.jobs.values())
    )
    assert trial.outcomes() == {("cancelled", f"cancelled by p1, signed by {_LIAR}")}


def test_without_signed_facts_a_cancel_ends_the_job_as_it_is():
    trial = _Trial("plain")
    for peer in trial.world.peers.values():
        peer.core._ctx.signs_facts = False
        peer.identity = replace(peer.identity, signs_facts=False)
    trial.world.step(trial.world.peers["p2"], Cancel(trial.id, "laptop"))
    assert trial.world.run_until(
        trial.world.now + 60.0, lambda: all(job.ledger.finished for job in trial.jobs.values())
    )
    assert trial.outcomes() == {("cancelled", "cancelled by laptop")}
