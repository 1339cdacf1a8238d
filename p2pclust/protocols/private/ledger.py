"""What a device has promised away: its ledger of jobs, as values and as bytes (docs/protocols/private-cm.md).

What is reserved is never given back: a job that fails may have revealed all of it. Nothing here reads a clock or a disk: a
day is a number that the caller counts, for example days since 1970. Jobs without noise are in the ledger of a device that
takes part in so many of them only, or that keeps the sets of peers whose sums were revealed.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgpack

from p2pclust.errors import DataError, UsageError, WireError
from p2pclust.protocols.engine import checks
from p2pclust.protocols.engine.arrays import unpack
from p2pclust.protocols.private.accounting import epsilon_of, mu_for
from p2pclust.protocols.secure.classes import exposed

_FORMAT: Final = "p2pclust privacy ledger 2"
_DIGEST_BYTES: Final = 32
_MOST_RESERVATIONS: Final = 100_000
_MOST_TEXT: Final = 200
_MOST_DAY: Final = 10**7
_MOST_MU_SQUARED: Final = 1e6
_MOST_SETS: Final = 64
_ROWS_BYTES: Final = 32
_PEER_BYTES: Final = 16  # of a device key: too many to find another key with the same ones
_DAYS: Final = re.compile(r"([1-9][0-9]{0,4})d\Z")


@dataclass(frozen=True)
class Budget:
    """What a device allows."""

    # epsilon, delta: of all its jobs within a window together.
    epsilon: float
    delta: float
    days: int  # the length of the window

    @classmethod
    def from_dict(cls, given: Any) -> Budget:
        """Return the budget that a device's configuration names.

        Raises UsageError for a missing or unknown name, and a value out of range.
        """
        if not isinstance(given, Mapping) or set(given) != {"epsilon", "delta", "per"}:
            raise UsageError('budget: expected { epsilon = 8, delta = 1e-6, per = "30d" }')
        budget = cls(
            checks.real("budget: epsilon", given["epsilon"], above=0.0),
            checks.real("budget: delta", given["delta"], above=0.0),
            _days("budget", given["per"]),
        )
        _ = budget.mu_squared  # raises UsageError for a value out of range
        return budget

    @property
    def mu_squared(self) -> float:
        """The most that jobs of one window may reserve together."""
        return mu_for(self.epsilon, self.delta) ** 2


def _days(where: str, per: object) -> int:
    found = _DAYS.match(per) if isinstance(per, str) else None
    if found is None:
        raise UsageError(f'{where}: per = {str(per)[:60]!r}: expected whole days, such as "30d"')
    return int(found[1])


@dataclass(frozen=True)
class MostJobs:
    """In how many jobs a device takes part within a window."""

    most: int  # 1 to 10**6
    days: int  # the length of the window

    @classmethod
    def from_dict(cls, given: Any) -> MostJobs:
        """Return the rule that a device's configuration names.

        Raises UsageError for a missing or unknown name, and a value out of range.
        """
        if not isinstance(given, Mapping) or set(given) != {"most", "per"}:
            raise UsageError('jobs: expected { most = 3, per = "30d" }')
        return cls(checks.whole("jobs: most", given["most"], least=1, most=10**6), _days("jobs", given["per"]))

    def __str__(self) -> str:
        return f"{self.most} per {self.days}d"


@dataclass(frozen=True, order=True)
class Reservation:
    """What one job takes."""

    day: int  # 0 to 10**7
    job: str  # its id, 1 to 200 characters
    mu_squared: float  # 0 to 10**6; 0 of a job without noise
    peer: str = ""  # the peer that takes part in it, where several have one ledger; at most 200 characters

    def problem(self) -> str:
        if type(self.day) is not int or not 0 <= self.day <= _MOST_DAY:
            return f"expected a day from 0 to {_MOST_DAY}"
        if type(self.job) is not str or not 1 <= len(self.job) <= _MOST_TEXT:
            return f"expected a job id of 1 to {_MOST_TEXT} characters"
        if type(self.mu_squared) is not float or not 0.0 <= self.mu_squared <= _MOST_MU_SQUARED:
            return f"expected a number from 0 to {_MOST_MU_SQUARED:g}"
        if type(self.peer) is not str or len(self.peer) > _MOST_TEXT:
            return f"expected a peer of at most {_MOST_TEXT} characters"
        return ""


@dataclass(frozen=True)
class PeerSet:
    """Peers whose sum a job may have revealed."""

    job: str
    rows: bytes  # a digest of the device's own rows, 32 bytes
    peers: tuple[bytes, ...]  # the first 16 bytes of the peers' device keys, sorted

    @classmethod
    def of(cls, job: str, rows: bytes, keys: Iterable[bytes]) -> PeerSet:
        return cls(job, rows, tuple(sorted({key[:_PEER_BYTES] for key in keys})))

    def problem(self) -> str:
        if type(self.job) is not str or type(self.rows) is not bytes or len(self.rows) != _ROWS_BYTES:
            return "expected a job id, and a digest of rows"
        if not all(type(peer) is bytes and len(peer) == _PEER_BYTES for peer in self.peers):
            return f"expected peers of {_PEER_BYTES} bytes"
        return "" if list(self.peers) == sorted(set(self.peers)) else "expected its peers in order, each once"


@dataclass(frozen=True)
class LedgerMark:
    """How far a ledger has come; each of these numbers only grows, so an older copy of a ledger is below a newer one's."""

    mu_squared: float = 0.0  # of all jobs ever
    jobs: int = 0  # their number
    day: int = 0  # the latest day of a reservation

    def problem(self) -> str:
        kinds = (type(self.mu_squared), type(self.jobs), type(self.day))
        if kinds != (float, int, int) or not (0.0 <= self.mu_squared < math.inf and self.jobs >= 0):
            return "expected mu**2, a number of jobs, and a day"
        return "" if 0 <= self.day <= _MOST_DAY else f"expected a day from 0 to {_MOST_DAY}"

    def below(self, other: LedgerMark) -> bool:
        """Return whether a ledger that came so far is older than one that came as far as the other."""
        return self.mu_squared < other.mu_squared or self.jobs < other.jobs or self.day < other.day

    def encode(self) -> bytes:
        return bytes(msgpack.packb([self.mu_squared, self.jobs, self.day]))

    @classmethod
    def decode(cls, data: bytes) -> LedgerMark:
        return cls(*msgpack.unpackb(data))


@dataclass(frozen=True)
class PrivacyLedger:
    """All reservations of a device, in order of days and ids, each job once."""

    reservations: tuple[Reservation, ...] = ()
    sets: tuple[PeerSet, ...] = ()  # the newest last
    mark: LedgerMark = LedgerMark()

    def __post_init__(self) -> None:
        if problem := self.mark.problem():
            raise UsageError(f"privacy ledger: {problem}")
        for one_set in self.sets:
            if problem := one_set.problem():
                raise UsageError(f"privacy ledger: set of peers: {problem}")
        for number, one in enumerate(self.reservations):
            if problem := one.problem():
                raise UsageError(f"privacy ledger: reservation {number}: {problem}")
        if not all(before < after for before, after in zip(self.reservations, self.reservations[1:], strict=False)):
            raise UsageError("privacy ledger: its reservations are not in order")
        if len({one.job for one in self.reservations}) < len(self.reservations):
            raise UsageError("privacy ledger: a job has two reservations")

    def reserved(self, day: int, days: int) -> float:
        """Return the mu**2 that is reserved in the window that ends with this day.

        Reservations of later days count: a clock that was set back frees nothing.
        """
        return math.fsum(one.mu_squared for one in self.reservations if one.day > day - days)

    def problem_with_budget(self, job: str, mu_squared: float, day: int, budget: Budget) -> str:
        """Return why a job must reveal nothing on a day, or an empty string; what it has reserved counts once."""
        before = self.reserved(day, budget.days)
        own = self._of(job)
        others = [before] if own is None or own.day <= day - budget.days else [before, -own.mu_squared]
        after = math.fsum([*others, mu_squared if own is None else max(mu_squared, own.mu_squared)])
        if after <= budget.mu_squared:
            return ""
        shown = [f"{epsilon_of(budget.delta, math.sqrt(max(0.0, spent))):.2f}" for spent in (before, after)]
        return (
            f"privacy budget of epsilon {budget.epsilon:g} in {budget.days} days: {shown[0]} is reserved, with this job it "
            f"would be {shown[1]}"
        )

    def problem_with_jobs(self, job: str, day: int, rule: MostJobs) -> str:
        """Return why a device takes part in no further job on a day, or an empty string; a job that it is in counts once."""
        others = sum(one.job != job for one in self.reservations if one.day > day - rule.days)
        if others < rule.most:
            return ""
        return f"this device takes part in {rule.most} jobs in {rule.days} days, and it has"

    def problem_with_peer(self, job: str, peer: str) -> str:
        """Return why a peer takes no part in a job that another one with the same ledger is in, or an empty string."""
        own = self._of(job)
        if own is None or own.peer == peer:
            return ""
        return "another peer with the same ledger takes part in this job: its rows would count twice"

    def problem_with_sets(self, new: Sequence[PeerSet], cohort: int) -> str:
        """Return why the sums over some sets of peers must not be revealed beside those of other jobs, or an empty string.

        Whatever can be computed from all these sums is a function of sums over classes of peers, see
        :mod:`p2pclust.protocols.secure.classes`. The sets of the job itself are for its own rules.
        """
        others = [one for one in self.sets for own in new[:1] if one.rows == own.rows and one.job != own.job]
        names = {peer for one in (*others, *new) for peer in one.peers}
        numbers = {peer: at for at, peer in enumerate(sorted(names))}
        before, after = (
            [sum(1 << numbers[peer] for peer in one.peers) for one in sets] for sets in (others, [*others, *new])
        )
        if not others or not exposed(after, cohort) & ~exposed(before, cohort):
            return ""
        return f"from the totals of this job and of earlier ones, sums of fewer than {cohort} peers could be computed"

    def with_job(self, job: str, mu_squared: float, day: int, peer: str = "") -> PrivacyLedger:
        """Return the ledger with a job's reservation. Of a job that has one, the larger number and the later day stay.

        A job that reveals something on a later day than it began needs the reservation of that day. Raises UsageError
        for a value out of range.
        """
        own = self._of(job)
        more = mu_squared
        if own is not None:
            mu_squared, day = max(mu_squared, own.mu_squared), max(day, own.day)
            more = mu_squared - own.mu_squared
        new = Reservation(day, job, mu_squared, peer)
        if problem := new.problem():
            raise UsageError(f"privacy ledger: job {str(job)[:60]}: {problem}")
        if own is None and len(self.reservations) >= _MOST_RESERVATIONS:
            raise UsageError(f"privacy ledger: it has {_MOST_RESERVATIONS} reservations: drop those of past windows")
        reservations = tuple(sorted([*(one for one in self.reservations if one.job != job), new]))
        mark = LedgerMark(self.mark.mu_squared + more, self.mark.jobs + (own is None), max(self.mark.day, day))
        return replace(self, reservations=reservations, mark=mark)

    def with_set(self, new: PeerSet) -> PrivacyLedger:
        """Return the ledger with a set of peers whose sum may be revealed; the oldest of many is dropped."""
        return self if new in self.sets else replace(self, sets=(*self.sets, new)[-_MOST_SETS:])

    def since(self, day: int) -> PrivacyLedger:
        return replace(self, reservations=tuple(one for one in self.reservations if one.day >= day))

    def _of(self, job: str) -> Reservation | None:
        return next((one for one in self.reservations if one.job == job), None)

    def encode(self) -> bytes:
        """Return the bytes of the ledger: equal ledgers have equal bytes."""
        rows = [[one.day, one.job, one.mu_squared, one.peer] for one in self.reservations]
        sets = [[one.job, one.rows, b"".join(one.peers)] for one in self.sets]
        body: bytes = msgpack.packb([_FORMAT, rows, sets, [self.mark.mu_squared, self.mark.jobs, self.mark.day]])
        return hashlib.sha256(body).digest() + body

    @classmethod
    def decode(cls, data: bytes) -> PrivacyLedger:
        """Return the ledger that :meth:`encode` made bytes of.

        Raises DataError for all other bytes, with the reason in one line.
        """
        body = data[_DIGEST_BYTES:] if isinstance(data, bytes) else b""
        if not body or hashlib.sha256(body).digest() != data[:_DIGEST_BYTES]:
            raise DataError("privacy ledger: its bytes are damaged: restore it, or ask its owner to begin a new one")
        try:
            plain = unpack(body, max_items=_MOST_RESERVATIONS)
            if not isinstance(plain, list) or len(plain) != 4 or plain[0] != _FORMAT:
                raise UsageError(f"privacy ledger: expected the format {_FORMAT!r}")
            _, rows, sets, mark = plain
            if not all(isinstance(part, list) for part in (rows, sets, mark)) or len(mark) != 3:
                raise UsageError("privacy ledger: expected reservations, sets of peers, and how far it has come")
            if not all(isinstance(row, list) and len(row) == 4 for row in rows):
                raise UsageError("privacy ledger: expected a day, a job, a number and a peer in each reservation")
            if not all(isinstance(one, list) and len(one) == 3 and type(one[2]) is bytes for one in sets):
                raise UsageError("privacy ledger: expected a job, a digest and peers in each set of peers")
            peer_sets = []
            for job, digest, peers in sets:
                each = tuple(peers[at : at + _PEER_BYTES] for at in range(0, len(peers), _PEER_BYTES))
                peer_sets.append(PeerSet(job, digest, each))
            ledger = cls(tuple(Reservation(*row) for row in rows), tuple(peer_sets), LedgerMark(*mark))
        except WireError as error:
            raise DataError(f"privacy ledger: {error}") from None
        except UsageError as error:
            raise DataError(str(error)) from None
        if ledger.encode() != data:
            raise DataError("privacy ledger: its bytes are not those that this program writes")
        return ledger
