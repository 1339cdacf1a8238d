"""``p2pclust choose``: choose the number of clusters with the fleet of a scenario."""

from __future__ import annotations

import math
import re
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Annotated

from p2pclust.choose import trials as choosing
from p2pclust.choose.trials import ChoiceOfClusters
from p2pclust.cli.show.options import Overrides, ResultAsJson, ScenarioSeed, argument, flag, option
from p2pclust.cli.show.output import put_json, stdout, table
from p2pclust.errors import FleetError, UsageError
from p2pclust.lab.commands.run import BackendName
from p2pclust.lab.commands.show.bar import progress_bar
from p2pclust.lab.commands.show.page import ended_like_ctrl_c
from p2pclust.lab.pictures.estimators import problem_with_plot
from p2pclust.lab.scenario.file.examples import SCENARIOS, find_example
from p2pclust.lab.scenario.file.load import check_backend, load_data, load_scenario, make_job
from p2pclust.lab.scenario.file.schema import Scenario
from p2pclust.lab.scenario.run import CheckedRun, fleet_spec
from p2pclust.lab.testbed import backend as backend_called
from p2pclust.lab.testbed.spec import LogLine
from p2pclust.protocols.engine.reasons import HELD
from p2pclust.protocols.measuring.choose import MEASURES
from p2pclust.tools.json_values import plain


def choose(
    scenario: Annotated[Path, argument("SCENARIO.toml", "The scenario file.")],
    clusters: Annotated[
        str, option("A-B", "The numbers to try, from A to B inclusive; begin with 1 so that 2 can be the elbow.")
    ] = "2-10",
    restarts: Annotated[
        int, option("N", "Runs for each number, with different first centers; the best counts.", min=1)
    ] = 3,
    backend: Annotated[
        BackendName, option("processes|simulated|in-process", "Where the peers run; the results are the same.")
    ] = BackendName.IN_PROCESS,
    seed: ScenarioSeed = None,
    overrides: Overrides = None,
    plot: Annotated[
        Path | None, option("FILE", "Plot the measures to this file (png, pdf, svg).", "--plot", "-o")
    ] = None,
    no_gate: Annotated[
        bool, flag("--no-gate", "Also measure peers with few rows; by default they abstain and are named.")
    ] = False,
    as_json: ResultAsJson = False,
) -> None:
    """Choose the number of clusters: cluster with each number, measure every result over all peers, recommend one.

    Uses the data, their partition and the first job of the scenario, but not its number of clusters, faults and
    expectations. By default the first centers come from sums of all peers ("split-merge"). No row leaves its peer: each
    measure is a sum over peers, equal to that of the pooled rows. Exits with 3 if the
    fleet could not finish.

    \b
    Examples:
      p2pclust choose iris-kmeans --clusters 1-5
      p2pclust choose quickstart --clusters 2-12 --restarts 5 -o digits.png
    """
    match = re.fullmatch(r"(\d{1,7})-(\d{1,7})", clusters)
    if match is None or not 1 <= int(match[1]) < int(match[2]):
        raise UsageError(f"--clusters {clusters}: expected A-B with A below B and at least 1, such as 2-10")
    numbers = range(int(match[1]), int(match[2]) + 1)
    problem = "" if plot is None else problem_with_plot(plot)
    if problem:
        raise UsageError(f"--plot {problem}" if plot is not None and problem.startswith(str(plot)) else problem)
    checked = load_scenario(find_example(scenario, SCENARIOS, "p2pclust run"), overrides or (), seed)
    found = _found(checked, backend.value, numbers, restarts, gate=False if no_gate else None)
    if plot is not None:
        found.plot(plot)
    if as_json:
        put_json(plain(found.to_dict()))
        return
    console = stdout()
    columns = ("clusters", "rows", "smallest", "objective/row", "inertia/row", "soft DB", "Xie–Beni", "silhouette")
    shown = table(columns, right=columns)
    for row in found.table:

        def cell(measure: str, value: float, clusters: int = row.clusters) -> str:
            best = "*" if found.votes[measure] == clusters else " "
            return (f"{value:.4g}" if math.isfinite(value) else "-") + best

        cells = (
            f"{row.clusters}", f"{row.rows}", f"{min(row.counts)}", f"{row.objective / row.rows:.4g}",
            cell(MEASURES[3], row.inertia / row.rows), cell(MEASURES[0], row.soft_davies_bouldin),
            cell(MEASURES[1], row.xie_beni), cell(MEASURES[2], row.simplified_silhouette),
        )  # fmt: skip
        shown.add_row(*cells, style="bold" if row.clusters == found.recommended else "")
    console.print(shown)
    console.print("* best by this measure; for the inertia, where its curve bends most", style="dim")
    console.print()
    for note in found.notes:
        console.print(f"note: {note}", style="yellow", soft_wrap=True)
    console.print(f"recommended: {found.recommended} clusters", style="bold", soft_wrap=True)
    console.print(found.reason, soft_wrap=True)
    if plot is not None:
        console.print(f"plot: {plot}", soft_wrap=True)


def _found(scenario: Scenario, backend: str, numbers: range, restarts: int, gate: bool | None) -> ChoiceOfClusters:
    first = scenario.jobs[0]
    if first.init is not None and not isinstance(first.init, str):
        raise UsageError(
            "[jobs.0]: init holds first centers for one number of clusters: give the name of a method instead"
        )
    init = first.init or choosing.usual_init(first.protocol)
    template = first.model_copy(update={"clusters": numbers[0], "init": init})
    bare = scenario.model_copy(update={"faults": (), "jobs": (template,)})
    check_backend(bare, backend)
    shares = load_data(bare)
    wanted = choosing.numbers_of_clusters(numbers, sum(share.n_rows for share in shares.values()))
    n_features = next(iter(shares.values())).n_features

    jobs = []
    for number, own_seed in choosing.trials(wanted, restarts, scenario.seed):
        job = template.model_copy(update={"clusters": number})
        trial = bare.model_copy(update={"jobs": (job,), "seed": own_seed})
        jobs.append(choosing.trial_job(make_job(trial, 0, n_features), wanted[-1], gate))
    spec = fleet_spec(CheckedRun(bare, shares, jobs[:1], {}))
    enrolled = sorted(device.name for device in bare.fleet.members if device.spec.enrolled)
    requests = [replace(spec.jobs[0], job=job) for job in jobs]
    spec = replace(spec, jobs=choosing.with_one_roster(requests, enrolled))
    with ExitStack() as stack:
        advance = stack.enter_context(progress_bar("jobs", len(jobs)))
        stack.enter_context(ended_like_ctrl_c())
        begun = count()

        def take(event: LogLine) -> None:
            if event["verb"] == "submitted":
                advance(completed=next(begun))

        result = backend_called(backend).carry_out(spec, take)
    try:
        states = choosing.final_states(result.jobs, result.failure, len(jobs))
        return choosing.choice(jobs, states, [peer.name for peer in spec.peers])
    except FleetError as error:
        if gate is None and HELD in str(error):
            raise FleetError(
                f"{error}; with --no-gate they are measured, and sums of few rows show much of each"
            ) from None
        raise
