"""A peer's metrics for Prometheus; an extra."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from p2pclust.peer.operate.status import ENDED, PeerStatus

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

#: Events that are counted from 0, so that their first one is an increase: a device that breaks the protocol, or has a fault.
SUSPICIOUS: Final = (
    "bad-evidence", "bad-part", "contradiction", "corrupt", "differs", "forged-fact", "malformed", "refutes-state",
    "second-aggregator", "twin",
)  # fmt: skip
#: One number, or one for each set of labels.
_Samples = float | Sequence[tuple[Mapping[str, str], Any]]


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
        fleet, counters, times = status.fleet, status.counters, os.times()
        labels = {"peer": status.peer, "fleet": fleet.id, "class": self._kind, "version": status.version}
        members = [(member, {"member": member.name}) for member in status.members]
        up = [(name, member.status in ("alive", "suspect")) for member, name in members if member.status != "left"]
        heard = [(name, member.heard_s) for member, name in members if member.heard_s is not None]
        phases = Counter(job.phase for job in status.jobs)
        # Not "job": Prometheus gives that label to what it scrapes. Ended jobs would be hundreds of series that stand still.
        running = [job for job in status.jobs if job.phase not in ENDED]
        jobs = [(job, {"job_id": job.job, "protocol": job.protocol}) for job in running]
        absent = [(of, len(job.absent)) for job, of in jobs]
        gauges: tuple[tuple[str, str, _Samples], ...] = (
            ("info", "1, with the peer's name, fleet, class and version as labels", [(labels, 1)]),
            ("uptime_seconds", "Seconds since the peer started", status.uptime_s),
            ("peers_enrolled", "Peers on the fleet roster, with this one", fleet.enrolled),
            ("peers_alive", "Enrolled peers that this peer sees as alive or suspect, with this one", fleet.alive),
            ("peers_majority", "The number of peers that is a majority", fleet.majority),
            (
                "member_up",
                "Whether this peer sees another peer as alive or suspect; absent if that peer left on purpose",
                up,
            ),
            ("member_heard_seconds", "Seconds since another peer was last heard; absent if never", heard),
            ("jobs", "Jobs of this peer by phase", [({"phase": phase}, n) for phase, n in sorted(phases.items())]),
            ("job_round", "The round that a running job has reached here", [(of, job.round) for job, of in jobs]),
            ("job_term", "The term of a running job that this peer knows", [(of, job.term) for job, of in jobs]),
            ("job_peers_absent", "Peers of a running job's roster that are not here", absent),
            ("resident_memory_bytes", "Resident memory", status.rss_mb * 2**20),
            ("max_resident_memory_bytes", "Highest resident memory so far", status.max_rss_mb * 2**20),
            ("open_descriptors", "Open files and sockets", status.descriptors),
            ("tasks", "Tasks of the event loop", status.tasks),
        )
        events = [({"event": verb}, n) for verb, n in sorted(self._events.items())]
        dropped = [({"reason": reason}, n) for reason, n in sorted(counters.dropped.items())]
        numbers: tuple[tuple[str, str, _Samples], ...] = (
            ("events", "Events by their word in the log", events),
            ("messages_sent", "Messages handed to the transport", counters.messages_sent),
            ("sent_bytes", "Bytes of these messages", counters.bytes_sent),
            ("messages_received", "Messages received from enrolled peers", counters.messages_received),
            ("received_bytes", "Bytes of these messages", counters.bytes_received),
            ("messages_dropped", "Messages that were not sent or not handed on, by reason", dropped),
            ("cpu_seconds", "Processor time of this process", times.user + times.system),
        )
        yield from (_family(GaugeMetricFamily, *gauge) for gauge in gauges)
        yield from (_family(CounterMetricFamily, *number) for number in numbers)


def _family(
    of: type[GaugeMetricFamily | CounterMetricFamily], name: str, text: str, samples: _Samples
) -> Metric:  # fmt: skip
    """Return one metric: a number, or one for each set of labels. Prometheus adds ``_total`` to names of counters."""
    several = [({}, samples)] if isinstance(samples, int | float) else samples
    family = of(f"p2pclust_{name}", text, labels=sorted(several[0][0]) if several else [])
    for labels, value in several:
        family.add_metric([labels[label] for label in sorted(labels)], float(value))
    return family
