from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.errors import UsageError
from p2pclust.protocols.models.association import Association, Clusters, first_aggregators


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Clusters, list[tuple[int, int]]]:
    clusters = Clusters(tuple(draw(st.lists(st.integers(0, 3), min_size=1, max_size=6))))
    pairs = np.argwhere(np.triu(clusters.apart(), 1)).tolist()
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=12)) if pairs else []
    return clusters, [(a, b) for a, b in chosen]


class TestClusters:
    def test_order_is_by_peer_then_cluster(self) -> None:
        clusters = Clusters((1, 0, 2))
        assert clusters.nodes == ((0, 0), (2, 0), (2, 1))
        assert [list(clusters.of(peer)) for peer in range(3)] == [[0], [], [1, 2]]
        assert clusters.apart().tolist() == [[False, True, True], [True, False, False], [True, False, False]]

    @pytest.mark.parametrize("counts", [(1, -1), (5000, 5000)])
    def test_odd_counts_are_refused(self, counts: tuple[int, ...]) -> None:
        with pytest.raises(UsageError, match="clusters per peer"):
            Clusters(counts)


class TestAssociation:
    def test_by_hand(self) -> None:
        # Peers 0, 1, 2 with 2, 2, 1 clusters: 0-2-4 is a chain, 1 and 3 are alone.
        found = Association(Clusters((2, 2, 1)), [(2, 0), (4, 2)], set_aside=[3])
        assert (found.groups, found.isolated, found.set_aside) == (((0, 2, 4),), (1, 3), (3,))
        assert np.unique(found.clusters.owners[list(found.groups[0])]).tolist() == [0, 1, 2]
        assert found.group_of.tolist() == [0, -1, 0, -1, 0]
        assert list(found.graph().edges) == [((0, 0), (1, 0)), ((1, 0), (2, 0))]

    def test_a_chain_may_join_two_clusters_of_a_peer(self) -> None:
        found = Association(Clusters((2, 1, 1)), [(0, 2), (1, 3), (2, 3)])
        assert found.groups == ((0, 1, 2, 3),)

    def test_ten_groups_of_the_same_peers_have_ten_aggregators(self) -> None:
        assert first_aggregators([range(10)] * 10) == tuple(range(10))

    @pytest.mark.parametrize(
        ("link", "match"), [((0, 9), "not among"), ((0, 1), "of one peer"), ((2, 2), "of one peer")]
    )
    def test_impossible_links_are_refused(self, link: tuple[int, int], match: str) -> None:
        with pytest.raises(ValueError, match=match):
            Association(Clusters((2, 1)), [link])

    def test_nobody_is_there(self) -> None:
        found = Association(Clusters((0, 0)), [])
        assert (found.groups, found.isolated) == ((), ())

    @pytest.mark.slow
    @given(graphs(), st.randoms(use_true_random=False))
    def test_order_and_direction_of_links_do_not_matter(
        self, drawn: tuple[Clusters, list[tuple[int, int]]], rng: object
    ) -> None:
        clusters, links = drawn
        turned = [(b, a) for a, b in links] + links[:1]
        rng.shuffle(turned)  # type: ignore[attr-defined]
        one, other = Association(clusters, links), Association(clusters, turned)
        assert one.digest == other.digest
        assert list(one.graph().edges) == list(other.graph().edges)

    @pytest.mark.slow
    @given(graphs())
    def test_groups_and_isolated_clusters_part_all(self, drawn: tuple[Clusters, list[tuple[int, int]]]) -> None:
        clusters, links = drawn
        found = Association(clusters, links)
        everybody = sorted([m for group in found.groups for m in group] + list(found.isolated))
        assert everybody == list(range(clusters.total))
        for a, b in links:
            assert found.group_of[a] == found.group_of[b] >= 0

    @pytest.mark.slow
    @given(graphs())
    def test_the_digest_tells_graphs_apart(self, drawn: tuple[Clusters, list[tuple[int, int]]]) -> None:
        clusters, links = drawn
        found = Association(clusters, links)
        assert Association(clusters, links, [0]).digest != found.digest
        if links:
            kept = [link for link in found.links.tolist() if link != found.links[0].tolist()]
            assert Association(clusters, kept).digest != found.digest
