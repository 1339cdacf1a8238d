"""Paths into ``result.json``: following them, and suggesting the right one for a wrong one.

A path has keys and positions with dots between them, as in ``jobs.0.metrics.ari``. A step with ``*`` or ``?`` matches
several keys or positions: ``peers.*.bytes_sent``, ``peers.meter-*.finished``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from p2pclust.tools.spelling import nearest

#: The keys of a job, of a peer, and of a result. None: a value, or a structure that is not checked beforehand.
_JOB: dict[str, Any] = dict.fromkeys(
    (
        "protocol", "parameters", "kernel", "stops", "rounds", "converged", "centers", "declared", "description", "note",
        "warnings", "terms", "contributors", "abstained", "stages",
        "history", "suppressed", "coarse", "objective", "best_pooled", "doubts", "drift",
        "secure", "exposed", "privacy", "suspects", "limited",
        "tolerance", "reached", "ticks", "n_rows", "metrics", "pooled", "gap", "damaged", "harm", "replay_identical",
        "digests", "seconds", "job", "failure", "communities", "isolated", "own_clusters", "links", "refinements",
    )
) | {
    "best_pooled": dict.fromkeys(("starts", "objective", "excess", "words")),
    "metrics": dict.fromkeys(("ari", "accuracy", "peer_accuracy", "wrong_links")),
    "pooled": dict.fromkeys(("max_abs_difference", "relative_difference", "why")),
    "gap": dict.fromkeys(("to", "center_distance", "pooled_rounds", "pooled_converged")),
    "harm": dict.fromkeys(("to", "center_distance")),
}  # fmt: skip
_PEER = dict.fromkeys((
    "finished", "lost", "n_rows", "messages_sent", "messages_received", "bytes_sent", "bytes_received", "max_rss_mb",
    "dropped", "failure", "energy_j", "battery_left_j",
))  # fmt: skip
_KNOWN: dict[str, Any] = {
    "scenario": None, "title": None, "backend": None, "seed": None, "jobs": None, "peers": None, "left_out": None,
    "reading": None, "traffic": dict.fromkeys(("messages", "bytes", "hottest_link")), "wall_seconds": None,
    "virtual_seconds": None, "failure": None, "unfired_faults": None,
}  # fmt: skip


def look_up(result: Mapping[str, Any], path: str) -> tuple[list[Any], str]:
    """Follow a path to one value, or to several if a step matches several, in the order of the result.

    The second is why there is no value, and where the path ends.

    >>> result = {"peers": {"a": {"lost": False}, "b": {"lost": True}}, "jobs": [{"pooled": None}]}
    >>> look_up(result, "peers.*.lost")
    ([False, True], '')
    >>> look_up(result, "jobs.0.pooled.relative_difference")
    ([], 'jobs.0.pooled is missing in this run')
    """
    here: list[tuple[str, Any]] = [("", result)]
    for step in path.split("."):
        following: list[tuple[str, Any]] = []
        for where, value in here:
            parts = dict(_entries(value))
            keys = _matching(parts, step)
            if not keys and not is_wide(step):
                return [], _why(where, value, step)
            following += [(f"{where}.{key}".lstrip("."), parts[key]) for key in keys]
        if not following:
            return [], f"nothing matches {step!r} in {here[0][0] or 'the result'}"
        here = following
    return [value for _, value in here], ""


def value_at(path: str) -> Callable[[Mapping[str, Any]], Any]:
    """Return a function that returns the value at a path, or None where there is none.

    >>> value_at("metrics.ari")({"metrics": {"ari": 0.9}}), value_at("pooled.relative_difference")({"pooled": None})
    (0.9, None)
    """
    return lambda result: next(iter(look_up(result, path)[0]), None)


def is_wide(path: str) -> bool:
    return "*" in path or "?" in path


def _matching(keys: Iterable[str], step: str) -> list[str]:
    return [key for key in keys if (fnmatchcase(key, step) if is_wide(step) else key == step)]


def _entries(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [(str(key), inner) for key, inner in value.items()]
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [(str(number), inner) for number, inner in enumerate(value)]
    return []


def _why(where: str, value: Any, step: str) -> str:
    if value is None:
        return f"{where} is missing in this run"
    known = [key for key, _ in _entries(value)]
    if not known:
        inside = "is empty" if isinstance(value, Mapping | Sequence) and not isinstance(value, str) else "has no parts"
        return f"{where} {inside}: it has no {step!r}"
    if near := nearest(step, known):
        return f"{where or 'the result'} has no {step!r}: did you mean {near!r}?"
    shown = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
    return f"{where or 'the result'} has no {step!r}: it has {shown}"


def wrong_path(path: str, devices: Sequence[str], n_jobs: int) -> str:
    """Return why no result of a scenario with these devices and jobs can have a path, or an empty string.

    >>> wrong_path("jobs.0.metric.ari", ["a"], 1)
    "jobs.0 has no 'metric': did you mean 'metrics'?"
    >>> wrong_path("peers.*.bytes_sent", ["a"], 1)
    ''
    """
    here: Any = _KNOWN | {"jobs": [_JOB] * n_jobs, "peers": dict.fromkeys(devices, _PEER)}
    where = ""
    for step in path.split("."):
        parts = dict(_entries(here))
        matching = _matching(parts, step)
        if not matching:
            return _why(where, here, step)
        # If several match, follow one that has parts; all jobs are alike, and all peers.
        here = next((parts[key] for key in matching if parts[key] is not None), None)
        if here is None:
            return ""
        where = f"{where}.{step}".lstrip(".")
    return ""
