"""What the attacks on the jobs of a run found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from p2pclust.lab.attacks.findings import AttackResult


@dataclass(frozen=True)
class AuditedJob:
    """What the attacks on one job found; jobs are numbered from 1."""

    number: int
    protocol: str
    roster: Sequence[str]
    findings: Sequence[AttackResult]

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return one object of plain values for each attack."""
        return [{"job": self.number, **finding.to_dict(self.roster)} for finding in self.findings]
