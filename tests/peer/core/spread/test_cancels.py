"""A job that somebody wants ended: agreed like any other end, by whoever aggregates, and kept on every disk."""

from __future__ import annotations

from typing import Any

import pytest
from harness import Net, toy

from p2pclust.peer.core.effects import Persist, Send
from p2pclust.peer.core.events import Cancel, Woken
from p2pclust.peer.core.job_messages import Adopted, Open
from p2pclust.peer.core.messages import FactDelta
from p2pclust.peer.core.reports import Report


def held(n: int = 3, **fields: Any) -> tuple[Net, str]:
    """A fleet whose peers' answers are held back; p1 aggregates term 1."""
    net = Net(n, manual=lambda message: isinstance(message, Adopted))
    net.meet()
    return net, net.submit("p1", toy(3), aggregator="p1", **fields)


def let_go(net: Net) -> None:
    net.manual = lambda message: False
    net.deliver()


def ends_cancelled(net: Net, job: str, n: int, state: str = "s0[]") -> None:
    net.until(lambda: len(net.finished(job)) == n)
    assert set(net.states(job).values()) == {state}


@pytest.mark.parametrize("asked", ["p1", "p3"])
def test_any_peer_may_be_asked(asked: str) -> None:
    net, job = held()
    net.step(asked, Cancel(job, "admin"))
    let_go(net)
    ends_cancelled(net, job, 3)
    assert [fields["by"] for _, fields in net.verbs("cancelling")] == ["admin"]


def test_each_peer_acts_on_it_once_as_soon_as_it_learns_of_it() -> None:
    net, job = held()
    net.step("p2", Cancel(job, "admin"))
    assert sorted(name for name, _ in net.verbs("cancel")) == ["p1", "p2", "p3"]
    let_go(net)
    net.advance(30.0)
    assert len(net.verbs("cancel")) == 3


def test_nobody_is_waited_for_but_a_majority() -> None:
    """With missing = "all" a dead peer stops the job for good; it can still be cancelled."""
    net, job = held(missing="all")
    net.crash("p3")
    let_go(net)
    net.advance(60.0)
    assert net.finished(job) == []
    net.step("p2", Cancel(job, "admin"))
    ends_cancelled(net, job, 2, "s1[]")


def test_a_minority_ends_nothing_and_the_rest_learns_of_it() -> None:
    net, job = held(5)
    for name in ("p3", "p4", "p5"):
        net.crash(name)
    net.step("p2", Cancel(job, "admin"))
    let_go(net)
    net.advance(30.0)
    assert net.finished(job) == []
    net.start("p3", "p4", "p5")
    ends_cancelled(net, job, 5)


def test_it_survives_the_aggregator() -> None:
    net, job = held()
    net.step("p1", Cancel(job, "admin"))
    net.crash("p1")
    let_go(net)
    ends_cancelled(net, job, 2)
    net.start("p1")
    ends_cancelled(net, job, 3)


def test_it_survives_everybody() -> None:
    """It is on disk before it is told, so a blackout loses nothing."""
    net, job = held()
    net.step("p2", Cancel(job, "admin"))
    for name in net.names:
        net.crash(name)
    net.flight.clear()
    net.manual = lambda message: False
    net.start()
    ends_cancelled(net, job, 3)


def test_it_is_on_disk_before_it_is_told() -> None:
    net, job = held()
    before = len(net.peers["p2"].effects)
    net.step("p2", Cancel(job, "admin"))
    effects = net.peers["p2"].effects[before:]
    kept = next(i for i, e in enumerate(effects) if isinstance(e, Persist) and e.table == "cancel")
    told = next(i for i, e in enumerate(effects) if isinstance(e, Send) and isinstance(e.message, FactDelta))
    assert kept < told
    assert effects[kept].sync  # type: ignore[attr-defined]


def test_it_is_too_late_when_the_final_state_is_open() -> None:
    net = Net(3, manual=lambda message: isinstance(message, Open) and message.final)
    net.meet()
    job = net.submit("p1", toy(1), aggregator="p1")
    net.until(lambda: bool(net.flight))
    net.step("p1", Cancel(job, "admin"))
    let_go(net)
    net.until(lambda: len(net.finished(job)) == 3)
    assert set(net.states(job).values()) == {"s1[0,1,2]"}
    assert net.verbs("cancelling") == []
    net.step("p2", Cancel(job, "admin", "7"))
    assert net.verbs("refused") == [("p2", {"reason": "too late: the job has ended", "asked": "7"})]


def test_what_is_not_known_is_refused() -> None:
    net, _ = held()
    net.step("p2", Cancel("job-x", "admin", "7"))
    ((name, fields),) = net.verbs("refused")
    assert (name, fields["asked"]) == ("p2", "7")
    assert fields["reason"] == "this peer does not know the job job-x"


def test_it_may_come_before_the_document() -> None:
    """Facts of two owners overtake each other: the cancel waits for the job."""
    net = Net(3)
    net.meet()
    net.lost = lambda packet: (
        packet.target == "p3" and isinstance(packet.message, FactDelta) and packet.message.keys[0].startswith("job/")
    )
    net.manual = lambda message: isinstance(message, Adopted)
    job = net.submit("p1", toy(3), aggregator="p1")
    net.step("p2", Cancel(job, "admin"))
    assert job not in net.core("p3").jobs.jobs
    net.lost = lambda packet: False
    net.until(lambda: job in net.core("p3").jobs.jobs)
    assert net.core("p3").jobs.cancels.by(job) == "admin"
    let_go(net)
    ends_cancelled(net, job, 3)


def test_the_row_stays_as_long_as_the_job_is_kept() -> None:
    net, job = held()
    net.step("p2", Cancel(job, "admin"))
    let_go(net)
    ends_cancelled(net, job, 3)
    for name in net.names:
        net.crash(name)
    net.start()
    for name, peer in net.peers.items():
        assert job in peer.disk.load().tables["cancel"]
        peer.core.jobs.forget(job)
        net.step(name, Woken())
        assert "cancel" not in peer.disk.load().tables


def test_only_the_first_is_told() -> None:
    net, job = held()
    net.step("p2", Cancel(job, "ann"))
    net.step("p3", Cancel(job, "bob"))
    let_go(net)
    ends_cancelled(net, job, 3)
    told = [report.fields for _, report in net.reports if isinstance(report, Report) and report.verb == "cancelling"]
    assert len(told) == 1
