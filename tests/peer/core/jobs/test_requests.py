"""Submissions that are repeated with the same request id, because the answer was lost."""

from __future__ import annotations

from typing import Any

import pytest
from harness import Net, alone, toy

from p2pclust.peer.core.effects import Send
from p2pclust.peer.core.events import Arrived, Submit, Woken
from p2pclust.peer.core.messages import Ack, Gossip, Ping, Update
from p2pclust.peer.core.reports import Report
from p2pclust.peer.core.timing import PRESETS
from p2pclust.peer.core.treatment import TOLERANCE


def met(n: int = 3) -> Net:
    net = Net(n)
    net.meet()
    return net


def answers(net: Net, at: str, job: bytes, request: str) -> list[tuple[str, Any]]:
    """What the client at that peer is answered to a submission: the reports, without other jobs' events."""
    before = len(net.reports)
    net.step(at, Submit(job, asked="me", request=request))
    net.until(lambda: any(report.verb in ("accepted", "refused") for _, report in net.reports[before:]))
    reports = [report for name, report in net.reports[before:] if name == at]
    return [(r.verb, r.fields) for r in reports if r.verb in ("submitted", "accepted", "refused")]


@pytest.mark.parametrize("ended", [False, True], ids=["running", "ended"])
@pytest.mark.parametrize("restart", [False, True], ids=["", "after-a-restart"])
def test_the_same_peer_answers_with_the_same_job(ended: bool, restart: bool) -> None:
    net = met()
    if not ended:
        net.hold_work = lambda name, effect: True
    job = net.submit("p1", toy(3), request="mine")
    if ended:
        net.until(lambda: len(net.finished(job)) == 3)
    if restart:
        net.crash("p1")
        net.start("p1")
    said = answers(net, "p1", toy(3), "mine")
    assert [(verb, fields["job"]) for verb, fields in said] == [("submitted", job), ("accepted", job)]
    assert list(net.core("p1").jobs.jobs) == [job]


def test_another_peer_that_knows_the_job_says_where_it_was_submitted() -> None:
    net = met()
    job = net.submit("p1", toy(3), request="mine")
    net.until(lambda: len(net.finished(job)) == 3)
    ((verb, fields),) = answers(net, "p2", toy(3), "mine")
    assert (verb, fields["reason"]) == (
        "refused",
        f"'mine' was already submitted, at p1, as {job}: ask there, or watch that job",
    )


def test_the_id_of_another_job_is_refused() -> None:
    net = met()
    job = net.submit("p1", toy(3), request="mine")
    ((verb, fields),) = answers(net, "p1", toy(4), "mine")
    assert (verb, fields["reason"]) == (
        "refused",
        f"'mine' is already the id of {job}, which is another job: choose another id",
    )


def test_both_of_two_that_wait_for_store_ids_get_one_job() -> None:
    net = met()
    net.peers["p1"].core.membership.members["p3"].store_id = ""  # type: ignore[union-attr]
    for asked in ("one", "two"):
        net.step("p1", Submit(toy(3), asked=asked, request="mine"))
    net.until(lambda: len(net.verbs("submitted")) == 2)
    assert len({fields["job"] for _, fields in net.verbs("submitted")}) == 1
    assert len(net.core("p1").jobs.jobs) == 1


def test_a_submission_asks_for_a_store_id_again_and_is_refused_when_none_comes() -> None:
    core, names = alone(fleet=8), tuple(f"p{i + 1}" for i in range(8))
    claims = (Update(name, "alive", 1, f"{name}:1", "" if name == "p2" else f"store-{name}", "") for name in names[1:])
    core.step(0.0, Arrived("p3", Gossip(tuple(claims))))
    effects, n_pings = core.step(0.1, Submit(toy(3), names, asked="me", request="mine")), 0
    while not (refused := [e for e in effects if isinstance(e, Report) and e.verb == "refused"]):
        assert core.wake_at < 60.0, "it waits indefinitely"
        now = core.wake_at
        came = core.step(now, Woken())
        effects += came
        for ping in [e for e in came if isinstance(e, Send) and isinstance(e.message, Ping)]:
            n_pings += ping.to == "p2"
            effects += core.step(now, Arrived(ping.to, Ack(ping.message.seq, True, ())))  # type: ignore[attr-defined]
    assert refused[0].fields["reason"] == "not enrolled, or never seen by this peer: p2"
    assert n_pings >= (core.wake_at - 0.1) // PRESETS["fast"].retry_s - 1, "probes alone come more rarely"


@pytest.mark.parametrize("n", [1, 2])
def test_the_peer_that_was_asked_counts_for_the_majority_that_accepts(n: int) -> None:
    net = Net(n)
    net.meet()
    job = net.submit("p1", toy(1))
    net.until(lambda: bool(net.verbs("accepted")))
    assert [(name, fields["job"]) for name, fields in net.verbs("accepted")] == [("p1", job)]


@pytest.mark.parametrize(("asked", "agreed"), [(0.0, TOLERANCE), (1e-3, 1e-3)])
def test_a_gossip_job_has_the_tolerance_that_was_asked_for(asked: float, agreed: float) -> None:
    net = met()
    job = net.submit("p1", toy(1), collect="gossip", gossip_tolerance=asked)
    assert net.core("p1").jobs.jobs[job].document.treatment.gossip_tolerance == agreed


def test_a_repeated_job_is_found_by_its_id_many_turns_later() -> None:
    net = met()
    net.submit("p1", toy(1), every_s=2.0, request="mine")
    ((_, first),) = net.verbs("submitted")
    series = str(first["series"])
    net.until(lambda: any(d.number == 3 for d in net.core("p1").jobs.table.turns(series)), 120.0)
    said = answers(net, "p1", toy(1), "mine")
    assert [(verb, fields.get("series")) for verb, fields in said] == [("submitted", series), ("accepted", None)]
