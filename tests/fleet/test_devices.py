"""Devices that sleep and run out in simulated fleets, and what a fleet makes of their silence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from runs import a_job, rows

from p2pclust.jobs.request import JobRequest
from p2pclust.lab.links.shaping import Shape
from p2pclust.lab.testbed.devices import Devices
from p2pclust.lab.testbed.power import Battery, DutyCycle, Rest, Use
from p2pclust.lab.testbed.record import Record
from p2pclust.lab.testbed.simulated import carry_out
from p2pclust.lab.testbed.spec import FleetResult, FleetSpec, PeerSpec
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.runner import run_in_process


def peers(n: int = 5, **device: Any) -> tuple[PeerSpec, ...]:
    """The first is on mains and always awake, the others are as said."""
    gateway, *others = (PeerSpec(f"peer-{i}", X) for i, X in enumerate(rows(n)))
    return (replace(gateway, fitness=1.0), *(replace(other, fitness=0.2, **device) for other in others))


def simulated(spec: FleetSpec) -> FleetResult:
    return carry_out(spec, lambda event: None)


def told(result: FleetResult, verb: str) -> list[Mapping[str, Any]]:
    return [event for event in result.events if event["verb"] == verb]


class Recorder:
    """What devices need of `Actions`: a clock that is set by hand, and notes of what it is asked to do."""

    def __init__(self, spec: FleetSpec) -> None:
        self.spec, self.record = spec, Record(lambda event: None)
        self.clock = 0.0
        self.done: list[str] = []
        self.planned: list[tuple[float, Callable[[], None]]] = []

    @property
    def now(self) -> float:
        return self.clock

    def report(self, name: str, verb: str, fields: Mapping[str, Any]) -> None:
        self.record.take(self.now, name, verb, fields)

    def at(self, delay_s: float, action: Callable[[], None]) -> None:
        self.planned.append((delay_s, action))

    def alive(self, name: str) -> bool:
        return True

    def kill(self, name: str) -> None:
        self.done.append("kill")

    def sleep(self, name: str) -> None:
        self.done.append("stop")

    def wake(self, name: str) -> None:
        self.done.append("continue")

    def measure(self, name: str) -> Use | None:
        return None


class Bench:
    """Devices whose clock is set by hand."""

    def __init__(self, **device: Any) -> None:
        spec = FleetSpec(peers(2, **device), (JobRequest(a_job()),))
        self.actions = Recorder(spec)
        self.record = self.actions.record
        self.devices = Devices(self.actions)
        self.devices.begin()

    @property
    def now(self) -> float:
        return self.actions.clock

    @now.setter
    def now(self, seconds: float) -> None:
        self.actions.clock = seconds

    @property
    def done(self) -> list[str]:
        return self.actions.done

    def verbs(self) -> list[str]:
        return [event["verb"] for event in self.record.events]

    def follow(self) -> float:
        """Do what was planned for the device's plan; returns after how many seconds it is to happen again."""
        plan = next(n for n, (_, action) in enumerate(self.actions.planned) if isinstance(action, partial))
        self.actions.planned.pop(plan)[1]()
        return self.actions.planned[-1][0]


class TestAccounts:
    def test_nothing_is_told_of_who_states_nothing(self) -> None:
        bench = Bench()
        bench.devices.read("peer-1", Use(1e6))
        assert bench.devices.energy("peer-1") == {"energy_j": None, "battery_left_j": None}

    def test_a_device_on_mains_never_runs_out(self) -> None:
        bench = Bench(battery=Battery(idle_w=1e6))
        bench.devices.read("peer-1", Use())
        bench.now = 10.0
        bench.devices.read("peer-1", Use())
        assert bench.devices.energy("peer-1") == {"energy_j": 1e7, "battery_left_j": None}
        assert bench.done == []

    def test_an_empty_battery_sends_to_sleep_until_a_tenth_is_back(self) -> None:
        bench = Bench(battery=Battery(10.0, idle_w=5.0, recharge_w=1.0))
        bench.devices.read("peer-1", Use())
        bench.now = 3.0
        bench.devices.read("peer-1", Use())
        assert (bench.done, bench.verbs()) == (["stop"], ["drained", "asleep"])
        assert not bench.devices.gone("peer-1")
        bench.now = 3.5
        bench.devices.idle("peer-1")
        assert bench.done == ["stop"]
        bench.now = 4.0
        bench.devices.idle("peer-1")
        assert (bench.done, bench.verbs()[-1]) == (["stop", "continue"], "awake")

    def test_without_recharge_it_sleeps_for_good(self) -> None:
        bench = Bench(battery=Battery(1.0))
        bench.devices.read("peer-1", Use())
        bench.devices.drain("peer-1")
        assert (bench.devices.gone("peer-1"), bench.done) == (True, ["stop"])

    def test_some_die(self) -> None:
        bench = Bench(battery=Battery(1.0, tx_j_per_mb=1.0, when_empty="die"))
        bench.devices.read("peer-1", Use())
        bench.devices.read("peer-1", Use(bytes_sent=1e6))
        bench.devices.read("peer-1", Use(bytes_sent=2e6))
        assert (bench.devices.gone("peer-1"), bench.done, bench.verbs()) == (True, ["kill"], ["drained"])

    def test_whoever_is_down_uses_nothing(self) -> None:
        bench = Bench(battery=Battery(100.0, idle_w=1.0, tx_j_per_mb=1.0))
        bench.devices.read("peer-1", Use())
        bench.now = 2.0
        bench.devices.read("peer-1", Use(1e6))
        bench.now = 50.0
        bench.devices.restarted("peer-1")
        bench.now = 51.0
        bench.devices.read("peer-1", Use(2e6))
        assert bench.devices.energy("peer-1")["energy_j"] == 1 * 3 + 2 + 1

    def test_two_reasons_to_sleep_are_one_sleep(self) -> None:
        rest = Rest(DutyCycle(1.0, 3.0))
        bench = Bench(battery=Battery(4.0, idle_w=100.0, recharge_w=0.1), rest=rest)
        bench.devices.read("peer-1", Use())
        assert bench.actions.planned[0][0] == 1.0
        bench.now = 0.5
        bench.devices.read("peer-1", Use())  # empty
        bench.now = 1.0
        assert bench.follow() == 3.0
        bench.now = 4.0
        assert bench.follow() == 1.0  # it would be awake by its duty cycle
        assert bench.done == ["stop"]
        bench.now = 4.6
        bench.devices.idle("peer-1")
        assert bench.done == ["stop", "continue"]
        assert bench.verbs() == ["drained", "asleep", "awake"]


@pytest.mark.slow
class TestSimulated:
    def test_peers_that_sleep_by_plan_are_neither_dead_nor_left_out(self) -> None:
        job = a_job()
        spec = FleetSpec(
            tuple(
                replace(peer, rest=Rest(DutyCycle(1.0, 2.0, 3.0 * i / 5))) if i else peer
                for i, peer in enumerate(peers())
            ),
            (JobRequest(job),),
        )
        result = simulated(spec)
        assert result.failure == ""
        assert spec.quiet_s == 2.0
        assert told(result, "asleep")
        assert [event for event in told(result, "member") if event["status"] == "dead"] == []
        assert result.jobs[0].state is not None
        alone = run_in_process(job, [peer.local() for peer in spec.peers])
        assert result.jobs[0].state.encode() == alone.encode()

    def test_an_empty_battery_takes_nobody_with_it(self) -> None:
        devices = list(peers())
        devices[4] = replace(devices[4], battery=Battery(0.5, idle_w=1.0))
        devices[3] = replace(devices[3], battery=Battery(0.5, idle_w=1.0, when_empty="die"))
        links = tuple(replace(device, link=Shape.of(latency_ms=100.0)) for device in devices)
        result = simulated(FleetSpec(links, (JobRequest(a_job(max_rounds=12)),), give_up_s=60.0))
        assert result.failure == ""
        ends = {name: (peer["finished"], peer["lost"]) for name, peer in result.peers.items()}
        assert ends == {f"peer-{i}": (i < 3, i >= 3) for i in range(5)}
        assert [event["peer"] for event in told(result, "drained")] == ["peer-3", "peer-4"]
        assert [event["peer"] for event in told(result, "asleep")] == ["peer-4"]
        for name in ("peer-3", "peer-4"):
            assert (result.peers[name]["energy_j"], result.peers[name]["battery_left_j"]) == (0.5, 0.0)

    def test_energy_is_the_same_in_every_run_and_more_is_sent_for_more(self) -> None:
        battery = Battery(1e6, tx_j_per_mb=8.0, rx_j_per_mb=5.0, cpu_j_per_s=1.0)

        def used(rounds: int) -> list[float]:
            result = simulated(FleetSpec(peers(3, battery=battery), (JobRequest(a_job(max_rounds=rounds)),)))
            counters = result.peers["peer-1"]
            least = 8.0 * counters["bytes_sent"] / 1e6  # what was sent before the job came does not count
            assert counters["energy_j"] < 2 * least + 5.0 * counters["bytes_received"] / 1e6 + 1.0
            return [peer["energy_j"] for peer in result.peers.values() if peer["energy_j"] is not None]

        few = used(3)
        assert few == used(3)
        assert all(more > less for more, less in zip(used(12), few, strict=True))

    def test_who_is_not_available_comes_back(self) -> None:
        devices = list(peers(3))
        devices[2] = replace(devices[2], rest=Rest(here=((0.0, 0.3), (4.0, 1e6))), link=Shape.of(latency_ms=50.0))
        result = simulated(FleetSpec(tuple(devices), (JobRequest(a_job(), Treatment(missing="all")),)))
        assert result.failure == ""
        assert result.jobs[0].seconds > 3.0
        assert all(peer["finished"] for peer in result.peers.values())
        assert [event["why"] for event in told(result, "asleep")] == ["not available"]

    def test_a_small_share_of_a_processor_takes_longer(self) -> None:
        def seconds(share: float) -> float:
            return simulated(FleetSpec(peers(3, cpu_share=share), (JobRequest(a_job()),))).jobs[0].seconds

        assert seconds(0.01) > 2 * seconds(1.0)
