"""The columns of a sweep's table: the axes that identify a cell, and the results of each measure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class SweepColumn:
    """A column: its type (str, int, float or bool; any may be empty) and its meaning."""

    type: type
    what: str


@dataclass(frozen=True)
class SweepMeasure:
    """A measure: which axes of the grid it has, and what it adds to the table."""

    what: str
    axes: tuple[str, ...]
    columns: Mapping[str, SweepColumn]


#: The axes that identify a cell, in the table's order.
AXES: Final[Mapping[str, SweepColumn]] = {
    "overlay": SweepColumn(str, "its name in the file"),
    "kind": SweepColumn(str, "of the overlay"),
    "peers": SweepColumn(int, "how many"),
    "protocol": SweepColumn(str, "of the job"),
    "collect": SweepColumn(str, "how contributions come together"),
    "loss": SweepColumn(float, "probability that a device's link loses a message, on the way from it and to it"),
    "latency_ms": SweepColumn(float, "delay that a device's link adds, on the way from it and to it"),
    "aggregator": SweepColumn(str, "who was to aggregate the first term"),
    "mixing": SweepColumn(str, "by which shares peers average"),
    "who": SweepColumn(str, "the victim of the fault, as given"),
    "seed": SweepColumn(int, "of all randomness"),
}

#: Measures of every overlay.
_OVERLAY: Final[Mapping[str, SweepColumn]] = {
    "links": SweepColumn(int, "of the overlay"),
    "degree_mean": SweepColumn(float, "links of a peer on average"),
    "degree_greatest": SweepColumn(int, "links of the peer with most of them"),
    "diameter": SweepColumn(int, "the greatest distance between two peers, in links"),
    "average_path": SweepColumn(float, "the mean distance between two peers, in links"),
    "spectral_gap": SweepColumn(float, "1 minus the second eigenvalue of the Metropolis-Hastings matrix"),
    "cut_vertices": SweepColumn(int, "peers whose loss would disconnect the others"),
    "log2_peers": SweepColumn(float, "log2 of the number of peers"),
}

_JOB: Final[Mapping[str, SweepColumn]] = {
    "outcome": SweepColumn(
        str, "finished: all live peers; some wait, behind a cut; waiting: all; failed; unlinked; no such peer"
    ),
    "finished": SweepColumn(int, "peers that hold the final state"),
    "identical": SweepColumn(bool, "whether all of these hold the same bits"),
    "relative_difference": SweepColumn(float, "to the pooled centers, in each feature's range; of lossless protocols"),
    "why_different": SweepColumn(
        str, "why that difference is above 1e-9, such as sums of one row that were suppressed"
    ),
    "gap": SweepColumn(
        float, "of the centers to those of the pooled algorithm, in each feature's range; of the other protocols"
    ),
    "ari": SweepColumn(
        float, "adjusted Rand index over all rows of the peers that contributed, where true labels are known"
    ),
    "accuracy": SweepColumn(
        float, "of these labels under their best matching; of fedcref the mean over peers of each one's own"
    ),
    "communities": SweepColumn(int, "that fedcref found"),
    "rounds": SweepColumn(int, "of all stages"),
    "job_seconds": SweepColumn(float, "virtual, from submission to the end of the last peer that finished"),
    "messages": SweepColumn(
        int, "that crossed a link, from the fleet's start to its end; relayed ones count on each link"
    ),
    "bytes": SweepColumn(int, "of these"),
    "job_messages": SweepColumn(int, "of the job alone: without membership and facts"),
    "job_bytes": SweepColumn(int, "of these"),
    "blob_bytes": SweepColumn(int, "of chunks of models and of large states, part of job_bytes"),
    "link_bytes_mean": SweepColumn(float, "job_bytes per link and direction"),
    "link_bytes_max": SweepColumn(int, "job_bytes of the hottest link, in its hotter direction"),
    "hottest_link": SweepColumn(str, "which link that is"),
    "crossings": SweepColumn(
        float, "links that contributions, or sums of them, crossed per clustering round in which all contributed; mean"
    ),
    "peer_load": SweepColumn(float, "job_bytes that the busiest peer sent, over the mean of all peers"),
    "led_by": SweepColumn(str, "who aggregated the last term"),
    "led_betweenness": SweepColumn(float, "share of shortest ways between two others that lead through that peer"),
    "led_closeness": SweepColumn(float, "N - 1 over the sum of its distances to all others"),
    "terms": SweepColumn(int, "how many there were; the first of an aggregator that was named counts"),
}

MEASURES: Final[Mapping[str, SweepMeasure]] = {
    "job": SweepMeasure(
        "a job on a simulated fleet: what it costs, and whether it is exact",
        ("overlay", "peers", "protocol", "collect", "loss", "latency_ms", "aggregator", "seed"),
        _JOB,
    ),
    "facts": SweepMeasure(
        "how long it takes until all peers have what one peer publishes",
        ("overlay", "peers", "loss", "latency_ms", "seed"),
        {
            "publisher": SweepColumn(str, "whose fact it is, drawn by the seed"),
            "eccentricity": SweepColumn(int, "the publisher's distance to the farthest peer, in links"),
            "informed": SweepColumn(int, "peers that have it in the end"),
            "seconds": SweepColumn(float, "virtual, until all peers had it"),
            "seconds_half": SweepColumn(float, "virtual, until half of them had it"),
            "gossip_periods": SweepColumn(float, "seconds over the gossip period of the timing preset"),
            "link_delays": SweepColumn(float, "seconds over the mean delay of one message over one link"),
            "deltas": SweepColumn(int, "messages that carried it"),
        },
    ),
    "mixing": SweepMeasure(
        "how many ticks averaging without an aggregator takes until all agree",
        ("overlay", "peers", "mixing", "seed"),
        {
            "predicted": SweepColumn(float, "ticks by the second eigenvalue of the shares: log(tolerance) / log(it)"),
            "ticks": SweepColumn(
                int, "until every peer was within tolerance times the greatest initial distance of the mean"
            ),
            "ratio": SweepColumn(float, "ticks over predicted"),
            "tick_messages": SweepColumn(int, "that cross a link in one tick"),
        },
    ),
    "recovery": SweepMeasure(
        "a job in which a peer dies at a round: how long it takes, or which peers wait",
        ("overlay", "peers", "protocol", "collect", "loss", "latency_ms", "aggregator", "who", "seed"),
        {"victim": SweepColumn(str, "the peer that died; empty if none"), **_JOB},
    ),
}


def columns_of(measure: str) -> dict[str, SweepColumn]:
    """Return all columns of a measure's table, by name, in order.

    >>> list(columns_of("mixing"))[:4]
    ['overlay', 'kind', 'peers', 'mixing']
    """
    axes = (*MEASURES[measure].axes, "kind")
    return {**{name: axis for name, axis in AXES.items() if name in axes}, **_OVERLAY, **MEASURES[measure].columns}
