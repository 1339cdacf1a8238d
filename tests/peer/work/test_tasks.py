"""What a worker does with states and contributions that are too large to be copied, and what it remembers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgpack
import numpy as np
import pytest

from p2pclust.peer.core.tasks import (
    AddUp,
    BeginJob,
    CombineRound,
    Contribute,
    Contributed,
    DescribeState,
    NoResult,
    Ref,
    StateMade,
    Task,
)
from p2pclust.peer.core.timing import Limits
from p2pclust.peer.work.states import BlobAccess, Memories
from p2pclust.peer.work.tasks import Life, perform
from p2pclust.protocols.engine import engine, summaries
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import run_in_process
from p2pclust.protocols.engine.workspace import digest_of

LIMITS = Limits(inline_bytes=100, chunk_bytes=1000)


def no_sync(digest: bytes) -> None:
    raise AssertionError("no blob is fetched here")


class Peers:
    """Two peers' workers, and one store for all blobs."""

    def __init__(self, **options: object) -> None:
        rng = np.random.default_rng(0)
        self.job = cluster_job("vertical-fcm", **({"n_clusters": 3, "tol": 0.0, "max_rounds": 4} | options))
        self.data = msgpack.packb(self.job.to_dict())
        self.locals = [Local(rng.normal(size=(90, 2))), Local(rng.normal(size=(90, 3)))]
        self.blobs: dict[bytes, bytes] = {}

    def read(self, digest: bytes) -> Iterator[bytes]:
        blob = self.blobs[digest]
        return (blob[start : start + 1000] for start in range(0, len(blob), 1000))

    def store(self, digest: bytes, data: Any, chunk_bytes: int) -> None:
        whole = b"".join(data[start : start + chunk_bytes] for start in range(0, len(data), chunk_bytes))
        assert digest_of(whole) == digest
        self.blobs[digest] = whole

    def do(self, task: Task, local: Local, memories: Memories | None = None, job_id: str = "") -> Ref:
        access = BlobAccess(self.read, self.store, no_sync, LIMITS)
        outcome = perform(task, local, access, Life(memories or Memories()), job_id)
        assert isinstance(outcome, StateMade | Contributed), outcome
        return outcome.ref

    def begin(self) -> Ref:
        return self.do(BeginJob(self.data, 2), self.locals[0])

    def round(self, state: Ref, memories: Memories, job_id: str = "") -> Ref:
        given = []
        for me, local in enumerate(self.locals):
            task = Contribute(self.data, 2, state, me)
            given.append(((me,), self.do(task, local, memories if me == 0 else None, job_id)))
        return self.do(CombineRound(self.data, 2, state, tuple(given)), self.locals[0], memories, job_id)

    def state(self, ref: Ref) -> JobState:
        return JobState.decode(self.blobs[ref.digest] if ref.payload is None else ref.payload)

    def run(self, forget_at: int = -1) -> JobState:
        ref, memories = self.begin(), Memories()
        for number in range(100):
            if self.state(ref).status != "running":
                break
            if number == forget_at:
                memories = Memories()
            ref = self.round(ref, memories)
        return self.state(ref)


def test_the_same_bits_as_in_process() -> None:
    peers = Peers()
    assert peers.run().encode() == run_in_process(peers.job, peers.locals).encode()


def test_a_new_life_remembers_nothing_and_says_so() -> None:
    state = Peers().run(forget_at=5)
    assert [record.forgot for record in state.log] == [False] * 5 + [True] + [False] * (state.round - 6)
    assert summaries.shifts(state)[1] is None


def test_a_state_that_is_in_the_store_is_not_written_again() -> None:
    peers = Peers()
    memories = Memories()
    ref = peers.begin()
    while peers.state(ref).stage < 2 or peers.state(ref).stage_round == 0:
        ref = peers.round(ref, memories)
    written: list[bytes] = []
    access = BlobAccess(peers.read, lambda digest, *_: written.append(digest), no_sync, LIMITS)
    outcome = perform(DescribeState(peers.data, 2, ref), peers.locals[0], access)
    assert isinstance(outcome, StateMade)
    assert (outcome.ref, outcome.info.asked, written) == (ref, (0, 1), [])


def test_a_blob_that_was_dropped_meanwhile_stops_nothing() -> None:
    peers = Peers()
    ref = Ref(b"d" * 32, 5000, None)
    peers.blobs[b"d" * 32] = b""
    access = BlobAccess(peers.read, peers.store, no_sync, LIMITS)
    outcome = perform(Contribute(peers.data, 2, ref, 0), peers.locals[0], access)
    assert isinstance(outcome, NoResult)
    assert "ends before it should" in outcome.reason


class TestMemories:
    def remembered(self) -> engine.Memory:
        return engine.Memory(np.zeros(3))

    def test_a_memory_belongs_to_the_state_that_came_of_its_round(self) -> None:
        memories, memory, job = Memories(), self.remembered(), Peers().job
        memories.keep("job", job, b"state", None, memory)
        assert memories.take("job", b"state") is memory
        assert memories.take("job", b"state").value is None, "it is used once"
        memories.keep("job", job, b"state", None, memory)
        assert memories.take("job", b"another").value is None

    def test_a_memory_of_a_state_that_is_past_is_a_burden(self) -> None:
        peers, memories = Peers(), Memories()
        first = peers.begin()
        second = peers.round(first, Memories())
        access = BlobAccess(peers.read, peers.store, no_sync, LIMITS)
        memories.keep("job", peers.job, first.digest, None, self.remembered())
        memories.state("job", peers.job, first, access)
        memories.state("other job", peers.job, second, access)
        assert memories.take("job", first.digest).value is not None
        memories.keep("job", peers.job, first.digest, None, self.remembered())
        memories.state("job", peers.job, second, access)
        assert memories.take("job", first.digest).value is None, "who closes another round has lost it"

    def test_few_are_kept(self) -> None:
        memories, job = Memories(), Peers().job
        for name in "12345":
            memories.keep(name, job, b"state", None, self.remembered())
        kept = [name for name in "12345" if memories.take(name, b"state").value is not None]
        assert kept == ["2", "3", "4", "5"]

    def test_a_state_that_this_peer_made_or_has_read_is_not_decoded_again(self) -> None:
        peers = Peers()
        peers.job = cluster_job("llf-cm", n_clusters=2, bounds=([-9.0, -9.0], [9.0, 9.0]), init=np.eye(2))
        peers.data, peers.locals = msgpack.packb(peers.job.to_dict()), [peers.locals[0]] * 2
        memories = Memories()
        ref = peers.round(peers.begin(), memories)
        unread = BlobAccess(lambda digest: iter([b"damaged"]), peers.store, no_sync, LIMITS)
        task = Contribute(peers.data, 2, Ref(ref.digest, ref.size_bytes, None), 0)
        assert isinstance(perform(task, peers.locals[0], unread, Life(memories)), Contributed)
        assert isinstance(perform(task, peers.locals[0], unread), NoResult)
        whole, memories = peers.blobs[ref.digest], Memories()
        came = Ref(ref.digest, ref.size_bytes, whole)
        found = memories.state("", peers.job, came, unread)
        assert found.encode() == whole
        assert memories.state("", peers.job, replace(came, payload=None), unread) is found
        assert memories.state("another", peers.job, came, unread) is not found

    def test_what_is_as_in_the_last_state_of_the_job_is_not_read_again(self) -> None:
        peers, memories = Peers(), Memories()
        peers.job = cluster_job("llf-cm", n_clusters=2, bounds=([-9.0, -9.0], [9.0, 9.0]), init=np.eye(2), tol=0.0)
        peers.data, peers.locals = msgpack.packb(peers.job.to_dict()), [peers.locals[0]] * 2
        access = BlobAccess(peers.read, peers.store, no_sync, LIMITS)
        first = peers.round(peers.begin(), Memories())
        second = peers.round(first, Memories())
        known, state = (
            memories.state("", peers.job, Ref(ref.digest, ref.size_bytes, peers.blobs[ref.digest]), access)
            for ref in (first, second)
        )
        assert state.arrays["scale"] is known.arrays["scale"]
        assert state.arrays["centers"] is not known.arrays["centers"]
        assert state.encode() == peers.blobs[second.digest]

    def test_two_jobs_with_the_same_mathematics_have_their_own(self) -> None:
        """Their states have the same bits, so a common memory would be taken by the first of them."""
        peers, memories = Peers(), Memories()
        refs = dict.fromkeys(("a", "b"), peers.begin())
        for _ in range(8):
            refs = {job_id: peers.round(ref, memories, job_id) for job_id, ref in refs.items()}
        for ref in refs.values():
            assert [record.forgot for record in peers.state(ref).log] == [False] * 8


@pytest.mark.parametrize("begins", [True, False])
def test_stages_that_need_secure_sums_end_no_peer_of_a_plain_job(begins: bool) -> None:
    peers = Peers()
    job = cluster_job("llf-cm", n_clusters=2, init="uniform", secure=True)
    data, began = msgpack.packb(job.to_dict()), engine.begin(job).encode()
    running = Ref(digest_of(began), len(began), began)
    task = BeginJob(data, 2) if begins else Contribute(data, 2, running, 0)
    access = BlobAccess(peers.read, peers.store, no_sync, LIMITS)
    outcome = perform(task, peers.locals[0], access, Life(Memories()), "job")
    assert isinstance(outcome, NoResult)
    assert "range-by-sums: needs secure sums" in outcome.reason


@pytest.mark.parametrize("protocol", ["k-fed", "vertical-fcm"])
def test_contributions_that_have_no_sum_are_not_added_up(protocol: str) -> None:
    """An aggregator that lies may open a tree all the same."""
    peers = Peers()
    if protocol == "k-fed":
        peers.job = cluster_job("k-fed", n_clusters=2)
        peers.data, peers.locals = msgpack.packb(peers.job.to_dict()), [peers.locals[0]] * 2
    state, given = peers.begin(), []
    for me, local in enumerate(peers.locals):
        given.append(((me,), peers.do(Contribute(peers.data, 2, state, me), local)))
    access = BlobAccess(peers.read, peers.store, no_sync, LIMITS)
    outcome = perform(AddUp(peers.data, 2, state, tuple(given)), peers.locals[0], access)
    assert outcome == NoResult("failed: contributions to this stage are not added up")
