"""Devices on real processes: links, sleep, batteries and limits by real signals and measured use."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from runs import a_fleet, a_job, assert_kept_promises, by_verb, carry_out, rows

from p2pclust.lab.links.shaping import Shape
from p2pclust.lab.testbed.power import Battery, DutyCycle, Rest
from p2pclust.lab.testbed.spec import FleetSpec

pytestmark = pytest.mark.processes


def fleet(home: Path, n: int = 4, rounds: int = 6) -> FleetSpec:
    return a_fleet(rows(n), a_job(max_rounds=rounds), home=home)


def with_devices(spec: FleetSpec, **devices: dict[str, object]) -> FleetSpec:
    return replace(spec, peers=tuple(replace(peer, **devices.get(peer.name, {})) for peer in spec.peers))


def test_links_that_delay_and_lose_cost_time_and_no_bits(home: Path) -> None:
    link = Shape.of(latency_ms=20.0, jitter_ms=10.0, loss=0.05, up_mbit=1.0, down_mbit=2.0)
    spec = with_devices(fleet(home), **{name: {"link": link} for name in ("p00", "p01", "p02", "p03")})
    result = carry_out("processes", spec)
    assert_kept_promises(spec, result)
    lost = sum(peer["dropped"].get("lost: on the shaped link", 0) for peer in result.peers.values())
    assert lost > 0
    # Eight rounds and more, each from the aggregator and back.
    assert result.jobs[0].seconds > 8 * 2 * (2 * 0.02) * 0.5


def test_sleep_by_plan_is_no_death_and_leaves_nobody_out(home: Path) -> None:
    rests = {f"p0{i}": {"rest": Rest(DutyCycle(0.6, 1.2, 1.8 * i / 4)), "fitness": 0.1} for i in (1, 2, 3)}
    spec = with_devices(fleet(home), **rests)
    result = carry_out("processes", spec)
    assert_kept_promises(spec, result)
    assert by_verb(result, "asleep")
    slept = [event for event in by_verb(result, "member") if event["member"] in rests]
    assert [event for event in slept if event["status"] == "dead"] == []
    state = result.jobs[0].state
    assert state is not None
    assert all(record.contributors in ((0, 1, 2, 3), *((i,) for i in range(4))) for record in state.log)


def test_an_empty_battery_sleeps_or_dies_and_the_others_finish(home: Path) -> None:
    link = Shape.of(latency_ms=100.0)
    devices = {
        "p00": {"link": link, "battery": Battery(tx_j_per_mb=8.0, cpu_j_per_s=1.0)},
        "p01": {"link": link}, "p02": {"link": link},
        "p03": {"link": link, "battery": Battery(1.0, idle_w=1.0)},
        "p04": {"link": link, "battery": Battery(1.0, idle_w=1.0, when_empty="die")},
    }  # fmt: skip
    spec = with_devices(fleet(home, 5, 12), **devices)
    result = carry_out("processes", spec)
    assert_kept_promises(spec, result, gone=("p03", "p04"))
    assert {event["peer"] for event in by_verb(result, "drained")} == {"p03", "p04"}
    assert [event["peer"] for event in by_verb(result, "asleep")] == ["p03"]
    told = {name: (peer["finished"], peer["lost"], peer["battery_left_j"]) for name, peer in result.peers.items()}
    assert told == {
        "p00": (True, False, None), "p01": (True, False, None), "p02": (True, False, None),
        "p03": (False, True, 0.0), "p04": (False, True, 0.0),
    }  # fmt: skip
    assert 0.0 < result.peers["p00"]["energy_j"] < 60.0


def test_rows_that_do_not_fit_into_memory_abstain_by_name(home: Path) -> None:
    spec = fleet(home, 3)
    big = spec.peers[2].X.repeat(160_000, axis=0)  # some 110 MB
    spec = replace(spec, peers=(*spec.peers[:2], replace(spec.peers[2], X=big, memory_mb=120.0)))
    result = carry_out("processes", spec)
    assert result.failure == ""
    state = result.jobs[0].state
    assert state is not None
    assert all(2 not in record.contributors for record in state.log)
    assert "its data cannot be used" in state.log[-1].abstained[2]
    assert {refused["peer"] for refused in by_verb(result, "data-refused")} == {"p02"}


def test_a_small_share_of_a_processor_is_kept(home: Path) -> None:
    spec = fleet(home, 3, 40)
    slow = replace(spec, peers=(*spec.peers[:2], replace(spec.peers[2], cpu_share=0.02)))
    result = carry_out("processes", slow)
    assert_kept_promises(slow, result)
    combined = [event["t"] for event in by_verb(result, "combined")]
    # Every round waits for its task of some tenths of a millisecond, fifty times over.
    assert (combined[-1] - combined[5]) / (len(combined) - 6) > 0.005
