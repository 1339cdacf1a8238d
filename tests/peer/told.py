"""A snapshot as `p2pclust.peer.operate.status.snapshot` makes one, with everything in it that can be."""

from __future__ import annotations

from typing import Any

from p2pclust.peer.operate.status import FleetStatus, JobStatus, MemberStatus, PeerStatus
from p2pclust.peer.shell.compute import DataStatus
from p2pclust.peer.work.floor import Floor
from p2pclust.transport.links import Counters

JOB: dict[str, Any] = {
    "job": "job-12f2b11ada9abdc6", "name": "job-12f2b11ada9abdc6", "protocol": "llf-fcm", "clusters": 3,
    "roster": ["a", "b", "c"], "submitter": "a",
    "missing": "wait", "collect": "star", "within": "", "term": 2, "round": 7, "phase": "gathering", "aggregator": "a",
    "waits_for": ["b", "c"], "absent": ["c"], "reason": "",
}  # fmt: skip

TOLD: dict[str, Any] = {
    "peer": "a", "version": "0.1.0", "address": "10.0.0.1:7000", "incarnation": 3, "uptime_s": 7300.0,
    "fleet": {"id": "b7d1", "serial": 4, "enrolled": 3, "alive": 2, "majority": 2}, "waiting": "",
    "members": [
        {"name": "b", "status": "alive", "incarnation": 1, "address": "10.0.0.2:7000", "linked": True, "heard_s": 0.25,
         "why": ""},
        {"name": "c", "status": "dead", "incarnation": 1, "address": "10.0.0.3:7000", "linked": True, "heard_s": None,
         "why": "silent, declared dead 9 s ago"},
    ],
    "jobs": [JOB, JOB | {"job": "job-2", "phase": "done", "clusters": None, "waits_for": [], "absent": []}],
    "counters": {
        "messages_sent": 10, "messages_received": 20, "bytes_sent": 3000, "bytes_received": 4_000_000,
        "dropped": {"malformed": 2},
    },
    "data": {"rows": 40, "columns": 2, "problem": ""},
    "privacy": {"secure": False, "keep": False, "cohort": 0, "min_cell": 0, "protocols": (), "private": False,
                "given_centers": True, "least_rounds": 0, "jobs": "", "rosters": ""},
    "rss_mb": 50.0, "max_rss_mb": 60.0, "descriptors": 21, "tasks": 1,
}  # fmt: skip


def a_status(told: dict[str, Any] = TOLD) -> PeerStatus:
    """The same as a value."""
    parts = {
        "fleet": FleetStatus(**told["fleet"]),
        "members": [MemberStatus(**member) for member in told["members"]],
        "jobs": [JobStatus(**job) for job in told["jobs"]],
        "data": DataStatus(**told["data"]),
        "privacy": Floor(**told["privacy"]),
        "counters": Counters(**told["counters"]),
    }
    return PeerStatus(**(told | parts))
