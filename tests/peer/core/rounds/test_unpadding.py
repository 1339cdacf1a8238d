"""The aggregator's side of secure sums, by hand: whom it waits for, and what it does about keepers that do not answer."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from harness import opened_round, pad_notes

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.effects import Send
from p2pclust.peer.core.fleet_roster import FleetRoster, HeldRosters, RosterName
from p2pclust.peer.core.job_messages import Pads, Unpad
from p2pclust.peer.core.round_reports import OutOfReach
from p2pclust.peer.core.rounds.headway import Headway
from p2pclust.peer.core.rounds.job_context import JobContext
from p2pclust.peer.core.rounds.keeper import Held, Keeper
from p2pclust.peer.core.rounds.patience import Patience
from p2pclust.peer.core.rounds.unpadding import SecureTerm
from p2pclust.peer.core.tasks import CombineRound, FinishRound, Ref, RenewKeys, SecureInfo, Summed, SumPadded, Task
from p2pclust.peer.core.timing import PRESETS, Limits
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.reasons import SMALL_CLASS
from p2pclust.tools.bit_sets import as_mask, packed

NAMES = ("p1", "p2", "p3", "p4")
TREATMENT = Treatment(patience_s=10.0, compute_limit_s=60.0, collect="star", secure=True, burnt="groups").secured_for(4)
STORES = tuple(f"store-{name}" for name in NAMES)
DOCUMENT = Document(b"job", NAMES, STORES, TREATMENT, "p1", "1", fleet_roster=RosterName(1, bytes(32)))
ROSTER = FleetRoster(RosterName(1, bytes(32)), dict.fromkeys(NAMES, b"k" * 32))
STATE = Ref(b"a" * 32, 5, b"state")
SUM = Ref(b"s" * 32, 3, b"sum")
#: p1 made the padded state; p2, p3 and p4 keep pads.
SECURE = SecureInfo(wants_keys=False, asked=(0, 1, 2, 3), keepers=(1, 2, 3), maker=0, cohort=3)


class Closing:
    """The aggregator p1 of term 3, at the end of round 5."""

    def __init__(self) -> None:
        self.ctx = Context(
            "p1", PRESETS["fast"], Limits(), np.random.default_rng(0), "store-p1", rosters=HeldRosters(ROSTER)
        )
        self.chunks_left = 0
        self.here: set[bytes] = set()
        self.held_up: set[bytes] = set()
        self.gone: set[str] = set()
        blobs = SimpleNamespace(
            has=lambda digest: digest in self.here, pull=lambda *_: None, left=lambda digest: self.chunks_left,
            spoiled_by=lambda *_: False, held_up=lambda digest: digest in self.held_up,
        )  # fmt: skip
        membership = SimpleNamespace(gone=lambda name: name in self.gone, alive=lambda: list(DOCUMENT.roster))
        ledger = SimpleNamespace(term=3, register=SimpleNamespace(ref=STATE, position=(3, 5)))
        nothing = cast(Any, None)
        job = JobContext(
            self.ctx, cast(Any, membership), cast(Any, blobs), DOCUMENT, cast(Any, ledger), nothing, nothing, nothing,
            nothing,
        )  # fmt: skip
        self.notes = pad_notes(self.ctx, DOCUMENT, None)
        self.keeper = Keeper(job, cast(Any, SimpleNamespace(aggregator="p1")), self.notes)
        headway = Headway(job)
        self.tasks: list[Task] = []
        self.contributors = SECURE.asked
        self.patience = Patience(job, headway)
        self.term = SecureTerm(job, self.notes, self.keeper, self.patience, self.tasks.append)

    def mask(self) -> bytes:
        return packed(as_mask(self.contributors))

    def asked(self) -> list[str]:
        """The keepers that were asked since the last call."""
        sent = [e.to for e in self.ctx.effects if isinstance(e, Send) and isinstance(e.message, Unpad)]
        self.ctx.effects.clear()
        return sent

    def close(self) -> None:
        """All have contributed, and the worker has added it up."""
        opened = opened_round(STATE, *NAMES, asked=SECURE.asked, secure=SECURE)
        for index in self.contributors:
            opened.peers[index].ref = Ref(b"c", 1, b"c")
        opened.use()
        self.term.close(opened, {})
        assert isinstance(self.tasks.pop(), SumPadded)
        self.term.summed(Summed(SUM, self.contributors))

    def pads(self, source: str, *, blob: bool = False, members: bytes = b"\x0f") -> None:
        payload = () if blob else (b"pads",)
        digest = source.encode() * 16
        self.term.on_pads(source, Pads(DOCUMENT.id, 3, 5, STATE.digest, "", members, digest, 4, payload))


def test_it_waits_for_the_keepers_that_have_not_answered() -> None:
    closing = Closing()
    assert closing.term.waits_for() == []
    closing.close()
    assert closing.asked() == ["p2", "p3", "p4"]
    assert closing.term.waits_for() == ["p2", "p3", "p4"]
    closing.pads("p3")
    assert closing.term.waits_for() == ["p2", "p4"]
    closing.pads("p2")
    closing.pads("p4")
    assert [type(task) for task in closing.tasks] == [CombineRound]
    assert closing.term.waits_for() == []


def test_a_round_that_another_aggregator_began_is_finished_with_what_this_keeper_holds() -> None:
    closing = Closing()
    closing.keeper.held = Held(STATE, 0b1111, SUM)
    closing.term.resume(STATE, 5, replace(SECURE, keepers=(0, 3), maker=3))  # the other keeper has taken its pads away
    ((finish,),) = ([task for task in closing.tasks if isinstance(task, FinishRound)],)
    assert closing.asked() == []
    assert finish.state == STATE


@pytest.mark.parametrize(("members", "finished"), [(b"\x0f", True), (b"\x03", False)], ids=["all", "too-few"])
def test_a_round_that_another_aggregator_began_is_finished_for_the_set_of_its_keepers(
    members: bytes, finished: bool
) -> None:  # fmt: skip
    closing = Closing()
    closing.term.resume(STATE, 5, SECURE)
    for name in ("p2", "p3", "p4"):
        closing.pads(name, members=members)
    assert isinstance(closing.tasks[0], FinishRound if finished else RenewKeys)


def test_a_silent_keeper_is_asked_through_other_peers_once() -> None:
    """On a sparse overlay an aggregator whose neighbour lost large messages once renewed the keys in every round."""
    closing = Closing()
    closing.close()
    closing.pads("p3")
    closing.pads("p4")
    assert [type(task) for task in closing.tasks] == []
    closing.ctx.now += 0.9 * TREATMENT.patience_s
    closing.term.fire()
    assert relayed(closing) == []
    for _ in range(2):
        closing.ctx.now += 0.2 * TREATMENT.patience_s
        closing.term.fire()
    ((to, relays),) = relayed(closing)
    assert to == "p2"
    assert set(relays) == {"p3", "p4"}
    assert closing.tasks == [], "it has not been given up yet"


def relayed(closing: Closing) -> list[tuple[str, tuple[str, ...]]]:
    return [
        (effect.to, effect.via) for effect in closing.ctx.effects
        if isinstance(effect, Send) and isinstance(effect.message, Unpad) and effect.via
    ]  # fmt: skip


def test_a_keeper_whose_pads_come_chunk_by_chunk_is_not_given_up() -> None:
    closing = Closing()
    closing.close()
    closing.pads("p3")
    closing.pads("p4")
    closing.pads("p2", blob=True)
    for chunks_left in (3, 2, 1):
        closing.chunks_left = chunks_left
        closing.ctx.now += 0.8 * TREATMENT.patience_s
        assert not closing.term.fire()
    assert closing.tasks == []
    assert closing.term.waits_for() == ["p2"]
    for _ in range(2):
        closing.ctx.now += TREATMENT.patience_s  # and no chunk
        closing.term.fire()
    assert [type(task) for task in closing.tasks] == [RenewKeys]


def test_a_keeper_whose_pads_wait_for_this_peer_is_not_given_up() -> None:
    """The aggregator may have much to fetch and to hash; but its worker may hang, too."""
    closing = Closing()
    closing.close()
    closing.pads("p3")
    closing.pads("p4")
    closing.pads("p2", blob=True)
    closing.held_up.add(b"p2" * 16)
    for _ in range(6):
        closing.ctx.now += 0.8 * TREATMENT.patience_s
        assert not closing.term.fire()
    assert closing.tasks == []
    for _ in range(9):
        closing.ctx.now += TREATMENT.patience_s
        closing.term.fire()
    assert [type(task) for task in closing.tasks] == [RenewKeys]


def test_an_aggregator_that_no_keeper_answers_twice_lets_another_peer_try() -> None:
    """Its own messages may be the ones that are lost: it must not give up one keeper after the other."""
    closing = Closing()
    for times in (1, 2):
        closing.close()
        closing.ctx.now += TREATMENT.patience_s
        assert not closing.term.fire()
        closing.ctx.now += TREATMENT.patience_s / 2
        assert closing.term.fire() is (times == 2)
    assert [type(task) for task in closing.tasks] == [RenewKeys]
    assert [e.peer for e in closing.ctx.effects if isinstance(e, OutOfReach)] == ["p2", "p3", "p4"]


def test_an_aggregator_that_some_keepers_answer_goes_on_without_the_others() -> None:
    closing = Closing()
    for _ in range(4):
        closing.close()
        closing.pads("p3")
        closing.pads("p4")
        closing.ctx.now += TREATMENT.patience_s
        assert not closing.term.fire()
        assert closing.tasks == []
        closing.ctx.now += TREATMENT.patience_s / 2
        assert not closing.term.fire()
        renewal = closing.tasks.pop()
        assert isinstance(renewal, RenewKeys)
        assert renewal.silent == (1,)


def test_a_keeper_may_compute_for_as_long_as_the_limit() -> None:
    """Its messages came through other peers, and the sum did not: it once held the round for 352 s."""
    closing = Closing()
    for _ in range(3):
        closing.close()
        closing.pads("p3", members=closing.mask())
        closing.pads("p4", members=closing.mask())
        began = closing.ctx.now
        while not closing.tasks:
            closing.patience.works("p2")
            closing.ctx.now += 1.0
            assert not closing.term.fire()
        closing.tasks.clear()
        assert closing.ctx.now - began == pytest.approx(TREATMENT.compute_limit_s, abs=1.1)


@pytest.mark.parametrize("name", ["p2", "p4"])
def test_a_peer_that_was_revoked_while_the_sum_was_made_ends_the_context(name: str) -> None:
    """Simulated fleets hardly meet it: the keepers hear of the revocation too, and refuse."""
    closing = Closing()
    closing.ctx.barred[name] = None
    closing.close()
    assert closing.asked() == []
    (renewal,) = closing.tasks
    assert isinstance(renewal, RenewKeys)


def test_pads_for_another_set_end_the_context() -> None:
    closing = Closing()
    closing.close()
    closing.pads("p3")
    closing.pads("p2", members=b"\x07")
    assert [type(task) for task in closing.tasks] == [RenewKeys]
    closing.pads("p4")
    assert len(closing.tasks) == 1


@pytest.mark.parametrize(
    ("refusal", "silent"),
    [(SMALL_CLASS, (1,)), ("it, or the aggregator, has new keys", ())],
    ids=["sets that it knows", "new keys"],
)
def test_a_keeper_that_would_refuse_again_keeps_no_pads_of_the_next_list(refusal: str, silent: tuple[int, ...]) -> None:
    """Otherwise ten exchanges of keys end as the first one did, and the job fails."""
    closing = Closing()
    closing.close()
    closing.term.on_pads("p2", Pads(DOCUMENT.id, 3, 5, STATE.digest, refusal, b"", b"", 0, ()))
    (renewal,) = closing.tasks
    assert isinstance(renewal, RenewKeys)
    assert renewal.silent == silent
