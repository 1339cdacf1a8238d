"""`make soak`: many kills, pauses and restarts on real processes, each at a moment drawn from its own seed.

One line of a table per run. Whatever happens, survivors hold the same bits, and they are those of the replay of the run's
own record; whoever was restarted catches up; nobody is left behind.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from runs import a_fleet, a_job, assert_kept_promises, by_verb, carry_out, is_replay, rows

from p2pclust.lab.testbed.faults import Fault
from p2pclust.lab.testbed.spec import FleetResult, FleetSpec
from p2pclust.protocols.engine.job import Job

pytestmark = [pytest.mark.soak, pytest.mark.processes, pytest.mark.timeout(300)]

N = 5
ROUNDS = 150
MANY_ROUNDS = 1000  # of jobs that must still run some seconds later, on a fast machine too


@dataclass(frozen=True)
class Case:
    """One run: what happens, to whom (nobody named: the aggregator), and how its moment is chosen."""

    number: int
    do: str
    aggregator: bool
    moment: str  # a phase, or "seconds"
    n_peers: int = N

    def __str__(self) -> str:
        return (
            f"{self.number:02d}-{self.do}-{'aggregator' if self.aggregator else 'peer'}-{self.moment}-n{self.n_peers}"
        )

    def draw(self) -> tuple[Fault, Job]:
        rng = np.random.default_rng([20240, self.number])
        who = () if self.aggregator else (f"p{int(rng.integers(self.n_peers)):02d}",)
        for_s = {"kill": None, "pause": float(rng.uniform(5, 20)), "restart": float(rng.uniform(0.1, 4))}[self.do]
        protocol = ("llf-cm", "llf-fcm")[int(rng.integers(2))]
        participation = (1.0, 0.6)[int(rng.integers(2))]
        max_rounds = MANY_ROUNDS if self.moment == "seconds" else ROUNDS
        job = a_job(protocol, max_rounds=max_rounds, participation=participation, seed=self.number)
        if self.moment == "seconds":
            # There is an aggregator after a second or so; before that one could hardly be struck.
            at = float(rng.uniform(1.5, 2.2) if self.aggregator else rng.uniform(0.0, 2.2))
            return Fault(self.do, who, seconds=round(at, 3), for_s=for_s), job  # type: ignore[arg-type]
        return Fault(self.do, who, round=int(rng.integers(1, ROUNDS)), phase=self.moment, for_s=for_s), job  # type: ignore[arg-type]


def cases() -> list[Case]:
    kinds = [("kill", True, "closing")] * 4
    kinds += [("kill", True, moment) for moment in ("opening", "combining", "adopting")]
    kinds += [("kill", True, "seconds")] * 3
    kinds += [("kill", False, "adopting")] * 5 + [("kill", False, "seconds")] * 5
    kinds += [("pause", True, "opening"), ("pause", True, "combining"), ("pause", False, "adopting")]
    kinds += [("pause", True, "seconds"), ("pause", False, "seconds")]
    kinds += [("restart", True, "opening"), ("restart", True, "combining"), ("restart", True, "closing")]
    kinds += [("restart", False, "adopting"), ("restart", False, "seconds")]
    return [*(Case(number, *kind) for number, kind in enumerate(kinds)), Case(99, "kill", True, "combining", 20)]


def line(case: Case, fault: Fault, spec: FleetSpec, result: FleetResult) -> str:
    job = result.jobs[0]
    struck = [event["peer"] for event in by_verb(result, "fault")]
    rounds = job.state.round if job.state is not None else "-"
    same = "yes" if len(set(job.digests.values())) == 1 else "NO"
    replayed = "yes" if job.state is not None and is_replay(spec, result) else "NO"
    terms = " ".join(f"{term}:{name}" for term, name in job.terms)
    lasts = "" if fault.for_s is None else f" for {fault.for_s:.1f} s"
    when = f"{fault.seconds} s" if fault.round is None else f"round {fault.round} {fault.phase}"
    when = fault.phase if fault.phase == "closing" else when
    what = f"{fault.do} {','.join(struck) or 'NOBODY'}{' (aggregator)' if case.aggregator else ''} at {when}{lasts}"
    return (
        f"{case.number:>2} | {case.n_peers:>2} | {what:<55} | {terms:<24} | {rounds:>4} | {job.seconds:>5.1f} | "
        f"{len(job.digests):>2} | {same:>4} | {replayed:>6}"
    )


HEAD = (
    f"\n{'no':>2} | {'N':>2} | {'what':<55} | {'terms':<24} | rnds | sec   | of | same | replay\n" + "-" * 130
)  # fmt: skip


@pytest.mark.parametrize("case", cases(), ids=str)
def test_whatever_happens_to_one_peer_the_rest_keeps_every_promise(
    case: Case, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fault, job = case.draw()
    spec = a_fleet(rows(case.n_peers, seed=case.number), job, fault, home=home, seed=case.number)
    result = carry_out("processes", spec)
    with capsys.disabled():
        sys.stdout.write((HEAD if case.number == 0 else "") + "\n" + line(case, fault, spec, result))
        sys.stdout.flush()
    struck = [event["peer"] for event in by_verb(result, "fault")]
    try:
        assert len(struck) == 1
        assert_kept_promises(spec, result, gone=struck if case.do == "kill" else [])
    except AssertionError:
        (home / "events.jsonl").write_text("".join(json.dumps(event, default=str) + "\n" for event in result.events))
        raise


@pytest.mark.timeout(600)
def test_nobody_is_held_dead_while_25_peers_compute(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """More workers than any machine has cores: event loops answer probes and heartbeats all the same."""
    rng = np.random.default_rng(0)
    job = a_job("llf-fcm", n_clusters=20, max_rounds=50)
    result = carry_out("processes", a_fleet([rng.random((20_000, 50)) for _ in range(25)], job, home=home))
    seen = Counter(event["status"] for event in by_verb(result, "member"))
    with capsys.disabled():
        sys.stdout.write(
            f"\n25 peers computed for {result.jobs[0].seconds:.0f} s; what was seen of members: {dict(seen)}\n"
        )
    assert result.failure == ""
    assert "dead" not in seen
    assert len(result.jobs[0].terms) == 1, "the aggregator was never missed"
