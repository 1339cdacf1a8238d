"""A peer that publishes job documents of its own making: with peers or fleet rosters that never were, or too old ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from p2pclust.peer.core.document import Document
from p2pclust.peer.core.fleet_roster import RosterName
from p2pclust.peer.core.spread.facts import JOB

if TYPE_CHECKING:
    from p2pclust.lab.simulation.fleets.fleet import RandomFleet

_EVERY_S: Final = 0.7


class Ghosts:
    """Makes the documents of liars from that of a job that the liar knows."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._made = 0

    def begin(self, fleet: RandomFleet, name: str, for_s: float) -> None:
        """Let a peer publish one document after another for so long."""
        until = fleet.world.now + for_s

        def publish() -> None:
            core = fleet.world.peers[name].core
            documents = [] if core is None or fleet.healed else list(core.jobs.table.documents.values())
            honest = next((one for one in documents if one.submitter and one.turn is None), None)
            if core is not None and honest is not None:
                made = self._changed(fleet, honest, name)
                core.facts.publish(JOB + made.id, made.encode())
                fleet.marks.counts["document of a liar"] += 1
            if fleet.world.now < until and not fleet.healed:
                fleet.world.at(fleet.world.now + _EVERY_S, publish)

        fleet.world.at(fleet.world.now, publish)

    def _changed(self, fleet: RandomFleet, honest: Document, liar: str) -> Document:
        """Name peers that never were; or no fleet roster, one that never was, or one that is too old."""
        self._made += 1
        made = replace(honest, submitter=liar, nonce=f"{liar}-{self._made}")
        named, n, kind = honest.fleet_roster, len(honest.roster), int(self._rng.integers(4))
        assert named is not None, "a fleet with keys"
        if kind == 0:
            ghosts = [f"ghost-{number}" for number in range((n + 1) // 2)]
            names = tuple(sorted([*honest.roster[: n - len(ghosts)], *ghosts]))
            return replace(made, roster=names, treatment=replace(made.treatment, aggregator=""))
        if kind == 1 and not made.treatment.keyed:
            return replace(made, fleet_roster=None)
        if kind == 2 and (older := fleet.named_rosters.older_than(fleet.serial - 1, honest.roster)):
            return replace(made, fleet_roster=older[int(self._rng.integers(len(older)))])
        return replace(made, fleet_roster=RosterName(named.serial + int(self._rng.integers(3)), self._rng.bytes(32)))
