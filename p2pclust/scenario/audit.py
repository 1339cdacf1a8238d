"""Run the fleet of a scenario, then attack its jobs with what their rounds showed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from p2pclust.attacks.audit import AttackResult, audit_job
from p2pclust.errors import FleetError, UsageError
from p2pclust.fleet import backend
from p2pclust.fleet.spec import OnEvent
from p2pclust.scenario.file.load import check_backend
from p2pclust.scenario.file.schema import Scenario
from p2pclust.scenario.outcome.evaluate import damage_in
from p2pclust.scenario.outcome.evidence import Evidence
from p2pclust.scenario.outcome.measures import Done
from p2pclust.scenario.run import checked_run, fleet_spec

__all__ = ["AuditedJob", "audit_scenario"]

#: By `collect`, the peer that gets the contributions of single peers.
_OBSERVERS: Final = {"star": "aggregator", "tree": "peer above in the tree", "gossip": "neighbour"}


@dataclass(frozen=True)
class AuditedJob:
    """What the attacks on one job found.

    With ``collect = "tree"`` only peers that have no peer below them show sums of their own; all are attacked as if they
    did.
    """

    number: int
    protocol: str
    roster: Sequence[str]
    findings: Sequence[AttackResult]

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return one object of plain values for each attack."""
        return [{"job": self.number, **finding.to_dict(self.roster)} for finding in self.findings]


def audit_scenario(
    scenario: Scenario, backend_name: str, *, patience_s: float = 20.0, on_event: OnEvent = lambda event: None
) -> list[AuditedJob]:  # fmt: skip
    """Run a scenario and attack its jobs. Nothing is written.

    Parameters
    ----------
    scenario : Scenario
    backend_name : str
        As for a run.
    patience_s : float
        How long to try to solve for the rows of one peer.
    on_event : callable
        Receives each event of the run.

    Raises
    ------
    UsageError, DataError
        If the scenario cannot be run, or its peers hold columns.
    FleetError
        If a job did not finish.
    """
    check_backend(scenario, backend_name)
    run = checked_run(scenario)
    for number, job in enumerate(run.jobs, 1):
        if job.by_columns or job.has_workspace:
            held = "columns" if job.by_columns else "rows and exchange models"
            raise UsageError(f"audit: the attacks are on sums of rows; in job {number} the peers hold {held}")
    found = backend(backend_name).carry_out(fleet_spec(scenario, run.shares, run.jobs, run.given), on_event)
    audited = []
    for number, job in enumerate(run.jobs):
        done = found.jobs[number] if number < len(found.jobs) else None
        if done is None or done.state is None:
            raise FleetError(f"job {number + 1} did not finish, so it was not attacked: {found.failure}")
        shares = {name: run.shares[name] for name in done.roster}
        rows = Done(job, done.state, shares, run.given, damage_in(found.damage, found.jobs, number), Evidence())
        observer = _OBSERVERS[run.scenario.jobs[number].collect or "star"]
        findings = audit_job(
            job,
            rows.locals_,
            done.state.log,
            later=rows.later,
            observer=observer,
            patience_s=patience_s,
            secured=done.state.secured is not None,
        )
        audited.append(AuditedJob(number + 1, scenario.jobs[number].protocol, done.roster, findings))
    return audited
