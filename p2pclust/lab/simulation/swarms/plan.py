"""What a seed draws: a fleet, its network and its faults."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from p2pclust.lab.simulation.world.network import Conditions
from p2pclust.peer.core.timing import Limits, Timing, preset

#: How long anything may go wrong in a run; then all heals.
FAULTS_UNTIL_S: Final = 25.0
_PHASES: Final = ("opening", "adopting", "combining", "closing")
#: After how many more effects such a crash may come. An adopter writes its register at once, and after 2 effects it is
#: written but not synced.
_EFFECTS: Final = {"opening": (0, 9), "adopting": (1, 4), "combining": (0, 2), "closing": (0, 9)}


@dataclass(frozen=True)
class SwarmPlan:
    """Everything that a seed drew."""

    seed: int
    n_peers: int
    protocol: str
    missing: str
    init: str
    participation: float
    named_aggregator: bool
    timing: Timing
    limits: Limits
    conditions: Conditions
    compute_s: tuple[float, float]
    phase_crashes: tuple[tuple[str, int, int], ...]  # phase, at its how-manieth occurrence, after how many effects
    crashes: tuple[tuple[float, int, float, bool], ...]  # instant, peer, down for, wiped meanwhile
    cuts: tuple[tuple[float, int, float, bool], ...]  # instant, peer, for, one direction only
    pauses: tuple[tuple[float, int, float], ...]
    deadline_s: float = 2.0  # of a round, where missing is "drop"
    blackouts: tuple[float, ...] = ()  # instants at which all peers crash
    links: tuple[tuple[int, int], ...] = ()  # of a sparse overlay
    known: bool = True  # whether all peers know the whole overlay from the start
    collect: str = "star"
    moves: tuple[
        tuple[float, int, int], ...
    ] = ()  # instant, peers whose link comes or goes; ALL_LINKS: all of the first's
    last_links: tuple[tuple[int, int], ...] = ()  # after everything healed, where links change


def draw(seed: int) -> SwarmPlan:
    """Draw the plan of a seed; nothing else of the run is random."""
    rng = np.random.default_rng([seed, 0])
    n = int(rng.integers(3, 8))
    timing = preset("fast" if rng.random() < 0.5 else "default")
    small = rng.random() < 0.3  # make blobs of these small states
    tail = float(rng.choice([0.0, 0.0, 0.02, 0.1]))

    def instants(k: int) -> list[float]:
        return [float(t) for t in rng.uniform(0.5, FAULTS_UNTIL_S, k)]

    return SwarmPlan(
        seed=seed,
        n_peers=n,
        protocol=str(rng.choice(["llf-cm", "llf-fcm"])),
        missing=str(rng.choice(["wait", "wait", "all", "drop"])),
        init=str(rng.choice(["uniform", "random"])),
        participation=float(rng.choice([1.0, 1.0, 0.6])),
        named_aggregator=bool(rng.random() < 0.2),
        timing=replace(timing, patience_s=float(rng.choice([1.0, 4.0, 8.0]))),
        limits=Limits(inline_bytes=300, chunk_bytes=128) if small else Limits(),
        conditions=Conditions(
            delay_s=(0.001, float(rng.choice([0.005, 0.05, 0.2]))),
            tail_probability=tail,
            loss=float(rng.choice([0.0, 0.05, 0.15, 0.3])),
            duplicates=float(rng.choice([0.0, 0.1, 0.5])),
        ),
        compute_s=(0.001, float(rng.choice([0.01, 0.3, 1.5]))),
        phase_crashes=tuple(
            (str(phase), int(rng.integers(1, 5)) if phase != "closing" else 1, int(rng.integers(*_EFFECTS[phase])))
            for phase in rng.permutation(_PHASES)[: int(rng.integers(0, 4))]
        ),
        crashes=tuple(
            (at, int(rng.integers(n)), float(rng.uniform(0.05, 10.0)), bool(rng.random() < 0.25))
            for at in instants(int(rng.integers(0, 4)))
        ),
        cuts=tuple(
            (at, int(rng.integers(n)), float(rng.uniform(0.5, 12.0)), bool(rng.random() < 0.4))
            for at in instants(int(rng.integers(0, 3)))
        ),
        pauses=tuple(
            (at, int(rng.integers(n)), float(rng.uniform(0.2, 12.0))) for at in instants(int(rng.integers(0, 3)))
        ),
    )
