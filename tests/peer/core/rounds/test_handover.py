"""States that come from other peers: their bytes are what their digest says, and a wait ends with its own blob only."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.job_messages import Close, HeldState, Open
from p2pclust.peer.core.messages import Message
from p2pclust.peer.core.rounds.handover import Handover, state_of
from p2pclust.peer.core.spread.blobs import Blobs
from p2pclust.peer.core.tasks import Ref
from p2pclust.peer.core.timing import PRESETS, Limits
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.workspace import digest_of

NAMES = ("p1", "p2", "p3")
DOCUMENT = Document(b"job", NAMES, NAMES, Treatment(patience_s=1.0, collect="star"), "p1", "1")
JOB = DOCUMENT.id

MESSAGES = pytest.mark.parametrize(
    "message",
    [
        lambda digest, size, state: Open(JOB, 1, 1, digest, size, False, -1, state),
        lambda digest, size, state: HeldState(JOB, 1, 1, 1, digest, size, state),
        lambda digest, size, state: Close(JOB, 1, 1, digest, size, state),
    ],
    ids=["open", "held-state", "close"],
)
Made = Callable[[bytes, int, tuple[bytes, ...]], Open | HeldState | Close]


def a_context() -> Context:
    return Context("p1", PRESETS["fast"], Limits(inline_bytes=100, chunk_bytes=64), np.random.default_rng(0), "s")


@MESSAGES
def test_the_bytes_of_a_state_are_compared_with_its_digest(message: Made) -> None:
    ctx = a_context()
    blobs = Blobs(ctx, {}, frozenset())
    good, bad = (
        message(digest_of(b"state"), 5, (b"state",)),
        message(digest_of(b"state"), 5, (b"other",)),
    )
    assert state_of(ctx, blobs, DOCUMENT, bad, "p2", lambda: NAMES) is None
    assert [effect.verb for effect in ctx.effects] == ["corrupt"]  # type: ignore[attr-defined]
    assert state_of(ctx, blobs, DOCUMENT, good, "p2", lambda: NAMES) == Ref(digest_of(b"state"), 5, b"state")


def test_a_wait_for_a_state_ends_with_its_own_blob_only() -> None:
    ctx = a_context()
    handover = Handover(ctx, Blobs(ctx, {}, frozenset()), DOCUMENT)
    wanted: Message = HeldState(JOB, 1, 1, 1, digest_of(b"wanted"), 1000, ())
    assert isinstance(wanted, HeldState)
    assert handover.resolve("p2", wanted, ()) is None
    assert handover.ready(digest_of(b"another")) is None
    assert handover.in_use() == [digest_of(b"wanted")]
    assert handover.ready(digest_of(b"wanted")) == wanted
    assert handover.in_use() == []
