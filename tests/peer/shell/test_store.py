"""The store: what `write` returned for is there after anything; what is damaged is set aside, never guessed."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgpack
import numpy as np
import pytest

from p2pclust.errors import FleetError, UsageError
from p2pclust.peer.core.core import StoreContents
from p2pclust.peer.shell.store import Store
from p2pclust.protocols.engine.stored_arrays import Pieces, StoredArray
from p2pclust.protocols.engine.stored_arrays import Stored as StoredBytes
from p2pclust.protocols.engine.workspace import digest_of

FILE = "store.sqlite3"
BLOB = bytes(range(256)) * 12
DIGEST = b"d" * 32


def opened(directory: Path) -> tuple[Store, StoreContents]:
    store = Store(directory)
    return store, store.load()


class TestRows:
    def test_come_back_from_a_second_life(self, tmp_path: Path) -> None:
        store, first = opened(tmp_path / "new" / "state")
        assert (first.incarnation, first.tables, first.blobs) == (0, {}, {})
        store.write([("ballot", "j", b"\0\xff"), ("job", "j", b""), ("self", "incarnation", b"3")])
        store.write([("ballot", "j", b"2")])
        store.close()
        store, again = opened(tmp_path / "new" / "state")
        assert again.store_id == first.store_id
        assert again.incarnation == 3
        assert again.tables == {"ballot": {"j": b"2"}, "job": {"j": b""}}
        assert store.set_aside is None
        store.close()

    def test_are_deleted(self, tmp_path: Path) -> None:
        store = Store(tmp_path)
        store.write([("job", "a", b"1"), ("job", "b", b"2")])
        store.write([("job", "a", None), ("job", "never", None)])
        assert store.load().tables == {"job": {"b": b"2"}}
        store.close()

    def test_of_one_write_come_together_or_not_at_all(self, tmp_path: Path) -> None:
        store = Store(tmp_path)

        def half() -> object:
            yield ("job", "a", b"1")
            raise RuntimeError("in the middle")

        with pytest.raises(RuntimeError, match="in the middle"):
            store.write(half())  # type: ignore[arg-type]
        assert store.load().tables == {}
        store.write([("job", "b", b"2")])
        assert store.load().tables == {"job": {"b": b"2"}}
        store.close()

    def test_two_stores_have_two_ids(self, tmp_path: Path) -> None:
        ids = set()
        for name in ("a", "b"):
            store, stored = opened(tmp_path / name)
            ids.add(stored.store_id)
            store.close()
        assert len(ids) == 2


class TestBlobs:
    def test_come_back_in_their_order(self, tmp_path: Path) -> None:
        store = Store(tmp_path)
        store.blobs.store(DIGEST, BLOB, 1000)
        store.close()
        store, stored = opened(tmp_path)
        assert stored.blobs == {DIGEST: (4, (0, 1, 2, 3))}
        assert b"".join(store.blobs.read(DIGEST)) == BLOB
        assert store.blobs.chunk(DIGEST, 3) == BLOB[3000:]
        store.close()

    def test_that_were_cut_off_are_resumed(self, tmp_path: Path) -> None:
        store = Store(tmp_path)
        store.blobs.store_chunk(DIGEST, 2, 4, BLOB[2000:3000])
        store.blobs.store_chunk(DIGEST, 0, 4, BLOB[:1000])
        store.close()
        store, stored = opened(tmp_path)
        assert stored.blobs == {DIGEST: (4, (0, 2))}, "the core asks for 1 and 3 only"
        assert store.blobs.chunk(DIGEST, 1) is None
        for index in (1, 3):
            store.blobs.store_chunk(DIGEST, index, 4, BLOB[1000 * index : 1000 * (index + 1)])
        assert b"".join(store.blobs.read(DIGEST)) == BLOB
        store.close()

    def test_are_dropped(self, tmp_path: Path) -> None:
        store = Store(tmp_path)
        store.blobs.store(DIGEST, BLOB, 1000)
        store.blobs.store(b"e" * 32, BLOB, 5000)
        store.blobs.drop(DIGEST)
        store.blobs.drop(DIGEST)
        assert list(store.blobs.read(DIGEST)) == []
        assert list(store.load().blobs) == [b"e" * 32]
        store.close()

    def test_one_can_be_made_from_another(self, tmp_path: Path) -> None:
        # The final state of a job over columns passes an array of the state before on, from blob to blob.
        store = Store(tmp_path)
        store.blobs.store(DIGEST, BLOB, 1000)
        array = StoredArray(
            StoredBytes(lambda: store.blobs.read(DIGEST), len(BLOB)), 8, np.dtype("u1"), (len(BLOB) - 8,)
        )
        store.blobs.store(b"e" * 32, Pieces([b"headline", array]), 700)
        assert b"".join(store.blobs.read(b"e" * 32)) == b"headline" + BLOB[8:]
        store.close()


class TestOneOwner:
    @pytest.mark.slow
    def test_a_second_peer_on_one_state_directory_is_refused_in_one_line(self, tmp_path: Path) -> None:
        store = Store(tmp_path)
        store.write([("job", "a", b"1")])
        with pytest.raises(UsageError) as caught:
            Store(tmp_path)
        assert str(caught.value).endswith("is another peer running on this state directory?")
        assert str(tmp_path / FILE) in str(caught.value)
        assert "\n" not in str(caught.value)
        assert store.load().tables == {"job": {"a": b"1"}}, "nothing was touched"
        store.close()
        Store(tmp_path).close()

    @pytest.mark.slow
    def test_also_when_it_is_another_process(self, tmp_path: Path) -> None:
        store = Store(tmp_path)
        code = "import sys; from pathlib import Path; from p2pclust.peer.shell.store import Store; Store(Path(sys.argv[1]))"
        ran = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
        )
        store.close()
        assert ran.returncode == 1
        assert "is another peer running on this state directory?" in ran.stderr.splitlines()[-1]


WRITER = """
import sys
from pathlib import Path
from p2pclust.peer.shell.store import Store
store = Store(Path(sys.argv[1]))
print("open", flush=True)
for number in range(int(sys.argv[2]), 10**9):
    store.write([("ballot", "j", b"%d" % number), ("job", f"r{number % 7}", b"%d " % number * 50)])
    store.blobs.store_chunk(b"d" * 32, number, 10**6, b"%d" % number)
    print(number, flush=True)
"""


@pytest.mark.slow
def test_kill_9_of_the_writer_loses_nothing_that_write_returned_for(tmp_path: Path) -> None:
    reached, store_id = 0, ""
    for wanted in (1, 17, 60, 200):  # one store over four lives, so that it also recovers from a recovery
        command = [sys.executable, "-c", WRITER, str(tmp_path), str(reached)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "open\n"
            for _ in range(wanted):
                told = int(writer.stdout.readline())
            writer.kill()
            told = max([told, *(int(line) for line in writer.stdout if line.endswith("\n"))])
        store, stored = opened(tmp_path)
        store.close()
        assert store.set_aside is None
        assert store_id in ("", stored.store_id)
        store_id, found = stored.store_id, int(stored.tables["ballot"]["j"])
        assert found >= told
        # What came after the last word may be there or not, but only whole.
        assert int(stored.tables["job"][f"r{found % 7}"].split()[0]) == found
        assert told in stored.blobs[DIGEST][1], "what the system was given it keeps, although nothing was synced"
        reached = found + 1


class TestDamage:
    """A flipped bit, a cut file: either every row and chunk is as it was, or an empty store of a new id takes over."""

    @pytest.fixture
    def sound(self, tmp_path: Path) -> tuple[bytes, StoreContents]:
        """The bytes of a store of many pages, and what it holds."""
        rng = np.random.default_rng(0)
        store = Store(tmp_path / "sound")
        store.write(
            [
                (table, f"job-{number:012x}", rng.bytes(int(rng.integers(5, 1500))))
                for table in ("job", "ballot", "other")
                for number in range(12)
            ]
        )
        stored = store.load()
        store.close()
        return (tmp_path / "sound" / FILE).read_bytes(), stored

    def check(self, directory: Path, data: bytes, sound: StoreContents) -> bool:
        """Open a store over these bytes; returns whether it was set aside."""
        directory.mkdir()
        (directory / FILE).write_bytes(data)
        store, stored = opened(directory)
        try:
            if stored.store_id == sound.store_id:
                assert stored == sound, "wrong rows"
                return False
            assert (stored.tables, stored.blobs, stored.incarnation) == ({}, {}, 0)
            if store.set_aside is not None:
                assert store.set_aside.read_bytes()[:100] == data[:100], "kept for whoever wants to look"
            store.write([("job", "a", b"1")])
            return True
        finally:
            store.close()

    @pytest.mark.slow
    def test_a_flipped_byte_at_fifty_places(self, tmp_path: Path, sound: tuple[bytes, StoreContents]) -> None:
        data, stored = sound
        rng = np.random.default_rng(1)
        aside = 0
        for number in range(50):
            damaged = bytearray(data)
            damaged[int(rng.integers(len(data)))] ^= int(rng.integers(1, 256))
            aside += self.check(tmp_path / str(number), bytes(damaged), stored)
        assert 10 <= aside <= 50

    @pytest.mark.slow
    def test_a_flipped_bit_in_the_header_of_every_page(
        self, tmp_path: Path, sound: tuple[bytes, StoreContents]
    ) -> None:
        # One bit in the number of cells hides a row, without touching the row or its checksum.
        data, stored = sound
        for start in range(0, len(data), 4096):
            for offset in (*range(12), *range(100, 108)):
                damaged = bytearray(data)
                damaged[start + offset] ^= 1
                self.check(tmp_path / f"{start}-{offset}", bytes(damaged), stored)

    @pytest.mark.parametrize("what", ["nothing", "a flipped byte", "a cut end", "a chunk", "the file"])
    def test_of_a_state_that_was_adopted(self, tmp_path: Path, what: str) -> None:
        # A state in the register may be a blob: to continue from other bytes than were adopted would break every promise.
        digest = digest_of(BLOB)
        store, before = opened(tmp_path)
        store.blobs.store(digest, BLOB, 1000)
        store.write([("register", "j", msgpack.packb([3, 7, digest, len(BLOB), None, False, False]))])
        store.close()
        file = tmp_path / "blobs" / digest.hex()
        data = file.read_bytes()
        match what:
            case "a flipped byte":
                file.write_bytes(data[:1500] + bytes([data[1500] ^ 1]) + data[1501:])
            case "a cut end":
                file.write_bytes(data[:-1])
            case "a chunk":
                file.write_bytes(data[:1012] + data[2024:])
            case "the file":
                file.unlink()
        store, after = opened(tmp_path)
        store.close()
        if what == "nothing":
            assert store.set_aside is None
            assert after.store_id == before.store_id
            assert after.blobs == {digest: (4, (0, 1, 2, 3))}
        else:
            assert store.set_aside == tmp_path / "store.damaged-1"
            assert after.store_id != before.store_id
            assert (after.tables, after.blobs) == ({}, {})
            assert (tmp_path / "store.damaged-1-blobs").is_dir(), "kept for whoever wants to look"

    def test_of_a_blob_that_no_register_names_costs_nothing_but_its_transfer(self, tmp_path: Path) -> None:
        inline = msgpack.packb([3, 7, digest_of(b"small"), 5, b"small", False, False])
        store = Store(tmp_path)
        store.write([("register", "j", inline)])
        store.blobs.store(DIGEST, BLOB, 1000)
        store.close()
        file = tmp_path / "blobs" / DIGEST.hex()
        file.write_bytes(file.read_bytes()[:-1])
        store, stored = opened(tmp_path)
        store.close()
        assert store.set_aside is None
        assert stored.tables == {"register": {"j": inline}}
        assert stored.blobs == {DIGEST: (4, (0, 1, 2))}

    @pytest.mark.slow
    def test_a_cut_file_at_fifty_places(self, tmp_path: Path, sound: tuple[bytes, StoreContents]) -> None:
        data, stored = sound
        rng = np.random.default_rng(2)
        cuts = [0, 1, 99, 100, 512, 4095, 4096, 8192, len(data) - 4096, len(data) - 1]
        cuts += [int(cut) for cut in rng.integers(1, len(data), 40)]
        aside = sum(self.check(tmp_path / str(number), data[:cut], stored) for number, cut in enumerate(cuts))
        assert aside >= 45, "only zeros at the very end are not missed"

    def test_no_database_at_all(self, tmp_path: Path, sound: tuple[bytes, StoreContents]) -> None:
        data, stored = sound
        for number, other in enumerate((b"\0" * len(data), b"hello", np.random.default_rng(0).bytes(5000))):
            assert self.check(tmp_path / str(number), other, stored)

    def test_a_row_that_another_program_changed(self, tmp_path: Path, sound: tuple[bytes, StoreContents]) -> None:
        _, stored = sound
        db = sqlite3.connect(tmp_path / "sound" / FILE)
        db.execute("UPDATE rows SET value = x'00' WHERE name = 'ballot' AND key = 'job-000000000003'")
        db.commit()
        db.close()
        store, now = opened(tmp_path / "sound")
        store.close()
        assert store.set_aside == tmp_path / "sound" / "store.damaged-1"
        assert now.store_id != stored.store_id
        assert now.tables == {}

    def test_the_second_time_nothing_that_was_set_aside_is_overwritten(self, tmp_path: Path) -> None:
        for number in (1, 2, 3):
            (tmp_path / FILE).write_bytes(b"garbage %d" % number * 100)
            store = Store(tmp_path)
            store.close()
            assert store.set_aside == tmp_path / f"store.damaged-{number}"
        assert (tmp_path / "store.damaged-2").read_bytes().startswith(b"garbage 2")


FULL = """
import resource, sys
from pathlib import Path
from p2pclust.errors import FleetError
from p2pclust.peer.shell.store import Store
store = Store(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
for number in range(1000):
    try:
        store.write([("job", f"j{number:04d}", b"x" * 5000)])
    except FleetError as error:
        print(number, error, flush=True)
        break
large = b"x" * 250_000
for keep in (lambda: store.blobs.store_chunk(b"d" * 32, 0, 1, large), lambda: store.blobs.store(b"e" * 32, large, 9)):
    try:
        keep()
    except FleetError as error:
        print(number, error, flush=True)
"""


@pytest.mark.slow
def test_a_full_disk_is_told_and_what_was_written_before_stays(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, timeout=60, check=True
    )
    for line in ran.stdout.splitlines():
        assert line.endswith("; mend that, then start the peer again") or "ulimit -f" in line
    row, *blobs = ran.stdout.splitlines()
    assert str(tmp_path / "store.log") in row
    assert all(str(tmp_path / "blobs") in line for line in blobs)
    store, stored = opened(tmp_path)
    store.close()
    assert store.set_aside is None
    assert len(stored.tables["job"]) == int(row.split()[0]) > 3
    assert (len(blobs), stored.blobs) == (2, {})


def test_the_exit_code_of_a_failing_disk_is_that_of_a_fleet_that_could_not_finish() -> None:
    assert FleetError.exit_code == 3
    assert UsageError.exit_code == 2


def test_a_store_of_another_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    Store(tmp_path).close()
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (1,)
        db.execute("PRAGMA user_version = 9")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    with pytest.raises(FleetError, match=r"another release of p2pclust \(format 9, this one reads 1\)") as caught:
        Store(tmp_path)
    assert caught.value.exit_code == 3
    assert "\n" not in str(caught.value)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_a_file_that_cannot_be_read_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(UsageError, match=r"store\.sqlite3: Is a directory; mend that, then"):
        Store(tmp_path)
