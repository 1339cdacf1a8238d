"""Without faults the three backends give the same bits."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from runs import PROTOCOLS, a_fleet, a_job, assert_kept_promises, by_verb, carry_out, is_replay, rows

from p2pclust.errors import FleetError, UsageError
from p2pclust.lab.testbed import BACKENDS, Backend, backend
from p2pclust.lab.testbed.faults import Fault
from p2pclust.lab.testbed.spec import FleetSpec, PeerSpec
from p2pclust.protocols.engine import summaries

JOBS = [
    a_job(protocol, init=init, participation=participation, seed=seed)
    for seed, (protocol, init, participation) in enumerate(
        product(("llf-cm", "llf-fcm"), ("k-means++", "shared-k-means++", "random", "uniform"), (1.0, 0.6))
    )
]
JOBS += [
    a_job(protocol, participation=participation, seed=20 + seed)
    for seed, (protocol, participation) in enumerate(product(PROTOCOLS[2:], (1.0, 0.6)))
]
JOBS.append(a_job("llf-fcm", init="careful"))
JOBS += [a_job(protocol, init="careful", n_init=3, participation=0.6, seed=40) for protocol in ("llf-cm", "llf-fcm")]


def states(name: str, spec: FleetSpec) -> list[bytes]:
    result = carry_out(name, spec)
    assert_kept_promises(spec, result)
    return [job.state.encode() for job in result.jobs if job.state is not None]


class TestSameBits:
    @pytest.mark.slow
    def test_in_virtual_time(self) -> None:
        spec = a_fleet(rows(4), JOBS)
        assert states("simulated", spec) == states("in-process", spec)

    @pytest.mark.processes
    @pytest.mark.slow
    def test_as_processes(self, home: Path) -> None:
        # One fleet for all jobs: that one job after another works on living peers is part of what is tested.
        spec = a_fleet(rows(4), JOBS, home=home)
        assert states("processes", spec) == states("in-process", spec)

    @pytest.mark.slow
    @pytest.mark.parametrize("scaling", ["none", "minmax", "zscore"])
    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_far_from_the_origin(self, protocol: str, scaling: str) -> None:
        spec = a_fleet(rows(4, offset=1e6), a_job(protocol, scaling=scaling))
        assert states("simulated", spec) == states("in-process", spec)

    @pytest.mark.slow
    def test_whatever_the_seed_of_the_simulation(self) -> None:
        job = a_job("llf-cm")
        assert states("simulated", a_fleet(rows(3), job, seed=1)) == states("simulated", a_fleet(rows(3), job, seed=2))

    @pytest.mark.slow
    def test_whatever_the_timing_and_whoever_aggregates(self) -> None:
        job = a_job("llf-cm")
        reference = states("in-process", a_fleet(rows(3), job))
        for options in ({"timing": "default"}, {"timing": "wan"}, {"request": {"aggregator": "p02"}}):
            assert states("simulated", a_fleet(rows(3), job, **options)) == reference  # type: ignore[arg-type]

    @pytest.mark.slow
    @pytest.mark.parametrize("missing", ["all", "wait", "drop"])
    def test_whatever_the_rule_for_missing_peers_if_none_is_missing(self, missing: str) -> None:
        spec = a_fleet(rows(3), a_job(), request={"missing": missing, "deadline_s": 30.0})
        assert states("simulated", spec) == states("in-process", spec)

    @pytest.mark.slow
    def test_states_that_travel_as_blobs(self) -> None:
        # 40 clusters of 128 features make states of more than 32 KiB.
        arrays = [np.random.default_rng(i).normal(size=(60, 128)) for i in range(3)]
        spec = a_fleet(arrays, a_job("llf-cm", n_clusters=40, max_rounds=3))
        reference = states("in-process", spec)
        assert len(reference[0]) > 32 * 1024
        assert states("simulated", spec) == reference

    @pytest.mark.processes
    @pytest.mark.slow
    def test_states_that_travel_as_blobs_between_processes(self, home: Path) -> None:
        arrays = [np.random.default_rng(i).normal(size=(60, 128)) for i in range(3)]
        spec = a_fleet(arrays, a_job("llf-cm", n_clusters=40, max_rounds=3), home=home)
        assert states("processes", spec) == states("in-process", spec)

    def test_one_peer_alone(self) -> None:
        spec = a_fleet(rows(1), a_job())
        assert states("simulated", spec) == states("in-process", spec)

    def test_in_the_order_of_names_whatever_the_order_given(self) -> None:
        arrays, job = rows(3), a_job("llf-cm", init="random")
        forth = a_fleet(arrays, job)
        back = FleetSpec(tuple(reversed(forth.peers)), forth.jobs)
        one, other = carry_out("in-process", forth), carry_out("in-process", back)
        assert one.jobs[0].state == other.jobs[0].state
        assert carry_out("simulated", back).jobs[0].state == one.jobs[0].state


class TestSeveralStarts:
    """A round for the ranges, six for the first centers, six of clustering, and one for the objective."""

    @pytest.mark.slow
    @pytest.mark.parametrize("collect", ["star", "tree"])
    @pytest.mark.parametrize("round_", [3, 9, 13], ids=["first centers", "clustering", "objective"])
    @pytest.mark.parametrize("phase", ["opening", "combining"])
    def test_they_survive_the_death_of_the_aggregator(self, round_: int, phase: str, collect: str) -> None:
        job = a_job("llf-cm", n_init=3)
        spec = a_fleet(rows(5), job, Fault("kill", (), round=round_, phase=phase), request={"collect": collect})
        result = carry_out("simulated", spec)
        dead = {event["peer"] for event in result.events if event["verb"] == "fault"}
        assert_kept_promises(spec, result, gone=dead)
        state = result.jobs[0].state
        assert state is not None
        assert state.arrays["objectives"].shape == (3,)

    @pytest.mark.slow
    def test_gossip_keeps_the_same_start_everywhere(self) -> None:
        spec = a_fleet(rows(4), a_job("llf-fcm", n_init=3), request={"collect": "gossip"})
        result = carry_out("simulated", spec)
        assert len(set(result.jobs[0].digests.values())) == 1
        state, exact = (
            result.jobs[0].state,
            carry_out("in-process", a_fleet(rows(4), a_job("llf-fcm", n_init=3))).jobs[0].state,
        )
        assert state is not None
        assert exact is not None
        assert int(state.arrays["winner"]) == int(exact.arrays["winner"])


class TestWhatIsTold:
    @pytest.mark.parametrize("name", ["in-process", "simulated"])
    def test_events_come_while_they_happen_and_are_kept(self, name: str) -> None:
        heard: list[object] = []
        result = carry_out(name, a_fleet(rows(3), a_job()), heard.append)
        assert list(result.events) == heard
        assert [event["t"] for event in result.events] == sorted(event["t"] for event in result.events)
        combined = by_verb(result, "combined")
        assert result.jobs[0].state is not None
        assert len(combined) == result.jobs[0].state.round
        assert combined[-1]["contributors"] == ["p00", "p01", "p02"]
        assert sum("shift" in event for event in combined) == 6

    def test_virtual_and_real_seconds(self) -> None:
        spec = a_fleet(rows(3), a_job())
        assert carry_out("in-process", spec).virtual_seconds is None
        simulated = carry_out("simulated", spec)
        assert simulated.virtual_seconds is not None
        assert 0 < simulated.jobs[0].seconds < simulated.virtual_seconds

    def test_a_simulated_run_is_the_same_run_a_second_time(self) -> None:
        spec = a_fleet(rows(3), a_job(), seed=3)
        assert carry_out("simulated", spec).events == carry_out("simulated", spec).events

    def test_every_peer_is_told_of(self) -> None:
        result = carry_out("simulated", a_fleet(rows(3), a_job()))
        assert list(result.peers) == ["p00", "p01", "p02"]
        for peer in result.peers.values():
            assert min(peer["messages_sent"], peer["messages_received"], peer["bytes_sent"], peer["bytes_received"]) > 0


class TestRefused:
    @pytest.mark.parametrize(
        ("request_", "reason"),
        [
            ({"aggregator": "nobody"}, "aggregator = 'nobody' is not on the roster"),
            ({"missing": "ignore"}, "missing = 'ignore': expected one of all, wait, drop"),
            ({"patience_s": -1.0}, "expected at least 0.1 s"),
        ],
    )
    def test_a_job_that_cannot_be(self, request_: dict[str, object], reason: str) -> None:
        with pytest.raises(FleetError) as caught:
            carry_out("simulated", a_fleet(rows(3), a_job(), request=request_))
        assert str(caught.value).startswith("p00 refused the job: ")
        assert reason in str(caught.value)
        assert "\n" not in str(caught.value)

    @pytest.mark.processes
    @pytest.mark.slow
    def test_by_real_processes_which_all_end(self, home: Path) -> None:
        with pytest.raises(FleetError, match=r"^p00 refused the job: aggregator = 'nobody' is not on the roster$"):
            carry_out("processes", a_fleet(rows(3), a_job(), home=home, request={"aggregator": "nobody"}))


class TestBackend:
    @pytest.mark.parametrize("name", BACKENDS)
    def test_by_name(self, name: str) -> None:
        assert backend(name) == Backend(name)

    def test_an_unknown_one_names_the_known(self) -> None:
        with pytest.raises(UsageError) as caught:
            backend("threads")
        assert str(caught.value) == "backend = 'threads': expected one of processes, namespaces, simulated, in-process"

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["in-process", "simulated"])
    def test_run_gives_the_state(self, name: str) -> None:
        arrays, job = rows(12), a_job("llf-cm")
        state = backend(name).run(job, arrays)
        # Twelve peers: names keep the order of the arrays beyond the tenth.
        assert state == carry_out("in-process", a_fleet(arrays, job)).jobs[0].state

    def test_run_gives_the_state_of_a_job_that_failed(self) -> None:
        state = backend("simulated").run(a_job(n_clusters=50), [np.zeros((2, 1)) + i for i in range(3)])
        assert state.status == "failed"
        assert "ask for at most 6" in state.reason


@pytest.mark.parametrize("name", ["in-process", "simulated"])
def test_a_job_that_nobody_can_contribute_to_fails_and_says_why(name: str) -> None:
    arrays = [np.full((4, 2), np.nan)] * 3
    result = carry_out(name, a_fleet(arrays, a_job()))
    state = result.jobs[0].state
    assert state is not None
    assert state.status == "failed"
    assert "(peer 0, peer 1, peer 2: row 0, column 0 is nan" in state.reason


class TestOnePeersBadData:
    BAD = (np.array([[1.0, 2.0, np.nan]] * 3), np.array([[1.0, 2.0, np.inf]] * 3), np.empty((0, 3)), np.ones((9, 2)))

    def check(self, name: str, bad: np.ndarray, home: Path | None = None) -> None:
        arrays = rows(4)
        job = a_job(init=arrays[0][:3])
        arrays[2] = bad
        spec = a_fleet(arrays, job, home=home)
        result = carry_out(name, spec)
        state = result.jobs[0].state
        assert result.failure == ""
        assert state is not None
        assert state.status == "done", state.reason
        assert {record.contributors for record in state.log if record.stage == 3} == {(0, 1, 3)}
        assert all(set(record.abstained) <= {2} for record in state.log)
        assert all(record.abstained[2] for record in state.log if record.stage == 3), "it is named, with a reason"
        told = [event.get("abstained", {}) for event in by_verb(result, "combined")]
        assert told == [{"p02": record.abstained[2]} if record.abstained else {} for record in state.log]
        if name != "in-process":
            assert [event["peer"] for event in by_verb(result, "abstains")] == ["p02"], "it says so itself, once"
        assert result.peers["p02"]["finished"], "it takes the end like everybody"
        assert is_replay(spec, result)
        alone = carry_out("in-process", a_fleet([X for X in arrays if X is not bad], job)).jobs[0].state
        assert alone is not None
        assert np.array_equal(summaries.raw_centers(state), summaries.raw_centers(alone)), "as if it had not been there"

    @pytest.mark.parametrize("bad", BAD, ids=["nan", "inf", "empty", "columns"])
    @pytest.mark.parametrize("name", ["in-process", "simulated"])
    def test_it_abstains_by_name_and_stops_nobody(self, name: str, bad: np.ndarray) -> None:
        self.check(name, bad)

    @pytest.mark.processes
    @pytest.mark.slow
    @pytest.mark.parametrize("bad", [BAD[0], BAD[2], BAD[3]], ids=["nan", "empty", "columns"])
    def test_among_processes(self, bad: np.ndarray, home: Path) -> None:
        self.check("processes", bad, home)


def test_a_device_spec_has_a_link_and_a_fitness() -> None:
    peer = PeerSpec("a", np.zeros((1, 1)))
    assert (peer.fitness, peer.link) == (0.5, None)


def test_what_was_sent_so_far_is_told_round_by_round() -> None:
    result = carry_out("simulated", a_fleet(rows(3), a_job()))
    loads, combined = by_verb(result, "load"), by_verb(result, "combined")
    assert len(loads) == len(combined)
    sent = [load["bytes_sent"] for load in loads]
    assert sent == sorted(sent)
    assert 0 < sent[-1] <= sum(peer["bytes_sent"] for peer in result.peers.values())
    assert 0 < loads[-1]["busiest_bytes"] < sent[-1]
    assert loads[-1]["busiest"] in result.peers


@pytest.mark.processes
def test_processes_tell_what_they_sent() -> None:
    result = carry_out("processes", a_fleet(rows(3), a_job()))
    last = by_verb(result, "load")[-1]
    assert last["bytes_sent"] == sum(peer["bytes_sent"] for peer in result.peers.values())
    assert last["busiest_bytes"] == max(peer["bytes_sent"] for peer in result.peers.values())
