"""States that come from other peers: their bytes are what their digest says."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.job_messages import Close, HeldState, Open
from p2pclust.peer.core.rounds.states import States
from p2pclust.peer.core.spread.blobs import Blobs
from p2pclust.peer.core.tasks import Ref
from p2pclust.peer.core.timing import PRESETS, Limits
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.workspace import digest_of

NAMES = ("p1", "p2", "p3")
DOCUMENT = Document(b"job", NAMES, NAMES, Treatment(patience_s=1.0, compute_limit_s=60.0, collect="star"), "p1", "1")
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


@MESSAGES
def test_the_bytes_of_a_state_are_compared_with_its_digest(message: Made) -> None:
    ctx = Context("p1", PRESETS["fast"], Limits(inline_bytes=100, chunk_bytes=64), np.random.default_rng(0), "s")
    blobs = Blobs(ctx, {}, frozenset())
    job = SimpleNamespace(context=ctx, membership=None, blobs=blobs, document=DOCUMENT, ledger=None)
    part = States(cast(Any, job), lambda name: None)
    good, bad = (
        message(digest_of(b"state"), 5, (b"state",)),
        message(digest_of(b"state"), 5, (b"other",)),
    )
    assert part._state_of(bad, "p2") is None
    assert [effect.verb for effect in ctx.effects] == ["corrupt"]  # type: ignore[attr-defined]
    assert part._state_of(good, "p2") == Ref(digest_of(b"state"), 5, b"state")
