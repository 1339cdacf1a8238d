"""When devices are available: duty cycles, and a file of times.

The file is CSV with the header ``device,from_s,to_s``; a line names a device, or a group of devices. Seconds count from
the submission of the first job. A device with lines is available only at those times, a device without lines always.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from p2pclust.errors import UsageError
from p2pclust.lab.scenario.file.fleet_keys import DeviceSpec, FleetTable
from p2pclust.lab.testbed.power import Rest
from p2pclust.overlay.plans import plan_rows

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
