"""Measure "facts": one peer of an idle fleet publishes a fact, and the time of its arrival at each peer is recorded."""

from __future__ import annotations

from typing import Any

import numpy as np

from p2pclust.errors import FleetError
from p2pclust.peer.core.events import Woken
from p2pclust.peer.core.timing import Limits, preset
from p2pclust.protocols.engine import random_streams
from p2pclust.protocols.engine.local import Local
from p2pclust.simulation.world.network import Conditions, Network
from p2pclust.simulation.world.observer import Observer
from p2pclust.simulation.world.peer import Peer
from p2pclust.simulation.world.world import World
from p2pclust.sweep.cells import Cell
from p2pclust.topology.matrices import hops
from p2pclust.topology.overlay import Overlay

__all__ = ["measure"]

_KEY, _VALUE = "news", b"a fact for all peers"
_MEET_S = 120.0
_SPREAD_S = 600.0
#: What every message takes, beside its devices' own latency.
_DELAY_S = (0.0001, 0.0005)


class _Ears(Observer):
    """Record when each peer receives the fact."""

    def __init__(self, owner: str, n_peers: int) -> None:
        self._owner = owner
        self._n_peers = n_peers
        self.heard_at: dict[str, float] = {}

    def stepped(self, world: World, peer: Peer) -> None:
        if peer.name not in self.heard_at and peer.core is not None and peer.core.facts.get(self._owner, _KEY):
            self.heard_at[peer.name] = world.now

    def all_know(self) -> bool:
        return len(self.heard_at) == self._n_peers


class _Meeting(Observer):
    """Watch cheaply until every peer sees every other alive."""

    def __init__(self, n_peers: int) -> None:
        self._n_peers = n_peers
        self._complete: dict[str, None] = {}

    def stepped(self, world: World, peer: Peer) -> None:
        if peer.name in self._complete or peer.core is None:
            return
        if peer.core.membership.all_here():
            self._complete[peer.name] = None

    def met(self) -> bool:
        return len(self._complete) == self._n_peers


def measure(cell: Cell, overlay: Overlay) -> dict[str, Any]:
    """Return the columns of a cell of this measure.

    Raises
    ------
    FleetError
        If the peers do not find each other.
    """
    timing = preset(cell.fixed["fleet"]["timing"])
    latency_s = cell.axis("latency_ms") / 1000
    rng = random_streams.gossiping(cell.seed)
    publisher = overlay.names[int(rng.integers(overlay.n_peers))]
    meeting, ears = _Meeting(overlay.n_peers), _Ears(publisher, overlay.n_peers)
    world = _world(cell, overlay, rng, (meeting,))
    for name in world.peers:
        world.start(name)
    if not world.run_until(_MEET_S, meeting.met):
        raise FleetError(f"the peers did not find each other within {_MEET_S:.0f} virtual seconds")
    # Peers that joined late still receive old facts; an idle fleet sends only periodic comparisons.
    world.run_until(world.now + timing.sync_period_s)
    deltas_before = _deltas(world)
    began, peer = world.now, world.peers[publisher]
    world.watch(ears)
    assert peer.core is not None
    peer.core.facts.publish(_KEY, _VALUE)
    world.step(peer, Woken())
    all_informed = world.run_until(began + _SPREAD_S, ears.all_know)
    heard = sorted(at - began for at in ears.heard_at.values())
    seconds = heard[-1] if all_informed else None
    half = heard[overlay.n_peers // 2 - 1] if len(heard) >= overlay.n_peers // 2 else None
    one_link_s = sum(_DELAY_S) / 2 + 2 * latency_s
    return {
        "publisher": publisher,
        "eccentricity": int(hops(overlay)[overlay.names.index(publisher)].max()),
        "informed": len(heard),
        "seconds": None if seconds is None else round(seconds, 9),
        "seconds_half": None if half is None else round(half, 9),
        "gossip_periods": None if seconds is None else round(seconds / timing.gossip_period_s, 9),
        "link_delays": None if seconds is None else round(seconds / one_link_s, 9),
        "deltas": _deltas(world) - deltas_before,
    }


def _world(cell: Cell, overlay: Overlay, rng: np.random.Generator, observers: tuple[Observer, ...]) -> World:
    link = (cell.axis("latency_ms") / 1000, cell.axis("loss"))
    network = Network(Conditions(_DELAY_S), rng.spawn(1)[0], dict.fromkeys(overlay.names, link))
    near = None if cell.kind == "full" else {name: overlay.neighbours(name) for name in overlay.names}
    rows = {name: Local(np.zeros((1, 1))) for name in overlay.names}
    timing = preset(cell.fixed["fleet"]["timing"])
    return World(rows, network, timing, Limits(), rng.spawn(1)[0], observers, overlay=near)


def _deltas(world: World) -> int:
    return sum(link.messages.get("fact-delta", 0) for link in world.traffic.links().values())
