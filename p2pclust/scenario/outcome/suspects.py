"""Which devices a job suspects: of sums that follow from no rows, or of states that do not follow from contributions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from p2pclust.fleet.spec import Event
from p2pclust.peer.core.rounds.answers import ANSWERED_TWICE
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.summaries import suspects

__all__ = ["in_words", "suspects_by_report", "suspects_of_log"]


def suspects_of_log(state: JobState, roster: Sequence[str]) -> list[dict[str, Any]]:
    """Return the suspects that the log of a job names, which is the same at every device.

    Each has ``peer``, ``round`` (the first one, of all stages), ``rounds`` (in how many), ``reason``, and ``found_by``: here
    "all".
    """
    return [
        {"peer": roster[one.peer], "round": one.round, "rounds": one.rounds, "reason": one.reason, "found_by": "all"}
        for one in suspects(state)
    ]


def suspects_by_report(events: Iterable[Event], job_id: str) -> list[dict[str, Any]]:
    """Return the suspects that single devices of a run reported, with the names of these devices.

    Examples
    --------
    >>> suspects_by_report([{"verb": "differs", "job": "j", "peer": "a", "by": "b", "round": 3}], "j")[0]["found_by"]
    ['b']
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for event in events:
        if event["verb"] not in ("differs", "refutes-state") or event.get("job") != job_id:
            continue
        reason = str(event.get("reason") or ANSWERED_TWICE)
        known = found.setdefault(
            (event["peer"], reason),
            {"peer": event["peer"], "round": event["round"], "rounds": 1, "reason": reason, "found_by": []},
        )
        known["found_by"] = sorted({*known["found_by"], event["by"]})
    return list(found.values())


def in_words(suspect: Mapping[str, Any]) -> str:
    """Return one line for people.

    Examples
    --------
    >>> in_words({"peer": "a", "round": 3, "rounds": 2, "reason": "a cluster has a negative weight", "found_by": "all"})
    'a, in 2 rounds from 3 on: a cluster has a negative weight'
    """
    by = "" if suspect["found_by"] == "all" else f", as {', '.join(suspect['found_by'])} found"
    several = suspect["rounds"] > 1
    when = f"in {suspect['rounds']} rounds from {suspect['round']} on" if several else f"in round {suspect['round']}"
    return f"{suspect['peer']}, {when}: {suspect['reason']}{by}"
