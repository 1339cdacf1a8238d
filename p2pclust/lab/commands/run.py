"""``p2pclust run``: run a scenario and write its results to a directory; ``p2pclust demo``: the quick start."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from p2pclust.cli.show.options import Overrides, Overwrite, ResultAsJson, ScenarioSeed, Serve
from p2pclust.cli.show.output import complain, note, put_json, stderr, stdout
from p2pclust.errors import UsageError
from p2pclust.lab.commands.show.page import ended_like_ctrl_c
from p2pclust.tools.spelling import command

if TYPE_CHECKING:
    from rich.console import Console

    from p2pclust.lab.commands.show.live import Watch
    from p2pclust.lab.scenario.file.schema import Scenario


class BackendName(StrEnum):
    PROCESSES = "processes"
    NAMESPACES = "namespaces"
    SIMULATED = "simulated"
    IN_PROCESS = "in-process"


def run(
    scenario: Annotated[
        Path | None,
        typer.Argument(
            metavar="[SCENARIO.toml]",
            help="The scenario file, or the name of one that is installed with p2pclust; without it, these are listed.",
        ),
    ] = None,
    backend: Annotated[
        BackendName,
        typer.Option(
            metavar="processes|namespaces|simulated|in-process",
            help="Real processes on this machine, each with a network namespace of its own (as root), the same peers in "
            "virtual time, or the pure functions in this process.",
        ),
    ] = BackendName.PROCESSES,
    seed: ScenarioSeed = None,
    overrides: Overrides = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Output directory; default runs/NAME-YYYYmmdd-HHMMSS.")
    ] = None,
    overwrite: Overwrite = False,
    serve: Serve = None,
    as_json: ResultAsJson = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of scenario files, by which editors complete keys.")
    ] = False,
) -> None:
    """Run a scenario: start its fleet, run its jobs, cause its faults, check its expectations.

    Writes result.json, centers.csv, labels.csv, events.jsonl, report.html, which shows all of it, and model.msgpack, with
    which `p2pclust assign` labels other rows, to the output directory. Exits with 0 if the fleet finished and all
    expectations held, with 1 if an expectation failed, with 3 if the fleet could not finish.

    \b
    Examples:
      p2pclust run quickstart
      p2pclust run iris-kmeans --backend simulated --set jobs.0.clusters=4 --json
      p2pclust run mine.toml --out runs/mine
      p2pclust run quickstart --serve
      p2pclust run --schema > scenario.schema.json
    """
    from p2pclust.lab.commands.examples import list_examples  # noqa: PLC0415
    from p2pclust.lab.scenario.file.examples import SCENARIOS, find_example  # noqa: PLC0415
    from p2pclust.lab.scenario.file.load import load_scenario, too_many_processes  # noqa: PLC0415
    from p2pclust.lab.scenario.outcome.folder import default_directory  # noqa: PLC0415

    if schema:
        from p2pclust.lab.scenario.file.schema import Scenario  # noqa: PLC0415

        put_json(Scenario.model_json_schema())
        return
    if scenario is None:
        list_examples(SCENARIOS, "scenario", "p2pclust run", as_json=as_json)
        return
    scenario = find_example(scenario, SCENARIOS, "p2pclust run")
    checked = load_scenario(scenario, overrides or (), seed)
    # Only the name of the directory depends on the wall clock.
    directory = out or default_directory(scenario.stem, datetime.now())
    check_folder(directory, overwrite=overwrite)
    if backend in (BackendName.PROCESSES, BackendName.NAMESPACES) and (warning := too_many_processes(checked)):
        note(f"warning: {warning}", "yellow")
    events = directory / "events.jsonl"
    try:
        console = stderr() if as_json else stdout()
        result = _carry_out(checked, backend.value, directory, scenario.stem, console, as_json=as_json, serve=serve)
    except KeyboardInterrupt:
        if events.exists():
            note(f"the events until now are in {events}")
        raise
    if as_json:
        put_json(result)
    if result["failure"]:
        complain(f"{result['failure']} (see {events})")
        raise typer.Exit(3)
    if not all(item["held"] for item in result["expectations"]):
        raise typer.Exit(1)


def check_folder(directory: Path, *, overwrite: bool) -> None:
    """Refuse an output directory with the files of an earlier run, unless they may be replaced."""
    from p2pclust.lab.scenario.outcome.folder import left_by_a_run  # noqa: PLC0415

    if (earlier := left_by_a_run(directory)) and not overwrite:
        raise UsageError(
            f"--out {directory}: it holds {earlier[0].name} of an earlier run: choose another folder, or add --overwrite"
        )


def demo(
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Output directory; default runs/quickstart-YYYYmmdd-HHMMSS.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Run the quick start, and say where its report is: eight peers cluster digits, and the aggregator is killed.

    It is `p2pclust run quickstart`: real processes on this machine, which all end with the command. Where the system cannot
    fork, the same peers run in virtual time.

    \b
    Example:
      p2pclust demo
    """
    from p2pclust.lab.scenario.outcome.folder import default_directory  # noqa: PLC0415
    from p2pclust.tools.platforms import is_unix  # noqa: PLC0415

    directory = out or default_directory("quickstart", datetime.now())
    backend = BackendName.PROCESSES if is_unix() else BackendName.SIMULATED
    try:
        run(Path("quickstart"), backend=backend, out=directory, overwrite=overwrite)
    finally:
        report = directory.absolute() / "report.html"
        if report.exists():
            note(f"open the report in a browser: {report.as_uri()}")
            note("begin with your own file: p2pclust init FILE.csv")


def _carry_out(
    scenario: Scenario, backend: str, directory: Path, name: str, console: Console, *, as_json: bool,
    serve: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    from p2pclust.lab.commands.show.live import Watch  # noqa: PLC0415
    from p2pclust.lab.commands.show.page import page_of  # noqa: PLC0415
    from p2pclust.lab.commands.show.summary import summarise  # noqa: PLC0415
    from p2pclust.lab.live.shown import FollowedRun  # noqa: PLC0415
    from p2pclust.lab.run.events import RunEvent  # noqa: PLC0415
    from p2pclust.lab.run.scene import OPENING, Scene  # noqa: PLC0415
    from p2pclust.lab.scenario.run import carry_out  # noqa: PLC0415

    shown: list[tuple[Watch, FollowedRun]] = []
    with ExitStack() as stack:

        def take(event: Mapping[str, Any]) -> None:
            """Show an event; the first one says what the page and the view are of."""
            if event["verb"] == OPENING:
                scene = Scene.of_event(event)
                begun = scene.begun()
                followed = FollowedRun(scene, begun, mode="run")
                if serve is not None:
                    stack.enter_context(page_of(followed, serve))
                watch = Watch(console, scene.title, scene.details, begun, scene.tol, clock=backend != "simulated")
                shown.append((stack.enter_context(watch), followed))
                return
            watch, followed = shown[0]
            with followed.changing():
                watch.take(RunEvent.of(event))

        def measure() -> None:
            shown[0][0].close()
            people = stderr()
            if people.is_terminal and not as_json:
                people.print("measuring the result and drawing report.html", style="dim", soft_wrap=True)

        stack.enter_context(ended_like_ctrl_c())
        outcome = "interrupted"
        try:
            result = carry_out(scenario, backend, out=directory, on_event=take, on_end=measure, name=name)
            outcome = result["failure"] or "all jobs are done"
        finally:
            if shown:
                shown[0][1].say(ended=True, outcome=outcome)
        summarise(console, result)
        if serve is not None:
            again = f"{command('p2pclust', 'replay', directory, '--serve')} shows the run again"
            if stderr().is_terminal and not as_json:
                with suppress(KeyboardInterrupt):  # which may come before the line has been written
                    note(f"the page stays until Ctrl-C; {again}")
                    threading.Event().wait()
            else:
                note(f"the page has ended; {again}")
    return result
