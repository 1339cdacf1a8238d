"""From a table of measures to a recommendation and its reason."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust import choose_clusters
from p2pclust.errors import UsageError
from p2pclust.protocols.measuring.choose import BIC, elbow, recommend
from p2pclust.protocols.measuring.measure import MeasuredIndices


def row(clusters: int, sdb: float, xb: float, silhouette: float, inertia: float, rows: int = 10) -> MeasuredIndices:
    return MeasuredIndices(clusters, rows, (), 0, inertia, 1.0, 1.0, 1.0, xb, sdb, silhouette)


STEEP = dict(zip(range(2, 7), [100.0, 50.0, 5.0, 4.0, 3.5], strict=True))  # bends at 4


def test_unanimous() -> None:
    table = [row(k, abs(k - 4) + 1, abs(k - 4) + 1, 1 / (abs(k - 4) + 2), v) for k, v in STEEP.items()]
    found = recommend(table)
    assert (found.clusters, found.agreed) == (4, True)
    assert found.reason == "All four measures are best at 4 clusters."
    assert set(found.votes.values()) == {4}
    assert recommend(table[::-1]) == found


def test_a_majority_and_who_differs() -> None:
    table = [row(k, k, k, 1 / k, v) for k, v in STEEP.items()]
    found = recommend(table)
    assert (found.clusters, found.agreed) == (2, True)
    assert found.reason == (
        "Soft Davies–Bouldin, Xie–Beni and simplified silhouette are best at 2 clusters; but elbow at 4."
    )


def test_two_against_two_is_a_disagreement_and_goes_to_the_smaller() -> None:
    table = [row(k, k, 10 - k, 1 / k, v) for k, v in {2: 9.0, 3: 8.0, 4: 7.0, 5: 6.0, 6: 5.9}.items()]
    found = recommend(table)
    assert found.votes == {"soft Davies–Bouldin": 2, "Xie–Beni": 6, "simplified silhouette": 2, "elbow": 5}
    assert (found.clusters, found.agreed) == (2, False)
    assert found.reason.startswith(
        "The measures disagree: soft Davies–Bouldin and simplified silhouette at 2 clusters;"
    )
    assert "2 has most votes." in found.reason


def test_of_equal_votes_the_smaller_number_wins() -> None:
    table = [row(3, 1.0, 2.0, 0.5, 9.0), row(4, 2.0, 1.0, 0.4, 8.0)]
    found = recommend(table)
    assert found.clusters == 3
    table = [row(3, 1.0, 2.0, 0.0, 9.0), row(4, 2.0, 1.0, 0.0, 8.0), row(5, 3.0, 3.0, 0.0, 7.9)]
    assert recommend(
        [row(r.clusters, r.soft_davies_bouldin, r.xie_beni, 0.1 * r.clusters, 1.0) for r in table]
    ).reason == (
        "The measures disagree: soft Davies–Bouldin at 3 clusters; Xie–Beni at 4; simplified silhouette at 5. "
        "3 is the smallest of the numbers with most votes."
    )


def test_of_equal_values_the_smaller_number_is_best() -> None:
    table = [row(2, 0.5, 0.5, 0.5, 3.0), row(3, 0.5 - 1e-12, 0.5, 0.5 + 1e-12, 2.0)]
    assert recommend(table).clusters == 2


def test_infinite_measures_do_not_vote_and_one_cluster_has_no_silhouette() -> None:
    table = [row(k - 1, math.inf, math.inf, 0.0, v) for k, v in STEEP.items()]
    found = recommend(table)
    assert found.votes == {"soft Davies–Bouldin": None, "Xie–Beni": None, "simplified silhouette": 2, "elbow": 3}
    alone = recommend([row(1, math.inf, math.inf, 0.0, 5.0)])
    assert (alone.clusters, alone.agreed) == (1, False)
    assert "Nothing can be compared" in alone.reason


def test_the_largest_number_tried_is_no_place_to_stop() -> None:
    assert "try more" in recommend([row(2, 2.0, 2.0, 0.1, 9.0), row(3, 1.0, 1.0, 0.2, 8.0)]).reason


def test_inertia_counts_per_row() -> None:
    table = [row(k, 1.0, 1.0, 0.5, v * k, rows=k) for k, v in STEEP.items()]
    assert recommend(table).votes["elbow"] == 4


@pytest.mark.parametrize("table", [[], [row(2, 1.0, 1.0, 0.5, 1.0), row(2, 1.0, 1.0, 0.5, 1.0)]])
def test_a_table_that_cannot_be_read_is_refused(table: list[MeasuredIndices]) -> None:
    with pytest.raises(UsageError, match="expected one for each"):
        recommend(table)


class TestElbow:
    def test_by_hand(self) -> None:
        # Gains in the logarithm: 0.69, 2.30, 0.22, 0.13; they fall most, by 2.08, after 4.
        assert elbow(list(STEEP), list(STEEP.values())) == 4

    def test_steps_need_not_be_one(self) -> None:
        # Per cluster the gains are 1 and 0.5 at 4, and 0.5 and 0.1 at 8, where two clusters are one step.
        assert elbow([2, 4, 8, 10], [math.exp(-x) for x in (0.0, 2.0, 4.0, 4.2)]) == 4

    def test_a_rise_is_no_more_than_no_gain(self) -> None:
        assert elbow([2, 3, 4, 5], [100.0, 10.0, 9.0, 80.0]) == 3

    @pytest.mark.parametrize("values", [[4.0, 2.0, 1.0], [1.0, 1.0, 1.0], [4.0, 3.0, 1.0], [0.0, 0.0, 0.0], [2.0, 1.0]])
    def test_a_curve_without_a_bend_has_none(self, values: list[float]) -> None:
        assert elbow(range(2, 2 + len(values)), values) is None

    def test_an_inertia_of_zero_is_a_bend(self) -> None:
        assert elbow([1, 2, 3, 4], [5.0, 2.0, 0.0, 0.0]) == 3

    @given(st.lists(st.floats(1e-6, 1e6), min_size=3, max_size=12), st.floats(1e-3, 1e3))
    def test_neither_units_nor_the_ends_matter(self, values: list[float], by: float) -> None:
        clusters = list(range(1, len(values) + 1))
        found = elbow(clusters, values)
        assert found is None or 1 < found < len(values)
        assert found is None or elbow([k + 5 for k in clusters], values) == found + 5
        if found is None:
            gains = [max(0.0, math.log(a / b)) for a, b in pairwise(values)]
            assert all(before <= after + 1e-6 for before, after in pairwise(gains))
        else:
            assert elbow(clusters, [by * v for v in values]) is not None


def test_of_mixtures_bic_decides() -> None:
    rng = np.random.default_rng(0)
    # Two long groups that cross: measures of compactness cannot tell how many there are.
    long = [rng.multivariate_normal([0.0, 0.0], [[9.0, s], [s, 9.0]], 150) for s in (8.8, -8.8)]
    found = choose_clusters(np.array_split(rng.permutation(np.concatenate(long)), 3), "mixture", range(1, 5), n_init=2)
    assert (found.recommended, found.votes[BIC], found.agreed) == (2, 2, True)
    assert found.reason == "BIC is smallest at 2 clusters."
    bics = [row.bic for row in found.table if row.bic is not None]
    assert bics.index(min(bics)) == 1
