"""A peer that lies: what it sends as a contribution, or as the state that it opens while it aggregates.

Everything goes through the codec, as on the network. Whatever arrives is refused (WireError), left out by name, fails the
job with a reason, or is computed with: no other exception, no state with a number that is not finite, and no warning, for
pytest makes them errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from p2pclust.errors import P2PClustError, WireError
from p2pclust.protocols.engine import engine, summaries
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.base import Abstain
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import run_in_process
from p2pclust.protocols.engine.wire import ContributionReader, decode_state
from p2pclust.protocols.measuring.measure import MeasuredIndices, measured

N = 3
RNG = np.random.default_rng(4)
X = RNG.normal(size=(90, 2)) + np.repeat([[0.0], [6.0], [-6.0]], 30, axis=0)
FLOATS = (0.0, -1.0, 5e-324, -5e-324, 1e-160, 2.0**53, 2.0**54, 1e150, 2.0**400, 2.0**401, -1e300, 1.7e308)
WHOLE = (0, 1, -1, 2, 4, 7, 2**31, 2**38, -(2**48), 2**53, 2**62 - 1, 2**63 - 1, -(2**63))


def three(protocol: str, **options: Any) -> Job:
    """A short job of three clusters."""
    rounds: dict[str, Any] = {} if protocol == "k-fed" else {"max_rounds": 3, "tol": 0.0}
    return cluster_job(protocol, n_clusters=3, seed=1, **rounds, **options)


JOBS = {
    "llf-cm": three("llf-cm", init="shared-k-means++", scaling="zscore"),
    "llf-cm accelerated": three("llf-cm", accelerate=True),
    "llf-fcm measured": measured(three("llf-fcm", scaling="minmax")),
    "llf-fcm accelerated": three("llf-fcm", accelerate=True),
    "mixture": three("mixture", privacy_gate=False),
    "mixture of several starts": three(
        "mixture", covariance_type="tied", n_init=2, scaling="zscore", privacy_gate=False
    ),
    "mixture with variances": three("mixture", covariance_type="spherical", reg_covar=0.0, privacy_gate=False),
    "ffcm": three("ffcm", init="careful", local_iterations=20),
    "ffcm of k-means": three("ffcm", averaging="kmeans", local_iterations=20),
    "c2f-fcm": three("c2f-fcm", local_iterations=20),
    "gdf-fcm": three("gdf-fcm"),
    "fkm": three("fkm"),
    "k-fed measured": measured(three("k-fed")),
    "stream-fcm": three("stream-fcm", n_batches=3),
    "vertical-cm": three("vertical-cm", init="k-means++"),
    "vertical-cm given": three("vertical-cm", init=X[[0, 40, 80]]),
    "vertical-fcm": three("vertical-fcm", init="rows"),
    "vertical-fcm drawn": three("vertical-fcm", init="random", transfer="float32"),
}
if find_spec("torch") is not None:
    FLOWS = {"couplings": 2, "hidden": [4], "cluster_rounds": 2, "communication_rounds": 2, "local_steps": 3}
    for start in ("random", "peers"):
        JOBS[f"uifca {start}"] = cluster_job("uifca", n_clusters=3, seed=1, start=start, **FLOWS)
EACH = pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)


def peers(job: Job) -> list[Local]:
    if not job.by_columns:
        return [Local(X[peer::N]) for peer in range(N)]
    columns = np.column_stack([X, X[:, 0] * X[:, 1]])
    return [Local(columns[:, [peer]], centers=columns[[0, 40, 80]][:, [peer]]) for peer in range(N)]


def odd(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The array with another length, or some or all of its numbers changed to such as may hurt."""
    values = {"f": FLOATS, "i": WHOLE}.get(array.dtype.kind, (0, 1))
    with np.errstate(over="ignore"):
        chosen = [np.array(value).astype(array.dtype) for value in values if np.isfinite(np.array(value, array.dtype))]
    kind = int(rng.integers(8))
    if kind == 0 and array.ndim:
        shape = list(array.shape)
        shape[int(rng.integers(array.ndim))] = int(rng.choice([0, 1, 2, 4, 50]))
        return np.resize(array if array.size else np.zeros(1, array.dtype), shape)
    if kind == 1:
        return np.full(array.shape, chosen[int(rng.integers(len(chosen)))])
    if kind == 2 and array.dtype.kind in "fi":
        return -array
    changed = np.array(array)
    for _ in range(int(rng.integers(1, 4)) if array.size else 0):
        changed.reshape(-1)[int(rng.integers(array.size))] = chosen[int(rng.integers(len(chosen)))]
    return changed


def lied(arrays: Arrays, rng: np.random.Generator) -> Arrays:
    given: dict[str, Any] = dict(arrays)
    for _ in range(int(rng.integers(1, 4)) if given else 0):
        name = list(given)[int(rng.integers(len(given)))]
        if rng.random() < 0.08:
            del given[name]
            if not given:
                break
        else:
            given[name] = odd(given[name], rng)
    return Arrays(given)


def sent(job: Job, state: JobState, locals_: list[Local], liar: Any = None) -> tuple[list[Any], dict[int, str]]:
    """What arrives of a round: `liar(peer, contribution)` may put something else in its place."""
    asked = engine.asked(job, state, N)
    got, abstained = [], {}
    for peer in asked[:1] if job.protocols[state.stage].asks == "one" else asked:
        try:
            part = engine.contribution(job, state, locals_[peer], peer, N)
            data = (liar(peer, part) if liar else part).encode()
            got.append((peer, ContributionReader(job, state, n_peers=N).read(data)))
        except Abstain as answer:
            abstained[peer] = answer.reason
        except WireError as error:
            abstained[peer] = f"malformed: {error}"
    return got, abstained


def run(job: Job, locals_: list[Local], liar: Any = None) -> Iterator[JobState]:
    state, memory = engine.begin(job), engine.Memory()
    yield state
    while state.status == "running":
        got, abstained = sent(job, state, locals_, liar)
        state = engine.advance(job, state, got, abstained, n_peers=N, memory=memory)
        assert state.arrays.sound()
        assert decode_state(job, state.encode()) == state, "others can read it"
        yield state


@pytest.mark.slow
@EACH
def test_lies_in_contributions(job: Job) -> None:
    locals_, rng = peers(job), np.random.default_rng(5)
    ended = set()
    for turn in range(15):
        *_, last = run(job, locals_, lambda peer, part, who=turn % N: lied(part, rng) if peer == who else part)
        ended.add(last.status)
        assert last.reason or last.status == "done"
        assert all(reason for record in last.log for reason in record.abstained.values())
        if last.status == "done":
            for local in locals_:
                assert "labels" in engine.conclude(job, last, local)
            if job.protocols[-1].id == "measure":
                assert MeasuredIndices.of(last).rows > 0
    assert ended & {"done", "failed"}


@pytest.mark.slow
@EACH
def test_lies_in_states(job: Job) -> None:
    locals_, rng = peers(job), np.random.default_rng(6)
    refused = 0
    for honest in list(run(job, locals_)):
        for _ in range(15):
            false = replace(honest, arrays=lied(honest.arrays, rng))
            if rng.random() < 0.2:
                false = replace(
                    false, stage=int(rng.integers(len(job.stages))), status=str(rng.choice(["running", "done"]))
                )
            try:
                state = decode_state(job, false.encode())
            except WireError:
                refused += 1
                continue
            if state.status == "running":
                for what in (sent(job, state, locals_), ([], dict.fromkeys(range(N), "no data"))):
                    after = engine.advance(job, state, *what, n_peers=N)
                    assert after.arrays.sound()
            elif state.status == "done":
                conclusions(job, state, locals_)
    assert refused > 20


def conclusions(job: Job, state: JobState, locals_: list[Local]) -> None:
    """What whoever holds a false final state makes of it: numbers, or an error of this library."""
    if not job.by_columns and job.protocols[-1].id != "uifca":
        assert summaries.raw_centers(state).shape == (3, 2)
    if job.protocols[-1].id == "measure":
        assert MeasuredIndices.of(state).rows > 0
    for local in locals_:
        with suppress(P2PClustError):
            engine.conclude(job, state, local)


def at(job: Job, protocol: str, step: int = 0) -> JobState:
    """The honest state before that round of that stage."""
    states = [s for s in run(job, peers(job)) if s.status == "running" and job.protocols[s.stage].id == protocol]
    return states[step]


@pytest.mark.parametrize(
    ("name", "stage", "step", "arrays", "line"),
    [
        ("llf-cm", "shared-k-means++", 0, {"stream": np.int64(-1)}, "a stream has a negative number"),
        ("llf-cm", "shared-k-means++", 0, {"picks": np.zeros((4, 2))}, "4 picks for 3 centers"),
        ("fkm", "fkm", 1, {"stream": np.int64(-(2**63))}, "a stream has a negative number"),
        ("llf-fcm accelerated", "llf-fcm", 1, {"objective": None}, "only some of the arrays of an accelerated round"),
        ("vertical-cm", "vertical-seeding", 0, {"first_rows": np.arange(3)}, "vertical-seeding, which needs none"),
        ("vertical-cm", "vertical-cm", 0, {"first_rows": np.arange(5)}, "5 picked rows for 3 centers"),
        ("vertical-cm", "vertical-cm", 1, {"counts": np.full(5, 18)}, r"counts of shape \[5\] for 3 clusters"),
        ("vertical-cm", "vertical-cm", 1, {"counts": None}, "not all that assigns rows"),
        ("vertical-fcm", "vertical-fcm", 1, {"memberships": np.ones((90, 2))}, r"memberships of shape \[90, 2\] for 3"),
    ],
)
def test_states_that_would_hurt_are_refused(name: str, stage: str, step: int, arrays: Any, line: str) -> None:
    job = JOBS[name]
    honest = at(job, stage, step)
    gone = [key for key, value in arrays.items() if value is None]
    false = honest.arrays.without(*gone).replace(**{k: v for k, v in arrays.items() if v is not None})
    assert decode_state(job, honest.encode()) == honest
    with pytest.raises(WireError, match=line):
        decode_state(job, replace(honest, arrays=false).encode())


def test_a_round_of_a_stage_that_has_none_is_refused() -> None:
    job = JOBS["ffcm of k-means"]  # range, none, seeding (uniform, from the seed), ffcm
    honest = at(job, "ffcm")
    with pytest.raises(WireError, match="a round of stage none, which needs none"):
        decode_state(job, replace(honest, stage=1, log=honest.log[:1], round=1).encode())


def test_an_end_before_the_last_stage_is_refused() -> None:
    job = JOBS["ffcm"]
    with pytest.raises(WireError, match="done in stage 2 of a job of 4"):
        decode_state(job, replace(at(job, "careful"), status="done").encode())


@pytest.mark.parametrize("name", ["llf-fcm measured", "k-fed measured"])
def test_an_end_without_the_measures_is_refused(name: str) -> None:
    job = JOBS[name]
    *_, last = run(job, peers(job))
    assert last.status == "done"
    for false in (last.arrays.without("measured_spreads"), last.arrays.replace(measured_rows=np.int64(0))):
        with pytest.raises(WireError, match=r"not all that is measured|measures of no row"):
            decode_state(job, replace(last, arrays=false).encode())


class TestSumsThatCancel:
    """A liar that knows the others' numbers can make totals zero that are divided by."""

    @staticmethod
    def cancelling(job: Job, protocol: str, name: str) -> JobState:
        locals_, told = peers(job), {}

        def liar(peer: int, part: Arrays) -> Arrays:
            if name not in part:
                return part
            told[peer] = part[name]
            return part.replace(**{name: -(told[0] + told[1])}) if peer == 2 else part

        *_, last = run(job, locals_, liar)
        assert told, protocol
        return last

    @pytest.mark.parametrize(
        ("job", "name"), [("gdf-fcm", "count"), ("llf-cm", "count")], ids=["numbers-of-rows", "zscore"]
    )
    def test_a_total_of_no_rows_fails_the_job(self, job: str, name: str) -> None:
        last = self.cancelling(JOBS[job], job, name)
        assert last.status == "failed"
        assert "do not give finite numbers" in last.reason

    @pytest.mark.parametrize("job", ["llf-cm accelerated", "llf-fcm accelerated"])
    @pytest.mark.parametrize("name", ["counts", "weights", "sums", "objective"])
    def test_totals_of_nothing_keep_the_centers(self, job: str, name: str) -> None:
        if name in engine.contribution(JOBS[job], at(JOBS[job], job.partition(" ")[0]), peers(JOBS[job])[0], 0, N):
            assert self.cancelling(JOBS[job], job, name).status == "done"

    def test_measures_of_no_rows(self) -> None:
        job = measured(three("gdf-fcm"))
        locals_ = peers(job)

        def liar(peer: int, part: Arrays) -> Arrays:
            limbs = part["rows"] if "spreads" in part else None
            return part if limbs is None or peer != 2 else part.replace(rows=-2 * limbs)

        *_, last = run(job, locals_, liar)
        assert (last.status, last.reason) == (
            "failed",
            "measure: 0 rows were measured: the sums of some peer are impossible",
        )


class TestNobodyCan:
    """No liar is needed for these: all peers' data are bad, or have odd units."""

    @pytest.mark.parametrize("protocol", ["vertical-cm", "vertical-fcm"])
    def test_no_peer_has_usable_columns(self, protocol: str) -> None:
        state = run_in_process(three(protocol), [Local([[np.nan], [0.0]]), Local([[1.0], [np.inf]])])
        assert state.status == "failed"
        assert "peer 0: row 0, column 0 is nan; peer 1: row 1, column 0 is inf" in state.reason

    def test_given_centers_that_no_scale_can_hold(self) -> None:
        job = three("llf-cm", init=[[5.0], [6.0], [7.0]], scaling="minmax")
        state = run_in_process(job, [Local([[0.0], [1e-320], [2e-320]])])
        assert state.status == "failed"
        assert "seeding: cannot begin with numbers that are not finite" in state.reason


def test_many_centers_are_left_out_and_not_clustered() -> None:
    crowd = Arrays(centers=np.zeros((200_000, 2)))
    for name, stage in (("ffcm", "careful"), ("fkm", "fkm"), ("k-fed measured", "k-fed")):
        job = JOBS[name]
        state = at(job, stage)
        more: dict[str, Any] = {"suppressed": np.int64(0)} if stage != "careful" else {}
        if stage == "fkm":
            more = {"sizes": np.ones(200_000, dtype=np.int64), **more}
        got, _ = sent(job, state, peers(job), lambda peer, part, more=more: part if peer else crowd.replace(**more))
        after = engine.advance(job, state, got, {}, n_peers=N)
        assert after.log[-1].abstained == {0: "failed: it sends no centers"}
        assert after.log[-1].contributors == (1, 2)


def test_a_contribution_that_comes_twice_is_no_round() -> None:
    job = JOBS["fkm"]
    state = at(job, "fkm")
    got, _ = sent(job, state, peers(job))
    with pytest.raises(ValueError, match="not in roster order"):
        engine.advance(job, state, [got[0], *got], {}, n_peers=N)
