"""From the faults of a scenario to those that a backend carries out, with their victims and moments."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from p2pclust.errors import UsageError
from p2pclust.lab.scenario.file.schema import FaultSpec, Scenario
from p2pclust.lab.testbed.faults import Fault
from p2pclust.peer.core.timing import preset

# The random streams of victims and of instants. The numbers of p2pclust.protocols.engine.random_streams are far below.
_VICTIMS = 1000
_INSTANTS = 1001


def planned(scenario: Scenario, n_features: int = 2) -> tuple[Fault, ...]:
    """Return the faults of a scenario, each with its victims and its moment; random choices depend only on its seed.

    A fault at several devices becomes one fault for each of them; a cut stays one fault, because it has two sides. A
    rate becomes one fault for each of its instants, each with its own victims.

    >>> made = Scenario.model_validate({
    ...     "data": {"source": "iris"}, "fleet": {"peers": 3}, "jobs": [{"protocol": "llf-cm", "clusters": 3}],
    ...     "faults": [
    ...         {"do": "kill", "who": "all", "at": {"seconds": 1}},
    ...         {"do": "cut", "who": "peer-02", "at": {"round": 4}},
    ...     ],
    ... })
    >>> [str(fault) for fault in planned(made)][2:]
    ['kill of peer-03 at 1.0 s', 'cut of peer-02 from all other peers at round 4 (adopting)']
    """
    rng = _stream(scenario.seed, _VICTIMS)
    # By default a peer that restarts stays down long enough for an election.
    down_s = 2 * preset(scenario.fleet.timing).election_max_s
    faults: list[Fault] = []
    for index, spec in enumerate(scenario.faults):
        if spec.how == "shuffle" and n_features < 2:
            raise UsageError(f"[faults.{index}]: how = 'shuffle': a single column cannot be shuffled")
        if spec.at.rate_per_minute is None:
            moments: list[tuple[float | None, str]] = [(spec.at.seconds, "")]
        else:
            moments = _drawn(spec, _stream(scenario.seed, _INSTANTS, index), f"(faults.{index})")
        for seconds, drawn in moments:
            victims = scenario.victims(spec, rng)
            together = spec.do in ("cut", "heal") or not victims  # no name means the aggregator
            each: list[tuple[str, ...]] = [victims] if together else [(name,) for name in victims]
            faults += [
                Fault(
                    spec.do, who, spec.at.round, spec.phase, seconds,
                    down_s if spec.do == "restart" and spec.for_s is None else spec.for_s,
                    spec.within, spec.at.job, scenario.called(spec.apart_from), spec.one_way, spec.factor or 1.0,
                    spec.probability or 0.0, spec.how or "", drawn,
                )
                for who in each
            ]  # fmt: skip
    return tuple(faults)


def away_s(faults: Sequence[Fault]) -> float:
    """Return the longest duration of a fault, or the time until the last peer is brought back."""
    lasting = max((fault.for_s or 0.0 for fault in faults), default=0.0)
    ends = max((fault.seconds or 0.0 for fault in faults if fault.do in ("heal", "resume", "join")), default=0.0)
    return max(lasting, ends)


def _stream(seed: int, *key: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy=seed, spawn_key=key)))


def _drawn(spec: FaultSpec, rng: np.random.Generator, which: str) -> list[tuple[float | None, str]]:
    """Return the instants of a Poisson process; without any, one fault that is reported as never having struck."""
    assert spec.at.rate_per_minute is not None
    assert spec.at.until_s is not None
    begins, ends, rate = spec.at.from_s or 0.0, spec.at.until_s, spec.at.rate_per_minute
    words = f"{rate:g} a minute from {begins:g} to {ends:g} s {which}"
    instants: list[tuple[float | None, str]] = []
    now = begins
    while (now := now + float(rng.exponential(60.0 / rate))) < ends:
        instants.append((math.ceil(now * 1000) / 1000, words))
    return instants or [(None, words)]
