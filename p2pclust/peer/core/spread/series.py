"""Series: jobs that are repeated, each a fixed time after the end of the last, with the peers that are present then.

No peer owns a series. Each document has its turn number, and every peer that finishes a turn arms a timer. When it fires,
the job roster of that turn takes a *census*: a job with the same roster and stores, which every peer derives from the
document, and with a single state. The elected aggregator proposes the next document, with the peers that are alive and the
mathematics made from the last result; a majority adopts the proposal like any final state. So there is one next document,
even if peers die or several try at once. A census may also agree that the series is over.

Only uptime counts for the pause between turns: the part that is over is on disk, in sixteenths, so a restarted peer waits
for the rest, or until another peer begins.
Of each series a peer keeps the present turn, the one before, and the census between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Protocol

from p2pclust.errors import UsageError, WireError
from p2pclust.peer.core.context import Context
from p2pclust.peer.core.document import CENSUS, Document, Turn
from p2pclust.peer.core.effects import Reload
from p2pclust.peer.core.members.membership import Membership
from p2pclust.peer.core.quorum import majority
from p2pclust.peer.core.spread.elapsed import Elapsed
from p2pclust.peer.core.spread.facts import Facts
from p2pclust.peer.core.spread.tombstones import Tombstones
from p2pclust.peer.core.tasks import ContinueJob, Ref, Task
from p2pclust.peer.core.treatment import Treatment

__all__ = ["OVER", "PAUSES", "PREFIX", "Documents", "Series", "census_of"]

#: Prefix of the key of the fact with the newest document of a series; the series' name follows.
PREFIX: Final = "series/"
#: The table of the part of each pause that is over, and the kind of its timers.
PAUSES: Final = "pause"
#: The state of a census that ends the series.
OVER: Final = b"\xc0"
_TELLERS: Final = 3  # roster peers that publish a new document at once, beside its aggregator


class Documents(Protocol):
    """What a series needs of the other jobs at this peer."""

    def turns(self, series: str) -> list[Document]:
        """Return the documents of a series that are kept here, censuses included."""

    def state_of(self, job_id: str) -> tuple[Ref | None, bool]:
        """Return the state in the register of a job, and whether it is finished."""

    def series_cancelled_by(self, series: str) -> str:
        """Return who cancelled the series; empty if no cancel is known here."""

    def idle(self, but: str) -> bool:
        """Return whether no other job runs here."""

    def take_up(self, document: Document) -> None:
        """Keep a document, and begin the job if this peer takes part."""

    def hold_census(self, document: Document) -> None:
        """Begin a census."""

    def forget(self, job_id: str) -> None:
        """Drop a job and its document."""

    def with_roster(self, document: Document, roster: tuple[str, ...], store_ids: tuple[str, ...]) -> Document:
        """Return a document for another job roster, with the links between its peers if it has any."""


def census_of(document: Document) -> Document:
    """Return the census that follows a turn; every peer of its roster derives the same one."""
    assert document.turn is not None
    turn = replace(document.turn, number=document.turn.number + 1)
    given = document.treatment
    treatment = Treatment(patience_s=given.patience_s, collect="star", every_s=given.every_s)
    return Document(
        CENSUS, document.roster, document.store_ids, treatment, "", f"{document.id}/0/next", turn=turn
    )  # fmt: skip


class Series:
    """The machine of all series at one peer."""

    def __init__(
        self, context: Context, membership: Membership, facts: Facts, documents: Documents, tombstones: Tombstones,
        waited: Mapping[str, bytes],
    ) -> None:  # fmt: skip
        self._ctx = context
        self._membership = membership
        self._facts = facts
        self._documents = documents
        self._tombstones = tombstones
        self._pauses = Elapsed(context, PAUSES, waited)  # by job: the pause after that turn
        self._expected: dict[str, Document] = {}  # by id of the expected census: the turn before it
        self._complained: dict[str, str] = {}
        self.waits_until: dict[str, float] = {}  # by job: when this peer takes the census at the latest

    def start(self, names: list[str]) -> None:
        """Go on after a restart."""
        self._pauses.keep_only(document.id for series in names for document in self._documents.turns(series))
        for series in names:
            turns = self._documents.turns(series)
            numbers = [document.turn.number for document in turns if document.turn and not document.census]
            self._tombstones.advance(series, max(numbers))  # older stores have documents only
            for document in turns:
                if document.turn and document.turn.number == self._tombstones.newest(series):
                    self.tell(document)
                if self._documents.state_of(document.id)[1]:
                    self.ended(document)

    def begins(self, document: Document) -> None:
        """Read the rows again for a new turn, unless another job uses them."""
        if document.turn is None or document.census:
            return
        if self._documents.idle(document.id):
            self._ctx.effects.append(Reload())
        else:
            self._ctx.report("not-reloaded", job=document.id, hint="another job is at work on these rows")

    def ended(self, document: Document) -> None:
        """Go on after a turn or a census that has finished here."""
        turn = document.turn
        if turn is None:
            return
        if document.census:
            self._decided(document)
        elif not self._tombstones.forbids(document) and not self._documents.series_cancelled_by(turn.series):
            self._expected[census_of(document).id] = document
            self.waits_until[document.id] = self._ctx.now + self._pauses.begin(document.id, document.treatment.every_s)

    def fire(self, job_id: str) -> None:
        """Handle the timer of the pause after a turn."""
        if not self._pauses.fire(job_id):
            return
        self.waits_until.pop(job_id, None)
        for census_id, document in list(self._expected.items()):
            if (
                document.id == job_id
                and document.turn
                and not self._documents.series_cancelled_by(document.turn.series)
            ):
                self._take(census_id)

    def expects(self, job_id: str) -> bool:
        """Begin a census that another peer has begun, if it is expected here; return whether it was."""
        if job_id not in self._expected:
            return False
        self._take(job_id)
        return True

    def _take(self, census_id: str) -> None:
        document = self._expected.pop(census_id)
        self._pauses.end(document.id)
        self.waits_until.pop(document.id, None)
        self._documents.hold_census(census_of(document))

    # -- the next document ----------------------------------------------------------------------------------------------

    def continues(self, census: Document) -> Task | None:
        """Return the task that makes the mathematics of the next turn, or None if this peer no longer has the last turn."""
        before = self._before(census)
        if before is None:
            return None
        ref, _ = self._documents.state_of(before.id)
        assert ref is not None
        return ContinueJob(before.job, len(before.roster), ref)

    def _before(self, census: Document) -> Document | None:
        assert census.turn is not None
        return next((d for d in self._documents.turns(census.turn.series) if d.id == census.parent), None)

    def propose(self, census: Document, mathematics: bytes) -> bytes | None:
        """Return the next document that this peer proposes; None while too few peers are present."""
        before, turn = self._before(census), census.turn
        if before is None or turn is None:
            return None
        if self._documents.series_cancelled_by(turn.series):
            return OVER
        stores = self._stores(before, turn)
        if stores is None:
            return None
        document = replace(
            before,
            submitter=self._ctx.me,
            nonce=census.id,
            turn=turn,
            treatment=replace(before.treatment, aggregator=""),
        )
        for job in (mathematics, before.job):  # where the last centers make it too large, it begins as before
            try:
                made = self._documents.with_roster(
                    replace(document, job=job or before.job), tuple(stores), tuple(stores.values())
                )
                return made.encode()
            except UsageError as error:
                if self._complained.get(census.id) != str(error):
                    self._complained[census.id] = str(error)
                    self._ctx.report("no-next", series=turn.series, number=turn.number, reason=str(error))
        return None

    def _stores(self, before: Document, turn: Turn) -> dict[str, str] | None:
        """Return the next job roster, with the store of each peer; None without a majority of the enrolled peers.

        Where missing peers are not waited for, dead peers are on it as well: they may come back during the turn, and if
        only two of three were on it, one lost store would end the series.
        """
        store_id, membership = self._membership.store_id, self._membership
        known = dict(zip(before.roster, before.store_ids, strict=True))
        if turn.fixed:
            return {name: store_id(name) or known[name] for name in before.roster}
        alive = [name for name in membership.alive() if store_id(name)]
        if len(alive) < majority(len(membership.members) + 1):
            return None
        if before.treatment.missing == "all" or before.treatment.collect == "gossip":
            return {name: store_id(name) for name in alive}
        away = [name for name in membership.members if membership.status(name) == "dead" and store_id(name)]
        return {name: store_id(name) for name in sorted([*alive, *away])}

    def _decided(self, census: Document) -> None:
        """Take the next document that a census agreed on, or the end of the series."""
        ref, _ = self._documents.state_of(census.id)
        assert census.turn is not None
        assert ref is not None
        data = ref.payload or b""
        if data == OVER:
            self._ctx.report("series-ended", series=census.turn.series, number=census.turn.number)
            return
        try:
            document = Document.decode(data)
        except WireError as error:
            self._ctx.report("bad-document", owner=census.parent, reason=str(error))
            return
        self._complained.pop(census.id, None)
        if document.turn == census.turn:
            self.learn(document)
            if self._ctx.me in document.roster[:_TELLERS]:
                self.tell(document)

    # -- spreading --------------------------------------------------------------------------------------------------------

    def tell(self, document: Document) -> None:
        """Publish the newest document of a series, always under the same key, so that old turns take up no memory."""
        if document.turn is not None and not document.census:
            self._facts.publish(PREFIX + document.turn.series, document.encode())

    def learn(self, document: Document) -> None:
        """Take a document of a series, from a census or a fact."""
        turn = document.turn
        if turn is None or self._tombstones.forbids(document):
            return
        self._tombstones.advance(turn.series, turn.number)  # before older rows are deleted
        said = self._facts.get(self._ctx.me, PREFIX + turn.series)
        if said is not None and said.value != document.encode():
            self.tell(document)  # otherwise other peers would repeat this peer's old turn for ever
        for older in self._documents.turns(turn.series):
            assert older.turn is not None
            if older.turn.number < turn.number - (0 if older.census else 1):
                self._drop(older)
        for job_id in [d.id for d in self._expected.values() if d.turn and d.turn.series == turn.series]:
            if job_id != document.id:
                self._settle(job_id)
        self._documents.take_up(document)

    def _drop(self, document: Document) -> None:
        self._settle(document.id)
        self._documents.forget(document.id)

    def _settle(self, job_id: str) -> None:
        """Expect no census after a turn any more."""
        self._pauses.end(job_id)
        self.waits_until.pop(job_id, None)
        for census_id in [census_id for census_id, d in self._expected.items() if d.id == job_id]:
            del self._expected[census_id]

    def cancelled(self, series: str) -> None:
        """Stop the pauses of a cancelled series."""
        for document in self._documents.turns(series):
            self._pauses.end(document.id)
            self.waits_until.pop(document.id, None)
