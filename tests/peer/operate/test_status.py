"""What a peer tells of its jobs to whoever asks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from harness import Net, toy

from p2pclust.peer.core.events import Cancel
from p2pclust.peer.operate.questions import Questions
from p2pclust.peer.operate.server import HERE
from p2pclust.peer.operate.status import Ending, JobStatus, _links, _member, job_snapshot


class Answers:
    """Whoever asks, on this device."""

    name = HERE

    def __init__(self) -> None:
        self.told: list[Any] = []

    def answer(self, fields: Any, *, last: bool = True) -> bool:
        self.told.append(fields)
        return True


def shell_of(net: Net, name: str) -> Any:
    """As much of a shell as a snapshot of a job looks at."""
    store = SimpleNamespace(blobs=SimpleNamespace(read=None))
    return SimpleNamespace(core=net.core(name), outcomes={}, now=net.now, store=store)


def ended(net: Net, name: str, job: str, outcome: str, reason: str) -> JobStatus:
    """What a peer tells of a job that ended so."""
    shell, ref = shell_of(net, name), net.job(name, job).ledger.register.ref
    assert ref is not None
    shell.outcomes[job] = (ref.digest, Ending(outcome, reason))
    return job_snapshot(shell, job)


def test_why_a_job_failed_is_told_with_names() -> None:
    net = Net(3)
    net.meet()
    job = net.submit("p1")
    net.until(lambda: len(net.finished(job)) == 3)
    reason = "align: every peer's columns are needed (peer 0: has 38 rows, peer 2: has none)"
    told = ended(net, "p2", job, "failed", reason)
    assert told.reason == "align: every peer's columns are needed (p1: has 38 rows, p3: has none)"


def test_outcomes_of_deleted_jobs_are_not_kept() -> None:
    net = Net(3)
    net.meet()
    job = net.submit("p1")
    net.until(lambda: len(net.finished(job)) == 3)
    shell = shell_of(net, "p2")
    shell.outcomes["job-deleted"] = (b"", Ending("done"))
    job_snapshot(shell, job)
    assert list(shell.outcomes) == [job]


def test_a_series_that_was_cancelled_says_so_and_a_second_cancel_is_late() -> None:
    """Reference: docs/operations.md, "Day by day"."""
    net = Net(3)
    net.meet()
    job = net.submit("p1", toy(1), every_s=3600.0)
    net.until(lambda: len(net.finished(job)) == 3)
    assert ended(net, "p2", job, "done", "").series_cancelled_by == ""
    net.step("p3", Cancel(job, "desk"))
    net.advance(5.0)
    told = ended(net, "p2", job, "done", "")
    assert (told.series_cancelled_by, told.next_s) == ("desk", None)
    shell = SimpleNamespace(core=net.core("p2"), listen=lambda listener: None, step=lambda event: net.step("p2", event))
    asker = Answers()
    Questions(shell).take(asker, "cancel", {"job": job})  # type: ignore[arg-type]
    series = net.job("p2", job).document.turn
    assert series is not None
    late = {"outcome": "cancelled", "reason": "the series was cancelled by desk", "late": True}
    assert asker.told == [{"job": job, "series": series.series, **late}]


def test_a_peer_that_has_its_keys_of_before_is_not_called_silent() -> None:
    net = Net(2)
    net.meet()
    net.crash("p2")
    net.until(lambda: net.core("p1").membership.status("p2") == "dead")
    shell = shell_of(net, "p1")
    shell.heard, shell.allow_list = {}, SimpleNamespace(outdated={})
    assert "declared dead" in _member(shell, "p2").why or "refused to connect" in _member(shell, "p2").why
    shell.allow_list.outdated["p2"] = None
    assert _member(shell, "p2").why == "it uses revoked keys: copy its new bundle to it"


def test_jobs_are_listed_in_the_order_in_which_they_were_handed_in_also_after_a_restart() -> None:
    net = Net(3)
    net.meet()
    handed_in = [net.submit("p1") for _ in range(6)]
    assert handed_in != sorted(handed_in), "ids know no order"
    net.until(lambda: all(len(net.finished(job)) == 3 for job in handed_in))
    net.crash("p2")
    net.start("p2")
    assert list(net.core("p2").jobs.jobs) == handed_in
    net.until(net.core("p2").membership.all_here)
    newest = net.submit("p3")
    net.until(lambda: newest in net.core("p2").jobs.jobs)
    net.crash("p2")
    net.start("p2")
    assert list(net.core("p2").jobs.jobs) == [*handed_in, newest]


def test_the_links_that_a_peer_knows_of_and_none_on_a_full_mesh() -> None:
    for kind, links in (("12 23", [("p1", "p2"), ("p2", "p3")]), ("", None)):
        net = Net(3, links=kind)
        net.meet()
        assert _links(net.core("p1")) == links
