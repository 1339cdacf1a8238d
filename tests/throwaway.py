"""A fleet in memory for one test."""

from __future__ import annotations

from collections.abc import Iterable

from p2pclust.lab.testbed.processes.children import Throwaway
from p2pclust.transport.bundle import Bundle
from p2pclust.transport.roster import Roster


def throwaway_fleet(names: Iterable[str]) -> tuple[Roster, dict[str, Bundle]]:
    """Make a fleet; its signing key is not kept."""
    made = Throwaway(names)
    return made.roster, made.bundles
