"""Run the fleet of a scenario, then attack its jobs with what their rounds showed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from p2pclust.errors import FleetError, UsageError
from p2pclust.jobs.request import JobResult
from p2pclust.lab.attacks.audit import Audit, audit_job
from p2pclust.lab.attacks.models import exchanges_models
from p2pclust.lab.scenario.file.load import check_backend, starting_overlay
from p2pclust.lab.scenario.file.schema import Scenario
from p2pclust.lab.scenario.outcome.evaluate import damage_in
from p2pclust.lab.scenario.outcome.measures import AuditedJob, Done, Evidence
from p2pclust.lab.scenario.run import CheckedRun, carry_out, checked_run, fleet_spec
from p2pclust.lab.testbed import backend
from p2pclust.lab.testbed.spec import FleetResult
from p2pclust.overlay import Overlay
from p2pclust.overlay.routes import Ways, even_tree, spanning_tree
from p2pclust.protocols.engine.secure_rounds import mu_squared_of

#: By `collect`, the peer that gets what single peers send. A neighbour gets a peer's own sums in the first tick of a round.
_OBSERVERS: Final = {"star": "aggregator", "tree": "peer above in the tree", "gossip": "neighbour"}


def audit_scenario(
    scenario: Scenario, backend_name: str, *, name: str = "", patience_s: float = 20.0, out: Path | None = None
) -> list[AuditedJob]:
    """Run a scenario and attack its jobs; refuse one whose peers hold columns, or whose sums have noise.

    `name` is the name of the scenario in the result, and `patience_s` how long to try to solve for the rows of one
    peer. The files of the run, with what the attacks found, are written to `out`, if it is given.
    """
    check_backend(scenario, backend_name)
    run = checked_run(scenario)
    for number, job in enumerate(run.jobs, 1):
        if job.by_columns:
            raise UsageError(f"audit: the attacks are on rows; in job {number} the peers hold columns")
        if mu_squared_of(job) > 0.0:
            raise UsageError(
                f"audit: the noise of job {number} cannot be drawn again: its promise is epsilon and delta"
            )
    if out is None:
        spec = fleet_spec(run)
        return _attacked(run, backend(backend_name).carry_out(spec, lambda event: None), patience_s)
    audited: list[AuditedJob] = []

    def attack(run: CheckedRun, found: FleetResult) -> Sequence[AuditedJob]:
        audited.extend(_attacked(run, found, patience_s))
        return audited

    carry_out(scenario, backend_name, out=out, name=name, attack=attack)
    return audited


def _attacked(run: CheckedRun, found: FleetResult, patience_s: float) -> list[AuditedJob]:
    audited, overlay = [], starting_overlay(run.scenario)
    spec = fleet_spec(run)
    rows = {peer.name: peer.local() for peer in spec.peers}
    for number, job in enumerate(run.jobs):
        done = found.jobs[number] if number < len(found.jobs) else None
        if done is None or done.state is None:
            raise FleetError(f"job {number + 1} did not finish, so it was not attacked: {found.failure}")
        if exchanges_models(job):
            audit = Audit(job, [rows[name] for name in done.roster], ())
        else:
            shares = {name: run.shares[name] for name in done.roster}
            damage = damage_in(found.damage, found.jobs, number)
            held = Done(job, done.state, shares, run.given, damage, Evidence())
            collect = run.scenario.jobs[number].collect or ("star" if overlay is None else "tree")
            audit = Audit(
                job, held.locals_, done.state.log, later=held.later, observer=_OBSERVERS[collect],
                parents=_parents(done, overlay) if collect == "tree" else (), patience_s=patience_s,
                secured=done.state.secured is not None, groups=held.groups,
            )  # fmt: skip
        audited.append(AuditedJob(number + 1, run.scenario.jobs[number].protocol, done.roster, audit_job(audit)))
    return audited


def _parents(done: JobResult, overlay: Overlay | None) -> list[int]:
    """Return the tree of the first aggregator while all peers live, as the parent of each peer; -1 for the aggregator."""
    root = done.terms[0][1] if done.terms else done.roster[0]
    if overlay is None:
        above = even_tree(root, done.roster)
    else:
        above = spanning_tree(Ways({name: overlay.neighbours(name) for name in overlay.names}), root, done.roster)
    return [done.roster.index(above[name]) if name in above else -1 for name in done.roster]
