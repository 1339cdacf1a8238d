"""The desks of all peers in one process: what a fleet's disks and links do for protocols that work at a desk.

Peers share one heap of blobs, and each has its note. Jobs that a round wants run at the same time, one thread each, and so
do the peers' contributions: mathematics in NumPy and torch lets other threads run. Every one of them computes with one
thread by itself, so nothing depends on how many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.workspace import Desk, Run, digest_of

__all__ = ["Office"]

_Asked = TypeVar("_Asked")
_Told = TypeVar("_Told")


@dataclass
class Office:
    """Notes and blobs of the peers of one job.

    Parameters
    ----------
    threads : int
        How many contributions, or jobs, are computed at once.

    Attributes
    ----------
    notes : dict of int to Arrays
        By roster index.
    blobs : dict of bytes to bytes
        What was published and is still wanted.
    """

    threads: int = 1
    notes: dict[int, Arrays] = field(default_factory=dict)
    blobs: dict[bytes, bytes] = field(default_factory=dict)

    def map(self, function: Callable[[_Asked], _Told], items: Sequence[_Asked]) -> Iterable[_Told]:
        """Return what the function says of each, in order."""
        if self.threads == 1 or len(items) < 2:
            return map(function, items)
        with ThreadPoolExecutor(self.threads) as pool:
            return list(pool.map(function, items))

    def desk(self, peer: int) -> Desk:
        """Return a peer's desk with its note, and with all blobs."""
        return Desk(peer, self.notes.get(peer, Arrays()), self.blobs.get)

    def desks(
        self, job: Job, state: JobState, peers: Sequence[int], n_peers: int, run: Callable[[Run, Office], JobState]
    ) -> dict[int, Desk]:
        """Return the desks of these peers for the coming round, with all that they want; none if it needs none.

        Parameters
        ----------
        job, state : Job, JobState
        peers : sequence of int
        n_peers : int
        run : callable
            Runs a job that is wanted, in an office of its own.
        """
        if not job.protocols[state.stage].at_desk:
            return {}
        made = {peer: self.desk(peer) for peer in peers}
        wanted = {peer: engine.wants(job, state, desk, n_peers) for peer, desk in made.items()}
        # Nobody asks for the others any more: they were of rounds before.
        in_use = {fetch.digest for wants in wanted.values() for fetch in wants.fetches}
        self.blobs = {digest: data for digest, data in self.blobs.items() if digest in in_use}
        runs = {one.name: one for wants in wanted.values() for one in wants.runs}
        ended = dict(zip(runs, self.map(lambda one: run(one, self._beside(one)), list(runs.values())), strict=True))
        for peer, desk in made.items():
            desk.blob = self.blobs.get
            desk.results = {one.name: ended[one.name] for one in wanted[peer].runs}
        return made

    def _beside(self, run: Run) -> Office:
        """The office of a job among some of these peers: the same blobs and notes, under its own roster's indices."""
        notes = {index: self.notes[peer] for index, peer in enumerate(run.roster) if peer in self.notes}
        return Office(1, notes, self.blobs)

    def take(self, desks: Mapping[int, Desk]) -> None:
        """Keep what was published and noted in a round."""
        for peer, desk in desks.items():
            self.blobs.update({digest_of(data): data for data in desk.published})
            if desk.kept is not None:
                self.notes[peer] = desk.kept
