"""What a keeper reports after the end of a job, and what a peer makes of the reports of others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.peer.core.rounds.test_pads import DOCUMENT, STATE, context

from p2pclust.peer.core.effects import Compute, Persist
from p2pclust.peer.core.round_reports import ReportsSets
from p2pclust.peer.core.rounds.pad_notes import PREFIX, PadNotes
from p2pclust.peer.core.spread.facts import Fact
from p2pclust.peer.core.tasks import ForgetKeys, JobKeys, KeysForgotten, NoResult, Ref

KEY = PREFIX + DOCUMENT.id


class Told:
    """The facts that are known: owner and key to value."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], bytes] = {}

    def publish(self, key: str, value: bytes) -> None:
        self.values["p2", key] = value

    def retract(self, key: str) -> None:
        self.values.pop(("p2", key), None)

    def get(self, owner: str, key: str) -> Fact | None:
        value = self.values.get((owner, key))
        return None if value is None else Fact(owner, key, 1, value)


class Ended:
    """p2, a keeper of a job that has ended, if `finished`."""

    def __init__(self, *sets: int, finished: bool = True) -> None:
        self.ctx, self.facts = context(), Told()
        ledger = SimpleNamespace(finished=finished, register=SimpleNamespace(ref=Ref(STATE, 5, b"state"), round=7))
        self.suspicions: dict[str, tuple[int, str]] = {}
        keys = JobKeys(DOCUMENT.id, DOCUMENT.treatment.secure_sums, bytes(32), (bytes(32),) * 4)
        job = SimpleNamespace(
            context=self.ctx, document=DOCUMENT, membership=None, blobs=None, ledger=ledger, facts=self.facts, keys=keys,
            suspicions=self.suspicions,
        )  # fmt: skip
        self.sets = PadNotes(cast(Any, job), None)
        if sets:
            self.sets.note(STATE, sets[0], sets)
        self.ctx.effects.clear()

    def tasks(self) -> list[Any]:
        return [effect.task for effect in self.ctx.effects if isinstance(effect, Compute)]


def test_the_worker_compares_what_it_knows_with_the_final_state() -> None:
    ended = Ended(0b1110, 0b1111)
    ended.sets.end()
    (task,) = ended.tasks()
    assert isinstance(task, ForgetKeys)
    assert (task.state, task.sets) == (Ref(STATE, 5, b"state"), (0b1110, 0b1111))


@pytest.mark.parametrize("ended", [Ended(finished=False), Ended(0b1110, finished=False)])
def test_without_a_final_state_only_the_keys_are_forgotten(ended: Ended) -> None:
    ended.sets.end()
    (task,) = ended.tasks()
    assert task.state is None


def test_peers_that_the_final_state_proves_wrong_are_suspects_at_a_peer_without_sets_too() -> None:
    ended = Ended()
    ended.sets.end()
    (task,) = ended.tasks()
    assert task.state is not None
    ended.sets.compared(KeysForgotten(proved=(2,)))
    assert ended.suspicions == {"p3": (7, "it has signed a wrong check word")}


def test_what_is_left_out_is_published_and_reported() -> None:
    ended = Ended(0b1110, 0b1111)
    ended.sets.compared(KeysForgotten((0b1110,), (0,)))
    assert msgpack.unpackb(ended.facts.values["p2", KEY]) == [b"\x0e"]
    (report,) = [effect for effect in ended.ctx.effects if isinstance(effect, ReportsSets)]
    assert report.peers == ["p1"]
    assert not any(isinstance(effect, Persist) for effect in ended.ctx.effects), "its notes stay for a restart"
    ended.sets.forget()
    assert ended.facts.values == {}


def test_where_nothing_is_left_out_the_notes_are_deleted_and_no_restart_compares_again() -> None:
    ended = Ended(0b1111)
    ended.sets.compared(KeysForgotten())
    (row,) = ended.ctx.effects
    assert isinstance(row, Persist)
    assert row.value is None
    assert ended.facts.values == {}


def test_after_a_restart_it_compares_again_what_it_has_on_disk() -> None:
    ended = Ended(0b1111)
    ended.sets.go_on()
    assert len(ended.tasks()) == 1
    nothing = Ended()
    nothing.sets.go_on()
    assert nothing.tasks() == []


def test_a_state_that_cannot_be_read_changes_nothing() -> None:
    ended = Ended(0b1111)
    ended.sets.compared(NoResult("failed: not msgpack"))
    assert ended.ctx.effects == []


def test_a_peer_knows_its_own_sets_and_those_that_others_report() -> None:
    ended = Ended(0b1110)
    ended.facts.values["p3", KEY] = msgpack.packb([b"\x07", b"\x0f"])
    ended.facts.values["p4", "sets/another-job"] = msgpack.packb([b"\x07"])
    assert ended.sets.by_keeper() == {"p2": (0b1110,), "p3": (0b111, 0b1111)}


@pytest.mark.parametrize(
    "value",
    [b"", b"\x01", msgpack.packb([7]), msgpack.packb([b""]), msgpack.packb([b"\x10"]), msgpack.packb([b"\x01"] * 65)],
)
def test_reports_that_cannot_be_count_for_nothing(value: bytes) -> None:
    ended = Ended()
    ended.facts.values["p3", KEY] = value
    assert ended.sets.by_keeper() == {}


@given(st.binary(max_size=60))
def test_hostile_reports_do_no_harm(value: bytes) -> None:
    ended = Ended()
    ended.facts.values["p3", KEY] = value
    assert all(0 < one < 16 for sets in ended.sets.by_keeper().values() for one in sets)
