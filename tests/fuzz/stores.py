"""A store with a wrong byte: it holds what it held, or says that it does not, and a peer starts over it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from tests.fuzz.fleets import NAMES, Fleet
from tests.fuzz.mutations import Mutator

from p2pclust.errors import FleetError
from p2pclust.peer.core.core import Core, Identity, StoreContents
from p2pclust.peer.core.events import Started
from p2pclust.peer.core.timing import PRESETS, Limits
from p2pclust.peer.shell.store import Store

__all__ = ["SoundStore"]


class SoundStore:
    """The files of a peer's store that was killed: rows of a real job, a log of commits, blobs."""

    def __init__(self, folder: Path) -> None:
        disk = Fleet("blobs", 1).world.peers["p1"].disk
        contents = disk.load()
        rows = [(table, key, value) for table, kept in contents.tables.items() for key, value in kept.items()]
        running = Store(folder / "running")
        for digest, (n_chunks, present) in contents.blobs.items():
            for index in present:
                running.blobs.store_chunk(digest, index, n_chunks, disk.chunk(digest, index) or b"")
            running.blobs.sync(digest)
        self.states: list[StoreContents] = []  # after each commit
        for start in range(0, len(rows), 2):
            running.write(rows[start : start + 2])
            self.states.append(running.load())
        self.killed = folder / "killed"
        shutil.copytree(folder / "running", self.killed)  # with its log, as a kill leaves it
        running.close()
        self.files = sorted(file for file in self.killed.rglob("*") if file.is_file())
        self.size = sum(file.stat().st_size for file in self.files)

    def rotten(self, here: Path, mutator: Mutator, place: int = -1) -> None:
        """Damage one byte, anywhere or at a given place, open the store, and start a peer over it."""
        shutil.rmtree(here, ignore_errors=True)
        shutil.copytree(self.killed, here)
        where = mutator.below(self.size) if place < 0 else place
        file = self.files[0]
        for file in self.files:
            if where < file.stat().st_size:
                break
            where -= file.stat().st_size
        copy = here / file.relative_to(self.killed)
        data = bytearray(copy.read_bytes())
        data[where] ^= 1 + mutator.below(255)
        copy.write_bytes(data)
        try:
            store = Store(here)
        except FleetError as error:
            if "a newer release" in str(error):  # the byte was in the number of the schema
                return
            raise
        try:
            self._judge(store, f"{file.name}, byte {where}")
            store.write([("job", "x", b"y"), ("job", "x", None)])
        finally:
            store.close()

    def _judge(self, store: Store, where: str) -> None:
        newest, found = self.states[-1], store.load()
        if store.set_aside is not None:
            assert not found.tables, f"rows in a new store: {where}"
            assert found.store_id != newest.store_id, f"the id of the damaged store: {where}"
        else:
            assert any(state.tables == found.tables for state in self.states), f"wrong rows: {where}"
            older = found.tables != newest.tables
            assert not older or found.store_id != newest.store_id, f"an earlier state under the same id: {where}"
        identity = Identity("p1", "p1:1", NAMES)
        Core(identity, found, PRESETS["fast"], Limits(), np.random.default_rng(0)).step(0.0, Started())
