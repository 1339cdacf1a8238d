"""Batteries, duty cycles and availability: arithmetic that can be done by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.lab.testbed.power import AWAKE_AT, Battery, DutyCycle, Meter, Rest, Use


def test_what_a_device_does_costs_what_was_stated() -> None:
    battery = Battery(tx_j_per_mb=8.0, rx_j_per_mb=5.0, cpu_j_per_s=2.0, idle_w=0.5)
    meter = Meter(battery, 10.0, Use(1e6, 1e6, 1.0))
    meter.read(20.0, Use(3e6, 1.5e6, 4.0), awake=True)
    assert meter.energy_j == 2 * 8 + 0.5 * 5 + 3 * 2 + 10 * 0.5
    assert meter.left_j == math.inf
    meter.read(30.0, Use(3e6, 1.5e6, 4.0), awake=False)
    assert meter.energy_j == 2 * 8 + 0.5 * 5 + 3 * 2 + 10 * 0.5


def test_no_more_is_used_than_was_there() -> None:
    meter = Meter(Battery(10.0, idle_w=3.0, recharge_w=1.0), 0.0, Use())
    meter.read(2.0, Use(), awake=True)
    assert (meter.energy_j, meter.left_j, meter.empty) == (6.0, 6.0, False)
    meter.read(6.0, Use(), awake=True)
    assert (meter.energy_j, meter.left_j, meter.empty) == (16.0, 0.0, True)


def test_a_battery_fills_up_to_its_capacity_and_wakes_at_a_tenth() -> None:
    meter = Meter(Battery(10.0, recharge_w=1.0), 0.0, Use())
    meter.left_j = 0.0
    meter.read(0.9, Use(), awake=False)
    assert (meter.empty, meter.wakes) == (False, False)
    meter.read(10 * AWAKE_AT, Use(), awake=False)
    assert meter.wakes
    meter.read(1e3, Use(), awake=False)
    assert meter.left_j == 10.0


def test_a_new_life_counts_from_nothing() -> None:
    meter = Meter(Battery(tx_j_per_mb=1.0), 0.0, Use())
    meter.read(1.0, Use(bytes_sent=2e6), awake=True)
    meter.use = Use()
    meter.read(2.0, Use(bytes_sent=1e6), awake=True)
    assert meter.energy_j == 3.0


@given(st.floats(0.1, 100), st.floats(0.1, 100), st.floats(0, 200), st.floats(0, 1000))
def test_a_duty_cycle_changes_when_it_says(on_s: float, off_s: float, phase_s: float, t: float) -> None:
    duty = DutyCycle(on_s, off_s, phase_s)
    change = duty.next_change(t)
    assert t < change <= t + max(on_s, off_s) * (1 + 1e-9) + 1e-9
    assert duty.asleep(change) != duty.asleep(t)
    after = duty.next_change(change)
    assert after - change == pytest.approx(off_s if duty.asleep(change) else on_s, abs=1e-6)


def test_who_is_never_there_sleeps_for_good() -> None:
    rest = Rest(here=())
    assert (rest.why(0.0), rest.for_good(0.0), rest.next_change(0.0)) == ("not available", True, math.inf)


def test_nobody_rests_without_a_plan() -> None:
    assert (Rest().why(5.0), Rest().for_good(5.0), Rest().next_change(5.0)) == ("", False, math.inf)
