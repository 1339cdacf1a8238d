"""Blobs on disk: found again by whoever starts, resumed, and worth nothing where they are not what their name says."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pclust.errors import FleetError
from p2pclust.peer.shell.blob_files import BlobFiles
from p2pclust.protocols.engine.stored_arrays import Pieces
from p2pclust.protocols.engine.workspace import digest_of

BLOB = bytes(range(256)) * 12
DIGEST = digest_of(BLOB)
CHUNKS = [BLOB[start : start + 1000] for start in range(0, len(BLOB), 1000)]


def joined(files: BlobFiles, digest: bytes = DIGEST) -> bytes:
    return b"".join(files.read(digest))


def put(files: BlobFiles, *indices: int) -> None:
    for index in indices:
        files.store_chunk(DIGEST, index, len(CHUNKS), CHUNKS[index])


class Synced:
    """Which files were synced, and how large they were then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self._note)

    def _note(self, fd: int) -> None:
        self.names.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name)
        self._fsync(fd)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> Synced:
    return Synced(monkeypatch)


class TestChunks:
    def test_come_in_any_order_and_twice(self, tmp_path: Path) -> None:
        files = BlobFiles(tmp_path / "blobs")
        put(files, 2, 0, 2, 3)
        assert files.stored() == {DIGEST: (4, (0, 2, 3))}
        assert joined(files) == CHUNKS[0], "up to the first gap"
        assert not files.intact(DIGEST)
        assert [files.chunk(DIGEST, index) for index in range(5)] == [CHUNKS[0], None, *CHUNKS[2:], None]
        put(files, 1)
        assert joined(files) == BLOB
        assert files.intact(DIGEST)
        assert (tmp_path / "blobs" / DIGEST.hex()).stat().st_size == len(BLOB) + 4 * 12

    def test_of_an_earlier_life_are_found_and_the_rest_follows(self, tmp_path: Path) -> None:
        put(BlobFiles(tmp_path), 3, 1)
        files = BlobFiles(tmp_path)
        assert files.stored() == {DIGEST: (4, (1, 3))}
        put(files, 0, 2)
        assert joined(BlobFiles(tmp_path)) == BLOB

    def test_of_a_blob_that_nobody_has(self, tmp_path: Path) -> None:
        files = BlobFiles(tmp_path)
        assert files.chunk(DIGEST, 0) is None
        assert joined(files) == b""
        assert not files.intact(DIGEST)
        files.drop(DIGEST)
        files.sync(DIGEST)

    def test_are_not_synced_one_by_one_but_once_and_whole(self, tmp_path: Path, synced: Synced) -> None:
        files = BlobFiles(tmp_path / "blobs")
        assert synced.names == [tmp_path.name], "the folder itself is there to stay"
        put(files, 0, 1, 2, 3)
        assert synced.names[1:] == []
        files.sync(DIGEST)
        assert synced.names[1:] == [DIGEST.hex(), "blobs"]
        files.sync(DIGEST)
        assert len(synced.names) == 3

    def test_that_come_after_a_sync_want_another(self, tmp_path: Path, synced: Synced) -> None:
        files = BlobFiles(tmp_path)
        put(files, 0)
        files.sync(DIGEST)
        put(files, 1)
        files.sync(DIGEST)
        assert synced.names == [DIGEST.hex(), tmp_path.name] * 2


class TestWhole:
    def test_blobs_are_on_disk_when_they_are_stored(self, tmp_path: Path, synced: Synced) -> None:
        files = BlobFiles(tmp_path)
        files.store(DIGEST, BLOB, 1000)
        assert synced.names == [f"{DIGEST.hex()}.made", tmp_path.name]
        assert joined(files) == joined(BlobFiles(tmp_path)) == BLOB
        files.store(DIGEST, BLOB, 1000)
        assert len(synced.names) == 2, "never written again"

    def test_blobs_take_the_place_of_what_was_fetched_of_them(self, tmp_path: Path) -> None:
        files = BlobFiles(tmp_path)
        put(files, 2, 1)
        files.store(DIGEST, BLOB, 700)
        put(files, 3)  # under way when the worker was done
        assert joined(files) == BLOB
        assert files.stored() == {DIGEST: (5, (0, 1, 2, 3, 4))}
        assert BlobFiles(tmp_path).intact(DIGEST)

    def test_one_can_be_made_from_another(self, tmp_path: Path) -> None:
        files = BlobFiles(tmp_path)
        files.store(DIGEST, BLOB, 1000)
        pieces = Pieces([b"head", b"".join(files.read(DIGEST))])
        files.store(pieces.digest(), pieces, 900)
        assert joined(files, pieces.digest()) == b"head" + BLOB

    def test_dropped_is_gone_but_whoever_reads_it_reads_on(self, tmp_path: Path) -> None:
        files = BlobFiles(tmp_path)
        files.store(DIGEST, BLOB, 1000)
        reader = files.read(DIGEST)
        first = next(reader)
        files.drop(DIGEST)
        assert files.stored() == {}
        assert list(tmp_path.iterdir()) == []
        assert first + b"".join(reader) == BLOB
        put(files, 0)
        assert files.stored() == {DIGEST: (4, (0,))}

    def test_one_that_was_not_made_to_its_end_never_was(self, tmp_path: Path) -> None:
        files = BlobFiles(tmp_path)

        class Torn(bytes):
            def __getitem__(self, where: object) -> bytes:
                assert isinstance(where, slice)
                if where.start:
                    raise FleetError("the peer died here")
                return bytes(where.stop)

        with pytest.raises(FleetError, match="died"):
            files.store(DIGEST, Torn(3000), 1000)
        assert [path.suffix for path in tmp_path.iterdir()] == [".made"]
        assert BlobFiles(tmp_path).stored() == {}
        assert list(tmp_path.iterdir()) == []


class TestAfterAPowerCut:
    """Of a file that was not synced anything may be left: then whole chunks are found, in the order in which they came."""

    @pytest.fixture
    def whole(self, tmp_path: Path) -> bytes:
        files = BlobFiles(tmp_path / "whole")
        put(files, 1, 0, 3, 2)
        return (tmp_path / "whole" / DIGEST.hex()).read_bytes()

    def found(self, directory: Path, data: bytes) -> tuple[int, ...]:
        directory.mkdir()
        (directory / DIGEST.hex()).write_bytes(data)
        files = BlobFiles(directory)
        indices = files.stored().get(DIGEST, (0, ()))[1]
        assert all(files.chunk(DIGEST, index) == CHUNKS[index] for index in indices)
        put(files, 0, 1, 2, 3)
        assert joined(files) == joined(BlobFiles(directory)) == BLOB, "resumed"
        return indices

    def test_a_part_of_it(self, tmp_path: Path, whole: bytes) -> None:
        ends = [1012, 2024, 2108, 3120]
        assert len(whole) == ends[-1]
        for cut in sorted({0, 1, 11, 12, 13, *ends, *(end - 1 for end in ends), *(end + 1 for end in ends[:-1])}):
            assert len(self.found(tmp_path / str(cut), whole[:cut])) == sum(end <= cut for end in ends), cut

    def test_zeros_in_place_of_its_end(self, tmp_path: Path, whole: bytes) -> None:
        for number, cut in enumerate([0, 4, 1012, 2024]):
            zeros = bytes(len(whole) - cut)
            assert len(self.found(tmp_path / str(number), whole[:cut] + zeros)) == cut // 1012

    @settings(max_examples=60, deadline=None)
    @given(data=st.binary(max_size=400))
    def test_anything_at_all(self, tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
        directory = tmp_path_factory.mktemp("noise")
        (directory / DIGEST.hex()).write_bytes(data)
        files = BlobFiles(directory)
        assert not files.intact(DIGEST)
        files.drop(DIGEST)
        put(files, 0, 1, 2, 3)
        assert files.intact(DIGEST)


def test_what_else_lies_in_the_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "README").write_text("mine")
    assert BlobFiles(tmp_path).stored() == {}
    assert (tmp_path / "README").read_text() == "mine"


def test_a_disk_that_cannot_be_written_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = BlobFiles(tmp_path)

    def fails(fd: int, data: memoryview, offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", fails)
    line = f"{tmp_path}: No space left on device; free some space, then start the peer again"
    with pytest.raises(FleetError) as chunk:
        put(files, 0)
    with pytest.raises(FleetError) as blob:
        files.store(DIGEST, BLOB, 1000)
    assert str(chunk.value) == str(blob.value) == line


def test_what_the_system_takes_in_pieces_is_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: pwrite(fd, data[:100], offset))
    files = BlobFiles(tmp_path)
    put(files, 0, 1, 2, 3)
    assert joined(BlobFiles(tmp_path)) == BLOB
