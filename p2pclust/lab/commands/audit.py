"""``p2pclust audit``: attack the jobs of a scenario with what their messages show."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from p2pclust.cli.show.options import Overrides, Overwrite, ScenarioSeed, argument, flag, option
from p2pclust.cli.show.output import note, put_json, stderr, stdout, table
from p2pclust.lab.commands.run import BackendName, check_folder
from p2pclust.lab.scenario.audit import audit_scenario
from p2pclust.lab.scenario.file.examples import SCENARIOS, find_example
from p2pclust.lab.scenario.file.load import load_scenario


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
    audited = audit_scenario(checked, backend.value, name=file.stem, patience_s=patience, out=out)
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
