"""Private c-means without noise by hand, with noise by its statistics, and what one row can change."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from p2pclust.errors import UsageError, WireError
from p2pclust.protocols.engine import engine, summaries
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.base import Abstain
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.fixed_point import quantise_all
from p2pclust.protocols.engine.job import Job, JobState, Stage
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.padded import layout_of
from p2pclust.protocols.engine.runner import conclude, run_in_process
from p2pclust.protocols.engine.wire import decode_state
from p2pclust.protocols.private.accounting import delta_of
from p2pclust.protocols.private.private_cm import Box, PrivateCMeansProtocol, nearest_one_by_one, shares, spread
from p2pclust.protocols.secure.pads import ENTROPY_BYTES, KeyPair

ONE = 2**24
PROMISE = {"epsilon": 2.0, "delta": 1e-6}
#: So much epsilon that noise is a small part of a row: results are those by hand, nearly.
LOOSE = {"epsilon": 100.0, "delta": 0.1}
VALUES = st.floats(-1e3, 1e3) | st.sampled_from([math.inf, -math.inf, math.nan, -0.0, 5e-324, 1.7e308])


def job_of(bounds: object, **more: object) -> Job:
    options = {"n_clusters": 2, "privacy": PROMISE, "secure": True, "bounds": bounds, **more}
    return cluster_job("llf-cm", **options)  # type: ignore[arg-type]


def private_of(job: Job) -> PrivateCMeansProtocol:
    protocol = job.protocols[-1]
    assert isinstance(protocol, PrivateCMeansProtocol)
    return protocol


def run(job: Job, peers: list[object], seed: int = 1) -> JobState:
    return run_in_process(job, [Local(X) for X in peers], entropy=np.random.default_rng(seed).bytes)  # type: ignore[arg-type]


class TestByHand:
    peers = ([[0.0], [1.0]], [[4.0], [8.0]], [[9.0]])

    def test_exact_contributions(self) -> None:
        job = job_of(([0.0], [8.0]), init=[[1.0], [7.0]])
        state, protocol = engine.begin(job), private_of(job)
        # Middle 4, half 4: rows 0, 1 are -1 and -.75. Row 4 is as near to 1 as to 7: the first one. Row 9 counts as 8.
        expected = [([2.0, 0.0], [[-1.75], [0.0]]), ([1.0, 1.0], [[0.0], [1.0]]), ([0.0, 1.0], [[0.0], [1.0]])]
        for X, (counts, sums) in zip(self.peers, expected, strict=True):
            part = protocol.contribute(state.arrays, Local(X), np.random.default_rng(0))
            assert (part["counts"].tolist(), part["sums"].tolist()) == (counts, sums)

    def test_a_step(self) -> None:
        job = job_of(([0.0], [8.0]), init=[[1.0], [7.0]], scaling="minmax")
        state, protocol = engine.begin(job), private_of(job)
        few = 2 * protocol.count_deviation
        total = Arrays(counts=[100.0, few - 1], sums=[[-50.0], [1.0]])
        after = protocol.combine(state.arrays, total)
        # Half a half width below the middle: .25 of the range. The second count is too small: of .625 a quarter is left.
        assert after["centers"].tolist() == [[0.25], [0.40625]]
        assert after["shifts"].tolist() == [math.hypot(0.125, 0.875 - 0.40625)]
        error = math.sqrt(1.5 * (protocol.sum_deviation**2 + (0.5 * protocol.count_deviation) ** 2)) / 100
        assert after["deviations"] == pytest.approx(np.array([[error * 0.5], [0.5]]))
        last = protocol.combine(state.arrays.replace(shifts=np.zeros(15)), total)
        assert last["centers"].tolist() == [[0.25], [0.875]]
        none = protocol.combine(state.arrays, Arrays(counts=[0.0, -50.0], sums=[[1.0], [1.0]]))
        assert none["centers"].tolist() == [[0.125], [0.875]]
        outside = protocol.combine(state.arrays, Arrays(counts=[100.0, 100.0], sums=[[-500.0], [500.0]]))
        assert outside["centers"].tolist() == [[0.0], [1.0]]

    def test_centers_with_too_few_rows_share_those_with_the_most(self) -> None:
        job = job_of(([0.0], [8.0]), n_clusters=5, init=[[0.0], [2.0], [4.0], [6.0], [8.0]])
        state, protocol = engine.begin(job), private_of(job)
        counts = np.array([0.0, 200.0, 0.0, 900.0, 0.0])
        after = protocol.combine(state.arrays, Arrays(counts=counts, sums=[[0.0], [-100.0], [0.0], [450.0], [0.0]]))
        # 4 +- half of 4 for the two that have rows. The first goes to 6, the third to 2, and the fifth to 6 again.
        moved = [6 + (0 - 6) / 4, 2.0, 2 + (4 - 2) / 4, 6.0, 6 + (8 - 6) / 4]
        assert (after["origin"] + after["centers"]).ravel().tolist() == moved
        assert (after["deviations"].ravel() == 4.0).tolist() == [True, False, True, False, True]

    def test_the_last_rounds_add_up_what_those_before_found(self) -> None:
        job = job_of(([0.0], [8.0]), init=[[1.0], [7.0]], max_rounds=5)
        arrays_, protocol = engine.begin(job).arrays, private_of(job)
        total = Arrays(counts=[100.0, 200.0], sums=[[-50.0], [50.0]])
        sizes = []
        for number in range(5):
            arrays_ = protocol.combine(arrays_, total)
            assert (arrays_["origin"] + arrays_["centers"]).ravel().tolist() == [2.0, 5.0]
            # Half a half width below the middle, of 100 rows in each of so many rounds.
            together = (1, 1, 1, 2, 3)[number]
            error = (
                math.sqrt(1.5 * (protocol.sum_deviation**2 + (0.5 * protocol.count_deviation) ** 2) / together) / 100
            )
            assert float(arrays_["deviations"][0, 0]) == pytest.approx(4.0 * error)
            sizes.append(arrays_["past_weights"].tolist())
        assert sizes == [[0.0, 0.0], [0.0, 0.0], [100.0, 200.0], [200.0, 400.0], [0.0, 0.0]]

    def test_a_cluster_that_begins_anew_forgets_what_it_was(self) -> None:
        job = job_of(([0.0], [8.0]), n_clusters=3, init=[[1.0], [4.0], [7.0]], max_rounds=5)
        arrays_ = engine.begin(job).arrays.replace(
            shifts=np.zeros(3),
            past_weights=np.array([500.0, 0.0, 300.0]),
            past_sums=np.array([[-250.0], [0.0], [150.0]]),
            past_rounds=np.array([1, 0, 1]),
        )
        after = private_of(job).combine(arrays_, Arrays(counts=[500.0, 0.0, 300.0], sums=[[-250.0], [0.0], [150.0]]))
        # The second shares the rows of the first from now on, so neither has the totals of the rounds before.
        assert after["past_weights"].tolist() == [0.0, 0.0, 600.0]
        assert after["past_sums"].ravel().tolist() == [0.0, 0.0, 300.0]
        assert after["past_rounds"].tolist() == [0, 0, 2]

    def test_a_small_cluster_that_shares_its_rows_again_and_again_is_kept(self) -> None:
        # Two centers are empty, so those of both filled clusters give half of what they are to them in every round.
        job = job_of(([0.0], [8.0]), n_clusters=4, init=[[1.0], [7.0], [3.0], [5.0]])
        arrays_, protocol = engine.begin(job).arrays, private_of(job)
        small = 3.0 * protocol.count_deviation
        total = Arrays(counts=[9e4, small, 0.0, 0.0], sums=[[-6.75e4], [0.75 * small], [0.0], [0.0]])
        for _ in range(16):
            arrays_ = protocol.combine(arrays_, total)
            assert (arrays_["origin"] + arrays_["centers"])[:2].ravel() == pytest.approx([1.0, 7.0])

    @pytest.mark.parametrize("scaling", ["none", "minmax"])
    def test_with_hardly_any_noise_it_is_k_means_over_clipped_rows(self, scaling: str) -> None:
        peers = [np.tile(X, (500, 1)) for X in self.peers]
        job = job_of(([0.0], [8.0]), init=[[1.0], [7.0]], privacy=LOOSE, scaling=scaling)
        state = run(job, peers)
        assert (state.status, state.converged, state.arrays["shifts"].size) == ("done", True, 16)
        assert summaries.raw_centers(state) == pytest.approx(np.array([[5 / 3], [8.0]]), abs=0.01)
        labels = [kept["labels"] for kept in conclude(job, state, [Local(X) for X in peers])]
        assert [one[:2].tolist() for one in labels] == [[0, 0], [0, 1], [1, 1]]

    def test_the_result_holds_its_promise(self) -> None:
        state = run(job_of(([0.0], [8.0])), list(self.peers))
        assert (float(state.arrays["epsilon"]), float(state.arrays["delta"])) == (2.0, 1e-6)
        # Five rows and noise of a dozen: no center has moved, or what it moved to is known to half a range at best.
        assert (state.arrays["deviations"] <= 4.0).all()


class TestOneRow:
    @pytest.mark.slow
    @given(
        data=st.data(),
        rows=arrays(np.float64, st.tuples(st.integers(0, 12), st.just(3)), elements=VALUES),
        one=arrays(np.float64, 3, elements=VALUES),
        centers=arrays(np.float64, (4, 3), elements=st.floats(-100, 100)),
        scaling=st.sampled_from(["none", "minmax"]),
    )
    def test_it_changes_one_cluster_by_what_the_noise_is_made_for(
        self, data: st.DataObject, rows: np.ndarray, one: np.ndarray, centers: np.ndarray, scaling: str
    ) -> None:
        job = job_of(([-10.0, 0.0, -1e-3], [100.0, 0.0, 1e-3]), n_clusters=4, scaling=scaling)
        state, protocol = engine.begin(job), private_of(job)
        arrays_ = state.arrays.replace(centers=centers)
        position = data.draw(st.integers(0, len(rows)))
        both = [rows, np.insert(rows, position, one, axis=0)]
        parts = [protocol.contribute(arrays_, Local(X), np.random.default_rng(0)) for X in both]
        counts, sums = (np.rint((parts[1][name] - parts[0][name]) * ONE) for name in ("counts", "sums"))
        changed = np.flatnonzero(counts)
        assert len(changed) == (0 if np.isnan(one).any() else 1)
        assert np.abs(counts).sum() == ONE * len(changed)
        assert not np.delete(sums, changed, axis=0).any()
        assert (np.abs(sums) <= ONE).all()

    @pytest.mark.slow
    @given(rows=arrays(np.float64, st.tuples(st.integers(0, 12), st.just(2)), elements=VALUES))
    def test_no_rows_make_a_peer_abstain(self, rows: np.ndarray) -> None:
        job = job_of(([0.0, 0.0], [1.0, 1.0]))
        given_ = engine.contribution(job, engine.begin(job), Local(rows), 0, 3, entropy=np.random.default_rng(0).bytes)
        assert list(given_) == ["counts", "sums"]

    def test_the_cluster_of_a_row_does_not_depend_on_others(self) -> None:
        rng = np.random.default_rng(5)
        box = Box(np.zeros(7), np.geomspace(1e-3, 1e3, 7))
        rows = rng.integers(-ONE, ONE + 1, (7, 40_000)).astype(np.int32)
        centers = rng.normal(size=(3, 7)) * box.half
        together = nearest_one_by_one(rows, box, centers, ONE)
        for start in range(0, 40_000, 997):
            assert nearest_one_by_one(rows[:, start : start + 1], box, centers, ONE)[0] == together[start]


class TestOneLimb:
    @pytest.mark.slow
    @given(
        rows=arrays(np.float64, st.tuples(st.integers(0, 30), st.just(2)), elements=VALUES),
        n_peers=st.integers(1, 4096),
        seed=st.integers(0, 2**32),
    )
    def test_the_second_limb_is_zero_with_noise_and_without(self, rows: np.ndarray, n_peers: int, seed: int) -> None:
        job = job_of(([0.0, -3.0], [1.0, 1e6]), seed=seed)
        state, protocol = engine.begin(job), private_of(job)
        raw = protocol.contribute(state.arrays, Local(rows), np.random.default_rng(0))
        limbs = quantise_all(raw, protocol.units(state.arrays), n_peers=n_peers, limbs=2)
        source = np.random.default_rng(seed).bytes
        noisy = engine.contribution(job, state, Local(rows), 0, n_peers, entropy=source)
        noise = protocol.noise(state.arrays, n_peers, np.random.default_rng(seed).bytes)
        for name, exact in limbs.items():
            assert not exact[1].any()
            assert not noisy[name][1].any()
            assert (exact[0] / ONE == raw[name]).all()
            assert (noisy[name][0] - exact[0] == noise[name]).all()
            assert noise[name].dtype == np.int64
            assert noise[name].shape == raw[name].shape

    def test_a_whole_job_with_pads_has_the_bits_of_one_without(self) -> None:
        job = job_of(([0.0], [8.0]))
        held = [Local(X) for X in ([[0.0], [1.0]], [[7.0], [9.0]], [[3.0]], [[6.0]])]
        rng = np.random.default_rng(9)
        pairs = [KeyPair(rng.bytes(ENTROPY_BYTES)) for _ in held]
        keys = {i: pair.public for i, pair in enumerate(pairs)}
        kept = {i: keys[i] for i in (1, 3)}
        plain = padded = engine.begin(job)
        while plain.status == "running":
            context = plain.round.to_bytes(32, "little")
            parts = [
                engine.contribution(job, plain, local, i, 4, entropy=np.random.default_rng([plain.round, i]).bytes)
                for i, local in enumerate(held)
            ]
            layout = layout_of(job, padded)
            sent = [
                pair.padded(layout.numbers(part), i, kept, context)
                for i, (pair, part) in enumerate(zip(pairs, parts, strict=True))
            ]
            removed = [pairs[i].removed(i, keys, layout.size, context) for i in kept]
            total = layout.unpadded(sent, removed, 4)
            padded = engine.advance(job, padded, [((0, 1, 2, 3), total)], {}, n_peers=4)
            plain = engine.advance(job, plain, list(enumerate(parts)), {}, n_peers=4)
        assert padded.status == "done"
        assert padded.arrays == plain.arrays


class TestNoise:
    @pytest.mark.parametrize("n_peers", [3, 4, 20, 4096])
    def test_two_thirds_of_the_peers_add_enough(self, n_peers: int) -> None:
        job = job_of(([0.0] * 5, [1.0] * 5), n_clusters=9)
        state, protocol = engine.begin(job), private_of(job)
        needed = shares(n_peers)
        assert needed >= 2 * n_peers / 3 > needed - 1
        assert all(Fraction(v, needed) * needed >= v for v in protocol.variances)
        drawn = [protocol.noise(state.arrays, n_peers, np.random.default_rng(i).bytes) for i in range(60)]
        for name, variance in zip(("counts", "sums"), protocol.variances, strict=True):
            found = np.concatenate([one[name].ravel() for one in drawn]).astype(np.float64)
            share = variance / needed
            assert abs((found**2).mean() / share - 1) < 4 * math.sqrt(2 / found.size)
            assert len(np.unique(found)) == found.size  # no number of one peer is the same as another one

    @given(epsilon=st.floats(0.01, 100.0), delta=st.floats(1e-12, 0.1), rounds=st.integers(1, 30), n=st.integers(1, 50))
    def test_all_rounds_together_keep_the_promise(self, epsilon: float, delta: float, rounds: int, n: int) -> None:
        protocol = PrivateCMeansProtocol(3, epsilon, delta, (0.0,) * n, (1.0,) * n, rounds)
        counts, sums = protocol.variances
        # In whole steps: one row changes a count by 2**24, and each of n sums by as much at most.
        each = Fraction(ONE**2, counts - 16) + n * Fraction(ONE**2, sums - 16)
        assert delta_of(epsilon, math.sqrt((rounds + 2) * each)) <= delta
        assert protocol.mu_squared == pytest.approx(float((rounds + 2) * each))
        assert delta_of(epsilon * 0.99, protocol.mu_squared**0.5) > delta * 0.99

    def test_what_a_job_reserves(self) -> None:
        one = job_of(([0.0], [1.0]))
        assert one.mu_squared == pytest.approx(0.4483347353**2, rel=1e-6)
        assert job_of(([0.0], [1.0]), max_rounds=9).mu_squared == pytest.approx(one.mu_squared)

    def test_the_state_cannot_lower_it(self) -> None:
        job = job_of(([0.0], [1.0]))
        state, protocol = engine.begin(job), private_of(job)
        hostile = state.arrays.replace(epsilon=np.float64(90), scale=np.array([1e9]), origin=np.array([1e9]))
        draws = [protocol.noise(given_, 3, np.random.default_rng(1).bytes) for given_ in (state.arrays, hostile)]
        assert all((draws[0][name] == draws[1][name]).all() for name in ("counts", "sums"))
        part = protocol.contribute(hostile, Local([[5.0]]), np.random.default_rng(0))
        assert np.abs(part["sums"]).max() <= 1.0

    def test_no_noise_no_contribution(self) -> None:
        job = job_of(([0.0], [1.0]))
        with pytest.raises(Abstain, match="this run has no secret source of noise"):
            engine.contribution(job, engine.begin(job), Local([[0.5]]), 0, 3)
        assert run_in_process(job, [Local([[0.5]])] * 3).status == "failed"

    def test_a_total_of_too_few_peers_is_not_used(self) -> None:
        job = job_of(([0.0], [1.0]))
        state = engine.begin(job)
        part = engine.contribution(job, state, Local([[0.5]]), 0, 4, entropy=np.random.default_rng(0).bytes)
        after = engine.advance(job, state, [(0, part), (1, part)], {}, n_peers=4)
        assert (after.status, after.reason) == (
            "failed",
            "private-cm: 2 peers contributed, and the noise of 3 is needed",
        )
        assert after.arrays == state.arrays
        assert engine.advance(job, state, [((0, 1, 2), part)], {}, n_peers=4).status == "running"


class TestStates:
    def test_they_travel(self) -> None:
        job = job_of(([0.0], [8.0]), max_rounds=2)
        states: list[JobState] = []
        run_in_process(job, [Local([[1.0]])] * 3, on_round=states.append, entropy=np.random.default_rng(0).bytes)
        assert [state.status for state in states] == ["running", "done"]
        for state in [engine.begin(job), *states]:
            assert decode_state(job, state.encode()) == state

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"epsilon": np.float64(1.0)}, "another epsilon or delta"),
            ({"shifts": np.zeros(16)}, "more than the 16 rounds"),
            ({"past_rounds": np.array([0, 16])}, "totals of more rounds than the job has"),
            (
                {name: np.ones(2) for name in ("origin", "scale")}
                | {name: np.ones((2, 2)) for name in ("centers", "deviations", "past_sums")},
                "another number of columns",
            ),
        ],
    )
    def test_hostile_ones_are_refused(self, change: dict[str, np.ndarray], reason: str) -> None:
        job = job_of(([0.0], [8.0]))
        state = engine.begin(job)
        hostile = replace(state, arrays=state.arrays.replace(**change))
        with pytest.raises(WireError, match=reason):
            decode_state(job, hostile.encode())

    def test_other_columns(self) -> None:
        job = job_of(([0.0], [8.0]))
        with pytest.raises(Abstain, match="has 2 columns where the fleet has 1"):
            engine.contribution(job, engine.begin(job), Local([[0.5, 1.0]]), 0, 3)


class TestBox:
    @pytest.mark.slow
    @given(n_clusters=st.integers(1, 9), seed=st.integers(0, 99))
    def test_spread_centers_lie_in_the_box_and_apart(self, n_clusters: int, seed: int) -> None:
        box = Box(np.array([5.0, -1.0]), np.array([2.0, 0.5]))
        centers = spread(box, n_clusters, np.random.default_rng(seed))
        assert (np.abs(centers - box.middle) <= box.half).all()
        assert len(np.unique(centers, axis=0)) == n_clusters

    def test_many_centers_are_drawn_and_cost_nothing_more(self) -> None:
        centers = spread(Box(np.zeros(3), np.ones(3)), 30_000, np.random.default_rng(0))
        assert centers.shape == (30_000, 3)
        assert (np.abs(centers) <= 1.0).all()
        assert abs(float((centers**2).mean()) - 1 / 3) < 0.01

    def test_given_centers_are_clipped(self) -> None:
        state = engine.begin(job_of(([0.0], [8.0]), init=[[-3.0], [7.0]]))
        assert summaries.raw_centers(state).tolist() == [[0.0], [7.0]]


PRIVATE = {"n_clusters": 2, "epsilon": 2.0, "delta": 1e-6, "lo": [0.0], "hi": [8.0]}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"epsilon": 0.0}, "expected a finite number of at least 0.01"),
        ({"epsilon": 101.0}, "expected at most 100"),
        ({"delta": 0.0}, "expected a finite number of at least 1e-100"),
        ({"delta": 0.2}, "expected at most 0.1"),
        ({"rounds": 0}, "expected a whole number from 1"),
        ({"lo": [9.0]}, r"\[9, 8\] is not a range"),
        ({"lo": [0.0, 0.0]}, "lo has 2 numbers and hi has 1"),
    ],
)
def test_parameters(change: dict[str, object], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        PrivateCMeansProtocol(**{**PRIVATE, **change})


def test_it_needs_the_bounds_of_its_range() -> None:
    other = Job((Stage("range", {"lo": [0.0], "hi": [9.0]}), Stage("none"), Stage("private-cm", PRIVATE)), seed=0)
    state = engine.begin(other)
    assert (state.status, "with the same declared bounds" in state.reason) == ("failed", True)
