"""Episodes: one fleet, one liar, some hundreds of its messages; what comes of them is of the library, or a finding."""

from __future__ import annotations

import traceback
import warnings
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from unittest import mock

import numpy as np

from p2pclust.errors import WireError
from p2pclust.peer.core.codec import decode
from p2pclust.simulation.world.peer import Peer
from p2pclust.simulation.world import world as world_module
from tests.fuzz.fleets import FLEETS, HONEST, LIAR, Fleet, FuzzedWorld
from tests.fuzz.liars import Liar
from tests.fuzz.meter import MOST_S, Meter

__all__ = ["FRAMES", "Episode", "Finding", "run"]

#: Messages of one episode.
FRAMES: Final = 400
_PAUSES_S: Final = (0.0, 0.001, 0.01, 0.1)
_RETRIES: Final = 3


@dataclass(frozen=True)
class Episode:
    """Which fleet, and the seed of everything in it."""

    kind: str
    seed: int

    @classmethod
    def numbered(cls, number: int) -> Episode:
        """Return an episode of a long run: the fleets take turns."""
        kinds = tuple(FLEETS)
        return cls(kinds[number % len(kinds)], number)

    @property
    def again(self) -> str:
        """The command that repeats it."""
        return f"python -m tests.fuzz frames --episode '{self.kind}:{self.seed}'"


@dataclass
class Finding(Exception):
    """Something that no message may do."""

    episode: Episode
    number: int
    what: str
    message: str
    trace: str = ""

    def __str__(self) -> str:
        return (
            f"{self.what}\nby message {self.number}: {self.message:.2000}\n{self.trace}repeat it with: {self.episode.again}"
        )


@dataclass
class Attack:
    """The liar of one episode at work."""

    episode: Episode
    meter: Meter
    number: int = 0
    frames: list[bytes] = field(default_factory=list)
    reached: int = 0  # messages that got as far as a core

    def go(self, n: int = FRAMES) -> None:
        """Send so many messages, and let time pass between them."""
        fleet = Fleet(self.episode.kind, self.episode.seed)
        liar = Liar(fleet, np.random.default_rng([self.episode.seed, 4]))
        world = fleet.world
        world.tamper, world.take = liar.tampered, partial(self._take, world)
        perform = self.meter.measured("task", world_module.perform)
        with mock.patch.object(world_module, "perform", perform):
            while self.number < n:
                victim = str(liar.pick(HONEST))
                frames = liar.frames(victim)
                fleet.deliver(victim, frames, str(liar.pick(("", "", "", "p2" if victim != "p2" else "p3"))))
                if liar.chance(0.2):
                    fleet.advance(float(liar.pick(_PAUSES_S)))

    def _take(self, world: FuzzedWorld, peer: Peer, frames: list[bytes], via: str) -> bool:
        """Hand one message to a peer, and measure that."""
        self.frames = frames
        self.number += 1
        with self.meter.of("frame"):
            reached = world.receive(peer, LIAR, frames, via)
        if dear := self.meter.dear():
            raise _DearError(dear)
        self.reached += reached
        return reached

    @property
    def shown(self) -> str:
        """The last message, readable."""
        try:
            return repr(decode(self.frames))
        except WireError:
            return repr(self.frames)


class _DearError(Exception):
    """An input cost too much."""


def run(episode: Episode, meter: Meter, n: int = FRAMES) -> int:
    """Run an episode twice, for time and for memory; return how many messages got as far as a core.

    A message that takes too long is tried again from the start: on a busy machine something else may have cost the time.

    Raises
    ------
    Finding
        If a message caused anything but the library's wire error, or cost too much.
    """
    attack = Attack(episode, meter)
    for memory in (True, *[False] * _RETRIES):
        meter.memory = memory
        slowest = 0.0 if "frame" not in meter.costs else meter.costs["frame"].seconds
        attack = Attack(episode, meter)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                attack.go(n)
        except _DearError as error:
            what = str(error)
            if not memory:
                meter.costs["frame"].seconds = slowest
                continue
            raise Finding(episode, attack.number, what, attack.shown) from None
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise Finding(episode, attack.number, what, attack.shown, traceback.format_exc(limit=-8)) from error
        if not memory:
            return attack.reached
    raise Finding(episode, attack.number, f"more than {1000 * MOST_S:.0f} ms for one message", attack.shown)
