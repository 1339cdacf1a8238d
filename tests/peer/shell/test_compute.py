"""The worker: what it tells the loop is on disk, and it lets the loop go first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from p2pclust.peer.core.effects import Compute
from p2pclust.peer.core.events import Computed
from p2pclust.peer.core.spread.blobs import digest_of
from p2pclust.peer.core.tasks import BeginJob, NoResult, Outcome, Verified, VerifyBlob
from p2pclust.peer.core.timing import Limits
from p2pclust.peer.core.tokens import TermToken, VerifyToken
from p2pclust.peer.shell.blob_files import BlobFiles
from p2pclust.peer.shell.compute import Worker
from p2pclust.peer.shell.shell import exit_code, explain
from p2pclust.peer.shell.store import Store
from p2pclust.peer.work.floor import Floor
from p2pclust.protocols.engine.local import Local

BLOB = bytes(range(256)) * 12


def perform(home: Path, *tasks: VerifyBlob, prepare: Callable[[Store], None] = lambda store: None) -> list[Computed]:
    """Let a worker do these tasks, one after another."""

    async def live() -> list[Computed]:
        loop, store, told = asyncio.get_running_loop(), Store(home), asyncio.Queue[Computed | BaseException]()
        prepare(store)
        worker = Worker(lambda: Local([[0.0], [1.0]]), store, Limits(), loop, told.put_nowait, told.put_nowait)
        try:
            done = []
            for task in tasks:
                worker.submit(Compute(VerifyToken(task.digest), task))
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

    (event,) = perform(tmp_path, VerifyBlob(digest), prepare=fetch)
    assert event.outcome == Verified(good)
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
        worked_with.append((task.job.decode(), local.n_samples))
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
