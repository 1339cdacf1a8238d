"""Measure "facts": one peer of an idle fleet publishes a fact, and the time of its arrival at each peer is recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from p2pclust.errors import FleetError
from p2pclust.lab.simulation.world.network import Conditions, Network
from p2pclust.lab.simulation.world.observer import Observer
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.lab.simulation.world.world import World
from p2pclust.lab.sweep.cells import Cell
from p2pclust.lab.topology.matrices import hops
from p2pclust.overlay.overlay import Overlay
from p2pclust.peer.core.core import Core
from p2pclust.peer.core.events import Woken
from p2pclust.peer.core.timing import Limits, preset
from p2pclust.protocols.engine import random_streams
from p2pclust.protocols.engine.local import Local

_KEY, _VALUE = "cancel/news", b"a fact for all peers"  # of a kind that peers keep
_MEET_S = 120.0
_SPREAD_S = 600.0
#: What every message takes, beside its devices' own latency.
_DELAY_S = (0.0001, 0.0005)


@dataclass(eq=False)
class _FirstTimes(Observer):
    """Record when something first holds of each peer."""

    n_peers: int
    holds: Callable[[Core], bool]
    times: dict[str, float] = field(default_factory=dict)

    def stepped(self, world: World, peer: Peer) -> None:
        if peer.name not in self.times and peer.core is not None and self.holds(peer.core):
            self.times[peer.name] = world.now

    def complete(self) -> bool:
        return len(self.times) == self.n_peers


def measure(cell: Cell, overlay: Overlay) -> dict[str, Any]:
    """Return the columns of a cell of this measure. Raise FleetError if the peers do not find each other."""
    timing = preset(cell.fixed["fleet"]["timing"])
    latency_s, loss = cell.axis("latency_ms") / 1000, cell.axis("loss")
    rng = random_streams.gossiping(cell.seed)
    publisher = overlay.names[int(rng.integers(overlay.n_peers))]
    meeting = _FirstTimes(overlay.n_peers, lambda core: core.membership.all_here())
    ears = _FirstTimes(overlay.n_peers, lambda core: core.facts.get(publisher, _KEY) is not None)
    network = Network(Conditions(_DELAY_S), rng.spawn(1)[0], dict.fromkeys(overlay.names, (latency_s, loss)))
    near = None if cell.kind == "full" else {name: overlay.neighbours(name) for name in overlay.names}
    rows = {name: Local(np.zeros((1, 1))) for name in overlay.names}
    world = World(rows, network, timing, Limits(), rng.spawn(1)[0], (meeting,), overlay=near)
    for name in world.peers:
        world.start(name)
    if not world.run_until(_MEET_S, meeting.complete):
        raise FleetError(f"the peers did not find each other within {_MEET_S:.0f} virtual seconds")
    # Peers that joined late still receive old facts; an idle fleet sends only periodic comparisons.
    world.run_until(world.now + timing.sync_period_s)
    deltas_before = _deltas(world)
    began, peer = world.now, world.peers[publisher]
    world.watch(ears)
    assert peer.core is not None
    peer.core.facts.publish(_KEY, _VALUE)
    world.step(peer, Woken())
    all_informed = world.run_until(began + _SPREAD_S, ears.complete)
    heard = sorted(at - began for at in ears.times.values())
    seconds = heard[-1] if all_informed else None
    half = heard[overlay.n_peers // 2 - 1] if len(heard) >= overlay.n_peers // 2 else None
    one_link_s = sum(_DELAY_S) / 2 + 2 * latency_s
    return {
        "publisher": publisher,
        "eccentricity": int(hops(overlay)[overlay.names.index(publisher)].max()),
        "informed": len(heard),
        "seconds": _quotient(seconds, 1.0),
        "seconds_half": _quotient(half, 1.0),
        "gossip_periods": _quotient(seconds, timing.gossip_period_s),
        "link_delays": _quotient(seconds, one_link_s),
        "deltas": _deltas(world) - deltas_before,
    }


def _quotient(seconds: float | None, unit_s: float) -> float | None:
    return None if seconds is None else round(seconds / unit_s, 9)


def _deltas(world: World) -> int:
    return sum(link.messages.get("fact-delta", 0) for link in world.traffic.links().values())
