"""Which devices single devices of a run suspected; the log of a job names others (`p2pclust.protocols.engine.summaries`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from p2pclust.lab.testbed.spec import Event
from p2pclust.peer.core.rounds.answers import ANSWERED_TWICE


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
