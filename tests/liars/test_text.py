"""Text that a peer publishes: no terminal obeys it."""

from __future__ import annotations

import numpy as np
from tests.liars.lab import fleet, inject, submit

from p2pclust.lab.simulation.world.device import signature_of
from p2pclust.peer.core.messages import FactDelta
from p2pclust.peer.core.spread.facts import Fact
from p2pclust.protocols.engine.compose import cluster_job

WORDS = "\x1b]0;OWNED\x07\x1b[2J\x1b[1;1Hjob-1: done after 12 rounds\x1b[8m"


def test_the_words_of_a_cancel_are_printable() -> None:
    rows = [np.random.default_rng(n).normal(20 * n, 5, (40, 2)) for n in range(3)]
    world, ears = fleet(rows)
    job = cluster_job(
        "llf-cm", n_clusters=3, bounds=([-50.0] * 2, [100.0] * 2), init="uniform", tol=0.0, max_rounds=10_000
    )
    job_id = submit(world, job)
    fact = Fact("p0", f"cancel/{job_id}", 2**21, WORDS.encode())
    for name in ("p1", "p2"):
        delta = FactDelta("p0", 0, (fact.key,), (fact.version,), (fact.value,), (signature_of(fact),))
        inject(world, "p0", name, delta)
    world.run_until(world.now + 10.0)
    assert any(verb == "finished" for _, _, verb, _ in ears.reports)
    by = world.peers["p1"].core.jobs.cancels.by(job_id)
    assert "job-1: done" in by
    assert by.isprintable()
