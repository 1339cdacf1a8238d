"""The worker: what it tells the loop is on disk, and it lets the loop go first."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

import msgpack
import numpy as np
import pytest

from p2pclust.peer.core.effects import Compute
from p2pclust.peer.core.events import Computed
from p2pclust.peer.core.tasks import (
    AnswerToken,
    BeginJob,
    BlobHashed,
    BlobToken,
    Contribute,
    Contributed,
    HashBlob,
    NoResult,
    Outcome,
    Ref,
    StateTask,
    TermToken,
)
from p2pclust.peer.core.timing import Limits
from p2pclust.peer.shell.blob_files import BlobFiles
from p2pclust.peer.shell.compute import Worker
from p2pclust.peer.shell.shell import exit_code, explain
from p2pclust.peer.shell.store import Store
from p2pclust.peer.work.floor import Floor
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.workspace import digest_of

BLOB = bytes(range(256)) * 12


def perform(home: Path, *tasks: HashBlob, prepare: Callable[[Store], None] = lambda store: None) -> list[Computed]:
    """Let a worker do these tasks, one after another."""

    async def live() -> list[Computed]:
        loop, store, told = asyncio.get_running_loop(), Store(home), asyncio.Queue[Computed | BaseException]()
        prepare(store)
        worker = Worker(lambda: Local([[0.0], [1.0]]), store, Limits(), loop, told.put_nowait, told.put_nowait)
        try:
            done = []
            for task in tasks:
                worker.submit(Compute(BlobToken(task.digest), task))
                async with asyncio.timeout(60):
                    event = await told.get()
                assert isinstance(event, Computed), event
                done.append(event)
            return done
        finally:
            worker.close(20.0)
            store.close()

    return asyncio.run(live())


@pytest.mark.parametrize("good", [True, False])
def test_a_blob_that_was_fetched_is_on_disk_before_anybody_is_told_that_it_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, good: bool
) -> None:
    digest = digest_of(BLOB if good else b"something else")
    synced: list[bytes] = []
    monkeypatch.setattr(BlobFiles, "sync", lambda files, digest: synced.append(digest))

    def fetch(store: Store) -> None:
        store.blobs.store_chunk(digest, 0, 1, BLOB)

    (event,) = perform(tmp_path, HashBlob(digest), prepare=fetch)
    assert event.outcome == BlobHashed(good)
    assert synced == ([digest] if good else []), "bytes of another name are not worth it"


def test_the_floor_of_the_device_goes_with_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def note(task: BeginJob, local: Local, *rest: object) -> Outcome:
        asked.append(local.min_cell)
        return NoResult("noted")

    monkeypatch.setattr("p2pclust.peer.shell.compute.perform", note)

    async def live() -> None:
        loop, store, told = asyncio.get_running_loop(), Store(tmp_path), asyncio.Queue[Computed | BaseException]()
        worker = Worker(
            lambda: Local([[0.0]]), store, Limits(), loop, told.put_nowait, told.put_nowait, floor=Floor(min_cell=5)
        )
        try:
            worker.submit(Compute(TermToken("j", "begin", 1), BeginJob(b"", 1)))
            async with asyncio.timeout(60):
                await told.get()
        finally:
            worker.close(20.0)
            store.close()

    asyncio.run(live())
    assert asked == [5]


def test_rows_are_read_before_the_first_task_and_again_between_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [Local([[1.0]]), Local([[1.0], [2.0]])]
    worked_with: list[int] = []

    def note(task: BeginJob, local: Local, *rest: object) -> Outcome:
        worked_with.append(local.n_samples)
        return NoResult("noted")

    monkeypatch.setattr("p2pclust.peer.shell.compute.perform", note)

    async def live() -> None:
        loop, store, told = asyncio.get_running_loop(), Store(tmp_path), asyncio.Queue[Computed | BaseException]()
        worker = Worker(lambda: found.pop(0), store, Limits(), loop, told.put_nowait, told.put_nowait)
        for again in (False, False, True, False):
            if again:
                worker.reload()
            worker.submit(Compute(TermToken("j", "begin", 1), BeginJob(b"", 1)))
        async with asyncio.timeout(60):
            for _ in range(4):
                assert isinstance(await told.get(), Computed)
        worker.close(20.0)
        store.close()

    asyncio.run(live())
    assert worked_with == [1, 1, 2, 2]


def test_rows_that_could_not_be_read_are_tried_again_for_another_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unread = Local(np.empty((0, 0)))
    found = [unread, unread, Local([[1.0]])]
    worked_with: list[tuple[str, int]] = []

    def note(task: BeginJob, local: Local, *rest: object) -> Outcome:
        worked_with.append((task.mathematics.decode(), local.n_samples))
        return NoResult("noted")

    monkeypatch.setattr("p2pclust.peer.shell.compute.perform", note)

    async def live() -> None:
        loop, store, told = asyncio.get_running_loop(), Store(tmp_path), asyncio.Queue[Computed | BaseException]()
        worker = Worker(lambda: found.pop(0), store, Limits(), loop, told.put_nowait, told.put_nowait)
        for job in "aabbcab":
            worker.submit(Compute(TermToken(job, "begin", 1), BeginJob(job.encode(), 1)))
        async with asyncio.timeout(60):
            for _ in range(7):
                assert isinstance(await told.get(), Computed)
        worker.close(20.0)
        store.close()

    asyncio.run(live())
    # Read when it started; again for a, and again for b, when it worked; never in the middle of a job.
    assert worked_with == [("a", 0), ("a", 0), ("b", 1), ("b", 1), ("c", 1), ("a", 1), ("b", 1)]


def test_rows_that_take_all_memory_are_told_to_the_loop(tmp_path: Path) -> None:
    def load() -> Local:
        raise MemoryError

    async def live() -> BaseException:
        loop, store = asyncio.get_running_loop(), Store(tmp_path)
        failed: asyncio.Future[BaseException] = loop.create_future()
        worker = Worker(load, store, Limits(), loop, lambda event: None, failed.set_result)
        async with asyncio.timeout(60):
            error = await failed
        worker.close(20.0)
        store.close()
        return error

    error = asyncio.run(live())
    assert exit_code(error) == 3
    assert explain(error).startswith("out of memory: give it more (memory_mb")


# -- small tasks on the loop --------------------------------------------------------------------------------------------


class Places:
    """A worker whose tasks note in which thread they are done; each takes the processor time that a test says."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch, rows: int = 10) -> None:
        self.places: list[tuple[str, str]] = []
        self.cpu_s, self.large = 0.0, False
        self._clock = 0.0
        self._home, self._rows = home, rows
        monkeypatch.setattr("p2pclust.peer.shell.compute.perform", self._note)
        monkeypatch.setattr("p2pclust.peer.shell.compute.time", SimpleNamespace(thread_time=lambda: self._clock))

    def _note(self, task: StateTask, *rest: object) -> Outcome:
        place = "loop" if threading.current_thread() is threading.main_thread() else "thread"
        self.places.append((task.state.digest.decode(), place))
        self._clock += self.cpu_s
        return Contributed(Ref(b"r", 1, None if self.large else b"r"))

    def run(self, use: Callable[[Worker, Callable[[], Awaitable[None]]], Awaitable[None]]) -> list[tuple[str, str]]:
        async def live() -> None:
            loop, store, told = asyncio.get_running_loop(), Store(self._home), asyncio.Queue[Computed | BaseException]()
            worker = Worker(
                lambda: Local(np.zeros((self._rows, 1))), store, Limits(), loop, told.put_nowait, told.put_nowait
            )

            async def ended() -> None:
                async with asyncio.timeout(60):
                    event = await told.get()
                assert isinstance(event, Computed), event

            try:
                await use(worker, ended)
            finally:
                worker.close(20.0)
                store.close()

        asyncio.run(live())
        return self.places


def contribute(name: str, protocol: str = "llf-cm", *, inline: bool = True) -> Compute:
    """Return a task about a state of that name."""
    mathematics = msgpack.packb(cluster_job(protocol, n_clusters=2).to_dict())
    task = Contribute(mathematics, 3, Ref(name.encode(), 1, b"s" if inline else None), 0, -1, b"")
    return Compute(AnswerToken("j", "contribute", name.encode(), -1), task)


def in_turn(
    *names: str, protocol: str = "llf-cm"
) -> Callable[[Worker, Callable[[], Awaitable[None]]], Awaitable[None]]:
    async def use(worker: Worker, ended: Callable[[], Awaitable[None]]) -> None:
        for name in names:
            worker.submit(contribute(name))
            await ended()

    return use


def test_a_task_is_done_on_the_loop_if_the_one_before_was_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Places(tmp_path, monkeypatch).run(in_turn("a", "b", "c")) == [("a", "thread"), ("b", "loop"), ("c", "loop")]


def test_and_in_the_thread_again_after_a_long_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = Places(tmp_path, monkeypatch)

    async def use(worker: Worker, ended: Callable[[], Awaitable[None]]) -> None:
        for name in "abcdefgh":
            places.cpu_s = 0.3 if name == "b" else 0.001
            worker.submit(contribute(name))
            await ended()

    on_loop = [name for name, place in places.run(use) if place == "loop"]
    assert on_loop == ["b", "g", "h"], "four short ones in a row come before it is trusted again"


@pytest.mark.parametrize(
    "why", ["many rows", "writes blobs", "reads blobs", "not additive", "trains a model", "a slow device"]
)  # fmt: skip
def test_tasks_that_may_take_long_stay_in_the_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    places = Places(tmp_path, monkeypatch, rows=20_000 if why == "many rows" else 10)
    places.large = why == "writes blobs"

    async def use(worker: Worker, ended: Callable[[], Awaitable[None]]) -> None:
        worker.slowness = 2.0 if why == "a slow device" else 1.0
        protocol = {"not additive": "ffcm", "trains a model": "uifca"}.get(why, "llf-cm")
        for name in "abc":
            worker.submit(contribute(name, protocol, inline=why != "reads blobs"))
            await ended()

    assert {place for _, place in places.run(use)} == {"thread"}


def test_tasks_are_done_in_their_order_in_whichever_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = Places(tmp_path, monkeypatch)

    async def use(worker: Worker, ended: Callable[[], Awaitable[None]]) -> None:
        await in_turn("a")(worker, ended)
        worker.submit(contribute("b"))
        worker.submit(contribute("c"))
        worker.submit(
            Compute(TermToken("j", "combine", 1), contribute("d").task)
        )  # the thread's, and so are those before
        worker.submit(contribute("e"))
        for _ in range(4):
            await ended()
        await in_turn("f")(worker, ended)

    assert places.run(use) == [
        ("a", "thread"), ("b", "thread"), ("c", "thread"), ("d", "thread"), ("e", "thread"), ("f", "loop")
    ]  # fmt: skip


def test_work_for_the_thread_comes_after_what_waits_for_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = Places(tmp_path, monkeypatch)
    n_rows: list[int] = []
    note = places._note
    monkeypatch.setattr(
        "p2pclust.peer.shell.compute.perform",
        lambda task, local, *rest: (n_rows.append(local.n_samples), note(task, local))[1],
    )

    async def use(worker: Worker, ended: Callable[[], Awaitable[None]]) -> None:
        await in_turn("a")(worker, ended)
        worker.submit(contribute("b"))
        worker.replace(np.zeros((77, 1)))
        await ended()
        await in_turn("c")(worker, ended)

    places.run(use)
    assert n_rows == [10, 10, 77]


def test_nothing_is_done_after_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(worker: Worker, ended: Callable[[], Awaitable[None]]) -> None:
        await in_turn("a")(worker, ended)
        worker.submit(contribute("b"))
        worker.close(20.0)
        worker.submit(contribute("c"))
        turns = asyncio.Event()
        asyncio.get_running_loop().call_soon(lambda: asyncio.get_running_loop().call_soon(turns.set))
        await turns.wait()

    assert Places(tmp_path, monkeypatch).run(use) == [("a", "thread")]
