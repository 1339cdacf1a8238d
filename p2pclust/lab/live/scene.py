"""What a page shows from the start: the peers, their classes, the overlay, the jobs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from p2pclust.errors import DataError, UsageError
from p2pclust.lab.live.progress import Progress

#: The verb of the event that a run begins its log with.
OPENING: Final = "fleet"


@dataclass(frozen=True)
class Scene:
    """A fleet and its jobs, before anything happens.

    Parameters
    ----------
    title, details : str
        One line each.
    groups : mapping of str to str
        Each peer's device class, in the order in which peers are shown.
    jobs : sequence of sequence of str
        For each job the protocols of its stages.
    tol : sequence of float
        For each job the movement of its centers below which it ends; 0 for none.
    links : sequence of (str, str), optional
        The links at the start; None for a full mesh.
    places : mapping of str to (float, float)
        Where peers are drawn; empty: the page chooses.
    features : sequence of str
        The names of the columns.
    testbed : bool
        Whether centers may be shown.

    Examples
    --------
    >>> scene = Scene("three peers", "", {"a": "meter", "b": "meter", "c": "gateway"}, [["llf-cm"]])
    >>> len(scene.progress().peers)
    3
    """

    title: str
    details: str
    groups: Mapping[str, str]
    jobs: Sequence[Sequence[str]] = ()
    tol: Sequence[float] = ()
    links: Sequence[tuple[str, str]] | None = None
    places: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    features: Sequence[str] = ()
    testbed: bool = True

    def progress(self) -> Progress:
        """Return the state before the first event."""
        return Progress(list(self.groups), self.jobs, self.groups, self.links)

    @staticmethod
    def of_event(event: Mapping[str, Any]) -> Scene:
        """Return the scene that the first event of a log describes."""
        links = event["links"]
        return Scene(
            event["title"],
            event["details"],
            event["groups"],
            event["jobs"],
            event["tol"],
            None if links is None else [(a, b) for a, b in links],
            {name: (x, y) for name, (x, y) in event["places"].items()},
            event["features"],
        )


def recorded(directory: Path) -> tuple[Scene, list[Mapping[str, Any]]]:
    """Return the scene and the events of a run, from the folder that it wrote.

    Raises
    ------
    UsageError, DataError
        If the folder holds no log of a run, or one that cannot be read.
    """
    file = directory / "events.jsonl" if directory.is_dir() else directory
    if not file.is_file():
        raise UsageError(f"{directory}: no events.jsonl there: name the output directory of `p2pclust run`")
    events: list[Mapping[str, Any]] = []
    try:
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            event = json.loads(line)
            if not isinstance(event, dict) or not {"t", "verb", "peer"} <= event.keys():
                raise DataError(f"{file}, line {number}: not an event of a run")
            events.append(event)
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(f"{file}: cannot be read ({error}): it is the events.jsonl of a run?") from None
    if not events or events[0]["verb"] != OPENING:
        raise DataError(f"{file}: its first line does not describe the fleet: run the scenario again with this release")
    taken = 0
    try:
        scene = Scene.of_event(events[0])
        progress = scene.progress()
        for event in events[1:]:  # so that a replay meets nothing that it cannot follow
            taken += 1
            progress.take(event)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        what = "an event of a run" if taken else "the description of a fleet"
        raise DataError(f"{file}, line {taken + 1}: not {what} ({type(error).__name__}: {error})") from None
    return scene, events[1:]
