"""Series: jobs that are repeated, each a fixed time after the end of the last, with the peers that are present then.

No peer owns a series. Every peer that finishes a turn arms a timer. When it fires, the job roster of that turn takes a
*census*: a job that every peer derives from the document, with a single state. Its aggregator proposes the next document,
and a majority adopts it like any final state: so there is one next document, even if peers die or several try at once. Of
each series a peer keeps the present turn, the one before, and the census between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from p2pclust.errors import UsageError, WireError
from p2pclust.peer.core.context import Context, Elapsed
from p2pclust.peer.core.document import CENSUS, Document, Turn, links_of, majority, roster_for
from p2pclust.peer.core.effects import Reload
from p2pclust.peer.core.ledger import JobTable, Tombstones
from p2pclust.peer.core.members.membership import Membership
from p2pclust.peer.core.reports import BadDocument, NoNext, NotReloaded, SeriesEnded
from p2pclust.peer.core.spread.cancels import Cancels
from p2pclust.peer.core.spread.facts import SERIES, Facts
from p2pclust.peer.core.tasks import ContinueJob, Task
from p2pclust.peer.core.treatment import Treatment

#: The table of the part of each pause that is over, and the kind of its timers.
PAUSES: Final = "pause"
#: The state of a census that ends the series.
OVER: Final = b"\xc0"
_PUBLISHERS: Final = 3  # roster peers that publish a new document at once, as its aggregator does


def census_of(document: Document) -> Document:
    """Return the census that follows a turn; every peer of its roster derives the same one."""
    assert document.turn is not None
    turn = replace(document.turn, number=document.turn.number + 1)
    given = document.treatment
    treatment = Treatment(
        patience_s=given.patience_s, compute_limit_s=given.compute_limit_s, collect="star", every_s=given.every_s
    )  # fmt: skip
    return Document(
        CENSUS, document.roster, document.store_ids, treatment, "", f"{document.id}/0/next", turn=turn,
        fleet_roster=document.fleet_roster,
    )  # fmt: skip


class Series:
    """All series at one peer."""

    def __init__(
        self, context: Context, membership: Membership, facts: Facts, table: JobTable, cancels: Cancels,
        tombstones: Tombstones, waited: Mapping[str, bytes],
    ) -> None:  # fmt: skip
        self._ctx = context
        self._membership = membership
        self._facts = facts
        self._table = table
        self._cancels = cancels
        self._tombstones = tombstones
        self._pauses = Elapsed(context, PAUSES, waited)  # by job: the pause after that turn
        self._expected: dict[str, Document] = {}  # by id of the expected census: the turn before it
        self._complained: dict[str, str] = {}
        self.waits_until = self._pauses.until  # by job: when this peer takes the census at the latest

    def start(self) -> list[Document]:
        """Continue after a restart; return the turns and censuses that have ended here."""
        names = dict.fromkeys(document.series for document in self._table.documents.values() if not document.census)
        turns = [document for series in names if series is not None for document in self._table.turns(series)]
        self._pauses.keep_only(document.id for document in turns)
        over = []
        for document in turns:
            if document.number == self._tombstones.newest(document.series or ""):
                self.publish(document)
            if self._table.ended(document.id):
                over.append(document)
        return over

    def begins(self, document: Document) -> None:
        """Read the rows again for a new turn, unless another job uses them."""
        if document.turn is None or document.census:
            return
        if self._table.idle(document.id):
            self._ctx.effects.append(Reload())
        else:
            self._ctx.report(NotReloaded(document.id))

    def ended(self, document: Document) -> None:
        """Expect a census after the pause that follows a turn which has ended here."""
        turn = document.turn
        if turn is None or self._tombstones.forbids(document) or self._cancels.by(turn.series):
            return
        self._expected[census_of(document).id] = document
        self._pauses.begin(document.id, document.treatment.every_s)

    def fire(self, job_id: str) -> Document | None:
        """Handle the timer of the pause after a turn; return the census that begins now."""
        if not self._pauses.fire(job_id):
            return None
        for census_id, document in self._expected.items():
            if document.id == job_id and document.turn and not self._cancels.by(document.turn.series):
                return self.expects(census_id)
        return None

    def expects(self, job_id: str) -> Document | None:
        """Return the census of that id, if it is expected here: it begins now."""
        document = self._expected.pop(job_id, None)
        if document is None:
            return None
        self._pauses.end(document.id)
        return census_of(document)

    # -- the next document ----------------------------------------------------------------------------------------------

    def continues(self, census: Document) -> Task | None:
        """Return the task that makes the mathematics of the next turn, or None if this peer no longer has the last turn."""
        if (before := self._before(census)) is None:
            return None
        state, keys = self._table.state(before.id), before.keys(self._ctx.rosters)
        return ContinueJob(before.mathematics, len(before.roster), state, keys=keys)

    def _before(self, census: Document) -> Document | None:
        assert census.turn is not None
        return next((d for d in self._table.turns(census.turn.series) if d.id == census.parent), None)

    def propose(self, census: Document, mathematics: bytes) -> bytes | None:
        """Return the next document that this peer proposes; None while too few peers are present."""
        before, turn = self._before(census), census.turn
        if before is None or turn is None:
            return None
        if self._cancels.by(turn.series):
            return OVER
        stores = self._stores(before, turn)
        if stores is None:
            return None
        roster, treatment = tuple(stores), replace(before.treatment, aggregator="")
        own = before.mathematics
        for each in (mathematics or own, own):  # too large with the last centers: it begins as before
            try:
                document = replace(
                    before, mathematics=each, roster=roster, store_ids=tuple(stores.values()), submitter=self._ctx.me,
                    nonce=census.id, turn=turn, treatment=treatment,
                    links=links_of(self._ctx.routing, treatment, roster),
                    fleet_roster=roster_for(self._ctx.rosters, treatment, roster),
                )  # fmt: skip
                return document.encode()
            except UsageError as error:
                if self._complained.get(census.id) != str(error):
                    self._complained[census.id] = str(error)
                    self._ctx.report(NoNext(series=turn.series, number=turn.number, reason=str(error)))
        return None

    def _stores(self, before: Document, turn: Turn) -> dict[str, str] | None:
        """Return the next job roster, with the store of each peer; None without a majority of the enrolled peers."""
        store_id, membership = self._membership.store_id, self._membership
        known = dict(zip(before.roster, before.store_ids, strict=True))
        if turn.fixed:
            named = [name for name in before.roster if name not in self._ctx.barred]
            return {name: store_id(name) or known[name] for name in named} or None
        alive = [name for name in membership.alive() if store_id(name)]
        if len(alive) < majority(len(membership.members) + 1):
            return None
        if before.treatment.missing == "all" or before.treatment.collect == "gossip":
            return {name: store_id(name) for name in alive}
        # Dead peers are on it as well: they may come back during the turn, and if only two of three were on it, one lost
        # store would end the series.
        away = [name for name in membership.members if membership.status(name) == "dead" and store_id(name)]
        return {name: store_id(name) for name in sorted([*alive, *away])}

    def decided(self, census: Document) -> Document | None:
        """Return the next document that a census agreed on, or None at the end of the series."""
        data = self._table.state(census.id).payload or b""
        assert census.turn is not None
        if data == OVER:
            self._ctx.report(SeriesEnded(series=census.turn.series, number=census.turn.number))
            return None
        try:
            document = Document.decode(data)
        except WireError as error:
            self._ctx.report(BadDocument(owner=census.parent, reason=str(error)))
            return None
        self._complained.pop(census.id, None)
        return document if document.turn == census.turn else None

    # -- spreading --------------------------------------------------------------------------------------------------------

    def publish(self, document: Document) -> None:
        """Publish the newest document of a series, always under the same key, so that old turns take up no memory."""
        if document.turn is not None and not document.census:
            self._facts.publish(SERIES + document.turn.series, document.encode())

    def publish_first(self, document: Document) -> None:
        """Publish a new document if this peer is one of those that do so at once."""
        if self._ctx.me in document.roster[:_PUBLISHERS]:
            self.publish(document)

    def advance(self, document: Document) -> list[Document] | None:
        """Go over to a newer document of a series; return the older ones to forget, or None if it is not newer."""
        turn = document.turn
        if turn is None or self._tombstones.forbids(document):
            return None
        self._tombstones.advance(turn.series, turn.number)  # before older rows are deleted
        published = self._facts.get(self._ctx.me, SERIES + turn.series)
        if published is not None and published.value != document.encode():
            self.publish(document)  # otherwise other peers would repeat this peer's old turn indefinitely
        turns = [(d, d.turn.number) for d in self._table.turns(turn.series) if d.turn is not None]
        older = [d for d, number in turns if number < turn.number - (0 if d.census else 1)]
        expected = [d for d in self._expected.values() if d.turn and d.turn.series == turn.series]
        for before in [*older, *(d for d in expected if d.id != document.id)]:
            self._pauses.end(before.id)
            self._expected = {census_id: d for census_id, d in self._expected.items() if d.id != before.id}
        return older

    def cancelled(self, series: str) -> None:
        """Stop the pauses of a cancelled series."""
        for document in self._table.turns(series):
            self._pauses.end(document.id)
