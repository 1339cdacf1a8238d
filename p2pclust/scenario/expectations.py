"""Whether a run did what its scenario expects, judged by `result.json` alone.

So a result can be judged again later, and by anybody. What the result does not tell counts as not held: a run that
failed before it measured something must not pass for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from p2pclust.scenario.expect_keys import ExpectSpec

__all__ = ["Expectation", "check"]

Result = Mapping[str, Any]


@dataclass(frozen=True)
class Expectation:
    """One expectation: what was expected, whether it held, and what was found."""

    what: str
    held: bool
    value: float | bool | None

    def to_dict(self) -> dict[str, Any]:
        """Return it as `result.json` holds it."""
        return {"what": self.what, "held": self.held, "value": self.value}


def check(expect: ExpectSpec, result: Result) -> list[Expectation]:
    """Judge a result.

    Parameters
    ----------
    expect : ExpectSpec
        Only what it asks for is judged.
    result : mapping
        As in `result.json`: ``peers`` by name, each with ``finished``; ``jobs``, each with ``rounds``, ``terms``,
        ``metrics``, ``pooled``, ``gap`` and ``digests`` (by name, the digest of the centers that a peer finished with);
        ``wall_seconds`` and ``virtual_seconds``.

    Returns
    -------
    list of Expectation
        In the order of the schema. With several jobs the worst one decides, but `terms_at_least` asks for one job
        only: an election happens in the job that a fault meets. ``value`` is None if the result does not tell.

    Examples
    --------
    >>> from p2pclust.scenario.expect_keys import ExpectSpec
    >>> check(ExpectSpec(finished_at_least=1), {"peers": {"a": {"finished": True}, "b": {"finished": False}}})
    [Expectation(what='at least 1 peers finished', held=True, value=1)]
    """
    found = []
    for key, (words, measure, holds) in _RULES.items():
        wanted = getattr(expect, key)
        if wanted is not None:
            value = measure(result)
            shown = "" if wanted is True else "not " if wanted is False else f"{wanted:g}"
            found.append(Expectation(words.format(shown), value is not None and holds(value, wanted), value))
    return found


def _finished(result: Result) -> int | None:
    peers = result.get("peers")
    return None if peers is None else sum(bool(peer.get("finished")) for peer in peers.values())


def _lost(result: Result) -> int | None:
    finished = _finished(result)
    return None if finished is None else len(result["peers"]) - finished


def _identical(result: Result) -> bool | None:
    """Whether all peers that finished a job hold the same bits, in every job; two empty hands are not identical."""
    digests = [job.get("digests") for job in result.get("jobs", ())]
    if not digests or not all(digests):
        return None
    return all(len(set(of_job.values())) == 1 for of_job in digests)


def _over_jobs(
    worst: Callable[[list[float]], float], get: Callable[[Result], float | None]
) -> Callable[[Result], float | None]:
    """Return a measure over all jobs: None if one does not tell, NaN if one is NaN (which satisfies nothing)."""

    def measure(result: Result) -> float | None:
        values = [get(job) for job in result.get("jobs", ())]
        known = [value for value in values if value is not None]
        if not known or len(known) < len(values):
            return None
        return math.nan if any(math.isnan(value) for value in known) else worst(known)

    return measure


def _terms(job: Result) -> int | None:
    terms = job.get("terms")
    return len({entry["term"] for entry in terms}) if terms else None


def _seconds(result: Result) -> float | None:
    """The fleet's own time: virtual where it was simulated, else by the clock on the wall."""
    virtual: float | None = result.get("virtual_seconds")
    return result.get("wall_seconds") if virtual is None else virtual


def _at_least(value: float, wanted: float) -> bool:
    return value >= wanted


def _at_most(value: float, wanted: float) -> bool:
    return value <= wanted


_RULES: dict[str, tuple[str, Callable[[Result], float | bool | None], Callable[[float, float], bool]]] = {
    "finished_at_least": ("at least {} peers finished", _finished, _at_least),
    "lost_at_most": ("at most {} peers were lost", _lost, _at_most),
    "identical_centers": (
        "centers are {}identical on all peers that finished",
        _identical,
        lambda value, wanted: value == wanted,
    ),
    "pooled_relative_difference_below": (
        "relative difference to the pooled algorithm is below {}",
        _over_jobs(max, lambda job: (job.get("pooled") or {}).get("relative_difference")),
        lambda value, wanted: value < wanted,
    ),
    "gap_below": (
        "the centers' distance to what pooling finds is below {} of the features' ranges",
        _over_jobs(max, lambda job: (job.get("gap") or {}).get("center_distance")),
        lambda value, wanted: value < wanted,
    ),
    "replay_identical": (
        "the in-process replay of each job's record has {}the same bits",
        _over_jobs(min, lambda job: job.get("replay_identical")),
        lambda value, wanted: value == wanted,
    ),
    "ari_at_least": (
        "adjusted Rand index is at least {}",
        _over_jobs(min, lambda job: (job.get("metrics") or {}).get("ari")),
        _at_least,
    ),
    "terms_at_least": ("at least {} terms in one job", _over_jobs(max, _terms), _at_least),
    "rounds_at_most": ("at most {} rounds in each job", _over_jobs(max, lambda job: job.get("rounds")), _at_most),
    "seconds_at_most": ("at most {} seconds in all", _seconds, _at_most),
}
