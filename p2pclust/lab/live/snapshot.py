"""One whole picture of a run for the page: frozen, made from `Progress`, as JSON of a bounded size."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from p2pclust.lab.live.progress import Progress
from p2pclust.lab.live.scene import Scene
from p2pclust.lab.live.views import EventLine, JobView, Mark, RoundView

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
class Graph:
    """The association graph; `peers` has for each cluster the peer that it is of."""

    iteration: int
    phase: str
    peers: tuple[str, ...]
    links: tuple[tuple[int, int], ...]
    groups: tuple[tuple[int, ...], ...]
    isolated: tuple[int, ...]


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
    lines: tuple[EventLine, ...]
    plane: CenterPaths | None
    graph: Graph | None
    player: Player | None

    def to_json(self) -> str:
        """Return it as one line of JSON."""
        return json.dumps(asdict(self), separators=(",", ":"), allow_nan=False)


def snapshot(
    scene: Scene, progress: Progress, *, mode: str, ended: bool = False, outcome: str = "", trouble: str = "",
    asked: str = "", player: Player | None = None,
) -> Snapshot:  # fmt: skip
    """Return the picture of now.

    Examples
    --------
    >>> scene = Scene("two peers", "", {"a": "", "b": ""}, [["llf-cm"]])
    >>> progress = scene.progress()
    >>> _ = progress.take({"t": 0.5, "peer": "a", "verb": "started"})
    >>> [(device.name, device.status) for device in snapshot(scene, progress, mode="run").devices]
    [('a', 'alive'), ('b', 'starting')]
    """
    job = progress.job
    numbers = {name: number for number, name in enumerate(progress.peers)}
    links = progress.links
    return Snapshot(
        mode=mode, title=scene.title, details=scene.details, t=round(progress.t, 3), ended=ended, outcome=outcome,
        trouble=trouble, asked=asked, devices=_devices(scene, progress),
        links=None if links is None else tuple(
            sorted((numbers[a], numbers[b]) for a, b in links if a in numbers and b in numbers)
        ),
        job=None if job is None else _shown(progress, job),
        moves=None if job is None else _moves(scene, progress, job),
        rounds=tuple(progress.rounds[number] for number in thinned(len(progress.rounds), _MOST_POINTS)),
        marks=tuple(progress.marks)[-_MOST_MARKS:], lines=tuple(progress.lines)[-_MOST_LINES:],
        plane=_plane(scene, job) if scene.testbed and job is not None else None,
        graph=None if job is None else _graph(job), player=player,
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


def _devices(scene: Scene, progress: Progress) -> tuple[ShownDevice, ...]:
    waited = set(progress.waited_for())
    found = []
    for peer in progress.peers.values():
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


def _shown(progress: Progress, job: JobView) -> ShownJob:
    return ShownJob(
        progress.job_number, len(progress.jobs), job.protocol, job.stage, job.phase, job.round, job.term, job.aggregator,
        len(job.contributors), job.n_peers, len(job.finished), job.failed, progress.waited_for()[:20], job.waiting,
    )  # fmt: skip


def _moves(scene: Scene, progress: Progress, job: JobView) -> Moves:
    rounds = sorted(round_ for round_, shift in job.shift_of.items() if math.isfinite(shift))
    kept = [rounds[number] for number in thinned(len(rounds), _MOST_POINTS)]
    computed = sorted(round_ for round_, value in job.objective_of.items() if math.isfinite(value))
    of_objective = [computed[number] for number in thinned(len(computed), _MOST_POINTS)]
    number = progress.job_number - 1
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


def _graph(job: JobView) -> Graph | None:
    found = job.association
    if found is None:
        return None
    peers = [name for name, count in zip(job.roster, found.clusters, strict=False) for _ in range(count)]
    return Graph(found.iteration, job.phase, tuple(peers), found.links, found.groups, found.isolated)
