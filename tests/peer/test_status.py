"""What a peer tells of its jobs to whoever asks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from harness import Net

from p2pclust.peer.status import job_snapshot


def shell_of(net: Net, name: str) -> Any:
    """As much of a shell as a snapshot of a job looks at."""
    return SimpleNamespace(core=net.core(name), outcomes={}, now=net.now)


def ended(net: Net, name: str, job: str, outcome: str, reason: str) -> dict[str, Any]:
    """What a peer tells of a job that ended so."""
    shell, ref = shell_of(net, name), net.job(name, job).ledger.register.ref
    assert ref is not None
    shell.outcomes[job] = (ref.digest, outcome, reason)
    return job_snapshot(shell, job)


def test_why_a_job_failed_is_told_with_names() -> None:
    net = Net(3)
    net.meet()
    job = net.submit("p1")
    net.until(lambda: len(net.finished(job)) == 3)
    reason = "align: every peer's columns are needed (peer 0: has 38 rows, peer 2: has none)"
    told = ended(net, "p2", job, "failed", reason)
    assert told["reason"] == "align: every peer's columns are needed (p1: has 38 rows, p3: has none)"
