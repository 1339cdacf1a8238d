"""Swarm testing of jobs that are repeated: the same faults while turns follow each other, on data that grow.

Each turn is one job, even if several peers began it; it begins with the centers that the turn before it ended with.
After all faults have healed the turns must go on, with all peers; when the series is cancelled, they must stop.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from p2pclust.lab.simulation.checks.turns import SeriesSeen, Turns
from p2pclust.lab.simulation.swarms.leaderless import LeaderlessSwarm, paced
from p2pclust.lab.simulation.swarms.overlays import laid_out
from p2pclust.lab.simulation.swarms.plan import FAULTS_UNTIL_S, SwarmPlan, draw
from p2pclust.lab.simulation.swarms.swarm import DEADLINE_S, SeedResult, Swarm
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.events import Cancel, Submit
from p2pclust.protocols.engine.local import Local

_EVERY_S: Final = 4.0
_MORE_TURNS: Final = 2  # after everything healed
_MOST_ROWS: Final = 60
_QUIET_S: Final = 12.0
_MOST_LEAVES: Final = 9
_LOOKS_IN_S: Final = (0.1, 0.6)  # long enough to hear of a turn, too short to take part
_LOSSY_S: Final = (0.3, 2.0)


class SeriesSwarm(Swarm):
    """One run."""

    def __init__(self, plan: SwarmPlan) -> None:
        super().__init__(plan)
        self._turns = Turns()
        self.world.watch(self._turns)
        self.world.reload = self._grown

    def _grown(self, peer: Peer) -> Local:
        """More rows of the same kind, up to a limit."""
        rows = peer.local.X
        return peer.local if len(rows) >= _MOST_ROWS else Local(np.vstack([rows, rows[:3] + 0.5]))

    def _request(self, data: bytes, named: str) -> Submit:
        request = super()._request(data, named)
        return replace(request, treatment=replace(request.treatment, every_s=_EVERY_S))

    def _misfortunes(self) -> None:
        """Besides: peers leave politely, some together, and come back, some for a moment, some over a link that loses."""
        rng, start = np.random.default_rng([self.plan.seed, 55]), self.world.now
        for at in rng.uniform(0.0, FAULTS_UNTIL_S, int(rng.integers(0, _MOST_LEAVES))):
            n = 2 if rng.random() < 0.3 else 1
            away_s = float(rng.choice([0.5, 6.0, 12.0]) * rng.uniform(0.5, 1.5))
            looks_in = rng.random() < 0.4
            loss = float(rng.choice([0.0, 0.5, 0.95]))
            for index in rng.permutation(len(self.names))[:n]:
                # Drawn here, so that what happens later depends on nothing that happened before.
                visit_s = float(rng.uniform(*_LOOKS_IN_S)) if looks_in else 0.0
                lossy_s = float(rng.uniform(*_LOSSY_S))
                name = self.names[index]
                self.world.at(start + float(at), partial(self._away, name, away_s, visit_s, loss, lossy_s))
        super()._misfortunes()

    def _away(self, name: str, away_s: float, visit_s: float, loss: float, lossy_s: float) -> None:
        if self.world.peers[name].core is None:
            return
        self.marks.counts["left"] += 1
        self.world.leave(name)
        self.world.at(self.world.now + away_s, partial(self._back, name, visit_s, loss, lossy_s))

    def _back(self, name: str, visit_s: float, loss: float, lossy_s: float) -> None:
        if loss and self.phase_crashes.active:
            self.marks.counts["came back over a lossy link"] += 1
            self.network.lose(name, loss)
            self.world.at(self.world.now + lossy_s, partial(self._mend, name))
        self.world.start(name)
        if visit_s and self.phase_crashes.active:
            self.marks.counts["looked in"] += 1
            self.world.at(self.world.now + visit_s, partial(self._away, name, visit_s, 0.0, loss, lossy_s))

    def _mend(self, name: str) -> None:
        self.network.lose(name, 0.0)

    def _may_wipe(self) -> bool:
        """Leave a majority of intact stores to each turn that is needed: its roster may be smaller than the fleet."""
        return super()._may_wipe() and all(self._survives_a_wipe(document) for document in self._series.needed())

    def _survives_a_wipe(self, document: Document) -> bool:
        wiped = sum(self.world.peers[name].wiped for name in document.roster)
        return wiped + 1 <= (len(document.roster) - 1) // 2

    @property
    def _series(self) -> SeriesSeen:
        """The only one."""
        return next(iter(self._turns.series.values()), SeriesSeen(""))

    def _heal(self) -> None:
        super()._heal()  # the first turn has ended, or been dropped for a newer one, if any peer has it
        until = self._series.newest + _MORE_TURNS
        self.world.run_until(
            self.world.now + DEADLINE_S, lambda: self._step() or self._series.ended_by_all(until, self.names)
        )

    def _has_finished(self, peer: Peer) -> bool:
        """Whether the peer is past the first turn."""
        assert peer.core is not None
        return 0 in self._series.finals

    def _judge(self) -> None:
        series = self._series
        if not series.documents:
            self.marks.counts["submission lost with its peer"] += 1
            return
        story = "\n".join(self.invariants.story)
        assert any(series.ended_by_all(number, self.names) for number in series.finals), (
            f"L3: no turn was ended by all peers\n{story}"
        )
        series.judge(self.marks.counts)
        assert series.newest >= _MORE_TURNS, f"L3: only {series.newest + 1} turns in the whole run\n{story}"
        for peer in self.world.peers.values():
            series.judge_memory(peer)
        self._judge_cancel()
        self.marks.counts["finished"] += 1

    def _judge_cancel(self) -> None:
        """Cancel the series: the running turn ends, and no other begins."""
        peer = self.world.peers[self.names[self.plan.seed % len(self.names)]]
        assert peer.core is not None
        job = next(d.id for d in peer.core.jobs.table.turns(self._series.name) if not d.census)
        self.world.step(peer, Cancel(job, "admin"))
        self.world.run_until(self.world.now + _QUIET_S)
        last = self._series.newest
        self.world.run_until(self.world.now + _QUIET_S)
        assert self._series.newest == last, "a turn began after the series was ended"
        assert all(p.core is not None and not p.core.jobs.unfinished() for p in self.world.peers.values()), "it goes on"
        self.marks.counts["series ended"] += 1


class LeaderlessSeriesSwarm(SeriesSwarm, LeaderlessSwarm):
    """One run of a gossip job."""


def run(seed: int, *, overlay: str | None = None) -> SeedResult[SwarmPlan]:
    """Run one seed, on a full mesh or an overlay that is ``sparse`` or ``moving``; each fourth has no aggregator."""
    plan = replace(draw(seed), participation=1.0)
    missing = "wait" if plan.missing == "all" else plan.missing
    plan = replace(plan, missing=missing)
    return (
        LeaderlessSeriesSwarm(paced(plan, overlay)).go() if seed % 4 == 3 else SeriesSwarm(laid_out(plan, overlay)).go()
    )
