"""What a device asks of every job, whatever its author asks for: ``[privacy]`` of a peer's configuration.

A job below the floor gets nothing from this device: it abstains, by name and with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from p2pclust.peer.core.tasks import JobKeys
from p2pclust.protocols.engine.job import Job
from p2pclust.protocols.engine.registry import asked_as
from p2pclust.protocols.engine.secure_rounds import mu_squared_of

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
    min_cell : int
        Of a cluster with fewer of its rows it sends nothing, and it contributes only to jobs whose protocol can do that;
        0 for no such rule. Private jobs hide single rows by their noise.
    protocols : tuple of str
        The protocols that it takes part in; all, if empty. A private job counts as the protocol that was asked for.
    private : bool
        It contributes only to private jobs: what it reveals counts against a budget. Implies `secure`.

    Examples
    --------
    >>> from p2pclust.protocols.engine.compose import cluster_job
    >>> Floor(secure=True).refusal(cluster_job("llf-cm", n_clusters=2), None, 100)
    'this device contributes only to jobs with secure sums'
    """

    secure: bool = False
    keep: bool = False
    cohort: int = 0
    min_cell: int = 0
    protocols: tuple[str, ...] = ()
    private: bool = False

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Floor:
        """Return the floor that a checked configuration has, perhaps none."""
        private = "budget" in config
        given = {name: value for name, value in config.items() if name != "budget"}
        return cls(**{**given, "protocols": tuple(given.get("protocols", ())), "private": private})

    def refusal(self, job: Job, keys: JobKeys | None, n_rows: int) -> str:
        """Return why a device with so many rows does not contribute to a job, or an empty string.

        `keys` is None where devices do not sign.
        """
        protocol, private = job.stages[job.main].protocol, mu_squared_of(job) > 0.0
        protocol = asked_as(protocol)
        if self.protocols and protocol not in self.protocols:
            return f"this device takes part in {', '.join(self.protocols)} only, not in {protocol}"
        if self.private and not private:
            return "this device has a privacy budget, and contributes only to jobs with privacy = { epsilon, delta }"
        if self.min_cell and not private and (refusal := self._refusal_of_cells(job, n_rows)):
            return refusal
        secure = None if keys is None else keys.secure
        if secure is None:
            asks = self.secure or self.keep or self.cohort > 0
            return "this device contributes only to jobs with secure sums" if asks else ""
        if secure.cohort < self.cohort:
            return f"this device asks for a cohort of {self.cohort}, and the job has {secure.cohort}"
        return ""

    def _refusal_of_cells(self, job: Job, n_rows: int) -> str:
        """Return why sums of few rows could not be withheld in a job, or an empty string."""
        if not all(protocol.withholds_below(self.min_cell) for protocol in job.protocols):
            return (
                f"this device sends nothing of clusters with fewer than {self.min_cell} of its rows, and this job cannot "
                "leave them out: llf-cm, fkm and k-fed can, without accelerate, n_init and measures"
            )
        if n_rows < self.min_cell:
            return f"it has fewer rows than the {self.min_cell} of a cluster that this device sends anything of"
        return ""
