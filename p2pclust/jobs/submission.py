"""A job from its keys, in a scenario or as options of a command line, with the same checks; and what a fleet is to do."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainValidator

from p2pclust.clustering.kernels import AUTO
from p2pclust.errors import UsageError
from p2pclust.jobs import fields
from p2pclust.jobs.explain import validated
from p2pclust.jobs.fields import wrong_value
from p2pclust.jobs.job_keys import JobSpec
from p2pclust.jobs.request import JobRequest
from p2pclust.jobs.secured import decided
from p2pclust.peer.core.treatment import Treatment, problem_with_every
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job

_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def duration(text: str) -> float:
    """Return the seconds of a duration such as ``90s``, ``15m``, ``1h`` or ``1d``.

    >>> duration("1h"), duration("1.5m"), duration("90s")
    (3600.0, 90.0, 90.0)
    """
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)\s*([a-z]*)", text.strip())
    if match is not None and not match[2]:
        raise UsageError(f"{text.strip()!r} has no unit: write {match[1]}s, {match[1]}m, {match[1]}h or {match[1]}d")
    if match is None or match[2] not in _UNITS:
        raise UsageError(f"{text!r} is not a duration: use 90s, 15m, 1h or 1d")
    return float(match[1]) * _UNITS[match[2]]


def _every(value: object) -> object:
    if isinstance(value, str):
        try:
            value = duration(value)
        except UsageError as error:
            raise wrong_value(str(error)) from None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_value("expected a duration, such as 1h")
    if problem := problem_with_every(value):
        raise wrong_value(problem)
    return float(value)


class Submission(JobSpec):
    """The options of a job for a fleet of running peers."""

    #: Working coordinates; by default none, and over columns minmax.
    scaling: Literal["none", "minmax", "zscore"] | None = None
    #: The declared range of each feature in raw units.
    bounds: fields.Bounds | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    #: The peers that take part; by default those that are alive.
    roster: Annotated[tuple[str, ...], Field(strict=False), AfterValidator(fields.not_empty)] | None = None
    #: The aggregator of the first term; by default elected.
    aggregator: str | None = None
    #: The time after the end of a job until it is repeated.
    every: Annotated[float, PlainValidator(_every)] | None = None


def request_from(given: Mapping[str, Any], n_peers: int, n_features: int = 1) -> tuple[JobRequest, Submission]:
    """Check the options of a job, ``protocol`` and the keys of `Submission`, and return the request to the fleet.

    `n_peers` is the number of peers that take part, if `given` does not name them. One pair of bounds is for all
    `n_features` features, or for those of given first centers.

    >>> request, _ = request_from({"protocol": "llf-cm", "clusters": 3, "tol": 0.0}, n_peers=5)
    >>> request.job.stages[request.job.main].protocol, request.treatment.missing, request.treatment.secure
    ('llf-cm', 'wait', True)
    """
    spec = validated(Submission, dict(given), "submit")
    if spec.own.get("initial") == "given":
        raise UsageError("submit: labels are for experiments: peers of real devices have none")
    if spec.by_columns and isinstance(spec.init, tuple):
        why = "peers cannot be given their own columns of first centers: use the name of an init"
        raise UsageError(f"submit: init: {why}")
    width = len(spec.init[0]) if isinstance(spec.init, tuple) else n_features

    def make(secured: Mapping[str, Any]) -> JobRequest:
        job = job_of(spec, secured, spec.scaling, spec.bounds, spec.seed, width)
        if spec.kernel != AUTO:  # otherwise the fleet knows: see `p2pclust.hosts.submission.with_common_kernel`
            job = dataclasses.replace(job, kernel=spec.kernel)
        return request_of(spec, secured, job, spec.aggregator or "", spec.every or 0.0)

    try:
        return decided(spec.protocol, spec.secure, len(spec.roster or ()) or n_peers, make), spec
    except UsageError as error:
        raise type(error)(f"submit: {error}") from None


def job_of(
    spec: JobSpec, secured: Mapping[str, Any], scaling: Literal["none", "minmax", "zscore"] | None,
    bounds: fields.Bounds | None, seed: int, n_features: int,
) -> Job:  # fmt: skip
    """Return the job document, or raise UsageError if the protocol refuses a parameter.

    `secured` is as in `p2pclust.jobs.secured`. One pair of `bounds` is for all features, otherwise each has its own.
    """
    if bounds is not None and len(bounds) == 1:
        bounds *= n_features
    return cluster_job(
        spec.protocol, n_clusters=spec.clusters, scaling=scaling, init=spec.init, tol=spec.tol, max_rounds=spec.max_rounds,
        bounds=None if bounds is None else ([low for low, _ in bounds], [high for _, high in bounds]),
        participation=spec.participation, seed=seed, secure=bool(secured), groups=secured.get("groups", 0),
        privacy=None if spec.privacy is None else spec.privacy.model_dump(), **spec.own,
    )  # fmt: skip


def request_of(
    spec: JobSpec, secured: Mapping[str, Any], job: Job, aggregator: str = "", every_s: float = 0.0
) -> JobRequest:
    """Return a job with how the fleet is to do it; `aggregator` is that of the first term, by default elected."""
    keys = {name: getattr(spec, name) for name in type(spec).model_fields if name != "secure"}
    given = {**keys, **secured, "aggregator": aggregator, "every_s": every_s}
    named = {one.name: given[one.name] for one in dataclasses.fields(Treatment) if given.get(one.name) is not None}
    return JobRequest(job, Treatment(**named), spec.all_to_all)
