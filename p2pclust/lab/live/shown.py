"""What a page is asked for: the picture of a run that another thread follows, or of a replay."""

from __future__ import annotations

import math
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from p2pclust.errors import UsageError
from p2pclust.lab.live.snapshot import Player, snapshot
from p2pclust.lab.run.events import RunEvent
from p2pclust.lab.run.scene import Scene
from p2pclust.lab.run.state import RunState

_MOST_SPEED: Final = 1_000.0
_TICK_S: Final = 0.05  # of a replay


class LivePicture(Protocol):
    """What the server shows. Its methods are called from the server's thread."""

    def to_json(self) -> str:
        """Return the newest snapshot."""

    def control(self, do: str, value: float) -> None:
        """Do what a person asked for on the page; raise UsageError if that is not possible here."""


class FollowedRun:
    """A run that continues, of a testbed or of a standing fleet; another thread takes its events.

    Examples
    --------
    >>> from p2pclust.lab.run.events import DeviceNews
    >>> run = FollowedRun(scene := Scene("one peer", "", {"a": ""}), scene.begun(), mode="run")
    >>> with run.changing() as state:
    ...     _ = state.take(RunEvent(1.0, "a", "started", DeviceNews()))
    >>> '"status":"alive"' in run.to_json()
    True
    """

    def __init__(self, scene: Scene, state: RunState, *, mode: str) -> None:
        self._scene, self._state, self._mode = scene, state, mode
        self._lock = threading.Lock()
        self._ended, self._outcome, self._trouble, self._asked = False, "", "", ""
        self.on_change: Callable[[], None] = lambda: None

    @contextmanager
    def changing(self) -> Iterator[RunState]:
        """Hold the state while an event is taken, so that no picture has half of a change; then show it."""
        with self._lock:
            yield self._state
        self.on_change()

    def ask(self, asked: str, trouble: str) -> None:
        """Say which peer answers, and what is wrong where none does."""
        with self._lock:
            changed = (asked, trouble) != (self._asked, self._trouble)
            self._asked, self._trouble = asked, trouble
        if changed:
            self.on_change()

    def end(self, outcome: str) -> None:
        """Say that nothing more happens."""
        with self._lock:
            self._ended, self._outcome = True, outcome
        self.on_change()

    def to_json(self) -> str:
        """Return the newest snapshot."""
        with self._lock:
            found = snapshot(
                self._scene, self._state, mode=self._mode, ended=self._ended, outcome=self._outcome,
                trouble=self._trouble, asked=self._asked,
            )  # fmt: skip
        return found.to_json()

    def control(self, do: str, value: float) -> None:
        """Refuse: nothing can be changed on the page of a run."""
        raise UsageError(f"{do}: only a replay can be controlled")


class Replay:
    """A run that ended, at any speed: played, paused, and moved to any moment.

    Parameters
    ----------
    scene : Scene
    events : sequence of RunEvent
        In order of time.
    speed : float
        Seconds of the run in one second.
    now : callable
        Returns the time in seconds.

    Examples
    --------
    >>> from p2pclust.lab.run.events import DeviceNews
    >>> clock = [0.0]
    >>> events = [RunEvent(1.0, "a", "started", DeviceNews()), RunEvent(4.0, "a", "exited", DeviceNews(code=-9))]
    >>> replay = Replay(Scene("one peer", "", {"a": ""}), events, 2.0, now=lambda: clock[0])
    >>> clock[0] = 1.0
    >>> replay.tick()
    >>> '"status":"alive"' in replay.to_json()
    True
    >>> replay.control("seek", 4.0)
    >>> '"status":"lost"' in replay.to_json()
    True
    """

    def __init__(
        self, scene: Scene, events: Sequence[RunEvent], speed: float = 1.0,
        *, now: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._scene, self._events = scene, sorted(events, key=lambda event: event.t)
        self._times = [event.t for event in self._events]
        self._now = now
        self._lock = threading.Lock()
        self._state = scene.begun()
        self._taken = 0
        self._speed, self._playing = speed, True
        self._t, self._at = 0.0, now()  # where the run stood, and when
        self.on_change: Callable[[], None] = lambda: None

    @property
    def end(self) -> float:
        """The time of the last event."""
        return self._times[-1] if self._times else 0.0

    def tick(self) -> None:
        """Take the events that are due."""
        with self._lock:
            moves = self._playing
            self._go_on()
        if moves:
            self.on_change()

    def play(self, stop: threading.Event) -> None:
        """Take events as they are due, until `stop` is set."""
        while not stop.wait(_TICK_S):
            self.tick()

    def _go_on(self) -> None:
        now = self._now()
        if self._playing:
            self._t = min(self.end, self._t + (now - self._at) * self._speed)
            self._playing = self._t < self.end
        self._at = now
        due = bisect_right(self._times, self._t)
        if due < self._taken:  # back in time: what was is found by beginning anew
            self._state, self._taken = self._scene.begun(), 0
        for event in self._events[self._taken : due]:
            self._state.take(event)
        self._taken = due

    def control(self, do: str, value: float) -> None:
        """Play, pause, change the speed, or move to a moment."""
        with self._lock:
            self._go_on()
            match do:
                case "play":
                    if self._t >= self.end:
                        self._t = 0.0
                    self._playing = True
                case "pause":
                    self._playing = False
                case "speed" if 0.0 < value <= _MOST_SPEED:
                    self._speed = value
                case "seek" if value >= 0.0:
                    self._t = min(value, self.end)
                case _:
                    raise UsageError(
                        f"{do} {value:g}: expected play, pause, seek to a second, or a speed of at most {_MOST_SPEED:g}"
                    )
            self._go_on()
        self.on_change()

    def to_json(self) -> str:
        """Return the newest snapshot."""
        with self._lock:
            # Rounded up, so that a slider that is moved to the end is there.
            end = math.ceil(1_000 * self.end) / 1_000
            player = Player(self._playing, self._speed, end if self._t >= self.end else round(self._t, 3), end)
            found = snapshot(self._scene, self._state, mode="replay", player=player)
        return found.to_json()
