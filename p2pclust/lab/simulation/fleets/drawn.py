"""The jobs of a random fleet as they run: which they are, when they have ended, and whether their end is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from p2pclust.lab.simulation.checks.turns import SeriesSeen, Turns
from p2pclust.lab.simulation.fleets.jobs import KINDS, failure_is_right
from p2pclust.lab.simulation.fleets.plan import JobPlan
from p2pclust.lab.simulation.world.observer import Observer
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.lab.simulation.world.world import World
from p2pclust.peer.core.core import Core
from p2pclust.peer.core.effects import Effect
from p2pclust.peer.core.events import Cancel
from p2pclust.peer.core.reports import JobAccepted, JobGone, JobRefused, JobSubmitted
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.reasons import CANCELLED

if TYPE_CHECKING:
    from p2pclust.lab.simulation.fleets.fleet import RandomFleet

#: After everything healed, a series goes on for so many turns; after its cancel, none begins for so long.
_MORE_TURNS: Final = 2
_QUIET_S: Final = 12.0


@dataclass
class DrawnJob:
    """A job that was submitted: its plan, its mathematics, and what is known of it from outside."""

    plan: JobPlan
    job: Job
    id: str = ""
    roster: tuple[str, ...] = ()
    accepted: bool = False
    gone: dict[str, None] = field(default_factory=dict)  # peers that have forgotten or refuse it, as they said
    name: str = ""  # of the series, if it is repeated
    at: tuple[str, int] = ("", 0)  # the peer that was asked to submit it, and its life

    def known(self, core: Core) -> bool:
        """Return whether a peer has it."""
        return self.id in core.jobs.jobs

    def has_ended(self, name: str, core: Core) -> bool:
        """Return whether it has ended at a peer."""
        job = core.jobs.jobs.get(self.id)
        return job is not None and job.ledger.finished

    def may_wait(self, fleet: RandomFleet) -> bool:
        """Return whether it may wait for a peer that is not healed."""
        waits = KINDS[self.plan.kind].waits(self.plan, len(self.roster), len(fleet.core()))
        return waits or self.plan.missing == "all"

    def survives(self, lost: Sequence[str]) -> bool:
        """Return whether it goes on if these peers have lost their stores."""
        return True

    def heals(self, fleet: RandomFleet) -> None:
        """Note that all faults that end have ended."""

    def judge(self, fleet: RandomFleet) -> None:
        """Check its end: the same bits at all peers, and the right ones."""
        names = [name for name in fleet.core() if name in self.roster and not fleet.refuses(name, self)]
        finals = {fleet.world.peers[name].state_of(self.id) for name in names}
        assert len(finals) == 1, f"S5: peers ended {self.id} with different bits"
        state = JobState.decode(finals.pop())
        done = state.status == "done"
        assert done or failure_is_right(fleet, self, state), f"the job failed: {state.reason} ({self.id})"
        KINDS[self.plan.kind].judge(fleet, self, state)
        fleet.marks.counts[f"{'done' if done else 'failed rightly'}: {self.plan.kind}"] += 1
        fleet.marks.counts["cancelled"] += state.reason.startswith(CANCELLED)
        fleet.marks.counts["finished"] += 1


@dataclass
class DrawnSeries(DrawnJob):
    """A job that is repeated: its turns must go on after everything healed, and stop when it is cancelled."""

    turns: Turns = field(default_factory=Turns)  # of all series of the fleet
    until: int = 0  # this turn must end

    @property
    def series(self) -> SeriesSeen:
        """What was seen of it."""
        return self.turns.series.get(self.name, SeriesSeen(self.name))

    def known(self, core: Core) -> bool:
        """Return whether a peer has one of its turns."""
        return bool(self.name) and bool(core.jobs.table.turns(self.name))

    def has_ended(self, name: str, core: Core) -> bool:
        """Return whether the turn that must end has ended at a peer, or a newer one."""
        return any(number >= self.until and name in ended for number, ended in self.series.finals.items())

    def may_wait(self, fleet: RandomFleet) -> bool:
        """Return whether a turn needs peers that are not healed: its roster are those that were present when it began."""
        healed = fleet.core()
        return not self.survives([name for name in fleet.names if name not in healed])

    def survives(self, lost: Sequence[str]) -> bool:
        """Return whether the series goes on if these peers have lost their stores."""
        return all(
            2 * sum(name not in lost for name in turn.roster) > len(turn.roster) for turn in self.series.needed()
        )

    def heals(self, fleet: RandomFleet) -> None:
        """From now on the turns must go on."""
        self.until = self.series.newest + _MORE_TURNS

    def judge(self, fleet: RandomFleet) -> None:
        """Check all turns, cancel the series, and check that no other turn begins."""
        self.series.judge(fleet.marks.counts)
        peers = [fleet.world.peers[name] for name in fleet.core()]
        for peer in peers:
            self.series.judge_memory(peer)
        asked = peers[fleet.plan.seed % len(peers)]
        assert asked.core is not None
        fleet.published.cancelled(self.name)
        turns = [turn for turn in asked.core.jobs.table.turns(self.name) if not turn.census]
        fleet.world.step(asked, Cancel(max(turns, key=lambda turn: turn.number).id, "admin-0"))
        fleet.world.run_until(fleet.world.now + _QUIET_S)
        last = self.series.newest
        fleet.world.run_until(fleet.world.now + _QUIET_S)
        assert self.series.newest == last, f"H6: a turn of {self.name} began after the series was cancelled"
        running = [peer.name for peer in peers if peer.core is not None and peer.core.jobs.unfinished()]
        assert not running or len(fleet.jobs) > 1, f"H6: the cancelled {self.name} goes on at {', '.join(running)}"
        fleet.marks.counts[f"done: {self.plan.kind}"] += 1
        fleet.marks.counts["finished"] += 1


def drawn(plan: JobPlan, job: Job, turns: Turns) -> DrawnJob:
    """Return a planned job that is not submitted yet."""
    return DrawnSeries(plan, job, turns=turns) if KINDS[plan.kind].repeated else DrawnJob(plan, job)


class JobsSeen(Observer):
    """Notes which job is which, and which were accepted."""

    watches = (JobSubmitted, JobRefused, JobAccepted, JobGone)

    def __init__(self, jobs: list[DrawnJob]) -> None:
        self._jobs = jobs

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        """Look at what a peer reports of jobs."""
        if isinstance(effect, JobSubmitted) and effect.asked is not None:
            job = self._jobs[int(effect.asked)]
            if not job.id:
                job.id, job.roster, job.name = effect.job, tuple(effect.roster), effect.series or ""
        elif isinstance(effect, JobRefused) and effect.asked:
            self._jobs[int(effect.asked)].at = ("", 0)
        elif isinstance(effect, JobAccepted):
            for job in self._jobs:
                job.accepted |= job.id == effect.job
        elif isinstance(effect, JobGone):
            for job in [job for job in self._jobs if job.id == effect.job]:
                job.gone |= dict.fromkeys(effect.peers)
