"""Streams: one round by hand and against pooled rows, forgetting, batches, the drift report, and warm starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from p2pclust.clustering import Points, fuzzy_sums, objective
from p2pclust.errors import UsageError, WireError
from p2pclust.protocols import Arrays, Job, JobState, Local, cluster_job, pooled_run, replay, run_in_process
from p2pclust.protocols.centers.stream import BatchDrift, StreamFuzzyCMeansProtocol, _ratio, batch_of, drift_report
from p2pclust.protocols.engine import engine, summaries
from p2pclust.protocols.engine.job import Stage
from p2pclust.protocols.engine.registry import build
from p2pclust.protocols.engine.runner import clustering_stage
from p2pclust.protocols.engine.wire import decode_state

MIDDLES = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])


def stream(n: int, seed: int, *, middles: NDArray[np.float64] = MIDDLES) -> NDArray[np.float64]:
    """Rows in random order around these middles."""
    rng = np.random.default_rng(seed)
    picked: NDArray[np.float64] = middles[rng.integers(0, len(middles), n)] + rng.normal(size=(n, middles.shape[1]))
    return picked


def a_job(**options: Any) -> Job:
    return cluster_job("stream-fcm", **({"n_clusters": 3, "privacy_gate": False, "seed": 1} | options))


def run(peers: Sequence[Any], job: Job) -> JobState:
    return run_in_process(job, [Local(X) for X in peers])


class TestOneRound:
    def state(self, **more: Any) -> Arrays:
        opened = a_job(n_clusters=2, bounds=([0.0], [10.0]), init=[[0.0], [10.0]])
        return engine.begin(opened).arrays.replace(**more)

    # Weights and sums as the peers of a round told them; working coordinates count from 5.
    TOLD = Arrays(weights=[4.0, 2.0], sums=[[-16.0], [8.0]], rows=2.0, objective=12.0)

    def protocol(self, **options: Any) -> StreamFuzzyCMeansProtocol:
        return StreamFuzzyCMeansProtocol(**({"n_clusters": 2, "n_batches": 3, "tol": 0.0, "max_rounds": 2} | options))

    def test_the_first_batch_is_told_over_told(self) -> None:
        after = self.protocol().combine(self.state(), self.TOLD)
        assert after["centers"].tolist() == [[-4.0], [4.0]]
        assert (int(after["batch"]), after["past_weights"].tolist()) == (0, [0.0, 0.0]), "until the batch ends"

    @pytest.mark.parametrize(("forgetting", "first"), [(1.0, -2.0), (0.5, -16.0 / 6.0), (0.0, -4.0)])
    def test_the_past_counts_as_much_as_is_not_forgotten(self, forgetting: float, first: float) -> None:
        before = self.state(past_weights=[4.0, 0.0], past_sums=[[0.0], [0.0]], cost=np.float64(2.0))
        after = self.protocol(forgetting=forgetting).combine(before, self.TOLD)
        assert after["centers"].ravel().tolist() == pytest.approx([first, 4.0])

    def test_a_batch_ends_after_its_rounds_and_leaves_its_totals(self) -> None:
        protocol = self.protocol(forgetting=0.5)
        before = self.state(past_weights=[4.0, 0.0], past_sums=[[2.0], [0.0]], cost=np.float64(2.0))
        once = protocol.combine(before, self.TOLD)
        assert not protocol.finished(before, once, 1)
        twice = protocol.combine(once, self.TOLD)
        assert int(twice["batch"]) == 1
        assert twice["past_weights"].tolist() == [6.0, 2.0]
        assert twice["past_sums"].tolist() == [[-15.0], [8.0]]
        assert twice["opened"].tolist() == twice["centers"].tolist()
        assert float(twice["cost"]) == 2.0

    def test_a_batch_ends_when_the_centers_stand_still(self) -> None:
        protocol = self.protocol(tol=1e-3, max_rounds=10, n_batches=1)
        once = protocol.combine(self.state(), self.TOLD)
        assert (int(once["batch"]), bool(once["drift"][0, 4])) == (0, False)
        twice = protocol.combine(once, self.TOLD)
        assert (int(twice["batch"]), bool(twice["drift"][0, 4])) == (1, True)
        assert protocol.finished(once, twice, 2)

    def test_a_cluster_that_nobody_ever_told_of_keeps_its_center(self) -> None:
        told = self.TOLD.replace(weights=[4.0, 0.0], sums=[[-16.0], [0.0]])
        assert self.protocol().combine(self.state(), told)["centers"].tolist() == [[-4.0], [5.0]]

    def test_drift_by_hand(self) -> None:
        # Mean squared distance 12 / 6 where it was 0.5; both centers move by 1, and so does their root mean square; the
        # spread is the root of 2 + 50 - (5/3)**2, for 4 of 6 weights lie at -5 and 2 at 5; shares 2/3 to 1/4.
        before = self.state(past_weights=[1.0, 3.0], past_sums=[[-4.0], [12.0]], cost=np.float64(0.5))
        after = self.protocol(forgetting=0.0).combine(before, self.TOLD)
        (found,) = drift_report(after)
        assert found.surprise == pytest.approx(4.0)
        assert found.moved == pytest.approx(1.0 / np.sqrt(2.0 + 25.0 - (5.0 / 3.0) ** 2))
        assert found.mass == pytest.approx(2 / 3 - 1 / 4)
        assert (found.rounds, found.settled) == (1, False)
        later = self.protocol(forgetting=0.0).combine(after, self.TOLD.replace(objective=6.0))
        (found,) = drift_report(later, first=7)
        assert (found.batch, found.surprise, found.rounds) == (7, pytest.approx(4.0), 2), "told by the first round"

    @pytest.mark.parametrize(("cost", "before", "surprise"), [(0.0, 0.0, 1.0), (1.0, 0.0, 1e6), (0.0, 1.0, 0.0)])
    def test_no_division_by_zero(self, cost: float, before: float, surprise: float) -> None:
        told = self.TOLD.replace(objective=cost)
        after = self.protocol().combine(self.state(cost=np.float64(before)), told)
        assert drift_report(after)[0].surprise == surprise

    def test_rows_that_all_lie_on_one_point_have_not_moved(self) -> None:
        told = self.TOLD.replace(weights=[4.0, 0.0], sums=[[-20.0], [0.0]], objective=0.0)
        assert drift_report(self.protocol().combine(self.state(), told))[0].moved == 0.0


def test_batches_are_those_of_array_split() -> None:
    for n in range(8):
        for n_batches in range(1, 11):
            local = Local(np.arange(float(n)).reshape(n, 1))
            split = [part.tolist() for part in np.array_split(local.X, n_batches)]
            assert [batch_of(local, batch, n_batches).X.tolist() for batch in range(n_batches)] == split
            assert batch_of(local, -1, n_batches).n_samples == batch_of(local, n_batches, n_batches).n_samples == 0


sizes = st.lists(st.integers(15, 30), min_size=1, max_size=5)
fuzzifiers = st.sampled_from([1.1, 1.5, 2.0, 4.0])


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(sizes, st.integers(1, 5), fuzzifiers, st.sampled_from([0.0, 0.3, 0.9, 1.0]), st.integers(0, 99), st.booleans())
def test_each_round_is_the_formula_on_the_pooled_rows_of_the_batch(
    sizes: list[int], n_batches: int, fuzzifier: float, forgetting: float, seed: int, all_of_them: bool
) -> None:
    peers = [100.0 + stream(n, seed + n) for n in sizes]
    job = a_job(
        n_batches=n_batches, fuzzifier=fuzzifier, forgetting=forgetting, seed=seed, scaling="minmax", tol=0.0,
        max_rounds=3, participation=1.0 if all_of_them else 0.6,
    )  # fmt: skip
    number = clustering_stage(job)[0]
    states: list[JobState] = []
    run_in_process(job, [Local(X) for X in peers], states.append)
    assert states[-1].status == "done"
    steps = 0
    for before, after in pairwise(states):
        if before.stage != number:
            continue
        steps += 1
        old, new = before.arrays, after.arrays
        batch = int(old["batch"])
        rows = [np.array_split(peers[peer], n_batches)[batch] for peer in after.log[-1].contributors]
        points = Points((np.concatenate(rows) - old["origin"]) / old["scale"], shift=np.zeros(2))
        weights, sums = fuzzy_sums(points, old["centers"], fuzzifier)
        weights, sums = weights + forgetting * old["past_weights"], sums + forgetting * old["past_sums"]
        assert np.abs(new["centers"] - sums / weights[:, np.newaxis]).max() <= 1e-9
        if int(new["batch"]) > batch:
            cost = objective(points, old["centers"], fuzzifier) / (weights - forgetting * old["past_weights"]).sum()
            assert float(new["cost"]) == pytest.approx(cost, rel=1e-9)
    assert steps == 3 * n_batches


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(
    sizes, fuzzifiers, st.sampled_from(["none", "minmax", "zscore"]), st.integers(0, 99), st.sampled_from([0.0, 5e-3])
)
def test_one_batch_is_llf_fcm_to_the_bit(
    sizes: list[int], fuzzifier: float, scaling: str, seed: int, tol: float
) -> None:
    peers = [stream(n, seed + n) for n in sizes]
    options: dict[str, Any] = {"scaling": scaling, "fuzzifier": fuzzifier, "tol": tol, "max_rounds": 8, "seed": seed}
    one = run(peers, a_job(n_batches=1, **options))
    other = run(peers, cluster_job("llf-fcm", n_clusters=3, privacy_gate=False, **options))
    assert one.status == other.status == "done"
    assert one.arrays["centers"].tobytes() == other.arrays["centers"].tobytes()
    assert one.arrays["shifts"].tobytes() == other.arrays["shifts"].tobytes()
    assert int(one.arrays["coarse"]) == int(other.arrays["coarse"])


def test_what_is_kept_and_what_is_forgotten() -> None:
    early, late = stream(60, 1), stream(60, 2) + 3.0
    options: dict[str, Any] = {"bounds": ([-9.0] * 2, [15.0] * 2), "init": MIDDLES, "n_batches": 2, "max_rounds": 40}

    def middle(forgetting: float) -> float:
        return float(
            summaries.raw_centers(run([np.vstack([early, late])], a_job(forgetting=forgetting, **options))).mean()
        )

    apart = [middle(forgetting) for forgetting in (1.0, 0.5, 0.0)]
    assert apart == sorted(apart), "the more is forgotten, the nearer to the late rows"
    # With everything forgotten, the last batch decides alone, from the centers that it began with.
    alone = run([late], a_job(**(options | {"n_batches": 1, "init": MIDDLES + 3.0})))
    assert apart[2] == pytest.approx(float(summaries.raw_centers(alone).mean()), abs=0.05)


class TestDrift:
    def reported(self, *parts: NDArray[np.float64], **options: Any) -> list[BatchDrift]:
        X = np.vstack(parts)
        state = run([X[0::2], X[1::2]], a_job(n_batches=10, **options))
        return drift_report(state.arrays)

    def test_none(self) -> None:
        found = self.reported(stream(2000, 0))
        assert [batch.verdict for batch in found] == ["first: nothing to compare with"] + 9 * ["no drift"]
        assert all(batch.settled for batch in found)

    def test_a_cluster_that_moves_at_once(self) -> None:
        moved = MIDDLES + np.array([[0.0, 0.0], [4.0, 4.0], [0.0, 0.0]])
        found = self.reported(stream(1000, 0), stream(1000, 1, middles=moved), forgetting=0.0)
        assert [bool(batch.reasons) for batch in found] == 5 * [False] + [True] + 4 * [False]
        assert found[5].verdict.startswith("drift: rows lay 5.8 times")
        assert "centers moved by 0.6" in found[5].verdict
        assert "weight" not in found[5].verdict, "as many rows as before"

    def test_shares_that_change(self) -> None:
        mostly = MIDDLES[[0, 1, 1, 1, 1, 2]]
        found = self.reported(stream(1000, 0), stream(1000, 1, middles=mostly), forgetting=0.0)
        assert [bool(batch.reasons) for batch in found] == 5 * [False] + [True] + 4 * [False]
        assert found[5].reasons == (f"{found[5].mass:.0%} of the weight changed cluster",)

    def test_of_another_protocol_there_is_none(self) -> None:
        assert drift_report(Arrays(centers=MIDDLES)) == []

    def test_as_a_mapping(self) -> None:
        told = BatchDrift(3, 1.0, 0.5, None, 4, True).to_dict()
        assert told == {
            "batch": 3, "surprise": 1.0, "moved": 0.5, "mass": None, "rounds": 4, "settled": True,
            "verdict": "drift: centers moved by 0.5 of the spread of the rows",
        }  # fmt: skip


class TestFewRows:
    def test_who_has_no_rows_left_abstains(self) -> None:
        state = run([stream(40, 0), stream(2, 1)], a_job(n_batches=4))
        assert state.status == "done"
        assert state.log[-1].abstained == {1: "no rows in this batch"}
        assert len(state.arrays["drift"]) == 4

    def test_the_gate_counts_the_batchs_rows_and_the_objective(self) -> None:
        # (C (F + 1) + 1) / F = 5: batches of six and of five rows
        state = run([stream(60, 0), stream(11, 1)], a_job(n_batches=2, privacy_gate=True))
        assert state.status == "done"
        assert state.log[-1].abstained[1].startswith("privacy gate: (C (F + 1) + 1) / F = 5 rows or fewer: ")
        assert 1 in next(record for record in state.log if record.stage == state.stage).contributors

    def test_when_nobody_can_go_on_what_was_learned_stays(self) -> None:
        state = run([stream(11, 0), stream(11, 1)], a_job(n_batches=2, privacy_gate=True))
        assert (state.status, state.converged) == ("done", False)
        assert len(drift_report(state.arrays)) == 1

    def test_if_nobody_could_begin_the_job_fails(self) -> None:
        state = run([stream(8, 0), stream(8, 1)], a_job(n_batches=2, privacy_gate=True))
        assert state.status == "failed"
        assert state.reason.startswith("stream-fcm: no peer can contribute (peer 0, peer 1: privacy gate: ")

    def test_a_first_batch_of_fewer_rows_than_clusters(self) -> None:
        state = run([stream(4, 0), stream(4, 1)], a_job(n_batches=4, n_clusters=5))
        assert state.reason == (
            "5 clusters were asked for, but the peers' first batches hold 2 rows: ask for fewer clusters or batches"
        )

    def test_a_later_batch_may_have_fewer(self) -> None:
        assert run([stream(7, 0)], a_job(n_batches=3, n_clusters=3)).status == "done"


def learned(state: JobState) -> dict[str, Any]:
    names = ("origin", "scale", "unit", "centers", "past_weights", "past_sums", "cost")
    return {name: state.arrays[name].tolist() for name in names}


class TestWarm:
    def test_two_jobs_are_two_batches_of_one(self) -> None:
        peers = [stream(60, 0), 0.5 + stream(40, 1)]
        bounds: Any = ([-9.0] * 2, [15.0] * 2)
        cold = a_job(n_batches=1, bounds=bounds)
        # The same first centers: those of the first job's seeding, which saw all rows.
        number = clustering_stage(cold)[0]
        states: list[JobState] = []
        both = run_in_process(a_job(n_batches=2, bounds=bounds), [Local(X) for X in peers], states.append)
        first = next(state for state in states if state.stage == number)
        given = Stage("warm", learned(first))
        begun = run([X[: len(X) // 2] for X in peers], Job((given, cold.stages[-1]), 1))
        ended = run([X[len(X) // 2 :] for X in peers], Job((Stage("warm", learned(begun)), cold.stages[-1]), 1))
        assert ended.arrays["centers"].tobytes() == both.arrays["centers"].tobytes()
        assert ended.arrays["past_weights"].tobytes() == both.arrays["past_weights"].tobytes()
        assert drift_report(ended.arrays, first=1) == drift_report(both.arrays)[1:]

    def test_declared_bounds_still_hold(self) -> None:
        peers, bounds = [stream(30, 0), stream(30, 1)], ([-9.0] * 2, [15.0] * 2)
        cold = a_job(n_batches=1, bounds=bounds)
        begun = run(peers, cold)
        warm = Job((cold.stages[0], Stage("warm", learned(begun)), cold.stages[-1]), 1)
        state = run([peers[0], np.full((9, 2), 99.0)], warm)
        assert state.status == "done"
        assert "is outside the declared bounds [-9, 15]" in state.log[0].abstained[1]

    GOOD: dict[str, Any] = {  # noqa: RUF012
        "origin": [0.0], "scale": [1.0], "unit": [1.0], "centers": [[0.0], [9.0]], "past_weights": [1.0, 2.0],
        "past_sums": [[0.0], [9.0]], "cost": 0.5,
    }  # fmt: skip

    @pytest.mark.parametrize(
        ("bad", "reason"),
        [
            ({"origin": [0.0, 1.0]}, r"origin has shape \[2\] where 2 centers of 1 columns want \[1\]"),
            ({"past_sums": [[0.0]]}, r"past_sums has shape \[1, 1\] where 2 centers of 1 columns want \[2, 1\]"),
            ({"scale": [0.0]}, "scale: a number is too small"),
            ({"past_weights": [-1.0, 0.0]}, "past_weights: a number is too small"),
            ({"unit": [3.0]}, "unit: expected powers of two"),
            ({"centers": [[1e200], [0.0]]}, "centers: a value is too large"),
            ({"cost": -2.0}, "cost = -2.0: expected a finite number of at least -1"),
        ],
    )
    def test_bad_parameters(self, bad: dict[str, Any], reason: str) -> None:
        build("warm", self.GOOD)
        with pytest.raises(UsageError, match=f"^warm: {reason}$"):
            build("warm", self.GOOD | bad)

    def test_other_columns_or_clusters_fail_the_job(self) -> None:
        warm = Stage("warm", self.GOOD)
        rows = [stream(30, 0)]
        state = run(rows, Job((warm, Stage("stream-fcm", {"n_clusters": 3})), 1))
        assert state.reason == "stream-fcm: needs 3 first centers: put scaling and seeding stages before"
        state = run(rows, Job((warm, Stage("stream-fcm", {"n_clusters": 2})), 1))
        assert "peer 0: has 2 columns where the fleet has 1" in state.reason
        declared = Stage("range", {"lo": [0.0, 0.0], "hi": [1.0, 1.0]})
        state = run(rows, Job((declared, warm, Stage("stream-fcm", {"n_clusters": 2})), 1))
        assert state.reason == "warm: bounds are declared for 2 columns where 1 were learned"


def test_the_record_is_replayed_and_the_gap_measured() -> None:
    locals_ = [Local(stream(60, 0)), Local(stream(40, 1))]
    job = a_job(n_batches=3, forgetting=1.0)
    state = run_in_process(job, locals_)
    assert replay(job, locals_, state.log).encode() == state.encode()
    assert not clustering_stage(job)[1].lossless
    found = pooled_run(job, locals_, state.log)
    assert np.linalg.norm(found.centers - summaries.raw_centers(state)) < 1.0


def test_states_are_checked_as_they_arrive() -> None:
    job = a_job(n_batches=3, bounds=([-9.0] * 2, [15.0] * 2), init=MIDDLES)
    begun = engine.begin(job)
    assert decode_state(job, begun.encode()) == begun
    done = run([stream(30, 0)], job)
    assert decode_state(job, done.encode()) == done
    for bad in ({"drift": np.zeros((1, 4))}, {"past_weights": np.zeros(2)}, {"batch": np.float64(0.0)}):
        with pytest.raises(WireError, match=f"job state: {next(iter(bad))}"):
            decode_state(job, replace(begun, arrays=begun.arrays.replace(**bad)).encode())
    with pytest.raises(WireError, match="job state: stage stream-fcm lacks drift"):
        decode_state(job, replace(begun, arrays=begun.arrays.without("drift")).encode())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"n_batches": 0}, "n_batches = 0: expected a whole number from 1 to 1000000"),
        ({"forgetting": 1.5}, "forgetting = 1.5: expected a number from 0 to 1"),
        ({"forgetting": -0.1}, "forgetting = -0.1: expected a finite number of at least 0"),
        ({"fuzzifier": 1.0}, "fuzzifier = 1.0: expected a finite number above 1"),
        ({"privacy_gate": 1}, "privacy_gate = 1: expected true, false or 'job'"),
    ],
)
def test_bad_parameters(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=f"^stream-fcm: {reason}$"):
        StreamFuzzyCMeansProtocol(n_clusters=2, **options)


@pytest.mark.parametrize("of_nothing", [0.0, 1.0])
@pytest.mark.parametrize(
    ("one", "other"), [(0.0, 0.0), (0.0, -1.0), (0.0, float("nan")), (-1.0, 0.0), (-1e-300, 0.0)]
)  # fmt: skip
def test_a_ratio_of_what_is_nothing(one: float, other: float, of_nothing: float) -> None:
    """Costs of lying or rounded contributions may be below 0, and a square root of one is no number."""
    assert _ratio(one, other, of_nothing) == of_nothing


@pytest.mark.parametrize(
    ("one", "other", "ratio"), [(3.0, 2.0, 1.5), (1.0, 0.0, 1e6), (1.0, 1e-9, 1e6), (0.0, 2.0, 0.0)]
)
def test_a_ratio(one: float, other: float, ratio: float) -> None:
    assert _ratio(one, other, 7.0) == ratio
