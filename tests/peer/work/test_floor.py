"""What a device asks of every job: below that it gives nothing, by name and with the reason."""

from __future__ import annotations

from dataclasses import replace

import msgpack
import pytest

from p2pclust.peer.core.tasks import BeginJob, Contribute, NoResult, StateMade
from p2pclust.peer.core.timing import Limits
from p2pclust.peer.work.floor import Floor
from p2pclust.peer.work.states import BlobAccess
from p2pclust.peer.work.tasks import Life, perform
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job, Stage
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.measuring.measure import measured
from p2pclust.protocols.secure.parameters import SecureSums

PLAIN = cluster_job("llf-cm", n_clusters=2)
PRIVATE = cluster_job(
    "llf-cm", n_clusters=2, secure=True, privacy={"epsilon": 2.0, "delta": 1e-6}, bounds=([0.0], [1.0])
)
SECURED = cluster_job("llf-cm", n_clusters=2, init="split-merge", secure=True)
CAREFUL = replace(cluster_job("llf-cm", n_clusters=2, init="careful"), participation=0.5)
VERTICAL, FKM, GDF = (cluster_job(name, n_clusters=2) for name in ("vertical-cm", "fkm", "gdf-fcm"))
COMMUNITY = Job((Stage("fedavg", {"n_features": 2, "clusters": [[0], [1]]}),), 0)
KEYS = SecureSums(3, 3, colluders=1)
ONLY_SECURED = "this device contributes only to jobs with secure sums"


def cannot_withhold(n_rows: int) -> str:
    return (
        f"this device sends nothing of clusters with fewer than {n_rows} of its rows, and this job cannot leave them out: "
        "llf-cm, fkm and k-fed can, without accelerate, n_init and measures"
    )


@pytest.mark.parametrize(
    ("floor", "job", "secure", "reason"),
    [
        (Floor(), PLAIN, None, ""),
        (Floor(secure=True), PLAIN, None, ONLY_SECURED),
        (Floor(secure=True), SECURED, KEYS, ""),
        (Floor(secure=True), CAREFUL, None, ONLY_SECURED),
        (Floor(secure=True), VERTICAL, None, ONLY_SECURED),
        (Floor(secure=True), FKM, None, ONLY_SECURED),
        (Floor(secure=True, protocols=("llf-cm", "fkm")), FKM, None, ""),
        (Floor(secure=True, protocols=("llf-cm", "fkm")), CAREFUL, None, ONLY_SECURED),
        (Floor(secure=True, protocols=("gdf-fcm",)), GDF, None, ONLY_SECURED),
        (Floor(secure=True, keep=True, protocols=("fkm",)), FKM, None, ONLY_SECURED),
        (Floor(keep=True), PLAIN, None, ONLY_SECURED),
        (Floor(cohort=5), SECURED, KEYS, "this device asks for a cohort of 5, and the job has 3"),
        (Floor(protocols=("fkm",)), PLAIN, None, "this device takes part in fkm only, not in llf-cm"),
        (Floor(protocols=("llf-cm",)), PRIVATE, KEYS, ""),
        (Floor(private=True), PRIVATE, KEYS, ""),
        (Floor(min_cell=5), PLAIN, None, ""),
        (Floor(min_cell=5), PRIVATE, KEYS, ""),
        (Floor(min_cell=10), cluster_job("fedcref"), None, ""),
        (Floor(min_cell=10, protocols=("fedcref",)), COMMUNITY, None, ""),
        (Floor(min_cell=21), PLAIN, None, "it has fewer rows than the 21 of a cluster that this device sends anything of"),
        (
            Floor(min_cell=11), cluster_job("fedcref"), None,
            cannot_withhold(11),
        ),
        (
            Floor(min_cell=5), cluster_job("llf-fcm", n_clusters=2), None,
            cannot_withhold(5),
        ),
        (
            Floor(min_cell=5), cluster_job("llf-cm", n_clusters=2, accelerate=True), None,
            cannot_withhold(5),
        ),
        (
            Floor(min_cell=5), cluster_job("llf-cm", n_clusters=2, n_init=2), None,
            cannot_withhold(5),
        ),
        (
            Floor(min_cell=5), measured(PLAIN), None,
            cannot_withhold(5),
        ),
        (
            Floor(private=True), SECURED, KEYS,
            "this device has a privacy budget, and contributes only to jobs with privacy = { epsilon, delta }",
        ),
    ],
)  # fmt: skip
def test_what_is_below_the_floor(floor: Floor, job: Job, secure: SecureSums | None, reason: str) -> None:
    assert floor.problem_with(job, secure, 20) == reason


def test_a_contribution_below_the_floor_is_an_abstention() -> None:
    data, local, blobs = msgpack.packb(PLAIN.to_dict()), Local([[1.0, 2.0]] * 5), BlobAccess(None, None, None, Limits())  # type: ignore[arg-type]
    begun = perform(BeginJob(data, 3), local, blobs)
    assert isinstance(begun, StateMade)
    outcome = perform(Contribute(data, 3, begun.ref, 0), local, blobs, Life(floor=Floor(secure=True)))
    assert outcome == NoResult(ONLY_SECURED)


def test_a_configuration_becomes_a_floor() -> None:
    assert Floor.of({}) == Floor()
    assert Floor.of({"cohort": 5, "min_cell": 4, "protocols": ["llf-cm"], "budget": {"epsilon": 8}}) == Floor(
        cohort=5, min_cell=4, protocols=("llf-cm",), private=True
    )
