"""Events in words: what `p2pclust.lab.live.progress` says of those that matter, one line each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

#: Lines that need only the fields of their event.
LINES: Final[Mapping[str, str]] = {
    "drained": "the battery of {peer} is empty",
    "failed": "{peer} failed: {reason}",
    "data-refused": "{peer} cannot use its data: {reason}",
    "refused": "{peer} refuses the job: {reason}",
    "store-damaged": "{peer} found its store damaged and begins with an empty one; the old one is kept",
    "left-out": "round {round} goes on without {peer}, which stays silent",
    "out-of-reach": "{peer} does not answer the aggregator in round {round}: another one may take over",
    "unable": "{peer} cannot go on with the job: {reason}",
    "stands-still": "{peer} aggregates, but has made no progress for {seconds:.0f} s: another one may take over",
    "proposer": "{proposer} is asked in place of a peer that is gone",
}

#: What a fault does, in words, and the status of its victim from then on, if that changes.
FAULTS: Final[Mapping[str, tuple[str, str]]] = {
    "kill": ("killed", "lost"),
    "drain": ("has an empty battery", "lost"),
    "restart": ("killed, to come back", "down"),
    "pause": ("paused", "paused"),
    "resume": ("resumed", "alive"),
    "join": ("joins", ""),
    "leave": ("leaves", ""),
    "cut": ("cut off", ""),
    "heal": ("no longer cut off", ""),
    "slow": ("slowed down", ""),
    "drop": ("loses messages", ""),
    "corrupt-data": ("works with damaged rows", ""),
    "lie": ("lies about its rows", ""),
    "revoke": ("revoked", "lost"),
}


def relinked(event: Mapping[str, Any]) -> str:
    """Say that a link appeared or vanished."""
    return f"{event['peer']} and {event['to']} {'are linked now' if event['up'] else 'have lost their link'}"


def relayed(event: Mapping[str, Any]) -> str:
    """Say that a peer is asked through others."""
    through = f": asked through {', '.join(event['via'])}" if event["via"] else ""
    return f"{event['peer']} stays silent in round {event['round']}{through}"
