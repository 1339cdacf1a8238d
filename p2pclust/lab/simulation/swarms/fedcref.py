"""Swarm testing of FedCRef: the faults of :mod:`swarm` while peers fetch models and run child jobs.

It has seeds of its own, because torch is an extra: a seed of the other swarm must be the same run on every machine. The jobs
are tiny; what is tested is the order of events. After all faults have healed, every peer must have finished with the same
state, which others can read; the labels of every peer must name groups of that state; and no child job may be left, in
memory or on disk.

Bits are not compared with an in-process run here: which groups got a model depends on the peers that were present in a child
job, and no log records these. Without faults bits are compared (tests/simulation/test_fedcref.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import numpy as np

from p2pclust.lab.simulation.checks.groups import judge_labels, judge_leftovers
from p2pclust.lab.simulation.swarms import plan as plans
from p2pclust.lab.simulation.swarms.marks import Marks
from p2pclust.lab.simulation.swarms.overlays import laid_out
from p2pclust.lab.simulation.swarms.plan import SwarmPlan
from p2pclust.lab.simulation.swarms.swarm import SeedResult, Swarm
from p2pclust.lab.simulation.world.observer import Observer
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.lab.simulation.world.world import World
from p2pclust.peer.core.effects import Effect
from p2pclust.peer.core.reports import Report
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.job import Job, JobState, Stage
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.wire import decode_state
from p2pclust.protocols.models.fedcref_agreed import Agreed

#: After all have finished: by then the last of them has dropped what it need not keep.
SETTLE_S: Final = 5.0
_N_FEATURES: Final = 6


def draw(seed: int) -> SwarmPlan:
    """Draw the plan of a seed: that of the other swarm, for a job that has more phases and takes longer."""
    rng = np.random.default_rng([seed, 7])
    plan = plans.draw(seed)
    return replace(
        plan,
        protocol="fedcref",
        init=str(rng.choice(["refined", "refined", "paper"])),
        missing=str(rng.choice(["wait", "wait", "wait", "all", "drop"])),
        deadline_s=20.0,
        participation=1.0,
        compute_s=(0.001, float(rng.choice([0.05, 0.3, 1.0]))),
        blackouts=tuple(rng.uniform(1.0, 15.0, int(rng.random() < 0.15)).tolist()),
        phase_crashes=tuple(
            (phase, int(rng.integers(1, 25)) if phase != "closing" else int(rng.integers(1, 4)), after)
            for phase, _, after in plan.phase_crashes
        ),
    )


class _Within(Observer):
    """Counts what happened to jobs within the job."""

    watches = (Report,)

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self._jobs: dict[str, None] = {}

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        if not isinstance(effect, Report):
            return
        if effect.verb == "job" and "within" in effect.fields:
            self._jobs[str(effect.fields["job"])] = None
        elif effect.verb == "elected" and effect.fields["job"] in self._jobs and int(effect.fields["term"]) > 1:
            self._marks.counts["another aggregator within"] += 1
        elif effect.verb == "finished" and effect.fields["job"] in self._jobs:
            self._marks.counts["finished within"] += 1


class FedCRefSwarm(Swarm):
    """One run."""

    def __init__(self, plan: SwarmPlan) -> None:
        super().__init__(plan)
        self.world.watch(_Within(self.marks))

    def _locals(self, rng: np.random.Generator) -> dict[str, Local]:
        return labelled(self.names, rng)

    def _job(self) -> Job:
        return tiny_job(self.plan.init, self.plan.seed)

    def _judge_result(self, state: JobState) -> None:
        decode_state(self.job, state.encode())  # raises if others could not read it
        agreed = Agreed.of(state.arrays)
        self.marks.counts["groups"] += agreed.n_groups
        self.marks.counts["groups without a model"] += agreed.n_groups - len(engine.results(self.job, state))
        self.world.run_until(self.world.now + SETTLE_S)
        for peer in self.world.peers.values():
            judge_leftovers(peer, [self.marks.job])
            judge_labels(self.world, peer, self.marks.job, self.job, state, self.names)


def labelled(names: Iterable[str], rng: np.random.Generator) -> dict[str, Local]:
    """Draw three kinds of rows, two of them at each peer; one label in ten is wrong."""
    kinds = rng.random((3, _N_FEATURES))
    made = {}
    for name in names:
        truth = np.repeat(rng.choice(3, 2, replace=False), rng.integers(8, 14, 2))
        X = np.clip(kinds[truth] + rng.normal(0, 0.05, (len(truth), _N_FEATURES)), 0, 1)
        wrong = rng.random(len(truth)) < 0.1
        labels = np.unique(truth, return_inverse=True)[1]
        made[name] = Local(X, labels=np.where(wrong, 1 - labels, labels), n_clusters=2)
    return made


def tiny_job(mode: str, seed: int) -> Job:
    """Return a FedCRef job on such rows, refined or as the paper has it, that takes little time."""
    bounds = {"lo": [0.0] * _N_FEATURES, "hi": [1.0] * _N_FEATURES}
    length = {"max_refinements": 2} if mode == "refined" else {"max_iterations": 2, "theta": 0.5}
    parameters = {
        "mode": mode, "initial": "given", "hidden": [3], "output": "linear", "epochs": 6, "batch": 8, "rounds": 2,
        "learning_rate": 0.02, "federated_rate": 0.02, "min_rows": 4, **length,
    }  # fmt: skip
    return Job((Stage("range", {"rows_needed": 1, **bounds}), Stage("minmax"), Stage("fedcref", parameters)), seed)


def run(seed: int, *, overlay: str | None = None) -> SeedResult[SwarmPlan]:
    """Run one seed, on a full mesh or an overlay that is ``sparse`` or ``moving``; no `failure` if nothing was wrong."""
    return FedCRefSwarm(laid_out(draw(seed), overlay)).go()
