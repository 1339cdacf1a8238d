"""Who holds an opened state, as far as its aggregator may count."""

from __future__ import annotations

from harness import opened_round

from p2pclust.peer.core.rounds.open_round import OpenRound
from p2pclust.peer.core.tasks import Ref

ROSTER = ("p1", "p2", "p3", "p4")


def ref(name: bytes) -> Ref:
    return Ref(name * 32, 1, name)


def opened(*, final: bool = False) -> OpenRound:
    """All have adopted; p1 has contributed, p2 has refused, both with signatures."""
    round_ = opened_round(ref(b"s"), *ROSTER, final=final)
    round_.adopted = dict.fromkeys(ROSTER)
    round_.contributions, round_.refusals = {0: ref(b"a")}, {1: ref(b"b")}
    return round_


def test_of_a_state_with_a_proof_those_hold_it_whose_signed_answers_are_here() -> None:
    assert list(opened().holders(signed=True)) == ["p1", "p2"]


def test_a_signed_answer_without_an_adoption_in_an_intact_store_does_not_count() -> None:
    round_ = opened()
    del round_.adopted["p1"]
    assert list(round_.holders(signed=True)) == ["p2"]


def test_without_proofs_and_of_a_final_state_adoptions_are_enough() -> None:
    assert list(opened().holders(signed=False)) == list(ROSTER)
    assert list(opened(final=True).holders(signed=True)) == list(ROSTER)
