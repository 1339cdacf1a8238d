"""A disk that forgets what was not synced."""

from __future__ import annotations

import pytest

from p2pclust.lab.simulation.world.disk import Disk


@pytest.fixture
def disk() -> Disk:
    return Disk("store-a-0")


class TestRows:
    def test_what_was_synced_survives_a_crash_and_the_rest_is_lost_and_counted(self, disk: Disk) -> None:
        disk.write("ballot", "job", b"1")
        disk.write("register", "job", b"1")
        disk.sync()
        disk.write("ballot", "job", b"2")
        disk.write("register", "other", b"2")
        assert disk.crash() == 2
        assert disk.load().tables == {"ballot": {"job": b"1"}, "register": {"job": b"1"}}

    def test_what_was_not_synced_is_not_read_either(self, disk: Disk) -> None:
        disk.write("ballot", "job", b"1")
        assert disk.read_synced("ballot", "job") is None
        disk.sync()
        assert disk.read_synced("ballot", "job") == b"1"

    def test_a_deletion_is_a_write_like_any_other(self, disk: Disk) -> None:
        disk.write("job", "a", b"1")
        disk.sync()
        disk.write("job", "a", None)
        assert disk.crash() == 1
        assert disk.load().tables == {"job": {"a": b"1"}}
        disk.write("job", "a", None)
        disk.sync()
        assert disk.load().tables == {}

    def test_a_crash_with_nothing_open_loses_nothing(self, disk: Disk) -> None:
        disk.write("job", "a", b"1")
        disk.sync()
        assert disk.crash() == 0

    def test_a_restart_finds_its_store_id_and_its_incarnation(self, disk: Disk) -> None:
        assert (disk.load().store_id, disk.load().incarnation) == ("store-a-0", 0)
        disk.write("self", "incarnation", b"4")
        disk.sync()
        assert disk.load().incarnation == 4
        assert "self" not in disk.load().tables


class TestBlobs:
    def test_a_whole_blob_comes_back_in_its_order(self, disk: Disk) -> None:
        disk.store_blob(b"d", b"abcdefg", 3)
        assert disk.blob(b"d") == [b"abc", b"def", b"g"]
        assert disk.load().blobs == {b"d": (3, (0, 1, 2))}

    def test_a_restart_knows_which_chunks_are_there(self, disk: Disk) -> None:
        disk.store_chunk(b"d", 2, 4, b"c")
        disk.store_chunk(b"d", 0, 4, b"a")
        assert disk.load().blobs == {b"d": (4, (0, 2))}
        assert (disk.chunk(b"d", 0), disk.chunk(b"d", 1), disk.chunk(b"e", 0)) == (b"a", None, None)

    def test_of_chunks_a_crash_takes_all_or_some_or_none(self, disk: Disk) -> None:
        lost = set()
        for _ in range(40):
            for index in range(20):
                disk.store_chunk(b"d", index, 21, b"x")
            disk.sync()  # of rows: the blob is not whole
            assert disk.crash() == 0, "no rows"
            lost.add(20 - len(disk.load().blobs.get(b"d", (0, ()))[1]))
            disk.drop_blob(b"d")
        assert {0, 20} < lost

    @pytest.mark.parametrize("synced", [True, False])
    def test_a_fetched_blob_is_safe_once_it_is_synced_not_with_the_next_row(self, disk: Disk, synced: bool) -> None:
        kept = 0
        for _ in range(40):
            for index in range(3):
                disk.store_chunk(b"d", index, 3, b"x")
            disk.store_blob(b"own", b"abc", 1)
            if synced:
                disk.sync_blob(b"d")
            assert disk.synced_blob(b"d") == ([b"x"] * 3 if synced else [])
            disk.write("register", "job", b"d")
            disk.sync()
            disk.crash()
            blobs = disk.load().blobs
            assert blobs[b"own"] == (3, (0, 1, 2))
            kept += blobs.get(b"d") == (3, (0, 1, 2))
            disk.drop_blob(b"d")
        assert kept == 40 if synced else 0 < kept < 40

    def test_a_blob_of_ones_own_is_safe_at_once_also_in_place_of_one_that_was_fetched(self, disk: Disk) -> None:
        for _ in range(40):
            disk.store_chunk(b"d", 1, 2, b"cd")
            disk.store_blob(b"d", b"abcd", 1)
            disk.crash()
            assert disk.blob(b"d") == [b"a", b"b", b"c", b"d"]
            disk.drop_blob(b"d")

    def test_two_disks_of_one_name_lose_alike(self) -> None:
        left = []
        for _ in range(2):
            disk = Disk("store-a-0")
            for number in range(10):
                for index in range(20):
                    disk.store_chunk(b"%d" % number, index, 21, b"x")
                disk.crash()
            left.append(disk.load().blobs)
        assert left[0] == left[1]

    def test_a_dropped_blob_is_gone(self, disk: Disk) -> None:
        disk.store_blob(b"d", b"abc", 2)
        disk.drop_blob(b"d")
        disk.drop_blob(b"d")
        assert disk.chunk(b"d", 0) is None
        assert disk.load().blobs == {}
