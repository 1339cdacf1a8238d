"""The workspaces of all peers in one process: what a fleet's disks and links do for protocols with a workspace.

Peers share one set of blobs, and each has its note. Jobs that a round wants run at the same time, one thread each, and so
do the peers' contributions: mathematics in NumPy and torch lets other threads run. Each of them computes with one
thread, so the result does not depend on how many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.base import WithWorkspace
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.workspace import Run, Workspace, digest_of

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass
class Workspaces:
    """Notes and blobs of the peers of one job."""

    threads: int = 1  # how many contributions, or jobs, are computed at once
    notes: dict[int, Arrays] = field(default_factory=dict)  # by roster index
    blobs: dict[bytes, bytes] = field(default_factory=dict)  # published, and still wanted; by digest

    def map(self, function: Callable[[_Item], _Result], items: Sequence[_Item]) -> Iterable[_Result]:
        """Return the function's result for each item, in order."""
        if self.threads == 1 or len(items) < 2:
            return map(function, items)
        with ThreadPoolExecutor(self.threads) as pool:
            return list(pool.map(function, items))

    def of(self, peer: int) -> Workspace:
        """Return a peer's workspace with its note, and with all blobs."""
        return Workspace(peer, self.notes.get(peer, Arrays()), self.blobs.get)

    def prepare(
        self, job: Job, state: JobState, peers: Sequence[int], n_peers: int, run: Callable[[Run, Workspaces], JobState]
    ) -> dict[int, Workspace]:
        """Return the workspaces of these peers for the coming round, with all that they want; none if it needs none.

        `run` runs a job that is wanted, with workspaces of its own.
        """
        if not isinstance(job.protocols[state.stage], WithWorkspace):
            return {}
        made = {peer: self.of(peer) for peer in peers}
        wanted = {peer: engine.wants(job, state, workspace, n_peers) for peer, workspace in made.items()}
        # The other blobs were for earlier rounds.
        in_use = {fetch.digest for wants in wanted.values() for fetch in wants.fetches}
        self.blobs = {digest: data for digest, data in self.blobs.items() if digest in in_use}
        runs = {one.name: one for wants in wanted.values() for one in wants.runs}
        ended = dict(zip(runs, self.map(lambda one: run(one, self._within(one)), list(runs.values())), strict=True))
        for peer, workspace in made.items():
            workspace.blob = self.blobs.get
            workspace.results = {one.name: ended[one.name] for one in wanted[peer].runs}
        return made

    def _within(self, run: Run) -> Workspaces:
        """Return the workspaces of a job among some of these peers: the same blobs and notes, by its roster's indices."""
        notes = {index: self.notes[peer] for index, peer in enumerate(run.roster) if peer in self.notes}
        return Workspaces(1, notes, self.blobs)

    def take(self, used: Mapping[int, Workspace]) -> None:
        """Keep what was published and noted in a round."""
        for peer, workspace in used.items():
            self.blobs.update({digest_of(data): data for data in workspace.published})
            if workspace.kept is not None:
                self.notes[peer] = workspace.kept
