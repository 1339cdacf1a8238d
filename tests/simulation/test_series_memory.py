"""A turn of a series that a store has forgotten never begins there again, whatever old facts are repeated to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgpack
import numpy as np
import pytest

from p2pclust.lab.simulation.checks.invariants import Invariants
from p2pclust.lab.simulation.checks.jobs import Promises
from p2pclust.lab.simulation.world.network import Conditions, Network
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.lab.simulation.world.world import Observer, World
from p2pclust.peer.core.codec import decode
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.effects import Effect
from p2pclust.peer.core.events import Submit
from p2pclust.peer.core.messages import FactDelta, Message
from p2pclust.peer.core.reports import Report
from p2pclust.peer.core.timing import Limits, preset
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.local import Local
from p2pclust.transport.links import Lane


class Turns(Observer):
    """Which turns began and ended, where and when."""

    def __init__(self) -> None:
        self.rosters: dict[int, tuple[str, ...]] = {}
        self.begun: list[tuple[float, str, int]] = []
        self.ended: dict[int, dict[str, None]] = {}

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        if not isinstance(effect, Report) or effect.verb not in ("job", "finished") or peer.core is None:
            return
        job = peer.core.jobs.jobs.get(str(effect.fields["job"]))
        if job is None or job.document.turn is None or job.document.census:
            return
        number = job.document.turn.number
        self.rosters[number] = job.document.roster
        if effect.verb == "job":
            self.begun.append((world.now, peer.name, number))
        else:
            self.ended.setdefault(number, {})[peer.name] = None


class Fleet:
    """Five simulated peers that repeat a job every two seconds, and a hand on when they come and go."""

    def __init__(self, **fields: Any) -> None:
        rng = np.random.default_rng(3)
        names = [f"p{number}" for number in range(5)]
        centers = rng.uniform(0, 100, (3, 2))
        rows = {name: Local(centers[rng.integers(0, 3, 12)] + rng.normal(0, 3, (12, 2))) for name in names}
        self.turns = Turns()
        self.world = World(
            rows, Network(Conditions(), np.random.default_rng([3, 1])), replace(preset("fast"), patience_s=2.0), Limits(),
            np.random.default_rng([3, 2]), (Invariants(), Promises(), self.turns),
        )  # fmt: skip
        for name in names:
            self.world.start(name)
        self.until(lambda: all(p.core and p.core.membership.all_here() for p in self.world.peers.values()))
        job = cluster_job(
            "llf-cm", n_clusters=3, init="uniform", tol=0.0, max_rounds=2, seed=3, suppress_singletons=False
        )
        wish = Submit(msgpack.packb(job.to_dict()), fields.pop("roster", ()), Treatment("wait", every_s=2.0, **fields))
        self.world.step(self.world.peers["p0"], wish)

    def until(self, reached: Callable[[], bool]) -> None:
        assert self.world.run_until(self.world.now + 60.0, reached), (self.turns.rosters, self.turns.ended)

    def until_ended(self, number: int, peers: int) -> None:
        self.until(lambda: len(self.turns.ended.get(number, {})) >= peers)

    def leave(self, *names: str) -> None:
        for name in names:
            self.world.leave(name)

    def look_in(self, *names: str) -> None:
        """Come back for a moment, hear of the newest turn, and leave."""
        for name in names:
            self.world.start(name)
        self.world.run_until(self.world.now + 0.25)
        self.leave(*names)


def is_of_turn(message: Message, number: int, owner: str) -> bool:
    """Whether the message has that owner's fact of that turn."""
    if not isinstance(message, FactDelta) or message.owner != owner:
        return False
    told = [value for key, value in zip(message.keys, message.values, strict=True) if key.startswith("series/")]
    turns = [Document.decode(value).turn for value in told]
    return any(turn is not None and turn.number == number for turn in turns)


@pytest.mark.slow
def test_a_turn_that_two_peers_ended_and_forgot_does_not_end_there_a_second_time() -> None:
    fleet = Fleet()
    world = fleet.world
    fleet.until_ended(0, 5)
    world.run_until(world.now + 0.3)
    fleet.leave("p3", "p4")
    fleet.until_ended(1, 3)
    world.run_until(world.now + 0.2)
    fleet.leave("p2")
    for name in ("p3", "p4"):
        world.start(name)
    fleet.until_ended(2, 4)
    world.run_until(world.now + 0.2)
    fleet.leave("p1")
    fleet.until_ended(4, 3)
    for _ in range(2):
        fleet.look_in("p1", "p2")
    assert fleet.turns.rosters[1] == ("p0", "p1", "p2"), "so p1 and p2 are a majority of it"
    # They come back at the edge of the others' reach: of all that is sent to them, one old fact arrives.
    whole, edge = world.transmit, ("p1", "p2")

    def transmit(peer: Peer, target: str, frames: list[bytes], lane: Lane) -> bool:
        arrives = (peer.name in edge) == (target in edge) or target not in edge
        return (arrives or is_of_turn(decode(frames), 1, "p2")) and whole(peer, target, frames, lane)

    world.transmit = transmit  # type: ignore[method-assign]
    back_at = world.now
    for name in edge:
        world.start(name)
    world.run_until(world.now + 25.0)
    assert [one for one in fleet.turns.begun if one[0] >= back_at and one[1] in edge and one[2] < 4] == []


@pytest.mark.slow
def test_the_named_aggregator_of_a_forgotten_turn_does_not_begin_its_term_again() -> None:
    fleet = Fleet(aggregator="p4")
    world = fleet.world
    fleet.until_ended(0, 5)
    world.run_until(world.now + 0.3)
    fleet.leave("p0", "p4")
    fleet.until_ended(2, 3)
    for _ in range(2):
        fleet.look_in("p4")
    back_at = world.now
    world.start("p4")
    world.run_until(world.now + 1.5)
    assert [one for one in fleet.turns.begun if one[0] >= back_at and one[1] == "p4" and one[2] < 2] == []
