"""Lies that are believed today, as `docs/security.md` says."""

from __future__ import annotations

import numpy as np
import pytest
from tests.liars.lab import fleet, submit

from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.secure.pads import KeyPair

pytestmark = pytest.mark.slow

_LIAR = "p4"
_HONEST = ("p0", "p1", "p2", "p3")


class _Trial:
    """Five peers, the last of which lies, and one running job."""

    def __init__(self, *, secure=False, max_rounds=40, silent=True, **treatment):
        rng = np.random.default_rng(5)
        rows = [np.clip(rng.normal(20 * (k % 3), 5, (40, 2)), -50, 150) for k in range(5)]
        self.world, self.ears = fleet(rows, me=_LIAR)
        if not silent:
            self.world.forge = None
        box = ([-50.0, -50.0], [150.0, 150.0])
        job = cluster_job(
            "llf-cm", n_clusters=3, bounds=box, init="uniform", tol=0.0, max_rounds=max_rounds, secure=secure
        )  # fmt: skip
        self.id = submit(self.world, job, at="p1", secure=secure, **treatment)

    @property
    def jobs(self):
        return {name: self.world.peers[name].core.jobs.jobs[self.id] for name in _HONEST}

    def all_ended(self):
        return all(job.ledger.finished for job in self.jobs.values())

    def suspects(self):
        return {peer for job in self.jobs.values() for peer in job.suspicions}


def test_a_peer_whose_padded_numbers_are_wrong_is_named(monkeypatch):
    original = KeyPair.padded

    def padded(self, numbers, me, keepers, context):
        wrong = original(self, numbers, me, keepers, context).copy()
        wrong[-1] += np.uint64(me == 4)
        return wrong

    monkeypatch.setattr(KeyPair, "padded", padded)
    trial = _Trial(secure=True, silent=False, verify="all")
    trial.world.run_until(trial.world.now + 90.0, trial.all_ended)
    assert _LIAR in trial.suspects()
