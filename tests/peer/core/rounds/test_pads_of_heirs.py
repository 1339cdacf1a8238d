"""A keeper that was the aggregator itself: its set is on the disk before the pads leave for the next aggregator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from harness import pad_notes

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.effects import Compute, Persist, Send
from p2pclust.peer.core.fleet_roster import RosterName
from p2pclust.peer.core.job_messages import Pads, Unpad
from p2pclust.peer.core.rounds.keeper import Held, Keeper
from p2pclust.peer.core.rounds.pad_notes import TABLE
from p2pclust.peer.core.tasks import PadsTaken, PadsToken, Ref
from p2pclust.peer.core.timing import PRESETS, Limits
from p2pclust.peer.core.treatment import Treatment

NAMES = ("p1", "p2", "p3", "p4")
TREATMENT = Treatment(patience_s=1.0, compute_limit_s=60.0, collect="star", secure=True, burnt="groups").secured_for(4)
STORES = tuple(f"store-{name}" for name in NAMES)
DOCUMENT = Document(b"job", NAMES, STORES, TREATMENT, "p1", "1", fleet_roster=RosterName(1, bytes(32)))
STATE, MEMBERS = Ref(b"a" * 32, 5, b"state"), 0b1111


def test_the_set_of_an_aggregator_is_synced_before_its_own_pads_leave_for_the_next_one() -> None:
    ctx = Context("p2", PRESETS["fast"], Limits(), np.random.default_rng(0), "store-p2")
    ledger = SimpleNamespace(term=3, register=SimpleNamespace(ref=STATE, position=(3, 5)))
    ledger.stale = lambda term: term < ledger.term
    election = SimpleNamespace(aggregator="p2")
    notes = pad_notes(ctx, DOCUMENT, None)
    blobs = SimpleNamespace(has=lambda digest: True)
    job = SimpleNamespace(
        context=ctx,
        document=DOCUMENT,
        membership=None,
        ledger=ledger,
        blobs=blobs,
        keys=None,
        barred_among=lambda members: "",
    )
    keeper = Keeper(cast(Any, job), cast(Any, election), notes)
    notes.note(STATE.digest, MEMBERS, (MEMBERS,), sync=False)  # as it asks the other keepers
    keeper.held = Held(STATE, MEMBERS, Ref(b"s" * 32, 3, b"sum"))
    assert [effect.sync for effect in ctx.effects if isinstance(effect, Persist)] == [False]

    ledger.term, election.aggregator = 4, "p3"
    keeper.on_unpad("p3", Unpad(DOCUMENT.id, 4, 5, STATE.digest, b"", b"", 0, ()))
    (token,) = [effect.token for effect in ctx.effects if isinstance(effect, Compute)]
    assert isinstance(token, PadsToken)
    ctx.effects.clear()
    keeper.taken(token, PadsTaken(Ref(b"p" * 32, 4, b"pads"), (MEMBERS,)))
    rows = [(at, effect) for at, effect in enumerate(ctx.effects) if isinstance(effect, Persist)]
    sent = [(at, effect.message) for at, effect in enumerate(ctx.effects) if isinstance(effect, Send)]
    assert [(row.table, row.sync) for _, row in rows] == [(TABLE, True)]
    assert [(type(message), message.refusal) for _, message in sent if isinstance(message, Pads)] == [(Pads, "")]
    assert rows[0][0] < sent[0][0]


def test_a_set_that_is_written_again_is_synced_once() -> None:
    ctx = Context("p2", PRESETS["fast"], Limits(), np.random.default_rng(0), "store-p2")
    notes = pad_notes(ctx, DOCUMENT, None)
    for sync in (False, False, True, True, False):
        notes.note(STATE.digest, MEMBERS, (MEMBERS,), sync=sync)
    assert [effect.sync for effect in ctx.effects if isinstance(effect, Persist)] == [False, True]
