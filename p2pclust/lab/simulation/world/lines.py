"""Devices' own shaped links in virtual time: the very lines of the real transport, woken by the heap instead of a loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from p2pclust.lab.links.shaping import Line, Shape, pair_of_lines
from p2pclust.lab.simulation.world.network import Network
from p2pclust.transport.links import Lane


class Parcel(NamedTuple):
    """One message on its way over one link."""

    source: str
    target: str
    frames: list[bytes]
    n_bytes: int
    lane: Lane
    times_relinked: int  # of that link when it left


@dataclass
class _Waking:
    """One line, and when the heap will look at it."""

    line: Line[Parcel]
    release: Callable[[Parcel], None]
    planned: float = float("inf")


@dataclass
class Lines:
    """Carries parcels over the sender's up-link, the network, and the receiver's down-link."""

    network: Network  # between the devices' own links; all that there is for devices that have none of a stated shape
    now: Callable[[], float]  # the virtual time
    at: Callable[[float, Callable[[], None]], None]  # plans an action for an instant
    deliver: Callable[[Parcel], None]  # gets each parcel that arrives
    _ups: dict[str, _Waking] = field(default_factory=dict)
    _downs: dict[str, _Waking] = field(default_factory=dict)

    def shape(self, name: str, shape: Shape, rng: np.random.Generator) -> None:
        """Give a device a link of its own, or change the one that it has; `rng` counts the first time."""
        if name not in self._ups:
            up, down = pair_of_lines(shape, rng)
            self._ups[name], self._downs[name] = _Waking(up, self._cross), _Waking(down, self.deliver)
            return
        for waking, way in ((self._ups[name], shape.up), (self._downs[name], shape.down)):
            waking.line.change(self.now(), way)
            self._plan(waking)

    def shape_of(self, name: str) -> Shape:
        up = self._ups.get(name)
        return Shape() if up is None else Shape(up.line.way, self._downs[name].line.way)

    def send(self, parcel: Parcel) -> bool:
        """Let a parcel leave; False where the queue of the sender's up-link is full."""
        up = self._ups.get(parcel.source)
        if up is None:
            self._cross(parcel)
            return True
        taken = up.line.push(self.now(), parcel.n_bytes, parcel.lane, parcel.target, parcel)
        self._plan(up)
        return taken

    def forget(self, name: str) -> None:
        """A device lost its memory: what waited in it is gone."""
        for waking in (self._ups.get(name), self._downs.get(name)):
            if waking is not None:
                waking.line.flush()

    def _cross(self, parcel: Parcel) -> None:
        """From link to link; the network may lose a message, or make copies."""
        for delay in self.network.delays(parcel.source, parcel.target):
            self.at(self.now() + delay, partial(self._arrive, parcel))

    def _arrive(self, parcel: Parcel) -> None:
        down = self._downs.get(parcel.target)
        if down is None:
            self.deliver(parcel)
            return
        up = self._ups.get(parcel.source)
        rate_before = float("inf") if up is None else up.line.way.rate
        down.line.push(self.now(), parcel.n_bytes, parcel.lane, parcel.source, parcel, rate_before)
        self._plan(down)

    def _plan(self, waking: _Waking) -> None:
        if (at := waking.line.next_at) < waking.planned:
            waking.planned = at
            self.at(at, partial(self._look, waking, at))

    def _look(self, waking: _Waking, at: float) -> None:
        if waking.planned != at:  # something else became due sooner, and planned anew
            return
        waking.planned = float("inf")
        arrived = waking.line.pop(self.now())
        self._plan(waking)
        for parcel in arrived:
            waking.release(parcel)
