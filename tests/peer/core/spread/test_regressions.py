"""What once went wrong with large states and contributions, one test per fault, told in a user's terms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from harness import Net, alone, toy

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.core import StoreContents
from p2pclust.peer.core.effects import Compute, DropBlob, Send
from p2pclust.peer.core.job_messages import Adopted, Close, Open, StaleTerm
from p2pclust.peer.core.messages import BlobChunk, BlobRequest, Message
from p2pclust.peer.core.spread.blobs import Blobs
from p2pclust.peer.core.timing import PRESETS, Limits
from p2pclust.protocols.engine.workspace import digest_of

SMALL = Limits(inline_bytes=64, chunk_bytes=32, blob_bytes=10_000)
ROUNDS = (Open, Adopted)
GOOD = b"x" * 64
DIGEST = digest_of(GOOD)


def machine() -> tuple[Context, Blobs]:
    context = Context("p1", PRESETS["fast"], SMALL, np.random.default_rng(0), "s")
    return context, Blobs(context, {}, frozenset())


def asked(context: Context) -> list[Message]:
    """The requests since the last call."""
    effects, context.effects = context.effects, []
    return [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, BlobRequest)]


def elected(*held: type[Message], job: bytes | None = None) -> tuple[Net, str, str, str]:
    """A fleet of large states: with the job, its elected aggregator and one of its followers."""
    net = Net(3, limits=SMALL, manual=lambda message: isinstance(message, held))
    net.meet()
    job_id = net.submit("p1", job or toy(50, pad=200))
    net.until(lambda: net.aggregator(job_id) != "")
    aggregator = net.aggregator(job_id)
    return net, job_id, aggregator, next(name for name in net.names if name != aggregator)


def fetched(net: Net, name: str) -> set[bytes]:
    """The blobs that a peer asks for, again and again, while nothing comes."""
    before = len(net.sent)
    net.advance(3 * net.timing.chunk_timeout_s)
    return {p.message.digest for p in net.sent[before:] if p.source == name and isinstance(p.message, BlobRequest)}


def kept(net: Net, name: str) -> set[bytes]:
    """The blobs on a peer's disk."""
    return set(net.peers[name].disk.load().blobs)


def made_up(i: int) -> bytes:
    return digest_of(b"made up %d" % i)


# -- pulls ------------------------------------------------------------------------------------------------------------


def test_asking_again_while_a_worker_hashes_starts_nothing() -> None:
    """The open of a large state is repeated while the state is being checked: nobody fetches it twice."""
    context, blobs = machine()
    blobs.pull(DIGEST, 64, ["p2"])
    for index in (0, 1):
        blobs.receive("p2", BlobChunk(DIGEST, index, (GOOD[:32],)))
    asked(context)
    blobs.pull(DIGEST, 64, ["p3"])
    assert asked(context) == []
    assert context.timers.next_at == float("inf")
    blobs.verified(DIGEST, True)
    assert blobs.has(DIGEST)


def test_a_blob_that_came_damaged_is_fetched_again_whoever_asked_meanwhile() -> None:
    """One peer gave wrong bytes: the right ones are fetched from another."""
    context, blobs = machine()
    blobs.pull(DIGEST, 64, ["p2"])
    for index in (0, 1):
        blobs.receive("p2", BlobChunk(DIGEST, index, (b"y" * 32,)))
    blobs.pull(DIGEST, 64, ["p3"])
    blobs.verified(DIGEST, False)
    asked(context)
    blobs.pull(DIGEST, 64, ["p3"])
    assert asked(context) == [BlobRequest(DIGEST, 0), BlobRequest(DIGEST, 1)]


def test_a_wrong_size_does_not_spoil_the_fetch_with_the_right_one() -> None:
    """Somebody lies about the size of a state: told the right one, it arrives."""
    context, blobs = machine()
    blobs.pull(DIGEST, 96, ["p2"])
    blobs.receive("p2", BlobChunk(DIGEST, 0, (GOOD[:32],)))
    asked(context)
    blobs.pull(DIGEST, 64, ["p3"])
    assert DropBlob(DIGEST) in context.effects
    assert asked(context) == [BlobRequest(DIGEST, 0), BlobRequest(DIGEST, 1)]
    blobs.receive("p2", BlobChunk(DIGEST, 2, (GOOD[:32],)))
    for index in (0, 1):
        blobs.receive("p3", BlobChunk(DIGEST, index, (GOOD[:32],)))
    assert [e.task.kind for e in context.effects if isinstance(e, Compute)] == ["hash"]
    blobs.verified(DIGEST, True)
    assert blobs.has(DIGEST)


def test_what_was_dropped_while_a_worker_hashed_it_is_not_here() -> None:
    """The check of a state ends after the state was given up: nobody is promised bytes that are gone."""
    context, blobs = machine()
    blobs.pull(DIGEST, 64, ["p2"])
    for index in (0, 1):
        blobs.receive("p2", BlobChunk(DIGEST, index, (GOOD[:32],)))
    blobs.keep_only(frozenset(), unfinished=True)
    assert DropBlob(DIGEST) in context.effects
    blobs.verified(DIGEST, True)
    assert not blobs.has(DIGEST)


@pytest.mark.parametrize("size", [-1, 0, SMALL.blob_bytes + 1, 2**62])
def test_a_size_that_no_blob_has_is_not_fetched(size: int) -> None:
    """Neither nothing nor too much is asked for, and no timer waits for it."""
    context, blobs = machine()
    blobs.pull(DIGEST, size, ["p2"])
    assert context.effects == []
    assert context.timers.next_at == float("inf")


def test_what_was_never_hashed_is_hashed_after_a_restart() -> None:
    """A crash between the last chunk and its check: only what a register names is taken as whole."""
    disk: dict[bytes, tuple[int, tuple[int, ...]]] = {DIGEST: (2, (0, 1)), digest_of(b"other"): (2, (0, 1))}
    core = alone(stored=StoreContents("store-p1", 1, {}, disk), limits=SMALL)
    assert not core.blobs.has(DIGEST)
    context, _ = machine()
    blobs = Blobs(context, disk, frozenset([DIGEST]))
    assert blobs.has(DIGEST)
    blobs.pull(digest_of(b"other"), 64, ["p2"])
    assert asked(context) == [], "both chunks are here"
    assert not blobs.has(digest_of(b"other"))


# -- what goes when it is not needed any more ---------------------------------------------------------------------------


def test_a_finished_job_leaves_nothing_but_its_result() -> None:
    """Twenty rounds of large states and contributions: the disk holds the last state only."""
    net = Net(3, limits=SMALL)
    net.meet()
    job = net.submit("p1", toy(20, pad=200))
    net.until(lambda: len(net.finished(job)) == 3)
    net.advance(1)
    final = net.job("p1", job).ledger.register.ref
    assert final is not None
    assert {name: kept(net, name) for name in net.names} == {name: {final.digest} for name in net.names}


@pytest.mark.slow
def test_the_disk_does_not_grow_with_the_rounds() -> None:
    """While a long job of large states runs, a peer keeps a handful of blobs, however many rounds there were."""
    net = Net(3, limits=SMALL)
    net.meet()
    job = net.submit("p1", toy(60, pad=200))
    most = 0
    while len(net.finished(job)) < 3:
        net.advance(net.timing.heartbeat_s)
        most = max(most, *(len(kept(net, name)) for name in net.names))
    assert most <= 2 + len(net.names)


def test_a_fetch_that_was_overtaken_ends() -> None:
    """A large state is on its way when the next round's small one comes: nobody asks for the old one any more."""
    net, job, aggregator, follower = elected(BlobRequest)
    net.advance(0.1)
    net.manual = lambda message: False
    net.lost = lambda p: isinstance(p.message, (BlobChunk, Open))
    assert fetched(net, follower)
    term, state = net.job(aggregator, job).ledger.term, b"s1[0]"
    net.arrive(aggregator, follower, Open(job, term, 1, digest_of(state), len(state), False, -1, (state,)))
    assert net.job(follower, job).ledger.register.round == 1
    assert fetched(net, follower) == set()


def test_the_contributions_of_a_term_that_ended_are_no_longer_fetched() -> None:
    """A deposed aggregator stops fetching what only an aggregator needs."""
    net, job, aggregator, follower = elected(BlobChunk)
    for _ in range(20):
        net.deliver(lambda p: p.target != aggregator)  # the followers get the state; their contributions are on the way
        net.advance(0.02)
    net.lost = lambda p: isinstance(p.message, Open)
    assert len(fetched(net, aggregator)) == 2
    net.arrive(follower, aggregator, StaleTerm(job, net.job(aggregator, job).ledger.term + 1))
    assert fetched(net, aggregator) == set()


def test_a_combination_that_ends_after_its_term_leaves_nothing_behind() -> None:
    """An aggregator is deposed while its worker combines: the state that nobody opens is not kept."""
    net = Net(3, limits=SMALL)
    net.meet()
    net.hold_work = lambda name, effect: effect.task.kind == "combine"
    job = net.submit("p1", toy(5, pad=200))
    net.until(lambda: bool(net.tasks))
    aggregator = net.tasks[0][0]
    other = next(name for name in net.names if name != aggregator)
    net.arrive(other, aggregator, StaleTerm(job, net.job(aggregator, job).ledger.term + 1))
    before = kept(net, aggregator)
    net.do_work()
    assert kept(net, aggregator) <= before


def test_two_jobs_with_the_same_states_do_not_take_them_from_one_another() -> None:
    """The same job is handed in twice: one that is a round ahead leaves the other its state."""
    net = Net(3, limits=SMALL, manual=lambda message: isinstance(message, Adopted))
    net.meet()
    jobs = []
    for name in ("p1", "p2"):
        jobs.append(net.submit(name, toy(5, pad=200)))
        net.until(lambda: net.aggregator(jobs[-1]) != "")
        net.advance(0.1)
    net.deliver(lambda p: isinstance(p.message, Adopted) and p.message.job == jobs[0])
    net.advance(0.1)
    assert all(net.states(jobs[1]).values())
    net.manual = lambda message: False
    net.deliver()
    net.until(lambda: all(len(net.finished(job)) == 3 for job in jobs))
    assert [set(net.states(job).values()) for job in jobs] == [{"s5[0,1,2]"}] * 2


def test_two_peers_may_contribute_the_very_same_bytes() -> None:
    """Equal data, equal large contributions: one fetch, and both count."""
    net = Net(3, limits=SMALL, manual=lambda message: isinstance(message, (*ROUNDS, BlobRequest)))
    net.meet()
    job = net.submit("p1", toy(5), aggregator="p1")
    same = b"c" * 100
    digest = digest_of(same)
    for name in ("p2", "p3"):
        net.arrive(name, "p1", Adopted(job, 1, 0, digest_of(b"s0"), f"store-{name}", "", digest, len(same), ()))
    for index in range(4):
        net.arrive("p2", "p1", BlobChunk(digest, index, (same[32 * index : 32 * index + 32],)))
    assert net.verbs("combined")[0][1]["contributors"] == ["p1", "p2", "p3"]
    assert net.states(job)["p1"] == "s1[0,1,2]"


def test_a_late_worker_finds_the_state_gone_and_abstains() -> None:
    """A peer is so slow that its round is over when it begins to compute: it takes part in the rounds that follow."""
    net = Net(3, limits=SMALL)
    net.meet()
    net.hold_work = lambda name, effect: name == "p3" and effect.task.kind == "contribute"
    job = net.submit("p1", toy(5, pad=200), aggregator="p1", missing="drop", deadline_s=0.3)
    net.until(lambda: net.job("p3", job).ledger.register.round >= 1)
    net.hold_work = lambda name, effect: False
    net.do_work()
    net.until(lambda: len(net.finished(job)) == 3)
    assert net.verbs("combined")[-1][1]["contributors"] == ["p1", "p2", "p3"]


# -- what a peer that lies can make others fetch -------------------------------------------------------------------------


def test_a_hundred_contributions_are_one_fetch() -> None:
    """A peer names ever new large contributions to one round: its last word counts, the others are forgotten."""
    net, job, aggregator, liar = elected(*ROUNDS)
    register = net.job(aggregator, job).ledger.register
    assert register.ref is not None
    right = Adopted(job, register.term, register.round, register.ref.digest, f"store-{liar}", "", b"", 9000, ())
    for i in range(100):
        net.arrive(liar, aggregator, replace(right, contribution=made_up(i)))
    assert fetched(net, aggregator) == {made_up(99)}


def test_a_hundred_opens_are_one_fetch() -> None:
    """An aggregator opens ever new large states: only the newest is fetched."""
    net, job, liar, follower = elected(*ROUNDS)
    term = net.job(follower, job).ledger.term
    net.lost = lambda p: isinstance(p.message, Open)
    for i in range(100):
        net.arrive(liar, follower, Open(job, term, i + 1, made_up(i), 9000, False, -1, ()))
    assert fetched(net, follower) == {made_up(99)}


def test_a_hundred_ends_are_one_fetch() -> None:
    """Somebody tells ever new final states: only the last one told is fetched."""
    net, job, liar, follower = elected(*ROUNDS)
    net.flight.clear()
    for i in range(100):
        net.arrive(liar, follower, Close(job, 1, i + 1, made_up(i), 9000, ()))
    assert fetched(net, follower) == {made_up(99)}
    assert net.finished(job) == []
