"""Events of a run in a line each, for tests of what reads them: keys that a test does not care about may be left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from p2pclust.lab.run.events import RunEvent

#: Keys that a test does not care about.
ELSE = {
    "job": "j", "round": 0, "term": 0, "votes": 0, "of": 0, "digest": "", "before": "", "incarnation": 0,
    "task": "combine", "hint": "", "via": [], "contributors": [],
}  # fmt: skip


def happened(event: Mapping[str, Any]) -> RunEvent:
    """Return an event; a report on another peer is of that peer, unless `by` says which peer reports it."""
    return RunEvent.of(event if event["verb"] == "fault" else {"t": 0.0, **ELSE, **event})
