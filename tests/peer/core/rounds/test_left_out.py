"""A peer that a round does not wait for is named with the reason, until it answers after all."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from harness import Net, opened_round, toy

from p2pclust.peer.core.effects import Compute
from p2pclust.peer.core.rounds.aggregator import AggregatorTerm
from p2pclust.peer.core.rounds.round import AskedPeer, Round
from p2pclust.peer.core.rounds.tree_sums import Part
from p2pclust.peer.core.tasks import CombineRound, Ref
from p2pclust.protocols.engine.reasons import NOT_ASKED

NAMES = ("p1", "p2", "p3")


def combined(net: Net, name: str) -> list[CombineRound]:
    tasks = [effect.task for effect in net.peers[name].effects if isinstance(effect, Compute)]
    return [task for task in tasks if isinstance(task, CombineRound)]


def test_a_dead_peer_and_one_that_left_are_named_in_each_round() -> None:
    net = Net(4)
    net.meet()
    net.crash("p3")
    net.until(lambda: all(net.core(name).membership.status("p3") == "dead" for name in ("p1", "p2", "p4")))
    job = net.submit("p1", toy(2), roster=("p1", "p2", "p3", "p4"), aggregator="p1")
    net.until(lambda: net.finished(job) == ["p1", "p2", "p4"])
    rounds = combined(net, "p1")
    assert len(rounds) == 2
    for task in rounds:
        assert [index for indices, _ in task.contributions for index in indices] == [0, 1, 3]
        assert task.abstained == {2: "left out: dead"}


def test_a_late_peer_is_named_as_late() -> None:
    net = Net(3)
    net.meet()
    net.hold_work = lambda name, effect: name == "p3"
    net.submit("p1", toy(1), aggregator="p1", missing="drop", deadline_s=0.5)
    net.until(lambda: bool(combined(net, "p1")))
    assert combined(net, "p1")[0].abstained == {2: "left out: late"}


class Term:
    """A term at p1 that has left p2 out of its round, and does not end it."""

    def __init__(self) -> None:
        self.document = SimpleNamespace(roster=NAMES, index=NAMES.index)
        self._ctx = SimpleNamespace(barred={}, me="p1")
        self._job = SimpleNamespace(bars=lambda name: False)
        self._patience = SimpleNamespace(answered=lambda name: None, heard=lambda name: None)
        self.opened = opened_round(Ref(b"s" * 32, 1, b"s"), *NAMES)
        self.opened.peers[1].left_out = True
        self.looks = 0

    def look(self) -> None:
        self.looks += 1

    def _answered(self, opened: Round, one: AskedPeer) -> None:
        AggregatorTerm._answered(cast(Any, self), opened, one)

    def take(self, ref: Ref | None, abstains: str) -> Round:
        """Take an answer of p2, after which the round may end."""
        AggregatorTerm._take(cast(Any, self), self.opened, 1, ref, abstains)
        assert self.looks == 1
        return self.opened


def left_out(opened: Round) -> list[int]:
    return [index for index, one in opened.peers.items() if one.left_out]


def test_a_peer_that_answers_after_all_is_not_left_out() -> None:
    opened = Term().take(Ref(b"c" * 32, 1, b"c"), "")
    assert (list(opened.contributions()), left_out(opened)) == ([1], [])


def test_a_peer_that_abstains_after_all_is_not_left_out() -> None:
    opened = Term().take(None, "gate")
    assert (opened.peers[1].abstains, left_out(opened)) == ("gate", [])


def test_a_peer_that_says_that_it_was_not_asked_stays_left_out() -> None:
    opened = Term().take(None, NOT_ASKED)
    assert (opened.peers[1].abstains, left_out(opened)) == ("", [1])


@pytest.mark.parametrize(("abstained", "expected"), [({}, []), ({1: "gate"}, []), ({1: NOT_ASKED}, [1])])
def test_a_peer_whose_answer_comes_in_a_sum_is_not_left_out(abstained: dict[int, str], expected: list[int]) -> None:
    term = Term()
    AggregatorTerm._count(
        cast(Any, term), term.opened, Part(0b010, 0b010, 0b010 if not abstained else 0, abstained, None, False)
    )
    assert left_out(term.opened) == expected
