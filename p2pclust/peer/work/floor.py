"""What a device asks of every job, whatever its author asks for: ``[privacy]`` of a peer's configuration.

A job below the floor gets nothing from this device: it abstains, by name and with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from p2pclust.peer.core.tasks import JobKeys
from p2pclust.protocols.engine.job import Job

__all__ = ["Floor"]


@dataclass(frozen=True)
class Floor:
    """The floor of one device.

    Parameters
    ----------
    secure : bool
        It contributes only to jobs with secure sums.
    keep : bool
        It contributes only where it keeps pads itself, so that it trusts no other keeper. Implies `secure`.
    cohort : int
        The fewest peers whose sum may be revealed; above 0 it implies `secure`.
    protocols : tuple of str
        The protocols that it takes part in; all, if empty.

    Examples
    --------
    >>> from p2pclust.protocols.engine.compose import cluster_job
    >>> Floor(secure=True).refusal(cluster_job("llf-cm", n_clusters=2), None)
    'this device contributes only to jobs with secure sums'
    """

    secure: bool = False
    keep: bool = False
    cohort: int = 0
    protocols: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Floor:
        """Return the floor that a checked configuration has, perhaps none."""
        given = dict(config)
        return cls(**{**given, "protocols": tuple(given.get("protocols", ()))})

    def refusal(self, job: Job, keys: JobKeys | None) -> str:
        """Return why this device does not contribute to a job, or an empty string; `keys` is None without secure sums."""
        protocol = job.stages[job.main].protocol
        if self.protocols and protocol not in self.protocols:
            return f"this device takes part in {', '.join(self.protocols)} only, not in {protocol}"
        if keys is None:
            asks = self.secure or self.keep or self.cohort > 0
            return "this device contributes only to jobs with secure sums" if asks else ""
        if keys.secure.cohort < self.cohort:
            return f"this device asks for a cohort of {self.cohort}, and the job has {keys.secure.cohort}"
        return ""
