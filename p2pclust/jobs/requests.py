"""From the keys of a job to the job document, and to what a fleet is asked to do."""

from __future__ import annotations

from dataclasses import fields
from typing import Literal

from p2pclust.jobs.fields import Bounds
from p2pclust.jobs.job_keys import JobSpec
from p2pclust.jobs.request import JobRequest
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job


def job_of(spec: JobSpec, scaling: Literal["none", "minmax", "zscore"], bounds: Bounds | None, seed: int) -> Job:
    """Return the job document; `bounds` has a declared range for each feature.

    Raises UsageError if the protocol refuses a parameter.
    """
    return cluster_job(
        spec.protocol,
        n_clusters=spec.clusters,
        scaling=scaling,
        bounds=None if bounds is None else ([low for low, _ in bounds], [high for _, high in bounds]),
        init=spec.init,
        tol=spec.tol,
        max_rounds=spec.max_rounds,
        participation=spec.participation,
        seed=seed,
        secure=bool(spec.secured),
        groups=spec.secured.get("groups", 0),
        privacy=None if spec.privacy is None else spec.privacy.model_dump(),
        **spec.own,
    )


def request_of(spec: JobSpec, job: Job, aggregator: str = "", every_s: float = 0.0) -> JobRequest:
    """Return a job with how the fleet is to do it; `aggregator` is that of the first term, by default elected."""
    keys = {name: getattr(spec, name) for name in type(spec).model_fields if name != "secure"}
    given = {**keys, **spec.secured, "aggregator": aggregator, "every_s": every_s}
    named = {one.name: given[one.name] for one in fields(Treatment) if given.get(one.name) is not None}
    return JobRequest(job, Treatment(**named), spec.all_to_all)
