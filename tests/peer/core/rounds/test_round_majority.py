"""Who holds an opened state, as far as its aggregator may count."""

from __future__ import annotations

from harness import opened_round

from p2pclust.peer.core.rounds.round import Round
from p2pclust.peer.core.tasks import Ref

ROSTER = ("p1", "p2", "p3", "p4")


def ref(name: bytes) -> Ref:
    return Ref(name * 32, 1, name)


def opened(*, final: bool = False) -> Round:
    """All have adopted; p1 has contributed, p2 has refused, both with signatures."""
    round_ = opened_round(ref(b"s"), *ROSTER, final=final)
    round_.adopted = dict.fromkeys(range(4))
    round_.peers[0].ref, round_.peers[1].refusal = ref(b"a"), ref(b"b")
    return round_


def test_of_a_state_with_a_proof_those_hold_it_whose_signed_answers_are_here() -> None:
    round_ = opened()
    assert not round_.has_majority(signed=True)
    round_.peers[2].ref = ref(b"c")
    assert round_.has_majority(signed=True)


def test_a_signed_answer_without_an_adoption_in_an_intact_store_does_not_count() -> None:
    round_ = opened()
    round_.peers[2].ref = ref(b"c")
    del round_.adopted[0]
    assert not round_.has_majority(signed=True)


def test_without_proofs_and_of_a_final_state_adoptions_are_enough() -> None:
    assert opened().has_majority()
    assert opened(final=True).has_majority(signed=True)
