"""One whole picture of a run for the page: frozen, made from its state, as JSON of a bounded size."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

from p2pclust.lab.run.scene import Scene
from p2pclust.lab.run.state import RunState
from p2pclust.lab.run.views import AssociationView, JobView, Mark, RoundView

_MOST_POINTS: Final = 300  # of one line in a chart
_MOST_MARKS: Final = 120
_MOST_LINES: Final = 30
_MOST_PATH: Final = 60  # places of one center


@dataclass(frozen=True)
class ShownDevice:
    """One peer of the page. `role`: aggregates | waited | absent, or empty."""

    name: str
    group: str
    status: str
    role: str
    round: int | None
    lives: int
    term: int | None
    bytes_sent: int | None
    energy_j: float | None
    battery: float | None
    at: tuple[float, float] | None


@dataclass(frozen=True)
class ShownJob:
    """The current job."""

    number: int
    of: int
    protocol: str
    stage: str
    phase: str
    round: int | None
    term: int | None
    aggregator: str
    contributed: int
    n_peers: int
    finished: int
    failed: bool
    waits_for: tuple[str, ...]
    waiting: str


@dataclass(frozen=True)
class Moves:
    """The lines of the charts: by round how far the centers moved, and the objective where it was computed."""

    rounds: tuple[int, ...]
    shifts: tuple[float, ...]
    tol: float
    objective_rounds: tuple[int, ...]
    objectives: tuple[float, ...]


@dataclass(frozen=True)
class CenterPaths:
    """The paths of the centers in two columns, those in which they are farthest apart."""

    x: str
    y: str
    paths: tuple[tuple[tuple[float, float], ...], ...]
    #: Of all centers so far: left, right, bottom, top.
    box: tuple[float, float, float, float]


@dataclass(frozen=True)
class Player:
    """Where a replay stands."""

    playing: bool
    speed: float
    t: float
    end: float


@dataclass(frozen=True)
class Snapshot:
    """All that the page shows. `mode`: run | watch | replay. `trouble` is one line, or empty."""

    mode: str
    title: str
    details: str
    t: float
    ended: bool
    outcome: str
    trouble: str
    asked: str
    devices: tuple[ShownDevice, ...]
    links: tuple[tuple[int, int], ...] | None
    job: ShownJob | None
    moves: Moves | None
    rounds: tuple[RoundView, ...]
    marks: tuple[Mark, ...]
    lines: tuple[Mark, ...]
    plane: CenterPaths | None
    graph: AssociationView | None
    player: Player | None

    def to_json(self) -> str:
        """Return it as one line of JSON."""
        return json.dumps(asdict(self), separators=(",", ":"), allow_nan=False)


def snapshot(
    scene: Scene, run: RunState, *, mode: str, ended: bool = False, outcome: str = "", trouble: str = "",
    asked: str = "", player: Player | None = None,
) -> Snapshot:  # fmt: skip
    """Return the picture of now.

    Examples
    --------
    >>> from p2pclust.lab.run.events import DeviceNews, RunEvent
    >>> scene = Scene("two peers", "", {"a": "", "b": ""}, [["llf-cm"]])
    >>> run = scene.begun()
    >>> _ = run.take(RunEvent(0.5, "a", "started", DeviceNews()))
    >>> [(device.name, device.status) for device in snapshot(scene, run, mode="run").devices]
    [('a', 'alive'), ('b', 'starting')]
    """
    job = run.job
    numbers = {name: number for number, name in enumerate(run.peers)}
    links = run.links
    return Snapshot(
        mode=mode, title=scene.title, details=scene.details, t=round(run.t, 3), ended=ended, outcome=outcome,
        trouble=trouble, asked=asked, devices=_devices(scene, run),
        links=None if links is None else tuple(
            sorted((numbers[a], numbers[b]) for a, b in links if a in numbers and b in numbers)
        ),
        job=None if job is None else _shown(run, job),
        moves=None if job is None else _moves(scene, run, job),
        rounds=tuple(run.rounds[number] for number in thinned(len(run.rounds), _MOST_POINTS)),
        marks=tuple(run.marks)[-_MOST_MARKS:], lines=tuple(run.lines)[-_MOST_LINES:],
        plane=_plane(scene, job) if scene.testbed and job is not None else None,
        graph=None if job is None or job.association is None else replace(job.association, phase=job.phase), player=player,
    )  # fmt: skip


def thinned(number: int, most: int) -> list[int]:
    """Return which points of a series are kept: every 2^k-th and the last, so that points stay where they are as it grows.

    Examples
    --------
    >>> thinned(4, 10), thinned(10, 6)
    ([0, 1, 2, 3], [0, 2, 4, 6, 8, 9])
    """
    stride = 1
    while (number + stride - 1) // stride > most - 1 and number > most:
        stride *= 2
    kept = list(range(0, number, stride))
    return kept if not kept or kept[-1] == number - 1 else [*kept, number - 1]


def _devices(scene: Scene, run: RunState) -> tuple[ShownDevice, ...]:
    waited = set(run.waited_for())
    found = []
    for peer in run.peers.values():
        away = peer.status in ("lost", "down", "left")
        aggregates = peer.term is not None and not away
        role = "aggregates" if aggregates else "waited" if peer.name in waited else ""
        found.append(
            ShownDevice(
                peer.name, peer.group, peer.status, role, peer.round, peer.lives, peer.term, peer.bytes_sent,
                peer.energy_j, peer.battery, scene.places.get(peer.name),
            )
        )  # fmt: skip
    return tuple(found)


def _shown(run: RunState, job: JobView) -> ShownJob:
    return ShownJob(
        run.job_number, len(run.jobs), job.protocol, job.stage, job.phase, job.round, job.term, job.aggregator,
        len(job.contributors), job.n_peers, len(job.finished), job.failed, run.waited_for()[:20], job.waiting,
    )  # fmt: skip


def _moves(scene: Scene, run: RunState, job: JobView) -> Moves:
    rounds = sorted(round_ for round_, shift in job.shift_of.items() if math.isfinite(shift))
    kept = [rounds[number] for number in thinned(len(rounds), _MOST_POINTS)]
    computed = sorted(round_ for round_, value in job.objective_of.items() if math.isfinite(value))
    of_objective = [computed[number] for number in thinned(len(computed), _MOST_POINTS)]
    number = run.job_number - 1
    tol = scene.tol[number] if number < len(scene.tol) else 0.0
    return Moves(
        tuple(kept), tuple(job.shift_of[round_] for round_ in kept), tol,
        tuple(of_objective), tuple(job.objective_of[round_] for round_ in of_objective),
    )  # fmt: skip


def _plane(scene: Scene, job: JobView) -> CenterPaths | None:
    """Return the centers' paths."""
    rounds = list(job.centers_of)
    if not rounds:
        return None
    kept = [job.centers_of[rounds[number]] for number in thinned(len(rounds), _MOST_PATH)]
    paths = tuple(tuple(centers[own] for centers in kept if own < len(centers)) for own in range(len(kept[-1])))
    x, y = job.columns
    return CenterPaths(_name(scene.features, x), _name(scene.features, y), paths, _box(paths))


def _box(paths: Sequence[Sequence[tuple[float, float]]]) -> tuple[float, float, float, float]:
    xs, ys = zip(*(place for path in paths for place in path), strict=True)
    return min(xs), max(xs), min(ys), max(ys)


def _name(features: Sequence[str], at: int) -> str:
    return features[at] if at < len(features) else f"column {at + 1}"
