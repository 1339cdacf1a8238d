"""Jobs with secure sums under faults: nothing wrong comes of it, and the bits are those of the plain job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import msgpack
import numpy as np
import pytest
from swarm_seeds import counted

from p2pclust.lab.simulation.checks.invariants import Invariants
from p2pclust.lab.simulation.fleets.marks import Marks
from p2pclust.lab.simulation.fleets.run import planned
from p2pclust.lab.simulation.world.network import Conditions, Network
from p2pclust.lab.simulation.world.peer import Peer, paper_roster
from p2pclust.lab.simulation.world.world import Observer, World
from p2pclust.peer.core.codec import decode, encode
from p2pclust.peer.core.core import Core
from p2pclust.peer.core.effects import Compute, Effect
from p2pclust.peer.core.events import Cancel, Submit
from p2pclust.peer.core.job_messages import Pads
from p2pclust.peer.core.reports import Report
from p2pclust.peer.core.round_reports import Elected, OutOfReach, RoundCombined
from p2pclust.peer.core.rounds.job import AggregatedJob
from p2pclust.peer.core.rounds.round import Round
from p2pclust.peer.core.tasks import FinishRound, SecureInfo
from p2pclust.peer.core.timing import Limits, preset
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.workspace import digest_of
from p2pclust.transport.links import Lane


def test_seeds_differ_in_the_parameters_of_secure_sums() -> None:
    plans = [planned(seed, "secure") for seed in range(30)]
    jobs = [plan.jobs[0] for plan in plans]
    assert all(plan.n_peers >= 4 for plan in plans)
    assert {job.participation for job in jobs} == {1.0}
    assert {job.keepers for job in jobs} == {2, 3, 4}
    assert {job.burnt for job in jobs} == {"groups", "record"}
    assert {job.leave for job in jobs} == {"alone", "groups"}


@pytest.mark.swarms
@pytest.mark.timeout(600)
@pytest.mark.parametrize("overlay", [None, "sparse", "moving"])
def test_seeds_break_no_promise(overlay: str | None) -> None:
    n_seeds = 40
    counts = counted(range(n_seeds), "secure", overlay)
    assert counts["crash"] > n_seeds
    assert counts["finished"] > 0.8 * n_seeds
    if overlay == "moving":
        assert counts["link vanished"] > 4 * n_seeds


def test_a_liar_that_is_left_out_and_late_peers_that_may_not_join_leave_too_few() -> None:
    assert counted(range(11, 12), "secure")["failed rightly: secured"] == 1


def test_an_aggregator_that_asks_for_totals_again_lets_the_job_end() -> None:
    assert counted(range(33, 34), "secure", "moving")["done: secured"] == 1


class Waiting:
    """Five peers with a job with secure sums that waits for a dead keeper's key, and not all contexts are settled."""

    def __init__(self, missing: str) -> None:
        rng = np.random.default_rng(0)
        self.names = [f"p{i}" for i in range(5)]
        rows = {name: Local(rng.normal(size=(9, 2))) for name in self.names}
        self.marks = Marks()
        self.world = World(
            rows, Network(Conditions(), np.random.default_rng(1)), replace(preset("fast"), patience_s=2.0), Limits(),
            np.random.default_rng(2), (Invariants(), self.marks), keyed=True,
        )  # fmt: skip
        for name in self.names:
            self.world.start(name)
        assert self.until(lambda: all(core.membership.all_here() for core in self.cores()))
        self.world.workers.task_s = (0.3, 0.4)
        job = cluster_job("llf-cm", n_clusters=2, init="split-merge", secure=True)
        treatment = Treatment(missing, secure=True, aggregator="p0", keepers=5)
        self.world.step(self.world.peers["p0"], Submit(msgpack.packb(job.to_dict()), treatment=treatment))
        assert self.until(self.asks_keepers)
        self.world.crash("p4")
        assert self.until(lambda: self.info().pending)

    def until(self, met: Callable[[], bool]) -> bool:
        return self.world.run_until(self.world.now + 60.0, met)

    def cores(self) -> list[Core]:
        return [peer.core for peer in self.world.peers.values() if peer.core is not None]

    def opened(self) -> Round | None:
        core = self.world.peers["p0"].core
        job = None if core is None else core.jobs.jobs.get(self.marks.job)
        assert job is None or isinstance(job, AggregatedJob)
        return None if job is None or job.term is None else job.term._round

    def asks_keepers(self) -> bool:
        opened = self.opened()
        return opened is not None and opened.combining and not self.info().wants_keys

    def info(self) -> SecureInfo:
        opened = self.opened()
        return SecureInfo(True, ()) if opened is None or opened.info.secure is None else opened.info.secure

    def finished(self) -> bool:
        return all(core.jobs.jobs[self.marks.job].ledger.finished for core in self.cores())


@pytest.mark.parametrize("missing", ["all", "wait"])
def test_a_cancel_waits_for_no_key_of_a_dead_peer(missing: str) -> None:
    waiting = Waiting(missing)
    waiting.world.step(waiting.world.peers["p1"], Cancel(waiting.marks.job, "a person"))
    assert waiting.until(waiting.finished)


def test_a_revoked_peer_ends_a_job_that_would_wait_for_its_key() -> None:
    waiting = Waiting("all")
    for name in ("p0", "p1", "p2", "p3"):
        waiting.world.give_roster(name, paper_roster(1, waiting.names[:4]))
    assert waiting.until(waiting.finished)


class Fleet:
    """Five peers that run one job with secure sums, of which a test disturbs something."""

    def __init__(self, limits: Limits | None = None, **request: object) -> None:
        rng = np.random.default_rng(0)
        self.names = [f"p{i}" for i in range(5)]
        self.marks = Marks()
        self.world = World(
            {name: Local(rng.normal(size=(9, 2))) for name in self.names}, Network(Conditions(), np.random.default_rng(1)),
            replace(preset("fast"), patience_s=2.0), limits or Limits(), np.random.default_rng(2),
            (Invariants(), self.marks), keyed=True,
        )  # fmt: skip
        for name in self.names:
            self.world.start(name)
        assert self.until(lambda: all(core.membership.all_here() for core in self.cores()))
        self.world.workers.task_s = (0.05, 0.06)
        self.treatment = Treatment(**{"missing": "wait", "secure": True, "aggregator": "p0"} | request)  # type: ignore[arg-type]

    def submit(self) -> None:
        job = cluster_job("llf-cm", n_clusters=2, secure=True, max_rounds=3, suppress_singletons=False)
        self.world.step(self.world.peers["p0"], Submit(msgpack.packb(job.to_dict()), treatment=self.treatment))

    def until(self, met: Callable[[], bool], within_s: float = 300.0) -> bool:
        return self.world.run_until(self.world.now + within_s, met)

    def cores(self) -> list[Core]:
        return [peer.core for peer in self.world.peers.values() if peer.core is not None]

    def finished(self) -> bool:
        return all(self.marks.job in c.jobs.jobs and c.jobs.jobs[self.marks.job].ledger.finished for c in self.cores())

    def state(self) -> JobState:
        ref = self.cores()[0].jobs.jobs[self.marks.job].ledger.register.ref
        assert ref is not None
        assert ref.payload is not None
        return JobState.decode(ref.payload)


def released(fleet: Fleet) -> bool:
    """Return whether all keepers but the aggregator p0 have released their pads of one padded state."""
    jobs = [core.jobs.jobs.get(fleet.marks.job) for core in fleet.cores()[1:]]
    helds = [job.follower.keeper.held for job in jobs if isinstance(job, AggregatedJob)]
    return sum(held is not None for held in helds) >= 3


@pytest.mark.parametrize("what", ["revoked", "another key"])
def test_a_key_round_ends_where_no_other_peer_can_come(what: str) -> None:
    fleet = Fleet(cohort=5, keepers=3)
    fleet.world.workers.task_s = (0.3, 0.4)
    fleet.submit()
    assert fleet.until(lambda: bool(fleet.marks.job))
    names, renewed = (fleet.names[:4], {}) if what == "revoked" else (fleet.names, {"p4": "new"})
    for name in fleet.names[:4]:
        fleet.world.give_roster(name, paper_roster(1, names, renewed=renewed))
    fleet.world.crash("p4")
    if what == "another key":
        fleet.world.put_roster("p4", paper_roster(1, names, renewed=renewed))
        fleet.world.start("p4")
    assert fleet.until(fleet.finished)
    assert fleet.state().reason.startswith("secure sums: 4 peers can contribute, and 5 are needed (peer ")


def test_a_peer_that_is_revoked_while_the_sum_is_made_is_not_in_the_total() -> None:
    """The sum was made already, and its pads were asked for nevertheless."""
    fleet = Fleet(cohort=3, keepers=2)
    fleet.submit()
    padded: list[bytes] = []

    def sums() -> bool:
        core = fleet.world.peers["p0"].core
        assert core is not None
        job = core.jobs.jobs.get(fleet.marks.job)
        closing = None if job is None or job.term is None else job.term._secure._closing  # type: ignore[attr-defined]
        if closing is not None and closing.message is None and not padded:
            padded.append(closing.state.digest)
        return bool(padded)

    assert fleet.until(sums)
    fleet.world.give_roster("p0", paper_roster(1, fleet.names[:4]))
    assert fleet.until(lambda: all(core.jobs.jobs[fleet.marks.job].ledger.finished for core in fleet.cores()[:4]))
    assert all(4 not in record.contributors for record in fleet.state().log)


@pytest.mark.parametrize("missing", ["all", "wait"])
@pytest.mark.parametrize("limits", [Limits(), Limits(inline_bytes=50, chunk_bytes=64)], ids=["inline", "blobs"])
def test_a_keeper_that_computes_for_the_next_aggregator_is_not_silent(missing: str, limits: Limits) -> None:
    """Its task, and the check of its blob, take longer than the patience: one aggregator after the other once gave up."""
    fleet, done = Fleet(limits, missing=missing, cohort=3, keepers=4, burnt="record"), Counter[str]()
    fleet.submit()
    assert fleet.until(lambda: released(fleet))
    fleet.world.workers.task_s = (2.1, 2.2)
    fleet.world.crash("p0")

    class Watching(Observer):
        def effect(self, world: World, peer: Peer, effect: Effect) -> None:
            done[type(effect).__name__] += isinstance(effect, OutOfReach | Elected | RoundCombined)
            done["finished"] += isinstance(effect, Compute) and isinstance(effect.task, FinishRound)

    fleet.world.watch(Watching())
    if missing == "all":
        fleet.world.at(fleet.world.now + 20.0, lambda: fleet.world.start("p0"))
    assert fleet.until(lambda: done["RoundCombined"] > 0)
    assert (done["Elected"], done["finished"], done["OutOfReach"]) == (1, 1, 0)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["impossible peers", "garbage"])
def test_a_hostile_keeper_that_hands_over_costs_new_keys_only(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, released, handed = Fleet(cohort=3, keepers=2, burnt="record"), [], []
    transmit = World.transmit

    def lying(world: World, peer: Peer, target: str, frames: list[bytes], lane: Lane) -> bool:
        message = decode(frames)
        if isinstance(message, Pads) and not message.refusal:
            lies = target != "p0" and not handed
            (released if target == "p0" else handed).append(target)
            if lies:
                garbage = replace(message, payload=(b"garbage",), size_bytes=7, pads=digest_of(b"garbage"))
                message = replace(message, members=b"\xff\xff") if what == "impossible peers" else garbage
                frames = encode(message)
        return transmit(world, peer, target, frames, lane)

    monkeypatch.setattr(World, "transmit", lying)
    fleet.submit()
    assert fleet.until(lambda: bool(released))
    fleet.world.crash("p0")
    assert fleet.until(fleet.finished)
    assert fleet.state().status == "done", fleet.state().reason
    assert handed, "a keeper handed over what it had released"


@pytest.mark.slow
def test_pads_that_do_not_fit_cost_new_keys_and_no_round_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A keeper sends garbage to a living aggregator once: the round is not reported as combined until it is."""
    fleet = Fleet(cohort=3, keepers=2, burnt="record")
    lies: list[str] = []
    combined: list[int] = []
    transmit, note = World.transmit, Marks.effect

    def lying(world: World, peer: Peer, target: str, frames: list[bytes], lane: Lane) -> bool:
        message = decode(frames)
        if isinstance(message, Pads) and not message.refusal and not lies:
            lies.append(target)
            frames = encode(replace(message, payload=(b"garbage",), size_bytes=7, pads=digest_of(b"garbage")))
        return transmit(world, peer, target, frames, lane)

    def noting(marks: Marks, world: World, peer: Peer, effect: Effect) -> None:
        if isinstance(effect, Report) and effect.verb == "combined":
            combined.append(int(str(effect.fields["round"])))
        note(marks, world, peer, effect)

    monkeypatch.setattr(World, "transmit", lying)
    monkeypatch.setattr(Marks, "effect", noting)
    fleet.submit()
    assert fleet.until(fleet.finished)
    assert fleet.state().status == "done", fleet.state().reason
    assert lies == ["p0"]
    assert len(combined) == len(fleet.state().log)
