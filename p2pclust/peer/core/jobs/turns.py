"""Which turns of series this peer believes, in a fleet with keys: none that a single peer has made up.

The roster of a turn agrees on the next document in a census (:mod:`p2pclust.peer.core.spread.series`), and a majority signs
its end. A peer that missed the census reads the document as a fact of another peer, and asks that peer for the
evidence. It believes the turn if a majority of the roster of the newest turn that it believes has signed in that
census: one of these peers is honest, and an honest peer takes part only in the census after a turn that it believes.

A peer that knows no turn of a series, because it is new or lost its store, is shown the first document, too: the series has
its name from it, so it cannot be made up. Peers that are no longer on the fleet roster count in no such majority.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgpack

from p2pclust.errors import WireError
from p2pclust.peer.core.context import Context
from p2pclust.peer.core.document import Document, has_majority, series_of
from p2pclust.peer.core.effects import Compute
from p2pclust.peer.core.evidence import Evidence
from p2pclust.peer.core.job_messages import AskEvidence, ShowEvidence
from p2pclust.peer.core.reports import BadDocument
from p2pclust.peer.core.round_reports import BadEvidence
from p2pclust.peer.core.tasks import CheckEvidence, CheckToken, EvidenceChecked, Outcome
from p2pclust.protocols.engine.workspace import digest_of

#: The table of the newest turn that is believed, by series.
TABLE: Final = "turn"
#: The documents that one peer alone has published, and that wait; of more the oldest is dropped.
_MOST_WAITING: Final = 16
_FRAMES: Final = 3
_JOB_ID: Final = re.compile(r"job-[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class _Believed:
    id: str
    number: int
    roster: tuple[str, ...]
    census: str = ""  # the job that agreed on it; empty for the first turn
    #: As other peers are shown it: the evidence of the end of this census, its document, and the first one of the series; of
    #: the first turn the latter alone.
    shown: tuple[bytes, ...] = ()

    def encode(self) -> bytes:
        return bytes(msgpack.packb([self.id, self.number, self.roster, self.census, self.shown]))

    @classmethod
    def decode(cls, row: bytes) -> _Believed:
        id_, number, roster, census, shown = msgpack.unpackb(row)
        return cls(id_, number, tuple(roster), census, tuple(shown))


@dataclass
class _Waiting:
    """A document without evidence."""

    document: Document
    owners: dict[str, None] = field(default_factory=dict)  # the peers that published it
    #: When each peer was asked; infinity: what it showed is not enough.
    asked: dict[str, float] = field(default_factory=dict)
    silent: dict[str, None] = field(default_factory=dict)  # those of them that have not answered


class BelievedTurns:
    """Keeps the newest turn of each series that this peer believes. `stored` holds the rows of its table."""

    def __init__(self, context: Context, stored: Mapping[str, bytes]) -> None:
        self._ctx = context
        self._believed = {series: _Believed.decode(row) for series, row in stored.items()}
        self._waiting: dict[str, _Waiting] = {}  # by job id
        self._checking: dict[CheckToken, tuple[str, _Waiting, tuple[bytes, ...]]] = {}  # with the peer that showed it

    def concerns(self, document: Document) -> bool:
        """Return whether this peer keeps account of the series of a turn that another peer published."""
        known = self._ctx.sign is None or document.series in self._believed
        return known or self._ctx.me in document or self._ctx.me == document.submitter

    def begins(self, document: Document) -> None:
        """Note the first turn of a series."""
        if self._ctx.sign is not None and document.turn is not None and document.series not in self._believed:
            self._believe(document, (document.encode(),))

    def agreed(self, census: Document, document: Document, evidence: Evidence | None) -> None:
        """Note the turn that a census has agreed on in which this peer took part."""
        known = self._believed.get(document.series or "")
        if known is not None and evidence is not None and document.number > known.number:
            self._believe(document, (evidence.encode(), census.encode(), known.shown[-1]))

    def _believe(self, document: Document, shown: tuple[bytes, ...]) -> None:
        series, number = document.series or "", document.number
        census = document.nonce if number else ""
        believed = self._believed[series] = _Believed(document.id, number, document.roster, census, shown)
        self._ctx.persist(TABLE, series, believed.encode(), sync=False)  # the document follows, or a tombstone
        left = [one for one in self._waiting.values() if one.document.series != series or one.document.number > number]
        self._waiting = {one.document.id: one for one in left}

    def follows(self, owner: str, document: Document) -> bool:
        """Return whether a turn that a peer published is believed; otherwise that peer is asked for evidence."""
        if self._ctx.sign is None:
            return True
        known, number = self._believed.get(document.series or ""), document.number
        if known is None and number == 0 and document.series == series_of(document):
            self._believe(document, (document.encode(),))
            return True
        if known is not None and number <= known.number:
            if number == known.number and document.id != known.id:
                self._refuse(owner, document, f"it is {known.id}")
            return document.id == known.id
        if number == 0 or not _JOB_ID.fullmatch(document.nonce):
            self._refuse(owner, document, "it names no census" if number else "the series has not its name from it")
            return False
        if document.id not in self._waiting:
            mine = [job_id for job_id, one in self._waiting.items() if list(one.owners) == [owner]]
            for oldest in mine[: max(0, len(mine) + 1 - _MOST_WAITING)]:
                del self._waiting[oldest]
            self._waiting[document.id] = _Waiting(document)
        self._waiting[document.id].owners[owner] = None
        self._ask(owner, self._waiting[document.id])
        return False

    def _refuse(self, owner: str, document: Document, reason: str) -> None:
        turn = f"turn {document.number} of {document.series}"
        self._ctx.report(BadDocument(owner=owner, reason=f"{turn} is not believed: {reason}"))

    def heard(self, source: str) -> None:
        """Ask a peer that speaks of a job which is not known here: it may be one of the turns that wait."""
        for waiting in self._waiting.values():
            if source in waiting.document:
                self._ask(source, waiting)

    def _ask(self, name: str, waiting: _Waiting) -> None:
        now = self._ctx.now
        if name != self._ctx.me and now - waiting.asked.get(name, float("-inf")) >= self._ctx.timing.retry_s:
            waiting.asked[name], waiting.silent[name] = now, None
            self._ctx.send(name, AskEvidence(waiting.document.nonce, 0))

    def receive(self, source: str, message: AskEvidence | ShowEvidence) -> bool:
        """Answer a question about the census before a turn, or take an answer; return whether it was one of these."""
        if isinstance(message, AskEvidence):
            known = next((one for one in self._believed.values() if one.census == message.job), None)
            if known is not None:
                bulk = sum(map(len, known.shown)) > self._ctx.limits.inline_bytes
                self._ctx.send(source, ShowEvidence(message.job, message.term, known.shown), bulk=bulk)
            return known is not None
        asked = (one for one in self._waiting.values() if one.document.nonce == message.job and source in one.silent)
        waiting = next(asked, None)
        if waiting is None or len(message.evidence) != _FRAMES:
            return False
        del waiting.silent[source]
        self._read(source, waiting, message.evidence)
        return True

    def _read(self, source: str, waiting: _Waiting, shown: tuple[bytes, ...]) -> None:
        """Let the worker check what a peer shows, if it is evidence for this turn."""
        document, known = waiting.document, self._believed.get(waiting.document.series or "")
        try:
            census, first = map(Document.decode, shown[1:])
            evidence = Evidence.decode(shown[0], len(census.roster))
        except WireError as error:
            self._refute(source, waiting, str(error))
            return
        right, end = census.census and (census.id, census.turn) == (document.nonce, document.turn), evidence.end
        if not right or end is None or end.statement.digest != digest_of(document.encode()):
            self._refute(source, waiting, "it is not the end of the census before that turn")
            return
        named = first.number == 0 and document.series == first.series == series_of(first)
        if known is None and not named:
            self._refute(source, waiting, "the series has not its name from that document")
            return
        number, roster = (0, first.roster) if known is None else (known.number, known.roster)
        counted = tuple(name for name in roster if self._ctx.rosters.enrolled(name))
        signed = [name for index, name in enumerate(census.roster) if evidence.signed_by(index) and name in counted]
        if counted and not has_majority(signed, counted):
            waiting.asked[source] = float("inf")
            self._refuse(source, document, f"no majority of the roster of turn {number} has signed in its census")
            return
        token = CheckToken(document.id, CheckEvidence.kind, digest_of(shown[0]))
        if token not in self._checking:
            self._checking[token] = (source, waiting, shown)
            self._ctx.effects.append(Compute(token, CheckEvidence(shown[0], census.signers(self._ctx.rosters))))

    def _refute(self, source: str, waiting: _Waiting, reason: str) -> None:
        waiting.asked[source] = float("inf")
        document = waiting.document
        self._ctx.report(BadEvidence(document.id, None, peer=source, term=0, reason=reason))

    def checks(self, token: CheckToken) -> bool:
        """Return whether the worker has that task for the turns."""
        return token in self._checking

    def checked(self, token: CheckToken, outcome: Outcome) -> tuple[str, Document] | None:
        """Take the worker's answer; return a turn that is believed now, with the peer that has shown its evidence."""
        source, waiting, shown = self._checking.pop(token)
        problem = outcome.problem if isinstance(outcome, EvidenceChecked) else "it cannot be read"
        if problem:
            self._refute(source, waiting, problem)
        if problem or waiting.document.id not in self._waiting:
            return None
        self._believe(waiting.document, shown)
        return source, waiting.document
