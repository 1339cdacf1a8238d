"""The ledger of a device's jobs, a file that outlives jobs, restarts and the store's rows.

The worker's thread reads and writes it, before a job that counts gets anything from this device.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from p2pclust.errors import DataError
from p2pclust.protocols.private.ledger import Budget, LedgerMark, MostJobs, PeerSet, PrivacyLedger
from p2pclust.tools.files import replacing
from p2pclust.tools.platforms import exclusive_lock

LEDGER: Final = "privacy-ledger"  # its usual name, in a peer's state directory
_EPOCH: Final = date(1970, 1, 1)
_DAY_S: Final = 86400
# What was promised before is not known, so promising more could be too much.
_UNREADABLE: Final = "privacy ledger: it cannot be read or written: mend its disk, or put back its newest copy"
_OLDER: Final = "privacy ledger: it is older than this device's store, or missing: put back its newest copy"


def _today() -> int:
    return (datetime.now(UTC).date() - _EPOCH).days


@dataclass(eq=False)
class PrivacyFile:
    """The ledger of one device, whose file several peers over the same rows share.

    `budget` says what private jobs may take; by default everything is reserved, and nothing refused. `fixed` says whether
    the device refuses sets of peers that could be subtracted from those of its last jobs. `today` returns a day of the wall
    clock, which may leap; `elapsed_s` seconds of a clock that only runs. `store` reads and writes the ledger's mark.
    """

    path: Path
    _: KW_ONLY
    peer: str = ""
    budget: Budget | None = None
    jobs: MostJobs | None = None
    fixed: bool = False
    cohort: int = 0
    today: Callable[[], int] = _today
    elapsed_s: Callable[[], float] = time.monotonic
    store: tuple[Callable[[], bytes | None], Callable[[bytes], None]] = (lambda: None, lambda data: None)

    def __post_init__(self) -> None:
        self._began = (self.today(), self.elapsed_s())

    def reserve(
        self, job: str, mu_squared: float, cohort: int = 0, sets: Callable[[], Sequence[PeerSet]] = tuple
    ) -> str:  # fmt: skip
        """Reserve for a job, and wait until that is on the disk; return why not, or an empty string.

        `mu_squared` is what the job takes of a privacy budget, 0 without noise; `cohort` is the job's. `sets` returns the
        sets of peers whose sums may be revealed with what this device is about to send.
        """
        if not (mu_squared or self.jobs or self.fixed):
            return ""
        try:
            return self._reserve(job, mu_squared, cohort, sets)
        except (DataError, OSError):
            return _UNREADABLE

    def _reserve(self, job: str, mu_squared: float, cohort: int, sets: Callable[[], Sequence[PeerSet]]) -> str:
        # The file itself is replaced, so a second one is locked, against other peers with the same ledger.
        lock = os.open(self.path.with_name(f"{self.path.name}.lock"), os.O_WRONLY | os.O_CREAT, 0o600)
        with os.fdopen(lock, "wb"):
            exclusive_lock(lock, wait=True)
            ledger = PrivacyLedger.decode(self.path.read_bytes()) if self.path.exists() else PrivacyLedger()
            data = self.store[0]()
            known = LedgerMark() if data is None else LedgerMark.decode(data)
            if ledger.mark.below(known):
                return _OLDER
            found = tuple(sets()) if self.fixed and not mu_squared else ()
            # While the peer runs, no leap of the wall clock moves the end of a window ahead of time. Reservations have the
            # wall clock's day, and never an earlier one than before, so that a clock that was set back frees nothing.
            began, at_s = self._began
            day = min(self.today(), began + int((self.elapsed_s() - at_s) // _DAY_S) + 1)
            problem = ledger.problem_with_peer(job, self.peer)
            if self.jobs is not None:
                problem = problem or ledger.problem_with_jobs(job, day, self.jobs)
            if self.budget is not None and mu_squared:
                problem = problem or ledger.problem_with_budget(job, mu_squared, day, self.budget)
            if problem := problem or ledger.problem_with_sets(found, max(cohort, self.cohort)):
                return problem
            after = ledger.with_job(job, mu_squared, max(self.today(), ledger.mark.day), self.peer)
            for one in found:
                after = after.with_set(one)
            if after != ledger:
                with replacing(self.path, mode=0o600, durable=True) as file:
                    file.write(after.encode())
        if after.mark != known:  # the file first: a ledger above the store's figure is no older one
            self.store[1](after.mark.encode())
        return ""
