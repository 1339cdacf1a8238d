"""Decentralised FedAvg: peers train, mix with their neighbours, go on from what they have, and end with one model."""

from __future__ import annotations

import numpy as np
import pytest

from p2pclust.clustering.autoencoders import ModelStack, encode_weights
from p2pclust.clustering.stacks import reconstruction_errors
from p2pclust.jobs.request import JobRequest
from p2pclust.lab.testbed import backend
from p2pclust.lab.testbed.faults import Fault
from p2pclust.lab.testbed.spec import FleetResult, FleetSpec, PeerSpec
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.job import Job, JobState, Stage
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import run_in_process
from p2pclust.protocols.gossip.leaderless import run_leaderless
from p2pclust.protocols.gossip.push_sum import GossipLinks
from p2pclust.protocols.models.fedavg import ModelAverageProtocol

pytestmark = pytest.mark.slow

pytest.importorskip("torch", reason="autoencoders need torch: pip install 'p2pclust[models]'")

N = 6
NAMES = tuple(f"p{i}" for i in range(N))
RING = {name: tuple(sorted((NAMES[i - 1], NAMES[(i + 1) % N]))) for i, name in enumerate(NAMES)}
LINKS = GossipLinks([sorted(((i - 1) % N, (i + 1) % N)) for i in range(N)], "metropolis-hastings")
PARAMETERS = {"hidden": [3, 2, 3], "output": "sigmoid", "rounds": 5, "epochs": 2, "batch": 8, "learning_rate": 0.02}


def a_job(**more: object) -> Job:
    bounds = {"lo": [0.0] * 4, "hi": [1.0] * 4}
    return Job((Stage("range", bounds), Stage("minmax"), Stage("model-average", PARAMETERS | more)), seed=3)


def rows() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    kinds = rng.random((3, 4))
    return [np.clip(kinds[rng.integers(0, 3, 10 + i)] + rng.normal(0, 0.05, (10 + i, 4)), 0, 1) for i in range(N)]


def carry_out(name: str, *faults: Fault, ticks: int = 1) -> FleetResult:
    peers = tuple(PeerSpec(n, X) for n, X in zip(NAMES, rows(), strict=True))
    request = JobRequest(a_job(), Treatment(collect="gossip", gossip_tolerance=1e-6, ticks=ticks))
    spec = FleetSpec(peers, (request,), timing="fast", overlay=RING, faults=faults)
    return backend(name).carry_out(spec, lambda event: None)


def loss(state: JobState) -> float:
    """The mean squared error of the model over all rows."""
    protocol = ModelAverageProtocol(**PARAMETERS)  # type: ignore[arg-type]
    data = encode_weights(state.arrays["model"], "float32")
    model = ModelStack.decode(protocol.architecture(state.arrays), [data], "float32")
    return float(np.mean(reconstruction_errors(model, np.concatenate(rows()))))


def test_one_model_in_the_end_the_same_in_process_and_simulated() -> None:
    found, wanted = carry_out("simulated"), carry_out("in-process")
    assert found.failure == ""
    (job,), (exact,) = found.jobs, wanted.jobs
    assert job.state is not None
    assert exact.state is not None
    assert job.state.encode() == exact.state.encode()
    assert set(job.digests) == set(NAMES)
    assert len(set(job.digests.values())) == 1
    assert job.ticks[:-1] == (3,) * 4, "the hops of the ring: all know who contributed"
    assert job.ticks[-1] > 30
    assert [record.contributors for record in job.state.log] == [tuple(range(N))] * 5


def test_it_learns_about_as_well_as_with_an_aggregator() -> None:
    local = [Local(X) for X in rows()]
    central = run_in_process(a_job(), local)
    mixed = run_leaderless(a_job(), local, LINKS, ticks=1)
    agreed = run_leaderless(a_job(), local, LINKS)
    first = loss(engine.begin(a_job()))
    assert loss(central) < first
    assert loss(mixed) < first
    assert abs(loss(mixed) - loss(central)) < 0.2 * (first - loss(central))
    # With agreement in every round it is FedAvg, up to the tolerance.
    assert float(np.abs(agreed.arrays["model"] - central.arrays["model"]).max()) < 1e-4


def test_a_death_in_the_middle() -> None:
    result = carry_out("simulated", Fault("kill", ("p2",), round=2, phase="adopting"))
    assert (result.failure, result.unfired_faults) == ("", ())
    assert set(result.jobs[0].digests) == set(NAMES) - {"p2"}
    assert len(set(result.jobs[0].digests.values())) == 1


def test_only_the_last_round_settles() -> None:
    job = a_job()
    state = engine.begin(job)
    assert not engine.settles(job, state)
    protocol = job.protocols[2]
    assert [protocol.settles(state.arrays, done) for done in (0, 3, 4)] == [False, False, True]


def test_without_rows_nearby_a_peer_keeps_its_model() -> None:
    protocol, state = a_job().protocols[2], engine.begin(a_job()).arrays
    total = Arrays(weights=np.zeros_like(state["model"], dtype=np.float64), rows=0.0)
    assert protocol.combine(state, total) == state
    assert "no model" in protocol.problem_with_state(state.replace(model=np.zeros(3, np.float32)), done=False)
    assert protocol.problem_with_state(state, done=True) == ""
