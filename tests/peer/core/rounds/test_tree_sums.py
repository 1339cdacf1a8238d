"""Sums that come together along a tree: of one peer's place in it, and of whole rounds on toy jobs."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from harness import Net, toy
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.errors import WireError
from p2pclust.peer.core.effects import Compute
from p2pclust.peer.core.job_messages import Adopted, Open, Partial
from p2pclust.peer.core.messages import BlobRequest, Message
from p2pclust.peer.core.rounds.tree_sums import branch_of, tree_of
from p2pclust.peer.core.tasks import AddUp
from p2pclust.protocols.engine.workspace import digest_of
from p2pclust.tools.bit_sets import as_mask, members_of

LINE = "12 23 34 45"
RING = "12 23 34 45 15"


class TestTrees:
    def test_a_tree_by_hand(self) -> None:
        """1 - 0 - 2 - 3, and 4 below 3; 5 is in no tree."""
        tree = tree_of((-1, 0, 0, 2, 3, -1), 0)
        assert tree.children == {0: (1, 2), 2: (3,), 3: (4,)}
        assert {peer: members_of(below) for peer, below in tree.below.items()} == {
            0: (0, 1, 2, 3, 4), 1: (1,), 2: (2, 3, 4), 3: (3, 4), 4: (4,),
        }  # fmt: skip
        assert tree.height == {0: 3, 1: 0, 2: 2, 3: 1, 4: 0}
        assert tree.without(2) == (3, 4)
        assert tree.without(5) == ()

    def test_a_branch_by_hand(self) -> None:
        """Of 0 - 2 - 3 - 4, with 5 below 2, what 2 is sent: its children before theirs."""
        tree = tree_of((-1, 0, 0, 2, 3, 2), 0)
        assert tree.pairs(2) == (3, 2, 5, 2, 4, 3)
        branch = branch_of(tree.pairs(2), 2, 6)
        assert branch.children == {2: (3, 5), 3: (4,)}
        assert branch.height == {2: 2, 3: 1, 5: 0, 4: 0}
        assert branch.pairs(3) == (4, 3)
        assert branch_of((), 4, 6).below == {4: 0b10000}

    @pytest.mark.parametrize(
        "pairs",
        [(3,), (3, 1), (2, 2), (3, 2, 3, 2), (6, 2), (-1, 2), (4, 3, 3, 2)],
        ids=[
            "no parent",
            "a parent elsewhere",
            "itself",
            "twice",
            "not on the roster",
            "negative",
            "before its parent",
        ],
    )
    def test_what_is_no_branch_is_refused(self, pairs: tuple[int, ...]) -> None:
        with pytest.raises(WireError, match="tree"):
            branch_of(pairs, 2, 6)

    def test_any_list_is_a_branch_or_refused(self) -> None:
        outcomes: Counter[str] = Counter()

        @given(st.lists(st.integers(-1, 4), max_size=6))
        def check(pairs: list[int]) -> None:
            try:
                branch = branch_of(tuple(pairs), 0, 4)
            except WireError:
                outcomes["refused"] += 1
                return
            outcomes["a branch of several" if pairs else "a peer alone"] += 1
            assert branch.below[0] == as_mask([0, *pairs[::2]])

        check()
        assert min(outcomes["refused"], outcomes["a branch of several"]) > 0, outcomes

    @given(st.data(), st.integers(1, 12))
    def test_a_branch_is_the_part_of_its_tree(self, data: st.DataObject, n_peers: int) -> None:
        parents = (-1, *(data.draw(st.integers(0, peer - 1)) for peer in range(1, n_peers)))
        tree = tree_of(parents, 0)
        for peer in range(n_peers):
            branch = branch_of(tree.pairs(peer), peer, n_peers)
            assert branch.below == {other: tree.below[other] for other in members_of(tree.below[peer])}
            assert all(branch.height[other] == tree.height[other] for other in branch.below)

    @given(st.frozensets(st.integers(0, 200)))
    def test_sets_of_peers_are_numbers(self, peers: frozenset[int]) -> None:
        assert members_of(as_mask(peers)) == tuple(sorted(peers))


def met(links: str = LINE, manual: Callable[[Message], bool] = lambda message: False) -> Net:
    net = Net(5, links=links, manual=manual)
    net.meet()
    net.advance(2)
    return net


def given_in(net: Net, kind: type[Adopted | Partial], round_: int) -> list[tuple[str, str]]:
    """Who sent a contribution, or a sum, of that round to whom."""
    sent = [(p, p.message) for p in net.sent if isinstance(p.message, kind)]
    return [(p.source, p.target) for p, message in sent if message.round == round_ and message.contribution]


def part_of(opened: Open, peer: int) -> Partial:
    """The part of a peer that has none below it."""
    alone, given = (1 << peer).to_bytes(1, "little"), b"c%d of s%d" % (peer, opened.round)
    return Partial(
        opened.job, opened.term, opened.round, opened.digest, alone, alone, alone, (), (), True,
        digest_of(given), len(given), (given,),
    )  # fmt: skip


def test_along_a_line_one_sum_crosses_each_link() -> None:
    """The aggregator at one end: four links, four sums; each contains all that lies behind it."""
    net = met()
    job = net.submit("p1", toy(3), aggregator="p1", collect="tree")
    net.until(lambda: len(net.finished(job)) == 5)
    assert set(net.states(job).values()) == {"s3[0,1,2,3,4]"}
    assert given_in(net, Partial, 1) == [("p5", "p4"), ("p4", "p3"), ("p3", "p2"), ("p2", "p1")]
    assert given_in(net, Adopted, 1) == []
    parts = [p.message for p in net.sent if isinstance(p.message, Partial) and p.message.round == 1]
    sums = [members_of(int.from_bytes(part.summed, "little")) for part in parts]
    assert sums == [(4,), (3, 4), (2, 3, 4), (1, 2, 3, 4)]


@pytest.mark.parametrize("collect", ["star", "tree"])
@pytest.mark.parametrize("links", [LINE, RING, "12 13 14 15", "12 23 24 45", ""])
@pytest.mark.parametrize("large", [False, True])
def test_every_way_to_collect_gives_the_same(links: str, collect: str, large: bool) -> None:
    net = met(links)
    job = net.submit("p2", toy(3, pad=60_000 if large else 0, abstainers=[3]), collect=collect)
    net.until(lambda: len(net.finished(job)) == 5)
    assert {state.rstrip(".") for state in net.states(job).values()} == {"s3[0,1,2,4]"}


def test_a_round_in_which_one_is_asked_goes_to_the_aggregator_itself() -> None:
    net = met()
    job = net.submit("p2", toy(2, one=True), collect="tree")
    net.until(lambda: len(net.finished(job)) == 5)
    assert not [round_ for round_ in (0, 1) if given_in(net, Partial, round_)]


@pytest.mark.parametrize("victim", ["p2", "p3", "p4"])
def test_who_would_have_handed_on_dies_in_mid_round(victim: str) -> None:
    """On a ring: those below the dead one are asked by the aggregator itself, and everybody who lives is in the sum."""
    net = met(RING)

    def keep(message: Message) -> bool:
        return isinstance(message, Partial) and message.round == 1

    net.manual = keep
    job = net.submit("p1", toy(3), aggregator="p1", collect="tree")
    net.until(lambda: len([p for p in net.flight if keep(p.message)]) >= 2)
    net.crash(victim)
    net.manual = lambda message: False
    net.drop()
    net.until(lambda: len(net.finished(job)) == 4, limit_s=60)
    left = [i for i in range(5) if net.names[i] != victim]
    combined = [r.fields for _, r in net.reports if r.verb == "combined" and r.fields["round"] == 1]
    assert combined[-1]["contributors"] == [net.names[i] for i in left]


@pytest.mark.parametrize("missing", ["all", "wait"])
def test_a_sum_that_waits_for_the_aggregators_own_worker_is_not_silence(missing: str) -> None:
    """The worker has an answer of its own to compute, and hashes no sum meanwhile: each aggregator once gave up in turn."""
    net = met("12 13 14 45")
    net.hold_work = lambda name, effect: name == "p1" and effect.task.kind in ("contribute", "hash")
    job = net.submit("p1", toy(1, pad=60_000), aggregator="p1", collect="tree", missing=missing, patience_s=1.0)
    net.until(lambda: any(effect.task.kind == "hash" for _, _, effect in net.tasks))
    net.advance(2.2)
    given_up = [report.verb for _, report in net.reports if report.verb in ("left-out", "out-of-reach")]
    assert given_up == []
    net.hold_work = lambda name, effect: False
    net.do_work()
    net.until(lambda: len(net.finished(job)) == 5)
    assert {state.rstrip(".") for state in net.states(job).values()} == {"s1[0,1,2,3,4]"}


def test_a_sum_that_is_lost_is_sent_again() -> None:
    """The first sum of p5 is lost; p4 asks again, and the round is whole without the aggregator's asking."""
    net = met()
    lost: list[bool] = []

    def first(message: Message) -> bool:
        return isinstance(message, Partial) and message.round == 1 and message.summed == b"\x10" and not lost

    net.manual = first
    job = net.submit("p1", toy(2), aggregator="p1", collect="tree")
    net.until(lambda: any(first(p.message) for p in net.flight))
    lost.append(True)
    net.drop(lambda p: isinstance(p.message, Partial))
    net.until(lambda: len(net.finished(job)) == 5)
    assert set(net.states(job).values()) == {"s2[0,1,2,3,4]"}
    assert given_in(net, Adopted, 1) == []


def test_asking_again_keeps_no_dead_aggregator_alive() -> None:
    """p2 asks p3, which computes for long, again and again in the name of p1, which is gone: one of the two must follow."""
    net = Net(3, links="12 23")
    net.meet()
    net.advance(2)
    net.hold_work = lambda name, effect: name == "p3" and effect.task.kind == "contribute"
    job = net.submit("p1", toy(2), aggregator="p1", collect="tree", missing="all")
    net.advance(1)
    net.crash("p1")
    net.until(lambda: net.aggregator(job) in ("p2", "p3"), limit_s=10)
    assert {net.job(name, job).election.aggregator for name in ("p2", "p3")} <= {"p2", "p3", ""}


def test_one_that_is_slow_does_not_keep_those_above_from_a_deadline() -> None:
    """On a line of 8 a high peer would wait for p8, which computes indefinitely, longer than the aggregator for any peer."""
    net = Net(8, links="12 23 34 45 56 67 78")
    net.meet()
    net.advance(2)
    net.hold_work = lambda name, effect: name == "p8" and effect.task.kind == "contribute"
    net.submit("p1", toy(1), aggregator="p1", collect="tree", missing="drop", deadline_s=0.6)
    net.advance(3)
    combined = [fields for _, fields in net.verbs("combined")]
    assert combined[0]["contributors"] == [f"p{i}" for i in range(1, 8)]


def test_a_sum_that_comes_after_a_newer_one_takes_nothing_away() -> None:
    """The first part of p2 is a blob; before it is here a second comes, with more peers in it, small enough to come at once.

    Another child of p1 has not answered, so that the round continues until the blob is here.
    """
    net = met("12 23 34 15", manual=lambda message: isinstance(message, Partial | BlobRequest))
    net.hold_work = lambda name, effect: effect.task.kind == "combine"
    job = net.submit("p1", toy(1), aggregator="p1", collect="tree")
    net.until(lambda: any(isinstance(p.message, Partial) and p.source == "p4" for p in net.flight))
    for source in ("p4", "p3"):
        net.deliver(lambda p, source=source: p.source == source)
    second = next(p.message for p in net.flight if p.source == "p2")
    last = next(p.message for p in net.flight if p.source == "p5")
    net.drop()
    large = b"c1 of s0" + 60_000 * b"."
    first = dataclasses.replace(
        second, answered=b"\x02", adopted=b"\x02", summed=b"\x02", done=False,
        contribution=digest_of(large), size_bytes=len(large), payload=(),
    )  # fmt: skip
    net.arrive("p2", "p1", first)
    net.arrive("p2", "p1", second)
    net.job("p1", job).blob_ready(digest_of(large))
    net.arrive("p5", "p1", last)
    assert sorted(peers for peers, _ in net.tasks[-1][2].task.contributions) == [(0,), (1, 2, 3), (4,)]


def test_reasons_that_are_too_long_for_one_message_come_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reasons of a thousand fill more than a header: here only the first two fit, and the aggregator asks p3."""
    monkeypatch.setattr("p2pclust.peer.core.rounds.tree_sums._MOST_REASON_BYTES", 2 * (len("gate") + 8))
    net = met()
    job = net.submit("p1", toy(1, abstainers=[2, 3, 4]), aggregator="p1", collect="tree")
    net.until(lambda: len(net.finished(job)) == 5, limit_s=4)
    assert set(net.states(job).values()) == {"s1[0,1]"}
    parts = [p.message for p in net.sent if isinstance(p.message, Partial) and p.message.round == 0]
    assert max(len(part.abstained) for part in parts) == 2
    abstained = [
        e.task.abstained for e in net.peers["p1"].effects if isinstance(e, Compute) and e.task.kind == "combine"
    ]
    assert abstained == [{2: "gate", 3: "gate", 4: "gate"}]


class TestHostile:
    """A peer below says what it cannot say: it is reported, and the round is as it would have been."""

    @pytest.mark.parametrize(
        ("source", "changed", "reason"),
        [
            ("p3", {"answered": b"\x01"}, "peers that are not below"),
            ("p3", {"summed": b"\xff"}, "peers that are not below"),
            ("p3", {"adopted": b"\x02"}, "peers that are not below"),
            ("p3", {"abstained": (1,), "reasons": ("no data",)}, "reasons of peers"),
            ("p3", {"abstained": (-1,), "reasons": ("no data",)}, "reasons of peers"),
            ("p3", {"abstained": (2, 2), "reasons": ("a", "b")}, "reasons of peers"),
            ("p4", {}, "a peer that is not below"),
        ],
    )
    def test_a_part(self, source: str, changed: dict[str, Any], reason: str) -> None:
        net = met(manual=lambda message: isinstance(message, Partial))
        job = net.submit("p1", toy(2), aggregator="p1", collect="tree")
        net.until(lambda: any(isinstance(p.message, Partial) for p in net.flight))
        honest = next(p.message for p in net.flight if isinstance(p.message, Partial))
        third = {"answered": b"\x04", "adopted": b"\x04", "summed": b"\x04"}  # p3 alone
        net.arrive(source, "p2", dataclasses.replace(honest, **(third | changed)))
        assert [reason in r.fields["reason"] for name, r in net.reports if name == "p2" and r.verb == "bad-part"] == [
            True
        ]
        net.manual = lambda message: False
        net.deliver()
        net.until(lambda: len(net.finished(job)) == 5)
        assert set(net.states(job).values()) == {"s2[0,1,2,3,4]"}

    @pytest.mark.parametrize(
        "tree",
        [
            {"height": 3, "below": (2, 2)}, {"height": 3, "below": (9, 2)}, {"height": 3, "below": (3, 2, 4)},
            {"height": 5, "below": (3, 2, 4, 3)}, {"height": 2, "below": (3, 2, 4, 3)},
        ],
    )  # fmt: skip
    def test_a_tree(self, tree: dict[str, Any]) -> None:
        """p3 says what is wrong with it; the aggregator, which hears nothing of p3, asks itself."""
        net = met(manual=lambda message: isinstance(message, Open) and message.round == 1)
        job = net.submit("p1", toy(2), aggregator="p1", collect="tree")
        net.until(lambda: bool(net.flight))
        opened = next(p.message for p in net.flight if isinstance(p.message, Open))
        net.arrive("p2", "p3", dataclasses.replace(opened, **tree))
        assert [name for name, r in net.reports if r.verb == "bad-tree"] == ["p3"]
        net.manual = lambda message: False
        net.deliver()
        net.until(lambda: len(net.finished(job)) == 5)
        assert set(net.states(job).values()) == {"s2[0,1,2,3,4]"}

    def test_a_tree_in_a_job_without_one(self) -> None:
        """p1 sends p2 a branch of a tree, and p3 a sum: p2 takes no place, and adds up nothing."""
        net = Net(3, manual=lambda message: isinstance(message, Open | Adopted))
        net.meet()
        job = net.submit("p1", toy(2), aggregator="p1", collect="star")
        opened = next(p.message for p in net.flight if isinstance(p.message, Open) and p.target == "p2")
        assert isinstance(opened, Open)
        forged = dataclasses.replace(opened, aggregator=0, height=2, below=(2, 1))
        net.arrive("p1", "p2", forged)
        net.arrive("p3", "p2", part_of(forged, 2))
        reported = [
            report.fields["reason"] for name, report in net.reports if (name, report.verb) == ("p2", "bad-tree")
        ]
        assert reported == ["this job has no tree"]
        assert net.job("p2", job).follower.place is None
        assert not [e for e in net.peers["p2"].effects if isinstance(e, Compute) and isinstance(e.task, AddUp)]
        net.manual = lambda message: False
        net.deliver()
        net.until(lambda: len(net.finished(job)) == 3)
        assert set(net.states(job).values()) == {"s2[0,1,2]"}

    @pytest.mark.parametrize("collect", ["star", "tree"])
    def test_a_part_for_an_aggregator_without_branches(self, collect: str) -> None:
        """With a tree, this round asks one proposer, so that there is none in it either."""
        net = Net(3, manual=lambda message: isinstance(message, Open | Adopted))
        net.meet()
        job = net.submit("p1", toy(2, one=collect == "tree"), aggregator="p1", collect=collect)
        opened = next(p.message for p in net.flight if isinstance(p.message, Open))
        assert isinstance(opened, Open)
        net.arrive("p3", "p1", part_of(opened, 2))
        (fields,) = [report.fields for name, report in net.reports if (name, report.verb) == ("p1", "bad-part")]
        assert (fields["peer"], fields["reason"]) == ("p3", "a part from a peer that is not below")
        net.manual = lambda message: False
        net.deliver()
        net.until(lambda: len(net.finished(job)) == 3)
