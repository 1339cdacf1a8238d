"""The log: what a power cut can leave of the last commit is accepted, any other damage that would cost a commit is not."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.peer.core.core import StoreContents
from p2pclust.peer.shell.store import Store, lost_commits

FILE = "store.sqlite3"
PAGE = 512  # the smallest that SQLite knows, and one sector
FRAME = 24 + PAGE
MAGIC = {"<": 0x377F0682, ">": 0x377F0683}
OLD, NEW = b"\0\0\0\x07oldo", b"\0\0\0\x08newn"
#: Frames per transaction; 3 + 1 + 2 + 1 + 4.
TRANSACTIONS = (3, 1, 2, 1, 4)


def summed(order: str, data: bytes, checksum: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """The checksum as section 4.2 of the format has it."""
    first, second = checksum
    for x, y in struct.iter_unpack(f"{order}2I", data):
        first = (first + x + second) % 2**32
        second = (second + y + first) % 2**32
    return first, second


def log_of(
    transactions: Sequence[int], salts: bytes = NEW, order: str = "<", seed: int = 0, page_bytes: int = PAGE
) -> bytes:
    """A log of so many frames per transaction, the last of each a commit."""
    rng = random.Random(seed)
    header = struct.pack(">4I8s", MAGIC[order], 3007000, page_bytes, salts[3], salts)
    checksum = summed(order, header)
    log = header + struct.pack(">2I", *checksum)
    for n_frames in transactions:
        for left in reversed(range(n_frames)):
            opening = struct.pack(">2I", rng.randrange(1, 9), 0 if left else 9)
            page = rng.choice((rng.randbytes(page_bytes), bytes(page_bytes)))
            checksum = summed(order, opening + page, checksum)
            log += opening + salts + struct.pack(">2I", *checksum) + page
    return log


def end_of(transactions: Sequence[int]) -> int:
    return 32 + FRAME * sum(transactions)


class TestDamagedByte:
    @pytest.mark.slow
    @pytest.mark.parametrize("order", ["<", ">"])
    @pytest.mark.parametrize("tail", [b"", log_of((40,), OLD, seed=1)[end_of(TRANSACTIONS) :], bytes(5 * FRAME)])
    def test_in_front_of_the_last_transaction_is_always_found(self, order: str, tail: bytes) -> None:
        log = log_of(TRANSACTIONS, order=order) + tail
        assert not lost_commits(log)
        last, end = end_of(TRANSACTIONS[:-1]), end_of(TRANSACTIONS)
        rng = random.Random(0)
        headers = [32 + FRAME * frame + place for frame in range(sum(TRANSACTIONS)) for place in range(24 + 8)]
        for place in (*range(32), *headers, *rng.sample(range(32, len(log)), 150)):
            # 9 turns the commit of a database of 9 pages into no commit; and 13 the first byte of a page.
            for flip in (9, 0x80, rng.randrange(1, 256)):
                damaged = bytearray(log)
                damaged[place] ^= flip
                if place < last:
                    assert lost_commits(bytes(damaged)), (place, flip)
                elif place >= end:
                    assert not lost_commits(bytes(damaged)), (place, flip)

    def test_that_could_as_well_be_another_number_of_pages(self) -> None:
        # A word's weight in the first sum is a Fibonacci number. The 192nd is a multiple of 256: the highest byte of
        # that word shows in the second sum only, and there it can look like a commit that is none.
        log = log_of((1, 1), page_bytes=1024)
        for word in range(189, 194):
            for flip in range(1, 256):
                damaged = bytearray(log)
                damaged[32 + 24 + 4 * word + 3] ^= flip
                assert lost_commits(bytes(damaged)), (word, flip)

    def test_in_a_log_of_one_commit_may_be_a_torn_one(self) -> None:
        log = bytearray(log_of((3,)))
        log[32 + FRAME + 100] ^= 1
        assert not lost_commits(bytes(log))

    def test_in_the_only_header_is_no_torn_commit(self) -> None:
        log = log_of((1,))
        assert lost_commits(bytes(20) + log[20:])
        assert lost_commits(bytes(32) + log[32:]), "zeros are right for a checksum of zero"


class TestPowerCut:
    def test_of_any_length(self) -> None:
        log = log_of(TRANSACTIONS)
        assert not any(lost_commits(log[:length]) for length in range(0, len(log) + 1, 8))

    @pytest.mark.slow
    @given(
        st.lists(st.integers(1, 4), min_size=1, max_size=4).flatmap(
            lambda sizes: st.tuples(st.just(sizes), st.lists(st.booleans(), min_size=22, max_size=22))
        ),
        st.sampled_from([b"", bytes(20 * FRAME), log_of((2,) * 8, OLD, seed=1), log_of((1,) * 20, OLD, seed=2)]),
    )
    def test_that_leaves_any_sectors_of_the_last_transaction(
        self, drawn: tuple[list[int], list[bool]], before: bytes
    ) -> None:
        sizes, written = drawn
        log = log_of(sizes)
        torn = bytearray(before.ljust(len(log), b"\0"))
        start = end_of(sizes[:-1])
        torn[:start] = log[:start]
        for number, sector in enumerate(range(start // 512 * 512, len(log), 512)):
            if written[number % len(written)]:
                torn[max(sector, start) : sector + 512] = log[max(sector, start) : sector + 512]
        assert not lost_commits(bytes(torn))

    @pytest.mark.parametrize("n_before", [39, 40, 41, 60, 61, 62])
    def test_between_the_parts_of_a_header(self, n_before: int) -> None:
        # Frames 41 and 62 begin 8 and 16 bytes before the end of a sector. Beside what is new of their headers there may
        # be the number of pages, or the checksum, of a commit of before the last checkpoint.
        log, old = log_of((n_before, 3)), log_of((1,) * 70, OLD, seed=1)
        start = end_of((n_before,))
        sectors = range(start // 512 * 512, len(log), 512)
        for written in itertools.product((False, True), repeat=len(sectors)):
            torn = bytearray(log[:start] + old[start:])
            for sector in itertools.compress(sectors, written):
                torn[max(sector, start) : sector + 512] = log[max(sector, start) : sector + 512]
            assert not lost_commits(bytes(torn)), written

    def test_that_leaves_nothing_but_the_size_of_the_file(self) -> None:
        assert not lost_commits(bytes(4096))
        assert not lost_commits(b"")

    @pytest.mark.slow
    @given(st.integers(0, 20), st.integers(0, 12))
    def test_in_front_of_frames_of_before_the_last_checkpoint(self, n_new: int, n_old: int) -> None:
        # The log is overwritten from its start: what is left of the older one is right in itself, with other salts.
        log, old = log_of((1,) * n_new), log_of((1,) * (n_new + n_old), OLD, seed=1)
        assert not lost_commits(log + old[len(log) :])


class TestStore:
    """What a killed peer leaves is a file and a log of its last commits, and one commit at most was not synced."""

    FRAME = 24 + 4096

    @pytest.fixture(params=[0, 90], ids=["first", "overwritten"])
    def left(
        self, request: pytest.FixtureRequest, tmp_path: Path
    ) -> tuple[dict[str, bytes], list[tuple[int, StoreContents]]]:
        """The files of an open store, and after each of its last commits where the log ended and what the store held.

        After 90 commits the log was overwritten from its start, and frames of before are behind its end.
        """
        store, n_before = Store(tmp_path / "left", log_bytes=0), int(request.param)
        commits = [(0, store.load())] if n_before else []
        for number in range(n_before + 7):
            rows = [
                ("ballot", "j", b"%d" % number),
                ("job", f"r{number % 7}", b"%d " % number * 50 * (number % 7)),
            ]
            store.write([*rows, ("state", "j", b"%d " % number * 1500)])
            commits.append((self.end(tmp_path / "left"), store.load()))
            if len(commits) > 1 and commits[-1][0] < commits[-2][0]:
                commits = [(32, commits[-2][1]), commits[-1]]
        files = self.files(tmp_path / "left")
        store.close()
        assert len(commits) > 5
        assert (commits[-1][0] < len(files[f"{FILE}-wal"])) == (n_before > 0)
        return files, commits

    def files(self, directory: Path) -> dict[str, bytes]:
        return {name: (directory / name).read_bytes() for name in (FILE, f"{FILE}-wal")}

    def end(self, directory: Path) -> int:
        """Where the frames with the salts of the log's header end."""
        log, end = (directory / f"{FILE}-wal").read_bytes(), 32
        while log[end + 8 : end + 16] == log[16:24]:
            end += self.FRAME
        return end

    def opened(self, directory: Path, files: dict[str, bytes], log: bytes) -> tuple[Store, StoreContents]:
        """A store over these files, with another log."""
        directory.mkdir()
        for name, content in (files | {f"{FILE}-wal": log}).items():
            (directory / name).write_bytes(content)
        store = Store(directory, log_bytes=0)
        stored = store.load()
        store.close()
        return store, stored

    @pytest.mark.slow
    def test_a_flipped_byte_costs_no_commit_but_the_last_one(
        self, tmp_path: Path, left: tuple[dict[str, bytes], list[tuple[int, StoreContents]]]
    ) -> None:
        files, commits = left
        log = files[f"{FILE}-wal"]
        ends, states = [end for end, _ in commits], [stored for _, stored in commits]
        rng = np.random.default_rng(3)
        headers = [32 + self.FRAME * frame + int(rng.integers(24)) for frame in range(len(log) // self.FRAME)]
        for place in (5, 18, 30, *headers[:20], *(int(place) for place in rng.integers(len(log), size=20))):
            damaged = bytearray(log)
            damaged[place] ^= int(rng.integers(1, 256))
            store, stored = self.opened(tmp_path / f"flip-{place}", files, bytes(damaged))
            if place < ends[-2]:
                assert store.set_aside is not None
                assert store.set_aside.read_bytes() == files[FILE], "kept as it was"
                assert store.set_aside.with_name("store.damaged-1-wal").read_bytes() == damaged
                assert (stored.tables, stored.incarnation) == ({}, 0)
                assert stored.store_id != states[0].store_id
            elif place < ends[-1]:
                assert store.set_aside is not None or stored in states[-2:]
            else:
                assert (store.set_aside, stored) == (None, states[-1])

    @pytest.mark.slow
    def test_one_that_was_cut_off_holds_the_last_whole_commit(
        self, tmp_path: Path, left: tuple[dict[str, bytes], list[tuple[int, StoreContents]]]
    ) -> None:
        files, commits = left
        log = files[f"{FILE}-wal"]
        frames = range(32, commits[-1][0] + 1, self.FRAME)
        for cut in (0, 20, *frames, *(end - step for end in frames[-4:] for step in (1, 500, 4090, 4100))):
            store, stored = self.opened(tmp_path / f"cut-{cut}", files, log[:cut])
            assert store.set_aside is None
            whole = [state for end, state in commits if end <= max(cut, 32)]
            if whole:
                assert stored == whole[-1]
            else:
                assert stored.tables == {}

    def test_one_whose_last_commit_a_power_cut_tore_holds_the_one_before(
        self, tmp_path: Path, left: tuple[dict[str, bytes], list[tuple[int, StoreContents]]]
    ) -> None:
        files, commits = left
        log, (start, before), (end, after) = files[f"{FILE}-wal"], *commits[-2:]
        rng = np.random.default_rng(4)
        for number in range(12):
            torn = bytearray(log)
            for sector in range(start, end, 512):
                if rng.random() < (0.1, 0.9)[number % 2]:
                    torn[sector : min(sector + 512, end)] = bytes(min(512, end - sector))
            store, stored = self.opened(tmp_path / f"tear-{number}", files, bytes(torn))
            assert store.set_aside is None
            assert stored == (after if torn == log else before)

    def test_two_power_cuts_in_a_row(self, tmp_path: Path) -> None:
        # The second transaction overwrites the first of what the first one left, and is shorter.
        store = Store(tmp_path / "0", log_bytes=0)
        for life, n_bytes in ((1, 30_000), (2, 10)):
            store.write([("ballot", "j", b"%d" % life)])
            promised, older = store.load(), self.files(tmp_path / str(life - 1))[f"{FILE}-wal"]
            store.write([("ballot", "k", b"x" * n_bytes)])
            files = self.files(tmp_path / str(life - 1))
            store.close()
            newer = files[f"{FILE}-wal"]
            start = next(place for place, byte in enumerate(newer) if older[place : place + 1] != bytes([byte]))
            (tmp_path / str(life)).mkdir()
            for name, content in files.items():
                torn = bytearray(content)
                if name != FILE:
                    torn[start + 1000 : start + 1512] = bytes(range(256)) * 2
                (tmp_path / str(life) / name).write_bytes(torn)
            store = Store(tmp_path / str(life), log_bytes=0)
            assert store.set_aside is None
            assert store.load() == promised
        store.close()
