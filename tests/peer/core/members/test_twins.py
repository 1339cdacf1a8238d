"""One device key in two processes is noticed by the two and by the others; a restart, wherever it is, is not."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import pytest
from harness import alone

from p2pclust.peer.core.core import Core, Identity, StoreContents
from p2pclust.peer.core.effects import CheckLink, Connect, Persist, Send
from p2pclust.peer.core.events import Arrived, Event, LinkChecked, Started, Woken
from p2pclust.peer.core.messages import Gossip, Ping, Update
from p2pclust.peer.core.reports import Report, Twin
from p2pclust.peer.core.timing import PRESETS, Limits

NAMES = ("p1", "p2", "p3", "p4")
LATENCY_S = 0.002


@dataclass
class Process:
    core: Core
    links: dict[str, str]  # the address at which it reaches each peer
    incarnation: int = 0
    store_id: str = ""
    wakes_at: float = 0.0
    reports: list[tuple[float, Report]] = field(default_factory=list)


class Processes:
    """Peers by their address, so that two may have one name; a message goes to the address that its sender connected to."""

    def __init__(self) -> None:
        self.now, self.count = 0.0, count()
        self.running: dict[str, Process] = {}
        self.queue: list[tuple[float, int, str, Process, Event]] = []
        self.join = {name: f"{name}:1" for name in NAMES}
        for name in NAMES:
            self.start(name, f"{name}:1", StoreContents(f"store of {name}"))

    def start(self, name: str, address: str, stored: StoreContents, seed: int = 0) -> Process:
        rng = np.random.default_rng([seed, *address.encode()])
        core = Core(Identity(name, address, NAMES, self.join), stored, PRESETS["fast"], Limits(), rng)
        process = self.running[address] = Process(core, dict(self.join), store_id=stored.store_id)
        self._later(0.0, address, process, Started())
        return process

    def end(self, address: str) -> StoreContents:
        """End a process, and return its store."""
        process = self.running.pop(address)
        return StoreContents(process.store_id, process.incarnation)

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.queue[0][0] <= until:
            self.now, _, address, process, event = heapq.heappop(self.queue)
            if self.running.get(address) is process:
                self._perform(process, event)
        self.now = until

    def twins(self, address: str) -> list[Twin]:
        return [report for _, report in self.running[address].reports if isinstance(report, Twin)]

    def all_twins(self) -> list[Twin]:
        return [twin for address in self.running for twin in self.twins(address)]

    def _later(self, delay_s: float, address: str, process: Process, event: Event) -> None:
        heapq.heappush(self.queue, (self.now + delay_s, next(self.count), address, process, event))

    def _perform(self, process: Process, event: Event) -> None:
        name = process.core.identity.name
        for effect in process.core.step(self.now, event):
            match effect:
                case Connect():
                    process.links[effect.peer] = effect.address
                case Send():
                    there = self.running.get(process.links[effect.to])
                    if there is not None:
                        arrived = Arrived(name, effect.message)
                        self._later(LATENCY_S, there.core.identity.address, there, arrived)
                case CheckLink():
                    refused = process.links[effect.peer] not in self.running
                    checked = LinkChecked(effect.peer, refused)
                    self._later(LATENCY_S, process.core.identity.address, process, checked)
                case Persist(table="self", key="incarnation"):
                    process.incarnation = int(effect.value or b"0")
                case Persist(table="self", key="store_id"):
                    process.store_id = (effect.value or b"").decode()
                case Report():
                    process.reports.append((self.now, effect))
        if not self.now < process.wakes_at <= process.core.wake_at:
            process.wakes_at = process.core.wake_at
            self._later(max(0.0, process.wakes_at - self.now), process.core.identity.address, process, Woken())


@pytest.mark.slow
@pytest.mark.parametrize(
    "copied",
    [
        pytest.param("keys", id="keys-without-the-store"),
        pytest.param("card", id="card-with-the-store"),
        pytest.param("card-before", id="card-with-an-older-store"),
    ],
)
def test_a_copied_device_is_reported_by_both_and_by_the_others(copied: str) -> None:
    fleet = Processes()
    fleet.run(5.0)
    stored = {"keys": StoreContents("an empty store"), "card-before": StoreContents("store of p2", 0)}
    fleet.start(
        "p2", "elsewhere:7", stored.get(copied) or StoreContents("store of p2", fleet.running["p2:1"].incarnation)
    )
    fleet.run(20.0)
    for address in fleet.running:
        (twin,) = fleet.twins(address)
        assert (twin.member, sorted(twin.addresses)) == ("p2", ["elsewhere:7", "p2:1"]), address
        assert fleet.running[address].core.membership.twins.addresses("p2") != ()
    assert fleet.twins("p2:1")[0].addresses[0] == "p2:1", "its own address is the first"
    fleet.run(70.0)
    assert len(fleet.twins("p1:1")) == 2, "once a minute"
    fleet.end("elsewhere:7")
    core = fleet.running["p1:1"].core
    core.step(fleet.now + 700.0, Woken())
    assert core.membership.twins.addresses("p2") == (), "it is over"


@pytest.mark.slow
@pytest.mark.parametrize(
    "keeps", [pytest.param(True, id="with-its-store"), pytest.param(False, id="without-its-store")]
)
def test_restarts_at_other_addresses_are_not_reported(keeps: bool) -> None:
    """Also not of a device that goes back and forth between two networks."""
    fleet = Processes()
    fleet.run(5.0)
    for turn in range(6):
        stored = fleet.end("p2:1" if turn % 2 == 0 else "roams:7")
        if not keeps:
            stored = StoreContents(f"store {turn}")
        fleet.run(0.5 if turn < 3 else 20.0)
        fleet.start("p2", "roams:7" if turn % 2 == 0 else "p2:1", stored, seed=turn + 1)
        fleet.run(5.0)
    assert fleet.all_twins() == []


def ping(core: Core, now: float, address: str, incarnation: int, seq: int, store: str = "s") -> list[Twin]:
    claim = Update("p2", "alive", incarnation, address, store, "")
    return [effect for effect in core.step(now, Arrived("p2", Ping(seq, (claim,)))) if isinstance(effect, Twin)]


def test_late_pings_of_an_earlier_life_are_none_of_a_twin() -> None:
    core = alone(fleet=4)
    for late in range(20):
        assert not ping(core, 1.0 + late, "a:1", 3 + late % 3, 100 + late)  # the earlier life raised it up to 5
        assert not ping(core, 1.5 + late, "b:1", 6 + late, 7 + late)


def test_lives_that_take_turns_are_no_twins_and_processes_that_do_are() -> None:
    core = alone(fleet=4)
    for turn in range(20):
        address, life = ("a:1", "b:1")[turn % 2], 2**30 * (1 + turn)
        assert not ping(core, float(turn), address, 1 + turn, life), "each life numbers its pings anew"
    seen = [
        ping(core, 30.0 + turn, ("a:1", "b:1")[turn % 2], 100 + turn, 2**39 * (1 + turn % 2) + turn)
        for turn in range(9)
    ]
    assert [len(twins) for twins in seen] == [0, 0, 0, 0, 1, 0, 0, 0, 0]


def test_a_claim_from_before_is_refuted_and_is_no_twin() -> None:
    """Others may remember several earlier lives of a store that was lost."""
    core = alone("p2", fleet=4)
    told: list[Report] = []
    for number, incarnation in enumerate((5, 9, 9, 17, 30, 44)):
        claim = Update("p2", "alive", incarnation, "old:1", f"store {number}", "")
        told += [e for e in core.step(1.0, Arrived("p1", Gossip((claim,)))) if isinstance(e, Report)]
    assert [report.verb for report in told] == ["refuted"] * 5
