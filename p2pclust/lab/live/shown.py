"""What a page is asked for: the picture of a run that another thread follows, or of a replay, as JSON of a bounded size."""

from __future__ import annotations

import itertools
import json
import math
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Final

from p2pclust.errors import UsageError
from p2pclust.lab.run.events import RunEvent
from p2pclust.lab.run.scene import Scene
from p2pclust.lab.run.state import RunState
from p2pclust.lab.run.views import JobView

_MOST_POINTS: Final = 300  # of one line in a chart
_MOST_MARKS: Final = 120
_MOST_LINES: Final = 30
_MOST_PATH: Final = 60  # places of one center
_MOST_AWAITED: Final = 20
_OF_PEER: Final = ("name", "group", "status", "round", "lives", "term", "bytes_sent", "energy_j", "battery")
_OF_JOB: Final = ("protocol", "stage", "phase", "round", "term", "aggregator", "n_peers", "failed", "waiting")

_MOST_SPEED: Final = 1_000.0
_TICK_S: Final = 0.05  # of a replay


def snapshot(scene: Scene, run: RunState, **said: Any) -> dict[str, Any]:
    """Return the picture of now in plain values, with what is `said` about it.

    >>> from p2pclust.lab.run.events import DeviceNews
    >>> scene = Scene("two peers", "", {"a": "", "b": ""}, [["llf-cm"]])
    >>> run = scene.begun()
    >>> _ = run.take(RunEvent(0.5, "a", "started", DeviceNews()))
    >>> [(device["name"], device["status"]) for device in snapshot(scene, run)["devices"]]
    [('a', 'alive'), ('b', 'starting')]
    """
    job, awaited = run.job, run.waited_for()
    waited, numbers = set(awaited), {name: number for number, name in enumerate(run.peers)}
    shown = {
        "title": scene.title, "details": scene.details, "t": round(run.t, 3), "ended": False, "outcome": "", "trouble": "",
        "asked": "", "player": None, **said,
        "devices": [
            {name: getattr(peer, name) for name in _OF_PEER}
            | {
                "role": "aggregates" if peer.term is not None and peer.status not in ("lost", "down", "left")
                else "waited" if peer.name in waited else "",
                "at": scene.places.get(peer.name),
            }
            for peer in run.peers.values()
        ],
        "links": None if run.links is None else sorted(
            [numbers[a], numbers[b]] for a, b in run.links if a in numbers and b in numbers
        ),
        "rounds": [asdict(run.rounds[number]) for number in thinned(len(run.rounds), _MOST_POINTS)],
        "marks": [asdict(mark) for mark in list(run.marks)[-_MOST_MARKS:]],
        "lines": [asdict(line) for line in list(run.lines)[-_MOST_LINES:]],
        "job": None, "moves": None, "plane": None, "graph": None,
    }  # fmt: skip
    if job is None:
        return shown
    shown["job"] = {name: getattr(job, name) for name in _OF_JOB} | {
        "number": run.job_number, "of": len(run.jobs), "contributed": len(job.contributors),
        "finished": len(job.finished), "waits_for": awaited[:_MOST_AWAITED],
    }  # fmt: skip
    number = run.job_number - 1
    tol = scene.tol[number] if number < len(scene.tol) else 0.0
    (rounds, shifts), (computed, objectives) = _line(job.shift_of), _line(job.objective_of)
    shown["moves"] = {
        "rounds": rounds, "shifts": shifts, "tol": tol, "objective_rounds": computed, "objectives": objectives,
    }  # fmt: skip
    if scene.testbed and job.centers_of:
        shown["plane"] = _plane(scene, job)
    if job.association is not None:
        shown["graph"] = job.association | {"phase": job.phase}
    return shown


def thinned(number: int, most: int) -> list[int]:
    """Return which points of a series are kept: every 2^k-th and the last, so that points stay where they are as it grows.

    >>> thinned(4, 10), thinned(10, 6)
    ([0, 1, 2, 3], [0, 2, 4, 6, 8, 9])
    """
    stride = 1
    while (number + stride - 1) // stride > most - 1 and number > most:
        stride *= 2
    kept = list(range(0, number, stride))
    return kept if not kept or kept[-1] == number - 1 else [*kept, number - 1]


def _line(by_round: Mapping[int, float]) -> tuple[list[int], list[float]]:
    rounds = sorted(number for number, value in by_round.items() if math.isfinite(value))
    kept = [rounds[place] for place in thinned(len(rounds), _MOST_POINTS)]
    return kept, [by_round[number] for number in kept]


def _plane(scene: Scene, job: JobView) -> dict[str, Any]:
    rounds = list(job.centers_of.values())
    kept = [rounds[number] for number in thinned(len(rounds), _MOST_PATH)]
    paths = [[centers[own] for centers in kept if own < len(centers)] for own in range(len(kept[-1]))]
    xs, ys = zip(*itertools.chain(*paths), strict=True)
    # With categories, centers have a column for each value, and rows one for each category.
    known = len(scene.features) == job.n_columns
    x, y = (scene.features[at] if known else f"column {at + 1}" for at in job.columns)
    return {"x": x, "y": y, "paths": paths, "box": (min(xs), max(xs), min(ys), max(ys))}


class FollowedRun:
    """A run that continues, of a testbed or of a standing fleet; another thread takes its events.

    The server calls `to_json` and `control` from its own thread.

    >>> from p2pclust.lab.run.events import DeviceNews
    >>> run = FollowedRun(scene := Scene("one peer", "", {"a": ""}), scene.begun(), mode="run")
    >>> with run.changing() as state:
    ...     _ = state.take(RunEvent(1.0, "a", "started", DeviceNews()))
    >>> '"status":"alive"' in run.to_json()
    True
    """

    def __init__(self, scene: Scene, state: RunState, *, mode: str) -> None:
        self._scene, self._state = scene, state
        self._said: dict[str, Any] = {"mode": mode}
        self._lock = threading.Lock()
        self.on_change: Callable[[], None] = lambda: None

    @contextmanager
    def changing(self) -> Iterator[RunState]:
        """Hold the state while an event is taken, so that no picture has half of a change; then show it."""
        with self._lock:
            yield self._state
        self.on_change()

    def say(self, **said: Any) -> None:
        """Say which peer is `asked`, the `trouble` where none answers, or that the run `ended` and its `outcome`."""
        with self._lock:
            changed = self._said | said != self._said
            self._said |= said
        if changed:
            self.on_change()

    def to_json(self) -> str:
        """Return the newest snapshot."""
        with self._lock:
            shown = snapshot(self._scene, self._state, **self._told())
        return json.dumps(shown, separators=(",", ":"), allow_nan=False)

    def _told(self) -> dict[str, Any]:
        return self._said

    def control(self, do: str, value: float) -> None:
        """Do what a person asked for on the page, where that is possible: nothing can be changed of a run that continues."""
        raise UsageError(f"{do}: only a replay can be controlled")


class Replay(FollowedRun):
    """A run that ended, at any speed: played, paused, and moved to any moment.

    The events are in order of time. `speed` is the seconds of the run in one second, and `now` returns the time in
    seconds.

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
        super().__init__(scene, scene.begun(), mode="replay")
        self._events = sorted(events, key=lambda event: event.t)
        self._times = [event.t for event in self._events]
        self._now = now
        self._taken = 0
        self._speed, self._playing = speed, True
        self._t, self._at = 0.0, now()  # where the run stood, and when

    @property
    def end(self) -> float:
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

    def _told(self) -> dict[str, Any]:
        # Rounded up, so that a slider that is moved to the end is there.
        end = math.ceil(1_000 * self.end) / 1_000
        at = end if self._t >= self.end else round(self._t, 3)
        return self._said | {"player": {"playing": self._playing, "speed": self._speed, "t": at, "end": end}}
