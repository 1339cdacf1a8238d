"""The ledger of a device's privacy budget, a file in its state directory: it outlives jobs, restarts and the store's rows.

The worker's thread reads and writes it, before a private job gets anything from this device.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from p2pclust.errors import DataError
from p2pclust.protocols.private.ledger import Budget, PrivacyLedger
from p2pclust.tools.files import replacing

__all__ = ["PrivacyFile"]

_NAME: Final = "privacy-ledger"
_EPOCH: Final = date(1970, 1, 1)


def _today() -> int:
    """Return the days since 1970, in UTC."""
    return (datetime.now(UTC).date() - _EPOCH).days


class PrivacyFile:
    """The ledger of one device. Without a budget everything is reserved, and nothing refused."""

    def __init__(self, state_dir: Path, budget: Budget | None, today: Callable[[], int] = _today) -> None:
        self._path = state_dir / _NAME
        self._budget = budget
        self._today = today

    def reserve(self, job: str, mu_squared: float) -> str:
        """Reserve for a job, and wait until that is on the disk; return why not, or an empty string."""
        try:
            ledger = PrivacyLedger.decode(self._path.read_bytes()) if self._path.exists() else PrivacyLedger()
        except (DataError, OSError):
            # What was promised before is not known: promising more could be too much.
            return "privacy budget: its ledger cannot be read"
        day = self._today()
        if self._budget is not None and (refusal := ledger.refusal(job, mu_squared, day, self._budget)):
            return refusal
        after = ledger.with_job(job, mu_squared, day)
        if after != ledger:
            with replacing(self._path, mode=0o600, durable=True) as file:
                file.write(after.encode())
        return ""
