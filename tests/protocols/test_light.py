from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import sys
from p2pclust.protocols.engine.compose import clustering_class
from p2pclust.protocols.engine.registry import CLUSTERING
from p2pclust.protocols import Job, JobState, Local, cluster_job
from p2pclust.protocols.engine import engine
job = cluster_job("llf-fcm", n_clusters=2, bounds=([0.0], [9.0]), init=[[0.0], [9.0]], privacy_gate=False)
state = engine.begin(job)
part = engine.contribution(job, state, Local([[0.0], [1.0], [9.0]]), 0, 1)
state = engine.advance(job, JobState.decode(state.encode()), [(0, part)], {}, n_peers=1)
for protocol in CLUSTERING:
    clustering_class(protocol)
for protocol, options in (
    ("ffcm", {"averaging": "kmeans"}), ("c2f-fcm", {}), ("gdf-fcm", {}), ("fkm", {}),
    ("stream-fcm", {"n_batches": 2, "privacy_gate": False}), ("k-fed", {"n_local_clusters": "search"}),
):
    job = cluster_job(protocol, n_clusters=2, bounds=([0.0], [9.0]), **options)
    local, state = Local([[0.0], [0.5], [1.0], [8.0], [8.5], [9.0]]), engine.begin(job)
    while state.status == "running":
        part = engine.contribution(job, state, local, 0, 1)
        state = engine.advance(job, state, [(0, part)], {}, n_peers=1)
    assert state.status == "done", state.reason
heavy = ("torch", "sklearn", "scipy", "networkx", "pydantic", "typer", "rich", "threadpoolctl", "asyncio", "zmq")
print(sorted(set(heavy) & set(sys.modules)))
"""


@pytest.mark.slow
def test_a_peer_that_computes_imports_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]", done.stdout


MODELS = """
import sys
from p2pclust.protocols.models import affinity
from p2pclust.protocols.models import mutual_test
from p2pclust.protocols.models import refinement
from p2pclust.protocols.models.association import Association, Clusters
clusters, errors, answered = Clusters((1, 1)), [[[1.0, 2.0]] * 3], [True, False]
bits, codes = mutual_test.verdicts(clusters, 0, errors)["passes"], affinity.verdicts(clusters, 0, errors, n_features=3)
mutual_test.associate(clusters, bits.repeat(2, axis=0), answered).digest
affinity.associate(clusters, codes["affinity"].repeat(2, axis=0), answered).digest
refinement.refine_by_popularity([[1.0]], 1), refinement.agreement([0], [1])
heavy = ("torch", "sklearn", "scipy", "networkx", "pydantic", "asyncio", "zmq")
print(sorted(set(heavy) & set(sys.modules)))
"""


def test_association_and_refinement_need_networkx_for_the_graph_only() -> None:
    done = subprocess.run([sys.executable, "-c", MODELS], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]", done.stdout


def test_names_are_found_when_they_are_used() -> None:
    import p2pclust.protocols as room

    for name in room.__all__:
        assert getattr(room, name).__name__ == ("Arrays" if name in ("State", "Contribution") else name)
    assert set(room.__all__) <= set(dir(room))
