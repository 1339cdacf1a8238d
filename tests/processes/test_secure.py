"""Secure sums on real processes: if any peer is killed, the job ends with the bits of the replay of its record.

Devices draw new keys in each run, so which of them keep pads is not known before: of eight, three do, and the cases strike
the aggregator and others at all phases.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from runs import a_fleet, a_job, assert_kept_promises, by_verb, carry_out, rows

from p2pclust.lab.testbed.faults import Fault
from p2pclust.lab.testbed.spec import FleetResult, FleetSpec

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

N = 8
PHASES = ("opening", "combining", "adopting", "closing")


def secured(home: Path, *faults: Fault, seed: int = 1, **request: object) -> FleetSpec:
    """A job with secure sums."""
    job = a_job("llf-cm", secure=True, max_rounds=40, seed=seed)
    return a_fleet(rows(N), job, *faults, home=home, request={"secure": True, **request})


def assert_secured(spec: FleetSpec, result: FleetResult, gone: list[str]) -> None:
    assert_kept_promises(spec, result, gone=gone)
    state = result.jobs[0].state
    assert state is not None
    assert state.secured is not None
    assert state.secured.revealed, "sums were revealed, each of several peers"
    assert all(mask.bit_count() >= state.secured.cohort for mask in state.secured.revealed)


@pytest.mark.slow
@pytest.mark.parametrize("collect", ["star", "tree"])
def test_the_same_centers_as_the_plain_job(collect: str, home: Path) -> None:
    spec = secured(home, collect=collect)
    result = carry_out("processes", spec)
    assert_secured(spec, result, [])
    plain = a_fleet(rows(N), a_job("llf-cm", max_rounds=40, seed=1))
    other = carry_out("in-process", plain).jobs[0].state
    state = result.jobs[0].state
    assert state is not None
    assert other is not None
    assert state.arrays["centers"].tobytes() == other.arrays["centers"].tobytes()


@pytest.mark.slow
def test_a_killed_aggregator(home: Path) -> None:
    spec = secured(home, Fault("kill", (), round=14, phase="opening"))
    result = carry_out("processes", spec)
    (struck,) = by_verb(result, "fault")
    assert_secured(spec, result, [struck["peer"]])


@pytest.mark.soak
@pytest.mark.parametrize("number", range(20))
def test_kills_in_the_middle_of_secured_rounds(number: int, home: Path) -> None:
    rng = np.random.default_rng([20241, number])
    who = () if number % 3 == 0 else (f"p{int(rng.integers(N)):02d}",)
    phase = PHASES[number % 4 if not who else 2]
    at = Fault("kill", who, round=40 if phase == "closing" else int(rng.integers(1, 40)), phase=phase)
    # A peer that keeps pads may die when others have released theirs: then the job continues and names it.
    spec = secured(home, at, seed=number, burnt="record", collect=("star", "tree")[number % 2])
    result = carry_out("processes", spec)
    (struck,) = by_verb(result, "fault")
    assert_secured(spec, result, [struck["peer"]])


@pytest.mark.soak
@pytest.mark.parametrize("number", range(6))
def test_restarts_under_groups(number: int, home: Path) -> None:
    rng = np.random.default_rng([20242, number])
    at = Fault(
        "restart", (f"p{int(rng.integers(N)):02d}",), round=int(rng.integers(1, 40)), phase="adopting", for_s=1.0
    )
    spec = secured(home, at, seed=number, missing="all", leave="groups")
    result = carry_out("processes", spec)
    assert_secured(spec, result, [])
