"""Real processes, real signals: a few of the faults that `make soak` makes many of."""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from runs import a_fleet, a_job, assert_kept_promises, by_verb, carry_out, rows

from p2pclust.lab.testbed.faults import Do, Fault
from p2pclust.peer.core.timing import preset

pytestmark = [pytest.mark.processes, pytest.mark.slow]


class TestKilledAggregator:
    @pytest.mark.parametrize("phase", ["opening", "combining", "closing"])
    def test_the_others_elect_another_and_finish(self, phase: str, home: Path) -> None:
        spec = a_fleet(rows(5), a_job(), Fault("kill", (), round=3, phase=phase), home=home)
        result = carry_out("processes", spec)
        (struck,) = by_verb(result, "fault")
        victim = struck["peer"]
        assert struck["phase"] == phase
        elected = [(e["t"] <= struck["t"], e["peer"]) for e in by_verb(result, "elected")]
        assert victim == [name for before, name in elected if before][-1]
        assert [e["code"] for e in by_verb(result, "exited") if e["peer"] == victim] == [-signal.SIGKILL]
        assert_kept_promises(spec, result, gone=[victim])
        assert victim not in result.jobs[0].digests
        assert [name for before, name in elected if not before and name != victim], "another one was elected"
        codes = {e["peer"]: e["code"] for e in by_verb(result, "exited") if e["peer"] != victim}
        assert codes == dict.fromkeys(spec_names(5) - {victim}, 0), "the others left politely"

    def test_far_from_the_origin(self, home: Path) -> None:
        job = a_job("llf-cm", scaling="none", max_rounds=12)
        spec = a_fleet(rows(5, offset=1e6), job, Fault("kill", (), round=5, phase="combining"), home=home)
        result = carry_out("processes", spec)
        (struck,) = by_verb(result, "fault")
        assert_kept_promises(spec, result, gone=[struck["peer"]])


class TestPausedAggregator:
    def test_the_others_do_not_wait_for_it_and_it_ends_with_their_bits(self, home: Path) -> None:
        spec = a_fleet(rows(5), a_job(), Fault("pause", (), round=3, for_s=5.0), home=home)
        result = carry_out("processes", spec)
        (struck,), (resumed,) = by_verb(result, "fault"), by_verb(result, "resumed")
        assert resumed["peer"] == struck["peer"]
        assert 4.5 < resumed["t"] - struck["t"] < 7.0
        assert_kept_promises(spec, result)
        assert len(result.jobs[0].terms) > 1, "another one took over"
        ends = {event["peer"]: event["t"] for event in by_verb(result, "finished")}
        # It may end before the word of its resumption is written down, a moment after the signal.
        assert ends.pop(struck["peer"]) > resumed["t"] - 0.5
        assert max(ends.values()) < resumed["t"] - 0.5, "they finished without it"

    def test_one_that_nothing_resumes_is_not_waited_for(self, home: Path) -> None:
        spec = a_fleet(rows(5), a_job(), Fault("pause", (), round=3), home=home)
        result = carry_out("processes", spec)
        (struck,) = by_verb(result, "fault")
        assert result.failure == ""
        assert by_verb(result, "resumed") == []
        # It is woken up to leave, and may finish on the way.
        assert set(result.jobs[0].digests) >= spec_names(5) - {struck["peer"]}


class TestRestart:
    @pytest.mark.parametrize(("do", "failure"), [("restart", ""), ("kill", "no peer is awake to hand the job to")])
    def test_of_everybody_before_a_second_job(self, do: Do, failure: str, home: Path) -> None:
        for_s = 1.0 if do == "restart" else None
        spec = a_fleet(rows(3), a_job(), *(Fault(do, (name,), job=1, for_s=for_s) for name in spec_names(3)), home=home)
        result = carry_out("processes", replace(spec, jobs=spec.jobs * 2))
        assert result.failure == failure
        assert [len(job.digests) for job in result.jobs] == ([3, 3] if do == "restart" else [3])

    def test_of_everybody_while_a_job_is_handed_in(self, home: Path) -> None:
        spec = a_fleet(
            rows(3), a_job(), *(Fault("restart", (n,), seconds=0.0) for n in sorted(spec_names(3))), home=home
        )
        result = carry_out("processes", spec)
        assert result.failure == ""
        assert [len(job.digests) for job in result.jobs] == [3]

    def test_from_its_disk_a_peer_goes_on_and_finishes(self, home: Path) -> None:
        spec = a_fleet(rows(5), a_job(), Fault("restart", (), round=3, phase="combining"), home=home)
        result = carry_out("processes", spec)
        (struck,) = by_verb(result, "fault")
        lives = [event for event in by_verb(result, "started") if event["peer"] == struck["peer"]]
        assert len(lives) == 2
        assert lives[0]["pid"] != lives[1]["pid"]
        assert not by_verb(result, "store-damaged")
        assert_kept_promises(spec, result)

    def test_a_follower_that_restarts_at_once_is_not_even_missed_at_the_end(self, home: Path) -> None:
        spec = a_fleet(
            rows(5), a_job("llf-cm"), Fault("restart", ("p02",), round=2, phase="adopting", for_s=0.1), home=home
        )
        assert_kept_promises(spec, carry_out("processes", spec))


class TestLargeStates:
    """States and contributions of 96 KB and more, which are files beside the store."""

    @pytest.mark.parametrize(
        ("who", "phase"), [
            pytest.param((), "opening", marks=pytest.mark.long),
            pytest.param((), "adopting", marks=pytest.mark.long),
            ((), "combining"),
            (("p02",), "adopting"),
        ],
        ids=["opening", "adopting", "combining", "follower"],
    )  # fmt: skip
    def test_are_there_after_kill_9(self, who: tuple[str, ...], phase: str, home: Path) -> None:
        rng = np.random.default_rng(1)
        arrays = [rng.normal(size=(30, 4000)) for _ in range(5)]
        spec = a_fleet(arrays, a_job("llf-cm"), Fault("restart", who, round=2, phase=phase, for_s=0.3), home=home)
        result = carry_out("processes", spec)
        (struck,) = by_verb(result, "fault")
        assert not by_verb(result, "store-damaged")
        assert not by_verb(result, "blob-corrupt")
        assert {event["peer"] for event in by_verb(result, "pulling")} >= {f"p0{number}" for number in range(5)} - {
            struck["peer"]
        }
        assert_kept_promises(spec, result)


class TestLostMajority:
    def test_a_fleet_of_five_that_lost_three_says_so_within_its_patience(self, home: Path) -> None:
        deadly = [Fault("kill", (name,), round=2, phase="adopting") for name in ("p00", "p01", "p02")]
        spec = a_fleet(rows(5), a_job("llf-cm"), *deadly, home=home)
        result = carry_out("processes", spec)
        assert result.failure == "the fleet lost its majority: waiting: 2 of 5 peers, 3 are needed"
        assert result.jobs[0].state is None
        assert not any(peer["finished"] for peer in result.peers.values())
        assert {name for name, peer in result.peers.items() if peer["lost"]} == {"p00", "p01", "p02"}
        last = max(event["t"] for event in by_verb(result, "fault"))
        assert result.wall_seconds - last < preset("fast").patience_s + 15.0

    def test_a_fleet_whose_majority_stands_still_is_given_up(self, home: Path) -> None:
        frozen = [Fault("pause", (f"p0{n}",), round=2, phase="adopting") for n in range(3)]
        began = time.monotonic()
        result = carry_out("processes", a_fleet(rows(5), a_job("llf-cm"), *frozen, home=home, give_up_s=4.0))
        # Which of the two is seen first hangs on when the parent looks.
        assert result.failure.startswith(("no progress for ", "the fleet lost its majority"))
        assert time.monotonic() - began < 40.0, "three stopped processes were ended nonetheless"


def spec_names(n_peers: int) -> set[str]:
    return {f"p{number:02d}" for number in range(n_peers)}
