"""UIFCA: rounds by hand, an assignment that a cluster round holds, averages, and peers that begin with nothing in common."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from p2pclust.clustering.autoencoders import federated_average
from p2pclust.clustering.flows import FlowArchitecture, log_likelihoods, random_flows, train_flows
from p2pclust.errors import UsageError, WireError
from p2pclust.protocols import Arrays, Local, cluster_job, run_in_process
from p2pclust.protocols.engine import engine, summaries
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.runner import clustering_stage, conclude, labelling_stage, replay
from p2pclust.protocols.engine.wire import decode_state
from p2pclust.protocols.models.uifca import UIFCAProtocol

torch = pytest.importorskip("torch", reason="flows need torch: pip install 'p2pclust[models]'")

TINY: dict[str, Any] = {"couplings": 2, "hidden": (8,), "learning_rate": 1e-2, "local_steps": 10}
ROUNDS: dict[str, Any] = {"cluster_rounds": 2, "communication_rounds": 2}


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Bits are promised for one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def blobs(seed: int = 0) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Six peers with two of three blobs each, and the rows' blobs."""
    rng = np.random.default_rng(seed)
    middles = np.array([[-2.0, 0.0], [2.0, 0.0], [0.0, 2.5]])
    peers, truth = [], []
    for own in ((0, 1), (1, 2), (2, 0), (0, 1), (1, 2), (2, 0)):
        labels = rng.permutation(np.repeat(own, 40))
        peers.append(middles[labels] + rng.normal(scale=0.4, size=(80, 2)))
        truth.append(labels)
    return peers, truth


def opened(n_clusters: int = 3, **options: Any) -> tuple[Job, JobState]:
    job = cluster_job("uifca", n_clusters=n_clusters, bounds=([-9.0] * 2, [9.0] * 2), **{**TINY, **ROUNDS, **options})
    return job, engine.begin(job)


def rounds(job: Job, locals_: list[Local]) -> Iterator[JobState]:
    state = engine.begin(job)
    yield state
    while state.status == "running":
        given = [(p, engine.contribution(job, state, local, p, len(locals_))) for p, local in enumerate(locals_)]
        state = engine.advance(job, state, given, {}, n_peers=len(locals_))
        yield state


def test_the_papers_numbers_are_the_defaults() -> None:
    protocol = UIFCAProtocol(n_clusters=10)
    assert (protocol.cluster_rounds, protocol.communication_rounds, protocol.local_steps) == (20, 40, 100)
    assert protocol.architecture(784) == FlowArchitecture(784, couplings=6, hidden=(512, 512, 512))
    assert (protocol.learning_rate, protocol.decay, protocol.round_limit) == (1e-4, 1e-4, 800)


def test_a_round_by_hand() -> None:
    (peers, _), (job, state) = blobs(), opened(seed=1)
    models, shape = state.arrays["models"], FlowArchitecture(2, couplings=2, hidden=(8,))
    assert models.tobytes() == state.arrays["assigning"].tobytes()
    parts = []
    for peer, X in enumerate(peers[:2]):
        rows = X.astype(np.float32)  # the middle of the declared bounds is 0
        labels = log_likelihoods(shape, models, rows).argmax(axis=1)
        part = engine.contribution(job, state, Local(X), peer, 2)
        assert part["sizes"].tolist() == np.bincount(labels, minlength=3).tolist()
        held = np.flatnonzero(part["sizes"])
        from p2pclust.protocols.engine import random_streams

        own = random_streams.peer_round(1, peer, 0).spawn(3)
        trained = train_flows(
            shape, models[held], [rows[labels == c] for c in held], rngs=[own[c] for c in held],
            steps=10, learning_rate=1e-2,
        )  # fmt: skip
        assert part["weights"].tobytes() == trained.tobytes()
        parts.append((peer, part))
    after = engine.advance(job, state, parts, {}, n_peers=2).arrays
    for cluster in range(3):
        weights, sizes = [], []
        for _, part in parts:
            if part["sizes"][cluster]:
                weights.append(part["weights"][int((part["sizes"][:cluster] > 0).sum())])
                sizes.append(int(part["sizes"][cluster]))
        wanted = federated_average(weights, sizes) if sizes else models[cluster]
        assert after["models"][cluster].tobytes() == wanted.tobytes()
    assert int(after["steps"]) == 1


@pytest.mark.slow
def test_rows_are_assigned_anew_only_when_a_cluster_round_begins() -> None:
    peers, _ = blobs()
    job = cluster_job("uifca", n_clusters=3, seed=1, **TINY, cluster_rounds=2, communication_rounds=3)
    locals_ = [Local(X) for X in peers]
    states = [state for state in rounds(job, locals_) if state.stage == len(job.stages) - 1]
    assert states[-1].status == "done"
    assert states[-1].converged
    assigning = [state.arrays["assigning"].tobytes() for state in states[:-1]]
    assert assigning[0] == assigning[1] == assigning[2] != assigning[3] == assigning[4] == assigning[5]
    assert assigning[3] == states[3].arrays["models"].tobytes()
    assert "assigning" not in states[-1].arrays
    told = [
        [engine.contribution(job, s, local, p, 6)["sizes"].tolist() for p, local in enumerate(locals_)]
        for s in states[:-1]
    ]
    assert told[0] == told[1] == told[2] != told[3] == told[4] == told[5]


@pytest.mark.slow
@pytest.mark.parametrize("start", ["random", "peers"])
def test_a_peer_that_comes_back_contributes_the_same(start: str) -> None:
    """Nothing that it remembered of the rounds before is needed."""
    peers, _ = blobs()
    job = cluster_job("uifca", n_clusters=3, seed=1, **TINY, **ROUNDS, start=start)
    locals_ = [Local(X) for X in peers]
    for state in rounds(job, locals_):
        if state.status == "running":
            fresh = engine.contribution(job, decode_state(job, state.encode()), Local(peers[2]), 2, 6)
            assert fresh == engine.contribution(job, state, locals_[2], 2, 6)


@pytest.mark.slow
def test_blobs_are_found() -> None:
    peers, truth = blobs()
    options = TINY | {"couplings": 4, "hidden": (16,), "local_steps": 20}
    job = cluster_job(
        "uifca",
        n_clusters=3,
        seed=0,
        start="peers",
        scaling="zscore",
        cluster_rounds=6,
        communication_rounds=2,
        **options,
    )
    locals_ = [Local(X) for X in peers]
    state = run_in_process(job, locals_)
    assert state.status == "done"
    labels = [kept["labels"] for kept in conclude(job, state, locals_)]
    table = np.zeros((3, 3), dtype=int)
    np.add.at(table, (np.concatenate(truth), np.concatenate(labels)), 1)
    assert sorted(table.argmax(axis=1).tolist()) == [0, 1, 2]
    assert table.max(axis=1).sum() > 0.95 * table.sum()


def test_all_rows_of_a_peer_begin_with_one_model() -> None:
    peers, _ = blobs()
    job, state = opened(4, start="peers", seed=5)
    first = [engine.contribution(job, state, Local(X), p, 6)["sizes"] for p, X in enumerate(peers)]
    assert all(sorted(sizes.tolist()) == [0, 0, 0, 80] for sizes in first)
    assert len({int(sizes.argmax()) for sizes in first}) > 1
    other = engine.begin(
        cluster_job("uifca", n_clusters=4, bounds=([-9.0] * 2, [9.0] * 2), seed=6, start="peers", **TINY)
    )
    assert other.arrays["salt"].tolist() != state.arrays["salt"].tolist(), "who draws what follows from the job's seed"


def test_a_model_that_nobody_holds_stays() -> None:
    peers, _ = blobs()
    job, state = opened(2, start="peers", seed=3)
    part = engine.contribution(job, state, Local(peers[0]), 0, 1)
    after = engine.advance(job, state, [(0, part)], {}, n_peers=1)
    held = int(part["sizes"].argmax())
    assert after.arrays["models"][held].tobytes() == part["weights"][0].tobytes()
    assert after.arrays["models"][1 - held].tobytes() == state.arrays["models"][1 - held].tobytes()


def test_models_begin_different_and_follow_from_the_seed() -> None:
    models = [opened(seed=seed)[1].arrays["models"] for seed in (1, 1, 2)]
    assert models[0].tobytes() == models[1].tobytes() != models[2].tobytes()
    assert len({row.tobytes() for row in models[0]}) == 3


def test_small_clusters_are_withheld_and_counted() -> None:
    peers, _ = blobs()
    job, state = opened(seed=1, min_cluster_size=30)
    everything = engine.contribution(*opened(seed=1, min_cluster_size=1), Local(peers[0]), 0, 1)
    part = engine.contribution(job, state, Local(peers[0]), 0, 1)
    sizes = everything["sizes"]
    small = (sizes > 0) & (sizes < 30)
    assert small.any()
    assert part["sizes"].tolist() == np.where(small, 0, sizes).tolist()
    assert int(part["suppressed"]) == small.sum()
    assert part["weights"].tobytes() == everything["weights"][~small[sizes > 0]].tobytes()


def test_an_empty_round_is_no_step() -> None:
    peers, _ = blobs()
    job, state = opened(seed=1)
    empty = engine.advance(job, state, [], {0: "left out: silent"}, n_peers=2)
    assert int(empty.arrays["steps"]) == 0
    given = [(0, engine.contribution(job, empty, Local(peers[0]), 0, 2))]
    assert int(engine.advance(job, empty, given, {}, n_peers=2).arrays["steps"]) == 1
    # If the last round is empty the job ends, after one step less.
    for _ in range(3):
        empty = engine.advance(job, empty, [], {0: "left out: silent"}, n_peers=2)
    assert (empty.status, empty.converged) == ("done", False)
    assert decode_state(job, empty.encode()) == empty


@pytest.mark.slow
def test_a_job_is_replayed_with_the_same_bits() -> None:
    locals_ = [Local(X) for X in blobs()[0]]
    job = cluster_job("uifca", n_clusters=3, seed=1, participation=0.5, **TINY, **ROUNDS)
    state = run_in_process(job, locals_)
    assert {len(record.contributors) for record in state.log if record.stage == state.stage} == {3}
    assert replay(job, [Local(local.X) for local in locals_], state.log).encode() == state.encode()


def test_bad_rows_and_short_peers() -> None:
    peers, _ = blobs()
    job = cluster_job("uifca", n_clusters=3, seed=1, **TINY, **ROUNDS)
    state = run_in_process(job, [Local(peers[0]), Local([[np.nan, 1.0]]), Local(peers[1][:1])])
    assert state.status == "done"
    record = state.log[-1]
    assert (sorted(record.abstained), record.contributors) == ([1, 2], (0,))
    assert record.abstained[1] == "row 0, column 0 is nan"
    assert record.abstained[2].startswith("privacy gate: none of its clusters holds 2 rows or more: ")
    assert summaries.suppressed(state) >= 4
    # Numbers that single precision cannot hold: the middle of the ranges is then too far away for everybody.
    state = run_in_process(job, [Local(peers[0]), Local(1e100 * peers[1])])
    assert state.status == "failed"
    assert "peer 0: failed: the data has -inf in row 0" in state.reason


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"sizes": [0, 0, 0]}, "its sizes are none"),
        ({"sizes": [-1, 2, 3]}, "its sizes are none"),
        ({"sizes": [2**62, 2, 3]}, "its sizes are none"),
        ({"suppressed": -1}, "it suppressed an impossible number of clusters"),
        ({"suppressed": 4}, "it suppressed an impossible number of clusters"),
        ({"sizes": [1, 1, 1]}, "it does not send one model for each cluster of its rows"),
    ],
)
def test_impossible_contributions_are_left_out_by_name(bad: dict[str, Any], reason: str) -> None:
    job, state = opened(seed=1, start="peers")
    good = engine.contribution(job, state, Local(blobs()[0][0]), 0, 2)
    after = engine.advance(job, state, [(0, good), (1, Arrays({**good, **bad}))], {}, n_peers=2)
    assert after.log[-1].contributors == (0,)
    assert after.log[-1].abstained == {1: f"failed: {reason}"}


@pytest.mark.parametrize(
    ("false", "line"),
    [
        (
            {"models": np.zeros((3, 5), np.float32), "assigning": np.zeros((3, 5), np.float32)},
            r"models of shape \[3, 5\]",
        ),
        ({"models": np.zeros((2, 1), np.float32)}, "assigning has shape"),
        (
            {"models": np.zeros((2, 1), np.float32), "assigning": np.zeros((2, 1), np.float32)},
            r"models of shape \[2, 1\]",
        ),
        ({"assigning": None}, "no models that assign rows"),
        ({"steps": np.int64(4)}, "step 4 of 4"),
        ({"steps": np.int64(-1)}, "step -1 of 4"),
        ({"salt": np.zeros(3, np.uint8)}, "a salt where nothing"),
        ({"steps": None}, "lacks steps"),
    ],
)
def test_false_states_are_refused(false: dict[str, Any], line: str) -> None:
    job, state = opened(seed=1)
    assert decode_state(job, state.encode()) == state
    gone = [name for name, value in false.items() if value is None]
    arrays = state.arrays.without(*gone).replace(**{k: v for k, v in false.items() if v is not None})
    with pytest.raises(WireError, match=line):
        decode_state(job, replace(state, arrays=arrays).encode())


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"cluster_rounds": 0}, "uifca: cluster_rounds = 0: expected a whole number from 1"),
        ({"local_steps": 2.5}, "uifca: local_steps = 2.5: expected a whole number from 1"),
        ({"hidden": ()}, r"uifca: hidden = \(?\[?\]?\)?: expected a list of 1 to 16 widths"),
        ({"hidden": (8, 0)}, "uifca: hidden = 0: expected a whole number from 1"),
        ({"image_width": 0}, "uifca: image_width = 0"),
        ({"learning_rate": 0.0}, "uifca: learning_rate = 0.0: expected a finite number above 0"),
        ({"decay": -1.0}, "uifca: decay = -1.0"),
        ({"start": "kmeans"}, "uifca: start = 'kmeans': expected one of random, peers"),
        ({"device": 3}, "uifca: device"),
        ({"init": "random"}, "init: uifca begins with no centers: leave it out"),
        ({"tol": 0.1}, "uifca: unknown parameter 'tol'"),
        ({"max_rounds": 3}, "uifca: unknown parameter 'max_rounds'"),
    ],
)
def test_bad_parameters(options: dict[str, Any], line: str) -> None:
    with pytest.raises(UsageError, match=line):
        cluster_job("uifca", n_clusters=3, **options)


def test_models_that_nobody_could_hold_are_refused_before_memory_is_taken() -> None:
    job = cluster_job("uifca", n_clusters=2**12, bounds=([0.0] * 784, [1.0] * 784), hidden=(2**16,) * 4, couplings=64)
    state = engine.begin(job)
    assert state.status == "failed"
    assert state.reason.startswith("uifca: 4096 models of ")


def test_its_job_is_asked_for_like_any_other_but_has_no_centers() -> None:
    job = cluster_job("uifca", n_clusters=3, scaling="minmax", hidden=(8, 4))
    assert [stage.protocol for stage in job.stages] == ["range", "minmax", "uifca"]
    assert Job.from_dict(job.to_dict()) == job
    assert job.to_dict()["stages"][-1]["parameters"]["hidden"] == [8, 4]
    assert labelling_stage(job)[0] == 2
    with pytest.raises(UsageError, match="uifca has no centers"):
        clustering_stage(job)


def test_without_torch_a_peer_abstains_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    job, state = opened(seed=1)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(engine.Abstain, match="failed: these models need torch"):
        engine.contribution(job, state, Local(blobs()[0][0]), 0, 1)


def test_whoever_only_aggregates_needs_no_torch() -> None:
    script = """
import sys
import numpy as np
from p2pclust.protocols import Arrays, cluster_job
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.wire import decode_state
job = cluster_job("uifca", n_clusters=2, bounds=([0.0] * 2, [1.0] * 2), couplings=1, hidden=(3,))
state = engine.begin(job)
part = Arrays(weights=state.arrays["models"], sizes=np.array([3, 4]), suppressed=0)
state = engine.advance(job, decode_state(job, state.encode()), [(0, part)], {}, n_peers=1)
print(sorted({"torch", "scipy", "sklearn"} & set(sys.modules)), int(state.arrays["steps"]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[] 1"


def test_random_flows_are_what_a_job_begins_with() -> None:
    job, state = opened(seed=9)
    from p2pclust.protocols.engine import random_streams

    rng = random_streams.opening(9, len(job.stages) - 1)
    wanted = random_flows(FlowArchitecture(2, couplings=2, hidden=(8,)), [rng] * 3)
    assert state.arrays["models"].tobytes() == wanted.tobytes()
