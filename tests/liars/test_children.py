"""Jobs within a round of another job, which need no votes in their first term, and a liar that speaks in them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.liars.lab import fleet, inject, signed, submit
from tests.protocols.communities import a_job, planted

from p2pclust.peer.core.evidence import Evidence, Majority
from p2pclust.peer.core.job_messages import Close, Heartbeat, Open, ShowEvidence
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.workspace import digest_of

pytest.importorskip("torch", reason="autoencoders need torch: pip install 'p2pclust[models]'")
pytestmark = pytest.mark.slow

_KINDS = [[0, 1, 2], [1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]
_LIAR = "p4"


class _Trial:
    """Five peers, and a job whose rounds want jobs among some of its roster. Without its core the liar is silent."""

    def __init__(self, *names, silent=True):
        self.world, self.ears = fleet([peer.local() for peer in planted(_KINDS, dirt=0.15)], me=_LIAR, timing="fast")
        if not silent:
            self.world.forge = None
        self.names = names
        self.id = submit(self.world, a_job(), roster=names, collect="star")

    def children(self, name):
        core = self.world.peers[name].core
        return [job for job in core.jobs.jobs.values() if job.document.parent == self.id]

    def running(self, *with_):
        """The job within, and the peers that run it, of the first that has a state and not ended."""
        for job in [job for name in self.names if name != _LIAR for job in self.children(name)]:
            here = [n for n in job.document.roster if n != _LIAR and any(c.id == job.id for c in self.children(n))]
            if (
                job.ledger.register.ref is not None
                and not job.ledger.finished
                and all(n in job.document for n in with_)
            ):
                return job, here
        return None

    def until_one_runs(self, *with_):
        assert self.world.run_until(self.world.now + 300.0, lambda: self.running(*with_) is not None)
        return self.running(*with_)

    def state_of(self, job, name):
        ref = job.ledger.register.ref
        return JobState.decode(ref.payload or b"".join(self.world.peers[name].disk.blob(ref.digest)))

    def lies(self, job, here, aggregator):
        """What the liar says in a job within, as its aggregator: a state of its own, running or the last one."""
        core = self.world.peers[here[0]].core
        state = self.state_of(core.jobs.jobs[job.id], here[0])
        arrays = {key: np.full_like(value, 0.5) for key, value in state.arrays.items()}
        register = job.ledger.register
        for status in ("running", "done"):
            made = replace(state, arrays=Arrays(arrays), status=status)
            data = made.encode()
            digest, round_ = digest_of(data), register.round + 1
            at = (1, round_, digest, True)
            own = b""
            if _LIAR in job.document:
                acknowledged = signed(job.document, _LIAR, 1, aggregator, at)
                own = acknowledged.encode() if status == "done" else b""
                enough = dict.fromkeys(range(job.document.majority), acknowledged.signature)
                end = Evidence(None, Majority(acknowledged, enough))
                yield digest, ShowEvidence(job.id, 1, (end.encode(),))
            final = status == "done"
            yield digest, Open(job.id, 1, round_, digest, len(data), final, -1, (data,), acknowledgement=own)
            yield digest, Close(job.id, 1, round_, digest, len(data), (data,))
        yield b"", Heartbeat(job.id, 1, 2**20)

    def lie(self, job, here):
        """Let the liar speak; return the digests of its states."""
        digests = []
        for digest, message in self.lies(job, here, job.document.treatment.aggregator):
            for name in here:
                inject(self.world, _LIAR, name, message)
            digests.append(digest)
            self.world.run_until(self.world.now + 0.01)
        return digests

    def held(self):
        """The digests of the states of all jobs within at honest peers."""
        jobs = [job for name in self.names if name != _LIAR for job in self.children(name)]
        return {job.ledger.register.ref.digest for job in jobs if job.ledger.register.ref is not None}

    def until_done(self):
        ended = lambda: all(self.world.peers[n].core.jobs.jobs[self.id].ledger.finished for n in self.names)  # noqa: E731
        assert self.world.run_until(self.world.now + 600.0, ended)
        name = next(name for name in self.names if name != _LIAR)
        return self.state_of(self.world.peers[name].core.jobs.jobs[self.id], name)


def test_a_stranger_to_a_job_says_nothing_in_the_jobs_within_it():
    trial = _Trial("p0", "p1", "p2", "p3")
    job, here = trial.until_one_runs()
    made = trial.lie(job, here)
    assert not trial.held() & set(made)
    assert trial.until_done().status == "done"


def test_a_peer_of_a_job_within_does_not_speak_as_its_aggregator():
    trial = _Trial("p0", "p1", "p2", "p3", _LIAR, silent=False)
    job, here = trial.until_one_runs(_LIAR)
    while job.document.treatment.aggregator == _LIAR:
        trial.world.run_until(trial.world.now + 0.1)
        job, here = trial.until_one_runs(_LIAR)
    made = trial.lie(job, here)
    assert not trial.held() & set(made)
    assert trial.until_done().status == "done"
