"""What a backend carries out of a scenario's plans: its faults, with victims and moments, and when devices are available.

A file of times is CSV with the header ``device,from_s,to_s``; a line names a device, or a group of devices. Seconds count
from the submission of the first job. A device with lines is available only then, a device without lines always.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from p2pclust.errors import UsageError
from p2pclust.lab.scenario.file.fleet_keys import DeviceSpec, FleetTable
from p2pclust.lab.scenario.file.schema import FaultSpec, Scenario
from p2pclust.lab.testbed.faults import Fault
from p2pclust.lab.testbed.power import Rest
from p2pclust.overlay.plans import plan_rows
from p2pclust.peer.core.timing import preset

# The random streams of victims and of instants. The numbers of p2pclust.protocols.engine.random_streams are far below.
_VICTIMS = 1000
_INSTANTS = 1001


def planned(scenario: Scenario, n_features: int = 2) -> tuple[Fault, ...]:
    """Return the faults of a scenario, each with its victims and its moment; random choices depend only on its seed.

    A fault at several devices becomes one fault for each of them; a cut stays one fault, because it has two sides. A
    rate becomes one fault for each of its instants, each with its own victims.

    >>> made = Scenario.model_validate({
    ...     "data": {"source": "iris"}, "fleet": {"peers": 3}, "jobs": [{"protocol": "llf-cm", "clusters": 3}],
    ...     "faults": [
    ...         {"do": "kill", "who": "all", "at": {"seconds": 1}},
    ...         {"do": "cut", "who": "peer-02", "at": {"round": 4}},
    ...     ],
    ... })
    >>> [str(fault) for fault in planned(made)][2:]
    ['kill of peer-03 at 1.0 s', 'cut of peer-02 from all other peers at round 4 (adopting)']
    """
    rng = _stream(scenario.seed, _VICTIMS)
    # By default a peer that restarts stays down long enough for an election.
    down_s = 2 * preset(scenario.fleet.timing).election_max_s
    faults: list[Fault] = []
    for index, spec in enumerate(scenario.faults):
        if spec.how == "shuffle" and n_features < 2:
            raise UsageError(f"[faults.{index}]: how = 'shuffle': a single column cannot be shuffled")
        if spec.at.rate_per_minute is None:
            moments: list[tuple[float | None, str]] = [(spec.at.seconds, "")]
        else:
            moments = _drawn(spec, _stream(scenario.seed, _INSTANTS, index), f"(faults.{index})")
        for seconds, drawn in moments:
            victims = scenario.victims(spec, rng)
            together = spec.do in ("cut", "heal") or not victims  # no name means the aggregator
            each: list[tuple[str, ...]] = [victims] if together else [(name,) for name in victims]
            faults += [
                Fault(
                    spec.do, who, spec.at.round, spec.phase, seconds,
                    down_s if spec.do == "restart" and spec.for_s is None else spec.for_s,
                    spec.within, spec.at.job, scenario.called(spec.apart_from), spec.one_way, spec.factor or 1.0,
                    spec.probability or 0.0, spec.how or "", drawn,
                )
                for who in each
            ]  # fmt: skip
    return tuple(faults)


def away_s(faults: Sequence[Fault]) -> float:
    """Return the longest duration of a fault, or the time until the last peer is brought back."""
    lasting = max((fault.for_s or 0.0 for fault in faults), default=0.0)
    ends = max((fault.seconds or 0.0 for fault in faults if fault.do in ("heal", "resume", "join")), default=0.0)
    return max(lasting, ends)


def _stream(seed: int, *key: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy=seed, spawn_key=key)))


def _drawn(spec: FaultSpec, rng: np.random.Generator, which: str) -> list[tuple[float | None, str]]:
    """Return the instants of a Poisson process; without any, one fault that is reported as never having struck."""
    assert spec.at.rate_per_minute is not None
    assert spec.at.until_s is not None
    begins, ends, rate = spec.at.from_s or 0.0, spec.at.until_s, spec.at.rate_per_minute
    words = f"{rate:g} a minute from {begins:g} to {ends:g} s {which}"
    instants: list[tuple[float | None, str]] = []
    now = begins
    while (now := now + float(rng.exponential(60.0 / rate))) < ends:
        instants.append((math.ceil(now * 1000) / 1000, words))
    return instants or [(None, words)]


_HEADER: Final = ["device", "from_s", "to_s"]

_Times = tuple[tuple[float, float], ...]


def make_rests(fleet: FleetTable) -> dict[str, Rest]:
    """Return the planned sleep of devices, by name; devices that never sleep are left out."""
    members = fleet.members
    groups = {device.name: device.group for device in members}
    here = {} if fleet.availability is None else read_availability(Path(fleet.availability), groups)
    return {
        device.name: Rest(device.duty, here.get(device.name))
        for device in members
        if device.duty is not None or device.name in here
    }


def longest_sleep_s(rest: Rest) -> float:
    """Return the longest planned sleep of a device.

    >>> longest_sleep_s(Rest(here=((5.0, 10.0), (40.0, 50.0)))), longest_sleep_s(Rest())
    (30.0, 0.0)
    """
    duty_s = 0.0 if rest.duty is None else rest.duty.off_s
    ends = [0.0, *(ends for _, ends in rest.here or ())]
    return max([0.0, *(begins - before for before, (begins, _) in zip(ends, rest.here or (), strict=False))]) + duty_s


def read_availability(file: Path, groups: Mapping[str, str]) -> dict[str, _Times]:
    """Read the times at which devices are available, by device: in order of time, without overlaps.

    `groups` has the group of each device. A refusal names the file and the line.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "there.csv"
    ...     _ = file.write_text("device,from_s,to_s\\nship,0,60\\nship-02,50,90\\n")
    ...     read_availability(file, {"ship-01": "ship", "ship-02": "ship"})
    {'ship-01': ((0.0, 60.0),), 'ship-02': ((0.0, 90.0),)}
    """
    found: dict[str, list[tuple[float, float]]] = {}
    for number, row in plan_rows(file, _HEADER, "the times at which devices are available"):
        if len(row) != len(_HEADER):
            raise UsageError(f"{file}: line {number}: {len(row)} values: expected {','.join(_HEADER)}")
        names = [name for name, group in groups.items() if row[0] in (name, group)]
        if not names:
            known = ", ".join(dict.fromkeys(groups.values()))
            raise UsageError(f"{file}: line {number}: no device or group {row[0]!r}; groups are {known}")
        begins, ends = (_seconds(file, number, text) for text in row[1:])
        if begins >= ends:
            raise UsageError(f"{file}: line {number}: from {begins:g} to {ends:g} s: expected from_s below to_s")
        for name in names:
            found.setdefault(name, []).append((begins, ends))
    return {name: _merged(times) for name, times in found.items()}


def describes_devices(fleet: FleetTable) -> bool:
    """Return whether keys of the fleet are about devices, which a run in one process does not have."""
    keys = ("link", "energy", "battery", "memory_mb", "duty_cycle", "cpu_share", "enrolled")
    usual = {key: DeviceSpec.model_fields[key].default for key in keys}
    differs = any(getattr(spec, key) != value for spec in fleet.devices for key, value in usual.items())
    return differs or fleet.availability is not None


def _merged(times: Sequence[tuple[float, float]]) -> _Times:
    merged: list[tuple[float, float]] = []
    for begins, ends in sorted(times):
        if merged and begins <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], ends))
        else:
            merged.append((begins, ends))
    return tuple(merged)


def _seconds(file: Path, number: int, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        raise UsageError(f"{file}: line {number}: {text!r}: expected a number of seconds from 0")
    return seconds
