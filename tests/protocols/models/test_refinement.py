from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from p2pclust.errors import DataError, UsageError
from p2pclust.protocols.models.association import Association, Clusters
from p2pclust.protocols.models.refinement import competing, refine_by_best_models, refine_by_popularity

TABLES = arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=7), elements=st.integers(0, 9).map(float))
BOTH = pytest.mark.parametrize("refine", [refine_by_popularity, refine_by_best_models])


class TestByPopularity:
    def test_by_hand(self) -> None:
        # Round 1: models 0, 1, 2 are best for 3, 2, 1 rows. Round 2, without model 0: 1 has two rows, 2 has one.
        errors = [[1, 2, 3], [1, 3, 2], [1, 2, 2], [3, 1, 2], [3, 1, 2], [5, 4, 1]]
        assert refine_by_popularity(errors, 1)[0].tolist() == [0] * 6
        labels, selected = refine_by_popularity(errors, 2)
        assert (selected, labels.tolist()) == ((0, 1), [0, 0, 0, 1, 1, 1])
        assert refine_by_popularity(errors, 3)[0].tolist() == [0, 0, 0, 1, 1, 2]

    def test_the_vote_counts_remaining_rows_only(self) -> None:
        # Model 1 is second best for all rows of model 0; once these are gone, they no longer speak for it.
        errors = [[0, 1, 9]] * 4 + [[9, 9, 0]] * 2 + [[9, 0, 9]]
        assert refine_by_popularity(errors, 2)[1] == (0, 2)

    def test_no_row_left_means_fewer_clusters(self) -> None:
        labels, selected = refine_by_popularity([[0, 1, 1]] * 3, 3)
        assert (selected, labels.tolist()) == ((0,), [0, 0, 0])

    def test_equal_counts_and_errors_go_to_the_first(self) -> None:
        assert refine_by_popularity([[1, 0], [0, 1], [1, 1]], 1)[1] == (0,)
        assert refine_by_popularity([[1, 0], [0, 1]], 1)[1] == (0,)


class TestByBestModels:
    @given(TABLES, st.integers(1, 4))
    def test_no_single_exchange_is_better(self, table: np.ndarray, k: int) -> None:
        chosen = refine_by_best_models(table, k)[1]
        total = table[:, list(chosen)].min(axis=1).sum()
        assert len(set(chosen)) == len(chosen) == min(k, table.shape[1])
        for others in combinations(range(table.shape[1]), len(chosen)):
            if len(set(others) & set(chosen)) == len(chosen) - 1:
                assert total <= table[:, list(others)].min(axis=1).sum()

    def test_the_vote_falls_for_a_twin_and_this_does_not(self) -> None:
        # Models 0 and 1 are twins and share 8 rows; model 2 serves 2 rows that nobody else does.
        errors = [[0.0, 0.1, 5.0]] * 4 + [[0.1, 0.0, 5.0]] * 4 + [[5.0, 5.0, 0.0]] * 2
        assert refine_by_popularity(errors, 2)[1] == (0, 1)
        assert refine_by_best_models(errors, 2)[0].tolist() == [0] * 8 + [2] * 2


class TestBoth:
    @pytest.mark.slow
    @BOTH
    @given(TABLES, st.integers(1, 5))
    def test_every_row_has_the_best_of_its_choices(self, refine: object, table: np.ndarray, k: int) -> None:
        labels, selected = refine(table, k)  # type: ignore[operator]
        assert 1 <= len(selected) <= min(k, table.shape[1])
        assert set(labels.tolist()) <= set(selected)
        best = table[:, list(selected)].min(axis=1)
        assert (table[np.arange(len(table)), labels] == best).all()

    @BOTH
    def test_a_broken_model_takes_no_part(self, refine: object) -> None:
        labels, selected = refine([[np.nan, 1, 2], [0, 2, 1]], 3)  # type: ignore[operator]
        assert (sorted(selected), labels.tolist()) == ([1, 2], [1, 2])

    @BOTH
    @pytest.mark.parametrize("errors", [[[np.inf]], np.empty((3, 0)), [1.0, 2.0]])
    def test_nothing_to_refine_with(self, refine: object, errors: object) -> None:
        with pytest.raises(DataError, match=r"no model is left|must be a matrix"):
            refine(errors, 2)  # type: ignore[operator]

    @BOTH
    def test_no_clusters_is_no_number(self, refine: object) -> None:
        with pytest.raises(UsageError, match="n_clusters = 0"):
            refine([[1.0]], 0)  # type: ignore[operator]

    @BOTH
    def test_no_rows(self, refine: object) -> None:
        assert refine(np.empty((0, 2)), 2)[0].tolist() == []  # type: ignore[operator]


def test_twins_do_not_compete() -> None:
    found = Association(Clusters((2, 2)), [(0, 3)])
    assert [competing(found, peer, twins=False) for peer in (0, 1)] == [(1,), (0,)]
    assert [competing(found, peer, twins=True) for peer in (0, 1)] == [(0, 1), (0, 1)]
