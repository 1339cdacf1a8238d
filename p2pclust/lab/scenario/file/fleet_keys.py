"""``[fleet]`` of a scenario: the devices, their links, and the timing of their peers."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from p2pclust.jobs import fields
from p2pclust.jobs.data_keys import OverlaySpec
from p2pclust.jobs.fields import TomlTable, refuse
from p2pclust.lab.links.shaping import Shape
from p2pclust.lab.testbed.power import Battery, DutyCycle

PEERS_MAX = 1000


@dataclass(frozen=True)
class Device:
    """One peer of the fleet, as `FleetTable.members` lists it."""

    name: str
    spec: DeviceSpec
    duty: DutyCycle | None

    @property
    def group(self) -> str:
        return self.spec.name


_Mbit = Annotated[float, Field(gt=0, le=1e6)]


class LinkSpec(TomlTable):
    """``link = { ... }``: how a device is connected: its half of every path, in each direction."""

    #: Delay of a message from or to this device, and the largest deviation from it (uniform, in both directions).
    latency_ms: Annotated[float, Field(ge=0, le=60_000)] = 0.0
    jitter_ms: Annotated[float, Field(ge=0, le=60_000)] = 0.0
    #: The probability that a message is lost.
    loss: Annotated[float, Field(ge=0, lt=1)] = 0.0
    #: Megabits per second: of both directions, or of each; by default unlimited.
    mbit: _Mbit | None = None
    up_mbit: _Mbit | None = None
    down_mbit: _Mbit | None = None

    @property
    def up(self) -> float | None:
        return self.up_mbit or self.mbit

    @property
    def shape(self) -> Shape:
        up, down = self.up or math.inf, self.down_mbit or self.mbit or math.inf
        of_both = {"latency_ms": self.latency_ms, "jitter_ms": self.jitter_ms, "loss": self.loss}
        return Shape.of(**of_both, up_mbit=up, down_mbit=down)

    @model_validator(mode="after")
    def _fits_together(self) -> LinkSpec:
        apart = self.up_mbit is not None or self.down_mbit is not None
        wrong = {
            f"jitter_ms = {self.jitter_ms:g}: expected at most latency_ms, which is {self.latency_ms:g}":
                self.jitter_ms > self.latency_ms,
            "mbit is for both directions: leave it out, or up_mbit and down_mbit": self.mbit is not None and apart,
        }  # fmt: skip
        refuse([problem for problem, here in wrong.items() if here])
        return self


_Cost = Annotated[float, Field(ge=0, le=1e9)]
_Seconds = Annotated[float, Field(gt=0, le=1e7)]


class EnergySpec(TomlTable):
    """``energy = { ... }``: what a device on mains uses; it is counted and never runs out."""

    #: For each 10^6 bytes sent and received, for each second of processor time, and while awake.
    tx_j_per_mb: _Cost = 0.0
    rx_j_per_mb: _Cost = 0.0
    cpu_j_per_s: _Cost = 0.0
    idle_w: _Cost = 0.0


class BatterySpec(EnergySpec):
    """``battery = { ... }``: what a device uses, its capacity, and what happens when the battery is empty."""

    capacity_j: Annotated[float, Field(gt=0, le=1e12)]
    when_empty: Literal["sleep", "die"] = "sleep"
    recharge_w: _Cost = 0.0

    @model_validator(mode="after")
    def _fits_together(self) -> BatterySpec:
        if self.when_empty == "die" and self.recharge_w:
            refuse(["recharge_w is for a device that sleeps when its battery is empty: a dead one does not come back"])
        return self


class DutySpec(TomlTable):
    """``duty_cycle = { ... }``: awake for on_s, then asleep for off_s, repeatedly."""

    on_s: _Seconds
    off_s: _Seconds
    #: The position in the cycle when the first job is submitted; by default the devices of a group are spread evenly.
    phase_s: Annotated[float, Field(ge=0, le=2e7)] | None = None


class DeviceSpec(TomlTable):
    """``[[fleet.devices]]``: one device, or a group of equal ones named ``name-01``, ``name-02``, ..."""

    name: Annotated[str, AfterValidator(fields.device_name)]
    count: Annotated[int, Field(ge=1, le=PEERS_MAX)] | None = None
    #: Mains power and the number of cores: such a device is more likely to become the aggregator.
    mains: bool = False
    cores: Annotated[int, Field(ge=1)] | None = None
    link: LinkSpec | None = None
    energy: EnergySpec | None = None
    battery: BatterySpec | None = None
    #: The share of one processor that its computations get.
    cpu_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    #: Its limit of private writable memory, in 10^6 bytes.
    memory_mb: Annotated[float, Field(gt=0)] | None = None
    duty_cycle: DutySpec | None = None
    #: Whether it is on the fleet roster; if not, it is a stranger that tries to join.
    enrolled: bool = True

    @property
    def members(self) -> tuple[Device, ...]:
        """The devices of this name, in order."""
        names, cycle = _names(self), self.duty_cycle
        if cycle is None:
            return tuple(Device(name, self, None) for name in names)
        spread = [number / len(names) * (cycle.on_s + cycle.off_s) for number in range(len(names))]
        phases = spread if cycle.phase_s is None else [cycle.phase_s] * len(names)
        duties = [DutyCycle(cycle.on_s, cycle.off_s, phase) for phase in phases]
        return tuple(Device(name, self, duty) for name, duty in zip(names, duties, strict=True))

    @property
    def costs(self) -> Battery | None:
        costs = self.battery or self.energy
        return None if costs is None else Battery(**costs.model_dump())

    @model_validator(mode="after")
    def _one_supply(self) -> DeviceSpec:
        wrong = {
            "a device on mains has no battery: leave one of them out, or use energy = { ... } for its costs": self.mains,
            "battery already has the device's costs: leave energy out": self.energy is not None,
        }
        refuse([problem for problem, here in wrong.items() if here and self.battery is not None])
        return self


class FleetTable(TomlTable):
    """``[fleet]``: the devices, their overlay, and the timing of their peers."""

    timing: Literal["default", "wan", "fast"] = "default"
    overlay: OverlaySpec = OverlaySpec()
    #: Short form for equal devices: peer-01, peer-02, ...
    peers: Annotated[int, Field(ge=1, le=PEERS_MAX)] | None = None
    devices: Annotated[tuple[DeviceSpec, ...], Field(strict=False)] = ()
    #: A file of the times at which devices are available, relative to the scenario; other devices always are.
    availability: Annotated[str, Field(min_length=1)] | None = None
    #: The run is given up after this long without progress; the default depends on patience and faults.
    give_up_s: Annotated[float, Field(gt=0)] | None = None

    @property
    def members(self) -> tuple[Device, ...]:
        """Every peer, in the order of the file."""
        specs = self.devices or (DeviceSpec(name="peer", count=self.peers),)
        return tuple(device for spec in specs for device in spec.members)

    @property
    def n_enrolled(self) -> int:
        """The number of devices that jobs may count on: all but strangers."""
        return sum(device.spec.enrolled for device in self.members)

    @property
    def names(self) -> list[str]:
        return [device.name for device in self.members]

    @model_validator(mode="after")
    def _names_are_distinct(self) -> FleetTable:
        called = Counter(name for spec in self.devices for name in dict.fromkeys([spec.name, *_names(spec)]))
        twice = next((name for name, count in called.items() if count > 1), None)
        strangers, n_members = [spec.name for spec in self.devices if not spec.enrolled], len(self.members)
        sparse = self.overlay.kind != "full" or self.overlay.trace is not None
        wrong = {
            "expected either peers = N, or [[fleet.devices]]": (self.peers is None) == (not self.devices),
            f"two devices or groups are called {twice!r}: give each its own name": twice is not None,
            "no device is enrolled: expected a fleet beside the strangers": 0 < len(strangers) == len(self.devices),
            f"{''.join(strangers[:1])}: enrolled: an overlay cannot have strangers: leave the overlay out":
                strangers and sparse,
            f"{n_members} devices: expected at most {PEERS_MAX}": n_members > PEERS_MAX,
        }  # fmt: skip
        refuse([problem for problem, here in wrong.items() if here][:1])
        return self


def _names(spec: DeviceSpec) -> tuple[str, ...]:
    if spec.count is None:
        return (spec.name,)
    digits = max(2, len(str(spec.count)))
    return tuple(f"{spec.name}-{index:0{digits}d}" for index in range(1, spec.count + 1))
