"""A client is told that its job is accepted when a majority of the roster has it on disk, and not before."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from harness import Net, Packet, toy

from p2pclust.lab.simulation.world.peer import paper_roster
from p2pclust.peer.core.context import Context
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.events import Submit
from p2pclust.peer.core.job_messages import Synced
from p2pclust.peer.core.jobs.submission import Submissions
from p2pclust.peer.core.reports import JobAccepted
from p2pclust.peer.core.timing import PRESETS, Limits
from p2pclust.peer.core.treatment import Treatment

NAMES = ("p1", "p2", "p3", "p4", "p5")
STORES = tuple(f"store-{name}" for name in NAMES)
DOCUMENT = Document(b"job", NAMES, STORES, Treatment(patience_s=1.0, compute_limit_s=60.0, collect="star"), "p1", "1")


def accepted(net: Net, job: str) -> list[str]:
    return [name for name, fields in net.verbs("accepted") if fields["job"] == job]


def silent(packet: Packet) -> bool:
    return isinstance(packet.message, Synced)


@pytest.mark.parametrize("restart", [False, True], ids=["", "after-a-restart"])
def test_a_submission_that_is_repeated_waits_for_a_majority_like_the_first(restart: bool) -> None:
    net = Net(3)
    net.meet()
    net.hold_work = lambda name, effect: True
    net.lost = silent
    job = net.submit("p1", toy(3), request="mine")
    if restart:
        net.crash("p1")
        net.start("p1")
    net.step("p1", Submit(toy(3), asked="again", request="mine"))
    assert [fields["job"] for _, fields in net.verbs("submitted")] == [job, job]
    net.advance(3.0)
    assert accepted(net, job) == [], "it is on the disk of p1 alone, as far as p1 knows"
    net.lost = lambda packet: False
    net.until(lambda: accepted(net, job) == ["p1"])


def test_a_revoked_peer_counts_for_no_acceptance() -> None:
    ctx = Context("p1", PRESETS["fast"], Limits(), np.random.default_rng(0), "store-p1")
    acceptance = Submissions(ctx, cast(Any, None))
    acceptance.await_(DOCUMENT)
    for name in ("p1", "p2"):
        acceptance.synced(name, DOCUMENT.id)
    acceptance.revoked("p2")
    acceptance.synced("p3", DOCUMENT.id)
    assert ctx.effects == []
    acceptance.synced("p4", DOCUMENT.id)
    assert ctx.effects == [JobAccepted(job=DOCUMENT.id)]


def test_a_peer_that_is_revoked_while_others_are_asked_counts_for_no_acceptance() -> None:
    net = Net(5)
    net.give(paper_roster(1, net.names), *net.names)
    net.meet()
    net.hold_work = lambda name, effect: True
    net.lost = lambda packet: silent(packet) and packet.source != "p2"
    job = net.submit("p1", toy(3))
    net.advance(1.0)
    net.give(paper_roster(2, ("p1", "p3", "p4", "p5")), "p1")
    net.lost = lambda packet: silent(packet) and packet.source != "p3"
    net.advance(3.0)
    assert accepted(net, job) == [], "p1 and p3 are two of five"
    net.lost = lambda packet: False
    net.until(lambda: accepted(net, job) == ["p1"])
