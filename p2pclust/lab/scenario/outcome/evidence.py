"""What measuring a job finds and `result.json` does not hold: whole centers, pooled centers, the path of the centers.

Pictures are made from it. It has no extra cost, because measuring replays and pools the job anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.estimators.running import Trail
from p2pclust.lab.attacks.findings import AttackResult
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.runner import labelling_stage

Floats = NDArray[np.float64]

_NAMED: Final = 5  # the most peers that are named


def contributed(job: Job, state: JobState) -> list[int]:
    """Return the peers that contributed to the clustering, by their places in the job roster."""
    stage, _ = labelling_stage(job)
    return sorted({peer for record in state.log if record.stage == stage for peer in record.contributors})


@dataclass(eq=False)
class Evidence:
    """The evidence of one job."""

    centers: Floats | None = None  # the fleet's, in the data's units, shape (C, F)
    pooled: Floats | None = None  # the pooled centers, in the fleet's order, shape (C, F)
    trail: Trail = field(default_factory=Trail)  # the path of the fleet's centers
    failures: list[str] = field(default_factory=list)  # what could not be measured: the code of a plug-in failed

    def compare(self, centers: Floats, pooled: Floats, ranges: Floats) -> None:
        """Keep both, the pooled ones in the order that fits the fleet's best, with each feature in its range."""
        from scipy.optimize import linear_sum_assignment  # noqa: PLC0415 - slow to import

        with np.errstate(over="ignore", invalid="ignore"):
            apart = np.square((centers[:, np.newaxis] - pooled) / ranges).sum(axis=2)
        apart = np.nan_to_num(apart, nan=1e300, posinf=1e300)
        self.centers, self.pooled = centers, pooled[linear_sum_assignment(apart)[1]]


@dataclass(frozen=True)
class AuditedJob:
    """What the attacks on one job found; jobs are numbered from 1."""

    number: int
    protocol: str
    roster: Sequence[str]
    findings: Sequence[AttackResult]

    def most(self, finding: AttackResult) -> str:
        """Return the peers with the most rows that an attack found, with their number, in words."""
        ordered = sorted(finding.by_peer.items(), key=lambda item: -item[1])
        named = ", ".join(f"{self.roster[peer]} {rows}" for peer, rows in ordered[:_NAMED])
        return named + (f" and {len(ordered) - _NAMED} more" if len(ordered) > _NAMED else "")

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return one object of plain values for each attack."""
        return [{"job": self.number, **finding.to_dict(self.roster)} for finding in self.findings]
