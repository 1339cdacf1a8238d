"""The tasks of a job with secure sums, one after another and without any network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

import msgpack
import numpy as np
import pytest
from tests.protocols.secure_fleet import FLEET, SecureFleet

from p2pclust.peer.core.tasks import (
    AddUp,
    BeginJob,
    CancelJob,
    CombineRound,
    Contribute,
    Contributed,
    DescribeState,
    ForgetKeys,
    Given,
    JobKeys,
    KeysForgotten,
    NoResult,
    Outcome,
    PadsKept,
    PadsTaken,
    Ref,
    RenewKeys,
    StateMade,
    Summed,
    SumPadded,
    TakePads,
    Task,
    TooFew,
)
from p2pclust.peer.core.timing import Limits
from p2pclust.peer.work.secrets import Secrets
from p2pclust.peer.work.states import BlobAccess
from p2pclust.peer.work.tasks import Life, perform
from p2pclust.protocols.engine import reasons, secure_rounds
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import run_in_process
from p2pclust.protocols.engine.workspace import digest_of
from p2pclust.protocols.private.private_cm import shares
from p2pclust.protocols.secure.key_list import KeyEntry
from p2pclust.protocols.secure.proofs import CancelProof
from p2pclust.protocols.secure.secured import MOST_SETS, Maker, Secured
from p2pclust.tools.bit_sets import as_mask, members_of

INTACT = PadsKept(True)


class Workers:
    """The workers of a small fleet; peer 0 is the aggregator of term 1."""

    def __init__(self, n_peers: int = 5, *, inline_bytes: int = 10**6, **secure: Any) -> None:
        self.fleet = SecureFleet(n_peers, **secure)
        self.n_peers = n_peers
        self.job = cluster_job(
            "llf-cm", n_clusters=2, init="split-merge", max_rounds=2, tol=0.0, seed=3, secure=True
        )  # fmt: skip
        self.data = bytes(msgpack.packb(self.job.to_dict()))
        self.keys = self.fleet.job_keys(self.fleet.secure)
        rng = np.random.default_rng(7)
        self.locals = [Local(rng.normal(size=(15, 2)) + 6 * rng.integers(0, 2, (15, 1))) for _ in range(n_peers)]
        self.lives = [self.life(peer) for peer in range(n_peers)]
        self.limits = Limits(inline_bytes=inline_bytes, chunk_bytes=1000)
        self.blobs: dict[bytes, bytes] = {}
        self.round = 0

    def life(self, peer: int, number: int = 0, *, insists: bool = False) -> Life:
        entropy = np.random.default_rng([peer, number]).bytes
        return Life(secrets=Secrets(FLEET, self.fleet.devices[peer].sign, entropy, insists))

    def do(self, peer: int, task: Task) -> Outcome:
        def read(digest: bytes) -> Iterable[bytes]:
            return iter([self.blobs[digest]])

        def store(digest: bytes, data: Any, chunk_bytes: int) -> None:
            self.blobs[digest] = bytes(data[0 : len(data)])

        return perform(
            task, self.locals[peer], BlobAccess(read, store, lambda digest: None, self.limits), self.lives[peer]
        )  # type: ignore[arg-type]

    def bytes_of(self, ref: Ref) -> bytes:
        return self.blobs[ref.digest] if ref.payload is None else ref.payload

    def state(self, ref: Ref) -> JobState:
        return JobState.decode(self.bytes_of(ref))

    def part(self, ref: Ref) -> Secured:
        return secure_rounds.secured_of(self.state(ref))

    def made(self, peer: int, task: Task) -> Ref:
        outcome = self.do(peer, task)
        assert isinstance(outcome, StateMade), outcome
        return outcome.ref

    def contribute(self, state: Ref, peer: int, pads: PadsKept = INTACT) -> Outcome:
        return self.do(peer, Contribute(self.data, self.n_peers, state, peer, pads=pads, keys=self.keys))

    def given(self, state: Ref, peers: Sequence[int] | None = None) -> tuple[Given, ...]:
        """What these peers send, or all; none may abstain."""
        found = []
        for peer in range(self.n_peers) if peers is None else peers:
            outcome = self.contribute(state, peer)
            assert isinstance(outcome, Contributed), outcome
            found.append(((peer,), outcome.ref))
        return tuple(found)

    def maker(self) -> Maker:
        self.round += 1
        return Maker(0, 1, self.round)

    def combine(self, state: Ref, given: tuple[Given, ...], removed: Sequence[tuple[int, Ref]] = ()) -> Ref:
        if not self.part(state).wants_keys:
            summed = self.do(0, SumPadded(self.data, self.n_peers, state, 0, given, keys=self.keys))
            assert isinstance(summed, Summed), summed
            assert summed.ref is not None
            given = ((summed.peers, summed.ref),)
        task = CombineRound(
            self.data, self.n_peers, state, given, maker=self.maker(), removed=tuple(removed), keys=self.keys
        )  # fmt: skip
        return self.made(0, task)

    def padded(self) -> Ref:
        """The first padded state."""
        begun = self.made(0, BeginJob(self.data, self.n_peers, self.keys))
        return self.combine(begun, self.given(begun))

    def keepers(self, state: Ref) -> list[int]:
        return list(secure_rounds.keepers(self.part(state), self.fleet.terms))

    def take(
        self, state: Ref, peer: int, members: int, maker: Maker | None = None, pads: PadsKept = INTACT
    ) -> Outcome:  # fmt: skip
        by = maker or self.part(state).maker
        return self.do(peer, TakePads(self.data, self.n_peers, state, peer, members, by, pads, keys=self.keys))

    def other(self, state: Ref, **change: Any) -> Ref:
        """The same padded state with something else in its secured part."""
        made = replace(self.state(state), secured=replace(self.part(state), **change)).encode()
        return Ref(digest_of(made), len(made), made)

    def removed(self, state: Ref, members: int) -> list[tuple[int, Ref]]:
        """What the keepers beside the aggregator take away."""
        found = []
        for keeper in self.keepers(state):
            if keeper != 0:
                outcome = self.take(state, keeper, members)
                assert isinstance(outcome, PadsTaken), outcome
                found.append((keeper, outcome.ref))
        return found

    def closed(self, state: Ref) -> Ref:
        """The state after a round to which all contribute."""
        if self.part(state).wants_keys:
            return self.combine(state, self.given(state))
        return self.combine(state, self.given(state), self.removed(state, 2**self.n_peers - 1))


# -- a whole job ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("inline_bytes", [10**6, 100])
def test_a_job_has_the_bits_of_the_plain_one(inline_bytes: int) -> None:
    workers = Workers(inline_bytes=inline_bytes)
    ref = workers.made(0, BeginJob(workers.data, workers.n_peers, workers.keys))
    rounds = 0
    while workers.state(ref).status == "running":
        ref = workers.closed(ref)
        rounds += 1
    ended = workers.state(ref)
    assert ended.plain().encode() == run_in_process(workers.job, workers.locals).encode()
    assert rounds == ended.round + 1, "keys are exchanged once"


def test_sums_on_the_way_do_not_change_the_total() -> None:
    workers = Workers()
    state = workers.padded()
    given = workers.given(state)
    summed = workers.do(3, AddUp(workers.data, 5, state, given[2:], keys=workers.keys))
    assert isinstance(summed, Summed)
    assert summed.peers == (2, 3, 4)
    assert summed.ref is not None
    removed = workers.removed(state, 0b11111)
    by_tree = workers.combine(state, (*given[:2], (summed.peers, summed.ref)), removed)
    workers.round -= 1
    assert by_tree == workers.combine(state, given, removed)


def test_what_the_aggregator_gets_of_one_peer_are_other_numbers_in_every_life_and_context() -> None:
    workers = Workers()
    first = workers.padded()
    one = workers.contribute(first, 2)
    assert workers.contribute(first, 2) == one, "asked again, it sends the same"
    workers.lives = [workers.life(peer, 1) for peer in range(5)]
    again = Workers()
    again.lives = [again.life(peer, 1) for peer in range(5)]
    other = again.contribute(again.padded(), 2)
    assert isinstance(one, Contributed)
    assert isinstance(other, Contributed)
    numbers = [Arrays.decode(workers.bytes_of(shown.ref))["padded"] for shown in (one, other)]
    assert not np.any(numbers[0] == numbers[1])


def test_a_state_says_what_the_core_may_know_of_it() -> None:
    workers = Workers()
    begun = workers.do(0, BeginJob(workers.data, 5, workers.keys))
    assert isinstance(begun, StateMade)
    assert begun.info.secure is not None
    assert begun.info.secure.wants_keys
    assert not begun.info.additive, "keys are not added up"
    described = workers.do(1, DescribeState(workers.data, 5, workers.padded(), keys=workers.keys))
    assert isinstance(described, StateMade)
    secure = described.info.secure
    assert secure is not None
    assert (secure.wants_keys, secure.asked, secure.cohort, secure.whole) == (False, (0, 1, 2, 3, 4), 3, False)
    assert list(secure.keepers) == sorted(workers.fleet.order[:3])


# -- sets of peers -------------------------------------------------------------------------------------------------------


def test_the_sum_of_other_peers_than_the_keepers_took_away_asks_for_new_keys() -> None:
    workers = Workers()
    state = workers.padded()
    given = workers.given(state)
    for members, used in ((0b11111, given[:4]), (0b01111, given)):
        after = workers.combine(state, used, workers.removed(state, members))
        part = workers.part(after)
        assert part.wants_keys
        assert part.unsettled is not None
        assert part.unsettled.state == state.digest
        assert members_of(part.unsettled.keepers) == tuple(workers.keepers(state))
        assert workers.state(after).round == workers.state(state).round


def test_without_the_pads_of_one_keeper_there_is_no_total() -> None:
    workers = Workers()
    state = workers.padded()
    after = workers.combine(state, workers.given(state), workers.removed(state, 0b11111)[:-1])
    assert workers.part(after).wants_keys


def test_a_contribution_that_cannot_be_read_is_not_in_the_sum() -> None:
    workers = Workers()
    state = workers.padded()
    given = workers.given(state)
    broken = ((2,), Ref(b"x" * 32, 3, b"abc"))
    after = workers.combine(state, (*given[:2], broken, *given[3:]), workers.removed(state, 0b11011))
    assert workers.state(after).log[0].contributors == (0, 1, 3, 4)
    assert workers.part(after).revealed == (0b11011,)


def test_a_round_with_four_of_five_has_their_total() -> None:
    workers = Workers()
    state = workers.padded()
    members = [0, 1, 2, 4]
    after = workers.combine(state, workers.given(state, members), workers.removed(state, as_mask(members)))
    assert workers.state(after).log[0].contributors == tuple(members)
    assert int(workers.state(after).arrays["rows"]) == 4 * 2, "each counts for as many rows as there are clusters"
    assert workers.part(after).revealed == (0b10111,)


# -- keepers -------------------------------------------------------------------------------------------------------------


def refusal(outcome: Outcome) -> str:
    assert isinstance(outcome, NoResult), outcome
    return outcome.reason


def test_a_keeper_takes_pads_away_only_for_the_maker_of_the_state() -> None:
    workers = Workers()
    state = workers.padded()
    keeper = next(peer for peer in workers.keepers(state) if peer != 0)
    maker = workers.part(state).maker
    for other in (replace(maker, index=3), replace(maker, term=2), replace(maker, round=maker.round + 1)):
        assert refusal(workers.take(state, keeper, 0b11111, other)) == (
            "the state was made by another peer, or in another term"
        )
    assert isinstance(workers.take(state, keeper, 0b11111), PadsTaken)


def test_a_keeper_takes_no_pads_away_in_a_state_that_is_open_for_keys() -> None:
    workers = Workers()
    begun = workers.made(0, BeginJob(workers.data, 5, workers.keys))
    assert refusal(workers.take(begun, 1, 0b11111, Maker())) == "the state was made by another peer, or in another term"


@pytest.mark.parametrize("members", [0, 0b11, 0b111111, 0b100111])
def test_a_keeper_refuses_too_few_members_and_members_that_were_not_asked(members: int) -> None:
    workers = Workers()
    state = workers.padded()
    keeper = next(peer for peer in workers.keepers(state) if peer != 0)
    assert refusal(workers.take(state, keeper, members)) == (
        f"{members.bit_count()} peers are too few, or not all of them were asked"
    )


def test_with_groups_a_keeper_refuses_all_sets_but_that_of_all_who_were_asked() -> None:
    workers = Workers(leave="groups")
    state = workers.padded()
    keeper = next(peer for peer in workers.keepers(state) if peer != 0)
    assert refusal(workers.take(state, keeper, 0b01111)) == (
        "only the sum of all peers that were asked may be revealed"
    )  # fmt: skip
    assert isinstance(workers.take(state, keeper, 0b11111), PadsTaken)


def test_a_peer_that_keeps_no_pads_and_one_that_was_restarted_refuse() -> None:
    workers = Workers()
    state = workers.padded()
    other = workers.fleet.order[3]
    assert refusal(workers.take(state, other, 0b11111)) == "it keeps no pads in this round"
    keeper = next(peer for peer in workers.keepers(state) if peer != 0)
    workers.lives[keeper] = workers.life(keeper, 1)
    assert refusal(workers.take(state, keeper, 0b11111)) == "it, or the aggregator, has new keys"


def test_a_keeper_that_has_answered_with_a_new_key_refuses_the_older_state() -> None:
    workers = Workers()
    state = workers.padded()
    keeper = next(peer for peer in workers.keepers(state) if peer != 0)
    asked = workers.made(0, RenewKeys(workers.data, 5, state, keys=workers.keys))
    assert isinstance(workers.contribute(asked, keeper), Contributed)
    assert refusal(workers.take(state, keeper, 0b11111)) == "it, or the aggregator, has new keys"


def test_pads_are_sealed_for_the_maker_and_these_members() -> None:
    workers = Workers()
    state = workers.padded()
    given, removed = workers.given(state), workers.removed(state, 0b11111)
    (keeper, ref), *rest = removed
    other_set = workers.take(state, keeper, 0b01111)
    assert isinstance(other_set, PadsTaken)
    for wrong in (other_set.ref, replace(ref, payload=bytes(len(ref.payload or b""))), replace(ref, payload=b"")):
        assert workers.part(workers.combine(state, given, [(keeper, wrong), *rest])).wants_keys


# -- contributors --------------------------------------------------------------------------------------------------------


def test_a_restarted_peer_does_not_contribute_before_it_has_a_new_key() -> None:
    workers = Workers()
    state = workers.padded()
    workers.lives[3] = workers.life(3, 1)
    assert refusal(workers.contribute(state, 3)) == reasons.NEW_KEYS
    asked = workers.made(0, RenewKeys(workers.data, 5, state, keys=workers.keys))
    assert isinstance(workers.contribute(workers.combine(asked, workers.given(asked)), 3), Contributed)


def test_a_peer_with_other_rows_than_at_its_first_contribution_abstains() -> None:
    workers = Workers()
    state = workers.padded()
    first = workers.contribute(state, 3)
    assert isinstance(first, Contributed)
    assert len(first.rows) == 32
    assert workers.contribute(state, 3, PadsKept(True, first.rows)) == first
    workers.locals[3] = Local(np.asarray(workers.locals[3].X)[:-1])
    assert refusal(workers.contribute(state, 3, PadsKept(True, first.rows))).startswith("it has other rows than at its")


def test_weights_belong_to_the_rows() -> None:
    workers = Workers()
    state = workers.padded()
    rows = np.asarray(workers.locals[3].X)
    digests = []
    for weights in (None, np.full(15, 2.0), np.full(15, 3.0)):
        workers.locals[3] = Local(rows, weights=weights)
        outcome = workers.contribute(state, 3)
        assert isinstance(outcome, Contributed)
        digests.append(outcome.rows)
    assert len(set(digests)) == 3


def test_a_peer_with_another_store_contributes_nothing_and_keeps_no_pads() -> None:
    workers = Workers()
    begun = workers.made(0, BeginJob(workers.data, 5, workers.keys))
    outcome = workers.contribute(begun, 3, PadsKept(False))
    assert isinstance(outcome, Contributed)
    answer = KeyEntry.decode(3, workers.bytes_of(outcome.ref))
    assert answer.refusal.startswith("its store is not the one that it had at submission")
    assert answer.taken is None
    assert answer.columns == 0
    assert refusal(workers.contribute(workers.padded(), 3, PadsKept(False))).startswith("its store is not the one")
    state = workers.padded()
    keeper = next(peer for peer in workers.keepers(state) if peer != 0)
    assert refusal(workers.take(state, keeper, 0b11111, pads=PadsKept(False))).startswith("its store is not the one")


def test_a_peer_reports_the_sets_that_it_knows_and_the_state_does_not_name() -> None:
    workers = Workers()
    state = workers.padded()
    asked = workers.made(0, RenewKeys(workers.data, 5, workers.other(state, revealed=(0b11111,)), keys=workers.keys))
    known = (0b11111, 0b1111, *range(0b10000, 0b10000 + 15), 0b11110)
    outcome = workers.contribute(asked, 3, PadsKept(True, released=known))
    assert isinstance(outcome, Contributed)
    entry = KeyEntry.decode(3, workers.bytes_of(outcome.ref))
    assert entry.sets == (0b1111, *range(0b10000, 0b10000 + 15)), "sixteen of them, and the others with the next answer"


def test_a_key_pair_is_used_with_one_list_of_keys_only() -> None:
    workers = Workers()
    begun = workers.made(0, BeginJob(workers.data, 5, workers.keys))
    given = workers.given(begun)
    state = workers.combine(begun, given)
    assert isinstance(workers.contribute(state, 3), Contributed)
    other = workers.combine(begun, given[:4])  # with the same keys, by another aggregator
    assert refusal(workers.contribute(other, 3)) == reasons.NEW_KEYS
    keeper = next(peer for peer in workers.keepers(other) if peer != 0)
    assert isinstance(workers.take(state, keeper, 0b11111), PadsTaken)
    assert refusal(workers.take(other, keeper, 0b01111)) == "it, or the aggregator, has new keys"
    # Asked again by the next aggregator, it has a new pair, and with that it contributes.
    new = workers.given(begun)
    assert new[3] != given[3]
    assert isinstance(workers.contribute(workers.combine(begun, new), 3), Contributed)


def test_asked_again_before_its_key_was_used_it_has_the_same() -> None:
    workers = Workers()
    begun = workers.made(0, BeginJob(workers.data, 5, workers.keys))
    assert workers.given(begun) == workers.given(begun)


@pytest.mark.parametrize("leave", ["groups", "alone"])
def test_a_keeper_judges_a_set_by_all_sets_for_which_it_took_pads_away(leave: str) -> None:
    workers = Workers(9, leave=leave, cohort=4)
    every, known = 2**9 - 1, PadsKept(True, released=(0b111111110,))
    state = workers.padded()
    keeper = next(peer for peer in workers.keepers(state) if peer != 0)
    found = workers.take(state, keeper, every, pads=known)
    if leave == "groups":
        assert refusal(found).endswith("sums of fewer peers than the cohort could be computed")
    else:
        assert isinstance(found, PadsTaken), "the state may name it, and the result lists who is exposed"
        assert found.sets == (every,)
    assert isinstance(workers.take(state, keeper, every, pads=PadsKept(True, released=(0b111110000,))), PadsTaken)


def test_a_keeper_remembers_so_many_sets_and_refuses_more() -> None:
    workers = Workers()
    state = workers.padded()
    keeper = next(peer for peer in workers.keepers(state) if peer != 0)
    full = PadsKept(True, released=tuple(range(100, 100 + MOST_SETS)))
    assert refusal(workers.take(state, keeper, 0b11111, pads=full)) == (
        f"it has taken its pads away for {MOST_SETS} different sets of peers"
    )
    known = replace(full, released=(0b11111, *full.released[1:]))
    assert isinstance(workers.take(state, keeper, 0b11111, pads=known), PadsTaken)


def test_where_sets_are_of_all_that_are_asked_a_contributor_remembers_in_which_it_was() -> None:
    workers = Workers(9, leave="groups", cohort=4)
    state = workers.padded()
    assert isinstance(workers.contribute(state, 3), Contributed)
    smaller = workers.other(state, asked=0b011111111)
    assert refusal(workers.contribute(smaller, 3)).endswith("sums of fewer peers than the cohort could be computed")
    assert isinstance(workers.contribute(smaller, 4), Contributed), "it knows of no other"
    assert isinstance(workers.contribute(workers.other(state, asked=0b000011111), 3), Contributed), "both have four"


@pytest.mark.parametrize("silent", [0, 3])
def test_it_forgets_a_set_when_enough_keepers_say_on_the_list_that_they_took_no_pads_away(silent: int) -> None:
    workers = Workers(9, leave="groups", cohort=4)
    state = workers.padded()
    assert isinstance(workers.contribute(state, 3), Contributed)
    keepers = [peer for peer in workers.keepers(state) if peer != 3]
    asked = workers.made(0, RenewKeys(workers.data, 9, state, keys=workers.keys))
    missing = keepers[:silent] or [next(peer for peer in range(1, 9) if peer not in (*workers.keepers(state), 3))]
    after = workers.combine(asked, workers.given(asked, [peer for peer in range(9) if peer not in missing]))
    part = workers.part(after)
    if silent:
        assert part.unknown == (2**9 - 1,)
        hidden = workers.other(after, unknown=(), asked=2**9 - 1 & ~as_mask(missing))
        assert refusal(workers.contribute(hidden, 3)) == (
            "left out: too few keepers say that nothing was revealed in the context before"
        )
    else:
        assert part.asked == 2**9 - 1 & ~as_mask(missing), "nothing was revealed: no class is too small"
        assert isinstance(workers.contribute(after, 3), Contributed)


def test_a_peer_that_is_not_asked_learns_from_the_list_that_nothing_was_revealed() -> None:
    workers = Workers(9, leave="groups", cohort=4)
    state = workers.padded()
    assert isinstance(workers.contribute(state, 3), Contributed)
    asked = workers.made(0, RenewKeys(workers.data, 9, state, keys=workers.keys))
    without = [peer for peer in range(9) if peer != 3]
    after = workers.combine(asked, workers.given(asked, without))
    assert refusal(workers.contribute(after, 3)).startswith("left out"), "no key came from it"
    members = as_mask(without)
    closed = workers.combine(after, workers.given(after, without), [
        (keeper, ref) for keeper in workers.keepers(after) if keeper != 0
        for ref in [cast(PadsTaken, workers.take(after, keeper, members)).ref]
    ])  # fmt: skip
    answer = workers.contribute(closed, 3)
    assert isinstance(answer, Contributed)
    assert KeyEntry.decode(3, answer.ref.payload or b"").sets == ()


def test_a_class_that_is_exposed_already_keeps_no_other_peers_from_contributing() -> None:
    workers = Workers(9, leave="groups", cohort=4)
    state = workers.padded()
    pads = replace(INTACT, released=(0b111111111, 0b011111111))
    assert refusal(workers.contribute(state, 3, pads)).endswith(
        "sums of fewer peers than the cohort could be computed"
    ), "another sum of all would say more about peer 8"  # fmt: skip
    workers.lives[3] = workers.life(3)
    smaller = workers.other(workers.padded(), asked=0b011111111)
    assert isinstance(workers.contribute(smaller, 3, pads), Contributed)


# -- the end -------------------------------------------------------------------------------------------------------------


def test_the_end_of_a_job_takes_its_keys_and_says_what_the_last_state_leaves_out() -> None:
    workers = Workers()
    state = workers.padded()
    final = replace(workers.state(state), status="failed", reason="cancelled", secured=Secured(3, revealed=(0b11111,)))
    data = final.encode()
    ref = Ref(digest_of(data), len(data), data)
    task = ForgetKeys(workers.data, workers.keys, ref, (0b11111, 0b01111))
    assert workers.do(3, task) == KeysForgotten((0b01111,), (4,))
    assert refusal(workers.contribute(state, 3)) == reasons.NEW_KEYS
    assert workers.do(3, replace(task, sets=(0b11111,))) == KeysForgotten()
    assert workers.do(3, replace(task, state=None)) == KeysForgotten()
    unreadable = workers.do(3, replace(task, state=replace(ref, payload=b"x")))
    assert refusal(unreadable).startswith("failed: ")


def test_a_peer_says_which_set_it_took_pads_away_for() -> None:
    workers = Workers()
    state = workers.padded()
    asked = workers.made(0, RenewKeys(workers.data, 5, state, keys=workers.keys))
    for sets, taken in (((), 0), (((state.digest, 0b1111),), 0b1111), (((b"o" * 32, 0b1111),), 0)):
        outcome = workers.contribute(asked, 3, PadsKept(True, b"", 0, sets))
        assert isinstance(outcome, Contributed)
        assert KeyEntry.decode(3, workers.bytes_of(outcome.ref)).taken == taken


def test_a_peer_that_is_not_asked_does_not_contribute() -> None:
    workers = Workers()
    workers.locals[2] = Local(np.zeros((4, 3)))
    state = workers.padded()
    assert refusal(workers.contribute(state, 2)) == "has 3 columns where the fleet has 2"


def test_a_list_of_keys_that_a_device_has_not_signed_is_not_believed() -> None:
    workers = Workers()
    state = workers.state(workers.padded())
    part = secure_rounds.secured_of(state)
    forged = (replace(part.entries[0], public=workers.fleet.pairs[4].public), *part.entries[1:])
    data = replace(state, secured=replace(part, entries=forged)).encode()
    ref = Ref(b"f" * 32, len(data), data)
    assert refusal(workers.contribute(ref, 3)) == "peer 0 has not signed its entry in the list of keys"


def test_a_peer_that_insists_contributes_only_where_it_keeps_pads() -> None:
    workers = Workers()
    last = workers.fleet.order[-1] or workers.fleet.order[-2]
    state = workers.padded()
    pairs = workers.lives[last].secrets
    assert pairs is not None
    pairs.insists = True
    assert refusal(workers.contribute(state, last)) == "it contributes only where it keeps pads itself"
    with_it = workers.padded()
    assert last in workers.keepers(with_it)
    assert isinstance(workers.contribute(with_it, last), Contributed)


# -- the ends ------------------------------------------------------------------------------------------------------------


def test_too_few_keys_are_no_state_and_the_round_stays_open() -> None:
    workers = Workers()
    begun = workers.made(0, BeginJob(workers.data, 5, workers.keys))
    task = CombineRound(workers.data, 5, begun, workers.given(begun, [0, 3]), maker=Maker(0, 1, 1), keys=workers.keys)
    assert workers.do(0, task) == TooFew("2 peers can contribute, and 3 are needed")


def test_a_key_that_cannot_be_read_is_left_out_by_name() -> None:
    workers = Workers()
    begun = workers.made(0, BeginJob(workers.data, 5, workers.keys))
    given = (*workers.given(begun, [0, 1, 2, 3]), ((4,), Ref(b"x" * 32, 3, b"abc")))
    part = workers.part(workers.combine(begun, given))
    assert part.asked == 0b01111
    assert part.absent[4].startswith("malformed: malformed key: ")


def test_a_cancelled_job_ends_with_what_was_revealed() -> None:
    workers = Workers()
    state = workers.closed(workers.padded())
    ended = workers.state(
        workers.made(
            0, CancelJob(workers.data, 5, state, CancelProof("cancel/job", "p1", 0, b"a test"), keys=workers.keys)
        )
    )
    assert (ended.status, ended.reason) == ("failed", "cancelled by a test")
    assert secure_rounds.secured_of(ended).revealed == (0b11111,)


def test_a_peer_without_keys_and_a_job_that_is_no_sums_are_refused() -> None:
    workers = Workers()
    workers.lives[1] = Life()
    assert refusal(workers.do(1, BeginJob(workers.data, 5, workers.keys))) == "failed: secure: this peer has no keys"
    plain = bytes(msgpack.packb(cluster_job("llf-cm", n_clusters=2).to_dict()))
    assert refusal(workers.do(0, BeginJob(plain, 5, workers.keys))).startswith("failed: secure: ")


def test_a_secured_state_in_a_plain_job_and_a_plain_state_in_a_secured_job_are_refused() -> None:
    workers = Workers()
    state = workers.padded()
    assert "without secure sums" in refusal(workers.do(0, Contribute(workers.data, 5, state, 0)))
    data = workers.state(state).plain().encode()
    assert "no secured part" in refusal(workers.contribute(Ref(b"p" * 32, len(data), data), 0))


def test_a_secured_part_that_cannot_be_ends_no_worker() -> None:
    workers = Workers()
    asked = workers.state(workers.made(0, RenewKeys(workers.data, 5, workers.padded(), keys=workers.keys)))
    part = secure_rounds.secured_of(asked)
    assert part.unsettled is not None
    data = replace(asked, secured=replace(part, unsettled=replace(part.unsettled, maker=2**50))).encode()
    assert "beyond the job roster" in refusal(workers.contribute(Ref(b"u" * 32, len(data), data), 0))


# -- peers that are revoked, or have new keys ------------------------------------------------------------------------------


def barring(workers: Workers, *peers: int) -> JobKeys:
    return replace(workers.keys, barred=as_mask(peers))


def test_the_secured_part_of_the_round_after_is_checked_where_it_differs() -> None:
    """What a state has in common with the one before is not read again; all else is."""
    workers = Workers()
    before = workers.padded()
    after = workers.closed(before)
    for _ in range(8):
        follows = workers.state(before).following(workers.bytes_of(after), fixed=())
        if follows is not None:
            break
        before, after = after, workers.closed(after)
    assert follows == workers.state(after)
    for change in ({"cohort": 4}, {"asked": 0b111111}, {"maker": Maker(5, 1, workers.round)}):
        outcome = workers.contribute(workers.other(after, **change), 3)
        assert isinstance(outcome, NoResult)
        assert outcome.reason.startswith(
            "failed: job state: its cohort is 4" if "cohort" in change else "failed: job state: "
        )
    assert isinstance(workers.contribute(after, 3), Contributed)


def test_a_peer_does_not_hide_among_peers_that_are_barred() -> None:
    """Their keys may be with a thief of the devices: they still sign entries of the list."""
    workers = Workers()
    state, keys = workers.padded(), workers.keys
    keepers = workers.keepers(state)
    me, (spare,) = keepers[0], [peer for peer in range(1, 5) if peer not in keepers]
    for barred, contributes in (((0, spare), True), (keepers[1:], False), ((0, spare, keepers[1]), False)):
        workers.keys = barring(workers, *barred)
        outcome = workers.contribute(state, me)
        assert isinstance(outcome, Contributed) is contributes, (barred, outcome)
        if not contributes:
            assert isinstance(outcome, NoResult)
            assert outcome.reason.startswith("left out: without peers that were revoked, or have new keys, too few")
        workers.keys = keys


@pytest.mark.parametrize("n_barred", [2, 3])
def test_where_the_noise_of_too_few_would_be_in_a_total_no_peer_contributes(n_barred: int) -> None:
    """Nine peers share the noise of six, and one may collude: seven that are not barred must be asked."""
    workers = Workers(9)
    workers.job = cluster_job(
        "llf-cm", n_clusters=2, bounds=([-9.0] * 2, [15.0] * 2), privacy={"epsilon": 2.0, "delta": 1e-6}, secure=True
    )  # fmt: skip
    workers.data = bytes(msgpack.packb(workers.job.to_dict()))
    assert shares(9) == 6
    state = workers.padded()
    keepers = workers.keepers(state)
    others = [peer for peer in range(9) if peer not in keepers]
    workers.keys = barring(workers, *others[:n_barred])
    outcome = workers.contribute(state, keepers[0])
    assert isinstance(outcome, Contributed if n_barred == 2 else NoResult), outcome
