"""An aggregator that opens states of its own making, to get two sums of which one lacks one peer.

Whatever numbers it writes into a state: with ``leave = "groups"`` it gets no such sums, and with ``leave = "alone"`` the
keepers report at the end what they took their pads away for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.liars.lab import Aggressor, fleet, submit, truth

from p2pclust.peer.core.job_messages import Close, Open
from p2pclust.protocols.engine import secure_rounds
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.padded import layout_of
from p2pclust.protocols.engine.workspace import digest_of
from p2pclust.protocols.secure.classes import exposed
from p2pclust.tools.bit_sets import as_mask

VICTIM = 4
WHY = "with sets that it knows, sums of fewer peers than the cohort could be computed"
pytestmark = pytest.mark.slow


class Attack:
    """The liar p0 aggregates a job of default secure sums, honestly until the clustering begins."""

    def __init__(self, n_peers: int, **treatment: Any) -> None:
        rng = np.random.default_rng(5)
        centers = rng.uniform(0, 100, (3, 2))
        rows = [centers[rng.integers(0, 3, 60)] + rng.normal(0, 6, (60, 2)) for _ in range(n_peers)]
        self.world, self.ears = fleet([np.clip(x, -50, 150) for x in rows])
        bounds = ([-50.0, -50.0], [150.0, 150.0])
        job = cluster_job(
            "llf-cm", n_clusters=3, bounds=bounds, init="uniform", tol=0.0, max_rounds=2, secure=True
        )  # fmt: skip
        self.liar = Aggressor(self.world, self.ears, submit(self.world, job, secure=True, **treatment))
        liar = self.liar
        self.before: Callable[[], JobState]
        state = liar.padded_from(liar.keys_round(secure_rounds.begin(liar.job, liar.terms), 2), liar.round + 1)
        while liar.job.stages[state.stage].protocol != "llf-cm":
            state = self.after(state, self.summed(state))
        self.state = state

    def summed(self, state: JobState, without: Iterable[int] = ()) -> tuple[Any, ...]:
        """Open a padded state, and ask the keepers for the sum of those that answer, without some."""
        digest, given, refused = self.liar.padded_round(state)
        members = [index for index in sorted(given) if index not in without]
        total, pads, refusals = self.liar.unpad(state, digest, given, members)
        return digest, given, pads, members, total, refusals, refused

    def after(self, state: JobState, summed: tuple[Any, ...]) -> JobState:
        """The state that follows from a sum, for the next round."""
        digest, given, pads, members, total, *_ = summed
        last = (state, digest, given, pads, members, total)
        self.before = lambda: self.liar.next_from(*last, self.liar.round + 1)
        return self.before()

    def reads_the_victim(self, state: JobState, one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
        """Whether the difference of two totals is what one peer contributed."""
        found = layout_of(self.liar.job, state).contribution(one - other)
        local = self.world.peers[self.liar.document.roster[VICTIM]].local
        true = truth(self.liar.job, state, local, VICTIM, self.liar.n)
        return all((np.asarray(found[name]) == np.asarray(true[name])).all() for name in true)

    def end(self, state: JobState) -> None:
        """Make the honest final state after a padded one, and end the job with it everywhere."""
        while state.status == "running":
            state = self.after(state, self.summed(state))
        liar = self.liar
        liar.round += 1
        data = state.encode()
        of = (liar.id, liar.term, liar.round, digest_of(data), len(data))
        liar.say(Open(*of, True, -1, (data,)))
        liar.say(Close(*of, (data,)))
        self.world.run_until(self.world.now + 3.0)
        self.final = state

    def sibling(self) -> JobState:
        """Another state after the same one, with the same numbers."""
        return self.before()

    def moved(self) -> JobState:
        """The same, with centers that are moved so little that their sums hardly differ."""
        state = self.before()
        arrays = {
            name: array + 1e-9 if name == "centers" else array for name, array in state.arrays.items()
        }  # fmt: skip
        return replace(state, arrays=Arrays(arrays))


def without(state: JobState, peers: Iterable[int]) -> JobState:
    """The state, of which these peers are said to be late."""
    part = secure_rounds.secured_of(state)
    late = dict.fromkeys(peers, "left out: late")
    return replace(state, secured=replace(part, asked=part.asked & ~as_mask(late), absent=late))


@pytest.mark.parametrize("made", [Attack.sibling, Attack.moved])
def test_with_groups_a_second_state_without_one_peer_gets_neither_contributions_nor_pads(
    made: Callable[[Attack], JobState],
) -> None:
    attack = Attack(8, leave="groups")
    first = attack.summed(attack.state)
    assert int(first[4][-1]) == 8, "the honest sum"
    state = without(made(attack), [VICTIM])
    digest, given, refused = attack.liar.padded_round(state)
    assert list(given) == [0], "the liar's own"
    assert {index: reason for index, reason in refused.items() if index != VICTIM} == dict.fromkeys(
        (1, 2, 3, 5, 6, 7), f"left out: {WHY}"
    )
    # A keeper that has not contributed refuses too: the liar shows it the contributions to the first state.
    others = {index: first[1][index] for index in first[1] if index != VICTIM}
    _, pads, refusals = attack.liar.unpad(state, digest, others, sorted(others))
    assert pads == {}
    assert set(refusals.values()) == {WHY}


def test_with_groups_a_list_of_keys_with_other_keepers_gets_no_contributions() -> None:
    attack = Attack(10, leave="groups")
    liar = attack.liar
    first = attack.summed(attack.state)
    assert int(first[4][-1]) == 10, "the honest sum"
    part = secure_rounds.secured_of(attack.state)
    off = [VICTIM, *secure_rounds.keepers(part, liar.terms)]
    asking = replace(attack.state, secured=replace(secure_rounds._without_keys(part), revealed=()))
    _, digest, given, _ = liar.keys_round(asking, 2)
    given = {index: answer for index, answer in given.items() if index not in off}
    state = liar.padded_from((asking, digest, given, dict.fromkeys(off, "left out: late")), liar.round + 1)
    listed = secure_rounds.secured_of(state)
    assert not exposed((part.asked, listed.asked), listed.cohort), "what peers report leaves no such set"
    # So the liar hides what they report, and asks all that it has put on the list.
    without_reports = replace(listed, revealed=(), unknown=(), asked=as_mask(given))
    _, contributed, refused = liar.padded_round(replace(state, secured=without_reports))
    assert list(contributed) == [0], "the liar's own"
    reported = "the state hides a set of peers that a peer reported"
    assert {refused[index] for index in given if index != 0} == {f"left out: {reported}"}
    # Nor if it names the set: then each of them knows what the two sums would give.
    _, contributed, refused = liar.padded_round(replace(state, secured=replace(listed, asked=as_mask(given))))
    assert list(contributed) == [0], "the liar's own"
    assert {refused[index] for index in given if index != 0} == {f"left out: {WHY}"}


def consecutive(attack: Attack, first: tuple[Any, ...]) -> JobState:
    """A next round that names the sum of the one before, with the centers of the one before, hardly moved."""
    after = attack.after(attack.state, first)
    arrays = {name: attack.state.arrays[name] if name == "centers" else array for name, array in after.arrays.items()}
    return replace(after, arrays=Arrays(arrays))


def sibling(attack: Attack, first: tuple[Any, ...]) -> JobState:
    return attack.sibling()


def moved(attack: Attack, first: tuple[Any, ...]) -> JobState:
    return attack.moved()


@pytest.mark.parametrize("second", [sibling, moved, consecutive])
def test_left_alone_a_peer_is_exposed_and_the_keepers_tell_everybody(
    second: Callable[[Attack, tuple[Any, ...]], JobState],
) -> None:
    attack = Attack(8)
    first = attack.summed(attack.state)
    state = second(attack, first)
    total = attack.summed(state, [VICTIM])[4]
    assert int(first[4][-1]) - int(total[-1]) == 1, "the sums of all, and of all but one"
    assert second is not sibling or attack.reads_the_victim(attack.state, first[4], total), "what the second sum is for"
    attack.end(attack.after(attack.state, first))
    assert secure_rounds.exposed_peers(attack.final) == (), "the state hides the second sum"
    for name in attack.liar.others:
        job = attack.world.peers[name].core.jobs.jobs[attack.liar.id]
        assert job.ledger.finished
        reported = [one for sets in job.notes.by_keeper().values() for one in sets]
        assert secure_rounds.exposed_peers(attack.final, reported) == (VICTIM,), f"as {name} sees it"
    told = {(name, *fields["peers"]) for _, name, verb, fields in attack.ears.reports if verb == "reports-sets"}
    assert {peer for _, *peers in told for peer in peers} == {attack.liar.document.roster[VICTIM]}
