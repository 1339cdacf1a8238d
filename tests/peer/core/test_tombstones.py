"""What was forgotten after its end never begins again, nor anything that belonged to it."""

from __future__ import annotations

import numpy as np

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.effects import Persist
from p2pclust.peer.core.ledger import ENDED, Tombstones
from p2pclust.peer.core.timing import PRESETS, Limits
from p2pclust.peer.core.treatment import Treatment

NAMES = ("p1", "p2", "p3")
TREATMENT = Treatment(patience_s=1.0, compute_limit_s=60.0, collect="star")
PARENT = Document(b"job", NAMES, NAMES, TREATMENT, "p1", "1")
CHILD = Document(b"job", NAMES, NAMES, TREATMENT, "", f"{PARENT.id}/3/child")
OTHER = Document(b"job", NAMES, NAMES, TREATMENT, "p1", "2")


def a_context() -> Context:
    return Context("p1", PRESETS["fast"], Limits(), np.random.default_rng(0), "s")


def test_neither_a_forgotten_job_nor_a_child_of_it_begins_again() -> None:
    ctx = a_context()
    tombstones = Tombstones(ctx, {})
    assert CHILD.parent == PARENT.id
    assert [tombstones.forbids(document) for document in (PARENT, CHILD, OTHER)] == [False, False, False]
    tombstones.bury(PARENT)
    assert [tombstones.forbids(document) for document in (PARENT, CHILD, OTHER)] == [True, True, False]
    assert ctx.effects == [Persist(ENDED, PARENT.id, b"")]
    again = Tombstones(a_context(), {ENDED: {PARENT.id: b""}})
    assert [again.forbids(document) for document in (PARENT, CHILD, OTHER)] == [True, True, False]


def test_the_end_of_a_child_forbids_neither_it_nor_its_parent() -> None:
    """The register of the parent says which rounds are over."""
    tombstones = Tombstones(a_context(), {})
    tombstones.bury(CHILD)
    assert [tombstones.forbids(document) for document in (PARENT, CHILD)] == [False, False]
