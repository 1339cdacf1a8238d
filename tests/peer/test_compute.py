"""The worker: what it tells the loop is on disk, and it lets the loop go first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from p2pclust.peer.blobs import digest_of
from p2pclust.peer.compute import Worker
from p2pclust.peer.effects import Compute, Task
from p2pclust.peer.events import Computed, Ref
from p2pclust.peer.store import Store
from p2pclust.peer.timing import Limits
from p2pclust.protocols.local import Local

BLOB = bytes(range(256)) * 12


def perform(home: Path, *tasks: Task, prepare: Callable[[Store], None] = lambda store: None) -> list[Computed]:
    """Let a worker do these tasks, one after another."""

    async def live() -> list[Computed]:
        loop, store, told = asyncio.get_running_loop(), Store(home), asyncio.Queue[Computed | BaseException]()
        prepare(store)
        worker = Worker(lambda: Local([[0.0], [1.0]]), store, Limits(), loop, told.put_nowait, told.put_nowait)
        try:
            done = []
            for task in tasks:
                worker.submit(Compute(("t",), task))
                async with asyncio.timeout(20):
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
    monkeypatch.setattr(Store, "sync_blob", lambda store, digest: synced.append(digest))

    def fetch(store: Store) -> None:
        store.store_chunk(digest, 0, 1, BLOB)

    (event,) = perform(tmp_path, Task("verify", b"", 0, state=Ref(digest, len(BLOB), None)), prepare=fetch)
    assert event.info == {"good": good}
    assert synced == ([digest] if good else []), "bytes of another name are not worth it"
