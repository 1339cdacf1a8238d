"""The small helpers that several packages share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from p2pclust.errors import FleetError, UsageError
from p2pclust.lab import workers
from p2pclust.lab.workers import in_processes
from p2pclust.tools.files import replacing
from p2pclust.tools.lazy import lazy_names
from p2pclust.tools.platforms import n_cores
from p2pclust.tools.spelling import did_you_mean, nearest
from p2pclust.tools.units import duration, scaled, size


class TestReplacing:
    def test_a_failure_leaves_the_old_file_and_nothing_else(self, tmp_path: Path) -> None:
        file = tmp_path / "result"
        file.write_bytes(b"old")
        with pytest.raises(TypeError), replacing(file) as new:
            new.writelines([b"half of the n", None])  # type: ignore[list-item]
        assert file.read_bytes() == b"old"
        assert os.listdir(tmp_path) == ["result"]

    def test_the_old_file_is_there_until_the_block_ends(self, tmp_path: Path) -> None:
        file = tmp_path / "result"
        file.write_bytes(b"old")
        with replacing(file, durable=True) as new:
            new.write(b"new")
            new.flush()
            assert file.read_bytes() == b"old"
        assert file.read_bytes() == b"new"

    def test_permissions(self, tmp_path: Path) -> None:
        before = os.umask(0o027)
        try:
            for name, mode in (("as usual", None), ("private", 0o600), ("for all", 0o644)):
                with replacing(tmp_path / name, mode=mode) as new:
                    new.write(b"x")
        finally:
            os.umask(before)
        found = {file.name: oct(file.stat().st_mode & 0o777) for file in tmp_path.iterdir()}
        assert found == {"as usual": "0o640", "private": "0o600", "for all": "0o644"}

    def test_a_link_in_the_place_of_the_new_file_is_not_followed(self, tmp_path: Path) -> None:
        victim = tmp_path / "victim"
        victim.write_bytes(b"untouched")
        (tmp_path / f".result.{os.getpid()}.tmp").symlink_to(victim)
        with replacing(tmp_path / "result") as new:
            new.write(b"new")
        assert victim.read_bytes() == b"untouched"
        assert (tmp_path / "result").read_bytes() == b"new"

    def test_without_the_folder_it_is_an_os_error(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError), replacing(tmp_path / "absent" / "result"):
            pass


def test_the_nearest_name() -> None:
    assert nearest("rign", ["ring", "star"]) == "ring"
    assert nearest(7, ["ring", "star"]) is None
    assert nearest("x" * 10**7, ["ring"]) is None, "at once, however long it is"
    assert nearest("", []) is None


def test_a_hint_needs_a_name_that_is_near_enough() -> None:
    assert did_you_mean("sta", ["ring", "star"]) == " (did you mean 'star'?)"
    assert did_you_mean("sta", ["ring", "star"], " (known: ring, star)", cutoff=0.9) == " (known: ring, star)"
    assert did_you_mean("grid", ["ring", "star"]) == ""


@pytest.mark.parametrize(
    ("n_bytes", "shown"),
    [(0, "0 B"), (999.7, "1000 B"), (1000, "1.0 kB"), (999_949, "999.9 kB"), (999_951, "1.0 MB"), (3e15, "3000.0 TB")],
)
def test_sizes(n_bytes: float, shown: str) -> None:
    assert size(n_bytes) == shown


def test_units_of_an_axis() -> None:
    assert [scaled(n_bytes, "bytes") for n_bytes in (0, 5e6, 5e9)] == [(1.0, "bytes"), (1e6, "MB"), (1e9, "GB")]


def test_durations_at_the_edges_of_units() -> None:
    assert [duration(s) for s in (9.94, 59, 60, 3599, 3600, 86_400)] == [
        "9.9 s", "59 s", "1 min 0 s", "59 min 59 s", "1 h 0 min", "1 d 0 h",
    ]  # fmt: skip


def test_lazy_names_know_only_their_own() -> None:
    get, names = lazy_names("p2pclust", tools__units="size", errors="UsageError")
    assert get("size") is size
    assert get("UsageError") is UsageError
    assert names() == ["UsageError", "size"]
    with pytest.raises(AttributeError, match="module 'p2pclust' has no attribute 'colour'"):
        get("colour")


def environment(_: int) -> tuple[int, str]:
    return os.getpid(), os.environ["OMP_NUM_THREADS"]


def dying(_: int) -> None:
    os._exit(3)


def refusing(number: int) -> None:
    raise UsageError(f"{number} is refused")


class TestWorkers:
    def test_a_process_without_a_parent_is_not_a_worker(self) -> None:
        with pytest.raises(AssertionError):
            workers._end_with_parent()

    def test_there_is_a_core(self) -> None:
        assert n_cores() >= 1

    @pytest.mark.slow
    def test_every_task_is_done_in_another_process_with_one_thread(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OMP_NUM_THREADS", "5")
        found = dict(in_processes(environment, range(20), 2, advice=""))
        assert sorted(found) == list(range(20))
        assert os.getpid() not in {pid for pid, _ in found.values()}
        assert {threads for _, threads in found.values()} == {"1"}
        assert os.environ["OMP_NUM_THREADS"] == "5"

    @pytest.mark.slow
    def test_a_main_program_without_a_guard_is_not_run_again(self, tmp_path: Path) -> None:
        program = "from p2pclust.lab.workers import in_processes; from math import sqrt; print('once')\n"
        program += "print(sorted(root for _, root in in_processes(sqrt, [1, 4], 2, advice='')))\n"
        (tmp_path / "main.py").write_text(program)
        done = subprocess.run(
            [sys.executable, "main.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
        )
        assert (done.stdout, done.stderr) == ("once\n[1.0, 2.0]\n", "")

    @pytest.mark.slow
    def test_tasks_are_read_only_as_they_are_done(self) -> None:
        read: list[int] = []
        running = in_processes(environment, (read.append(task) or task for task in range(10**9)), 2, advice="")
        next(running)
        running.close()
        assert len(read) < 10

    @pytest.mark.slow
    def test_a_worker_that_dies(self) -> None:
        with pytest.raises(FleetError, match="a worker process died: try again"):
            list(in_processes(dying, range(3), 2, advice="try again"))

    @pytest.mark.slow
    def test_what_a_task_raises_is_raised_here(self) -> None:
        with pytest.raises(UsageError, match="is refused"):
            list(in_processes(refusing, range(3), 1, advice=""))
