"""A peer's metrics for Prometheus; an extra."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from p2pclust.peer.operate.status import PeerStatus

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

#: Every metric with its description. Counters start with the process; Prometheus adds ``_total`` to their names.
HELP: Final[Mapping[str, str]] = {
    "p2pclust_info": "1, with the peer's name, fleet, class and version as labels",
    "p2pclust_uptime_seconds": "Seconds since the peer started",
    "p2pclust_peers_enrolled": "Peers on the fleet roster, with this one",
    "p2pclust_peers_alive": "Enrolled peers that this peer sees as alive or suspect, with this one",
    "p2pclust_peers_majority": "The number of peers that is a majority",
    "p2pclust_member_up": "Whether this peer sees another peer as alive or suspect; absent if that peer left on purpose",
    "p2pclust_member_heard_seconds": "Seconds since another peer was last heard; absent if never",
    "p2pclust_jobs": "Jobs of this peer by phase",
    "p2pclust_job_round": "The round that a running job has reached here",
    "p2pclust_job_term": "The term of a running job that this peer knows",
    "p2pclust_job_peers_absent": "Peers of a running job's roster that are not here",
    "p2pclust_events": "Events by their word in the log",
    "p2pclust_messages_sent": "Messages handed to the transport",
    "p2pclust_messages_received": "Messages received from enrolled peers",
    "p2pclust_sent_bytes": "Bytes of these messages",
    "p2pclust_received_bytes": "Bytes of these messages",
    "p2pclust_messages_dropped": "Messages that were not sent or not handed on, by reason",
    "p2pclust_cpu_seconds": "Processor time of this process",
    "p2pclust_resident_memory_bytes": "Resident memory",
    "p2pclust_max_resident_memory_bytes": "Highest resident memory so far",
    "p2pclust_open_descriptors": "Open files and sockets",
    "p2pclust_tasks": "Tasks of the event loop",
}

#: Events that are counted from 0, so that their first one is an increase: a device that breaks the protocol, or has a fault.
SUSPICIOUS: Final = (
    "bad-part", "contradiction", "corrupt", "differs", "forged-fact", "malformed", "refutes-state",
    "second-aggregator", "twin",
)  # fmt: skip
_ENDED: Final = ("done", "failed", "cancelled")


class Metrics(Collector):
    """Collects the metrics of one peer from its `snapshot`, and counts its events; `kind` is the class of its device."""

    def __init__(self, snapshot: Callable[[], PeerStatus], kind: str = "") -> None:
        self._snapshot = snapshot
        self._kind = kind
        self._events = Counter(dict.fromkeys(SUSPICIOUS, 0))
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def count(self, verb: str, fields: Mapping[str, Any]) -> None:
        self._events[verb] += 1

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        return []  # the metrics vary

    def collect(self) -> Iterator[Metric]:
        status = self._snapshot()
        labels = {
            "peer": status.peer, "fleet": status.fleet.id, "class": self._kind, "version": status.version,
        }  # fmt: skip
        yield _gauge("p2pclust_info", [(labels, 1)])
        yield _gauge("p2pclust_uptime_seconds", [({}, status.uptime_s)])
        for what in ("enrolled", "alive", "majority"):
            yield _gauge(f"p2pclust_peers_{what}", [({}, getattr(status.fleet, what))])
        members = [(member, {"member": member.name}) for member in status.members]
        up = [(name, member.status in ("alive", "suspect")) for member, name in members if member.status != "left"]
        yield _gauge("p2pclust_member_up", up)
        heard = [(name, member.heard_s) for member, name in members if member.heard_s is not None]
        yield _gauge("p2pclust_member_heard_seconds", heard)
        phases = Counter(job.phase for job in status.jobs)
        yield _gauge("p2pclust_jobs", [({"phase": phase}, n) for phase, n in sorted(phases.items())])
        # Not "job": Prometheus gives that label to what it scrapes. Ended jobs would be hundreds of series that stand still.
        running = [job for job in status.jobs if job.phase not in _ENDED]
        labelled = [(job, {"job_id": job.job, "protocol": job.protocol}) for job in running]
        yield _gauge("p2pclust_job_round", [(named, job.round) for job, named in labelled])
        yield _gauge("p2pclust_job_term", [(named, job.term) for job, named in labelled])
        yield _gauge("p2pclust_job_peers_absent", [(named, len(job.absent)) for job, named in labelled])
        yield _counter("p2pclust_events", [({"event": verb}, n) for verb, n in sorted(self._events.items())])
        counters = status.counters
        for way in ("sent", "received"):
            yield _counter(f"p2pclust_messages_{way}", [({}, getattr(counters, f"messages_{way}"))])
            yield _counter(f"p2pclust_{way}_bytes", [({}, getattr(counters, f"bytes_{way}"))])
        dropped = [({"reason": reason}, n) for reason, n in sorted(counters.dropped.items())]
        yield _counter("p2pclust_messages_dropped", dropped)
        times = os.times()
        yield _counter("p2pclust_cpu_seconds", [({}, times.user + times.system)])
        yield _gauge("p2pclust_resident_memory_bytes", [({}, status.rss_mb * 2**20)])
        yield _gauge("p2pclust_max_resident_memory_bytes", [({}, status.max_rss_mb * 2**20)])
        yield _gauge("p2pclust_open_descriptors", [({}, status.descriptors)])
        yield _gauge("p2pclust_tasks", [({}, status.tasks)])


def _family(
    of: type[GaugeMetricFamily | CounterMetricFamily], name: str, samples: list[tuple[dict[str, str], Any]]
) -> Metric:
    family = of(name, HELP[name], labels=sorted(samples[0][0]) if samples else [])
    for labels, value in samples:
        family.add_metric([labels[name] for name in sorted(labels)], float(value))
    return family


_gauge = partial(_family, GaugeMetricFamily)
_counter = partial(_family, CounterMetricFamily)
