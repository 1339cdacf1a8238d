"""The specification of a run and its result, the same for every backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pclust.errors import UsageError
from p2pclust.jobs.request import JobRequest, JobResult
from p2pclust.lab.links.shaping import Shape
from p2pclust.lab.simulation.world.network import LinkTraffic
from p2pclust.lab.testbed.faults import Damage, Do, Fault
from p2pclust.lab.testbed.power import Battery, Rest
from p2pclust.overlay.traces import LinkChange
from p2pclust.protocols.engine.base import WithWorkspace
from p2pclust.protocols.engine.local import Local

#: One thing that happened: `t` (seconds since the fleet started), `peer`, `verb`, and the verb's own fields.
#: An event as ``events.jsonl`` has it.
LogLine = Mapping[str, Any]
OnEvent = Callable[[LogLine], None]
#: In a larger fleet, an overlay of kind regular is a partial view, and large objects go from all to all only on request.
LARGE_FLEET = 64


@dataclass(frozen=True)
class PeerSpec:
    """One device and its rows, in the data's own units."""

    name: str
    X: NDArray[np.float64]  # (n_samples, n_features)
    fitness: float = 0.5  # how suitable it is as aggregator, 0 to 1
    link: Shape | None = None  # None: the network of this machine; in simulation, a local network
    battery: Battery | None = None  # its costs and its capacity; None: no energy account
    rest: Rest | None = None  # when it sleeps by plan
    cpu_share: float = 1.0  # share of one processor for its computations
    memory_mb: float | None = None  # the most memory it may use, in 10^6 bytes; processes only
    ids: NDArray[Any] | None = None  # (n_samples,): row identifiers, where peers hold columns
    centers: NDArray[np.float64] | None = None  # (n_clusters, n_features): its columns of given first centers
    labels: NDArray[np.int64] | None = None  # (n_samples,): the partition that some protocols start from
    n_clusters: int | None = None  # number of clusters in its rows, where that differs between peers
    enrolled: bool = True  # whether it is on the fleet roster; if not, it tries to join as a stranger

    def local(self) -> Local:
        return Local(self.X, ids=self.ids, centers=self.centers, labels=self.labels, n_clusters=self.n_clusters)


@dataclass(frozen=True)
class FleetSpec:
    peers: tuple[PeerSpec, ...]
    jobs: tuple[JobRequest, ...]
    timing: str = "fast"
    seed: int = 0
    overlay: Mapping[str, tuple[str, ...]] | None = None  # each peer's neighbours; a full mesh by default
    partial_view: bool = False  # whether peers replace a neighbour that died by another
    trace: tuple[LinkChange, ...] = ()  # links that appear and vanish, in the order of time; needs an overlay
    faults: tuple[Fault, ...] = ()
    directory: Path | None = None  # where peers keep their stores and logs; a temporary one by default
    give_up_s: float = 120.0  # after this long without any progress the fleet is given up

    def __post_init__(self) -> None:
        if self.trace and self.overlay is None:
            raise UsageError(
                "trace: a full mesh has no links that could change: give the overlay that the trace begins with"
            )

    @property
    def quiet_s(self) -> float:
        """The longest planned silence of a device: the longest sleep of any duty cycle."""
        duties = (peer.rest.duty for peer in self.peers if peer.rest is not None)
        return max((duty.off_s for duty in duties if duty is not None), default=0.0)

    def plans(self, do: Do) -> bool:
        return any(fault.do == do for fault in self.faults)

    def refuse_floods(self) -> None:
        """Refuse jobs in which each peer of a large fleet sends large objects to all others, unless they were asked for."""
        for request in self.jobs if len(self.peers) > LARGE_FLEET else ():
            protocol = request.job.protocols[request.job.main]
            if isinstance(protocol, WithWorkspace) and not request.all_to_all:
                raise UsageError(
                    f"{protocol.id}: each of {len(self.peers)} peers would send its models to all others, which is "
                    f"meant for up to {LARGE_FLEET}: say all_to_all = true if that is what you want"
                )


@dataclass(frozen=True)
class FleetResult:
    jobs: tuple[JobResult, ...]
    peers: Mapping[str, Mapping[str, Any]]  # finished, messages_sent, bytes_sent, bytes_received, max_rss_mb, lost
    wall_seconds: float
    virtual_seconds: float | None = None
    failure: str = ""  # why the fleet could not finish; empty if it could
    unfired_faults: tuple[str, ...] = ()
    events: tuple[LogLine, ...] = field(default=(), repr=False)
    #: Traffic of each link, by (from, to); counted by the simulated backend only.
    links: Mapping[tuple[str, str], LinkTraffic] = field(default_factory=dict, repr=False)
    #: Damaged rows and the rounds from which they were used, in the order of their first use.
    damage: tuple[Damage, ...] = field(default=(), repr=False)
