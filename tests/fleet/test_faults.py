"""Faults in virtual time: each kind at each phase; what is left is always the replay of its own record."""

from __future__ import annotations

from itertools import product

import pytest
from runs import PROTOCOLS, a_fleet, a_job, assert_kept_promises, by_verb, carry_out, rows

from p2pclust.lab.testbed.faults import Fault
from p2pclust.peer.core.timing import preset

pytestmark = pytest.mark.slow

PHASES = ("opening", "adopting", "combining", "closing")
KINDS = ("kill", "restart", "pause")
ROUND = {"k-fed": 1}  # of the fault: a one-shot protocol has no third round
LONG = 150  # rounds; in virtual time more than a second and a half


def faults(phases: tuple[str, ...] = PHASES) -> list[object]:
    return [
        pytest.param(do, phase, who, id=f"{do}-{who or 'aggregator'}-{phase}")
        for do, phase, who in product(KINDS, phases, ("", "p03"))
        # Only the aggregator opens, combines and closes: a fault of anybody else waits there indefinitely.
        if phase == "adopting" or not who
    ]


def the_fault(do: str, phase: str, who: str, round: int = 3) -> Fault:
    return Fault(do, (who,) if who else (), round=round, phase=phase, for_s=5.0 if do == "pause" else None)  # type: ignore[arg-type]


class TestEachKindAtEachPhase:
    @pytest.mark.parametrize("protocol", PROTOCOLS)
    @pytest.mark.parametrize(("do", "phase", "who"), faults())
    def test_the_rest_finishes_with_the_bits_of_its_own_record(
        self, do: str, phase: str, who: str, protocol: str
    ) -> None:
        spec = a_fleet(rows(5), a_job(protocol), the_fault(do, phase, who, ROUND.get(protocol, 3)))
        result = carry_out("simulated", spec)
        (struck,) = by_verb(result, "fault")
        assert (struck["do"], struck["phase"]) == (do, phase)
        assert_kept_promises(spec, result, gone=[struck["peer"]] if do == "kill" else [])
        if not who:
            assert len(result.jobs[0].terms) > 1, "another one took over"

    @pytest.mark.parametrize("scaling", ["none", "minmax"])
    @pytest.mark.parametrize("protocol", PROTOCOLS)
    @pytest.mark.parametrize("do", KINDS)
    def test_far_from_the_origin_too(self, do: str, protocol: str, scaling: str) -> None:
        job = a_job(protocol, scaling=scaling, **({} if protocol in ROUND else {"max_rounds": 12}))
        spec = a_fleet(rows(5, offset=1e6), job, the_fault(do, "combining", "", ROUND.get(protocol, 3)))
        result = carry_out("simulated", spec)
        (struck,) = by_verb(result, "fault")
        assert_kept_promises(spec, result, gone=[struck["peer"]] if do == "kill" else [])

    @pytest.mark.parametrize("missing", ["all", "wait", "drop"])
    @pytest.mark.parametrize("phase", PHASES)
    def test_whatever_the_rule_for_missing_peers(self, missing: str, phase: str) -> None:
        spec = a_fleet(
            rows(5), a_job(), the_fault("restart", phase, ""), request={"missing": missing, "deadline_s": 1.0}
        )
        result = carry_out("simulated", spec)
        assert_kept_promises(spec, result)
        if missing == "all":
            without = carry_out("in-process", a_fleet(rows(5), a_job()))
            assert result.jobs[0].state == without.jobs[0].state, "nobody was left out: the bits of the fault-free run"

    @pytest.mark.parametrize("phase", PHASES)
    def test_with_a_share_of_the_peers_in_each_round(self, phase: str) -> None:
        spec = a_fleet(rows(5), a_job(participation=0.6), the_fault("kill", phase, ""))
        result = carry_out("simulated", spec)
        (struck,) = by_verb(result, "fault")
        assert_kept_promises(spec, result, gone=[struck["peer"]])

    def test_who_was_killed_contributes_to_no_round_after(self) -> None:
        spec = a_fleet(rows(5), a_job(), the_fault("kill", "adopting", "p03"))
        state = carry_out("simulated", spec).jobs[0].state
        assert state is not None
        assert [3 in record.contributors for record in state.log if record.stage == 3][-3:] == [False] * 3

    def test_two_faults_one_after_another(self) -> None:
        first = Fault("kill", (), round=2, phase="combining")
        second = Fault("kill", (), round=4, phase="opening")
        spec = a_fleet(rows(5), a_job(), first, second)
        result = carry_out("simulated", spec)
        gone = [event["peer"] for event in by_verb(result, "fault")]
        assert len(set(gone)) == 2
        assert [event["number"] for event in by_verb(result, "fault")] == [0, 1], "an event tells which one struck"
        assert_kept_promises(spec, result, gone=gone)

    def test_only_in_the_first_of_two_jobs(self) -> None:
        spec = a_fleet(rows(5), [a_job("llf-cm"), a_job("llf-fcm")], Fault("kill", (), round=3))
        result = carry_out("simulated", spec)
        (struck,) = by_verb(result, "fault")
        assert result.failure == ""
        assert struck["peer"] in result.jobs[0].roster
        assert struck["peer"] not in result.jobs[1].roster, "the second job takes those who are there"
        assert [job.state is not None and job.state.status for job in result.jobs] == ["done", "done"]


class TestBySecond:
    def test_a_kill(self) -> None:
        spec = a_fleet(rows(5), a_job("llf-cm", max_rounds=LONG), Fault("kill", ("p01",), seconds=0.9))
        result = carry_out("simulated", spec)
        (struck,) = by_verb(result, "fault")
        (submitted,) = by_verb(result, "submitted")
        assert (struck["peer"], struck["seconds"]) == ("p01", 0.9)
        assert struck["t"] == pytest.approx(submitted["t"] + 0.9)
        assert_kept_promises(spec, result, gone=["p01"])

    @pytest.mark.slow
    def test_a_restart_comes_back_after_the_seconds_given(self) -> None:
        fault = Fault("restart", ("p01",), seconds=0.9, for_s=1.7)
        result = carry_out("simulated", a_fleet(rows(5), a_job("llf-cm", max_rounds=LONG), fault))
        (struck,) = by_verb(result, "fault")
        back = [event for event in by_verb(result, "started") if event["peer"] == "p01"][-1]
        assert back["t"] == pytest.approx(struck["t"] + 1.7)
        assert back["life"] == 2
        assert result.peers["p01"]["finished"]

    @pytest.mark.slow
    def test_a_pause_lasts_until_the_resume(self) -> None:
        pause, resume = Fault("pause", ("p01",), seconds=0.9), Fault("resume", ("p01",), seconds=4.9)
        spec = a_fleet(rows(5), a_job("llf-cm", max_rounds=LONG), pause, resume)
        result = carry_out("simulated", spec)
        assert_kept_promises(spec, result)
        told = [e["t"] for e in result.events if e["peer"] == "p01" and e["verb"] not in ("fault", "started")]
        struck, resumed = (event["t"] for event in by_verb(result, "fault"))
        assert resumed == pytest.approx(struck + 4.0)
        assert not [t for t in told if struck < t < resumed], "nothing is heard of it meanwhile"

    @pytest.mark.slow
    def test_the_aggregator_of_that_moment(self) -> None:
        spec = a_fleet(rows(5), a_job("llf-cm", max_rounds=LONG), Fault("kill", (), seconds=1.2))
        result = carry_out("simulated", spec)
        (struck,) = by_verb(result, "fault")
        assert struck["peer"] == result.jobs[0].terms[0][1]
        assert_kept_promises(spec, result, gone=[struck["peer"]])

    def test_what_never_came_is_told(self) -> None:
        spec = a_fleet(rows(3), a_job(), Fault("kill", ("p00",), seconds=1e4), Fault("kill", ("p01",), round=99))
        result = carry_out("simulated", spec)
        assert result.failure == ""
        assert result.unfired_faults == ("kill of p00 at 10000.0 s", "kill of p01 at round 99 (opening)")


class TestLostMajority:
    def test_the_fleet_says_so_within_its_patience(self) -> None:
        gone = ("p00", "p01", "p02")
        deadly = [Fault("kill", (name,), round=2, phase="adopting") for name in gone]
        result = carry_out("simulated", a_fleet(rows(5), a_job("llf-cm"), *deadly))
        assert result.failure == "the fleet lost its majority: waiting: 2 of 5 peers, 3 are needed"
        assert result.jobs[0].state is None
        assert result.jobs[0].digests == {}
        last = max(event["t"] for event in by_verb(result, "fault"))
        assert result.virtual_seconds is not None
        assert result.virtual_seconds - last <= preset("fast").patience_s + 10.0
        waiting = [(event["present"], event["of"]) for event in by_verb(result, "waiting")]
        assert (2, 5) in waiting, "the minority itself says that it waits"

    def test_a_minority_that_comes_back_is_waited_for(self) -> None:
        down = [Fault("restart", (name,), round=2, phase="adopting", for_s=9.0) for name in ("p00", "p01", "p02")]
        spec = a_fleet(rows(5), a_job("llf-cm"), *down)
        assert_kept_promises(spec, carry_out("simulated", spec))

    def test_a_frozen_fleet_is_given_up(self) -> None:
        frozen = [Fault("pause", (f"p0{n}",), round=2, phase="adopting", for_s=1e4) for n in range(3)]
        result = carry_out("simulated", a_fleet(rows(5), a_job("llf-cm"), *frozen, give_up_s=30.0))
        assert "no progress for 30 virtual seconds at round" in result.failure


class TestFault:
    def test_words(self) -> None:
        assert str(Fault("kill", (), round=3)) == "kill of the aggregator at round 3 (opening)"
        assert str(Fault("pause", ("a", "b"), seconds=2.5)) == "pause of a, b at 2.5 s"
