"""Blobs that no job needs are dropped, but not while a task may read them."""

from __future__ import annotations

from harness import Net, toy

from p2pclust.peer.core.effects import DropBlob
from p2pclust.peer.core.events import Woken
from p2pclust.protocols.engine.workspace import digest_of


def test_a_blob_is_dropped_when_the_last_task_has_ended() -> None:
    net = Net(3)
    net.meet()
    net.hold_work = lambda name, effect: name == "p1"
    net.submit("p1", toy(2))
    net.until(lambda: any(name == "p1" for name, _, _ in net.tasks))
    digest, core = digest_of(b"read by the task"), net.core("p1")
    core.blobs.made(digest)

    def dropped() -> bool:
        return any(effect == DropBlob(digest) for effect in net.peers["p1"].effects)

    net.step("p1", Woken())
    assert core.blobs.has(digest)
    assert not dropped()
    net.hold_work = lambda name, effect: False
    net.do_work()
    net.until(dropped)
    assert not core.blobs.has(digest)
