"""Jobs that are repeated: each turn is one job, has one result, and begins where the one before ended."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import msgpack

from p2pclust.lab.simulation.world.observer import Observer
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.lab.simulation.world.world import World
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.effects import Effect
from p2pclust.peer.core.reports import Report
from p2pclust.protocols.engine import summaries
from p2pclust.protocols.engine.job import Job, JobState

#: The present turn, the one before, and a census or two.
_MOST_DOCUMENTS: Final = 4


@dataclass
class SeriesSeen:
    """What was seen of one series, by the numbers of its turns."""

    name: str
    documents: dict[int, Document] = field(default_factory=dict)
    finals: dict[int, dict[str, bytes]] = field(default_factory=dict)  # by peer, the bytes of the final state

    @property
    def newest(self) -> int:
        """The number of the newest turn, -1 before the first."""
        return max(self.documents, default=-1)

    def needed(self) -> list[Document]:
        """Return the turns that need a majority of their stores: those that have not ended, and the newest.

        The roster of the newest agrees on the next one after it has ended.
        """
        return [turn for number, turn in self.documents.items() if number not in self.finals or number == self.newest]

    def judge(self, counts: Counter[str]) -> None:
        """Check all turns that were seen: one result each, and a start where the turn before ended."""
        counts["turns"] += len(self.finals)
        for number, ended in self.finals.items():
            assert len(set(ended.values())) == 1, f"S5: turn {number} of {self.name} ended with different bits"
        for number, document in self.documents.items():
            counts["warm start"] += self._began_warm(number, document)

    def _began_warm(self, number: int, document: Document) -> bool:
        before = self.finals.get(number - 1)
        state = None if before is None else JobState.decode(next(iter(before.values())))
        if state is None or state.status != "done":
            return False
        job = Job.from_dict(msgpack.unpackb(document.mathematics))
        given = [stage.parameters["centers"] for stage in job.stages if stage.parameters.get("init") == "given"]
        assert given == [summaries.raw_centers(state).tolist()], f"turn {number} of {self.name} begins elsewhere"
        return True

    def judge_memory(self, peer: Peer) -> None:
        """Check that a peer keeps few documents of the series on its disk."""
        documents = (Document.decode(row) for row in peer.disk.load().tables["job"].values())
        kept = [one for one in documents if one.turn is not None and one.turn.series == self.name]
        assert len(kept) <= _MOST_DOCUMENTS, f"L6: {peer.name} keeps {len(kept)} documents of one series"


class Turns(Observer):
    """Remembers the documents and the ends of all turns of all series."""

    watches = (Report,)

    def __init__(self) -> None:
        self.series: dict[str, SeriesSeen] = {}

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        """Look at what a peer reports of turns."""
        if not isinstance(effect, Report) or effect.verb not in ("job", "finished") or peer.core is None:
            return
        job = peer.core.jobs.jobs.get(str(effect.fields["job"]))
        if job is None or job.document.turn is None or job.document.census:
            return
        turn = job.document.turn
        seen = self.series.setdefault(turn.series, SeriesSeen(turn.series))
        known = seen.documents.setdefault(turn.number, job.document)
        assert known.id == job.id, f"turn {turn.number} is two jobs: {known.id} and {job.id}"
        if effect.verb == "finished":
            seen.finals.setdefault(turn.number, {})[peer.name] = peer.state_of(job.id)
