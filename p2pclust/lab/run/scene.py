"""What a run has from the start: the peers, their classes, the overlay, the jobs; and the log of a run, read again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from p2pclust.errors import DataError, UsageError
from p2pclust.lab.run.events import RunEvent
from p2pclust.lab.run.state import RunState

#: The verb of the event that a run begins its log with.
OPENING: Final = "fleet"


@dataclass(frozen=True)
class Scene:
    """A fleet and its jobs, before anything happens.

    `title` and `details` are one line each. `groups` has each peer's device class, in the order in which peers are
    shown, `jobs` the protocols of the stages of each job, `tol` the movement of its centers below which it ends, 0 for
    none. `links` are those at the start, None for a full mesh. Peers are drawn at their `places`; without any the page
    chooses. `features` are the names of the columns. Centers may be shown of a `testbed` only.

    >>> scene = Scene("three peers", "", {"a": "meter", "b": "meter", "c": "gateway"}, [["llf-cm"]])
    >>> len(scene.begun().peers), Scene.of_event(scene.event()) == scene
    (3, True)
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

    def begun(self) -> RunState:
        """Return the state before the first event."""
        return RunState(list(self.groups), self.jobs, self.groups, self.links, bounded=True)

    def event(self) -> dict[str, Any]:
        """Return the event that a run begins its log with."""
        told = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "testbed"}
        return {"t": 0.0, "peer": "", "verb": OPENING, **told}

    @staticmethod
    def of_event(event: Mapping[str, Any]) -> Scene:
        """Return the scene that the first event of a log describes."""
        links = event["links"]
        return Scene(
            event["title"], event["details"], event["groups"], event["jobs"], event["tol"],
            None if links is None else [(a, b) for a, b in links],
            {name: (x, y) for name, (x, y) in event["places"].items()}, event["features"],
        )  # fmt: skip


def recorded(directory: Path) -> tuple[Scene, list[RunEvent]]:
    """Return the scene and the events of a run, from the folder that it wrote."""
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
    found: list[RunEvent] = []
    read = 0
    try:
        scene = Scene.of_event(events[0])
        run = scene.begun()
        for event in events[1:]:  # so that a replay meets nothing that it cannot follow
            read += 1
            found.append(RunEvent.of(event))
            run.take(found[-1])
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        what = "an event of a run" if read else "the description of a fleet"
        raise DataError(f"{file}, line {read + 1}: not {what} ({type(error).__name__}: {error})") from None
    return scene, found
