"""What cells find out, where it can be worked out by hand."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Any

import numpy as np
import pytest

from p2pclust.lab.data.shares import peer_names
from p2pclust.lab.sweep.cells import Cell
from p2pclust.lab.sweep.columns import MEASURES, columns_of
from p2pclust.lab.sweep.measures import links_of, measured, run_cell, ticks_to_agree
from p2pclust.lab.sweep.report import _why_different
from p2pclust.lab.sweep.sweeping import timed_work
from p2pclust.overlay.overlay import Overlay, make_overlay
from p2pclust.protocols.engine.random_streams import linking
from p2pclust.protocols.gossip.push_sum import MIXINGS, second_eigenvalue

pytestmark = pytest.mark.slow

FLEET = '"fleet":{"give_up_s":10.0,"timing":"fast"}'
DATA = '"data":{"options":{"n_clusters":2,"n_features":2,"n_rows":70},"source":"gaussians"}'
JOB = '"job":{"clusters":2,"max_rounds":4,"patience_s":1.0,"secure":false,"suppress_singletons":false,"tol":0.0}'
USUAL = {"protocol": "llf-cm", "collect": "star", "loss": 0.0, "latency_ms": 1.0, "aggregator": "elected"}


@cache
def job_on(kind: str, peers: int = 7, aggregator: str = "elected", collect: str = "star") -> dict[str, Any]:
    axes = USUAL | {"aggregator": aggregator, "collect": collect}
    return run_cell(Cell("job", kind, kind, "{}", peers, 0, tuple(axes.items()), f"{{{DATA},{FLEET},{JOB}}}"))


def recovered(kind: str, who: str, fault: str = '{"do":"kill","for_s":null,"round":2}') -> dict[str, Any]:
    axes = {**USUAL, "who": who}
    settings = f'{{{DATA},"fault":{fault},{FLEET},{JOB}}}'
    return run_cell(Cell("recovery", kind, kind, "{}", 7, 0, tuple(axes.items()), settings))


def spread(kind: str, loss: float = 0.0, latency_ms: float = 5.0, peers: int = 9) -> dict[str, Any]:
    axes = (("loss", loss), ("latency_ms", latency_ms))
    return run_cell(Cell("facts", kind, kind, "{}", peers, 1, axes, f"{{{FLEET}}}"))


class TestJob:
    def test_all_its_columns_are_known(self) -> None:
        assert list(job_on("ring")) == [
            name for name in columns_of("job") if name not in (*MEASURES["job"].axes, "kind")
        ]

    def test_exact_and_identical(self) -> None:
        found = job_on("ring")
        assert (found["outcome"], found["finished"], found["identical"]) == ("finished", 7, True)
        assert found["relative_difference"] < 1e-9
        assert found["why_different"] == ""

    def test_a_difference_to_the_pooled_result_is_explained(self) -> None:
        job = JOB.replace("false", "true").replace('"clusters":2', '"clusters":5')
        lone = f"{{{DATA.replace('70', '49')},{FLEET},{job}}}"
        found = run_cell(Cell("job", "ring", "ring", "{}", 7, 0, tuple(USUAL.items()), lone))
        assert found["relative_difference"] > 1e-9
        assert re.fullmatch(r"\d+ sums? of one row (was|were) suppressed", found["why_different"])
        told = _why_different("relative_difference", [found, {**found, "why_different": ""}])
        assert told == f" Where it is above 1e-9: {found['why_different']}."
        assert _why_different("job_bytes", [found]) == ""

    def test_how_good_the_labels_are(self) -> None:
        found = job_on("ring")
        assert (found["ari"], found["accuracy"]) == (1.0, 1.0), "two clusters that are far apart"
        assert (found["gap"], found["communities"]) == (None, None)
        axes = USUAL | {"protocol": "k-fed"}
        settings = f'{{{DATA},{FLEET},"job":{{"clusters":2}}}}'
        other = run_cell(Cell("job", "ring", "ring", "{}", 7, 0, tuple(axes.items()), settings))
        assert 0.0 < other["gap"] < 0.05, "one round is a little worse than all data in one place"
        assert other["relative_difference"] is None

    def test_what_fedcref_finds(self) -> None:
        pytest.importorskip("torch", reason="autoencoders need torch: pip install 'p2pclust[models]'")
        dealt = '"partition":{"classes_per_peer":[2,2],"rows_per_class":15,"scheme":"by-class"}'
        data = f'"data":{{"bounds":[[0.0,16.0]],"scaling":"minmax","source":"digits",{dealt}}}'
        job = '"job":{"epochs":4,"hidden":[8,4,8],"max_refinements":1,"n_local_clusters":"classes"}'
        axes = USUAL | {"protocol": "fedcref"}
        found = run_cell(Cell("job", "ring", "ring", "{}", 4, 0, tuple(axes.items()), f"{{{data},{FLEET},{job}}}"))
        assert 1 <= found["communities"] < 8, "some of the two clusters of each peer belong together"
        assert 0.5 <= found["accuracy"] < 1.0, "of two classes each, after four epochs"
        assert found["ari"] is None

    def test_a_contribution_crosses_as_many_links_as_its_peer_is_away(self) -> None:
        assert job_on("ring")["crossings"] == 2 * (1 + 2 + 3)
        assert job_on("full")["crossings"] == 6
        assert job_on("line", aggregator="central")["crossings"] == 2 * (1 + 2 + 3)
        assert job_on("line", aggregator="peripheral")["crossings"] == 1 + 2 + 3 + 4 + 5 + 6
        assert job_on("star", aggregator="central")["crossings"] == 6
        assert job_on("star", aggregator="peripheral")["crossings"] == 1 + 5 * 2

    @pytest.mark.parametrize("kind", ["ring", "star", "grid"])
    def test_sums_on_the_way_cross_one_link_for_each_peer(self, kind: str) -> None:
        assert job_on(kind, collect="tree")["crossings"] == 6

    def test_a_named_aggregator_leads(self) -> None:
        found = job_on("line", aggregator="central")
        assert (found["led_by"], found["terms"]) == ("peer-04", 1)
        assert found["led_closeness"] == pytest.approx(6 / 12)
        assert found["led_betweenness"] == pytest.approx(
            9 / 15
        )  # three on its left with three on its right, of 15 pairs

    def test_in_the_middle_of_a_star_the_load_is_greatest(self) -> None:
        assert 0.3 * 7 < job_on("star", aggregator="central")["peer_load"] < 7
        assert job_on("star", aggregator="central")["hottest_link"].startswith("peer-01 > ")

    def test_sums(self) -> None:
        found = job_on("ring")
        assert found["link_bytes_mean"] == found["job_bytes"] / 14
        assert found["link_bytes_mean"] <= found["link_bytes_max"] <= found["job_bytes"] <= found["bytes"]
        assert found["blob_bytes"] == 0

    def test_a_fleet_that_does_not_meet_has_a_row(self) -> None:
        axes = USUAL | {"loss": 0.9}
        found = run_cell(Cell("job", "ring", "ring", "{}", 7, 0, tuple(axes.items()), f"{{{DATA},{FLEET},{JOB}}}"))
        assert (found["outcome"], found["job_bytes"], found["links"]) == ("unlinked", None, 7)


class TestRecovery:
    def test_nobody(self) -> None:
        assert (found := recovered("ring", "nobody"))["victim"] == ""
        assert {name: found[name] for name in job_on("ring")} == job_on("ring") | {"job_seconds": found["job_seconds"]}

    def test_the_aggregator_dies_and_another_finishes_exactly(self) -> None:
        found = recovered("ring", "aggregator")
        assert (found["outcome"], found["finished"], found["identical"], found["terms"]) == ("finished", 6, True, 2)
        assert found["relative_difference"] < 1e-9
        assert found["victim"] not in ("", found["led_by"])
        assert found["job_seconds"] > job_on("ring")["job_seconds"]

    def test_without_the_middle_of_a_star_all_wait(self) -> None:
        for who in ("central", "cut-vertex"):
            found = recovered("star", who)
            assert (found["victim"], found["outcome"], found["finished"]) == ("peer-01", "waiting", 0)
            assert found["job_seconds"] is None

    def test_behind_a_cut_a_minority_waits_while_a_majority_finishes(self) -> None:
        found = recovered("line", "betweenness:4")  # of the two that are second from an end, the first
        assert (found["victim"], found["outcome"], found["finished"]) == ("peer-02", "some wait", 5)

    def test_a_ring_has_no_cut_vertex(self) -> None:
        found = recovered("ring", "cut-vertex")
        assert (found["outcome"], found["victim"], found["diameter"]) == ("no such peer", None, 3)

    def test_who_comes_back_finishes(self) -> None:
        found = recovered("star", "central", '{"do":"restart","for_s":1.5,"round":2}')
        assert (found["victim"], found["outcome"], found["finished"]) == ("peer-01", "finished", 7)


class TestFacts:
    @pytest.mark.parametrize("kind", ["full", "star", "ring", "line", "grid"])
    def test_without_loss_it_goes_as_far_as_the_farthest_and_no_longer(self, kind: str) -> None:
        found = spread(kind)
        assert found["informed"] == 9
        # Each link takes 10.1 to 10.5 ms, and 10.3 in the mean.
        assert found["eccentricity"] * 0.98 <= found["link_delays"] <= found["eccentricity"] * 1.02
        assert found["seconds_half"] <= found["seconds"]

    def test_loss_is_repaired(self) -> None:
        found = spread("ring", loss=0.15)
        assert found["informed"] == 9
        assert found["seconds"] > spread("ring")["seconds"]

    def test_each_link_is_told_once_at_most_in_each_direction(self) -> None:
        assert spread("ring")["deltas"] <= 2 * 9


class TestMixing:
    def test_two_peers_agree_at_once(self) -> None:
        pair = Overlay(("a", "b"), (("a", "b"),))
        for mixing in MIXINGS:
            assert ticks_to_agree(links_of(pair, mixing), 1e-9, np.random.default_rng(0)) == 1

    def test_where_the_second_eigenvalue_is_all_there_is(self) -> None:
        # On a ring of four every deviation is one of eigenvalue 1/3 or -1/3: each tick leaves a third.
        ring = Overlay(tuple("abcd"), (("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")))
        for mixing in MIXINGS:
            ticks = ticks_to_agree(links_of(ring, mixing), 1e-6, np.random.default_rng(0))
            assert ticks is not None
            assert abs(ticks - math.log(1e6) / math.log(3)) <= 1

    def test_its_row(self) -> None:
        axes = (("mixing", "metropolis-hastings"),)
        found = run_cell(Cell("mixing", "grid", "grid", "{}", 16, 0, axes, '{"tolerance":1e-6}'))
        assert round(
            second_eigenvalue(links_of(make_overlay("grid", peer_names(16), linking(0)), axes[0][1])), 9
        ) == round(1 - found["spectral_gap"], 9)
        assert 0.5 < found["ratio"] == round(found["ticks"] / found["predicted"], 9) < 2
        assert found["tick_messages"] == 48


def test_the_overlays_own_columns() -> None:
    line = measured(Overlay(("a", "b", "c"), (("a", "b"), ("b", "c"))))
    assert (line["links"], line["diameter"], line["cut_vertices"], line["degree_greatest"]) == (2, 2, 1, 2)
    assert line["average_path"] == pytest.approx(4 / 3)
    assert line["spectral_gap"] == pytest.approx(1 / 3)


def test_twice_the_same_text() -> None:
    cell = Cell("facts", "grid", "grid", "{}", 9, 3, (("loss", 0.1), ("latency_ms", 1.0)), f"{{{FLEET}}}")
    assert timed_work(cell.encode())[0] == timed_work(cell.encode())[0]
