"""A liar that publishes turns of a repeated job of its own making; and peers that were away, which believe true ones."""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b

import msgpack
import numpy as np
import pytest
from tests.liars.lab import fleet, submit

from p2pclust.peer.core.document import CENSUS, Document, Turn
from p2pclust.peer.core.spread.facts import JOB, SERIES
from p2pclust.protocols.engine.compose import cluster_job

pytestmark = pytest.mark.slow

_LIAR = "p4"
_HONEST = ("p0", "p1", "p2", "p3")
_EVERY_S = 4.0


class _Trial:
    """Five peers, the last of which lies, and one series."""

    def __init__(self, *, every_s=_EVERY_S, max_rounds=3):
        rng = np.random.default_rng(5)
        rows = [rng.normal(20 * (k % 3), 5, (40, 2)) for k in range(5)]
        self.world, self.ears = fleet(rows, me=_LIAR, timing="fast")
        job = cluster_job("llf-cm", n_clusters=3, init="uniform", tol=0.0, max_rounds=max_rounds)
        submit(self.world, job, at="p1", every_s=every_s, collect="star")
        (self.series,) = {turn.series for turn in self.turns("p1")}

    def turns(self, name):
        """The turns that a peer keeps, oldest first."""
        core = self.world.peers[name].core
        found = [d for d in core.jobs.table.documents.values() if d.turn is not None and not d.census]
        return sorted(found, key=lambda document: document.number)

    def newest(self, name="p0"):
        return self.turns(name)[-1]

    def ended(self, name, number):
        core = self.world.peers[name].core
        turns = self.turns(name) if core is not None else []
        return any(d.number == number and core.jobs.table.ended(d.id) for d in turns)

    def until_ended(self, number, *names):
        reached = lambda: all(self.ended(name, number) for name in names or _HONEST)  # noqa: E731
        assert self.world.run_until(self.world.now + 90.0, reached), (number, {n: self.newest(n).number for n in names})

    def publish(self, data, key="", wait_s=1.0):
        """The liar publishes a document as a fact of its own."""
        self.world.peers[_LIAR].core.facts.publish(key or SERIES + self.series, data)
        self.world.run_until(self.world.now + wait_s)

    def running(self, job):
        jobs = [self.world.peers[name].core.jobs.jobs.get(job) for name in _HONEST]
        return all(job is not None and job.ledger.register.round >= 2 for job in jobs)

    def begun(self):
        """The jobs that honest peers have begun."""
        return {str(fields["job"]) for _, name, verb, fields in self.ears.reports if verb == "job" and name != _LIAR}


def _made_up(of: Document, number: int, roster=None, **changed) -> Document:
    """A turn of the liar's own making."""
    stores = dict(zip(of.roster, of.store_ids, strict=True))
    names = tuple(sorted(roster or of.roster))
    turn = Turn(of.series, number, of.turn.fixed)
    changed = {"submitter": _LIAR, "nonce": "made-up"} | changed
    return replace(of, turn=turn, roster=names, store_ids=tuple(stores[name] for name in names), **changed)


@pytest.mark.parametrize("roster", [(_LIAR,), ("p0", _LIAR), None], ids=["alone", "two", "all"])
@pytest.mark.parametrize("steps", [0, 1, 1000], ids=["same", "next", "far"])
def test_a_turn_that_no_census_agreed_on_replaces_nothing(roster, steps):
    trial = _Trial()
    trial.until_ended(0)
    made = _made_up(trial.newest(), steps, roster, treatment=replace(trial.newest().treatment, aggregator=_LIAR))
    trial.publish(made.encode())
    assert made.id not in trial.begun()
    trial.until_ended(1)
    trial.until_ended(2)
    assert made.id not in trial.begun()


def test_a_running_turn_is_not_replaced():
    trial = _Trial(max_rounds=400)
    running = trial.newest()
    assert trial.world.run_until(trial.world.now + 30.0, lambda: trial.running(running.id))
    trial.publish(_made_up(running, 7, (_LIAR,)).encode())
    assert all(running.id in trial.world.peers[name].core.jobs.jobs for name in _HONEST)


@pytest.mark.parametrize("repeated", [True, False], ids=["of a series", "without a turn"])
def test_a_census_cannot_be_published(repeated):
    """Its states are not checked; and without a turn the peer that was elected in it once failed an assertion, and ended."""
    trial = _Trial(every_s=60.0)
    trial.until_ended(0)
    last, begun = trial.newest(), trial.begun()
    made = _made_up(last, 1, ("p0", "p1", _LIAR))
    if not repeated:
        made = replace(made, turn=None, treatment=replace(made.treatment, every_s=0.0))
    data = msgpack.packb([CENSUS, *msgpack.unpackb(made.encode())[1:]])
    key = SERIES + trial.series if repeated else f"{JOB}job-{blake2b(data, digest_size=16).hexdigest()}"
    trial.publish(data, key, wait_s=10.0)
    assert trial.begun() == begun


# -- and true ones are believed ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("missed", [1, 3])
@pytest.mark.parametrize("lost", [False, True], ids=["store", "lost store"])
def test_a_peer_that_was_away_takes_part_again(missed, lost):
    trial = _Trial()
    trial.until_ended(0)
    trial.world.crash("p2")
    others = [name for name in _HONEST if name != "p2"]
    trial.until_ended(missed, *others)
    if lost:
        trial.world.wipe("p2")
    trial.world.start("p2")
    trial.until_ended(missed + 2, *others)
    assert trial.newest("p2").number >= missed + 1
    trial.until_ended(trial.newest("p0").number, *_HONEST)
