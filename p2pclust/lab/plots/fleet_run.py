"""What a fit keeps of the fleet that ran it, for pictures."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from p2pclust.lab.testbed.chronicle import VERBS, Chronicle
from p2pclust.lab.testbed.spec import Event, FleetResult, FleetSpec
from p2pclust.overlay import Overlay


@dataclass(frozen=True)
class FleetRun:
    """The peers of a fleet, its overlay at the start (None: a full mesh), and the events that pictures show."""

    names: tuple[str, ...]
    overlay: Mapping[str, tuple[str, ...]] | None
    events: tuple[Event, ...]

    @classmethod
    def of(cls, spec: FleetSpec, result: FleetResult) -> FleetRun:
        """Return what pictures need of a run."""
        events = tuple(event for event in result.events if event["verb"] in VERBS)
        return cls(tuple(peer.name for peer in spec.peers), spec.overlay, events)

    @property
    def links(self) -> Overlay:
        """The overlay at the start."""
        if self.overlay is None:
            return Overlay(self.names, tuple(itertools.combinations(self.names, 2)), kind="full")
        return Overlay(self.names, tuple((name, other) for name, near in self.overlay.items() for other in near))

    @property
    def chronicle(self) -> Chronicle:
        """When each peer was away, and when it aggregated."""
        return Chronicle(self.events, self.names)

    @property
    def later_terms(self) -> list[tuple[int, str]]:
        """The round in which each term after the first began, and its name."""
        elected = [event for event in self.events if event["verb"] == "elected" and "within" not in event]
        return [(int(event.get("round", 0)), f"term {event['term']}") for event in elected[1:]]
