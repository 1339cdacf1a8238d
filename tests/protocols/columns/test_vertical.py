"""Vertical LLF-CM and LLF-FCM: by hand, against the pooled algorithms, and what becomes of odd peers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pclust.clustering import Points, fuzzy_step, lloyd_step, run_steps
from p2pclust.errors import UsageError
from p2pclust.protocols.columns.vertical import UNKNOWN
from p2pclust.protocols.columns.vertical_stages import warnings_of
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job, JobState, RoundRecord
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import pooled, pooled_run, replay, run_in_process

PROTOCOLS = ["vertical-cm", "vertical-fcm"]


def split(X: np.ndarray, widths: Sequence[int], init: np.ndarray | None = None) -> list[Local]:
    """One peer per width, with its columns of the rows and of given first centers."""
    parts = np.split(np.arange(X.shape[1]), np.cumsum(widths)[:-1])
    return [Local(X[:, part], centers=None if init is None else init[:, part]) for part in parts]


def run(
    protocol: str, X: object, widths: Sequence[int], *, init: object = "random", **options: object
) -> tuple[Job, list[Local], JobState]:
    rows = np.asarray(X, dtype=np.float64)
    job = cluster_job(protocol, init=init, **{"scaling": "none", **options})
    locals_ = split(rows, widths, None if isinstance(init, str) else np.asarray(init, dtype=np.float64))
    return job, locals_, run_in_process(job, locals_)


def centers(job: Job, state: JobState, locals_: list[Local]) -> np.ndarray:
    """The whole centers, which only a test that holds everybody's data can see."""
    return np.concatenate([engine.conclude(job, state, local)["centers"] for local in locals_], axis=1)


def relative_difference(job: Job, locals_: list[Local], state: JobState) -> float:
    spread = np.ptp(np.concatenate([local.X for local in locals_], axis=1), axis=0)
    difference = np.abs(centers(job, state, locals_) - pooled(job, locals_, state.log)).max(axis=0)
    return float((difference / np.where(spread > 0, spread, 1.0)).max())


def rows_of(seed: int, n_rows: int, n_columns: int, offset: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    middles = rng.uniform(-10, 10, (5, n_columns))
    return offset + middles[rng.integers(0, 5, n_rows)] + rng.standard_normal((n_rows, n_columns))


class TestByHand:
    ROWS = ((0.0, 0.0), (2.0, 0.0), (10.0, 4.0))
    INIT = ((0.0, 0.0), (10.0, 0.0))

    def test_c_means(self) -> None:
        # Squared distances at t = 0: 0 100, 4 64, 116 16. So labels 0 0 1, and centers (1, 0), (10, 4).
        job, locals_, state = run("vertical-cm", self.ROWS, [1, 1], init=self.INIT, n_clusters=2, max_rounds=1)
        assert centers(job, state, locals_).tolist() == [[1.0, 0.0], [10.0, 4.0]]
        assert state.arrays["labels"].tolist() == [0, 0, 1]
        assert state.arrays["counts"].tolist() == [2, 1]
        before = np.sqrt([[0.0, 100.0], [4.0, 64.0], [116.0, 16.0]])
        after = np.sqrt([[1.0, 116.0], [1.0, 80.0], [97.0, 0.0]])
        assert state.arrays["shifts"].tolist() == [pytest.approx(np.linalg.norm(after - before), rel=1e-15)]
        assert (state.status, state.converged) == ("done", False)

    def test_fuzzy_c_means(self) -> None:
        # As the test of llf-fcm by hand, with a second column that is constant: center 1 becomes 3 / 1.01.
        job, locals_, state = run(
            "vertical-fcm", [[0.0, 5.0], [3.0, 5.0]], [1, 1], init=[[1.0, 5.0], [3.0, 5.0]], n_clusters=2, max_rounds=1
        )
        assert centers(job, state, locals_) == pytest.approx(np.array([[0.0, 5.0], [3.0 / 1.01, 5.0]]), abs=1e-15)
        # Round 1: row 0 lies on center 0, row 1 at 3 and at 3 - 3 / 1.01 of the two.
        far, near = 1 / 9.0, 1 / (3 - 3 / 1.01) ** 2
        expected = [[1.0, 0.0], [far / (far + near), near / (far + near)]]
        assert state.arrays["memberships"] == pytest.approx(np.array(expected), abs=1e-15)

    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_t_updates_take_one_round_of_distances_more(self, protocol: str) -> None:
        X, init = rows_of(3, 60, 4), rows_of(4, 3, 4)
        job, locals_, state = run(protocol, X, [1, 3], init=init, n_clusters=3, tol=0.0, max_rounds=5)
        assert [record.stage for record in state.log] == [0] + [2] * 6
        assert state.arrays["shifts"].size == 5
        step = lloyd_step if protocol == "vertical-cm" else partial(fuzzy_step, fuzzifier=2.0)
        expected = run_steps(step, Points(X), init, tol=0.0, max_rounds=5)
        assert centers(job, state, locals_) == pytest.approx(expected.centers, abs=1e-12)

    def test_the_stop_rule_is_strict(self) -> None:
        options = {"init": self.INIT, "n_clusters": 2, "max_rounds": 9}
        _, _, state = run("vertical-cm", self.ROWS, [1, 1], tol=0.0, **options)
        moved = float(state.arrays["shifts"][0])
        assert run("vertical-cm", self.ROWS, [1, 1], tol=moved * 1.0001, **options)[2].arrays["shifts"].size == 1
        later = run("vertical-cm", self.ROWS, [1, 1], tol=moved * 0.9999, **options)[2]
        assert (later.arrays["shifts"].size, later.converged) == (2, True)

    def test_a_cluster_that_loses_its_rows_has_its_first_center_again(self) -> None:
        # Ties go to the lowest index, so cluster 0 has rows 4 and 9 at first. From their mean 6.5 both are farther than
        # from 2 and 11: it is empty, and back at 7.
        rows, init = [[2.0], [4.0], [9.0], [11.0]], [[7.0], [1.0], [11.0]]
        job, locals_, state = run("vertical-cm", rows, [1], init=init, n_clusters=3, tol=0.0, max_rounds=4)
        assert centers(job, state, locals_).tolist() == [[7.0], [3.0], [10.0]]
        assert pooled(job, locals_, state.log).tolist() == [[7.0], [3.0], [10.0]]


cases = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32 - 1),
        "widths": st.lists(st.integers(1, 4), min_size=2, max_size=10),
        "n_rows": st.integers(6, 120),
        "n_clusters": st.integers(1, 5),
        "offset": st.sampled_from([0.0, -3.5, 1e3, 1e6, -1e6]),
        "scaling": st.sampled_from(["none", "minmax", "zscore"]),
        "init": st.sampled_from(["k-means++", "rows", "random"]),
    }
)


def of_case(protocol: str, case: dict[str, object], **options: object) -> tuple[Job, list[Local], JobState]:
    X = rows_of(case["seed"], case["n_rows"], sum(case["widths"]), case["offset"])
    kept = {name: case[name] for name in ("n_clusters", "scaling", "init", "seed")}
    return run(protocol, X, case["widths"], tol=0.0, max_rounds=5, **kept, **options)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(cases, st.floats(1.1, 4.0))
def test_fuzzy_c_means_over_columns_equals_pooled_fuzzy_c_means(case: dict[str, object], fuzzifier: float) -> None:
    job, locals_, state = of_case("vertical-fcm", case, fuzzifier=fuzzifier)
    assert state.status == "done"
    assert relative_difference(job, locals_, state) <= 1e-9


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(cases)
def test_c_means_over_columns_equals_pooled_c_means(case: dict[str, object]) -> None:
    job, locals_, state = of_case("vertical-cm", case)
    assert state.status == "done"
    assert relative_difference(job, locals_, state) <= 1e-9


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(cases, st.sampled_from(PROTOCOLS))
def test_a_replay_has_the_bits_of_its_run(case: dict[str, object], protocol: str) -> None:
    job, locals_, state = of_case(protocol, case)
    again = replay(Job.from_dict(job.to_dict()), [Local(local.X) for local in locals_], state.log)
    assert again.encode() == state.encode()
    assert JobState.decode(state.encode()) == state


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("init", ["k-means++", "rows", "random"])
def test_first_centers_do_not_depend_on_how_the_columns_are_shared_out(protocol: str, init: str) -> None:
    X = rows_of(1, 80, 6)
    found = []
    for widths in ([6], [1] * 6, [2, 1, 3], [5, 1]):
        job, locals_, state = run(protocol, X, widths, init=init, n_clusters=4, scaling="minmax", seed=5, tol=1e-9)
        found.append(centers(job, state, locals_))
    for other in found[1:]:
        assert other == pytest.approx(found[0], abs=1e-12)


def test_all_ways_to_share_out_the_columns_of_pendigits_give_the_same_curve() -> None:
    """Figure 6 of the paper."""
    file = Path(os.environ.get("P2PCLUST_DATA", ""), "pendigits.npz")
    if not file.is_file():
        pytest.skip("pendigits is not here: p2pclust data fetch pendigits")
    with np.load(file) as stored:
        X = stored["X"].astype(np.float64)
    schemes = ([1] * 16, [2] * 8, [4] * 4, [8] * 2, [1, 2, 3, 4, 6])
    curves = []
    for widths in schemes:
        _, _, state = run("vertical-fcm", X, widths, n_clusters=10, scaling="minmax", seed=0, tol=0.0, max_rounds=12)
        curves.append(state.arrays["shifts"])
    for curve in curves[1:]:
        assert curve == pytest.approx(curves[0], rel=1e-12, abs=1e-12)
    assert curves[0][0] > 10 * curves[0][-1] > 0


class TestWhatTheStateHolds:
    ALIGNED = ("salt", "n_rows", "columns", "given", "shifts")

    @pytest.mark.parametrize(
        ("protocol", "assigned"), [("vertical-cm", ("counts", "labels")), ("vertical-fcm", ("memberships",))]
    )
    def test_nothing_but_what_algorithm_4_sends(self, protocol: str, assigned: tuple[str, ...]) -> None:
        job = cluster_job(protocol, n_clusters=2, init="random", tol=0.0, max_rounds=2)
        seen: list[JobState] = []
        run_in_process(job, split(rows_of(0, 9, 3), [1, 2]), seen.append)
        running = [state for state in seen if state.status == "running" and state.stage == 2]
        assert [tuple(state.arrays) for state in running[1:]] == [(*self.ALIGNED, *assigned)] * 2
        before = "last_labels" if protocol == "vertical-cm" else "last_memberships"
        assert set(seen[-1].arrays) == {*self.ALIGNED, *assigned, before}

    def test_the_first_centers_do_not_follow_from_what_everybody_knows(self) -> None:
        # With the job's document and the ranges alone, one could draw them: then distances to them give the rows away.
        first = [
            engine.contribution(*self.opened([[0.0], [x], [1.0]]), 0, 1)["squares"][0].tolist() for x in (0.25, 0.75)
        ]
        assert first[0] != first[1]
        assert first[0] == engine.contribution(*self.opened([[0.0], [0.25], [1.0]]), 0, 1)["squares"][0].tolist()

    @staticmethod
    def opened(rows: list[list[float]]) -> tuple[Job, JobState, Local]:
        job, local = cluster_job("vertical-cm", n_clusters=2, init="random", seed=3), Local(rows)
        state = engine.begin(job)
        return (
            job,
            engine.advance(job, state, [(0, engine.contribution(job, state, local, 0, 1))], {}, n_peers=1),
            local,
        )

    def test_float32_halves_what_is_sent(self) -> None:
        X = rows_of(2, 50, 3)
        job, locals_, state = run("vertical-fcm", X, [1, 2], init="rows", n_clusters=3, transfer="float32", seed=1)
        assert state.arrays["memberships"].dtype == np.float32
        exact = run("vertical-fcm", X, [1, 2], init="rows", n_clusters=3, seed=1)
        difference = np.abs(centers(job, state, locals_) - centers(exact[0], exact[2], exact[1])).max()
        assert 0 < difference < 1e-3
        with pytest.raises(UsageError, match="measure its gap"):
            pooled(job, locals_, state.log)
        assert pooled_run(job, locals_, state.log).converged


class TestMemory:
    """Line 12 needs the distances of the round before, which only the aggregator of that round remembers."""

    def run_with_election(self, forgets: set[int], **options: object) -> tuple[Job, list[Local], JobState]:
        job = cluster_job("vertical-fcm", n_clusters=3, init="rows", **options)
        locals_ = split(rows_of(7, 60, 4), [2, 2])
        state, memory = engine.begin(job), engine.Memory()
        while state.status == "running":
            terms = [(peer, engine.contribution(job, state, local, peer, 2)) for peer, local in enumerate(locals_)]
            if state.round in forgets:
                memory = engine.Memory()
            state = engine.advance(job, state, terms, {}, n_peers=2, memory=memory)
        assert memory.value is None, "a finished job is forgotten"
        return job, locals_, state

    def test_a_round_after_an_election_says_so_and_moves_the_same(self) -> None:
        job, locals_, state = self.run_with_election({3}, tol=0.0, max_rounds=5)
        assert [record.forgot for record in state.log] == [False, False, False, True, False, False, False]
        shifts = state.arrays["shifts"].tolist()
        undisturbed = self.run_with_election(set(), tol=0.0, max_rounds=5)[2]
        assert shifts[1] == UNKNOWN
        assert [*shifts[:1], *shifts[2:]] == [x for i, x in enumerate(undisturbed.arrays["shifts"].tolist()) if i != 1]
        assert state.arrays["memberships"].tobytes() == undisturbed.arrays["memberships"].tobytes()
        assert replay(job, locals_, state.log).encode() == state.encode()
        assert JobState.decode(state.encode()) == state

    def test_the_stop_rule_may_fire_one_round_later(self) -> None:
        undisturbed = self.run_with_election(set(), tol=0.5)[2]
        last = undisturbed.round - 1
        job, locals_, state = self.run_with_election({last}, tol=0.5)
        assert state.round == undisturbed.round + 1
        assert state.converged
        assert replay(job, locals_, state.log).encode() == state.encode()

    def test_the_first_round_has_nothing_to_remember(self) -> None:
        state = self.run_with_election({1}, tol=0.0, max_rounds=2)[2]
        assert not any(record.forgot for record in state.log)

    def test_the_log_of_other_protocols_has_no_trace_of_it(self) -> None:
        assert RoundRecord(1, (0, 2)).packed == b"\x93\x01\xc4\x01\x05\x90"
        assert RoundRecord(1, (0, 2), forgot=True).packed == b"\x94\x01\xc4\x01\x05\x90\xc3"


class TestAlignment:
    def failed(self, locals_: list[Local]) -> str:
        seen: list[JobState] = []
        state = run_in_process(cluster_job("vertical-cm", n_clusters=2), locals_, seen.append)
        assert state.status == "failed"
        assert [record.stage for record in state.log] == [0], "before a number was sent"
        assert seen[-1] is state
        return state.reason

    def test_another_number_of_rows_is_named(self) -> None:
        reason = self.failed([Local(np.zeros((4, 1))), Local(np.zeros((4, 2))), Local(np.zeros((3, 1)))])
        assert reason == "align: every peer's columns are needed (peer 2: has 3 rows where most peers have 4)"

    def test_other_ids_are_named(self) -> None:
        rows = [[0.0], [1.0]]
        reason = self.failed([Local(rows, ids=i) for i in (["a", "b"], ["b", "a"], ["a", "b"])])
        assert reason == (
            "align: every peer's columns are needed (peer 1: has 2 rows with other ids, or in another order, than most "
            "peers)"
        )

    def test_a_peer_without_usable_data_is_named(self) -> None:
        reason = self.failed([Local([[0.0], [1.0]]), Local([[0.0], [np.nan]])])
        assert reason == "align: every peer's columns are needed (peer 1: row 1, column 0 is nan)"

    def test_ids_that_count_the_rows_are_the_default(self) -> None:
        rows = [[0.0], [1.0], [5.0]]
        locals_ = [Local(rows), Local(rows, ids=np.arange(3, dtype=np.int32))]
        assert run_in_process(cluster_job("vertical-cm", n_clusters=2), locals_).status == "done"

    @pytest.mark.parametrize("ids", [[1, 2], [0.5, 1.5, 2.5], [[1], [2], [3]]])
    def test_ids_that_are_none_keep_a_peer_out(self, ids: list[object]) -> None:
        rows = [[0.0], [1.0], [5.0]]
        assert "one number or text per row" in self.failed([Local(rows), Local(rows, ids=ids)])
        assert Local(rows, ids=ids).problem == "", "of no concern to peers that hold rows"

    def test_the_digest_is_salted(self) -> None:
        local, digests = Local([[0.0]]), set()
        for seed in (1, 2):
            job = cluster_job("vertical-cm", n_clusters=1, seed=seed)
            digests.add(engine.contribution(job, engine.begin(job), local, 0, 1)["ids"].tobytes())
        assert len(digests) == 2


class TestOddPeers:
    def after_alignment(self, **options: object) -> tuple[Job, list[Local], JobState]:
        job = cluster_job("vertical-fcm", n_clusters=2, init="random", **options)
        locals_ = split(rows_of(0, 6, 2), [1, 1])
        state = engine.begin(job)
        given = [(peer, engine.contribution(job, state, local, peer, 2)) for peer, local in enumerate(locals_)]
        return job, locals_, engine.advance(job, state, given, {}, n_peers=2)

    def test_squares_below_zero_are_no_squares(self) -> None:
        job, locals_, state = self.after_alignment()
        good = engine.contribution(job, state, locals_[0], 0, 2)
        bad = Arrays(squares=np.where(np.arange(12).reshape(6, 2) == 7, -1.0, good["squares"]))
        after = engine.advance(job, state, [(0, good), (1, bad)], {}, n_peers=2)
        assert after.status == "failed"
        assert after.reason.endswith("(peer 1: malformed: a squared distance is negative)")

    def test_a_peer_that_is_left_out_ends_the_job(self) -> None:
        job, locals_, state = self.after_alignment()
        good = engine.contribution(job, state, locals_[0], 0, 2)
        after = engine.advance(job, state, [(0, good)], {1: "left out: dead"}, n_peers=2)
        assert after.reason == "vertical-fcm: every peer's columns are needed (peer 1: left out: dead)"

    def test_a_peer_whose_rows_changed_meanwhile_abstains(self) -> None:
        job, _, state = self.after_alignment()
        from p2pclust.protocols.engine.base import Abstain

        with pytest.raises(Abstain, match="has other rows than the 6 that it was aligned with"):
            engine.contribution(job, state, Local(np.zeros((5, 1))), 1, 2)

    def test_more_clusters_than_rows(self) -> None:
        state = run("vertical-cm", [[0.0], [1.0]], [1], n_clusters=3)[2]
        assert (state.status, state.reason) == (
            "failed",
            "3 clusters were asked for, but there are 2 rows: ask for at most 2",
        )

    def test_first_centers_that_were_to_be_given_and_are_not(self) -> None:
        job = cluster_job("vertical-cm", n_clusters=2, init=[[0.0, 1.0], [2.0, 3.0]])
        assert "3.0" not in str(job.to_dict()["stages"]), "the document does not hold them"
        state = run_in_process(job, [Local([[0.0], [1.0]], centers=[[0.0], [2.0]]), Local([[0.0], [1.0]])])
        assert "peer 1: was to be given 2x1 numbers of first centers, and has none" in state.reason

    @pytest.mark.parametrize(
        ("options", "line"),
        [
            ({"participation": 0.5}, "a protocol over columns excludes participation"),
            ({"bounds": ([0.0], [1.0])}, "each peer scales its own columns"),
            ({"init": "uniform"}, r"expected one of k-means\+\+, rows, random, given"),
            ({"transfer": "float16"}, "expected one of float64, float32"),
            ({"init": [[0.0]]}, "1 centers were given for n_clusters = 2"),
        ],
    )
    def test_what_has_no_meaning_is_refused(self, options: dict[str, object], line: str) -> None:
        with pytest.raises(UsageError, match=line):
            cluster_job("vertical-cm", n_clusters=2, **options)


class TestSeeding:
    def test_k_means_plus_plus_picks_one_row_of_each_far_group(self) -> None:
        X = np.repeat(np.array([[0.0, 0.0], [1e4, 0.0], [0.0, 1e4]]), 20, axis=0)
        X += np.random.default_rng(0).random(X.shape)
        for seed in range(5):
            state = run("vertical-cm", X, [1, 1], init="k-means++", n_clusters=3, seed=seed)[2]
            assert sorted(state.arrays["first_rows"] // 20) == [0, 1, 2]
            assert [record.stage for record in state.log[:4]] == [0, 1, 1, 2]

    def test_rows_that_are_all_alike_are_picked_uniformly(self) -> None:
        assert run("vertical-cm", np.ones((5, 2)), [1, 1], init="k-means++", n_clusters=3)[2].status == "done"


def test_few_columns_are_warned_about() -> None:
    job, _, state = run("vertical-cm", rows_of(0, 9, 6), [1, 2, 3], n_clusters=3)
    assert job.by_columns
    told = warnings_of(state.arrays, 3)
    assert list(told) == [0, 1]
    assert told[0].startswith("1 column for 3 clusters: the distances that it sends in one round give its rows away")


def test_what_the_warning_says_is_so() -> None:
    # Rows from one round's squares: differences of two columns are linear in the rows, so they span the rows' space.
    X = rows_of(5, 40, 2)
    job = cluster_job("vertical-cm", n_clusters=4, init="random")
    state = engine.begin(job)
    state = engine.advance(job, state, [(0, engine.contribution(job, state, Local(X), 0, 1))], {}, n_peers=1)
    squares = engine.contribution(job, state, Local(X), 0, 1)["squares"]
    linear = squares[:, 1:] - squares[:, :1]
    design = np.column_stack([linear, np.ones(40)])
    residual = X - design @ np.linalg.lstsq(design, X, rcond=None)[0]
    assert np.abs(residual).max() < 1e-9
