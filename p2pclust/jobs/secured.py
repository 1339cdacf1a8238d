"""Whether a job has secure sums: decided once, when its document is made, from the request, the protocol and the roster.

Every way to a job asks here: `submit`, scenarios, sweeps, estimators, `choose`. A series keeps what its first turn has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from p2pclust.errors import UsageError
from p2pclust.protocols.engine.compose import clustering_class
from p2pclust.protocols.secure.parameters import LEAST_PEERS
from p2pclust.tools.spelling import counted

T = TypeVar("T")


class UnfitForSumsError(UsageError):
    """A job that has secure sums by default cannot have them."""


def secured_fields(protocol: str, asked: Any, n_peers: int) -> dict[str, Any]:
    """Return the fields of the treatment of a job with secure sums; empty for a plain job.

    Parameters
    ----------
    protocol : str
        The id of a clustering protocol.
    asked : bool, mapping, SecureSpec or None
        ``secure`` as a person gives it: true or false, or the parameters; None if it was left out.
    n_peers : int
        The number of peers on the job roster.

    Examples
    --------
    >>> secured_fields("llf-cm", None, 4), secured_fields("llf-cm", None, 3), secured_fields("fkm", None, 4)
    ({'secure': True}, {}, {})
    """
    if asked is None:
        return {"secure": True} if n_peers >= LEAST_PEERS and clustering_class(protocol).secured_by_default else {}
    from p2pclust.jobs.job_keys import secure_fields  # noqa: PLC0415 - imports pydantic

    return secure_fields(asked)


def decided(protocol: str, asked: Any, n_peers: int, make: Callable[[Mapping[str, Any]], T]) -> T:
    """Make a job from the fields of `secured_fields`; raise UsageError if it cannot have the sums that it has by default."""
    fields = secured_fields(protocol, asked, n_peers)
    if not fields or asked is not None:
        return make(fields)
    try:
        return make(fields)
    except UsageError as error:
        problem = str(error)
    make({})  # raises what a plain job has wrong, too
    raise UnfitForSumsError(
        f"{problem}; or set secure = false: from {LEAST_PEERS} peers on {protocol} has secure sums by default"
    )


def too_few(protocol: str, asked: Any, n_peers: int) -> bool:
    """Return whether a job runs plain only because its roster is small."""
    return asked is None and n_peers < LEAST_PEERS and clustering_class(protocol).secured_by_default


def readers(protocol: str, n_peers: int) -> str:
    """Return the line that says who can read what in such a job.

    Examples
    --------
    >>> readers("llf-cm", 2)
    '2 peers: llf-cm runs without secure sums, which need 4: of two peers each can compute what the other contributes'
    """
    who = {
        1: "no other peer receives its contributions",
        2: "of two peers each can compute what the other contributes",
    }.get(n_peers, "the peer that adds up a round can read what each other peer contributes to it")
    return f"{counted(n_peers, 'peers')}: {protocol} runs without secure sums, which need {LEAST_PEERS}: {who}"
