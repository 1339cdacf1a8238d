"""When devices are there, from a file; and what a scenario may say of devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from p2pclust.errors import UsageError
from p2pclust.lab.scenario.file.fleet_keys import FleetTable
from p2pclust.lab.scenario.file.plans import describes_devices, make_rests, read_availability
from p2pclust.lab.testbed.power import DutyCycle, Rest

GROUPS = {"ship-01": "ship", "ship-02": "ship", "buoy": "buoy"}


def fleet(**device: object) -> FleetTable:
    return FleetTable.model_validate({"devices": [{"name": "meter", "count": 2, **device}]})


def test_lines_of_a_group_and_of_its_devices_are_put_together(tmp_path: Path) -> None:
    file = tmp_path / "there.csv"
    file.write_text("# ships\ndevice,from_s,to_s\nship,10,20\n\nship-01,15,30\nship-02,0,5\n")
    assert read_availability(file, GROUPS) == {"ship-01": ((10.0, 30.0),), "ship-02": ((0.0, 5.0), (10.0, 20.0))}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "line 1: expected the header device,from_s,to_s"),
        ("name,from,to\n", "line 1: expected the header device,from_s,to_s"),
        ("device,from_s,to_s\nship,1\n", "line 2: 2 values: expected device,from_s,to_s"),
        ("device,from_s,to_s\ncar,1,2\n", "line 2: no device or group 'car'; groups are ship, buoy"),
        ("device,from_s,to_s\nship,1,x\n", "line 2: 'x': expected a number of seconds from 0"),
        ("device,from_s,to_s\nship,-1,2\n", "line 2: '-1': expected a number of seconds from 0"),
        ("device,from_s,to_s\nship,2,2\n", "line 2: from 2 to 2 s: expected from_s below to_s"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_its_line(text: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "there.csv"
    file.write_text(text)
    with pytest.raises(UsageError) as error:
        read_availability(file, GROUPS)
    assert str(error.value) == f"{file}: {told}"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_availability(tmp_path / "there.csv", GROUPS)


def test_devices_of_a_group_are_spread_over_their_cycle() -> None:
    spread = make_rests(fleet(duty_cycle={"on_s": 2.0, "off_s": 6.0}))
    assert spread == {"meter-01": Rest(DutyCycle(2.0, 6.0, 0.0)), "meter-02": Rest(DutyCycle(2.0, 6.0, 4.0))}
    together = make_rests(fleet(duty_cycle={"on_s": 2.0, "off_s": 6.0, "phase_s": 1.0}))
    assert together["meter-02"] == Rest(DutyCycle(2.0, 6.0, 1.0))


@pytest.mark.parametrize(
    ("device", "key"),
    [
        ({"link": {"latency_ms": 1}}, "link"),
        ({"energy": {"idle_w": 1.0}}, "energy"),
        ({"battery": {"capacity_j": 1.0}}, "battery"),
        ({"memory_mb": 100.0}, "memory_mb"),
        ({"duty_cycle": {"on_s": 1.0, "off_s": 1.0}}, "duty_cycle"),
        ({"cpu_share": 0.5}, "cpu_share"),
    ],
)
def test_keys_that_need_devices(device: dict[str, object], key: str) -> None:
    assert describes_devices(fleet(**device)), key


def test_a_fleet_without_such_keys_describes_no_devices() -> None:
    assert not describes_devices(fleet(mains=True, cores=4))


@pytest.mark.parametrize(
    ("device", "told"),
    [
        ({"mains": True, "battery": {"capacity_j": 1.0}}, "a device on mains has no battery"),
        ({"energy": {}, "battery": {"capacity_j": 1.0}}, "leave energy out"),
        ({"battery": {"capacity_j": 1.0, "when_empty": "die", "recharge_w": 1.0}}, "a dead one does not come back"),
        ({"cpu_share": 0.0}, "greater than 0"),
        ({"cpu_share": 2.0}, "less than or equal to 1"),
    ],
)
def test_keys_that_contradict_each_other_are_refused(device: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        fleet(**device)
