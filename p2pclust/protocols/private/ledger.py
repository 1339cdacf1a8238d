"""What a device has promised away: the ledger of its privacy budget, as values and as bytes.

A device reserves all of a job's mu**2 before it sends anything of the job, and writes the ledger to disk first. What is
reserved is never given back: a job that fails may have revealed all of it. Nothing here reads a clock or a disk: a day is a
number that the caller counts, for example days since 1970.

The budget is for every window of so many days, and not for ever: what a device reveals later adds to what it revealed before
the window.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgpack

from p2pclust.errors import DataError, UsageError, WireError
from p2pclust.protocols.engine import checks
from p2pclust.protocols.engine.arrays import unpack_canonical
from p2pclust.protocols.private.accounting import epsilon_of, mu_for

__all__ = ["Budget", "PrivacyLedger", "Reservation"]

_FORMAT: Final = "p2pclust privacy ledger 1"
_DIGEST_BYTES: Final = 32
_MOST_RESERVATIONS: Final = 100_000
_MOST_TEXT: Final = 200
_MOST_DAY: Final = 10**7
_MOST_MU_SQUARED: Final = 1e6
_DAYS: Final = re.compile(r"([1-9][0-9]{0,4})d\Z")


@dataclass(frozen=True)
class Budget:
    """What a device allows.

    Parameters
    ----------
    epsilon, delta : float
        Of all its jobs within a window together.
    days : int
        The length of the window.

    Examples
    --------
    >>> Budget.from_dict({"epsilon": 8, "delta": 1e-6, "per": "30d"})
    Budget(epsilon=8.0, delta=1e-06, days=30)
    """

    epsilon: float
    delta: float
    days: int

    @classmethod
    def from_dict(cls, given: Any) -> Budget:
        """Return the budget that a device's configuration names.

        Raises
        ------
        UsageError
            For a missing or unknown name, and a value out of range.
        """
        if not isinstance(given, Mapping) or set(given) != {"epsilon", "delta", "per"}:
            raise UsageError('budget: expected { epsilon = 8, delta = 1e-6, per = "30d" }')
        per = _DAYS.match(given["per"]) if isinstance(given["per"], str) else None
        if per is None:
            raise UsageError(f'budget: per = {str(given["per"])[:60]!r}: expected whole days, such as "30d"')
        budget = cls(
            checks.real("budget: epsilon", given["epsilon"], above=0.0),
            checks.real("budget: delta", given["delta"], above=0.0),
            int(per[1]),
        )
        _ = budget.mu_squared  # raises UsageError for a value out of range
        return budget

    @property
    def mu_squared(self) -> float:
        """The most that jobs of one window may reserve together."""
        return mu_for(self.epsilon, self.delta) ** 2


@dataclass(frozen=True, order=True)
class Reservation:
    """What one job takes.

    Parameters
    ----------
    day : int
        0 to 10**7.
    job : str
        Its id, 1 to 200 characters.
    mu_squared : float
        Above 0, at most 10**6.
    """

    day: int
    job: str
    mu_squared: float

    def flaw(self) -> str:
        """Return what is wrong with the reservation, or an empty string."""
        if type(self.day) is not int or not 0 <= self.day <= _MOST_DAY:
            return f"expected a day from 0 to {_MOST_DAY}"
        if type(self.job) is not str or not 1 <= len(self.job) <= _MOST_TEXT:
            return f"expected a job id of 1 to {_MOST_TEXT} characters"
        if type(self.mu_squared) is not float or not 0.0 < self.mu_squared <= _MOST_MU_SQUARED:
            return f"expected a number above 0, at most {_MOST_MU_SQUARED:g}"
        return ""


@dataclass(frozen=True)
class PrivacyLedger:
    """All reservations of a device, in order of days and ids, each job once.

    Examples
    --------
    >>> budget = Budget(epsilon=2.0, delta=1e-6, days=30)
    >>> ledger = PrivacyLedger().with_job("a", 0.15, 100)
    >>> ledger.refusal("b", 0.04, 101, budget), ledger.refusal("b", 0.15, 131, budget)
    ('', '')
    >>> ledger.refusal("b", 0.15, 101, budget)
    'privacy budget of epsilon 2 in 30 days: 1.70 is reserved, with this job it would be 2.49'
    >>> PrivacyLedger.decode(ledger.encode()) == ledger
    True
    """

    reservations: tuple[Reservation, ...] = ()

    def __post_init__(self) -> None:
        for number, one in enumerate(self.reservations):
            if flaw := one.flaw():
                raise UsageError(f"privacy ledger: reservation {number}: {flaw}")
        if not all(before < after for before, after in zip(self.reservations, self.reservations[1:], strict=False)):
            raise UsageError("privacy ledger: its reservations are not in order")
        if len({one.job for one in self.reservations}) < len(self.reservations):
            raise UsageError("privacy ledger: a job has two reservations")

    def reserved(self, day: int, days: int) -> float:
        """Return the mu**2 that is reserved in the window that ends with this day.

        Reservations of later days count: a clock that was set back frees nothing.
        """
        return math.fsum(one.mu_squared for one in self.reservations if one.day > day - days)

    def refusal(self, job: str, mu_squared: float, day: int, budget: Budget) -> str:
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

    def with_job(self, job: str, mu_squared: float, day: int) -> PrivacyLedger:
        """Return the ledger with a job's reservation. Of a job that has one, the larger number and the later day stay.

        A job that reveals something on a later day than it began needs the reservation of that day.

        Raises
        ------
        UsageError
            For a value out of range.
        """
        own = self._of(job)
        if own is not None:
            mu_squared, day = max(mu_squared, own.mu_squared), max(day, own.day)
        new = Reservation(day, job, mu_squared)
        if flaw := new.flaw():
            raise UsageError(f"privacy ledger: job {str(job)[:60]}: {flaw}")
        if own is None and len(self.reservations) >= _MOST_RESERVATIONS:
            raise UsageError(f"privacy ledger: it has {_MOST_RESERVATIONS} reservations: drop those of past windows")
        return PrivacyLedger(tuple(sorted([*(one for one in self.reservations if one.job != job), new])))

    def since(self, day: int) -> PrivacyLedger:
        """Return the ledger without the reservations before a day."""
        return replace(self, reservations=tuple(one for one in self.reservations if one.day >= day))

    def _of(self, job: str) -> Reservation | None:
        return next((one for one in self.reservations if one.job == job), None)

    def encode(self) -> bytes:
        """Return the bytes of the ledger: equal ledgers have equal bytes."""
        rows = [[one.day, one.job, one.mu_squared] for one in self.reservations]
        body: bytes = msgpack.packb([_FORMAT, rows])
        return hashlib.sha256(body).digest() + body

    @classmethod
    def decode(cls, data: bytes) -> PrivacyLedger:
        """Return the ledger that :meth:`encode` made bytes of.

        Raises
        ------
        DataError
            For all other bytes, with the reason in one line.
        """
        body = data[_DIGEST_BYTES:] if isinstance(data, bytes) else b""
        if not body or hashlib.sha256(body).digest() != data[:_DIGEST_BYTES]:
            raise DataError("privacy ledger: its bytes are damaged: restore it, or ask its owner to begin a new one")
        try:
            ledger = cls(_read(unpack_canonical(body, max_items=_MOST_RESERVATIONS)))
        except WireError as error:
            raise DataError(f"privacy ledger: {error}") from None
        except UsageError as error:
            raise DataError(str(error)) from None
        if ledger.encode() != data:
            raise DataError("privacy ledger: its bytes are not those that this program writes")
        return ledger


def _read(plain: Any) -> tuple[Reservation, ...]:
    if not isinstance(plain, list) or len(plain) != 2 or plain[0] != _FORMAT or not isinstance(plain[1], list):
        raise UsageError(f"privacy ledger: expected the format {_FORMAT!r}")
    if not all(isinstance(row, list) and len(row) == 3 for row in plain[1]):
        raise UsageError("privacy ledger: expected a day, a job and a number in each reservation")
    return tuple(Reservation(*row) for row in plain[1])
