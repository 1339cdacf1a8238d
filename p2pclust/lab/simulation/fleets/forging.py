"""Peers that forge the facts of others: they change those that they pass on, and make up more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from p2pclust.lab.simulation.world.coding import decoded, encoded
from p2pclust.lab.simulation.world.device import signature_of
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.peer.core.core import Core
from p2pclust.peer.core.messages import FactDelta, FactDigest
from p2pclust.peer.core.spread.facts import Fact, facts_of


class Forger:
    """What a peer sends in the place of a message, if it is among `names`."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.names: dict[str, None] = {}
        self._rng = rng

    def __call__(self, peer: Peer, target: str, frames: list[bytes]) -> list[list[bytes]]:
        """Return the messages that are sent instead."""
        if peer.name not in self.names or peer.core is None:
            return [frames]
        message = decoded(frames)
        if isinstance(message, FactDelta) and message.owner != peer.name:
            return [encoded(replace(self._changed(peer.core, message), serial=message.serial))]
        if isinstance(message, FactDigest):
            return [encoded(self._made_up(peer.core, target)), frames]
        return [frames]

    def _changed(self, core: Core, delta: FactDelta) -> FactDelta:
        """Give one of the facts another value, or a newer version."""
        facts = list(facts_of(delta))
        if not facts:
            return delta
        index = int(self._rng.integers(len(facts)))
        one = facts[index]
        newer = replace(one, version=one.version + 1)
        facts[index] = (
            newer if self._rng.random() < 0.3 else self._signed(core, replace(one, value=_false(core, one.key)))
        )
        return _delta(delta.owner, delta.after, facts)

    def _made_up(self, core: Core, target: str) -> FactDelta:
        """Make up a fact of another peer: often of the target itself, as one that it forgot."""
        others = [name for name in core.identity.roster if name != core.identity.name]
        owner = target if self._rng.random() < 0.3 else str(self._rng.choice(others))
        keys = ["links", "fitness", "floor", *(f"{kind}/{job}" for kind in ("cancel", "job") for job in core.jobs.jobs)]
        key = str(self._rng.choice(keys))
        held = [fact for fact in core.facts.everything() if fact.owner == owner]
        version = max((fact.version for fact in held), default=2**20) + 1
        genuine = held[0].signature if held else b""
        return _delta(owner, 0, [self._signed(core, Fact(owner, key, version, _false(core, key), genuine))])

    def _signed(self, core: Core, fact: Fact) -> Fact:
        """Leave the signature as it is, take it away, or sign with the forger's own key."""
        own = signature_of(replace(fact, owner=core.identity.name))
        return replace(fact, signature=(fact.signature, b"", own)[int(self._rng.integers(3))])


def _false(core: Core, key: str) -> bytes:
    kind = key.partition("/")[0]
    return {"links": core.routing.own_claim, "fitness": b"99", "floor": b""}.get(kind, b"a forger")


def _delta(owner: str, after: int, facts: list[Fact]) -> FactDelta:
    return FactDelta(
        owner, after, tuple(f.key for f in facts), tuple(f.version for f in facts), tuple(f.value for f in facts),
        tuple(f.signature for f in facts),
    )  # fmt: skip
