"""One enrolled peer that aggregates nothing speaks as the aggregator: under its name, or in another's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.liars.lab import fleet, inject, submit

from p2pclust.peer.core.job_messages import Heartbeat, Open
from p2pclust.peer.core.rounds.election import Role
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.workspace import digest_of

pytestmark = pytest.mark.slow

_LIAR = "p4"
_HONEST = ("p0", "p1", "p2", "p3")


class _Trial:
    """Five peers, the last of which lies, and one running job."""

    def __init__(self, max_rounds=40, **treatment):
        rng = np.random.default_rng(5)
        rows = [rng.normal(20 * (k % 3), 5, (40, 2)) for k in range(5)]
        self.world, self.ears = fleet(rows, me=_LIAR)
        box = ([-50.0, -50.0], [150.0, 150.0])
        job = cluster_job("llf-cm", n_clusters=3, bounds=box, init="uniform", tol=0.0, max_rounds=max_rounds)
        self.id = submit(self.world, job, at="p1", **treatment)

    @property
    def jobs(self):
        return {name: self.world.peers[name].core.jobs.jobs[self.id] for name in _HONEST}

    def state(self, name):
        ref = self.jobs[name].ledger.register.ref
        return JobState.decode(ref.payload or b"".join(self.world.peers[name].disk.blob(ref.digest)))

    def opened(self, name, *, shown=-1):
        """An `open` with made-up numbers for that peer's next round, which names `shown` as its aggregator."""
        job, state = self.jobs[name], self.state(name)
        arrays = {key: value + 1.0 if key == "centers" else value for key, value in state.arrays.items()}
        evil = replace(state, arrays=Arrays(arrays)).encode()
        round_ = job.ledger.register.round + 1
        return Open(self.id, job.ledger.term, round_, digest_of(evil), len(evil), False, -1, (evil,), shown)

    def lie_in_the_aggregators_name(self):
        for name, job in self.jobs.items():
            aggregator = job.election.aggregator
            if not job.ledger.finished and aggregator not in ("", name, _LIAR) and job.ledger.register.ref is not None:
                inject(self.world, _LIAR, name, self.opened(name, shown=job.document.index(aggregator)))

    def run(self, limit_s, *, lie=lambda: None):
        end = self.world.now + limit_s
        while self.world.now < end and not all(job.ledger.finished for job in self.jobs.values()):
            lie()
            self.world.run_until(self.world.now + 0.1)
        return all(job.ledger.finished for job in self.jobs.values())

    def until_a_round(self, round_):
        here = lambda: all(job.ledger.register.round >= round_ for job in self.jobs.values())  # noqa: E731
        assert self.world.run_until(self.world.now + 60.0, here)

    def suspects(self):
        return {peer for job in self.jobs.values() for peer in job.suspicions}


@pytest.mark.parametrize("treatment", [{}, {"verify": "all"}], ids=["plain", "verify"])
def test_an_open_in_the_aggregators_name_is_the_word_of_its_sender(treatment):
    trial = _Trial(**treatment)
    assert trial.run(120.0, lie=trial.lie_in_the_aggregators_name), "the job has not ended"
    assert not trial.suspects() - {_LIAR}
    claims = {fields["peer"] for _, _, verb, fields in trial.ears.reports if verb == "second-aggregator"}
    assert claims == {_LIAR}
    assert len({job.ledger.register.ref.digest for job in trial.jobs.values()}) == 1


@pytest.mark.parametrize("speaks", [Open, Heartbeat])
def test_a_peer_does_not_depose_the_aggregator_of_a_term_by_claiming_that_term(speaks):
    trial = _Trial()
    trial.until_a_round(3)
    aggregator = next(job.election.aggregator for job in trial.jobs.values() if job.election.aggregator)
    job = trial.jobs[aggregator]
    term, message = job.ledger.term, trial.opened(aggregator)
    if speaks is Heartbeat:
        message = Heartbeat(trial.id, term, message.round)
    inject(trial.world, _LIAR, aggregator, message)
    assert (job.election.role, job.ledger.term) == (Role.AGGREGATOR, term)


def test_a_peer_follows_one_aggregator_in_a_term():
    trial = _Trial()
    trial.until_a_round(3)
    name, job = next((name, job) for name, job in trial.jobs.items() if job.election.aggregator not in ("", name))
    before, aggregator = job.ledger.register, job.election.aggregator
    inject(trial.world, _LIAR, name, trial.opened(name))
    assert (job.ledger.register, job.election.aggregator) == (before, aggregator)


def test_only_the_named_peer_aggregates_the_first_term():
    trial = _Trial(aggregator="p0")
    job = trial.jobs["p2"]
    if job.election.aggregator:  # it has heard the named peer already
        job.election.terms.clear()
    trial.world.run_until(trial.world.now + 5.0, lambda: job.ledger.register.ref is not None)
    inject(trial.world, _LIAR, "p2", trial.opened("p2"))
    assert job.election.aggregator == "p0"


def test_in_a_tree_an_open_in_another_name_does_not_replace_a_known_aggregator():
    trial = _Trial(collect="tree")
    trial.until_a_round(3)
    name, job = next((name, job) for name, job in trial.jobs.items() if job.election.aggregator not in ("", name))
    other = next(one for one in _HONEST if one not in (name, job.election.aggregator))
    before, aggregator = job.ledger.register, job.election.aggregator
    inject(trial.world, _LIAR, name, trial.opened(name, shown=job.document.index(other)))
    assert (job.ledger.register, job.election.aggregator) == (before, aggregator)
