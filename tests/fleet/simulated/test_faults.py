"""Every other fault in virtual time: cuts, late joiners, good-byes, slow and lossy devices, bad rows; and many at random."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from runs import a_fleet, a_job, assert_kept_promises, by_verb, carry_out, is_replay, rows

from p2pclust.lab.testbed.fault_engine import conditions_of
from p2pclust.lab.testbed.faults import Cuts, Do, Fault, late, unfired
from p2pclust.lab.testbed.peer.lies import lie_called
from p2pclust.lab.testbed.power import Battery
from p2pclust.lab.testbed.spec import FleetResult, FleetSpec
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import replay

LONG = 100  # rounds; in virtual time more than a second
EVERYBODY = ("p00", "p01", "p02", "p03", "p04")


def bits_of_the_rows_that_were(spec: FleetSpec, result: FleetResult, number: int = 0) -> bool:
    """Whether the job has the bits of the replay over the rows that each peer had in each round."""
    job, index = result.jobs[number], {peer.name: n for n, peer in enumerate(spec.peers)}
    assert job.state is not None
    locals_ = [Local(peer.X) for peer in spec.peers]
    used = [(d, Local(d.X)) for d in result.damage if d.job_id == job.job_id]
    later = [(d.round, index[d.peer], X.lying(lie_called(d.how)) if d.lie else X) for d, X in used]
    return replay(spec.jobs[number].job, locals_, job.state.log, later).encode() == job.state.encode()


@pytest.mark.slow
class TestRosters:
    def test_whoever_is_revoked_is_left_out_and_the_others_go_on(self) -> None:
        spec = a_fleet(rows(5), a_job("llf-cm", max_rounds=LONG), Fault("revoke", ("p03",), seconds=0.7))
        result = carry_out("simulated", spec)
        assert result.failure == ""
        assert sorted(result.jobs[0].digests) == ["p00", "p01", "p02", "p04"]
        told = by_verb(result, "roster")
        assert {event["peer"] for event in told} >= {"p00", "p01", "p02", "p04"}
        assert {(event["serial"], *event["revoked"]) for event in told} == {(6, "p03")}
        state = result.jobs[0].state
        assert state is not None
        assert set(state.log[0].contributors) == {0, 1, 2, 3, 4}
        assert {record.abstained[3] for record in state.log if 3 in record.abstained} == {"left out: revoked"}
        assert bits_of_the_rows_that_were(spec, result)

    def test_the_aggregator_is_revoked_and_another_one_is_elected(self) -> None:
        spec = a_fleet(rows(5), a_job("llf-cm", max_rounds=LONG), Fault("revoke", (), seconds=0.9))
        result = carry_out("simulated", spec)
        assert result.failure == ""
        assert len(result.jobs[0].terms) >= 2
        assert result.jobs[0].terms[0][1] not in result.jobs[0].digests
        assert result.jobs[0].terms[-1][1] in result.jobs[0].digests
        assert len(result.jobs[0].digests) == 4

    def test_a_stranger_is_in_no_job_and_nobody_heeds_it(self) -> None:
        spec = a_fleet(rows(5), a_job())
        peers = (*spec.peers[:4], replace(spec.peers[4], enrolled=False))
        result = carry_out("simulated", replace(spec, peers=peers))
        alone = carry_out("simulated", replace(spec, peers=spec.peers[:4]))
        assert result.jobs[0].roster == ("p00", "p01", "p02", "p03")
        assert result.jobs[0].state is not None
        assert alone.jobs[0].state is not None
        assert result.jobs[0].state.arrays.encode() == alone.jobs[0].state.arrays.encode()
        assert not result.peers["p04"]["finished"]
        members = [event for event in by_verb(result, "member") if event["peer"] != "p04"]
        assert all(event["member"] != "p04" for event in members)


@pytest.mark.slow
class TestCut:
    def test_a_minority_that_is_cut_off_for_a_while_catches_up(self) -> None:
        cut = Fault("cut", ("p03", "p04"), seconds=0.5, for_s=6.0)
        spec = a_fleet(rows(5), a_job("llf-cm", max_rounds=LONG), cut)
        result = carry_out("simulated", spec)
        (struck,) = by_verb(result, "fault")
        assert (struck["who"], struck["from"], struck["for_s"]) == (["p03", "p04"], [], 6.0)
        assert_kept_promises(spec, result)
        state = result.jobs[0].state
        assert state is not None
        assert any(set(record.contributors) == {0, 1, 2} for record in state.log), "the majority went on without them"

    def test_whoever_is_cut_off_for_good_is_not_waited_for_and_invents_nothing(self) -> None:
        cut = Fault("cut", ("p03", "p04"), round=3, phase="adopting")
        spec = a_fleet(rows(5), a_job(), cut)
        result = carry_out("simulated", spec)
        assert result.failure == ""
        assert sorted(result.jobs[0].digests) == ["p00", "p01", "p02"]
        assert len(set(result.jobs[0].digests.values())) == 1
        assert [name for name, peer in result.peers.items() if not peer["finished"]] == ["p03", "p04"]
        assert not any(peer["lost"] for peer in result.peers.values())

    def test_nor_is_who_has_no_way_left_because_its_neighbours_died(self) -> None:
        ring = {f"p{n:02d}": (f"p{(n - 1) % 7:02d}", f"p{(n + 1) % 7:02d}") for n in range(7)}
        deaths = [Fault("kill", (name,), round=2, phase="adopting") for name in ("p01", "p03")]
        result = carry_out("simulated", a_fleet(rows(7), a_job("llf-cm"), *deaths, overlay=ring))
        assert result.failure == ""
        assert sorted(result.jobs[0].digests) == ["p00", "p04", "p05", "p06"], "p02 lies between two that died"

    def test_a_heal_brings_the_halves_together(self) -> None:
        faults = [
            Fault("cut", ("p02", "p03"), seconds=0.3, apart_from=("p00", "p01")),
            Fault("heal", EVERYBODY, seconds=9.0),
        ]
        spec = a_fleet(rows(4), a_job("llf-cm", max_rounds=LONG), *faults)
        result = carry_out("simulated", spec)
        healed = by_verb(result, "fault")[1]
        assert all(event["t"] > healed["t"] for event in by_verb(result, "finished")), "two of four are no majority"
        assert_kept_promises(spec, result)

    def test_one_direction_only(self) -> None:
        cut = Fault("cut", ("p03",), seconds=0.2, apart_from=("p00",), one_way=True)
        spec = a_fleet(rows(5), a_job("llf-cm", max_rounds=LONG), cut)
        assert_kept_promises(spec, carry_out("simulated", spec))

    def test_of_the_aggregator_elects_another(self) -> None:
        spec = a_fleet(rows(5), a_job(), Fault("cut", (), round=3, for_s=8.0))
        result = carry_out("simulated", spec)
        assert len(result.jobs[0].terms) > 1
        assert_kept_promises(spec, result)

    def test_without_any_way_to_the_others_and_no_majority_says_who_is_cut_off(self) -> None:
        cuts = [Fault("cut", (name,), seconds=0.2) for name in EVERYBODY[:4]]
        spec = a_fleet(rows(5), a_job("llf-cm", max_rounds=LONG), *cuts, give_up_s=20.0)
        result = carry_out("simulated", spec)
        assert "no progress for 20 virtual seconds" in result.failure
        assert "have no path to the others" in result.failure


@pytest.mark.slow
class TestComingAndGoing:
    def test_a_late_joiner_is_not_in_the_first_job_and_in_the_second(self) -> None:
        spec = a_fleet(rows(4), [a_job("llf-cm"), a_job("llf-fcm")], Fault("join", ("p03",), job=1))
        result = carry_out("simulated", spec)
        assert [job.roster for job in result.jobs] == [("p00", "p01", "p02"), ("p00", "p01", "p02", "p03")]
        assert result.failure == ""
        assert sorted(result.jobs[1].digests) == ["p00", "p01", "p02", "p03"]
        started = [event["t"] for event in by_verb(result, "started") if event["peer"] == "p03"]
        assert started > [event["t"] for event in by_verb(result, "submitted")][:1]

    def test_a_late_joiner_by_second(self) -> None:
        jobs = [a_job("llf-cm", max_rounds=LONG), a_job("llf-fcm")]
        spec = a_fleet(rows(4), jobs, Fault("join", ("p03",), seconds=0.4))
        result = carry_out("simulated", spec)
        assert (len(result.jobs[0].roster), len(result.jobs[1].roster)) == (3, 4)
        assert not result.unfired_faults

    def test_a_polite_end_is_no_loss(self) -> None:
        spec = a_fleet(rows(5), a_job(), Fault("leave", ("p02",), round=3, phase="adopting"))
        result = carry_out("simulated", spec)
        assert [event["peer"] for event in by_verb(result, "left")] == ["p02"]
        assert not result.peers["p02"]["lost"]
        assert not result.peers["p02"]["finished"]
        assert sorted(result.jobs[0].digests) == ["p00", "p01", "p03", "p04"]
        assert not [e for e in by_verb(result, "member") if e["member"] == "p02" and e["status"] == "dead"]

    def test_who_leaves_before_a_job_is_not_in_it(self) -> None:
        jobs = [a_job("llf-cm"), a_job("llf-cm")]
        result = carry_out("simulated", a_fleet(rows(5), jobs, Fault("leave", ("p02",), job=1)))
        assert result.jobs[1].roster == ("p00", "p01", "p03", "p04")
        assert result.failure == ""

    def test_a_job_that_stands_still_says_who_has_no_way_also_for_those_who_left_before(self) -> None:
        ring = {f"p{n:02d}": (f"p{(n - 1) % 5:02d}", f"p{(n + 1) % 5:02d}") for n in range(5)}
        faults = [Fault("leave", ("p01",), round=2, phase="adopting"), Fault("kill", ("p03",), job=1)]
        spec = a_fleet(rows(5), [a_job("llf-cm"), a_job("llf-cm")], *faults, overlay=ring, give_up_s=20.0)
        result = carry_out("simulated", spec)
        assert result.failure.endswith("p03 is gone, and without it p02 has no path to the others")
        assert sorted(result.jobs[0].digests) == ["p00", "p02", "p03", "p04"], "what came before is kept"

    def test_the_aggregator_leaves_and_comes_back(self) -> None:
        jobs = [a_job("llf-cm"), a_job("llf-fcm")]
        spec = a_fleet(rows(5), jobs, Fault("leave", (), round=2, phase="combining"))
        result = carry_out("simulated", spec)
        (left,) = by_verb(result, "left")
        assert left["peer"] == result.jobs[0].terms[0][1]
        assert left["peer"] not in result.jobs[1].roster
        again = a_fleet(rows(5), jobs, Fault("leave", ("p01",), seconds=0.01), Fault("join", ("p01",), job=1))
        assert "p01" in carry_out("simulated", again).jobs[1].roster

    def test_who_was_killed_joins_again_from_its_disk_and_finishes(self) -> None:
        faults = [Fault("kill", ("p02",), seconds=0.9), Fault("join", ("p02",), seconds=4.0)]
        spec = a_fleet(rows(5), a_job("llf-cm", max_rounds=LONG), *faults)
        result = carry_out("simulated", spec)
        assert [event["life"] for event in by_verb(result, "started") if event["peer"] == "p02"] == [1, 2]
        assert_kept_promises(spec, result)

    def test_drained_is_gone(self) -> None:
        spec = a_fleet(rows(5), a_job(), Fault("drain", ("p02",), round=3, phase="adopting"))
        assert_kept_promises(spec, carry_out("simulated", spec), gone=["p02"])

    @pytest.mark.parametrize("when_empty", ["sleep", "die"])
    def test_drained_sleeps_until_it_is_charged_or_dies_as_its_battery_says(self, when_empty: str) -> None:
        battery = Battery(100.0, when_empty=when_empty, recharge_w=5.0)
        spec = a_fleet(rows(5), a_job("llf-cm", max_rounds=LONG), Fault("drain", ("p02",), round=3, phase="adopting"))
        peers = tuple(replace(peer, battery=battery) for peer in spec.peers)
        result = carry_out("simulated", replace(spec, peers=peers))
        assert [event["peer"] for event in by_verb(result, "drained")] == ["p02"]
        assert result.failure == ""
        assert result.peers["p02"]["lost"] == (when_empty == "die")
        assert result.peers["p02"]["finished"] == (when_empty == "sleep")
        assert is_replay(spec, result)

    def test_a_restart_within_a_restart_is_one(self) -> None:
        twice = [Fault("restart", ("p02",), seconds=s, for_s=2.0) for s in (0.3, 0.5)]
        spec = a_fleet(rows(5), a_job("llf-cm", max_rounds=LONG), *twice)
        result = carry_out("simulated", spec)
        assert len([event for event in by_verb(result, "started") if event["peer"] == "p02"]) == 2
        assert_kept_promises(spec, result)


@pytest.mark.slow
class TestSlowAndLossy:
    def test_a_slow_device_makes_each_round_as_slow(self) -> None:
        took = {}
        for factor in (1.0, 200.0):
            slow = Fault("slow", ("p02",), job=0, factor=factor)
            spec = a_fleet(rows(5), a_job("llf-cm", max_rounds=30), slow)
            result = carry_out("simulated", spec)
            assert_kept_promises(spec, result)
            took[factor] = result.jobs[0].seconds
        assert took[200.0] > took[1.0] + 30 * 200 * 0.0004, "each round waits for at least 0.5 ms times the factor"

    def test_only_for_a_while(self) -> None:
        slow = Fault("slow", ("p02",), seconds=0.2, factor=1000.0, for_s=3.0)
        spec = a_fleet(rows(5), a_job("llf-cm", max_rounds=LONG), slow)
        result = carry_out("simulated", spec)
        (recovered,) = by_verb(result, "recovered")
        assert (recovered["peer"], recovered["from"]) == ("p02", "slow")
        assert result.jobs[0].seconds < 60
        assert_kept_promises(spec, result)

    def test_who_loses_half_of_all_messages_still_finishes(self) -> None:
        lossy = Fault("drop", ("p01",), job=0, probability=0.5)
        spec = a_fleet(rows(5), a_job("llf-cm", max_rounds=30), lossy)
        result = carry_out("simulated", spec)
        assert_kept_promises(spec, result)
        without = carry_out("simulated", a_fleet(rows(5), a_job("llf-cm", max_rounds=30)))
        assert result.jobs[0].seconds > without.jobs[0].seconds

    def test_who_loses_everything_for_a_while_is_back_afterwards(self) -> None:
        lossy = Fault("drop", ("p01",), seconds=0.2, probability=1.0, for_s=4.0)
        spec = a_fleet(rows(5), a_job("llf-cm", max_rounds=LONG), lossy)
        assert_kept_promises(spec, carry_out("simulated", spec))


@pytest.mark.slow
class TestBadRows:
    def test_missing_values_are_named_and_the_others_go_on(self) -> None:
        spec = a_fleet(rows(5), a_job(), Fault("corrupt-data", ("p02",), job=0, how="nan"))
        result = carry_out("simulated", spec)
        state = result.jobs[0].state
        assert state is not None
        assert all(2 not in record.contributors for record in state.log)
        assert {record.abstained.get(2) for record in state.log[:1]} == {Local(result.damage[0].X).problem}
        assert sorted(result.jobs[0].digests) == list(EVERYBODY), "it has no rows, and still the result"

    @pytest.mark.parametrize("how", ["scale", "shuffle", "constant"])
    def test_what_nobody_can_see_counts_from_its_round_on(self, how: str) -> None:
        fault = Fault("corrupt-data", ("p02",), round=4, phase="adopting", how=how)
        spec = a_fleet(rows(5), a_job("llf-cm", scaling="none"), fault, seed=7)
        result = carry_out("simulated", spec)
        (damage,) = result.damage
        assert (damage.peer, damage.how, damage.round, damage.job_id) == ("p02", how, 4, result.jobs[0].job_id)
        assert np.array_equal(damage.X, conditions_of(spec, 0, "p02")["rows"]["X"])
        state = result.jobs[0].state
        assert state is not None
        assert all(2 in record.contributors for record in state.log if record.stage == 3)
        assert bits_of_the_rows_that_were(spec, result)
        sound = replay(spec.jobs[0].job, [Local(peer.X) for peer in spec.peers], state.log)
        assert sound.encode() != state.encode(), "with its own rows something else would have come out"

    def test_of_the_aggregator_at_a_second(self) -> None:
        fault = Fault("corrupt-data", (), seconds=1.2, how="scale")
        spec = a_fleet(rows(5), a_job("llf-cm", max_rounds=LONG), fault)
        result = carry_out("simulated", spec)
        (damage,) = result.damage
        assert damage.peer == result.jobs[0].terms[0][1]
        assert damage.round > 0
        assert bits_of_the_rows_that_were(spec, result)

    def test_between_two_jobs(self) -> None:
        fault = Fault("corrupt-data", ("p02",), job=1, how="constant")
        spec = a_fleet(rows(5), [a_job("llf-cm"), a_job("llf-cm")], fault)
        result = carry_out("simulated", spec)
        (damage,) = result.damage
        assert (damage.job_id, damage.round) == (result.jobs[1].job_id, 0)
        assert bits_of_the_rows_that_were(spec, result, 0)
        assert bits_of_the_rows_that_were(spec, result, 1)
        assert result.jobs[0].state != result.jobs[1].state


@pytest.mark.slow
class TestLies:
    @pytest.mark.parametrize(("how", "at"), [("corner", {"job": 0}), ("inflate", {"round": 4, "phase": "adopting"})])
    @pytest.mark.parametrize("more", [{}, {"max_weight": 2.0, "robust": "trim"}])
    def test_a_liar_moves_the_centers_from_its_round_on(
        self, how: str, at: dict[str, Any], more: dict[str, Any]
    ) -> None:
        fault = Fault("lie", ("p02",), how=how, **at)
        spec = a_fleet(rows(5), a_job("llf-cm", max_rounds=12, **more), fault)
        result = carry_out("simulated", spec)
        (damage,) = result.damage
        assert (damage.peer, damage.how, damage.round, damage.lie) == ("p02", how, at.get("round", 0), True)
        assert np.array_equal(damage.X, spec.peers[2].X), "its rows are sound"
        assert bits_of_the_rows_that_were(spec, result)
        honest = carry_out("simulated", replace(spec, faults=())).jobs[0].state
        assert honest is not None
        assert honest != result.jobs[0].state

    def test_of_the_aggregator_at_a_second(self) -> None:
        spec = a_fleet(rows(5), a_job("llf-cm", max_rounds=LONG), Fault("lie", (), seconds=1.2, how="corner"))
        result = carry_out("simulated", spec)
        (damage,) = result.damage
        assert damage.peer == result.jobs[0].terms[0][1]
        assert damage.round > 0
        assert bits_of_the_rows_that_were(spec, result)


def random_faults(rng: np.random.Generator, names: tuple[str, ...]) -> list[Fault]:
    """Draw three to eight faults of which those that end or cut off a peer for good meet fewer than half of all."""
    doomed = list(rng.permutation(names)[: (len(names) - 1) // 2])
    faults = []
    for _ in range(int(rng.integers(3, 9))):
        name, seconds = str(rng.choice(names)), float(rng.uniform(0.0, 2.0))
        for_s = float(rng.uniform(0.1, 4.0))
        match rng.choice(["end", "restart", "pause", "cut", "one-way", "slow", "drop", "bad"]):
            case "end" if doomed:
                faults.append(
                    Fault(str(rng.choice(["kill", "leave", "drain", "cut"])), (str(doomed.pop()),), seconds=seconds)
                )  # type: ignore[arg-type]
            case "restart":
                faults.append(Fault("restart", (name,), seconds=seconds, for_s=for_s))
            case "pause":
                faults.append(Fault("pause", (name,), seconds=seconds, for_s=for_s))
            case "cut":
                side = tuple(sorted(str(n) for n in rng.permutation(names)[: int(rng.integers(1, len(names)))]))
                faults.append(Fault("cut", side, seconds=seconds, for_s=for_s))
            case "one-way":
                faults.append(Fault("cut", (name,), seconds=seconds, for_s=for_s, one_way=True))
            case "slow":
                faults.append(Fault("slow", (name,), seconds=seconds, for_s=for_s, factor=float(rng.uniform(2, 300))))
            case "drop":
                faults.append(Fault("drop", (name,), seconds=seconds, for_s=for_s, probability=float(rng.random())))
            case "bad":
                how = str(rng.choice(["nan", "scale", "shuffle", "constant"]))
                faults.append(Fault("corrupt-data", (name,), seconds=seconds, how=how))
    return faults


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_whatever_strikes_those_that_finish_hold_the_bits_of_their_record(seed: int) -> None:
    rng = np.random.default_rng([47, seed])
    arrays = rows(int(rng.integers(3, 7)), seed=seed)
    names = tuple(f"p{number:02d}" for number in range(len(arrays)))
    protocol = str(rng.choice(["llf-cm", "llf-fcm"]))
    spec = a_fleet(
        arrays, a_job(protocol, max_rounds=60, scaling="none"), *random_faults(rng, names), seed=seed,
        request={"missing": str(rng.choice(["wait", "drop"])), "deadline_s": 1.0},
    )  # fmt: skip
    result = carry_out("simulated", spec)
    assert result.failure == "", spec.faults
    (job,) = result.jobs
    assert len(job.digests) > len(names) / 2
    assert len(set(job.digests.values())) == 1
    assert bits_of_the_rows_that_were(spec, result), spec.faults


class TestReckoning:
    def test_who_is_late(self) -> None:
        faults = [
            Fault("kill", ("a",), seconds=1.0),
            Fault("join", ("a", "b"), seconds=2.0),
            Fault("join", ("c",), job=1),
        ]
        assert late(faults) == ("b", "c")

    def test_a_rate_strikes_once_at_least_or_is_told_once(self) -> None:
        drawn = [Fault("kill", ("a",), seconds=s, drawn="2 a minute") for s in (1.0, 50.0)]
        assert unfired(drawn, [0]) == ()
        assert unfired(drawn, []) == ("kill of a at 2 a minute",)

    def test_words(self) -> None:
        assert str(Fault("cut", ("a",), job=1, apart_from=("b", "c"))) == "cut of a from b, c before job 1"
        assert str(Fault("cut", (), round=2)) == "cut of the aggregator from all other peers at round 2 (opening)"

    def test_cuts_add_up_until_they_are_healed(self) -> None:
        cuts = Cuts(["a", "b", "c"])
        there = cuts.pairs(["a"], ["b"], one_way=True)
        assert there == [("b", "a")]
        cuts.add(there)
        cuts.add(cuts.pairs(["a"], (), one_way=False))
        cuts.end(there)
        assert (cuts.deaf("a"), cuts.mute("a"), cuts.deaf("b")) == (("b", "c"), ("b", "c"), ("a",))
        assert cuts.links(None)["a"] == []
        cuts.heal(cuts.pairs(["a"], ["b"], one_way=False))
        assert cuts.links(None) == {"a": ["b"], "b": ["a", "c"], "c": ["b"]}


@pytest.mark.slow
class TestWhoStandsStillForGood:
    def test_is_waited_for_no_longer_than_whoever_was_killed(self) -> None:
        ended = {}
        for do in ("kill", "pause"):
            spec = a_fleet(rows(5), a_job("llf-cm", max_rounds=LONG), Fault(do, ("p02",), round=3, phase="adopting"))
            result = carry_out("simulated", spec)
            assert result.failure == ""
            assert sorted(result.jobs[0].digests) == ["p00", "p01", "p03", "p04"]
            assert is_replay(spec, result)
            ended[do] = result.virtual_seconds or 0.0
            assert result.peers["p02"]["finished"] is False
            assert result.peers["p02"]["lost"] == (do == "kill"), "its process is there"
        assert ended["pause"] < 60.0, "the others are done, and nobody waits until the fleet is given up"

    def test_costs_the_majority_as_if_it_were_dead(self) -> None:
        faults = [Fault("pause", (name,), seconds=0.5) for name in ("p01", "p02", "p03")]
        result = carry_out("simulated", a_fleet(rows(5), a_job("llf-cm", max_rounds=LONG), *faults))
        assert result.failure == "the fleet lost its majority: waiting: 2 of 5 peers, 3 are needed"

    @pytest.mark.parametrize("end", ["resume", "restart"])
    def test_is_nobody_who_will_be_woken_up(self, end: str) -> None:
        faults = [Fault("pause", ("p02",), seconds=0.5), Fault(end, ("p02",), seconds=30.0, for_s=1.0)]
        spec = a_fleet(rows(5), a_job("llf-cm", max_rounds=LONG), *faults)
        result = carry_out("simulated", spec)
        assert_kept_promises(spec, result)
        assert sorted(result.jobs[0].digests) == list(EVERYBODY)

    @pytest.mark.parametrize("do", ["kill", "pause"])
    def test_a_job_that_needs_it_fails_by_its_name_long_before_the_fleet_is_given_up(self, do: Do) -> None:
        fault = Fault(do, ("p02",), round=3, phase="adopting")
        spec = a_fleet(rows(5), a_job("llf-cm"), fault, request={"missing": "all"})
        result = carry_out("simulated", spec)
        assert result.failure == "the job stopped at round 3: p02 is gone, and this job needs all peers"
        assert (result.virtual_seconds or 0.0) < 30.0 < spec.give_up_s

    def test_a_job_that_needs_one_that_was_killed_waits_if_it_is_started_again_later(self) -> None:
        faults = [Fault("kill", ("p02",), seconds=0.2), Fault("restart", ("p02",), seconds=20.0, for_s=1.0)]
        spec = a_fleet(rows(5), a_job("llf-cm"), *faults, request={"missing": "all"})
        assert_kept_promises(spec, carry_out("simulated", spec))


@pytest.mark.slow
class TestBeforeASecondJob:
    @staticmethod
    def ended(do: Do, n: int) -> FleetResult:
        for_s = 1.0 if do == "restart" else None
        faults = [Fault(do, (name,), job=1, for_s=for_s) for name in EVERYBODY[:n]]
        spec = a_fleet(rows(5), a_job(), *faults)
        return carry_out("simulated", replace(spec, jobs=spec.jobs * 2))

    def test_a_fleet_that_is_restarted_as_a_whole_is_waited_for(self) -> None:
        result = self.ended("restart", 5)
        assert result.failure == ""
        assert [sorted(job.digests) for job in result.jobs] == [list(EVERYBODY)] * 2

    @pytest.mark.parametrize("late_s", [-0.001, 0.0, 0.001, 0.01])
    @pytest.mark.parametrize("for_s", [0.0, 1.0])
    def test_a_fleet_that_is_restarted_while_the_job_is_handed_in_takes_it(self, late_s: float, for_s: float) -> None:
        spec = a_fleet(rows(3), a_job(max_rounds=2))
        spec = replace(spec, jobs=spec.jobs * 2)
        first, second = (event["t"] for event in by_verb(carry_out("simulated", spec), "submitted"))
        when = second - first + late_s
        faults = tuple(Fault("restart", (name,), seconds=when, for_s=for_s) for name in EVERYBODY[:3])
        result = carry_out("simulated", replace(spec, faults=faults))
        assert result.failure == ""
        assert [sorted(job.digests) for job in result.jobs] == [list(EVERYBODY[:3])] * 2

    def test_the_restarted_ones_are_not_held_up_by_one_that_nothing_resumes(self) -> None:
        faults = [Fault("restart", (name,), job=1, for_s=5.0) for name in EVERYBODY[1:]]
        spec = a_fleet(rows(5), a_job(), Fault("pause", ("p00",), job=1), *faults)
        result = carry_out("simulated", replace(spec, jobs=spec.jobs * 2))
        assert result.failure == ""
        assert sorted(result.jobs[1].digests) == list(EVERYBODY[1:])
        assert (result.virtual_seconds or 0.0) < 30.0 < spec.give_up_s

    def test_it_is_handed_in_at_somebody_who_answers(self) -> None:
        result = self.ended("pause", 1)
        assert result.failure == ""
        assert sorted(result.jobs[1].digests) == ["p01", "p02", "p03", "p04"]

    @pytest.mark.parametrize("do", ["kill", "pause"])
    def test_nobody_is_left_to_hand_it_in_at(self, do: Do) -> None:
        result = self.ended(do, 5)
        assert result.failure == "no peer is awake to hand the job to"
        assert [sorted(job.digests) for job in result.jobs] == [list(EVERYBODY)], "what came before is told"
