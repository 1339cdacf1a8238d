"""The commands of the laboratory, in the order of the help."""

from __future__ import annotations

from typing import Any, Final

from typer.core import TyperCommand

from p2pclust.cli.show.options import ServingCommand
from p2pclust.lab.commands import (
    audit,
    choose,
    compare,
    data,
    examples,
    init,
    reproduce,
    run,
    served,
    simulate,
    topology,
)

_HERE: Final = "Scenarios and your own data"
_RESEARCH: Final = "Research"

#: The part of the help, the name, the command or group, its line there, and the class of a command.
COMMANDS: Final[tuple[tuple[str, str, Any, str, type[TyperCommand]], ...]] = (
    (_HERE, "demo", run.demo, "Run the quick start, and show where its report is.", TyperCommand),
    (_HERE, "init", init.init, "Begin with a file of your own.", TyperCommand),
    (_HERE, "run", run.run, "Run a scenario and check what it expects.", ServingCommand),
    (_HERE, "replay", served.replay, "Show a run that ended, at any speed.", ServingCommand),
    (_HERE, "compare", compare.compare, "Put runs side by side.", TyperCommand),
    (_HERE, "choose", choose.choose, "Let the fleet choose the number of clusters.", TyperCommand),
    (_HERE, "examples", examples.app, "List the installed scenarios, copy one.", TyperCommand),
    (_HERE, "data", data.app, "List, fetch and split data sets.", TyperCommand),
    (_RESEARCH, "topology", topology.app, "Make, measure, draw and compare overlays.", TyperCommand),
    (_RESEARCH, "audit", audit.audit, "Attack a scenario's jobs with what their messages show.", TyperCommand),
    (_RESEARCH, "simulate", simulate.simulate, "Test simulated fleets under faults.", TyperCommand),
    (_RESEARCH, "reproduce", reproduce.reproduce, "Measure the papers' tables again, next to their numbers.", TyperCommand),
)  # fmt: skip
