"""Toy jobs whose rounds work at a desk: what they want, and what they leave, is said by a test.

The submitted job's states are readable as in every test of this folder. `DeskNet.wants[round]` and
`DeskNet.leaves[round]` are functions of a peer's name. Jobs within the job are toys as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from harness import Net, toy

from p2pclust.peer.core.effects import Compute
from p2pclust.peer.core.events import Computed
from p2pclust.peer.core.rounds.job import AggregatedJob
from p2pclust.peer.core.tasks import Contribute, Contributed, Wanted, WantedBlob, WantedJob
from p2pclust.peer.core.timing import Limits
from p2pclust.protocols.engine.workspace import digest_of

Wants = Callable[[str], Wanted]
Leaves = Callable[[str], Mapping[str, Any]]

MODEL = b"model of p1 " * 20
SMALL = Limits(chunk_bytes=60)  # four chunks
CHILD = toy(1)


def nothing(name: str) -> Wanted:
    return Wanted()


def fetch(data: bytes = MODEL, *owners: int) -> Wants:
    return lambda name: Wanted(blobs=(WantedBlob(digest_of(data), len(data), owners or (0,)),))


def run(*roster: int, aggregator: int = 0, name: str = "g", mathematics: bytes = CHILD) -> Wants:
    """A job among some; who is not among them wants nothing."""
    wanted = Wanted(jobs=(WantedJob(name, mathematics, roster, aggregator),))
    return lambda peer: wanted if int(peer[1:]) - 1 in roster else Wanted()


class DeskNet(Net):
    """A fleet whose submitted job works at a desk, and whose jobs within it are toys as ever."""

    def __init__(self, n: int = 3, **options: Any) -> None:
        super().__init__(n, **({"limits": SMALL} | options))
        self.parent = b""
        self.wants: dict[int, Wants] = {}
        self.leaves: dict[int, Leaves] = {}
        self.tasks_done: list[tuple[str, int, Contribute]] = []  # contributions with everything on the desk

    def begin(self, rounds: int = 3, at: str = "p1", **fields: Any) -> str:
        """All see all, and the job is handed in."""
        self.meet()
        self.parent = toy(rounds)
        return self.submit(at, self.parent, **fields)

    def _work(self, name: str, life: int, effect: Compute) -> None:
        task, peer = effect.task, self.peers[name]
        if (
            not isinstance(task, Contribute)
            or task.mathematics != self.parent
            or peer.core is None
            or peer.life != life
        ):
            super()._work(name, life, effect)
            return
        assert task.state.payload is not None
        round_ = int(task.state.payload[1:].split(b"[")[0])
        wanted = self.wants.get(round_, nothing)(name)
        if task.at_hand is None and (wanted.blobs or wanted.jobs):
            self.step(name, Computed(effect.token, wanted))
            return
        self.tasks_done.append((name, round_, task))
        left = dict(self.leaves.get(round_, lambda name: {})(name))
        published = tuple((digest_of(data), len(data)) for data in left.get("publishes", ()))
        for data in left.get("publishes", ()):
            peer.disk.store_blob(digest_of(data), data, self.limits.chunk_bytes)
        ref = self.blob_access(peer).keep(b"c%d of %s" % (task.me, task.state.payload))
        self.step(name, Computed(effect.token, Contributed(ref, published, left.get("note"))))

    def done(self, name: str, round_: int) -> list[Contribute]:
        """What this peer had on its desk each time that it contributed to the round."""
        return [task for who, at, task in self.tasks_done if (who, at) == (name, round_)]

    def within(self, name: str) -> list[AggregatedJob]:
        """The jobs within the job that the peer has now."""
        return [job for job in self.core(name).jobs.jobs.values() if job.document.parent]

    def rows(self, name: str) -> dict[str, list[str]]:
        """What of jobs is on the peer's disk: by table, the jobs."""
        tables = self.peers[name].disk.load().tables
        return {table: sorted(rows) for table, rows in tables.items() if rows}

    def finish(self, job: str, names: tuple[str, ...] | None = None, limit_s: float = 60.0) -> None:
        self.until(lambda: set(self.finished(job)) >= set(names or self.names), limit_s)


def publishes(data: bytes = MODEL, by: str = "p1") -> Leaves:
    return lambda name: {"publishes": [data], "note": b"note of " + name.encode()} if name == by else {}
