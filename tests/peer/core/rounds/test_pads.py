"""What keepers note about secure sums, on disk before it counts, and what they answer to an aggregator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from harness import pad_notes
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.effects import Compute, Persist, Send
from p2pclust.peer.core.fleet_roster import RosterName
from p2pclust.peer.core.job_messages import Pads, StaleTerm, Unpad
from p2pclust.peer.core.messages import RosterOffer
from p2pclust.peer.core.rounds.keeper import Held, Keeper
from p2pclust.peer.core.rounds.pad_notes import TABLE
from p2pclust.peer.core.tasks import NoResult, PadsKept, PadsTaken, PadsToken, Ref, TakePads
from p2pclust.peer.core.timing import PRESETS, Limits
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.secure.secured import Maker
from p2pclust.tools.bit_sets import packed

NAMES = ("p1", "p2", "p3", "p4")
TREATMENT = Treatment(patience_s=1.0, compute_limit_s=60.0, collect="star", secure=True, burnt="groups").secured_for(4)
DOCUMENT = Document(
    b"job", NAMES, tuple(f"store-{name}" for name in NAMES), TREATMENT, "p1", "1",
    fleet_roster=RosterName(1, bytes(32)),
)  # fmt: skip
STATE, NEXT = b"a" * 32, b"b" * 32


def context(me: str = "p2", store_id: str = "store-p2") -> Context:
    return Context(me, PRESETS["fast"], Limits(), np.random.default_rng(0), store_id)


def written(ctx: Context) -> list[Persist]:
    return [effect for effect in ctx.effects if isinstance(effect, Persist)]


# -- notes ---------------------------------------------------------------------------------------------------------------


def test_a_second_set_for_one_state_is_refused() -> None:
    notes = pad_notes(context(), DOCUMENT, None)
    assert notes.allows(STATE, 0b111)
    notes.note(STATE, 0b111, (0b111,))
    assert notes.allows(STATE, 0b111)
    assert not notes.allows(STATE, 0b1111)
    assert notes.allows(NEXT, 0b1111)
    with pytest.raises(AssertionError, match="a second set for one state"):
        notes.note(STATE, 0b1111, (0b1111,))


def test_a_set_is_written_once_and_synced() -> None:
    ctx = context()
    notes = pad_notes(ctx, DOCUMENT, None)
    notes.note(STATE, 0b111, (0b111,))
    notes.note(STATE, 0b111, (0b111,))
    (row,) = written(ctx)
    assert (row.table, row.key, row.sync) == (TABLE, DOCUMENT.id, True)


@given(st.binary(min_size=32, max_size=32), st.dictionaries(st.binary(min_size=32, max_size=32), st.integers(1, 2**70)))
def test_the_row_survives_a_restart(rows: bytes, sets: dict[bytes, int]) -> None:
    ctx = context()
    notes = pad_notes(ctx, DOCUMENT, None)
    notes.contributed(rows)
    for state, members in sets.items():
        notes.note(state, members, (members,))
    again = pad_notes(context(), DOCUMENT, written(ctx)[-1].value)
    assert (
        again.kept
        == notes.kept
        == PadsKept(True, rows, 0, tuple(sets.items())[-4:], tuple(dict.fromkeys(sets.values())))
    )
    for state, members in list(sets.items())[-4:]:
        assert not again.allows(state, members + 1)


def test_only_the_rows_of_the_first_contribution_are_noted() -> None:
    ctx = context()
    notes = pad_notes(ctx, DOCUMENT, None)
    notes.contributed(b"")
    notes.contributed(b"r" * 32)
    notes.contributed(b"s" * 32)
    assert notes.kept.rows == b"r" * 32
    assert len(written(ctx)) == 1


def test_a_peer_with_another_store_knows_that_its_notes_may_be_lost() -> None:
    assert pad_notes(context(), DOCUMENT, None).kept.intact
    assert not pad_notes(context(store_id="store-p2-1"), DOCUMENT, None).kept.intact


def test_the_row_is_deleted_with_the_job() -> None:
    ctx = context()
    pad_notes(ctx, DOCUMENT, None).forget()
    (row,) = written(ctx)
    assert (row.table, row.key, row.value) == (TABLE, DOCUMENT.id, None)


# -- a keeper ------------------------------------------------------------------------------------------------------------


class Kept:
    """The keeper p2, which follows p1 in term 3 and holds a padded state as round 5."""

    def __init__(self) -> None:
        self.ctx = context()
        self.register = SimpleNamespace(ref=Ref(STATE, 5, b"state"), position=(3, 5))
        self.ledger = SimpleNamespace(term=3, register=self.register, stale=lambda term: term < self.ledger.term)
        self.election = SimpleNamespace(aggregator="p1")
        self.notes = pad_notes(self.ctx, DOCUMENT, None)
        self.barred: dict[str, None] = {}
        blobs = SimpleNamespace(has=lambda digest: True)
        job = SimpleNamespace(
            context=self.ctx, document=DOCUMENT, membership=None, ledger=self.ledger, blobs=blobs, keys=None,
            barred_among=lambda members: next((p for p in self.barred if members >> DOCUMENT.index(p) & 1), ""),
        )  # fmt: skip
        self.keeper = Keeper(cast(Any, job), cast(Any, self.election), self.notes)

    def asked(self, members: int = 0b1111, *, source: str = "p1", **change: Any) -> list[Compute]:
        """Ask for pads; return what the worker is given."""
        fields = {"term": 3, "round": 5, "digest": STATE} | change
        total = {"sum": b"s" * 32, "size_bytes": 3, "payload": (b"sum",)}
        self.ctx.effects.clear()
        self.keeper.on_unpad(source, Unpad(DOCUMENT.id, members=packed(members), **fields, **total))
        return [effect for effect in self.ctx.effects if isinstance(effect, Compute)]

    def took(self, compute: Compute, outcome: Any = None) -> None:
        self.ctx.effects.clear()
        assert isinstance(compute.token, PadsToken)
        self.keeper.taken(compute.token, outcome or PadsTaken(Ref(b"p" * 32, 4, b"pads"), (0b1111,)))

    def answers(self) -> list[Pads]:
        sent = [effect.message for effect in self.ctx.effects if isinstance(effect, Send)]
        return [message for message in sent if isinstance(message, Pads)]


def test_the_set_is_on_disk_before_the_pads_leave() -> None:
    kept = Kept()
    (compute,) = kept.asked()
    task = compute.task
    assert isinstance(task, TakePads)
    assert (task.me, task.members, task.maker) == (1, 0b1111, Maker(0, 3, 5))
    kept.took(compute)
    kinds = [type(effect) for effect in kept.ctx.effects]
    assert kinds.index(Persist) < kinds.index(Send)
    assert [(answer.refusal, answer.payload) for answer in kept.answers()] == [("", (b"pads",))]
    assert kept.notes.kept.sets == ((STATE, 0b1111),)


def test_asked_again_it_sends_the_same_pads_without_computing() -> None:
    kept = Kept()
    (compute,) = kept.asked()
    assert kept.asked() == [], "the worker has the request already"
    kept.took(compute)
    first = kept.answers()
    assert kept.asked() == []
    assert kept.answers() == first


def test_for_another_set_of_the_same_state_it_refuses() -> None:
    kept = Kept()
    kept.took(*kept.asked())
    assert kept.asked(0b0111) == []
    answers = [(answer.refusal, answer.members) for answer in kept.answers()]
    assert answers == [("it has taken its pads away for another set of peers", b"")], "a refusal names no set"


@pytest.mark.parametrize("barred", ["p3", "p2"], ids=["of the set", "itself"])
def test_for_a_peer_that_was_revoked_or_has_new_keys_no_pads_are_taken(barred: str) -> None:
    kept = Kept()
    kept.barred[barred] = None
    assert kept.asked(0b1110) == []
    assert [answer.refusal for answer in kept.answers()] == [f"{barred} was revoked, or has new keys"]
    offers = [effect.message for effect in kept.ctx.effects if isinstance(effect, Send)]
    assert RosterOffer(kept.ctx.serial) in offers, "the aggregator does not know of it yet"
    assert kept.asked(0b1001) == [] if barred == "p2" else len(kept.asked(0b1001)) == 1


def test_a_set_with_peers_beyond_the_roster_is_left_to_the_worker() -> None:
    kept = Kept()
    (compute,) = kept.asked(1 << 400)
    kept.took(compute, NoResult("too few"))
    assert [answer.refusal for answer in kept.answers()] == ["too few"]


def test_of_two_sets_that_are_asked_for_at_once_one_gets_pads() -> None:
    kept = Kept()
    both = kept.asked(0b1111) + kept.asked(0b0111)
    assert len(both) == 2
    kept.took(both[0])
    assert kept.answers()[0].refusal == ""
    kept.took(both[1])
    assert kept.answers()[0].refusal == "it has taken its pads away for another set of peers"
    assert kept.notes.kept.sets == ((STATE, 0b1111),)


def test_what_the_worker_refuses_is_refused_and_not_noted() -> None:
    kept = Kept()
    kept.took(*kept.asked(0b11), NoResult("2 peers are too few"))
    assert [answer.refusal for answer in kept.answers()] == ["2 peers are too few"]
    assert kept.notes.kept.sets == ()


@pytest.mark.parametrize(
    "change", [{"source": "p3"}, {"term": 4}, {"round": 4}, {"round": 6}, {"digest": NEXT}], ids=str
)  # fmt: skip
def test_a_request_about_another_term_round_or_state_gets_no_pads(change: dict[str, Any]) -> None:
    kept = Kept()
    assert kept.asked(**change) == []
    assert kept.answers() == []


def test_an_aggregator_of_an_older_term_learns_of_the_newer_one() -> None:
    kept = Kept()
    assert kept.asked(term=2) == []
    assert [effect.message for effect in kept.ctx.effects if isinstance(effect, Send)] == [StaleTerm(DOCUMENT.id, 3)]


def test_pads_do_not_leave_after_another_term_began() -> None:
    kept = Kept()
    (compute,) = kept.asked()
    kept.ledger.term = 4
    kept.took(compute)
    assert kept.ctx.effects == []


def test_pads_do_not_leave_after_the_peer_adopted_the_state_that_asks_for_new_keys() -> None:
    """It may have answered already that it took none away, so that the context counts as dead."""
    kept = Kept()
    (compute,) = kept.asked()
    kept.register.ref, kept.register.position = Ref(NEXT, 4, b"keys"), (3, 6)
    kept.took(compute)
    assert kept.ctx.effects == []
    assert kept.notes.kept.sets == ()


def test_the_next_aggregator_gets_the_pads_of_the_same_set_and_the_sum() -> None:
    kept = Kept()
    kept.took(*kept.asked())
    kept.ledger.term, kept.election.aggregator = 4, "p3"
    (compute,) = kept.asked(0, source="p3", term=4)
    task = compute.task
    assert isinstance(task, TakePads)
    assert (task.members, task.maker.index, task.sum) == (0b1111, 2, Ref(b"s" * 32, 3, b"sum"))
    kept.took(compute)
    assert [(answer.refusal, answer.members) for answer in kept.answers()] == [("", b"\x0f")]
    assert kept.notes.kept.sets == ((STATE, 0b1111),)


def test_for_the_next_aggregator_the_set_of_one_that_aggregated_itself_is_on_disk_before_its_pads_leave() -> None:
    """As an aggregator it noted the set without waiting for the disk: no pads of its own had left."""
    kept = Kept()
    kept.notes.note(STATE, 0b1111, (0b1111,), sync=False)
    kept.keeper.held = Held(Ref(STATE, 5, b"state"), 0b1111, Ref(b"s" * 32, 3, b"sum"))
    kept.took(*kept.asked(0))
    kinds = [(type(effect), getattr(effect, "sync", None)) for effect in kept.ctx.effects]
    assert kinds.index((Persist, True)) < kinds.index((Send, None))
    assert [answer.members for answer in kept.answers()] == [b"\x0f"]


def test_all_different_sets_of_the_job_stay_on_disk_and_reach_the_worker() -> None:
    kept = Kept()
    for number in range(8):
        kept.notes.note(bytes([number]) * 32, 0b111 if number % 2 else 0b1110, (0b111, 0b1000 + number))
    (compute,) = kept.asked()
    assert isinstance(compute.task, TakePads)
    assert compute.task.pads.released == (0b111, *range(0b1000, 0b10000))
    assert len(compute.task.pads.sets) == 4, "and the newest states, with the set of each"
    row = written(kept.ctx)
    assert row == [], "nothing is written before the worker has answered"
    again = pad_notes(context(), DOCUMENT, stored_by(kept))
    assert again.kept.released == compute.task.pads.released


def stored_by(kept: Kept) -> bytes | None:
    kept.ctx.effects.clear()
    kept.notes.contributed(b"r" * 32)
    return written(kept.ctx)[-1].value


def test_without_released_pads_there_is_nothing_for_the_next_aggregator() -> None:
    kept = Kept()
    assert kept.asked(0) == []
    assert [answer.refusal for answer in kept.answers()] == ["it has released no pads for that state"]
