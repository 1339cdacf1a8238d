from __future__ import annotations

import hashlib

import numpy as np
import pytest

from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.workspace import Wants, Workspace, digest_of


def state(status: str) -> JobState:
    return JobState(0, 0, 0, status, "", False, 0, (), Arrays())  # type: ignore[arg-type]


def test_a_blob_is_named_by_its_hash() -> None:
    assert digest_of(b"model") == hashlib.blake2b(b"model", digest_size=32).digest()


def test_what_lies_on_a_desk() -> None:
    here = {digest_of(b"theirs"): b"theirs"}
    workspace = Workspace(3, blob=here.get)
    assert workspace.read(digest_of(b"theirs")) == b"theirs"
    assert workspace.read(digest_of(b"mine")) is None
    assert workspace.publish(b"mine") == digest_of(b"mine")
    assert workspace.read(digest_of(b"mine")) == b"mine", "what was published in this very round as well"
    assert workspace.published == [b"mine"]
    assert (workspace.note, workspace.kept) == (Arrays(), None)
    workspace.keep(Arrays(x=np.int64(1)))
    workspace.keep(Arrays(x=np.int64(2)))
    assert workspace.kept == Arrays(x=np.int64(2))
    assert workspace.note == Arrays(), "the note of before stays what a contribution finds"


@pytest.mark.parametrize(("status", "told"), [("done", True), ("failed", False), ("running", False)])
def test_only_a_job_that_ended_well_has_a_result(status: str, told: bool) -> None:
    workspace = Workspace(0, results={"g": state(status)})
    assert (workspace.result("g") is not None) == told
    assert workspace.result("other") is None


def test_nothing_is_wanted_by_default() -> None:
    assert (Wants().fetches, Wants().runs) == ((), ())
