"""``p2pclust audit``: attack the jobs of a scenario with what their messages show."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from p2pclust.cli.show.options import Overrides, Overwrite, ScenarioSeed, argument, flag, option
from p2pclust.cli.show.output import note, put_json, stderr, stdout, table
from p2pclust.errors import FleetError, UsageError
from p2pclust.jobs.request import JobResult
from p2pclust.lab.attacks.audit import Audit, audit_job
from p2pclust.lab.attacks.models import exchanges_models
from p2pclust.lab.commands.run import BackendName, check_folder
from p2pclust.lab.scenario.file.examples import SCENARIOS, find_example
from p2pclust.lab.scenario.file.load import check_backend, load_scenario, starting_overlay
from p2pclust.lab.scenario.outcome.evaluate import damage_in
from p2pclust.lab.scenario.outcome.measures import AuditedJob, Done, MeasuredEvidence
from p2pclust.lab.scenario.run import CheckedRun, carry_out, checked_run, fleet_spec
from p2pclust.lab.testbed import backend as backend_called
from p2pclust.lab.testbed.spec import FleetResult
from p2pclust.overlay import Overlay
from p2pclust.overlay.routes import Ways, even_tree, spanning_tree

#: By `collect`, the peer that gets what single peers send. A neighbour gets a peer's own sums in the first tick of a round.
_OBSERVERS: Final = {"star": "aggregator", "tree": "peer above in the tree", "gossip": "neighbour"}


def audit(
    scenario: Annotated[
        Path, argument("SCENARIO.toml", "The scenario file, or the name of one that is installed with p2pclust.")
    ],
    backend: Annotated[
        BackendName, option("processes|namespaces|simulated|in-process", "Where the peers run.")
    ] = BackendName.SIMULATED,
    seed: ScenarioSeed = None,
    overrides: Overrides = None,
    patience: Annotated[float, option("SECONDS", "How long to try to solve for the rows of one peer.", min=0.1)] = 5.0,
    out: Annotated[
        Path | None,
        option("DIR", "Also write the files of the run there, with audit.json and a section of report.html."),
    ] = None,
    overwrite: Overwrite = False,
    as_json: Annotated[bool, flag("--json", "Print what was found as one JSON object.")] = False,
) -> None:
    """Run a scenario, then do what a curious peer could do with what it got.

    Prints how many rows come back exactly: each value within a thousandth of its feature's range. The aggregator gets the
    contributions of single peers, the peer above in a tree those below it; "totals" shows what is left if only sums of all
    peers are seen, "any peer" what follows from the centers of all rounds, and "two runs" and "two turns" the difference of
    the job to one without a device, or with one row less. Of models that peers exchange it prints how well they recognise
    rows that they were trained on (AUC; 0.5 is a guess), and how near the nearest copy is that they draw.

    \b
    Examples:
      p2pclust audit quickstart
      p2pclust audit quickstart --set jobs.0.protocol=llf-cm --json
      p2pclust audit iris-kmeans --out audits/iris
    """
    file = find_example(scenario, SCENARIOS, "p2pclust audit")
    checked = load_scenario(file, overrides or (), seed)
    if stderr().is_terminal:
        note(f"running {file.stem}, then attacking it: up to {patience:g} s for each peer of few rows", style="dim")
    if out is not None:
        check_folder(out, overwrite=overwrite)
    check_backend(checked, backend.value)
    run = checked_run(checked)
    for number, job in enumerate(run.jobs, 1):
        if job.by_columns:
            raise UsageError(f"audit: the attacks are on rows; in job {number} the peers hold columns")
        if job.mu_squared > 0.0:
            raise UsageError(
                f"audit: the noise of job {number} cannot be drawn again: its promise is epsilon and delta"
            )
    audited: list[AuditedJob] = []

    def attack(run: CheckedRun, found: FleetResult) -> list[AuditedJob]:
        audited.extend(_attacked(run, found, patience))
        return audited

    if out is None:
        attack(run, backend_called(backend.value).carry_out(fleet_spec(run), lambda event: None))
    else:
        carry_out(checked, backend.value, out=out, name=file.stem, attack=attack)
    if as_json:
        put_json({"scenario": file.stem, "attacks": [attack for job in audited for attack in job.to_dicts()]})
        return
    columns = ("job", "observer", "attack", "rows", "found", "seconds", "most, by peer")
    rows = (
        (f"{job.number}", one.observer, one.attack, f"{one.rows:,}", one.words, f"{one.seconds:.1f}", job.most(one))
        for job in audited
        for one in job.findings
    )
    stdout().print(table(columns, rows, right=("job", "rows", "seconds"), wrap=("found", "most, by peer")))


def _attacked(run: CheckedRun, found: FleetResult, patience_s: float) -> list[AuditedJob]:
    audited, overlay = [], starting_overlay(run.scenario)
    rows = {peer.name: peer.local() for peer in fleet_spec(run).peers}
    for number, job in enumerate(run.jobs):
        done = found.jobs[number] if number < len(found.jobs) else None
        if done is None or done.state is None:
            raise FleetError(f"job {number + 1} did not finish, so it was not attacked: {found.failure}")
        if exchanges_models(job):
            audit = Audit(job, [rows[name] for name in done.roster], ())
        else:
            shares = {name: run.shares[name] for name in done.roster}
            damage = damage_in(found.damage, found.jobs, number)
            held = Done(job, done.state, shares, run.given, damage, MeasuredEvidence())
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
