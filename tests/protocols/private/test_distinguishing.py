"""An attack on whole jobs: with one row or without it? The best test must not succeed more often than is promised.

The attacker knows all other rows, and sees every round's totals of as few peers as may add noise. It tests with the ratio of
likelihoods, which no test beats. Its threshold is chosen on one half of the runs and judged on the other half.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import beta

from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.engine import added_up, floats_of
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.private.private_cm import PrivateCMeansProtocol, shares

RUNS = 2000
EPSILON, DELTA = 1.0, 0.1
CONFIDENCE = 0.999
N_PEERS = 3

JOB = cluster_job(
    "llf-cm", n_clusters=2, bounds=([0.0], [8.0]), init=[[1.0], [6.0]], max_rounds=2, secure=True,
    privacy={"epsilon": EPSILON, "delta": DELTA},
)  # fmt: skip
OTHERS = [np.linspace(0.0, 3.0, 20)[:, np.newaxis], np.linspace(5.0, 7.0, 30)[:, np.newaxis]]
ROW = np.array([[8.0]])  # at the bound, where it changes the sums the most
KNOWN = [Local(X) for X in OTHERS]
ALONE = Local(ROW)
HELD = [KNOWN[0], Local(np.concatenate([OTHERS[1], ROW]))]
BEGUN = engine.begin(JOB)
UNUSED = np.random.default_rng(0)


def statistic(with_row: bool, entropy: Callable[[int], bytes]) -> float:
    """Return the logarithm of the ratio of likelihoods, but for a constant, of all totals of one job."""
    protocol = JOB.protocols[-1]
    assert isinstance(protocol, PrivateCMeansProtocol)
    state, found = BEGUN, 0.0
    while state.status == "running":
        base = [protocol.contribute(state.arrays, local, UNUSED) for local in KNOWN]
        one = protocol.contribute(state.arrays, ALONE, UNUSED)
        held = HELD if with_row else KNOWN
        given = [
            (i, engine.contribution(JOB, state, local, i, N_PEERS, entropy=entropy)) for i, local in enumerate(held)
        ]
        summed, _ = added_up(given, N_PEERS)
        assert summed is not None
        total = floats_of(protocol, state.arrays, summed)
        for name, deviation in (("counts", protocol.count_deviation), ("sums", protocol.sum_deviation)):
            found += float(((total[name] - sum(part[name] for part in base)) * one[name]).sum()) / deviation**2
        state = engine.advance(JOB, state, given, {2: "left out: it knows its own noise"}, n_peers=N_PEERS)
    assert state.status == "done"
    return found


def least_excess() -> float:
    """Return a lower bound of P(said "with" | with) - exp(epsilon) P(said "with" | without), with confidence."""
    found = [
        np.array([statistic(with_row, np.random.default_rng([seed, with_row]).bytes) for seed in range(RUNS)])
        for with_row in (True, False)
    ]
    half = RUNS // 2
    thresholds = np.concatenate(found)
    excess = [(found[0][:half] > t).mean() - math.exp(EPSILON) * (found[1][:half] > t).mean() for t in thresholds]
    best = thresholds[int(np.argmax(excess))]
    hits, false = (int((values[half:] > best).sum()) for values in found)
    least = beta.ppf(1 - CONFIDENCE, hits, half - hits + 1) if hits else 0.0
    most = beta.ppf(CONFIDENCE, false + 1, half - false) if false < half else 1.0
    return float(least - math.exp(EPSILON) * most)


@pytest.mark.slow
def test_the_best_attack_finds_no_more_than_is_promised() -> None:
    assert shares(N_PEERS) == len(OTHERS)
    assert least_excess() <= DELTA


@pytest.mark.long
def test_the_same_attack_finds_half_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = PrivateCMeansProtocol.noise

    def halved(*args: object) -> dict[str, np.ndarray]:
        return {name: noise // 2 for name, noise in honest(*args).items()}  # type: ignore[arg-type]

    monkeypatch.setattr(PrivateCMeansProtocol, "noise", halved)
    assert least_excess() > DELTA
