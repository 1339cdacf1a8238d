"""What a fleet is asked to do, and what came of it: the same for every backend."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pclust.errors import UsageError
from p2pclust.fleet.faults import Damage, Fault
from p2pclust.fleet.power import Battery, Rest
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.base import WithWorkspace
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.workspace import Workspace
from p2pclust.protocols.gossip.leaderless import unfit
from p2pclust.simulation.world.traffic import LinkTraffic
from p2pclust.topology.traces import LinkChange
from p2pclust.transport.shaping import Shape

__all__ = [
    "LARGE_FLEET",
    "Event",
    "Fault",
    "FleetResult",
    "FleetSpec",
    "JobRequest",
    "JobResult",
    "Link",
    "OnEvent",
    "PeerSpec",
]

#: One thing that happened: `t` (seconds since the fleet started), `peer`, `verb`, and the verb's own fields.
Event = Mapping[str, Any]
OnEvent = Callable[[Event], None]
#: Above so many peers an overlay of kind regular is a partial view, and nothing large goes from all to all unasked.
LARGE_FLEET = 64


@dataclass(frozen=True)
class Link:
    """A device's own half of every way: what it sends and what it receives, see :mod:`p2pclust.transport.shaping`.

    Examples
    --------
    >>> Link(latency_ms=40, up_mbit=1).shape.up.seconds(12_500)
    0.14
    """

    latency_ms: float = 0.0
    loss: float = 0.0
    jitter_ms: float = 0.0
    up_mbit: float | None = None  # None: without bound
    down_mbit: float | None = None

    @property
    def shape(self) -> Shape:
        """As the transport and the simulator take it."""
        up, down = (math.inf if mbit is None else mbit for mbit in (self.up_mbit, self.down_mbit))
        return Shape.of(
            latency_ms=self.latency_ms, jitter_ms=self.jitter_ms, loss=self.loss, up_mbit=up, down_mbit=down
        )


@dataclass(frozen=True)
class PeerSpec:
    """One device and its rows, in the data's own units."""

    name: str
    X: NDArray[np.float64]  # (n_samples, n_features)
    fitness: float = 0.5  # how well it would aggregate, 0 to 1
    link: Link | None = None  # None: as good as this machine, in simulation a local network
    battery: Battery | None = None  # what it costs and has; None: nobody keeps account of it
    rest: Rest | None = None  # when it sleeps by plan
    cpu_share: float = 1.0  # of one processor, for its mathematics
    memory_mb: float | None = None  # what it may have, in 10^6 bytes; processes only
    ids: NDArray[Any] | None = None  # (n_samples,): what its rows are called, where peers hold columns
    centers: NDArray[np.float64] | None = None  # (n_clusters, n_features): its columns of given first centers
    labels: NDArray[np.int64] | None = None  # (n_samples,): a partition to start from, where a protocol starts from one
    n_clusters: int | None = None  # how many clusters its rows have, where peers have numbers of their own
    enrolled: bool = True  # whether it is on the fleet roster; if not, it tries to get in all the same

    def local(self) -> Local:
        """Its data, as the protocols see them."""
        return Local(self.X, ids=self.ids, centers=self.centers, labels=self.labels, n_clusters=self.n_clusters)


@dataclass(frozen=True)
class JobRequest:
    """A job and how the fleet is to treat missing peers."""

    job: Job
    missing: str = ""  # all | wait | drop; by default wait, and all where every peer is indispensable
    patience_s: float = 0.0  # 0: the timing preset's
    deadline_s: float = 0.0
    aggregator: str = ""
    collect: str = ""  # star | tree | gossip; by default star where everybody is linked to everybody, otherwise tree
    tolerance: float = 0.0  # of collect = "gossip": how closely all estimates of a sum agree; 0: 1e-9
    mixing: str = ""  # of collect = "gossip": push-sum | metropolis-hastings
    #: Of collect = "gossip": after which each peer goes on from its own mixture, where the protocol allows it.
    ticks: int = 0
    all_to_all: bool = False  # whether large objects of each may go to all others in a large fleet

    def __post_init__(self) -> None:
        usual = "all" if self.job.by_columns else "wait"
        object.__setattr__(self, "missing", self.missing or usual)
        if self.job.by_columns and self.missing != "all":
            raise UsageError(
                f"missing = {self.missing!r}: {self.job.stages[self.job.main].protocol} needs every peer's columns in every "
                "round: expected 'all'"
            )
        if self.collect == "gossip":
            object.__setattr__(self, "tolerance", self.tolerance or 1e-9)
            if flaw := unfit(self.job):
                raise UsageError(flaw)


@dataclass(frozen=True)
class FleetSpec:
    """Everything that a backend needs."""

    peers: tuple[PeerSpec, ...]
    jobs: tuple[JobRequest, ...]
    timing: str = "fast"
    seed: int = 0
    overlay: Mapping[str, tuple[str, ...]] | None = None  # each peer's neighbours; a full mesh by default
    partial_view: bool = False  # whether peers link to others in the place of a neighbour that died
    trace: tuple[LinkChange, ...] = ()  # links that appear and vanish, in the order of time; needs an overlay
    faults: tuple[Fault, ...] = ()
    directory: Path | None = None  # where peers keep their stores and logs; a temporary one by default
    give_up_s: float = 120.0  # after this long without any progress the fleet is given up

    def __post_init__(self) -> None:
        if self.trace and self.overlay is None:
            raise UsageError("trace: a full mesh without links of its own: give the overlay that the trace begins with")

    @property
    def quiet_s(self) -> float:
        """How long a device may be silent by plan: the longest sleep of any duty cycle."""
        duties = (peer.rest.duty for peer in self.peers if peer.rest is not None)
        return max((duty.off_s for duty in duties if duty is not None), default=0.0)

    def up_rates(self) -> dict[str, float]:
        """Bytes per second of the up-links that have a bound, by name."""
        shapes = {peer.name: peer.link.shape for peer in self.peers if peer.link is not None}
        return {name: shape.up.rate for name, shape in shapes.items() if math.isfinite(shape.up.rate)}

    def refuse_floods(self) -> None:
        """Refuse jobs in which each peer of a large fleet sends large objects to all others, unless they were asked for.

        Raises
        ------
        UsageError
            If there is one.
        """
        for request in self.jobs if len(self.peers) > LARGE_FLEET else ():
            protocol = request.job.protocols[request.job.main]
            if isinstance(protocol, WithWorkspace) and not request.all_to_all:
                raise UsageError(
                    f"{protocol.id}: each of {len(self.peers)} peers would send its models to all others, which is "
                    f"meant for up to {LARGE_FLEET}: say all_to_all = true if that is what you want"
                )


@dataclass(frozen=True)
class JobResult:
    """What came of one job. `state` is None if no peer finished it."""

    job_id: str
    roster: tuple[str, ...]
    state: JobState | None
    terms: tuple[tuple[int, str], ...]  # every (term, aggregator) that was elected
    digests: Mapping[str, str]  # of the final state, by the peers that finished
    seconds: float  # from handing in to the last peer's end
    notes: Mapping[str, Arrays] = field(default_factory=dict, repr=False)  # what peers kept for themselves, by name
    #: By digest: those that are part of the result, and those that only the peers with these notes had.
    blobs: Mapping[bytes, bytes] = field(default_factory=dict, repr=False)
    # Where nobody aggregated:
    tolerance: float | None = None  # within which all estimates of each sum agreed before anybody took one
    reached: float | None = None  # how far any peer's own estimate was from the one taken, at most
    ticks: tuple[int, ...] = ()  # of each round

    def workspace(self, name: str) -> Workspace:
        """Return a peer's workspace as the job left it."""
        return Workspace(self.roster.index(name), self.notes.get(name, Arrays()), self.blobs.get)


@dataclass(frozen=True)
class FleetResult:
    """What came of a run."""

    jobs: tuple[JobResult, ...]
    peers: Mapping[str, Mapping[str, Any]]  # finished, messages_sent, bytes_sent, bytes_received, max_rss_mb, lost
    wall_seconds: float
    virtual_seconds: float | None = None
    failure: str = ""  # why the fleet could not finish; empty if it could
    unfired_faults: tuple[str, ...] = ()
    n_events: int = 0
    events: tuple[Event, ...] = field(default=(), repr=False)
    #: What crossed each link, by (from, to); counted by the simulated backend only.
    links: Mapping[tuple[str, str], LinkTraffic] = field(default_factory=dict, repr=False)
    #: Which devices had damaged rows from which round on, in the order in which they first used them.
    damage: tuple[Damage, ...] = field(default=(), repr=False)
