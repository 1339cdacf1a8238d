"""How peers end: with their parent, when told to, and when they cannot even begin. Nothing is ever left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from runs import a_fleet, a_job, assert_kept_promises, carry_out, peers_alive, processes_alive, rows, until
from tests.throwaway import throwaway_fleet

from p2pclust.errors import FleetError
from p2pclust.lab.testbed.driver import Driver as FleetDriver
from p2pclust.lab.testbed.processes import fleet
from p2pclust.lab.testbed.processes.children import write_fleet
from p2pclust.lab.testbed.processes.fleet import ProcessFleet
from p2pclust.peer.shell.store import Store

pytestmark = [pytest.mark.processes, pytest.mark.slow]

ENDLESS = a_job("llf-cm", max_rounds=10**6)


class Driver:
    """A process that runs a fleet, and what it told so far."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.pids: dict[str, int] = {}
        command = [sys.executable, str(Path(__file__).with_name("driver.py")), str(home)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def until_round(self, number: int) -> None:
        """Read what it tells until that round is combined; pytest's time limit is the deadline."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = json.loads(line)
            if event["verb"] == "started":
                self.pids[event["peer"]] = event["pid"]
            if event["verb"] == "combined" and event["round"] >= number:
                return
        pytest.fail("the driver ended")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        # They are killed with it, one after the other: the server with its parent, the peers with the server.
        until(lambda: not processes_alive(self.home), 60.0, "orphans")
        assert self.process.stdout is not None
        self.process.stdout.close()
        for pid in processes_alive(self.home):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def driver(home: Path) -> Iterator[Driver]:
    driver = Driver(home)
    yield driver
    driver.close()


class TestParentThatIsGone:
    def test_killed_in_the_middle_of_a_job_it_takes_all_peers_with_it(self, driver: Driver, home: Path) -> None:
        driver.until_round(20)
        assert peers_alive(home) == set(driver.pids.values())
        driver.process.kill()
        until(lambda: not processes_alive(home), 60.0, "orphans")

    @pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a stopped process with its parent")
    def test_a_peer_that_stands_still_goes_too(self, driver: Driver, home: Path) -> None:
        driver.until_round(20)
        pid = driver.pids["p02"]
        os.kill(pid, signal.SIGSTOP)
        until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        driver.process.kill()
        until(lambda: not processes_alive(home), 60.0, "orphans")

    def test_an_interrupt_ends_every_peer_before_it_is_passed_on(self, driver: Driver, home: Path) -> None:
        driver.until_round(20)
        driver.process.send_signal(signal.SIGINT)
        assert driver.process.stdout is not None
        for _ in driver.process.stdout:
            pass
        assert driver.process.wait(60.0) != 0
        assert processes_alive(home) == {}


class TestToldToEnd:
    def test_sigterm_is_a_polite_leave_and_the_others_go_on(self, home: Path) -> None:
        fleet = ProcessFleet(a_fleet(rows(5), ENDLESS, home=home), home, lambda event: None)
        driver = FleetDriver(fleet)

        async def live() -> None:
            try:
                await fleet.start()
                job = await driver.submit(fleet.spec.jobs[0])
                assert await driver._until(lambda: job.seen.opened >= 10, 60.0)
                victim = next(name for name in fleet.children if name != job.seen.terms[max(job.seen.terms)])
                fleet.children[victim].signal(signal.SIGTERM)
                assert await driver._until(lambda: not fleet.children[victim].alive, 60.0)
                others = [name for name in fleet.children if name != victim]
                assert await driver._until(lambda: all("left" in heard(name, victim) for name in others), 60.0)
                assert not any("dead" in heard(name, victim) for name in others)
                reached = job.seen.opened
                assert await driver._until(lambda: job.seen.opened >= reached + 20, 60.0), (
                    "the job continues without it"
                )
                assert [e["verb"] for e in fleet.record.events if e["peer"] == victim][-2:] == ["left", "exited"]
                assert fleet.children[victim].process is not None
                assert fleet.children[victim].process.returncode == 0
            finally:
                await fleet.stop()

        def heard(name: str, of: str) -> list[str]:
            told = [e for e in fleet.record.events if e["peer"] == name and e["verb"] == "member"]
            return [event["status"] for event in told if event["member"] == of]

        asyncio.run(live())

    def test_an_aggregator_that_leaves_is_followed_by_another(self, home: Path) -> None:
        fleet = ProcessFleet(a_fleet(rows(5), ENDLESS, home=home), home, lambda event: None)
        driver = FleetDriver(fleet)

        async def live() -> None:
            try:
                await fleet.start()
                job = await driver.submit(fleet.spec.jobs[0])
                assert await driver._until(lambda: job.seen.opened >= 10, 60.0)
                term = max(job.seen.terms)
                fleet.children[job.seen.terms[term]].signal(signal.SIGTERM)
                assert await driver._until(lambda: max(job.seen.terms) > term, 60.0)
                reached = job.seen.opened
                assert await driver._until(lambda: job.seen.opened >= reached + 20, 60.0)
            finally:
                await fleet.stop()

        asyncio.run(live())

    def test_stopping_a_second_time_does_nothing(self, home: Path) -> None:
        fleet = ProcessFleet(a_fleet(rows(2), ENDLESS, home=home), home, lambda event: None)

        async def live() -> None:
            await fleet.start()
            await fleet.stop()
            await fleet.stop()

        asyncio.run(live())
        assert all(not child.alive for child in fleet.children.values())


class TestCannotBegin:
    def test_a_port_in_use_is_told_in_one_line_and_nobody_stays(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with socket.socket() as holder:
            ports = fleet.ReservedPorts(3)
            free = ports.numbers
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("127.0.0.1", free[1]))
            holder.listen()
            monkeypatch.setattr(fleet, "ReservedPorts", lambda count: ports)
            with pytest.raises(FleetError) as caught:
                carry_out("processes", a_fleet(rows(3), a_job(), home=home))
        assert str(caught.value).startswith("p01 did not start: ")
        assert str(free[1]) in str(caught.value)
        assert "\n" not in str(caught.value)
        assert "Traceback" not in (home / "p01" / "peer.log").read_text()

    def peer(self, home: Path, **changed: Any) -> subprocess.CompletedProcess[str]:
        """Run one peer by hand, with what a fleet had prepared, until it ends by itself."""
        fleet = ProcessFleet(a_fleet(rows(2), ENDLESS, home=home), home, lambda event: None)

        async def once() -> None:
            await fleet.start()
            await fleet.stop()

        asyncio.run(once())
        path = home / "p00" / "changed.json"
        config = json.loads((home / "p00" / "peer.json").read_text()) | {"stdio": False} | changed
        path.write_text(json.dumps(config))
        return subprocess.run(
            [sys.executable, "-m", "p2pclust.lab.testbed.peer.attached", str(path)],
            input="", capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    def test_a_peer_started_by_hand_says_so_too(self, home: Path) -> None:
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen()
            port = holder.getsockname()[1]
            ran = self.peer(home, listen=f"127.0.0.1:{port}")
        assert ran.returncode == 2
        (line,) = ran.stderr.splitlines()
        assert line.startswith("error: ")
        assert str(port) in line

    def test_a_key_that_is_not_on_the_roster(self, home: Path) -> None:
        other = home / "other"
        roster, bundles = throwaway_fleet(["p00", "p01"])
        write_fleet(other, roster, bundles)
        ran = self.peer(home, bundle=str(other / "p00.bundle"))
        assert ran.returncode == 2
        (line,) = ran.stderr.splitlines()
        assert line.startswith("error: ")

    def test_a_state_directory_in_use(self, home: Path) -> None:
        state = home / "busy"
        store = Store(state)
        try:
            ran = self.peer(home, state_dir=str(state))
        finally:
            store.close()
        assert ran.returncode == 2
        (line,) = ran.stderr.splitlines()
        assert "is another peer running on this state directory?" in line

    def test_a_parent_that_never_spoke(self, home: Path) -> None:
        ran = self.peer(home, stdio=True)
        assert ran.returncode == 0, "the end of its input is the order to leave"
        verbs = [json.loads(line)["verb"] for line in ran.stdout.splitlines()]
        assert verbs[0] == "started"
        assert verbs[-1] == "left"


def test_two_fleets_on_one_machine_know_nothing_of_each_other(driver: Driver, home: Path) -> None:
    driver.until_round(5)
    spec = a_fleet(rows(4), a_job(), home=home / "second")
    assert_kept_promises(spec, carry_out("processes", spec))
    assert peers_alive(home) == set(driver.pids.values()), "the first continues"
    driver.until_round(10)
