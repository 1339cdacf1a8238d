"""Peers that were started one by one: on a ring, killed all at once, on a disk that fills up, and told to leave."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from by_hand import ENVIRONMENT, Fleet
from runs import a_fleet, a_job, carry_out, rows, until

from p2pclust.lab.testbed.processes.children import ReservedPorts
from p2pclust.peer.shell.store import Store
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.workspace import digest_of

pytestmark = [pytest.mark.processes, pytest.mark.slow]


def in_process(arrays: Any, job: Job) -> JobState:
    """What the same job comes to without any fleet."""
    state = carry_out("in-process", a_fleet(arrays, job)).jobs[0].state
    assert state is not None
    return state


def test_neighbours_on_a_ring_are_enough(tmp_path: Path) -> None:
    arrays, job = rows(4), a_job(max_rounds=5)

    def neighbours(name: str) -> dict[str, Any]:
        number = int(name[1:])
        return {"links": [f"p{(number + step) % 4:02d}" for step in (1, 3)]}

    with Fleet(tmp_path, arrays, neighbours, joins=3) as fleet:
        fleet.start()
        until(fleet.linked, 60.0, "not everybody has heard of everybody")
        status = fleet.status("p01")
        assert {member["name"]: member["linked"] for member in status["members"]} == {
            "p00": True, "p02": True, "p03": False,
        }  # fmt: skip
        job_id = fleet.submit(job)
        until(lambda: len(fleet.finished()) == 4, 60.0, "not finished")
        (digest,) = set(fleet.finished().values())
        state = fleet.state(job_id)
    assert digest == digest_of(state.encode()).hex()
    assert state.encode() == in_process(arrays, job).encode()


def test_a_command_that_fails_stops_nobody_and_is_tried_again_for_the_next_job(tmp_path: Path) -> None:
    def reads_a_meter(name: str) -> dict[str, Any]:
        return {"data": {"command": ["cat", "meter"], "format": "csv"}} if name == "p02" else {}

    arrays = rows(3)
    with Fleet(tmp_path, arrays, reads_a_meter) as fleet:
        fleet.start()
        until(fleet.linked, 60.0, "not linked")
        first = fleet.submit(a_job("llf-cm", max_rounds=3), missing="wait")
        until(lambda: len(fleet.finished()) == 3, 60.0, "not finished")
        assert {line["reason"] for line in fleet.verbs("p02", "data-refused")} == {
            "command cat: ended with code 1: cat: meter: No such file or directory"
        }
        for record in fleet.state(first).log:
            assert 2 not in record.contributors
            assert dict(record.abstained).get(2, "") in ("", "its data cannot be used"), "no path is told to others"
        lines = [",".join(map(str, row)) for row in arrays[2]]
        (tmp_path / "p02" / "meter").write_text("\n".join(["a,b,c", *lines]) + "\n", encoding="utf-8")
        second = fleet.submit(a_job("llf-cm", max_rounds=3), missing="wait")
        until(lambda: all(len(fleet.verbs(name, "finished")) == 2 for name in fleet.names), 60.0, "not finished")
        assert [line["rows"] for line in fleet.verbs("p02", "data")] == [len(arrays[2])]
        assert 2 in fleet.state(second).log[-1].contributors


def test_all_are_killed_at_once_and_every_job_goes_on_from_its_last_round(tmp_path: Path) -> None:
    arrays, job = rows(3), a_job("llf-cm", max_rounds=100)
    with Fleet(tmp_path, arrays) as fleet:
        fleet.start()
        until(fleet.linked, 60.0, "not linked")
        job_id = fleet.submit(job)
        until(lambda: len(fleet.rounds()) >= 10, 60.0, "no rounds")
        fleet.kill()
        before = fleet.rounds()
        assert max(before) < 98, "it was not killed in the middle"
        assert not fleet.finished()
        fleet.start()
        until(lambda: len(fleet.finished()) == 3, 90.0, "not finished")
        after = fleet.rounds()
        for round_ in before:
            after.remove(round_)
        # The last round may be done again: its state may not have been at a majority.
        assert min(after) >= max(before), "it began anew"
        assert len(fleet.verbs("p00", "job")) == 1, "nobody handed it in again"
        (digest,) = set(fleet.finished().values())
        state = fleet.state(job_id)
    assert digest == digest_of(state.encode()).hex()
    assert state.encode() == in_process(arrays, job).encode(), "other bits than without any fault"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "none", str(disk)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("may not mount a tmpfs here: run as root (sudo, or a container with CAP_SYS_ADMIN)")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def fill(ballast: Path) -> None:
    """Take all the room that is left."""
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass


def test_a_disk_that_fills_up_ends_one_peer_and_no_other(tmp_path: Path, small_disk: Path) -> None:
    home = tmp_path / "fleet"
    home.mkdir()
    arrays = rows(3)

    def on_it(name: str) -> dict[str, Any]:
        return {"state_dir": str(small_disk / "state")} if name == "p02" else {}

    with Fleet(home, arrays, on_it) as fleet:
        fleet.start()
        until(fleet.linked, 60.0, "not linked")
        fleet.submit(a_job("llf-cm", max_rounds=100_000), missing="wait", patience_s=1.0)
        until(lambda: len(fleet.rounds()) > 10, 60.0, "no rounds")
        fill(small_disk / "ballast")
        assert fleet.processes["p02"].wait(60) == 3
        (failed,) = fleet.verbs("p02", "failed")
        assert "disk is full" in failed["reason"]
        assert "free some space, then start the peer again" in failed["reason"]
        assert not any("Traceback" in line for line in (home / "p02" / "peer.log").read_text().splitlines())
        reached = max(fleet.rounds())
        until(lambda: max(fleet.rounds()) > reached + 20, 60.0, "the others do not continue")
        until(
            lambda: any(line["member"] == "p02" and line["status"] == "dead" for line in fleet.verbs("p00", "member"))
        )
        # With some room again, it starts from what it had promised, and takes part.
        (small_disk / "ballast").unlink()
        fleet.start("p02")

        def contributes() -> bool:
            last = [line for name in fleet.names for line in fleet.verbs(name, "combined")[-3:]]
            return any("p02" in line["contributors"] and line["round"] > reached for line in last)

        until(contributes, 60.0, "it does not come back")
        assert not fleet.verbs("p02", "store-damaged")


def test_peers_without_any_address_find_each_other_by_multicast(tmp_path: Path) -> None:
    pytest.importorskip("zeroconf", reason="needs zeroconf: pip install 'p2pclust[mdns]'")
    with Fleet(tmp_path, rows(3), lambda name: {"join": [], "mdns": True}) as fleet:
        fleet.start("p01", "p02")
        for name, other in (("p01", "p02"), ("p02", "p01")):
            until(
                lambda name=name: fleet.verbs(name, "member") or fleet.verbs(name, "no-mdns"), 60.0, f"{name} is alone"
            )  # type: ignore[misc]
            if fleet.verbs(name, "no-mdns"):
                pytest.skip("no multicast on the loopback interface here: ip link set lo multicast on")
            assert [line["member"] for line in fleet.verbs(name, "member")] == [other]
        fleet.processes["p02"].send_signal(signal.SIGTERM)
        assert fleet.processes["p02"].wait(60) == 0


class TestOnePeer:
    """Of a fleet whose others are away."""

    @pytest.fixture
    def manager(self) -> Iterator[socket.socket]:
        """Stands in for systemd."""
        path = f"{tempfile.gettempdir()}/p2pclust-{os.getpid()}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
            listening.bind(path)
            listening.settimeout(60.0)
            yield listening
        Path(path).unlink()

    def test_systemd_hears_that_it_is_ready_that_it_lives_and_that_it_leaves(
        self, tmp_path: Path, manager: socket.socket
    ) -> None:
        notify = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "2000000"}
        with Fleet(tmp_path, rows(2)) as fleet:
            folder = tmp_path / "p01"
            with (folder / "peer.log").open("ab") as log:
                command = [sys.executable, "-m", "p2pclust", "peer", "--config", str(folder / "peer.toml")]
                peer = subprocess.Popen(command, stdout=log, stderr=log, env=ENVIRONMENT | notify)
            fleet.processes["p01"] = peer

            def hear() -> dict[str, str]:
                return dict(line.split("=", 1) for line in manager.recv(4096).decode().split("\n"))

            first = hear()
            assert first.pop("STATUS") == "1 of 2 enrolled peers are here"
            assert first == {"EXTEND_TIMEOUT_USEC": "15000000", "WATCHDOG": "1"}, "alone, it is not ready yet"
            fleet.start("p00")
            told = hear()
            while "READY" not in told:
                assert told["WATCHDOG"] == "1"
                told = hear()
            assert told["STATUS"] == "2 of 2 enrolled peers are here"
            peer.send_signal(signal.SIGTERM)
            while "STOPPING" not in told:
                told = hear()
            assert peer.wait(60) == 0
            assert fleet.verbs("p01", "left")

    def test_its_figures_and_its_page_can_be_read(self, tmp_path: Path) -> None:
        pytest.importorskip("prometheus_client", reason="needs prometheus_client: pip install 'p2pclust[metrics]'")
        port = ReservedPorts(1)
        address = f"127.0.0.1:{port.numbers[0]}"
        with contextlib.ExitStack() as stack:
            stack.callback(port.release)
            fleet = stack.enter_context(Fleet(tmp_path, rows(2), lambda name: {"metrics": address, "class": "meter"}))
            fleet.start("p01")
            until(lambda: fleet.verbs("p01", "metrics"), 60.0, "no metrics")
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as answer:
                assert b"\np2pclust_peers_enrolled 2.0\n" in answer.read()
            with urllib.request.urlopen(f"http://{address}/status", timeout=20) as answer:
                page = answer.read().decode()
            assert "<h1>p01</h1>" in page
            assert "Waiting: 1 of 2 enrolled peers are here" in page

    def test_it_says_when_its_memory_is_not_enough(self, tmp_path: Path) -> None:
        with Fleet(tmp_path, [np.zeros((3_000_000, 2)), np.zeros((3, 2))], lambda name: {"memory_mb": 150}) as fleet:
            arrays = tmp_path / "p01" / "rows.npy"
            (tmp_path / "p00" / "rows.npy").replace(arrays)
            fleet.start("p01")
            until(lambda: fleet.verbs("p01", "data-refused") or fleet.processes["p01"].poll() is not None, 60.0)
            (refused,) = fleet.verbs("p01", "data-refused")
            assert refused["reason"] == "it does not fit into memory"
            assert fleet.processes["p01"].poll() is None, "it stays, and abstains"


def test_a_store_that_another_peer_holds_is_named_as_json_too(tmp_path: Path) -> None:
    with Fleet(tmp_path, rows(2)) as fleet:
        store = Store(tmp_path / "p01" / "state")
        fleet.start("p01")
        assert fleet.processes["p01"].wait(60) == 2
        store.close()
        (failed,) = fleet.verbs("p01", "failed")
        assert "is another peer running on this state directory?" in failed["reason"]
