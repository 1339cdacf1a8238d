"""The ballot and register of a job, both on disk before a message reveals them; the table of a peer's jobs; tombstones."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgpack

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.tasks import Ref


@dataclass(frozen=True, slots=True)
class Register:
    """The newest state that this peer adopted. `ref` is None before the first round: the job's own first state."""

    term: int = 0
    round: int = 0
    ref: Ref | None = None
    final: bool = False

    @property
    def position(self) -> tuple[int, int]:
        """The key that registers are compared by: across terms a round may go back."""
        return (self.term, self.round)


def adopted_blobs(rows: Mapping[str, bytes]) -> frozenset[bytes]:
    """The blobs that are states in these stored registers: each was whole, verified and synced before it was adopted."""
    registers = (msgpack.unpackb(row) for row in rows.values())
    return frozenset(digest for _, _, digest, _, payload, *_ in registers if payload is None)


class Ledger:
    """Term, vote, register and end of one job at one peer.

    Invariants: `term` never falls; in one term at most one vote is given; until the job is finished, the register's position
    never falls, and nothing is adopted in a term other than `term`. Taking over another peer's register is no adoption in
    that register's term: this peer no longer answers an aggregator of that term.
    """

    def __init__(
        self, context: Context, document: Document, ballot: bytes | None, register: bytes | None, vote: bytes | None = None
    ) -> None:  # fmt: skip
        self._ctx = context
        self._document = document
        self._id = document.id
        # The document itself casts all votes of term 1 for a named aggregator.
        self.term, self.voted_for = (1, document.treatment.aggregator) if document.treatment.aggregator else (0, "")
        #: The last vote that was signed, and its term, which may be an older one.
        self._signed: tuple[int, bytes] = (0, b"") if vote is None else tuple(msgpack.unpackb(vote))
        self.register = Register()
        self.finished = False
        if ballot is not None:
            self.term, self.voted_for = msgpack.unpackb(ballot)
        if register is not None:
            term, round_, digest, size, payload, final, self.finished = msgpack.unpackb(register)
            self.register = Register(term, round_, Ref(digest, size, payload), final)
            self.term = max(self.term, term)

    def stale(self, term: int) -> bool:
        """Return whether a message of that term must be refused (the fence)."""
        return term < self.term

    def see(self, term: int) -> None:
        """Raise the term; messages of lower terms are refused from now on."""
        if term > self.term:
            self.term, self.voted_for = term, ""
            self._save_ballot()

    @property
    def vote_cast(self) -> bytes:
        """This term's vote as it was signed; empty if there is none."""
        term, signed = self._signed
        return signed if term == self.term else b""

    def vote(self, term: int, candidate: str, signed: bytes = b"") -> None:
        """Give this term's only vote; where votes are signed, `signed` is what the other peers can check."""
        assert (term > self.term) or (term == self.term and self.voted_for in ("", candidate)), (
            f"{self._id}: second vote in term {term}: {self.voted_for!r}, then {candidate!r}"
        )
        self.term, self.voted_for = term, candidate
        if signed:
            self._signed = (term, signed)
            self._ctx.persist("vote", self._id, msgpack.packb([term, signed]))
        self._save_ballot()

    def may_adopt(self, term: int, round_: int) -> bool:
        """Return whether `(term, round)` may go into the register."""
        return term == self.term and (term, round_) >= self.register.position

    def adopt(self, term: int, round_: int, ref: Ref, *, final: bool) -> None:
        """Put a state into the register."""
        self.register = Register(term, round_, ref, final)
        self._save_register()

    def learn(self, term: int, round_: int, ref: Ref, *, final: bool) -> None:
        """Take over the newer state that another peer's register holds."""
        assert (term, round_) > self.register.position, f"{self._id}: ({term}, {round_}) is not newer"
        self.see(term)
        self.adopt(term, round_, ref, final=final)

    def finish(self, term: int, round_: int, ref: Ref) -> None:
        """Finish the job with this state."""
        self.finished = True
        self.adopt(term, round_, ref, final=True)

    def _save_ballot(self) -> None:
        self._ctx.persist("ballot", self._id, msgpack.packb([self.term, self.voted_for]))

    def _save_register(self) -> None:
        r = self.register
        assert r.ref is not None
        row = [r.term, r.round, r.ref.digest, r.ref.size_bytes, r.ref.payload, r.final, self.finished]
        self._ctx.persist("register", self._id, msgpack.packb(row))


@dataclass
class JobTable:
    """The documents of all jobs that are kept here, in the order in which they came, and the ledgers of its own jobs."""

    documents: dict[str, Document] = field(default_factory=dict)
    ledgers: dict[str, Ledger] = field(default_factory=dict)

    def keeps(self, name: str) -> bool:
        """Return whether a job, or any turn of a series, of that name is kept here."""
        return name in self.documents or bool(self.turns(name))

    def runs(self, job_id: str) -> bool:
        """Return whether this peer takes part in the job, and the job has not ended here."""
        return job_id in self.ledgers and not self.ledgers[job_id].finished

    def ended(self, job_id: str) -> bool:
        """Return whether the job has ended here."""
        return job_id in self.ledgers and self.ledgers[job_id].finished

    def state(self, job_id: str) -> Ref:
        """Return the state in the register of a job that has one."""
        ref = self.ledgers[job_id].register.ref
        assert ref is not None
        return ref

    def turns(self, series: str) -> list[Document]:
        """Return the documents of a series, censuses included."""
        return [d for d in self.documents.values() if d.turn is not None and d.turn.series == series]

    def submitted(self) -> list[Document]:
        """Return the documents that were submitted and are not of a series, oldest first."""
        return [d for d in self.documents.values() if d.turn is None and not d.parent]

    def requested(self, request: str) -> Document | None:
        """Return the job that a client submitted with that id, of a series the newest turn; None if no job has it."""
        same = [d for d in self.documents.values() if request and d.request == request and not d.census]
        return max(same, key=lambda document: document.number, default=None)

    def idle(self, but: str) -> bool:
        """Return whether no other job runs here."""
        return not any(
            self.runs(job_id) for job_id in self.ledgers if job_id != but and not self.documents[job_id].census
        )


#: The table of the newest number of each series, by its name.
SERIES: Final = "series"
#: The table of forgotten jobs that are not turns of a series, by id.
ENDED: Final = "ended"


class Tombstones:
    """One rule, in one place, for all who delete a job: it must never begin again at this peer.

    A job that began again would vote in a term in which this store has voted, and could end a second time with other bits.
    So before a ballot or register is deleted, or in the same batch, a tombstone is on disk: of a series the number of its
    newest turn, of any other job its id. A child job belongs to one round of its parent, so the parent's register, and later
    the parent's tombstone, says that it is over. `stored` holds the rows of all tables.
    """

    def __init__(self, context: Context, stored: Mapping[str, Mapping[str, bytes]]) -> None:
        self._ctx = context
        self._newest = {name: int(number) for name, number in stored.get(SERIES, {}).items()}
        self._ended = dict.fromkeys(stored.get(ENDED, {}))
        self._forgotten: dict[str, dict[str, None]] = {}  # by running job: the peers that have forgotten it

    def newest(self, series: str) -> int:
        """Return the newest turn of a series that this peer ever knew, or -1."""
        return self._newest.get(series, -1)

    def advance(self, series: str, number: int) -> None:
        """Note that a turn exists: no turn below it begins here from now on."""
        if number > self.newest(series):
            self._newest[series] = number
            self._ctx.persist(SERIES, series, str(number).encode())

    def ended(self, job_id: str) -> bool:
        """Return whether a job was forgotten here after its end."""
        return job_id in self._ended

    def note_forgotten(self, job_id: str, source: str) -> Collection[str]:
        """Note that a peer has forgotten a job after its end, or refuses it; return all that have said so."""
        forgotten = self._forgotten.setdefault(job_id, {})
        forgotten[source] = None
        return forgotten

    def bury(self, document: Document) -> None:
        """Write the tombstone of a job, before its rows are deleted."""
        self._forgotten.pop(document.id, None)
        if document.turn is None and not document.parent:
            self._ended[document.id] = None
            self._ctx.persist(ENDED, document.id, b"")

    def forbids(self, document: Document) -> bool:
        """Return whether a job must not begin here."""
        if document.turn is not None:
            return document.turn.number < self.newest(document.turn.series)
        return document.id in self._ended or document.parent in self._ended
