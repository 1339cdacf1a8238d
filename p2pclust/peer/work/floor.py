"""What a device asks of every job, whatever its author asks for: ``[privacy]`` of a peer's configuration.

A job below the floor gets nothing from this device: it abstains, by name and with the reason. A job that would take too
much of the device's memory is refused when it is submitted, and when its document comes, before any task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from p2pclust.errors import UsageError, WireError
from p2pclust.peer.work.states import job_of
from p2pclust.protocols.engine.base import Additive, Labelling
from p2pclust.protocols.engine.job import Job
from p2pclust.protocols.engine.registry import asked_as
from p2pclust.protocols.secure.parameters import SecureSums

_OF_LEDGER: Final = ("budget", "jobs", "ledger")  # keys of the configuration that the device's ledger has rules from


@dataclass(frozen=True)
class Floor:
    """The floor of one device."""

    #: It contributes to no plain job of a protocol that can have secure sums, and of others only to those that `protocols`
    #: names; `keep`, `cohort`, `private`, `jobs` and `rosters` ask for secure sums of every job.
    secure: bool = False
    keep: bool = False  # it contributes only where it keeps pads itself, so that it trusts no other keeper
    cohort: int = 0  # the fewest peers whose sum may be revealed
    #: Of a cluster with fewer of its rows it sends nothing, and it contributes only to jobs whose protocol can do that; 0:
    #: no such rule. Private jobs hide single rows by their noise.
    min_cell: int = 0
    #: The protocols that it takes part in; all, if empty. A private job counts as the protocol that was asked for.
    protocols: tuple[str, ...] = ()
    private: bool = False  # it contributes only to private jobs: what it reveals counts against a budget
    given_centers: bool = True  # whether it contributes to jobs whose submitter chose the first centers
    least_rounds: int = 0  # the fewest rounds that the limit of a clustering may be; 0 for no such rule
    jobs: str = ""  # in how many jobs of how many days it takes part, such as "3 per 30d"; empty for no such rule
    rosters: str = ""  # "fixed": no sums of fewer peers than the cohort may follow from the sets of its last jobs

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Floor:
        """Return the floor that a checked configuration has, perhaps none."""
        given = {name: value for name, value in config.items() if name not in _OF_LEDGER}
        given |= {"protocols": tuple(config.get("protocols", ())), "private": "budget" in config}
        if "jobs" in config:
            from p2pclust.protocols.private.ledger import MostJobs  # noqa: PLC0415 - of devices with this rule only

            given["jobs"] = str(MostJobs.from_dict(config["jobs"]))
        return cls(**given)

    @property
    def asks_for_secure(self) -> bool:
        """Whether it contributes only to jobs with secure sums, by whichever rule."""
        rules = (self.secure, self.keep, self.cohort, self.private, self.jobs, self.rosters)
        return any(bool(rule) for rule in rules)

    @property
    def _only_secure(self) -> bool:
        """Whether of the rules that ask for secure sums `secure` is the only one."""
        return self.secure and not replace(self, secure=False).asks_for_secure

    def problem_with(self, job: Job, secure: SecureSums | None, n_rows: int) -> str:
        """Return why a device with so many rows does not contribute to a job, or an empty string.

        `secure` is None in a plain job. Every device refuses what no honest submitter's document asks for.
        The rules about several jobs are those of the device's ledger.
        """
        private = job.mu_squared > 0.0
        if private or secure is not None:
            from p2pclust.protocols.engine.secure_rounds import problem_with_job  # noqa: PLC0415 - of such jobs only

            if problem := problem_with_job(job, 0 if secure is None else secure.groups):
                return problem
        return next(filter(None, self._problems(job, secure, n_rows, private=private)), "")

    def _problems(self, job: Job, secure: SecureSums | None, n_rows: int, *, private: bool) -> Iterator[str]:
        asked = asked_as(job.stages[job.main].protocol)
        if self.protocols and asked not in self.protocols:
            yield f"this device takes part in {', '.join(self.protocols)} only, not in {asked}"
        if self.private and not private:
            yield "this device has a privacy budget, and contributes only to jobs with privacy = { epsilon, delta }"
        if self.min_cell and not private:
            if not all(protocol.withholds_below(self.min_cell) for protocol in job.protocols):
                yield (
                    f"this device sends nothing of clusters with fewer than {self.min_cell} of its rows, and this job "
                    "cannot leave them out: llf-cm, fkm and k-fed can, without accelerate, n_init and measures"
                )
            if n_rows < self.min_cell:
                yield f"it has fewer rows than the {self.min_cell} of a cluster that this device sends anything of"
        if not self.given_centers and not private and any(stage.chosen_centers for stage in job.protocols):
            yield "this device takes part in no job whose first centers are given: choose an init"
        rounds = [stage.round_limit for stage in job.protocols if isinstance(stage, Labelling)]
        if not private and (few := [limit for limit in rounds if limit is not None and limit < self.least_rounds]):
            yield f"this device asks for a limit of at least {self.least_rounds} rounds, and the job has {min(few)}"
        if (
            secure is None
            and self.asks_for_secure
            and not (self._only_secure and _cannot_be_secured(job, self.protocols))
        ):
            yield "this device contributes only to jobs with secure sums"
        if secure is not None and secure.cohort < self.cohort:
            yield f"this device asks for a cohort of {self.cohort}, and the job has {secure.cohort}"


def _cannot_be_secured(job: Job, named: Sequence[str]) -> bool:
    """Return whether a job is plain because its protocol, which `named` has, cannot have secure sums."""
    main = job.protocols[job.main]
    usually = isinstance(main, Labelling) and main.secured_by_default
    return not usually and not main.sums_only() and asked_as(main.id) in named


#: Of a device's memory, for the state and contributions of one job: the rest is for rows, and for the process itself.
_SHARE: Final = 0.5
_NUMBER_BYTES: Final = 8
#: A state is held as it came, as numbers, and as the next one is made, with the contributions of the peers.
_COPIES: Final = 4


def bytes_of(job: Job, n_peers: int, n_columns: int) -> int:
    """Return about how many bytes the largest state of a job takes with the contributions of all peers.

    `n_columns` is of the device's own rows, 0 if they are not known; a job that declares bounds names its own number.

    Examples
    --------
    >>> from p2pclust.protocols.engine.compose import cluster_job
    >>> job = cluster_job("llf-cm", n_clusters=2**20, n_init=100, init="uniform", bounds=([0.0], [1.0]))
    >>> bytes_of(job, n_peers=3, n_columns=1) // 10**9
    23
    """
    declared = [len(lo) for stage in job.protocols if isinstance(lo := getattr(stage, "lo", None), tuple)]
    columns = max([1, n_columns, *declared])
    most = 0
    for stage in job.protocols:
        sets, starts = getattr(stage, "n_clusters", None), getattr(stage, "n_init", 1)
        if isinstance(sets, int):
            limbs = stage.limbs if isinstance(stage, Additive) else 1
            most = max(most, sets * starts * (columns + 1) * limbs)
    return _NUMBER_BYTES * most * (n_peers + _COPIES)


def problem_with_size(job: bytes, n_peers: int, n_columns: int, memory_bytes: float) -> str:
    """Return why a job is too large for a device with so much memory, or an empty string.

    Bytes that are not a job are not judged: other checks refuse them.
    """
    try:
        taken = bytes_of(job_of(job), n_peers, n_columns)
    except (UsageError, WireError):
        return ""
    if taken <= _SHARE * memory_bytes:
        return ""
    return (
        f"the job is too large for this device: states and contributions of {n_peers} peers take about "
        f"{taken / 1e6:,.0f} MB, and half of its memory is {_SHARE * memory_bytes / 1e6:,.0f} MB: fewer clusters, starts "
        "(n_init) or peers"
    )
