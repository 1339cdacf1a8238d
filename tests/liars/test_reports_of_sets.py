"""A peer that reports a set that was not revealed: it hides no set that another peer reports."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.liars.test_keepers import Attack
from tests.protocols.secure_fleet import SecureFleet

from p2pclust.protocols.engine import secure_rounds
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.secure_rounds import SecuredState
from p2pclust.protocols.secure.key_list import KeyEntry
from p2pclust.protocols.secure.secured import Maker
from p2pclust.tools.bit_sets import as_mask

JOB = cluster_job("llf-cm", n_clusters=2, init="split-merge", max_rounds=3, tol=0.0, seed=1, secure=True)
EIGHT = as_mask(range(8))


@pytest.mark.parametrize("false", [0b01111111, 0b11111110, EIGHT])
@pytest.mark.parametrize("liar", range(8))
def test_all_reports_about_one_context_count(liar: int, false: int) -> None:
    fleet = SecureFleet(8, burnt="record")
    begun = secure_rounds.begin(JOB, fleet.terms)
    state = SecuredState(JOB, begun, fleet.terms, b"a" * 32).keys_closed(fleet.answers(), {}, Maker(0, 1, 1))
    asked = SecuredState(JOB, state, fleet.terms, b"d" * 32).renewed({}, ())
    true = 0b11101111
    answers = fleet.answers(taken=true) | {liar: fleet.answer(liar, taken=false)}
    after = SecuredState(JOB, asked, fleet.terms, b"a" * 32).keys_closed(answers, {}, Maker(0, 1, 3))
    part = secure_rounds.secured_of(after)
    assert {true, false} == {*part.revealed} == {*part.burnt}
    assert 4 in secure_rounds.exposed_peers(after), "the true report says so"


@pytest.mark.slow
def test_an_aggregator_cannot_leave_a_report_out() -> None:
    """It gets a sum of all but one peer, asks for new keys as if for another reason, and hides what keepers answer."""
    attack = Attack(8, burnt="record")
    liar = attack.liar
    digest = attack.summed(attack.state, [4])[0]
    asking = SecuredState(liar.job, attack.state, liar.terms, digest).renewed({}, ())
    _, asks, given, refused = liar.keys_round(asking, 2)
    true = as_mask({*range(8)} - {4})
    reports = {index: KeyEntry.decode(index, data).taken for index, data in given.items()}
    part = secure_rounds.secured_of(attack.state)
    keepers = [index for index in secure_rounds.keepers(part, liar.terms) if index != liar.index]
    assert {index for index, taken in reports.items() if taken} == set(keepers)
    assert {reports[index] for index in keepers} == {true}
    honest = liar.padded_from((asking, asks, given, refused), liar.round + 1)
    part = secure_rounds.secured_of(honest)
    assert true in part.revealed
    assert len(liar.padded_round(honest)[1]) == 8, "all contribute where the set is named"
    state = replace(honest, secured=replace(part, revealed=(EIGHT,)))
    _, contributed, why = liar.padded_round(state)
    assert list(contributed) == [liar.index], "the liar's own"
    assert set(why.values()) == {"left out: the state hides a set of peers that a peer reported"}
