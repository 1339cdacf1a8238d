"""Which state follows in a job with secure sums when keys or padded contributions have come, and when they have not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocols.secure_fleet import ASKS, SecureFleet

from p2pclust.errors import UsageError, WireError
from p2pclust.protocols.engine import engine, secure_rounds
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.engine import added_up
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.reasons import LATE, LEFT_OUT, PROVED, WOULD_BE_EXPOSED
from p2pclust.protocols.engine.runner import run_in_process
from p2pclust.protocols.engine.secure_rounds import MOST_RENEWALS, NotEnough, SecuredState
from p2pclust.protocols.secure.check_words import CheckedRound, CheckWord
from p2pclust.protocols.secure.key_list import KeyEntry
from p2pclust.protocols.secure.secured import Maker, Secured, Unsettled
from p2pclust.tools.bit_sets import as_mask, members_of

JOB = cluster_job("llf-cm", n_clusters=2, init="split-merge", max_rounds=3, tol=0.0, seed=1, secure=True)
STATE = b"d" * 32
MAKER = Maker(0, 1, 1)
NINE = as_mask(range(9))
WORDS = tuple(CheckWord(0, members, 1) for members in range(11))


def locals_of(n_peers: int) -> list[Local]:
    rng = np.random.default_rng(4)
    return [Local(rng.normal(size=(12, 2)) + 5 * rng.integers(0, 2, (12, 1))) for _ in range(n_peers)]


def first_padded(fleet: SecureFleet, maker: Maker = MAKER) -> JobState:
    """The first padded state, after the keys of all peers."""
    begun = SecuredState(JOB, secure_rounds.begin(JOB, fleet.terms), fleet.terms, ASKS)
    return begun.keys_closed(fleet.answers(), {}, maker)


def part_of(state: JobState) -> Secured:
    assert state.secured is not None
    return state.secured


def asked_again(fleet: SecureFleet, silent: Sequence[int] = (), padded: JobState | None = None) -> JobState:
    """The state that asks for new keys after the padded one."""
    return SecuredState(JOB, padded or first_padded(fleet), fleet.terms, STATE).renewed({}, silent)


def after_keys(
    fleet: SecureFleet, state: JobState, answers: Mapping[int, KeyEntry], abstained: Mapping[int, str] | None = None
) -> JobState:  # fmt: skip
    at = SecuredState(JOB, state, fleet.terms, ASKS)
    return at.keys_closed(answers, abstained or {}, replace(MAKER, round=3))


def closed(
    fleet: SecureFleet, state: JobState, members: Sequence[int], gone: Mapping[int, str] | None = None
) -> JobState:  # fmt: skip
    locals_ = locals_of(fleet.n_peers)
    given_ = [(i, engine.contribution(JOB, state, locals_[i], i, fleet.n_peers)) for i in members]
    total, _ = added_up(given_, fleet.n_peers)
    assert total is not None
    maker = Maker(0, 1, state.round + 2)
    return SecuredState(JOB, state, fleet.terms, STATE).closed(total, as_mask(members), gone or {}, maker)


# -- the usual way -----------------------------------------------------------------------------------------------------


def test_a_job_begins_with_keys_and_then_asks_all_peers_for_padded_contributions() -> None:
    fleet = SecureFleet(5)
    begun = secure_rounds.begin(JOB, fleet.terms)
    assert part_of(begun).wants_keys
    padded = first_padded(fleet)
    part = part_of(padded)
    assert not part.wants_keys
    assert (part.asked, part.columns, part.maker, part.absent) == (0b11111, 2, MAKER, {})
    assert list(secure_rounds.keepers(part, fleet.terms)) == sorted(fleet.order[:3])
    assert int(padded.arrays["n_columns"]) == 2
    assert (padded.round, padded.log) == (begun.round, ()), "keys are in no log and count for no limit"
    for state in (begun, padded):
        assert JobState.decode(state.encode()) == state
        assert secure_rounds.problem_with_state(state, fleet.terms) == ""


def test_rounds_of_totals_have_the_bits_of_the_plain_job_and_one_exchange_of_keys() -> None:
    fleet = SecureFleet(4)
    state = first_padded(fleet)
    while state.status == "running":
        assert not part_of(state).wants_keys
        state = closed(fleet, state, range(4))
    plain = run_in_process(JOB, locals_of(4))
    assert state.plain().encode() == plain.encode()
    assert part_of(state) == Secured(3, columns=2, revealed=(0b1111,)), "the last state has no keys"
    assert secure_rounds.exposed_peers(state) == ()


def test_a_peer_of_another_width_or_that_refuses_keeps_pads_and_does_not_contribute() -> None:
    fleet = SecureFleet(6)
    answers = fleet.answers() | {1: fleet.answer(1, columns=3), 4: fleet.answer(4, refusal="no data")}
    state = after_keys(fleet, secure_rounds.begin(JOB, fleet.terms), answers)
    assert members_of(part_of(state).asked) == (0, 2, 3, 5)
    assert part_of(state).absent == {1: "has 3 columns where the fleet has 2", 4: "no data"}
    assert [entry.index for entry in part_of(state).entries] == list(range(6))


def test_a_key_that_its_device_has_not_signed_is_left_out_by_name() -> None:
    fleet = SecureFleet(5)
    forged = replace(fleet.answer(2), public=b"k" * 64)
    state = after_keys(fleet, secure_rounds.begin(JOB, fleet.terms), fleet.answers() | {2: forged})
    assert part_of(state).absent == {2: "malformed: peer 2 has not signed its entry in the list of keys"}
    assert [entry.index for entry in part_of(state).entries] == [0, 1, 3, 4]


def test_a_peer_without_a_key_is_absent_and_is_asked_again_at_the_next_stage() -> None:
    fleet = SecureFleet(5)
    begun = secure_rounds.begin(JOB, fleet.terms)
    state = after_keys(fleet, begun, fleet.answers([0, 1, 2, 3]), {4: f"{LEFT_OUT}: dead"})
    assert part_of(state).absent == {4: f"{LEFT_OUT}: dead"}
    following = closed(fleet, state, range(4))
    assert following.stage == state.stage + 1
    assert part_of(following).wants_keys
    assert dict(following.log[0].abstained) == {4: f"{LEFT_OUT}: dead"}
    assert part_of(following).revealed == (0b1111,)


def test_within_a_stage_keys_stay_and_the_maker_is_new() -> None:
    fleet = SecureFleet(5)
    state = first_padded(fleet)
    while state.stage == 0:
        state = closed(fleet, state, range(5))
    before = state
    after = closed(fleet, before, [0, 1, 2, 4], {3: f"{LEFT_OUT}: dead"})
    assert after.stage == before.stage
    assert part_of(after).entries == part_of(before).entries
    assert part_of(after).maker == Maker(0, 1, before.round + 2)
    assert part_of(after).asked == 0b11111
    assert part_of(after).revealed == (0b11111, 0b10111)


def test_a_peer_that_was_late_stays_out_until_the_next_stage() -> None:
    fleet = SecureFleet(6)
    before = first_padded(fleet)
    while before.stage == 0:
        before = closed(fleet, before, range(6))
    after = closed(fleet, before, [0, 1, 2, 4, 5], {3: LATE})
    assert after.stage == before.stage
    assert part_of(after).asked == 0b110111
    assert part_of(after).absent == {3: LATE}
    renewed = part_of(after_keys(fleet, asked_again(fleet, padded=after), fleet.answers()))
    assert renewed.asked == 0b110111, "new keys change nothing about it"
    while after.stage == before.stage:
        after = closed(fleet, after, [0, 1, 2, 4, 5])
    assert part_of(after).wants_keys
    assert part_of(after_keys(fleet, after, fleet.answers())).asked == 0b111111


@pytest.mark.parametrize(("late", "asked"), [([7], 0b01111111), ([6, 7], 0b00111111), ([5, 6, 7], 0b11111111)])
def test_a_peer_in_no_revealed_set_joins_with_a_cohort_of_such_peers_only(late: list[int], asked: int) -> None:
    fleet = SecureFleet(8)
    first = [peer for peer in range(8) if peer not in late]
    gone = dict.fromkeys(late, f"{LEFT_OUT}: dead")
    state = after_keys(fleet, secure_rounds.begin(JOB, fleet.terms), fleet.answers(first), gone)
    state = closed(fleet, state, first)
    assert part_of(state).wants_keys, "a stage with new keys"
    part = part_of(after_keys(fleet, state, fleet.answers()))
    assert part.asked == asked
    assert part.absent == dict.fromkeys(members_of(NINE >> 1 & ~asked), WOULD_BE_EXPOSED)
    assert WOULD_BE_EXPOSED == "left out: late: its sums would be exposed"


# -- settling ----------------------------------------------------------------------------------------------------------


def of(part: Secured) -> tuple[object, ...]:
    return part.revealed, part.burnt, part.unknown


def test_a_context_is_dead_if_enough_keepers_took_no_pads_away() -> None:
    fleet = SecureFleet(9, keepers=4, cohort=4)  # t = 2
    padded = first_padded(fleet, Maker(fleet.order[0], 1, 1))
    state = asked_again(fleet, padded=padded)
    keepers = fleet.order[1:5]
    others = [fleet.order[0], *fleet.order[5:]]
    for sure in (keepers[:3], keepers[1:]):
        part = part_of(after_keys(fleet, state, fleet.answers([*others, *sure])))
        assert of(part) == ((), (), ())
        assert secure_rounds.settles(part.entries, secure_rounds.secured_of(state).unsettled, fleet.secure)
    # Two of them may be colluders, who have their own pads and the sum.
    part = part_of(after_keys(fleet, state, fleet.answers([*others, *keepers[:2]])))
    assert of(part) == ((), (NINE,), (NINE,))
    for one in (part, replace(part, revealed=(NINE >> 1,))):
        assert secure_rounds.problem_with_answers(one, fleet.secure) == ""
    assert secure_rounds.problem_with_answers(replace(part, unknown=()), fleet.secure) == (
        "too few keepers say that nothing was revealed in the context before"
    )


def test_peers_with_another_store_keep_no_pads() -> None:
    fleet = SecureFleet(9)
    first = fleet.order[0]
    state = after_keys(
        fleet, secure_rounds.begin(JOB, fleet.terms), fleet.answers() | {first: fleet.answer(first, taken=None)}
    )
    assert first in [entry.index for entry in part_of(state).entries]
    assert sorted(secure_rounds.keepers(part_of(state), fleet.terms)) == sorted(fleet.order[1:4])


def test_the_maker_and_peers_that_keep_no_pads_do_not_count_for_that() -> None:
    fleet = SecureFleet(9, keepers=4, cohort=4)
    padded = first_padded(fleet, Maker(fleet.order[0], 1, 1))
    state = asked_again(fleet, padded=padded)
    sure = fleet.answers([fleet.order[0], fleet.order[1], *fleet.order[4:]])
    part = part_of(after_keys(fleet, state, sure))
    assert of(part) == ((), (NINE,), (NINE,))
    assert secure_rounds.exposed_peers(replace(padded, secured=part)) == tuple(range(9))


def test_a_set_that_one_peer_reports_was_revealed() -> None:
    fleet = SecureFleet(9, burnt="record")
    state = asked_again(fleet)
    part = part_of(after_keys(fleet, state, fleet.answers() | {8: fleet.answer(8, taken=0b111110111)}))
    assert of(part) == ((0b111110111,), (0b111110111,), ())
    assert secure_rounds.problem_with_answers(part, fleet.secure) == ""
    assert secure_rounds.problem_with_answers(replace(part, revealed=()), fleet.secure) == (
        "the state hides a set of peers that a peer reported"
    )


def test_a_report_hides_no_other_report() -> None:
    fleet = SecureFleet(9, burnt="record")
    state = asked_again(fleet)
    true, false = 0b011110111, 0b111111110
    answers = fleet.answers() | {1: fleet.answer(1, taken=false), 8: fleet.answer(8, taken=true, sets=(0b111,))}
    part = part_of(after_keys(fleet, state, answers))
    assert of(part) == ((false, true, 0b111), (false, true), ())


def test_a_peer_that_refused_is_not_asked() -> None:
    fleet = SecureFleet(6)
    answers = fleet.answers() | {4: fleet.answer(4, refusal="no data")}
    part = part_of(after_keys(fleet, secure_rounds.begin(JOB, fleet.terms), answers))
    assert secure_rounds.problem_with_answers(part, fleet.secure) == ""
    assert (
        secure_rounds.problem_with_answers(replace(part, asked=0b111111), fleet.secure)
        == "a peer is asked that has refused"
    )


def test_a_report_of_peers_that_were_not_asked_is_malformed() -> None:
    fleet = SecureFleet(9)
    state = asked_again(fleet)
    part = part_of(after_keys(fleet, state, fleet.answers() | {8: fleet.answer(8, taken=1 << 9)}))
    assert of(part) == ((), (), ())
    assert part.absent == {8: "malformed: it reports a set of peers that were not asked"}


@pytest.mark.slow
@given(st.lists(st.sampled_from([None, 0, 0b1110111]), min_size=7, max_size=7), st.integers(0, 6))
def test_a_context_is_dead_or_revealed_or_unknown(reports: list[int | None], maker: int) -> None:
    fleet = SecureFleet(7, burnt="record")  # t = 1
    state = asked_again(fleet, padded=first_padded(fleet, Maker(maker, 1, 1)))
    answers = {peer: fleet.answer(peer, taken=taken) for peer, taken in enumerate(reports)}
    after = after_keys(fleet, state, answers)
    part = part_of(after)
    keepers = [peer for peer in fleet.order if peer != maker][:3]
    if any(reports):
        expected = ((0b1110111,), (0b1110111,), ())
    elif [reports[peer] for peer in keepers].count(0) > 1:
        expected = ((), (), ())
    else:
        expected = ((), (0b1111111,), (0b1111111,))
    # Too few may know what they took pads for, so that no peer can keep pads: the last state names no burnt sets.
    assert of(part) == (expected if after.status == "running" else (expected[0], (), expected[2]))
    assert after.status == "failed" or secure_rounds.problem_with_answers(part, fleet.secure) == ""


def test_a_job_that_is_cancelled_notes_in_the_end_what_was_revealed() -> None:
    fleet = SecureFleet(5)
    answers = fleet.answers(taken=0b01111)
    asked = SecuredState(JOB, asked_again(fleet), fleet.terms, ASKS)
    ended = asked.keys_closed(answers, {}, MAKER, cancelled_by="a test")
    assert (ended.status, ended.reason) == ("failed", "cancelled by a test")
    assert part_of(ended) == Secured(3, columns=2, revealed=(0b01111,))


# -- small classes -----------------------------------------------------------------------------------------------------


def test_after_a_set_was_revealed_of_one_state_a_missing_peer_takes_others_with_it() -> None:
    fleet = SecureFleet(9)
    state = asked_again(fleet)
    missing = fleet.order[0]
    here = [peer for peer in range(9) if peer != missing]
    part = part_of(after_keys(fleet, state, fleet.answers(here, taken=NINE)))
    # The last two in the order of keepers; one of them is the aggregator, which has a key all the same.
    assert members_of(part.asked) == tuple(sorted(fleet.order[1:-2]))
    assert {part.absent[peer] for peer in fleet.order[-2:]} == {secure_rounds._GROUPED}
    assert secure_rounds.whole(part, fleet.terms)


def test_with_record_the_missing_peer_is_only_listed() -> None:
    fleet = SecureFleet(9, burnt="record")
    state = asked_again(fleet)
    after = after_keys(fleet, state, fleet.answers(range(8), taken=NINE))
    assert part_of(after).asked == NINE >> 1
    assert not secure_rounds.whole(part_of(after), fleet.terms)
    ended = closed(fleet, after, range(8))
    assert part_of(ended).revealed == (NINE, NINE >> 1)
    assert secure_rounds.exposed_peers(ended) == (8,)


def test_if_no_set_is_allowed_the_job_waits_by_name_until_a_peer_is_back() -> None:
    fleet = SecureFleet(5)
    state = asked_again(fleet)
    with pytest.raises(NotEnough, match="without peer 4 differences of sums would expose single peers"):
        after_keys(fleet, state, fleet.answers(range(4), taken=0b11111))
    assert part_of(after_keys(fleet, state, fleet.answers(taken=0b11111))).asked == 0b11111


@pytest.mark.parametrize(("leave", "asked"), [("alone", 8), ("groups", 6)])
def test_sets_of_earlier_rounds_count_only_if_the_job_asks_for_it(leave: str, asked: int) -> None:
    fleet = SecureFleet(9, leave=leave)
    state = closed(fleet, first_padded(fleet), range(9))
    assert part_of(state).burnt == ()
    again = asked_again(fleet, padded=state)
    part = part_of(after_keys(fleet, again, fleet.answers(range(8))))
    assert part.revealed == (NINE,)
    assert part.asked.bit_count() == asked
    assert secure_rounds.whole(part, fleet.terms) == (leave == "groups")


# -- too few -----------------------------------------------------------------------------------------------------------


def test_too_few_keys_keep_the_round_open_until_all_have_answered() -> None:
    fleet = SecureFleet(5)
    begun = secure_rounds.begin(JOB, fleet.terms)
    answers = fleet.answers([0, 1]) | {2: fleet.answer(2, refusal="no data"), 3: fleet.answer(3, refusal="too late")}
    with pytest.raises(NotEnough) as few:
        after_keys(fleet, begun, answers, {4: f"{LEFT_OUT}: dead"})
    assert few.value.reason == "2 peers can contribute, and 3 are needed"
    failed = after_keys(fleet, begun, answers | {4: fleet.answer(4, refusal="no data")})
    assert failed.status == "failed"
    assert failed.reason == (
        "secure sums: 2 peers can contribute, and 3 are needed (peer 2, peer 4: no data; peer 3: too late)"
    )
    assert part_of(failed).entries == ()


def test_peers_that_came_too_late_to_join_are_among_the_reasons() -> None:
    fleet = SecureFleet(5)
    gone = dict.fromkeys([3, 4], f"{LEFT_OUT}: dead")
    state = after_keys(fleet, secure_rounds.begin(JOB, fleet.terms), fleet.answers(range(3)), gone)
    answers = fleet.answers() | {2: fleet.answer(2, refusal="no data")}
    failed = after_keys(fleet, closed(fleet, state, range(3)), answers)
    assert (failed.status, failed.reason) == (
        "failed", "secure sums: 2 peers can contribute, and 3 are needed "
        f"(peer 3, peer 4: {WOULD_BE_EXPOSED}; peer 2: no data)",
    )  # fmt: skip


def test_without_a_key_of_the_aggregator_the_round_stays_open() -> None:
    fleet = SecureFleet(5)
    with pytest.raises(NotEnough, match="the aggregator has no key yet"):
        after_keys(fleet, secure_rounds.begin(JOB, fleet.terms), fleet.answers([1, 2, 3, 4]))


def test_too_few_keepers_for_the_colluders_keep_the_round_open() -> None:
    fleet = SecureFleet(9, keepers=6, cohort=7)  # t = 5
    begun = secure_rounds.begin(JOB, fleet.terms)
    assert len(secure_rounds.keepers(part_of(after_keys(fleet, begun, fleet.answers(range(7)))), fleet.terms)) == 6
    small = SecureFleet(5, keepers=5, cohort=5)  # t = 3
    answers = small.answers()
    assert part_of(after_keys(small, secure_rounds.begin(JOB, small.terms), answers)).asked == 0b11111
    with pytest.raises(NotEnough, match="3 peers can contribute, and 5 are needed"):
        after_keys(small, secure_rounds.begin(JOB, small.terms), small.answers(range(3)))


def test_a_peer_that_abstained_by_itself_is_not_asked_again_for_the_same_state() -> None:
    fleet = SecureFleet(5)
    gone = {3: "no data", 4: f"{LEFT_OUT}: late"}
    again = SecuredState(JOB, first_padded(fleet), fleet.terms, STATE).renewed(gone, ())
    assert part_of(again).absent == {3: "no data"}
    part = part_of(after_keys(fleet, again, fleet.answers()))
    assert members_of(part.asked) == (0, 1, 2, 4)
    assert part.absent == {3: "no data"}


def test_a_job_of_which_too_few_peers_are_left_fails_with_their_reasons() -> None:
    fleet = SecureFleet(4)
    gone = {2: "no data", 3: "privacy gate"}
    failed = SecuredState(JOB, first_padded(fleet), fleet.terms, STATE).renewed(gone, ())
    assert failed.status == "failed"
    assert failed.reason == (
        "secure sums: only 2 of 4 peers can contribute, and 3 are needed (peer 2: no data; peer 3: privacy gate)"
    )
    of_three = SecuredState(JOB, first_padded(fleet), fleet.terms, STATE).renewed(
        dict.fromkeys((1, 2, 3), "no data"), ()
    )
    assert of_three.reason.endswith("(peer 1, peer 2, peer 3: no data)")


def test_ten_exchanges_of_keys_without_a_total_end_the_job() -> None:
    fleet = SecureFleet(5)
    state = first_padded(fleet)
    for number in range(1, MOST_RENEWALS):
        state = asked_again(fleet, padded=state)
        assert state.status == "running"
        assert part_of(state).renewals == number
        state = after_keys(fleet, state, fleet.answers())
    ended = asked_again(fleet, padded=state)
    assert (ended.status, ended.reason) == ("failed", "secure sums: no total after 10 exchanges of keys")
    assert part_of(ended).unknown == (0b11111,), (
        "its last context may have been unpadded, and no peer is asked any more"
    )
    assert part_of(closed(fleet, state, range(5))).renewals == 0, "a total begins the count anew"


# -- keepers that do not answer ------------------------------------------------------------------------------------------


def test_a_silent_keeper_is_left_off_the_lists_of_the_stage() -> None:
    fleet = SecureFleet(6)
    lost = fleet.order[0] or fleet.order[1]  # not the aggregator
    after = after_keys(fleet, asked_again(fleet, [lost]), fleet.answers())
    part = part_of(after)
    assert lost not in [entry.index for entry in part.entries]
    assert part.absent == {lost: secure_rounds._SILENT}
    assert part.silent == 1 << lost
    again = after_keys(fleet, asked_again(fleet, padded=after), fleet.answers())
    assert part_of(again).silent == 1 << lost, "as long as the stage lasts"
    members = [peer for peer in range(6) if peer != lost]
    following = closed(fleet, again, members)
    assert following.stage == 1
    assert part_of(following).wants_keys
    assert part_of(following).silent == 0


def test_a_silent_keeper_is_used_if_it_is_needed() -> None:
    fleet = SecureFleet(4, cohort=4)
    lost = fleet.order[0] or fleet.order[1]
    part = part_of(after_keys(fleet, asked_again(fleet, [lost]), fleet.answers()))
    assert part.asked == 0b1111
    assert part.silent == 0


# -- what cannot be ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"asked": 1 << 5}, "beyond the job roster, or without a key"),
        ({"silent": 1 << 5}, "beyond the job roster"),
        ({"revealed": (1 << 5,)}, "beyond the job roster"),
        ({"burnt": (1 << 5,)}, "beyond the job roster"),
        ({"unknown": (1 << 5,)}, "beyond the job roster"),
        ({"absent": {5: "no data"}}, "beyond the job roster"),
        ({"cohort": 2}, "its cohort is 2, and the job's is 3"),
        ({"maker": Maker(5, 1, 1)}, "its maker has no key"),
        ({"maker": Maker(2**50, 1, 1)}, "its maker has no key"),
        ({"entries": ()}, "without a key"),
        ({"absent": {2: PROVED}}, "it says without a proof that a peer has signed a wrong check word"),
        ({"proofs": (CheckedRound(STATE, 7, 1 << 5, b"k" * 32),)}, "beyond the job roster"),
        ({"proofs": (CheckedRound(STATE, 7, 1, b"k" * 32, WORDS),)}, "more check words, or keys of them, than peers"),
        ({"unsettled": Unsettled(STATE, 0, 7, 7, CheckedRound(STATE, 7, 1, b"k" * 32, WORDS))}, "more check words"),
    ],
)
def test_a_state_that_cannot_be_is_refused(change: dict[str, Any], reason: str) -> None:
    fleet = SecureFleet(5)
    padded = first_padded(fleet)
    wrong = replace(padded, secured=replace(part_of(padded), **change))
    assert reason in secure_rounds.problem_with_state(wrong, fleet.terms)


@pytest.mark.parametrize(
    "wrong",
    [
        Unsettled(STATE, 5, 7, 7), Unsettled(STATE, 2**50, 7, 7), Unsettled(STATE, 0, 32, 7), Unsettled(STATE, 0, 7, 32),
    ],
)  # fmt: skip
def test_a_context_that_cannot_be_is_refused(wrong: Unsettled) -> None:
    fleet = SecureFleet(5)
    state = asked_again(fleet)
    assert secure_rounds.problem_with_state(state, fleet.terms) == ""
    assert "beyond the job roster" in secure_rounds.problem_with_state(
        replace(state, secured=replace(part_of(state), unsettled=wrong)), fleet.terms
    )


def test_a_list_of_keys_in_another_order_is_refused() -> None:
    fleet = SecureFleet(5)
    padded = first_padded(fleet)
    entries = part_of(padded).entries
    for wrong in (entries[::-1], (*entries, entries[0])):
        state = replace(padded, secured=replace(part_of(padded), entries=wrong))
        assert "not in roster order" in secure_rounds.problem_with_state(state, fleet.terms)


def test_a_state_without_a_secured_part_is_refused() -> None:
    with pytest.raises(WireError, match="no secured part"):
        secure_rounds.secured_of(engine.begin(JOB))


def test_contexts_differ_with_the_fleet_the_job_and_the_state() -> None:
    terms = SecureFleet(3).terms
    others = [replace(terms, job_id="job-2"), replace(terms, keys=replace(terms.keys, fleet=b"g" * 32))]
    found = [secure_rounds.context_of(one, STATE) for one in (terms, *others)]
    found.append(secure_rounds.context_of(terms, b"e" * 32))
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"participation": 0.5}, "secure excludes participation"),
        ({"init": "k-means++"}, "init = 'k-means\\+\\+' shows what one peer proposes"),
    ],
)
def test_jobs_that_are_no_sums_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        cluster_job("llf-cm", **({"n_clusters": 2, "init": "split-merge", "secure": True} | options))


def test_a_job_that_was_not_made_for_secure_sums_is_unfit() -> None:
    assert secure_rounds.problem_with_job(JOB) == ""
    plain = cluster_job("llf-cm", n_clusters=2, init="split-merge")
    assert "range shows each peer's ranges" in secure_rounds.problem_with_job(plain)


def test_groups_follow_from_all_sets_and_not_from_the_newest() -> None:
    fleet = SecureFleet(12, cohort=3, leave="groups")
    begun = secure_rounds.begin(JOB, fleet.terms)
    part = replace(part_of(begun), revealed=(0b111111111111, 0b000000111111))
    state = replace(begun, secured=part)
    after = after_keys(fleet, state, fleet.answers(range(10)))
    # Peers 10 and 11 are missing; with them goes one of the four that were in the first set and not in the second.
    assert (part_of(after).asked & 0b111111).bit_count() == 6
    assert (part_of(after).asked >> 6).bit_count() == 3


# -- fixed groups ----------------------------------------------------------------------------------------------------------


def test_in_every_stage_a_set_has_a_cohort_of_each_of_its_groups_and_the_others_join_with_their_group() -> None:
    fleet = SecureFleet(9, groups=3)
    first, second, third = fleet.terms.groups
    state = first_padded(fleet)
    at = SecuredState(JOB, state, fleet.terms, STATE)
    assert not at.groups, "a stage of which the sum of all is revealed"
    one_of_each = as_mask(members_of(group)[0] for group in fleet.terms.groups)
    assert at.problem_with_set(one_of_each) == "1 peers of a group are too few"
    assert at.problem_with_set(first | second & -second) == "1 peers of a group are too few"
    assert at.problem_with_set(first | second) == ""

    late = third & -third  # and with it the two others of its group
    following = closed(fleet, state, members_of(first), {members_of(late)[0]: LATE})
    assert part_of(following).revealed == (first,)
    reasons = following.log[0].abstained
    assert reasons.pop(members_of(late)[0]) == LATE
    assert reasons == dict.fromkeys(members_of((second | third) & ~late), secure_rounds._SMALL_GROUP)
    assert part_of(after_keys(fleet, following, fleet.answers())).asked == NINE


def test_a_peer_that_is_late_takes_its_group_out_of_the_stage() -> None:
    fleet = SecureFleet(9, groups=3)
    first, second, third = fleet.terms.groups
    before = first_padded(fleet)
    while before.stage == 0:
        before = closed(fleet, before, range(9))
    late = members_of(third)[0]
    after = closed(fleet, before, members_of(first | second), {late: LATE})
    assert after.stage == before.stage
    assert part_of(after).asked == first | second
    others = dict.fromkeys(members_of(third), secure_rounds._SMALL_GROUP)
    assert part_of(after).absent == others | {late: LATE}


def test_keys_of_no_whole_group_are_too_few() -> None:
    fleet = SecureFleet(9, groups=3)
    here = [peer for group in fleet.terms.groups for peer in members_of(group)[:2]]
    with pytest.raises(NotEnough, match="no group has 3 peers that can contribute"):
        after_keys(fleet, secure_rounds.begin(JOB, fleet.terms), fleet.answers(here), {})
