"""Thousands of well-formed but wrong messages into living cores: nothing escapes, nothing falls, nothing grows.

They come from an enrolled peer that lies about everything (the shell vouches only for who it is) and from strangers.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from harness import Net, toy
from liar import LIAR, Liar

from p2pclust.peer.core.codec import decode, encode
from p2pclust.peer.core.events import Woken
from p2pclust.peer.core.job_messages import Adopted, Close, Open
from p2pclust.peer.core.ledger import Ledger
from p2pclust.peer.core.messages import FactDelta, FactDigest, Message, Relay
from p2pclust.peer.core.spread.facts import _MOST_BYTES as MOST_BYTES
from p2pclust.peer.core.timing import Limits
from p2pclust.protocols.engine.workspace import digest_of

HONEST, STRANGER = ("p1", "p2", "p3"), "zz"
SMALL = Limits(inline_bytes=64, chunk_bytes=32, blob_bytes=4096)


class Watch:
    """The promises that a ledger makes, checked after every step."""

    def __init__(self, net: Net) -> None:
        self.net = net
        self.terms: dict[str, int] = {}
        self.votes: dict[tuple[str, int], str] = {}
        self.positions: dict[str, tuple[int, int]] = {}

    def check(self, job: str) -> None:
        for name in HONEST:
            core = self.net.peers[name].core
            if core is None or job not in core.jobs.jobs:
                continue
            ledger: Ledger = core.jobs.jobs[job].ledger
            assert ledger.term >= self.terms.get(name, 0), f"{name}: term fell"
            self.terms[name] = ledger.term
            if ledger.voted_for:
                first = self.votes.setdefault((name, ledger.term), ledger.voted_for)
                assert first == ledger.voted_for, f"{name}: two votes in term {ledger.term}"
            if not ledger.finished:  # the end may be learnt from a peer of any term
                assert ledger.register.position >= self.positions.get(name, (0, 0)), f"{name}: register fell"
                self.positions[name] = ledger.register.position
            armed = core.wake_at < float("inf")
            assert armed, f"{name} waits without a timer"


def attack(net: Net, job: str, liar: Liar, n: int, *, watch: Watch) -> None:
    for i in range(n):
        target = str(liar.pick(*HONEST))
        liar.look_at(net, target)
        message = decode(encode(liar.message()))
        net.arrive(LIAR, target, message, via=str(liar.pick("", "", "", "p2" if target != "p2" else "p3")))
        watch.check(job)
        if i % 5 == 0:
            net.advance(float(liar.pick(0.0, 0.001, 0.01, 0.1)))
            watch.check(job)


def fleet(*, limits: Limits = Limits(), pad: int = 0) -> tuple[Net, str]:  # noqa: B008
    net = Net(4, limits=limits)
    net.meet()
    net.hold_work = lambda name, effect: effect.task.kind == "combine"
    job = net.submit("p1", toy(40, pad=pad))
    net.until(lambda: net.aggregator(job) != "")
    net.crash(LIAR)  # from now on the test speaks for it
    return net, job


def liar_of(net: Net, job: str, seed: int, *, ends: bool = False) -> Liar:
    ref = net.job("p1", job).ledger.register.ref
    return Liar(np.random.default_rng(seed), job, [ref.digest if ref else bytes(32)], ends=ends)


def bounded(net: Net, job: str) -> None:
    """What a core holds at most, whatever it was told: a roster of four, one job, one liar."""
    for name in HONEST:
        core, jobs = net.core(name), net.core(name).jobs
        assert list(jobs.jobs) == [job]
        machine = jobs.jobs[job]
        # An opened state, a final one, and of each peer one contribution.
        assert len(core.blobs._pulls) <= 2 + 4, "pulls"
        assert len(core.blobs._verifying) <= 2 + 4, "blobs that are hashed"
        assert len(net.peers[name].disk.load().blobs) <= 1 + 2 * (2 + 4), "blobs on disk"
        assert len(machine.follower._answers) <= 1 + 4, "answers: one if all are asked, one for each proposer"
        assert len(core.membership.members) == 3, "members"
        assert all(held.n_bytes <= MOST_BYTES for held in core.facts._held.values()), "facts of one owner"
        assert set(core.facts._held) <= {*HONEST, LIAR}, "owners"
        # Three of membership, gossip, a suspicion and two reminders per member, probes and helps on their way, anti-entropy,
        # three per job, and one per pull.
        assert len(core._ctx.timers._at) <= 3 + 1 + 3 * 3 + 40 + 1 + 3 + 6, "timers"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "limits", "ends"),
    [
        pytest.param(0, Limits(), False, id="small-states"),
        pytest.param(1, Limits(), False, id="small-states-again"),
        pytest.param(2, SMALL, False, id="large-states"),
        pytest.param(3, SMALL, False, id="large-states-again"),
        pytest.param(4, Limits(), True, id="a-liar-that-ends-the-job"),
        pytest.param(5, SMALL, True, id="a-liar-that-ends-a-job-of-large-states"),
    ],
)
def test_a_liar_on_the_roster_breaks_no_promise(seed: int, limits: Limits, ends: bool) -> None:
    """Nothing escapes `step`, no ledger goes back, and nothing that a core holds grows without a bound."""
    net, job = fleet(limits=limits, pad=200 if limits is SMALL else 0)
    liar = liar_of(net, job, seed, ends=ends)
    watch = Watch(net)
    for _ in range(10):
        attack(net, job, liar, 300, watch=watch)
        bounded(net, job)
    assert bool(net.finished(job)) == ends
    assert len(watch.terms) == len(HONEST)


def test_a_liar_breaks_no_promise_across_restarts() -> None:
    net, job = fleet()
    liar, watch = liar_of(net, job, 9), Watch(net)
    for i in range(1200):
        target = str(liar.pick(*HONEST))
        liar.look_at(net, target)
        net.arrive(LIAR, target, liar.message())
        if i % 7 == 0:
            net.advance(0.05)
        if i % 100 == 99:
            name = str(liar.pick(*HONEST))
            net.crash(name)
            net.start(name)
        watch.check(job)


@pytest.mark.parametrize("size", [1, 60_000])
def test_a_flood_of_facts_ends_at_the_limit(size: int) -> None:
    """One owner has a megabyte; further facts are reported once and not kept, and old keys still change."""
    net, _ = fleet()

    def tell(key: str, version: int, value: bytes) -> None:
        net.arrive(LIAR, "p1", FactDelta(LIAR, 0, (key,), (version,), (value,)))

    net.lost = lambda packet: isinstance(packet.message, (FactDigest, FactDelta))
    for i in range(2 * MOST_BYTES // (size + 256)):
        tell(f"job/{i}", i + 1, bytes(size))
    assert len(net.verbs("too-many-facts")) == 1
    held = net.core("p1").facts._held[LIAR]
    owned = held.by_key
    assert MOST_BYTES - size - 300 < sum(256 + len(key) + size for key in owned) == held.n_bytes <= MOST_BYTES
    tell("job/6", 10**6, bytes(size))
    assert owned["job/6"].version == 10**6


def test_facts_that_mean_nothing_are_not_kept() -> None:
    net, _ = fleet()
    net.lost = lambda packet: isinstance(packet.message, (FactDigest, FactDelta))
    before = len(net.sent)
    for i, key in enumerate(("x1", "job", "jobs/1", "kernels", "")):
        net.arrive(LIAR, "p1", FactDelta(LIAR, i, (key or "floors",), (i + 1,), (b"x",)))
    held = net.core("p1").facts
    assert not [fact for fact in held.everything() if fact.owner == LIAR]
    assert not [packet for packet in net.sent[before:] if isinstance(packet.message, FactDelta)]
    net.arrive(LIAR, "p1", FactDelta(LIAR, 5, ("fitness",), (6,), (b"100",)))
    assert held.get(LIAR, "fitness") is not None


@pytest.mark.slow
def test_a_flood_of_facts_in_the_victims_own_name_ends_at_the_limit() -> None:
    """Others return the facts that a peer published before it lost its store; a liar returns others."""
    net, _ = fleet()
    net.lost = lambda packet: True
    for first in range(0, MOST_BYTES // 256 + 700, 7):
        numbers = range(first, first + 7)
        keys = tuple(f"job/{i}" for i in numbers)
        net.arrive(LIAR, "p1", FactDelta("p1", 0, keys, tuple(i + 1 for i in numbers), (b"x",) * 7))
    assert net.core("p1").facts._held["p1"].n_bytes <= MOST_BYTES


@pytest.mark.parametrize(
    "version",
    [2**50, 2**59, 2**60 - 1, 2**60, 2**60 + 1, 2**62 - 5],
)
def test_a_version_at_the_end_of_all_numbers_does_not_silence_its_alleged_owner(version: int) -> None:
    """A liar returns facts with the highest numbers there are: what the peer says afterwards still reaches the others."""
    net, _ = fleet()
    for more in (0, 2, 2**21):
        versions = (min(version + more, 2**62),)
        net.arrive(LIAR, "p1", decode(encode(FactDelta("p1", 0, ("job/1",), versions, (b"x",)))))
    net.core("p1").facts.publish("job/news", b"new")
    net.step("p1", Woken())
    net.advance(5)
    assert all(net.core(name).facts.get("p1", "job/news") is not None for name in HONEST)


def test_a_stranger_changes_nothing_at_all() -> None:
    net, job = fleet()
    liar = liar_of(net, job, 5)
    before = [net.job(name, job).ledger.register for name in HONEST]
    for _ in range(1000):
        assert net.arrive(STRANGER, str(liar.pick(*HONEST)), liar.message()) == []
    assert [net.job(name, job).ledger.register for name in HONEST] == before
    assert net.flight == []


@pytest.mark.slow
def test_the_job_ends_when_the_liar_is_gone() -> None:
    """Lies of the kinds that an election survives do not stop the honest majority for good."""
    net, job = fleet()
    net.advance(
        net.timing.patience_s
    )  # in the first seconds of a life a lie about an earlier one costs a store its vote
    liar = liar_of(net, job, 3)
    for i in range(600):
        message = liar.message()
        # A liar that opens states of its own as an aggregator, or tells a false end, can spoil a result: not promised.
        if not isinstance(message, (Open, Close, Adopted, Relay)):
            net.arrive(LIAR, str(liar.pick(*HONEST)), message)
        if i % 20 == 0:
            net.advance(0.05)
    net.hold_work = lambda name, effect: False
    net.do_work()
    net.until(lambda: net.finished(job) == list(HONEST), limit_s=120)
    assert len({net.states(job)[name] for name in HONEST}) == 1


@dataclass
class Census:
    """How much a core holds: every container that is reachable from it, and its size."""

    total: int = 0
    largest: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, net: Net, name: str) -> Census:
        census, seen, queue = cls(), set(), [net.core(name)]
        while queue:
            thing: Any = queue.pop()
            if id(thing) in seen or isinstance(thing, (type, str, bytes, int, float)) or callable(thing):
                continue
            seen.add(id(thing))
            module = type(thing).__module__
            if isinstance(thing, (dict, list, set, tuple)):
                census.total += len(thing)
                queue += list(thing.values()) if isinstance(thing, dict) else list(thing)
            elif module.startswith("p2pclust"):
                queue += [r for r in gc.get_referents(thing) if not isinstance(r, type)]
        return census


@pytest.mark.slow
def test_what_a_liar_says_over_and_over_does_not_pile_up() -> None:
    """Beyond what has its own tests below: whatever is keyed by what the network sends must be bounded."""
    net, job = fleet()
    liar = liar_of(net, job, 11)

    def harmless(message: Message) -> bool:
        new_facts = isinstance(message, FactDelta) and message.keys[0].startswith("key-")
        return not new_facts and not isinstance(message, (Open, Close, Adopted))

    def storm(n: int) -> int:
        for i in range(n):
            message = liar.message()
            if harmless(message):
                net.arrive(LIAR, "p1", message)
            if i % 5 == 0:
                net.advance(0.02)
                liar.look_at(net, "p1")
        net.advance(2.0)
        return Census.of(net, "p1").total

    storm(500)
    before = storm(500)
    after = storm(2000)
    assert after <= before * 1.2 + 50


@pytest.mark.parametrize("changed", ["term", "round", "digest", "store_id"])
def test_answers_that_are_made_up_do_not_complete_a_round(changed: str) -> None:
    net, job = fleet()
    aggregator = net.aggregator(job)
    assert aggregator
    register = net.job(aggregator, job).ledger.register
    assert register.ref is not None
    right = Adopted(
        job, register.term, register.round, register.ref.digest, "store-p4", "", digest_of(b"c3"), 2, (b"c3",)
    )
    wrong = {"term": register.term + 1, "round": register.round + 1, "digest": bytes(32), "store_id": "another"}[
        changed
    ]
    before = len(net.tasks)
    for _ in range(50):
        net.arrive(LIAR, aggregator, replace(right, **{changed: wrong}))  # type: ignore[arg-type]
    assert len(net.tasks) <= before + 1
    assert net.finished(job) == []


@pytest.mark.parametrize("aggregator", [3, 4, 99])
def test_an_open_that_names_an_aggregator_off_the_roster_is_of_its_sender(aggregator: int) -> None:
    net = Net(3)
    net.meet()
    job = net.submit("p1", toy(3), aggregator="p1", collect="tree")
    net.until(lambda: all(name in net.finished(job) for name in HONEST))
    opened = next(p.message for p in net.sent if isinstance(p.message, Open) and p.target == "p2")
    assert isinstance(opened, Open)
    assert net.job("p2", job).asker("p1", replace(opened, aggregator=aggregator)) == "p1"
    assert net.job("p2", job).asker("p1", replace(opened, aggregator=2)) == "p3"
