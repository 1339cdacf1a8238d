"""Many seeds of the swarm, and the seeds that once found a bug."""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import pytest

from p2pclust.errors import UsageError
from p2pclust.lab.simulation.fleets.run import planned, run
from p2pclust.peer.core.treatment import Treatment

SEEDS = range(300)

#: What the seeds must have met often enough to prove anything: 20 times in 300 seeds, 4 times in 60.
OFTEN = (
    "aggregator crashed while opening",
    "aggregator crashed while combining",
    "aggregator crashed while closing",
    "deposed aggregator's late message",
    "restart with lost writes",
    "wiped store",
)
#: What they must have met at all.
MET = (
    "peer crashed while adopting", "aggregator deposed", "blob pulled", "fault: cut", "fault: cut-in", "late answer",
    "message carried for others", "message cut", "message delayed", "message duplicated", "message lost",
    "message relayed through others", "minority waited", "fault: pause", "peer left out", "proposer replaced", "refuted",
)  # fmt: skip


@pytest.mark.swarms
@pytest.mark.timeout(600)
def test_many_seeds_break_no_promise_and_meet_every_misfortune() -> None:
    n_seeds = len(SEEDS)
    # Interpreters of their own: nothing of this process, of other tests or of a fork can leak into a run.
    n_workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    counts: Counter[str] = Counter()
    failed: list[str] = []
    with ProcessPoolExecutor(min(n_workers, 8), mp_context=multiprocessing.get_context("spawn")) as pool:
        runs = {seed: pool.submit(run, seed, "") for seed in SEEDS}
        for seed, ran in runs.items():
            error = ran.exception()
            failure = repr(error) if error is not None else ran.result().failure
            if failure:
                failed.append(f"seed {seed}: {failure}\nreplay it: p2pclust simulate --seeds {seed}:{seed + 1}")
            else:
                counts += ran.result().counts
    assert not failed, f"{len(failed)} of {n_seeds} seeds failed\n\n" + "\n\n".join(failed[:5])
    rare = {what: counts[what] for what in OFTEN if counts[what] < n_seeds // 15}
    assert not rare, f"met fewer than {n_seeds // 15} times: {rare}"
    missing = [what for what in MET if not counts[what]]
    assert not missing, f"never met: {missing}"
    # A job whose only holder was wiped before anybody else had it is no job any more; that is rare.
    assert counts["finished"] >= 0.95 * n_seeds


class TestRepetition:
    @pytest.mark.slow
    def test_a_seed_is_the_same_run_a_second_time(self) -> None:
        once, again = run(5, ""), run(5, "")
        assert (once.trace, once.n_events, once.counts) == (again.trace, again.n_events, again.counts)

    def test_a_plan_is_a_function_of_the_seed(self) -> None:
        assert planned(8, "") == planned(8, "")
        assert planned(8, "") != replace(planned(9, ""), seed=8)


def test_a_swarm_whose_job_is_refused_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a rule about options that is too strict would leave most worlds without a job, and none would fail."""

    def refuse(treatment: Treatment) -> None:
        raise UsageError("not this one")

    monkeypatch.setattr(Treatment, "check", refuse)
    assert run(0, "").failure.startswith("no peer took the job of this swarm: not this one")
