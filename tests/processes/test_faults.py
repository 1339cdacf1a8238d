"""Every other fault on real processes: what crosses a cut is lost, late ones start late, good-byes are said, rows change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from runs import a_fleet, a_job, assert_kept_promises, by_verb, carry_out, rows

from p2pclust.lab.testbed.faults import Fault
from p2pclust.lab.testbed.peer.lies import lie_called
from p2pclust.lab.testbed.power import Battery
from p2pclust.lab.testbed.spec import FleetResult, FleetSpec, LogLine
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import replay

pytestmark = pytest.mark.processes

LONG = 400  # rounds: some seconds
EVERYBODY = ("p00", "p01", "p02", "p03")


def bits_of_the_rows_that_were(spec: FleetSpec, result: FleetResult, number: int = 0) -> bool:
    """Whether the job has the bits of the replay over the rows that each peer had in each round."""
    job, index = result.jobs[number], {peer.name: n for n, peer in enumerate(spec.peers)}
    assert job.state is not None
    used = [(d, Local(d.X)) for d in result.damage if d.job_id == job.job_id]
    later = [(d.round, index[d.peer], X.lying(lie_called(d.how)) if d.lie else X) for d, X in used]
    again = replay(spec.jobs[number].job, [Local(peer.X) for peer in spec.peers], job.state.log, later)
    return again.encode() == job.state.encode()


def test_a_minority_is_cut_off_at_a_round_and_catches_up(home: Path) -> None:
    cut = Fault("cut", ("p03", "p04"), round=3, phase="adopting", for_s=6.0)
    spec = a_fleet(rows(5), a_job("llf-cm", max_rounds=40), cut, home=home)
    result = carry_out("processes", spec)
    (struck,) = by_verb(result, "fault")
    assert (struck["who"], struck["planned"]) == (["p03", "p04"], 3)
    state = result.jobs[0].state
    assert state is not None
    assert any(set(record.contributors) == {0, 1, 2} for record in state.log)
    assert [event["from"] for event in by_verb(result, "recovered")] == ["cut"]
    assert_kept_promises(spec, result)


def test_two_halves_wait_until_they_are_healed(home: Path) -> None:
    faults = [
        Fault("cut", ("p02", "p03"), round=3, phase="adopting", apart_from=("p00", "p01")),
        Fault("heal", EVERYBODY, seconds=10.0),
    ]
    spec = a_fleet(rows(4), a_job("llf-cm", max_rounds=20), *faults, home=home)
    result = carry_out("processes", spec)
    healed = by_verb(result, "fault")[1]["t"]
    assert all(event["t"] > healed for event in by_verb(result, "finished")), "two of four are no majority"
    assert_kept_promises(spec, result)


def test_who_is_cut_off_for_good_is_not_waited_for(home: Path) -> None:
    spec = a_fleet(rows(5), a_job(), Fault("cut", ("p04",), round=2, phase="adopting"), home=home)
    result = carry_out("processes", spec)
    assert result.failure == ""
    assert sorted(result.jobs[0].digests) == ["p00", "p01", "p02", "p03"]
    assert len(set(result.jobs[0].digests.values())) == 1
    assert not result.peers["p04"]["finished"]


def test_one_joins_late_and_one_leaves(home: Path) -> None:
    faults = [Fault("join", ("p04",), job=1), Fault("leave", ("p01",), round=3, phase="adopting")]
    spec = a_fleet(rows(5), [a_job("llf-cm"), a_job("llf-fcm")], *faults, home=home)
    result = carry_out("processes", spec)
    assert result.failure == ""
    assert result.unfired_faults == ()
    assert [job.roster for job in result.jobs] == [("p00", "p01", "p02", "p03"), ("p00", "p02", "p03", "p04")]
    assert sorted(result.jobs[1].digests) == ["p00", "p02", "p03", "p04"]
    assert next(event["peer"] for event in by_verb(result, "left")) == "p01"
    assert not result.peers["p01"]["lost"]


def test_one_is_revoked_and_a_stranger_is_refused(home: Path) -> None:
    spec = a_fleet(rows(6), a_job("llf-cm", max_rounds=400), Fault("revoke", ("p03",), seconds=1.0), home=home)
    spec = replace(spec, peers=(*spec.peers[:5], replace(spec.peers[5], enrolled=False)))
    result = carry_out("processes", spec)
    assert result.failure == ""
    assert result.jobs[0].roster == ("p00", "p01", "p02", "p03", "p04")
    assert sorted(result.jobs[0].digests) == ["p00", "p01", "p02", "p04"]
    refused = by_verb(result, "refused-stranger")
    assert {event["peer"] for event in refused} == {"p00", "p01", "p02", "p03", "p04"}
    assert len({event["print"] for event in refused}) == 1
    assert {(event["serial"], *event["revoked"]) for event in by_verb(result, "roster")} == {(6, "p03")}
    assert not result.peers["p05"]["messages_received"]
    assert bits_of_the_rows_that_were(spec, result)


def test_a_slow_device_takes_longer_and_nobody_thinks_it_dead(home: Path) -> None:
    faults = [Fault("slow", ("p02",), job=0, factor=100.0), Fault("slow", ("p02",), job=1, factor=1.0)]
    jobs = [a_job("llf-fcm", max_rounds=8), a_job("llf-fcm", max_rounds=8)]
    # Not "fast": on a machine that has little time for any of the four, another one could be held dead.
    spec = a_fleet(rows(4), jobs, *faults, home=home, timing="default")
    result = carry_out("processes", spec)
    assert_kept_promises(spec, result)
    assert not [event for event in by_verb(result, "member") if event["status"] == "dead"]
    # Without the elections, which take as long as chance has it.
    began, ended = ({event["job"]: event["t"] for event in by_verb(result, verb)} for verb in ("elected", "finished"))
    slow, usual = (ended[job.job_id] - began[job.job_id] for job in result.jobs)
    assert slow > usual


def test_who_loses_messages_for_a_while_still_finishes(home: Path) -> None:
    lossy = Fault("drop", ("p01",), round=2, phase="adopting", probability=0.6, for_s=3.0)
    spec = a_fleet(rows(4), a_job("llf-cm", max_rounds=60), lossy, home=home)
    result = carry_out("processes", spec)
    assert result.peers["p01"]["dropped"].get("not received: lost on the way", 0) > 0
    assert_kept_promises(spec, result)


def test_missing_values_are_named_and_what_nobody_sees_counts_from_its_round_on(home: Path) -> None:
    faults = [
        Fault("corrupt-data", ("p01",), job=0, how="nan"),
        Fault("corrupt-data", ("p02",), round=4, phase="adopting", how="scale"),
        Fault("corrupt-data", ("p03",), job=1, how="constant"),
    ]
    jobs = [a_job("llf-cm", scaling="none"), a_job("llf-cm", scaling="none")]
    spec = a_fleet(rows(5), jobs, *faults, home=home, seed=3)
    result = carry_out("processes", spec)
    assert result.failure == ""
    first, second = (job.state for job in result.jobs)
    assert first is not None
    assert second is not None
    assert all(1 not in record.contributors for record in (*first.log, *second.log))
    assert next(d.round for d in result.damage if d.peer == "p02") == 4
    assert bits_of_the_rows_that_were(spec, result, 0)
    assert bits_of_the_rows_that_were(spec, result, 1)
    assert sorted(result.jobs[1].digests) == ["p00", "p01", "p02", "p03", "p04"]


def test_a_drained_aggregator_is_gone(home: Path) -> None:
    spec = a_fleet(rows(4), a_job(), Fault("drain", (), round=3, phase="combining"), home=home)
    result = carry_out("processes", spec)
    (struck,) = by_verb(result, "fault")
    assert_kept_promises(spec, result, gone=[struck["peer"]])


def test_a_drained_device_sleeps_until_its_battery_is_charged(home: Path) -> None:
    battery = Battery(10.0, recharge_w=1.0)
    spec = a_fleet(rows(4), a_job(), Fault("drain", ("p02",), round=3, phase="adopting"), home=home)
    peers = tuple(replace(peer, battery=battery) for peer in spec.peers)
    result = carry_out("processes", replace(spec, peers=peers))
    assert [event["peer"] for event in by_verb(result, "drained")] == ["p02"]
    assert [event["peer"] for event in by_verb(result, "awake")] == ["p02"]
    assert_kept_promises(spec, result)


def test_a_restarted_device_is_as_broken_as_before(home: Path) -> None:
    faults = [
        Fault("corrupt-data", ("p02",), job=0, how="shuffle"),
        Fault("restart", ("p02",), round=3, phase="adopting", for_s=0.3),
    ]
    spec = a_fleet(rows(4), a_job("llf-cm", scaling="none", max_rounds=40), *faults, home=home)
    result = carry_out("processes", spec)
    assert result.failure == ""
    assert sorted(result.jobs[0].digests) == list(EVERYBODY)
    assert bits_of_the_rows_that_were(spec, result)


def test_a_restarted_device_lies_as_before(home: Path) -> None:
    faults = [
        Fault("lie", ("p01",), round=4, phase="adopting", how="inflate"),
        Fault("lie", ("p02",), job=0, how="corner"),
        Fault("restart", ("p02",), round=5, phase="adopting", for_s=0.3),
    ]
    spec = a_fleet(rows(5), a_job("llf-cm", max_rounds=40, max_weight=2.0), *faults, home=home)
    result = carry_out("processes", spec)
    assert result.failure == ""
    assert {(d.peer, d.how) for d in result.damage} == {("p01", "inflate"), ("p02", "corner")}
    assert bits_of_the_rows_that_were(spec, result)


def test_a_fault_that_cannot_be_carried_out_ends_the_run_with_its_reason(home: Path) -> None:
    def stumbles(event: LogLine) -> None:
        if event["verb"] == "fault":
            raise LookupError("who watches does not know this fault")

    spec = a_fleet(
        rows(3), a_job("llf-cm", max_rounds=400), Fault("pause", ("p02",), seconds=0.2, for_s=1.0), home=home
    )
    with pytest.raises(LookupError, match="who watches does not know this fault"):
        carry_out("processes", spec, stumbles)
