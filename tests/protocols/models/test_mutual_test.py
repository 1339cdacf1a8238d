from __future__ import annotations

import numpy as np
import pytest
from communities import judged
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from p2pclust.errors import UsageError, WireError
from p2pclust.estimators import FedCRef
from p2pclust.jobs.submission import request_from
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.models import mutual_test
from p2pclust.protocols.models.association import Association, Clusters
from p2pclust.protocols.models.mutual_test import NORMALISATIONS, passes, read_verdicts, verdicts

ERRORS = st.integers(3, 12).flatmap(
    lambda n: arrays(np.float64, (n, 4), elements=st.floats(0, 8, allow_subnormal=False, width=32))
)
FOREIGN = [False, False, True, True]


def associate(clusters: Clusters, parts: list[Arrays | None]) -> Association:
    agreed = judged(clusters, parts, "passes", 1)
    return mutual_test.associate(clusters, agreed.table, agreed.told)


def columns(*of: list[float]) -> np.ndarray:
    return np.array(of).T


class TestOneDirection:
    # Own errors 1, 1, 1, 5; differences 0, 1, 2 and 10; the other foreign model differs by 20 in each row.
    table = columns([1, 1, 1, 5], [1, 2, 3, 15], [21, 21, 21, 25])

    @pytest.mark.parametrize(
        ("normalisation", "divisor"),
        [("pair", 10), ("errors", 15), ("range", 14), ("models", 25), ("joint", 20), ("own", 4)],
    )
    def test_three_of_four_rows_are_within_two_over_the_divisor(self, normalisation: str, divisor: float) -> None:
        def found(theta: float) -> bool:
            return bool(passes(self.table, 0, [False, True, True], theta=theta, normalisation=normalisation)[1])

        assert found(2 / divisor + 1e-9)
        assert not found(2 / divisor - 1e-9)

    def test_each_model_is_judged_by_its_own_differences(self) -> None:
        # They are 0, 0.1, 0.1 and 1: three of four are small. And 1, 2, 3 and 4, normalised 0, 1/3, 2/3 and 1.
        table = columns([1, 1, 1, 1], [1.0, 1.1, 0.9, 2.0], [2, 3, 4, 5])
        assert passes(table, 0, [False, True, True]).tolist() == [False, True, False]

    @pytest.mark.parametrize(("alpha", "expected"), [(25, True), (75, True), (75.1, False), (100, False)])
    def test_alpha_is_the_share_of_rows(self, alpha: float, expected: bool) -> None:
        assert bool(passes(self.table, 0, [False, True, True], alpha=alpha)[1]) is expected

    def test_models_that_do_the_same_pass(self) -> None:
        for normalisation in NORMALISATIONS:
            assert passes(columns([1, 2, 3], [1, 2, 3]), 0, [False, True], normalisation=normalisation).tolist() == [
                False,
                True,
            ]

    def test_equal_differences_tell_nothing(self) -> None:
        assert not passes(columns([1, 1, 1], [2, 2, 2]), 0, [False, True]).any()

    @pytest.mark.parametrize("n", [0, 1, 2])
    def test_too_few_rows_tell_nothing(self, n: int) -> None:
        assert not passes(np.ones((n, 2)), 0, [False, True]).any()

    @pytest.mark.parametrize("odd", [np.nan, np.inf])
    @pytest.mark.parametrize("normalisation", NORMALISATIONS)
    def test_a_broken_model_never_passes_and_harms_no_other(self, odd: float, normalisation: str) -> None:
        table = columns([1, 2, 3, 4], [1, 2, 3, 4.1], [1, 2, 3, 4])
        broken = columns([1, 2, 3, 4], [1, 2, 3, 4.1], [1, 2, odd, 4])
        sound = passes(table, 0, [False, True, False], normalisation=normalisation)
        assert passes(broken, 0, [False, True, True], normalisation=normalisation).tolist() == sound.tolist()
        assert not passes(broken, 2, [True, True, False], normalisation=normalisation).any()

    @pytest.mark.parametrize(
        ("more", "match"),
        [
            ({"alpha": 0}, "alpha"),
            ({"alpha": 101}, "at most 100"),
            ({"theta": -1}, "theta"),
            ({"normalisation": "x"}, "pair"),
        ],
    )
    def test_parameters_out_of_range(self, more: dict[str, object], match: str) -> None:
        with pytest.raises(UsageError, match=match):
            passes(self.table, 0, [False, True, True], **more)  # type: ignore[arg-type]

    @pytest.mark.slow
    @given(ERRORS, st.sampled_from(NORMALISATIONS), st.floats(0, 1), st.floats(0, 1))
    def test_a_larger_theta_and_a_smaller_alpha_pass_more(
        self, table: np.ndarray, normalisation: str, one: float, other: float
    ) -> None:
        low, high = sorted([one, other])
        strict = passes(table, 0, FOREIGN, theta=low, normalisation=normalisation)
        assert not (strict & ~passes(table, 0, FOREIGN, theta=high, normalisation=normalisation)).any()
        assert not (strict & ~passes(table, 0, FOREIGN, theta=low, alpha=50, normalisation=normalisation)).any()
        assert not strict[:2].any()

    @pytest.mark.slow
    @given(ERRORS, st.sampled_from(NORMALISATIONS), st.integers(-8, 8), st.randoms(use_true_random=False))
    def test_the_unit_of_errors_and_the_order_of_rows_do_not_matter(
        self, table: np.ndarray, normalisation: str, power: int, rng: object
    ) -> None:
        order = list(range(len(table)))
        rng.shuffle(order)  # type: ignore[attr-defined]
        other = passes(table[order] * 2.0**power, 0, FOREIGN, normalisation=normalisation)
        assert other.tolist() == passes(table, 0, FOREIGN, normalisation=normalisation).tolist()


class TestVerdicts:
    clusters = Clusters((2, 1, 1))

    def told(self, bits: list[list[int]]) -> Arrays:
        return Arrays(passes=np.packbits(np.array(bits, dtype=bool), axis=1))

    def test_both_directions_are_needed(self) -> None:
        first = self.told([[0, 0, 1, 1], [0, 0, 0, 1]])
        second, third = self.told([[1, 0, 0, 0]]), self.told([[0, 1, 1, 0]])
        found = associate(self.clusters, [first, second, third])
        assert found.links.tolist() == [[0, 2], [1, 3]]

    def test_an_absent_peer_is_set_aside(self) -> None:
        found = associate(self.clusters, [self.told([[0, 0, 1, 1], [0, 0, 0, 1]]), self.told([[1, 0, 0, 0]]), None])
        assert (found.links.tolist(), found.set_aside) == ([[0, 2]], (3,))

    def test_what_is_written_is_read(self) -> None:
        rng = np.random.default_rng(0)
        errors = [rng.random((5, 4)) for _ in range(2)]
        told = verdicts(self.clusters, 0, iter(errors), theta=0.9)
        bits = read_verdicts(self.clusters, 0, Arrays.decode(told.encode()))
        assert bits.any()
        for row, (own, table) in zip(bits, enumerate(errors), strict=True):
            assert row.tolist() == passes(table, own, [False, False, True, True], theta=0.9).tolist()

    @pytest.mark.parametrize(
        "odd",
        [
            Arrays(passes=np.zeros((2, 2), np.uint8)),
            Arrays(passes=np.zeros((1, 1), np.uint8)),
            Arrays(passes=np.zeros((2, 1), np.int64)),
            Arrays(other=np.zeros((2, 1), np.uint8)),
            Arrays(passes=np.full((2, 1), 0b1000_0000, np.uint8)),
            Arrays(passes=np.full((2, 1), 0b0000_0001, np.uint8)),
        ],
    )
    def test_odd_verdicts_are_refused(self, odd: Arrays) -> None:
        with pytest.raises(WireError, match="peer 0"):
            read_verdicts(self.clusters, 0, odd)

    def test_a_peer_must_bring_all_its_clusters(self) -> None:
        with pytest.raises(ValueError, match="shorter"):
            verdicts(self.clusters, 0, [np.ones((3, 4))])


def test_one_link_from_a_cluster_to_each_later_peer() -> None:
    """As in the authors' code: the first cluster of the later peer that passes, also where all pass."""
    clusters, three = Clusters((1, 2, 2)), np.ones(3, dtype=np.bool_)
    table = np.packbits(np.ones((5, 5), dtype=np.bool_), axis=1)
    assert len(mutual_test.associate(clusters, table, three).links) == 8
    one = mutual_test.associate(clusters, table, three, "one")
    assert one.links.tolist() == [[0, 1], [0, 3], [1, 3], [2, 3]]


def test_a_scenario_and_an_estimator_can_ask_for_one_link() -> None:
    request, _ = request_from({"protocol": "fedcref", "mode": "paper", "links": "one"}, 5)
    assert getattr(request.job.protocols[-1], "links", "") == "one"
    with pytest.raises(UsageError, match="links belongs to mode = 'paper'"):
        request_from({"protocol": "fedcref", "links": "one"}, 5)
    assert FedCRef(mode="paper", links="one").get_params()["links"] == "one"
