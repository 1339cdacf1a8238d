"""A job from the options of a command line: the keys of a scenario's ``[[jobs]]``, with the same checks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainValidator, ValidationError

from p2pclust.clustering.kernels import AUTO
from p2pclust.errors import UsageError
from p2pclust.jobs import fields
from p2pclust.jobs.explain import explain
from p2pclust.jobs.fields import wrong_value
from p2pclust.jobs.job_keys import JobSpec
from p2pclust.jobs.request import JobRequest
from p2pclust.jobs.requests import job_of, request_of
from p2pclust.peer.core.treatment import every_flaw

_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def duration(text: str) -> float:
    """Return the seconds of a duration such as ``90s``, ``15m``, ``1h`` or ``1d``.

    Examples
    --------
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
    if flaw := every_flaw(value):
        raise wrong_value(flaw)
    return float(value)


class Submission(JobSpec):
    """The options of a job for a fleet of running peers."""

    scaling: Literal["none", "minmax", "zscore"] = "none"
    #: The declared range of each feature in raw units.
    bounds: fields.Bounds | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    #: The peers that take part; by default those that are alive.
    roster: Annotated[tuple[str, ...], Field(strict=False), AfterValidator(fields.not_empty)] | None = None
    #: The aggregator of the first term; by default elected.
    aggregator: str | None = None
    #: The time after the end of a job until it is repeated.
    every: Annotated[float, PlainValidator(_every)] | None = None


def request_from(given: Mapping[str, Any], where: str = "submit") -> tuple[JobRequest, Submission]:
    """Check the options of a job, ``protocol`` and the keys of `Submission`, and return the request to the fleet.

    `where` begins each line of an error.

    Raises
    ------
    UsageError
        One line for each of the first few errors.

    Examples
    --------
    >>> request, _ = request_from({"protocol": "llf-cm", "clusters": 3, "tol": 0.0})
    >>> request.job.stages[request.job.main].protocol, request.treatment.missing
    ('llf-cm', 'wait')
    """
    try:
        spec = Submission.model_validate(dict(given))
    except ValidationError as error:
        raise UsageError(explain(where, error, Submission)) from error
    if spec.own.get("initial") == "given":
        raise UsageError(f"{where}: labels are for experiments: peers of real devices have none")
    if spec.by_columns and isinstance(spec.init, tuple):
        raise UsageError(
            f"{where}: init: peers cannot be given their own columns of first centers: use the name of an init"
        )
    job = job_of(spec, spec.scaling, spec.bounds, spec.seed)
    if spec.kernel != AUTO:  # otherwise the fleet knows: see `p2pclust.hosts.submission.with_common_kernel`
        job = replace(job, kernel=spec.kernel)
    return request_of(spec, job, spec.aggregator or "", spec.every or 0.0), spec
