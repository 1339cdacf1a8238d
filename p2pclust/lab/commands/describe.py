"""``p2pclust describe``: let the fleet of a scenario describe its table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from p2pclust.cli.show.options import AsJson, Overrides, ScenarioSeed, flag, option
from p2pclust.cli.show.output import put_json
from p2pclust.errors import FleetError, UsageError
from p2pclust.lab.commands.run import BackendName


def describe(
    scenario: Annotated[
        Path, typer.Argument(metavar="SCENARIO.toml", help="The scenario file, or the name of an installed one.")
    ],
    min_cell: Annotated[
        int | None, option("N", "What fewer rows are behind is hidden or merged; default 5, 0 shows everything.")
    ] = None,
    quantiles: Annotated[
        str | None, option("Q,...", "Further quantiles from 0 to 1, such as 0.05,0.95; default the quartiles only.")
    ] = None,
    bins: Annotated[int | None, option("N", "The cells of each histogram; default 10.")] = None,
    backend: Annotated[
        BackendName,
        typer.Option(metavar="processes|namespaces|simulated|in-process", help="As of `p2pclust run`."),
    ] = BackendName.PROCESSES,
    seed: ScenarioSeed = None,
    overrides: Overrides = None,
    as_csv: Annotated[bool, flag("--csv", "Print lines of a CSV file: column, what, of, to, value.")] = False,
    as_json: AsJson = False,
) -> None:
    """Describe the rows of all peers: counts, means, deviations, quantiles, histograms, correlations.

    The jobs of the scenario are replaced by one job `describe`, which a scenario may also have itself, with the report of
    `p2pclust run`. Missing values are counted. With four or more peers the job has secure sums, unless the first job of the
    scenario says secure = false. Histograms are in the output of --csv and --json.

    \b
    Examples:
      p2pclust describe quickstart --backend simulated
      p2pclust describe mine.toml --quantiles 0.05,0.95 --csv > described.csv
    """
    from p2pclust.cli.show.description import put_csv, show_description  # noqa: PLC0415
    from p2pclust.data.registry import is_file  # noqa: PLC0415
    from p2pclust.jobs.explain import validated  # noqa: PLC0415
    from p2pclust.lab.scenario.file.examples import SCENARIOS, find_example  # noqa: PLC0415
    from p2pclust.lab.scenario.file.load import check_backend, load_scenario  # noqa: PLC0415
    from p2pclust.lab.scenario.file.schema import ExpectSpec, ScenarioJob  # noqa: PLC0415
    from p2pclust.lab.scenario.run import checked_run, fleet_spec  # noqa: PLC0415
    from p2pclust.lab.testbed import backend as backend_called  # noqa: PLC0415
    from p2pclust.protocols.measuring.description import Description  # noqa: PLC0415

    if as_csv and as_json:
        raise UsageError("describe: --csv and --json are two forms of one answer: leave one of them out")
    checked = load_scenario(find_example(scenario, SCENARIOS, "p2pclust run"), overrides or (), seed)
    first = checked.jobs[0]
    given: dict[str, Any] = {"protocol": "describe", "secure": first.secure}
    given |= first.own if first.protocol == "describe" else {}
    asked = {"min_cell": min_cell, "quantiles": _numbers(quantiles), "bins": bins}
    given |= {name: value for name, value in asked.items() if value is not None}
    job = validated(ScenarioJob, {name: value for name, value in given.items() if value is not None}, "describe")
    data = checked.data
    own: dict[str, Any] = {"scaling": None, "bounds": None}
    of_files = data.source is None or is_file(data.source, Path())
    own |= {"missing_values": "keep"} if of_files and data.missing_values == "error" else {}
    data = data.model_copy(update=own)
    bare = checked.model_copy(update={"faults": (), "jobs": (job,), "data": data, "expect": ExpectSpec()})
    check_backend(bare, backend.value)
    run = checked_run(bare)
    result = backend_called(backend.value).carry_out(fleet_spec(run), lambda event: None)
    state = result.jobs[0].state if result.jobs else None
    if state is None or state.status != "done":
        raise FleetError(result.failure or (state.reason if state is not None else "no peer finished the job"))
    found = Description.of(run.jobs[0], state, run.features)
    if as_json:
        put_json(found.to_dict())
    elif as_csv:
        put_csv(found)
    else:
        show_description(found)


def _numbers(text: str | None) -> list[float] | None:
    try:
        return None if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--quantiles {text}: expected numbers from 0 to 1, such as 0.05,0.95") from None
