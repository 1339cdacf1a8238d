"""One peer's side of a job without an aggregator: the words it says, and what it does not believe."""

from __future__ import annotations

from dataclasses import replace

import msgpack
import numpy as np
import pytest

from p2pclust.lab.simulation.checks.invariants import Invariants
from p2pclust.lab.simulation.world.network import Conditions, Network
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.lab.simulation.world.world import World
from p2pclust.peer.core.codec import decode, encode
from p2pclust.peer.core.events import Arrived, Submit
from p2pclust.peer.core.gossip.job import GossipJob
from p2pclust.peer.core.job_messages import AskState, Close, HeldState, Join, Mix
from p2pclust.peer.core.messages import Message
from p2pclust.peer.core.reports import Report
from p2pclust.peer.core.tasks import CloseGossipRound, GossipToken, StateInfo, StateMade
from p2pclust.peer.core.timing import Limits, preset
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.workspace import digest_of
from p2pclust.protocols.gossip.averaging import Tick

pytestmark = pytest.mark.slow

NAMES = ("p0", "p1", "p2", "p3")


def a_world(limits: Limits | None = None, **submit: object) -> tuple[World, str]:
    """Four peers on a line, with a job handed in and not begun."""
    rng = np.random.default_rng(1)
    locals_ = {name: Local(rng.normal(size=(12, 2)) + 6 * rng.integers(0, 3, (12, 1))) for name in NAMES}
    overlay = {"p0": ("p1",), "p1": ("p0", "p2"), "p2": ("p1", "p3"), "p3": ("p2",)}
    network = Network(Conditions((0.001, 0.003)), np.random.default_rng(2))
    world = World(
        locals_, network, preset("fast"), limits or Limits(), np.random.default_rng(3), (Invariants(),), None, overlay
    )
    for name in NAMES:
        world.start(name)
    assert world.run_until(30.0, lambda: all(p.core is not None and _knows(p) for p in world.peers.values()))
    job = cluster_job("llf-fcm", n_clusters=3, max_rounds=4, tol=0.0, seed=0)
    event = Submit(msgpack.packb(job.to_dict()), treatment=Treatment(collect="gossip", gossip_tolerance=1e-6))
    world.step(world.peers["p0"], replace(event, **submit))
    assert world.run_until(world.now + 30.0, lambda: all(_jobs(p) for p in world.peers.values()))
    (job_id,) = _jobs(world.peers["p0"])
    return world, job_id


def _knows(peer: Peer) -> bool:
    return peer.core is not None and all(peer.core.membership.store_id(name) for name in NAMES)


def _jobs(peer: Peer) -> list[str]:
    return [] if peer.core is None else list(peer.core.jobs.jobs)


def the_job(world: World, name: str, job_id: str) -> GossipJob:
    core = world.peers[name].core
    assert core is not None
    job = core.jobs.jobs[job_id]
    assert isinstance(job, GossipJob)
    return job


def all_finished(world: World, job_id: str) -> bool:
    return all(the_job(world, name, job_id).ledger.finished for name in NAMES)


def say(world: World, source: str, target: str, message: Message) -> None:
    """As if it had come over the wire."""
    world.step(world.peers[target], Arrived(source, decode(encode(message))))


def test_it_finishes_and_answers_late_questions_with_the_result() -> None:
    world, job_id = a_world()
    assert world.run_until(world.now + 60.0, lambda: all_finished(world, job_id))
    digests = {the_job(world, name, job_id).ledger.register.ref.digest for name in NAMES}  # type: ignore[union-attr]
    assert len(digests) == 1
    heard: list[Message] = []
    job = the_job(world, "p1", job_id)
    job._ctx.send = lambda to, message, bulk=False: heard.append(message)  # type: ignore[method-assign]
    say(world, "p0", "p1", Join(job_id, 0))
    say(world, "p0", "p1", AskState(job_id, 0))
    assert [type(message) for message in heard] == [Close, Close]


def test_states_that_are_blobs_are_handed_over_too() -> None:
    world, job_id = a_world(Limits(inline_bytes=200, chunk_bytes=128))
    assert world.run_until(world.now + 1.0, lambda: the_job(world, "p3", job_id).ledger.register.round >= 2)
    world.crash("p3")
    world.run_until(world.now + 3.0)
    world.start("p3")
    assert world.run_until(world.now + 60.0, lambda: all_finished(world, job_id))


@pytest.mark.parametrize(
    "word",
    [
        b"nonsense",
        Tick(0, np.array([1.0, 1.0]), 1.0).encode(),
        Tick(5, None, 0.0).encode(),
    ],
)
def test_a_word_that_is_none_is_named_and_replaced_by_a_better_one(word: bytes) -> None:
    world, job_id = a_world()
    job = the_job(world, "p0", job_id)
    assert job._entry is not None
    assert job.circles.circle is not None
    entry, at = job._entry, job._exchange.at
    reports: list[str] = []
    report = job._ctx.report

    def watch(one: Report) -> None:
        reports.append(one.verb)
        report(one)

    job._ctx.report = watch  # type: ignore[method-assign]
    for ahead in range(3):  # whichever tick it is at when its own word is ready
        lie = Mix(
            job_id, 0, job.circles.circle.mask, entry.epoch, entry.round, entry.digest, at[0], at[1] + ahead, -1, -1, (word,)
        )  # fmt: skip
        say(world, "p1", "p0", lie)
    assert world.run_until(world.now + 60.0, lambda: all_finished(world, job_id))
    assert "malformed" in reports


def test_who_keeps_back_what_others_say_is_found_out() -> None:
    world, job_id = a_world()
    job = the_job(world, "p0", job_id)
    assert job._round is not None or world.run_until(world.now + 5.0, lambda: job._round is not None)
    assert job._round is not None
    assert job._entry is not None
    at, empty = job._exchange.at, Tick().encode()
    for ahead in range(3):
        assert job.circles.circle is not None
        lie = Mix(
            job_id, 0, job.circles.circle.mask, 0, job._entry.round, job._entry.digest, at[0], at[1] + ahead, *at, (empty,)
        )  # fmt: skip
        say(world, "p1", "p0", lie)
        at = (at[0], at[1])
    assert job.circles.circle is not None
    assert job.circles.circle.epoch > 0, "another circle, and the round anew"
    assert world.run_until(world.now + 60.0, lambda: all_finished(world, job_id))


def test_random_words_of_a_roster_peer_break_nothing() -> None:
    world, job_id = a_world()
    rng = np.random.default_rng(7)
    for number in range(400):
        target = NAMES[int(rng.integers(4))]
        source = NAMES[int(rng.integers(4))]
        if source == target:
            continue
        numbers = [int(x) for x in rng.integers(-1, 6, 7)]
        digest = rng.bytes(32) if rng.random() < 0.5 else b""
        mask = rng.bytes(int(rng.integers(0, 3)))
        word = (rng.bytes(int(rng.integers(1, 40))),) if rng.random() < 0.7 else ()
        kinds: list[Message] = [
            Mix(job_id, 0, mask, numbers[0], numbers[1], digest, *numbers[2:6], word),
            Join(job_id, numbers[0]),
            AskState(job_id, 0),
            HeldState(job_id, 0, numbers[0], numbers[1], digest, len(word[0]) if word else 5, word),
        ]
        say(world, source, target, kinds[int(rng.integers(len(kinds)))])
        if number % 20 == 0:
            world.run_until(world.now + 0.02)
    assert world.run_until(world.now + 120.0, lambda: all_finished(world, job_id))


def test_a_state_that_is_none_is_asked_for_once() -> None:
    world, job_id = a_world()
    job = the_job(world, "p0", job_id)
    assert job._entry is not None
    for data in (b"no state", b"\x9a"):
        say(world, "p1", "p0", HeldState(job_id, 0, 99, 99, digest_of(data), len(data), (data,)))
        world.run_until(world.now + 0.05)
    say(world, "p1", "p0", HeldState(job_id, 0, 99, 99, b"x" * 32, 4, (b"fake",)))
    assert job._taken is None
    assert world.run_until(world.now + 60.0, lambda: all_finished(world, job_id))


def test_a_state_of_another_is_entered_at_once_and_the_words_of_the_own_one_are_dropped() -> None:
    world, job_id = a_world()
    job = the_job(world, "p0", job_id)
    assert world.run_until(world.now + 5.0, lambda: job._exchange.at[0] >= 1 and bool(job._exchange._said))
    assert job.circles.circle is not None
    data = b"state"
    say(world, "p1", "p0", HeldState(job_id, job.circles.circle.epoch, 99, 99, digest_of(data), len(data), (data,)))
    assert job._exchange.at == (99, 0)
    assert job._exchange._said == []


def test_a_state_that_was_made_in_an_older_epoch_is_dropped() -> None:
    world, job_id = a_world()
    job = the_job(world, "p0", job_id)
    assert world.run_until(world.now + 5.0, lambda: job.ledger.register.round >= 1 and job._round is not None)
    assert job._held is not None
    ref = job._held.ref
    before = job.ledger.register.position
    job._round = None
    made = StateMade(ref, StateInfo(final=False))
    job.computed(GossipToken(job_id, CloseGossipRound.kind, ref.digest, within="-1"), made)
    assert job.ledger.register.position == before
    job.computed(GossipToken(job_id, CloseGossipRound.kind, ref.digest, within="0"), made)
    assert job.ledger.register.position == (0, before[1] + 1)


def test_a_roster_without_links_between_its_peers_is_refused() -> None:
    with pytest.raises(AssertionError):
        a_world(roster=("p0", "p2"))


def test_who_comes_back_waits_for_its_neighbours() -> None:
    """The others it believes alive, as long as no peer says otherwise."""
    world, job_id = a_world()
    world.crash("p0")
    world.start("p0")
    assert the_job(world, "p0", job_id).standing() == ("joining", "", ["p1"])
