"""Devices with network namespaces of their own: addresses, ends, and what is left behind. Needs root."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from runs import a_fleet, a_job, by_verb, rows

from p2pclust.errors import UsageError
from p2pclust.lab.links.shaping import Shape
from p2pclust.lab.testbed.faults import Fault
from p2pclust.lab.testbed.processes import namespaces
from p2pclust.lab.testbed.processes.namespaces import carry_out, device_network, remove_leftovers, require
from p2pclust.lab.testbed.spec import FleetSpec
from p2pclust.protocols.engine.runner import run_in_process

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("namespaces")]

FOLDER = Path("/run/netns")


def spaces() -> list[str]:
    """The namespaces of runs that there are now."""
    return sorted(entry.name for entry in FOLDER.glob("p2pclust-*")) if FOLDER.is_dir() else []


@pytest.fixture
def permitted() -> Iterator[None]:
    """Skips where namespaces cannot be made; afterwards none of ours is left."""
    try:
        require()
    except UsageError as error:
        pytest.skip(f"{error}; as root: apt-get install iproute2")
    yield
    assert [name for name in spaces() if name.startswith(f"p2pclust-{os.getpid()}-")] == []


def test_each_device_has_an_address_of_its_own(permitted: None, home: Path) -> None:
    job = a_job()
    fleet = a_fleet(rows(4), job, Fault("kill", (), round=4), home=home)
    result = carry_out(fleet, lambda event: None)
    assert result.failure == ""
    assert [event["address"] for event in sorted(by_verb(result, "started"), key=lambda event: str(event["peer"]))] == [
        f"10.213.0.{number}:5701" for number in (2, 3, 4, 5)
    ]
    assert len(set(result.jobs[0].digests.values())) == 1
    assert len(result.jobs[0].digests) == 3


def test_the_bits_are_those_of_one_process(permitted: None, home: Path) -> None:
    job = a_job()
    plain = a_fleet(rows(3), job, home=home)
    shaped = FleetSpec(
        tuple(peer.__class__(peer.name, peer.X, link=Shape.of(latency_ms=5.0, up_mbit=10.0)) for peer in plain.peers),
        plain.jobs,
        directory=home,
    )
    result = carry_out(shaped, lambda event: None)
    assert result.jobs[0].state is not None
    assert result.jobs[0].state.encode() == run_in_process(job, [peer.local() for peer in plain.peers]).encode()


def test_leftovers_of_dead_runs_are_removed_and_no_others(permitted: None) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = f"p2pclust-{dead.pid}-12345-3"
    alive = f"p2pclust-{os.getpid()}-{namespaces._began(os.getpid())}-7"
    foreign = f"p2pclustered-{dead.pid}-12345-3"
    for name in (left, alive, foreign):
        subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        assert left in remove_leftovers()
        assert not (FOLDER / left).exists()
        assert (FOLDER / alive).exists()
        assert (FOLDER / foreign).exists()
    finally:
        for name in (alive, foreign):
            subprocess.run(["ip", "netns", "delete", name], check=True)


def test_a_network_that_could_not_be_made_is_removed(permitted: None, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = namespaces._ip

    def fails(words: str) -> None:
        if " address add " in words:
            raise RuntimeError("no")
        whole(words)

    monkeypatch.setattr(namespaces, "_ip", fails)
    with pytest.raises(RuntimeError, match="no"), device_network(["a", "b"]):
        pass  # it does not come here
    assert [name for name in spaces() if name.startswith(f"p2pclust-{os.getpid()}-")] == []


def test_devices_hear_each_other_and_nobody_else(permitted: None) -> None:
    with device_network(["a", "b"]) as network:
        inside = Path(network.namespaces["a"]).name
        links = subprocess.run(["ip", "-n", inside, "-o", "link"], capture_output=True, text=True, check=True).stdout
        routes = subprocess.run(["ip", "-n", inside, "route"], capture_output=True, text=True, check=True).stdout
    assert [line.split(":")[1].split("@")[0].strip() for line in links.splitlines()] == ["lo", "eth0"]
    assert "default" not in routes


def test_whoever_may_not_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces.shutil, "which", lambda name: None)
    with pytest.raises(UsageError, match=r"^the namespaces backend needs the command ip: install iproute2, or choose"):
        require()


def test_too_many_devices_are_refused() -> None:
    with pytest.raises(UsageError, match="at most 1000"), device_network([f"d{number}" for number in range(1001)]):
        pass  # it does not come here
