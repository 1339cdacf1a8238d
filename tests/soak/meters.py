"""What standing peers use over time: memory, descriptors, tasks, and the size of their stores."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

_WARM_S = 120.0  # of a life: imports, the first jobs of each kind, the first elections
_LEAST_S = 180.0  # that a slope must cover; of less it would be noise


@dataclass(frozen=True)
class Sample:
    """One look at a peer."""

    at: float
    life: int
    uptime_s: float
    rss_mb: float
    descriptors: int
    tasks: int
    store_mb: float


@dataclass
class Meters:
    """All samples, by peer."""

    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def add(self, name: str, sample: Sample) -> None:
        """Keep one more."""
        self.samples.setdefault(name, []).append(sample)

    def drift_mb_per_hour(self, name: str) -> float | None:
        """Return the slope of a peer's memory over its longest life, without the beginning; None if that is too short."""
        lives: dict[int, list[Sample]] = {}
        for sample in self.samples.get(name, []):
            if sample.uptime_s >= _WARM_S:
                lives.setdefault(sample.life, []).append(sample)
        longest = max(lives.values(), key=len, default=[])
        if not longest or longest[-1].at - longest[0].at < _LEAST_S:
            return None
        hours = np.array([sample.at for sample in longest]) / 3600
        return float(np.polyfit(hours, [sample.rss_mb for sample in longest], 1)[0])

    def last(self, name: str) -> Sample | None:
        """Return the newest sample of a peer."""
        return self.samples[name][-1] if self.samples.get(name) else None


def size_mb(folder: Path) -> float:
    """Return the size of the files in a folder that changes meanwhile."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # it was deleted
            continue
    return total / 2**20
