from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from communities import judged
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from p2pclust.errors import WireError
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.models import affinity
from p2pclust.protocols.models.affinity import NOTHING, codes, distances, rank_scores, read_verdicts, verdicts
from p2pclust.protocols.models.association import Association, Clusters


def planted(
    counts: tuple[int, ...], classes: Sequence[int], *, seed: int = 0, noise: float = 0.3
) -> list[list[np.ndarray]]:
    """Per peer and cluster the errors of 20 rows: a model of the same class halves them."""
    rng = np.random.default_rng(seed)
    found = []
    for peer in Clusters(counts).nodes:
        own = classes[Clusters(counts).nodes.index(peer)]
        hard = rng.lognormal(0, 1, (20, 1))
        better = np.where(np.array(classes) == own, 0.5, 1.0)
        found.append(hard * better * rng.lognormal(0, noise, (20, len(classes))))
    return [[found[m] for m in Clusters(counts).of(peer)] for peer in range(len(counts))]


def told(clusters: Clusters, errors: list[list[np.ndarray]]) -> list[Arrays | None]:
    return [verdicts(clusters, p, own, n_features=8) for p, own in enumerate(errors)]


def associate(clusters: Clusters, parts: Sequence[Arrays | None]) -> Association:
    agreed = judged(clusters, parts, "affinity", clusters.total)
    return affinity.associate(clusters, agreed.table, agreed.told)


class TestStatistics:
    def test_ranks_by_hand(self) -> None:
        scores = rank_scores([[5.0, 1.0, 4.0, 2.0, 3.0]], [False, True, True, True, True])
        expected = [(np.log(rank / 4) / np.log(4)) ** 2 for rank in (1, 4, 2, 3)]
        assert scores[1:] == pytest.approx(expected)
        assert np.isnan(scores[0])

    def test_equal_errors_share_the_better_rank(self) -> None:
        assert rank_scores([[1.0, 1.0, 2.0]], [True] * 3)[:2].tolist() == [1.0, 1.0]

    def test_with_a_single_foreign_model_there_is_nothing_to_rank(self) -> None:
        assert rank_scores([[1.0, 2.0]], [False, True])[1] == 0.0

    def test_nobody_else_is_there(self) -> None:
        assert codes([[1.0, 2.0]], [False, False]).tolist() == [NOTHING, NOTHING]

    def test_exact_reconstruction_and_broken_models(self) -> None:
        found = codes([[0.0, 0.0, 1.0, np.inf]] * 3, [True] * 4).tolist()
        assert found[0] == found[1] < found[2] <= 254
        assert found[3] == NOTHING
        assert (codes(np.zeros((3, 3)), [True] * 3) != NOTHING).all()

    @pytest.mark.slow
    @given(arrays(np.float64, (4, 5), elements=st.integers(-20, 20).map(lambda e: 2.0**e)), st.permutations(range(4)))
    def test_a_row_that_is_harder_for_all_and_the_order_of_rows_change_nothing(
        self, errors: np.ndarray, order: list[int]
    ) -> None:
        harder = (errors * np.array([[1.0], [8.0], [2.0], [0.5]]))[order]
        foreign = [True, True, False, True, True]
        assert rank_scores(harder, foreign) == pytest.approx(rank_scores(errors, foreign), nan_ok=True)


class TestVerdicts:
    clusters = Clusters((2, 3))

    @pytest.mark.parametrize(("n", "n_features", "tells"), [(2, 100, False), (3, 1, False), (3, 2, True), (6, 1, True)])
    def test_the_gate(self, n: int, n_features: int, tells: bool) -> None:
        # Five models: five means are told about n F numbers.
        errors = [np.random.default_rng(0).random((n, 5))] * 2
        found = verdicts(self.clusters, 0, errors, n_features=n_features)["affinity"]
        assert bool((found != NOTHING).any()) is tells

    @pytest.mark.parametrize(
        "odd",
        [
            Arrays(affinity=np.zeros((2, 4), np.uint8)),
            Arrays(affinity=np.zeros((2, 5), np.int64)),
            Arrays(other=np.full((2, 5), NOTHING, np.uint8)),
            Arrays(affinity=np.zeros((2, 5), np.uint8)),
        ],
    )
    def test_odd_verdicts_are_refused(self, odd: Arrays) -> None:
        with pytest.raises(WireError, match="peer 0"):
            read_verdicts(self.clusters, 0, odd)


class TestDistances:
    def test_strong_models_and_easy_clusters_say_nothing(self) -> None:
        rng = np.random.default_rng(1)
        clusters = Clusters((2, 2, 2))
        table = rng.integers(0, 100, (6, 6)).astype(np.uint8)
        table[~clusters.apart()] = NOTHING
        shifted = table + np.arange(6, dtype=np.uint8)[:, np.newaxis] * 5 + np.arange(6, dtype=np.uint8) * 7
        shifted[~clusters.apart()] = NOTHING
        one, other = distances(clusters, table)[0], distances(clusters, shifted)[0]
        # A hundredth of a code's step is left where the means were rounded.
        assert one[np.isfinite(one)] == pytest.approx(other[np.isfinite(other)], abs=2 * 1024 * 0.02)

    def test_whole_numbers_with_room_below(self) -> None:
        clusters = Clusters((3, 3))
        matrix, aside = distances(
            clusters, np.vstack([t["affinity"] for t in told(clusters, planted((3, 3), [0, 1, 2] * 2)) if t])
        )
        known = matrix[np.isfinite(matrix)]
        assert (known == np.rint(known)).all()
        assert known.min() == np.floor((known.max() - known.min()) / 4)
        assert (matrix == matrix.T).all()
        assert (np.isfinite(matrix) == clusters.apart()).all()
        assert aside == ()


class TestAssociate:
    counts = (3, 2, 3, 2, 3)
    classes = (0, 1, 2, 0, 1, 1, 2, 3, 2, 3, 0, 3, 4)
    expected = ((0, 3, 10), (1, 4, 5), (2, 6, 8), (7, 9, 11))

    @pytest.mark.parametrize("seed", range(3))
    def test_planted_groups_are_found(self, seed: int) -> None:
        clusters = Clusters(self.counts)
        found = associate(clusters, told(clusters, planted(self.counts, self.classes, seed=seed)))
        assert (found.groups, found.isolated) == (self.expected, (12,))

    def test_an_absent_peer_is_set_aside(self) -> None:
        clusters = Clusters(self.counts)
        from_all = told(clusters, planted(self.counts, self.classes))
        found = associate(clusters, [*from_all[:2], None, *from_all[3:]])
        assert found.set_aside == (5, 6, 7)
        assert found.groups == ((0, 3, 10), (1, 4), (2, 8), (9, 11))

    def test_a_broken_model_is_set_aside_and_harms_nobody(self) -> None:
        clusters = Clusters(self.counts)
        errors = planted(self.counts, self.classes)
        for own in errors:
            for table in own:
                table[3, 5] = np.nan
        found = associate(clusters, told(clusters, errors))
        assert found.set_aside == (5,)
        assert found.groups == ((0, 3, 10), (1, 4), (2, 6, 8), (7, 9, 11))

    def test_a_model_that_fails_on_one_cluster_stays(self) -> None:
        clusters = Clusters(self.counts)
        errors = planted(self.counts, self.classes)
        errors[0][0][3, 5] = np.inf
        assert associate(clusters, told(clusters, errors)).groups == self.expected

    @pytest.mark.parametrize("counts", [(4,), (0, 3, 0), (), (1, 1)])
    def test_nothing_to_compare_with_is_no_group(self, counts: tuple[int, ...]) -> None:
        clusters = Clusters(counts)
        errors = planted(counts, [0] * clusters.total)
        assert associate(clusters, told(clusters, errors)).groups == ()

    @pytest.mark.slow
    @given(arrays(np.uint8, (9, 9)), st.permutations(range(3)))
    def test_whatever_peers_tell_groups_are_sound(self, table: np.ndarray, order: list[int]) -> None:
        clusters = Clusters((3, 3, 3))
        table[~clusters.apart()] = NOTHING
        parts = [Arrays(affinity=table[3 * p : 3 * p + 3]) for p in range(3)]
        found = associate(clusters, parts)
        owners = [clusters.owners[list(group)].tolist() for group in found.groups]
        assert all(len(set(peers)) == len(peers) for peers in owners)
        assert all(a < b for a, b in pairwise(found.groups))
        assert found.digest == associate(clusters, [Arrays.decode(part.encode()) for part in parts]).digest
