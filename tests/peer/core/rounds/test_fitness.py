"""Which peers are clearly fitter: they stand first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from p2pclust.peer.core.rounds.election import Fitness
from p2pclust.peer.core.spread.facts import Fact


def a_fitness(own: float, others: dict[str, bytes], gone: str = "") -> Fitness:
    facts = SimpleNamespace(
        fitness_changes=len(others),
        published=lambda key: bool(others),
        get=lambda name, key: Fact(name, key, 1, others[name]) if name in others else None,
    )
    return Fitness(own, cast(Any, facts), cast(Any, SimpleNamespace(present=lambda name: name != gone)))


@pytest.mark.parametrize(
    ("own", "others", "fitter"),
    [
        (0.5, {}, False),
        (0.5, {"p2": b"90"}, True),
        (0.5, {"p2": b"60"}, False),
        (0.2, {}, True),  # of the others nothing is known: they are usual devices
        (0.2, {"p2": b"10", "p3": b"10"}, False),
        (0.5, {"p2": b"9999"}, False),
        (0.5, {"p2": b"a lot"}, False),
    ],
)
def test_another_is_clearly_fitter(own: float, others: dict[str, bytes], fitter: bool) -> None:
    assert a_fitness(own, others).clearly_fitter(["p2", "p3"], lambda name: True) is fitter


def test_a_peer_that_is_gone_or_unable_is_not_fitter() -> None:
    assert not a_fitness(0.5, {"p2": b"90"}, gone="p2").clearly_fitter(["p2"], lambda name: True)
    assert not a_fitness(0.5, {"p2": b"90"}).clearly_fitter(["p2"], lambda name: False)


def test_what_is_published_later_counts() -> None:
    known: dict[str, Fact] = {}
    facts = SimpleNamespace(published=lambda key: True, get=lambda name, key: known.get(name), fitness_changes=0)
    fitness = Fitness(0.5, cast(Any, facts), cast(Any, SimpleNamespace(present=lambda name: True)))
    names = ("p2", "p3")
    assert not fitness.clearly_fitter(names, lambda name: True)
    known["p3"] = Fact("p3", "fitness", 1, b"90")
    facts.fitness_changes += 1
    assert fitness.clearly_fitter(names, lambda name: True)
    assert not fitness.clearly_fitter(("p2",), lambda name: True), "of another job"
    known.clear()
    facts.fitness_changes += 1
    assert not fitness.clearly_fitter(names, lambda name: True)
