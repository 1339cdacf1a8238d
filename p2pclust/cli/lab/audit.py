"""``p2pclust audit``: attack the jobs of a scenario with what their messages show."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from p2pclust.cli.lab.run import BackendName
from p2pclust.cli.show.options import Overrides, ScenarioSeed
from p2pclust.cli.show.output import note, put_json, stderr, stdout

if TYPE_CHECKING:
    from p2pclust.scenario.audit import AuditedJob

__all__ = ["audit"]

_MOST_PEERS = 5


def audit(
    scenario: Annotated[
        Path,
        typer.Argument(
            metavar="SCENARIO.toml", help="The scenario file, or the name of one that is installed with p2pclust."
        ),
    ],
    backend: Annotated[
        BackendName, typer.Option(metavar="processes|namespaces|simulated|in-process", help="Where the peers run.")
    ] = BackendName.SIMULATED,
    seed: ScenarioSeed = None,
    overrides: Overrides = None,
    patience: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="How long to try to solve for the rows of one peer.")
    ] = 5.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as one JSON object.")] = False,
) -> None:
    """Run a scenario, then do what a curious peer could do with the contributions that it got.

    Prints how many rows come back exactly: each value within a thousandth of its feature's range. The aggregator gets the
    contributions of single peers; "totals" shows what is left if it saw their sums only. Nothing is written.

    \b
    Examples:
      p2pclust audit quickstart
      p2pclust audit quickstart --set jobs.0.protocol=llf-cm --json
    """
    from p2pclust.scenario.audit import audit_scenario  # noqa: PLC0415
    from p2pclust.scenario.file.examples import SCENARIOS, find_example  # noqa: PLC0415
    from p2pclust.scenario.file.load import load_scenario  # noqa: PLC0415

    file = find_example(scenario, SCENARIOS, "p2pclust audit")
    checked = load_scenario(file, overrides or (), seed)
    if stderr().is_terminal:
        note(f"running {file.stem}, then attacking it: up to {patience:g} s for each peer of few rows", style="dim")
    audited = audit_scenario(checked, backend.value, patience_s=patience)
    if as_json:
        put_json({"scenario": file.stem, "attacks": [attack for job in audited for attack in job.to_dicts()]})
        return
    _print(audited)


def _print(audited: Sequence[AuditedJob]) -> None:
    from p2pclust.cli.show.tables import table  # noqa: PLC0415

    columns = ["job", "observer", "attack", "rows", "recovered", "share", "seconds", "most, by peer"]
    made = table(columns, right=("job", "rows", "recovered", "share", "seconds"), wrap=("most, by peer",))
    for job in audited:
        for finding in job.findings:
            most = sorted(finding.by_peer.items(), key=lambda item: -item[1])[:_MOST_PEERS]
            made.add_row(
                str(job.number), finding.observer, finding.attack, f"{finding.rows:,}", f"{finding.recovered:,}",
                f"{finding.recovered / max(finding.rows, 1):.1%}", f"{finding.seconds:.1f}",
                ", ".join(f"{job.roster[peer]} {rows}" for peer, rows in most),
            )  # fmt: skip
    stdout().print(made)
